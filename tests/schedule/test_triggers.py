"""A table is due by what its metadata says, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from icekit.schedule.policy import Trigger
from icekit.schedule.study import Since, Watermark, due, since
from tests.schedule.making import NOW_MS, metadata, snapshot

SMALL = {"added_data_files": 4, "added_files_size": 400}
WELL = {"added_data_files": 1, "added_files_size": 900}


def judged(trigger: dict[str, Any], *snapshots: dict[str, Any], seen: int | None = 1, ago_ms: int = 0) -> tuple[bool, str]:
    found = due(metadata(*snapshots), Watermark("u", seen, NOW_MS - ago_ms), Trigger(**trigger), NOW_MS, 0.75)
    return found.is_due, found.why


def test_a_table_that_no_pass_has_seen_is_due() -> None:
    found = due(metadata(), None, Trigger(commits=5), NOW_MS, 0.75)
    assert (found.is_due, found.why) == (True, "its first pass")


def test_commits_are_counted_since_the_last_pass() -> None:
    three = [snapshot(n, **WELL) for n in (1, 2, 3)]
    assert judged({"commits": 2}, *three) == (True, "2 commits since its last pass (due from 2)")
    assert judged({"commits": 3}, *three) == (False, "since its last pass: 2 of 3 commits")


def test_what_icekit_itself_commits_does_not_count() -> None:
    own = snapshot(2, **SMALL)
    own["summary"]["icekit.run-id"] = "r"
    assert since(metadata(snapshot(1), own, snapshot(3, **WELL)), 1, 0.75) == Since(commits=1)


def test_deletes_by_position_and_by_key_count_and_small_files_by_their_commits_mean() -> None:
    several = [
        snapshot(1),
        snapshot(2, added_position_deletes=7, added_equality_deletes=5),
        snapshot(3, **SMALL),
        snapshot(4, **WELL),
    ]
    assert since(metadata(*several), 1, 0.75) == Since(commits=3, delete_records=12, small_files=4)
    assert judged({"delete_records": 12}, *several)[0]
    assert not judged({"delete_records": 13, "small_files": 5}, *several)[0]
    assert judged({"delete_records": 13, "small_files": 4}, *several)[0]


def test_time_alone_makes_a_table_due() -> None:
    assert judged({"every": "1 hour"}, snapshot(1), ago_ms=3_600_000) == (True, "its last pass was 1 hour ago")
    assert judged({"every": "1 hour"}, snapshot(1), ago_ms=1_800_000) == (False, "since its last pass: 30 minutes of 1 hour")


@pytest.mark.parametrize(("uuid", "seen", "why"), [("other", 1, "dropped and created again"), ("u", 99, "is gone")])
def test_a_table_that_is_not_what_it_was_is_due(uuid: str, seen: int, why: str) -> None:
    found = due(metadata(snapshot(1), uuid=uuid), Watermark("u", seen, NOW_MS), Trigger(commits=100), NOW_MS, 0.75)
    assert found.is_due
    assert why in found.why


def test_a_table_that_was_put_back_past_what_a_pass_committed_is_due() -> None:
    back = due(metadata(snapshot(1)), Watermark("u", 1, NOW_MS, left_id=2), Trigger(commits=100), NOW_MS, 0.75)
    stays = due(metadata(snapshot(1), snapshot(2), snapshot(3)), Watermark("u", 1, NOW_MS, left_id=2), Trigger(commits=100), NOW_MS, 0.75)

    assert (back.is_due, stays.is_due) == (True, False)
    assert "no longer in its history" in back.why


def test_an_empty_table_stays_seen_until_something_is_written() -> None:
    assert not judged({"commits": 1}, seen=None)[0]
    assert judged({"commits": 1}, snapshot(1), seen=None)[0]
