"""Hold what is planned: actions with their SQL and prediction; nothing here runs anything."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from icekit import sql
from icekit.facts.files import Partition
from icekit.units import count

#: With these limits no data file has the wrong size, and one is taken only if all its rows are deleted.
REWRITE_NOTHING: Mapping[str, str] = MappingProxyType(
    {"min-file-size-bytes": "0", "max-file-size-bytes": str(2**62), "delete-ratio-threshold": "1.0"}
)


#: What no procedure does; see :mod:`icekit.resolve`.
CONVERT = "convert_equality_deletes"
#: What its prediction counts: equality delete files before, position deletes after.
EQUALITY_DELETE = "equality delete file"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an action will take and leave.

    ``source`` is ``planner`` where the engine's own planner was asked, ``facts`` where it was
    worked out from the rollup (no JVM bridge), ``metadata`` where the metadata alone decides.
    ``seconds`` is None before any past run tells a throughput; ``shuffle_bytes`` is 0 for a
    rewrite that does not sort. ``file_opens_saved`` is what a full scan is spared: data files
    that go, and delete files that are no longer opened beside each data file.
    ``bytes_untaught`` is ``bytes_out`` before past runs or a trial corrected it. ``unit`` is what
    ``files_in`` and ``files_out`` count: ``file``, or ``delete file``, ``manifest``,
    ``snapshot`` or ``orphan`` for maintenance; for a conversion ``equality delete file``, and
    ``files_out`` is then the most position deletes that come in their place.
    """

    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    delete_files_removed: int = 0
    groups: int = 0
    shuffle_bytes: int = 0
    seconds: float | None = None
    file_opens_saved: int = 0
    source: str = "facts"
    bytes_untaught: int = 0
    unit: str = "file"

    @property
    def files_read(self) -> int:
        """The files that it reads where it rewrites data files or converts deletes (then also the data files under them), else 0."""
        if self.unit == EQUALITY_DELETE:
            return self.files_in + self.files_out
        return self.files_in if self.unit == "file" else 0

    @property
    def unit_out(self) -> str:
        """What ``files_out`` counts."""
        return "position delete" if self.unit == EQUALITY_DELETE else self.unit

    def __add__(self, other: Prediction) -> Prediction:
        both_known = self.seconds is not None and other.seconds is not None
        return Prediction(
            self.files_in + other.files_in,
            self.bytes_in + other.bytes_in,
            self.files_out + other.files_out,
            self.bytes_out + other.bytes_out,
            self.delete_files_removed + other.delete_files_removed,
            self.groups + other.groups,
            self.shuffle_bytes + other.shuffle_bytes,
            (self.seconds or 0) + (other.seconds or 0) if both_known else None,
            self.file_opens_saved + other.file_opens_saved,
            self.source if self.source == other.source else "mixed",
            self.bytes_untaught + other.bytes_untaught,
            self.unit,
        )


@dataclass(frozen=True, slots=True)
class Order:
    """How a rewrite orders rows: ``sort`` by columns with direction, or a curve through them.

    ``by`` holds column paths with a direction (``ASC NULLS FIRST``; empty for a curve). No
    columns and ``sort`` mean the table's own sort order.
    """

    strategy: str = "binpack"
    by: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def is_sorting(self) -> bool:
        """Tell whether rows are shuffled."""
        return self.strategy != "binpack"

    @property
    def sql(self) -> str | None:
        """The procedure's ``sort_order``; None where it is not given."""
        if not self.by:
            return None
        if self.strategy == "sort":
            return ", ".join(f"{sql.identifier(*path)} {direction}".strip() for path, direction in self.by)
        return f"{self.strategy}({', '.join(sql.identifier(*path) for path, _ in self.by)})"


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a procedure, the unit that is retried, recorded and proved.

    ``partitions`` are those it takes (empty: the whole table, or not by partition), ``why``
    says what for. ``order`` and ``where`` are for rewrites of data files; ``older_than`` is for
    what goes by age, fixed when it is planned so that a resumed run takes nothing more.
    """

    action_id: str
    procedure: str
    catalog: str
    table: tuple[str, ...]
    why: str
    prediction: Prediction
    partitions: tuple[Partition, ...] = ()
    partition_names: tuple[str, ...] = ()
    where: str | None = None
    order: Order = Order()
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str | int | bool | tuple[str, ...]] = field(default_factory=dict)
    branch: str | None = None
    older_than: dt.datetime | None = None

    @property
    def sql(self) -> str:
        """The statement that a person could paste; the command, where no statement does it."""
        if self.procedure == CONVERT:
            return f"icekit convert {shlex.quote(sql.display_name(self.table))} --execute"
        given: dict[str, sql.Argument] = {"table": sql.display_name(self.table)}
        if self.order.is_sorting:
            given["strategy"] = "sort"
            if self.order.sql:
                given["sort_order"] = self.order.sql
        if self.where is not None:
            given["where"] = self.where
        if self.branch:
            given["branch"] = self.branch
        if self.options:
            given["options"] = dict(self.options)
        if self.older_than:
            given["older_than"] = self.older_than
        return sql.call(self.catalog, self.procedure, **given, **self.arguments)

    @property
    def title(self) -> str:
        """The procedure and what it works on, for a line of progress."""
        names = self.partition_names
        what = f" {names[0]}" if names else ""
        more = len(self.partitions) - 1
        return f"{self.procedure}{what}" + (f" and {count(more, 'more partition')}" if names and more > 0 else "")


@dataclass(frozen=True, slots=True)
class Explained:
    """A figure of the plan and why it is what it is."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Partitions that the plan does not touch though a finding asks for it, and why."""

    reason: str
    partition_count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Ordered actions and their prediction; nothing has run. No actions: nothing is worth doing.

    ``rehearsed`` is what the proof said of a trial on a clone, None without one; ``converts`` tells
    a conversion of equality deletes.
    """

    catalog: str
    table: tuple[str, ...]
    table_uuid: str | None
    snapshot_id: int | None
    ref: str | None
    actions: tuple[Action, ...]
    parallelism: tuple[Explained, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    notes: tuple[str, ...] = ()
    made_at_ms: int = 0
    rehearsed: str | None = None
    converts: bool = False

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return sql.display_name(self.table)

    @property
    def command(self) -> str:
        """The command that made such a plan: ``compact``, ``convert`` or ``maintain``."""
        if self.converts:
            return "convert"
        return "compact" if all(action.procedure == "rewrite_data_files" for action in self.actions) else "maintain"

    @property
    def resume_command(self) -> str:
        """What a person types to go on with it after it was stopped."""
        return self.command_with("--resume")

    def command_with(self, option: str) -> str:
        """The command that made it, for its table and catalog, with an option."""
        catalog = "" if self.catalog == "lake" else f" --catalog {shlex.quote(self.catalog)}"
        return f"icekit {self.command} {shlex.quote(self.name)}{catalog} {option}"

    @property
    def prediction(self) -> Prediction:
        """The sum over all actions that rewrite data files, or that convert deletes; other units do not add up."""
        unit = EQUALITY_DELETE if self.converts else "file"
        each = [action.prediction for action in self.actions if action.prediction.unit == unit]
        total = Prediction(seconds=0.0, source=each[0].source if each else "facts", unit=unit)
        for prediction in each:
            total += prediction
        return total

    @property
    def reads(self) -> tuple[int, int]:
        """The files, and their bytes, that its rewrites and conversions will read: what a budget limits."""
        reading = [p for p in (action.prediction for action in self.actions) if p.unit in {"file", EQUALITY_DELETE}]
        return sum(p.files_read for p in reading), sum(p.bytes_in for p in reading)

    def __repr__(self) -> str:
        from icekit.show.plan import plan_text

        return plan_text(self)

    def _repr_html_(self) -> str:
        from icekit.show.plan import plan_html

        return plan_html(self)
