"""A review of a MERGE as text and as HTML; no pandas."""

from __future__ import annotations

from icekit.secrets import mask
from icekit.show import html
from icekit.show.lines import aligned
from icekit.sql import display_name
from icekit.tune.merge.advice import opened
from icekit.tune.merge.model import Line, Review, Trial
from icekit.units import size


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
