"""Check exercises: a check says what is missing, never the solution.

Pure: a check looks only at the result of the learner's cell (a number, a plan, facts).
"""

from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, ParamSpec

from icekit.common import frozen
from icekit.common.units import count, percent, size, span
from icekit.common.view import Badge, Sentence, as_html
from icekit.health.diagnose.findings import Findings
from icekit.health.facts.model import TableFacts
from icekit.health.facts.retention import Retention
from icekit.health.facts.rollup import delete_ratios
from icekit.iceberg.file_kind import Kind
from icekit.maintain.plan import Plan
from icekit.maintain.run.outcome import Outcome


@frozen
class ExerciseResult:
    """Whether an exercise is done, and a sentence: what is missing, or the meaning of the
    answer.
    """

    is_done: bool
    sentence: str

    def __repr__(self) -> str:
        done_mark = "✔" if self.is_done else "…"
        return f"{done_mark} {self.sentence}"

    def _repr_html_(self) -> str:
        badge = Badge("fine", "done", "") if self.is_done else Badge("info", "not yet", "")
        return as_html([badge, Sentence(self.sentence)])


class NotYet(Exception):
    """What an answer lacks, in one sentence."""


P = ParamSpec("P")


def exercise(check: Callable[P, str]) -> Callable[P, ExerciseResult]:
    """Make a check of a function that returns the meaning of an answer, or raises
    :class:`NotYet`.
    """

    @wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> ExerciseResult:
        try:
            return ExerciseResult(True, check(*args, **kwargs))
        except NotYet as missing:
            return ExerciseResult(False, str(missing))

    return checked


@exercise
def guess(number: object, quantity: str) -> str:
    """Note a prediction before the measurement; any number of 0 or more is accepted."""
    guessed_number = _valid_number(number, "guess")
    return (
        f"Your guess is noted ({quantity}: {guessed_number:,}). The next cells measure the real "
        "value."
    )


@exercise
def data_file_count(number: object, facts: TableFacts) -> str:
    """Check the number of data files, read from a card."""
    _require_answer(number, facts.data.file_count, "Look at the line *data files* of the card.")
    return (
        f"{number:,} files for {size(facts.data.size_in_bytes)}: that is this table's problem in "
        "one line."
    )


@exercise
def within_budget(plan: object, facts: TableFacts, most_bytes: int) -> str:
    """Check that a plan reads at most ``most_bytes`` and saves something."""
    valid_plan = _valid_plan(plan, facts)
    if not valid_plan.actions:
        raise NotYet(
            "The plan is empty: its budget is too small for a single partition, or it leaves "
            "alone files written in the last hour."
        )
    bytes_read = valid_plan.prediction.bytes_in
    if bytes_read > most_bytes:
        raise NotYet(
            f"The plan reads {size(bytes_read)}, more than tonight's budget of {size(most_bytes)}; "
            "give the plan a budget."
        )
    opens_saved = valid_plan.prediction.file_opens_saved
    return (
        f"The plan reads {size(bytes_read)}, and a scan opens {count(opens_saved, 'fewer file')}. "
        "The rest can wait until tomorrow night."
    )


@exercise
def recurring_cause(name: object, findings: Findings) -> str:
    """Check the name of the finding that explains why small files come back after a compaction."""
    if not isinstance(name, str):
        raise NotYet("Write the name of a finding into answer, as a string in quotes.")
    finding_name = name.replace(" ", "_")
    if finding_name not in findings.names:
        raise NotYet(
            f"{name!r} is not a finding of this table; its findings are "
            f"{', '.join(sorted(findings.names))}."
        )
    if finding_name != "distribution_mode":
        raise NotYet(
            f"{name!r} describes existing files. Which finding describes what the writer does at "
            "every commit?"
        )
    return (
        "As long as the writer does that, the next commits bring the problem back. The last "
        "lesson fixes the writer."
    )


@exercise
def deleted_row_count(number: object, facts: TableFacts) -> str:
    """Check the number of rows that each full scan reads and drops."""
    position_delete_count = facts.total(Kind.POSITION_DELETES).record_count
    hint = "Each position delete names one such row: add up the position deletes of all partitions."
    _require_answer(number, position_delete_count, hint)
    return (
        f"{percent(position_delete_count / facts.data.record_count)} of the rows are read and "
        "dropped by every scan, until a rewrite removes them."
    )


@exercise
def partitions_with_deletes(plan: object, facts: TableFacts, least_ratio: float) -> str:
    """Check that a plan takes exactly the partitions with at least ``least_ratio`` position deletes
    per row.
    """
    valid_plan = _valid_plan(plan, facts)
    ratios_by_partition = delete_ratios(facts)
    partitions_to_rewrite = {
        partition
        for partition, ratio in ratios_by_partition.items()
        if (ratio.by_records or 0) >= least_ratio
    }
    planned_partitions = {p for action in valid_plan.actions for p in action.partitions}
    if unneeded_partitions := planned_partitions - partitions_to_rewrite:
        raise NotYet(
            f"The plan takes {count(len(planned_partitions), 'partition')}, "
            f"{len(unneeded_partitions):,} of them with deletes for less than "
            f"{percent(least_ratio)} of their rows."
        )
    if missing_partitions := partitions_to_rewrite - planned_partitions:
        raise NotYet(
            f"The plan leaves out {count(len(missing_partitions), 'partition')} with deletes for "
            f"{percent(least_ratio)} of their rows or more."
        )
    return (
        f"{', '.join(valid_plan.actions[0].partition_names)} is rewritten; the other partitions "
        "wait until a rewrite is worth it."
    )


@exercise
def work_at_half_the_commits(share: object) -> str:
    """Check the share of the readers' work that is left when an upsert stream commits half as
    often.
    """
    work_share = _valid_number(share, "work_left")
    if not 0 < work_share < 1:
        raise NotYet(
            "Write a share between 0 and 1: how much of the readers' current work is left?"
        )
    if abs(work_share - 0.25) > 0.02:
        raise NotYet(
            f"{percent(work_share)} would be right if the work grew differently. Half as many "
            "data files, each with half as many later delete files …"
        )
    return (
        "Work grows with the square of the commits. A longer commit interval is the cheapest fix."
    )


@exercise
def one_partition_dry_run(outcome: object) -> str:
    """Check for a dry run of a conversion of one partition."""
    if not isinstance(outcome, Outcome):
        raise NotYet("Assign the result of lake.convert(…) to trial_run.")
    if not outcome.is_dry_run:
        raise NotYet(
            "That was executed. Start the lesson again without execute: a dry run is the default."
        )
    partition_count = sum(len(action.partitions) for action in outcome.plan.actions)
    if partition_count != 1:
        raise NotYet(
            f"This would convert {count(partition_count, 'partition')}; give it a where that "
            "matches only one."
        )
    return (
        "One partition, and nothing has run. On a large table, start like this, check the "
        "outcome, then convert more."
    )


@exercise
def retention(retention_setting: object, need_hours: float) -> str:
    """Check a retention that keeps what people need and states the need, so that a plan must
    respect it.
    """
    if not isinstance(retention_setting, Retention):
        raise NotYet("Assign a Retention.of({…}) to kept.")
    age_ms, snapshot_count = retention_setting.time_and_count({})
    if age_ms < need_hours * 3_600_000:
        raise NotYet(
            f"It keeps {span(age_ms)}, but people look back {span(need_hours * 3_600_000)}."
        )
    if retention_setting.need_hours is None or retention_setting.need_hours < need_hours:
        raise NotYet(
            "That keeps enough today. State the need too: then icekit rejects a plan that would "
            "violate it, even if somebody changes the age."
        )
    return (
        f"{span(age_ms)} and the last {count(snapshot_count, 'snapshot')} stay, and nobody can "
        "lower this below the need by mistake."
    )


@exercise
def live_share(share: object, live_bytes: int, stored_bytes: int) -> str:
    """Check the share of the stored bytes that the current snapshot uses."""
    stated_share = _valid_number(share, "live")
    if abs(stated_share - live_bytes / stored_bytes) > 0.01:
        raise NotYet(
            f"It is not {percent(stated_share)}. Divide the bytes of the table's current data "
            "files by the data bytes in its folder."
        )
    return (
        f"{percent(1 - live_bytes / stored_bytes)} of the bytes serve only time travel. Whether "
        "that is waste depends on who uses time travel."
    )


@exercise
def slower_lookup_column(column: object, before: TableFacts, after: TableFacts) -> str:
    """Check for a column whose lookups skipped most files before the table was sorted by another
    column, and few after.
    """
    if not isinstance(column, str):
        raise NotYet("Write the name of a column into loser, as a string in quotes.")
    sample_before = before.metrics_sample.column(column)
    sample_after = after.metrics_sample.column(column)
    if (
        sample_before is None
        or sample_after is None
        or sample_before.stab_share is None
        or sample_after.stab_share is None
    ):
        raise NotYet(f"There is no column {column!r} with bounds in both tables of columns.")
    shares_sentence = (
        f"A lookup of one {column} read {percent(sample_before.stab_share)} of the files before "
        f"and reads {percent(sample_after.stab_share)} now."
    )
    if sample_after.stab_share < 2 * sample_before.stab_share or sample_after.stab_share < 0.5:
        raise NotYet(f"{shares_sentence} Look for a column that reads more files now.")
    return f"{shares_sentence} Rows can have only one order, so some queries pay for it."


@exercise
def plan_pays_back(
    plan: object,
    complete_plan: Plan,
    facts: TableFacts,
    *,
    least_opens_share: float,
    most_byte_share: float,
) -> str:
    """Check that a plan has most of the savings of a complete rewrite for a part of its bytes; the
    limits are shares.
    """
    valid_plan = _valid_plan(plan, facts)
    opens_share = valid_plan.prediction.file_opens_saved / complete_plan.prediction.file_opens_saved
    byte_share = valid_plan.prediction.bytes_in / complete_plan.prediction.bytes_in
    savings_sentence = (
        f"The plan saves {percent(opens_share)} of the possible file opens for "
        f"{percent(byte_share)} of the bytes"
    )
    if opens_share < least_opens_share:
        raise NotYet(f"{savings_sentence}; it should save {percent(least_opens_share)}.")
    if byte_share > most_byte_share:
        raise NotYet(
            f"{savings_sentence}; it should read at most {percent(most_byte_share)}. Leave out "
            "well-sized files: their rewrite gains nothing."
        )
    return (
        f"{savings_sentence}. The rest would save {percent(max(1 - opens_share, 0))} for "
        f"{percent(1 - byte_share)}."
    )


@exercise
def reason_left_alone(reason: object, plan: Plan) -> str:
    """Check the reason why a plan leaves alone files that were just written."""
    if not isinstance(reason, str):
        raise NotYet("Assign the plan's reason to answer: plan.left_alone has the reasons.")
    if reason not in {
        left_partition.reason for left_partition in plan.left_alone if left_partition.is_recent
    }:
        raise NotYet(
            f"{reason!r} is not the reason for the partition that was just written; look at "
            "careful.left_alone."
        )
    return (
        "Its writer may still be active. If it deletes or updates rows of these files, a rewrite "
        "fails at the commit; if it only appends, the partition soon has small files again."
    )


@exercise
def writer_is_fixed(facts: TableFacts) -> str:
    """Check that the newest commit wrote one file into each partition."""
    distribution_mode = (facts.setting("write.distribution-mode") or "").lower()
    if distribution_mode == "none":
        raise NotYet(
            "The table's write.distribution-mode is still none: run your ALTER TABLE before the "
            "batch."
        )
    newest_commit = facts.history.commits[-1]
    files_per_partition = (newest_commit.added_data_files or 0) / (
        newest_commit.changed_partitions or 1
    )
    if files_per_partition != 1:
        raise NotYet(
            f"The newest commit wrote {files_per_partition:.1f} files into each partition. Write a "
            "batch after the ALTER TABLE."
        )
    return (
        f"{count(newest_commit.added_data_files or 0, 'file')} for "
        f"{count(newest_commit.changed_partitions or 0, 'partition')}: nothing here needs fixing "
        "tonight."
    )


@exercise
def files_a_day(number: object, interval_minutes: int) -> str:
    """Check the number of files per day of a writer that commits one file every
    ``interval_minutes``.
    """
    hint = "How often does it commit in 24 hours, and how many files does each commit write?"
    _require_answer(number, 24 * 60 // interval_minutes, hint)
    return "No distribution mode changes that: only a longer interval makes fewer commits."


def _valid_number(answer: object, name: str) -> Any:
    if isinstance(answer, bool) or not isinstance(answer, Real):
        raise NotYet(f"Write a number into {name} in the cell above, and run both cells again.")
    if float(answer) < 0:
        raise NotYet("The number must be 0 or more.")
    return answer


def _require_answer(answer: object, right_answer: int, hint: str) -> None:
    if _valid_number(answer, "answer") != right_answer:
        raise NotYet(f"It is not {answer:,}. {hint}")


def _valid_plan(plan: object, facts: TableFacts) -> Plan:
    if not isinstance(plan, Plan):
        raise NotYet(
            "Make a plan with lake.plan(facts, findings, …) in the cell above, and run both cells "
            "again."
        )
    if plan.table != facts.table:
        raise NotYet(f"That is a plan for {plan.table_name}; make one for {facts.name}.")
    return plan
