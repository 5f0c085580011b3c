"""Findings about how a table is written tell the figures they rest on, and begin exactly at their
limits.
"""

from typing import Any

import pytest

from icekit.facts.files import Kind
from icekit.facts.manifest_counts import MetricsSample, RepeatedIdentifiers, SampledWrite
from icekit.facts.model import TableFacts
from tests.diagnose.told import absent, named, present, shows
from tests.factories import KIB, MIB, NOW_MS, commit, file_group, history, table_facts
from tests.golden import Golden


def sampled(*writes: tuple[int, int, int], **overrides: Any) -> TableFacts:
    """Writes as (files, tasks, bytes of a file)."""
    made = tuple(SampledWrite(files, tasks, files * each) for files, tasks, each in writes)
    return table_facts(metrics_sample=MetricsSample(20, (), writes=made), **overrides)


def test_one_task_is_enough_for_commits_into_several_partitions() -> None:
    made = tuple(SampledWrite(20, 1, 20 * 500 * MIB, partition_count=5) for _ in range(4))

    absent("one_writing_task", table_facts(metrics_sample=MetricsSample(20, (), writes=made)))


@pytest.mark.parametrize(
    ("writes", "is_found"),
    [
        ([(3, 1, 500 * MIB)] * 2, True),
        ([(3, 1, 500 * MIB)], False),
        ([(2, 1, 500 * MIB)] * 5, False),
        ([(3, 2, 500 * MIB)] * 5, False),
        ([(3, 1, MIB)] * 5, False),
        ([(3, 1, 500 * MIB)] * 2 + [(3, 3, 500 * MIB)] * 2, True),
        ([(3, 1, 500 * MIB)] * 2 + [(3, 3, 500 * MIB)] * 3, False),
    ],
    ids=[
        "two",
        "one commit",
        "two files",
        "two tasks",
        "small files",
        "half of the commits",
        "fewer",
    ],
)
def test_one_task_is_a_habit_of_two_commits_and_half_of_them(
    writes: list[tuple[int, int, int]], *, is_found: bool
) -> None:
    assert (named(sampled(*writes), "one_writing_task") is not None) == is_found


def stream(gap: float, commits: int = 120, each: int = 256 * KIB, **overrides: Any) -> TableFacts:
    many = [
        commit(n, committed_at_ms=NOW_MS - round(n * gap * 1000), added_bytes=each, **overrides)
        for n in reversed(range(commits))
    ]
    return table_facts(history=history(*many))


@pytest.mark.parametrize(
    ("facts", "is_found"),
    [
        (stream(4), True),
        (stream(3), False),
        (stream(59), True),
        (stream(60), False),
        (stream(5, commits=100), True),
        (stream(5, commits=99), False),
        (stream(5, each=400 * MIB), False),
        (stream(5, added_data_files=0), False),
    ],
    ids=[
        "over five minutes",
        "less",
        "under a minute",
        "a minute",
        "a hundred",
        "fewer",
        "full files",
        "without files",
    ],
)
def test_a_stream_commits_a_hundred_times_in_five_minutes_or_more(
    facts: TableFacts, *, is_found: bool
) -> None:
    assert (named(facts, "frequent_commits") is not None) == is_found


def deletes(
    *pairs: tuple[int, int], removed_data_files: int | None = None, version: int = 3
) -> TableFacts:
    """Commits as (vectors added, delete files removed)."""
    commits = (
        commit(
            n,
            operation="delete",
            added_data_files=None,
            added_delete_files=added,
            removed_delete_files=removed,
            removed_data_files=removed_data_files,
        )
        for n, (added, removed) in enumerate(pairs)
    )
    return table_facts(format_version=version, history=history(*commits))


@pytest.mark.parametrize(
    ("facts", "is_found"),
    [
        (deletes(*[(10, 5)] * 5), True),
        (deletes(*[(10, 5)] * 4), False),
        (deletes(*[(10, 4)] * 9), False),
        (deletes(*[(10, 5)] * 5, *[(10, 0)] * 6), False),
        (deletes(*[(10, 9)] * 9, version=2), False),
        (deletes(*[(10, 9)] * 9, removed_data_files=9), False),
    ],
    ids=["half", "four commits", "fewer vectors", "fewer commits", "version 2", "files replaced"],
)
def test_vectors_are_written_again_in_five_commits_and_half_of_those_with_deletes(
    facts: TableFacts, *, is_found: bool
) -> None:
    assert (named(facts, "vectors_rewritten") is not None) == is_found


@pytest.mark.parametrize(
    ("properties", "location", "name"),
    [
        ({"self-optimizing.enabled": "true"}, "s3://b/t", "Apache Amoro"),
        ({"self-optimizing.enabled": "false", "self-optimizing.group": "g"}, "s3://b/t", None),
        ({"delta.universalFormat.enabledFormats": "iceberg"}, "abfss://c@a/t", "Databricks"),
        ({}, "s3://63a8e430-6e0b-46f5--table-s3", "Amazon S3 Tables"),
        ({}, "s3://63a8e430-6e0b-46f5--table-s3/data", "Amazon S3 Tables"),
        ({}, "s3://bucket/t--table-s3", None),
        ({"write.format.default": "parquet"}, "s3://b/t", None),
    ],
)
def test_a_table_that_a_service_maintains_names_it(
    properties: dict[str, str], location: str, name: str | None
) -> None:
    found = named(
        table_facts(groups=(file_group(),), properties=properties, location=location),
        "managed_elsewhere",
    )

    assert (found is None) == (name is None)
    assert name is None or (found is not None and name in found.remedy)


def repeating(**overrides: Any) -> TableFacts:
    repeated = RepeatedIdentifiers(7, 5, 4), RepeatedIdentifiers(8, 100, 90)
    return table_facts(
        metrics_sample=MetricsSample(20, (), identifiers=("event_id",), repeated=repeated),
        **overrides,
    )


@pytest.mark.parametrize("kind", [Kind.POSITION_DELETES, Kind.DELETION_VECTORS])
def test_identifiers_are_not_judged_where_deletes_by_position_may_have_removed_the_copies(
    kind: Kind,
) -> None:
    groups = (file_group(MIB), file_group(KIB, kind=kind))

    absent("identifiers_not_unique", repeating(groups=groups))
    present(
        "identifiers_not_unique",
        repeating(groups=(file_group(MIB), file_group(KIB, kind=Kind.EQUALITY_DELETES))),
    )


#: A finding of each kind, as a golden file shows it.
SHOWN = {
    "one_writing_task": sampled(*[(4, 1, 500 * MIB)] * 4),
    "one_writing_task that nothing distributes": sampled(
        *[(4, 1, 500 * MIB)] * 4, properties={"write.distribution-mode": "none"}
    ),
    "frequent_commits": stream(5),
    "frequent_commits into small files": stream(50, each=2 * KIB),
    "frequent_commits into many partitions": stream(5, changed_partitions=20),
    "vectors_rewritten": deletes(*[(100, 90)] * 6),
    "identifiers_not_unique": repeating(),
    "managed_elsewhere": table_facts(properties={"self-optimizing.enabled": "true"}),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_finding_about_writes_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    shows(golden, case, SHOWN[case])
