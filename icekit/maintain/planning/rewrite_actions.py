"""Make the action for a batch of candidates: its partitions, filter and options, fitted to the
cluster, and why.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from icekit.common import frozen
from icekit.common.units import count, size
from icekit.engine.cluster import Cluster
from icekit.health.diagnose.findings import Findings, Thresholds, threshold_options
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import sort_key
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.maintain.action import DANGLING, REWRITE_NOTHING, Action
from icekit.maintain.plan import Explained
from icekit.maintain.planning.candidates import Candidate, Mode, has_filter
from icekit.maintain.prediction import Prediction, total_of
from icekit.rows.rewrite.rewrite_order import RewriteOrder

_NAMES = 10
_LONGEST_FILTER = 20_000
_GIB = 2**30
# Iceberg's defaults, kept unless the cluster gives a reason to change them.
_GROUP_BYTES = 100 * _GIB
_COMMITS = 10
# Size of compressed columns as rows in a shuffle: the ratio SparkWriteConf assumes for zstd files.
_ROWS_PER_FILE_BYTES = 3

_WHY = {
    "size": "merges small files and splits large ones; others stay",
    "deletes": "delete-file-threshold=1 also takes well-sized files that a delete may apply to, "
    "which the default ignores",
    "vectors": "delete-ratio-threshold also takes well-sized files with enough deleted rows; it "
    "counts only deletes that name a single data file",
    "all": "rewrites every file of these partitions",
    "spec": "moves every file of these partitions into the current spec, so that its filters "
    "prune them; the rows are shuffled",
    "table": "rewrites every file of the table in one commit, because after a commit of some of "
    "them the deletes may no longer apply to the others",
}


def parallelism(
    cluster: Cluster,
    target_bytes: int,
    bytes_in: int,
    group_count: int,
    *,
    is_sorting: bool,
    is_whole: bool = False,
) -> Iterator[Explained]:
    """Options of ``rewrite_data_files`` for a cluster and the plan's sizes, each with its reason.

    ``is_whole`` is for rewrites of every file of a partition. Those keep the engine's largest
    group: only when all groups of a partition are done can a resumed run see which files are done,
    so it would rewrite a partition of several groups twice.
    """
    positive_group_count = max(group_count, 1)
    # Groups: enough at once that no core waits for the last task of another group.
    tasks_per_group = max(1, math.ceil(bytes_in / positive_group_count / target_bytes))
    concurrent_group_count = min(
        positive_group_count,
        max(1, math.ceil(2 * cluster.cores / tasks_per_group)),
        4 * cluster.cores,
    )
    yield Explained(
        "max-concurrent-file-group-rewrites",
        str(concurrent_group_count),
        f"{cluster.source}; a group has {count(tasks_per_group, 'task')} on average, so that "
        f"{count(concurrent_group_count, 'group')} at once can keep the cores busy",
    )
    if is_sorting:
        bytes_as_rows = target_bytes * _ROWS_PER_FILE_BYTES
        task_memory_bytes = cluster.executor.task_memory_bytes
        yield Explained(
            "shuffle-partitions-per-file",
            str(max(1, math.ceil(bytes_as_rows / task_memory_bytes))),
            f"a file of {size(target_bytes)} is about {size(bytes_as_rows)} of rows, and a task may use "
            f"{size(task_memory_bytes)}",
        )
    elif not is_whole:
        # A failure loses one group; small groups lose little, and still give every core a few
        # tasks.
        yield Explained(
            "max-file-group-size-bytes",
            str(min(_GROUP_BYTES, max(_GIB, 4 * cluster.cores * target_bytes))),
            f"limits what one failure costs: four files of {size(target_bytes)} for each of "
            f"{count(cluster.cores, 'core')}, at least 1 GiB",
        )
    yield Explained(
        "partial-progress.max-commits",
        str(min(_COMMITS, positive_group_count, max(2, math.ceil(bytes_in / _GIB)))),
        f"{count(positive_group_count, 'group')} of {size(bytes_in)}: finished groups are committed during the "
        "run, in at most this many snapshots (one per GiB, two to ten)",
    )


@frozen
class RewriteInputs:
    """What all rewrites of a plan share; ``parallel_options`` fit them to the cluster."""

    facts: TableFacts
    thresholds: Thresholds
    order: RewriteOrder
    parallel_options: Mapping[str, str]


def rewrite_action(
    inputs: RewriteInputs,
    action_id: str,
    batch: Sequence[Candidate],
    earlier_actions: Sequence[Action] = (),
) -> Action:
    """One rewrite of the partitions of similar candidates; its prediction is their sum, until the
    engine predicts it.

    An action that moves files of older specs leaves out the files of ``earlier_actions``.
    """
    facts = inputs.facts
    mode = batch[0].mode
    partitions = tuple(sorted((p for c in batch for p in c.partitions), key=sort_key))
    partition_filter = (
        facts.where(partitions) if mode != "table" and has_filter(facts, partitions) else None
    )
    excluded_rows_filter = (
        _excluded_rows_filter(inputs, partitions, earlier_actions) if mode == "spec" else None
    )
    candidates_by_saving = sorted(batch, key=lambda c: -c.prediction.file_opens_saved)
    return Action(
        action_id=action_id,
        procedure="rewrite_data_files",
        catalog=facts.catalog,
        table=facts.table,
        why=_why(inputs, batch, partitions),
        prediction=total_of(c.prediction for c in batch),
        partitions=partitions,
        partition_names=tuple(
            facts.partition_name(p) for c in candidates_by_saving for p in c.partitions
        )[:_NAMES],
        where=filter_without(partition_filter, excluded_rows_filter),
        unless=excluded_rows_filter,
        must_save=all(c.must_save for c in batch),
        order=inputs.order,
        options=_rewrite_options(inputs, mode),
        branch=facts.ref,
        misread_keys=facts.misread_keys if facts.equality_delete_partitions else (),
    )


def filter_without(filter_sql: str | None, excluded_sql: str | None) -> str | None:
    """A filter without the rows of another one."""
    if excluded_sql is None:
        return filter_sql
    without_excluded = f"NOT ({excluded_sql})"
    return without_excluded if filter_sql is None else f"({filter_sql}) AND {without_excluded}"


def _rewrite_options(inputs: RewriteInputs, mode: Mode) -> dict[str, str]:
    """The options of ``rewrite_data_files`` for candidates of a mode."""
    facts = inputs.facts
    thresholds = inputs.thresholds
    rewrite_options = {"partial-progress.enabled": "true", **inputs.parallel_options}
    if mode == "table":
        rewrite_options = {
            k: v for k, v in rewrite_options.items() if not k.startswith("partial-progress")
        }
    rewrite_options |= threshold_options(thresholds, facts.target_bytes)
    if mode in {"all", "spec", "table"}:
        rewrite_options["rewrite-all"] = "true"
    elif mode == "deletes":
        rewrite_options["delete-file-threshold"] = "1"
    elif mode == "vectors":
        rewrite_options["delete-ratio-threshold"] = f"{thresholds.delete_ratio:g}"
    # Any rewrite may take the last data file that a delete applies to.
    if facts.has_deletes:
        rewrite_options[DANGLING] = "true"
        if _renews_sequence_numbers(facts):
            rewrite_options["use-starting-sequence-number"] = "false"
    return rewrite_options


def _why(inputs: RewriteInputs, batch: Sequence[Candidate], partitions: Sequence[Partition]) -> str:
    """The findings that ask for a rewrite, and what it does about them."""
    mode = batch[0].mode
    order = inputs.order
    reasons = ", ".join(dict.fromkeys(r for c in batch for r in c.reasons))
    why = f"{reasons} in {count(len(partitions), 'partition')}: {_WHY[mode]}"
    if mode in {"all", "spec", "table"} and order.is_sorting:
        why += f", rows ordered by {order.sql or 'the sort order of the table'}"
    if mode not in {"spec", "table"} and any(
        p.spec_id != inputs.facts.default_spec_id for p in partitions
    ):
        why += (
            "; files of older specs go into the current one, and its files that hold matching "
            "rows are rewritten with them"
        )
    if inputs.facts.misread_keys and inputs.facts.equality_delete_partitions:
        why += (
            f". Spark's own reader misreads deletes by {', '.join(inputs.facts.misread_keys)}: "
            "queries show other rows than the specification says until this is done, and its own "
            "rewrite_data_files would make that permanent"
        )
    return why


def _excluded_rows_filter(
    inputs: RewriteInputs, partitions: Sequence[Partition], earlier_actions: Sequence[Action]
) -> str | None:
    """A filter for rows of the current spec's partitions, and of those of other specs that earlier
    actions move; None if there is none that is short.

    No filter selects the files of one spec. But a filter for what is *not* in these partitions
    skips their files, and takes files of older specs unless all their rows belong to them.
    """
    facts = inputs.facts
    current_partitions = [
        g.partition
        for g in facts.of_kind(Kind.DATA)
        if g.partition.spec_id == facts.default_spec_id
    ]
    moving_spec_ids = {p.spec_id for p in partitions}
    moved_partitions = [
        p
        for action in earlier_actions
        for p in action.partitions
        if p.spec_id not in moving_spec_ids
    ]
    excluded_partitions = [
        p for p in dict.fromkeys((*current_partitions, *moved_partitions)) if facts.is_filterable(p)
    ]
    excluded_rows_filter = facts.where(excluded_partitions) if excluded_partitions else None
    return (
        excluded_rows_filter
        if excluded_rows_filter is not None and len(excluded_rows_filter) <= _LONGEST_FILTER
        else None
    )


def dangling_deletes_action(
    facts: TableFacts, findings: Findings, actions: Sequence[Action]
) -> Action | None:
    """The action that drops delete files that apply to nothing, and rewrites nothing; None if
    another action does so anyway.
    """
    dangling_findings = [f for f in findings if f.name in {"dangling_deletes", "replaced_deletes"}]
    if (
        not dangling_findings
        or facts.dropped_fields_under_deletes
        or any(a.options.get(DANGLING) for a in actions)
    ):
        return None
    dropped_count = sum(
        unapplied_deletes.file_count
        for delete_state in (DeleteState.DANGLING, DeleteState.REPLACED)
        for unapplied_deletes in facts.unapplied_in(delete_state)
    )
    evidence_text = "; ".join(finding.evidence for finding in dangling_findings)
    return Action(
        "",
        "rewrite_data_files",
        facts.catalog,
        facts.table,
        f"{evidence_text}: drops those that a scan gives to no data file, and rewrites none",
        Prediction(delete_files_removed=dropped_count, source="metadata"),
        options={"partial-progress.enabled": "true", **REWRITE_NOTHING, DANGLING: "true"},
        branch=facts.ref,
    )


def _renews_sequence_numbers(facts: TableFacts) -> bool:
    """Whether rewritten files should get a new sequence number.

    By default they keep the sequence number of the snapshot that the rewrite starts from, so that
    equality deletes of a live stream still apply to them. Position deletes of that same snapshot
    that name no single file then also apply to them, according to the specification, and are never
    dropped: the rewrite would never be finished. A table without equality deletes does not need
    this.
    """
    return not facts.are_positions_scoped and not facts.equality_delete_partitions
