"""What a table's snapshots tell of its row-level commits, and the statements that are like them."""

from typing import Any, cast

import pytest

from icekit.common.commands.tune import WriteModeOptions
from icekit.common.errors import ParameterError
from icekit.iceberg.definition import Column
from icekit.tune.write_history import (
    CommitShape,
    PastCommit,
    commits_between_compactions,
    past_commits,
    shape_of_history,
    synthetic_statements,
    writes_per_day,
)
from tests.factories import file_group, table_facts

HOUR = 3_600_000
NO_LAKE = cast("Any", None)


def snapshot(operation: str, at: int = 0, **summary: int | str) -> dict[str, Any]:
    return {
        "timestamp-ms": at,
        "summary": {
            "operation": operation,
            **{k.replace("_", "-"): str(v) for k, v in summary.items()},
        },
    }


def overwrite(
    added: int, removed: int, added_rows: int, removed_rows: int, **more: Any
) -> dict[str, Any]:
    return snapshot(
        "overwrite",
        added_data_files=added,
        deleted_data_files=removed,
        added_records=added_rows,
        deleted_records=removed_rows,
        **more,
    )


def merge(**counters: int) -> dict[str, Any]:
    commit = overwrite(10, 10, 1000, 990, total_data_files=40)
    commit["summary"] |= {
        f"spark.merge-into.num-target-rows-{k}": str(v) for k, v in counters.items()
    }
    return commit


def deletes(at: int = 0, files: int = 3, rows: int = 7, **more: int) -> dict[str, Any]:
    return snapshot("delete", at, added_delete_files=files, added_position_deletes=rows, **more)


@pytest.mark.parametrize(
    ("commit", "kind", "rows"),
    [
        (snapshot("append", added_data_files=1, added_records=5), "append", None),
        (snapshot("replace", added_data_files=1, deleted_data_files=5), "replace", None),
        (snapshot("delete", deleted_data_files=2, deleted_records=70), "drop", None),
        (overwrite(2, 2, 90, 100), "delete", 10),
        (overwrite(2, 2, 100, 100), "update", None),
        (deletes(), "delete", 7),
        (overwrite(1, 0, 7, 0, added_position_deletes=7), "update", 7),
        (merge(copied=700, updated=200, deleted=10, inserted=100), "merge", 310),
        (overwrite(1, 0, 9, 0, added_equality_deletes=9), "upsert", 9),
        (overwrite(1, 2, 5, 9, replace_partitions="true"), "overwrite", None),
        (overwrite(3, 1, 9, 2), "overwrite", None),
    ],
)
def test_a_commits_kind_follows_from_what_it_added_and_removed(
    commit: dict[str, Any], kind: str, rows: int | None
) -> None:
    past = PastCommit.from_snapshot(commit)

    assert (past.kind, past.changed_row_count) == (kind, rows)


def test_the_share_of_files_is_of_those_before_the_commit() -> None:
    assert PastCommit.from_snapshot(merge(updated=1)).file_share == 10 / 40
    assert PastCommit.from_snapshot(deletes(total_data_files=12)).file_share == 3 / 12


def test_rates_are_of_what_followed_the_first_commit() -> None:
    appends = [snapshot("append", n * 6 * HOUR, added_data_files=1) for n in range(5)]
    history = past_commits([*appends[:2], deletes(12 * HOUR), *appends[3:]])

    assert writes_per_day(history) == 1.0
    assert writes_per_day(history[:1]) is None
    assert writes_per_day([]) is None


def test_commits_between_compactions_count_row_level_ones_and_a_compaction_in_parts_once() -> None:
    kinds = {"r": "replace", "a": "append"}
    history = [
        deletes(n) if kind == "d" else snapshot(kinds[kind], n)
        for n, kind in enumerate("drddarrddddr")
    ]

    assert commits_between_compactions(past_commits(history)) == 3.0


def test_the_shape_of_the_history_is_the_default_and_what_is_given_is_taken() -> None:
    facts = table_facts(groups=(file_group(*[1000] * 40),))
    rows = facts.data.record_count // 10
    history = past_commits([deletes(n, 4, rows, total_data_files=40) for n in range(3)])
    given = {"operation": "update", "share": 0.5, "file_share": 1.0}

    shape = shape_of_history(facts, history, WriteModeOptions.of({}))
    assert (shape.operation, shape.file_share) == ("delete", 0.1)
    assert shape.row_share == pytest.approx(0.1, abs=0.01)
    shape = shape_of_history(facts, history, WriteModeOptions.of(given))
    assert shape == CommitShape("update", 0.5, 1.0)
    assert shape_of_history(facts, [], WriteModeOptions.of({})) == CommitShape("merge", 0.01, 1.0)
    # A delete file for a partition does not say how many files it reaches.
    history = past_commits([deletes(0, 1, rows, total_data_files=40)])
    assert shape_of_history(facts, history, WriteModeOptions.of({})).file_share == 1.0


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (("upsert", 0.1, 1.0), "no operation 'upsert'"),
        (("delete", 2.0, 1.0), "share of rows"),
        (("delete", 0.1, -1.0), "share of files"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(
    shape: tuple[str, float, float], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        CommitShape(*shape)


def test_statements_choose_rows_by_columns_that_can_be_asked_for() -> None:
    columns = (
        Column(1, "tags.element", "string", False, 0, "full"),
        Column(2, "m.key", "string", True, 1, "full"),
        Column(4, "s.x", "int", False, 2, "full", ("s", "x")),
        Column(5, "a.b", "long", False, 3, "full"),
    )

    for operation in ("delete", "update"):
        facts, shape = table_facts(columns=columns), CommitShape(operation, 0.1, 1.0)
        sql = synthetic_statements(NO_LAKE, facts, shape, 1)[0](("lake", "db", "t"))

        assert "xxhash64(`a.b`, 0)" in sql
        assert "element" not in sql
    with pytest.raises(ParameterError, match="your own statement"):
        synthetic_statements(
            NO_LAKE, table_facts(columns=columns[:1]), CommitShape("update", 0.1, 1.0), 1
        )
