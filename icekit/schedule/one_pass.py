"""One pass of a policy: observe, report, plan, run what is allowed, prove, report again; safe to call every hour."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from icekit.catalog import Lake, connect
from icekit.compact.lineage import head
from icekit.errors import IcekitError
from icekit.saving import write_text
from icekit.schedule.act import Say, Work, act, unfinished
from icekit.schedule.budget import Share, share_out
from icekit.schedule.kept import health_in, kept, same_report
from icekit.schedule.model import Policy, Rule
from icekit.schedule.permitted import permit, quiet
from icekit.schedule.reporting import reported
from icekit.schedule.result import Health, Pass, Status, Step, TableResult, gravest, ranked
from icekit.schedule.rules import assign
from icekit.schedule.state import State
from icekit.schedule.study import Studied, study
from icekit.schedule.triggers import Seen, due
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name
from icekit.units import count

Clock = Callable[[], dt.datetime]


@dataclass
class _Table:
    """A table on its way through a pass."""

    name: Identifier
    rule: Rule
    status: Status = "reported"
    why: str = ""
    steps: list[Step] = field(default_factory=list)
    studied: Studied = field(default_factory=lambda: Studied({}))
    health: Health | None = None
    before: Health | None = None
    start: Seen | None = None
    seconds: float = 0.0
    is_over: bool = False

    @property
    def written(self) -> str:
        return display_name(self.name)

    def end(self, status: Status, why: str) -> None:
        self.status, self.why, self.is_over = status, why, True


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
        tables: list[_Table] = []
        problems: tuple[str, ...] = ()
        try:
            assigned = assign(self.policy, self.lake.tables.names())
            problems = assigned.unmatched
            tables = [_Table(name, rule) for name, rule in assigned.tables]
            self.say(
                f"{count(len(tables), 'table')} of catalog {self.lake.name} by policy {self.policy.name}{', a dry run' if self.dry_run else ''}"
            )
            self._through(tables)
        except KeyboardInterrupt:
            interrupted = True
            for one in tables:
                if not one.is_over:
                    one.end("stopped", "the pass was stopped by hand; the next one goes on")
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

    def _through(self, tables: list[_Table]) -> None:
        for one in tables:
            with self._on(one):
                self._look(one)
        self._report([one for one in tables if not one.is_over], after=False)
        for one in tables:
            if not one.is_over:
                with self._on(one):
                    one.studied = study(self.lake, one.name, one.rule, ledger=self.policy.ledger, now=self.clock())
        shares = self._shares([one for one in tables if not one.is_over])
        # The tables that win most come first: what ends a pass early should cut the least.
        queue = sorted((one for one in tables if not one.is_over), key=lambda one: -sum(o.file_opens_saved for o in one.studied.offers))
        changed = []
        for one in queue:
            with self._on(one):
                self._work(one, shares.get(one.written, Share()))
            if any(step.run_id for step in one.steps) and not self.dry_run:
                changed.append(one)
            else:
                self._keep(one)
        self._report(changed, after=True)
        for one in changed:
            self._keep(one)

    def _look(self, one: _Table) -> None:
        """Whether the table is looked at in this pass; an unfinished run goes on first."""
        if silent := quiet(one.rule, self.policy.timezone, self.clock()):
            one.end("quiet", silent)
            return
        begun = self.state.begun_ms(one.written)
        if begun is not None and not self.dry_run:
            step = unfinished(self._work_on(one), begun)
            if step is not None:
                one.steps.append(step)
                self.say(f"{one.written}: {step.action} of an earlier pass: {step.said}")
            if step is None or step.status in {"done", "failed"}:
                self.state.ended(one.written)
        at = head(self.lake, one.name)
        one.start = Seen(at.metadata.get("table-uuid"), at.snapshot_id, int(self.clock().timestamp() * 1000))
        found = due(at.metadata, self.state.seen(one.written), one.rule.when, one.start.passed_ms, one.rule.limits.min_file_size_ratio)
        if found.is_due or begun is not None:
            one.why = found.why if found.is_due else "a run of an earlier pass was unfinished"
            one.health = same_report(self.state.last(one.written), one.rule, at.snapshot_id)
            self.say(f"{one.written}: due, {one.why}")
        else:
            one.end("not due", found.why)

    def _shares(self, tables: list[_Table]) -> dict[str, Share]:
        """What each table gets of the pass's budget; conversions come first, as nothing else helps their tables."""
        budget = self.policy.budget
        left = budget.bytes
        for one in tables:
            if left is not None and one.rule.convert and one.rule.convert.execute and one.studied.convert_bytes:
                if one.studied.convert_bytes > left:
                    one.steps.append(Step("convert", "waits", "the pass's budget is too small for it beside the others", files_in=0))
                    one.studied = replace(one.studied, plans={k: v for k, v in one.studied.plans.items() if k != "convert"})
                else:
                    left -= one.studied.convert_bytes
        wanted = {one.written: one.studied.offers for one in tables if one.rule.compact and one.rule.compact.execute}
        return share_out(wanted, replace(budget, bytes=left))

    def _work(self, one: _Table, share: Share) -> None:
        if any(step.status in {"waits", "stopped", "busy"} and step.run_id for step in one.steps):
            return
        if not self.dry_run and any(section.execute for section in one.rule.actions.values()) and one.studied.plans:
            self.state.begin(one.written, int(self.clock().timestamp() * 1000))
        steps = act(self._work_on(one), one.studied, share, dry_run=self.dry_run)
        one.steps += steps
        for step in steps:
            self.say(f"{one.written}: {step.action} {step.status}: {step.said}")
            if self.dry_run:
                self.say(f"{step.plan}\n")
        if not self.dry_run and all(step.status != "stopped" for step in steps):
            self.state.ended(one.written)

    def _work_on(self, one: _Table) -> Work:
        return Work(
            self.lake,
            one.name,
            one.rule,
            self.policy.ledger,
            lambda: permit(one.rule, self.policy.timezone, self.clock(), self.deadline),
            self.clock,
            self.say,
        )

    def _report(self, tables: list[_Table], *, after: bool) -> None:
        if self.dry_run:
            return
        for rule in self.policy.tables:
            # What a table that waits was reported on before, and nothing has come to it since, stays.
            mine = [one for one in tables if one.rule.name == rule.name and (after or one.health is None)]
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
                    one.before, one.health = one.health, health
                else:
                    one.health = health

    @contextlib.contextmanager
    def _on(self, one: _Table) -> Iterator[None]:
        """Work on one table; whatever goes wrong becomes its result."""
        began = time.monotonic()
        try:
            yield
        except IcekitError as problem:
            one.end("misconfigured", scrub(str(problem)))
        except Exception as problem:
            said = scrub(f"{type(problem).__name__}: {problem}").splitlines()[0][:300]
            if not self.dry_run:
                trace = write_text(self.policy.output / f"{one.written}.error.txt", traceback.format_exc())
                said += f"; the whole of it is in {trace}"
            one.end("crashed", said)
        finally:
            one.seconds += time.monotonic() - began
            if one.is_over and one.status in {"misconfigured", "crashed"}:
                self.say(f"{one.written}: {one.status}: {one.why}")

    def _result(self, one: _Table) -> TableResult:
        health = one.health or health_in(self.state.last(one.written))
        status = one.status if one.is_over else gravest(step.status for step in one.steps)
        return TableResult(one.written, one.rule.name, status, one.why, one.rule.fail_on, health, one.before, tuple(one.steps), one.seconds)

    def _keep(self, one: _Table) -> None:
        """Remember a table; it counts as passed only when nothing that was due is left."""
        if self.dry_run:
            return
        result = self._result(one)
        passed = result.status in {"done", "reported", "planned"}
        snapshot_id = one.start.snapshot_id if one.start and not any(step.run_id for step in one.steps) else None
        self.state.keep(one.written, kept(result, one.rule, snapshot_id), one.start if passed else None)
