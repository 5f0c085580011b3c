"""Define a policy: rules for tables in the commands' own options, and a budget, a window and a
notification for each pass.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    create_model,
)
from pydantic_core import PydanticCustomError

from icekit.compact.policy import Policy as CompactPolicy
from icekit.diagnose.findings import Thresholds
from icekit.errors import IcekitError, ParameterError, nearest
from icekit.notebook import check_gate, limits
from icekit.options import Settings, names
from icekit.options.commands import SECTIONS, CompactOptions, ReportSection
from icekit.report import Options
from icekit.run.options import CommandOptions, read_options
from icekit.sql import pattern_levels


@dataclass(frozen=True, slots=True)
class Hours:
    """The window of a policy: from ``start`` to ``end``, which is on the next day unless it is
    after ``start``.
    """

    text: str
    start: dt.time
    end: dt.time
    zone: ZoneInfo

    @classmethod
    def of(cls, text: str) -> Hours:
        """Read ``22:00-06:00 Europe/Berlin`` (without a time zone: UTC); raises
        :class:`~icekit.errors.ParameterError`.
        """
        first, last, zone = (
            re.findall(r"^(\d\d:\d\d)-(\d\d:\d\d)(?: +(\S+))?$", text) or [("", "", "")]
        )[0]
        known = available_timezones()
        if zone and zone not in known:
            raise ParameterError(
                f"There is no time zone {zone!r}{nearest(zone, known, count=1) or '; use UTC.'}"
            )
        try:
            start, end = dt.time.fromisoformat(first), dt.time.fromisoformat(last)
        except ValueError:
            start = end = dt.time.min
        if start == end:
            raise ParameterError(
                f"{text!r} is not a window. Write it as 22:00-06:00, or 22:00-06:00 "
                "Europe/Berlin; midnight is 00:00."
            )
        return cls(text, start, end, ZoneInfo(zone or "UTC"))

    def ends(self, now: dt.datetime) -> dt.datetime | None:
        """When the window that contains ``now`` ends, in UTC; None outside it."""
        day = dt.timedelta(days=1)
        for first in (now.astimezone(self.zone).date() - day, now.astimezone(self.zone).date()):
            last = first if self.end > self.start else first + day
            # In UTC, because two times of one zone are compared by the clock on the wall.
            start, end = (
                dt.datetime.combine(*at, self.zone).astimezone(dt.UTC)
                for at in ((first, self.start), (last, self.end))
            )
            if start <= now < end:
                return end
        return None


def _by(read: Callable[..., Any], *first: Any) -> Callable[[Any], Any]:
    """A validator from a function that raises icekit's own errors, whose texts are kept."""

    def validated(value: Any) -> Any:
        try:
            return read(*first, value)
        except IcekitError as error:
            said = str(error)
        except (TypeError, AttributeError) as error:
            said = f"{value!r} has the wrong type ({error})"
        raise PydanticCustomError("icekit", "{said}", {"said": said})

    return validated


def _read(kind: type[Settings], given: Any) -> Any:
    read = kind.of(given)
    if not isinstance(read, ReportSection):
        return read_options(read)  # type: ignore[arg-type]
    limits(read.thresholds)
    return Options(
        timeout_seconds=read.timeout, **read.only("thresholds", "filter_columns", "storage")
    )


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )


def _section(command: str) -> PlainValidator:
    """Reads a section key by key, for errors with their lines, and then as a whole."""
    kind = SECTIONS[command]

    def key(name: str) -> Any:
        return Annotated[Any, AfterValidator(_by(lambda value: _read(kind, {name: value})))], None

    keys = create_model(command, __base__=_Model, **{name: key(name) for name in kind.settings()})

    def section(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ParameterError(
                f"Write `{command}: {{}}`, or a section of options; without the command, leave "
                "the key out."
            )
        keys.model_validate(value)
        return _read(kind, value)

    return PlainValidator(_by(section))


def _profile(value: Any) -> str:
    if not isinstance(value, str) or "://" in value:
        # An address may hold a password, and is not repeated.
        raise ParameterError(
            "It is not the name of a catalog. Give the name of a profile, which has the address."
        )
    return value


def _budget(value: Any) -> dict[str, float]:
    """``200 GB``, ``500 files``, ``3 hours``, or several different ones, by the names of a
    compaction's own limits.
    """
    budget: dict[str, float] = {}
    for text in names(value):
        own = {
            name: v
            for name, v in asdict(CompactPolicy.of({"budget": text})).items()
            if name.startswith("budget_") and v
        }
        if own.keys() & budget:
            raise ParameterError(
                f"The budget has a second limit of the same kind, {text}; keep one."
            )
        budget |= own
    return budget


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
_Pattern = Annotated[str, AfterValidator(_by(lambda text: (pattern_levels(text), text)[1]))]
Patterns = Annotated[
    tuple[_Pattern, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]


class Rule(_Model):
    """Tables, and what a pass does with them: it changes them only with ``execute``."""

    name: Name
    match: Patterns
    exclude: Patterns = ()
    report: Annotated[Options, _section("report")] = Options()
    convert: Annotated[CommandOptions | None, _section("convert")] = None
    compact: Annotated[CommandOptions | None, _section("compact")] = None
    maintain: Annotated[CommandOptions | None, _section("maintain")] = None
    execute: Annotated[
        bool, PlainValidator(_by(lambda value: CompactOptions.of({"execute": value}).execute))
    ] = False
    fail_on: Annotated[str, AfterValidator(_by(lambda gate: (check_gate(gate), gate)[1]))] = "never"

    @property
    def actions(self) -> dict[str, CommandOptions]:
        """Its sections for commands that may change a table, in the order in which they run."""
        return {
            name: section
            for name in SECTIONS
            if name != "report" and (section := getattr(self, name))
        }

    @property
    def options(self) -> Options:
        """The options of a report on its tables; the storage is also listed if its maintenance
        needs that.
        """
        storage = self.report.storage or (
            self.maintain is not None and self.maintain.settings["storage"]
        )
        return replace(self.report, fail_on=self.fail_on, storage=storage)

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds in force."""
        return limits(self.report.thresholds)


def _distinct(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    if len({rule.name for rule in rules}) < len(rules):
        raise ParameterError(
            "Two rules have the same name, and a rule without one is rule-N; give each its own "
            "`name`."
        )
    return rules


class SchedulePolicy(_Model):
    """A complete policy; paths are absolute. ``budget`` is by the names of
    :class:`icekit.compact.policy.Policy`.
    """

    name: Name
    catalog: Annotated[str, BeforeValidator(_by(_profile))] = ""
    output: Path = Path("reports")
    ledger: str = ""
    history: str = ""
    budget: Annotated[Mapping[str, float], PlainValidator(_by(_budget))] = Field(
        default_factory=dict
    )
    hours: Annotated[Hours | None, PlainValidator(_by(Hours.of))] = None
    notify: str = Field("", repr=False)
    rules: Annotated[tuple[Rule, ...], Field(min_length=1), AfterValidator(_by(_distinct))]

    def within(self, folder: Path) -> SchedulePolicy:
        """With its paths from a folder, wherever the scheduler starts."""
        paths = {
            key: path
            for key in ("ledger", "history")
            if (path := getattr(self, key)) not in {"", "table"}
        }
        stores = {key: str(folder / Path(path).expanduser()) for key, path in paths.items()}
        return self.model_copy(update={"output": folder / self.output.expanduser(), **stores})


def cut(policy: CompactPolicy, left: Mapping[str, float]) -> CompactPolicy:
    """The policy of a compaction that also keeps to what is left of the pass's budget."""
    least = {
        name: int(limit if (own := getattr(policy, name)) is None else min(own, limit))
        for name, limit in left.items()
    }
    return replace(policy, **least)  # type: ignore[arg-type]
