"""Find which snapshots hold which files, in bytes: what only old snapshots, a branch or a tag keep, and
what an expiry would free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from icekit.common import frozen
from icekit.health.facts.storage import Role
from icekit.health.facts.storage_use import CountedBy, OldSnapshotBytes, RefBytes
from icekit.health.storage.missing import role_of
from icekit.iceberg.manifests import (
    Record,
    files_of,
    live_count,
    manifest_list,
    read_contents_ahead,
    read_manifests_ahead,
)
from icekit.iceberg.metadata import Json, lineage, snapshots_by_id, statistics_files, summary_of

_FIELDS = frozenset({"content", "file_path", "file_size_in_bytes", "file_format"})


@frozen
class ReadingLimits:
    """How much may be read to count the files of snapshots: manifest lists, and manifest entries."""

    manifest_lists: int
    entries: int


@frozen
class Holding:
    """Files of one role that the same snapshots hold; ``holders`` has the bit of each."""

    role: Role
    holders: int
    file_count: int
    size_in_bytes: int


@frozen
class SnapshotFiles:
    """The files that snapshots hold, added up by the snapshots that hold them.

    ``bits`` has the bit of each snapshot. ``holdings`` has the manifests, manifest lists and
    statistics files of all snapshots, and the data and delete files that the current snapshot does
    not hold. ``is_complete``: the manifests of all snapshots were read.
    """

    bits: Mapping[int, int]
    holdings: tuple[Holding, ...]
    is_complete: bool

    def bits_of(self, snapshot_ids: Iterable[int]) -> int:
        """The bits of some snapshots together."""
        together = 0
        for snapshot_id in snapshot_ids:
            together |= self.bits[snapshot_id]
        return together

    def freed_by(self, expired_ids: Collection[int]) -> dict[Role, tuple[int, int]]:
        """The number and bytes of the files that no snapshot holds once some have expired, by
        role.
        """
        remaining = self.bits_of(self.bits.keys() - set(expired_ids))
        freed: dict[Role, tuple[int, int]] = {}
        for holding in self.holdings:
            if not holding.holders & remaining:
                file_count, size_in_bytes = freed.get(holding.role, (0, 0))
                freed[holding.role] = (
                    file_count + holding.file_count,
                    size_in_bytes + holding.size_in_bytes,
                )
        return freed

    def role_bytes(self, *roles: Role) -> int:
        """The bytes of all files of some roles."""
        return sum(holding.size_in_bytes for holding in self.holdings if holding.role in roles)


_CONTENT = (Role.DATA, Role.DELETES, Role.VECTOR)


@dataclass
class _Adder:
    """Adds files up by role and holders."""

    totals: dict[tuple[Role, int], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )

    def add(self, role: Role, holders: int, size_in_bytes: int) -> None:
        total = self.totals[role, holders]
        total[0] += 1
        total[1] += size_in_bytes

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(role, holders, file_count, size_in_bytes)
            for (role, holders), (file_count, size_in_bytes) in self.totals.items()
        )


def read_snapshot_files(
    read: Callable[[str], bytes],
    metadata: Json,
    current_paths: Container[str],
    limits: ReadingLimits,
) -> SnapshotFiles | None:
    """Read the manifest lists of all snapshots, and the manifests that the current snapshot does not
    have; None if there are more lists than the limits allow.

    ``current_paths`` are the files of the current snapshot. Memory grows with the files
    of old snapshots, which the limit of entries bounds: beyond it no manifest is read. Raises
    :class:`~icekit.common.errors.MetadataUnreadable`.
    """
    snapshots = list(metadata.get("snapshots") or ())
    list_paths = [snapshot.get("manifest-list") for snapshot in snapshots]
    if len(snapshots) > limits.manifest_lists or not all(list_paths):
        return None
    bits = {snapshot["snapshot-id"]: 1 << index for index, snapshot in enumerate(snapshots)}
    adder = _Adder()
    manifests_by_path: dict[str, Record] = {}
    holders_by_manifest: dict[str, int] = defaultdict(int)
    contents = read_contents_ahead(read, list_paths)
    for snapshot, list_path, content in zip(snapshots, list_paths, contents, strict=True):
        bit = bits[snapshot["snapshot-id"]]
        adder.add(Role.MANIFEST_LIST, bit, len(content))
        for manifest in manifest_list(content, list_path):
            manifests_by_path[manifest["manifest_path"]] = manifest
            holders_by_manifest[manifest["manifest_path"]] |= bit
    for path, manifest in manifests_by_path.items():
        adder.add(Role.MANIFEST, holders_by_manifest[path], manifest["manifest_length"])
    for statistics_file in statistics_files(metadata):
        bit = bits.get(statistics_file["snapshot-id"], 0)
        if bit:
            adder.add(Role.STATISTICS, bit, statistics_file["file-size-in-bytes"])
    current_bit = bits.get(metadata.get("current-snapshot-id") or 0, 0)
    old_manifests = [
        manifest
        for path, manifest in manifests_by_path.items()
        if not holders_by_manifest[path] & current_bit
    ]
    is_complete = sum(map(live_count, old_manifests)) <= limits.entries
    if is_complete:
        _add_content(read, old_manifests, holders_by_manifest, current_paths, adder)
    return SnapshotFiles(bits, adder.holdings(), is_complete)


def _add_content(
    read: Callable[[str], bytes],
    old_manifests: Sequence[Record],
    holders_by_manifest: Mapping[str, int],
    current_paths: Container[str],
    adder: _Adder,
) -> None:
    """Add the data and delete files that only old manifests have."""
    # Most files have the holders of one manifest, which is one object for all of them.
    holders_by_file: dict[int, int] = {}
    details_by_file: dict[int, tuple[Role, int]] = {}
    for manifest, content in read_manifests_ahead(read, old_manifests):
        manifest_holders = holders_by_manifest[manifest["manifest_path"]]
        for file, *_ in files_of(manifest, content, _FIELDS):
            if file["file_path"] in current_paths:
                continue
            file_hash = hash(file["file_path"])
            earlier_holders = holders_by_file.get(file_hash)
            if earlier_holders is None:
                holders_by_file[file_hash] = manifest_holders
            else:
                holders_by_file[file_hash] = earlier_holders | manifest_holders
            details_by_file[file_hash] = role_of(file), file["file_size_in_bytes"]
    for file_hash, (role, size_in_bytes) in details_by_file.items():
        adder.add(role, holders_by_file[file_hash], size_in_bytes)


def old_snapshot_bytes(
    metadata: Json, files: SnapshotFiles | None, live_bytes: int
) -> OldSnapshotBytes:
    """What only older snapshots hold: from their manifests if these were read, else from their
    summaries if these can be trusted; ``live_bytes`` are those of all files of the current snapshot.
    """
    if files is not None and files.is_complete:
        return OldSnapshotBytes(
            data=files.role_bytes(Role.DATA),
            deletes=files.role_bytes(Role.DELETES, Role.VECTOR),
            refs=_ref_bytes(metadata, files),
        )
    bytes_by_summaries = old_bytes_by_summaries(metadata, live_bytes)
    if bytes_by_summaries is not None:
        return OldSnapshotBytes(data=bytes_by_summaries, counted_by=CountedBy.SUMMARIES)
    return OldSnapshotBytes(
        uncounted_snapshots=len(metadata.get("snapshots") or ()) - 1,
        counted_by=CountedBy.NOTHING,
    )


def _ref_bytes(metadata: Json, files: SnapshotFiles) -> tuple[RefBytes, ...]:
    """What each branch and tag but the current snapshot's holds of the old files."""
    bits_by_ref = {
        name: files.bits[ref["snapshot-id"]]
        for name, ref in (metadata.get("refs") or {}).items()
        if ref["snapshot-id"] in files.bits
        and ref["snapshot-id"] != metadata.get("current-snapshot-id")
    }
    kinds_by_ref = {name: ref["type"] for name, ref in (metadata.get("refs") or {}).items()}
    holdings_by_ref: list[RefBytes] = []
    for name, bit in bits_by_ref.items():
        other_bits = 0
        for other_name, other_bit in bits_by_ref.items():
            if other_name != name:
                other_bits |= other_bit
        held = only_here = 0
        for holding in files.holdings:
            if holding.role in _CONTENT and holding.holders & bit:
                held += holding.size_in_bytes
                if not holding.holders & other_bits:
                    only_here += holding.size_in_bytes
        if held:
            holdings_by_ref.append(RefBytes(name, kinds_by_ref[name], held, only_here))
    return tuple(sorted(holdings_by_ref, key=lambda ref: (-ref.held, ref.name)))


_ADDED = "added-files-size"
_REMOVED = "removed-files-size"
_TOTAL = "total-files-size"
# A snapshot that repeats the files of a staged one; vectors, of which summaries count the blobs.
_UNTRUSTED_KEYS = ("source-snapshot-id", "published-wap-id", "added-dvs", "removed-dvs")


def old_bytes_by_summaries(metadata: Json, live_bytes: int) -> int | None:
    """The bytes of files that only older snapshots hold, from the sizes that summaries say were
    removed and added; None where they cannot be trusted.

    A file that the current snapshot does not hold was removed by a snapshot of its lineage, or added
    by a snapshot outside it. Trusted are summaries of a lineage without a gap, to which all other
    snapshots lead, if the totals of each follow from those of its parent, and those of the current
    one are the bytes that its manifests have (``live_bytes``).
    """
    snapshots = snapshots_by_id(metadata)
    current_snapshot = snapshots.get(metadata.get("current-snapshot-id"))
    ancestors = list(lineage(snapshots, current_snapshot))[::-1]
    ancestor_ids = {snapshot["snapshot-id"] for snapshot in ancestors}
    others = [each for each in snapshots.values() if each["snapshot-id"] not in ancestor_ids]
    if any(key in summary_of(each) for each in snapshots.values() for key in _UNTRUSTED_KEYS):
        return None
    if any(each.get("parent-snapshot-id") not in snapshots for each in others):
        return None
    edges = [
        *pairwise(ancestors),
        *((snapshots[other["parent-snapshot-id"]], other) for other in others),
    ]
    if not ancestors or any(not _follows(parent, child) for parent, child in edges):
        return None
    if _size(ancestors[-1], _TOTAL) != live_bytes:
        return None
    removed_bytes = sum(_size(snapshot, _REMOVED) or 0 for snapshot in ancestors[1:])
    return removed_bytes + sum(_size(snapshot, _ADDED) or 0 for snapshot in others)


def _size(snapshot: Json, key: str) -> int | None:
    text = summary_of(snapshot).get(key)
    return int(text) if text is not None else None


def _follows(parent: Json, child: Json) -> bool:
    """Whether the total of a snapshot is that of its parent with what it added and removed."""
    parent_total = _size(parent, _TOTAL)
    child_total = _size(child, _TOTAL)
    if parent_total is None or child_total is None:
        return False
    added = _size(child, _ADDED) or 0
    removed = _size(child, _REMOVED) or 0
    return parent_total + added - removed == child_total
