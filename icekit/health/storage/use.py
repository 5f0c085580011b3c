"""Measure what fills a table's storage: from its metadata, and from a listing if there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from icekit.common.errors import IcekitError
from icekit.engine.tables import TableSource
from icekit.health.facts.counts import Rollup
from icekit.health.facts.files import FileGroup
from icekit.health.facts.integrity import UnappliedDeletes
from icekit.health.facts.storage import Role, StorageFacts
from icekit.health.facts.storage_use import (
    MetadataBytes,
    StorageUse,
    UnreferencedBytes,
    delete_file_bytes,
    deleted_row_bytes,
)
from icekit.health.storage.snapshot_files import (
    ReadingLimits,
    SnapshotFiles,
    old_snapshot_bytes,
    read_snapshot_files,
)
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifests import Record
from icekit.iceberg.metadata import Json, statistics_files

#: Choices: what a look may read to count old snapshots. A storage answers some hundred requests a
# second.
LOOK_LIMITS = ReadingLimits(manifest_lists=200, entries=50_000)
#: A choice: the most metadata files of the log whose size is looked up, one request each; writers
# keep 100 by default.
_MOST_LOOKUPS = 200


@dataclass
class _CurrentPaths:
    """The paths of the current snapshot's data and delete files, as far as one is looked up."""

    rollup: Rollup

    @cached_property
    def _identities(self) -> frozenset[int]:
        # Only a table whose older snapshots have manifests of their own asks for them.
        return frozenset(self.rollup.file_identities or ())

    def __contains__(self, path: object) -> bool:
        is_vector_file = hash(path) in self.rollup.vector_file_sizes
        return is_vector_file or hash((path, None)) in self._identities


def measure_storage_use(
    source: TableSource,
    metadata: Json,
    metadata_file_size: int,
    rollup: Rollup,
    groups: Sequence[FileGroup],
    unapplied: Sequence[UnappliedDeletes],
    storage: StorageFacts | None,
) -> StorageUse:
    """What fills the storage of a table, whose current snapshot the ``rollup`` counts; ``groups`` and
    ``unapplied`` are its frozen counts, ``storage`` is the result of a listing.

    Reads the manifest lists of older snapshots, and the manifests that only these have, within
    :data:`LOOK_LIMITS`; what cannot be read is not counted.
    """
    files = None
    if rollup.file_identities is not None:
        # A list or a manifest that only older snapshots have may be gone.
        with contextlib.suppress(IcekitError):
            files = read_snapshot_files(source.read, metadata, _CurrentPaths(rollup), LOOK_LIMITS)
    data_bytes = sum(group.size_in_bytes for group in groups if group.kind is Kind.DATA)
    delete_bytes = delete_file_bytes(groups, unapplied, sum(rollup.vector_file_sizes.values()))
    deleted_bytes = deleted_row_bytes(groups)
    old = old_snapshot_bytes(metadata, files, data_bytes + delete_bytes.total)
    use = StorageUse(
        live_rows=data_bytes - deleted_bytes,
        deleted_rows=deleted_bytes,
        delete_files=delete_bytes,
        old_snapshots=old,
        metadata=_metadata_bytes(source, metadata, metadata_file_size, rollup.manifests, files),
        has_uncounted_rows=any(group.kind is Kind.EQUALITY_DELETES for group in groups),
    )
    return use if storage is None or storage.sharing.shared else _with_listing(use, storage)


def _metadata_bytes(
    source: TableSource,
    metadata: Json,
    metadata_file_size: int,
    current_manifests: Sequence[Record],
    files: SnapshotFiles | None,
) -> MetadataBytes:
    """The bytes of metadata; of older snapshots only if their manifest lists were read."""
    log_paths = [entry["metadata-file"] for entry in metadata.get("metadata-log") or ()]
    log_bytes = 0
    uncounted_files = 0
    if source.file_system is None or len(log_paths) > _MOST_LOOKUPS:
        uncounted_files = len(log_paths)
    else:
        log_bytes = sum(size or 0 for _, size in source.file_system.sizes(log_paths))
    statistics_bytes = sum(file["file-size-in-bytes"] for file in statistics_files(metadata))
    if files is None:
        return MetadataBytes(
            metadata_files=metadata_file_size + log_bytes,
            manifests=sum(manifest["manifest_length"] for manifest in current_manifests),
            statistics=statistics_bytes,
            uncounted_files=uncounted_files + len(metadata.get("snapshots") or ()),
        )
    return MetadataBytes(
        metadata_files=metadata_file_size + log_bytes,
        manifest_lists=files.role_bytes(Role.MANIFEST_LIST),
        manifests=files.role_bytes(Role.MANIFEST),
        statistics=statistics_bytes,
        uncounted_files=uncounted_files,
    )


def _with_listing(use: StorageUse, storage: StorageFacts) -> StorageUse:
    """What a listing adds, and without what it does not have: first of the live rows, because the
    files of older snapshots are seldom the ones that are gone.
    """
    unreferenced = UnreferencedBytes(
        orphans=storage.orphan_bytes or 0,
        unjudged=storage.unjudged_bytes or 0,
        is_estimated=storage.is_estimated or storage.unjudged_bytes is None,
    )
    if storage.referenced_bytes is None or not use.is_complete:
        return replace(use, unreferenced=unreferenced)
    gone_bytes = use.total - storage.referenced_bytes
    if gone_bytes < 0:
        # Files for the catalog alone, such as the hint of the current version.
        other_bytes = use.metadata.metadata_files - gone_bytes
        return replace(
            use,
            metadata=replace(use.metadata, metadata_files=other_bytes),
            unreferenced=unreferenced,
        )
    return replace(use, live_rows=use.live_rows - gone_bytes, unreferenced=unreferenced)
