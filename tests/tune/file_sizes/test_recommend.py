"""An advisory size follows from what a trial wrote, one step at a time."""

from __future__ import annotations

from icekit.tune.file_sizes.advisory_size import best, next_candidate, rolled_bytes, rounded, scaled, spill_limit
from icekit.tune.file_sizes.written import Written
from tests.tune.file_sizes.making import MIB, TARGET, shuffle, written

SMALL = written(*[TARGET // 4] * 60)


def test_sizes_that_are_right_are_left() -> None:
    assert written().hits
    assert next_candidate([(None, written())]) is None


def test_one_last_small_file_is_no_reason_to_tune() -> None:
    almost = written(*[int(0.86 * TARGET)] * 15, TARGET // 10)

    assert not almost.hits
    assert almost.is_fine
    assert next_candidate([(None, almost)]) is None


def test_the_first_size_is_one_file_a_task_by_the_measured_ratio_with_room_below_the_target() -> None:
    found = next_candidate([(None, SMALL)])

    assert found is not None
    assert found.size_in_bytes == rounded(0.97 * TARGET * 2)
    assert "2.00 bytes of shuffle" in found.why


def test_the_room_is_below_where_the_writer_was_seen_to_roll() -> None:
    seen = written(*[int(0.9 * TARGET)] * 6, *[TARGET // 5] * 40)

    assert rolled_bytes([seen]) == int(0.9 * TARGET)
    assert rolled_bytes([SMALL]) == TARGET


def test_tasks_that_left_a_sliver_get_more_room() -> None:
    slivers = written(*[int(0.95 * TARGET), TARGET // 20] * 14, shuffle=shuffle(2 * 14 * TARGET, tasks=14))
    first = next_candidate([(None, SMALL)])
    assert first is not None

    found = next_candidate([(None, SMALL), (first.size_in_bytes, slivers)])

    assert found is not None
    assert found.size_in_bytes < first.size_in_bytes
    assert "tiny second file" in found.why


def test_where_one_file_a_task_does_not_come_out_several_are_tried_and_then_no_more() -> None:
    poor = written(*[int(0.6 * TARGET)] * 24)
    tried: list[tuple[int | None, Written]] = [(None, SMALL)]
    sizes = []
    while (found := next_candidate(tried)) is not None:
        sizes.append(found.size_in_bytes)
        tried.append((found.size_in_bytes, poor))

    assert sizes == [rounded(0.97 * TARGET * 2), rounded(4 * TARGET * 2), rounded(8 * TARGET * 2)]


def test_without_a_shuffle_there_is_nothing_to_try() -> None:
    assert next_candidate([(None, written(*[MIB] * 50, shuffle=None))]) is None


def test_the_best_is_what_hits_and_else_what_is_in_force_if_nothing_is_nearer() -> None:
    hit = written()

    assert best([(None, SMALL), (5, hit), (6, SMALL)]) == (5, hit)
    assert best([(None, SMALL), (5, SMALL)]) == (None, SMALL)


def test_a_size_found_at_a_smaller_target_grows_with_it() -> None:
    assert scaled(100 * MIB, 64 * MIB, 512 * MIB) == 800 * MIB
    assert scaled(12345, TARGET, TARGET) == 12345


def test_the_memory_of_a_task_limits_what_it_sorts_without_spilling() -> None:
    assert spill_limit(SMALL, 100 * MIB) == 50 * MIB
    assert spill_limit(written(shuffle=None), 100 * MIB) is None


def test_too_few_data_are_no_failure_of_a_setting() -> None:
    few = written(TARGET // 8)

    assert few.is_too_few
    assert few.hits
    assert few.enough_mean is None
