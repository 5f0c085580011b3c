"""Find the partitions that a rewrite would help, and what rewriting each would save; pure
arithmetic on facts.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds, oversized, under
from icekit.errors import ParameterError
from icekit.facts.fan_out import RewriteGroup, rewrite_groups
from icekit.facts.files import FileGroup, Kind, Partition, SequenceCounts, Totals
from icekit.facts.integrity import DeleteState
from icekit.facts.metadata import ROW_GROUP
from icekit.facts.model import TableFacts
from icekit.facts.rollup import (
    equality_deletes_applied,
    expected_files,
    max_file_size,
    min_file_size,
    sequences_by_partition,
    sort_key,
)
from icekit.facts.where import askable, partition_span, unfiltered_fields


@dataclass(frozen=True, slots=True)
class DeleteLoad:
    """The deletes that apply to one partition's data.

    ``files`` are data files with at least one delete, ``opens`` the pairs of a data file and a
    delete file that a full scan opens (an upper bound: the column bounds of delete files are
    ignored), ``deleted_share`` the position delete records per data record, at most 1: nobody knows
    how many rows equality deletes delete (``is_least``). ``only_file_scoped`` means that each
    delete names a single data file; ``delete-ratio-threshold`` counts only such deletes.
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
    # Within a range of sequence numbers the order is unknown: deletes in it count as later than the
    # data.
    exact = 1 if facts.sequence_width == 1 else 0
    everywhere = [
        s for p, rows in sequences.items() if facts.spec(p.spec_id).is_unpartitioned for s in rows
    ]
    loads: dict[Partition, DeleteLoad] = {}
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
            files = max(
                files,
                min(group.file_count, data.file_count)
                if alone
                else _reached(sequences.get(partition, ())),
            )
        if heavy:
            rows = sequences.get(partition, [])
            is_global = facts.spec(partition.spec_id).is_unpartitioned
            opens = _opens(rows, [] if is_global else everywhere, kinds, exact)
            loads[partition] = DeleteLoad(
                files, opens, min(share, 1.0), scoped, tuple(heavy), bool(applied)
            )
    return loads


def _reached(rows: Iterable[SequenceCounts]) -> int:
    """Data files that at least one position delete file may apply to, by sequence number."""
    rows = list(rows)
    newest = max((r.sequence_number for r in rows if r.position_delete_file_count), default=-1)
    return sum(r.data_file_count for r in rows if r.sequence_number <= newest)


def _opens(
    rows: Iterable[SequenceCounts],
    everywhere: Iterable[SequenceCounts],
    kinds: Mapping[Kind, FileGroup],
    exact: int,
) -> int:
    """Pairs of a data file and a delete file that applies to it (table spec, "Scan Planning")."""
    own = sorted(rows, key=lambda r: -r.sequence_number)
    equality = sorted(
        [
            (r.sequence_number, r.equality_delete_file_count)
            for r in (*own, *everywhere)
            if r.equality_delete_file_count
        ],
        reverse=True,
    )
    position = kinds.get(Kind.POSITION_DELETES)
    vectors = kinds.get(Kind.DELETION_VECTORS)
    # Sequence counts include vectors among the position deletes; a delete of either kind that names
    # one file counts once.
    scoped = position is None or position.file_scoped_count == position.file_count
    opens = (vectors.file_count if vectors else 0) + (
        position.file_count if position and scoped else 0
    )
    later_equality = later_position = index = 0
    for row in own:
        while index < len(equality) and equality[index][0] >= row.sequence_number + exact:
            later_equality += equality[index][1]
            index += 1
        later_position += 0 if scoped else row.position_delete_file_count
        opens += row.data_file_count * (later_equality - row.ruled_out_file_count + later_position)
    return opens


def dropped_by(facts: TableFacts, partitions: Iterable[Partition], sequence_number: int) -> int:
    """Delete files that are dropped when every data file with deletes in these partitions is
    rewritten.

    ``sequence_number`` is that of the snapshot the rewrite starts from; rewritten files
    keep it (``use-starting-sequence-number``). Then deletes are dropped that apply to no live data
    file: equality deletes not above it, position deletes that name one file, others below it. A
    deletion vector is dropped with its data file. All dangling deletes of the table are dropped,
    too.
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
        else min(
            (r.sequence_number for r in rows if r.data_file_count), default=sequence_number + 1
        )
        for partition, rows in sequences.items()
    }
    for partition, rows in sequences.items():
        rewritten, lowest = partition in chosen, oldest[partition]
        # Equality deletes of an unpartitioned spec apply to every partition.
        everywhere = (
            min(oldest.values()) if facts.spec(partition.spec_id).is_unpartitioned else lowest
        )
        dropped += sum(
            r.equality_delete_file_count for r in rows if r.sequence_number <= everywhere
        )
        older = sum(r.position_delete_file_count for r in rows if r.sequence_number < lowest)
        # SequenceCounts includes vectors among the position deletes; those were counted above.
        files = sum(r.position_delete_file_count for r in rows) - vectors.get(partition, 0)
        if rewritten and scoped.get(partition, 0) == files:
            dropped += files
        else:
            dropped += min(older, files)
    return dropped


#: ``size``: files of the wrong size. ``deletes``: also files with deletes that the default
# ignores. ``vectors``: also files that lost rows to deletes naming only them. ``all``: every file.
#: ``spec``: every file of older specs, into the current one. ``table``: every file of the table,
# in one commit.
Mode = Literal["size", "deletes", "vectors", "all", "spec", "table"]

_DELETE_FINDINGS = frozenset(
    {"equality_deletes", "position_deletes", "deletion_vectors", "deletes_default_rewrite_ignores"}
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition (or those of older specs whose rows go into the same partitions) and what
    rewriting it would save.

    ``file_opens_saved`` counts opens that a full scan no longer needs: data files that are removed,
    and each delete file that is no longer opened together with a data file. Splitting an oversized
    file counts as one open saved, although it makes more files: the benefit is skipped bytes.
    ``is_maximum``: fewer files may come out.
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
        """Whether only saved file opens make it worthwhile: the benefit of smaller files, of an
        order or of another spec is skipped bytes.
        """
        return self.mode != "spec" and not {"row order", "oversized files"}.intersection(
            self.reasons
        )


def candidates(
    facts: TableFacts, findings: Findings, policy: Policy, thresholds: Thresholds
) -> tuple[Candidate, ...]:
    """Every partition worth a rewrite, most file opens saved per byte first.

    Only problems that ``findings`` name are looked for; a sorting or major rewrite takes
    every partition that has something to gain. Whether a group of files would be
    rewritten follows SizeBasedFileRewritePlanner. A rewrite puts files of older specs into the
    current one, so they are taken only if that saves file opens however their rows are distributed,
    or if the policy asks for it. A table with :attr:`~icekit.facts.model.TableFacts.fragile_fields`
    has one candidate: all of it. One with :attr:`~icekit.facts.model.TableFacts.contradictions` has
    none.
    """
    if facts.contradictions:
        return ()
    if facts.fragile_fields:
        return (_whole_table(facts),)
    wanted, thresholds = findings.names, policy.within(thresholds)
    low = min_file_size(facts.target_bytes, thresholds.min_file_size_ratio)
    high = max_file_size(facts.target_bytes, thresholds.max_file_size_ratio)
    over = deletes_over(facts, thresholds.delete_ratio) if _DELETE_FINDINGS & wanted else {}
    moves = policy.old_specs and "old_partition_spec" in wanted
    older: list[RewriteGroup] = []
    every: list[Candidate | None] = []
    by_size = {"small_files", "oversized_files"} & wanted
    for together in rewrite_groups(facts):
        is_older = together.partitions[0].spec_id != facts.default_spec_id
        under_deletes = [g for g in together.groups if g.partition in over]
        if is_older and moves:
            older.append(together)
        elif is_older and policy.scope == "major":
            continue
        elif policy.scope == "major":
            every.append(
                _whole(
                    facts, together.groups[0], policy, over.get(together.partitions[0]), low, high
                )
            )
        else:
            if under_deletes:
                every.append(
                    _for_deletes(facts, replace(together, groups=tuple(under_deletes)), over, low)
                )
            rest = [g for g in together.groups if g.partition not in over]
            if rest and by_size:
                every.append(
                    _by_size(facts, replace(together, groups=tuple(rest)), thresholds, low, high)
                )
    every += _moves(facts, older, over)
    worth = [
        c
        for c in every
        if c is not None and (c.file_opens_saved >= policy.min_win or not c.must_save)
    ]
    return tuple(
        sorted(
            worth, key=lambda c: (-c.win_per_byte, -c.file_opens_saved, sort_key(c.partitions[0]))
        )
    )


def is_bounded(facts: TableFacts, partitions: Sequence[Partition]) -> bool:
    """Whether a filter selects only these partitions; a table that was never partitioned needs
    none.
    """
    spec_ids = {p.spec_id for p in partitions}
    if len(facts.specs) > 1 and any(facts.spec(i).is_unpartitioned for i in spec_ids):
        return False
    return all(
        facts.spec(i).is_unpartitioned or not unfiltered_fields(facts.spec(i), facts.columns)
        for i in spec_ids
    )


def _moves(
    facts: TableFacts, older: Sequence[RewriteGroup], over: Mapping[Partition, DeleteLoad]
) -> list[Candidate]:
    """Every file of older specs, partition by partition; all together where no filter selects one
    of the partitions.
    """
    partitions = [p for together in older for p in together.partitions]
    if is_bounded(facts, partitions) and all(askable(facts.spec(p.spec_id), p) for p in partitions):
        return [
            _move(facts, [replace(together, groups=(group,))], over)
            for together in older
            for group in together.groups
        ]
    return [_move(facts, older, over)]


def _move(
    facts: TableFacts, several: Sequence[RewriteGroup], over: Mapping[Partition, DeleteLoad]
) -> Candidate:
    groups = [group for together in several for group in together.groups]
    loads = [over[g.partition] for g in groups if g.partition in over]
    files, size, left = sum(g.file_count for g in groups), sum(g.size_in_bytes for g in groups), 0
    out = 0
    for together in several:
        stays = sum(_bytes_left(g, over.get(g.partition)) for g in together.groups)
        left += stays
        out += together.files_out(
            stays, sum(g.record_count for g in together.groups), facts.target_bytes
        )
    return Candidate(
        partitions=tuple(g.partition for g in groups),
        mode="spec",
        reasons=("an older partition spec",),
        files_in=files,
        bytes_in=size,
        files_out=out,
        bytes_out=left,
        file_opens_saved=files - out + sum(load.opens for load in loads),
        is_maximum=not all(together.is_certain for together in several)
        or any(load.is_least for load in loads),
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
            f"{facts.name} is not partitioned by time, so since, until and skip_last cannot "
            "select partitions. Leave them out, or use a budget."
        )
    return frozenset(
        p
        for p, span in spans.items()
        if span is not None
        and (policy.since is None or span[0] >= policy.since)
        and (until is None or span[1] <= until)
    )


def _by_size(
    facts: TableFacts, together: RewriteGroup, limits: Thresholds, low: int, high: int
) -> Candidate | None:
    """Files of the wrong size in one rewrite group, if the procedure would take it."""
    small = Totals.of(under(group, low) for group in together.groups)
    large = Totals.of(
        oversized(group, high, facts.int_setting(ROW_GROUP)) for group in together.groups
    )
    files, total = small.file_count + large.file_count, small.size_in_bytes + large.size_in_bytes
    if not files or not _is_rewritten(
        files, total, facts.target_bytes, high, limits.min_input_files
    ):
        return None
    out = together.files_out(total, small.record_count + large.record_count, facts.target_bytes)
    small_out = together.files_out(small.size_in_bytes, small.record_count, facts.target_bytes)
    saved = (
        max(small.file_count - small_out, 0) + large.file_count
        if together.is_certain
        else files - out
    )
    reasons = tuple(
        name
        for name, n in (
            ("small files", small.file_count - small_out),
            ("oversized files", large.file_count),
        )
        if n > 0
    )
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


def _for_deletes(
    facts: TableFacts, together: RewriteGroup, over: Mapping[Partition, DeleteLoad], low: int
) -> Candidate:
    """Data files with deletes, and the undersized files in the same partitions."""
    files = total = left = rows = 0
    for group in together.groups:
        load = over[group.partition]
        taken = max(load.files, under(group, low).file_count)
        # The facts do not say which files have deletes, so their bytes are estimated from the mean.
        size = round(group.mean_bytes * taken)
        files, total, left = (
            files + taken,
            total + size,
            left + round(size * (1 - load.deleted_share)),
        )
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
        file_opens_saved=(max(files - out, 0) if together.is_certain else files - out)
        + sum(load.opens for load in loads),
        is_maximum=not together.is_certain or any(load.is_least for load in loads),
    )


def _bytes_left(group: FileGroup, over: DeleteLoad | None) -> int:
    """The bytes of a partition's live rows."""
    return round(group.size_in_bytes * (1 - (over.deleted_share if over else 0.0)))


def _whole(
    facts: TableFacts,
    group: FileGroup,
    policy: Policy,
    over: DeleteLoad | None,
    low: int,
    high: int,
) -> Candidate | None:
    """Every file of a partition. A binpack that changes nothing is no candidate; a sort always
    is.
    """
    left = _bytes_left(group, over)
    out = expected_files(left, facts.target_bytes) if left else 0
    saved = max(group.file_count - out, 0) + (over.opens if over else 0)
    wrong = (
        under(group, low).file_count
        + oversized(group, high, facts.int_setting(ROW_GROUP)).file_count
    )
    reasons = [
        name for name, n in (("files of the wrong size", wrong), ("deletes", over is not None)) if n
    ]
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
    """All data files: some of them cannot be rewritten without changing which deletes apply to the
    others.
    """
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
