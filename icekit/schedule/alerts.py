"""Decide who is told what: once per change, again after a while, and when it is well again; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from icekit.schedule.model import Policy, Receiver
from icekit.schedule.result import FAILED, Pass, TableResult
from icekit.schedule.trouble import how_to_clear
from icekit.units import count, span

Kind = Literal["unhealthy", "failed", "well", "done"]
_GRAVE: tuple[Kind, ...] = ("failed", "unhealthy")
# Stands for the policy among tables, whose names have a dot.
_POLICY = "policy"


@dataclass(frozen=True, slots=True)
class News:
    """Something to tell of one table: what, where, and what to do next.

    ``mark`` is equal as long as nothing has changed about it: a figure that grows is no news.
    """

    table: str
    kind: Kind
    what: str
    where: str
    following: str
    mark: str

    def __str__(self) -> str:
        return f"{self.table}: {self.what}\n  Report: {self.where}\n  Next: {self.following}"


@dataclass(frozen=True)
class Message:
    """What one receiver is told after a pass, and what is then on record of it."""

    receiver: str
    title: str
    body: str
    is_grave: bool
    told: Mapping[str, dict[str, Any] | None]


def news(made: Pass, policy: Policy) -> list[News]:
    """What there is to tell of a pass; ``well`` is not among it, as it depends on what was told before."""
    found = []
    for one in made.tables:
        where = _where(one, policy)
        if one.status in FAILED:
            said = next((step.said for step in one.steps if step.status == "failed"), one.why)
            following = _mended(one)
            found.append(News(one.table, "failed", f"{one.status}: {said}", where, following, f"{one.status}:{_first(said)}"))
        elif one.is_unhealthy and one.health is not None:
            names = sorted(name for name, severity in one.health.findings if severity != "info")
            planned = next((step for step in one.steps if step.status in {"planned", "waits"}), None)
            following = f"{planned.action}: {planned.said}" if planned else "read the report; each finding has its SQL"
            found.append(
                News(
                    one.table,
                    "unhealthy",
                    f"{one.health.status}: {', '.join(names)}",
                    where,
                    following,
                    f"{one.health.status}:{','.join(names)}",
                )
            )
        if one.status == "done":
            did = "; ".join(f"{step.action}: {step.said}" for step in one.steps if step.status == "done")
            found.append(News(one.table, "done", did, where, "nothing", f"done:{made.started.isoformat()}"))
    if made.failure:
        following = "mend what is named; the next pass tries again"
        found.append(News(_POLICY, "failed", f"the pass itself failed: {made.failure}", policy.name, following, _first(made.failure)))
    elif made.problems:
        # One piece of news, as a receiver's memory holds one mark for each name.
        following = "mend the policy, and check it with `icekit policy`"
        found.append(News(_POLICY, "failed", "\n  ".join(made.problems), policy.name, following, "\n".join(sorted(made.problems))))
    return found


def _mended(one: TableResult) -> str:
    """What to do about a table that failed."""
    if one.status == "crashed":
        return "read the trace beside the reports, and report it if it is a bug"
    if one.status == "timed out":
        return "raise the policy's timeout, or let the table's window be narrower; the next pass tries again"
    if any(step.is_unproved for step in one.steps):
        return f"compare the table with its snapshot of before the run, roll back to that if need be, then {how_to_clear(one.table)}; until then nothing is run on it"
    if one.status == "failed":
        return f"mend what is named; it is tried again after some hours, or by the next pass after {how_to_clear(one.table)}"
    return "mend what is named; the next pass tries again"


def messages(made: Pass, policy: Policy, told: Mapping[str, Mapping[str, Mapping[str, Any]]], now_ms: int) -> list[Message]:
    """A message for each receiver that there is something new for.

    ``told`` is, per receiver and table, what :class:`Message.told` said last. A table that was not looked at
    (``quiet``, ``busy``) is not called well.
    """
    found = news(made, policy)
    written = []
    for receiver in policy.notify:
        before = told.get(receiver.name, {})
        tell = [one for one in found if one.kind in receiver.about and _is_new(one, before.get(one.table), receiver, now_ms)]
        grave = {one.table for one in found if one.kind in _GRAVE}
        well = [] if not _knows(made) else _well(made, before, grave, policy)
        forget: dict[str, dict[str, Any] | None] = {one.table: None for one in well}
        if "well" in receiver.about:
            tell += well
        note: dict[str, dict[str, Any] | None] = {one.table: {"mark": one.mark, "at_ms": now_ms} for one in tell if one.kind in _GRAVE}
        if tell or forget:
            written.append(_message(receiver, tell, made, forget | note))
    return written


def _is_new(one: News, before: Mapping[str, Any] | None, receiver: Receiver, now_ms: int) -> bool:
    if before is None or before["mark"] != one.mark:
        return True
    return receiver.remind is not None and now_ms - before["at_ms"] >= receiver.remind * 1000


def _knows(made: Pass) -> bool:
    return not made.is_dry_run and not made.interrupted and not made.failure


def _well(made: Pass, before: Mapping[str, Any], grave: Iterable[str], policy: Policy) -> list[News]:
    """Tables that a receiver was told ill of, and that are well now."""
    by_name = {one.table: one for one in made.tables}
    found = []
    for table in sorted(set(before) - set(grave)):
        one = by_name.get(table)
        if table == _POLICY:
            found.append(News(table, "well", "well again", policy.name, "nothing", "well"))
        elif one is None:
            found.append(News(table, "well", "no longer a matter of this policy", policy.name, "nothing", "well"))
        elif one.status not in {"quiet", "busy", "stopped"}:
            found.append(
                News(
                    table, "well", f"well again ({one.health.status if one.health else one.status})", _where(one, policy), "nothing", "well"
                )
            )
    return found


def _message(receiver: Receiver, tell: Sequence[News], made: Pass, told: Mapping[str, dict[str, Any] | None]) -> Message:
    kinds = {kind: sum(one.kind == kind for one in tell) for kind in ("failed", "unhealthy", "well", "done")}
    title = f"icekit {made.policy}: {', '.join(f'{n} {kind}' for kind, n in kinds.items() if n)}"
    again = (
        f" Told again after {span(receiver.remind * 1000)} if it stays so."
        if receiver.remind and (kinds["failed"] or kinds["unhealthy"])
        else ""
    )
    body = "\n".join(map(str, tell))
    tail = f"\n{count(len(made.tables), 'table')} of catalog {made.catalog}: {made.counted()}.{again}"
    return Message(receiver.name, title if tell else "", body + tail, bool(kinds["failed"] or kinds["unhealthy"]), told)


def _where(one: TableResult, policy: Policy) -> str:
    page = one.health.page if one.health else ""
    if not page:
        return str(policy.output)
    return f"{policy.url.rstrip('/')}/{page}" if policy.url else str(policy.output / page)


def _first(said: str) -> str:
    """An error without its figures, which change from try to try."""
    return "".join(c for c in said.split("\n", 1)[0] if not c.isdigit())[:200]
