"""File sizes are measured by writing a table's own rows to clones; the table is only read, and
nothing is left behind.
"""

from typing import Any

import pytest

from icekit.api import Lake
from icekit.engine.bridge import temporary_settings
from icekit.tune.answer import Answer, Measurements
from icekit.tune.commits import CommittedFiles, trial_target_bytes, typical_commit_rows
from icekit.tune.file_sizes import (
    _MEASURES,
    ADVISORY,
    COMMIT_FREQUENCY,
    DISTRIBUTION,
    FILES,
    HASH,
    LARGE_FILES,
    NOW,
    SIZED,
    better_mode,
    next_advisory_bytes,
)
from tests.factories import TARGET, file_group, partition, table_facts
from tests.tune.trials import Table

MIB = 2**20


def measured(**files: int) -> Measurements:
    figures = Measurements(_MEASURES)
    for name, number in files.items():
        figures.add(name, {FILES: number, LARGE_FILES: number})
    return figures


def written(
    files: int, size: int, *, shuffled: int = 0, largest: int = 100 * MIB
) -> CommittedFiles:
    return CommittedFiles(files, size, largest, shuffle_bytes=shuffled)


def test_hash_is_advised_where_it_writes_clearly_fewer_files() -> None:
    assert better_mode(measured(now=16, hash=2)) == HASH
    assert better_mode(measured(now=2, hash=2)) is None
    assert better_mode(measured(now=100, hash=90)) is None
    assert better_mode(measured(now=16)) is None


def test_the_advisory_size_follows_from_the_measured_shuffle_and_is_corrected_once() -> None:
    commits = {NOW: written(10, 20 * MIB, shuffled=60 * MIB)}
    first = next_advisory_bytes(commits, NOW, 10 * MIB, None)
    commits[SIZED] = written(4, 20 * MIB, shuffled=60 * MIB)
    second = next_advisory_bytes(commits, NOW, 10 * MIB, str(first))

    assert first == round(0.9 * 10 * MIB * 3)
    assert second is not None
    assert second > first


@pytest.mark.parametrize(
    "last",
    [
        written(10, 20 * MIB),
        written(2, 20 * MIB, shuffled=60 * MIB),
        written(10, 20 * MIB, shuffled=60 * MIB, largest=MIB),
    ],
    ids=["no shuffle", "right already", "too little in a partition"],
)
def test_no_advisory_size_is_tried_where_none_helps(last: CommittedFiles) -> None:
    assert next_advisory_bytes({NOW: last}, NOW, 10 * MIB, None) is None


def test_a_sample_with_too_few_files_of_the_target_gets_a_smaller_target() -> None:
    facts = table_facts(groups=(file_group(*[TARGET] * 100, of=partition(1)),))

    assert trial_target_bytes(facts, 100 * 12 * TARGET) == TARGET
    assert trial_target_bytes(facts, 12 * MIB) == MIB
    assert (
        typical_commit_rows(
            table_facts(history=table_facts().history), sample_bytes=1, task_count=4
        )
        is None
    )


def tune(lake: Lake, table: Any, **options: Any) -> Answer:
    return lake.tune("file-sizes", table, progress=lambda _: None, **options)


BATCH = (
    "INSERT INTO {t} SELECT /*+ REPARTITION(4) */ id, CAST(id % 2 AS int), concat('n', id) FROM "
    "range(2000)"
)


def created(lake: Lake, scratch: str, name: str, *statements: str, **properties: Any) -> Table:
    """A table with a small target, after some statements."""
    table = Table(lake, scratch, name)
    table.create(write_target__file__size__bytes="65536", **properties)
    for statement in statements:
        table.sql(statement)
    return table


@pytest.mark.spark
def test_a_table_whose_tasks_leave_small_files_is_told_to_hash(lake: Lake, scratch: str) -> None:
    table = created(
        lake, scratch, "scattered", BATCH, BATCH, BATCH, write_distribution__mode="none"
    )
    before = table.state()

    answer = tune(lake, table.name)

    assert table.state() == before
    # Four tasks with rows of two partitions, as in the commit; then a file for each partition.
    assert answer.measured.value(NOW, FILES) == 8
    assert answer.measured.value(HASH, FILES) == 2
    assert answer.advised == HASH
    assert "'write.distribution-mode' = 'hash'" in answer.script.sql[0]
    assert [c.setting for c in answer.changes if c.is_change] == [DISTRIBUTION, COMMIT_FREQUENCY]


@pytest.mark.spark
def test_a_session_that_overrides_the_mode_is_told_and_reset(lake: Lake, scratch: str) -> None:
    table = created(lake, scratch, "overridden", BATCH, BATCH, write_distribution__mode="hash")

    with temporary_settings(lake.spark, {"spark.sql.iceberg.distribution-mode": "none"}):
        answer = tune(lake, table.name)

    assert answer.advised == HASH
    assert answer.script.sql == ("RESET `spark.sql.iceberg.distribution-mode`",)


@pytest.mark.spark
@pytest.mark.soak
def test_an_advisory_size_that_is_far_too_small_is_raised(lake: Lake, scratch: str) -> None:
    rows = (
        "INSERT INTO {t} SELECT id, CAST(id % 2 AS int), concat('name-', xxhash64(id)) FROM "
        "range(0, 200000, 1, 8)"
    )
    sizes = {
        "write_spark_advisory__partition__size__bytes": "65536",
        "write_parquet_row__group__size__bytes": "16384",
    }

    answer = tune(lake, created(lake, scratch, "tiny_tasks", rows, rows, **sizes).name)

    assert answer.advised == SIZED
    assert (answer.measured.value(SIZED, LARGE_FILES) or 99) < (
        answer.measured.value(NOW, LARGE_FILES) or 0
    )
    assert any(c.setting == ADVISORY and c.is_change for c in answer.changes)


@pytest.mark.spark
@pytest.mark.parametrize("change", ["DROP COLUMN name", "ADD COLUMN more int"])
def test_a_schema_change_before_the_next_append_is_no_obstacle(
    lake: Lake, scratch: str, change: str
) -> None:
    name = f"evolved_{change[:3]}"

    answer = tune(lake, created(lake, scratch, name, BATCH, f"ALTER TABLE {{t}} {change}").name)

    assert answer.stopped is None
    assert (answer.measured.value(NOW, LARGE_FILES) or 0) > 0


@pytest.mark.spark
@pytest.mark.lab("target_too_small")
def test_a_small_target_is_raised_first(lake: Lake) -> None:
    small = tune(lake, "lab.target_too_small")

    assert small.verdict.startswith("First set write.target-file-size-bytes to ")
