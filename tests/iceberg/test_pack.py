"""Packs have what they say, and unpack only what is safe."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.common.errors import MetadataUnreadable, ParameterError
from icekit.iceberg import WITHOUT_DATA
from icekit.iceberg.pack import Pack, PackUnusable, PackWriter
from icekit.iceberg.relocation import FileKind
from tests.iceberg.handmade import NEWEST_MS, Handmade
from tests.iceberg.moving import readable

NAME = ("db", "t")
HOUR_MS = 3_600_000


@pytest.fixture
def handmade(tmp_path: Path) -> Handmade:
    table = Handmade(tmp_path / "old folder")
    table.add_positions("data/deletes.parquet", [table.data_path] * 3)
    table.add_vector("data/vector.puffin", table.data_path)
    return table


def _write(table: Handmade, file: Path, **options: Any) -> None:
    location = table.commit()
    with PackWriter(file) as writer:
        writer.add(NAME, location, table.read, packed_at_ms=NEWEST_MS + HOUR_MS, **options)


def _packed(table: Handmade, file: Path, **options: Any) -> Pack:
    _write(table, file, **options)
    return Pack(file)


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def _metadata(location: str) -> dict[str, Any]:
    return dict(json.loads(readable(Path(location).read_bytes())))


def test_a_pack_with_data_has_every_file(handmade: Handmade, tmp_path: Path) -> None:
    before = _files(handmade.folder)
    with _packed(handmade, tmp_path / "p.zip", with_data=True) as pack:
        (table,) = pack.tables
        location = pack.unpack(table, tmp_path / "lake" / "t")

    assert (table.name, table.has_data) == (NAME, True)
    assert _files(tmp_path / "lake" / "t") == _files(handmade.folder) != before
    assert location == f"{tmp_path}/lake/t/metadata/v2.gz.metadata.json"
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["t"]
    assert WITHOUT_DATA not in _metadata(location)["properties"]


def test_a_pack_without_data_has_metadata_and_says_so(handmade: Handmade, tmp_path: Path) -> None:
    with _packed(handmade, tmp_path / "p.zip") as pack:
        location = pack.unpack(pack.tables[0], tmp_path / "lake" / "t")

    assert _files(tmp_path / "lake" / "t") == [
        *("metadata/m0.avro", "metadata/m1.avro", "metadata/snap-7.avro"),
        "metadata/v2.gz.metadata.json",
    ]
    assert _metadata(location)["properties"][WITHOUT_DATA] == "true"


def test_a_commit_is_as_old_as_it_was(handmade: Handmade, tmp_path: Path) -> None:
    lost = handmade.path("data/lost.parquet")
    handmade.write("data/lost.parquet", b"rows")
    at_ms = NEWEST_MS + 10 * HOUR_MS
    with _packed(
        handmade,
        tmp_path / "p.zip",
        with_data=True,
        unreferenced_changed_at_ms={lost: NEWEST_MS - HOUR_MS},
    ) as pack:
        location = pack.unpack(pack.tables[0], tmp_path / "t", now_ms=at_ms)

    assert _metadata(location)["last-updated-ms"] == at_ms - HOUR_MS
    changed = (tmp_path / "t/data/lost.parquet").stat().st_mtime
    assert changed * 1000 == at_ms - 2 * HOUR_MS


def test_files_that_are_gone_are_counted_and_stay_gone(handmade: Handmade, tmp_path: Path) -> None:
    location = handmade.commit()
    (handmade.folder / "data/day=0001-01-01/a b.parquet").unlink()
    with PackWriter(tmp_path / "p.zip") as writer:
        contents = writer.add(NAME, location, handmade.read, with_data=True)
    with Pack(tmp_path / "p.zip") as pack:
        pack.unpack(pack.tables[0], tmp_path / "t")

    assert sorted(contents.missing_paths) == [
        handmade.data_path,
        handmade.path("metadata/gone.parquet"),
    ]
    assert contents.file_counts[FileKind.POSITION_DELETES] == 2
    assert not (tmp_path / "t/data/day=0001-01-01").exists()


def test_what_icekit_noted_for_itself_does_not_come_along(
    handmade: Handmade, tmp_path: Path
) -> None:
    properties = {"icekit.clone": "{}", "icekit.filter-columns": "id", "write.wap.enabled": "true"}
    location = handmade.commit(properties=properties)
    with PackWriter(tmp_path / "p.zip") as writer:
        writer.add(NAME, location, handmade.read)
    with Pack(tmp_path / "p.zip") as pack:
        unpacked = pack.unpack(pack.tables[0], tmp_path / "t")

    del properties["icekit.clone"]
    assert _metadata(unpacked)["properties"] == {**properties, WITHOUT_DATA: "true"}


def test_nothing_is_overwritten(handmade: Handmade, tmp_path: Path) -> None:
    with _packed(handmade, tmp_path / "p.zip") as pack:
        (tmp_path / "t").mkdir()
        with pytest.raises(ParameterError, match=r"/t exists\. Remove it, or choose another"):
            pack.unpack(pack.tables[0], tmp_path / "t")
        pack.unpack(pack.tables[0], tmp_path / "t", replace=True)
        assert (tmp_path / "t/metadata").is_dir()
    with pytest.raises(ParameterError, match=r"p\.zip exists"), PackWriter(tmp_path / "p.zip"):
        pass


def test_a_pack_that_fails_leaves_nothing(handmade: Handmade, tmp_path: Path) -> None:
    location = handmade.commit()
    before = _files(tmp_path)
    (handmade.folder / "metadata/m1.avro").write_bytes(b"Obj")
    with pytest.raises(MetadataUnreadable), PackWriter(tmp_path / "p.zip") as writer:
        writer.add(NAME, location, handmade.read)
    assert _files(tmp_path) == before


def test_an_unpacking_that_fails_leaves_nothing(handmade: Handmade, tmp_path: Path) -> None:
    _write(handmade, tmp_path / "p.zip", with_data=True)
    _change(tmp_path / "p.zip", lambda name, raw: raw[:-20] if name.endswith("m1.avro") else raw)
    with Pack(tmp_path / "p.zip") as pack, pytest.raises(Exception, match="corrupt"):
        pack.unpack(pack.tables[0], tmp_path / "lake" / "t")

    assert _files(tmp_path / "lake") == []


def _change(
    file: Path,
    change: Callable[[str, bytes], bytes] = lambda _, raw: raw,
    more: dict[str, bytes] | None = None,
) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in (entries | (more or {})).items():
            archive.writestr(name, raw)


@pytest.mark.parametrize(
    "entry",
    [
        *("0/table/../../../../evil", "/etc/evil", "0/table//evil", "0/table/./evil", "evil"),
        *("0/other/evil", "0/table/a\\..\\evil", "x/table/evil", "0/table/evil/", "0/table/\nevil"),
        "0/table/METADATA/M0.avro",
    ],
)
def test_a_strangers_archive_writes_nowhere_else(
    handmade: Handmade, tmp_path: Path, entry: str
) -> None:
    _write(handmade, tmp_path / "p.zip")
    _change(tmp_path / "p.zip", more={entry: b"evil"})

    with pytest.raises(PackUnusable, match="damaged"):
        Pack(tmp_path / "p.zip")


def test_an_archive_that_unpacks_to_far_more_than_it_has_is_refused(
    handmade: Handmade, tmp_path: Path
) -> None:
    _write(handmade, tmp_path / "p.zip")
    _change(tmp_path / "p.zip", more={"0/table/data/bomb": bytes(80 << 20)})

    with pytest.raises(PackUnusable, match="far more than a pack of its size"):
        Pack(tmp_path / "p.zip")


def test_a_table_that_names_files_of_another_one_is_refused(
    handmade: Handmade, tmp_path: Path
) -> None:
    _write(handmade, tmp_path / "p.zip")

    def name_another(name: str, raw: bytes) -> bytes:
        if not name.endswith("json") or name == "icekit-pack.json":
            return raw
        return readable(raw).replace(b"/icekit-pack/table/metadata/snap", b"/lake/db/other/snap")

    _change(tmp_path / "p.zip", name_another)
    with Pack(tmp_path / "p.zip") as pack, pytest.raises(Exception, match="outside the table"):
        pack.unpack(pack.tables[0], tmp_path / "lake" / "t")
    assert _files(tmp_path / "lake") == []


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (b"{", "not a pack of icekit, or damaged"),
        (b'{"format": "other"}', "not a pack of icekit"),
        (b'{"format": "icekit-pack", "version": 99}', "another version of icekit"),
        (b"[]", "not a pack of icekit, or damaged"),
    ],
)
def test_a_file_that_is_no_pack_is_refused(
    handmade: Handmade, tmp_path: Path, index: bytes, reason: str
) -> None:
    _write(handmade, tmp_path / "p.zip")
    _change(tmp_path / "p.zip", lambda name, raw: index if name == "icekit-pack.json" else raw)
    with pytest.raises(PackUnusable, match=reason):
        Pack(tmp_path / "p.zip")
    with pytest.raises(PackUnusable, match="There is no file"):
        Pack(tmp_path / "none.zip")
    os.truncate(tmp_path / "p.zip", 100)
    with pytest.raises(PackUnusable, match="not a pack of icekit, or damaged"):
        Pack(tmp_path / "p.zip")
