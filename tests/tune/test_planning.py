"""Planning and storage are changed where that was measured to pay, and left alone elsewhere."""

from dataclasses import replace

import pytest

from icekit.api import Lake
from icekit.errors import ParameterError
from icekit.sandbox.stale import stale_clones
from icekit.tune import planning
from icekit.tune.answer import Change, Confidence, InForce, Measurements
from icekit.tune.planning import (
    DISTRIBUTED,
    LOCAL,
    MANIFESTS,
    NOW,
    OPENED,
    PLANNING,
    REWRITTEN,
    Storage,
)
from tests.factories import table_facts

FACTS = table_facts(catalog="lake", table=("db", "events"))
FILES = Storage("file", "HadoopFileIO", 1_000, 0.5, 0.0, 100.0, 10)
S3 = replace(FILES, scheme="s3", file_io="S3FileIO")
AUTO = InForce("default", "the default", "auto")


def measured(**seconds: float) -> Measurements:
    figures = Measurements(planning._MEASURES)
    for variant, name in ((NOW, "now"), (LOCAL, "local"), (DISTRIBUTED, "distributed")):
        if name in seconds:
            figures.add(variant, {PLANNING: seconds[name]})
    return figures


def moded(mode: InForce = AUTO, **seconds: float) -> tuple[Change, ...]:
    return planning.planning_mode(FACTS, measured(**seconds), mode)


def rewritten(before: float, after: float, now: float = 2.0, then: float = 0.5) -> Measurements:
    figures = Measurements(planning._MEASURES)
    figures.add(NOW, {OPENED: before, PLANNING: now, MANIFESTS: 100})
    figures.add(REWRITTEN, {OPENED: after, PLANNING: then, MANIFESTS: 10})
    return figures


def test_planning_moves_to_where_it_was_measured_to_be_faster() -> None:
    (change,) = moded(now=10.0, local=10.0, distributed=4.0)

    assert change.is_change
    assert change.setting == "read.data-planning-mode"
    assert change.proposed == "distributed"


@pytest.mark.parametrize(
    "seconds",
    [(1.0, 1.0, 0.5), (20.0, 20.0, 18.0), (4.0, 9.0, 4.0)],
    ids=["a second", "a quarter", "is there"],
)
def test_a_small_gain_moves_nothing(seconds: tuple[float, float, float]) -> None:
    now, local, distributed = seconds

    assert not any(c.is_change for c in moded(now=now, local=local, distributed=distributed))
    assert not any(c.is_change for c in moded())


def test_a_session_that_overrides_the_table_is_reset_as_well() -> None:
    mode = InForce("session", "spark.sql.iceberg.data-planning-mode", "local")
    changes = moded(mode, now=10.0, local=10.0, distributed=4.0)

    assert [change.sql for change in changes][1:] == [
        ("RESET `spark.sql.iceberg.data-planning-mode`",)
    ]


def test_manifests_are_rewritten_where_queries_open_half_as_many_and_planning_gains_a_second() -> (
    None
):
    change = planning.manifests(FACTS, rewritten(80, 2))

    assert change.sql[0].startswith("CALL `lake`.system.rewrite_manifests(")
    for kept in (
        rewritten(3, 1),
        rewritten(40, 25),
        rewritten(80, 2, 0.8, 0.1),
        rewritten(80, 2, 1.0, 3.0),
        measured(),
    ):
        assert not planning.manifests(FACTS, kept).is_change


def test_paths_are_hashed_where_one_prefix_may_be_asked_too_often() -> None:
    busy = replace(S3, gets_per_second=20_000.0)

    assert planning.object_storage(FACTS, busy).is_change
    assert planning.object_storage(
        FACTS, replace(S3, gets_per_second=5_000.0, puts_per_commit=5_000, largest_prefix_share=1.0)
    ).is_change
    # A backfill of many files by few tasks takes its time.
    for storage in (
        FILES,
        S3,
        replace(busy, hashed_share=1.0),
        replace(busy, scheme="hdfs"),
        replace(S3, puts_per_commit=100_000),
    ):
        assert not planning.object_storage(FACTS, storage).is_change
    assert not planning.object_storage(
        replace(FACTS, properties={"write.object-storage.enabled": "true"}), busy
    ).is_change


@pytest.mark.spark
@pytest.mark.lab("fragmented_manifests")
def test_a_rewrite_of_fragmented_manifests_is_tried_on_a_clone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lab's manifests are on a local disk: how long they take to read says nothing.
    monkeypatch.setattr(planning, "_SECONDS", 0.0)
    monkeypatch.setattr(planning, "_GAIN", -1e9)
    before = lake.observe("lab.fragmented_manifests").snapshot_id

    answer = lake.tune(
        "planning",
        "lab.fragmented_manifests",
        filters=["carrier = 'HA'"],
        repeats=1,
        progress=lambda _: None,
    )

    assert answer.measured.value(NOW, OPENED) == 105
    assert answer.measured.value(REWRITTEN, OPENED) == 1
    assert answer.confidence is Confidence.HIGH
    assert any(c.setting == MANIFESTS and c.is_change for c in answer.changes)
    assert lake.observe("lab.fragmented_manifests").snapshot_id == before
    assert not stale_clones(lake)


@pytest.mark.spark
@pytest.mark.lab("empty")
def test_an_empty_table_has_nothing_to_plan_and_repeats_are_at_least_one(lake: Lake) -> None:
    assert lake.tune("planning", "lab.empty").script.sql == ()
    with pytest.raises(ParameterError, match="repeats is 0"):
        lake.tune("planning", "lab.empty", repeats=0)


@pytest.mark.spark
@pytest.mark.lab("healthy_unpartitioned")
def test_a_trial_ends_at_its_budget_and_answers_nothing(lake: Lake) -> None:
    answer = lake.tune(
        "planning", "lab.healthy_unpartitioned", budget_seconds=1e-9, progress=lambda _: None
    )

    assert answer.confidence is Confidence.NONE
    assert str(answer.stopped).startswith("the time budget of")
    assert not answer.is_change
