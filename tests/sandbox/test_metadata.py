"""A clone's metadata is the table's, but for what would lead to its files."""

import uuid
from typing import Any

import pytest

from icekit.sandbox.clones import clone_metadata
from icekit.sandbox.scratch import ScratchTable

TABLE: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "u",
    "location": "s3://b/db/t",
    "last-updated-ms": 30,
    "properties": {
        "owner": "someone",
        "icekit.clone": "of the table, if it is a clone",
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
    copy = ScratchTable.new(("db", "t"), location)
    assert copy.folder == f"{home}/icekit_scratch/{copy.table[-1]}"
    assert copy.has_own_folder


def test_a_scratch_name_has_no_odd_letters_and_is_used_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Drawn at random, two of them may be one: here the first digits count.
    drawn = (uuid.UUID(int=n << 96) for n in range(9))
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    names = {ScratchTable.new(("db", "Odd `name`, it's/so"), "/w/t").table for _ in range(9)}

    assert len(names) == 9
    assert all(
        namespace == "icekit_scratch" and name.replace("_", "").isalnum() and name.islower()
        for namespace, name in names
    )
