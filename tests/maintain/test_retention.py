"""Snapshots expire by time and by count, as people need them, and never now."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from icekit.common.errors import ParameterError
from icekit.health.retention import HOUR_MS, Retention, expiry, retained

NOW = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
#: The ages of rare commits.
OLD = [day * 24 * HOUR_MS for day in (40, 30, 20, 10)]


def metadata(
    ages_ms: Sequence[int], refs: Mapping[str, Any] | None = None, **properties: str
) -> dict[str, Any]:
    """A line of commits, oldest first and numbered from 1, each so many milliseconds old."""
    snapshots = [
        {
            "snapshot-id": n + 1,
            "timestamp-ms": NOW_MS - age,
            **({"parent-snapshot-id": n} if n else {}),
        }
        for n, age in enumerate(ages_ms)
    ]
    last = len(snapshots)
    return {
        "current-snapshot-id": last,
        "snapshots": snapshots,
        "refs": {"main": {"snapshot-id": last, "type": "branch"}, **(refs or {})},
        "properties": {key.replace("__", "-"): value for key, value in properties.items()},
    }


def hourly(hours: int) -> list[int]:
    return [hour * HOUR_MS for hour in reversed(range(hours))]


def test_a_ref_older_than_its_own_limit_goes_and_main_never_does() -> None:
    refs = {"old": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": HOUR_MS}}
    found = retained(metadata([50 * HOUR_MS, 40 * HOUR_MS], refs), NOW_MS - HOUR_MS, 1, NOW_MS)

    assert found.refs == ("main",)
    assert found.refs_dropped == ("old",)
    assert found.expired == (1,)


@pytest.mark.parametrize("name", ["audit", "zaudit"])
def test_a_tag_does_not_keep_what_its_branch_no_longer_does(name: str) -> None:
    main = {"snapshot-id": 4, "type": "branch", "max-snapshot-age-ms": 25 * HOUR_MS}
    refs = {"main": main, name: {"snapshot-id": 2, "type": "tag"}}
    ages = [50 * HOUR_MS, 40 * HOUR_MS, 30 * HOUR_MS, 0]

    assert retained(metadata(ages, refs), 0, 1, NOW_MS).expired == (1, 3)


def test_a_shorter_time_than_is_needed_is_refused_with_what_to_change() -> None:
    with pytest.raises(ParameterError, match=r'Set keep_hours .--keep. to "72 hours" or more'):
        expiry(metadata(OLD), Retention(keep_hours=24, keep_last=100, need_hours=72), NOW)


@pytest.mark.parametrize(
    ("keep_hours", "keep_last"), [(72, 1), (48, 1), (72, 2)], ids=["rounded", "equal", "by count"]
)
def test_the_state_that_is_needed_stays_whatever_is_committed_before_the_expiry_runs(
    keep_hours: float, keep_last: int
) -> None:
    """It may be an older commit."""
    planned = expiry(
        metadata([*OLD, HOUR_MS]),
        Retention(keep_hours=keep_hours, keep_last=keep_last, need_hours=48),
        NOW,
    )
    then = metadata([*OLD, HOUR_MS, 60_000, 0])

    split = retained(then, int(planned.older_than.timestamp() * 1000), planned.retain_last, NOW_MS)

    assert planned.snapshots.expired == (1, 2, 3)
    assert NOW - planned.older_than == dt.timedelta(days=10)
    assert 4 in split.kept


def test_a_branch_that_keeps_less_than_is_needed_by_a_limit_of_its_own_is_refused() -> None:
    own = {
        "main": {
            "snapshot-id": 5,
            "type": "branch",
            "min-snapshots-to-keep": 1,
            "max-snapshot-age-ms": HOUR_MS,
        }
    }

    with pytest.raises(ParameterError, match="a limit of the branch itself overrides"):
        expiry(metadata([*OLD, 0], own), Retention(keep_hours=72, need_hours=48), NOW)


def test_the_limits_of_the_table_are_the_default() -> None:
    properties = {
        "history.expire.max-snapshot-age-ms": str(2 * HOUR_MS),
        "history.expire.min-snapshots-to-keep": "20",
    }

    assert Retention().in_force(properties) == (2 * HOUR_MS, 20)
    assert Retention().in_force({}) == (120 * HOUR_MS, 10)


@pytest.mark.parametrize(
    "given",
    [
        {"keep": "10 minutes"},
        {"keep": 0},
        {"keep": 0.5},
        {"keep": "30 s"},
        {"keep_last": 0},
        {"need": 0},
        {"kep": 3},
        {"keep": "a while"},
        {"keep_last": 1.5},
        {"keep_last": "inf"},
    ],
)
def test_what_is_no_retention_is_refused_and_nothing_expires_now(given: Mapping[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Retention.of(given)


def test_a_table_that_asks_for_expiry_now_is_refused() -> None:
    with pytest.raises(ParameterError, match="Raise it, or set keep_hours"):
        Retention().in_force({"history.expire.max-snapshot-age-ms": "1"})


def test_plain_values_are_read() -> None:
    assert Retention.of({"keep": "7 days", "keep_last": "20", "need": 24}) == Retention(
        keep_hours=168, keep_last=20, need_hours=24
    )
    assert Retention.of({"keep": "", "need": None}) == Retention()


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    found = expiry({"snapshots": [], "current-snapshot-id": -1}, Retention(need_hours=1), NOW)

    assert found.snapshots.expired == ()
    assert found.reach_before_ms is None


def test_every_branch_keeps_its_own_last_snapshots_and_a_tag_its_one_however_old_they_are() -> None:
    ages = [60 * 24 * HOUR_MS - place for place in range(120)]
    branches = {f"b{n}": {"snapshot-id": n, "type": "branch"} for n in range(2, 120, 2)}
    tags = {name: {**ref, "type": "tag"} for name, ref in branches.items()}

    expired = [
        len(expiry(metadata(ages, refs), Retention(), NOW).snapshots.expired)
        for refs in (None, branches, tags)
    ]
    assert expired == [110, 0, 55]
