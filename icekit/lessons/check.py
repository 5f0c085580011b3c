"""Begin a lesson with its tables as they were built, and check exercises: an answer says what is missing, never the solution.

Pure: a check looks at what the learner's cell has made (a number, a plan, facts), not at how.
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
from icekit.facts.model import Kind, TableFacts
from icekit.facts.rollup import delete_ratios
from icekit.lab import build, is_kept, reset
from icekit.lab.workbench import embedded
from icekit.maintain import Retention
from icekit.units import count, percent, size, span

if TYPE_CHECKING:
    from icekit.api import Lake


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether an exercise is done, and a sentence: what is missing, or what the answer means."""

    is_done: bool
    said: str

    def __repr__(self) -> str:
        return f"{'✔' if self.is_done else '…'} {self.said}"

    def _repr_html_(self) -> str:
        mark = "fine" if self.is_done else "info"
        badge = "done" if self.is_done else "not yet"
        return html.framed(f'<div class="card {mark}"><p><span class="badge">{badge}</span> {html.prose(self.said)}</p></div>')


def guess(number: object, what: str) -> Checked:
    """A prediction is written down before the measurement; any number of 0 or more will do."""
    if missing := _no_number(number, "guess"):
        return missing
    return Checked(True, f"Your guess is noted ({what}: {number:,}). What comes out is measured below.")


def read_off(number: object, facts: TableFacts) -> Checked:
    """The number of data files, read off a card."""
    if missing := _no_number(number, "answer"):
        return missing
    if number != facts.data.file_count:
        return Checked(False, f"It is not {number:,}. Look at the line *data files* of the card.")
    return Checked(True, f"{number:,} files for {size(facts.data.size_in_bytes)}: that is all this table's trouble in one line.")


def within_budget(plan: object, facts: TableFacts, most_bytes: int) -> Checked:
    """A plan that reads at most so many bytes, and wins something."""
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    if not made.actions:
        return Checked(
            False, "The plan holds nothing: its budget buys not even one partition, or it leaves alone what was written in the last hour."
        )
    read = made.prediction.bytes_in
    if read > most_bytes:
        return Checked(False, f"The plan reads {size(read)}, more than the {size(most_bytes)} that you have tonight; give it a budget.")
    saved = made.prediction.file_opens_saved
    return Checked(True, f"{size(read)} are read, and a scan opens {count(saved, 'file')} fewer. The rest can wait for tomorrow night.")


def cause(name: object, findings: Findings) -> Checked:
    """The finding that tells why small files come back after a compaction."""
    if not isinstance(name, str):
        return Checked(False, "Write the name of a finding into answer, as a text in quotes.")
    wanted = name.replace(" ", "_")
    if wanted not in findings.names:
        return Checked(False, f"{name!r} is no finding on this table; there are {', '.join(sorted(findings.names))}.")
    if wanted != "distribution_mode":
        return Checked(False, f"{name!r} says what is there. Which finding says what the writer does at every commit?")
    return Checked(True, "As long as the writer does that, the next commits bring the illness back. The last lesson fixes it there.")


def thrown_away(number: object, facts: TableFacts) -> Checked:
    """Rows that each full scan reads and throws away."""
    if missing := _no_number(number, "answer"):
        return missing
    dead = facts.total(Kind.POSITION_DELETES).record_count
    if number != dead:
        return Checked(False, f"It is not {number:,}. Each position delete names one such row: add them up over all partitions.")
    return Checked(
        True, f"{percent(dead / facts.data.record_count)} of the rows are read for nothing, by every scan, until they are rewritten."
    )


def one_partition(plan: object, facts: TableFacts, least_ratio: float) -> Checked:
    """A plan for those partitions alone that have so many position deletes per row."""
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    wanted = {r.partition for r in delete_ratios(facts) if (r.by_records or 0) >= least_ratio}
    taken = {p for action in made.actions for p in action.partitions}
    if extra := taken - wanted:
        return Checked(
            False,
            f"The plan takes {count(len(taken), 'partition')}, {len(extra):,} of them with fewer deletes than {percent(least_ratio)} of their rows.",
        )
    if wanted - taken:
        return Checked(False, f"The plan leaves out {count(len(wanted - taken), 'partition')} with more deletes than that.")
    return Checked(True, f"{', '.join(made.actions[0].partition_names)} is rewritten, and the others wait until it is worth it.")


def half_the_commits(share: object) -> Checked:
    """The share of the work that is left for readers when an upsert stream commits half as often."""
    if missing := _no_number(share, "work_left"):
        return missing
    assert isinstance(share, Real)
    if not 0 < float(share) < 1:
        return Checked(False, "Write a share between 0 and 1: of the work for readers that is there now, how much is left?")
    if abs(float(share) - 0.25) > 0.02:
        return Checked(
            False,
            f"{percent(float(share))} is what would be left if the work grew otherwise. Half as many data files, each with half as many later delete files …",
        )
    return Checked(True, "Work grows with the square of the commits. A longer commit interval is the cheapest cure there is.")


def small_first(outcome: object) -> Checked:
    """A dry run of a conversion, for one partition."""
    if not isinstance(outcome, Outcome):
        return Checked(False, "Put what lake.convert(…) returns into trial_run.")
    if not outcome.is_dry_run:
        return Checked(False, "That was executed. Begin the lesson again, and leave execute away: a dry run is the default.")
    partitions = sum(len(action.partitions) for action in outcome.plan.actions)
    if partitions != 1:
        return Checked(False, f"This would convert {count(partitions, 'partition')}; give it a where that only one can match.")
    return Checked(True, "One partition, and nothing has run. On a large table begin like this, look at the outcome, then widen it.")


def retention(kept: object, need_hours: float) -> Checked:
    """A retention that leaves what people need, and that states the need, so that a plan is held to it."""
    if not isinstance(kept, Retention):
        return Checked(False, "Make a maintain.Retention.of({…}) and put it into kept.")
    age_ms, last = kept.in_force({})
    if age_ms < need_hours * 3_600_000:
        return Checked(False, f"It keeps {span(age_ms)}, and people look back {span(need_hours * 3_600_000)}.")
    if kept.need_hours is None or kept.need_hours < need_hours:
        return Checked(
            False, "That keeps enough today. State the need as well: then a plan that would break it is refused, whoever changes the age."
        )
    return Checked(
        True, f"{span(age_ms)} and the last {count(last, 'snapshot')} stay, and nobody can lower that below the need by mistake."
    )


def live_share(share: object, live_bytes: int, stored_bytes: int) -> Checked:
    """The share of the stored bytes that the current snapshot uses."""
    if missing := _no_number(share, "live"):
        return missing
    assert isinstance(share, Real)
    if abs(float(share) - live_bytes / stored_bytes) > 0.01:
        return Checked(
            False, f"It is not {percent(float(share))}. Divide the bytes of the table's data files now by the data bytes in its folder."
        )
    return Checked(
        True, f"{percent(1 - live_bytes / stored_bytes)} of the bytes serve time travel only. Whether that is waste depends on who travels."
    )


def who_pays(column: object, before: TableFacts, after: TableFacts) -> Checked:
    """A column whose lookups skipped most files before a table was sorted by another, and hardly any after."""
    if not isinstance(column, str):
        return Checked(False, "Write the name of a column into loser, as a text in quotes.")
    was, now = (facts.metrics_sample.column(column) for facts in (before, after))
    if was is None or now is None or was.stab_share is None or now.stab_share is None:
        return Checked(False, f"There is no column {column!r} with bounds in both tables of columns.")
    said = f"A lookup of one {column} read {percent(was.stab_share)} of the files before and reads {percent(now.stab_share)} now."
    if now.stab_share < 2 * was.stab_share or now.stab_share < 0.5:
        return Checked(False, f"{said} Look for one that has lost.")
    return Checked(True, f"{said} Rows can lie in one order only: somebody pays for it.")


def pays_back(plan: object, everything: Plan, facts: TableFacts, *, least_win: float, most_bytes: float) -> Checked:
    """A plan that wins most of what rewriting everything wins, for a part of its bytes; both are shares."""
    if (made := _plan(plan, facts)) is None:
        return _no_plan(plan, facts)
    win = made.prediction.file_opens_saved / everything.prediction.file_opens_saved
    cost = made.prediction.bytes_in / everything.prediction.bytes_in
    said = f"The plan wins {percent(win)} of the file opens for {percent(cost)} of the bytes"
    if win < least_win:
        return Checked(False, f"{said}; it should win {percent(least_win)}.")
    if cost > most_bytes:
        return Checked(
            False, f"{said}; it should read at most {percent(most_bytes)}. Most of these files are well-sized, and gain nothing."
        )
    return Checked(True, f"{said}. The rest would buy {percent(max(1 - win, 0))} for {percent(1 - cost)}.")


def left_alone(reason: object, plan: Plan) -> Checked:
    """Why a plan leaves alone what was written a moment ago."""
    if not isinstance(reason, str):
        return Checked(False, "Put the reason that the plan gives into answer: plan.left_alone holds reasons.")
    if reason not in {found.reason for found in plan.left_alone if "written within" in found.reason}:
        return Checked(False, f"{reason!r} is not the reason for the partition that was just written; look at careful.left_alone.")
    return Checked(True, "Its writer may still be at work. A rewrite now would meet it, fail at the commit and have cost all its bytes.")


def writer_fixed(facts: TableFacts) -> Checked:
    """The newest commit is of a writer that leaves one file in each partition."""
    mode = (facts.setting("write.distribution-mode") or "").lower()
    if mode == "none":
        return Checked(False, "The table's write.distribution-mode is still none: run your ALTER TABLE before the batch.")
    newest = facts.history.commits[-1]
    per_partition = (newest.added_data_files or 0) / (newest.changed_partitions or 1)
    if per_partition != 1:
        return Checked(False, f"The newest commit left {per_partition:.1f} files in each partition. Write a batch after the ALTER TABLE.")
    return Checked(
        True,
        f"{count(newest.added_data_files or 0, 'file')} for {count(newest.changed_partitions or 0, 'partition')}: nothing here needs fixing tonight.",
    )


def files_a_day(number: object, interval_minutes: int) -> Checked:
    """Files that a writer leaves in a day if it commits every so many minutes, a file each."""
    if missing := _no_number(number, "answer"):
        return missing
    if number != 24 * 60 // interval_minutes:
        return Checked(False, f"It is not {number:,}. How often does it commit in 24 hours, and how many files does each commit leave?")
    return Checked(True, "No distribution mode helps against that: only a longer interval makes fewer commits.")


def _no_number(number: object, name: str) -> Checked | None:
    if isinstance(number, bool) or not isinstance(number, Real):
        return Checked(False, f"Write a number into {name} in the cell above, and run both cells again.")
    return Checked(False, "It is 0 or more.") if float(number) < 0 else None


def _plan(plan: Any, facts: TableFacts) -> Plan | None:
    return plan if isinstance(plan, Plan) and plan.table == facts.table else None


def _no_plan(plan: object, facts: TableFacts) -> Checked:
    if isinstance(plan, Plan):
        return Checked(False, f"That is a plan for {plan.name}; make one for {facts.name}.")
    return Checked(False, "Make a plan with lake.plan(facts, findings, …) in the cell above, and run both cells again.")


# --- Begin a lesson: its tables as they were built, and a ledger that is the lab's own


def begin(*tables: str) -> Lake:
    """Connect to the embedded lake and put the lab tables of a lesson back as they were built.

    ``tables`` are names without the namespace. A table that is not there yet is built, which takes a
    minute the first time. Runs are recorded in a ledger of the lab, started again, so that practice neither
    teaches the predictions of real runs nor is resumed by one; ``ICEKIT_LEDGER`` keeps another.
    Raises the errors of :func:`icekit.lab.build` and :func:`icekit.lab.registry`.
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
