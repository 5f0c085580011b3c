"""When small files pile up again follows from the visits of commits to a partition."""

from __future__ import annotations

import pytest

from icekit.tune.file_sizes.distribution import cadence, commits_for, until_sick
from tests.factories import MIB, commit, empty_facts, history, table_facts


def test_four_small_files_a_visit_are_enough_after_two_visits_and_one_after_five() -> None:
    # Hourly appends to one of ten partitions: each is visited every ten hours.
    rhythm = cadence(table_facts())
    assert rhythm is not None
    assert rhythm.commits_per_day == pytest.approx(24)

    four, one = until_sick(rhythm, 4.0), until_sick(rhythm, 1.0)

    assert (four.visits, one.visits) == (2, 5)
    assert four.days is not None
    assert one.days == pytest.approx(2.5 * four.days)


def test_commits_without_small_files_never_make_a_table_sick() -> None:
    rhythm = cadence(table_facts())
    assert rhythm is not None

    assert until_sick(rhythm, 0.0).visits is None


def test_a_single_commit_tells_visits_but_no_days() -> None:
    rhythm = cadence(table_facts(history=history(commit())))
    assert rhythm is not None

    found = until_sick(rhythm, 1.0)

    assert (found.visits, found.days) == (5, None)


def test_a_table_that_nobody_appends_to_has_no_cadence() -> None:
    assert cadence(empty_facts()) is None


def test_commits_that_are_too_small_are_counted_up_to_the_target() -> None:
    assert commits_for(512 * MIB, 100 * MIB) == 6
    assert commits_for(512 * MIB, 0) is None
