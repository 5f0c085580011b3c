"""Storage is searched without Spark: what is orphan, missing or not decided, also while folders
cannot be listed and files come and go.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icekit
from icekit.common.errors import ExtraMissing
from icekit.common.sql import Identifier
from icekit.engine import file_systems
from icekit.engine.file_systems import ArrowFiles, FsspecFiles, ListedFile, LocalFiles
from icekit.engine.tables import EmbeddedTables, TableSource
from icekit.health import TableFacts
from icekit.health.facts.storage import MissingFiles, Role, Sharing
from icekit.health.storage import search
from tests.child import python
from tests.damage import on_disk
from tests.offline import IDS, lake_in

DAY = 86_400


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with lake_in(tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with three data files."""
    table = catalog.create_table(("db", "t"), IDS)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    return table


def observed(**options: Any) -> TableFacts:
    return icekit.connect().observe("db.t", storage=True, **options)


def add(table: Table, path: str, days: float = 4, size: int = 10) -> Path:
    """Write a file of this age below the table's location."""
    file = on_disk(table.location()) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    moment = file.stat().st_mtime - days * DAY
    os.utime(file, (moment, moment))
    return file


def data_files(table: Table) -> list[Path]:
    return [on_disk(task.file.file_path) for task in table.scan().plan_files()]


def old(table: Table) -> None:
    """Date every file of the table a month back."""
    for path in on_disk(table.location()).rglob("*"):
        moment = path.stat().st_mtime - 30 * DAY
        os.utime(path, (moment, moment))


def test_what_no_snapshot_names_is_an_orphan_after_three_days(table: Table) -> None:
    old(table)
    add(table, "data/young", days=2.9)
    add(table, "data/k=a%2Fb c/old's", days=3.1, size=5)
    add(table, "_temporary/old")
    add(table, "metadata/version-hint.text")
    storage = observed().storage

    assert storage is not None
    assert storage.orphan_count == 1
    assert storage.orphan_bytes == 5
    assert storage.examples == (f"file:{on_disk(table.location())}/data/k=a%2Fb c/old's",)


def test_files_of_old_snapshots_and_of_the_log_are_no_orphans_and_others_are(
    catalog: SqlCatalog,
) -> None:
    log = {
        "write.metadata.previous-versions-max": "2",
        "write.metadata.delete-after-commit.enabled": "false",
    }
    table = catalog.create_table(("db", "t"), IDS, properties=log)
    for number in range(4):
        table.append(pa.table({"id": [number]}))
    table.overwrite(pa.table({"id": [9]}))
    old(table)
    storage = observed().storage

    assert storage is not None
    forgotten = {
        path
        for path in on_disk(table.location()).rglob("*.metadata.json")
        if path.name[:5] in ("00000", "00001", "00002")
    }
    assert storage.orphan_count == len(forgotten) == 3
    assert set(storage.examples) == {f"file:{path}" for path in forgotten}


def test_missing_and_resized_files_are_found_also_outside_of_the_location(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    elsewhere = {"write.data.path": f"{tmp_path}/elsewhere"}
    table = catalog.create_table(("db", "t"), IDS, properties=elsewhere)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    assert observed().missing == MissingFiles()

    gone, grown, _ = data_files(table)
    gone.unlink()
    size = grown.stat().st_size
    os.truncate(grown, size + 1)
    missing = observed().missing

    assert missing is not None
    data = missing.count(Role.DATA)
    assert (data.gone_count, data.resized_count, data.record_count) == (1, 1, 2)
    assert {file.actual_bytes for file in missing.examples} == {None, size + 1}
    assert sum(count for _, count in missing.partitions) == 1


def test_a_table_whose_folder_is_gone_has_lost_its_files(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    elsewhere = {"write.metadata.path": f"{tmp_path}/metadata"}
    table = catalog.create_table(("db", "t"), IDS, properties=elsewhere)
    table.append(pa.table({"id": [1]}))
    shutil.rmtree(on_disk(table.location()))
    facts = observed()

    assert facts.missing is not None
    assert facts.missing.count(Role.DATA).gone_count == 1
    assert facts.storage is not None
    assert facts.storage.orphan_count == 0


def test_a_search_starts_no_spark_and_imports_no_arrow(table: Table) -> None:
    program = """
import sys
import icekit
facts = icekit.connect().observe("db.t", storage=True)
assert facts.storage is not None and facts.missing is not None
print(sorted({"pyspark", "pyarrow", "pyiceberg"} & sys.modules.keys()))
"""
    assert python("-c", program).stdout.strip() == "[]"


def test_a_protected_table_is_not_searched_for_orphans(table: Table) -> None:
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    old(table)
    add(table, "data/lost")
    facts = observed()

    assert facts.storage is None
    assert facts.missing == MissingFiles()
    assert facts.unlisted == "gc.enabled is false, so another table may use the files"


def test_beside_another_table_only_the_folders_of_the_own_files_are_listed(
    catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table(("db", "inner"), IDS, location=f"{table.location()}/inner")
    add(table, "data/lost")
    entered: list[str] = []
    walk = LocalFiles.walk

    def noted(
        self: LocalFiles, location: str, enters: Callable[[str], bool]
    ) -> Iterator[list[ListedFile]]:
        def noting(path: str) -> bool:
            entered.extend([path] * enters(path))
            return enters(path)

        return walk(self, location, noting)

    monkeypatch.setattr(LocalFiles, "walk", noted)
    facts = observed()

    assert sorted(entered) == ["data", "metadata"]
    assert facts.storage is not None
    assert (facts.storage.orphan_count, len(facts.storage.sharing.shared)) == (0, 1)
    assert facts.missing == MissingFiles()


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's rights, if the tests have them."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_listed_leaves_orphans_undecided_and_its_files_are_looked_up() -> (
    None
):
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with as_nobody(), lake_in(Path(folder) / "lake") as catalog:
            table = catalog.create_table(("db", "t"), IDS)
            table.append(pa.table({"id": [1]}))
            closed = add(table, "data/closed/lost").parent
            # What it has can be looked up, but not listed.
            closed.chmod(0o300)
            facts = observed()
            closed.chmod(0o700)

    assert facts.storage is None
    assert (facts.unlisted or "").startswith(f"{table.location()} cannot be listed completely: ")
    assert "Permission denied" in (facts.unlisted or "")
    assert facts.missing == MissingFiles()


def test_a_file_that_cannot_be_looked_up_is_not_called_missing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with as_nobody(), lake_in(Path(folder) / "lake") as catalog:
            table = catalog.create_table(("db", "t"), IDS)
            table.append(pa.table({"id": [1]}))
            data = on_disk(table.location()) / "data"
            data.chmod(0)
            facts = observed()
            data.chmod(0o700)

    assert facts.storage is None
    assert facts.missing is not None
    assert facts.missing.counts == ()
    assert (facts.missing.unchecked or "").startswith("a file cannot be looked up: ")
    assert "Permission denied" in (facts.missing.unchecked or "")


def test_a_file_that_vanishes_while_it_is_listed_is_no_error(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = add(table, "data/lost")
    folder = add(table, "data/deep/lost").parent
    status = file_systems._entry_status

    def vanishing(entry: os.DirEntry[str]) -> os.stat_result | None:
        if entry.path == str(lost):
            lost.unlink()
        seen = status(entry)
        if entry.path == str(folder):
            shutil.rmtree(folder)
        return seen

    monkeypatch.setattr(file_systems, "_entry_status", vanishing)
    facts = observed()

    assert facts.storage is not None
    assert facts.storage.orphan_count == 0
    assert facts.missing == MissingFiles()


def test_a_snapshot_that_expired_meanwhile_is_no_loss(
    catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expiring(*_: object, **__: object) -> Sharing:
        newest = table.current_snapshot()
        assert newest is not None
        table.append(pa.table({"id": [9]}))
        table.maintenance.expire_snapshots().by_id(newest.snapshot_id).commit()
        on_disk(newest.manifest_list).unlink()
        return Sharing()

    monkeypatch.setattr(search, "sharing", expiring)
    facts = observed()

    assert facts.missing == MissingFiles(
        unchecked="snapshots expired while the files were looked up"
    )
    assert facts.storage is None
    assert facts.unlisted == "snapshots expired while the files were looked up"


def test_without_a_manifest_of_an_old_snapshot_orphans_are_not_decided(table: Table) -> None:
    first = table.snapshots()[0]
    manifests = {each.manifest_path for each in first.manifests(table.io)}
    table.overwrite(pa.table({"id": [9]}))
    old(table)
    add(table, "data/lost")
    for path in manifests:
        on_disk(path).unlink()
    facts = observed()

    assert facts.storage is None
    assert "is missing. Restore the file" in (facts.unlisted or "")
    assert facts.missing == MissingFiles()


def test_without_a_manifest_list_orphans_are_not_decided(table: Table) -> None:
    on_disk(table.snapshots()[0].manifest_list).unlink()
    add(table, "data/lost")
    facts = observed()

    assert facts.missing is not None
    assert facts.missing.count(Role.MANIFEST_LIST).gone_count == 1
    assert facts.storage is None
    assert (facts.unlisted or "").startswith("the manifest list of a snapshot is gone")


def undecided(facts: TableFacts) -> str:
    assert facts.storage is None
    assert facts.missing == MissingFiles()
    return facts.unlisted or ""


def test_links_are_followed(table: Table, tmp_path: Path) -> None:
    data = on_disk(table.location()) / "data"
    data.rename(tmp_path / "moved")
    data.symlink_to(tmp_path / "moved")
    old(table)
    (data.parent / "nowhere").symlink_to(tmp_path / "nothing")
    (data.parent / "itself").symlink_to(data.parent / "itself")
    facts = observed()

    assert facts.missing == MissingFiles()
    assert facts.storage is not None
    assert facts.storage.orphan_count == 0

    add(table, "data/lost")
    assert undecided(observed()) == (
        f"file:{data} is a link to another folder, whose files may belong to something else"
    )


def test_a_location_that_is_itself_reached_by_a_link_is_a_location_like_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    with lake_in(tmp_path / "linked") as catalog:
        table = catalog.create_table(("db", "t"), IDS)
        table.append(pa.table({"id": [1]}))
        old(table)
        add(table, "data/lost")
        storage = observed().storage

    assert storage is not None
    assert storage.orphan_count == 1


@pytest.mark.parametrize("has_orphan", [True, False])
def test_a_table_that_names_its_files_by_a_link_into_its_location_is_not_decided(
    catalog: SqlCatalog, tmp_path: Path, has_orphan: bool
) -> None:
    """Metadata names /link/x, and the location has the same file by another path."""
    (tmp_path / "link").symlink_to(tmp_path / "lake/warehouse/db/t/data")
    elsewhere = {"write.data.path": f"{tmp_path}/link"}
    table = catalog.create_table(("db", "t"), IDS, properties=elsewhere)
    (on_disk(table.location()) / "data").mkdir()
    table.append(pa.table({"id": [1]}))
    if has_orphan:
        old(table)
        assert undecided(observed()).startswith(f"the metadata names files by {tmp_path}/link, ")
    else:
        assert observed().storage is not None


def test_a_link_back_into_the_location_is_not_decided(table: Table) -> None:
    location = on_disk(table.location())
    (location / "data" / "back").symlink_to(location)

    assert undecided(observed()).startswith(
        f"file:{location}/data/back is a link to a folder of the table"
    )


def test_too_many_files_are_left_to_spark_and_it_says_why(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no Spark, the command for it is the answer."""

    def absent(library: str, purpose: str) -> None:
        raise ExtraMissing(purpose, library)

    monkeypatch.setattr(search, "require_library", absent)
    monkeypatch.setattr(search, "MOST_FILES", 2)
    with pytest.raises(ExtraMissing, match="the table has 3 files, more than 2"):
        observed()
    assert observed(collector="local").storage is not None

    monkeypatch.setattr(search, "MOST_FILES", 3)
    monkeypatch.setattr(search, "MOST_ENTRIES", 2)
    with pytest.raises(ExtraMissing, match="3 manifest entries, more than 2"):
        observed()

    monkeypatch.setattr(search, "MOST_ENTRIES", 3)
    monkeypatch.setattr(search, "MOST_LISTED", 2)
    facts = observed()
    assert facts.missing == MissingFiles()
    assert "there are more than 2 files; let Spark list them" in (facts.unlisted or "")


def test_files_that_only_spark_reaches_are_left_to_spark(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = EmbeddedTables.source

    def without_files(self: EmbeddedTables, name: Identifier) -> TableSource:
        return dataclasses.replace(source(self, name), file_system=None)

    def absent(library: str, purpose: str) -> None:
        raise ExtraMissing(purpose, library)

    monkeypatch.setattr(search, "require_library", absent)
    monkeypatch.setattr(EmbeddedTables, "source", without_files)
    with pytest.raises(
        ExtraMissing,
        match="Because only Spark reaches the files of this catalog, the search of the storage "
        "needs pyspark",
    ):
        observed()


def read(files: Iterator[Sequence[ListedFile]]) -> dict[str, tuple[int, int]]:
    return {file.path: (file.size, file.modified_ms) for batch in files for file in batch}


@pytest.mark.parametrize("folders", [3, 200])
def test_every_file_system_lists_and_looks_up_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: int
) -> None:
    """Those of pyarrow and fsspec, with few and with many subfolders; here both on a disk."""
    import pyarrow.fs

    fsspec = pytest.importorskip("fsspec")
    top = tmp_path / "a b%20c"
    for number in range(folders):
        (top / f"data/p={number}").mkdir(parents=True)
        (top / f"data/p={number}/x#?").write_bytes(b"x" * number)
    (top / "first").write_bytes(b"1")
    # fsspec has seconds as a floating-point number, which near a full millisecond would be rounded.
    for number, file in enumerate(each for each in top.rglob("*") if each.is_file()):
        os.utime(file, ns=(0, (1_700_000_000_000 + number) * 1_000_000 + 500_000))
    local = read(LocalFiles().walk(str(top), lambda _: True))
    arrow = ArrowFiles(lambda *_: pyarrow.fs.LocalFileSystem())
    # A scheme that has no authority in its path.
    location = f"hdfs://{top}"
    by_fsspec = FsspecFiles(lambda _: fsspec.filesystem("file"))

    assert len(local) == folders + 1
    assert read(arrow.walk(location, lambda _: True)) == local
    assert read(by_fsspec.walk(str(top), lambda _: True)) == local
    assert not read(arrow.walk(f"{location}/nothing", lambda _: True))
    assert not read(by_fsspec.walk(f"{top}/nothing", lambda _: True))
    few = read(LocalFiles().walk(str(top), lambda path: path != "data"))
    assert (
        read(arrow.walk(location, lambda path: path != "data")) == few == {"first": local["first"]}
    )

    monkeypatch.setattr(file_systems, "_BEGUN", 2)
    paths = [*local, "none"]
    sizes = [*(size for size, _ in local.values()), None]
    for files, base in ((LocalFiles(), top), (arrow, location), (by_fsspec, top)):
        found = dict(files.sizes([f"{base}/{path}" for path in paths]))
        assert list(found.values()) == sizes
