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

    ``data_file_count`` counts data files with at least one delete, ``delete_opens`` the pairs of a
    data file and a delete file that a full scan opens (an upper bound: the column bounds of delete
    files are ignored). ``deleted_share`` is the position delete records per data record, at most 1;
    where equality deletes apply, nobody knows how many rows they delete (``is_lower_bound``).
    ``is_file_scoped`` means that each delete names a single data file; ``delete-ratio-threshold``
    counts only such deletes.
    """

    data_file_count: int
    delete_opens: int
    deleted_share: float
    is_file_scoped: bool
    delete_kinds: tuple[str, ...]
    is_lower_bound: bool = False


def delete_loads(
    facts: TableFacts, min_delete_ratio: float = 0.0
) -> Mapping[Partition, DeleteLoad]:
    """The deletes of each partition where they make a rewrite worthwhile.

    Equality deletes always do, because each data file loads all that apply to it; other deletes do
    from ``min_delete_ratio`` delete records per data record on.
    """
    if not facts.has_deletes:
        return {}
    groups_by_partition: dict[Partition, dict[Kind, FileGroup]] = defaultdict(dict)
    for file_group in facts.groups:
        groups_by_partition[file_group.partition][file_group.kind] = file_group
    equality_by_partition = {a.partition: a for a in equality_deletes_applied(facts)}
    sequence_counts = sequences_by_partition(facts)
    loads_by_partition: dict[Partition, DeleteLoad] = {}
    for partition, groups_by_kind in groups_by_partition.items():
        data_group = groups_by_kind.get(Kind.DATA)
        if data_group is None or not data_group.record_count:
            continue
        equality_deletes = equality_by_partition.get(partition)
        delete_kinds = ["equality deletes"] if equality_deletes else []
        data_file_count = equality_deletes.data_file_count if equality_deletes else 0
        delete_opens = equality_deletes.file_opens if equality_deletes else 0
        deleted_share = 0.0
        is_file_scoped_load = equality_deletes is None
        for kind in (Kind.POSITION_DELETES, Kind.DELETION_VECTORS):
            delete_group = groups_by_kind.get(kind)
            if delete_group is None:
                continue
            reached_file_count = min(delete_group.file_count, data_group.file_count)
            file_pair_count = delete_group.file_count
            is_file_scoped_group = delete_group.file_scoped_count == delete_group.file_count
            if not is_file_scoped_group:
                reached_file_count, file_pair_count = _reached_by_positions(
                    sequence_counts.get(partition, ())
                )
            delete_opens += file_pair_count
            delete_ratio = delete_group.record_count / data_group.record_count
            if delete_ratio >= min_delete_ratio:
                delete_kinds.append(kind.value.replace("_", " "))
                deleted_share += delete_ratio
                is_file_scoped_load = is_file_scoped_load and is_file_scoped_group
                data_file_count = max(data_file_count, reached_file_count)
        if delete_kinds:
            loads_by_partition[partition] = DeleteLoad(
                data_file_count=data_file_count,
                delete_opens=delete_opens,
                deleted_share=min(deleted_share, 1.0),
                is_file_scoped=is_file_scoped_load,
                delete_kinds=tuple(delete_kinds),
                is_lower_bound=equality_deletes is not None,
            )
    return loads_by_partition


def _reached_by_positions(sequence_counts: Iterable[SequenceCounts]) -> tuple[int, int]:
    """The number of data files that at least one position delete file may apply to, by sequence
    number, and of pairs of a data file and such a delete file (table spec, "Scan Planning").
    """
    data_file_count = file_pair_count = later_delete_count = 0
    for counts in sorted(sequence_counts, key=lambda counts: -counts.sequence_number):
        later_delete_count += counts.position_delete_file_count
        data_file_count += counts.data_file_count if later_delete_count else 0
        file_pair_count += counts.data_file_count * later_delete_count
    return data_file_count, file_pair_count


def dropped_and_dangling_delete_count(
    facts: TableFacts, partitions: Iterable[Partition], sequence_number: int
) -> int:
    """How many delete files are dropped when every data file with deletes in these partitions is
    rewritten.

    ``sequence_number`` is that of the snapshot the rewrite starts from; rewritten files
    keep it (``use-starting-sequence-number``). Then deletes are dropped that apply to no live data
    file: equality deletes not above it, position deletes that name one file, others below it. A
    deletion vector is dropped with its data file. All dangling deletes of the table, and those that
    a vector replaces, are dropped, too.
    """
    rewritten_partitions = set(partitions)
    scoped_count_by_partition = {
        g.partition: g.file_scoped_count for g in facts.of_kind(Kind.POSITION_DELETES)
    }
    vector_count_by_partition = {
        g.partition: g.file_count for g in facts.of_kind(Kind.DELETION_VECTORS)
    }
    dropped_count = sum(
        vector_count
        for partition, vector_count in vector_count_by_partition.items()
        if partition in rewritten_partitions
    )
    for delete_state in (DeleteState.DANGLING, DeleteState.REPLACED):
        dropped_count += sum(
            unapplied_deletes.file_count for unapplied_deletes in facts.unapplied_in(delete_state)
        )
    # Those of new keys are not above the snapshot's sequence number either.
    data_partitions = {g.partition for g in facts.of_kind(Kind.DATA)}
    for unapplied_deletes in facts.unapplied_in(DeleteState.NEW_KEYS):
        reached_partitions = (
            data_partitions
            if facts.spec(unapplied_deletes.partition.spec_id).is_unpartitioned
            else {unapplied_deletes.partition}
        )
        dropped_count += (
            unapplied_deletes.file_count if reached_partitions <= rewritten_partitions else 0
        )
    counts_by_partition = sequences_by_partition(facts)
    oldest_sequence_by_partition = {
        partition: sequence_number
        if partition in rewritten_partitions
        else min(
            (counts.sequence_number for counts in sequence_counts if counts.data_file_count),
            default=sequence_number + 1,
        )
        for partition, sequence_counts in counts_by_partition.items()
    }
    for partition, sequence_counts in counts_by_partition.items():
        # Equality deletes of an unpartitioned spec apply to every partition.
        is_global = facts.spec(partition.spec_id).is_unpartitioned
        lowest_sequence = (
            min(oldest_sequence_by_partition.values())
            if is_global
            else oldest_sequence_by_partition[partition]
        )
        dropped_count += sum(
            counts.equality_delete_file_count
            for counts in sequence_counts
            if counts.sequence_number <= lowest_sequence
        )
        # SequenceCounts includes vectors among the position deletes; those were counted above.
        position_delete_count = sum(
            counts.position_delete_file_count for counts in sequence_counts
        ) - vector_count_by_partition.get(partition, 0)
        older_counts = [
            counts
            for counts in sequence_counts
            if counts.sequence_number < oldest_sequence_by_partition[partition]
        ]
        if (
            partition in rewritten_partitions
            and scoped_count_by_partition.get(partition, 0) == position_delete_count
        ):
            dropped_count += position_delete_count
        else:
            dropped_count += min(
                sum(counts.position_delete_file_count for counts in older_counts),
                position_delete_count,
            )
    return dropped_count


#: What a rewrite takes. ``size``: files of the wrong size. ``deletes``: also files with deletes
# that the default ignores. ``vectors``: also files that lost rows to deletes naming only them.
# ``all``: every file. ``spec``: every file of older specs, into the current one. ``table``: every
# file of the table, in one commit.
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
    policy_thresholds = thresholds_of(policy, thresholds)
    finding_names = findings.names
    if facts.dropped_fields_under_deletes:
        return (
            _CandidateFinder(
                facts, policy, policy_thresholds, delete_loads(facts)
            ).whole_table_candidate(),
        )
    loads_by_partition = (
        delete_loads(facts, policy_thresholds.delete_ratio)
        if _DELETE_FINDINGS & finding_names
        else {}
    )
    finder = _CandidateFinder(facts, policy, policy_thresholds, loads_by_partition)
    moves_old_specs = policy.old_specs and "old_partition_spec" in finding_names
    has_size_findings = bool({"small_files", "oversized_files"} & finding_names)
    older_groups: list[RewriteGroup] = []
    all_candidates: list[Candidate | None] = []
    for rewrite_group in rewrite_groups(facts):
        if rewrite_group.has_older_specs and moves_old_specs:
            older_groups.append(rewrite_group)
        elif policy.scope == "minor":
            groups_under_deletes = tuple(
                file_group
                for file_group in rewrite_group.groups
                if file_group.partition in loads_by_partition
            )
            other_groups = tuple(
                file_group
                for file_group in rewrite_group.groups
                if file_group.partition not in loads_by_partition
            )
            if groups_under_deletes:
                all_candidates.append(
                    finder.deletes_candidate(replace(rewrite_group, groups=groups_under_deletes))
                )
            if other_groups and has_size_findings:
                all_candidates.append(
                    finder.size_candidate(replace(rewrite_group, groups=other_groups))
                )
        elif not rewrite_group.has_older_specs:
            all_candidates.append(finder.whole_partition_candidate(rewrite_group))
    all_candidates += finder.moving_candidates(older_groups)
    worthwhile_candidates = [
        candidate
        for candidate in all_candidates
        if candidate is not None
        and (candidate.prediction.file_opens_saved > 0 or not candidate.must_save)
    ]
    return tuple(sorted(worthwhile_candidates, key=_rank_key))


def _rank_key(candidate: Candidate) -> tuple[float, int, tuple[object, ...]]:
    """Sorts the most file opens saved per byte first; moves to another spec last, in the order of
    their partitions, so that no move selects what an earlier one has written.
    """
    if candidate.mode == "spec":
        return math.inf, 0, sort_key(candidate.partitions[0])
    prediction = candidate.prediction
    opens_saved = prediction.file_opens_saved
    return (
        -opens_saved / max(prediction.bytes_in, 1),
        -opens_saved,
        sort_key(candidate.partitions[0]),
    )


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


def window_partitions(
    facts: TableFacts, policy: CompactionPolicy, now: dt.datetime
) -> frozenset[Partition] | None:
    """The partitions in the policy's time window; None when it sets no window.

    Raises :class:`~icekit.common.errors.ParameterError` for a table that is not partitioned by
    time.
    """
    if not (policy.since or policy.until or policy.skip_last_hours):
        return None
    window_end = policy.until
    if policy.skip_last_hours:
        latest_end = now - dt.timedelta(hours=policy.skip_last_hours)
        window_end = min(window_end, latest_end) if window_end else latest_end
    spans_by_partition = {
        p: partition_time_range(facts.spec(p.spec_id), p) for p in facts.partitions()
    }
    if spans_by_partition and not any(spans_by_partition.values()):
        raise ParameterError(
            f"{facts.name} is not partitioned by time, so since, until and skip_last cannot "
            "select partitions. Leave them out, or use a budget."
        )
    return frozenset(
        p
        for p, time_span in spans_by_partition.items()
        if time_span is not None
        and (policy.since is None or time_span[0] >= policy.since)
        and (window_end is None or time_span[1] <= window_end)
    )


class _CandidateFinder:
    """Makes the candidates of a table; ``loads_by_partition`` are the deletes that make a rewrite
    worthwhile.
    """

    def __init__(
        self,
        facts: TableFacts,
        policy: CompactionPolicy,
        thresholds: Thresholds,
        loads_by_partition: Mapping[Partition, DeleteLoad],
    ) -> None:
        self.facts = facts
        self.policy = policy
        self.thresholds = thresholds
        self.loads_by_partition = loads_by_partition
        self.min_bytes = min_file_size(facts.target_bytes, thresholds.min_file_size_ratio)
        self.max_bytes = max_file_size(facts.target_bytes, thresholds.max_file_size_ratio)

    def whole_table_candidate(self) -> Candidate:
        """All data files: some of them cannot be rewritten without changing which deletes apply to
        the others.
        """
        all_data_files = RewriteGroup(tuple(self.facts.of_kind(Kind.DATA)))
        reasons = ("deletes of partitions whose column was dropped",)
        return self._candidate("table", reasons, [all_data_files], _all_buckets)

    def moving_candidates(self, older_groups: Sequence[RewriteGroup]) -> list[Candidate]:
        """Every file of older specs, partition by partition; all together where a filter for one of
        the partitions would also select what was moved before.
        """
        facts = self.facts
        group_batches = [older_groups]
        partitions = [p for rewrite_group in older_groups for p in rewrite_group.partitions]
        spec_ids = {p.spec_id for p in partitions}
        if has_filter(facts, partitions) and all(
            is_separable_by_filter(facts.spec(spec_id), facts.default_spec) for spec_id in spec_ids
        ):
            group_batches = [
                [replace(rewrite_group, groups=(file_group,))]
                for rewrite_group in older_groups
                for file_group in rewrite_group.groups
            ]
        reasons = ("an older partition spec",)
        return [
            self._candidate("spec", reasons, group_batch, _all_buckets)
            for group_batch in group_batches
        ]

    def whole_partition_candidate(self, rewrite_group: RewriteGroup) -> Candidate | None:
        """Every file of a partition. A binpack that changes nothing is no candidate; a sort always
        is.
        """
        applies_by_reason = {
            "files of the wrong size": any(
                self._wrong_size_buckets(file_group) for file_group in rewrite_group.groups
            ),
            "deletes": not self.loads_by_partition.keys().isdisjoint(rewrite_group.partitions),
            "row order": self.policy.strategy != "binpack",
        }
        reasons = tuple(reason for reason, applies in applies_by_reason.items() if applies)
        return self._candidate("all", reasons, [rewrite_group], _all_buckets) if reasons else None

    def deletes_candidate(self, rewrite_group: RewriteGroup) -> Candidate:
        """Data files with deletes, and the undersized files in the same partitions."""
        loads = [self.loads_by_partition[p] for p in rewrite_group.partitions]
        mode: Mode = "vectors" if all(load.is_file_scoped for load in loads) else "deletes"
        reasons = tuple(
            dict.fromkeys(delete_kind for load in loads for delete_kind in load.delete_kinds)
        )
        return self._candidate(mode, reasons, [rewrite_group], self._buckets_under_deletes)

    def size_candidate(self, rewrite_group: RewriteGroup) -> Candidate | None:
        """Files of the wrong size in one rewrite group, if the procedure would take it."""
        target_bytes = self.facts.target_bytes
        candidate = self._candidate("size", (), [rewrite_group], self._wrong_size_buckets)
        small_buckets = [
            b
            for file_group in rewrite_group.groups
            for b in undersized_part(file_group, self.min_bytes).buckets
        ]
        small_totals = Totals.of_buckets(small_buckets)
        prediction = candidate.prediction
        saved_file_count = small_totals.file_count - rewrite_group.files_out(
            small_buckets, target_bytes
        )
        file_count = prediction.files_in
        large_file_count = file_count - small_totals.file_count
        # Nobody knows how many files come of large ones whose rows go to another spec.
        is_split = large_file_count > 0 and rewrite_group.has_exact_partition_count
        applies_by_reason = {"small files": saved_file_count > 0, "oversized files": is_split}
        reasons = tuple(reason for reason, applies in applies_by_reason.items() if applies)
        is_rewritten = prediction.bytes_in > self.max_bytes or (
            file_count > 1
            and (
                file_count >= self.thresholds.min_input_files or prediction.bytes_in > target_bytes
            )
        )
        if not (reasons and is_rewritten):
            return None
        return replace(candidate, reasons=reasons)

    def _wrong_size_buckets(self, file_group: FileGroup) -> tuple[Bucket, ...]:
        oversized_group = oversized_part(
            file_group, self.max_bytes, self.facts.int_setting(ROW_GROUP)
        )
        return (*undersized_part(file_group, self.min_bytes).buckets, *oversized_group.buckets)

    def _buckets_under_deletes(self, file_group: FileGroup) -> tuple[Bucket, ...]:
        taken_file_count = max(
            self.loads_by_partition[file_group.partition].data_file_count,
            undersized_part(file_group, self.min_bytes).file_count,
        )
        # The facts do not say which files have deletes, so their bytes are estimated from the mean.
        mean_bytes = round(file_group.mean_bytes)
        taken_share = taken_file_count / file_group.file_count
        taken_rows = round(file_group.record_count * taken_share)
        taken_bytes = round(file_group.size_in_bytes * taken_share)
        return (Bucket(0, taken_file_count, taken_bytes, taken_rows, mean_bytes, mean_bytes),)

    def _candidate(
        self,
        mode: Mode,
        reasons: tuple[str, ...],
        rewrite_groups: Sequence[RewriteGroup],
        select_buckets: Callable[[FileGroup], tuple[Bucket, ...]],
    ) -> Candidate:
        """The candidate of some rewrite groups; ``select_buckets`` gives the files it takes."""
        file_groups = [
            file_group for rewrite_group in rewrite_groups for file_group in rewrite_group.groups
        ]
        buckets_by_partition = {
            file_group.partition: select_buckets(file_group) for file_group in file_groups
        }
        loads_by_partition = {
            p: self.loads_by_partition[p]
            for p in buckets_by_partition
            if p in self.loads_by_partition
        }
        # The bytes of the files without the deleted rows.
        live_buckets = {
            partition: tuple(
                replace(
                    b,
                    size_in_bytes=round(
                        b.size_in_bytes * (1 - loads_by_partition[partition].deleted_share)
                    ),
                )
                for b in buckets
            )
            if partition in loads_by_partition
            else buckets
            for partition, buckets in buckets_by_partition.items()
        }
        bucket_totals = Totals.of_buckets(
            [b for buckets in buckets_by_partition.values() for b in buckets]
        )
        files_in = bucket_totals.file_count
        bytes_in = bucket_totals.size_in_bytes
        files_out_counts = [
            rewrite_group.files_out(
                [b for p in rewrite_group.partitions for b in live_buckets[p]],
                self.facts.target_bytes,
            )
            for rewrite_group in rewrite_groups
        ]
        files_out = sum(files_out_counts)
        delete_opens = sum(load.delete_opens for load in loads_by_partition.values())
        is_shuffled = mode == "spec" or self.policy.strategy != "binpack"
        prediction = Prediction(
            files_in,
            bytes_in,
            files_out,
            sum(b.size_in_bytes for buckets in live_buckets.values() for b in buckets),
            groups=1,
            shuffle_bytes=bytes_in if is_shuffled else 0,
            file_opens_saved=files_in - files_out + delete_opens,
            certainty=self._certainty(
                rewrite_groups, loads_by_partition.values(), max(files_out_counts)
            ),
            rows_in=bucket_totals.record_count,
        )
        return Candidate(tuple(buckets_by_partition), mode, reasons, prediction)

    def _certainty(
        self,
        rewrite_groups: Sequence[RewriteGroup],
        loads: Collection[DeleteLoad],
        max_files_out: int,
    ) -> Certainty:
        """How certain the number of files is: only a group that becomes one file is, whose rows
        stay where they are.
        """
        has_exact_partitions = all(
            rewrite_group.has_exact_partition_count for rewrite_group in rewrite_groups
        )
        if not has_exact_partitions or any(load.is_lower_bound for load in loads):
            return Certainty.AT_MOST
        changes_spec = any(rewrite_group.has_older_specs for rewrite_group in rewrite_groups)
        if max_files_out > 1 or changes_spec or loads or self.policy.strategy != "binpack":
            return Certainty.ABOUT
        return Certainty.EXACT


def _all_buckets(file_group: FileGroup) -> tuple[Bucket, ...]:
    return file_group.buckets
