"""Planning and storage are changed where that was measured to pay, and left alone elsewhere."""

from dataclasses import replace

import pytest

from icekit.api import Lake
from icekit.sandbox.scratch import stale_clones
from icekit.tune import planning
from icekit.tune.answer import Change, Confidence, Measurements, SettingInForce
from icekit.tune.planning import (
    DISTRIBUTED,
    MANIFESTS,
    NOW,
    OPENED,
    PLANNING,
    REWRITTEN,
    TableStorage,
)
from tests.factories import table_facts

FACTS = table_facts(catalog="lake", table=("db", "events"))
FILES = TableStorage("file", "HadoopFileIO", largest_prefix_share=0.5, max_gets_per_second=20_000.0)
S3 = replace(FILES, scheme="s3", file_io_class="S3FileIO")
AUTO = SettingInForce("read.data-planning-mode", "auto", "the default")


def measured(**seconds: float) -> Measurements:
    figures = Measurements(planning._MEASURES)
    for name, value in seconds.items():
        figures.add(name, {PLANNING: value})
    return figures


def moded(mode: SettingInForce = AUTO, **seconds: float) -> list[Change]:
    return planning.planning_mode_changes(FACTS, measured(**seconds), mode)


def rewritten(before: float, after: float, now: float = 2.0, then: float = 0.5) -> Measurements:
    figures = Measurements(planning._MEASURES)
    figures.add(NOW, {OPENED: before, PLANNING: now, MANIFESTS: 100})
    figures.add(REWRITTEN, {OPENED: after, PLANNING: then, MANIFESTS: 10})
    return figures


def test_planning_moves_to_where_it_was_measured_to_be_faster() -> None:
    session = SettingInForce("spark.sql.iceberg.data-planning-mode", "local", "session", True)

    change, reset = moded(session, now=10.0, local=10.0, distributed=4.0)

    assert change.setting == "read.data-planning-mode"
    assert change.proposed == DISTRIBUTED
    assert reset.sql == ("RESET `spark.sql.iceberg.data-planning-mode`",)


@pytest.mark.parametrize(
    "seconds",
    [(1.0, 1.0, 0.5), (20.0, 20.0, 18.0), (4.0, 9.0, 4.0)],
    ids=["a second", "a quarter", "is there"],
)
def test_a_small_gain_moves_nothing(seconds: tuple[float, float, float]) -> None:
    now, local, distributed = seconds

    assert not any(c.is_change for c in moded(now=now, local=local, distributed=distributed))
    assert not any(c.is_change for c in moded())


def test_manifests_are_rewritten_where_queries_open_half_as_many_and_planning_gains_a_second() -> (
    None
):
    change = planning.manifests_change(FACTS, rewritten(80, 2))

    assert change.sql[0].startswith("CALL `lake`.system.rewrite_manifests(")
    for kept in (
        rewritten(3, 1),
        rewritten(40, 25),
        rewritten(80, 2, 0.8, 0.1),
        rewritten(80, 2, 1.0, 3.0),
        measured(),
    ):
        assert not planning.manifests_change(FACTS, kept).is_change


def test_paths_are_hashed_where_one_prefix_may_be_asked_too_often() -> None:
    is_hashed = replace(FACTS, properties={"write.object-storage.enabled": "true"})

    assert planning.object_storage_change(FACTS, S3).is_change
    for storage in (
        FILES,
        replace(S3, max_gets_per_second=100.0),
        replace(S3, largest_prefix_share=1 / 16),
    ):
        assert not planning.object_storage_change(FACTS, storage).is_change
    assert not planning.object_storage_change(is_hashed, S3).is_change


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
