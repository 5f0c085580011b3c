"""Findings about data files tell the figures they rest on, and begin exactly at their limits."""

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.errors import ParameterError
from icekit.facts.definition import PartitionField, PartitionSpec
from icekit.facts.files import FileGroup, Partition
from icekit.facts.model import TableFacts
from icekit.facts.storage import SharedPlace, Sharing, StorageFacts
from tests.diagnose.told import absent, named, present, required, shows, told
from tests.factories import (
    BY_DAY,
    COLUMNS,
    FIRST_DAY,
    GIB,
    KIB,
    MIB,
    NEWER,
    TARGET,
    UNPARTITIONED,
    empty_facts,
    file_group,
    healthy_groups,
    partition,
    table_facts,
)
from tests.golden import Golden

SHARED = Sharing(tuple(SharedPlace(f"db.t{n}", "s3://bucket/db/events") for n in range(7)))


def of_days(*sizes: list[int], spec_id: int = 0) -> list[FileGroup]:
    """A partition a day from the first on, with files of the sizes given."""
    return [
        file_group(*each, of=partition(FIRST_DAY + day, spec_id=spec_id))
        for day, each in enumerate(sizes)
    ]


def facts_of(*sizes: list[int]) -> TableFacts:
    return table_facts(groups=of_days(*sizes))


def test_sizes_that_reach_a_limit_within_their_bucket_are_refused_rather_than_guessed() -> None:
    # 300 of 512 MiB, which the facts were not cut at; both files lie between 256 and 384.
    limits = Thresholds(min_file_size_ratio=300 / 512)

    with pytest.raises(ParameterError, match="not counted at 314,572,800 bytes"):
        named(facts_of([260 * MIB, 300 * MIB]), "small_files", thresholds=limits)


def test_what_disappears_is_what_the_target_does_not_need() -> None:
    whole = required(facts_of([128 * MIB] * 8), "small_files")
    old = table_facts(groups=of_days(*[[300 * MIB]] * 6), specs=(BY_DAY, PartitionSpec(1, ())))
    together = required(old, "small_files")
    two = Thresholds(min_input_files=2)

    assert whole.evidence.startswith("compaction would remove 6 of 8 data files")
    # 1800 MiB of six days go into the one partition there is now, and take four files.
    assert together.evidence.startswith(
        "compaction would remove 2 of 6 data files: 6 files of 300 MiB on average in 6 partitions;"
    )
    absent("small_files", facts_of([380 * MIB] * 2), thresholds=two)


@pytest.mark.parametrize(
    ("small", "well", "severity"),
    [
        (101, 0, Severity.CRITICAL),
        (100, 0, Severity.WARNING),
        (101, 98, Severity.CRITICAL),
        (101, 99, Severity.WARNING),
    ],
)
def test_small_files_are_critical_from_a_hundred_that_go_and_more_than_half_of_all(
    small: int, well: int, severity: Severity
) -> None:
    assert told(facts_of([MIB] * small + [500 * MIB] * well), "small_files")[0] is severity


def test_oversized_files_are_a_warning_from_a_twentieth_of_the_bytes_on() -> None:
    # 1024 of 20,480 MiB, and of one file of the target more.
    assert told(facts_of([GIB] + [TARGET] * 38), "oversized_files")[0] is Severity.WARNING
    assert told(facts_of([GIB] + [TARGET] * 39), "oversized_files")[0] is Severity.INFO


def test_a_file_is_oversized_from_one_byte_over_the_limit_on() -> None:
    absent("oversized_files", facts_of([TARGET * 9 // 5]))
    present("oversized_files", facts_of([TARGET * 9 // 5 + 1]))


def tiny_target(*sizes: list[int], target: int = MIB, **properties: str) -> TableFacts:
    """Partitions by day of files of these sizes, with a target of 1 MiB; properties have ``_`` for
    ``.`` and ``__`` for ``-``.
    """
    given = {name.replace("__", "-").replace("_", "."): value for name, value in properties.items()}
    return table_facts(
        groups=of_days(*sizes), properties={"write.target-file-size-bytes": str(target), **given}
    )


def test_a_target_is_too_small_below_a_quarter_of_the_split_and_critical_below_the_cost_of_an_open() -> (
    None
):
    split = {"read_split_target__size": str(64 * MIB)}
    costly = {"read_split_open__file__cost": str(9 * MIB)}

    absent("target_too_small", tiny_target([32 * MIB] * 4, target=32 * MIB))
    assert (
        told(tiny_target([8 * MIB] * 16, target=8 * MIB), "target_too_small")[0] is Severity.WARNING
    )
    assert (
        told(tiny_target([8 * MIB] * 16, target=8 * MIB, **costly), "target_too_small")[0]
        is Severity.CRITICAL
    )
    absent("target_too_small", tiny_target([16 * MIB] * 16, target=16 * MIB, **split))
    present("target_too_small", tiny_target([15 * MIB] * 5, target=15 * MIB, **split))


def test_a_small_target_is_no_problem_where_no_partition_has_a_split_of_such_files_or_a_hundred_too_many() -> (
    None
):
    absent(
        "target_too_small",
        tiny_target([MIB] * 100, [MIB] * 100),
        tiny_target([MIB] * 100, [512 * MIB]),
        tiny_target([8 * MIB] * 15, target=8 * MIB),
    )
    present(
        "target_too_small", tiny_target([MIB] * 101), tiny_target([8 * MIB] * 16, target=8 * MIB)
    )


def test_small_files_that_compaction_combines_are_not_too_many_for_the_target() -> None:
    absent("target_too_small", tiny_target([10 * KIB] * 200))


def test_five_files_are_too_many_for_a_target_below_what_a_file_of_these_columns_can_be() -> None:
    # Four columns: 1 KiB without any row.
    present("target_too_small", tiny_target([10 * KIB] * 6, target=10 * KIB))
    absent(
        "target_too_small",
        tiny_target([10 * KIB] * 5, target=10 * KIB),
        tiny_target([11 * KIB] * 6, target=11 * KIB),
    )


def test_files_that_no_writer_could_split_are_not_oversized_and_count_as_those_of_a_small_target() -> (
    None
):
    def of_rows(rows: int) -> TableFacts:
        group = file_group(*[700] * 6, target_bytes=200, records_per_file=rows)
        return table_facts(groups=(group,), properties={"write.target-file-size-bytes": "200"})

    assert named(of_rows(1000), "oversized_files") is None
    assert named(of_rows(1000), "target_too_small") is not None
    assert named(of_rows(1001), "oversized_files") is not None
    assert named(of_rows(1001), "target_too_small") is None
    # A rewrite splits a file of wide rows between its row groups.
    wide = file_group(2 * GIB, records_per_file=500)
    present("oversized_files", table_facts(groups=(wide,)))
    absent(
        "oversized_files",
        table_facts(
            groups=(wide,), properties={"write.parquet.row-group-size-bytes": str(2 * GIB)}
        ),
    )


def test_a_table_that_scatters_its_rows_is_distributed_with_the_new_target() -> None:
    scattered = told(tiny_target([MIB] * 128, write_distribution__mode="none"), "target_too_small")

    assert scattered[3][0].endswith(
        "('write.target-file-size-bytes' = '134217728', 'write.distribution-mode' = 'hash')"
    )


def test_only_partitions_whose_time_is_over_are_rewritten_for_a_new_target() -> None:
    begun = tiny_target([MIB] * 128)
    now = dataclasses.replace(begun, collected_at_ms=FIRST_DAY * 86_400_000 + 1)
    found = required(now, "target_too_small")
    unpartitioned = table_facts(
        groups=[file_group(*[MIB] * 128, of=Partition(0, ()))],
        properties={"write.target-file-size-bytes": str(MIB)},
        specs=(UNPARTITIONED,),
    )

    assert len(found.sql) == 1
    assert "where" not in told(unpartitioned, "target_too_small")[3][1]


def test_a_statement_names_at_most_2000_partitions() -> None:
    later = (FIRST_DAY + 3_000) * 86_400_000
    most, more = (
        required(
            dataclasses.replace(tiny_target(*[[MIB] * 128] * days), collected_at_ms=later),
            "target_too_small",
        )
        for days in (2_000, 2_003)
    )

    assert most.sql == more.sql
    assert "names at most 2,000" in more.remedy


def test_skew_begins_at_ten_times_the_median_and_over_one_target_file() -> None:
    ten = facts_of(*[[500 * MIB]] * 5, [500 * MIB] * 10)

    assert told(ten, "skewed_partitions")[4:] == (10, 5000 * MIB)
    absent(
        "skewed_partitions",
        facts_of(*[[500 * MIB]] * 5, [500 * MIB] * 9 + [499 * MIB]),
        facts_of(*[[50 * MIB]] * 5, [TARGET]),
        facts_of(*[[500 * MIB]] * 3, [500 * MIB] * 20),
    )
    present("skewed_partitions", facts_of(*[[50 * MIB]] * 5, [TARGET + 1]))


@pytest.mark.parametrize(("newer", "severity"), [(9, Severity.WARNING), (10, Severity.INFO)])
def test_older_specs_are_a_warning_from_a_tenth_of_the_bytes_on(
    newer: int, severity: Severity
) -> None:
    groups = [
        *of_days([500 * MIB]),
        file_group(*[500 * MIB] * newer, of=Partition(1, ())),
    ]
    facts = table_facts(groups=groups, specs=(BY_DAY, PartitionSpec(1, ())))
    found = told(facts, "old_partition_spec")

    assert found[0] is severity
    assert found[2].endswith("the current spec is 1 (no partitioning)")


@pytest.mark.parametrize(
    ("weighed", "said"), [(3, "3 files, 6 MiB, under"), (2, "3 files, about 6 MiB, under")]
)
def test_orphans_that_were_weighed_say_what_they_hold(weighed: int, said: str) -> None:
    facts = dataclasses.replace(table_facts(), storage=StorageFacts(0, 3, (), 6 * MIB, weighed))

    _, _, evidence, _, _, at_stake = told(facts, "orphan_files")
    assert evidence.startswith(said)
    assert at_stake == 6 * MIB


# --- Partitions that are too small


def thin_days(count: int, *, file_bytes: int = MIB, **more: object) -> TableFacts:
    return table_facts(groups=of_days(*[[file_bytes]] * count), **more)


def spec_of(*fields: tuple[str, str]) -> PartitionSpec:
    sources = [column.name for column in COLUMNS]
    return PartitionSpec(
        0,
        tuple(
            PartitionField(1000 + i, f"part_{i}", transform, sources.index(name) + 1, name, "int")
            for i, (name, transform) in enumerate(fields)
        ),
    )


def coarser(*fields: tuple[str, str], file_bytes: int = MIB) -> str | None:
    groups = [file_group(file_bytes, of=partition(*[day] * len(fields))) for day in range(20)]
    finding = required(table_facts(groups=groups, specs=(spec_of(*fields),)), "over_partitioned")
    assert len(finding.sql) in {0, 2}
    return finding.sql[0].removeprefix("ALTER TABLE `prod`.`db`.`events` ") if finding.sql else None


def test_partitions_are_too_small_from_twenty_on_below_a_quarter_of_the_target_and_more_than_half_of_them() -> (
    None
):
    few, many = (
        Thresholds(many_partitions=19),
        Thresholds(thin_partition_share=0.26),
    )
    half = facts_of(*[[MIB]] * 10, *[[128 * MIB]] * 10)

    absent("over_partitioned", thin_days(19), thin_days(20, file_bytes=128 * MIB), half)
    present("over_partitioned", thin_days(19), thresholds=few)
    present("over_partitioned", thin_days(20, file_bytes=128 * MIB), thresholds=many)
    present(
        "over_partitioned",
        thin_days(20, file_bytes=128 * MIB - 1),
        facts_of(*[[MIB]] * 11, *[[128 * MIB]] * 10),
    )


def test_many_files_in_a_small_partition_count_by_their_bytes() -> None:
    absent("over_partitioned", facts_of(*[[32 * MIB] * 4] * 20))
    present("over_partitioned", facts_of(*[[31 * MIB] * 4] * 20))


def test_partitions_of_an_older_spec_are_no_concern_of_the_current_one() -> None:
    groups = [*of_days(*[[MIB]] * 30), *of_days([500 * MIB], spec_id=1)]

    absent("over_partitioned", table_facts(groups=groups, specs=(BY_DAY, NEWER)))


@pytest.mark.parametrize(
    ("fields", "file_bytes", "change"),
    [
        (
            [("event_time", "hour")],
            100 * MIB,
            "REPLACE PARTITION FIELD hours(`event_time`) WITH days(`event_time`)",
        ),
        (
            [("event_time", "hour")],
            10 * MIB,
            "REPLACE PARTITION FIELD hours(`event_time`) WITH months(`event_time`)",
        ),
        (
            [("event_time", "hour")],
            MIB // 16,
            "REPLACE PARTITION FIELD hours(`event_time`) WITH years(`event_time`)",
        ),
        (
            [("carrier", "identity"), ("event_time", "day")],
            100 * MIB,
            "REPLACE PARTITION FIELD days(`event_time`) WITH months(`event_time`)",
        ),
        (
            [("event_id", "bucket[64]")],
            100 * MIB,
            "REPLACE PARTITION FIELD bucket(64, `event_id`) WITH bucket(12, `event_id`)",
        ),
        ([("event_id", "bucket[64]")], MIB, "DROP PARTITION FIELD bucket(64, `event_id`)"),
        # Time comes first, and nothing of time is coarser than a year.
        (
            [("event_id", "bucket[64]"), ("event_time", "day")],
            100 * MIB,
            "REPLACE PARTITION FIELD days(`event_time`) WITH months(`event_time`)",
        ),
        (
            [("event_time", "year"), ("event_id", "bucket[64]")],
            100 * MIB,
            "REPLACE PARTITION FIELD bucket(64, `event_id`) WITH bucket(12, `event_id`)",
        ),
        # Which text to group by is for the filters to say.
        ([("carrier", "identity")], MIB, None),
        ([("carrier", "truncate[4]")], MIB, None),
    ],
)
def test_the_transform_is_as_coarse_as_the_target_asks_for(
    fields: list[tuple[str, str]], file_bytes: int, change: str | None
) -> None:
    assert coarser(*fields, file_bytes=file_bytes) == change


def test_a_date_itself_is_as_fine_as_a_day() -> None:
    columns = tuple(
        dataclasses.replace(c, type="date") if c.name == "event_time" else c for c in COLUMNS
    )
    facts = thin_days(20, specs=(spec_of(("event_time", "identity")),), columns=columns)
    finding = required(facts, "over_partitioned")

    assert finding.sql[0].endswith("REPLACE PARTITION FIELD `event_time` WITH years(`event_time`)")


@pytest.mark.parametrize("facts", [table_facts(), empty_facts()], ids=["healthy", "empty"])
def test_a_healthy_or_empty_table_has_nothing_to_do(facts: TableFacts) -> None:
    assert diagnose(facts) == ()


def test_five_undersized_files_in_one_partition_are_small_files() -> None:
    present("small_files", facts_of([MIB] * 5))
    absent("small_files", facts_of([MIB] * 4))


def test_undersized_files_of_different_partitions_are_not_added_up() -> None:
    absent("small_files", facts_of(*[[MIB] * 2] * 50))


def test_files_of_older_specs_are_combined_where_a_rewrite_puts_them_into_one_partition() -> None:
    groups = of_days(*[[MIB]] * 6)
    facts = table_facts(groups=groups, specs=(BY_DAY, PartitionSpec(1, ())))
    finding = required(facts, "small_files")

    assert finding.where_count == 6
    absent("small_files", table_facts(groups=groups, specs=(BY_DAY, NEWER)))


def test_the_limit_is_three_quarters_of_the_target_in_force_and_exact() -> None:
    properties = {"write.target-file-size-bytes": str(100 * MIB)}
    at = [file_group(*[75 * MIB] * 5, target_bytes=100 * MIB)]
    below = [file_group(*[75 * MIB - 1] * 5, target_bytes=100 * MIB)]

    absent("small_files", table_facts(groups=at, properties=properties))
    present("small_files", table_facts(groups=below, properties=properties))


def test_the_partition_with_most_to_win_comes_first_and_ten_are_listed() -> None:
    finding = required(facts_of(*([MIB] * (5 + day) for day in range(12))), "small_files")

    assert finding.where[0] == "event_day=2026-01-12"
    assert len(finding.where) == 10
    assert finding.where_count == 12


def test_a_changed_ratio_changes_the_judgement() -> None:
    ratio = Thresholds(min_file_size_ratio=0.5)
    group = file_group(*[300 * MIB] * 6, ratios=ratio.size_ratios)

    absent("small_files", table_facts(groups=(group,)), thresholds=ratio)
    present("small_files", facts_of([300 * MIB] * 6))


def test_files_of_the_current_spec_and_a_listing_without_orphans_are_no_finding() -> None:
    facts = table_facts(groups=healthy_groups(3), specs=(BY_DAY, NEWER), default_spec_id=0)

    absent("old_partition_spec", facts)
    absent("orphan_files", dataclasses.replace(facts, storage=StorageFacts(0, 0)))


def test_orphans_are_not_named_where_another_table_shares_the_location() -> None:
    facts = dataclasses.replace(table_facts(), storage=StorageFacts(0, 0, sharing=SHARED))
    finding = required(facts, "shared_location")

    absent("orphan_files", facts)
    assert finding.sql == ()


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "small_files": facts_of([MIB] * 5 + [500 * MIB], [2 * MIB] * 6),
    "oversized_files": facts_of([500 * MIB, 2 * GIB], [GIB] * 3),
    "target_too_small": tiny_target([MIB] * 200, [MIB] * 100),
    "skewed_partitions": facts_of(*[[500 * MIB]] * 4, [500 * MIB] * 20),
    "old_partition_spec": table_facts(
        groups=[*of_days([100 * MIB], [500 * MIB] * 3), *of_days([500 * MIB] * 2, spec_id=1)],
        specs=(BY_DAY, NEWER),
    ),
    "orphan_files": table_facts(storage=StorageFacts(0, 3, ("s3://bucket/a",))),
    "orphan_files of a location that was not checked": table_facts(
        storage=StorageFacts(
            0, 3, sharing=Sharing(unchecked="db.broken cannot be read: it is gone")
        )
    ),
    "shared_location": table_facts(storage=StorageFacts(0, 0, sharing=SHARED)),
    "over_partitioned": thin_days(20, file_bytes=20 * MIB),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_about_files_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    shows(golden, case, SHOWN[case])
