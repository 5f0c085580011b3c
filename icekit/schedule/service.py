"""Run a policy as a scheduler does: under its lock, then tell the receivers, then write the files, then fail."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

from icekit.schedule import document
from icekit.schedule.act import Say
from icekit.schedule.alerts import messages
from icekit.schedule.lock import one_at_a_time
from icekit.schedule.model import Policy
from icekit.schedule.monitoring import of_pass, writers
from icekit.schedule.one_pass import Clock, run_pass
from icekit.schedule.result import Pass
from icekit.schedule.state import State, state_path
from icekit.schedule.telling import send, urls


def run_policy(
    policy: Policy,
    *,
    dry_run: bool = False,
    junit: Path | None = None,
    prometheus: Path | None = None,
    clock: Clock | None = None,
    say: Say = print,
) -> Pass:
    """One pass of a policy, whole: every receiver is told and every file written before its exit status counts.

    Raises :class:`~icekit.schedule.lock.AnotherPass` while another pass of it runs, and the errors of
    :mod:`icekit.errors` for what concerns all tables. A dry run takes no lock and writes and tells nothing.
    """
    path = state_path(policy)
    state = State(path)
    if dry_run:
        made = run_pass(policy, state, dry_run=True, clock=clock, say=say)
        say("\n" + document.text(made))
        return made
    to = urls(policy)
    with one_at_a_time(path):
        made = run_pass(policy, state, clock=clock, say=say)
        made = tell(made, policy, state, to)
        written = [*document.write(made, policy.output)]
        watched = of_pass(made)
        written += [
            write(watched, path) for write, path in writers(junit or policy.monitoring.junit, prometheus or policy.monitoring.prometheus)
        ]
    say("\n" + document.text(made))
    say("\n".join(f"{path.suffix[1:].upper():<5} {path}" for path in written))
    return made


def tell(made: Pass, policy: Policy, state: State, to: dict[str, str], now: dt.datetime | None = None) -> Pass:
    """Tell every receiver what is new for it; the pass, with who was told and who could not be."""
    now_ms = int((now or dt.datetime.now(dt.UTC)).timestamp() * 1000)
    written = messages(made, policy, {one.name: state.told(one.name) for one in policy.notify}, now_ms)
    answers = send(written, to)
    problems = []
    for message in written:
        problem = answers.get(message.receiver)
        if problem is None:
            # Not before: who was not told is told by the next pass.
            state.tell(message.receiver, dict(message.told))
        else:
            problems.append(f"{message.receiver} could not be told: {problem}")
    told = tuple(message.receiver for message in written if message.title and answers.get(message.receiver) is None)
    return replace(made, told=told, alert_problems=tuple(problems))
