"""Say what maintenance would win on a table, in plain units, and put a price on it that can be checked by hand.

No score: one full scan of the table costs its bytes, and a fixed number of bytes for each file
that is opened, which is how Iceberg itself weighs a file when it packs scan tasks
(``read.split.open-file-cost``, 4 MiB unless the table says otherwise). What maintenance spares
such a scan is priced in the same way, and tables are ranked by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from icekit.compact.candidates import candidates
from icekit.compact.deletes import deletes_over
from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds
from icekit.facts.model import DELETE_KINDS, TableFacts

#: TableProperties.SPLIT_OPEN_FILE_COST_DEFAULT.
OPEN_FILE_COST = 4 * 1024 * 1024
_MANIFEST_FINDINGS = frozenset({"fragmented_manifests", "overlapping_manifests"})


@dataclass(frozen=True, slots=True)
class Wins:
    """What compaction, rewritten manifests, expiry and orphan removal would win.

    ``files_gone`` are data files; ``opens_spared`` the file opens that one full scan is spared, as
    a compaction's plan counts them (data files, and delete files opened beside each data file);
    ``delete_rows_gone`` the delete records that no read applies any more; ``bytes_spared`` the bytes
    that such a scan no longer reads: deleted rows, and delete files. ``manifests_gone`` and
    ``manifest_bytes_spared`` are spared in planning. ``rewrite_bytes`` is what it costs: bytes to
    rewrite. ``spared`` is what one full scan is spared, in bytes, (opens + manifests) × ``open_file_cost`` +
    both kinds of bytes, and ``scan_cost`` the whole of it. ``expirable_bytes`` is an estimate, at least so much (see
    :func:`expirable_bytes`); ``orphan_files`` are counted only where storage was listed, and ``orphan_bytes`` rest on the
    sizes of ``orphan_files_weighed`` of them (see :class:`~icekit.facts.model.StorageFacts`). Absent is None.
    """

    files_gone: int = 0
    delete_rows_gone: int = 0
    opens_spared: int = 0
    bytes_spared: int = 0
    manifests_gone: int = 0
    manifest_bytes_spared: int = 0
    rewrite_bytes: int = 0
    open_file_cost: int = OPEN_FILE_COST
    spared: int = 0
    scan_cost: int = 0
    expirable_bytes: int | None = None
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    orphan_files_weighed: int | None = None

    @property
    def share(self) -> float | None:
        """What is spared as a share of the full scan's cost; None for a table without files."""
        return min(self.spared / self.scan_cost, 1.0) if self.scan_cost else None

    @property
    def storage_bytes(self) -> int:
        """What expiry and orphan removal would free, as far as it is known."""
        return (self.expirable_bytes or 0) + (self.orphan_bytes or 0)

    @property
    def are_orphans_estimated(self) -> bool:
        """Tell whether the orphans' bytes rest on some of them only."""
        return (self.orphan_files_weighed or 0) < (self.orphan_files or 0)


def wins(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> Wins:
    """Work out what maintenance would win; only for what ``findings`` name, as a plan would."""
    limits = thresholds or Thresholds()
    policy = Policy(min_files=limits.min_input_files, delete_ratio=limits.delete_ratio)
    chosen = candidates(facts, findings, policy, limits)
    cost = _open_file_cost(facts)
    under_deletes = {p for c in chosen if c.mode in {"deletes", "vectors"} for p in c.partitions}
    delete_files = sum(facts.total(kind).file_count for kind in DELETE_KINDS)
    delete_bytes = sum(facts.total(kind).size_in_bytes for kind in DELETE_KINDS)
    mean_delete = delete_bytes / delete_files if delete_files else 0.0
    # A full scan opens a delete file beside each data file it applies to, and not once.
    over = deletes_over(facts)
    pairs = sum(o.opens for o in over.values())
    fewer = sum(max(c.files_in - c.files_out, 0) for c in chosen)
    opens = sum(c.file_opens_saved for c in chosen)
    pairs_gone = sum(over[p].opens for p in under_deletes if p in over)
    manifests = facts.manifests
    gone, entry_bytes = _manifests_gone(facts, findings), manifests.bytes_per_data_entry or 0.0
    spared = sum(c.bytes_in - c.bytes_out for c in chosen) + round(mean_delete * pairs_gone)
    entries = round(fewer * entry_bytes)
    every_manifest = manifests.data_count + manifests.delete_count
    # Where another table shares the location, nobody knows what is an orphan.
    listed = facts.storage if facts.storage and not facts.storage.sharing.shared else None
    return Wins(
        files_gone=fewer,
        delete_rows_gone=sum(g.record_count for kind in DELETE_KINDS for g in facts.of_kind(kind) if g.partition in under_deletes),
        opens_spared=opens,
        bytes_spared=spared,
        manifests_gone=gone,
        manifest_bytes_spared=entries,
        rewrite_bytes=sum(c.bytes_in for c in chosen),
        open_file_cost=cost,
        spared=(opens + gone) * cost + spared + entries,
        scan_cost=(facts.data.file_count + pairs + every_manifest) * cost
        + facts.data.size_in_bytes
        + round(mean_delete * pairs)
        + manifests.data_bytes
        + manifests.delete_bytes,
        expirable_bytes=expirable_bytes(facts),
        orphan_files=listed.orphan_count if listed else None,
        orphan_bytes=listed.orphan_bytes if listed else None,
        orphan_files_weighed=listed.weighed_count if listed else None,
    )


def total(each: Iterable[Wins]) -> Wins:
    """Sums over tables; an absent figure is absent only if no table has it. The cost of an open is not one figure any more: 0."""
    summed: dict[str, int | None] = {f.name: 0 if f.default is not None else None for f in fields(Wins)}
    for one in each:
        for name, before in summed.items():
            value = getattr(one, name)
            summed[name] = before if value is None else (before or 0) + value
    summed["open_file_cost"] = 0
    return Wins(**summed)  # type: ignore[arg-type]


def expirable_bytes(facts: TableFacts) -> int | None:
    """Bytes of data and delete files that expiry by the table's own properties frees: at least so many.

    By ``history.expire.max-snapshot-age-ms`` and ``history.expire.min-snapshots-to-keep``: files
    that a commit removed, up to the oldest snapshot that stays, are in no snapshot afterwards.
    Summed from snapshot summaries (``removed-files-size``), so manifests are not counted, nor
    files that came and went between two snapshots that stay. None where nothing may be expired
    (``gc.enabled=false``), where a summary does not say, or where snapshots are not in the facts: older
    ones, and those outside this lineage (a branch that went its own way, a staged write, what a rollback
    left). Such a one keeps files that this lineage removed, as long as a ref names it or it is young
    (``RemoveSnapshots.unreferencedSnapshotsToRetain``).
    """
    if (facts.setting("gc.enabled") or facts.properties.get("gc.enabled") or "true").lower() == "false":
        return None
    history = facts.history
    lineage = history.commits
    if not lineage:
        return 0 if not history.snapshot_count else None
    known = {c.snapshot_id for c in lineage}
    if history.snapshot_count > len(lineage) or any(ref.snapshot_id not in known for ref in history.refs):
        return None
    before = facts.collected_at_ms - facts.int_setting("history.expire.max-snapshot-age-ms")
    keep = max(1, facts.int_setting("history.expire.min-snapshots-to-keep"))
    held = {ref.snapshot_id for ref in history.refs}
    stays = [c.committed_at_ms >= before or place >= len(lineage) - keep or c.snapshot_id in held for place, c in enumerate(lineage)]
    oldest = stays.index(True)
    # What the first commit of the history removed was in snapshots that are gone already.
    removing = [c for c in lineage[1 : oldest + 1] if c.operation != "append"]
    if any(c.removed_bytes is None and (c.removed_data_files or c.removed_delete_files) for c in removing):
        return None
    return sum(c.removed_bytes or 0 for c in removing)


def _manifests_gone(facts: TableFacts, findings: Findings) -> int:
    if not _MANIFEST_FINDINGS & findings.names:
        return 0
    target = facts.int_setting("commit.manifest.target-size-bytes")
    return max(0, facts.manifests.data_count - max(1, -(-facts.manifests.data_bytes // target)))


def _open_file_cost(facts: TableFacts) -> int:
    """The table's own cost of an open; what no reader could use counts as the default."""
    stated = facts.properties.get("read.split.open-file-cost", "")
    return int(stated) if stated.isdecimal() else OPEN_FILE_COST


__all__ = ["OPEN_FILE_COST", "Wins", "expirable_bytes", "total", "wins"]
