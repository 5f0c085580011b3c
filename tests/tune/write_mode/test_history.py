"""What a table's snapshots tell of its row-level writes."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.tune.write_mode.history import COPY_ON_WRITE, EQUALITY, MERGE_ON_READ, change, write_history

HOUR = 3_600_000


def snapshot(operation: str, at: int = 0, **summary: int | str) -> dict[str, Any]:
    return {"timestamp-ms": at, "summary": {"operation": operation, **{k.replace("_", "-"): str(v) for k, v in summary.items()}}}


def merge(at: int = 0, **counters: int) -> dict[str, Any]:
    made = snapshot(
        "overwrite", at, added_data_files=10, deleted_data_files=10, added_records=1000, deleted_records=990, total_data_files=40
    )
    made["summary"] |= {f"spark.merge-into.num-target-rows-{k}": str(v) for k, v in counters.items()}
    return made


@pytest.mark.parametrize(
    ("made", "kind", "mode", "rows"),
    [
        (snapshot("append", added_data_files=1, added_records=5), "append", None, 5),
        (snapshot("replace", added_data_files=1, deleted_data_files=5), "replace", None, None),
        (snapshot("delete", deleted_data_files=2, deleted_records=70), "drop", None, 70),
        (
            snapshot("overwrite", added_data_files=2, deleted_data_files=2, added_records=90, deleted_records=100),
            "delete",
            COPY_ON_WRITE,
            10,
        ),
        (
            snapshot("overwrite", added_data_files=2, deleted_data_files=2, added_records=100, deleted_records=100),
            "update",
            COPY_ON_WRITE,
            None,
        ),
        (snapshot("delete", added_delete_files=3, added_position_deletes=7), "delete", MERGE_ON_READ, 7),
        (
            snapshot("overwrite", added_data_files=1, added_records=7, added_delete_files=3, added_position_deletes=7),
            "update",
            MERGE_ON_READ,
            7,
        ),
        (merge(copied=700, updated=200, deleted=10, inserted=100), "merge", COPY_ON_WRITE, 310),
        (snapshot("overwrite", added_data_files=1, added_records=9, added_delete_files=1, added_equality_deletes=9), "upsert", EQUALITY, 9),
        (
            snapshot("overwrite", added_data_files=1, deleted_data_files=2, added_records=5, deleted_records=9, replace_partitions="true"),
            "overwrite",
            None,
            None,
        ),
        (snapshot("overwrite", added_data_files=3, deleted_data_files=1, added_records=9, deleted_records=2), "overwrite", None, None),
    ],
)
def test_a_commits_kind_and_mode_are_told_by_what_it_added_and_removed(
    made: dict[str, Any], kind: str, mode: str | None, rows: int | None
) -> None:
    told = change(made)

    assert (told.kind, told.mode, told.rows_changed) == (kind, mode, rows)


def test_the_share_of_files_is_of_those_before_the_commit() -> None:
    assert change(merge(updated=1)).file_share == 10 / 40
    assert change(snapshot("delete", added_delete_files=3, added_position_deletes=7, total_data_files=12)).file_share == 3 / 12


def test_amplification_counts_only_commits_that_tell_their_rows() -> None:
    silent = snapshot("overwrite", 2 * HOUR, added_data_files=1, deleted_data_files=1, added_records=100, deleted_records=100)
    told = snapshot(
        "overwrite", HOUR, added_data_files=1, deleted_data_files=1, added_records=90, deleted_records=100, added_files_size=5_000
    )
    history = write_history([silent, told])

    deletes, updates = history.of_kind("delete"), history.of_kind("update")
    assert deletes is not None
    assert (deletes.row_amplification, deletes.bytes_per_row_changed) == (9.0, 500.0)
    assert updates is not None
    assert updates.row_amplification is None


def test_rates_are_of_what_followed_the_first_commit() -> None:
    made = [snapshot("append", n * 6 * HOUR, added_records=1, added_data_files=1) for n in range(5)]
    made[2] = snapshot("delete", 12 * HOUR, added_delete_files=1, added_position_deletes=3)

    history = write_history(made)

    assert (history.days, history.appends_per_day, history.writes_per_day, history.position_deletes_per_day) == (1.0, 3.0, 1.0, 3.0)


def test_no_rates_of_one_snapshot_and_nothing_of_none() -> None:
    assert write_history([snapshot("append", 5)]).writes_per_day is None
    assert write_history([]).operations == ()


def test_commits_between_compactions_count_row_level_ones_and_a_compaction_in_parts_once() -> None:
    delete = {"added_delete_files": 1, "added_position_deletes": 1}
    kinds = ["delete", "replace", "delete", "delete", "append", "replace", "replace", "delete", "delete", "delete", "delete", "replace"]
    made = [snapshot(k, n, **(delete if k == "delete" else {})) for n, k in enumerate(kinds)]

    assert write_history(made).commits_between_compactions == 3.0


def test_writers_are_counted_by_their_applications() -> None:
    made = [snapshot("delete", n, added_delete_files=1, added_position_deletes=1) for n in range(3)]
    for number, one in enumerate(made):
        one["summary"]["spark.app.id"] = f"app-{number % 2}"

    assert write_history(made).writer_count == 2
