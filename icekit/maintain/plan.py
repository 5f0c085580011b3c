"""Define a plan: ordered actions, what it leaves alone, and why; nothing here runs anything."""

from dataclasses import dataclass
from enum import StrEnum

from icekit.common import frozen, sql
from icekit.common.command_line import command_line
from icekit.common.units import count, size
from icekit.common.view import Badge, Block, Folded, Item, Sentence, Shown
from icekit.health.facts.snapshot_statistics import compute_statistics_sql, statistics_of
from icekit.iceberg.metadata import Json
from icekit.maintain.action import Action, names_and_others
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
    def count_and_reason(self) -> str:
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
    def table_name(self) -> str:
        """``namespace.table`` as a person writes it."""
        return sql.display_name(self.table)

    @property
    def command(self) -> str:
        """The command for such a plan: ``compact``, ``convert`` or ``maintain``."""
        is_compaction = all(action.procedure == "rewrite_data_files" for action in self.actions)
        return "convert" if self.converts else "compact" if is_compaction else "maintain"

    @property
    def resume_command(self) -> str:
        """The command that continues the plan after it was stopped."""
        return self.command_with("--resume")

    def command_with(self, *options: str) -> str:
        """The command for this plan's table and catalog, with options."""
        return command_line(self.command, self.catalog, self.table_name, *options)

    @property
    def prediction(self) -> Prediction:
        """The sum over all actions that rewrite data files, or convert deletes; other units do not
        add up.
        """
        unit = EQUALITY_DELETE if self.converts else "file"
        return total_of((action.prediction for action in self.actions), unit)

    @property
    def files_and_bytes_read(self) -> tuple[int, int]:
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
            has_common_unit = all(action.prediction.unit == "file" for action in self.actions)
            total_text = f": {prediction_sentence(self.prediction)}" if has_common_unit else ""
            return f"{count(len(self.actions), 'action')}{total_text}."
        if self.refused:
            is_or_are = "is" if len(self.refused) == 1 else "are"
            procedure_names = " and ".join(self.refused)
            return f"{procedure_names} {is_or_are} refused; nothing else is worth doing."
        return self.waits or NOTHING

    def warnings(self) -> list[Block]:
        """What somebody should know before all else: the filters that get slower."""
        return [
            Sentence(f"{filter_opens.warning} ({action.action_id}).", "Slower filter")
            for action in self.actions
            for filter_opens in action.prediction.slower_filters
        ]

    def details(self) -> list[Block]:
        """What follows the summary: the actions, what is left alone, and notes."""
        blocks: list[Block] = [_action_item(action) for action in self.actions]
        if self.parallelism:
            options_with_reasons = [(e.name, f"{e.value}: {e.why}") for e in self.parallelism]
            blocks.append(
                Folded("Spark's options, and why", [Item("", options_with_reasons)], True)
            )
        if self.actions:
            blocks += [
                Sentence(f"{procedure} is not planned.", "Refused") for procedure in self.refused
            ]
        if self.rehearsed:
            blocks.append(Sentence(self.rehearsed, "Tried on a zero-copy clone"))
        for skipped in self.left_alone:
            examples_text = names_and_others(skipped.examples, skipped.partition_count)
            blocks.append(Sentence(f"{skipped.count_and_reason} ({examples_text}).", "Left alone"))
        return [*blocks, *map(Sentence, self.notes)]

    def blocks(self) -> list[Block]:
        """The verdict with its figures, then each action with its reason, prediction and SQL."""
        badge_kind = "fine"
        badge_label = "✔ nothing to do"
        if self.actions:
            badge_kind = "info"
            badge_label = "plan"
        elif self.refused or self.waits:
            badge_kind = "warning"
            badge_label = "▲ refused" if self.refused else "▲ left alone"
        return [
            Badge(badge_kind, badge_label, self.table_name),
            *self.warnings(),
            Sentence(self.summary, is_strong=True),
            *self.details(),
        ]


def statistics_notes(
    catalog: str, table: tuple[str, ...], metadata: Json, snapshot_id: int | None
) -> list[str]:
    """A note on the statistics of the snapshot that a plan starts from; none without any."""
    statistics = statistics_of(metadata, snapshot_id)
    kinds_text = " and ".join(f"{statistic.kind} statistics" for statistic in statistics)
    renewal_sql = "; ".join(
        compute_statistics_sql(catalog, table, statistic) for statistic in statistics
    )
    note = (
        f"The snapshot has {kinds_text}; those that this plan commits have none. To renew them "
        f"after the run (on a branch, with its new snapshot as snapshot_id): {renewal_sql}"
    )
    return [note] if statistics else []


NOTHING = "Nothing to do under this policy."


_SOURCES = {
    "planner": " (predicted by the engine's planner)",
    "facts": " (from the metadata)",
    "trial": " (tried on a clone)",
    "trial of a sample": " (from a sample tried on a clone)",
}


def prediction_sentence(p: Prediction) -> str:
    """A prediction as a sentence."""
    bytes_text = f" ({size(p.bytes_in)})" if p.bytes_in else ""
    files_out_text = f"{p.files_out:,}" if p.unit_out == p.unit else count(p.files_out, p.unit_out)
    becomes_verb = "becomes" if p.files_in == 1 else "become"
    files_in_text = f"{count(p.files_in, p.unit)}{bytes_text}"
    sentence = f"{files_in_text} {becomes_verb} {p.certainty.number_prefix}{files_out_text}"
    if p.unit == "file":
        sentence += f", in all about {size(p.bytes_out)}"
        if p.delete_files_removed:
            sentence += f", {count(p.delete_files_removed, 'delete file')} removed"
        if p.shuffle_bytes:
            sentence += f", {size(p.shuffle_bytes)} shuffled"
        if opens_saved := p.file_opens_saved:
            more_or_fewer = "more" if opens_saved < 0 else "fewer"
            sentence += f"; a full scan opens {count(abs(opens_saved), 'file')} {more_or_fewer}"
    return f"{sentence}{p.duration_suffix}{_SOURCES.get(p.source, '')}"


def _action_item(action: Action) -> Item:
    labelled_lines = [("why", action.why), ("predicted", prediction_sentence(action.prediction))]
    if action.partition_names:
        labelled_lines.insert(
            1, ("where", names_and_others(action.partition_names, len(action.partitions)))
        )
    if action.order.files_by:
        labelled_lines.append(("order", f"new files keep the order of {action.order.files_by}"))
    if filter_changes := [
        filter_opens.change_text
        for filter_opens in action.prediction.filters
        if filter_opens.skips_files
    ]:
        labelled_lines.append(("filters", "; ".join(filter_changes)))
    return Item(f"{action.action_id}  {action.procedure}", labelled_lines, [action.sql])
