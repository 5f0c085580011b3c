"""Find the partitions that a rewrite would help, and what each rewrite would save; pure arithmetic on facts."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from icekit.compact.model import Policy
from icekit.diagnose.files import files_of_small_target, thin_partitions
from icekit.diagnose.findings import Finding, Findings, Thresholds, covered_by, oversized, under
from icekit.errors import ParameterError
from icekit.facts.fan_out import RewriteGroup, rewrite_groups
from icekit.facts.files import FileGroup, Kind, Partition, SequenceCounts, Totals
from icekit.facts.integrity import DeleteState
from icekit.facts.metadata import OPEN_FILE_COST, ROW_GROUP, open_file_cost, split_bytes
from icekit.facts.model import DELETE_KINDS, TableFacts
from icekit.facts.retention import DEFAULT_LAST
from icekit.facts.rollup import (
    equality_deletes_applied,
    expected_files,
    expected_manifests,
    max_file_size,
    min_file_size,
    sequences_by_partition,
    sort_key,
)
from icekit.facts.where import askable, partition_span, unfiltered_fields
from icekit.units import count, percent, size

__all__ = ["OPEN_FILE_COST", "Savings", "expirable_bytes", "total", "wins"]


# --- Work out which deletes apply to each partition, how often they are opened, and which of them a rewrite drops


@dataclass(frozen=True, slots=True)
class DeleteLoad:
    """The deletes that apply to one partition's data.

    ``files`` are data files with at least one delete, ``opens`` the pairs of a data file and
    a delete file that a full scan opens (an upper bound: the column bounds of delete files are ignored),
    ``deleted_share`` the position delete records per data record, at most 1: nobody knows how many rows equality deletes delete (``is_least``). ``only_file_scoped``
    means that each delete names a single data file; ``delete-ratio-threshold`` counts only such
    deletes.
    """

    files: int
    opens: int
    deleted_share: float
    only_file_scoped: bool
    kinds: tuple[str, ...]
    is_least: bool = False


def deletes_over(facts: TableFacts, min_ratio: float = 0.0) -> Mapping[Partition, DeleteLoad]:
    """The deletes of each partition where they make a rewrite worthwhile.

    Equality deletes always do, because each data file loads all that apply to it; other deletes do
    from ``min_ratio`` delete records per data record on.
    """
    if not facts.has_deletes:
        return {}
    groups: dict[Partition, dict[Kind, FileGroup]] = defaultdict(dict)
    for each in facts.groups:
        groups[each.partition][each.kind] = each
    equality = {a.partition: a for a in equality_deletes_applied(facts)}
    sequences = sequences_by_partition(facts)
    # Within a range of sequence numbers the order is unknown: deletes in it count as later than the data.
    exact = 1 if facts.sequence_width == 1 else 0
    everywhere = [s for p, rows in sequences.items() if facts.spec(p.spec_id).is_unpartitioned for s in rows]
    found: dict[Partition, DeleteLoad] = {}
    for partition, kinds in groups.items():
        data = kinds.get(Kind.DATA)
        if data is None or not data.record_count:
            continue
        heavy: list[str] = []
        share = 0.0
        files = 0
        scoped = True
        applied = equality.get(partition)
        if applied:
            heavy.append("equality deletes")
            files, scoped = applied.data_file_count, False
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS):
            group = kinds.get(kind)
            if group is None or group.record_count / data.record_count < min_ratio:
                continue
            heavy.append(kind.value.replace("_", " "))
            share += group.record_count / data.record_count
            alone = group.file_scoped_count == group.file_count
            scoped = scoped and alone
            files = max(files, min(group.file_count, data.file_count) if alone else _reached(sequences.get(partition, ())))
        if heavy:
            rows = sequences.get(partition, [])
            is_global = facts.spec(partition.spec_id).is_unpartitioned
            opens = _opens(rows, [] if is_global else everywhere, kinds, exact)
            found[partition] = DeleteLoad(files, opens, min(share, 1.0), scoped, tuple(heavy), bool(applied))
    return found


def _reached(rows: Iterable[SequenceCounts]) -> int:
    """Data files that at least one position delete file may apply to, by sequence number."""
    rows = list(rows)
    newest = max((r.sequence_number for r in rows if r.position_delete_file_count), default=-1)
    return sum(r.data_file_count for r in rows if r.sequence_number <= newest)


def _opens(rows: Iterable[SequenceCounts], everywhere: Iterable[SequenceCounts], kinds: Mapping[Kind, FileGroup], exact: int) -> int:
    """Pairs of a data file and a delete file that applies to it (table spec, "Scan Planning")."""
    own = sorted(rows, key=lambda r: -r.sequence_number)
    equality = sorted(
        [(r.sequence_number, r.equality_delete_file_count) for r in (*own, *everywhere) if r.equality_delete_file_count], reverse=True
    )
    position = kinds.get(Kind.POSITION_DELETES)
    vectors = kinds.get(Kind.DELETION_VECTORS)
    # Sequence counts include vectors among the position deletes; a delete of either kind that names one file counts once.
    scoped = position is None or position.file_scoped_count == position.file_count
    opens = (vectors.file_count if vectors else 0) + (position.file_count if position and scoped else 0)
    later_equality = later_position = place = 0
    for row in own:
        while place < len(equality) and equality[place][0] >= row.sequence_number + exact:
            later_equality += equality[place][1]
            place += 1
        later_position += 0 if scoped else row.position_delete_file_count
        opens += row.data_file_count * (later_equality - row.ruled_out_file_count + later_position)
    return opens


def dropped_by(facts: TableFacts, partitions: Iterable[Partition], sequence_number: int) -> int:
    """Delete files that are dropped when every data file with deletes in these partitions is rewritten.

    ``sequence_number`` is that of the snapshot the rewrite starts from; rewritten files
    keep it (``use-starting-sequence-number``). Then deletes are dropped that apply to no live data
    file: equality deletes not above it, position deletes that name one file, others below it. A deletion
    vector is dropped with its data file. All dangling deletes of the table are dropped, too.
    """
    chosen = set(partitions)
    scoped = {g.partition: g.file_scoped_count for g in facts.of_kind(Kind.POSITION_DELETES)}
    vectors = {g.partition: g.file_count for g in facts.of_kind(Kind.DELETION_VECTORS)}
    dropped = sum(n for partition, n in vectors.items() if partition in chosen)
    dropped += sum(each.file_count for each in facts.unapplied_in(DeleteState.DANGLING))
    # Those of new keys are not above the snapshot's sequence number either.
    data = {g.partition for g in facts.of_kind(Kind.DATA)}
    for each in facts.unapplied_in(DeleteState.NEW_KEYS):
        reached = data if facts.spec(each.partition.spec_id).is_unpartitioned else {each.partition}
        dropped += each.file_count if reached <= chosen else 0
    sequences = sequences_by_partition(facts)
    oldest = {
        partition: sequence_number
        if partition in chosen
        else min((r.sequence_number for r in rows if r.data_file_count), default=sequence_number + 1)
        for partition, rows in sequences.items()
    }
    for partition, rows in sequences.items():
        rewritten, lowest = partition in chosen, oldest[partition]
        # Equality deletes of an unpartitioned spec apply to every partition.
        everywhere = min(oldest.values()) if facts.spec(partition.spec_id).is_unpartitioned else lowest
        dropped += sum(r.equality_delete_file_count for r in rows if r.sequence_number <= everywhere)
        older = sum(r.position_delete_file_count for r in rows if r.sequence_number < lowest)
        # SequenceCounts includes vectors among the position deletes; those were counted above.
        files = sum(r.position_delete_file_count for r in rows) - vectors.get(partition, 0)
        if rewritten and scoped.get(partition, 0) == files:
            dropped += files
        else:
            dropped += min(older, files)
    return dropped


#: ``size``: files of the wrong size. ``deletes``: also files with deletes that the default
#: ignores. ``vectors``: also files that lost rows to deletes naming only them. ``all``: every file.
#: ``spec``: every file of older specs, into the current one. ``table``: every file of the table, in one commit.
Mode = Literal["size", "deletes", "vectors", "all", "spec", "table"]

_DELETE_FINDINGS = frozenset({"equality_deletes", "position_deletes", "deletion_vectors", "deletes_default_rewrite_ignores"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition (or those of older specs whose rows go into the same partitions) and what rewriting it would save.

    ``file_opens_saved`` counts opens that a full scan no longer needs: data files that are removed, and each
    delete file that is no longer opened together with a data file. Splitting an oversized
    file counts as one open saved, although it makes more files: the benefit is skipped bytes. ``is_maximum``: fewer files may come out.
    """

    partitions: tuple[Partition, ...]
    mode: Mode
    reasons: tuple[str, ...]
    files_in: int
    bytes_in: int
    files_out: int
    bytes_out: int
    file_opens_saved: int
    is_maximum: bool = False

    @property
    def win_per_byte(self) -> float:
        """File opens saved per byte rewritten."""
        return self.file_opens_saved / max(self.bytes_in, 1)

    @property
    def must_save(self) -> bool:
        """Whether only saved file opens make it worthwhile: the benefit of an order or of another spec is skipped bytes."""
        return self.mode != "spec" and "row order" not in self.reasons


def candidates(facts: TableFacts, findings: Findings, policy: Policy, thresholds: Thresholds) -> tuple[Candidate, ...]:
    """Every partition worth a rewrite, most file opens saved per byte first.

    Only problems that ``findings`` name are looked for; a sorting or major rewrite takes
    every partition that has something to gain. Whether a group of files would be
    rewritten follows SizeBasedFileRewritePlanner. A rewrite puts files of older specs into the current one, so they are taken only if
    that saves file opens however their rows are distributed, or if the policy asks for it. A table with
    :attr:`~icekit.facts.model.TableFacts.fragile_fields` has one candidate: all of it. One with
    :attr:`~icekit.facts.model.TableFacts.contradictions` has none.
    """
    if facts.contradictions:
        return ()
    if facts.fragile_fields:
        return (_whole_table(facts),)
    wanted = findings.names
    low = min_file_size(facts.target_bytes, thresholds.min_file_size_ratio)
    high = max_file_size(facts.target_bytes, thresholds.max_file_size_ratio)
    over = deletes_over(facts, policy.delete_ratio) if _DELETE_FINDINGS & wanted else {}
    moves = policy.old_specs and "old_partition_spec" in wanted
    older: list[RewriteGroup] = []
    found: list[Candidate | None] = []
    by_size = {"small_files", "oversized_files"} & wanted
    for together in rewrite_groups(facts):
        is_older = together.partitions[0].spec_id != facts.default_spec_id
        under_deletes = [g for g in together.groups if g.partition in over]
        if is_older and moves:
            older.append(together)
        elif is_older and policy.scope == "major":
            continue
        elif policy.scope == "major":
            found.append(_whole(facts, together.groups[0], policy, over.get(together.partitions[0]), low, high))
        else:
            if under_deletes:
                found.append(_for_deletes(facts, replace(together, groups=tuple(under_deletes)), over, low))
            rest = [g for g in together.groups if g.partition not in over]
            if rest and by_size:
                found.append(_by_size(facts, replace(together, groups=tuple(rest)), policy, low, high))
    found += _moves(facts, older, over)
    worth = [c for c in found if c is not None and (c.file_opens_saved >= policy.min_win or not c.must_save)]
    return tuple(sorted(worth, key=lambda c: (-c.win_per_byte, -c.file_opens_saved, sort_key(c.partitions[0]))))


def is_bounded(facts: TableFacts, partitions: Sequence[Partition]) -> bool:
    """Whether a filter selects only these partitions; a table that was never partitioned needs none."""
    spec_ids = {p.spec_id for p in partitions}
    if len(facts.specs) > 1 and any(facts.spec(i).is_unpartitioned for i in spec_ids):
        return False
    return all(facts.spec(i).is_unpartitioned or not unfiltered_fields(facts.spec(i), facts.columns) for i in spec_ids)


def _moves(facts: TableFacts, older: Sequence[RewriteGroup], over: Mapping[Partition, DeleteLoad]) -> list[Candidate]:
    """Every file of older specs, partition by partition; all together where no filter selects one of the partitions."""
    partitions = [p for together in older for p in together.partitions]
    if is_bounded(facts, partitions) and all(askable(facts.spec(p.spec_id), p) for p in partitions):
        return [_move(facts, [replace(together, groups=(group,))], over) for together in older for group in together.groups]
    return [_move(facts, older, over)]


def _move(facts: TableFacts, several: Sequence[RewriteGroup], over: Mapping[Partition, DeleteLoad]) -> Candidate:
    groups = [group for together in several for group in together.groups]
    loads = [over[g.partition] for g in groups if g.partition in over]
    files, size, left = sum(g.file_count for g in groups), sum(g.size_in_bytes for g in groups), 0
    out = 0
    for together in several:
        stays = sum(_bytes_left(g, over.get(g.partition)) for g in together.groups)
        left += stays
        out += together.files_out(stays, sum(g.record_count for g in together.groups), facts.target_bytes)
    return Candidate(
        partitions=tuple(g.partition for g in groups),
        mode="spec",
        reasons=("an older partition spec",),
        files_in=files,
        bytes_in=size,
        files_out=out,
        bytes_out=left,
        file_opens_saved=files - out + sum(load.opens for load in loads),
        is_maximum=not all(together.is_certain for together in several) or any(load.is_least for load in loads),
    )


def in_window(facts: TableFacts, policy: Policy, now: dt.datetime) -> frozenset[Partition] | None:
    """The partitions in the policy's time window; None when it sets no window.

    Raises :class:`~icekit.errors.ParameterError` for a table that is not partitioned by time.
    """
    if not (policy.since or policy.until or policy.skip_last_hours):
        return None
    until = policy.until
    if policy.skip_last_hours:
        latest = now - dt.timedelta(hours=policy.skip_last_hours)
        until = min(until, latest) if until else latest
    spans = {p: partition_span(facts.spec(p.spec_id), p) for p in facts.partitions()}
    if spans and not any(spans.values()):
        raise ParameterError(
            f"{facts.name} is not partitioned by time, so since, until and skip_last cannot select partitions. Leave them out, or use a budget."
        )
    return frozenset(
        p
        for p, span in spans.items()
        if span is not None and (policy.since is None or span[0] >= policy.since) and (until is None or span[1] <= until)
    )


def _by_size(facts: TableFacts, together: RewriteGroup, policy: Policy, low: int, high: int) -> Candidate | None:
    """Files of the wrong size in one rewrite group, if the procedure would take it."""
    small = Totals.of(under(group, low) for group in together.groups)
    large = Totals.of(oversized(group, high, facts.int_setting(ROW_GROUP)) for group in together.groups)
    files, total = small.file_count + large.file_count, small.size_in_bytes + large.size_in_bytes
    if not files or not _is_rewritten(files, total, facts.target_bytes, high, policy.min_files):
        return None
    out = together.files_out(total, small.record_count + large.record_count, facts.target_bytes)
    small_out = together.files_out(small.size_in_bytes, small.record_count, facts.target_bytes)
    saved = max(small.file_count - small_out, 0) + large.file_count if together.is_certain else files - out
    reasons = tuple(name for name, n in (("small files", small.file_count - small_out), ("oversized files", large.file_count)) if n > 0)
    if not reasons:
        return None
    return Candidate(
        partitions=together.partitions,
        mode="size",
        reasons=reasons,
        files_in=files,
        bytes_in=total,
        files_out=out,
        bytes_out=total,
        file_opens_saved=saved,
        is_maximum=not together.is_certain,
    )


def _for_deletes(facts: TableFacts, together: RewriteGroup, over: Mapping[Partition, DeleteLoad], low: int) -> Candidate:
    """Data files with deletes, and the undersized files in the same partitions."""
    files = total = left = rows = 0
    for group in together.groups:
        load = over[group.partition]
        taken = max(load.files, under(group, low).file_count)
        # The facts do not say which files have deletes, so their bytes are estimated from the mean.
        size = round(group.mean_bytes * taken)
        files, total, left = files + taken, total + size, left + round(size * (1 - load.deleted_share))
        rows += group.record_count
    out = together.files_out(left, rows, facts.target_bytes)
    loads = [over[p] for p in together.partitions]
    mode: Mode = "vectors" if all(load.only_file_scoped for load in loads) else "deletes"
    return Candidate(
        partitions=together.partitions,
        mode=mode,
        reasons=tuple(dict.fromkeys(kind for load in loads for kind in load.kinds)),
        files_in=files,
        bytes_in=total,
        files_out=out,
        bytes_out=left,
        file_opens_saved=(max(files - out, 0) if together.is_certain else files - out) + sum(load.opens for load in loads),
        is_maximum=not together.is_certain or any(load.is_least for load in loads),
    )


def _bytes_left(group: FileGroup, over: DeleteLoad | None) -> int:
    """The bytes of a partition's live rows."""
    return round(group.size_in_bytes * (1 - (over.deleted_share if over else 0.0)))


def _whole(facts: TableFacts, group: FileGroup, policy: Policy, over: DeleteLoad | None, low: int, high: int) -> Candidate | None:
    """Every file of a partition. A binpack that changes nothing is no candidate; a sort always is."""
    left = _bytes_left(group, over)
    out = expected_files(left, facts.target_bytes) if left else 0
    saved = max(group.file_count - out, 0) + (over.opens if over else 0)
    wrong = under(group, low).file_count + oversized(group, high, facts.int_setting(ROW_GROUP)).file_count
    reasons = [name for name, n in (("files of the wrong size", wrong), ("deletes", over is not None)) if n]
    if policy.strategy != "binpack":
        reasons.append("row order")
    if not reasons:
        return None
    return Candidate(
        partitions=(group.partition,),
        mode="all",
        reasons=tuple(reasons),
        files_in=group.file_count,
        bytes_in=group.size_in_bytes,
        files_out=out,
        bytes_out=left,
        file_opens_saved=saved,
        is_maximum=over is not None and over.is_least,
    )


def _whole_table(facts: TableFacts) -> Candidate:
    """All data files: some of them cannot be rewritten without changing which deletes apply to the others."""
    over, data = deletes_over(facts), facts.data
    groups = facts.of_kind(Kind.DATA)
    left = sum(_bytes_left(g, over.get(g.partition)) for g in groups)
    out = expected_files(left, facts.target_bytes) if left else 0
    return Candidate(
        partitions=tuple(g.partition for g in groups),
        mode="table",
        reasons=("deletes of partitions whose column was dropped",),
        files_in=data.file_count,
        bytes_in=data.size_in_bytes,
        files_out=out,
        bytes_out=left,
        file_opens_saved=max(data.file_count - out, 0) + sum(load.opens for load in over.values()),
        is_maximum=any(load.is_least for load in over.values()),
    )


def _is_rewritten(files: int, total: int, target: int, high: int, min_files: int) -> bool:
    return (files > 1 and files >= min_files) or (files > 1 and total > target) or total > high


# --- Say what maintenance would save on a table, in plain units, and price it so that a person can check the sum
#
# No score: one full scan of the table costs its bytes, plus a fixed number of bytes for each file
# that it opens, which is how Iceberg itself weighs a file when it packs scan tasks
# (``read.split.open-file-cost``, 4 MiB unless the table sets another). Savings are
# priced in the same way, and tables are ranked by them.


_MANIFEST_FINDINGS = frozenset({"fragmented_manifests", "overlapping_manifests"})


@dataclass(frozen=True, slots=True)
class Savings:
    """What compaction, coarser partitions, a larger target file size, rewritten manifests, expiry and orphan removal would save.

    ``files_gone`` are data files; ``opens_saved`` the file opens that one full scan saves, as
    a compaction's plan counts them (data files, and delete files opened for each data file);
    ``table_change_opens_saved`` is the part of them that needs coarser partitions or a larger target (see :func:`wins`);
    ``delete_rows_gone`` the delete records that no read applies any more; ``bytes_saved`` the bytes
    that such a scan no longer reads: deleted rows, and delete files. ``manifests_gone`` and
    ``manifest_bytes_saved`` are saved in planning. ``rewrite_bytes`` is the cost: bytes to
    rewrite. ``opens``, ``delete_rows`` and ``manifests`` are the totals of one full scan. ``saved`` is what
    one full scan saves, in bytes: (opens + manifests) × ``open_file_cost`` +
    both kinds of bytes; ``scan_cost`` is the full cost of that scan. ``expirable_bytes`` is a lower bound (see
    :func:`expirable_bytes`); ``orphan_files`` are counted only where storage was listed, and ``orphan_bytes`` rest on the
    sizes of ``orphan_files_weighed`` of them (see :class:`~icekit.facts.model.StorageFacts`). Unknown is None.
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


def wins(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> Savings:
    """Work out what maintenance would save; only for problems that ``findings`` name, as a plan does.

    Coarser partitions save at most the files that are left in too small partitions after compaction, less those of the target size
    that would be enough. A target file size of one read split saves the files that the present target keeps apart. The same rewrite
    combines files within partitions, so no byte counts twice. A table with contradictions saves nothing before these are fixed.
    """
    limits = thresholds or Thresholds()
    if facts.contradictions:
        findings = Findings()
    policy = Policy(min_files=limits.min_input_files, delete_ratio=limits.delete_ratio)
    chosen = candidates(facts, findings, policy, limits)
    cost = open_file_cost(facts)
    under_deletes = {p for c in chosen if c.mode in {"deletes", "vectors"} for p in c.partitions}
    delete_files = sum(facts.total(kind).file_count for kind in DELETE_KINDS)
    delete_bytes = sum(facts.total(kind).size_in_bytes for kind in DELETE_KINDS)
    mean_delete = delete_bytes / delete_files if delete_files else 0.0
    # A full scan opens a delete file once for each data file it applies to.
    over = deletes_over(facts)
    pairs = sum(o.opens for o in over.values())
    fewer = sum(max(c.files_in - c.files_out, 0) for c in chosen)
    thin = thin_partitions(facts, limits)[1] if "over_partitioned" in findings.names else []
    merged = _merged(facts, thin, chosen)
    rewritten = sum(c.bytes_in for c in chosen)
    if merged:
        in_thin = {g.partition for g in thin}
        rewritten = sum(g.size_in_bytes for g in thin) + sum(c.bytes_in for c in chosen if not in_thin.issuperset(c.partitions))
    aimed = files_of_small_target(facts, limits) if "target_too_small" in findings.names else {}
    if aimed:
        taken = {p: c.bytes_in for c in chosen for p in c.partitions if len(c.partitions) == 1}
        rewritten += sum(max(total - taken.get(p, 0), 0) for p, (_, total) in aimed.items())
    fuller = _fuller(facts, aimed, chosen)
    fewer += merged + fuller
    opens = sum(c.file_opens_saved for c in chosen) + merged + fuller
    pairs_gone = sum(over[p].opens for p in under_deletes if p in over)
    manifests = facts.manifests
    gone, entry_bytes = _manifests_gone(facts, findings), manifests.bytes_per_data_entry or 0.0
    fewer_bytes = sum(c.bytes_in - c.bytes_out for c in chosen) + round(mean_delete * pairs_gone)
    entries = round(fewer * entry_bytes)
    every_manifest = manifests.data_count + manifests.delete_count
    # Where another table shares the location, nobody can say which files are orphans.
    listed = facts.storage if facts.storage and not facts.storage.sharing.shared else None
    return Savings(
        files_gone=fewer,
        delete_rows_gone=sum(g.record_count for kind in DELETE_KINDS for g in facts.of_kind(kind) if g.partition in under_deletes),
        opens_saved=opens,
        bytes_saved=fewer_bytes,
        manifests_gone=gone,
        manifest_bytes_saved=entries,
        rewrite_bytes=rewritten,
        opens=facts.data.file_count + pairs,
        delete_rows=sum(facts.total(kind).record_count for kind in DELETE_KINDS),
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
        table_change_opens_saved=merged + fuller,
    )


def _merged(facts: TableFacts, thin: Sequence[FileGroup], chosen: Sequence[Candidate]) -> int:
    """Data files that coarser partitions would combine, after compaction within partitions."""
    if not thin:
        return 0
    change = {c.partitions[0]: (c.files_in - c.files_out, c.bytes_in - c.bytes_out) for c in chosen if len(c.partitions) == 1}
    gone = [change.get(g.partition, (0, 0)) for g in thin]
    files = sum(g.file_count for g in thin) - sum(max(n, 0) for n, _ in gone)
    return max(files - expected_files(sum(g.size_in_bytes for g in thin) - sum(n for _, n in gone), facts.target_bytes), 0)


def _fuller(facts: TableFacts, aimed: Mapping[Partition, tuple[int, int]], chosen: Sequence[Candidate]) -> int:
    """Data files that a target of one read split would combine, after compaction with the present target."""
    gone = {c.partitions[0]: max(c.files_in - c.files_out, 0) for c in chosen if len(c.partitions) == 1}
    split = split_bytes(facts)
    return sum(max(files - expected_files(total, split) - gone.get(p, 0), 0) for p, (files, total) in aimed.items())


def savings_told(facts: TableFacts, findings: Findings, thresholds: Thresholds | None = None) -> dict[str, str]:
    """What the remedy of each finding saves a full scan, as a sentence by the finding's name, and of all together under an empty name.

    A remedy that makes no scan cheaper has none. What one action saves is said once, with the finding whose action does the most; the
    others say which one that is. So the savings of the findings add up to those of all together.
    """
    covered = covered_by(findings.names)
    actions: dict[str, list[Finding]] = {}
    for finding in findings:
        actions.setdefault(covered.get(finding.name, finding.name), []).append(finding)
    told: dict[str, str] = {}
    done: list[Finding] = []
    before, last = wins(facts, Findings()), ""
    for name, some in actions.items():
        done += some
        after = wins(facts, Findings(done), thresholds)
        sentence = _saved(before, after, "Saves")
        if sentence:
            told[name], last = sentence, name if name == "over_partitioned" else last
            told |= {f.name: _covered(name) for f in some if f.name != name}
        elif last and _saved(wins(facts, Findings()), wins(facts, Findings(some), thresholds), ""):
            # Coarser partitions combine the small files as well.
            told |= {f.name: _covered(last) for f in some}
        before = after
    if len(findings) > 1 and (together := _saved(wins(facts, Findings()), before, "Together, the remedies save")):
        told[""] = together
    return told


def _covered(name: str) -> str:
    return f"The same action as for {name.replace('_', ' ')} fixes this."


def _saved(before: Savings, after: Savings, saves: str) -> str:
    """What ``after`` saves in addition to ``before``; empty if that is nothing."""
    opens, manifests = after.opens_saved - before.opens_saved, after.manifests_gone - before.manifests_gone
    most = "up to " if after.table_change_opens_saved > before.table_change_opens_saved else ""
    parts = [
        f"{most}{opens:,} of {count(after.opens, 'file open')}" if opens > 0 else "",
        f"{manifests:,} of {count(after.manifests, 'manifest')}" if manifests > 0 else "",
    ]
    if not any(parts):
        return ""
    share = (after.saved - before.saved) / after.scan_cost if after.scan_cost else 0.0
    rewritten = after.rewrite_bytes - before.rewrite_bytes
    cost = f", {percent(min(share, 1.0))} of its cost" if share > 0 else ""
    bytes_ = f", for {size(rewritten)} rewritten" if rewritten > 0 else ""
    return f"{saves} a full scan {' and '.join(filter(None, parts))}{cost}{bytes_}."


def total(each: Iterable[Savings]) -> Savings:
    """Sums over tables; a figure is absent only if no table has it. The cost of an open differs by table: 0."""
    summed: dict[str, int | None] = {f.name: 0 if f.default is not None else None for f in fields(Savings)}
    for one in each:
        for name, before in summed.items():
            value = getattr(one, name)
            summed[name] = before if value is None else (before or 0) + value
    summed["open_file_cost"] = 0
    return Savings(**summed)  # type: ignore[arg-type]


def expirable_bytes(facts: TableFacts) -> int | None:
    """Bytes of data and delete files that expiry with the table's own properties frees, at least.

    Computed from ``history.expire.max-snapshot-age-ms`` and ``history.expire.min-snapshots-to-keep`` (at least 10, as ``icekit maintain`` does): files
    removed by commits up to the oldest snapshot that stays are in no snapshot after the expiry.
    Summed from snapshot summaries (``removed-files-size``), so manifests are not counted, nor
    files added and removed between two snapshots that stay. None where nothing may be expired
    (``gc.enabled=false``), where a summary lacks the figure, or where the facts lack snapshots: older
    ones, and those outside this lineage (a branch that diverged, a staged write, the remains of a
    rollback). Such a snapshot keeps files that this lineage removed, as long as a ref names it or it is young
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
    keep = max(DEFAULT_LAST, facts.int_setting("history.expire.min-snapshots-to-keep"))
    stays = [c.committed_at_ms >= before or place >= len(lineage) - keep for place, c in enumerate(lineage)]
    places = {c.snapshot_id: place for place, c in enumerate(lineage)}
    for ref in history.refs:
        # A branch keeps its own last snapshots.
        last = places[ref.snapshot_id]
        first = last if ref.type == "tag" else max(last - keep + 1, 0)
        stays[first : last + 1] = [True] * (last + 1 - first)
    oldest = stays.index(True)
    # Files that the first commit of the history removed were in snapshots that are already gone.
    removing = [c for c in lineage[1 : oldest + 1] if c.operation != "append"]
    if any(c.removed_bytes is None and (c.removed_data_files or c.removed_delete_files) for c in removing):
        return None
    return sum(c.removed_bytes or 0 for c in removing)


def _manifests_gone(facts: TableFacts, findings: Findings) -> int:
    if not _MANIFEST_FINDINGS & findings.names:
        return 0
    target = facts.int_setting("commit.manifest.target-size-bytes")
    return max(0, facts.manifests.data_count - expected_manifests(facts.manifests.data_bytes, target))
