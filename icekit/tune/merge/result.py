"""What the review of a MERGE came to, as text, HTML and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from icekit.answer import html
from icekit.answer.lines import aligned
from icekit.saving import slug, versions, write_json
from icekit.secrets import mask
from icekit.sql import Identifier, display_name
from icekit.tune.merge.advice import opened
from icekit.tune.merge.model import EnginePlan, Line, PartitionedJoin, Rewrite, Scan, Trial
from icekit.tune.statement import Statement
from icekit.units import size


@dataclass(frozen=True, slots=True)
class Review:
    """A MERGE explained, with what would make it read and shuffle less; nothing has been run on the table.

    ``total`` is a scan of the whole target, ``unstable`` what makes the statement write other values each time. ``trials`` are there if it was asked for them;
    ``stopped`` says why they are not all there.
    """

    statement: Statement
    table: Identifier
    total: Scan
    plan: EnginePlan
    rewrite: Rewrite | None
    partitioned_join: PartitionedJoin
    lines: tuple[Line, ...]
    unstable: str | None = None
    trials: tuple[Trial, ...] = ()
    stopped: str | None = None

    @property
    def guard(self) -> str:
        """The query that must give 0 just before the narrower statement is run, or a sentence that there is none."""
        return self.rewrite.guard if self.rewrite is not None else "No narrower statement is offered, so there is nothing to guard."

    @property
    def is_proved(self) -> bool:
        """Tell whether no trial was stopped or left other rows; also true where none was asked for."""
        return self.stopped is None and all(trial.is_same for trial in self.trials)

    @property
    def failure(self) -> str | None:
        """Why a run that asked this has failed, or None."""
        return None if self.is_proved else "The statement and what is offered could not be shown to leave the same rows."

    def write_into(self, folder: Path) -> Path:
        """Write the review as JSON into a folder, under the name of the table."""
        return write_json(folder / f"merge-{slug(display_name(self.table))}.json", document(self))

    def __repr__(self) -> str:
        return review_text(self)

    def _repr_html_(self) -> str:
        return review_html(self)


def review_text(review: Review) -> str:
    """A review as lines for a terminal."""
    said = [f"MERGE into {display_name(review.table[1:])} ({review.plan.mode}): {summary(review)}"]
    for line in review.lines:
        said += ["", f"{line.about}", f"    {line.said}", *(f"    {row}" for sql in line.sql for row in sql.splitlines())]
    for trial in review.trials:
        said += ["", *trial_lines(trial)]
    said += ["", f"The trial is not whole: {review.stopped}."] if review.stopped else []
    return mask("\n".join(said))


def summary(review: Review) -> str:
    """A review in a sentence."""
    said = f"it opens {opened(review.plan.scan, review.total)}"
    if review.rewrite is not None:
        said += f"; {opened(review.rewrite.plan.scan, review.total)} with what its source holds written into ON"
    if review.partitioned_join.settings:
        said += "; a storage-partitioned join would spare the shuffle of the target"
    return said + "."


def trial_lines(trial: Trial) -> list[str]:
    """A trial as lines: what was compared, and the figures of both."""
    head, rows = trial_table(trial)
    return [f"{trial.what}, tried on clones: {verdict(trial)}", *(f"    {row}" for row in aligned((head, *rows)))]


def verdict(trial: Trial) -> str:
    """What a trial shows of the rows."""
    if trial.is_same:
        return "both left the same rows"
    if trial.unstable:
        return f"rows cannot be compared, since the statement writes {trial.unstable}, which differs from run to run"
    return "the two left DIFFERENT rows; do not use it, and report it"


def trial_table(trial: Trial) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a trial."""
    rows: list[tuple[str, ...]] = [
        (name, f"{run.files:,}", size(run.size_in_bytes), size(run.shuffle_bytes), f"{run.seconds:.1f} s", run.rows)
        for name, run in (("as it is", trial.before), (trial.what, trial.after))
    ]
    return ("on a clone", "files read", "bytes of them", "shuffled", "time", "rows afterwards"), rows


def review_html(review: Review) -> str:
    """A review as cards, with the SQL ready to copy."""
    parts = [f"<p>{html.prose(f'MERGE into {display_name(review.table[1:])} ({review.plan.mode}): {summary(review)}')}</p>"]
    parts += [_card(line) for line in review.lines]
    parts.append(f"<details><summary>Spark's plan</summary><pre>{html.text(review.plan.tree)}</pre></details>")
    parts += [_trial(trial) for trial in review.trials]
    parts += [f"<p>The trial is not whole: {html.prose(review.stopped)}.</p>"] if review.stopped else []
    return mask(html.framed(*parts))


def _card(line: Line) -> str:
    heading = f'<p class="title"><small>{html.text(line.about)}</small></p>'
    return f'<div class="finding info">{heading}<p>{html.prose(line.said)}</p>{html.statements(line.sql)}</div>'


def _trial(trial: Trial) -> str:
    head, rows = trial_table(trial)
    kind, mark = (
        ("fine", "✔ same rows") if trial.is_same else ("warning", "▲ not compared") if trial.unstable else ("critical", "✖ different rows")
    )
    said = f'<p class="title"><span class="badge">{mark}</span> <small>{html.text(trial.what)}, tried on clones: {html.prose(verdict(trial))}</small></p>'
    return f'<div class="finding {kind}">{said}{html.table(head, rows, [0 < i < 5 for i in range(len(head))])}</div>'


#: Raised by one when a field changes its meaning or goes; added fields do not count.
SCHEMA_VERSION = 1


def document(review: Review) -> dict[str, Any]:
    """A review as JSON: figures in bytes and seconds, the SQL as it is to be run."""
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "table": display_name(review.table),
        "branch": review.statement.branch,
        "statement": review.statement.sql,
        "versions": versions(),
        "clauses": list(review.statement.clauses),
        "total": asdict(review.total),
        "plan": _plan(review.plan),
        "rewrite": None,
        "storage_partitioned_join": {
            "is_used": review.partitioned_join.is_used,
            "is_possible": review.partitioned_join.is_possible,
            "settings": dict(review.partitioned_join.settings),
            "lacks": list(review.partitioned_join.lacks),
            "layout": list(review.partitioned_join.layout),
        },
        "lines": [asdict(line) for line in review.lines],
        "stopped": review.stopped,
        "trials": [{**asdict(trial), "is_same": trial.is_same} for trial in review.trials],
    }
    if review.rewrite is not None:
        found["rewrite"] = {
            "sql": review.rewrite.sql,
            "predicate": review.rewrite.predicate,
            "guard": review.rewrite.guard,
            "added": [asdict(added) for added in review.rewrite.added],
            "plan": _plan(review.rewrite.plan),
        }
    return found


def _plan(plan: EnginePlan) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(plan).items() if k != "tree"}, "is_target_shuffled": plan.is_target_shuffled}
