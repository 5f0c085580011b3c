"""Find the partitions that a rewrite would help, and what rewriting each would save; pure
arithmetic on facts.
"""

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from icekit.common import frozen
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError
from icekit.health.diagnose.findings import Findings, Thresholds, oversized_part, undersized_part
from icekit.health.facts.fan_out import RewriteGroup, is_separable_by_filter, rewrite_groups
from icekit.health.facts.files import Bucket, FileGroup, SequenceCounts, Totals
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import (
    equality_deletes_applied,
    max_file_size,
    min_file_size,
    sequences_by_partition,
    sort_key,
)
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import ROW_GROUP
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import fields_without_column, partition_time_range
from icekit.maintain.policy import thresholds_of
from icekit.maintain.prediction import Certainty, Prediction


@frozen
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
    loads: dict[Partition, DeleteLoad] = {}
    for partition, kinds in groups.items():
        data = kinds.get(Kind.DATA)
        if data is None or not data.record_count:
            continue
        applied = equality.get(partition)
        heavy = ["equality deletes"] if applied else []
        files, opens = (applied.data_file_count, applied.file_opens) if applied else (0, 0)
        share = 0.0
        scoped = applied is None
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS):
            group = kinds.get(kind)
            if group is None:
                continue
            reached_files = min(group.file_count, data.file_count)
            pairs = group.file_count
            is_scoped = group.file_scoped_count == group.file_count
            if not is_scoped:
                reached_files, pairs = _reached(sequences.get(partition, ()))
            opens += pairs
            ratio = group.record_count / data.record_count
            if ratio >= min_ratio:
                heavy.append(kind.value.replace("_", " "))
                share = share + ratio
                scoped = scoped and is_scoped
                files = max(files, reached_files)
        if heavy:
            loads[partition] = DeleteLoad(
                files, opens, min(share, 1.0), scoped, tuple(heavy), applied is not None
            )
    return loads


def _reached(rows: Iterable[SequenceCounts]) -> tuple[int, int]:
    """Data files that at least one position delete file may apply to, by sequence number, and pairs
    of a data file and such a delete file (table spec, "Scan Planning").
    """
    files = pairs = later = 0
    for row in sorted(rows, key=lambda r: -r.sequence_number):
        later += row.position_delete_file_count
        files += row.data_file_count if later else 0
        pairs += row.data_file_count * later
    return files, pairs


def dropped_by(facts: TableFacts, partitions: Iterable[Partition], sequence_number: int) -> int:
    """Delete files that are dropped when every data file with deletes in these partitions is
    rewritten.

    ``sequence_number`` is that of the snapshot the rewrite starts from; rewritten files
    keep it (``use-starting-sequence-number``). Then deletes are dropped that apply to no live data
    file: equality deletes not above it, position deletes that name one file, others below it. A
    deletion vector is dropped with its data file. All dangling deletes of the table, and those that
    a vector replaces, are dropped, too.
    """
    chosen_partitions = set(partitions)
    scoped = {g.partition: g.file_scoped_count for g in facts.of_kind(Kind.POSITION_DELETES)}
    vectors = {g.partition: g.file_count for g in facts.of_kind(Kind.DELETION_VECTORS)}
    dropped = sum(n for partition, n in vectors.items() if partition in chosen_partitions)
    for state in (DeleteState.DANGLING, DeleteState.REPLACED):
        dropped += sum(each.file_count for each in facts.unapplied_in(state))
    # Those of new keys are not above the snapshot's sequence number either.
    data = {g.partition for g in facts.of_kind(Kind.DATA)}
    for each in facts.unapplied_in(DeleteState.NEW_KEYS):
        reached_partitions = (
            data if facts.spec(each.partition.spec_id).is_unpartitioned else {each.partition}
        )
        dropped += each.file_count if reached_partitions <= chosen_partitions else 0
    sequences = sequences_by_partition(facts)
    oldest = {
        partition: sequence_number
        if partition in chosen_partitions
        else min(
            (r.sequence_number for r in rows if r.data_file_count), default=sequence_number + 1
        )
        for partition, rows in sequences.items()
    }
    for partition, rows in sequences.items():
        # Equality deletes of an unpartitioned spec apply to every partition.
        is_global = facts.spec(partition.spec_id).is_unpartitioned
        lowest = min(oldest.values()) if is_global else oldest[partition]
        dropped += sum(r.equality_delete_file_count for r in rows if r.sequence_number <= lowest)
        # SequenceCounts includes vectors among the position deletes; those were counted above.
        files = sum(r.position_delete_file_count for r in rows) - vectors.get(partition, 0)
        older = [r for r in rows if r.sequence_number < oldest[partition]]
        if partition in chosen_partitions and scoped.get(partition, 0) == files:
            dropped += files
        else:
            dropped += min(sum(r.position_delete_file_count for r in older), files)
    return dropped


#: ``size``: files of the wrong size. ``deletes``: also files with deletes that the default
# ignores. ``vectors``: also files that lost rows to deletes naming only them. ``all``: every file.
#: ``spec``: every file of older specs, into the current one. ``table``: every file of the table,
# in one commit.
Mode = Literal["size", "deletes", "vectors", "all", "spec", "table"]

_DELETE_FINDINGS = frozenset(
    {"equality_deletes", "position_deletes", "deletion_vectors", "deletes_default_rewrite_ignores"}
)


@frozen
class Candidate:
    """One partition (or those of older specs whose rows go into the same partitions) and what
    rewriting it would save, from the facts.

    Splitting an oversized file costs file opens; the benefit is skipped bytes.
    """

    partitions: tuple[Partition, ...]
    mode: Mode
    reasons: tuple[str, ...]
    prediction: Prediction

    @property
    def must_save(self) -> bool:
        """Whether only saved file opens make it worthwhile: the benefit of smaller files, of an
        order or of another spec is skipped bytes.
        """
        return self.mode != "spec" and not {"row order", "oversized files"}.intersection(
            self.reasons
        )


def candidates(
    facts: TableFacts, findings: Findings, policy: CompactionPolicy, thresholds: Thresholds
) -> tuple[Candidate, ...]:
    """Every partition worth a rewrite, most file opens saved per byte first.

    Only problems that ``findings`` name are looked for; a sorting or major rewrite takes every
    partition that has something to gain. Whether a group of files would be rewritten follows
    SizeBasedFileRewritePlanner. A rewrite puts files of older specs into the current one, so they
    are taken only if that saves file opens however their rows are distributed, or if the policy
    asks for it. A table with
    :attr:`~icekit.health.facts.model.TableFacts.dropped_fields_under_deletes` has one
    candidate: all of it. One with :attr:`~icekit.health.facts.model.TableFacts.contradictions` or
    :attr:`~icekit.health.facts.model.TableFacts.unsupported_columns` has none.
    """
    if facts.contradictions or facts.unsupported_columns:
        return ()
    limits = thresholds_of(policy, thresholds)
    finding_names = findings.names
    if facts.dropped_fields_under_deletes:
        return (_Finder(facts, policy, limits, deletes_over(facts)).whole_table(),)
    loads_over = (
        deletes_over(facts, limits.delete_ratio) if _DELETE_FINDINGS & finding_names else {}
    )
    finder = _Finder(facts, policy, limits, loads_over)
    moves = policy.old_specs and "old_partition_spec" in finding_names
    by_size = bool({"small_files", "oversized_files"} & finding_names)
    older: list[RewriteGroup] = []
    all_candidates: list[Candidate | None] = []
    for together in rewrite_groups(facts):
        if together.has_older_specs and moves:
            older.append(together)
        elif policy.scope == "minor":
            under_deletes = tuple(g for g in together.groups if g.partition in loads_over)
            rest = tuple(g for g in together.groups if g.partition not in loads_over)
            if under_deletes:
                all_candidates.append(finder.for_deletes(replace(together, groups=under_deletes)))
            if rest and by_size:
                all_candidates.append(finder.by_size(replace(together, groups=rest)))
        elif not together.has_older_specs:
            all_candidates.append(finder.whole(together))
    all_candidates += finder.moves(older)
    worth = [
        c
        for c in all_candidates
        if c is not None and (c.prediction.file_opens_saved > 0 or not c.must_save)
    ]
    return tuple(sorted(worth, key=_rank))


def _rank(candidate: Candidate) -> tuple[float, int, tuple[object, ...]]:
    """The most file opens saved per byte first; moves to another spec last, in the order of their
    partitions, so that no move selects what an earlier one has written.
    """
    if candidate.mode == "spec":
        return math.inf, 0, sort_key(candidate.partitions[0])
    p = candidate.prediction
    saved = p.file_opens_saved
    return -saved / max(p.bytes_in, 1), -saved, sort_key(candidate.partitions[0])


def has_filter(facts: TableFacts, partitions: Sequence[Partition]) -> bool:
    """Whether a filter selects only these partitions; a table that was never partitioned needs
    none.
    """
    specs = [facts.spec(spec_id) for spec_id in {p.spec_id for p in partitions}]
    if len(facts.specs) > 1 and any(spec.is_unpartitioned for spec in specs):
        return False
    return all(facts.is_filterable(p) for p in partitions) and all(
        spec.is_unpartitioned or not fields_without_column(spec, facts.columns) for spec in specs
    )


def in_window(
    facts: TableFacts, policy: CompactionPolicy, now: dt.datetime
) -> frozenset[Partition] | None:
    """The partitions in the policy's time window; None when it sets no window.

    Raises :class:`~icekit.common.errors.ParameterError` for a table that is not partitioned by
    time.
    """
    if not (policy.since or policy.until or policy.skip_last_hours):
        return None
    until = policy.until
    if policy.skip_last_hours:
        latest = now - dt.timedelta(hours=policy.skip_last_hours)
        until = min(until, latest) if until else latest
    spans = {p: partition_time_range(facts.spec(p.spec_id), p) for p in facts.partitions()}
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


class _Finder:
    """Makes the candidates of a table; ``over`` are the deletes that make a rewrite worthwhile."""

    def __init__(
        self,
        facts: TableFacts,
        policy: CompactionPolicy,
        limits: Thresholds,
        over: Mapping[Partition, DeleteLoad],
    ) -> None:
        self.facts = facts
        self.policy = policy
        self.limits = limits
        self.over = over
        self.low = min_file_size(facts.target_bytes, limits.min_file_size_ratio)
        self.high = max_file_size(facts.target_bytes, limits.max_file_size_ratio)

    def whole_table(self) -> Candidate:
        """All data files: some of them cannot be rewritten without changing which deletes apply to
        the others.
        """
        everything = RewriteGroup(tuple(self.facts.of_kind(Kind.DATA)))
        reasons = ("deletes of partitions whose column was dropped",)
        return self._candidate("table", reasons, [everything], _all)

    def moves(self, older: Sequence[RewriteGroup]) -> list[Candidate]:
        """Every file of older specs, partition by partition; all together where a filter for one of
        the partitions would also select what was moved before.
        """
        facts = self.facts
        batches = [older]
        partitions = [p for together in older for p in together.partitions]
        specs = {p.spec_id for p in partitions}
        if has_filter(facts, partitions) and all(
            is_separable_by_filter(facts.spec(spec_id), facts.default_spec) for spec_id in specs
        ):
            batches = [
                [replace(together, groups=(group,))]
                for together in older
                for group in together.groups
            ]
        reasons = ("an older partition spec",)
        return [self._candidate("spec", reasons, batch, _all) for batch in batches]

    def whole(self, together: RewriteGroup) -> Candidate | None:
        """Every file of a partition. A binpack that changes nothing is no candidate; a sort always
        is.
        """
        holds = {
            "files of the wrong size": any(self._of_wrong_size(group) for group in together.groups),
            "deletes": not self.over.keys().isdisjoint(together.partitions),
            "row order": self.policy.strategy != "binpack",
        }
        reasons = tuple(reason for reason, is_so in holds.items() if is_so)
        return self._candidate("all", reasons, [together], _all) if reasons else None

    def for_deletes(self, group: RewriteGroup) -> Candidate:
        """Data files with deletes, and the undersized files in the same partitions."""
        loads = [self.over[p] for p in group.partitions]
        mode: Mode = "vectors" if all(load.only_file_scoped for load in loads) else "deletes"
        reasons = tuple(dict.fromkeys(kind for load in loads for kind in load.kinds))
        return self._candidate(mode, reasons, [group], self._under_deletes)

    def by_size(self, together: RewriteGroup) -> Candidate | None:
        """Files of the wrong size in one rewrite group, if the procedure would take it."""
        target = self.facts.target_bytes
        candidate = self._candidate("size", (), [together], self._of_wrong_size)
        buckets = [b for group in together.groups for b in undersized_part(group, self.low).buckets]
        small = Totals.of_buckets(buckets)
        p = candidate.prediction
        merged = small.file_count - together.files_out(buckets, target)
        files = p.files_in
        large = files - small.file_count
        # Nobody knows how many files come of large ones whose rows go to another spec.
        is_split = large > 0 and together.has_exact_partition_count
        holds = {"small files": merged > 0, "oversized files": is_split}
        reasons = tuple(reason for reason, is_so in holds.items() if is_so)
        is_rewritten = p.bytes_in > self.high or (
            files > 1 and (files >= self.limits.min_input_files or p.bytes_in > target)
        )
        if not (reasons and is_rewritten):
            return None
        return replace(candidate, reasons=reasons)

    def _of_wrong_size(self, group: FileGroup) -> tuple[Bucket, ...]:
        large = oversized_part(group, self.high, self.facts.int_setting(ROW_GROUP))
        return (*undersized_part(group, self.low).buckets, *large.buckets)

    def _under_deletes(self, group: FileGroup) -> tuple[Bucket, ...]:
        files = max(self.over[group.partition].files, undersized_part(group, self.low).file_count)
        # The facts do not say which files have deletes, so their bytes are estimated from the mean.
        mean = round(group.mean_bytes)
        share = files / group.file_count
        rows = round(group.record_count * share)
        return (Bucket(0, files, round(group.size_in_bytes * share), rows, mean, mean),)

    def _candidate(
        self,
        mode: Mode,
        reasons: tuple[str, ...],
        rewrite_groups: Sequence[RewriteGroup],
        buckets_taken: Callable[[FileGroup], tuple[Bucket, ...]],
    ) -> Candidate:
        """The candidate of some rewrite groups; some files of each of their partitions are taken."""
        groups = [group for together in rewrite_groups for group in together.groups]
        taken_of = {group.partition: buckets_taken(group) for group in groups}
        loads = {p: self.over[p] for p in taken_of if p in self.over}
        # The bytes of the files without the deleted rows.
        live_bytes = {
            partition: tuple(
                replace(
                    b, size_in_bytes=round(b.size_in_bytes * (1 - loads[partition].deleted_share))
                )
                for b in buckets
            )
            if partition in loads
            else buckets
            for partition, buckets in taken_of.items()
        }
        total = Totals.of_buckets([b for buckets in taken_of.values() for b in buckets])
        files = total.file_count
        bytes_in = total.size_in_bytes
        out_of = [
            together.files_out(
                [b for p in together.partitions for b in live_bytes[p]], self.facts.target_bytes
            )
            for together in rewrite_groups
        ]
        out = sum(out_of)
        is_shuffled = mode == "spec" or self.policy.strategy != "binpack"
        prediction = Prediction(
            files,
            bytes_in,
            out,
            sum(b.size_in_bytes for buckets in live_bytes.values() for b in buckets),
            groups=1,
            shuffle_bytes=bytes_in if is_shuffled else 0,
            file_opens_saved=files - out + sum(load.opens for load in loads.values()),
            certainty=self._certainty(rewrite_groups, loads.values(), max(out_of)),
            rows_in=total.record_count,
        )
        return Candidate(tuple(taken_of), mode, reasons, prediction)

    def _certainty(
        self, rewrite_groups: Sequence[RewriteGroup], loads: Collection[DeleteLoad], most_out: int
    ) -> Certainty:
        """How certain the number of files is: only a group that becomes one file is, whose rows
        stay where they are.
        """
        are_certain = all(together.has_exact_partition_count for together in rewrite_groups)
        if not are_certain or any(load.is_least for load in loads):
            return Certainty.AT_MOST
        is_moved = any(together.has_older_specs for together in rewrite_groups)
        if most_out > 1 or is_moved or loads or self.policy.strategy != "binpack":
            return Certainty.ABOUT
        return Certainty.EXACT


def _all(group: FileGroup) -> tuple[Bucket, ...]:
    return group.buckets
