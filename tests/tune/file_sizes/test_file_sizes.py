"""File sizes are measured by writing a table's own rows to clones; the table is only read, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.engine.bridge import lent
from icekit.errors import ParameterError
from icekit.sandbox import NAMESPACE
from icekit.show import tune_charts
from icekit.sql import identifier
from icekit.tune.file_sizes import FileSizes, tune_file_sizes
from icekit.tune.file_sizes.advisory_size import DISTRIBUTION_SESSION

pytestmark = pytest.mark.spark


def made(
    lake: Lake, namespace: str, name: str, *statements: str, properties: str = "", by: str = "PARTITIONED BY (part)"
) -> tuple[str, str]:
    table = (namespace, name)
    full = identifier(*lake.sql_name(table))
    lake.spark.sql(
        f"CREATE TABLE {full} (id bigint, part int, name string) USING iceberg {by} TBLPROPERTIES ('write.target-file-size-bytes' = '65536'{properties})"
    )
    for statement in statements:
        lake.spark.sql(statement.format(t=full))
    return table


def tune(lake: Lake, table: Any, **options: Any) -> FileSizes:
    return tune_file_sizes(lake, table, progress=lambda _: None, **options)


def state(lake: Lake, table: tuple[str, str]) -> tuple[Any, ...]:
    home = Path(lake.observe(table).location.removeprefix("file:"))
    names = [n for n in lake.tables.names() if n[0] == NAMESPACE]
    return lake.tables.source(table).metadata_location, sorted(home.rglob("*")), (home.parent / NAMESPACE).exists(), names


BATCH = "INSERT INTO {{t}} SELECT /*+ REPARTITION(4) */ id, CAST(id % 2 AS int), concat('n', id) FROM range({0}, {0} + 2000)"


@pytest.mark.soak
def test_a_table_whose_tasks_leave_small_files_is_told_to_hash_and_its_next_writes_are_seen(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table = made(lake, scratch, "scattered", *(BATCH.format(n * 2000) for n in range(3)), properties=", 'write.distribution-mode' = 'none'")
    before = state(lake, table)

    answer = tune(lake, table)

    assert state(lake, table) == before
    assert [(a.setting, a.properties) for a in answer.advice if a.is_change] == [
        ("write.distribution-mode", (("write.distribution-mode", "hash"),)),
        ("commit frequency", ()),
    ]
    assert answer.next_before is not None
    assert answer.next_after is not None
    # Four tasks with rows of two partitions, as in the commit; then a file for each partition.
    assert (answer.next_before.files, answer.next_after.files) == (8, 2)
    found = {t.mode: (t.predicted.files, t.written.files) for t in answer.mode_trials[0].tried if t.predicted}
    assert found["none"] == (8, 8)
    assert found["hash"] == (2, 2)
    assert answer.cohorts.small_files == 24
    assert "none: 4 tasks" in answer.cohorts.worst[0].looks_like
    assert answer.until_before is not None
    assert answer.until_before.visits == 2
    assert "Set write.distribution-mode to hash" in answer.verdict()
    assert json.loads(answer.write_into(tmp_path).read_text())["is_change"] is True
    assert tune_charts.next_writes_chart(answer).png()
    assert tune_charts.modes_chart(answer).png()


def test_a_table_of_one_file_is_left_alone_and_a_session_that_overrides_it_is_named(lake: Lake, scratch: str) -> None:
    table = made(lake, scratch, "one", "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, 1, 'x' FROM range(100)", by="")

    with lent(lake.spark, {DISTRIBUTION_SESSION: "none", "spark.sql.adaptive.enabled": "false"}):
        answer = tune(lake, table, trial=False)

    assert answer.modes[0].why == f"session {DISTRIBUTION_SESSION}"
    assert [a.sql for a in answer.advice if a.is_change] == ["SET spark.sql.adaptive.enabled = true"]
    assert not tune(lake, table).is_change


@pytest.mark.soak
def test_deletes_that_merge_on_read_are_counted_under_each_mode(lake: Lake, scratch: str) -> None:
    table = made(
        lake,
        scratch,
        "merging",
        BATCH.format(0),
        properties=", 'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'hash', 'format-version' = '2'",
    )

    answer = tune(lake, table, operation="delete")

    deletes = answer.mode_trials[-1]
    assert (deletes.operation, deletes.in_force) == ("delete", "hash")
    assert [t.mode for t in deletes.tried] == ["none", "hash", "range"]
    assert all(t.written.files == 0 and t.written.delete_files == 2 for t in deletes.tried)


def test_bad_input_is_a_clear_sentence(lake: Lake, scratch: str) -> None:
    table = made(lake, scratch, "nothing")

    with pytest.raises(ParameterError, match="has no data files, so there is nothing to measure"):
        tune(lake, table)
    with pytest.raises(ParameterError, match="must be one of delete, update, merge"):
        tune(lake, table, operation="truncate")


def test_a_budget_that_is_spent_ends_the_trial_and_says_so(lake: Lake, scratch: str) -> None:
    table = made(lake, scratch, "spent", BATCH.format(0))

    answer = tune(lake, table, budget_seconds=1e-9)

    assert answer.stopped is not None
    assert not answer.mode_trials
    assert "nothing was tried" in answer.verdict()
