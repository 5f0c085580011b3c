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
    state that is JSON. A writer whose state ``is_snapshot_id`` walks back to that snapshot, too, from
    the head of the branch that it reads. ``job_name`` and ``state_name`` are what these are called;
    ``source`` is where the writer's own code reads them.
    """

    writer: str
    state_key: str
    state_name: str
    source: str
    job_name: str = ""
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
        job_name="job",
        job_keys=("flink.job-id", "flink.operator-id"),
    ),
    WriterKeys(
        "Flink",
        "equality-convert-staging-snapshot",
        "staging snapshot",
        "Iceberg: EqualityConvertPlanner (discoverLastCommittedWork, nextUnprocessedStagingSnapshot)",
        job_name="conversion of equality deletes",
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
        job_name="query",
        job_keys=("spark.sql.streaming.queryId",),
    ),
    WriterKeys(
        "Beam",
        "beam.cdc.committed-through-ms.",
        "committed through",
        "Beam: CommitToken (recoverFrom)",
        job_name="sink",
    ),
    WriterKeys(
        "Redpanda",
        "redpanda.commit-metadata",
        "commit",
        "Redpanda: iceberg_file_committer (get_iceberg_committed_offset)",
        job_name="cluster",
        job_member="cluster",
    ),
    WriterKeys(
        "Materialize",
        "mz-frontier",
        "frontier",
        "Materialize: sink/iceberg.rs (retrieve_upper_from_snapshots)",
        job_name="sink",
        job_keys=("mz-sink-id",),
    ),
    WriterKeys(
        "Fluss",
        "fluss-offsets",
        "offsets",
        "Fluss: IcebergLakeCommitter (getMissingLakeSnapshot)",
        job_name="tiering",
        job_keys=("commit-user",),
    ),
)
#: How a person names the keys of another writer.
KEY_FORM = '"KEY", "KEY by JOB_KEY", or the beginning of a key that ends with a dot'


@cache
def stated_keys(texts: tuple[str, ...]) -> tuple[WriterKeys, ...]:
    """The keys of other writers, as a person names them: ``my.offset``, ``my.offset by my.job``,
    ``my.offset.`` (the rest of the key tells jobs apart).

    Raises :class:`~icekit.common.errors.ParameterError` for another form.
    """
    all_keys = []
    for text in texts:
        match text.split():
            case [key]:
                all_keys.append(WriterKeys(key.rstrip("."), key, "state", "an option"))
            case [key, "by", job_key] if not key.endswith("."):
                all_keys.append(WriterKeys(key, key, "state", "an option", job_keys=(job_key,)))
            case _:
                raise ParameterError(f"{text!r} names no key of a writer; use {KEY_FORM}.")
    return tuple(all_keys)


# The key of a state, and what tells its job from others.
_Job = tuple[str, tuple[str, ...]]


@frozen
class _JobState:
    """The state that one snapshot carries for one job; ``job`` is equal for those of the same."""

    keys: WriterKeys
    ids: tuple[str, ...]
    value: str

    @property
    def job(self) -> _Job:
        return self.keys.state_key, self.ids

    @property
    def named_snapshot_id(self) -> int | None:
        """The snapshot that the state names, if it names one."""
        return int(self.value) if self.keys.is_snapshot_id and self.value.isdecimal() else None


class Lineages:
    """The lineages of all branches, in which each snapshot is once.

    A branch has a path of snapshots from its head to the first that is in the path of another
    branch, where it goes on. So what a branch leads to is a few ranges of paths, however many
    snapshots there are.
    """

    def __init__(self, metadata: Json) -> None:
        snapshots = snapshots_by_id(metadata)
        self.paths: list[list[int]] = []
        self._next_positions: list[tuple[int, int] | None] = []
        self._path_of: dict[str, int] = {}
        self._positions: dict[int | None, tuple[int, int]] = {}
        # Main first: what it shares with other branches is in its path.
        branch_refs = branches_of(metadata)
        for branch in sorted(branch_refs, key=lambda name: (name != "main", name)):
            path: list[int] = []
            next_position: tuple[int, int] | None = None
            for snapshot in lineage(snapshots, snapshots.get(branch_refs[branch]["snapshot-id"])):
                next_position = self._positions.get(snapshot["snapshot-id"])
                if next_position is not None:
                    break
                path.append(snapshot["snapshot-id"])
            indexed_ids = enumerate(path)
            self._positions.update(
                {snapshot_id: (len(self.paths), index) for index, snapshot_id in indexed_ids}
            )
            self._path_of[branch] = len(self.paths)
            self.paths.append(path)
            self._next_positions.append(next_position)

    @property
    def branches(self) -> list[str]:
        """The branches, main first."""
        return list(self._path_of)

    def position(self, snapshot_id: int | None) -> tuple[int, int] | None:
        """The path that a snapshot is in, and its place there; None if no branch leads to it."""
        return self._positions.get(snapshot_id)

    def ranges(self, branch: str, to: int | None = None) -> list[Range]:
        """The ranges of paths from the head of a branch back to a snapshot, which is included, or
        to the end; empty if the branch does not lead to it.
        """
        end = self._positions.get(to)
        path_ranges: list[Range] = []
        position: tuple[int, int] | None = self._path_of[branch], 0
        while position is not None:
            path_index, start = position
            if end is not None and end[0] == path_index and end[1] >= start:
                return [*path_ranges, Range(path_index, start, end[1] + 1)]
            path_ranges.append(Range(path_index, start, len(self.paths[path_index])))
            position = self._next_positions[path_index]
        return path_ranges if to is None else []

    def ids(self, ranges: Iterable[Range]) -> set[int]:
        """The snapshots of some ranges."""
        stops: dict[tuple[int, int], int] = {}
        for one_range in ranges:
            start = one_range.path_index, one_range.start
            stops[start] = max(one_range.stop, stops.get(start, 0))
        snapshot_ids = set[int]()
        for (path_index, start_index), stop in stops.items():
            snapshot_ids.update(self.paths[path_index][start_index:stop])
        return snapshot_ids


class Range(NamedTuple):
    """Places of a path: from ``start`` to before ``stop``."""

    path_index: int
    start: int
    stop: int


class Tally:
    """How many snapshots of ranges are in a set, each answer from sums that are made once."""

    def __init__(self, lineages: Lineages, snapshot_ids: Collection[int]) -> None:
        self._sums = [
            [0, *accumulate(snapshot_id in snapshot_ids for snapshot_id in path)]
            for path in lineages.paths
        ]

    def count(self, ranges: Iterable[Range]) -> int:
        """How many of the snapshots are in the ranges, which do not overlap."""
        return sum(
            self._sums[path_index][stop] - self._sums[path_index][start]
            for path_index, start, stop in ranges
        )


class WriterLog:
    """What the snapshots of a table carry for their writers, read once, although each length of
    silence gives other states; ``other_keys`` are those of writers that icekit does not know.
    """

    def __init__(self, metadata: Json, other_keys: Sequence[WriterKeys] = ()) -> None:
        self._metadata = metadata
        self._snapshots = snapshots_by_id(metadata)
        #: By job and path, the places of the snapshots that carry a state.
        self._indexes: dict[_Job, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._values: dict[tuple[_Job, int], _JobState] = {}
        states_by_snapshot = _job_states(metadata, (*WRITERS, *other_keys))
        # A table without any state need not have lineages that can be followed.
        for path_index, snapshot_ids in enumerate(
            self.lineages.paths if states_by_snapshot else ()
        ):
            for index, snapshot_id in enumerate(snapshot_ids):
                for job_state in states_by_snapshot.get(snapshot_id, ()):
                    self._indexes[job_state.job][path_index].append(index)
                    self._values.setdefault((job_state.job, snapshot_id), job_state)

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
        if not self._values:
            return ()
        lineages = self.lineages
        snapshots = self._snapshots
        branches_by_state: dict[tuple[_Job, int, bool], list[str]] = defaultdict(list)
        last_write_ms = {
            branch: _last_write_ms(lineages, snapshots, branch) for branch in lineages.branches
        }
        for branch in lineages.branches:
            ranges = lineages.ranges(branch)
            for job, snapshot_indexes in self._indexes.items():
                newest_id = _first_snapshot(lineages, ranges, snapshot_indexes)
                if newest_id is not None:
                    silent_ms = last_write_ms[branch] - snapshots[newest_id]["timestamp-ms"]
                    branches_by_state[job, newest_id, silent_ms > most_silent_ms].append(branch)
        states = []
        for (job, snapshot_id, _), branches in branches_by_state.items():
            job_state = self._values[job, snapshot_id]
            committed_ms: int = snapshots[snapshot_id]["timestamp-ms"]
            keys = job_state.keys
            states.append(
                WriterState(
                    writer=keys.writer,
                    job=" ".join(filter(None, (keys.job_name, *job_state.ids[:1]))),
                    ids=job_state.ids,
                    state=f"{keys.state_name} {job_state.value}",
                    branches=tuple(branches),
                    snapshot_id=snapshot_id,
                    committed_ms=committed_ms,
                    silent_ms=max(
                        0, min(last_write_ms[branch] for branch in branches) - committed_ms
                    ),
                    read_to_id=job_state.named_snapshot_id,
                )
            )
        return tuple(sorted(states, key=lambda state: (-state.committed_ms, state.text)))


def _first_snapshot(
    lineages: Lineages, ranges: Sequence[Range], indexes_by_path: Mapping[int, list[int]]
) -> int | None:
    """The first snapshot of some ranges that is at one of the places, which are in order."""
    for path_index, start, stop in ranges:
        indexes = indexes_by_path.get(path_index, [])
        index = bisect_left(indexes, start)
        if index < len(indexes) and indexes[index] < stop:
            return lineages.paths[path_index][indexes[index]]
    return None


def _last_write_ms(lineages: Lineages, snapshots: Mapping[int | None, Json], branch: str) -> int:
    """When somebody last wrote to a branch: maintenance goes on also where no writer does."""
    for path_index, start, stop in lineages.ranges(branch):
        for snapshot_id in lineages.paths[path_index][start:stop]:
            if summary_of(snapshots[snapshot_id]).get("operation") != "replace":
                moment_ms: int = snapshots[snapshot_id]["timestamp-ms"]
                return moment_ms
    return 0


def _job_states(metadata: Json, all_keys: Sequence[WriterKeys]) -> dict[int, list[_JobState]]:
    """What each snapshot carries, by its id; only snapshots that carry something."""
    # By a key that somebody states again, jobs are told apart in both ways: both states stay.
    exact_keys: dict[str, list[WriterKeys]] = defaultdict(list)
    keys_by_prefix: dict[str, WriterKeys] = {}
    for keys in all_keys:
        if keys.state_key.endswith("."):
            keys_by_prefix.setdefault(keys.state_key, keys)
        else:
            exact_keys[keys.state_key].append(keys)
    prefixes = tuple(keys_by_prefix)
    states_by_snapshot: dict[int, list[_JobState]] = {}
    for snapshot in metadata.get("snapshots") or ():
        summary = summary_of(snapshot)
        states: list[_JobState] = []
        for key, value in summary.items():
            if key in exact_keys:
                states += [
                    _JobState(keys, _job_ids(keys, summary), value) for keys in exact_keys[key]
                ]
            elif key.startswith(prefixes):
                states += [
                    _JobState(keys, (key.removeprefix(prefix),), value)
                    for prefix, keys in keys_by_prefix.items()
                    if key.startswith(prefix)
                ]
        if states:
            states_by_snapshot[snapshot["snapshot-id"]] = sorted(states, key=lambda each: each.job)
    return states_by_snapshot


def _job_ids(keys: WriterKeys, summary: Mapping[str, str]) -> tuple[str, ...]:
    """What tells the job of a state from other jobs of the same writer."""
    if keys.job_member is not None:
        try:
            member: Any = json.loads(summary[keys.state_key])[keys.job_member]
        except (ValueError, TypeError, LookupError):
            return ()
        return (str(member),)
    return tuple(summary[key] for key in keys.job_keys if key in summary)


def state_ranges(
    lineages: Lineages, state: WriterState, dropped_branches: Collection[str] = ()
) -> list[Range]:
    """The snapshots that a writer walks through to its state, from the head of each branch but those
    ``dropped_branches``, and to the snapshot up to which it has read another branch; those that
    branches share are there once.
    """
    targets = [(branch, state.snapshot_id) for branch in state.branches]
    if state.read_to_id is not None:
        # Which branch it reads, nobody says.
        targets += [(branch, state.read_to_id) for branch in lineages.branches]
    widest: dict[int, Range] = {}
    for branch, snapshot_id in targets:
        if branch in dropped_branches:
            continue
        for branch_range in lineages.ranges(branch, snapshot_id):
            widest_so_far = widest.get(branch_range.path_index, branch_range)
            start = min(branch_range.start, widest_so_far.start)
            stop = max(branch_range.stop, widest_so_far.stop)
            widest[branch_range.path_index] = Range(branch_range.path_index, start, stop)
    return list(widest.values())


def branches_of(metadata: Json) -> Mapping[str, Json]:
    """The branches by name."""
    return {name: ref for name, ref in refs_of(metadata).items() if ref["type"] == "branch"}


def refs_of(metadata: Json) -> Mapping[str, Json]:
    """Branches and tags; metadata from before refs existed has only ``main``."""
    refs: dict[str, Json] = dict(metadata.get("refs") or {})
    current = metadata.get("current-snapshot-id")
    if "main" not in refs and current not in (None, -1):
        refs["main"] = {"snapshot-id": current, "type": "branch"}
    return refs


def staged_writes(metadata: Json) -> tuple[StagedWrite, ...]:
    """The writes that were staged and never published, oldest first."""
    snapshots = snapshots_by_id(metadata)
    wap_ids = {
        snapshot_id: summary[_WAP_ID]
        for snapshot_id, snapshot in snapshots.items()
        if _WAP_ID in (summary := summary_of(snapshot))
    }
    if not wap_ids:
        return ()
    reachable_ids = set[int | None]()
    for ref in refs_of(metadata).values():
        for snapshot in lineage(snapshots, snapshots.get(ref["snapshot-id"])):
            if snapshot["snapshot-id"] in reachable_ids:
                break
            reachable_ids.add(snapshot["snapshot-id"])
    # A publication that was rolled back can be repeated.
    summaries = [summary_of(snapshots[snapshot_id]) for snapshot_id in reachable_ids]
    published_wap_ids = {summary.get(_PUBLISHED_WAP_ID) for summary in summaries}
    source_ids = {summary.get(_SOURCE_SNAPSHOT_ID) for summary in summaries}
    writes = []
    for snapshot_id, wap_id in wap_ids.items():
        if snapshot_id is None or snapshot_id in reachable_ids:
            continue
        if wap_id in published_wap_ids or str(snapshot_id) in source_ids:
            continue
        added_records = summary_of(snapshots[snapshot_id]).get("added-records")
        writes.append(
            StagedWrite(
                wap_id,
                snapshot_id,
                snapshots[snapshot_id]["timestamp-ms"],
                None if added_records is None else int(added_records),
            )
        )
    return tuple(sorted(writes, key=lambda write: (write.committed_ms, write.snapshot_id)))


def needed_to_publish(metadata: Json, lineages: Lineages, write: StagedWrite) -> set[int]:
    """The snapshots without which a staged write cannot be published.

    A dynamic overwrite is published only on a descendant of its parent, whose commits since then
    are compared with it (CherryPickOperation).
    """
    snapshot = snapshots_by_id(metadata)[write.snapshot_id]
    needed_ids = {write.snapshot_id}
    parent_id = snapshot.get("parent-snapshot-id")
    if summary_of(snapshot).get(_REPLACE_PARTITIONS) == "true" and "main" in lineages.branches:
        needed_ids |= lineages.ids(lineages.ranges("main", parent_id or 0))
    return needed_ids
