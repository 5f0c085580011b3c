"""Hold what a search of storage found: files that no snapshot references, and referenced files that
are missing.
"""

from dataclasses import field
from enum import StrEnum

from icekit.common import frozen
from icekit.common.units import about, count, first_names
from icekit.iceberg.partition import Partition

#: The most tables that a sentence names.
_NAMED = 5
#: The most files of a kind that are examples.
EXAMPLES = 5
#: The most partitions that are told apart.
MOST_PARTITIONS = 1000


@frozen
class SharedPlace:
    """Another table, and its path that equals, contains or lies inside a path of this table."""

    table: str
    path: str


@frozen
class Sharing:
    """The tables of the same catalog that keep files in this table's location: one entry per table.

    ``unchecked`` says why some tables could not be compared; None if all were. Tables of other
    catalogs are not known.
    """

    shared: tuple[SharedPlace, ...] = ()
    unchecked: str | None = None

    @property
    def summary(self) -> str:
        """``shared location with db.a_old (s3://bucket/db/a)``; empty if no location is shared."""
        if not self.shared:
            return ""
        table_texts = (
            f"{shared_place.table} ({shared_place.path})" for shared_place in self.shared
        )
        return f"shared location with {first_names(table_texts, _NAMED)}"

    @property
    def refusal(self) -> str | None:
        """Why orphan files must not be removed, and what to do; None if they may be."""
        if self.shared:
            return (
                f"Orphan files are not removed: {self.summary}, so a file that this table does not "
                "reference may belong to another table. Copy one of the tables to its own "
                "location (CREATE TABLE … AS SELECT) first; `icekit admin clones` lists clones "
                "that were left behind."
            )
        if self.unchecked:
            return (
                "Orphan files are not removed: another table may keep files in this location "
                f"({self.unchecked}). Fix that and try again, or list the files with the dry run "
                "of remove_orphan_files and remove them by hand."
            )
        return None


@frozen
class StorageFacts:
    """Files under the table's location that no snapshot references.

    Those that the dry run of ``remove_orphan_files`` would list; ``examples`` are a few.
    ``orphan_bytes`` is their total size, from the sizes of ``weighed_count`` of them; None if not
    known. If another table shares the location (``sharing``), nothing is listed: a file that no
    snapshot of this table references may belong to the other table. ``unjudged_bytes`` are those of
    other files that no snapshot references, which are too young or hidden, ``referenced_bytes``
    those of all others in the location; None if Spark listed it, which counts neither, or if the
    table has files elsewhere.
    """

    older_than_ms: int
    orphan_count: int
    examples: tuple[str, ...] = ()
    orphan_bytes: int | None = None
    weighed_count: int = 0
    sharing: Sharing = Sharing()
    unjudged_bytes: int | None = field(default=None, compare=False)
    referenced_bytes: int | None = field(default=None, compare=False)

    @property
    def is_estimated(self) -> bool:
        """Tell whether the bytes are estimated from some of the files."""
        return self.weighed_count < self.orphan_count

    @property
    def summary(self) -> str:
        """The number and size of the orphan files, as the start of a sentence: ``15 files, 167
        KiB,``.
        """
        size_text = (
            ""
            if self.orphan_bytes is None
            else f", {about(self.orphan_bytes, is_estimate=self.is_estimated)},"
        )
        return f"{count(self.orphan_count, 'file')}{size_text}"


class Role(StrEnum):
    """What a file is to its table, most important first."""

    DATA = "data file"
    DELETES = "delete file"
    VECTOR = "deletion vector"
    MANIFEST = "manifest"
    MANIFEST_LIST = "manifest list"
    STATISTICS = "statistics file"

    @property
    def rank(self) -> int:
        """Its place in this order, from 0."""
        return ROLES.index(self)


ROLES = tuple(Role)
#: Without such a file, scans of the snapshot fail.
NEEDED_BY_SCANS = (Role.DATA, Role.DELETES, Role.VECTOR, Role.MANIFEST)


@frozen
class MissingFile:
    """A referenced file that is gone (``actual_bytes`` is None) or has another size than
    ``size_in_bytes``, which its entry says.

    ``snapshot_id`` is the snapshot that added it; for a manifest list and statistics, the one that
    they belong to.
    """

    role: Role
    path: str
    partition: Partition | None
    record_count: int
    snapshot_id: int | None
    size_in_bytes: int | None
    actual_bytes: int | None


@frozen
class MissingCount:
    """How many files of one role are gone or have another size, and the records of both."""

    role: Role
    gone_count: int
    resized_count: int
    record_count: int


@frozen
class MissingFiles:
    """The referenced files that are gone from storage or have another size than their entries say;
    empty if all are there.

    Checked are the data files, delete files and manifests of the observed snapshot, the manifest
    lists of all snapshots, and the newest statistics files. ``examples`` are a few, most important
    first. ``partitions`` counts the data files that are gone by partition, most first, of at most
    :data:`MOST_PARTITIONS`. ``before_id`` is the newest snapshot of the lineage from before the
    first of them was added. ``unchecked`` says why nothing is known; None if the files were
    checked.
    """

    counts: tuple[MissingCount, ...] = ()
    examples: tuple[MissingFile, ...] = ()
    partitions: tuple[tuple[Partition, int], ...] = ()
    before_id: int | None = None
    unchecked: str | None = None

    def count(self, role: Role) -> MissingCount:
        """The count of one role."""
        return next(
            (role_count for role_count in self.counts if role_count.role is role),
            MissingCount(role, 0, 0, 0),
        )

    @property
    def fails_scans(self) -> bool:
        """Tell whether a scan of the observed snapshot fails."""
        return any(role_count.role in NEEDED_BY_SCANS for role_count in self.counts)


@frozen
class StorageSearch:
    """What a search of storage found: orphan files, or why they are not decided, and missing files;
    None for what was not searched.
    """

    storage: StorageFacts | None = None
    missing: MissingFiles | None = None
    unlisted: str | None = None
