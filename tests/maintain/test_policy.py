"""A policy is made of what people write, and says what is wrong with what it cannot take."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError
from icekit.common.parsing import parse_time, seconds, size_in_bytes

SIZES = {
    "1000": 1000,
    "200 GB": 200 * 10**9,
    "64MiB": 64 * 2**20,
    " 1.5 kib ": 1536,
    "7 b": 7,
    "2TB": 2 * 10**12,
    "0": 0,
    "1 kB": 1000,
}
TIMES = {
    "90 s": 90,
    "1 second": 1,
    "90m": 5400,
    "5 mins": 300,
    "30 minutes": 1800,
    ".5 hours": 1800,
    "2 Hours": 7200,
    "1.5h": 5400,
    "1 d": 86_400,
    "7 days": 604_800,
    "2 weeks": 1_209_600,
}


def test_sizes_and_lengths_of_time_are_read_as_people_write_them() -> None:
    assert {text: size_in_bytes(text) for text in SIZES} == SIZES
    assert {text: seconds(text) for text in TIMES} == TIMES


@pytest.mark.parametrize(
    ("read", "texts", "said"),
    [
        (
            size_in_bytes,
            ["", "GB", "1.2.3 GB", "-1 GB", "1e3", "five", ". GB", "1 000"],
            r"is not a size\. Write it as 200 GB",
        ),
        (
            seconds,
            ["", "5", ". hours", "hours", "1.2.3 h", "-1 hour", "3 fortnights", "5 ms"],
            r"is not a duration\. Write it as 30 minutes",
        ),
        (parse_time, ["yesterday"], "is not a date"),
    ],
)
def test_what_is_no_size_duration_or_date_is_refused_with_an_example(
    read: Callable[[str], object], texts: list[str], said: str
) -> None:
    for text in texts:
        with pytest.raises(ParameterError, match=said):
            read(text)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert parse_time("2026-01-31") == dt.datetime(2026, 1, 31, tzinfo=dt.UTC)
    assert parse_time("2026-01-31T06:00") == dt.datetime(2026, 1, 31, 6, tzinfo=dt.UTC)
    assert parse_time("2026-01-31T06:00+02:00") == dt.datetime(2026, 1, 31, 4, tzinfo=dt.UTC)
    assert (
        parse_time(dt.date(2026, 1, 31))
        == parse_time(dt.datetime(2026, 1, 31))  # noqa: DTZ001
        == parse_time("2026-01-31")
    )
    assert CompactionPolicy(since=dt.datetime(2026, 1, 31)).since == parse_time("2026-01-31")  # noqa: DTZ001


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("200 GB", {"budget_bytes": 200 * 10**9}),
        (123, {"budget_bytes": 123}),
        ("1,000 files", {"budget_files": 1000}),
        ("1_000 file", {"budget_files": 1000}),
        ("90m", {"budget_minutes": 90}),
        ("500 million rows", {"budget_rows": 500_000_000}),
        ("1 row", {"budget_rows": 1}),
        ("2 days", {"budget_minutes": 2880}),
    ],
)
def test_a_budget_is_bytes_rows_files_or_time(budget: Any, expected: dict[str, float]) -> None:
    policy = vars(CompactionPolicy(budget=budget))

    assert {
        name: policy[name] for name in policy if name.startswith("budget_") and policy[name]
    } == expected


@pytest.mark.parametrize(
    "budget",
    ["200 G", "five files", ", files", "200 M", "200 M ", "million rows"],
)
def test_what_is_no_budget_is_refused_with_all_kinds(budget: str) -> None:
    with pytest.raises(
        ParameterError,
        match=r"is not bytes \(200 GB\), rows \(500 million rows\), files \(500 files\) or time "
        r"\(30 minutes\)",
    ):
        CompactionPolicy.of({"budget": budget})


def test_each_plain_value_becomes_what_the_policy_holds() -> None:
    policy = CompactionPolicy.of(
        {
            "scope": "major",
            "strategy": "zorder",
            "columns": " a , b.c,",
            "since": "2026-01-01",
            "until": "2026-02-01",
            "skip_last": "6 hours",
            "leave_alone": "2 hours",
            "min_files": "3",
            "delete_ratio": "0.1",
            "old_specs": "True",
            "max_action_bytes": "1 GB",
            "max_action_partitions": 7.0,
            "budget": "",
        }
    )

    assert policy.changed() == {
        "scope": "major",
        "strategy": "zorder",
        "columns": ("a", "b.c"),
        "since": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "until": dt.datetime(2026, 2, 1, tzinfo=dt.UTC),
        "skip_last": "6 hours",
        "leave_alone": "2 hours",
        "min_files": 3,
        "delete_ratio": 0.1,
        "old_specs": True,
        "max_action_bytes": 10**9,
        "max_action_partitions": 7,
    }
    assert (policy.skip_last_hours, policy.leave_alone_minutes) == (6, 120)
    assert (
        repr([policy.min_files, policy.max_action_partitions, policy.delete_ratio]) == "[3, 7, 0.1]"
    )
    assert CompactionPolicy(columns=["a,b", "c"], since=None, old_specs="False").changed() == {
        "columns": ("a,b", "c")
    }


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("budgets", 1, r"no parameter 'budgets'; did you mean budget\?"),
        ("scope", 3, "use one of minor, major"),
        ("strategy", "zordr", "did you mean zorder"),
        ("old_specs", "yes", "true or false"),
        ("min_files", "2.5", "whole number"),
        ("min_files", "many", "must be a whole number"),
        ("min_files", True, "whole number"),
        ("min_files", 0, "more than 0"),
        ("delete_ratio", "nan", "must be a number"),
        ("leave_alone", "soon", "not a duration"),
        ("max_action_partitions", 0, "more than 0"),
        ("max_action_bytes", "0", "more than 0"),
        ("budget", "0", "more than 0"),
        ("budget", "0 files", "more than 0"),
        ("budget", "0 minutes", "more than 0"),
        ("columns", 5, "columns"),
        ("max_action_bytes", "9" * 400, "too large a size"),
        ("skip_last", f"{'9' * 400} days", "too large a duration"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(name: str, value: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        CompactionPolicy.of({name: value})


@pytest.mark.parametrize("name", ["delete_ratio", "min_files", "max_action_partitions"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_number_that_is_none_is_refused_however_it_comes(name: str, value: float) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be "):
        CompactionPolicy(**{name: value})


def test_a_window_that_ends_before_or_as_it_begins_is_refused() -> None:
    for since in ("2026-02-01", "2026-01-01"):
        with pytest.raises(
            ParameterError,
            match=rf"since \({since} 00:00\) is not before until \(2026-01-01 00:00\)",
        ):
            CompactionPolicy.of({"since": since, "until": "2026-01-01"})


def test_ordering_rows_rewrites_every_file_and_limits_may_lie_on_their_least_value() -> None:
    least: dict[str, Any] = {
        **dict.fromkeys(("skip_last", "leave_alone"), "0 minutes"),
        "delete_ratio": 0,
        **dict.fromkeys(("min_files", "budget", "max_action_bytes"), 1),
    }

    assert CompactionPolicy(strategy="sort", **least).scope == "major"
    assert CompactionPolicy().scope == "minor"
