"""The history of a table is read from the snapshots that its metadata still has."""

from typing import Any

import pytest

from icekit.common.errors import SnapshotNotFound, TableContradicted
from icekit.health.collect import _metadata_flaws
from icekit.health.facts.integrity import Integrity, MiscountedManifest
from icekit.health.facts.snapshot_statistics import statistics_ages
from icekit.health.storage.missing import ObservedSnapshot
from icekit.iceberg.definition import Flaw
from icekit.iceberg.metadata import check_clock, choose_snapshot, future_times, history


def snapshot(
    number: int, ms: int, operation: str = "append", parent: int | None = 1, **summary: str
) -> dict[str, Any]:
    """A snapshot as metadata has it; keys of its summary have ``_`` for ``-``."""
    stated = {key.replace("_", "-"): value for key, value in summary.items()}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": parent,
        "timestamp-ms": ms,
        "summary": {"operation": operation, **stated},
    }


SNAPSHOTS = [
    snapshot(1, 1000, parent=None, added_data_files="4", engine_name="spark"),
    snapshot(2, 61_000),
    snapshot(3, 91_000, "delete"),
]


def table(there: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"format-version": 2, "snapshots": there, **more}


META = table(
    SNAPSHOTS,
    refs={"main": {"snapshot-id": 2, "type": "branch"}},
    **{"snapshot-log": SNAPSHOTS},
)


def test_history_counts_all_snapshots_and_follows_the_lineage_of_the_chosen_one() -> None:
    chosen = history(META, SNAPSHOTS[1])

    assert chosen.snapshot_count == 3
    assert len(chosen.commits) == 2
    assert chosen.median_seconds_between_commits == 60.0
    assert chosen.commits[0].added_data_files == 4
    assert chosen.commits[0].writer == "spark"
    assert chosen.commits[1].added_data_files is None


@pytest.mark.parametrize(("ids", "before"), [([2], 1), ([1, 2], None), ([99], None)])
def test_the_newest_snapshot_from_before_some_is_the_parent_of_the_oldest(
    ids: list[int], before: int | None
) -> None:
    assert ObservedSnapshot(table(SNAPSHOTS), SNAPSHOTS[1], [], {}).newest_before(ids) == before


def test_a_parent_that_has_expired_ends_the_lineage() -> None:
    assert len(history(table(SNAPSHOTS[1:]), SNAPSHOTS[1]).commits) == 1


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("mian", "did you mean main"),
        (99, "does not exist, or has expired"),
        ("nothing like it", "known refs: main"),
        ("1969-12-31", "no snapshot that was current at 1969-12-31"),
    ],
)
def test_a_snapshot_or_ref_that_is_not_there_is_named_with_what_is(
    ref: str | int, said: str
) -> None:
    with pytest.raises(SnapshotNotFound, match=said):
        choose_snapshot(META, ref)


def test_a_date_is_what_was_current_then() -> None:
    assert choose_snapshot(META, "1970-01-01T00:01:30") == (SNAPSHOTS[1], None)


def test_the_age_of_statistics_counts_the_records_of_later_commits_but_not_of_compactions() -> None:
    lineage = [
        snapshot(1, 1, parent=None, total_records="10"),
        snapshot(2, 2, added_records="5"),
        snapshot(3, 3, "replace", 2, added_records="15", deleted_records="15"),
        snapshot(4, 4, "overwrite", 3, deleted_records="2", added_position_deletes="3"),
    ]
    of = {"statistics-path": "/t/1.stats", "blob-metadata": []}
    schema = {"schema": {"type": "struct", "fields": []}}
    meta = table(
        lineage, statistics=[{"snapshot-id": 1, **of}, {"snapshot-id": 99, **of}], **schema
    )

    (age,) = statistics_ages(meta, lineage[-1])

    assert age.snapshot_id == 1
    assert age.commit_count == 3
    assert age.changed_count == 10
    assert age.record_count == 10
    assert statistics_ages(table(lineage), lineage[-1]) == ()


def test_flaws_of_metadata_are_told_by_what_they_break() -> None:
    meta = table(
        [{**each, "schema-id": schema} for each, schema in zip(SNAPSHOTS, (0, 5, 6), strict=True)],
        schemas=[
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "id", "type": "long", "required": True}],
            }
        ],
        **{
            "current-schema-id": 0,
            "last-updated-ms": 180_000,
            "default-sort-order-id": 0,
            "sort-orders": [
                {"order-id": 0, "fields": []},
                {"order-id": 4, "fields": [{"transform": "identity", "source-id": 9}]},
            ],
        },
    )
    manifests: list[dict[str, Any]] = [
        {"manifest_path": "/t/m0.avro"},
        {"manifest_path": "/t/m1.avro", "added_files_count": 1},
    ]

    integrity = Integrity(miscounted_count=1, miscounted=(MiscountedManifest("/t/m1.avro", 1, 4),))
    searched = ObservedSnapshot(meta, meta["snapshots"][1], manifests, {})
    assert [
        (each.flaw, each.examples) for each in _metadata_flaws(searched, integrity, 91_000)
    ] == [
        (Flaw.UNCOUNTED_MANIFESTS, ("/t/m0.avro",)),
        (Flaw.SCHEMA_GONE, ("2",)),
        (Flaw.OLD_SCHEMA_GONE, ("3",)),
        (Flaw.ORDER_BY_DROPPED, ("4",)),
        (
            Flaw.MISCOUNTED_MANIFESTS,
            ("/t/m1.avro: 1 live files by the manifest list None, 4 in the manifest",),
        ),
        (Flaw.FUTURE_TIMES, ("until 1970-01-01 00:03 UTC",)),
    ]


def test_a_time_more_than_a_minute_ahead_of_the_clock_stops_every_commit_until_it_is_past() -> None:
    minute = 60_000
    meta = {
        "last-updated-ms": 10 * minute,
        "snapshot-log": [{"timestamp-ms": 9 * minute}, {"timestamp-ms": 12 * minute}],
        "metadata-log": [{"timestamp-ms": 11 * minute}],
    }

    assert future_times(meta, 8 * minute) == [10 * minute, 11 * minute, 12 * minute]
    assert future_times(meta, 11 * minute - 1) == [12 * minute]
    assert future_times(meta, 11 * minute) == []
    check_clock(meta, "db.t", 11 * minute)
    with pytest.raises(TableContradicted, match=r"db\.t has times up to 1970-01-01 00:12 UTC"):
        check_clock(meta, "db.t", 10 * minute)
