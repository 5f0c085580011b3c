"""Find the partitions that a rewrite would help, and what each would win; pure arithmetic on facts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from icekit.compact.deletes import Over, deletes_over
from icekit.compact.policy import Policy
from icekit.diagnose.context import under
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import ParameterError
from icekit.facts.files import FileGroup, Kind, Partition, Totals
from icekit.facts.model import TableFacts
from icekit.facts.parts import PartitionSpec
from icekit.facts.rollup import sort_key
from icekit.facts.sizes import MIN_SIZE_RATIO, max_file_size, min_file_size

#: ``size``: files of the wrong size. ``deletes``: also files under deletes that the default
#: ignores. ``vectors``: also files that lost rows to deletes naming only them. ``all``: every file.
Mode = Literal["size", "deletes", "vectors", "all"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DELETE_FINDINGS = frozenset({"equality_deletes", "position_deletes", "deletion_vectors", "deletes_default_rewrite_ignores"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """One partition (or the partitions of older specs, which share groups) and what rewriting it would win.

    ``file_opens_saved`` is what a full scan is spared: data files that go, and each delete
    file that is no longer opened beside a data file it applies to. Splitting an oversized
    file counts as one saved, though it opens more: what it saves is skipped bytes.
    """

    partitions: tuple[Partition, ...]
    mode: Mode
    reasons: tuple[str, ...]
    files_in: int
    bytes_in: int
    files_out: int
    bytes_out: int
    file_opens_saved: int

    @property
    def win_per_byte(self) -> float:
        """File opens saved per byte that is rewritten."""
        return self.file_opens_saved / max(self.bytes_in, 1)


def candidates(facts: TableFacts, findings: Findings, policy: Policy, thresholds: Thresholds) -> tuple[Candidate, ...]:
    """Every partition worth a rewrite, best win per byte first.

    Only illnesses that ``findings`` name are looked for; a sorting or major rewrite takes
    every partition that has more than nothing to gain. Whether a group of files would be
    rewritten follows SizeBasedFileRewritePlanner.
    """
    wanted = findings.names
    low = min_file_size(facts.target_bytes, thresholds.min_file_size_ratio)
    high = max_file_size(facts.target_bytes, thresholds.max_file_size_ratio)
    over = deletes_over(facts, policy.delete_ratio) if _DELETE_FINDINGS & wanted else {}
    older: list[FileGroup] = []
    found: list[Candidate] = []
    by_size = {"small_files", "oversized_files"} & wanted
    for group in facts.of_kind(Kind.DATA):
        if group.partition.spec_id != facts.default_spec_id:
            older.append(group)
            continue
        heavy = over.get(group.partition)
        candidate: Candidate | None = None
        if policy.scope == "major":
            candidate = _whole(facts, group, policy, heavy, low, high)
        elif heavy is not None:
            candidate = _for_deletes(facts, group, heavy, low)
        elif by_size:
            candidate = _by_size(facts, (group,), policy, low, high)
        if candidate is not None:
            found.append(candidate)
    if older and policy.scope == "minor":
        # The procedure packs what is left of all older specs together.
        under_deletes = [group for group in older if group.partition in over]
        if under_deletes:
            found.append(_older_for_deletes(facts, under_deletes, over, low))
        rest = tuple(group for group in older if group.partition not in over)
        together = _by_size(facts, rest, policy, low, high) if rest and by_size else None
        if together is not None:
            found.append(together)
    # What a sort wins is skipped bytes, and not a file fewer.
    worth = [c for c in found if c.file_opens_saved >= policy.min_win or "row order" in c.reasons]
    return tuple(sorted(worth, key=lambda c: (-c.win_per_byte, -c.file_opens_saved, sort_key(c.partitions[0]))))


def partition_span(spec: PartitionSpec, partition: Partition) -> tuple[dt.datetime, dt.datetime] | None:
    """When the rows of a partition are from: its first field of time, inclusive start and exclusive end, in UTC."""
    for field, value in zip(spec.fields, partition.values, strict=True):
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        try:
            if field.transform == "year":
                return _EPOCH.replace(year=1970 + value), _EPOCH.replace(year=1971 + value)
            if field.transform == "month":
                return _month(value), _month(value + 1)
            if field.transform == "hour":
                return _EPOCH + dt.timedelta(hours=value), _EPOCH + dt.timedelta(hours=value + 1)
            if field.result_type == "date":
                return _EPOCH + dt.timedelta(days=value), _EPOCH + dt.timedelta(days=value + 1)
            if field.transform == "identity" and field.result_type.startswith("timestamp"):
                moment = _EPOCH + dt.timedelta(microseconds=value // 1000 if "_ns" in field.result_type else value)
                return moment, moment + dt.timedelta(microseconds=1)
        except (ValueError, OverflowError):
            return None
    return None


def in_window(facts: TableFacts, policy: Policy, now: dt.datetime) -> frozenset[Partition] | None:
    """The partitions of the policy's window of time; None when it sets none.

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
            f"{facts.name} is not partitioned by a time, so since, until and skip_last cannot choose partitions; leave them out, or use a budget."
        )
    return frozenset(
        p
        for p, span in spans.items()
        if span is not None and (policy.since is None or span[0] >= policy.since) and (until is None or span[1] <= until)
    )


def _month(value: int) -> dt.datetime:
    return _EPOCH.replace(year=1970 + value // 12, month=value % 12 + 1)


def _by_size(facts: TableFacts, groups: Sequence[FileGroup], policy: Policy, low: int, high: int) -> Candidate | None:
    """Files of the wrong size in one rewrite group, if the procedure would take it."""
    small = Totals.of(_parts(groups, low, below=True))
    large = Totals.of(_parts(groups, high + 1, below=False))
    files, total = small.file_count + large.file_count, small.size_in_bytes + large.size_in_bytes
    if not files or not _is_rewritten(files, total, facts.target_bytes, high, policy.min_files):
        return None
    out = expected_files(total, facts.target_bytes)
    small_out = expected_files(small.size_in_bytes, facts.target_bytes) if small.file_count else 0
    saved = max(small.file_count - small_out, 0) + large.file_count
    reasons = tuple(name for name, n in (("small files", small.file_count - small_out), ("oversized files", large.file_count)) if n > 0)
    return Candidate(tuple(g.partition for g in groups), "size", reasons, files, total, out, total, saved) if reasons else None


def _for_deletes(facts: TableFacts, group: FileGroup, over: Over, low: int) -> Candidate:
    """Data files under deletes, and the undersized ones beside them, of one partition."""
    files = max(over.files, under(group, low).file_count)
    # Which files are under deletes is not in the facts, so their bytes are the mean ones.
    total = round(group.mean_bytes * files)
    left = round(total * (1 - over.deleted_share))
    out = expected_files(left, facts.target_bytes) if left else 0
    mode: Mode = "vectors" if over.only_file_scoped else "deletes"
    return Candidate((group.partition,), mode, over.kinds, files, total, out, left, max(files - out, 0) + over.opens)


def _older_for_deletes(facts: TableFacts, groups: Sequence[FileGroup], over: Mapping[Partition, Over], low: int) -> Candidate:
    """The partitions of older specs that have deletes over them, which share rewrite groups."""
    each = [_for_deletes(facts, group, over[group.partition], low) for group in groups]
    files, total, left = (sum(n) for n in zip(*((c.files_in, c.bytes_in, c.bytes_out) for c in each), strict=True))
    out = expected_files(left, facts.target_bytes) if left else 0
    mode: Mode = "vectors" if all(c.mode == "vectors" for c in each) else "deletes"
    reasons = tuple(dict.fromkeys(reason for c in each for reason in c.reasons))
    opens = sum(over[group.partition].opens for group in groups)
    return Candidate(tuple(g.partition for g in groups), mode, reasons, files, total, out, left, max(files - out, 0) + opens)


def _whole(facts: TableFacts, group: FileGroup, policy: Policy, over: Over | None, low: int, high: int) -> Candidate | None:
    """Every file of a partition; a binpack that changes nothing is no candidate, a sort always is one."""
    share = over.deleted_share if over else 0.0
    left = round(group.size_in_bytes * (1 - share))
    out = expected_files(left, facts.target_bytes) if left else 0
    saved = max(group.file_count - out, 0) + (over.opens if over else 0)
    wrong = under(group, low).file_count + group.file_count - under(group, high + 1).file_count
    reasons = [name for name, n in (("files of the wrong size", wrong), ("deletes", over is not None)) if n]
    if policy.strategy != "binpack":
        reasons.append("row order")
    if not reasons:
        return None
    return Candidate((group.partition,), "all", tuple(reasons), group.file_count, group.size_in_bytes, out, left, saved)


def expected_files(size_in_bytes: int, target_bytes: int) -> int:
    """Files that so many bytes are written to.

    A remainder becomes a file of its own only when it is large enough not to be rewritten
    next time, or when spreading it would make the others much too large
    (SizeBasedFileRewritePlanner.expectedOutputFiles).
    """
    if size_in_bytes < target_bytes:
        return 1
    whole, rest = divmod(size_in_bytes, target_bytes)
    if rest > MIN_SIZE_RATIO * target_bytes:
        return whole + 1
    return whole if size_in_bytes / whole < 1.1 * target_bytes else whole + 1


def _is_rewritten(files: int, total: int, target: int, high: int, min_files: int) -> bool:
    return (files > 1 and files >= min_files) or (files > 1 and total > target) or total > high


def _parts(groups: Iterable[FileGroup], limit: int, *, below: bool) -> Iterator[FileGroup]:
    """The files of groups under a size, or from it on."""
    for group in groups:
        under(group, limit)  # refuses a limit the facts were not cut at
        kept = tuple(b for b in group.buckets if (b.max_bytes < limit) == below)
        yield FileGroup(group.partition, group.kind, kept)
