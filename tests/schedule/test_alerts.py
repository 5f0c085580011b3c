"""Receivers are told what has changed, once."""

from __future__ import annotations

from typing import Any

from icekit.schedule.alerts import messages
from icekit.schedule.one_pass import failed
from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.result import Pass
from tests.schedule.making import NOW, NOW_MS, health, made, policy, result, step

HOUR_MS = 3_600_000
NOTIFY = "notify:\n  - name: team\n    to: http://host\n"
UNHEALTHY = result(health=health("critical", "small_files"), fail_on="critical")
FAILED = result("db.f", status="failed", steps=(step(status="failed", said="commit 17 was refused"),))


def told(one: Pass, by: SchedulePolicy, before: dict[str, Any] | None = None, now_ms: int = NOW_MS) -> Any:
    found = messages(one, by, {"team": before or {}}, now_ms)
    return found[0] if found else None


def test_a_message_says_what_where_and_what_to_do_next() -> None:
    planned = step(status="planned", said="9 files → 1 file; its rule does not say execute: true for compact")
    one = result(health=health("critical", "small_files", "equality_deletes"), fail_on="critical", steps=(planned,))
    message = told(made(one), policy(NOTIFY, url="https://lake.example.com/r/"))
    assert message.title == "icekit nightly: 1 unhealthy"
    assert "db.t: critical: equality_deletes, small_files" in message.body
    assert "Report: https://lake.example.com/r/all/db.t.html" in message.body
    assert "Next: compact: 9 files → 1 file; its rule does not say" in message.body


def test_nobody_is_told_when_all_is_as_it_should_be() -> None:
    assert told(made(result(health=health("critical"))), policy(NOTIFY)) is None


def test_the_same_is_told_once_and_again_after_a_day() -> None:
    by = policy(NOTIFY)
    first = told(made(UNHEALTHY), by)
    assert told(made(UNHEALTHY), by, dict(first.told), NOW_MS + HOUR_MS) is None
    assert told(made(UNHEALTHY), by, dict(first.told), NOW_MS + 24 * HOUR_MS).title == "icekit nightly: 1 unhealthy"


def test_another_finding_is_news_and_a_figure_in_an_error_is_not() -> None:
    by = policy(NOTIFY)
    before = dict(told(made(UNHEALTHY, FAILED), by).told)
    again = result("db.f", status="failed", steps=(step(status="failed", said="commit 18 was refused"),))
    worse = result(health=health("critical", "small_files", "equality_deletes"), fail_on="critical")
    message = told(made(worse, again), by, before)
    assert message.title == "icekit nightly: 1 unhealthy"
    assert set(message.told) == {"db.t"}


def test_a_table_that_is_well_again_is_told_once_to_those_who_were_told_ill_of_it() -> None:
    by = policy(NOTIFY)
    before = dict(told(made(UNHEALTHY), by).told)
    message = told(made(result()), by, before)
    assert (message.title, dict(message.told)) == ("icekit nightly: 1 resolved", {"db.t": None})
    assert told(made(result()), by) is None


def test_what_was_not_looked_at_is_not_called_well() -> None:
    by = policy(NOTIFY)
    before = dict(told(made(FAILED), by).told)
    assert told(made(result("db.f", status="quiet")), by, before) is None
    assert told(made(result("db.f"), interrupted=True), by, before) is None


def test_a_receiver_is_told_only_what_it_asks_for() -> None:
    done = result("db.d", status="done", steps=(step(said="10 files → 1 file, proved"),))
    by = policy(NOTIFY + "    about: [failed, done]\n")
    message = told(made(UNHEALTHY, FAILED, done), by)
    assert message.title == "icekit nightly: 1 failed, 1 done"
    assert "db.t:" not in message.body
    assert "10 files → 1 file, proved" in message.body
    silent = policy(NOTIFY + "    about: failed\n")
    quiet = told(made(result("db.f")), silent, {"db.f": {"mark": "x", "at_ms": 0}})
    assert (quiet.title, dict(quiet.told)) == ("", {"db.f": None})


def test_two_problems_of_a_policy_are_told_once_and_that_they_are_fixed() -> None:
    by = policy(NOTIFY)
    both = made(problems=("rule a: no table matches 'x'.", "rule b: no table matches 'y'."))
    first = told(both, by)
    assert "no table matches 'x'" in first.body
    assert "no table matches 'y'" in first.body
    assert told(both, by, dict(first.told), NOW_MS + HOUR_MS) is None
    assert told(made(problems=both.problems[:1]), by, dict(first.told)) is not None
    assert "policy: healthy again" in told(made(), by, dict(first.told)).body


def test_a_pass_that_fails_itself_is_told_and_calls_no_table_well() -> None:
    by = policy(NOTIFY)
    before = dict(told(made(UNHEALTHY), by).told)
    lost = failed(by, ConnectionError("the catalog does not answer"), lambda: NOW)
    message = told(lost, by, before)
    assert (lost.exit_status, set(message.told)) == (2, {"policy"})
    assert "the pass itself failed: A connection broke (ConnectionError: the catalog does not answer)" in message.body
    assert told(lost, by, {**before, **message.told}, NOW_MS + HOUR_MS) is None


def test_what_to_do_next_about_a_table_that_was_not_proved_is_to_look_and_to_clear_it() -> None:
    unproved = result("db.f", status="failed", steps=(step(status="failed", said="not proved", is_unproved=True),))
    assert "`icekit schedule clear POLICY db.f`; until then icekit runs nothing on it" in told(made(unproved), policy(NOTIFY)).body


def test_what_is_wrong_with_the_policy_is_told_too() -> None:
    message = told(made(problems=("rule a: no table matches 'x'.",)), policy(NOTIFY))
    assert "policy: rule a: no table matches 'x'." in message.body


def test_without_reminders_it_is_told_only_once() -> None:
    by = policy(NOTIFY + "    remind: null\n")
    before = dict(told(made(FAILED), by).told)
    assert told(made(FAILED), by, before, NOW_MS * 2) is None
