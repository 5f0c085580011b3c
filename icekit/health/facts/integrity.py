"""Hold where the manifests of a snapshot contradict each other, or deletes apply to nothing:
bounded counts and a few examples.
"""

from enum import StrEnum

from icekit.common import frozen
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition, Scalar

#: The examples of each kind.
EXAMPLES = 5
#: The most partitions that :attr:`Integrity.duplicate_partitions` names: a statement with more is
# for the whole table.
MOST_PARTITIONS = 2_000


class DeleteState(StrEnum):
    """Why deletes apply to no data file that a scan reads them for (table spec, "Scan Planning").

    ``DANGLING``: no data file is left that they could apply to. ``MISFILED``: they name a live data
    file of another partition or spec; Iceberg before 1.12 applies them, 1.12 cannot plan a scan of
    that file. ``UNMATCHED``: they name no live data file, but their partition has one with the same
    file name that is not newer, so its path is written in another way. ``NEW_KEYS``: equality
    deletes whose key bounds meet those of no older data file. ``REPLACED``: position deletes of a
    data file that has a deletion vector, which readers apply instead (table spec, "Deletion
    Vectors"). ``SEVERAL_VECTORS``: deletion vectors of a data file that has more than one.
    """

    DANGLING = "dangling"
    MISFILED = "misfiled"
    UNMATCHED = "unmatched"
    NEW_KEYS = "new keys"
    REPLACED = "replaced"
    SEVERAL_VECTORS = "several vectors"


class Contradiction(StrEnum):
    """What no rewrite may build on, by the name of its finding: it would keep the fault for good,
    lose deletes, or fail.
    """

    DUPLICATE_FILES = "duplicate_files"
    MISFILED_DELETES = "misfiled_deletes"
    MANIFEST_BOUNDS = "manifest_bounds"
    SEVERAL_VECTORS = "several_vectors"
    UNREADABLE_METADATA = "unreadable_metadata"


@frozen
class UnappliedDeletes:
    """The delete files of one partition and kind that apply to nothing, for one reason; vectors
    count by their blobs.
    """

    partition: Partition
    kind: Kind
    state: DeleteState
    file_count: int
    size_in_bytes: int
    record_count: int


@frozen
class DuplicateFile:
    """A data or delete file with several live entries, and the snapshots that added them."""

    path: str
    kind: Kind
    entry_count: int
    snapshot_ids: tuple[int, ...]


@frozen
class MisplacedDelete:
    """A delete file that is not applied as its writer meant it: the data file that it names, and
    the live one in its place.

    ``data_path`` and ``data_partition`` are those of the live data file; its path differs from
    ``named_path`` for an unmatched delete. ``revived_count`` are the rows that a replaced delete
    deletes and the vector does not, None if they were not counted.
    """

    state: DeleteState
    path: str
    partition: Partition
    named_path: str
    data_path: str
    data_partition: Partition
    snapshot_id: int
    revived_count: int | None = None


@frozen
class NarrowManifest:
    """A manifest whose summary of one partition field in the manifest list does not cover its
    entries.

    ``listed`` are the summary's bounds, ``held`` those of the entries (None without any);
    ``missing`` tells that the summary denies nulls or NaNs that entries have. ``is_alone``: its
    spec has no other manifest of this content.
    """

    path: str
    spec_id: int
    is_deletes: bool
    field: str
    listed: tuple[Scalar, Scalar]
    held: tuple[Scalar, Scalar]
    missing: str | None = None
    is_alone: bool = False


@frozen
class MiscountedManifest:
    """A manifest that has another number of live files than the manifest list says."""

    path: str
    listed_count: int
    live_count: int


@frozen
class Integrity:
    """Where the manifests contradict each other. Examples are the first :data:`EXAMPLES` by path.

    ``duplicate_*_file_count`` are files with more than one live entry, ``duplicate_record_count``
    the rows of data files that a scan reads again, ``duplicate_partitions`` where they are (none if
    there are very many); ``duplicate_manifests`` are listed more than once; ``miscounted`` are the
    first manifests of ``miscounted_count``.
    """

    duplicate_data_file_count: int = 0
    duplicate_delete_file_count: int = 0
    duplicate_record_count: int = 0
    duplicate_partitions: tuple[Partition, ...] = ()
    duplicate_manifests: tuple[str, ...] = ()
    duplicates: tuple[DuplicateFile, ...] = ()
    misplaced: tuple[MisplacedDelete, ...] = ()
    narrow_manifest_count: int = 0
    narrow_manifests: tuple[NarrowManifest, ...] = ()
    miscounted_count: int = 0
    miscounted: tuple[MiscountedManifest, ...] = ()
