"""Say which rule a table has, whether it is due, and whether work on it may begin now; pure, reads no manifest."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from icekit.compact.outcome import RUN_TAG
from icekit.engine.interrupting import Stop
from icekit.errors import nearest
from icekit.facts.metadata import Json, choose_snapshot, int_setting, lineage, settings, snapshots_by_id
from icekit.facts.rollup import min_file_size
from icekit.schedule.policy import Rule, SchedulePolicy, Trigger, begins, until
from icekit.sql import Identifier
from icekit.units import count, span


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the last finished pass of a table saw: its snapshot then, and when that was, in milliseconds since 1970.

    ``left_id`` is the snapshot that the pass left, after icekit's own commits; None where it made none, or it is not known.
    """

    table_uuid: str | None
    snapshot_id: int | None
    passed_ms: int
    left_id: int | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """What came to a table since a snapshot, by the summaries of its commits.

    ``small_files`` counts the data files of commits whose mean added file is undersized: a summary tells no
    single file's size.
    """

    commits: int = 0
    delete_records: int = 0
    small_files: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a table is due, and why or why not."""

    is_due: bool
    why: str


def due(metadata: Json, seen: Watermark | None, trigger: Trigger, now_ms: int, small_ratio: float) -> Due:
    """Judge one table. ``small_ratio`` is the share of the target under which a file is undersized."""
    if seen is None:
        return Due(True, "its first pass")
    if seen.table_uuid is not None and metadata.get("table-uuid") != seen.table_uuid:
        return Due(True, "it is another table than at its last pass")
    ago = max(0, now_ms - seen.passed_ms)
    if trigger.every is not None and ago >= trigger.every * 1000:
        return Due(True, f"its last pass was {span(ago)} ago")
    found = since(metadata, seen.snapshot_id, small_ratio)
    if found is None:
        return Due(True, "the snapshot of its last pass is gone (expired or rolled back)")
    if seen.left_id is not None and since(metadata, seen.left_id, small_ratio) is None:
        return Due(True, "what its last pass committed is no longer in its history (rolled back or put back)")
    reached, not_yet = [], []
    for name, noun in (("commits", "commit"), ("delete_records", "delete record"), ("small_files", "small file")):
        limit, value = getattr(trigger, name), getattr(found, name)
        if limit is None:
            continue
        if value >= limit:
            reached.append(f"{count(value, noun)} since its last pass (due from {limit:,})")
        else:
            not_yet.append(f"{value:,} of {count(limit, noun)}")
    if reached:
        return Due(True, "; ".join(reached))
    if trigger.every is not None:
        not_yet.append(f"{span(ago)} of {span(trigger.every * 1000)}")
    return Due(False, f"since its last pass {', '.join(not_yet)}")


def since(metadata: Json, snapshot_id: int | None, small_ratio: float) -> Since | None:
    """What came after a snapshot; None if it is no ancestor of the current one any more."""
    current, _ = choose_snapshot(metadata, None)
    in_force = settings(metadata.get("properties") or {})
    target = int_setting(in_force, "write.target-file-size-bytes")
    small = min_file_size(target, small_ratio)
    commits = deletes = files = 0
    for snapshot in lineage(snapshots_by_id(metadata), current):
        if snapshot["snapshot-id"] == snapshot_id:
            return Since(commits, deletes, files)
        said: Mapping[str, Any] = snapshot.get("summary") or {}
        if RUN_TAG in said:
            continue  # what icekit itself commits asks for nothing
        commits += 1
        deletes += _number(said, "added-position-deletes") + _number(said, "added-equality-deletes")
        added = _number(said, "added-data-files")
        if added and _number(said, "added-files-size") / added < small:
            files += added
    return Since(commits, deletes, files) if snapshot_id is None else None


def _number(summary: Mapping[str, Any], name: str) -> int:
    return int(summary.get(name) or 0)


# --- Say whether work on a table may begin now, why not, and when it must end


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to work until ``end`` (None: no end), or the reason why not; ``why`` also says what the end is."""

    granted: bool
    why: str = ""
    end: dt.datetime | None = None


def quiet(rule: Rule, zone: ZoneInfo, now: dt.datetime) -> str | None:
    """Why a table is not even read now; None if it may be."""
    end = until(rule.quiet_hours, zone, now)
    return None if end is None else f"quiet hours until {_clock(end, zone)}"


def permit(rule: Rule, zone: ZoneInfo, now: dt.datetime, deadline: dt.datetime | None = None) -> Permit:
    """Whether an action may begin on a rule's table at ``now``; ``deadline`` is when the pass must end."""
    if silent := quiet(rule, zone, now):
        return Permit(False, silent)
    ends: list[tuple[dt.datetime, str]] = []
    if rule.hours:
        end = until(rule.hours, zone, now)
        if end is None:
            following = begins(rule.hours, zone, now)
            return Permit(False, f"outside its hours, which begin at {_clock(following, zone)}" if following else "outside its hours")
        ends.append((end, f"its hours ended at {_clock(end, zone)}"))
    if (hush := begins(rule.quiet_hours, zone, now)) is not None:
        ends.append((hush, f"its quiet hours began at {_clock(hush, zone)}"))
    if deadline is not None:
        if now >= deadline:
            return Permit(False, "the pass's time is spent")
        ends.append((deadline, "the pass's time was spent"))
    end, why = min(ends, default=(None, ""))
    return Permit(True, why, end)


def stopping_at(end: dt.datetime | None, now: dt.datetime) -> Stop:
    """A stop that the clock sets at ``end``; what is committed by then stays."""
    return Stop(None if end is None else (end - now).total_seconds())


def _clock(moment: dt.datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%a %H:%M %Z}"


# --- Give each table of a catalog the first rule that matches it; pure


#: Namespaces that icekit itself makes.
_OWN = frozenset({"icekit", "icekit_scratch"})


@dataclass(frozen=True)
class Assigned:
    """The tables that a policy looks after, each with its rule, and the patterns that stand for nothing."""

    tables: tuple[tuple[Identifier, Rule], ...]
    unmatched: tuple[str, ...] = ()


def assign(policy: SchedulePolicy, names: Sequence[Identifier]) -> Assigned:
    """The first matching rule of each table, in the catalog's order.

    A rule matches by ``match`` and not by ``exclude``; what the policy excludes no rule takes.
    """
    found = []
    for name in names:
        written = ".".join(name)
        if _matches(written, policy.exclude):
            continue
        rule = next((r for r in policy.tables if _takes(name, r)), None)
        if rule is not None:
            found.append((name, rule))
    known = [".".join(name) for name in names]
    lost = [
        f"rule {rule.name}: no table matches {pattern!r}{nearest(pattern.strip('*.'), known, count=1) or '.'}"
        for rule in policy.tables
        for pattern in rule.match
        if not any(_matches(one, [pattern]) for one in known)
    ]
    return Assigned(tuple(found), tuple(lost))


def _takes(name: Identifier, rule: Rule) -> bool:
    written = ".".join(name)
    # Clones, the ledger and the history are nobody's tables, unless a pattern names their namespace.
    patterns = [p for p in rule.match if p.startswith("icekit")] if name[0] in _OWN else rule.match
    return _matches(written, patterns) and not _matches(written, rule.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
