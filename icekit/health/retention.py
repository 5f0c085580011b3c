"""Compute which snapshots may expire, exactly as Iceberg's RemoveSnapshots does; pure.

Iceberg keeps a snapshot for its age **or** for its place among the last of a branch, whichever
keeps more, and always if a branch or tag points at it. Refs may have limits of their own,
which take precedence over those of the call.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from icekit.common import frozen
from icekit.common.errors import ParameterError, require_known
from icekit.common.parsing import seconds
from icekit.common.units import span
from icekit.health.metadata import Json, lineage, number, properties_of, snapshots_by_id

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HOUR_MS = 3_600_000
#: A run may be reading a snapshot that it has just found: nothing younger ever expires.
LEAST_HOURS = 1.0
#: Iceberg's default of history.expire.max-ref-age-ms.
FOREVER = 2**63 - 1
#: A choice: the number of snapshots to keep if the table asks for fewer.
DEFAULT_LAST = 10
_NUMBER = re.compile(r"-?\d+(\.\d*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history to keep: a time **and** a count, and the time travel that people need.

    ``keep_hours`` defaults to the table's ``history.expire.max-snapshot-age-ms`` (Iceberg's
    default: 5 days), ``keep_last`` to its ``history.expire.min-snapshots-to-keep``, at least 10.
    ``need_hours`` is how far people must be able to look back; a retention whose time is less is
    refused, and the commit that was current then is kept, too. Raises
    :class:`~icekit.common.errors.ParameterError` for less than one hour or less than one snapshot.
    """

    keep_hours: float | None = None
    keep_last: int | None = None
    need_hours: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Retention:
        """Make a retention from plain values of ``keep``, ``keep_last`` and ``need``: times as
        hours, or as strings such as ``7 days``.
        """
        values: dict[str, Any] = {}
        for name, value in given.items():
            require_known(name, ("keep", "keep_last", "need"), "retention setting")
            if value is None or value == "":
                continue
            if name == "keep_last":
                values[name] = _whole(value)
            else:
                values[f"{name}_hours"] = _hours(value)
        return cls(**values)

    def __post_init__(self) -> None:
        if self.keep_hours is not None and not self.keep_hours >= LEAST_HOURS:
            raise ParameterError(
                f"keep_hours (--keep) must be 1 hour or more, not {self.keep_hours:.2g}: a younger "
                "snapshot may be in use by a reader or writer right now."
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise ParameterError(
                f"keep_last must be 1 or more, not {self.keep_last}: the newest snapshot is the "
                "table."
            )
        if self.need_hours is not None and not self.need_hours > 0:
            raise ParameterError(
                "need_hours (--need) must be more than 0; leave it out if nobody needs to look "
                "back."
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


@frozen
class Retained:
    """What an expiry keeps and removes: snapshots, oldest first, and refs."""

    kept: tuple[int, ...]
    expired: tuple[int, ...]
    refs: tuple[str, ...]
    refs_dropped: tuple[str, ...]


@frozen
class Expiry:
    """What expiring would remove and keep; times are milliseconds since 1970.

    ``reach_before_ms`` and ``reach_after_ms`` are the oldest commits of the current lineage that
    time travel reaches without a gap.
    """

    older_than: dt.datetime
    retain_last: int
    snapshots: Retained
    oldest_expired_ms: int | None
    newest_expired_ms: int | None
    reach_before_ms: int | None
    reach_after_ms: int | None


def retained(metadata: Json, older_than_ms: int, retain_last: int, now_ms: int) -> Retained:
    """Which snapshots ``expire_snapshots`` keeps (source: RemoveSnapshots).

    It keeps the heads of refs; of each branch the newest ``retain_last`` ancestors and those
    not older than ``older_than_ms``, up to the first that is neither; and snapshots of no branch
    that are not older. ``now_ms`` decides whether a ref's own age limits apply.
    """
    snapshots = snapshots_by_id(metadata)
    refs = _refs(metadata)
    default_ref_age = number(properties_of(metadata), "history.expire.max-ref-age-ms", FOREVER)
    kept: set[int] = set()
    referenced: set[int] = set()
    names, dropped = [], []
    # Tags last: the walk of a branch ends where that of another one has been.
    for name, ref in sorted(refs.items(), key=lambda each: (each[1]["type"], each[0])):
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


def expiry(metadata: Json, retention: Retention, now: dt.datetime) -> Expiry:
    """Compute what expiring with a retention removes now, and whether it keeps what people need.

    ``metadata`` is the table's metadata JSON. Raises
    :class:`~icekit.common.errors.ParameterError` if the retention keeps less than ``need_hours``.
    """
    age_ms, last = retention.in_force(properties_of(metadata))
    now_ms = int(now.timestamp() * 1000)
    snapshots = snapshots_by_id(metadata)
    current = list(lineage(snapshots, snapshots.get(metadata.get("current-snapshot-id"))))
    needed = _needed(current, retention.need_hours, age_ms, now_ms)
    # By time, not by count: commits that come before the expiry runs, the plan's own among them,
    # would push the needed state out of a count.
    older_than_ms = min([now_ms - age_ms, *(s["timestamp-ms"] for s in needed)])
    kept = retained(metadata, older_than_ms, last, now_ms)
    reached = _unbroken(current, kept)
    if len(reached) < len(needed):
        raise ParameterError(
            f"You need {retention.need_hours:g} hours of time travel, but the state of the table "
            "at that time would expire: a limit of the branch itself overrides keep_last and "
            "keep_hours. Change that limit, or leave need_hours out."
        )
    expired = [snapshots[s]["timestamp-ms"] for s in kept.expired]
    return Expiry(
        older_than=_EPOCH + dt.timedelta(milliseconds=older_than_ms),
        retain_last=last,
        snapshots=kept,
        oldest_expired_ms=min(expired, default=None),
        newest_expired_ms=max(expired, default=None),
        reach_before_ms=_oldest(current),
        reach_after_ms=_oldest(reached),
    )


def _needed(current: list[Json], need_hours: float | None, age_ms: int, now_ms: int) -> list[Json]:
    """The snapshots of the lineage through the one that was current so many hours ago; none if the
    table is younger.

    Raises ParameterError for a retention that keeps a shorter time.
    """
    if need_hours is None:
        return []
    need_ms = need_hours * HOUR_MS
    if age_ms < need_ms:
        raise ParameterError(
            f"You need {need_hours:g} hours of time travel, but the retention keeps "
            f'{span(age_ms)}. Set keep_hours (--keep) to "{need_hours:g} hours" or more.'
        )
    for index, snapshot in enumerate(current):
        if snapshot["timestamp-ms"] <= now_ms - need_ms:
            return current[: index + 1]
    return []


def _oldest(snapshots: list[Json]) -> int | None:
    return min((s["timestamp-ms"] for s in snapshots), default=None)


def _refs(metadata: Json) -> Mapping[str, Json]:
    """Branches and tags; metadata from before refs existed has only ``main``."""
    refs: dict[str, Json] = dict(metadata.get("refs") or {})
    current = metadata.get("current-snapshot-id")
    if "main" not in refs and current not in (None, -1):
        refs["main"] = {"snapshot-id": current, "type": "branch"}
    return refs


def _unbroken(current: list[Json], split: Retained) -> list[Json]:
    """The newest snapshots of the lineage up to the first that expires: what time travel reaches
    without a gap.
    """
    kept = frozenset(split.kept)
    return list(takewhile(lambda snapshot: snapshot["snapshot-id"] in kept, current))


def _hours(value: Any) -> float:
    text = str(value).strip()
    return float(text) if _NUMBER.fullmatch(text) else seconds(text) / 3600


def _whole(value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ParameterError(f"keep_last must be a whole number, not {value!r}.") from None
