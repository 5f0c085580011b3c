"""Run a policy as a scheduler does: under its lock, then tell the receivers, then write the files, then fail."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import replace
from pathlib import Path

from icekit.catalog import EMBEDDED
from icekit.ending import ended_like_interrupted
from icekit.engine.boundary import outside
from icekit.errors import EXIT_CRASHED, EXIT_MISCONFIGURED, LedgerUnusable, first_line
from icekit.schedule import document
from icekit.schedule.act import Say
from icekit.schedule.alerts import messages
from icekit.schedule.lock import LONGEST, one_at_a_time
from icekit.schedule.model import Policy
from icekit.schedule.monitoring import Writers, of_pass, writers
from icekit.schedule.one_pass import Clock, run_pass
from icekit.schedule.places import check_places
from icekit.schedule.result import Pass
from icekit.schedule.state import State, state_path
from icekit.schedule.telling import check_receivers, send, urls


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
        for unchecked in check_receivers(policy):
            say(unchecked)
        check_places(policy)
        made = run_pass(policy, state, dry_run=True, clock=clock, say=say)
        say("\n" + document.text(made))
        return made
    to = urls(policy)
    monitors = writers(junit or policy.monitoring.junit, prometheus or policy.monitoring.prometheus)
    # A pass may end somewhat after its time, as what is committed is still proved.
    with one_at_a_time(path, max(LONGEST, 2 * (policy.budget.seconds or 0.0))), ended_like_interrupted() as ending:
        try:
            check_places(policy)
            # Before the pass adds to it: it is told beside what the pass itself does.
            lately = state.lately()
            made = replace(run_pass(policy, state, clock=clock, say=say), lately=lately)
            # What was done is told and written whatever is asked from here on; it takes seconds.
            ending.hear()
        except Exception as problem:
            # Whoever watches is told before the scheduler is; what cannot be told or written is no more than this.
            lost = failed(policy, problem, clock)
            with contextlib.suppress(Exception):
                lost = tell(lost, policy, state, to)
            with contextlib.suppress(Exception):
                _write(lost, policy, monitors)
            raise
        made = tell(made, policy, state, to)
        written = _write(made, policy, monitors)
    say("\n" + document.text(made))
    say("\n".join(f"{path.suffix[1:].upper():<5} {path}" for path in written))
    return made


def failed(policy: Policy, problem: Exception, clock: Clock | None = None) -> Pass:
    """A pass that came to no table: the catalog, the record of passes or icekit itself failed."""
    status, said = EXIT_CRASHED, f"{type(problem).__name__}: {first_line(problem)}"
    if (known := outside(problem)) is not None:
        status, said = known.exit_status or EXIT_MISCONFIGURED, str(known)
    now = clock() if clock else dt.datetime.now(dt.UTC)
    return Pass(policy.name, policy.catalog or EMBEDDED, False, now, 0.0, (), output=policy.output, failure=said, failure_status=status)


def _write(made: Pass, policy: Policy, monitors: Writers) -> list[Path]:
    written = [*document.write(made, policy.output)]
    watched = of_pass(made)
    return written + [write(watched, path) for write, path in monitors]


def tell(made: Pass, policy: Policy, state: State, to: dict[str, str], now: dt.datetime | None = None) -> Pass:
    """Tell every receiver what is new for it; the pass, with who was told and who could not be."""
    now_ms = int((now or dt.datetime.now(dt.UTC)).timestamp() * 1000)
    try:
        before = {one.name: state.told(one.name) for one in policy.notify}
    except LedgerUnusable:
        if not made.failure:
            raise
        before = {}  # it is what the message is about
    written = messages(made, policy, before, now_ms)
    answers = send(written, to)
    problems = []
    for message in written:
        problem = answers.get(message.receiver)
        if problem is None:
            # Not before: who was not told is told by the next pass.
            with contextlib.suppress(LedgerUnusable) if made.failure else contextlib.nullcontext():
                state.tell(message.receiver, dict(message.told))
        else:
            problems.append(f"{message.receiver} could not be told: {problem}")
    told = tuple(message.receiver for message in written if message.title and answers.get(message.receiver) is None)
    return replace(made, told=told, alert_problems=tuple(problems))
