"""Search the storage of a table for orphan files and missing files: by one listing of its location,
without a JVM; in Spark for very many files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING

from icekit.common.errors import IcekitError, MetadataUnreadable, first_line, require
from icekit.common.sql import Identifier
from icekit.common.terminal import report_waiting, show_progress
from icekit.engine.errors import complaint
from icekit.engine.file_systems import FileSystem
from icekit.health.facts.head import head
from icekit.health.facts.rollup import kind_of, sort_key
from icekit.health.facts.storage import (
    EXAMPLES,
    MOST_PARTITIONS,
    NEEDED_BY_SCANS,
    MissingCount,
    MissingFile,
    MissingFiles,
    Role,
    Sharing,
    StorageFacts,
    StorageSearch,
)
from icekit.health.storage.listing import Comparison, NamedFiles
from icekit.health.storage.missing import Reference, Searched, missing_files
from icekit.health.storage.orphans import (
    REMEMBERED_SECONDS,
    TableQuery,
    list_orphans,
    manifests_of,
    named_by_metadata,
    orphans_before,
    sharing,
)
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifests import (
    DELETE_FIELDS,
    Record,
    file_counts,
    files_of,
    live_count,
    read_ahead,
)
from icekit.iceberg.metadata import Json, properties_of, snapshots_by_id, summary_of
from icekit.iceberg.partition import Partition
from icekit.iceberg.paths import folder_of

if TYPE_CHECKING:
    from icekit.engine.lake import Lake
    from icekit.engine.tables import TableSource

#: A choice: a table with more files is searched in Spark.
MOST_FILES = 200_000
#: A choice: the most manifest entries of all snapshots that are read without Spark. A file has one
# in each manifest that was written again.
MOST_ENTRIES = 2_000_000
#: A choice: the most files of a location that are compared without Spark.
MOST_LISTED = 2_000_000
_PATH = frozenset({"file_path"})
_FILE_FIELDS = DELETE_FIELDS - {"content_offset", "content_size_in_bytes", "equality_ids"}
_GONE_LIST = (
    "the manifest list of a snapshot is gone, so it is not known which files that snapshot "
    "references"
)
_EXPIRED = "snapshots expired while the files were looked up"
#: What a file is by its kind; all other kinds are delete files.
_ROLES_BY_KIND = {Kind.DATA: Role.DATA, Kind.DELETION_VECTORS: Role.VECTOR}


def search_storage(
    lake: Lake,
    table: Identifier,
    source: TableSource,
    searched: Searched,
    collector: str,
    say: Callable[[str], None] | None = None,
) -> StorageSearch:
    """Look for orphan files and missing files; removes none. Orphan files are not looked for where
    another table may use the files.

    Works without Spark unless ``collector`` says ``spark``, only Spark reaches the files, or there
    are too many (whatever their number, if it says ``local``).
    """
    # The procedure rejects a table whose files others may share: nobody can say which files are
    # orphans.
    has_gc = properties_of(searched.metadata).get("gc.enabled", "true").lower() != "false"
    others = Sharing()
    search = _Search(source, searched, collector)
    with show_progress(lambda: search.progress):
        if has_gc:
            query = TableQuery(say=say or search.report)
            others = sharing(lake, table, query, max_age=REMEMBERED_SECONDS)
        search.seeks_orphans = has_gc and not others.shared
        reason = search.spark_reason()
        found = search.run() if reason is None else None
    if found is None:
        found = _search_in_spark(lake, table, searched, search.seeks_orphans, reason or "")
    missing = found.missing
    unlisted = found.unlisted
    if unlisted or (missing is not None and missing.counts):
        current = snapshots_by_id(head(lake, table).metadata)
        if not snapshots_by_id(searched.metadata).keys() <= current.keys():
            missing = missing and MissingFiles(unchecked=_EXPIRED)
            unlisted = unlisted and _EXPIRED
    if not has_gc:
        unlisted = "gc.enabled is false, so another table may use the files"
    storage = StorageFacts(_older_than_ms(), 0) if others.shared else found.storage
    return StorageSearch(storage and replace(storage, sharing=others), missing, unlisted)


def _older_than_ms() -> int:
    """The moment before which a file must have been written to count as an orphan."""
    return int(orphans_before().timestamp() * 1000)


def _search_in_spark(
    lake: Lake, table: Identifier, searched: Searched, seeks_orphans: bool, reason: str
) -> StorageSearch:
    """Let Spark's tasks look up every file, and ``remove_orphan_files`` list the location."""
    what = "searching the storage in Spark"
    if reason:
        what = f"{what}, because {reason}"
        require("pyspark", f"Because {reason}, the search of the storage")
    with report_waiting(what, at_once=bool(reason)):
        missing = None
        if searched.snapshot is not None:
            missing = missing_files(lake, table, searched)
            if missing.count(Role.MANIFEST_LIST).gone_count:
                return StorageSearch(missing=missing, unlisted=_GONE_LIST)
        if not seeks_orphans:
            return StorageSearch(missing=missing)
        try:
            storage = list_orphans(lake.spark, lake.sql_name(table), searched.metadata["location"])
        except Exception as error:
            return StorageSearch(missing=missing, unlisted=complaint(error).rstrip("."))
    return StorageSearch(storage, missing)


class _Search:
    """A search without Spark; ``progress`` says what it does now."""

    def __init__(self, source: TableSource, searched: Searched, collector: str) -> None:
        self.source = source
        self.searched = searched
        self.collector = collector
        self.seeks_orphans = True
        self.metadata: Json = searched.metadata
        self.named = NamedFiles()
        self.observed = {each["manifest_path"]: each for each in searched.manifests}
        self.manifests: Mapping[str, Record] = self.observed
        self.undecided: list[str] = []
        self.progress = "reading the metadata of the catalog's other tables"
        # An encrypted file is longer than what its entry says.
        self.has_sizes = "encryption.key-id" not in properties_of(searched.metadata)

    def report(self, progress: str) -> None:
        """Remember what the search does now."""
        self.progress = progress.strip()

    def spark_reason(self) -> str | None:
        """Why Spark must search: empty if it was asked to, None if it need not.

        Reads the manifest lists of all snapshots.
        """
        if self.collector == "spark":
            return ""
        if self.source.files is None:
            return "only Spark reaches the files of this catalog"
        snapshots = self.metadata.get("snapshots") or ()
        files = max(map(_file_count, snapshots), default=0)
        files = max(files, sum(file_counts(self.searched.manifests) or ()))
        if files > MOST_FILES and self.collector != "local":
            return f"the table has {files:,} files, more than {MOST_FILES:,}"
        if self.seeks_orphans:
            self.report("reading the manifest lists of all snapshots")
            try:
                self.manifests = self._all_manifests()
            except IcekitError as error:
                self.undecided.append(first_line(error))
        entries = sum(map(live_count, self.manifests.values()))
        if entries > MOST_ENTRIES and self.collector != "local":
            return f"its snapshots have {entries:,} manifest entries, more than {MOST_ENTRIES:,}"
        return None

    def _all_manifests(self) -> Mapping[str, Record]:
        for snapshot in self.metadata.get("snapshots") or ():
            if snapshot.get("manifest-list") is None:
                raise MetadataUnreadable(
                    f"snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers "
                    "before 2019 did"
                )
        return {**manifests_of(self.source, self.metadata), **self.observed}

    def run(self) -> StorageSearch:
        """Compare one listing with what the metadata names, and look up what the listing does not
        have.
        """
        files = self.source.files
        location = self.metadata["location"]
        assert files is not None  # or Spark searches
        try:
            self._read_names()
        except IcekitError as error:
            self.undecided.append(first_line(error))
        specs = self.searched.specs.values()
        comparison = Comparison(self.named, location, _older_than_ms(), specs)
        try:
            self._list(files, comparison)
            comparison.doubt_links()
        except Exception as error:
            self.undecided.append(f"{location} cannot be listed completely: {first_line(error)}")
        missing = None
        if self.searched.snapshot is not None:
            missing = self._missing(files, comparison)
            if missing.count(Role.MANIFEST_LIST).gone_count:
                self.undecided.insert(0, _GONE_LIST)
        if not self.seeks_orphans:
            return StorageSearch(missing=missing)
        self.undecided += comparison.doubts
        if self.undecided:
            return StorageSearch(missing=missing, unlisted=self.undecided[0].rstrip("."))
        return StorageSearch(comparison.storage, missing)

    def _read_names(self) -> None:
        """Gather every file that the metadata names; each manifest is read once, and those of the
        observed snapshot first.
        """
        if self.searched.snapshot is not None:
            for _, location, size, _ in self.searched.of_metadata():
                self.named.expect(location, size if self.has_sizes else None)
        for location in named_by_metadata(self.source, self.metadata):
            self.named.add(location)
        for path in self.manifests:
            self.named.add(path)
        old = [each for path, each in self.manifests.items() if path not in self.observed]
        ordered = [*self.observed.values(), *old]
        for index, (manifest, content) in enumerate(read_ahead(self.source.read, ordered)):
            self.progress = f"reading manifests: {index:,} of {len(ordered):,}"
            if manifest["manifest_path"] in self.observed:
                for file, *_ in files_of(manifest, content, _FILE_FIELDS):
                    self.named.expect(file["file_path"], self._size(file))
            else:
                for file, *_ in files_of(manifest, content, _PATH):
                    self.named.add(file["file_path"])

    def _size(self, file: Record) -> int | None:
        """The bytes of a file by its entry; those of a vector are not those of its file."""
        if _role_of(file) is Role.VECTOR or not self.has_sizes:
            return None
        return int(file["file_size_in_bytes"])

    def _list(self, files: FileSystem, comparison: Comparison) -> None:
        folders: Collection[str] = ()
        if not self.seeks_orphans:
            # Another table may have many more files here.
            folders = _with_parents(map(folder_of, self.named.expected))

        def enters(path: str) -> bool:
            if self.seeks_orphans:
                return not comparison.is_hidden(path)
            return f"{comparison.base}/{path}" in folders

        listed_count = 0
        for batch in files.walk(comparison.folder, enters):
            for file in batch:
                comparison.compare(file)
            listed_count += len(batch)
            self.progress = f"listing {comparison.folder}: {listed_count:,} files"
            if listed_count > MOST_LISTED and self.collector != "local":
                raise MetadataUnreadable(
                    f"there are more than {MOST_LISTED:,} files; let Spark list them (--collector "
                    "spark)"
                )

    def _missing(self, files: FileSystem, comparison: Comparison) -> MissingFiles:
        """The files that must exist, and that neither the listing has nor a look-up finds."""
        expected = self.named.expected.values()
        locations = dict.fromkeys([*self.named.doubtful, *(each.location for each in expected)])
        sizes: dict[str, int | None] = {}
        try:
            for location, size in files.sizes(list(locations)):
                sizes[location] = size
                self.progress = f"looking files up: {len(sizes):,} of {len(locations):,}"
        except Exception as error:
            return MissingFiles(unchecked=f"a file cannot be looked up: {first_line(error)}")
        comparison.doubt_listing(sizes)
        is_whole = not self.named.doubtful and all(
            sizes[each.location] is not None and each.size in (None, sizes[each.location])
            for each in expected
        )
        return MissingFiles() if is_whole else self._summarized(list(self._lost(sizes)))

    def _lost(self, sizes: Mapping[str, int | None]) -> Iterator[MissingFile]:
        """What is missing, with the details that the entries of the observed snapshot have."""
        for (role, path, size, snapshot_id), partition, records in self._references():
            if path not in sizes:
                continue
            actual_bytes = sizes[path]
            if actual_bytes is None or size not in (None, actual_bytes):
                yield MissingFile(role, path, partition, records, snapshot_id, size, actual_bytes)

    def _references(self) -> Iterator[tuple[Reference, Partition | None, int]]:
        for role, path, size, snapshot_id in self.searched.of_metadata():
            yield (role, path, size if self.has_sizes else None, snapshot_id), None, 0
        for manifest, content in read_ahead(self.source.read, self.observed.values()):
            for file, partition, _, snapshot_id in files_of(manifest, content, _FILE_FIELDS):
                reference = _role_of(file), file["file_path"], self._size(file), snapshot_id
                yield reference, partition, file["record_count"]

    def _summarized(self, lost: list[MissingFile]) -> MissingFiles:
        if not lost:
            return MissingFiles()
        by_role: dict[Role, list[MissingFile]] = {}
        for each in sorted(lost, key=lambda each: each.role.rank):
            by_role.setdefault(each.role, []).append(each)
        gone_data = [each for each in by_role.get(Role.DATA, ()) if each.actual_bytes is None]
        partitions = Counter(each.partition for each in gone_data if each.partition is not None)
        fullest = partitions.most_common(MOST_PARTITIONS)
        needed_by_scans = [each for each in lost if each.role in NEEDED_BY_SCANS]
        return MissingFiles(
            tuple(_count(role, files) for role, files in by_role.items()),
            tuple(nsmallest(EXAMPLES, lost, key=_importance)),
            tuple(sorted(fullest, key=lambda each: (-each[1], sort_key(each[0])))),
            self.searched.before({each.snapshot_id for each in needed_by_scans}),
        )


def _importance(file: MissingFile) -> tuple[int, str, int]:
    return file.role.rank, file.path, file.record_count


def _count(role: Role, files: Collection[MissingFile]) -> MissingCount:
    gone_count = sum(each.actual_bytes is None for each in files)
    records = sum(each.record_count for each in files)
    return MissingCount(role, gone_count, len(files) - gone_count, records)


def _role_of(file: Record) -> Role:
    kind = kind_of(file.get("content") or 0, file["file_format"])
    return _ROLES_BY_KIND.get(kind, Role.DELETES)


def _file_count(snapshot: Json) -> int:
    """The files of a snapshot according to its summary; 0 if that does not count them."""
    summary = summary_of(snapshot)
    return sum(int(summary.get(f"total-{kind}-files") or 0) for kind in ("data", "delete"))


def _with_parents(folders: Iterable[str]) -> set[str]:
    """Some folders, and those that they are in."""
    every: set[str] = set()
    for folder in folders:
        while folder not in every and folder != "/":
            every.add(folder)
            folder = folder_of(folder)
    return every
