"""A table that has moved names no file of where it was, and is otherwise the same."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icekit.common.errors import FormatTooNew, MetadataUnreadable
from icekit.iceberg import avro
from icekit.iceberg.moved_paths import PathOutside
from icekit.iceberg.relocation import FileKind, RelocationRefused
from tests.iceberg.handmade import NEWEST_MS, PATH_ID, POS_ID, Handmade
from tests.iceberg.moving import ELSEWHERE, NEUTRAL, Moved, move, packed, readable, unpacked
from tests.offline import lake_in

LOCATIONS = ["", "file:/warehouse/db/t", "s3://a-bucket/db/t", "s3://a-bucket"]


@pytest.fixture
def handmade(tmp_path: Path) -> Handmade:
    return _with_deletes(Handmade(tmp_path / "old folder"))


def _with_deletes(table: Handmade) -> Handmade:
    table.add_positions("data/deletes.parquet", [table.data_path] * 3)
    table.add_avro_positions("data/deletes.avro", [table.data_path])
    table.add_vector("data/vector.puffin", table.data_path)
    table.add(table.path("data/equality.parquet"), 2, equality_ids=[1])
    table.write("data/equality.parquet", b"rows of data")
    return table


def _pack(table: Handmade, **changes: Any) -> Moved:
    return packed(table.path("metadata/v2.gz.metadata.json"), _committed(table, **changes))


def _committed(table: Handmade, **changes: Any) -> Any:
    table.commit(**changes)
    return table.read


def _entries(moved: Moved, name: str) -> list[dict[str, Any]]:
    path = f"{moved.metadata['location']}/metadata/{name}.avro"
    return [entry["data_file"] for entry in avro.records_of(moved.files[path])]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("location", LOCATIONS)
def test_no_file_names_the_old_place(tmp_path: Path, location: str, version: int) -> None:
    table = _with_deletes(Handmade(tmp_path / "old folder", location, version))
    pack = _pack(table)
    again = unpacked(pack, tmp_path / "new")

    for moved, words in (
        (pack, [b"a-bucket", b"old folder", b"warehouse"]),
        (again, [b"a-bucket", b"old folder", b"warehouse", b"/neutral"]),
    ):
        assert len(moved.files) == 11 - (version == 1)
        texts = {path: readable(content) for path, content in moved.files.items()}
        for word in words:
            assert [path for path, text in texts.items() if word in text] == []
    assert {path.removeprefix(str(tmp_path / "new")) for path in again.files} == {
        path.removeprefix(NEUTRAL) for path in pack.files
    }
    assert pack.relocation.missing_paths == []


def test_lengths_are_those_of_the_moved_files(handmade: Handmade, tmp_path: Path) -> None:
    for moved in (pack := _pack(handmade), unpacked(pack, tmp_path / "a much longer new folder")):
        location = moved.metadata["location"]
        manifests = list(avro.records_of(moved.files[f"{location}/metadata/snap-7.avro"]))
        assert [each["manifest_length"] for each in manifests] == [
            len(moved.files[each["manifest_path"]]) for each in manifests
        ]
        deletes = [each for each in _entries(moved, "m1") if each["content"] == 1]
        assert [each["file_size_in_bytes"] for each in deletes] == [
            len(moved.files[each["file_path"]]) for each in deletes
        ]


def test_position_deletes_name_the_moved_data_file(handmade: Handmade, tmp_path: Path) -> None:
    moved = unpacked(_pack(handmade), tmp_path / "new")
    (data,) = _entries(moved, "m0")
    rows = pq.read_table(io.BytesIO(moved.files[f"{tmp_path}/new/data/deletes.parquet"]))

    assert data["file_path"] == f"{tmp_path}/new/data/day=0001-01-01/a b.parquet"
    assert data["partition"] == {"day": -719_162, "odd_x20name": "a/b"}
    assert rows.to_pylist() == [
        {"file_path": data["file_path"], "pos": number, "row": {"id": number}}
        for number in range(3)
    ]
    ids = [field.metadata[b"PARQUET:field_id"] for field in rows.schema]
    assert [int(each) for each in ids] == [PATH_ID, POS_ID, 2147483544]
    assert [field.nullable for field in rows.schema] == [False, False, True]
    assert rows.schema.field("row").type.field(0).metadata == {b"PARQUET:field_id": b"1"}
    assert rows.schema.metadata[b"delete-type"] == b"position"
    (in_avro,) = avro.records_of(moved.files[f"{tmp_path}/new/data/deletes.avro"])
    assert in_avro["file_path"] == data["file_path"]
    (vector,) = [each for each in _entries(moved, "m1") if each["file_format"] == "PUFFIN"]
    assert vector["referenced_data_file"] == data["file_path"]
    raw = moved.files[f"{tmp_path}/new/data/vector.puffin"]
    assert raw[4:12] == b"a vector"
    assert data["file_path"].encode() in raw


@pytest.mark.parametrize(
    ("paths", "bounds", "after"),
    [
        (["/data/a", "/data/b"], None, ("/data/a", "/data/b")),
        (["/data/a", "/data/b"], ("/data/a", "/data/c"), ("/data/a", "/data/c")),
        (["/data/a"], ("/da", "/db"), ("/da", "/db")),
        (["/data/a"], ("", "0"), None),
    ],
)
def test_bounds_of_paths_move_or_are_dropped_if_they_do_not_enclose_them(
    tmp_path: Path,
    paths: list[str],
    bounds: tuple[str, str] | None,
    after: tuple[str, str] | None,
) -> None:
    table = Handmade(tmp_path / "old")
    cut = None if bounds is None else (table.location + bounds[0], table.location + bounds[1])
    if bounds == ("", "0"):
        cut = table.location[:3], table.location[:2] + "~"
    table.add_positions("data/deletes.parquet", [table.location + path for path in paths], cut)
    moved = unpacked(_pack(table), tmp_path / "new")
    (delete,) = _entries(moved, "m1")

    low, high = (
        {each["key"]: each["value"] for each in delete[f"{side}_bounds"]}
        for side in ("lower", "upper")
    )
    assert set(low) == {POS_ID} | ({PATH_ID} if after else set())
    if after is not None:
        assert low[PATH_ID].decode() == f"{tmp_path}/new{after[0]}"
        assert high[PATH_ID].decode() == f"{tmp_path}/new{after[1]}"


def test_a_path_that_matches_no_data_file_still_matches_none(tmp_path: Path) -> None:
    table = Handmade(tmp_path / "old")
    table.add_positions("data/deletes.parquet", [f"file://{table.data_path}"])
    moved = unpacked(_pack(table), tmp_path / "new")
    rows = pq.read_table(io.BytesIO(moved.files[f"{tmp_path}/new/data/deletes.parquet"]))

    (path,) = rows["file_path"].to_pylist()
    (data,) = _entries(moved, "m0")
    assert path == f"file://{data['file_path']}"


def test_times_move_by_one_amount(handmade: Handmade, tmp_path: Path) -> None:
    metadata = unpacked(_pack(handmade), tmp_path / "new", time_shift_ms=5).metadata

    assert metadata["last-updated-ms"] == NEWEST_MS + 5
    for times in (metadata["snapshots"], metadata["snapshot-log"], metadata["metadata-log"]):
        assert [each["timestamp-ms"] for each in times] == [NEWEST_MS - 1000 + 5]


def test_properties_and_texts_lead_to_the_new_place(handmade: Handmade, tmp_path: Path) -> None:
    new = f"{tmp_path}/new"
    metadata = unpacked(_pack(handmade), Path(new)).metadata

    assert metadata["properties"] == {
        "write.data.path": f"{new}/data",
        "write.metadata.path": f"{new}-elsewhere/1/",
        "comment": f"lies in {new}, or did",
    }
    assert metadata["snapshots"][0]["summary"]["job"] == f"wrote to {new}/data twice"


def test_files_that_are_gone_stay_gone(handmade: Handmade, tmp_path: Path) -> None:
    read = _committed(handmade)
    for name in ("metadata/m1.avro", "metadata/v1.json"):
        (handmade.folder / name).unlink()
    pack = packed(handmade.path("metadata/v2.gz.metadata.json"), read)

    assert sorted(pack.relocation.missing_paths) == [
        handmade.path("metadata/m1.avro"),
        handmade.path("metadata/v1.json"),
    ]
    again = unpacked(pack, tmp_path / "new")
    assert len(again.files) == len(pack.files)
    manifests = avro.records_of(again.files[f"{tmp_path}/new/metadata/snap-7.avro"])
    assert f"{tmp_path}/new/metadata/m1.avro" in [each["manifest_path"] for each in manifests]


def test_metadata_moves_without_data(handmade: Handmade) -> None:
    read = _committed(handmade)
    pack = packed(handmade.path("metadata/v2.gz.metadata.json"), read, with_content=False)

    assert sorted(pack.kinds.values()) == [
        *(FileKind.MANIFEST, FileKind.MANIFEST, FileKind.MANIFEST_LIST, FileKind.METADATA)
    ]
    lengths = [each["file_size_in_bytes"] for each in _entries(pack, "m1")]
    sizes = [(handmade.folder / name).stat().st_size for name in ("data/deletes.parquet",)]
    assert lengths[:1] == sizes


def test_files_of_failed_commits_move_too(handmade: Handmade) -> None:
    pack = _pack(handmade)
    sources = {
        "metadata/lost-list.avro": "metadata/snap-7.avro",
        "metadata/lost-m0.avro": "metadata/m1.avro",
        "data/lost.parquet": "data/deletes.parquet",
        "data/lost.puffin": "data/vector.puffin",
        "metadata/lost.gz.metadata.json": "metadata/v2.gz.metadata.json",
    }
    for name, source in sources.items():
        handmade.write(name, (handmade.folder / source).read_bytes())
    handmade.write("data/rows.parquet", b"PAR1 rows of data" + bytes(8) + b"PAR1")
    paths = [handmade.path(name) for name in (*sources, "data/rows.parquet")]
    lost = {file.old_path: file for file in pack.relocation.unreferenced_files(paths)}

    assert lost.keys() == set(paths)
    assert lost.pop(handmade.path("data/rows.parquet")).new_content is None
    for path, file in lost.items():
        assert file.new_content is not None
        assert b"old folder" not in readable(file.new_content), path


def test_a_table_never_names_files_outside_of_its_new_folder(
    handmade: Handmade, tmp_path: Path
) -> None:
    """Of a pack that somebody has changed."""
    pack = _pack(handmade)
    strange = f"{NEUTRAL}/../../etc/passwd"
    raw = pack.files[f"{NEUTRAL}/metadata/m0.avro"]

    def name_another(entry: dict[str, Any]) -> None:
        entry["data_file"]["file_path"] = strange

    pack.files[f"{NEUTRAL}/metadata/m0.avro"] = avro.rewrite(raw, name_another)
    with pytest.raises(PathOutside):
        unpacked(pack, tmp_path / "new")


def test_a_file_that_is_two_things_is_refused(handmade: Handmade, tmp_path: Path) -> None:
    """Of a pack that somebody has changed: as a data file, a manifest would stay as it is."""
    pack = _pack(handmade)
    raw = pack.files[f"{NEUTRAL}/metadata/m0.avro"]

    def name_a_manifest(entry: dict[str, Any]) -> None:
        entry["data_file"]["file_path"] = f"{NEUTRAL}/metadata/./m1.avro"

    pack.files[f"{NEUTRAL}/metadata/m0.avro"] = avro.rewrite(raw, name_a_manifest)
    with pytest.raises(RelocationRefused, match="as data and as manifest"):
        unpacked(pack, tmp_path / "new")


def test_a_file_that_is_named_in_two_spellings_moves_once(tmp_path: Path) -> None:
    table = Handmade(tmp_path / "old")
    table.add(f"file://{table.data_path}")
    pack = _pack(table)

    assert [kind for kind in pack.kinds.values() if kind is FileKind.DATA] == [FileKind.DATA]
    paths = [each["file_path"] for each in _entries(pack, "m0")]
    assert paths[1] == f"file://{paths[0]}"


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"format_version": 4}, FormatTooNew, "format version 4"),
        ({"encryption_keys": [{"key-id": "1"}]}, RelocationRefused, "encrypted"),
        ({"location": 5}, MetadataUnreadable, "corrupt"),
        ({"format_version": "2"}, MetadataUnreadable, "no table metadata"),
    ],
)
def test_a_table_that_cannot_move_is_refused(
    handmade: Handmade, changes: dict[str, Any], error: type[Exception], reason: str
) -> None:
    location = handmade.location
    read = _committed(handmade, **changes)
    path = handmade.path("metadata/v2.gz.metadata.json")
    with pytest.raises(error, match=reason):
        move(path, read, {location: NEUTRAL}, ELSEWHERE)


def test_position_deletes_in_orc_and_encrypted_files_are_refused(tmp_path: Path) -> None:
    orc = Handmade(tmp_path / "orc")
    orc.write("data/deletes.orc", b"ORC")
    orc.add(orc.path("data/deletes.orc"), 1, "ORC")
    with pytest.raises(RelocationRefused, match="ORC"):
        _pack(orc)
    encrypted = Handmade(tmp_path / "encrypted")
    encrypted.entries[0]["data_file"]["key_metadata"] = b"key"
    with pytest.raises(RelocationRefused, match="encrypted"):
        _pack(encrypted)


def test_a_corrupt_file_is_named(handmade: Handmade) -> None:
    read = _committed(handmade)
    manifest = handmade.folder / "metadata/m1.avro"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with pytest.raises(MetadataUnreadable, match=r"m1\.avro is corrupt"):
        packed(handmade.path("metadata/v2.gz.metadata.json"), read)


def test_pyiceberg_reads_the_same_rows(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "odd name/=é", StringType()))
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "odd name/=é"),
        PartitionField(1, 1001, IdentityTransform(), "the id"),
    )
    rows = pa.table({"id": range(6), "odd name/=é": ["a/b", "c d", "%20"] * 2})
    with lake_in(tmp_path / "lake") as catalog:
        table = catalog.create_table("db.odd", schema, partition_spec=spec)
        table.append(rows)
        table.append(rows.slice(4))
        location = table.metadata_location
        before = table.scan().to_arrow().sort_by("id")
    moved = unpacked(packed(location), tmp_path / "new")
    after = StaticTable.from_metadata(moved.write())

    assert str(tmp_path / "lake").encode() not in b"".join(map(readable, moved.files.values()))
    assert after.scan().to_arrow().sort_by("id") == before
    assert json.loads(after.metadata.model_dump_json())["location"] == str(tmp_path / "new")
