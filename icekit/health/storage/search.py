"""Search the storage of a table for orphan files and missing files: by one listing of its location,
without a JVM; in Spark for very many files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING

from icekit.common.errors import IcekitError, MetadataUnreadable, first_line, require_library
from icekit.common.sql import Identifier
from icekit.common.terminal import report_waiting, show_progress
from icekit.engine.errors import complaint
from icekit.engine.file_systems import FileSystem
from icekit.health.facts.head import head
from icekit.health.facts.rollup import sort_key
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
from icekit.health.storage.missing import ObservedSnapshot, Reference, missing_files, role_of
from icekit.health.storage.orphans import (
    REMEMBERED_SECONDS,
    ReadLimits,
    list_orphans,
    manifests_of,
    orphan_cutoff,
    paths_in_metadata,
    sharing,
)
from icekit.iceberg.manifests import (
    DELETE_FIELDS,
    Record,
    file_counts,
    files_of,
    live_count,
    read_manifests_ahead,
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
#: in each manifest that was written again.
MOST_ENTRIES = 2_000_000
#: A choice: the most files of a location that are compared without Spark.
MOST_LISTED = 2_000_000
_PATH_FIELD = frozenset({"file_path"})
_FILE_FIELDS = DELETE_FIELDS - {"content_offset", "content_size_in_bytes", "equality_ids"}
_LIST_GONE_REASON = (
    "the manifest list of a snapshot is gone, so it is not known which files that snapshot "
    "references"
)
_EXPIRED_REASON = "snapshots expired while the files were looked up"


def search_storage(
    lake: Lake,
    table: Identifier,
    source: TableSource,
    observed_snapshot: ObservedSnapshot,
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
    has_gc = properties_of(observed_snapshot.metadata).get("gc.enabled", "true").lower() != "false"
    location_sharing = Sharing()
    local_search = _Search(source, observed_snapshot, collector)
    with show_progress(lambda: local_search.progress):
        if has_gc:
            read_limits = ReadLimits(say=say or local_search.set_progress)
            location_sharing = sharing(lake, table, read_limits, max_age_seconds=REMEMBERED_SECONDS)
        local_search.seeks_orphans = has_gc and not location_sharing.shared
        spark_reason = local_search.spark_reason()
        search_result = local_search.run() if spark_reason is None else None
    if search_result is None:
        search_result = _search_in_spark(
            lake, table, observed_snapshot, local_search.seeks_orphans, spark_reason or ""
        )
    missing_summary = search_result.missing
    unlisted_reason = search_result.unlisted
    if unlisted_reason or (missing_summary is not None and missing_summary.counts):
        current_snapshot_ids = snapshots_by_id(head(lake, table).metadata).keys()
        if not snapshots_by_id(observed_snapshot.metadata).keys() <= current_snapshot_ids:
            missing_summary = missing_summary and MissingFiles(unchecked=_EXPIRED_REASON)
            unlisted_reason = unlisted_reason and _EXPIRED_REASON
    if not has_gc:
        unlisted_reason = "gc.enabled is false, so another table may use the files"
    storage_facts = search_result.storage
    if location_sharing.shared:
        storage_facts = StorageFacts(_orphan_cutoff_ms(), 0)
    if storage_facts is not None:
        storage_facts = replace(storage_facts, sharing=location_sharing)
    return StorageSearch(storage_facts, missing_summary, unlisted_reason)


def _orphan_cutoff_ms() -> int:
    """The moment before which a file must have been written to count as an orphan."""
    return int(orphan_cutoff().timestamp() * 1000)


def _search_in_spark(
    lake: Lake,
    table: Identifier,
    observed_snapshot: ObservedSnapshot,
    seeks_orphans: bool,
    spark_reason: str,
) -> StorageSearch:
    """Let Spark's tasks look up every file, and ``remove_orphan_files`` list the location."""
    activity = "searching the storage in Spark"
    if spark_reason:
        activity = f"{activity}, because {spark_reason}"
        require_library("pyspark", f"Because {spark_reason}, the search of the storage")
    with report_waiting(activity, at_once=bool(spark_reason)):
        missing_summary = None
        if observed_snapshot.snapshot is not None:
            missing_summary = missing_files(lake, table, observed_snapshot)
            if missing_summary.count(Role.MANIFEST_LIST).gone_count:
                return StorageSearch(missing=missing_summary, unlisted=_LIST_GONE_REASON)
        if not seeks_orphans:
            return StorageSearch(missing=missing_summary)
        try:
            storage_facts = list_orphans(
                lake.spark, lake.sql_name(table), observed_snapshot.metadata["location"]
            )
        except Exception as error:
            return StorageSearch(missing=missing_summary, unlisted=complaint(error).rstrip("."))
    return StorageSearch(storage_facts, missing_summary)


class _Search:
    """A search without Spark; ``progress`` says what it does now."""

    def __init__(
        self, source: TableSource, observed_snapshot: ObservedSnapshot, collector: str
    ) -> None:
        self.source = source
        self.observed = observed_snapshot
        self.collector = collector
        self.seeks_orphans = True
        self.metadata: Json = observed_snapshot.metadata
        self.named_files = NamedFiles()
        self.observed_manifests = {
            manifest["manifest_path"]: manifest for manifest in observed_snapshot.manifests
        }
        self.manifests: Mapping[str, Record] = self.observed_manifests
        self.undecided_reasons: list[str] = []
        self.progress = "reading the metadata of the catalog's other tables"
        # An encrypted file is longer than what its entry says.
        self.has_sizes = "encryption.key-id" not in properties_of(observed_snapshot.metadata)

    def set_progress(self, progress: str) -> None:
        """Remember what the search does now."""
        self.progress = progress.strip()

    def spark_reason(self) -> str | None:
        """Why Spark must search: empty if it was asked to, None if it need not.

        Reads the manifest lists of all snapshots.
        """
        if self.collector == "spark":
            return ""
        if self.source.file_system is None:
            return "only Spark reaches the files of this catalog"
        snapshots = self.metadata.get("snapshots") or ()
        max_file_count = max(map(_summary_file_count, snapshots), default=0)
        max_file_count = max(max_file_count, sum(file_counts(self.observed.manifests) or ()))
        if max_file_count > MOST_FILES and self.collector != "local":
            return f"the table has {max_file_count:,} files, more than {MOST_FILES:,}"
        if self.seeks_orphans:
            self.set_progress("reading the manifest lists of all snapshots")
            try:
                self.manifests = self._all_manifests()
            except IcekitError as error:
                self.undecided_reasons.append(first_line(error))
        entry_count = sum(map(live_count, self.manifests.values()))
        if entry_count > MOST_ENTRIES and self.collector != "local":
            return (
                f"its snapshots have {entry_count:,} manifest entries, more than {MOST_ENTRIES:,}"
            )
        return None

    def _all_manifests(self) -> Mapping[str, Record]:
        for snapshot in self.metadata.get("snapshots") or ():
            if snapshot.get("manifest-list") is None:
                raise MetadataUnreadable(
                    f"snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers "
                    "before 2019 did"
                )
        return {**manifests_of(self.source, self.metadata), **self.observed_manifests}

    def run(self) -> StorageSearch:
        """Compare one listing with what the metadata names, and look up what the listing does not
        have.
        """
        file_system = self.source.file_system
        location = self.metadata["location"]
        assert file_system is not None  # or Spark searches
        try:
            self._gather_named_files()
        except IcekitError as error:
            self.undecided_reasons.append(first_line(error))
        specs = self.observed.specs_by_id.values()
        comparison = Comparison(self.named_files, location, _orphan_cutoff_ms(), specs)
        try:
            self._compare_listing(file_system, comparison)
            comparison.doubt_links()
        except Exception as error:
            self.undecided_reasons.append(
                f"{location} cannot be listed completely: {first_line(error)}"
            )
        missing_summary = None
        if self.observed.snapshot is not None:
            missing_summary = self._missing_files(file_system, comparison)
            if missing_summary.count(Role.MANIFEST_LIST).gone_count:
                self.undecided_reasons.insert(0, _LIST_GONE_REASON)
        if not self.seeks_orphans:
            return StorageSearch(missing=missing_summary)
        self.undecided_reasons += comparison.orphan_doubts
        if self.undecided_reasons:
            return StorageSearch(
                missing=missing_summary, unlisted=self.undecided_reasons[0].rstrip(".")
            )
        return StorageSearch(comparison.storage_facts, missing_summary)

    def _gather_named_files(self) -> None:
        """Gather every file that the metadata names; each manifest is read once, and those of the
        observed snapshot first.
        """
        if self.observed.snapshot is not None:
            for _, location, expected_size, _ in self.observed.metadata_references():
                self.named_files.expect(location, expected_size if self.has_sizes else None)
        for location in paths_in_metadata(self.source, self.metadata):
            self.named_files.add(location)
        for manifest_path in self.manifests:
            self.named_files.add(manifest_path)
        older_manifests = [
            older_manifest
            for manifest_path, older_manifest in self.manifests.items()
            if manifest_path not in self.observed_manifests
        ]
        all_manifests = [*self.observed_manifests.values(), *older_manifests]
        for index, (manifest, manifest_bytes) in enumerate(
            read_manifests_ahead(self.source.read, all_manifests)
        ):
            self.progress = f"reading manifests: {index:,} of {len(all_manifests):,}"
            if manifest["manifest_path"] in self.observed_manifests:
                for file_record, *_ in files_of(manifest, manifest_bytes, _FILE_FIELDS):
                    self.named_files.expect(file_record["file_path"], self._entry_size(file_record))
            else:
                for file_record, *_ in files_of(manifest, manifest_bytes, _PATH_FIELD):
                    self.named_files.add(file_record["file_path"])

    def _entry_size(self, file_record: Record) -> int | None:
        """The bytes of a file by its entry; those of a vector are not those of its file."""
        if role_of(file_record) is Role.VECTOR or not self.has_sizes:
            return None
        return int(file_record["file_size_in_bytes"])

    def _compare_listing(self, file_system: FileSystem, comparison: Comparison) -> None:
        allowed_folders: Collection[str] = ()
        if not self.seeks_orphans:
            # Another table may have many more files here.
            allowed_folders = _with_parents(map(folder_of, self.named_files.expected_by_path))

        def enters(path: str) -> bool:
            if self.seeks_orphans:
                return not comparison.is_hidden(path)
            return f"{comparison.location_path}/{path}" in allowed_folders

        listed_count = 0
        for file_batch in file_system.walk(comparison.location, enters):
            for listed_file in file_batch:
                comparison.compare(listed_file)
            listed_count += len(file_batch)
            self.progress = f"listing {comparison.location}: {listed_count:,} files"
            if listed_count > MOST_LISTED and self.collector != "local":
                raise MetadataUnreadable(
                    f"there are more than {MOST_LISTED:,} files; let Spark list them (--collector "
                    "spark)"
                )

    def _missing_files(self, file_system: FileSystem, comparison: Comparison) -> MissingFiles:
        """The files that must exist, and that neither the listing has nor a look-up finds."""
        expected_files = self.named_files.expected_by_path.values()
        lookup_locations = dict.fromkeys(
            [
                *self.named_files.doubtful_locations,
                *(expected_file.location for expected_file in expected_files),
            ]
        )
        sizes_by_location: dict[str, int | None] = {}
        try:
            for location, actual_size in file_system.sizes(list(lookup_locations)):
                sizes_by_location[location] = actual_size
                self.progress = (
                    f"looking files up: {len(sizes_by_location):,} of {len(lookup_locations):,}"
                )
        except Exception as error:
            return MissingFiles(unchecked=f"a file cannot be looked up: {first_line(error)}")
        comparison.doubt_listing(sizes_by_location)
        has_every_file = not self.named_files.doubtful_locations and all(
            sizes_by_location[expected_file.location] is not None
            and expected_file.size in (None, sizes_by_location[expected_file.location])
            for expected_file in expected_files
        )
        if has_every_file:
            return MissingFiles()
        return self._summary(list(self._missing_entries(sizes_by_location)))

    def _missing_entries(
        self, sizes_by_location: Mapping[str, int | None]
    ) -> Iterator[MissingFile]:
        """What is missing, with the details that the entries of the observed snapshot have."""
        for (role, path, expected_size, snapshot_id), partition, record_count in self._references():
            if path not in sizes_by_location:
                continue
            actual_size = sizes_by_location[path]
            if actual_size is None or expected_size not in (None, actual_size):
                yield MissingFile(
                    role, path, partition, record_count, snapshot_id, expected_size, actual_size
                )

    def _references(self) -> Iterator[tuple[Reference, Partition | None, int]]:
        for role, path, expected_size, snapshot_id in self.observed.metadata_references():
            yield (role, path, expected_size if self.has_sizes else None, snapshot_id), None, 0
        for manifest, manifest_bytes in read_manifests_ahead(
            self.source.read, self.observed_manifests.values()
        ):
            for file_record, partition, _, snapshot_id in files_of(
                manifest, manifest_bytes, _FILE_FIELDS
            ):
                reference = (
                    role_of(file_record),
                    file_record["file_path"],
                    self._entry_size(file_record),
                    snapshot_id,
                )
                yield reference, partition, file_record["record_count"]

    def _summary(self, missing_files: list[MissingFile]) -> MissingFiles:
        if not missing_files:
            return MissingFiles()
        files_by_role: dict[Role, list[MissingFile]] = {}
        for missing_file in sorted(missing_files, key=lambda missing_file: missing_file.role.rank):
            files_by_role.setdefault(missing_file.role, []).append(missing_file)
        gone_data_files = [
            missing_file
            for missing_file in files_by_role.get(Role.DATA, ())
            if missing_file.actual_bytes is None
        ]
        gone_by_partition = Counter(
            missing_file.partition
            for missing_file in gone_data_files
            if missing_file.partition is not None
        )
        worst_partitions = gone_by_partition.most_common(MOST_PARTITIONS)
        files_needed_by_scans = [
            missing_file for missing_file in missing_files if missing_file.role in NEEDED_BY_SCANS
        ]
        return MissingFiles(
            tuple(_missing_count(role, role_files) for role, role_files in files_by_role.items()),
            tuple(nsmallest(EXAMPLES, missing_files, key=_importance_key)),
            tuple(sorted(worst_partitions, key=lambda pair: (-pair[1], sort_key(pair[0])))),
            self.observed.newest_before(
                {missing_file.snapshot_id for missing_file in files_needed_by_scans}
            ),
        )


def _importance_key(missing_file: MissingFile) -> tuple[int, str, int]:
    return missing_file.role.rank, missing_file.path, missing_file.record_count


def _missing_count(role: Role, missing_files: Collection[MissingFile]) -> MissingCount:
    gone_count = sum(missing_file.actual_bytes is None for missing_file in missing_files)
    record_count = sum(missing_file.record_count for missing_file in missing_files)
    return MissingCount(role, gone_count, len(missing_files) - gone_count, record_count)


def _summary_file_count(snapshot: Json) -> int:
    """The files of a snapshot according to its summary; 0 if that does not count them."""
    summary = summary_of(snapshot)
    return sum(int(summary.get(f"total-{kind}-files") or 0) for kind in ("data", "delete"))


def _with_parents(folders: Iterable[str]) -> set[str]:
    """Some folders, and those that they are in."""
    all_folders: set[str] = set()
    for folder in folders:
        while folder not in all_folders and folder != "/":
            all_folders.add(folder)
            folder = folder_of(folder)
    return all_folders
