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
    the head of the branch that it reads. ``job`` and ``state`` are what these are called; ``source``
    is where the writer's own code reads them.
    """

    writer: str
    state_key: str
    state: str
    source: str
    job: str = ""
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
        job="job",
        job_keys=("flink.job-id", "flink.operator-id"),
    ),
    WriterKeys(
        "Flink",
        "equality-convert-staging-snapshot",
        "staging snapshot",
        "Iceberg: EqualityConvertPlanner (discoverLastCommittedWork, nextUnprocessedStagingSnapshot)",
        job="conversion of equality deletes",
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
        job="query",
        job_keys=("spark.sql.streaming.queryId",),
    ),
    WriterKeys(
        "Beam",
        "beam.cdc.committed-through-ms.",
        "committed through",
        "Beam: CommitToken (recoverFrom)",
        job="sink",
    ),
    WriterKeys(
        "Redpanda",
        "redpanda.commit-metadata",
        "commit",
        "Redpanda: iceberg_file_committer (get_iceberg_committed_offset)",
        job="cluster",
        job_member="cluster",
    ),
    WriterKeys(
        "Materialize",
        "mz-frontier",
        "frontier",
        "Materialize: sink/iceberg.rs (retrieve_upper_from_snapshots)",
        job="sink",
        job_keys=("mz-sink-id",),
    ),
    WriterKeys(
        "Fluss",
        "fluss-offsets",
        "offsets",
        "Fluss: IcebergLakeCommitter (getMissingLakeSnapshot)",
        job="tiering",
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
class _Carried:
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
        self._goes_on_at: list[tuple[int, int] | None] = []
        self._path_of: dict[str, int] = {}
        self._place: dict[int | None, tuple[int, int]] = {}
        # Main first: what it shares with other branches is in its path.
        heads = branches_of(metadata)
        for branch in sorted(heads, key=lambda name: (name != "main", name)):
            path: list[int] = []
            joined: tuple[int, int] | None = None
            for snapshot in lineage(snapshots, snapshots.get(heads[branch]["snapshot-id"])):
                joined = self._place.get(snapshot["snapshot-id"])
                if joined is not None:
                    break
                path.append(snapshot["snapshot-id"])
            own = enumerate(path)
            self._place.update({each: (len(self.paths), place) for place, each in own})
            self._path_of[branch] = len(self.paths)
            self.paths.append(path)
            self._goes_on_at.append(joined)

    @property
    def branches(self) -> list[str]:
        """The branches, main first."""
        return list(self._path_of)

    def place(self, snapshot_id: int | None) -> tuple[int, int] | None:
        """The path that a snapshot is in, and its place there; None if no branch leads to it."""
        return self._place.get(snapshot_id)

    def ranges(self, branch: str, to: int | None = None) -> list[Range]:
        """The ranges of paths from the head of a branch back to a snapshot, which is included, or
        to the end; empty if the branch does not lead to it.
        """
        end = self._place.get(to)
        path_ranges: list[Range] = []
        at: tuple[int, int] | None = self._path_of[branch], 0
        while at is not None:
            path, start = at
            if end is not None and end[0] == path and end[1] >= start:
                return [*path_ranges, Range(path, start, end[1] + 1)]
            path_ranges.append(Range(path, start, len(self.paths[path])))
            at = self._goes_on_at[path]
        return path_ranges if to is None else []

    def ids(self, ranges: Iterable[Range]) -> set[int]:
        """The snapshots of some ranges."""
        widest: dict[tuple[int, int], int] = {}
        for each in ranges:
            start = each.path, each.start
            widest[start] = max(each.stop, widest.get(start, 0))
        reachable_ids = set[int]()
        for (path, first), stop in widest.items():
            reachable_ids.update(self.paths[path][first:stop])
        return reachable_ids


class Range(NamedTuple):
    """Places of a path: from ``start`` to before ``stop``."""

    path: int
    start: int
    stop: int


class Tally:
    """How many snapshots of ranges are in a set, each answer from sums that are made once."""

    def __init__(self, lineages: Lineages, snapshot_ids: Collection[int]) -> None:
        self._sums = [
            [0, *accumulate(each in snapshot_ids for each in path)] for path in lineages.paths
        ]

    def count(self, ranges: Iterable[Range]) -> int:
        """How many of the snapshots are in the ranges, which do not overlap."""
        return sum(self._sums[path][stop] - self._sums[path][start] for path, start, stop in ranges)


class WriterLog:
    """What the snapshots of a table carry for their writers, read once, although each length of
    silence gives other states; ``other_keys`` are those of writers that icekit does not know.
    """

    def __init__(self, metadata: Json, other_keys: Sequence[WriterKeys] = ()) -> None:
        self._metadata = metadata
        self._snapshots = snapshots_by_id(metadata)
        #: By job and path, the places of the snapshots that carry a state.
        self._places: dict[_Job, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._values: dict[tuple[_Job, int], _Carried] = {}
        carried = _carried(metadata, (*WRITERS, *other_keys))
        # A table without any state need not have lineages that can be followed.
        for path, snapshot_ids in enumerate(self.lineages.paths if carried else ()):
            for place, snapshot_id in enumerate(snapshot_ids):
                for each in carried.get(snapshot_id, ()):
                    self._places[each.job][path].append(place)
                    self._values.setdefault((each.job, snapshot_id), each)

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
        newest: dict[tuple[_Job, int, bool], list[str]] = defaultdict(list)
        last_ms = {branch: _last_write(lineages, snapshots, branch) for branch in lineages.branches}
        for branch in lineages.branches:
            ranges = lineages.ranges(branch)
            for job, by_path in self._places.items():
                first = _first(lineages, ranges, by_path)
                if first is not None:
                    silent_ms = last_ms[branch] - snapshots[first]["timestamp-ms"]
                    newest[job, first, silent_ms > most_silent_ms].append(branch)
        states = []
        for (job, snapshot_id, _), branches in newest.items():
            values_of_job = self._values[job, snapshot_id]
            committed_ms: int = snapshots[snapshot_id]["timestamp-ms"]
            keys = values_of_job.keys
            states.append(
                WriterState(
                    writer=keys.writer,
                    job=" ".join(filter(None, (keys.job, *values_of_job.ids[:1]))),
                    ids=values_of_job.ids,
                    state=f"{keys.state} {values_of_job.value}",
                    branches=tuple(branches),
                    snapshot_id=snapshot_id,
                    committed_ms=committed_ms,
                    silent_ms=max(0, min(last_ms[branch] for branch in branches) - committed_ms),
                    read_to_id=values_of_job.named_snapshot_id,
                )
            )
        return tuple(sorted(states, key=lambda state: (-state.committed_ms, state.text)))


def _first(
    lineages: Lineages, ranges: Sequence[Range], by_path: Mapping[int, list[int]]
) -> int | None:
    """The first snapshot of some ranges that is at one of the places, which are in order."""
    for path, start, stop in ranges:
        places = by_path.get(path, [])
        index = bisect_left(places, start)
        if index < len(places) and places[index] < stop:
            return lineages.paths[path][places[index]]
    return None


def _last_write(lineages: Lineages, snapshots: Mapping[int | None, Json], branch: str) -> int:
    """When somebody last wrote to a branch: maintenance goes on also where no writer does."""
    for path, start, stop in lineages.ranges(branch):
        for snapshot_id in lineages.paths[path][start:stop]:
            if summary_of(snapshots[snapshot_id]).get("operation") != "replace":
                moment_ms: int = snapshots[snapshot_id]["timestamp-ms"]
                return moment_ms
    return 0


def _carried(metadata: Json, every: Sequence[WriterKeys]) -> dict[int, list[_Carried]]:
    """What each snapshot carries, by its id; only snapshots that carry something."""
    # By a key that somebody states again, jobs are told apart in both ways: both states stay.
    exact: dict[str, list[WriterKeys]] = defaultdict(list)
    beginnings: dict[str, WriterKeys] = {}
    for keys in every:
        if keys.state_key.endswith("."):
            beginnings.setdefault(keys.state_key, keys)
        else:
            exact[keys.state_key].append(keys)
    first_parts = tuple(beginnings)
    carried: dict[int, list[_Carried]] = {}
    for snapshot in metadata.get("snapshots") or ():
        summary = summary_of(snapshot)
        states: list[_Carried] = []
        for key, value in summary.items():
            if key in exact:
                states += [_Carried(keys, _ids(keys, summary), value) for keys in exact[key]]
            elif key.startswith(first_parts):
                states += [
                    _Carried(keys, (key.removeprefix(beginning),), value)
                    for beginning, keys in beginnings.items()
                    if key.startswith(beginning)
                ]
        if states:
            carried[snapshot["snapshot-id"]] = sorted(states, key=lambda each: each.job)
    return carried


def _ids(keys: WriterKeys, summary: Mapping[str, str]) -> tuple[str, ...]:
    """What tells the job of a state from other jobs of the same writer."""
    if keys.job_member is not None:
        try:
            member: Any = json.loads(summary[keys.state_key])[keys.job_member]
        except (ValueError, TypeError, LookupError):
            return ()
        return (str(member),)
    return tuple(summary[key] for key in keys.job_keys if key in summary)


def chain(lineages: Lineages, state: WriterState, dropped: Collection[str] = ()) -> list[Range]:
    """The snapshots that a writer walks through to its state, from the head of each branch but those
    ``dropped``, and to the snapshot up to which it has read another branch; those that branches
    share are there once.
    """
    walks = [(branch, state.snapshot_id) for branch in state.branches]
    if state.read_to_id is not None:
        # Which branch it reads, nobody says.
        walks += [(branch, state.read_to_id) for branch in lineages.branches]
    widest: dict[int, Range] = {}
    for branch, snapshot_id in walks:
        if branch in dropped:
            continue
        for each in lineages.ranges(branch, snapshot_id):
            before = widest.get(each.path, each)
            start = min(each.start, before.start)
            stop = max(each.stop, before.stop)
            widest[each.path] = Range(each.path, start, stop)
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
    staged = {
        snapshot_id: summary[_WAP_ID]
        for snapshot_id, snapshot in snapshots.items()
        if _WAP_ID in (summary := summary_of(snapshot))
    }
    if not staged:
        return ()
    reachable = set[int | None]()
    for ref in refs_of(metadata).values():
        for snapshot in lineage(snapshots, snapshots.get(ref["snapshot-id"])):
            if snapshot["snapshot-id"] in reachable:
                break
            reachable.add(snapshot["snapshot-id"])
    # A publication that was rolled back can be repeated.
    summaries = [summary_of(snapshots[snapshot_id]) for snapshot_id in reachable]
    published = {summary.get(_PUBLISHED_WAP_ID) for summary in summaries}
    sources = {summary.get(_SOURCE_SNAPSHOT_ID) for summary in summaries}
    writes = []
    for snapshot_id, wap_id in staged.items():
        if snapshot_id is None or snapshot_id in reachable:
            continue
        if wap_id in published or str(snapshot_id) in sources:
            continue
        added = summary_of(snapshots[snapshot_id]).get("added-records")
        writes.append(
            StagedWrite(
                wap_id,
                snapshot_id,
                snapshots[snapshot_id]["timestamp-ms"],
                None if added is None else int(added),
            )
        )
    return tuple(sorted(writes, key=lambda write: (write.committed_ms, write.snapshot_id)))


def needed_to_publish(metadata: Json, lineages: Lineages, write: StagedWrite) -> set[int]:
    """The snapshots without which a staged write cannot be published.

    A dynamic overwrite is published only on a descendant of its parent, whose commits since then
    are compared with it (CherryPickOperation).
    """
    snapshot = snapshots_by_id(metadata)[write.snapshot_id]
    needed = {write.snapshot_id}
    parent_id = snapshot.get("parent-snapshot-id")
    if summary_of(snapshot).get(_REPLACE_PARTITIONS) == "true" and "main" in lineages.branches:
        needed |= lineages.ids(lineages.ranges("main", parent_id or 0))
    return needed
