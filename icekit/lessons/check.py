"""Start a lesson with freshly restored tables, and check exercises: a check says what is missing,
never the solution.

Pure: a check looks only at the result of the learner's cell (a number, a plan, facts).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from icekit import notebook
from icekit.answer import html
from icekit.api import connect
from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.diagnose.findings import Findings
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import delete_ratios
from icekit.lab import build, is_kept, reset
from icekit.lab.workbench import embedded
from icekit.maintain import Retention
from icekit.units import count, percent, size, span

if TYPE_CHECKING:
    from icekit.api import Lake


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether an exercise is done, and a sentence: what is missing, or the meaning of the
    answer.
    """

    is_done: bool
    said: str

    def __repr__(self) -> str:
        return f"{'✔' if self.is_done else '…'} {self.said}"

    def _repr_html_(self) -> str:
        mark = "fine" if self.is_done else "info"
        badge = "done" if self.is_done else "not yet"
        return html.framed(
            f'<div class="card {mark}"><p><span class="badge">{badge}</span> '
            f"{html.prose(self.said)}</p></div>"
        )


def guess(number: object, what: str) -> Checked:
    """Note a prediction before the measurement; any number of 0 or more is accepted."""
    if missing := _no_number(number, "guess"):
        return missing
    return Checked(
        True, f"Your guess is noted ({what}: {number:,}). The next cells measure the real value."
    )


def read_off(number: object, facts: TableFacts) -> Checked:
    """Check the number of data files, read from a card."""
    if missing := _no_number(number, "answer"):
        return missing
    if number != facts.data.file_count:
        return Checked(False, f"It is not {number:,}. Look at the line *data files* of the card.")
    return Checked(
        True,
        f"{number:,} files for {size(facts.data.size_in_bytes)}: that is this table's problem in "
        "one line.",
    )


def within_budget(plan: object, facts: TableFacts, most_bytes: int) -> Checked:
    """Check that a plan reads at most ``most_bytes`` and saves something."""
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    if not made.actions:
        return Checked(
            False,
            "The plan is empty: its budget is too small for a single partition, or it leaves "
            "alone files written in the last hour.",
        )
    read = made.prediction.bytes_in
    if read > most_bytes:
        return Checked(
            False,
            f"The plan reads {size(read)}, more than tonight's budget of {size(most_bytes)}; give "
            "the plan a budget.",
        )
    saved = made.prediction.file_opens_saved
    return Checked(
        True,
        f"The plan reads {size(read)}, and a scan opens {saved:,} fewer "
        f"{'file' if saved == 1 else 'files'}. The rest can wait until tomorrow night.",
    )


def cause(name: object, findings: Findings) -> Checked:
    """Check the name of the finding that explains why small files come back after a compaction."""
    if not isinstance(name, str):
        return Checked(False, "Write the name of a finding into answer, as a string in quotes.")
    wanted = name.replace(" ", "_")
    if wanted not in findings.names:
        return Checked(
            False,
            f"{name!r} is not a finding of this table; its findings are "
            f"{', '.join(sorted(findings.names))}.",
        )
    if wanted != "distribution_mode":
        return Checked(
            False,
            f"{name!r} describes existing files. Which finding describes what the writer does at "
            "every commit?",
        )
    return Checked(
        True,
        "As long as the writer does that, the next commits bring the problem back. The last "
        "lesson fixes the writer.",
    )


def thrown_away(number: object, facts: TableFacts) -> Checked:
    """Check the number of rows that each full scan reads and drops."""
    if missing := _no_number(number, "answer"):
        return missing
    dead = facts.total(Kind.POSITION_DELETES).record_count
    if number != dead:
        return Checked(
            False,
            f"It is not {number:,}. Each position delete names one such row: add up the position "
            "deletes of all partitions.",
        )
    return Checked(
        True,
        f"{percent(dead / facts.data.record_count)} of the rows are read and dropped by every "
        "scan, until a rewrite removes them.",
    )


def one_partition(plan: object, facts: TableFacts, least_ratio: float) -> Checked:
    """Check that a plan takes exactly the partitions with at least ``least_ratio`` position deletes
    per row.
    """
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    wanted = {r.partition for r in delete_ratios(facts) if (r.by_records or 0) >= least_ratio}
    taken = {p for action in made.actions for p in action.partitions}
    if extra := taken - wanted:
        return Checked(
            False,
            f"The plan takes {count(len(taken), 'partition')}, {len(extra):,} of them with "
            f"deletes for less than {percent(least_ratio)} of their rows.",
        )
    if wanted - taken:
        return Checked(
            False,
            f"The plan leaves out {count(len(wanted - taken), 'partition')} with deletes for "
            f"{percent(least_ratio)} of their rows or more.",
        )
    return Checked(
        True,
        f"{', '.join(made.actions[0].partition_names)} is rewritten; the other partitions wait "
        "until a rewrite is worth it.",
    )


def half_the_commits(share: object) -> Checked:
    """Check the share of the readers' work that is left when an upsert stream commits half as
    often.
    """
    if missing := _no_number(share, "work_left"):
        return missing
    assert isinstance(share, Real)
    if not 0 < float(share) < 1:
        return Checked(
            False, "Write a share between 0 and 1: how much of the readers' current work is left?"
        )
    if abs(float(share) - 0.25) > 0.02:
        return Checked(
            False,
            f"{percent(float(share))} would be right if the work grew differently. Half as many "
            "data files, each with half as many later delete files …",
        )
    return Checked(
        True,
        "Work grows with the square of the commits. A longer commit interval is the cheapest fix.",
    )


def small_first(outcome: object) -> Checked:
    """Check for a dry run of a conversion of one partition."""
    if not isinstance(outcome, Outcome):
        return Checked(False, "Assign the result of lake.convert(…) to trial_run.")
    if not outcome.is_dry_run:
        return Checked(
            False,
            "That was executed. Start the lesson again without execute: a dry run is the default.",
        )
    partitions = sum(len(action.partitions) for action in outcome.plan.actions)
    if partitions != 1:
        return Checked(
            False,
            f"This would convert {count(partitions, 'partition')}; give it a where that matches "
            "only one.",
        )
    return Checked(
        True,
        "One partition, and nothing has run. On a large table, start like this, check the "
        "outcome, then convert more.",
    )


def retention(kept: object, need_hours: float) -> Checked:
    """Check a retention that keeps what people need and states the need, so that a plan must
    respect it.
    """
    if not isinstance(kept, Retention):
        return Checked(False, "Assign a maintain.Retention.of({…}) to kept.")
    age_ms, last = kept.in_force({})
    if age_ms < need_hours * 3_600_000:
        return Checked(
            False, f"It keeps {span(age_ms)}, but people look back {span(need_hours * 3_600_000)}."
        )
    if kept.need_hours is None or kept.need_hours < need_hours:
        return Checked(
            False,
            "That keeps enough today. State the need too: then icekit rejects a plan that would "
            "violate it, even if somebody changes the age.",
        )
    return Checked(
        True,
        f"{span(age_ms)} and the last {count(last, 'snapshot')} stay, and nobody can lower this "
        "below the need by mistake.",
    )


def live_share(share: object, live_bytes: int, stored_bytes: int) -> Checked:
    """Check the share of the stored bytes that the current snapshot uses."""
    if missing := _no_number(share, "live"):
        return missing
    assert isinstance(share, Real)
    if abs(float(share) - live_bytes / stored_bytes) > 0.01:
        return Checked(
            False,
            f"It is not {percent(float(share))}. Divide the bytes of the table's current data "
            "files by the data bytes in its folder.",
        )
    return Checked(
        True,
        f"{percent(1 - live_bytes / stored_bytes)} of the bytes serve only time travel. Whether "
        "that is waste depends on who uses time travel.",
    )


def who_pays(column: object, before: TableFacts, after: TableFacts) -> Checked:
    """Check for a column whose lookups skipped most files before the table was sorted by another
    column, and few after.
    """
    if not isinstance(column, str):
        return Checked(False, "Write the name of a column into loser, as a string in quotes.")
    was, now = (facts.metrics_sample.column(column) for facts in (before, after))
    if was is None or now is None or was.stab_share is None or now.stab_share is None:
        return Checked(
            False, f"There is no column {column!r} with bounds in both tables of columns."
        )
    said = (
        f"A lookup of one {column} read {percent(was.stab_share)} of the files before and reads "
        f"{percent(now.stab_share)} now."
    )
    if now.stab_share < 2 * was.stab_share or now.stab_share < 0.5:
        return Checked(False, f"{said} Look for a column that reads more files now.")
    return Checked(True, f"{said} Rows can have only one order, so some queries pay for it.")


def pays_back(
    plan: object, everything: Plan, facts: TableFacts, *, least_win: float, most_bytes: float
) -> Checked:
    """Check that a plan has most of the savings of a complete rewrite for a part of its bytes; the
    limits are shares.
    """
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    win = made.prediction.file_opens_saved / everything.prediction.file_opens_saved
    cost = made.prediction.bytes_in / everything.prediction.bytes_in
    said = (
        f"The plan saves {percent(win)} of the possible file opens for {percent(cost)} of the bytes"
    )
    if win < least_win:
        return Checked(False, f"{said}; it should save {percent(least_win)}.")
    if cost > most_bytes:
        return Checked(
            False,
            f"{said}; it should read at most {percent(most_bytes)}. Most of these files are "
            "well-sized, and a rewrite gains nothing.",
        )
    return Checked(
        True, f"{said}. The rest would save {percent(max(1 - win, 0))} for {percent(1 - cost)}."
    )


def left_alone(reason: object, plan: Plan) -> Checked:
    """Check the reason why a plan leaves alone files that were just written."""
    if not isinstance(reason, str):
        return Checked(
            False, "Assign the plan's reason to answer: plan.left_alone has the reasons."
        )
    if reason not in {found.reason for found in plan.left_alone if found.is_recent}:
        return Checked(
            False,
            f"{reason!r} is not the reason for the partition that was just written; look at "
            "careful.left_alone.",
        )
    return Checked(
        True,
        "Its writer may still be active. If it deletes or updates rows of these files, a rewrite "
        "fails at the commit; if it only appends, the partition soon has small files again.",
    )


def writer_fixed(facts: TableFacts) -> Checked:
    """Check that the newest commit wrote one file into each partition."""
    mode = (facts.setting("write.distribution-mode") or "").lower()
    if mode == "none":
        return Checked(
            False,
            "The table's write.distribution-mode is still none: run your ALTER TABLE before the "
            "batch.",
        )
    newest = facts.history.commits[-1]
    per_partition = (newest.added_data_files or 0) / (newest.changed_partitions or 1)
    if per_partition != 1:
        return Checked(
            False,
            f"The newest commit wrote {per_partition:.1f} files into each partition. Write a "
            "batch after the ALTER TABLE.",
        )
    return Checked(
        True,
        f"{count(newest.added_data_files or 0, 'file')} for "
        f"{count(newest.changed_partitions or 0, 'partition')}: nothing here needs fixing tonight.",
    )


def files_a_day(number: object, interval_minutes: int) -> Checked:
    """Check the number of files per day of a writer that commits one file every
    ``interval_minutes``.
    """
    if missing := _no_number(number, "answer"):
        return missing
    if number != 24 * 60 // interval_minutes:
        return Checked(
            False,
            f"It is not {number:,}. How often does it commit in 24 hours, and how many files does "
            "each commit write?",
        )
    return Checked(
        True, "No distribution mode changes that: only a longer interval makes fewer commits."
    )


def _no_number(number: object, name: str) -> Checked | None:
    if isinstance(number, bool) or not isinstance(number, Real):
        return Checked(
            False, f"Write a number into {name} in the cell above, and run both cells again."
        )
    return Checked(False, "The number must be 0 or more.") if float(number) < 0 else None


def _plan(plan: Any, facts: TableFacts) -> Plan | None:
    return plan if isinstance(plan, Plan) and plan.table == facts.table else None


def _no_plan(plan: object, facts: TableFacts) -> Checked:
    if isinstance(plan, Plan):
        return Checked(False, f"That is a plan for {plan.name}; make one for {facts.name}.")
    return Checked(
        False,
        "Make a plan with lake.plan(facts, findings, …) in the cell above, and run both cells "
        "again.",
    )


# --- Start a lesson: restored tables, and a separate ledger


def begin(*tables: str) -> Lake:
    """Connect to the embedded lake and restore the lab tables of a lesson to their state after the
    build.

    ``tables`` are names without the namespace. A missing table is built, which takes a
    minute the first time. Runs go into a new ledger of the lab, so that exercises neither affect
    the predictions of real runs nor are resumed by one; ``ICEKIT_LEDGER`` names another ledger.
    Raises the errors of :func:`icekit.lab.build` and :func:`icekit.lab.reset`.
    """
    notebook.begin({})
    lake = connect()
    if missing := [name for name in tables if not is_kept(lake, name)]:
        build(lake, missing, rebuild=True)
    reset(lake, tables)
    ledger = embedded(lake) / "lessons" / f"{tables[0]}.db"
    ledger.parent.mkdir(exist_ok=True)
    if os.environ.setdefault("ICEKIT_LEDGER", str(ledger)) == str(ledger):
        ledger.unlink(missing_ok=True)
    return lake
