"""Put candidates into actions: the partitions, the filter and the options of one rewrite, fitted to the cluster, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from icekit.compact.candidates import Candidate, expected_files
from icekit.compact.model import REWRITE_NOTHING, Action, Explained, Order, Prediction
from icekit.compact.policy import Policy
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.cluster import Cluster
from icekit.facts.files import Kind, Partition
from icekit.facts.model import TableFacts
from icekit.facts.rollup import sort_key
from icekit.facts.sizes import max_file_size, min_file_size
from icekit.facts.where import where
from icekit.units import count, size

_NAMES = 10
_LONGEST_FILTER = 20_000
_GIB = 2**30
# Iceberg's defaults, which are kept where the cluster gives no reason to leave them.
_GROUP_BYTES = 100 * _GIB
_COMMITS = 10
# What compressed columns take as rows in a shuffle: the ratio SparkWriteConf assumes for zstd files.
_ROWS_PER_FILE_BYTES = 3

_WHY = {
    "size": "files of the wrong size are combined or split; well-sized ones stay as they are",
    "deletes": "delete-file-threshold=1 also takes well-sized files that a delete may apply to, which the default ignores",
    "vectors": "delete-ratio-threshold takes files that lost a noticeable share of their rows to deletes naming only them",
    "all": "every file of these partitions is rewritten",
}


def parallelism(
    cluster: Cluster, target_bytes: int, bytes_in: int, group_count: int, *, sorting: bool, whole: bool = False
) -> tuple[Mapping[str, str], tuple[Explained, ...]]:
    """Options of ``rewrite_data_files`` for a cluster and the plan's sizes, each with its reason.

    ``whole`` is for rewrites of every file of a partition. Those keep the engine's largest
    group: which files of a partition are done only shows when all are, so that a resumed run
    would take a partition of several groups twice.
    """
    options: dict[str, str] = {}
    said: list[Explained] = []

    def choose(name: str, value: int, why: str) -> None:
        options[name] = str(value)
        said.append(Explained(name, str(value), why))

    # Groups: enough at once that no core waits for the last task of another group.
    tasks_per_group = max(1, math.ceil(bytes_in / max(group_count, 1) / target_bytes))
    at_once = min(max(group_count, 1), max(1, math.ceil(2 * cluster.cores / tasks_per_group)), 4 * cluster.cores)
    choose(
        "max-concurrent-file-group-rewrites",
        at_once,
        f"{cluster.source}; a group is {count(tasks_per_group, 'task')} on average, so {count(at_once, 'group')} keep the cores busy while others begin and commit",
    )
    if not sorting and not whole:
        # A group is what is lost when it fails; small ones lose little, and still give every core a few tasks.
        group = min(_GROUP_BYTES, max(_GIB, 4 * cluster.cores * target_bytes))
        choose(
            "max-file-group-size-bytes",
            group,
            f"what one failure costs: four files of {size(target_bytes)} for each of {count(cluster.cores, 'core')}, at least 1 GiB",
        )
    elif sorting:
        rows = target_bytes * _ROWS_PER_FILE_BYTES
        per_file = max(1, math.ceil(rows / cluster.task_memory_bytes))
        choose(
            "shuffle-partitions-per-file",
            per_file,
            f"a file of {size(target_bytes)} is about {size(rows)} of rows, and a task may use {size(cluster.task_memory_bytes)}",
        )
    commits = max(1, min(_COMMITS, group_count))
    choose(
        "partial-progress.max-commits",
        commits,
        f"{count(max(group_count, 1), 'group')}: what is done is committed as it goes, in at most so many snapshots",
    )
    return options, tuple(said)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What all rewrites of a plan share; ``parallel`` are the options that fit them to the cluster."""

    facts: TableFacts
    limits: Thresholds
    policy: Policy
    order: Order
    parallel: Mapping[str, str]


def rewrite_action(shared: Rewriting, action_id: str, batch: Sequence[Candidate]) -> Action:
    """One rewrite of the partitions of candidates that are alike; its prediction is their sum, until the engine is asked."""
    facts, order = shared.facts, shared.order
    mode = batch[0].mode
    partitions = tuple(sorted((p for c in batch for p in c.partitions), key=sort_key))
    options = {"partial-progress.enabled": "true", **shared.parallel, **_limits(shared)}
    if mode == "all":
        options["rewrite-all"] = "true"
    elif mode == "deletes":
        options["delete-file-threshold"] = "1"
    elif mode == "vectors":
        options["delete-ratio-threshold"] = f"{shared.policy.delete_ratio:g}"
    if mode != "size" and facts.has_deletes and not _has_global_deletes(facts):
        options["remove-dangling-deletes"] = "true"
        if _renews(facts):
            options["use-starting-sequence-number"] = "false"
    specs = {spec.spec_id: spec for spec in facts.specs}
    reasons = ", ".join(dict.fromkeys(r for c in batch for r in c.reasons))
    files_in, bytes_in = sum(c.files_in for c in batch), sum(c.bytes_in for c in batch)
    why = f"{reasons} in {count(len(partitions), 'partition')}: {_WHY[mode]}"
    if mode == "all" and order.is_sorting:
        why += f", its rows ordered by {order.sql or 'the sort order of the table'}"
    if any(p.spec_id != facts.default_spec_id for p in partitions):
        why += "; files of older specs share groups, and files of the current spec that hold such rows come with them"
    worst = sorted((c for c in batch), key=lambda c: -c.file_opens_saved)
    return Action(
        action_id,
        "rewrite_data_files",
        facts.catalog,
        facts.table,
        why,
        Prediction(
            files_in,
            bytes_in,
            sum(c.files_out for c in batch),
            sum(c.bytes_out for c in batch),
            groups=len(batch),
            shuffle_bytes=bytes_in if order.is_sorting else 0,
            file_opens_saved=sum(c.file_opens_saved for c in batch),
        ),
        partitions,
        partition_names=tuple(partition_name(facts, p) for c in worst for p in c.partitions)[:_NAMES],
        where=where(facts.catalog, specs, facts.columns, partitions),
        order=order,
        options=options,
        branch=facts.ref,
    )


def move_old_specs(shared: Rewriting, findings: Findings) -> Action | None:
    """Move files of older specs into the current one.

    No filter tells a file's spec. But one for all that is *not* in the partitions the current
    spec has leaves files of the current spec alone, and takes files of older ones unless all
    their rows belong to those partitions.
    """
    facts = shared.facts
    old = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id != facts.default_spec_id]
    if not shared.policy.old_specs or not old or "old_partition_spec" not in findings.names:
        return None
    current = [g.partition for g in facts.of_kind(Kind.DATA) if g.partition.spec_id == facts.default_spec_id]
    specs = {spec.spec_id: spec for spec in facts.specs}
    held = where(facts.catalog, specs, facts.columns, current) if current else "false"
    if held is None or len(held) > _LONGEST_FILTER:
        return None
    files, total = sum(g.file_count for g in old), sum(g.size_in_bytes for g in old)
    out = sum(expected_files(g.size_in_bytes, facts.target_bytes) for g in old)
    partitions = tuple(sorted((g.partition for g in old), key=sort_key))
    return Action(
        "",
        "rewrite_data_files",
        facts.catalog,
        facts.table,
        f"{count(files, 'file')} of older partition specs are moved into the current one, so that its filters prune them; they share groups, and so are shuffled",
        Prediction(files, total, out, total, groups=1, shuffle_bytes=total, file_opens_saved=max(files - out, 0)),
        partitions,
        partition_names=tuple(partition_name(facts, p) for p in partitions[:_NAMES]),
        where=f"NOT ({held})" if current else None,
        order=shared.order,
        options={"partial-progress.enabled": "true", **shared.parallel, "rewrite-all": "true"},
        branch=facts.ref,
    )


def drop_dangling(facts: TableFacts, findings: Findings, actions: Sequence[Action]) -> Action | None:
    """Drop delete files that apply to nothing, and rewrite nothing; None where another action does so anyway."""
    if (
        "dangling_deletes" not in findings.names
        or _has_global_deletes(facts)
        or any(a.options.get("remove-dangling-deletes") for a in actions)
    ):
        return None
    found = next(f for f in findings if f.name == "dangling_deletes")
    return Action(
        "",
        "rewrite_data_files",
        facts.catalog,
        facts.table,
        f"{found.evidence}: they are dropped, and no data file is rewritten",
        Prediction(delete_files_removed=found.files_at_stake, source="metadata"),
        options={"partial-progress.enabled": "true", **REWRITE_NOTHING, "remove-dangling-deletes": "true"},
        branch=facts.ref,
    )


def _has_global_deletes(facts: TableFacts) -> bool:
    """Tell whether equality deletes of an unpartitioned spec hang over partitions of another.

    Engines before 1.12 judge them by their own partition alone, and would drop them while they
    still apply; they stay until they are resolved.
    """
    return len(facts.specs) > 1 and any(facts.spec(g.partition.spec_id).is_unpartitioned for g in facts.of_kind(Kind.EQUALITY_DELETES))


def _renews(facts: TableFacts) -> bool:
    """Tell whether rewritten files should get a sequence number of their own.

    By default they keep that of the snapshot the rewrite began from, so that equality deletes
    of a live stream still apply to them. Position deletes of that very snapshot that name no
    single file then apply to them as well, by the rule, and are neither dropped nor ever
    finished with. A table without equality deletes needs no such care.
    """
    scoped = all(g.file_scoped_count == g.file_count for g in facts.of_kind(Kind.POSITION_DELETES))
    return not scoped and not facts.of_kind(Kind.EQUALITY_DELETES)


def _limits(shared: Rewriting) -> dict[str, str]:
    """The size limits as options, where they are not the procedure's own."""
    default, changed = Thresholds(), {}
    limits, target_bytes = shared.limits, shared.facts.target_bytes
    if shared.policy.min_files != default.min_input_files:
        changed["min-input-files"] = str(shared.policy.min_files)
    if limits.min_file_size_ratio != default.min_file_size_ratio:
        changed["min-file-size-bytes"] = str(min_file_size(target_bytes, limits.min_file_size_ratio))
    if limits.max_file_size_ratio != default.max_file_size_ratio:
        changed["max-file-size-bytes"] = str(max_file_size(target_bytes, limits.max_file_size_ratio))
    return changed


def partition_name(facts: TableFacts, partition: Partition) -> str:
    """A partition as people read it; the whole of an unpartitioned table has no name."""
    return facts.partition_path(partition) or "(unpartitioned)"
