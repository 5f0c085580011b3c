"""Planning and storage are changed where that was measured to pay, and left alone elsewhere."""

from __future__ import annotations

from dataclasses import replace

from icekit.engine.planner import PlannedScan
from icekit.tune import planning
from icekit.tune.card import in_force
from icekit.tune.planning.measure import PlannedFilter, Rewritten, Storage, Timing
from tests import factories
from tests.tune.planning.test_mode import LARGE, MB, stated

TABLE = ("lake", "db", "events")
FACTS = factories.table_facts(catalog="lake", table=TABLE[1:])
FILES = Storage("file", "HadoopFileIO", False, 1_000, 10, 10, 0.5, 0.0, 0, 100.0, 10, None)
S3 = replace(FILES, scheme="s3", file_io="S3FileIO")


def timings(local: float, distributed: float) -> list[Timing]:
    return [Timing("local", local), Timing("distributed", distributed)]


def rewritten(before: int, after: int, seconds: float = 2.0) -> Rewritten:
    whole = PlannedFilter(None, 1.0, PlannedScan(50, 1, 0, 100, 0, seconds), PlannedScan(50, 1, 0, 10, 0, 0.5))
    asked = PlannedFilter("a = 1", 2.0, PlannedScan(5, 1, 0, before, 0, 1.0), PlannedScan(5, 1, 0, after, 0, 0.1))
    return Rewritten(100, 10, 10 * MB, 9 * MB, (whole, asked))


def test_planning_moves_to_where_it_was_measured_to_be_faster() -> None:
    (advice,) = planning.planning_mode(FACTS, stated("local"), timings(10.0, 4.0))

    assert dict(advice.properties) == {"read.delete-planning-mode": "distributed", "read.data-planning-mode": "distributed"}
    assert advice.setting == "read.data-planning-mode"
    assert advice.verified is not None
    assert "4.00 s on the executors" in advice.verified


def test_a_difference_within_noise_moves_nothing() -> None:
    assert not planning.planning_mode(FACTS, stated("local"), timings(1.0, 0.5))[0].is_change
    assert not planning.planning_mode(FACTS, stated("local"), timings(20.0, 18.0))[0].is_change
    assert not planning.planning_mode(FACTS, LARGE, timings(9.0, 4.0))[0].is_change
    assert not planning.planning_mode(FACTS, LARGE, [])[0].is_change


def test_a_session_that_overrides_the_table_is_reset_as_well() -> None:
    session = [("spark.sql.iceberg.data-planning-mode", "local")]
    advice = planning.planning_mode(FACTS, replace(LARGE, data_mode=in_force("m", session=session)), timings(10.0, 4.0))

    assert [a.sql for a in advice][1:] == ["RESET `spark.sql.iceberg.data-planning-mode`"]
    assert advice[1].undo == "SET `spark.sql.iceberg.data-planning-mode` = `local`"


def test_a_session_that_takes_no_results_is_told_what_to_raise() -> None:
    (advice,) = planning.planning_mode(FACTS, replace(LARGE, max_result_bytes=MB), timings(10.0, 4.0))

    assert (advice.setting, advice.current, advice.proposed) == ("spark.driver.maxResultSize", "1 MiB", "256 MiB")
    assert advice.sql is None


def test_threads_are_named_where_storage_is_waited_for() -> None:
    slow = [Timing("1", 40.0), Timing("2", 20.0), Timing("4", 10.0), Timing("8", 5.0), Timing("16", 2.5)]
    few = replace(stated("local"), threads=2)
    (advice,) = planning.worker_threads(few, slow)

    assert (advice.current, advice.proposed) == ("2", "16")
    assert planning.worker_threads(replace(few, threads=16), slow) == ()
    assert planning.worker_threads(few, [Timing("1", 0.5), Timing("2", 0.4), Timing("4", 0.1)]) == ()
    assert planning.worker_threads(LARGE, slow) == ()
    assert planning.worker_threads(few, []) == ()


def test_manifests_are_rewritten_where_queries_open_far_fewer() -> None:
    advice = planning.manifests(FACTS, rewritten(80, 2))

    assert advice.sql is not None
    assert advice.sql.startswith("CALL `lake`.system.rewrite_manifests(")
    assert "80 of 100" in advice.evidence


def test_manifests_are_left_where_planning_gains_less_than_a_second() -> None:
    advice = planning.manifests(FACTS, rewritten(80, 2, seconds=0.8))

    assert not advice.is_change
    # The filter's planning gains more than that of the full scan.
    assert "that saves 0.90 s of planning, and a rewrite is advised from 1 s." in advice.evidence
    assert advice.verified is not None


def test_a_rewrite_that_gains_no_time_says_so() -> None:
    whole, asked = rewritten(80, 2).reads
    slower = replace(rewritten(80, 2), reads=tuple(replace(r, after=replace(r.after, seconds=3.0)) for r in (whole, asked)))

    assert not planning.manifests(FACTS, slower).is_change
    assert "that saves no time of planning" in planning.manifests(FACTS, slower).evidence


def test_manifests_that_filters_skip_already_are_left() -> None:
    assert not planning.manifests(FACTS, rewritten(3, 1)).is_change
    assert not planning.manifests(FACTS, rewritten(40, 25)).is_change
    assert not planning.manifests(FACTS, None).is_change


def test_paths_are_hashed_where_one_prefix_may_be_asked_too_often() -> None:
    assert planning.object_storage(FACTS, replace(S3, gets_per_second=20_000.0)).is_change
    assert planning.object_storage(FACTS, replace(S3, gets_per_second=5_000.0, puts_per_commit=5_000, largest_prefix_share=1.0)).is_change


def test_paths_stay_on_file_systems_at_low_rates_and_where_they_are_hashed() -> None:
    busy = replace(S3, gets_per_second=20_000.0)
    # A backfill of many files by few tasks takes its time.
    assert not replace(S3, puts_per_commit=100_000).is_at_risk
    for storage in (FILES, S3, replace(busy, is_enabled=True), replace(busy, hashed_share=1.0), replace(busy, scheme="hdfs")):
        assert not planning.object_storage(FACTS, storage).is_change
