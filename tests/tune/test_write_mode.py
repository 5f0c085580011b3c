"""The write mode that costs less at the table's reads is advised, where the measurements can tell;
pure.
"""

import math

import pytest

from icekit.tune.answer import Measurements
from icekit.tune.write_cost import BreakEven, Costs, Mode, best_cycle, break_even, interval_of
from icekit.tune.write_mode import (
    _MEASURES,
    COMMIT,
    COMPACTION,
    OPENS,
    SCAN,
    advise,
    costs_of,
    current_mode,
    is_settled,
)
from tests.factories import table_facts

COPYING, PER_FILE, VECTORS = (
    Mode("copy-on-write", 2),
    Mode("merge-on-read", 2, "file"),
    Mode("merge-on-read", 3),
)


def copying(**given: float) -> Costs:
    return Costs(COPYING, **{"write": 20.0, "scan": 2.0, "data_files": 100, **given})  # type: ignore[arg-type]


def merging(mode: Mode = PER_FILE, **given: float) -> Costs:
    return Costs(
        mode,
        **{  # type: ignore[arg-type]
            "write": 4.0,
            "scan": 2.0,
            "data_files": 100,
            "open_seconds": 0.1,
            "touched": 0.5,
            "compaction": 10.0,
            **given,
        },
    )


def test_position_deletes_pile_up_and_a_data_file_has_at_most_one_vector() -> None:
    assert [merging().opens(n) for n in (1, 2, 10)] == [50, 100, 500]
    assert [merging(VECTORS).opens(n) for n in (1, 2)] == [50, 75]
    assert merging(VECTORS).opens(50) == pytest.approx(100)


def test_a_commit_costs_its_write_the_reads_after_it_and_its_share_of_the_compaction() -> None:
    # Scans open 50 and 100 delete files, and the compaction of two commits reaches 75 instead of 50
    # % of the files.
    assert merging().per_commit(3, 2) == pytest.approx(4 + 3 * (2 + 0.1 * 75) + 15 / 2)
    assert copying().per_commit(3, 2) == 20 + 3 * 2


def test_the_break_even_point_is_where_both_cost_the_same() -> None:
    reads = break_even(copying(), merging(), 2)

    assert merging().per_commit(reads, 2) == pytest.approx(copying().per_commit(reads, 2))
    assert break_even(copying(write=1.0), merging(), 2) == 0.0
    assert math.isinf(break_even(copying(), merging(open_seconds=0.0), 2))


def test_the_interval_of_the_break_even_point_holds_what_repeats_differed_by() -> None:
    even = interval_of([copying(write_error=1.0), merging(open_error=0.01)], 2)

    assert even is not None
    assert even.low < even.reads < even.high
    assert even.is_close(even.reads)
    assert not BreakEven(3.0, 3.0, 3.0).is_close(3.0)
    assert interval_of([copying()], 2) is None


def test_the_cheapest_interval_between_compactions_falls_with_the_reads() -> None:
    assert best_cycle(copying(), 5) == 1
    assert best_cycle(merging(), 0.001) > best_cycle(merging(), 0.1) > best_cycle(merging(), 10)


def advice(
    reads: float | None, *costs: Costs, **properties: str
) -> tuple[dict[str, str], str, str | None]:
    facts = table_facts(properties=properties)
    changes, verdict, advised = advise(facts, costs or (copying(), merging()), "update", reads, 2)
    return {c.setting: str(c.proposed) for c in changes if c.is_change}, verdict, advised


def test_merge_on_read_is_advised_below_the_break_even_point_and_kept_out_above() -> None:
    few, many = advice(0.1), advice(50)

    assert few[0] == {"write.update.mode": "merge-on-read"}
    assert few[2] == "position deletes per file"
    assert many[0] == {}
    assert many[1].startswith("No change")


def test_nothing_is_advised_inside_the_interval_without_reads_or_for_a_small_gain() -> None:
    even = break_even(copying(), merging(), 2)

    assert advice(even * 0.9, copying(write_error=4.0), merging(write_error=2.0))[1].startswith(
        "Too close to call"
    )
    assert advice(None)[1].startswith("No advice: the number of reads of the table is not known")
    assert advice(even * 0.99)[0] == {}
    assert advice(1.0, copying())[1].startswith("No advice: too little was measured")


def test_deletes_per_partition_are_advised_where_they_cost_less() -> None:
    granular = merging(Mode("merge-on-read", 2, "partition"), write=1.0, open_seconds=0.01)

    changes, _, advised = advice(
        0.5, copying(), merging(), granular, **{"write.update.mode": "merge-on-read"}
    )

    assert changes["write.update.mode"] == "merge-on-read"
    assert advised == "position deletes per partition"


def test_version_3_is_an_alternative_where_it_saves_more_than_the_error() -> None:
    facts = table_facts(properties={})
    saves = advise(
        facts,
        (copying(), merging(), merging(VECTORS, write=1.0, open_seconds=0.0)),
        "update",
        1.0,
        2,
    )[0]
    within = advise(
        facts,
        (copying(write_error=30.0), merging(write_error=30.0), merging(VECTORS, write=1.0)),
        "update",
        1.0,
        2,
    )[0]

    (alternative,) = (c for c in saves if c.setting == "format-version")
    assert alternative.is_alternative
    assert "cannot be undone" in alternative.why
    assert not [c for c in within if c.setting == "format-version"]


@pytest.mark.parametrize(
    ("version", "properties", "mode"),
    [
        (1, {}, COPYING),
        (2, {"write.update.mode": "merge-on-read"}, PER_FILE),
        (
            2,
            {"write.update.mode": "merge-on-read", "write.delete.granularity": "partition"},
            Mode("merge-on-read", 2, "partition"),
        ),
        (3, {"write.update.mode": "merge-on-read"}, VECTORS),
    ],
)
def test_the_current_mode_follows_from_properties_and_version(
    version: int, properties: dict[str, str], mode: Mode
) -> None:
    assert (
        current_mode(table_facts(format_version=version, properties=properties), "update") == mode
    )


def measured(scan: float, repeats: float = 0.0) -> Measurements:
    figures = Measurements(_MEASURES)
    figures.add("copy-on-write", {COMMIT: 9.0, SCAN: 2.0, OPENS: 0})
    figures.add("position deletes per file", {COMMIT: 1.0, SCAN: scan, OPENS: 40, COMPACTION: 7.0})
    figures.add("copy-on-write", {SCAN: 2.0 + repeats})
    figures.add("position deletes per file", {SCAN: scan + repeats})
    return figures


def test_costs_follow_from_the_measurements_and_incomplete_modes_are_left_out() -> None:
    copied, merged = costs_of(measured(3.0, 0.1), (COPYING, PER_FILE, VECTORS), 2, 100)

    assert copied.write == 9.0
    assert copied.scan == 2.0
    assert copied.opens(5) == 0
    assert merged.touched == 0.2
    assert merged.open_seconds == 1 / 40
    assert merged.compaction == 7.0
    assert merged.open_error == pytest.approx(0.2 / 40)


def test_scans_are_repeated_until_the_deletes_stand_out() -> None:
    assert is_settled(measured(3.0, 0.1))
    assert not is_settled(measured(2.1, 0.1))
