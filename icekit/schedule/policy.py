"""Define a policy: which tables, when they are due, what may be done to them in which hours, who is notified."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, field_validator, model_validator
from pydantic_core import PydanticCustomError

from icekit.compact.model import SETTINGS
from icekit.compact.model import Policy as CompactPolicy
from icekit.diagnose.findings import Thresholds
from icekit.engine.predicate import check_text
from icekit.errors import LONGEST_WAIT, IcekitError, ParameterError, nearest, require_seconds
from icekit.facts.retention import Retention
from icekit.maintain.plan import DEFAULT_PROCEDURES, Procedure
from icekit.notebook import check_gate
from icekit.parsing import seconds, size_in_bytes
from icekit.run import sampled
from icekit.sql import pattern_levels

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FORM = re.compile(r"(?:([A-Za-z][A-Za-z,\- ]*?)\s+)?(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_DAY = 24 * 60
# After a week everything repeats; one more day for hours that began the day before, and one for a clock change.
_AHEAD = 9


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of some days, in local time: minutes after midnight, ``end`` not included.

    An ``end`` that is not after ``start`` is on the next day; ``days`` (0 is Monday) are the days on which the hours begin.
    """

    days: frozenset[int]
    start: int
    end: int
    said: str

    @classmethod
    def of(cls, text: str) -> Hours:
        """Read ``22:00-06:00``, ``Mon-Fri 08:00-18:00`` or ``Sat,Sun 00:00-24:00``.

        Raises :class:`~icekit.errors.ParameterError`.
        """
        found = _FORM.fullmatch(str(text).strip())
        if not found:
            raise ParameterError(f"{text!r} is not a range of hours. Write it as 22:00-06:00, or Mon-Fri 08:00-18:00.")
        start, end = (int(found[n]) * 60 + int(found[n + 1]) for n in (2, 4))
        if start >= _DAY or end > _DAY or int(found[3]) > 59 or int(found[5]) > 59:
            raise ParameterError(f"{text!r} contains an invalid time; the last time of a day is 24:00.")
        if start == end:
            raise ParameterError(f"{text!r} ends when it begins. For the full day write 00:00-24:00.")
        return cls(_days(found[1] or "Mon-Sun"), start, end, str(text).strip())

    def spans(self, first: dt.date, zone: ZoneInfo, days: int = _AHEAD) -> list[tuple[dt.datetime, dt.datetime]]:
        """Start and end, in UTC, on each matching day from ``first`` on."""
        found = []
        for day in (first + dt.timedelta(days=n) for n in range(days)):
            if day.weekday() in self.days:
                last = day if self.end > self.start else day + dt.timedelta(days=1)
                found.append((_moment(day, self.start, zone), _moment(last, self.end, zone)))
        return found


def is_within(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> bool:
    """Whether a moment is within any of the hours."""
    return until(hours, zone, now) is not None


def until(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> dt.datetime | None:
    """When the hours that contain ``now`` end (adjacent hours count as one); None if none contain it."""
    spans = _spans(hours, zone, now)
    end: dt.datetime | None = None
    for start, stop in spans:
        if start <= (end or now) < stop:
            end = stop
    return end


def begins(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> dt.datetime | None:
    """When the next hours begin after ``now``; None without any."""
    return min((start for start, _ in _spans(hours, zone, now) if start > now), default=None)


def _spans(hours: Sequence[Hours], zone: ZoneInfo, now: dt.datetime) -> list[tuple[dt.datetime, dt.datetime]]:
    yesterday = now.astimezone(zone).date() - dt.timedelta(days=1)
    return sorted(span for one in hours for span in one.spans(yesterday, zone))


def _moment(day: dt.date, minutes: int, zone: ZoneInfo) -> dt.datetime:
    # From the day's own midnight, because an hour of that day may occur twice or not at all.
    day, minutes = day + dt.timedelta(days=minutes // _DAY), minutes % _DAY
    return dt.datetime(day.year, day.month, day.day, minutes // 60, minutes % 60, tzinfo=zone).astimezone(dt.UTC)


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        a, b = _day(first, text), _day(last or first, text)
        found.update(range(a, b + 1) if a <= b else (*range(a, 7), *range(b + 1)))
    return frozenset(found)


def _day(name: str, text: str) -> int:
    short = name.lower()[:3]
    if len(name) < 3 or short not in _DAYS:
        raise ParameterError(
            f"{name!r} in {text!r} is not a day{nearest(short, _DAYS, count=1) or '; use Mon, Tue, Wed, Thu, Fri, Sat, Sun.'}"
        )
    return _DAYS.index(short)


# --- Convert the texts of a policy into values: budgets, times, hours, globs; errors say what is accepted


def told(error: IcekitError | str) -> PydanticCustomError:
    """An error as pydantic collects it; the text is kept unchanged."""
    return PydanticCustomError("icekit", "{said}", {"said": str(error)})


def by(read: Callable[[Any], Any]) -> BeforeValidator:
    """A validator from a function that raises icekit's own errors."""

    def validated(value: Any) -> Any:
        try:
            return read(value)
        except IcekitError as error:
            raise told(error) from None

    return BeforeValidator(validated)


@dataclass(frozen=True, slots=True)
class PassBudget:
    """How much may be read, and how long work may take; None means no limit."""

    bytes: int | None = None
    files: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, value: Any) -> PassBudget:
        """Read ``200 GB``, ``500 files``, ``30 minutes``, or a list of one of each."""
        if isinstance(value, PassBudget):
            return value
        found: dict[str, Any] = {}
        for text in texts(value):
            read = CompactPolicy.of({"budget": text})
            if read.budget_rows is not None:
                raise ParameterError("The budget of a pass is in bytes, files or time, not in rows.")
            for name, given in (
                ("bytes", read.budget_bytes),
                ("files", read.budget_files),
                ("seconds", None if read.budget_minutes is None else read.budget_minutes * 60),
            ):
                if given is not None:
                    if name in found:
                        raise ParameterError(f"The budget has two limits of {name}; keep one.")
                    found[name] = given
        return cls(**found)


def texts(value: Any) -> tuple[str, ...]:
    """One text or a list of them."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in found):
        raise ParameterError(f"{value!r} is not a string or a list of strings.")
    return tuple(one.strip() for one in found)


def _patterns(value: Any) -> tuple[str, ...]:
    """Patterns of table names; see :func:`icekit.sql.pattern_levels`."""
    found = texts(value)
    for pattern in found:
        pattern_levels(pattern)
    return found


def _profile(value: Any) -> str:
    if not isinstance(value, str) or "://" in value:
        # An address may hold a password, and is not repeated.
        raise ParameterError("It is not the name of a catalog. Give the name of a profile, which has the address.")
    return value


def _zone(value: Any) -> ZoneInfo:
    if isinstance(value, ZoneInfo):
        return value
    try:
        return ZoneInfo(str(value))
    except (ValueError, OSError, KeyError):
        from zoneinfo import available_timezones

        from icekit.errors import nearest

        raise ParameterError(
            f"There is no time zone {value!r}{nearest(str(value), available_timezones(), count=1) or '; use Europe/Berlin, or UTC.'}"
        ) from None


def _hours(value: Any) -> tuple[Hours, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(one, Hours) for one in value):
        return tuple(value)
    return tuple(Hours.of(text) for text in texts(value))


def _span(value: Any) -> float:
    if isinstance(value, float) and not 0 <= value <= LONGEST_WAIT:
        raise ParameterError(f"{value!r} is not a duration. Write it as 30 minutes, 2 hours or 7 days.")
    return value if isinstance(value, float) else seconds(str(value))


def _patience(value: Any) -> float:
    found = _span(value)
    require_seconds("It", found)
    return found


Flag = StrictBool
Texts = Annotated[tuple[str, ...], by(texts)]
Patterns = Annotated[tuple[str, ...], by(_patterns)]
Profile = Annotated[str, by(_profile)]
Limits = Annotated[PassBudget, by(PassBudget.of)]
Times = Annotated[tuple[Hours, ...], by(_hours)]
Zone = Annotated[ZoneInfo, by(_zone)]
#: Seconds.
Span = Annotated[float, by(_span)]
#: A time limit in seconds: more than 0.
Patience = Annotated[float, by(_patience)]


# --- The parts of a policy: which tables, when they are due, what may be done to them, who is notified


#: The actions that a rule may allow in addition to reporting, in the order in which they run.
ACTIONS = ("convert", "compact", "maintain")
#: The events that a receiver may be notified of.
News = Literal["unhealthy", "failed", "resolved", "done"]

Gate = Literal["never", "warning", "critical"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True)


def _proved(value: Any) -> str:
    sampled(str(value))
    return str(value)


OneOrMore = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
Proved = Annotated[str, by(_proved)]


class Trigger(_Section):
    """When a table is due: if any of these is reached since its last pass; icekit's own commits do not count.

    ``commits``, ``delete_records`` (positions and equality deletes added) and ``small_files`` (data files added by
    commits whose mean file is undersized) are read from snapshot summaries; ``every`` is a time.
    """

    commits: Annotated[int, Field(ge=1)] | None = None
    delete_records: Annotated[int, Field(ge=1)] | None = None
    small_files: Annotated[int, Field(ge=1)] | None = None
    every: Span | None = None

    @model_validator(mode="after")
    def _some(self) -> Trigger:
        if not self.model_fields_set:
            raise told("it is empty, so nothing would ever be due; give commits, delete_records, small_files or every")
        return self


class Compact(_Section):
    """A compaction: planned, and run if ``execute``. The settings are those of ``icekit compact``."""

    execute: Flag = False
    trial: Flag = False
    prove: Proved = "checked"
    budget: Limits = PassBudget()
    scope: Any = None
    strategy: Any = None
    columns: Any = None
    since: Any = None
    until: Any = None
    skip_last: Any = None
    leave_alone: Any = None
    min_files: Any = None
    delete_ratio: Any = None
    min_win: Any = None
    old_specs: Any = None
    max_action_bytes: Any = None
    max_action_partitions: Any = None

    @field_validator(*(name for name in SETTINGS if name != "budget"), mode="before")
    @classmethod
    def _one(cls, value: Any, info: Any) -> Any:
        return _checked(lambda: CompactPolicy.of({info.field_name: value}), value)

    @model_validator(mode="after")
    def _together(self) -> Compact:
        _checked(self.settings, None)
        return self

    def settings(self, budget_bytes: int | None = None, budget_files: int | None = None) -> CompactPolicy:
        """The arguments for :func:`icekit.compact.plan_table`; the budget may be smaller than the rule's own."""
        given = {name: getattr(self, name) for name in SETTINGS if name != "budget"}
        made = CompactPolicy.of({name: value for name, value in given.items() if value is not None})
        return dataclasses.replace(
            made,
            budget_bytes=_least(self.budget.bytes, budget_bytes),
            budget_files=_least(self.budget.files, budget_files),
        )


class Convert(_Section):
    """A conversion of equality deletes: planned, and run if ``execute``."""

    execute: Flag = False
    prove: Proved = "checked"
    where: str | None = None
    batch_bytes: str | None = None

    @field_validator("where")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        """Checks that need no table."""
        return value if value is None else _checked(lambda: check_text(value), value)

    @field_validator("batch_bytes")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        return value if value is None else _checked(lambda: size_in_bytes(value), value)


class Maintain(_Section):
    """Position deletes, manifests, expiry, orphan files: planned, and run if ``execute``.

    ``procedures`` are those that may run (default: all except ``remove_orphan_files``, which must be named; naming it lists
    the storage). ``keep``, ``keep_last`` and ``need`` are as for ``icekit maintain``.
    """

    execute: Flag = False
    prove: Proved = "checked"
    procedures: Annotated[tuple[Procedure, ...], OneOrMore] = DEFAULT_PROCEDURES
    keep: Any = None
    keep_last: Any = None
    need: Any = None

    @field_validator("keep", "keep_last", "need", mode="before")
    @classmethod
    def _one(cls, value: Any, info: Any) -> Any:
        return _checked(lambda: Retention.of({info.field_name: value}), value)

    def retention(self) -> Retention:
        """How much history to keep."""
        return Retention.of({name: getattr(self, name) for name in ("keep", "keep_last", "need") if getattr(self, name) is not None})


class Settings(_Section):
    """The settings of a rule; ``defaults`` has the same keys, and a rule's own values override them."""

    exclude: Patterns = ()
    when: Trigger = Trigger(commits=1, every=86_400.0)
    hours: Times = ()
    quiet_hours: Times = ()
    thresholds: Mapping[str, float] = Field(default_factory=dict)
    filter_columns: Texts = ()
    fail_on: Gate = "never"
    storage: Flag = False
    convert: Convert | None = None
    compact: Compact | None = None
    maintain: Maintain | None = None

    @field_validator("thresholds", mode="before")
    @classmethod
    def _limits(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise told("it must hold names and numbers, such as min_file_size_ratio: 0.5")
        return _checked(lambda: Thresholds().with_changes(**value), value)

    @field_validator("fail_on", mode="before")
    @classmethod
    def _gate(cls, value: Any) -> Any:
        return _checked(lambda: check_gate(str(value)), value)

    @field_validator(*ACTIONS, mode="before")
    @classmethod
    def _said(cls, value: Any, info: Any) -> Any:
        if value is False:
            return None
        if isinstance(value, (Mapping, BaseModel)):
            return value
        # Also a blank value: the author of the key meant something.
        raise told(
            f"write `{info.field_name}: {{}}` to plan it, `{info.field_name}: {{execute: true}}` to run it, or `{info.field_name}: false` for neither"
        )

    @property
    def actions(self) -> dict[str, Compact | Convert | Maintain]:
        """The planned actions, in the order in which they run."""
        return {name: section for name in ACTIONS if (section := getattr(self, name))}

    @property
    def limits(self) -> Thresholds:
        """The thresholds in force."""
        return Thresholds().with_changes(**dict(self.thresholds))


class Rule(Settings):
    """One rule: its tables, and its settings for them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
    match: Patterns


class Receiver(_Section):
    """A receiver of messages: the URL to post JSON to, whose secrets are ``${NAME}``, the events, and the reminder interval."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_. -]{0,60}$")]
    to: Annotated[str, Field(min_length=1, repr=False)]
    about: Annotated[tuple[News, ...], OneOrMore] = ("unhealthy", "failed", "resolved")
    remind: Span | None = 86_400.0


class SchedulePolicy(_Section):
    """A complete policy; paths are absolute, and rules include the defaults."""

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
    catalog: Profile = ""
    timezone: Zone = Field(default="UTC", validate_default=True)
    output: Path = Path("reports")
    url: str = ""
    ledger: str = ""
    history: str = ""
    timeout: Patience | None = None
    state: Path | None = None
    budget: Limits = PassBudget()
    junit: Path | None = None
    notify: tuple[Receiver, ...] = ()
    exclude: Patterns = ()
    tables: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _distinct(self) -> SchedulePolicy:
        for what, names in (("rules", [r.name for r in self.tables]), ("receivers", [r.name for r in self.notify])):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise told(f"two {what} have the name {twice[0]!r}; give each its own `name`")
        return self


def _checked(check: Any, value: Any) -> Any:
    """The value, if icekit's own check accepts it."""
    try:
        check()
    except IcekitError as error:
        raise told(error) from None
    except TypeError as error:
        raise told(f"{value!r} has the wrong type ({error})") from None
    return value


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
