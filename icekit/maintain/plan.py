"""Define a plan: ordered actions, what it leaves alone, and why; nothing here runs anything."""

from dataclasses import dataclass
from enum import StrEnum

from icekit.common import frozen, sql
from icekit.common.command_line import command_line
from icekit.common.units import count, size
from icekit.common.view import Badge, Block, Folded, Item, Sentence, Shown
from icekit.health.facts.snapshot_statistics import renewal_statement, statistics_of
from icekit.iceberg.metadata import Json
from icekit.maintain.action import Action, names_of
from icekit.maintain.prediction import EQUALITY_DELETE, Prediction, total_of


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
            examples = names_of(skipped.examples, skipped.partition_count)
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
    renewals = "; ".join(renewal_statement(catalog, table, each) for each in statistics)
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
        pairs.insert(1, ("where", names_of(action.partition_names, len(action.partitions))))
    if action.order.files_by:
        pairs.append(("order", f"new files keep the order of {action.order.files_by}"))
    if filters := [opens.change_text for opens in action.prediction.filters if opens.skips_files]:
        pairs.append(("filters", "; ".join(filters)))
    return Item(f"{action.action_id}  {action.procedure}", pairs, [action.sql])
