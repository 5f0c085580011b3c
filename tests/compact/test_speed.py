"""The seconds of an action from those of earlier ones; pure."""

from typing import Any

import pytest

from icekit.compact.model import Action, Prediction
from icekit.compact.service import EnginePlanner
from icekit.compact.speed import Speed, speed_of

KIB, MIB, GIB = 2**10, 2**20, 2**30


def known(*runs: tuple[float, float]) -> Speed:
    speed = speed_of(runs)
    assert speed is not None
    return speed


def test_no_runs_give_no_speed() -> None:
    assert speed_of([]) is None
    assert speed_of([(None, 1.0), (5.0, None), (0.0, 1.0), (5.0, 0.0)]) is None


def test_runs_of_different_sizes_tell_the_fixed_part_from_the_rate() -> None:
    speed = known(*((size * MIB, 3 + size / 20) for size in (1, 2, 40, 900, 1000)))

    assert speed.fixed_seconds == pytest.approx(3)
    assert speed.bytes_per_second == pytest.approx(20 * MIB)
    assert speed.seconds(KIB) == pytest.approx(3, abs=0.01)
    assert speed.seconds(4000 * MIB) == pytest.approx(203)


def test_tiny_runs_say_nothing_about_gigabytes() -> None:
    of_some_sizes = known((3 * KIB, 2.3), (30 * KIB, 2.6))

    assert known(*[(3 * KIB, 2.3)] * 6).seconds(14 * GIB) is None
    assert of_some_sizes.seconds(14 * GIB) is None
    assert of_some_sizes.seconds(300 * KIB) == pytest.approx(5.6)


def test_one_run_says_nothing_about_a_much_smaller_or_larger_action() -> None:
    sizes = (100, 512, 1024, 2048, 2049)

    assert [known((MIB, 2.4)).seconds(size * KIB) for size in sizes] == [None, 1.2, 2.4, 4.8, None]
    assert [known((GIB, 60.0)).seconds(n * GIB) for n in (10, 11)] == [600, None]


def test_an_action_that_waited_for_the_cluster_changes_little() -> None:
    measured = [(MIB, 3.0), (MIB, 3.0), (MIB, 900.0), (GIB, 53.0), (GIB, 53.0), (GIB, 4000.0)]

    assert known(*measured).seconds(GIB) == pytest.approx(53)


def test_small_actions_that_took_as_long_as_large_ones_give_no_rate() -> None:
    assert speed_of([(KIB, 9.0), (MIB, 3.0)]) == Speed(0.0, MIB / 3.0, MIB / 2, 2 * MIB)


@pytest.mark.parametrize(("seconds", "size"), [(1, 0), (2, 0), (3, 100)])
def test_time_is_left_for_bytes_only_after_the_fixed_part(seconds: float, size: int) -> None:
    assert Speed(2, 100).bytes_within(seconds) == size


def test_the_time_of_an_action_is_that_of_its_rows_if_these_take_longer() -> None:
    of_bytes, of_rows = Speed(1, 100), Speed(1, 10, most_bytes=1000)

    def seconds(bytes_in: int, rows: int, row_speed: Speed | None = of_rows) -> float | None:
        facts: Any = None
        action = Action(
            "a1",
            "rewrite_data_files",
            "lake",
            ("t",),
            "",
            Prediction(bytes_in=bytes_in, rows_in=rows),
        )
        return EnginePlanner(None, facts, 1, of_bytes, row_speed)(action).prediction.seconds

    assert seconds(500, 20) == 6
    assert seconds(500, 200) == 21
    assert seconds(500, 200, None) == 6
    assert seconds(500, 1001) is None


def test_time_never_shrinks_with_size() -> None:
    speed = known((100.0, 1.0), (1000.0, 100.0))

    assert speed.fixed_seconds == 0
    assert speed.seconds(1000) == pytest.approx(100)
