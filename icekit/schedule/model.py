"""What a policy holds: which tables, when they are due, what may be done to them, who is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from icekit.compact.policy import SETTINGS
from icekit.compact.policy import Policy as CompactPolicy
from icekit.diagnose.findings import Thresholds
from icekit.engine.predicate import check_text
from icekit.errors import IcekitError
from icekit.maintain.plan import DEFAULT_PROCEDURES, Procedure
from icekit.maintain.retention import Retention
from icekit.notebook import check_gate, sampled
from icekit.parsing import size_in_bytes
from icekit.schedule.kinds import Budget, Flag, Limits, Patience, Span, Texts, Times, Zone, by, told

#: What a rule may do beside reporting, in the order in which it is done.
ACTIONS = ("convert", "compact", "maintain")
#: What a receiver may be told of.
News = Literal["unhealthy", "failed", "well", "done"]

Gate = Literal["never", "warning", "critical"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


def _proved(value: Any) -> str:
    sampled(str(value))
    return str(value)


OneOrMore = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
Proved = Annotated[str, by(_proved)]


class Trigger(_Section):
    """When a table is due: any one of these, since its last pass; commits of icekit's own do not count.

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
            raise told("it is empty, so nothing would ever be due; state commits, delete_records, small_files or every")
        return self


class Compact(_Section):
    """A compaction: planned, and run if ``execute``. The settings are those of ``icekit compact``."""

    execute: Flag = False
    trial: Flag = False
    prove: Proved = "full"
    budget: Limits = Budget()
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
        """What :func:`icekit.compact.plan_table` takes; a smaller budget than the rule's own may be given."""
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
    prove: Proved = "full"
    where: str | None = None
    batch_bytes: str | None = None

    @field_validator("where")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        """As far as that can be told without the table."""
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
    prove: Proved = "full"
    procedures: Annotated[tuple[Procedure, ...], OneOrMore] = DEFAULT_PROCEDURES
    keep: Any = None
    keep_last: Any = None
    need: Any = None

    @field_validator("keep", "keep_last", "need", mode="before")
    @classmethod
    def _one(cls, value: Any, info: Any) -> Any:
        return _checked(lambda: Retention.of({info.field_name: value}), value)

    def retention(self) -> Retention:
        """How much history stays."""
        return Retention.of({name: getattr(self, name) for name in ("keep", "keep_last", "need") if getattr(self, name) is not None})


class Settings(_Section):
    """What a rule says of its tables; ``defaults`` has the same keys, and a rule's own are laid over them."""

    exclude: Texts = ()
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
        # Also a blank value: whoever wrote the key meant something.
        raise told(
            f"write `{info.field_name}: {{}}` to plan it, `{info.field_name}: {{execute: true}}` to run it, or `{info.field_name}: false` for neither"
        )

    @property
    def actions(self) -> dict[str, Compact | Convert | Maintain]:
        """The actions that are planned, in the order in which they are done."""
        return {name: section for name in ACTIONS if (section := getattr(self, name))}

    @property
    def limits(self) -> Thresholds:
        """The thresholds in force."""
        return Thresholds().with_changes(**dict(self.thresholds))


class Rule(Settings):
    """One rule: the tables it is for, and what it says of them."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
    match: Texts


class Receiver(_Section):
    """Somebody who is told: an Apprise URL whose secrets are ``${NAME}``, what of, and how often again."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_. -]{0,60}$")]
    to: Annotated[str, Field(min_length=1)]
    about: Annotated[tuple[News, ...], OneOrMore] = ("unhealthy", "failed", "well")
    remind: Span | None = 86_400.0


class Monitoring(_Section):
    """Files for whoever watches; relative to the policy's folder."""

    junit: Path | None = None
    prometheus: Path | None = None


class Policy(_Section):
    """A policy as a whole; paths are absolute, rules have the defaults in them."""

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
    catalog: str = ""
    timezone: Zone = Field(default="UTC", validate_default=True)
    output: Path = Path("reports")
    url: str = ""
    ledger: str = ""
    history: str = ""
    timeout: Patience | None = None
    state: Path | None = None
    budget: Limits = Budget()
    monitoring: Monitoring = Monitoring()
    notify: tuple[Receiver, ...] = ()
    exclude: Texts = ()
    tables: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _distinct(self) -> Policy:
        for what, names in (("rules", [r.name for r in self.tables]), ("receivers", [r.name for r in self.notify])):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise told(f"two {what} have the name {twice[0]!r}; give each its own `name`")
        return self


def _checked(check: Any, value: Any) -> Any:
    """The value, if icekit's own check lets it through."""
    try:
        check()
    except IcekitError as error:
        raise told(error) from None
    except TypeError as error:
        raise told(f"{value!r} is of a kind that is not taken here ({error})") from None
    return value


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
