"""Define plans, their actions with SQL and prediction, and the policy of a compaction; nothing here
runs anything.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from icekit import sql
from icekit.answer.view import Badge, Block, Folded, Item, Sentence, Shown
from icekit.compact.skipped import Skipped
from icekit.facts.files import Partition
from icekit.facts.snapshot_statistics import renewal
from icekit.facts.snapshots import SnapshotStatistics
from icekit.units import count, size, span

#: The option of a rewrite after which icekit drops the delete files that apply to no data file
# (:mod:`icekit.resolve.dangling`). No action's statement has it: Iceberg's own action does not ask
# a scan, and drops deletes that readers before 1.12 apply by the path of their data file. Only a
# finding prints it, for a partition spec whose column was dropped: there all data files are
# rewritten, so no delete applies any more.
DANGLING = "remove-dangling-deletes"
#: With these limits no data file has the wrong size, and a file is taken only if all its rows are
# deleted.
REWRITE_NOTHING: Mapping[str, str] = MappingProxyType(
    {"min-file-size-bytes": "0", "max-file-size-bytes": str(2**62), "delete-ratio-threshold": "1.0"}
)


#: No procedure does this; see :mod:`icekit.resolve`.
CONVERT = "convert_equality_deletes"
#: What the prediction of a conversion counts: equality delete files before, position delete files
# after.
EQUALITY_DELETE = "equality delete file"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The files that an action will take and leave.

    ``source`` is ``planner`` if the engine's own planner predicted it, ``facts`` if it was computed
    from the rollup (no JVM bridge), ``metadata`` if the metadata alone decides. ``seconds`` is None
    without past runs of about this size; ``shuffle_bytes`` is 0 for a rewrite that does not sort.
    ``file_opens_saved`` counts opens that a full scan no longer needs: data files that are removed,
    and delete files that are no longer opened for each data file.
    ``unit`` is what ``files_in`` and ``files_out`` count: ``file``, or ``delete file``,
    ``manifest``, ``snapshot`` or ``orphan`` for maintenance; for a conversion ``equality delete
    file``, and ``files_out`` is then the maximum number of position delete files (deletion vectors
    in format version 3) that replace them. ``is_maximum``: fewer files may come out, because equality deletes
    apply, and nobody knows before a rewrite how many rows they delete; because position deletes may
    be of data files that are gone; or because rows go into an unknown number of partitions.
    ``is_sampled``: ``bytes_out`` is what a sample of the keys of equality deletes leaves, and no
    maximum. ``rows_in`` are the rows of ``files_in`` before deletes, as many per byte as the table
    has on average.
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
        """The files that the action reads if it rewrites data files or converts deletes (then
        including the data files they apply to), else 0.
        """
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
        most = "at most " if self.is_maximum else ""
        return f"{count(self.files_in, self.unit)} → {most}{count(self.files_out, self.unit_out)}"

    @property
    def about(self) -> str:
        """``; about 3 minutes``, to end a sentence; empty if no past run says."""
        return "" if self.seconds is None else f"; about {span(max(self.seconds, 1.0) * 1000)}"

    def __add__(self, other: Prediction) -> Prediction:
        both_known = self.seconds is not None and other.seconds is not None
        summed = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return replace(
            self,
            seconds=(self.seconds or 0) + (other.seconds or 0) if both_known else None,
            source=self.source if self.source == other.source else "mixed",
            is_maximum=self.is_maximum or other.is_maximum,
            is_sampled=self.is_sampled or other.is_sampled,
            **summed,
        )


_SUMMED = (
    "files_in",
    "bytes_in",
    "files_out",
    "bytes_out",
    "delete_files_removed",
    "groups",
    "shuffle_bytes",
    "file_opens_saved",
    "rows_in",
)


@dataclass(frozen=True, slots=True)
class KeySample:
    """How many rows of some data files a sample of about ``keys`` records of equality deletes
    deletes.

    ``rows`` are those among which the sampled keys' own would be: all, or as large a share of them
    as the sample is of the keys.
    """

    keys: int
    deleted_rows: int
    rows: int

    @property
    def text(self) -> str:
        """A sentence for the plan."""
        if self.deleted_rows:
            return (
                f"A sample of about {count(self.keys, 'equality delete record')} deletes "
                f"{self.deleted_rows:,} of {count(self.rows, 'row')}."
            )
        return (
            f"None of about {self.keys:,} sampled keys of equality deletes is in the older data "
            f"that was sampled ({count(self.rows, 'row')}). If the stream only adds new keys, its "
            "upsert mode adds deletes that delete nothing (write.upsert.enabled in Flink)."
        )


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """The row order of a rewrite: an ascending ``sort`` by columns, or a curve through them.

    ``by`` holds column paths. ``sort`` without columns means the table's own sort order.
    """

    strategy: str = "binpack"
    by: tuple[tuple[str, ...], ...] = ()

    @property
    def is_sorting(self) -> bool:
        """Whether rows are shuffled."""
        return self.strategy != "binpack"

    @property
    def sql(self) -> str | None:
        """The procedure's ``sort_order``; None where it is not needed."""
        if not self.by:
            return None
        columns = [sql.identifier(*path) for path in self.by]
        if self.strategy == "sort":
            return ", ".join(f"{column} ASC NULLS FIRST" for column in columns)
        return f"{self.strategy}({', '.join(columns)})"


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a procedure, the unit of retry, record and proof.

    ``partitions`` are those that the action takes (empty: the complete table, or not by partition),
    ``why`` gives the reason. ``order``, ``where``, ``unless`` (a filter for rows whose files
    ``where`` leaves out) and ``must_save`` (without a saved file open it is not worth running) are
    for rewrites of data files; ``older_than`` is for removals by age, fixed at planning so that a
    resumed run removes nothing more.
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
    def rewrites_deletes(self) -> bool:
        """Whether the action rewrites position delete files."""
        return self.procedure == "rewrite_position_delete_files"

    @property
    def only_drops(self) -> bool:
        """Whether the action rewrites no data file, and only drops delete files that apply to
        none.
        """
        return (
            self.options.get(DANGLING) == "true" and REWRITE_NOTHING.items() <= self.options.items()
        )

    @property
    def sql(self) -> str:
        """The statement that a person could paste, or the command if no statement does the same."""
        if self.only_drops:
            catalog = ["--catalog", self.catalog] if self.catalog != "lake" else []
            branch = ["--ref", self.branch] if self.branch else []
            return shlex.join(
                ["icekit", "compact", sql.display_name(self.table), *catalog, *branch, "--execute"]
            )
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
        if self.older_than:
            given["older_than"] = self.older_than
        options = {name: value for name, value in self.options.items() if name != DANGLING}
        return sql.call(self.catalog, self.procedure, options=options, **given, **self.arguments)

    @property
    def title(self) -> str:
        """The procedure and its target, for a progress line."""
        names = self.partition_names
        what = f" {names[0]}" if names else ""
        more = len(self.partitions) - 1
        return f"{self.procedure}{what}" + (
            f" and {count(more, 'more partition')}" if names and more > 0 else ""
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """A setting of the plan and the reason for its value."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """Ordered actions and their prediction; nothing has run. A plan without actions: nothing is
    worth doing.

    ``rehearsed`` is the first line of the proof of a trial on a clone, None without a trial;
    ``converts`` marks a conversion of equality deletes. ``refused`` is a procedure that the user
    named but that is not planned; a note says why. ``waits`` is why a plan has no actions although
    rewrites would help, what they would save, and what to do; None otherwise. ``statistics`` are
    those of the snapshot that the plan was made for. ``key_sample`` is what the keys of equality
    deletes said, None if nothing was sampled.
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
        """Statistics of the current snapshot that the new snapshots of the plan's commits will not
        have.
        """
        return (
            self.statistics
            if any(action.procedure not in _WITHOUT_SNAPSHOT for action in self.actions)
            else ()
        )

    @property
    def renewals(self) -> tuple[str, ...]:
        """The statements that compute :attr:`lost_statistics` for the current snapshot; none for a
        branch, whose new snapshot has no id yet.
        """
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
        return (
            "compact"
            if all(action.procedure == "rewrite_data_files" for action in self.actions)
            else "maintain"
        )

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
        """The sum over all actions that rewrite data files, or convert deletes; other units do not
        add up.
        """
        unit = EQUALITY_DELETE if self.converts else "file"
        each = [action.prediction for action in self.actions if action.prediction.unit == unit]
        start = Prediction(seconds=0.0, source=each[0].source if each else "facts", unit=unit)
        return sum(each, start)

    @property
    def reads(self) -> tuple[int, int]:
        """The files, and their bytes, that the rewrites and conversions will read: what a budget
        limits.
        """
        return self.prediction.files_read, self.prediction.bytes_in

    @property
    def summary(self) -> str:
        """The first sentence: what the plan does, or why it does nothing."""
        if self.actions:
            # Actions of maintenance count different things, which have no sum.
            is_sum = all(a.prediction.unit == "file" for a in self.actions)
            total = f": {predicted(self.prediction)}" if is_sum else ""
            return f"{count(len(self.actions), 'action')}{total}."
        if self.refused:
            return f"{self.refused} is refused; nothing else is worth doing."
        return self.waits or (
            NOTHING if self.command != "convert" else "No equality deletes to convert."
        )

    @property
    def recent_partitions(self) -> int:
        """The partitions that are left alone because they were written lately."""
        return sum(skipped.partition_count for skipped in self.left_alone if skipped.is_recent)

    def details(self) -> list[Block]:
        """What follows the summary: the actions, what is left alone, and notes."""
        settings = [(e.name, f"{e.value}: {e.why}") for e in self.parallelism]
        left = [
            Sentence(f"{a.text}{_examples(a.examples, a.partition_count)}.", "Left alone")
            for a in self.left_alone
        ]
        return [
            *(_action(action) for action in self.actions),
            *([Folded("Spark's options, and why", [Item("", settings)], True)] if settings else []),
            *(
                [Sentence(f"{self.refused} is not planned.", "Refused")]
                if self.refused and self.actions
                else []
            ),
            *([Sentence(self.rehearsed, "Tried on a zero-copy clone")] if self.rehearsed else []),
            *left,
            *([Item(note, (), self.renewals)] if (note := statistics_note(self)) else []),
            *map(Sentence, self.notes),
        ]

    def blocks(self) -> list[Block]:
        """The verdict with its figures, then each action with its reason, prediction and SQL."""
        kind, label = "fine", "✔ nothing to do"
        if self.actions:
            kind, label = "info", "plan"
        elif self.refused or self.waits:
            kind, label = "warning", "▲ refused" if self.refused else "▲ left alone"
        return [
            Badge(kind, label, self.name),
            Sentence(self.summary, is_strong=True),
            *self.details(),
        ]


# Procedures that remove snapshots or files, and commit no snapshot.
_WITHOUT_SNAPSHOT = frozenset({"expire_snapshots", "remove_orphan_files"})


def statistics_note(plan: Plan) -> str | None:
    """The sentence on :attr:`Plan.lost_statistics`, before the statements that renew them; None if
    there are none.
    """
    if not plan.lost_statistics:
        return None
    kinds = " and ".join(f"{lost.kind} statistics" for lost in plan.lost_statistics)
    whose = f"The snapshot of {plan.ref}" if plan.ref else "The current snapshot"
    renew = (
        "Renew them after the run:"
        if plan.renewals
        else "Renew them after the run, with the branch's new snapshot as snapshot_id."
    )
    return f"{whose} has {kinds}, and each commit of this plan makes a snapshot without. {renew}"


NOTHING = "Nothing to do under this policy."


_SOURCES = {
    "planner": " (predicted by the engine's planner)",
    "facts": " (from the metadata)",
    "trial": " (tried on a clone)",
    "trial of a sample": " (from a sample tried on a clone)",
}


def predicted(p: Prediction) -> str:
    """A prediction as a sentence."""
    if p.unit in {"snapshot", "orphan"}:
        return f"{count(p.files_in, p.unit)} before, {p.files_out:,} after"
    if p.unit == EQUALITY_DELETE:
        return (
            f"{count(p.files_in, p.unit)} become at most {count(p.files_out, p.unit_out)}, one "
            f"per data file; reads up to {size(p.bytes_in)} of files{p.about}"
        )
    most = "at most " if p.is_maximum else ""
    if p.unit != "file":
        source = _SOURCES.get(p.source, "")
        return (
            f"{count(p.files_in, p.unit)} ({size(p.bytes_in)}) become {most}{p.files_out:,}{source}"
        )
    text = (
        f"{count(p.files_in, 'file')} ({size(p.bytes_in)}) become {most}{p.files_out:,}, in all "
        + ("about " if p.is_sampled else most)
        + size(p.bytes_out)
    )
    if p.delete_files_removed:
        text += f", {count(p.delete_files_removed, 'delete file')} removed"
    if p.shuffle_bytes:
        text += f", {size(p.shuffle_bytes)} shuffled"
    about = "about " if p.is_maximum else ""
    more = "more" if p.file_opens_saved < 0 else "fewer"
    text += f"; a full scan opens {about}{count(abs(p.file_opens_saved), 'file')} {more}"
    return text + (p.about or "; no time estimate yet") + _SOURCES.get(p.source, "")


def _action(action: Action) -> Item:
    names = action.partition_names
    where = (
        [("where", f"{', '.join(names)}{_more(names, len(action.partitions))}")] if names else []
    )
    pairs = [("why", action.why), *where, ("predicted", predicted(action.prediction))]
    return Item(f"{action.action_id}  {action.procedure}", pairs, [action.sql])


def _examples(names: Sequence[str], of: int) -> str:
    return f": {', '.join(names)}{_more(names, of)}" if names else ""


def _more(names: Sequence[str], of: int) -> str:
    return f" and {of - len(names):,} more" if of > len(names) else ""
