"""Compute which snapshots may expire: what Iceberg's RemoveSnapshots removes, except what writers
and staged writes need; pure.

Iceberg keeps a snapshot for its age **or** for its place among the last of a branch, whichever
keeps more, and always if a branch or tag points at it. Refs may have limits of their own,
which take precedence over those of the call. It knows nothing of the states that writers keep in
snapshots (:mod:`icekit.health.facts.writer_states`).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from icekit.common import frozen
from icekit.common.errors import ParameterError, require_known
from icekit.common.parsing import seconds
from icekit.common.units import count, count_with_verb, span, time_text
from icekit.health.facts.writer_states import (
    LineageRange,
    Lineages,
    Tally,
    WriterLog,
    branches_of,
    needed_to_publish,
    refs_of,
    staged_writes,
    state_ranges,
    stated_keys,
)
from icekit.iceberg.metadata import Json, lineage, number_property, properties_of, snapshots_by_id
from icekit.iceberg.snapshots import StagedWrite, WriterState

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
HOUR_MS = 3_600_000
#: A run may be reading a snapshot that it has just found: nothing younger ever expires.
LEAST_HOURS = 1.0
#: Iceberg's default of history.expire.max-ref-age-ms.
FOREVER = 2**63 - 1
#: A choice: the number of snapshots to keep if the table asks for fewer.
DEFAULT_LAST = 10
#: A choice: how long a writer may be silent, while others write, before its state may expire, and
#: how long a staged write may wait to be published.
DEFAULT_WRITER_HOURS = DEFAULT_STAGED_HOURS = 30 * 24.0
_NUMBER = re.compile(r"-?\d+(\.\d*)?")


#: The settings of a retention, as people name them.
SETTINGS = ("keep", "keep_last", "need", "keep_writers", "keep_staged", "writer_keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much history to keep: a time **and** a count, and the time travel that people need.

    ``keep_hours`` defaults to the table's ``history.expire.max-snapshot-age-ms`` (Iceberg's
    default: 5 days), ``keep_last`` to its ``history.expire.min-snapshots-to-keep``, at least 10.
    ``need_hours`` is how far people must be able to look back; a retention whose time is less is
    refused, and the commit that was current then is kept, too. The state of a writer is kept until
    it has been silent for ``keep_writers_hours`` while others went on writing, a staged write for
    ``keep_staged_hours``; ``writer_keys`` are the summary keys of other writers, as
    :func:`icekit.health.facts.writer_states.stated_keys` reads them. Raises
    :class:`~icekit.common.errors.ParameterError` for less than one hour or less than one snapshot.
    """

    keep_hours: float | None = None
    keep_last: int | None = None
    need_hours: float | None = None
    keep_writers_hours: float = DEFAULT_WRITER_HOURS
    keep_staged_hours: float = DEFAULT_STAGED_HOURS
    writer_keys: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Retention:
        """Make a retention from plain values of :data:`SETTINGS`: times as hours, or as strings
        such as ``7 days``.
        """
        field_values: dict[str, Any] = {}
        for setting_name, setting_value in settings.items():
            require_known(setting_name, SETTINGS, "retention setting")
            if setting_value is None or setting_value == "":
                continue
            if setting_name == "keep_last":
                field_values[setting_name] = _whole_number(setting_value)
            elif setting_name == "writer_keys":
                key_texts = (
                    setting_value.split(",") if isinstance(setting_value, str) else setting_value
                )
                field_values[setting_name] = tuple(key.strip() for key in key_texts)
            else:
                field_values[f"{setting_name}_hours"] = _hours(setting_value)
        return cls(**field_values)

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
        if not (self.keep_writers_hours >= 0 and self.keep_staged_hours >= 0):
            raise ParameterError("keep_writers and keep_staged must be a time of 0 or more.")
        stated_keys(self.writer_keys)

    @property
    def is_stated(self) -> bool:
        """Whether somebody states how much history to keep: snapshots beyond it then expire,
        however few there are.
        """
        return self.keep_hours is not None or self.keep_last is not None

    @property
    def command_options(self) -> tuple[str, ...]:
        """The options of a command that states this retention."""
        hours_by_option = {
            "--keep": self.keep_hours,
            "--need": self.need_hours,
            "--keep-writers": self.keep_writers_hours,
            "--keep-staged": self.keep_staged_hours,
        }
        default_hours_by_option = {
            "--keep-writers": DEFAULT_WRITER_HOURS,
            "--keep-staged": DEFAULT_STAGED_HOURS,
        }
        option_arguments = [
            argument
            for option_name, hours in hours_by_option.items()
            if hours is not None and hours != default_hours_by_option.get(option_name)
            for argument in (option_name, "1 hour" if hours == 1 else f"{hours:g} hours")
        ]
        if self.keep_last is not None:
            option_arguments += ["--keep-last", str(self.keep_last)]
        if self.writer_keys:
            option_arguments += ["--writer-keys", ",".join(self.writer_keys)]
        return tuple(option_arguments)

    def time_and_count(self, properties: Mapping[str, str]) -> tuple[int, int]:
        """Milliseconds and snapshots to keep on a table with these properties."""
        keep_hours = self.keep_hours
        max_age_ms = (
            number_property(properties, "history.expire.max-snapshot-age-ms")
            if keep_hours is None
            else round(keep_hours * HOUR_MS)
        )
        if max_age_ms < LEAST_HOURS * HOUR_MS:
            raise ParameterError(
                f"The table property history.expire.max-snapshot-age-ms is {max_age_ms:,} ms, less "
                "than 1 hour. Raise it, or set keep_hours (--keep)."
            )
        min_snapshot_count = self.keep_last
        if min_snapshot_count is None:
            min_snapshot_count = max(
                DEFAULT_LAST, number_property(properties, "history.expire.min-snapshots-to-keep")
            )
        return max_age_ms, min_snapshot_count


@frozen
class Retained:
    """What an expiry keeps and removes: snapshots, and refs."""

    remaining_ids: tuple[int, ...]
    expired_ids: tuple[int, ...]
    remaining_refs: tuple[str, ...]
    expired_refs: tuple[str, ...]


@frozen
class Needs:
    """What writers and staged writes need of the snapshots.

    ``ranges_by_state`` has all states, with the snapshots that each needs as ranges of the
    ``lineages``; ``kept_states`` are those that are kept, and ``staged_writes`` the staged writes
    that are; ``expired_staged_writes`` are staged writes that are older than the retention keeps
    them. ``snapshot_ids`` are the snapshots that all that is kept needs.
    """

    lineages: Lineages
    ranges_by_state: Mapping[WriterState, Sequence[LineageRange]]
    kept_states: tuple[WriterState, ...]
    staged_writes: tuple[StagedWrite, ...]
    expired_staged_writes: tuple[StagedWrite, ...]
    snapshot_ids: frozenset[int]


@frozen
class StateKept:
    """The state of a writer that stays, and how many snapshots stay for it that would go
    otherwise.
    """

    state: WriterState
    snapshot_count: int


@frozen
class ExpirySummary:
    """What an expiry removes for good and what it leaves, without the ids of snapshots; times are
    milliseconds since 1970.

    ``reach_before_ms`` and ``reach_after_ms`` are the oldest commits of the current lineage that
    time travel reaches without a gap. ``states_kept`` and ``staged_kept`` are what stays for
    writers and for staged writes, ``states_lost`` and ``staged_lost`` what goes;
    ``kept_for_writers`` are the snapshots that stay for writers alone. ``is_stock``: Iceberg's own
    ``expire_snapshots`` with the same time keeps all of that, too, whatever is committed before it
    runs.
    """

    snapshots_removed: int
    snapshots_kept: int
    oldest_removed_ms: int | None
    newest_removed_ms: int | None
    reach_before_ms: int | None
    reach_after_ms: int | None
    refs_removed: tuple[str, ...] = ()
    kept_for_writers: int = 0
    states_kept: tuple[StateKept, ...] = ()
    staged_kept: tuple[StagedWrite, ...] = ()
    states_lost: tuple[WriterState, ...] = ()
    staged_lost: tuple[StagedWrite, ...] = ()
    is_stock: bool = True

    @property
    def staying_sentences(self) -> tuple[str, ...]:
        """What stays for writers and staged writes: ``6 more snapshots stay: Flink job 7f1c,
        checkpoint 41``.
        """
        sentences = []
        if self.kept_for_writers:
            state_texts = [
                state_kept.state.text
                for state_kept in self.states_kept
                if state_kept.snapshot_count
            ]
            snapshot_count_text = count_with_verb(
                self.kept_for_writers, "more snapshot", "stays", "stay"
            )
            sentences.append(f"{snapshot_count_text}: {_names_text(state_texts)}")
        if self.staged_kept:
            staged_write_texts = [staged_write.text for staged_write in self.staged_kept]
            staged_count_text = count_with_verb(
                len(staged_write_texts), "unpublished staged write", "stays", "stay"
            )
            sentences.append(f"{staged_count_text}: {_names_text(staged_write_texts)}")
        return tuple(sentences)

    @property
    def removal_sentences(self) -> tuple[str, ...]:
        """What goes for good: snapshots with their time travel, refs, states and staged writes."""
        sentences = []
        if self.snapshots_removed:
            oldest_time_text = time_text(self.oldest_removed_ms or 0)
            newest_time_text = time_text(self.newest_removed_ms or 0)
            period_text = (
                f"of {oldest_time_text}"
                if oldest_time_text == newest_time_text
                else f"from {oldest_time_text} to {newest_time_text}"
            )
            sentences.append(f"{count(self.snapshots_removed, 'snapshot')} {period_text}")
        reach_before_ms = self.reach_before_ms
        reach_after_ms = self.reach_after_ms
        if (
            reach_before_ms is not None
            and reach_after_ms is not None
            and reach_before_ms != reach_after_ms
        ):
            sentences.append(
                f"time travel to before {time_text(reach_after_ms)} (it reached back to "
                f"{time_text(reach_before_ms)})"
            )
        if self.refs_removed:
            sentences.append(f"refs older than their max-ref-age: {_names_text(self.refs_removed)}")
        if self.states_lost:
            state_texts = [
                f"{writer_state.text} (silent for {span(writer_state.silent_ms)})"
                for writer_state in self.states_lost
            ]
            writer_count_text = count(len(state_texts), "writer")
            sentences.append(f"the state of {writer_count_text}: {_names_text(state_texts)}")
        if self.staged_lost:
            staged_write_texts = [staged_write.text for staged_write in self.staged_lost]
            staged_count_text = count(len(staged_write_texts), "unpublished staged write")
            sentences.append(f"{staged_count_text}: {_names_text(staged_write_texts)}")
        return tuple(sentences)


# The names that a sentence has.
_NAMED = 5


def _names_text(names: Sequence[str]) -> str:
    """Some names for a sentence, each once."""
    unique_names = list(dict.fromkeys(names))
    omitted_count = len(unique_names) - _NAMED
    return "; ".join(unique_names[:_NAMED]) + (
        f"; and {omitted_count:,} more" if omitted_count > 0 else ""
    )


@frozen
class Expiry:
    """What expiring would remove and keep.

    ``conflict`` is what cannot be kept, because a branch has an age limit of its own, by which each
    expiry removes it; nothing may expire then.
    """

    older_than: dt.datetime
    retain_last: int
    snapshots: Retained
    needs: Needs
    conflict: str | None
    summary: ExpirySummary


def retained_snapshots(
    metadata: Json,
    older_than_ms: int,
    retain_last: int,
    now_ms: int,
) -> Retained:
    """Which snapshots ``expire_snapshots`` keeps (source: RemoveSnapshots).

    It keeps the heads of refs; of each branch the newest ``retain_last`` ancestors and those
    not older than ``older_than_ms``, up to the first that is neither; and snapshots of no branch
    that are not older. ``now_ms`` decides whether a ref's own age limits apply.
    """
    snapshots = snapshots_by_id(metadata)
    refs_by_name = refs_of(metadata)
    old_ref_names = _expired_ref_names(metadata, now_ms)
    kept_snapshot_ids: set[int] = set()
    referenced_snapshot_ids: set[int] = set()
    remaining_ref_names = []
    expired_ref_names = []
    # Tags last: the walk of a branch ends where that of another one has been.
    for ref_name, ref in sorted(
        refs_by_name.items(), key=lambda name_and_ref: (name_and_ref[1]["type"], name_and_ref[0])
    ):
        if ref_name in old_ref_names:
            expired_ref_names.append(ref_name)
            continue
        remaining_ref_names.append(ref_name)
        kept_snapshot_ids.add(ref["snapshot-id"])
        if ref["type"] != "branch":
            referenced_snapshot_ids.add(ref["snapshot-id"])
            continue
        max_age_ms = ref.get("max-snapshot-age-ms")
        min_timestamp_ms = older_than_ms if max_age_ms is None else now_ms - int(max_age_ms)
        min_snapshot_count = int(ref.get("min-snapshots-to-keep") or retain_last)
        is_within_limits = True
        for rank, snapshot in enumerate(lineage(snapshots, snapshots.get(ref["snapshot-id"]))):
            if not is_within_limits and snapshot["snapshot-id"] in referenced_snapshot_ids:
                break  # and so are its ancestors
            referenced_snapshot_ids.add(snapshot["snapshot-id"])
            is_within_limits = is_within_limits and (
                rank < min_snapshot_count or snapshot["timestamp-ms"] >= min_timestamp_ms
            )
            if is_within_limits:
                kept_snapshot_ids.add(snapshot["snapshot-id"])
    snapshots_oldest_first = sorted(snapshots.values(), key=lambda s: int(s["timestamp-ms"]))
    ids_oldest_first = [int(snapshot["snapshot-id"]) for snapshot in snapshots_oldest_first]
    # Of no branch, and young.
    kept_snapshot_ids |= {
        snapshot_id
        for snapshot_id in ids_oldest_first
        if snapshot_id not in referenced_snapshot_ids
        and snapshots[snapshot_id]["timestamp-ms"] >= older_than_ms
    }
    return Retained(
        tuple(snapshot_id for snapshot_id in ids_oldest_first if snapshot_id in kept_snapshot_ids),
        tuple(
            snapshot_id for snapshot_id in ids_oldest_first if snapshot_id not in kept_snapshot_ids
        ),
        tuple(remaining_ref_names),
        tuple(expired_ref_names),
    )


def removed_by_ref_limits(metadata: Json, now_ms: int) -> Retained:
    """What every expiry removes, whatever it names: branches and tags, and snapshots of branches,
    that are past age limits of their own.
    """
    return retained_snapshots(metadata, 0, 1, now_ms)


def _expired_ref_names(metadata: Json, now_ms: int) -> frozenset[str]:
    """The branches and tags that an expiry drops for their age; never main."""
    snapshots = snapshots_by_id(metadata)
    default_max_age_ms = number_property(
        properties_of(metadata), "history.expire.max-ref-age-ms", FOREVER
    )
    old_ref_names = set()
    for ref_name, ref in refs_of(metadata).items():
        head_snapshot = snapshots.get(ref["snapshot-id"])
        max_age_ms = int(ref.get("max-ref-age-ms") or default_max_age_ms)
        if ref_name != "main" and (
            head_snapshot is None or now_ms - head_snapshot["timestamp-ms"] > max_age_ms
        ):
            old_ref_names.add(ref_name)
    return frozenset(old_ref_names)


def expiry(
    metadata: Json, retention: Retention, now: dt.datetime, writer_log: WriterLog | None = None
) -> Expiry:
    """Compute what expiring with a retention removes now, and whether it keeps what people need.

    ``metadata`` is the table's metadata JSON; ``writer_log`` is what its snapshots carry for
    writers, by the keys of the retention, if that was read before. Raises
    :class:`~icekit.common.errors.ParameterError` if the retention keeps less than ``need_hours``.
    """
    max_age_ms, retain_last = retention.time_and_count(properties_of(metadata))
    now_ms = int(now.timestamp() * 1000)
    current_lineage = _current_lineage(metadata)
    needed_snapshots = _needed_snapshots(current_lineage, retention.need_hours, max_age_ms, now_ms)
    # By time, not by count: commits that come before the expiry runs, the plan's own among them,
    # would push the needed state out of a count.
    older_than_ms = min([now_ms - max_age_ms, *(s["timestamp-ms"] for s in needed_snapshots)])
    expiry_result = expiry_older_than(
        metadata, older_than_ms, retain_last, retention, now_ms, writer_log
    )
    if len(_reachable_snapshots(current_lineage, expiry_result.snapshots)) < len(needed_snapshots):
        raise ParameterError(
            f"You need {retention.need_hours:g} hours of time travel, but the state of the table "
            "at that time would expire: a limit of the branch itself overrides keep_last and "
            "keep_hours. Change that limit, or leave need_hours out."
        )
    return expiry_result


def expiry_older_than(
    metadata: Json,
    older_than_ms: int,
    retain_last: int,
    retention: Retention,
    now_ms: int,
    writer_log: WriterLog | None = None,
) -> Expiry:
    """Compute what an expiry of the snapshots older than a time removes; of the ``retention`` only
    what it keeps for writers and staged writes counts; ``writer_log`` as in :func:`expiry`.
    """
    snapshots = snapshots_by_id(metadata)
    needs = retention_needs(metadata, retention, now_ms, writer_log)
    stock_outcome = retained_snapshots(metadata, older_than_ms, retain_last, now_ms)
    stock_kept_ids = frozenset(stock_outcome.remaining_ids)
    kept_snapshot_ids = stock_kept_ids | needs.snapshot_ids
    outcome = Retained(
        tuple(
            snapshot_id
            for snapshot_id in (*stock_outcome.remaining_ids, *stock_outcome.expired_ids)
            if snapshot_id in kept_snapshot_ids
        ),
        tuple(
            snapshot_id
            for snapshot_id in stock_outcome.expired_ids
            if snapshot_id not in kept_snapshot_ids
        ),
        stock_outcome.remaining_refs,
        stock_outcome.expired_refs,
    )
    ids_kept_by_age = stock_kept_ids
    if needs.snapshot_ids:
        ids_kept_by_age = frozenset(
            retained_snapshots(metadata, older_than_ms, 1, now_ms).remaining_ids
        )
    current_lineage = _current_lineage(metadata)
    removed_times = [snapshots[snapshot_id]["timestamp-ms"] for snapshot_id in outcome.expired_ids]
    kept_ranges = [
        state_range
        for writer_state in needs.kept_states
        for state_range in needs.ranges_by_state[writer_state]
    ]
    extra_kept_tally = Tally(needs.lineages, frozenset(outcome.remaining_ids) - stock_kept_ids)
    removed_tally = Tally(needs.lineages, frozenset(outcome.expired_ids))
    summary = ExpirySummary(
        len(outcome.expired_ids),
        len(outcome.remaining_ids),
        min(removed_times, default=None),
        max(removed_times, default=None),
        _oldest_ms(current_lineage),
        _oldest_ms(_reachable_snapshots(current_lineage, outcome)),
        outcome.expired_refs,
        kept_for_writers=len(needs.lineages.snapshot_ids(kept_ranges) - stock_kept_ids),
        states_kept=tuple(
            StateKept(writer_state, extra_kept_tally.count(needs.ranges_by_state[writer_state]))
            for writer_state in needs.kept_states
        ),
        staged_kept=needs.staged_writes,
        states_lost=tuple(
            writer_state
            for writer_state, ranges_of_state in needs.ranges_by_state.items()
            if removed_tally.count(ranges_of_state)
            or set(writer_state.branches) <= set(outcome.expired_refs)
        ),
        staged_lost=tuple(
            staged_write
            for staged_write in needs.expired_staged_writes
            if staged_write.snapshot_id not in kept_snapshot_ids
        ),
        is_stock=ids_kept_by_age >= needs.snapshot_ids,
    )
    return Expiry(
        _EPOCH + dt.timedelta(milliseconds=older_than_ms),
        retain_last,
        outcome,
        needs,
        conflict_with_limits(metadata, needs, now_ms),
        summary,
    )


def _current_lineage(metadata: Json) -> list[Json]:
    snapshots = snapshots_by_id(metadata)
    return list(lineage(snapshots, snapshots.get(metadata.get("current-snapshot-id"))))


def retention_needs(
    metadata: Json, retention: Retention, now_ms: int, writer_log: WriterLog | None = None
) -> Needs:
    """What writers and staged writes need of the snapshots; ``writer_log`` as in :func:`expiry`."""
    max_silent_ms = retention.keep_writers_hours * HOUR_MS
    max_staged_age_ms = retention.keep_staged_hours * HOUR_MS
    writer_log = (
        WriterLog(metadata, stated_keys(retention.writer_keys))
        if writer_log is None
        else writer_log
    )
    lineages = writer_log.lineages
    old_ref_names = _expired_ref_names(metadata, now_ms)
    ranges_by_state = {
        writer_state: state_ranges(lineages, writer_state, old_ref_names)
        for writer_state in writer_log.states(most_silent_ms=max_silent_ms)
    }
    kept_states = tuple(
        writer_state
        for writer_state in ranges_by_state
        if max_silent_ms > 0
        and writer_state.silent_ms <= max_silent_ms
        and not old_ref_names.issuperset(writer_state.branches)
    )
    all_staged_writes = staged_writes(metadata)
    recent_staged_writes = tuple(
        staged_write
        for staged_write in all_staged_writes
        if now_ms - staged_write.committed_ms <= max_staged_age_ms
    )
    needed_snapshot_ids = lineages.snapshot_ids(
        state_range for writer_state in kept_states for state_range in ranges_by_state[writer_state]
    )
    for staged_write in recent_staged_writes:
        needed_snapshot_ids |= needed_to_publish(metadata, lineages, staged_write)
    return Needs(
        lineages,
        ranges_by_state,
        kept_states,
        recent_staged_writes,
        tuple(
            staged_write
            for staged_write in all_staged_writes
            if now_ms - staged_write.committed_ms > max_staged_age_ms
        ),
        frozenset(needed_snapshot_ids),
    )


def conflict_with_limits(metadata: Json, needs: Needs, now_ms: int) -> str | None:
    """Why nothing may expire: a branch has an age limit of its own, by which each expiry removes
    snapshots that are needed, whatever it names.
    """
    limited_branches = [
        branch_name
        for branch_name, ref in branches_of(metadata).items()
        if ref.get("max-snapshot-age-ms")
    ]
    if not needs.snapshot_ids or not limited_branches:
        return None
    ids_past_limits = frozenset(removed_by_ref_limits(metadata, now_ms).expired_ids)
    removed_needed_ids = ids_past_limits & needs.snapshot_ids
    if not removed_needed_ids:
        return None
    removed_tally = Tally(needs.lineages, removed_needed_ids)
    affected_states = [
        writer_state
        for writer_state in needs.kept_states
        if removed_tally.count(needs.ranges_by_state[writer_state])
    ]
    affected_branches = (
        branch_name
        for branch_name in limited_branches
        if removed_tally.count(needs.lineages.ranges(branch_name))
    )
    conflicting_branch = next(affected_branches, limited_branches[0])
    affected_need_text = affected_states[0].text if affected_states else needs.staged_writes[0].text
    return (
        f"The branch {conflicting_branch} has an age limit of its own (max-snapshot-age-ms), by "
        f"which every expiry removes snapshots that are needed: {affected_need_text}. Remove that "
        "limit, or state a shorter time for what is needed (--keep-writers, --keep-staged)."
    )


def _needed_snapshots(
    current_lineage: list[Json], need_hours: float | None, max_age_ms: int, now_ms: int
) -> list[Json]:
    """The snapshots of the lineage through the one that was current so many hours ago; none if the
    table is younger.

    Raises ParameterError for a retention that keeps a shorter time.
    """
    if need_hours is None:
        return []
    needed_age_ms = need_hours * HOUR_MS
    if max_age_ms < needed_age_ms:
        raise ParameterError(
            f"You need {need_hours:g} hours of time travel, but the retention keeps "
            f'{span(max_age_ms)}. Set keep_hours (--keep) to "{need_hours:g} hours" or more.'
        )
    for index, snapshot in enumerate(current_lineage):
        if snapshot["timestamp-ms"] <= now_ms - needed_age_ms:
            return current_lineage[: index + 1]
    return []


def _oldest_ms(snapshots: list[Json]) -> int | None:
    return min((s["timestamp-ms"] for s in snapshots), default=None)


def _reachable_snapshots(current_lineage: list[Json], outcome: Retained) -> list[Json]:
    """The newest snapshots of the lineage up to the first that expires: what time travel reaches
    without a gap.
    """
    kept_ids = frozenset(outcome.remaining_ids)
    return list(takewhile(lambda snapshot: snapshot["snapshot-id"] in kept_ids, current_lineage))


def _hours(hours_or_duration: Any) -> float:
    duration = str(hours_or_duration).strip()
    return float(duration) if _NUMBER.fullmatch(duration) else seconds(duration) / 3600


def _whole_number(value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ParameterError(f"keep_last must be a whole number, not {value!r}.") from None
