"""A clone's metadata is the table's, but for what would lead to its files."""

import uuid
from typing import Any

import pytest

from icekit.errors import SnapshotNotFound
from icekit.sandbox.clone_metadata import clone_metadata
from icekit.sandbox.scratch import scratch_folder, scratch_name

TABLE: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "u",
    "location": "s3://b/db/t",
    "last-updated-ms": 30,
    "properties": {
        "owner": "someone",
        "gc.enabled": "true",
        "write.data.path": "s3://b/elsewhere",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.object-storage.path": "s3://b/objects",
        "write.folder-storage.path": "s3://b/folders",
        "write.location-provider.impl": "com.example.Paths",
    },
    "current-snapshot-id": 3,
    "snapshots": [{"snapshot-id": n, "timestamp-ms": n * 10} for n in (1, 2, 3)],
    "snapshot-log": [{"snapshot-id": n, "timestamp-ms": n * 10} for n in (1, 2, 3)],
    "refs": {
        "main": {"snapshot-id": 3, "type": "branch", "min-snapshots-to-keep": 5},
        "start": {"snapshot-id": 1, "type": "tag"},
    },
    "metadata-log": [{"metadata-file": "s3://b/db/t/metadata/0.json", "timestamp-ms": 5}],
}


def test_nothing_in_a_clones_metadata_leads_to_where_the_table_is_written() -> None:
    made = clone_metadata(TABLE, "s3://b/db/icekit_scratch/x", {"icekit.clone": "{}"})

    assert made["properties"] == {
        "owner": "someone",
        "gc.enabled": "false",
        "write.data.path": "s3://b/db/icekit_scratch/x/data",
        "write.metadata.path": "s3://b/db/icekit_scratch/x/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
        "icekit.clone": "{}",
    }
    assert made["location"] == "s3://b/db/icekit_scratch/x"
    assert made["metadata-log"] == []
    assert made["table-uuid"] != "u"
    assert {k: made[k] for k in ("snapshots", "refs", "current-snapshot-id")} == {
        k: TABLE[k] for k in ("snapshots", "refs", "current-snapshot-id")
    }


@pytest.mark.parametrize("snapshot", [1, "1", "start"])
def test_a_clone_at_a_snapshot_has_it_as_the_current_one_of_main(snapshot: int | str) -> None:
    made = clone_metadata(TABLE, "s", {}, snapshot)

    assert made["current-snapshot-id"] == 1
    assert made["refs"]["main"] == {"snapshot-id": 1, "type": "branch", "min-snapshots-to-keep": 5}
    assert made["refs"]["start"] == TABLE["refs"]["start"]
    assert made["snapshot-log"][-1] == {"snapshot-id": 1, "timestamp-ms": made["last-updated-ms"]}
    assert TABLE["snapshot-log"][-1]["snapshot-id"] == 3


def test_a_snapshot_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SnapshotNotFound, match="Snapshot 7 does not exist"):
        clone_metadata(TABLE, "s", {}, 7)
    with pytest.raises(SnapshotNotFound, match="did you mean start"):
        clone_metadata(TABLE, "s", {}, "strt")


@pytest.mark.parametrize(
    ("location", "home"),
    [
        ("s3://b/db/t", "s3://b/db"),
        ("s3://b/t/", "s3://b"),
        ("s3://b", "s3://b"),
        ("file:/w/t", "file:/w"),
        ("/w/t", "/w"),
    ],
)
def test_the_scratch_folder_is_beside_the_table_and_in_the_bucket(location: str, home: str) -> None:
    assert scratch_folder(location, ("icekit_scratch", "x")) == f"{home}/icekit_scratch/x"


def test_a_scratch_name_has_no_odd_letters_and_is_used_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Drawn at random, two of them may be one: here the first digits count.
    drawn = (uuid.UUID(int=n << 96) for n in range(9))
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    names = {scratch_name(("db", "Odd `name`, it's/so")) for _ in range(9)}

    assert len(names) == 9
    assert all(
        namespace == "icekit_scratch" and name.replace("_", "").isalnum() and name.islower()
        for namespace, name in names
    )
