"""Say what maintenance would save a full scan of a table now, in plain units, and price it so that
a person can check the sum; pure.

No score: one full scan of the table costs its bytes, plus a fixed number of bytes for each file
that it opens, which is how Iceberg itself weighs a file when it packs scan tasks
(``read.split.open-file-cost``, 4 MiB unless the table sets another). Savings are priced in the same
way, and tables are ranked by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from icekit.compact.candidates import Candidate, deletes_over
from icekit.compact.policy import Policy
from icekit.compact.selection import RewriteSelection, select
from icekit.diagnose.files import files_of_small_target
from icekit.diagnose.findings import Finding, Findings, Thresholds, covered_by
from icekit.diagnose.partitions import thin_partitions
from icekit.facts.files import DELETE_KINDS, Totals
from icekit.facts.manifest_counts import SpecManifests
from icekit.facts.model import TableFacts
from icekit.facts.retention import DEFAULT_LAST
from icekit.facts.rollup import OPEN_FILE_COST, expected_files, open_file_cost, split_bytes
from icekit.units import count, percent, size


@dataclass(frozen=True, slots=True)
class Savings:
    """What compaction, coarser partitions, a larger target file size, rewritten manifests, expiry
    and orphan removal would save.

    ``files_gone`` are data files; ``opens_saved`` the file opens that one full scan saves, as a
    compaction's plan counts them (data files, and delete files opened for each data file);
    ``table_change_opens_saved`` is the part of them that needs coarser partitions or a larger
    target (see :func:`wins`); ``delete_rows_gone`` the delete records that no read applies any
    more; ``bytes_saved`` the bytes that such a scan no longer reads: deleted rows, and delete
    files. ``manifests_gone`` and ``manifest_bytes_saved`` are saved in planning. ``rewrite_bytes``
    is the cost: bytes to rewrite. ``opens``, ``delete_rows`` and ``manifests`` are the totals of
    one full scan. ``saved`` is what one full scan saves, in bytes: (opens + manifests) ×
    ``open_file_cost`` +
    both kinds of bytes; ``scan_cost`` is the full cost of that scan. ``expirable_bytes`` is a lower
    bound (see :func:`expirable_bytes`); ``orphan_files`` are counted only where storage was listed,
    and ``orphan_bytes`` rest on the sizes of ``orphan_files_weighed`` of them (see
    :class:`~icekit.facts.storage.StorageFacts`). Unknown is None.
    """

    files_gone: int = 0
    delete_rows_gone: int = 0
    opens_saved: int = 0
    bytes_saved: int = 0
    manifests_gone: int = 0
    manifest_bytes_saved: int = 0
    rewrite_bytes: int = 0
    opens: int = 0
    delete_rows: int = 0
    manifests: int = 0
    open_file_cost: int = OPEN_FILE_COST
    saved: int = 0
    scan_cost: int = 0
    expirable_bytes: int | None = None
    orphan_files: int | None = None
    orphan_bytes: int | None = None
    orphan_files_weighed: int | None = None
    table_change_opens_saved: int = 0

    @property
    def share(self) -> float | None:
        """The saving as a share of the full scan's cost; None for a table without files."""
        return min(self.saved / self.scan_cost, 1.0) if self.scan_cost else None

    @property
    def storage_bytes(self) -> int:
        """The bytes that expiry and orphan removal would free, as far as they are known."""
        return (self.expirable_bytes or 0) + (self.orphan_bytes or 0)

    @property
    def are_orphans_estimated(self) -> bool:
        """True if the orphans' bytes are estimated from some of the orphans only."""
        return (self.orphan_files_weighed or 0) < (self.orphan_files or 0)


def selection(
    facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None
) -> RewriteSelection:
    """What ``icekit compact`` without further options would rewrite now, and what it would leave
    alone.
    """
    return select(facts, findings, Policy(), thresholds or Thresholds(), recent=facts.recent)


def wins(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> Savings:
    """Work out what maintenance would save if it ran now; only for problems that ``findings`` name,
    as a plan does.

    Coarser partitions save at most the files that are left in too small partitions after
    compaction, less those of the target size that would be enough. A target file size of one read
    split saves the files that the present target keeps apart. The same rewrite combines files
    within partitions, so no byte counts twice. A table with contradictions saves nothing before
    these are fixed.
    """
    limits = thresholds or Thresholds()
    if facts.contradictions:
        findings = Findings()
    chosen = selection(facts, findings, limits).chosen
    cost = open_file_cost(facts)
    under_deletes = {p for c in chosen if c.mode in {"deletes", "vectors"} for p in c.partitions}
    deletes = [group for kind in DELETE_KINDS for group in facts.of_kind(kind)]
    of_deletes = Totals.of(deletes)
    mean_delete = of_deletes.mean_bytes or 0.0
    # A full scan opens a delete file once for each data file it applies to.
    over = deletes_over(facts)
    pairs = sum(o.opens for o in over.values())
    by_table_change, rewritten = _table_changes(facts, findings, limits, chosen)
    fewer = sum(c.files_gone for c in chosen) + by_table_change
    opens = sum(c.file_opens_saved for c in chosen) + by_table_change
    pairs_gone = sum(over[p].opens for p in under_deletes if p in over)
    manifests, gone = facts.manifests, _manifests_gone(facts, findings)
    entry_bytes = manifests.bytes_per_data_entry or 0.0
    fewer_bytes = sum(c.bytes_in - c.bytes_out for c in chosen) + round(mean_delete * pairs_gone)
    entries = round(fewer * entry_bytes)
    every_manifest = manifests.data_count + manifests.delete_count
    # Where another table shares the location, nobody can say which files are orphans.
    listed = facts.storage if facts.storage and not facts.storage.sharing.shared else None
    return Savings(
        files_gone=fewer,
        delete_rows_gone=Totals.of(g for g in deletes if g.partition in under_deletes).record_count,
        opens_saved=opens,
        bytes_saved=fewer_bytes,
        manifests_gone=gone,
        manifest_bytes_saved=entries,
        rewrite_bytes=rewritten,
        opens=facts.data.file_count + pairs,
        delete_rows=of_deletes.record_count,
        manifests=every_manifest,
        open_file_cost=cost,
        saved=(opens + gone) * cost + fewer_bytes + entries,
        scan_cost=(facts.data.file_count + pairs + every_manifest) * cost
        + facts.data.size_in_bytes
        + round(mean_delete * pairs)
        + manifests.data_bytes
        + manifests.delete_bytes,
        expirable_bytes=expirable_bytes(facts),
        orphan_files=listed.orphan_count if listed else None,
        orphan_bytes=listed.orphan_bytes if listed else None,
        orphan_files_weighed=listed.weighed_count if listed else None,
        table_change_opens_saved=by_table_change,
    )


def _manifests_gone(facts: TableFacts, findings: Findings) -> int:
    target = facts.int_setting("commit.manifest.target-size-bytes")
    rewrites = manifest_rewrites(facts, findings)
    return sum(max(m.files_in(target) - m.files_out(target), 0) for m, _ in rewrites)


def _table_changes(
    facts: TableFacts, findings: Findings, limits: Thresholds, chosen: Sequence[Candidate]
) -> tuple[int, int]:
    """The files that coarser partitions and a larger target file size (of one read split) save
    after compaction, and the bytes that are rewritten together with the candidates.
    """
    thin = thin_partitions(facts, limits)[1] if "over_partitioned" in findings.names else []
    aimed = files_of_small_target(facts, limits) if "target_too_small" in findings.names else {}
    nothing = Candidate((), "size", (), 0, 0, 0, 0, 0)
    own = {c.partitions[0]: c for c in chosen if len(c.partitions) == 1}
    rewritten = sum(c.bytes_in for c in chosen)
    compacted = [(group, own.get(group.partition, nothing)) for group in thin]
    files = sum(group.file_count - c.files_gone for group, c in compacted)
    left = sum(group.size_in_bytes - c.bytes_in + c.bytes_out for group, c in compacted)
    merged = max(files - expected_files(left, facts.target_bytes), 0)
    if merged:
        in_thin = {g.partition for g in thin}
        rewritten = sum(g.size_in_bytes for g in thin) + sum(
            c.bytes_in for c in chosen if not in_thin.issuperset(c.partitions)
        )
    for partition, (count_now, total) in aimed.items():
        c = own.get(partition, nothing)
        wanted = expected_files(total, split_bytes(facts))
        merged += max(count_now - wanted - c.files_gone, 0)
        rewritten += max(total - c.bytes_in, 0)
    return merged, rewritten


def savings_told(
    facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None
) -> dict[str, str]:
    """What the remedy of each finding saves a full scan, as a sentence by the finding's name, and
    of all together under an empty name.

    A remedy that makes no scan cheaper has none. What one action saves is said once, with the
    finding whose action does the most; the others say which one that is. So the savings of the
    findings add up to those of all together.
    """
    covered = covered_by(findings.names)
    actions: dict[str, list[Finding]] = {}
    for finding in findings:
        actions.setdefault(covered.get(finding.name, finding.name), []).append(finding)
    sentences: dict[str, str] = {}
    done: list[Finding] = []
    nothing, last = wins(facts, Findings()), ""
    before = nothing
    for name, some in actions.items():
        done += some
        after = wins(facts, Findings(done), thresholds)
        sentence = _saved(before, after, "Saves")
        if sentence:
            sentences[name], last = sentence, name if name == "over_partitioned" else last
            sentences |= {f.name: _covered(name) for f in some if f.name != name}
        elif last and _saved(nothing, wins(facts, Findings(some), thresholds), ""):
            # Coarser partitions combine the small files as well.
            sentences |= {f.name: _covered(last) for f in some}
        before = after
    several = _saved(nothing, before, "Fixing all of these saves") if len(findings) > 1 else ""
    if total_sentence := " ".join(filter(None, [several, waiting(facts, findings, thresholds)])):
        sentences[""] = total_sentence
    return sentences


def waiting(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> str:
    """The rewrites that would help, but would be left alone now, as a sentence with the reason;
    empty if there are none.
    """
    if facts.contradictions:
        first = " and ".join(each.replace("_", " ") for each in facts.contradictions)
        return f"Nothing is rewritten before these findings are fixed: {first}."
    postponed = selection(facts, findings, thresholds).postponed
    return f"Compaction postpones {postponed}" if postponed else ""


def _covered(name: str) -> str:
    return f"The same action as for {name.replace('_', ' ')} fixes this."


def _saved(before: Savings, after: Savings, saves: str) -> str:
    """What ``after`` saves in addition to ``before``; empty if that is nothing."""
    opens, manifests = (
        after.opens_saved - before.opens_saved,
        after.manifests_gone - before.manifests_gone,
    )
    most = "up to " if after.table_change_opens_saved > before.table_change_opens_saved else ""
    parts = [
        f"{most}{opens:,} of {count(after.opens, 'file open')}" if opens > 0 else "",
        f"{manifests:,} of {count(after.manifests, 'manifest')}" if manifests > 0 else "",
    ]
    if not any(parts):
        return ""
    share = (after.saved - before.saved) / after.scan_cost if after.scan_cost else 0.0
    rewritten = after.rewrite_bytes - before.rewrite_bytes
    cost = f" ({percent(min(share, 1.0))} cheaper)" if share > 0 else ""
    bytes_ = f" by rewriting {size(rewritten)}" if rewritten > 0 else ""
    return f"{saves} each full scan {' and '.join(filter(None, parts))}{cost}{bytes_}."


def total(each: Iterable[Savings]) -> Savings:
    """Sums over tables; a figure is absent only if no table has it. The cost of an open differs by
    table: 0.
    """
    summed: dict[str, int | None] = {
        f.name: 0 if f.default is not None else None for f in fields(Savings)
    }
    for savings in each:
        for name, before in summed.items():
            value = getattr(savings, name)
            summed[name] = before if value is None else (before or 0) + value
    summed["open_file_cost"] = 0
    return Savings(**summed)  # type: ignore[arg-type]


def expirable_bytes(facts: TableFacts) -> int | None:
    """Bytes of data and delete files that expiry with the table's own properties frees, at least.

    Computed from ``history.expire.max-snapshot-age-ms`` and
    ``history.expire.min-snapshots-to-keep`` (at least 10, as ``icekit maintain`` does): files
    removed by commits up to the oldest snapshot that stays are in no snapshot after the expiry.
    Summed from snapshot summaries (``removed-files-size``), so manifests are not counted, nor files
    added and removed between two snapshots that stay. None where nothing may be expired
    (``gc.enabled=false``), where a summary lacks the figure, or where the facts lack snapshots:
    older ones, and those outside this lineage (a branch that diverged, a staged write, the remains
    of a rollback). Such a snapshot keeps files that this lineage removed, as long as a ref names it
    or it is young (``RemoveSnapshots.unreferencedSnapshotsToRetain``).
    """
    if not facts.is_on("gc.enabled"):
        return None
    history = facts.history
    lineage = history.commits
    if not lineage:
        return 0 if not history.snapshot_count else None
    known = {c.snapshot_id for c in lineage}
    if history.snapshot_count > len(lineage) or any(
        ref.snapshot_id not in known for ref in history.refs
    ):
        return None
    before = facts.collected_at_ms - facts.int_setting("history.expire.max-snapshot-age-ms")
    keep = max(DEFAULT_LAST, facts.int_setting("history.expire.min-snapshots-to-keep"))
    stays = [
        c.committed_at_ms >= before or index >= len(lineage) - keep
        for index, c in enumerate(lineage)
    ]
    places = {c.snapshot_id: index for index, c in enumerate(lineage)}
    for ref in history.refs:
        # A branch keeps its own last snapshots.
        last = places[ref.snapshot_id]
        first = last if ref.type == "tag" else max(last - keep + 1, 0)
        stays[first : last + 1] = [True] * (last + 1 - first)
    oldest = stays.index(True)
    # Files that the first commit of the history removed were in snapshots that are already gone.
    removing = [c for c in lineage[1 : oldest + 1] if c.operation != "append"]
    if any(
        c.removed_bytes is None and (c.removed_data_files or c.removed_delete_files)
        for c in removing
    ):
        return None
    return sum(c.removed_bytes or 0 for c in removing)


def manifest_rewrites(
    facts: TableFacts, findings: Findings
) -> list[tuple[SpecManifests, tuple[str, ...]]]:
    """The manifests that a rewrite would change, spec by spec, each with the findings that ask for
    it.
    """
    target = facts.int_setting("commit.manifest.target-size-bytes")
    rewrites = []
    for of_spec in facts.manifests.by_spec:
        is_asked = {
            "fragmented_manifests": of_spec.is_fragmented(target),
            "overlapping_manifests": of_spec.spec_id == facts.default_spec_id,
        }
        asked = tuple(name for name, holds in is_asked.items() if holds and name in findings.names)
        if asked and of_spec.files_in(target):
            rewrites.append((of_spec, asked))
    return rewrites
