"""The write mode that costs less at the table's reads is advised, where the measurements can tell;
pure.
"""

import math
from dataclasses import replace
from unittest.mock import Mock

import pytest

from icekit.tune.answer import Measurements
from icekit.tune.experiment import Experiment
from icekit.tune.write_cost import (
    BreakEven,
    ModeCosts,
    WriteMode,
    break_even_of_modes,
    break_even_reads,
    commit_and_read_seconds,
)
from icekit.tune.write_mode import (
    _MEASURES,
    COMMIT,
    COMPACTION,
    OPENS,
    SCAN,
    Advice,
    costs_of_write_modes,
    current_write_mode,
    do_deletes_stand_out,
    write_mode_advice,
)
from tests.factories import table_facts

COPYING, PER_FILE, PER_PARTITION, VECTORS = (
    WriteMode("copy-on-write", 2),
    WriteMode("merge-on-read", 2, "file"),
    WriteMode("merge-on-read", 2, "partition"),
    WriteMode("merge-on-read", 3),
)
COPIED = ModeCosts(COPYING, write_seconds=20.0, scan_seconds=2.0, data_file_count=100)
MERGED = ModeCosts(
    PER_FILE,
    write_seconds=4.0,
    scan_seconds=2.0,
    data_file_count=100,
    seconds_per_delete_file=0.1,
    touched_share_per_commit=0.5,
    compaction_seconds=10.0,
)
VECTORED = replace(MERGED, mode=VECTORS)


def test_position_deletes_pile_up_and_a_data_file_has_at_most_one_vector() -> None:
    assert [MERGED.delete_files_opened(n) for n in (1, 2, 10)] == [50, 100, 500]
    assert [VECTORED.delete_files_opened(n) for n in (1, 2)] == [50, 75]
    assert VECTORED.delete_files_opened(50) == pytest.approx(100)


def test_a_commit_costs_its_write_the_reads_after_it_and_its_share_of_the_compaction() -> None:
    # Scans open 50 and 100 delete files, and the compaction of two commits reaches 75 instead of 50
    # % of the files.
    assert MERGED.seconds_per_commit(3, 2) == pytest.approx(4 + 3 * (2 + 0.1 * 75) + 15 / 2)
    assert COPIED.seconds_per_commit(3, 2) == 20 + 3 * 2
    # Without a number of commits between compactions, the cheapest counts.
    assert commit_and_read_seconds(MERGED, 0.1, None) < min(
        commit_and_read_seconds(MERGED, 0.1, n) for n in (1, 1000)
    )


def test_the_break_even_point_is_where_both_cost_the_same() -> None:
    reads = break_even_reads(COPIED, MERGED, 2)

    assert MERGED.seconds_per_commit(reads, 2) == pytest.approx(COPIED.seconds_per_commit(reads, 2))
    assert break_even_reads(replace(COPIED, write_seconds=1.0), MERGED, 2) == 0.0
    assert math.isinf(break_even_reads(COPIED, replace(MERGED, seconds_per_delete_file=0.0), 2))


def test_the_interval_of_the_break_even_point_holds_what_repeats_differed_by() -> None:
    even = break_even_of_modes(
        [
            replace(COPIED, write_error_seconds=1.0),
            replace(MERGED, error_seconds_per_delete_file=0.01),
        ],
        2,
    )

    assert even is not None
    assert even.low_reads < even.reads_per_commit < even.high_reads
    assert even.is_too_close_to_call(even.reads_per_commit)
    assert not BreakEven(3.0, 3.0, 3.0).is_too_close_to_call(3.0)
    for low, high, interval in (
        (1.2, 6.3, " (between 1.2 and 6.3 by repeated measurements)"),
        (0.0, 6.3, " (between 0 and 6.3 by repeated measurements)"),
        (1.2, math.inf, " (at least 1.2 by repeated measurements)"),
        (0.0, math.inf, " (repeated measurements differ too much for a range)"),
        (3.0, 3.0, ""),
    ):
        assert str(BreakEven(3.0, low, high)).endswith(f"above 3 reads per commit{interval}")
    assert break_even_of_modes([COPIED], 2) is None


def advice(reads: float | None, *costs: ModeCosts) -> Advice:
    return write_mode_advice(
        table_facts(properties={}), costs or (COPIED, MERGED), "update", reads, 2
    )


def test_the_mode_that_costs_less_at_the_reads_is_advised() -> None:
    granular = replace(MERGED, mode=PER_PARTITION, write_seconds=1.0, seconds_per_delete_file=0.01)

    (change,), _, advised = advice(0.1)
    assert (change.setting, change.proposed) == ("write.update.mode", "merge-on-read")
    assert advised == PER_FILE.name
    assert advice(0.5, COPIED, MERGED, granular)[2] == PER_PARTITION.name


EVEN = break_even_reads(COPIED, MERGED, 2)
NOISY = replace(COPIED, write_error_seconds=4.0), replace(MERGED, write_error_seconds=2.0)


@pytest.mark.parametrize(
    ("reads", "costs", "verdict"),
    [
        (50, (), "No change"),
        (EVEN * 0.99, (), "No change"),
        (EVEN * 0.9, NOISY, "Too close to call"),
        (None, (), "No advice: the number of reads of the table is not known"),
        (1.0, (COPIED,), "No advice: too little was measured"),
    ],
    ids=["many reads", "a small gain", "inside the interval", "no reads", "one mode"],
)
def test_the_mode_stays_where_another_does_not_clearly_cost_less(
    reads: float | None, costs: tuple[ModeCosts, ...], verdict: str
) -> None:
    changes, sentence, advised = advice(reads, *costs)

    assert sentence.startswith(verdict)
    assert not any(change.is_change for change in changes)
    assert advised is None


def test_version_3_is_an_alternative_where_it_saves_more_than_the_error() -> None:
    cheap = replace(VECTORED, write_seconds=1.0, seconds_per_delete_file=0.0)
    noisy = replace(COPIED, write_error_seconds=30.0), replace(MERGED, write_error_seconds=30.0)

    (alternative,) = (c for c in advice(1.0, COPIED, MERGED, cheap)[0] if c.is_alternative)

    assert "'format-version' = '3', 'write.update.mode' = 'merge-on-read'" in alternative.sql[0]
    assert "cannot be undone" in alternative.why
    assert not [c for c in advice(1.0, *noisy, cheap)[0] if c.is_alternative]


@pytest.mark.parametrize(
    ("version", "properties", "mode"),
    [
        (1, {}, COPYING),
        (2, {"write.update.mode": "merge-on-read"}, PER_FILE),
        (
            2,
            {"write.update.mode": "merge-on-read", "write.delete.granularity": "partition"},
            PER_PARTITION,
        ),
        (3, {"write.update.mode": "merge-on-read"}, VECTORS),
    ],
)
def test_the_current_mode_follows_from_properties_and_version(
    version: int, properties: dict[str, str], mode: WriteMode
) -> None:
    facts = table_facts(format_version=version, properties=properties)

    assert current_write_mode(facts, "update") == mode


def trial(scan: float) -> Measurements:
    figures = Measurements(_MEASURES)
    figures.add(COPYING.name, {COMMIT: 9.0, SCAN: 2.0, OPENS: 0})
    figures.add(PER_FILE.name, {COMMIT: 1.0, SCAN: scan, OPENS: 40, COMPACTION: 7.0})
    figures.add(COPYING.name, {SCAN: 2.1})
    figures.add(PER_FILE.name, {SCAN: scan + 0.1})
    return figures


def test_costs_follow_from_the_measurements_and_incomplete_modes_are_left_out() -> None:
    copied, merged = costs_of_write_modes(trial(3.0), (COPYING, PER_FILE, VECTORS), 2, 100)

    assert (copied.write_seconds, copied.scan_seconds, copied.delete_files_opened(5)) == (
        9.0,
        2.0,
        0,
    )
    assert (
        merged.touched_share_per_commit,
        merged.seconds_per_delete_file,
        merged.compaction_seconds,
    ) == (
        0.2,
        1 / 40,
        7.0,
    )
    assert merged.error_seconds_per_delete_file == pytest.approx(0.2 / 40)


def test_scans_are_settled_when_the_deletes_stand_out_from_what_repeats_differ_by() -> None:
    assert do_deletes_stand_out(trial(3.0))
    assert not do_deletes_stand_out(trial(2.7))


@pytest.mark.parametrize(("settles_at", "rounds"), [(1, 2), (4, 4), (99, 6)])
def test_a_workload_is_repeated_until_it_settles_for_three_times_its_rounds_at_most(
    settles_at: int, rounds: int
) -> None:
    experiment = Experiment(trial=Mock(), variants={}, measures=_MEASURES)
    experiment.sandboxes_by_variant["now"] = Mock()

    experiment.measure(
        "scans",
        lambda *_: {SCAN: 1.0},
        min_rounds=2,
        is_settled=lambda measured: len(measured.values_by_variant["now"][SCAN]) >= settles_at,
    )

    assert len(experiment.measurements.values_by_variant["now"][SCAN]) == rounds
