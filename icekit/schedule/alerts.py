"""Decide whom to notify about a pass, once per change, and send the messages; write JUnit XML.

A receiver that fails does not affect the others.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from icekit import secrets
from icekit.errors import EXIT_CRASHED, ParameterError, require
from icekit.saving import write_text
from icekit.schedule.policy import Receiver, SchedulePolicy
from icekit.schedule.result import FAILED, Pass, Status, TableHealth, TableResult, health_of, unread
from icekit.schedule.state import how_to_clear
from icekit.secrets import mask, scrub
from icekit.terminal import harmless
from icekit.units import count, span

if TYPE_CHECKING:
    from icekit.report import ReportRun

Kind = Literal["unhealthy", "failed", "resolved", "done"]
_GRAVE: tuple[Kind, ...] = ("failed", "unhealthy")
# Stands for the policy in lists of tables, whose names have a dot.
_POLICY = "policy"


@dataclass(frozen=True, slots=True)
class News:
    """A piece of news about one table: what, where, and what to do next.

    ``mark`` stays equal as long as nothing changes: a growing figure is no news.
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
    """The message for one receiver after a pass, and the record of it."""

    receiver: str
    title: str
    body: str
    told: Mapping[str, dict[str, Any] | None]


def news(made: Pass, policy: SchedulePolicy) -> list[News]:
    """The news of a pass; ``resolved`` is not included, because it depends on earlier messages."""
    found = []
    for one in made.tables:
        where = _where(one, policy)
        if one.status in FAILED:
            said = next((step.said for step in one.steps if step.status == "failed"), one.why)
            following = _following(one)
            found.append(News(one.table, "failed", f"{one.status}: {said}", where, following, f"{one.status}:{_first(said)}"))
        elif one.is_unhealthy and one.health is not None:
            names = sorted(name for name, severity in one.health.findings if severity != "info")
            planned = next((step for step in one.steps if step.status in {"planned", "waits"}), None)
            following = f"{planned.action}: {planned.said}" if planned else "read the report; each finding has SQL to fix it"
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
        following = "fix the named problem; the next pass tries again"
        found.append(News(_POLICY, "failed", f"the pass itself failed: {made.failure}", policy.name, following, _first(made.failure)))
    elif made.problems:
        # One piece of news, because a receiver's record holds one mark per name.
        following = "fix the policy, and check it with `icekit schedule check`"
        found.append(News(_POLICY, "failed", "\n  ".join(made.problems), policy.name, following, "\n".join(sorted(made.problems))))
    return found


def _following(one: TableResult) -> str:
    """What to do about a failed table."""
    if one.status == "crashed":
        return "read the trace next to the reports; report it if it is a bug"
    if one.status == "timed out":
        return "raise the policy's timeout, or narrow the table's time window; the next pass tries again"
    if any(step.is_unproved for step in one.steps):
        return f"compare the table with its snapshot from before the run, roll back if necessary, then run {how_to_clear(one.table)}; until then icekit runs nothing on it"
    if one.status == "failed":
        return f"fix the named problem; icekit tries again after some hours, or in the next pass after {how_to_clear(one.table)}"
    return "fix the named problem; the next pass tries again"


def messages(made: Pass, policy: SchedulePolicy, told: Mapping[str, Mapping[str, Mapping[str, Any]]], now_ms: int) -> list[Message]:
    """A message for each receiver that has something new.

    ``told`` is the last :data:`Message.told` per receiver and table. A table that the pass did not read
    (``quiet``, ``busy``) is not called healthy.
    """
    found = news(made, policy)
    written = []
    for receiver in policy.notify:
        before = told.get(receiver.name, {})
        tell = [one for one in found if one.kind in receiver.about and _is_new(one, before.get(one.table), receiver, now_ms)]
        grave = {one.table for one in found if one.kind in _GRAVE}
        resolved = [] if not _knows(made) else _resolved(made, before, grave, policy)
        forget: dict[str, dict[str, Any] | None] = {one.table: None for one in resolved}
        if "resolved" in receiver.about:
            tell += resolved
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


def _resolved(made: Pass, before: Mapping[str, Any], grave: Iterable[str], policy: SchedulePolicy) -> list[News]:
    """Tables that a receiver was notified about and that are healthy now."""
    by_name = {one.table: one for one in made.tables}
    found = []
    for table in sorted(set(before) - set(grave)):
        one = by_name.get(table)
        if table == _POLICY:
            found.append(News(table, "resolved", "healthy again", policy.name, "nothing", "resolved"))
        elif one is None:
            found.append(News(table, "resolved", "no longer covered by this policy", policy.name, "nothing", "resolved"))
        elif one.status not in {"quiet", "busy", "stopped"}:
            found.append(
                News(
                    table,
                    "resolved",
                    f"healthy again ({one.health.status if one.health else one.status})",
                    _where(one, policy),
                    "nothing",
                    "resolved",
                )
            )
    return found


def _message(receiver: Receiver, tell: Sequence[News], made: Pass, told: Mapping[str, dict[str, Any] | None]) -> Message:
    kinds = {kind: sum(one.kind == kind for one in tell) for kind in ("failed", "unhealthy", "resolved", "done")}
    title = f"icekit {made.policy}: {', '.join(f'{n} {kind}' for kind, n in kinds.items() if n)}"
    again = (
        f" You get a reminder after {span(receiver.remind * 1000)} if this does not change."
        if receiver.remind and (kinds["failed"] or kinds["unhealthy"])
        else ""
    )
    body = "\n".join(map(str, tell))
    tail = f"\n{count(len(made.tables), 'table')} of catalog {made.catalog}: {made.counted()}.{again}"
    return Message(receiver.name, title if tell else "", body + tail, told)


def _where(one: TableResult, policy: SchedulePolicy) -> str:
    page = one.health.page if one.health else ""
    if not page:
        return str(policy.output)
    return f"{policy.url.rstrip('/')}/{page}" if policy.url else str(policy.output / page)


def _first(said: str) -> str:
    """An error without its figures, which differ each time."""
    return "".join(c for c in said.split("\n", 1)[0] if not c.isdigit())[:200]


# --- Send each message as one JSON POST; a failing receiver does not affect the others


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: A shorter part of an address, such as a port of three digits, is no secret.
_SHORTEST_PART = 4
_TIMEOUT_SECONDS = 30.0


def urls(policy: SchedulePolicy, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Each receiver's URL with its secrets in place; from now on they are masked in all output.

    Raises :class:`~icekit.errors.ParameterError` listing all variables that are not set, or for an
    address that cannot be posted to.
    """
    given = os.environ if environment is None else environment
    missing = sorted({name for one in policy.notify for name in _VARIABLE.findall(one.to) if not given.get(name)})
    if missing:
        raise ParameterError(
            f"Environment variables missing for notify in policy {policy.name}: {', '.join(missing)}. Set them, or remove the receiver."
        )
    found = {}
    for one in policy.notify:
        for name in _VARIABLE.findall(one.to):
            secrets.remember({"password": given[name]})
            secrets.remember({"password": quote(given[name], safe="")})
        # A URL that is a single secret is used as it is; a secret that is part of a URL is quoted, because it may contain any character.
        whole = _VARIABLE.fullmatch(one.to)
        found[one.name] = given[whole[1]] if whole else _VARIABLE.sub(lambda m: quote(given[m[1]], safe=""), one.to)
        if not _is_web(found[one.name]):
            raise _no_address(one.name)
    return found


def check_receivers(policy: SchedulePolicy, environment: Mapping[str, str] | None = None) -> list[str]:
    """Check each receiver's address as far as possible here; returns a sentence for each that needs a variable which is not set.

    A check may run on a machine without the secrets. Raises :class:`~icekit.errors.ParameterError` as :func:`urls` does.
    """
    given = os.environ if environment is None else environment
    unknown = {one.name: [n for n in _VARIABLE.findall(one.to) if not given.get(n)] for one in policy.notify}
    urls(policy.model_copy(update={"notify": tuple(one for one in policy.notify if not unknown[one.name])}), environment)
    for one in policy.notify:
        if unknown[one.name] and not one.to.startswith("$") and not _is_web(_VARIABLE.sub("x", one.to)):
            raise _no_address(one.name)
    return [
        f"The address of {name} was not checked: {', '.join(names)} {'is' if len(names) == 1 else 'are'} not set here."
        for name, names in unknown.items()
        if names
    ]


def send(messages: Iterable[Message], to: Mapping[str, str]) -> dict[str, str | None]:
    """Send every message; returns, per receiver, None or why sending failed."""
    return {message.receiver: _sent(message, to[message.receiver]) for message in messages if message.title}


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False


def _no_address(name: str) -> ParameterError:
    """The error for an address, of which nothing is said: any part may be a secret."""
    return ParameterError(
        f"Receiver {name} has no address that a message can be posted to. Write https://host/path, without user:password@; secrets are ${{NAME}}."
    )


class _NoRedirect(HTTPRedirectHandler):
    """A POST that is redirected would arrive as a GET without the message; it fails instead."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _sent(message: Message, url: str) -> str | None:
    body = json.dumps({"text": mask(f"{message.title}\n{message.body}")}).encode()
    try:
        request = Request(url, body, {"Content-Type": "application/json", "User-Agent": "icekit"}, method="POST")
        with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS):
            return None
    except Exception as error:
        return _without_address(scrub(f"{type(error).__name__}: {error}"), url)[:300]


def _without_address(said: str, url: str) -> str:
    """A text without any part of an address: each may be the secret, and the policy may have it in plain text."""
    parts = {part for spelt in (url, unquote(url)) for part in (spelt, *re.split(r"[^\w.+~%-]+", spelt.partition("://")[2]))}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SHORTEST_PART:
            said = re.sub(re.escape(part), secrets.MASK, said, flags=re.IGNORECASE)
    return said


# --- Check that the files of a policy are writable before the pass does its work; creates nothing


def check_places(policy: SchedulePolicy) -> None:
    """Reject an output, or another file of the policy, that cannot be written; raises :class:`~icekit.errors.ParameterError` listing all of them."""
    files = {
        "ledger": policy.ledger,
        "history": policy.history,
        "state": policy.state,
        "junit": policy.junit,
    }
    databases = {"ledger", "history", "state"}
    wrong = [_wrong("output", policy.output, is_folder=True)]
    wrong += [
        _wrong(key, Path(path), is_folder=False, is_database=key in databases)
        for key, path in files.items()
        if path and str(path) != "table"
    ]
    if said := [problem for problem in wrong if problem]:
        raise ParameterError(f"{'; '.join(said)}. Give other paths in the policy, or ask for access.")


def _wrong(key: str, path: Path, *, is_folder: bool, is_database: bool = False) -> str | None:
    """Why a path cannot be written; None if it can."""
    try:
        path = path.expanduser()
        if path.exists() and path.is_dir() != is_folder:
            return f"{key}: {path} is {'a file, not a folder' if is_folder else 'a folder, not a file'}"
        there = path
        while not there.exists() and there != there.parent:
            there = there.parent
        if there != path and not there.is_dir():
            return f"{key}: {path} cannot be created, because {there} is a file"
        if not _may_write(there):
            return f"{key}: {there} is not writable"
        # SQLite writes its log into files next to the database.
        if is_database and not _may_write(path.parent if there == path else there):
            return f"{key}: {path.parent} is not writable, and SQLite needs files next to {path.name}"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{key}: {path} cannot be used ({getattr(error, 'strerror', None) or error})"
    return None


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0), effective_ids=os.access in os.supports_effective_ids)


# --- Write JUnit XML with a case per table


Verdict = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One table; ``verdict`` in JUnit's terms."""

    table: str
    status: str
    verdict: Verdict
    said: str
    seconds: float
    health: TableHealth | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """A report or a pass for JUnit; ``what`` is ``report``, or the policy's name."""

    what: str
    catalog: str
    ended: dt.datetime
    cases: tuple[Case, ...]


def of_pass(made: Pass) -> Watched:
    """A pass: its tables, and problems that belong to no table as separate cases."""
    cases = [_case(one) for one in made.tables]
    cases += [Case("policy", "misconfigured", "error", problem, 0.0) for problem in made.problems]
    if made.failure:
        cases.append(
            Case("policy", "crashed" if made.failure_status == EXIT_CRASHED else "misconfigured", "error", made.failure, made.seconds)
        )
    cases += [Case("alerts", "failed", "failure", problem, 0.0) for problem in made.alert_problems]
    return Watched(made.policy, made.catalog, made.started + dt.timedelta(seconds=made.seconds), tuple(cases))


def of_report(run: ReportRun, catalog: str, fail_on: str, ended: dt.datetime | None = None) -> Watched:
    """A report run: a case per row."""
    ended = ended or dt.datetime.now(dt.UTC)
    now = int(ended.timestamp() * 1000)
    cases = []
    for row in run.rows:
        health = health_of(row, now, row.page or "")
        status: Status = "reported" if health else unread(row.status)
        one = TableResult(row.table, "", status, row.error or "", fail_on, health)
        cases.append(_case(one, row.seconds))
    cases += [Case("report", "misconfigured", "error", problem, 0.0) for problem in run.problems]
    return Watched("report", catalog, ended, tuple(cases))


def require_junit(path: Path | None) -> None:
    """Raise :class:`~icekit.errors.ExtraMissing` if the library for this file is not installed: call this before the work is done."""
    if path is not None:
        require("junitparser", "Writing JUnit XML")


def write_junit(watched: Watched, path: Path) -> Path:
    """Write JUnit XML, for which :func:`require_junit` was called: unhealthy tables and failed work are failures, unreadable tables are errors, and tables that were not due are skipped."""
    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(_clean(f"icekit {watched.what}"))
    suite.timestamp = watched.ended.isoformat(timespec="seconds")
    kinds: dict[str, Any] = {"failure": Failure, "error": Error, "skipped": Skipped}
    for one in watched.cases:
        case = TestCase(_clean(one.table), _clean(f"icekit.{watched.catalog}"), round(one.seconds, 3))
        said = _clean(one.said)
        if one.verdict != "passed":
            case.result = [kinds[one.verdict](said.split("\n", 1)[0][:300], one.status)]
        findings = "\n".join(f"{severity}: {name}" for name, severity in one.health.findings) if one.health else ""
        case.system_out = "\n".join(filter(None, [said, _clean(findings)]))
        suite.add_testcase(case)
    suite.update_statistics()  # type: ignore[no-untyped-call]
    xml = JUnitXml()
    xml.add_testsuite(suite)
    written = BytesIO()
    xml.write(written, pretty=True)
    return write_text(path, written.getvalue().decode("utf-8"))


def _case(one: TableResult, seconds: float | None = None) -> Case:
    verdict: Verdict = "passed"
    if one.status in {"crashed", "timed out", "misconfigured"}:
        verdict = "error"
    elif one.status == "failed" or one.is_unhealthy:
        verdict = "failure"
    elif one.status in {"not due", "quiet", "busy"}:
        verdict = "skipped"
    said = _sentences([one.why, *(f"{step.action} {step.status}: {step.said}" for step in one.steps)])
    if one.is_unhealthy and one.health:
        said = f"{one.health.status} with fail_on={one.fail_on}: {', '.join(name for name, _ in one.health.findings)}" + (
            f"\n{said}" if said else ""
        )
    return Case(
        table=one.table,
        status=one.status,
        verdict=verdict,
        said=said or one.status,
        seconds=one.seconds if seconds is None else seconds,
        health=one.health,
    )


def _sentences(parts: Iterable[str]) -> str:
    return "\n".join(filter(None, parts))


def _clean(text: str) -> str:
    return harmless(mask(text))
