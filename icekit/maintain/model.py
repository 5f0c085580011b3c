"""Define plans, their actions with SQL and prediction, and the policy of a compaction; nothing here
runs anything.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType

from icekit.common import frozen, sql
from icekit.common.commands import command_line
from icekit.common.units import count, size, span
from icekit.common.view import Badge, Block, Folded, Item, Sentence, Shown
from icekit.health.facts.retention import ExpirySummary, Retention
from icekit.health.facts.snapshot_statistics import renewal, statistics_of
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.metadata import Json
from icekit.iceberg.partition import Partition

#: The option of a rewrite after which icekit drops the delete files that apply to no data file
# (:mod:`icekit.deletes.dangling`). No action's statement has it: Iceberg's own action does not ask
# a scan, and drops deletes that readers before 1.12 apply by the path of their data file. Only a
# finding prints it, for a partition spec whose column was dropped: there all data files are
# rewritten, so no delete applies any more.
DANGLING = "remove-dangling-deletes"
#: With these limits no data file has the wrong size, and a file is taken only if all its rows are
# deleted.
REWRITE_NOTHING: Mapping[str, str] = MappingProxyType(
    {"min-file-size-bytes": "0", "max-file-size-bytes": str(2**62), "delete-ratio-threshold": "1.0"}
)


#: No procedure does this; see :mod:`icekit.deletes`.
CONVERT = "convert_equality_deletes"
#: What the prediction of a conversion counts: equality delete files before, position delete files
# after.
EQUALITY_DELETE = "equality delete file"


class Certainty(StrEnum):
    """How the number of files that an action leaves compares with its prediction."""

    EXACT = "exact"
    #: Fewer may come out: it is known what a rewrite reads, but not all of what it leaves out.
    AT_MOST = "at most"
    #: More or fewer may come out: only writing the files tells how large they become.
    ABOUT = "about"

    @property
    def words(self) -> str:
        """``at most ``, before a number; nothing before an exact one."""
        return "" if self is Certainty.EXACT else f"{self} "


@frozen
class Prediction:
    """The files that an action will take and leave.

    ``source`` is ``planner`` if the engine's own planner predicted it, ``facts`` if it was computed
    from the rollup (no JVM bridge), ``metadata`` if the metadata alone decides. ``seconds`` is None
    without past runs of about this size; ``shuffle_bytes`` is 0 for a rewrite that does not sort.
    ``file_opens_saved`` counts opens that a full scan no longer needs: data files that are removed,
    and delete files that are no longer opened for each data file. ``unit`` is what ``files_in`` and
    ``files_out`` count: ``file``, or ``delete file``, ``manifest``, ``snapshot`` or ``orphan`` for
    maintenance; for a conversion ``equality delete file``, and ``files_out`` is then the maximum
    number of position delete files (deletion vectors in format version 3) that replace them.
    ``certainty`` is that of ``files_out``: ``at most``, because equality deletes apply, and nobody
    knows before a rewrite how many rows they delete; because position deletes may be of data files
    that are gone; or because rows go into an unknown number of partitions; ``about`` from the
    facts, for sorted rows, and where a file may become larger than it should be. ``bytes_out`` is
    always an estimate. ``rows_in`` are the rows of ``files_in`` before deletes. ``data_files_read``
    are the data files that a conversion also reads. ``filters`` is what filters on columns with
    bounds open of the files before and after.
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
    certainty: Certainty = Certainty.EXACT
    rows_in: int = 0
    data_files_read: int = 0
    filters: tuple[FilterOpens, ...] = ()

    @property
    def slower_filters(self) -> tuple[FilterOpens, ...]:
        """The filters that open more files afterwards."""
        return tuple(each for each in self.filters if each.is_worse)

    @property
    def unit_out(self) -> str:
        """The unit of ``files_out``."""
        return "position delete file" if self.unit == EQUALITY_DELETE else self.unit

    @property
    def change(self) -> str:
        """``9 files → 1 file``."""
        after = f"{self.certainty.words}{count(self.files_out, self.unit_out)}"
        return f"{count(self.files_in, self.unit)} → {after}"

    @property
    def about(self) -> str:
        """``; about 3 minutes``, to end a sentence; empty if no past run says."""
        return "" if self.seconds is None else f"; about {span(max(self.seconds, 1.0) * 1000)}"

    @property
    def budgeted(self) -> tuple[int, int, int]:
        """The bytes, files and rows that are read: what a budget limits."""
        return self.bytes_in, self.files_in, self.rows_in


def least_certain(certainties: Iterable[Certainty]) -> Certainty:
    """The certainty of a sum."""
    return max(certainties, key=list(Certainty).index)


def total_of(predictions: Iterable[Prediction], unit: str = "file") -> Prediction:
    """The sum of those predictions that count this unit."""
    counted_predictions = [p for p in predictions if p.unit == unit] or [
        Prediction(seconds=0.0, unit=unit)
    ]
    seconds = [p.seconds for p in counted_predictions if p.seconds is not None]
    sources = {p.source for p in counted_predictions}
    summed = {
        figure.name: sum(getattr(p, figure.name) for p in counted_predictions)
        for figure in fields(Prediction)
        if figure.type is int
    }
    return Prediction(
        seconds=sum(seconds) if len(seconds) == len(counted_predictions) else None,
        source=sources.pop() if len(sources) == 1 else "mixed",
        unit=unit,
        certainty=least_certain(p.certainty for p in counted_predictions),
        **summed,
    )


@frozen
class RewriteOrder:
    """The row order of a rewrite: an ascending ``sort`` by columns, or a curve through them.

    ``by`` holds column paths. ``sort`` without columns means the table's own sort order.
    ``files_by`` is the column in whose order a rewrite that sorts no rows takes the files of a
    partition, so that each new file holds neighbours; None without bounds to go by.
    """

    strategy: str = "binpack"
    by: tuple[tuple[str, ...], ...] = ()
    files_by: str | None = None

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


@frozen
class Action:
    """One call of a procedure, the unit of retry, record and proof.

    ``partitions`` are those that the action takes (empty: the complete table, or not by partition),
    ``why`` gives the reason. ``order``, ``where``, ``unless`` (a filter for rows whose files
    ``where`` leaves out) and ``must_save`` (without a saved file open it is not worth running) are
    for rewrites of data files; ``older_than`` is for removals by age, fixed at planning so that a
    resumed run removes nothing more. ``misread_keys`` are the keys of equality deletes that
    Iceberg's own rewrite would apply wrongly. ``retention`` and ``expiry`` are for expiries: what
    stays for writers and staged writes, and what the plan computed.
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
    misread_keys: tuple[str, ...] = ()
    retention: Retention | None = None
    expiry: ExpirySummary | None = None

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
        if self.only_drops or self.misread_keys or self.procedure == CONVERT:
            is_conversion = self.procedure == CONVERT
            verb, option = ("convert", "--branch") if is_conversion else ("compact", "--ref")
            branch = [option, self.branch] if self.branch else []
            name = sql.display_name(self.table)
            return command_line(verb, self.catalog, name, *branch, "--execute")
        if self.expiry is not None and not self.expiry.is_stock:
            # Iceberg's own procedure would remove what writers and staged writes need.
            stated = self.retention.command_options if self.retention else ()
            name = sql.display_name(self.table)
            only = "--procedures", self.procedure
            return command_line("maintain", self.catalog, name, *stated, *only, "--execute")
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
        names = _named(self.partition_names[:1], len(self.partitions))
        return f"{self.procedure} {names}" if self.partition_names else self.procedure


class SkipReason(StrEnum):
    """Why a plan leaves partitions alone."""

    OUTSIDE_WINDOW = "outside window"
    RECENT = "recent"
    LIKELY_CONFLICT = "likely conflict"
    NO_FILTER = "no filter"
    OVER_BUDGET = "over budget"
    PLANNER_FINDS_NOTHING = "planner finds nothing"
    SAVES_NOTHING = "saves nothing"
    SLOWER_FILTERS = "slower filters"


# What follows the number of partitions in a sentence.
_WORDS = {
    SkipReason.OUTSIDE_WINDOW: "outside the time window",
    SkipReason.RECENT: "written within the time of --leave-alone",
    SkipReason.LIKELY_CONFLICT: "written within the last hour, where another commit may conflict "
    "with the rewrite",
    SkipReason.NO_FILTER: "which no short filter selects alone: it has the value NaN, its columns "
    "were dropped, or its files are from before the table was partitioned",
    SkipReason.OVER_BUDGET: "larger than the rest of the budget: a partition is rewritten as a "
    "whole, and those that save the most file opens per byte come first",
    SkipReason.PLANNER_FINDS_NOTHING: "the engine's planner finds nothing to rewrite",
    SkipReason.SAVES_NOTHING: "a rewrite would save no file open",
    SkipReason.SLOWER_FILTERS: "where a filter would open more files after the rewrite; only a person "
    "at a terminal starts it, with icekit compact --execute",
}


@frozen
class Skipped:
    """Partitions that a plan leaves alone although a finding asks for them."""

    reason: SkipReason
    partition_count: int
    examples: tuple[str, ...] = ()

    @property
    def is_recent(self) -> bool:
        """Whether the partitions were written a short time ago."""
        return self.reason in {SkipReason.RECENT, SkipReason.LIKELY_CONFLICT}

    @property
    def text(self) -> str:
        """``2 partitions, outside the time window``."""
        return f"{count(self.partition_count, 'partition')}, {_WORDS[self.reason]}"


@frozen
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
    ``converts`` marks a conversion of equality deletes. ``refused`` are procedures that the
    user named, or that the engine cannot run on this table, and that are not planned; a note says
    why. ``waits`` is why a plan has no actions although
    rewrites would help, what they would save, and what to do; None otherwise.
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
    refused: tuple[str, ...] = ()
    waits: str | None = None

    @property
    def name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return sql.display_name(self.table)

    @property
    def command(self) -> str:
        """The command for such a plan: ``compact``, ``convert`` or ``maintain``."""
        is_compaction = all(a.procedure == "rewrite_data_files" for a in self.actions)
        return "convert" if self.converts else "compact" if is_compaction else "maintain"

    @property
    def resume_command(self) -> str:
        """The command that continues the plan after it was stopped."""
        return self.command_with("--resume")

    def command_with(self, *options: str) -> str:
        """The command for this plan's table and catalog, with options."""
        return command_line(self.command, self.catalog, self.name, *options)

    @property
    def prediction(self) -> Prediction:
        """The sum over all actions that rewrite data files, or convert deletes; other units do not
        add up.
        """
        unit = EQUALITY_DELETE if self.converts else "file"
        return total_of((a.prediction for a in self.actions), unit)

    @property
    def reads(self) -> tuple[int, int]:
        """The files, and their bytes, that the rewrites and conversions will read: what a budget
        limits.
        """
        p = self.prediction
        # A conversion also reads the data files that the deletes apply to.
        return p.files_in + p.data_files_read, p.bytes_in

    @property
    def summary(self) -> str:
        """The first sentence: what the plan does, or why it does nothing."""
        if self.actions:
            # Actions of maintenance count different things, which have no sum.
            is_sum = all(a.prediction.unit == "file" for a in self.actions)
            total = f": {predicted(self.prediction)}" if is_sum else ""
            return f"{count(len(self.actions), 'action')}{total}."
        if self.refused:
            verb = "is" if len(self.refused) == 1 else "are"
            names = " and ".join(self.refused)
            return f"{names} {verb} refused; nothing else is worth doing."
        return self.waits or NOTHING

    def warnings(self) -> list[Block]:
        """What somebody should know before all else: the filters that get slower."""
        return [
            Sentence(f"{opens.warning} ({action.action_id}).", "Slower filter")
            for action in self.actions
            for opens in action.prediction.slower_filters
        ]

    def details(self) -> list[Block]:
        """What follows the summary: the actions, what is left alone, and notes."""
        blocks: list[Block] = [_action(action) for action in self.actions]
        if self.parallelism:
            settings = [(e.name, f"{e.value}: {e.why}") for e in self.parallelism]
            blocks.append(Folded("Spark's options, and why", [Item("", settings)], True))
        if self.actions:
            blocks += [Sentence(f"{name} is not planned.", "Refused") for name in self.refused]
        if self.rehearsed:
            blocks.append(Sentence(self.rehearsed, "Tried on a zero-copy clone"))
        for skipped in self.left_alone:
            examples = _named(skipped.examples, skipped.partition_count)
            blocks.append(Sentence(f"{skipped.text} ({examples}).", "Left alone"))
        return [*blocks, *map(Sentence, self.notes)]

    def blocks(self) -> list[Block]:
        """The verdict with its figures, then each action with its reason, prediction and SQL."""
        kind = "fine"
        label = "✔ nothing to do"
        if self.actions:
            kind = "info"
            label = "plan"
        elif self.refused or self.waits:
            kind = "warning"
            label = "▲ refused" if self.refused else "▲ left alone"
        return [
            Badge(kind, label, self.name),
            *self.warnings(),
            Sentence(self.summary, is_strong=True),
            *self.details(),
        ]


def statistics_notes(
    catalog: str, table: tuple[str, ...], metadata: Json, snapshot_id: int | None
) -> list[str]:
    """A note on the statistics of the snapshot that a plan starts from; none without any."""
    statistics = statistics_of(metadata, snapshot_id)
    kinds = " and ".join(f"{each.kind} statistics" for each in statistics)
    renewals = "; ".join(renewal(catalog, table, each) for each in statistics)
    note = (
        f"The snapshot has {kinds}; those that this plan commits have none. To renew them after "
        f"the run (on a branch, with its new snapshot as snapshot_id): {renewals}"
    )
    return [note] if statistics else []


NOTHING = "Nothing to do under this policy."


_SOURCES = {
    "planner": " (predicted by the engine's planner)",
    "facts": " (from the metadata)",
    "trial": " (tried on a clone)",
    "trial of a sample": " (from a sample tried on a clone)",
}


def predicted(p: Prediction) -> str:
    """A prediction as a sentence."""
    read = f" ({size(p.bytes_in)})" if p.bytes_in else ""
    out = f"{p.files_out:,}" if p.unit_out == p.unit else count(p.files_out, p.unit_out)
    verb = "becomes" if p.files_in == 1 else "become"
    text = f"{count(p.files_in, p.unit)}{read} {verb} {p.certainty.words}{out}"
    if p.unit == "file":
        text += f", in all about {size(p.bytes_out)}"
        if p.delete_files_removed:
            text += f", {count(p.delete_files_removed, 'delete file')} removed"
        if p.shuffle_bytes:
            text += f", {size(p.shuffle_bytes)} shuffled"
        if opens := p.file_opens_saved:
            direction = "more" if opens < 0 else "fewer"
            text += f"; a full scan opens {count(abs(opens), 'file')} {direction}"
    return f"{text}{p.about}{_SOURCES.get(p.source, '')}"


def _action(action: Action) -> Item:
    pairs = [("why", action.why), ("predicted", predicted(action.prediction))]
    if action.partition_names:
        pairs.insert(1, ("where", _named(action.partition_names, len(action.partitions))))
    if action.order.files_by:
        pairs.append(("order", f"new files keep the order of {action.order.files_by}"))
    if filters := [opens.change for opens in action.prediction.filters if opens.is_notable]:
        pairs.append(("filters", "; ".join(filters)))
    return Item(f"{action.action_id}  {action.procedure}", pairs, [action.sql])


def _named(names: Sequence[str], total: int) -> str:
    others = f" and {total - len(names):,} more" if total > len(names) else ""
    return f"{', '.join(names)}{others}"
