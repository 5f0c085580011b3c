"""Findings about data files, partitions and storage begin exactly at their limits."""

import dataclasses

import pytest

from icekit import Severity, Thresholds, diagnose
from icekit.common.errors import ParameterError
from icekit.health.facts.files import FileGroup
from icekit.health.facts.model import TableFacts
from icekit.health.facts.storage import SharedPlace, Sharing, StorageFacts
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition
from tests.factories import (
    BY_DAY,
    COLUMNS,
    FIRST_DAY,
    GIB,
    KIB,
    MIB,
    NEWER,
    TARGET,
    empty_facts,
    file_group,
    healthy_groups,
    partition,
    table_facts,
)
from tests.health.diagnose.told import Borders, absent, named, present, required

SHARED = Sharing(tuple(SharedPlace(f"db.t{n}", "s3://bucket/db/events") for n in range(7)))
UNPARTITIONED_NOW = (BY_DAY, PartitionSpec(1, ()))


def of_days(*sizes: list[int], spec_id: int = 0) -> list[FileGroup]:
    """A partition a day from the first on, with files of the sizes given."""
    return [
        file_group(*each, of=partition(FIRST_DAY + day, spec_id=spec_id))
        for day, each in enumerate(sizes)
    ]


def facts_of(*sizes: list[int], **more: object) -> TableFacts:
    return table_facts(groups=of_days(*sizes), **more)


def tiny_target(*sizes: list[int], target: int = MIB, **properties: str) -> TableFacts:
    """Partitions by day of files of these sizes, with a target of 1 MiB; properties of reads have
    ``_`` for ``-``.
    """
    given = {f"read.split.{name.replace('_', '-')}": value for name, value in properties.items()}
    return facts_of(*sizes, properties={"write.target-file-size-bytes": str(target), **given})


BORDERS: Borders = {
    "small_files": (
        # The limit is three quarters of the target in force.
        [
            facts_of([MIB] * 5),
            facts_of([300 * MIB] * 6),
            facts_of([384 * MIB - 1] * 5),
            facts_of(*[[MIB]] * 6, specs=UNPARTITIONED_NOW),
        ],
        # Files of different partitions are not added up, unless a rewrite puts them into one.
        [
            facts_of([MIB] * 4),
            facts_of(*[[MIB] * 2] * 50),
            facts_of([384 * MIB] * 5),
            facts_of(*[[MIB]] * 6, specs=(BY_DAY, NEWER)),
        ],
    ),
    "oversized_files": ([facts_of([TARGET * 9 // 5 + 1])], [facts_of([TARGET * 9 // 5])]),
    # Below a quarter of a split, with a split of such files in a partition or a hundred too many;
    # compaction combines smaller ones.
    "target_too_small": (
        [
            tiny_target([15 * MIB] * 5, target=15 * MIB, target_size=str(64 * MIB)),
            tiny_target([MIB] * 101),
            tiny_target([8 * MIB] * 16, target=8 * MIB),
        ],
        [
            tiny_target([32 * MIB] * 4, target=32 * MIB),
            tiny_target([16 * MIB] * 16, target=16 * MIB, target_size=str(64 * MIB)),
            tiny_target([MIB] * 100, [MIB] * 100),
            tiny_target([MIB] * 100, [512 * MIB]),
            tiny_target([8 * MIB] * 15, target=8 * MIB),
            tiny_target([10 * KIB] * 200),
        ],
    ),
    # From ten times the median and over one target file on, with five partitions.
    "skewed_partitions": (
        [
            facts_of(*[[500 * MIB]] * 5, [500 * MIB] * 10),
            facts_of(*[[50 * MIB]] * 5, [TARGET + 1]),
        ],
        [
            facts_of(*[[500 * MIB]] * 5, [500 * MIB] * 9 + [499 * MIB]),
            facts_of(*[[50 * MIB]] * 5, [TARGET]),
            facts_of(*[[500 * MIB]] * 3, [500 * MIB] * 20),
        ],
    ),
    # Twenty partitions, more than half of them below a quarter of the target by their bytes.
    "over_partitioned": (
        [
            facts_of(*[[128 * MIB - 1]] * 20),
            facts_of(*[[31 * MIB] * 4] * 20),
            facts_of(*[[MIB]] * 11, *[[128 * MIB]] * 10),
        ],
        [
            facts_of(*[[MIB]] * 19),
            facts_of(*[[32 * MIB] * 4] * 20),
            facts_of(*[[MIB]] * 10, *[[128 * MIB]] * 10),
            table_facts(
                groups=[*of_days(*[[MIB]] * 30), *of_days([500 * MIB], spec_id=1)],
                specs=(BY_DAY, NEWER),
            ),
        ],
    ),
    "old_partition_spec": (
        [facts_of([500 * MIB], specs=(BY_DAY, NEWER))],
        [table_facts(groups=healthy_groups(3), specs=(BY_DAY, NEWER), default_spec_id=0)],
    ),
    "orphan_files": (
        [table_facts(storage=StorageFacts(0, 1))],
        [table_facts(storage=StorageFacts(0, 0, sharing=SHARED))],
    ),
    "shared_location": (
        [table_facts(storage=StorageFacts(0, 0, sharing=SHARED))],
        [table_facts(storage=StorageFacts(0, 0))],
    ),
}


SEVERITIES = [
    # A hundred that go, and more than half of all.
    ("small_files", facts_of([MIB] * 101), Severity.CRITICAL),
    ("small_files", facts_of([MIB] * 100), Severity.WARNING),
    ("small_files", facts_of([MIB] * 101 + [500 * MIB] * 98), Severity.CRITICAL),
    ("small_files", facts_of([MIB] * 101 + [500 * MIB] * 99), Severity.WARNING),
    # A twentieth of the bytes: 1024 of 20,480 MiB, and of one file of the target more.
    ("oversized_files", facts_of([GIB] + [TARGET] * 38), Severity.WARNING),
    ("oversized_files", facts_of([GIB] + [TARGET] * 39), Severity.INFO),
    # The cost of an open, 4 MiB unless the table states it.
    ("target_too_small", tiny_target([8 * MIB] * 16, target=8 * MIB), Severity.WARNING),
    (
        "target_too_small",
        tiny_target([8 * MIB] * 16, target=8 * MIB, open_file_cost=str(9 * MIB)),
        Severity.CRITICAL,
    ),
    # A tenth of the bytes.
    *(
        (
            "old_partition_spec",
            table_facts(
                groups=[
                    *of_days([500 * MIB]),
                    file_group(*[500 * MIB] * n, of=Partition(1, ())),
                ],
                specs=UNPARTITIONED_NOW,
            ),
            severity,
        )
        for n, severity in ((9, Severity.WARNING), (10, Severity.INFO))
    ),
]


@pytest.mark.parametrize(
    ("name", "facts", "limits"),
    [
        ("over_partitioned", facts_of(*[[MIB]] * 19), Thresholds(many_partitions=19)),
        ("over_partitioned", facts_of(*[[128 * MIB]] * 20), Thresholds(thin_partition_share=0.26)),
        (
            "small_files",
            table_facts(groups=(file_group(*[450 * MIB] * 60, ratios=(1.0, 1.8)),)),
            Thresholds(min_file_size_ratio=1),
        ),
    ],
)
def test_a_changed_threshold_changes_the_judgement(
    name: str, facts: TableFacts, limits: Thresholds
) -> None:
    absent(name, facts)
    present(name, facts, thresholds=limits)


def test_sizes_that_reach_a_limit_within_their_bucket_are_refused_rather_than_guessed() -> None:
    # 300 of 512 MiB, which the facts were not cut at; both files lie between 256 and 384.
    limits = Thresholds(min_file_size_ratio=300 / 512)

    with pytest.raises(ParameterError, match="not counted at 314,572,800 bytes"):
        named(facts_of([260 * MIB, 300 * MIB]), "small_files", thresholds=limits)


def test_what_disappears_is_what_the_target_does_not_need() -> None:
    whole = required(facts_of([128 * MIB] * 8), "small_files")

    assert whole.evidence.startswith("compaction would remove 6 of 8 data files")
    two = Thresholds(min_input_files=2)
    absent("small_files", facts_of([380 * MIB] * 2), thresholds=two)


def test_files_that_no_writer_could_split_are_not_oversized_and_count_as_those_of_a_small_target() -> (
    None
):
    def of_rows(rows: int) -> TableFacts:
        group = file_group(*[700] * 120, target_bytes=200, records_per_file=rows)
        return table_facts(groups=(group,), properties={"write.target-file-size-bytes": "200"})

    absent("oversized_files", of_rows(1000))
    present("target_too_small", of_rows(1000))
    present("oversized_files", of_rows(1001))
    absent("target_too_small", of_rows(1001))
    # A rewrite splits a file of wide rows between its row groups.
    wide = file_group(2 * GIB, records_per_file=500)
    present("oversized_files", table_facts(groups=(wide,)))
    absent(
        "oversized_files",
        table_facts(
            groups=(wide,), properties={"write.parquet.row-group-size-bytes": str(2 * GIB)}
        ),
    )


def in_spec(*fields: tuple[str, str], file_bytes: int) -> TableFacts:
    """Twenty partitions of a file each, by transforms of columns, of which ``day`` is a date."""
    columns = (*COLUMNS, dataclasses.replace(COLUMNS[1], field_id=5, name="day", type="date"))
    ids = {column.name: column.field_id for column in columns}
    spec = PartitionSpec(
        0,
        tuple(
            PartitionField(1000 + i, f"part_{i}", transform, ids[name], name, "int")
            for i, (name, transform) in enumerate(fields)
        ),
    )
    groups = [file_group(file_bytes, of=partition(*[day] * len(fields))) for day in range(20)]
    return table_facts(groups=groups, specs=(spec,), columns=columns)


HOURS, DAYS = ("event_time", "hour"), ("event_time", "day")


@pytest.mark.parametrize(
    ("fields", "file_bytes", "change"),
    [
        ([HOURS], 100 * MIB, "hours(`event_time`) WITH days(`event_time`)"),
        ([HOURS], 10 * MIB, "hours(`event_time`) WITH months(`event_time`)"),
        ([HOURS], MIB // 16, "hours(`event_time`) WITH years(`event_time`)"),
        (
            [("carrier", "identity"), DAYS],
            100 * MIB,
            "days(`event_time`) WITH months(`event_time`)",
        ),
        ([("day", "identity")], MIB, "`day` WITH years(`day`)"),
        # Which other fields to keep is for the filters to say.
        ([("event_time", "year"), ("event_id", "bucket[64]")], MIB, None),
        ([("carrier", "identity")], MIB, None),
        ([("carrier", "truncate[4]")], MIB, None),
    ],
)
def test_the_transform_of_time_is_as_coarse_as_the_target_asks_for(
    fields: list[tuple[str, str]], file_bytes: int, change: str | None
) -> None:
    statements = required(in_spec(*fields, file_bytes=file_bytes), "over_partitioned").sql

    assert len(statements) == (2 if change else 0)
    for alter in statements[:1]:
        assert alter == f"ALTER TABLE `prod`.`db`.`events` REPLACE PARTITION FIELD {change}"


@pytest.mark.parametrize("facts", [table_facts(), empty_facts()], ids=["healthy", "empty"])
def test_a_healthy_or_empty_table_has_nothing_to_do(facts: TableFacts) -> None:
    assert diagnose(facts) == ()


def test_the_partition_with_most_to_win_comes_first_and_ten_are_listed() -> None:
    finding = required(facts_of(*([MIB] * (5 + day) for day in range(12))), "small_files")

    assert finding.where[0] == "event_day=2026-01-12"
    assert len(finding.where) == 10
    assert finding.where_count == 12


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "small_files": facts_of([MIB] * 5 + [500 * MIB], [2 * MIB] * 6),
    # 1800 MiB of six days go into the one partition there is now, and take four files.
    "small_files that go into one partition": facts_of(*[[300 * MIB]] * 6, specs=UNPARTITIONED_NOW),
    "oversized_files": facts_of([500 * MIB, 2 * GIB], [GIB] * 3),
    "target_too_small": tiny_target([MIB] * 200, [MIB] * 100),
    "skewed_partitions": facts_of(*[[500 * MIB]] * 4, [500 * MIB] * 20),
    "old_partition_spec": table_facts(
        groups=[*of_days([100 * MIB], [500 * MIB] * 3), *of_days([500 * MIB] * 2, spec_id=1)],
        specs=(BY_DAY, NEWER),
    ),
    "orphan_files": table_facts(storage=StorageFacts(0, 3, ("s3://bucket/a",))),
    "orphan_files that were weighed": table_facts(storage=StorageFacts(0, 3, (), 6 * MIB, 3)),
    "orphan_files of which some were weighed": table_facts(
        storage=StorageFacts(0, 3, (), 6 * MIB, 2)
    ),
    "orphan_files of a location that was not checked": table_facts(
        storage=StorageFacts(
            0, 3, sharing=Sharing(unchecked="db.broken cannot be read: it is gone")
        )
    ),
    "shared_location": table_facts(storage=StorageFacts(0, 0, sharing=SHARED)),
    "over_partitioned": facts_of(*[[20 * MIB]] * 20),
}
