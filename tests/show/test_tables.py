import datetime as dt
from typing import Any

from icekit.common.view import Grid
from icekit.iceberg.file_kind import Kind
from icekit.show import tables
from tests.factories import (
    COLUMNS,
    MIB,
    TARGET,
    commit,
    file_group,
    history,
    manifest_facts,
    metrics_sample,
    table_facts,
)


def cells(grid: Grid, row: str, *names: str) -> list[Any]:
    """Some cells of the row that has this in any column."""
    place = next(i for i, values in enumerate(grid.rows) if row in values)
    return [grid[name][place] for name in names]


def test_sizes_are_labelled_and_marked_where_a_rewrite_leaves_them_alone() -> None:
    limit = int(1.8 * TARGET)
    sizes = file_group(300 * MIB, 400 * MIB, limit, limit + 1)
    rows = tables.file_sizes(table_facts(groups=(sizes,)))

    assert rows["size"][:3] == ["256 MiB–384 MiB", "384 MiB–512 MiB", "512 MiB–922 MiB"]
    assert rows["left_alone"] == [False, True, True, False]
    assert rows["share_of_files"] == [0.25] * 4


def test_a_row_has_the_names_of_the_metadata_tables_and_what_is_needed() -> None:
    deletes = file_group(1, kind=Kind.EQUALITY_DELETES, records_per_file=5)
    groups = (file_group(*[1] * 9, records_per_file=10), deletes)
    manifests = manifest_facts(data_count=20, data_bytes=16 * MIB, data_entry_count=100)
    facts = table_facts(groups=groups, manifests=manifests)

    ratios = ("partition", "record_count", "equality_delete_record_count", "deletes_per_record")
    assert tables.delete_ratios(facts).only(*ratios).rows == [
        ["event_day=2026-01-01", 90, 5, 5 / 90]
    ]
    worst = tables.worst_partitions(facts, limit=1)
    assert worst.only("file_count", "files_needed").rows == [[9, 1]]
    needed = ("content", "manifest_count", "manifests_needed", "entries_per_manifest")
    assert tables.manifests(facts).only(*needed).rows == [["data", 20, 2, 5.0]]


def test_commits_come_newest_first_and_no_more_than_asked_for() -> None:
    rows = tables.commits(table_facts(), limit=2)

    assert rows["committed_at"] == [
        dt.datetime(2026, 1, 2, hour, 4, 5, tzinfo=dt.UTC) for hour in (3, 2)
    ]


def test_what_a_writer_did_not_say_is_absent_and_not_zero() -> None:
    rows = tables.commits(table_facts(history=history(commit(1), commit(0, added_data_files=None))))

    assert [n is None for n in rows["added_data_files"]] == [True, False]


def test_settings_tell_where_a_value_comes_from() -> None:
    rows = tables.settings(table_facts(properties={"gc.enabled": "false"}))

    assert cells(rows, "gc.enabled", "value", "origin") == ["false", "table property"]
    assert cells(rows, "commit.manifest-merge.enabled", "value", "origin") == ["true", "default"]


def test_columns_tell_the_mode_and_what_sampled_files_have() -> None:
    facts = table_facts(metrics_sample=metrics_sample(COLUMNS[:1]))
    rows = tables.columns(facts)

    assert cells(rows, "event_id", "metrics_mode", "files_sampled", "files_with_bounds") == [
        "truncate(16)",
        20,
        20,
    ]
    assert cells(rows, "carrier", "files_with_bounds") == [None]
