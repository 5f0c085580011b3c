"""Find what snapshots hold for their writers: how far a streaming writer has committed, and writes
that were staged and never published; pure.

A writer that is restarted looks for its own state in the summaries of snapshots: from the head of
its branch back through the parents, to the first that has it. The walk ends at the first parent
that is gone, so the state is lost as soon as any snapshot between is.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.iceberg.metadata import Json, lineage, snapshots_by_id, summary_of
from icekit.iceberg.snapshots import StagedWrite, WriterState

_WAP_ID = "wap.id"
_PUBLISHED_WAP_ID = "published-wap-id"
_SOURCE_SNAPSHOT_ID = "source-snapshot-id"
_REPLACE_PARTITIONS = "replace-partitions"


@frozen
class WriterKeys:
    """The summary keys in which one kind of writer keeps its state.

    ``state_key`` has the state; one that ends with a dot is the beginning of a key, and the rest of
    it tells jobs apart. Otherwise the values of ``job_keys`` do, or the member ``job_member`` of a
    state that is JSON. A writer whose state ``is_snapshot_id`` walks back to that snapshot, too,
    from the head of the branch that it reads. ``job_noun`` and ``state_noun`` are what these are
    called; ``code_reference`` is where the writer's own code reads them.
    """

    writer: str
    state_key: str
    state_noun: str
    code_reference: str
    job_noun: str = ""
    job_keys: tuple[str, ...] = ()
    job_member: str | None = None
    is_snapshot_id: bool = False


#: The writers whose state an expiry keeps.
WRITERS = (
    WriterKeys(
        "Flink",
        "flink.max-committed-checkpoint-id",
        "checkpoint",
        "Iceberg: SinkUtil and DynamicCommitter (getMaxCommittedCheckpointId)",
        job_noun="job",
        job_keys=("flink.job-id", "flink.operator-id"),
    ),
    WriterKeys(
        "Flink",
        "equality-convert-staging-snapshot",
        "staging snapshot",
        "Iceberg: EqualityConvertPlanner (discoverLastCommittedWork, nextUnprocessedStagingSnapshot)",
        job_noun="conversion of equality deletes",
        is_snapshot_id=True,
    ),
    WriterKeys(
        "Kafka Connect",
        "kafka.connect.offsets.",
        "offsets",
        "Iceberg: Coordinator (lastCommittedOffsetsForTable); Tabular's sink before it",
    ),
    WriterKeys(
        "Spark",
        "spark.sql.streaming.epochId",
        "epoch",
        "Iceberg: SparkWrite (findLastCommittedEpochId)",
        job_noun="query",
        job_keys=("spark.sql.streaming.queryId",),
    ),
    WriterKeys(
        "Beam",
        "beam.cdc.committed-through-ms.",
        "committed through",
        "Beam: CommitToken (recoverFrom)",
        job_noun="sink",
    ),
    WriterKeys(
        "Redpanda",
        "redpanda.commit-metadata",
        "commit",
        "Redpanda: iceberg_file_committer (get_iceberg_committed_offset)",
        job_noun="cluster",
        job_member="cluster",
    ),
    WriterKeys(
        "Materialize",
        "mz-frontier",
        "frontier",
        "Materialize: sink/iceberg.rs (retrieve_upper_from_snapshots)",
        job_noun="sink",
        job_keys=("mz-sink-id",),
    ),
    WriterKeys(
        "Fluss",
        "fluss-offsets",
        "offsets",
        "Fluss: IcebergLakeCommitter (getMissingLakeSnapshot)",
        job_noun="tiering",
        job_keys=("commit-user",),
    ),
)
#: How a person names the keys of another writer.
KEY_FORM = '"KEY", "KEY by JOB_KEY", or the beginning of a key that ends with a dot'


@cache
def stated_keys(key_texts: tuple[str, ...]) -> tuple[WriterKeys, ...]:
    """The keys of other writers, as a person names them: ``my.offset``, ``my.offset by my.job``,
    ``my.offset.`` (the rest of the key tells jobs apart).

    Raises :class:`~icekit.common.errors.ParameterError` for another form.
    """
    stated_writer_keys = []
    for key_text in key_texts:
        match key_text.split():
            case [key]:
                stated_writer_keys.append(WriterKeys(key.rstrip("."), key, "state", "an option"))
            case [key, "by", job_key] if not key.endswith("."):
                stated_writer_keys.append(
                    WriterKeys(key, key, "state", "an option", job_keys=(job_key,))
                )
            case _:
                raise ParameterError(f"{key_text!r} names no key of a writer; use {KEY_FORM}.")
    return tuple(stated_writer_keys)


# The key of a state, and what tells its job from others.
_Job = tuple[str, tuple[str, ...]]


@frozen
class _JobState:
    """The state that one snapshot carries for one job; ``job`` is equal for those of the same."""

    keys: WriterKeys
    job_ids: tuple[str, ...]
    value: str

    @property
    def job(self) -> _Job:
        return self.keys.state_key, self.job_ids

    @property
    def named_snapshot_id(self) -> int | None:
        """The snapshot that the state names, if it names one."""
        return int(self.value) if self.keys.is_snapshot_id and self.value.isdecimal() else None


class Lineages:
    """The lineages of all branches, in which each snapshot is once.

    A branch has a chain of snapshots from its head to the first that is in the chain of another
    branch, where it goes on. So what a branch leads to is a few ranges of chains, however many
    snapshots there are. A position is the index of a chain and an index in it.
    """

    def __init__(self, metadata: Json) -> None:
        snapshots = snapshots_by_id(metadata)
        self.chains: list[list[int]] = []
        self._next_positions: list[tuple[int, int] | None] = []
        self._chain_of_branch: dict[str, int] = {}
        self._positions: dict[int | None, tuple[int, int]] = {}
        # Main first: what it shares with other branches is in its chain.
        branch_refs = branches_of(metadata)
        for branch_name in sorted(branch_refs, key=lambda name: (name != "main", name)):
            chain: list[int] = []
            junction_position: tuple[int, int] | None = None
            for snapshot in lineage(
                snapshots, snapshots.get(branch_refs[branch_name]["snapshot-id"])
            ):
                junction_position = self._positions.get(snapshot["snapshot-id"])
                if junction_position is not None:
                    break
                chain.append(snapshot["snapshot-id"])
            chain_index = len(self.chains)
            for index, snapshot_id in enumerate(chain):
                self._positions[snapshot_id] = chain_index, index
            self._chain_of_branch[branch_name] = chain_index
            self.chains.append(chain)
            self._next_positions.append(junction_position)

    @property
    def branches(self) -> list[str]:
        """The branches, main first."""
        return list(self._chain_of_branch)

    def ranges(self, branch: str, end_snapshot_id: int | None = None) -> list[LineageRange]:
        """The ranges of chains from the head of a branch back to a snapshot, which is included, or
        to the end; empty if the branch does not lead to it.
        """
        end_position = self._positions.get(end_snapshot_id)
        branch_ranges: list[LineageRange] = []
        position: tuple[int, int] | None = self._chain_of_branch[branch], 0
        while position is not None:
            chain_index, start = position
            if (
                end_position is not None
                and end_position[0] == chain_index
                and end_position[1] >= start
            ):
                return [*branch_ranges, LineageRange(chain_index, start, end_position[1] + 1)]
            branch_ranges.append(LineageRange(chain_index, start, len(self.chains[chain_index])))
            position = self._next_positions[chain_index]
        return branch_ranges if end_snapshot_id is None else []

    def snapshot_ids(self, ranges: Iterable[LineageRange]) -> set[int]:
        """The snapshots of some ranges."""
        stop_by_start: dict[tuple[int, int], int] = {}
        for snapshot_range in ranges:
            range_start = snapshot_range.chain_index, snapshot_range.start
            stop_by_start[range_start] = max(snapshot_range.stop, stop_by_start.get(range_start, 0))
        snapshot_ids = set[int]()
        for (chain_index, start_index), stop_index in stop_by_start.items():
            snapshot_ids.update(self.chains[chain_index][start_index:stop_index])
        return snapshot_ids


class LineageRange(NamedTuple):
    """Some snapshots of a chain: from index ``start`` to before ``stop``."""

    chain_index: int
    start: int
    stop: int


class Tally:
    """How many snapshots of ranges are in a set, each answer from sums that are made once."""

    def __init__(self, lineages: Lineages, snapshot_ids: Collection[int]) -> None:
        self._sums = [
            [0, *accumulate(snapshot_id in snapshot_ids for snapshot_id in chain)]
            for chain in lineages.chains
        ]

    def count(self, ranges: Iterable[LineageRange]) -> int:
        """How many of the snapshots are in the ranges, which do not overlap."""
        return sum(
            self._sums[chain_index][stop_index] - self._sums[chain_index][start_index]
            for chain_index, start_index, stop_index in ranges
        )


class WriterLog:
    """What the snapshots of a table carry for their writers, read once, although each length of
    silence gives other states; ``other_writer_keys`` are those of writers that icekit does not
    know.
    """

    def __init__(self, metadata: Json, other_writer_keys: Sequence[WriterKeys] = ()) -> None:
        self._metadata = metadata
        self._snapshots = snapshots_by_id(metadata)
        #: By job and chain, the indexes of the snapshots that carry a state.
        self._indexes: dict[_Job, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._states_by_job: dict[tuple[_Job, int], _JobState] = {}
        states_by_snapshot = _job_states(metadata, (*WRITERS, *other_writer_keys))
        # A table without any state need not have lineages that can be followed.
        for chain_index, snapshot_ids in enumerate(
            self.lineages.chains if states_by_snapshot else ()
        ):
            for snapshot_index, snapshot_id in enumerate(snapshot_ids):
                for job_state in states_by_snapshot.get(snapshot_id, ()):
                    self._indexes[job_state.job][chain_index].append(snapshot_index)
                    self._states_by_job.setdefault((job_state.job, snapshot_id), job_state)

    @cached_property
    def lineages(self) -> Lineages:
        """The lineages of all branches."""
        return Lineages(self._metadata)

    def states(self, *, most_silent_ms: float = math.inf) -> tuple[WriterState, ...]:
        """The newest state of each job on each branch, newest first.

        A job that writes to several branches looks for its state on each. A state that is the
        newest of its job on several branches is one, apart from branches on which the job has been
        silent for more than ``most_silent_ms``.
        """
        if not self._states_by_job:
            return ()
        lineages = self.lineages
        snapshots = self._snapshots
        branches_by_state: dict[tuple[_Job, int, bool], list[str]] = defaultdict(list)
        last_write_by_branch = {
            branch: _last_write_ms(lineages, snapshots, branch) for branch in lineages.branches
        }
        for branch in lineages.branches:
            branch_ranges = lineages.ranges(branch)
            for job, indexes_by_chain in self._indexes.items():
                newest_id = _newest_snapshot(lineages, branch_ranges, indexes_by_chain)
                if newest_id is not None:
                    silent_ms = last_write_by_branch[branch] - snapshots[newest_id]["timestamp-ms"]
                    branches_by_state[job, newest_id, silent_ms > most_silent_ms].append(branch)
        writer_states = []
        for (job, snapshot_id, _), branches in branches_by_state.items():
            job_state = self._states_by_job[job, snapshot_id]
            committed_ms: int = snapshots[snapshot_id]["timestamp-ms"]
            writer_keys = job_state.keys
            writer_states.append(
                WriterState(
                    writer=writer_keys.writer,
                    job=" ".join(filter(None, (writer_keys.job_noun, *job_state.job_ids[:1]))),
                    ids=job_state.job_ids,
                    state=f"{writer_keys.state_noun} {job_state.value}",
                    branches=tuple(branches),
                    snapshot_id=snapshot_id,
                    committed_ms=committed_ms,
                    silent_ms=max(
                        0, min(last_write_by_branch[branch] for branch in branches) - committed_ms
                    ),
                    read_to_id=job_state.named_snapshot_id,
                )
            )
        return tuple(sorted(writer_states, key=lambda state: (-state.committed_ms, state.text)))


def _newest_snapshot(
    lineages: Lineages,
    branch_ranges: Sequence[LineageRange],
    indexes_by_chain: Mapping[int, list[int]],
) -> int | None:
    """The first snapshot of some ranges that is at one of the indexes, which are in order."""
    for chain_index, start_index, stop_index in branch_ranges:
        chain_indexes = indexes_by_chain.get(chain_index, [])
        list_position = bisect_left(chain_indexes, start_index)
        if list_position < len(chain_indexes) and chain_indexes[list_position] < stop_index:
            return lineages.chains[chain_index][chain_indexes[list_position]]
    return None


def _last_write_ms(lineages: Lineages, snapshots: Mapping[int | None, Json], branch: str) -> int:
    """When somebody last wrote to a branch: maintenance goes on also where no writer does."""
    for chain_index, start_index, stop_index in lineages.ranges(branch):
        for snapshot_id in lineages.chains[chain_index][start_index:stop_index]:
            if summary_of(snapshots[snapshot_id]).get("operation") != "replace":
                commit_ms: int = snapshots[snapshot_id]["timestamp-ms"]
                return commit_ms
    return 0


def _job_states(metadata: Json, all_keys: Sequence[WriterKeys]) -> dict[int, list[_JobState]]:
    """What each snapshot carries, by its id; only snapshots that carry something."""
    # By a key that somebody states again, jobs are told apart in both ways: both states stay.
    keys_by_exact_key: dict[str, list[WriterKeys]] = defaultdict(list)
    keys_by_prefix: dict[str, WriterKeys] = {}
    for writer_keys in all_keys:
        if writer_keys.state_key.endswith("."):
            keys_by_prefix.setdefault(writer_keys.state_key, writer_keys)
        else:
            keys_by_exact_key[writer_keys.state_key].append(writer_keys)
    prefixes = tuple(keys_by_prefix)
    states_by_snapshot: dict[int, list[_JobState]] = {}
    for snapshot in metadata.get("snapshots") or ():
        summary = summary_of(snapshot)
        job_states: list[_JobState] = []
        for key, state_value in summary.items():
            if key in keys_by_exact_key:
                job_states += [
                    _JobState(writer_keys, _job_ids(writer_keys, summary), state_value)
                    for writer_keys in keys_by_exact_key[key]
                ]
            elif key.startswith(prefixes):
                job_states += [
                    _JobState(writer_keys, (key.removeprefix(prefix),), state_value)
                    for prefix, writer_keys in keys_by_prefix.items()
                    if key.startswith(prefix)
                ]
        if job_states:
            states_by_snapshot[snapshot["snapshot-id"]] = sorted(
                job_states, key=lambda each: each.job
            )
    return states_by_snapshot


def _job_ids(writer_keys: WriterKeys, summary: Mapping[str, str]) -> tuple[str, ...]:
    """What tells the job of a state from other jobs of the same writer."""
    if writer_keys.job_member is not None:
        try:
            job_id: Any = json.loads(summary[writer_keys.state_key])[writer_keys.job_member]
        except (ValueError, TypeError, LookupError):
            return ()
        return (str(job_id),)
    return tuple(summary[key] for key in writer_keys.job_keys if key in summary)


def state_ranges(
    lineages: Lineages, state: WriterState, dropped_branches: Collection[str] = ()
) -> list[LineageRange]:
    """The snapshots that a writer walks through to its state, from the head of each branch except
    the ``dropped_branches``, and to the snapshot up to which it has read another branch; those that
    branches share are there once.
    """
    branch_targets = [(branch, state.snapshot_id) for branch in state.branches]
    if state.read_to_id is not None:
        # Which branch it reads, nobody says.
        branch_targets += [(branch, state.read_to_id) for branch in lineages.branches]
    widest_range_by_chain: dict[int, LineageRange] = {}
    for branch, snapshot_id in branch_targets:
        if branch in dropped_branches:
            continue
        for branch_range in lineages.ranges(branch, snapshot_id):
            widest_range = widest_range_by_chain.get(branch_range.chain_index, branch_range)
            start_index = min(branch_range.start, widest_range.start)
            stop_index = max(branch_range.stop, widest_range.stop)
            widest_range_by_chain[branch_range.chain_index] = LineageRange(
                branch_range.chain_index, start_index, stop_index
            )
    return list(widest_range_by_chain.values())


def branches_of(metadata: Json) -> Mapping[str, Json]:
    """The branches by name."""
    return {name: ref for name, ref in refs_of(metadata).items() if ref["type"] == "branch"}


def refs_of(metadata: Json) -> Mapping[str, Json]:
    """Branches and tags; metadata from before refs existed has only ``main``."""
    refs_by_name: dict[str, Json] = dict(metadata.get("refs") or {})
    current_snapshot_id = metadata.get("current-snapshot-id")
    if "main" not in refs_by_name and current_snapshot_id not in (None, -1):
        refs_by_name["main"] = {"snapshot-id": current_snapshot_id, "type": "branch"}
    return refs_by_name


def staged_writes(metadata: Json) -> tuple[StagedWrite, ...]:
    """The writes that were staged and never published, oldest first."""
    snapshots = snapshots_by_id(metadata)
    wap_ids_by_snapshot = {
        snapshot_id: summary[_WAP_ID]
        for snapshot_id, snapshot in snapshots.items()
        if _WAP_ID in (summary := summary_of(snapshot))
    }
    if not wap_ids_by_snapshot:
        return ()
    reachable_ids = set[int | None]()
    for ref in refs_of(metadata).values():
        for snapshot in lineage(snapshots, snapshots.get(ref["snapshot-id"])):
            if snapshot["snapshot-id"] in reachable_ids:
                break
            reachable_ids.add(snapshot["snapshot-id"])
    # A publication that was rolled back can be repeated.
    reachable_summaries = [summary_of(snapshots[snapshot_id]) for snapshot_id in reachable_ids]
    published_wap_ids = {summary.get(_PUBLISHED_WAP_ID) for summary in reachable_summaries}
    source_snapshot_ids = {summary.get(_SOURCE_SNAPSHOT_ID) for summary in reachable_summaries}
    unpublished_writes = []
    for snapshot_id, wap_id in wap_ids_by_snapshot.items():
        if snapshot_id is None or snapshot_id in reachable_ids:
            continue
        if wap_id in published_wap_ids or str(snapshot_id) in source_snapshot_ids:
            continue
        added_records_text = summary_of(snapshots[snapshot_id]).get("added-records")
        unpublished_writes.append(
            StagedWrite(
                wap_id,
                snapshot_id,
                snapshots[snapshot_id]["timestamp-ms"],
                None if added_records_text is None else int(added_records_text),
            )
        )
    return tuple(
        sorted(unpublished_writes, key=lambda write: (write.committed_ms, write.snapshot_id))
    )


def needed_to_publish(metadata: Json, lineages: Lineages, write: StagedWrite) -> set[int]:
    """The snapshots without which a staged write cannot be published.

    A dynamic overwrite is published only on a descendant of its parent, whose commits since then
    are compared with it (CherryPickOperation).
    """
    snapshot = snapshots_by_id(metadata)[write.snapshot_id]
    needed_ids = {write.snapshot_id}
    parent_id = snapshot.get("parent-snapshot-id")
    if summary_of(snapshot).get(_REPLACE_PARTITIONS) == "true" and "main" in lineages.branches:
        needed_ids |= lineages.snapshot_ids(lineages.ranges("main", parent_id or 0))
    return needed_ids
