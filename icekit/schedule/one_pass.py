"""One pass of a policy: observe, report, plan, run what is allowed, prove, report again; safe to call every hour."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from icekit.catalog import Lake, connect
from icekit.compact.lineage import head
from icekit.errors import IcekitError
from icekit.saving import slug, write_text
from icekit.schedule.act import Say, Work, act, unfinished
from icekit.schedule.budget import Share, less, share_out
from icekit.schedule.kept import health_in, kept, same_report
from icekit.schedule.model import Policy
from icekit.schedule.permitted import Permit, permit, quiet
from icekit.schedule.reporting import reported
from icekit.schedule.result import Pass, Step, TableResult, gravest, ranked
from icekit.schedule.rules import assign
from icekit.schedule.state import State
from icekit.schedule.study import study
from icekit.schedule.triggers import Seen, due
from icekit.schedule.trouble import Trouble, mark
from icekit.schedule.under_way import Table
from icekit.secrets import scrub
from icekit.units import count

Clock = Callable[[], dt.datetime]


def run_pass(policy: Policy, state: State, *, dry_run: bool = False, clock: Clock | None = None, say: Say = print) -> Pass:
    """Go through a policy once; returns what was done.

    A table that fails does not stop the others. Nothing is written in a dry run. The caller holds the lock, tells
    the receivers and writes the files. Raises :class:`~icekit.errors.IcekitError` for what concerns all tables
    (the catalog, the record of passes).
    """
    return _OnePass(policy, state, dry_run, clock or (lambda: dt.datetime.now(dt.UTC)), say).go()


class _OnePass:
    def __init__(self, policy: Policy, state: State, dry_run: bool, clock: Clock, say: Say) -> None:
        self.policy, self.state, self.dry_run, self.clock, self.say = policy, state, dry_run, clock, say
        self.started = clock()
        seconds = policy.budget.seconds
        self.deadline = None if seconds is None else self.started + dt.timedelta(seconds=seconds)
        self.lake: Lake = connect(policy.catalog or None)

    def go(self) -> Pass:
        began = time.monotonic()
        interrupted = False
        tables: list[Table] = []
        problems: tuple[str, ...] = ()
        try:
            assigned = assign(self.policy, self.lake.tables.names())
            problems = assigned.unmatched
            for problem in problems:
                self.say(f"policy: {problem}")
            tables = [Table(name, rule) for name, rule in assigned.tables]
            self.say(
                f"{count(len(tables), 'table')} of catalog {self.lake.name} by policy {self.policy.name}{', a dry run' if self.dry_run else ''}"
            )
            self._through(tables)
        except KeyboardInterrupt:
            interrupted = True
            _stop(tables)
        finally:
            self.lake.close()
        results = ranked([self._result(one) for one in tables])
        return Pass(
            self.policy.name,
            self.lake.name,
            self.dry_run,
            self.started,
            time.monotonic() - began,
            tuple(results),
            problems,
            output=None if self.dry_run else self.policy.output,
            interrupted=interrupted,
        )

    def _through(self, tables: list[Table]) -> None:
        for one in tables:
            with self._on(one):
                self._look(one)
        self._report([one for one in tables if not one.is_over], after=False)
        for one in tables:
            if not one.is_over and not self._hushed(one) and not one.is_at_rest:
                with self._on(one):
                    one.studied = study(self.lake, one.name, one.rule, ledger=self.policy.ledger, now=self.clock())
        shares = self._shares([one for one in tables if not one.is_over])
        # The tables that win most come first: what ends a pass early should cut the least.
        queue = sorted((one for one in tables if not one.is_over), key=lambda one: -sum(o.file_opens_saved for o in one.studied.offers))
        self._work_through(queue, shares)

    def _work_through(self, queue: list[Table], shares: Mapping[str, Share]) -> None:
        changed = []
        for one in queue:
            with self._on(one):
                self._work(one, shares.get(one.written, Share()))
            one.is_worked = True
            if not one.is_over and not self.dry_run and any(step.run_id for step in one.steps):
                one.is_unseen = True
                changed.append(one)
            # At once, so that a kill loses nothing of it; what was changed is kept again with its new report.
            with self._on(one):
                self._keep(one)
        self._report(changed, after=True)

    def _hushed(self, one: Table) -> bool:
        """Whether its quiet hours have begun since the pass looked at it."""
        silent = quiet(one.rule, self.policy.timezone, self.clock())
        if silent is None:
            return False
        if one.steps:
            # What was resumed has its result; the rest waits.
            if not one.is_unseen:
                one.steps.append(Step("report", "waits", silent))
            one.is_at_rest, one.is_unseen = True, True
        else:
            one.end("quiet", silent)
        return True

    def _look(self, one: Table) -> None:
        """Whether the table is looked at in this pass; an unfinished run goes on first."""
        if silent := quiet(one.rule, self.policy.timezone, self.clock()):
            one.end("quiet", silent)
            return
        if one.keep_back(self.state.trouble(one.written), self.clock(), self.policy.timezone):
            return
        begun = self.state.begun(one.written)
        if begun is not None and not self.dry_run and not one.is_held:
            step = unfinished(self._work_on(one), begun)
            if step is not None:
                self._note(one, step)
                one.is_at_rest = step.status != "done"
            if step is None or step.status in {"done", "failed"}:
                self.state.ended(one.written)
        at = head(self.lake, one.name)
        one.start = Seen(at.metadata.get("table-uuid"), at.snapshot_id, int(self.clock().timestamp() * 1000))
        found = due(at.metadata, self.state.seen(one.written), one.rule.when, one.start.passed_ms, one.rule.limits.min_file_size_ratio)
        if found.is_due or begun is not None:
            why = found.why if found.is_due else "a run of an earlier pass was unfinished"
            one.why = f"{why}; {one.why}" if one.is_held else why
            one.health = same_report(self.state.last(one.written), one.rule, at.snapshot_id)
            self.say(f"{one.written}: due, {why}")
        elif one.is_held:
            one.end("failed", one.why)
        else:
            one.end("not due", found.why)

    def _shares(self, tables: list[Table]) -> dict[str, Share]:
        """What each table gets of the pass's budget; conversions come first, as nothing else helps their tables."""
        budget = self.policy.budget
        spent = [step for one in tables for step in one.steps if step.run_id]
        left = less(budget, sum(step.bytes_in for step in spent), sum(step.files_in for step in spent))
        if left.bytes is not None or left.files is not None:
            for one in tables:
                one.leave = self._permit(one)
            tables = [one for one in tables if one.leave and one.leave.granted and not one.is_at_rest]
        for one in tables:
            if left.bytes is not None and one.rule.convert and one.rule.convert.execute and one.studied.convert_bytes:
                if one.studied.convert_bytes > left.bytes:
                    one.steps.append(Step("convert", "waits", "the pass's budget is too small for it beside the others", files_in=0))
                    one.studied = replace(one.studied, plans={k: v for k, v in one.studied.plans.items() if k != "convert"})
                else:
                    left = less(left, one.studied.convert_bytes)
        wanted = {one.written: one.studied.offers for one in tables if one.rule.compact and one.rule.compact.execute}
        return share_out(wanted, left)

    def _work(self, one: Table, share: Share) -> None:
        if one.is_at_rest:
            return
        if one.trouble is not None:
            self.say(f"{one.written}: {one.trouble.often()}; it is tried again")
        before = len(one.steps)
        act(self._work_on(one), one.studied, share, dry_run=self.dry_run)
        steps = one.steps[before:]
        if self.dry_run:
            return
        # A claim that was lost leaves a run that may go on.
        if all(step.status not in {"stopped", "busy"} for step in steps):
            self.state.ended(one.written)

    def _note(self, one: Table, step: Step) -> None:
        """Take in a step as it ends, and remember at once what failed."""
        one.steps.append(step)
        self.say(f"{one.written}: {step.action} {step.status}: {step.said}")
        if self.dry_run:
            self.say(f"{step.plan}\n")
        elif step.status == "failed":
            times = one.trouble.times + 1 if one.trouble and one.trouble.action == step.action else 1
            now_ms = int(self.clock().timestamp() * 1000)
            self.state.fail(one.written, Trouble(step.action, step.said, mark(one.rule, step.action), now_ms, times, step.is_unproved))

    def _work_on(self, one: Table) -> Work:
        return Work(
            self.lake,
            one.name,
            one.rule,
            self.policy.ledger,
            lambda: one.leave if one.leave is not None and not one.leave.granted else self._permit(one),
            self.clock,
            self.say,
            lambda begun: self.state.begin(one.written, begun),
            lambda step: self._note(one, step),
        )

    def _permit(self, one: Table) -> Permit:
        return permit(one.rule, self.policy.timezone, self.clock(), self.deadline)

    def _report(self, tables: list[Table], *, after: bool) -> None:
        if self.dry_run:
            return
        for rule in self.policy.tables:
            # What a table that waits was reported on before, and nothing has come to it since, stays.
            mine = [one for one in tables if one.rule.name == rule.name and (after or one.health is None)]
            mine = [one for one in mine if not (self._put_off(one) if after else self._hushed(one))]
            if not mine:
                continue
            try:
                found = reported(self.policy, rule, [one.written for one in mine], after=after, say=self.say)
            except IcekitError as problem:
                for one in mine:
                    one.end("misconfigured", scrub(str(problem)))
                continue
            for one in mine:
                status, health, error = found[one.written]
                if health is None:
                    one.end("misconfigured" if status == "misconfigured" else "crashed", error or "it could not be reported on")
                elif after:
                    one.before, one.health, one.is_unseen = one.health, health, False
                else:
                    one.health = health
                if after:
                    with self._on(one):
                        self._keep(one)

    def _put_off(self, one: Table) -> bool:
        """Whether a table that was changed is not reported on now; the next pass does it then."""
        silent = quiet(one.rule, self.policy.timezone, self.clock())
        if silent is None:
            return False
        one.why += f"; not reported on since, as its {silent}"
        with self._on(one):
            self._keep(one)
        return True

    @contextlib.contextmanager
    def _on(self, one: Table) -> Iterator[None]:
        """Work on one table; whatever goes wrong becomes its result."""
        began = time.monotonic()
        try:
            yield
        except IcekitError as problem:
            one.end("misconfigured", scrub(str(problem)))
        except Exception as problem:
            said = scrub(f"{type(problem).__name__}: {problem}").splitlines()[0][:300]
            if not self.dry_run:
                # A full disk must not end the pass.
                with contextlib.suppress(OSError):
                    trace = write_text(self.policy.output / f"{slug(one.written)}.error.txt", traceback.format_exc())
                    said += f"; the whole of it is in {trace}"
            one.end("crashed", said)
        finally:
            one.seconds += time.monotonic() - began
            if one.is_over and one.status in {"misconfigured", "crashed"}:
                self.say(f"{one.written}: {one.status}: {one.why}")

    def _result(self, one: Table) -> TableResult:
        health = one.health or health_in(self.state.last(one.written))
        status = one.status if one.is_over else gravest(step.status for step in one.steps)
        return TableResult(one.written, one.rule.name, status, one.why, one.rule.fail_on, health, one.before, tuple(one.steps), one.seconds)

    def _keep(self, one: Table) -> None:
        """Remember a table; it counts as passed only when nothing that was due is left."""
        if self.dry_run:
            return
        result = self._result(one)
        passed = not one.is_unseen and (result.status in {"done", "reported", "planned"} or one.is_held)
        is_changed = any(step.run_id for step in one.steps)
        snapshot_id = one.start.snapshot_id if one.start and not is_changed else None
        seen = one.start if passed else None
        if seen is not None and is_changed:
            # A table that is rolled back past what was committed here is at the very snapshot that was seen.
            with contextlib.suppress(IcekitError):
                seen = replace(seen, left_id=head(self.lake, one.name).snapshot_id)
        self.state.keep(one.written, kept(result, one.rule, snapshot_id), seen)
        if passed and one.trouble is not None and not one.is_held:
            self.state.clear(one.written)


def _stop(tables: list[Table]) -> None:
    """Say of the tables that a pass has done nothing on that it was stopped; what it did on the others stays said."""
    for one in tables:
        if not one.is_over and not one.is_worked and not one.steps:
            one.end("stopped", "the pass was stopped by hand; the next one goes on")
