"""Say what fills a table's storage: bytes by six reasons that add up to the total; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from icekit.common import frozen
from icekit.health.facts.files import FileGroup
from icekit.health.facts.integrity import UnappliedDeletes
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition


class Reason(StrEnum):
    """Why a table's storage holds bytes, in the order in which they are shown."""

    LIVE_ROWS = "live_rows"
    DELETED_ROWS = "deleted_rows"
    DELETE_FILES = "delete_files"
    OLD_SNAPSHOTS = "old_snapshots"
    ORPHAN_FILES = "orphan_files"
    METADATA = "metadata"


#: What maintenance can free.
REDUCIBLE = (
    Reason.DELETED_ROWS,
    Reason.DELETE_FILES,
    Reason.OLD_SNAPSHOTS,
    Reason.ORPHAN_FILES,
)


@frozen
class DeleteFileBytes:
    """The bytes of the live delete files; ``dangling`` are those that apply to no data file."""

    positions: int = 0
    vectors: int = 0
    equality: int = 0
    dangling: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.positions + self.vectors + self.equality + self.dangling


@frozen
class RefBytes:
    """The bytes of files that a branch or tag (``kind``) holds and the current snapshot does not;
    ``only_here`` are those that no other branch or tag holds.
    """

    name: str
    kind: str
    held: int
    only_here: int


class CountedBy(StrEnum):
    """How the bytes of old snapshots were counted."""

    MANIFESTS = "manifests"
    SUMMARIES = "summaries"
    NOTHING = "not counted"


@frozen
class OldSnapshotBytes:
    """The bytes of data and delete files that only older snapshots hold.

    ``refs`` are the branches and tags that hold some of them, the largest first; empty too where
    only summaries were read. ``uncounted_snapshots`` are the snapshots that were not counted, of
    which ``data`` and ``deletes`` then say nothing. Summaries do not tell delete files from data
    files: ``data`` has both.
    """

    data: int = 0
    deletes: int = 0
    refs: tuple[RefBytes, ...] = ()
    uncounted_snapshots: int = 0
    counted_by: CountedBy = CountedBy.MANIFESTS

    @property
    def total(self) -> int:
        """All of them."""
        return self.data + self.deletes


@frozen
class MetadataBytes:
    """The bytes of metadata: metadata files (JSON), manifest lists, manifests and statistics files
    of all snapshots; ``uncounted_files`` were not looked up.
    """

    metadata_files: int = 0
    manifest_lists: int = 0
    manifests: int = 0
    statistics: int = 0
    uncounted_files: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.metadata_files + self.manifest_lists + self.manifests + self.statistics


@frozen
class UnreferencedBytes:
    """The bytes of files in the location that no snapshot references: ``orphans``, and ``unjudged``
    files, which are hidden or so young that a writer may be about to commit them.
    ``is_estimated``: from the sizes of some.
    """

    orphans: int = 0
    unjudged: int = 0
    is_estimated: bool = False

    @property
    def total(self) -> int:
        """All of them."""
        return self.orphans + self.unjudged


@frozen
class StorageUse:
    """What fills a table's storage, in bytes.

    ``deleted_rows`` are in live data files: by their share of the records of each partition.
    ``has_uncounted_rows``: equality deletes apply, and the rows that they delete are not counted,
    so these are among the ``live_rows``. ``unreferenced`` is None unless storage was listed.
    Files that the metadata names and the listing does not have count for nothing.
    """

    live_rows: int = 0
    deleted_rows: int = 0
    delete_files: DeleteFileBytes = DeleteFileBytes()
    old_snapshots: OldSnapshotBytes = OldSnapshotBytes()
    metadata: MetadataBytes = MetadataBytes()
    unreferenced: UnreferencedBytes | None = None
    has_uncounted_rows: bool = False

    @property
    def bytes_by_reason(self) -> Mapping[Reason, int]:
        """The bytes of each reason, in order; those of orphans are missing if nothing was listed."""
        sizes = {
            Reason.LIVE_ROWS: self.live_rows,
            Reason.DELETED_ROWS: self.deleted_rows,
            Reason.DELETE_FILES: self.delete_files.total,
            Reason.OLD_SNAPSHOTS: self.old_snapshots.total,
        }
        if self.unreferenced is not None:
            sizes[Reason.ORPHAN_FILES] = self.unreferenced.total
        sizes[Reason.METADATA] = self.metadata.total
        return sizes

    @property
    def total(self) -> int:
        """The sum of all reasons."""
        return sum(self.bytes_by_reason.values())

    @property
    def reducible(self) -> int:
        """The bytes that maintenance can free; of unreferenced files only the orphans."""
        sizes = self.bytes_by_reason
        unjudged_bytes = self.unreferenced.unjudged if self.unreferenced else 0
        return sum(sizes.get(reason, 0) for reason in REDUCIBLE) - unjudged_bytes

    @property
    def is_complete(self) -> bool:
        """Whether everything that the metadata names is counted."""
        return not (self.old_snapshots.uncounted_snapshots or self.metadata.uncounted_files)


def deleted_row_bytes(groups: Iterable[FileGroup]) -> int:
    """The bytes of rows that position deletes and vectors delete in live data files: of each
    partition, the share of its records, of its bytes.
    """
    data_by_partition: dict[Partition, tuple[int, int]] = {}
    deletes_by_partition: dict[Partition, int] = {}
    for group in groups:
        if group.kind is Kind.DATA:
            data_by_partition[group.partition] = group.size_in_bytes, group.record_count
        elif group.kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS):
            earlier_count = deletes_by_partition.get(group.partition, 0)
            deletes_by_partition[group.partition] = earlier_count + group.record_count
    total = 0.0
    for partition, delete_count in deletes_by_partition.items():
        size_in_bytes, record_count = data_by_partition.get(partition, (0, 0))
        if record_count:
            total += size_in_bytes * min(1.0, delete_count / record_count)
    return round(total)


def delete_file_bytes(
    groups: Iterable[FileGroup], unapplied: Iterable[UnappliedDeletes], vector_file_bytes: int
) -> DeleteFileBytes:
    """The bytes of live delete files; ``vector_file_bytes`` are those of the Puffin files, of which
    each holds many vectors.
    """
    sizes = dict.fromkeys(Kind, 0)
    for group in groups:
        sizes[group.kind] += group.size_in_bytes
    dangling_bytes = sum(
        deletes.size_in_bytes for deletes in unapplied if deletes.kind is not Kind.DELETION_VECTORS
    )
    return DeleteFileBytes(
        positions=sizes[Kind.POSITION_DELETES],
        vectors=vector_file_bytes,
        equality=sizes[Kind.EQUALITY_DELETES],
        dangling=dangling_bytes,
    )
