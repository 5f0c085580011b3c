"""Define plans, their actions with SQL and prediction, and the policy of a compaction; nothing here runs anything."""

from __future__ import annotations

import datetime as dt
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from icekit import sql
from icekit.answer import html
from icekit.diagnose.findings import Thresholds
from icekit.errors import ParameterError, nearest, require_number
from icekit.facts.files import Partition
from icekit.facts.recent import RECENT_MINUTES
from icekit.facts.snapshot_statistics import renewal
from icekit.facts.snapshots import SnapshotStatistics
from icekit.parsing import moment, seconds, size_in_bytes
from icekit.secrets import mask
from icekit.units import count, size, span

#: The option of a rewrite after which icekit drops the delete files that apply to no data file (:mod:`icekit.resolve.dangling`). No action's
#: statement has it: Iceberg's own action does not ask a scan, and drops deletes that readers before 1.12 apply by the path of their data file.
#: Only a finding prints it, for a partition spec whose column was dropped: there all data files are rewritten, so no delete applies any more.
DANGLING = "remove-dangling-deletes"
#: With these limits no data file has the wrong size, and a file is taken only if all its rows are deleted.
REWRITE_NOTHING: Mapping[str, str] = MappingProxyType(
    {"min-file-size-bytes": "0", "max-file-size-bytes": str(2**62), "delete-ratio-threshold": "1.0"}
)


#: No procedure does this; see :mod:`icekit.resolve`.
CONVERT = "convert_equality_deletes"
#: What the prediction of a conversion counts: equality delete files before, position delete files after.
EQUALITY_DELETE = "equality delete file"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The files that an action will take and leave.

    ``source`` is ``planner`` if the engine's own planner predicted it, ``facts`` if it was
    computed from the rollup (no JVM bridge), ``metadata`` if the metadata alone decides.
    ``seconds`` is None without past runs of about this size; ``shuffle_bytes`` is 0 for a
    rewrite that does not sort. ``file_opens_saved`` counts opens that a full scan no longer needs: data files
    that are removed, and delete files that are no longer opened for each data file.
    ``unit`` is what
    ``files_in`` and ``files_out`` count: ``file``, or ``delete file``, ``manifest``,
    ``snapshot`` or ``orphan`` for maintenance; for a conversion ``equality delete file``, and
    ``files_out`` is then the maximum number of position delete files (deletion vectors in format version 3) that replace them. ``is_maximum``: fewer files may come out, because equality deletes apply, and nobody
    knows before a rewrite how many rows they delete; because position deletes may be of data files that are gone; or because rows go into an unknown
    number of partitions. ``is_sampled``: ``bytes_out`` is what a sample of the keys of equality deletes leaves, and no maximum. ``rows_in`` are the rows of ``files_in`` before deletes, as many per byte as the table has on average.
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
    unit: str = "file"
    is_maximum: bool = False
    rows_in: int = 0
    is_sampled: bool = False

    @property
    def files_read(self) -> int:
        """The files that the action reads if it rewrites data files or converts deletes (then including the data files they apply to), else 0."""
        if self.unit == EQUALITY_DELETE:
            return self.files_in + self.files_out
        return self.files_in if self.unit == "file" else 0

    @property
    def unit_out(self) -> str:
        """The unit of ``files_out``."""
        return "position delete file" if self.unit == EQUALITY_DELETE else self.unit

    @property
    def change(self) -> str:
        """``9 files → 1 file``."""
        return f"{count(self.files_in, self.unit)} → {'at most ' if self.is_maximum else ''}{count(self.files_out, self.unit_out)}"

    @property
    def about(self) -> str:
        """``; about 3 minutes``, to end a sentence; empty if no past run says."""
        return "" if self.seconds is None else f"; about {span(max(self.seconds, 1.0) * 1000)}"

    def __add__(self, other: Prediction) -> Prediction:
        both_known = self.seconds is not None and other.seconds is not None
        return Prediction(
            files_in=self.files_in + other.files_in,
            bytes_in=self.bytes_in + other.bytes_in,
            files_out=self.files_out + other.files_out,
            bytes_out=self.bytes_out + other.bytes_out,
            delete_files_removed=self.delete_files_removed + other.delete_files_removed,
            groups=self.groups + other.groups,
            shuffle_bytes=self.shuffle_bytes + other.shuffle_bytes,
            seconds=(self.seconds or 0) + (other.seconds or 0) if both_known else None,
            file_opens_saved=self.file_opens_saved + other.file_opens_saved,
            source=self.source if self.source == other.source else "mixed",
            unit=self.unit,
            is_maximum=self.is_maximum or other.is_maximum,
            rows_in=self.rows_in + other.rows_in,
            is_sampled=self.is_sampled or other.is_sampled,
        )


@dataclass(frozen=True, slots=True)
class KeySample:
    """How many rows of some data files a sample of about ``keys`` records of equality deletes deletes.

    ``rows`` are those among which the sampled keys' own would be: all, or as large a share of them as the sample is of the keys.
    """

    keys: int
    deleted_rows: int
    rows: int

    @property
    def text(self) -> str:
        """A sentence for the plan."""
        if self.deleted_rows:
            return f"A sample of about {count(self.keys, 'equality delete record')} deletes {self.deleted_rows:,} of {count(self.rows, 'row')}."
        return (
            f"None of about {self.keys:,} sampled keys of equality deletes is in the older data that was sampled ({count(self.rows, 'row')}). If the "
            "stream only adds new keys, its upsert mode adds deletes that delete nothing (write.upsert.enabled in Flink)."
        )


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """The row order of a rewrite: ``sort`` by columns with direction, or a curve through them.

    ``by`` holds column paths with a direction (``ASC NULLS FIRST``; empty for a curve). ``sort`` without
    columns means the table's own sort order.
    """

    strategy: str = "binpack"
    by: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def is_sorting(self) -> bool:
        """Whether rows are shuffled."""
        return self.strategy != "binpack"

    @property
    def sql(self) -> str | None:
        """The procedure's ``sort_order``; None where it is not needed."""
        if not self.by:
            return None
        if self.strategy == "sort":
            return ", ".join(f"{sql.identifier(*path)} {direction}".strip() for path, direction in self.by)
        return f"{self.strategy}({', '.join(sql.identifier(*path) for path, _ in self.by)})"


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a procedure, the unit of retry, record and proof.

    ``partitions`` are those that the action takes (empty: the complete table, or not by partition), ``why``
    gives the reason. ``order``, ``where``, ``unless`` (a filter for rows whose files ``where`` leaves out) and ``must_save`` (without a saved
    file open it is not worth running) are for rewrites of data files; ``older_than`` is for
    removals by age, fixed at planning so that a resumed run removes nothing more.
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
    unless: str | None = None
    must_save: bool = False
    order: RewriteOrder = RewriteOrder()
    options: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str | int | bool | tuple[str | int, ...]] = field(default_factory=dict)
    branch: str | None = None
    older_than: dt.datetime | None = None

    @property
    def sql_name(self) -> tuple[str, ...]:
        """The table's name, with its catalog."""
        return (self.catalog, *self.table)

    @property
    def only_drops(self) -> bool:
        """Whether the action rewrites no data file, and only drops delete files that apply to none."""
        return self.options.get(DANGLING) == "true" and REWRITE_NOTHING.items() <= self.options.items()

    @property
    def sql(self) -> str:
        """The statement that a person could paste, or the command if no statement does the same."""
        if self.only_drops:
            catalog = ["--catalog", self.catalog] if self.catalog != "lake" else []
            branch = ["--ref", self.branch] if self.branch else []
            return shlex.join(["icekit", "compact", sql.display_name(self.table), *catalog, *branch, "--execute"])
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
        if self.options or self.procedure == "rewrite_data_files":
            # Settings that nobody looks at while the action runs; see icekit.engine.bridge.
            options = {name: value for name, value in self.options.items() if name != DANGLING}
            given["options"] = sql.renewing(options) if self.procedure == "rewrite_data_files" else options
        if self.older_than:
            given["older_than"] = self.older_than
        return sql.call(self.catalog, self.procedure, **given, **self.arguments)

    @property
    def title(self) -> str:
        """The procedure and its target, for a progress line."""
        names = self.partition_names
        what = f" {names[0]}" if names else ""
        more = len(self.partitions) - 1
        return f"{self.procedure}{what}" + (f" and {count(more, 'more partition')}" if names and more > 0 else "")


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting of the plan and the reason for its value."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Partitions that the plan skips although a finding asks for them, and why; ``is_recent``: they were written a short time ago."""

    reason: str
    partition_count: int
    examples: tuple[str, ...] = ()
    is_recent: bool = False


@dataclass(frozen=True)
class Plan:
    """Ordered actions and their prediction; nothing has run. A plan without actions: nothing is worth doing.

    ``rehearsed`` is the first line of the proof of a trial on a clone, None without a trial; ``converts`` marks
    a conversion of equality deletes. ``refused`` is a procedure that the user named but that is not planned; a note says why.
    ``waits`` is why a plan has no actions although rewrites would help, what they would save, and what to do; None otherwise.
    ``statistics`` are those of the snapshot that the plan was made for. ``key_sample`` is what the keys of equality deletes said, None if nothing was sampled.
    """

    catalog: str
    table: tuple[str, ...]
    table_uuid: str | None
    snapshot_id: int | None
    ref: str | None
    actions: tuple[Action, ...]
    parallelism: tuple[Explained, ...] = ()
    left_alone: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    made_at_ms: int = 0
    rehearsed: str | None = None
    converts: bool = False
    refused: str | None = None
    waits: str | None = None
    statistics: tuple[SnapshotStatistics, ...] = ()
    key_sample: KeySample | None = None

    @property
    def lost_statistics(self) -> tuple[SnapshotStatistics, ...]:
        """Statistics of the current snapshot that the new snapshots of the plan's commits will not have."""
        return self.statistics if any(action.procedure not in _WITHOUT_SNAPSHOT for action in self.actions) else ()

    @property
    def renewals(self) -> tuple[str, ...]:
        """The statements that compute :attr:`lost_statistics` for the current snapshot; none for a branch, whose new snapshot has no id yet."""
        if self.ref is not None:
            return ()
        return tuple(renewal(self.catalog, self.table, lost) for lost in self.lost_statistics)

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return sql.display_name(self.table)

    @property
    def command(self) -> str:
        """The command for such a plan: ``compact``, ``convert`` or ``maintain``."""
        if self.converts:
            return "convert"
        return "compact" if all(action.procedure == "rewrite_data_files" for action in self.actions) else "maintain"

    @property
    def resume_command(self) -> str:
        """The command that continues the plan after it was stopped."""
        return self.command_with("--resume")

    def command_with(self, option: str) -> str:
        """The command for this plan's table and catalog, with an option."""
        catalog = "" if self.catalog == "lake" else f" --catalog {shlex.quote(self.catalog)}"
        return f"icekit {self.command} {shlex.quote(self.name)}{catalog} {option}"

    @property
    def prediction(self) -> Prediction:
        """The sum over all actions that rewrite data files, or convert deletes; other units do not add up."""
        unit = EQUALITY_DELETE if self.converts else "file"
        each = [action.prediction for action in self.actions if action.prediction.unit == unit]
        total = Prediction(seconds=0.0, source=each[0].source if each else "facts", unit=unit)
        for prediction in each:
            total += prediction
        return total

    @property
    def reads(self) -> tuple[int, int]:
        """The files, and their bytes, that the rewrites and conversions will read: what a budget limits."""
        reading = [p for p in (action.prediction for action in self.actions) if p.unit in {"file", EQUALITY_DELETE}]
        return sum(p.files_read for p in reading), sum(p.bytes_in for p in reading)

    def __repr__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_html(self)


# Procedures that remove snapshots or files, and commit no snapshot.
_WITHOUT_SNAPSHOT = frozenset({"expire_snapshots", "remove_orphan_files"})


def statistics_note(plan: Plan) -> str | None:
    """The sentence on :attr:`Plan.lost_statistics`, before the statements that renew them; None if there are none."""
    if not plan.lost_statistics:
        return None
    kinds = " and ".join(f"{lost.kind} statistics" for lost in plan.lost_statistics)
    whose = f"The snapshot of {plan.ref}" if plan.ref else "The current snapshot"
    renew = "Renew them after the run:" if plan.renewals else "Renew them after the run, with the branch's new snapshot as snapshot_id."
    return f"{whose} has {kinds}, and each commit of this plan makes a snapshot without. {renew}"


NOTHING = "Nothing is worth doing under this policy."


_SOURCES = {
    "planner": " (predicted by the engine's planner)",
    "facts": " (estimated from facts)",
    "trial": " (tried on a clone)",
    "trial of a sample": " (from a sample tried on a clone)",
}


def plan_text(plan: Plan) -> str:
    """A plan as lines for a terminal: each action with its reason, prediction and SQL."""
    summary = f"{count(len(plan.actions), 'action')}{_in_all(plan, '; ')}" if plan.actions else _nothing(plan)
    lines = [f"{plan.name}: {f'{plan.refused} is refused; ' if plan.refused else ''}{summary}"]
    for action in plan.actions:
        lines += [
            f"\n{action.action_id}  {action.title}",
            f"    why        {action.why}",
            f"    predicted  {predicted(action.prediction)}",
            f"    {action.sql}",
        ]
    if plan.parallelism:
        lines += ["", *(f"{e.name} = {e.value}: {e.why}" for e in plan.parallelism)]
    if plan.rehearsed:
        lines.append(f"tried on a zero-copy clone: {plan.rehearsed}")
    lines += [
        f"left alone: {count(a.partition_count, 'partition')}, {a.reason}" + (f": {', '.join(a.examples)}" if a.examples else "")
        for a in plan.left_alone
    ]
    if note := statistics_note(plan):
        lines += [note, *(f"    {statement}" for statement in plan.renewals)]
    return mask("\n".join([*lines, *plan.notes]))


def _nothing(plan: Plan) -> str:
    if plan.refused:
        return "nothing else is worth doing"
    if plan.waits:
        return plan.waits
    return NOTHING if plan.command != "convert" else "No equality deletes to convert."


def plan_html(plan: Plan) -> str:
    """A plan as cards, one per action, with SQL to copy."""
    if not plan.actions and plan.waits:
        parts = [f'<div class="finding warning"><span class="badge">▲ left alone</span> {html.prose(plan.waits)}</div>']
    elif not plan.actions:
        parts = [f'<div class="finding fine"><span class="badge">✔ healthy</span> {html.text(_nothing(plan))}</div>']
    else:
        summary = f"{count(len(plan.actions), 'action')}{_in_all(plan, ': ')}."
        parts = [f"<p>{html.prose(summary)}</p>", *map(_card, plan.actions)]
    if plan.parallelism:
        said = [(e.name, f"<code>{html.text(e.value)}</code> {html.prose(e.why)}") for e in plan.parallelism]
        parts.append(f"<details><summary>How the plan fits the cluster</summary>{html.definitions(said)}</details>")
    if plan.refused:
        parts.append(f'<div class="finding warning"><span class="badge">▲ refused</span> {html.text(plan.refused)} is not planned.</div>')
    if plan.rehearsed:
        parts.append(
            f'<div class="finding fine"><span class="badge">✔ tried on a zero-copy clone</span> {html.prose(plan.rehearsed)}</div>'
        )
    left = [
        (count(a.partition_count, "partition"), f"{html.prose(a.reason)} {_names(a.examples, a.partition_count)}") for a in plan.left_alone
    ]
    if left:
        parts.append(f"<p>Left alone:</p>{html.definitions(left)}")
    if lost := statistics_note(plan):
        parts.append(f"<p>{html.prose(lost)}</p>{html.statements(plan.renewals)}")
    parts += [f"<p>{html.prose(note)}</p>" for note in plan.notes]
    return mask(html.framed(*parts))


def predicted(p: Prediction) -> str:
    """A prediction as a sentence."""
    if p.unit in {"snapshot", "orphan"}:
        return f"{count(p.files_in, p.unit)} before, {p.files_out:,} after"
    if p.unit == EQUALITY_DELETE:
        return f"{count(p.files_in, p.unit)} become at most {count(p.files_out, p.unit_out)}, one per data file; reads up to {size(p.bytes_in)} of files{p.about}"
    most = "at most " if p.is_maximum else ""
    if p.unit != "file":
        sure = {"planner": " (predicted by the engine's planner)", "facts": " (estimated from facts)"}.get(p.source, "")
        return f"{count(p.files_in, p.unit)} of {size(p.bytes_in)} become {most}{p.files_out:,}{sure}"
    said = f"{count(p.files_in, 'file')} of {size(p.bytes_in)} become {most}{p.files_out:,} of {'about ' if p.is_sampled else most}{size(p.bytes_out)}"
    if p.delete_files_removed:
        said += f", {count(p.delete_files_removed, 'delete file')} removed"
    if p.shuffle_bytes:
        said += f", {size(p.shuffle_bytes)} shuffled"
    about = "about " if p.is_maximum else ""
    said += f"; a full scan opens {about}{count(abs(p.file_opens_saved), 'file')} {'more' if p.file_opens_saved < 0 else 'fewer'}"
    return said + (p.about or "; no time estimate yet") + _SOURCES.get(p.source, "")


def _in_all(plan: Plan, mark: str) -> str:
    """The sum of the predictions that can be summed; actions of maintenance count different things."""
    return mark + predicted(plan.prediction) if all(a.prediction.unit == "file" for a in plan.actions) else ""


def _card(action: Action) -> str:
    said = [
        ("Why", html.prose(action.why)),
        ("Predicted", html.prose(predicted(action.prediction))),
    ]
    if action.partition_names:
        said.insert(1, ("Where", _names(action.partition_names, len(action.partitions))))
    heading = f'<p class="title"><span class="badge">{html.text(action.action_id)}</span> {html.text(action.procedure)}</p>'
    return f'<div class="finding info">{heading}{html.definitions(said)}{html.statements([action.sql])}</div>'


def _names(names: Sequence[str], of: int) -> str:
    more = of - len(names)
    return " ".join(f"<code>{html.text(n)}</code>" for n in names) + (f" and {more:,} more" if more > 0 else "")


# --- The policy of a compaction: which partitions, how much, how; checked when it is made


Strategy = Literal["binpack", "sort", "zorder", "hilbert"]
Scope = Literal["minor", "major"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a plan may do. Every default is safe on a live table.

    ``scope``: ``minor`` takes small files, oversized files and files with deletes, and leaves
    well-sized files untouched; ``major`` rewrites every file of the partitions it selects.
    A ``strategy`` other than binpack sorts, and so implies ``major``; ``columns`` to sort by
    default to the table's sort order, then to its declared filter columns. ``since``,
    ``until`` (a date or time, UTC) and ``skip_last_hours`` select partitions by their time,
    if the table is partitioned by time. ``leave_alone_minutes``: partitions written within
    this many minutes are skipped; by default those of the last 60 minutes, where another commit is likely to conflict with the rewrite. ``min_files``: undersized files that make a
    partition worth a rewrite. ``delete_ratio``: position deletes or deletion
    vectors per data record from which a partition is worth a rewrite; equality deletes
    always make it worth one. Both default to the thresholds of the findings. ``old_specs``: also move files of older partition specs into the current
    one. ``budget_bytes``, ``budget_files``, ``budget_rows`` and
    ``budget_minutes`` limit what the complete plan reads, according to its prediction. ``max_action_bytes``
    and ``max_action_partitions`` limit one action, and so what one failed attempt costs.
    ``min_win`` is the least number of file opens that a partition must save a full scan (a sort needs none).
    """

    scope: Scope = "minor"
    strategy: Strategy = "binpack"
    columns: tuple[str, ...] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    skip_last_hours: float = 0.0
    leave_alone_minutes: float | None = None
    min_files: int | None = None
    delete_ratio: float | None = None
    old_specs: bool = False
    budget_bytes: int | None = None
    budget_files: int | None = None
    budget_rows: int | None = None
    budget_minutes: float | None = None
    max_action_bytes: int = 50 * 10**9
    max_action_partitions: int = 100
    min_win: int = 1

    def within(self, limits: Thresholds) -> Thresholds:
        """The limits of the findings, with those that the policy sets."""
        own = {"min_input_files": self.min_files, "delete_ratio": self.delete_ratio}
        return replace(limits, **{name: value for name, value in own.items() if value is not None})  # type: ignore[arg-type]

    @property
    def recent_minutes(self) -> float:
        """How long ago a partition was written, at most, to count as recent."""
        return RECENT_MINUTES if self.leave_alone_minutes is None else self.leave_alone_minutes

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Policy:
        """Make a policy from plain values, as papermill and the command line give them.

        Sizes may be strings (``200 GB``), times ``2026-01-31`` or ``2026-01-31T06:00``, and
        ``budget`` is bytes (``200 GB``), files (``500 files``) or time (``30 minutes``);
        ``skip_last`` is ``6 hours`` and ``leave_alone`` is ``2 hours``. Raises
        :class:`~icekit.errors.ParameterError` for an unknown name or a wrong value.
        """
        known = {f.name for f in fields(cls)} | {"budget", "leave_alone", "skip_last"}
        values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise ParameterError(
                    f"There is no policy setting {name!r}{nearest(name, known, count=1) or '; the settings are ' + ', '.join(sorted(known)) + '.'}"
                )
            if value is None or value == "":
                continue
            values |= _parsed(name, value)
        return cls(**values)

    def __post_init__(self) -> None:
        for name, kinds in (("scope", Scope), ("strategy", Strategy)):
            value, allowed = getattr(self, name), get_args(kinds)
            if value not in allowed:
                raise ParameterError(
                    f"{name} cannot be {value!r}{nearest(str(value), allowed, count=1) or '; use ' + ', '.join(allowed) + '.'}"
                )
        if self.strategy != "binpack" and self.scope != "major":
            object.__setattr__(self, "scope", "major")
        for name in ("since", "until"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, moment(getattr(self, name)))
        if self.since and self.until and self.since >= self.until:
            raise ParameterError(f"since ({self.since:%Y-%m-%d %H:%M}) is not before until ({self.until:%Y-%m-%d %H:%M}).")
        for name in ("skip_last_hours", "delete_ratio", "min_win"):
            require_number(name, getattr(self, name))
        require_number("leave_alone_minutes", self.recent_minutes)
        for name in (
            "min_files",
            "max_action_bytes",
            "max_action_partitions",
            "budget_bytes",
            "budget_files",
            "budget_rows",
            "budget_minutes",
        ):
            require_number(name, getattr(self, name), above=True)


def _parsed(name: str, value: Any) -> dict[str, Any]:
    """One setting, converted to its type, by its field name."""
    if name == "budget":
        return _budget(str(value))
    if name == "leave_alone":
        return {"leave_alone_minutes": seconds(str(value)) / 60}
    if name == "skip_last":
        return {"skip_last_hours": seconds(str(value)) / 3600}
    if name in {"since", "until"}:
        return {name: moment(value)}
    if name in {"budget_bytes", "max_action_bytes"}:
        return {name: size_in_bytes(str(value))}
    if name == "columns":
        if not isinstance(value, (str, list, tuple)):
            raise ParameterError(f"columns must be names separated by commas, not {value!r}.")
        return {name: tuple(c.strip() for c in value.split(",") if c.strip()) if isinstance(value, str) else tuple(value)}
    if name in {"scope", "strategy"}:
        return {name: value}
    if name == "old_specs":
        if str(value).lower() not in {"true", "false"}:
            raise ParameterError(f"old_specs must be true or false, not {value!r}.")
        return {name: str(value).lower() == "true"}
    whole = name in {"min_files", "budget_files", "budget_rows", "max_action_partitions", "min_win"}
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be a number, not {value!r}.") from None
    if isinstance(value, bool) or not math.isfinite(number) or (whole and number != int(number)):
        raise ParameterError(f"{name} must be a {'whole ' * whole}number, not {value!r}.")
    return {name: int(number) if whole else number}


def _budget(text: str) -> dict[str, Any]:
    if found := re.fullmatch(r"\s*(\d[\d_,]*)\s*files?\s*", text):
        return {"budget_files": int(found[1].replace(",", "").replace("_", ""))}
    if found := re.fullmatch(r"\s*(\d[\d_,]*)\s*(million|billion)?\s*rows?\s*", text):
        return {"budget_rows": int(found[1].replace(",", "").replace("_", "")) * {"million": 10**6, "billion": 10**9}.get(found[2], 1)}
    for name, parse in (("budget_bytes", size_in_bytes), ("budget_minutes", lambda t: seconds(t) / 60)):
        if text.rstrip().endswith("M"):
            break  # it may mean mebibytes or minutes
        try:
            return {name: cast("Any", parse)(text)}
        except ParameterError:
            continue
    raise ParameterError(f"The budget {text!r} is not bytes (200 GB), rows (500 million rows), files (500 files) or time (30 minutes).")
