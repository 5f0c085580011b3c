"""Compute which snapshots may expire, exactly as Iceberg's RemoveSnapshots does; pure.

Iceberg keeps a snapshot for its age **or** for its place among the last of a branch, whichever
keeps more, and always if a branch or tag points at it. Refs may have limits of their own,
which take precedence over those of the call.
"""

from __future__ import annotations

import datetime as dt
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

from icekit.errors import ParameterError, require_known
from icekit.facts.lineage import lineage, snapshots_by_id
from icekit.facts.metadata import Json, number
from icekit.parsing import seconds
from icekit.units import count, plain, raised, span

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HOUR_MS = 3_600_000
#: A run may be reading a snapshot that it has just found: nothing younger ever expires.
LEAST_HOURS = 1.0
#: Iceberg's default of history.expire.max-ref-age-ms.
FOREVER = 2**63 - 1
#: A choice: the number of snapshots to keep if the table asks for fewer.
DEFAULT_LAST = 10
_CADENCE_COMMITS = 100
_NUMBER = re.compile(r"-?\d+(\.\d*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history to keep: a time **and** a count, and the time travel that people need.

    ``keep_hours`` defaults to the table's ``history.expire.max-snapshot-age-ms`` (Iceberg's
    default: 5 days), ``keep_last`` to its ``history.expire.min-snapshots-to-keep``, at least 10.
    ``need_hours`` is how far people must be able to look back; a retention that keeps less is
    refused, and the count is raised to keep the commit that was current then. Raises
    :class:`~icekit.errors.ParameterError` for less than one hour or less than one snapshot.
    """

    keep_hours: float | None = None
    keep_last: int | None = None
    need_hours: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Retention:
        """Make a retention from plain values: hours as numbers, or strings such as ``7 days``.

        ``keep`` and ``need`` are other names for ``keep_hours`` and ``need_hours``.
        """
        known = {f.name for f in fields(cls)} | {"keep", "need"}
        values: dict[str, Any] = {}
        for name, value in given.items():
            require_known(name, sorted(known), "retention setting")
            if value is None or value == "":
                continue
            if name == "keep_last":
                values[name] = _whole(value)
            else:
                values[f"{name.removesuffix('_hours')}_hours"] = _hours(value)
        return cls(**values)

    def __post_init__(self) -> None:
        if self.keep_hours is not None and not self.keep_hours >= LEAST_HOURS:
            raise ParameterError(
                f"keep_hours (--keep) must be 1 hour or more, not {_duration(self.keep_hours)}: a "
                "younger snapshot may be in use by a reader or writer right now."
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise ParameterError(
                f"keep_last must be 1 or more, not {self.keep_last}: the newest snapshot is the "
                "table."
            )
        if self.need_hours is not None and not self.need_hours > 0:
            raise ParameterError(
                f"need_hours (--need) must be more than 0, not {_duration(self.need_hours)}; "
                "leave it out if nobody needs to look back."
            )

    @property
    def is_stated(self) -> bool:
        """Whether somebody states how much history to keep: snapshots beyond it then expire,
        however few there are.
        """
        return self.keep_hours is not None or self.keep_last is not None

    def in_force(self, properties: Mapping[str, str]) -> tuple[int, int]:
        """Milliseconds and snapshots to keep on a table with these properties."""
        hours = self.keep_hours
        age_ms = (
            number(properties, "history.expire.max-snapshot-age-ms")
            if hours is None
            else round(hours * HOUR_MS)
        )
        if age_ms < LEAST_HOURS * HOUR_MS:
            raise ParameterError(
                f"The table property history.expire.max-snapshot-age-ms is {age_ms:,} ms, less "
                "than 1 hour. Raise it, or set keep_hours (--keep)."
            )
        last = self.keep_last
        if last is None:
            last = max(DEFAULT_LAST, number(properties, "history.expire.min-snapshots-to-keep"))
        return age_ms, last


@dataclass(frozen=True, slots=True)
class Retained:
    """What an expiry keeps and removes: snapshots, oldest first, and refs."""

    kept: tuple[int, ...]
    expired: tuple[int, ...]
    refs: tuple[str, ...]
    refs_dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expiry:
    """What expiring would remove and keep; times are milliseconds since 1970.

    ``reach_before_ms`` and ``reach_after_ms`` are the oldest commits of the current lineage that
    time travel reaches without a gap. ``cautions`` are sentences for people.
    """

    older_than: dt.datetime
    retain_last: int
    snapshots: Retained
    oldest_expired_ms: int | None
    newest_expired_ms: int | None
    reach_before_ms: int | None
    reach_after_ms: int | None
    cautions: tuple[str, ...]


def retained(metadata: Json, older_than_ms: int, retain_last: int, now_ms: int) -> Retained:
    """Which snapshots ``expire_snapshots`` keeps (source: RemoveSnapshots).

    It keeps the heads of refs; of each branch the newest ``retain_last`` ancestors and those
    not older than ``older_than_ms``, up to the first that is neither; and snapshots of no branch
    that are not older. ``now_ms`` decides whether a ref's own age limits apply.
    """
    snapshots = snapshots_by_id(metadata)
    refs = refs_of(metadata)
    default_ref_age = number(
        metadata.get("properties") or {}, "history.expire.max-ref-age-ms", FOREVER
    )
    kept: set[int] = set()
    referenced: set[int] = set()
    names, dropped = [], []
    for name, ref in sorted(refs.items()):
        head = snapshots.get(ref["snapshot-id"])
        too_old = head is None or now_ms - head["timestamp-ms"] > int(
            ref.get("max-ref-age-ms") or default_ref_age
        )
        if too_old and name != "main":
            dropped.append(name)
            continue
        names.append(name)
        kept.add(ref["snapshot-id"])
        if ref["type"] != "branch":
            referenced.add(ref["snapshot-id"])
            continue
        age = ref.get("max-snapshot-age-ms")
        oldest = older_than_ms if age is None else now_ms - int(age)
        least = int(ref.get("min-snapshots-to-keep") or retain_last)
        open_ended = True
        for rank, snapshot in enumerate(lineage(snapshots, snapshots.get(ref["snapshot-id"]))):
            if not open_ended and snapshot["snapshot-id"] in referenced:
                break  # and so are its ancestors
            referenced.add(snapshot["snapshot-id"])
            open_ended = open_ended and (rank < least or snapshot["timestamp-ms"] >= oldest)
            if open_ended:
                kept.add(snapshot["snapshot-id"])
    oldest_first = sorted(snapshots.values(), key=lambda s: int(s["timestamp-ms"]))
    ids = [int(snapshot["snapshot-id"]) for snapshot in oldest_first]
    # Of no branch, and young.
    kept |= {
        each
        for each in ids
        if each not in referenced and snapshots[each]["timestamp-ms"] >= older_than_ms
    }
    return Retained(
        tuple(each for each in ids if each in kept),
        tuple(each for each in ids if each not in kept),
        tuple(names),
        tuple(dropped),
    )


def expirable(metadata: Json, now_ms: int) -> int:
    """How many snapshots an expiry removes that keeps what the table's properties ask for, and what
    a plan keeps without a stated retention.
    """
    age_ms, last = Retention().in_force(metadata.get("properties") or {})
    return len(retained(metadata, now_ms - age_ms, last, now_ms).expired)


def expiry(metadata: Json, retention: Retention, now: dt.datetime) -> Expiry:
    """Compute what expiring with a retention removes now, and whether it keeps what people need.

    ``metadata`` is the table's metadata JSON. Raises
    :class:`~icekit.errors.ParameterError` if the retention keeps less than ``need_hours``.
    """
    properties = metadata.get("properties") or {}
    age_ms, last = retention.in_force(properties)
    now_ms = int(now.timestamp() * 1000)
    older_than_ms = now_ms - age_ms
    snapshots = snapshots_by_id(metadata)
    kept = retained(metadata, older_than_ms, last, now_ms)
    current = list(lineage(snapshots, snapshots.get(metadata.get("current-snapshot-id"))))
    window = _Window(age_ms, last, _cadence([s["timestamp-ms"] for s in current]))
    longer: list[str] = []
    if retention.need_hours is not None:
        then = _state_needed(retention.need_hours, window, current, now_ms)
        if then is not None:
            is_kept = then < len(_unbroken(current, kept))
            # The state of that time may have been committed long before. It stays by time: commits
            # that come before the expiry runs, the plan's own among them, would push it out of a
            # count.
            older_than_ms = min(older_than_ms, *(s["timestamp-ms"] for s in current[: then + 1]))
            kept = retained(metadata, older_than_ms, last, now_ms)
            if then >= len(_unbroken(current, kept)):
                raise _lost_state(retention.need_hours, current[then], now_ms)
            if not is_kept:
                longer.append(_longer(now_ms - older_than_ms, age_ms, retention.need_hours))
    expired = [snapshots[s]["timestamp-ms"] for s in kept.expired]
    return Expiry(
        older_than=_EPOCH + dt.timedelta(milliseconds=older_than_ms),
        retain_last=last,
        snapshots=kept,
        oldest_expired_ms=min(expired, default=None),
        newest_expired_ms=max(expired, default=None),
        reach_before_ms=_oldest(current),
        reach_after_ms=_oldest(_unbroken(current, kept)),
        cautions=(*longer, *_cautions(retention, window, kept)),
    )


def _oldest(snapshots: list[Json]) -> int | None:
    return min((s["timestamp-ms"] for s in snapshots), default=None)


def refs_of(metadata: Json) -> Mapping[str, Json]:
    """Branches and tags; metadata from before refs existed has only ``main``."""
    refs: dict[str, Json] = dict(metadata.get("refs") or {})
    current = metadata.get("current-snapshot-id")
    if "main" not in refs and current not in (None, -1):
        refs["main"] = {"snapshot-id": current, "type": "branch"}
    return refs


def _unbroken(current: list[Json], found: Retained) -> list[Json]:
    """The newest snapshots of the lineage up to the first that expires: what time travel reaches
    without a gap.
    """
    kept = frozenset(found.kept)
    return list(takewhile(lambda snapshot: snapshot["snapshot-id"] in kept, current))


def _cadence(newest_first: list[int]) -> float | None:
    """Median milliseconds between the last hundred commits; None with fewer than two."""
    gaps = [later - earlier for later, earlier in pairwise(newest_first[: _CADENCE_COMMITS + 1])]
    return statistics.median(gaps) if gaps else None


class _Window(NamedTuple):
    """What is kept: this many milliseconds, and this many snapshots, ``gap_ms`` apart (None:
    unknown).
    """

    age_ms: int
    last: int
    gap_ms: float | None


def _longer(kept_ms: int, asked_ms: int, need_hours: float) -> str:
    return (
        f"Snapshots of the last {span(kept_ms)} are kept instead of {span(asked_ms)}: the state "
        f"of the table {span(need_hours * HOUR_MS)} ago, which you need, is an older commit."
    )


def _lost_state(need_hours: float, snapshot: Json, now_ms: int) -> ParameterError:
    age = now_ms - snapshot["timestamp-ms"]
    return ParameterError(
        f"You need {span(need_hours * HOUR_MS)} of time travel, but the state of the table at "
        f"that time was committed {span(age)} ago and would expire: a limit of the branch itself "
        "overrides keep_last and keep_hours. Change that limit, or leave need_hours out."
    )


def _state_needed(
    need_hours: float, window: _Window, current: list[Json], now_ms: int
) -> int | None:
    """The place in the lineage of the snapshot that was current so many hours ago, None if the
    table is younger.

    Raises ParameterError for a retention that keeps less than is needed by time and by count.
    """
    age_ms, last, gap_ms = window
    need_ms = need_hours * HOUR_MS
    by_count = (last - 1) * (gap_ms or 0)
    if max(age_ms, by_count) < need_ms:
        kept = f"{span(age_ms)} and the last {count(last, 'snapshot')}"
        if gap_ms is not None:
            kept += f", which is {span(by_count)} of history {_pace(gap_ms)}"
        raise ParameterError(
            f"You need {span(need_ms)} of time travel, but the retention keeps {kept}. Set "
            f"keep_hours (--keep) to {_duration(need_hours)} or more."
        )
    return next(
        (index for index, s in enumerate(current) if s["timestamp-ms"] <= now_ms - need_ms), None
    )


def _pace(gap_ms: float) -> str:
    return (
        "at more than one commit per second"
        if gap_ms < 1000
        else f"at one commit every {span(gap_ms)}"
    )


def _cautions(retention: Retention, window: _Window, found: Retained) -> Iterator[str]:
    age_ms, last, gap_ms = window
    if gap_ms:
        by_count = last * gap_ms
        yield (
            f"{raised(_pace(gap_ms))}, keeping the last {count(last, 'snapshot')} reaches back "
            f"{span(by_count)}, and the time limit {span(age_ms)}: the longer of the two decides."
        )
        need_ms = (retention.need_hours or 0) * HOUR_MS
        if by_count >= need_ms > age_ms:
            yield (
                f"Only the count covers the {span(need_ms)} that you need. Set keep_hours "
                f"(--keep) to {_duration(need_ms / HOUR_MS)} to be sure."
            )
    if found.refs_dropped:
        yield (
            "Refs older than their max-ref-age, which the expiry also drops: "
            f"{', '.join(found.refs_dropped)}."
        )


def _hours(value: Any) -> float:
    text = str(value).strip()
    return float(text) if _NUMBER.fullmatch(text) else seconds(text) / 3600


def _duration(hours: float) -> str:
    """Hours as a person gives them: ``36 hours``, ``30 minutes``."""
    units = ((hours, "hour"), (hours * 60, "minute"), (hours * 3600, "second"))
    number, unit = next((each for each in units if abs(each[0]) >= 1), units[-1 if hours else 0])
    noun = unit if number == 1 else f"{unit}s"
    return f"{plain(number, 6)} {noun}"


def _whole(value: Any) -> int:
    text = str(value).strip()
    if not _NUMBER.fullmatch(text) or not float(text).is_integer():
        raise ParameterError(f"keep_last must be a whole number, not {value!r}.")
    return int(float(text))
