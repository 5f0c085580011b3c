"""Plans and outcomes as text and as HTML: what will run, what it will come to, what it came to; no pandas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from icekit.compact.model import EQUALITY_DELETE, Action, Plan, Prediction
from icekit.compact.outcome import ActionOutcome, Outcome
from icekit.secrets import mask
from icekit.show import html
from icekit.show.lines import aligned
from icekit.units import count, size, span

NOTHING = "Nothing worth doing: no action would pay back at this policy."

_SOURCES = {
    "planner": " (asked of the engine's planner)",
    "facts": " (estimated from facts)",
    "trial": " (tried on a clone)",
    "trial of a sample": " (a sample was tried on a clone)",
}


def plan_text(plan: Plan) -> str:
    """A plan as lines for a terminal: each action with its reason, prediction and SQL."""
    summary = f"{count(len(plan.actions), 'action')}{_in_all(plan, '; ')}" if plan.actions else _nothing(plan)
    lines = [f"{plan.name}: {summary}"]
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
        f"left alone: {count(a.partition_count, 'partition')}, {a.reason}" + (f" ({', '.join(a.examples)})" if a.examples else "")
        for a in plan.left_alone
    ]
    return mask("\n".join([*lines, *plan.notes]))


def _nothing(plan: Plan) -> str:
    return NOTHING if plan.command != "convert" else "No equality deletes to convert."


def plan_html(plan: Plan) -> str:
    """A plan as cards, one an action, with the SQL ready to copy."""
    if not plan.actions:
        parts = [f'<div class="finding fine"><span class="badge">✔ fine</span> {html.text(_nothing(plan))}</div>']
    else:
        summary = f"{count(len(plan.actions), 'action')}{_in_all(plan, ': ')}."
        parts = [f"<p>{html.prose(summary)}</p>", *map(_card, plan.actions)]
    if plan.parallelism:
        said = [(e.name, f"<code>{html.text(e.value)}</code> {html.prose(e.why)}") for e in plan.parallelism]
        parts.append(f"<details><summary>How it fits the cluster</summary>{html.definitions(said)}</details>")
    if plan.rehearsed:
        parts.append(
            f'<div class="finding fine"><span class="badge">✔ tried on a zero-copy clone</span> {html.prose(plan.rehearsed)}</div>'
        )
    left = [
        (count(a.partition_count, "partition"), f"{html.prose(a.reason)} {_names(a.examples, a.partition_count)}") for a in plan.left_alone
    ]
    if left:
        parts.append(f"<p>Left alone:</p>{html.definitions(left)}")
    parts += [f"<p>{html.prose(note)}</p>" for note in plan.notes]
    return mask(html.framed(*parts))


def outcome_text(outcome: Outcome) -> str:
    """An outcome as lines for a terminal: predicted next to actual, then the proof."""
    if outcome.is_dry_run:
        said = "nothing has run; run it with execute=True (or --execute)" if outcome.actions else "nothing to run"
        return f"{plan_text(outcome.plan)}\n\nA dry run: {said}."
    lines = [f"{outcome.plan.name}: {outcome.status} in {span(outcome.seconds * 1000)} (run {outcome.run_id})"]
    head, rows = compared(outcome)
    lines += aligned((head, *rows), left=(0, 1))
    lines += [f"{a.action.action_id} {a.status}: {a.error}" for a in outcome.actions if a.error]
    if outcome.proof is not None:
        lines += ["", repr(outcome.proof)]
    lines += _afterwards(outcome)
    return mask("\n".join(lines))


def outcome_html(outcome: Outcome) -> str:
    """An outcome as a table of predicted next to actual, with the proof under it."""
    if outcome.is_dry_run:
        said = "nothing has run. Set <code>execute</code> to run the plan above." if outcome.actions else "nothing to run."
        return html.framed(f"<p>A dry run: {said}</p>")
    kind = "fine" if outcome.exit_status == 0 else "critical" if outcome.status in {"failed", "not proved"} else "warning"
    mark = {"fine": "✔", "critical": "✖", "warning": "▲"}[kind]
    head, rows = compared(outcome)
    parts = [
        f'<div class="finding {kind}"><p class="title"><span class="badge">{mark} {html.text(outcome.status)}</span> {html.text(outcome.plan.name)} '
        f"<small>run {html.text(outcome.run_id or '')}, {html.text(span(outcome.seconds * 1000))}</small></p>",
        html.table(head, rows, [i > 1 for i in range(len(head))]),
    ]
    parts += [
        f"<p><code>{html.text(a.action.action_id)}</code> {html.text(a.status)}: {html.prose(a.error)}</p>"
        for a in outcome.actions
        if a.error
    ]
    if outcome.proof is not None:
        parts += [f"<p>{html.prose(line)}</p>" for line in repr(outcome.proof).split("\n")]
    parts += [f"<p>{html.prose(line)}</p>" for line in _afterwards(outcome)]
    return mask(html.framed(*parts, "</div>"))


def compared(outcome: Outcome) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of predicted next to actual, an action a row and their sum."""
    head = (
        "action",
        "status",
        "files in",
        "files out",
        "predicted",
        "bytes in",
        "bytes out",
        "predicted",
        "deletes removed",
        "predicted",
        "seconds",
        "predicted",
    )
    # A part of an action that was split has no prediction of its own.
    rows = [_row(o.action.action_id, o.status, o, o.action.prediction if "." not in o.action.action_id else None) for o in outcome.actions]
    if len(rows) > 1 and all(o.action.prediction.unit == "file" for o in outcome.actions):
        total = ActionOutcome(outcome.actions[0].action, "done", actual=outcome.actual, seconds=sum(o.seconds for o in outcome.actions))
        rows.append(_row("all", "", total, outcome.plan.prediction))
    return head, rows


def predicted(p: Prediction) -> str:
    """A prediction as a sentence."""
    if p.unit in {"snapshot", "orphan"}:
        return f"{count(p.files_in, p.unit)} before, {p.files_out:,} after"
    if p.unit == EQUALITY_DELETE:
        long = "" if p.seconds is None else f"; about {span(max(p.seconds, 1.0) * 1000)}"
        return f"{count(p.files_in, p.unit)} go; at most {count(p.files_out, p.unit_out)} come, one for a data file; {size(p.bytes_in)} of files are looked into{long}"
    if p.unit != "file":
        sure = {"planner": " (asked of the engine's planner)", "facts": " (estimated from facts)"}.get(p.source, "")
        return f"{count(p.files_in, p.unit)} of {size(p.bytes_in)} become {p.files_out:,}{sure}"
    said = f"{count(p.files_in, 'file')} of {size(p.bytes_in)} become {p.files_out:,} of {size(p.bytes_out)}"
    if p.delete_files_removed:
        said += f", {count(p.delete_files_removed, 'delete file')} go"
    if p.shuffle_bytes:
        said += f", {size(p.shuffle_bytes)} shuffled"
    said += f"; a full scan opens {p.file_opens_saved:,} files fewer"
    said += "; no past run tells how long" if p.seconds is None else f"; about {span(max(p.seconds, 1.0) * 1000)}"
    return said + _SOURCES.get(p.source, "")


def _row(name: str, status: str, o: ActionOutcome, p: Prediction | None) -> tuple[str, ...]:
    a = o.actual
    if o.action.prediction.unit != "file":
        return _counted(name, status, o)
    return (
        name,
        status,
        f"{a.files_in:,}",
        f"{a.files_out:,}",
        f"{p.files_out:,}" if p else "",
        size(a.bytes_in),
        size(a.bytes_out),
        size(p.bytes_out) if p else "",
        f"{a.delete_files_removed:,}",
        f"{p.delete_files_removed:,}" if p else "",
        f"{o.seconds:.1f}",
        f"{p.seconds:.1f}" if p and p.seconds else "",
    )


def _counted(name: str, status: str, o: ActionOutcome) -> tuple[str, ...]:
    """A row of maintenance: what it counts in place of files."""
    p, a = o.action.prediction, o.actual
    # What an action did not come to count is not 0.
    found = (count(a.items_before, p.unit), f"{a.items_after:,}") if a.any else ("", "")
    if p.unit == EQUALITY_DELETE:
        found = (count(a.items_before, p.unit), count(a.items_after, p.unit_out)) if a.any else ("", "")
        long = f"{p.seconds:.1f}" if p.seconds else ""
        gone = (f"{a.delete_files_removed:,}", f"{p.delete_files_removed:,}")
        return (name, status, *found, f"{p.files_out:,}", size(a.bytes_in), size(a.bytes_out), "", *gone, f"{o.seconds:.1f}", long)
    return (name, status, *found, f"{p.files_out:,}", "", "", "", "", "", f"{o.seconds:.1f}", "")


def _in_all(plan: Plan, mark: str) -> str:
    """The sum of what can be summed; actions of maintenance count different things."""
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


def _afterwards(outcome: Outcome) -> Iterable[str]:
    if outcome.leftovers:
        yield f"At least {count(len(outcome.leftovers), 'file')} written since the run began are in no snapshot, for example {outcome.leftovers[0]}: of failed attempts, of a writer that has yet to commit, or of another table that shares the location. This would remove what is left of them: {outcome.clean_up}"
    yield from outcome.notes
    if outcome.then is not None:
        yield from ("", *repr(outcome.then).split("\n"))
    if outcome.status == "stopped":
        yield f"Something is left to do: {outcome.plan.resume_command} (with the same --ledger, if one was given)"
