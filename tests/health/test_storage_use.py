"""What fills a table's storage adds up to what is there, by each way of counting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import icekit
from icekit.api import Lake
from icekit.engine.tables import EmbeddedTables
from icekit.health.facts.files import Bucket, FileGroup
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.facts.storage import Role
from icekit.health.facts.storage_use import (
    CountedBy,
    DeleteFileBytes,
    OldSnapshotBytes,
    Reason,
    StorageUse,
    UnreferencedBytes,
    deleted_row_bytes,
)
from icekit.health.storage import use as storage_use
from icekit.health.storage.snapshot_files import (
    ReadingLimits,
    SnapshotFiles,
    old_bytes_by_summaries,
    read_snapshot_files,
)
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.learn.lab import lab_tables, unpack_lab
from tests.damage import on_disk
from tests.offline import IDS, lake_in

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

#: A table of the lab whose old snapshots the summaries count.
COMPACTED = "snapshot_pile_up"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The whole lab, without Spark."""
    lake = Lake("lake", None, EmbeddedTables(tmp_path_factory.mktemp("lab") / "lake"))
    unpack_lab(lake, list(lab_tables()), progress=lambda _: None)
    return lake


def listed_bytes(lake: Lake, name: str) -> int:
    source = lake.tables.source(("lab", name))
    folder = on_disk(str(load_metadata(source)["location"]))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", lab_tables())
def test_the_reasons_add_up_to_the_listing_to_the_byte(lab: Lake, name: str) -> None:
    use = lab.observe(f"lab.{name}", storage=True).storage_use

    assert use is not None
    assert use.is_complete
    assert use.total == sum(use.bytes_by_reason.values()) == listed_bytes(lab, name)


def test_without_a_listing_the_same_but_orphans_is_counted(lab: Lake) -> None:
    listed = lab.observe("lab.orphan_files", storage=True).storage_use
    use = lab.observe("lab.orphan_files").storage_use

    assert use is not None
    assert listed is not None
    assert use.unreferenced is None
    assert Reason.ORPHAN_FILES not in use.bytes_by_reason
    assert listed.bytes_by_reason[Reason.ORPHAN_FILES] > 0
    assert listed.total - use.total == listed.bytes_by_reason[Reason.ORPHAN_FILES]


def test_summaries_count_old_snapshots_as_their_manifests_do(
    lab: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_manifests = lab.observe(f"lab.{COMPACTED}").storage_use
    monkeypatch.setattr(storage_use, "LOOK_LIMITS", ReadingLimits(manifest_lists=1, entries=0))
    by_summaries = lab.observe(f"lab.{COMPACTED}").storage_use

    assert by_manifests is not None
    assert by_summaries is not None
    assert by_manifests.old_snapshots.counted_by is CountedBy.MANIFESTS
    assert by_summaries.old_snapshots.counted_by is CountedBy.SUMMARIES
    assert by_summaries.old_snapshots.total == by_manifests.old_snapshots.total > 0
    # The manifests and their lists were not read.
    assert by_summaries.metadata.uncounted_files > 0
    assert not by_summaries.is_complete


def test_what_is_not_read_and_cannot_be_trusted_is_not_counted(
    lab: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summaries count a vector, not the file that it is in."""
    monkeypatch.setattr(storage_use, "LOOK_LIMITS", ReadingLimits(manifest_lists=1, entries=0))

    use = lab.observe("lab.deletion_vectors").storage_use

    assert use is not None
    assert use.old_snapshots == OldSnapshotBytes(
        uncounted_snapshots=3, counted_by=CountedBy.NOTHING
    )


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with lake_in(tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with a file that only its first snapshots hold, and a tag on the first."""
    table = catalog.create_table(("db", "t"), IDS)
    table.append(pa.table({"id": list(range(1000))}))
    first_id = table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    table.append(pa.table({"id": [1]}))
    table.overwrite(pa.table({"id": [2]}))
    table.manage_snapshots().create_tag(first_id, "audit").commit()
    return table


def files_of(table: Table) -> tuple[SnapshotFiles, dict[str, Any]]:
    source = icekit.connect().tables.source(("db", "t"))
    metadata = load_metadata(source)
    current_paths = {task.file.file_path for task in table.scan().plan_files()}
    files = read_snapshot_files(source.read, metadata, current_paths, ReadingLimits(100, 100))
    assert files is not None
    return files, metadata


def test_a_tag_is_named_with_what_only_it_holds(table: Table) -> None:
    use = icekit.connect().observe("db.t").storage_use

    assert use is not None
    (ref,) = use.old_snapshots.refs
    assert (ref.name, ref.kind) == ("audit", "tag")
    # The second file is held by the second snapshot alone.
    assert 0 < ref.only_here == ref.held < use.old_snapshots.total


def test_an_expiry_frees_what_no_other_snapshot_holds(table: Table) -> None:
    files, metadata = files_of(table)
    ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
    first_id, second_id = ids[:2]

    freed = files.freed_by([second_id])
    freed_with_first = files.freed_by([first_id, second_id])

    # Of two data files, only the second snapshot holds the second one.
    assert freed[Role.DATA][0] == 1
    assert freed_with_first[Role.DATA][0] == 2
    assert files.freed_by([]) == {}
    assert freed[Role.MANIFEST_LIST][0] == 1


def test_summaries_with_a_gap_in_the_lineage_are_not_trusted(table: Table) -> None:
    metadata = load_metadata(icekit.connect().tables.source(("db", "t")))
    live_bytes = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert old_bytes_by_summaries(metadata, live_bytes) is not None

    # The second snapshot is gone, and a tag keeps the first.
    gap = {**metadata, "snapshots": [s for i, s in enumerate(metadata["snapshots"]) if i != 1]}

    assert old_bytes_by_summaries(gap, live_bytes) is None
    assert old_bytes_by_summaries(metadata, live_bytes + 1) is None


def group(kind: Kind, size: int, records: int, partition: Partition) -> FileGroup:
    return FileGroup(partition, kind, (Bucket(0, 1, size, records, size, size),))


def test_deleted_rows_are_a_share_of_the_bytes_of_their_own_partition() -> None:
    one, two = Partition(0, (1,)), Partition(0, (2,))
    groups = [
        group(Kind.DATA, 1000, 100, one),
        group(Kind.DATA, 9000, 100, two),
        group(Kind.POSITION_DELETES, 7, 25, one),
        # More deletes than rows: some name rows twice.
        group(Kind.POSITION_DELETES, 7, 150, two),
        group(Kind.DELETION_VECTORS, 7, 5, Partition(0, (3,))),
    ]

    assert deleted_row_bytes(groups) == 250 + 9000


def test_what_can_go_is_all_but_live_rows_metadata_and_files_that_nobody_can_judge() -> None:
    use = StorageUse(
        live_rows=1,
        deleted_rows=10,
        delete_files=DeleteFileBytes(positions=100, dangling=200),
        old_snapshots=OldSnapshotBytes(data=1000),
        unreferenced=UnreferencedBytes(orphans=10_000, unjudged=50_000),
    )

    assert use.reducible == 11_310
    assert use.total == 61_311
