"""Planning is measured on real tables: a fragmented one is fixed, a healthy one left alone, and nothing stays behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.errors import ParameterError
from icekit.sandbox.clones import stale_clones
from icekit.show import tune_charts
from icekit.tune import planning
from icekit.tune.planning import MANIFEST_GAIN, tune_planning

pytestmark = pytest.mark.spark


@pytest.mark.lab("fragmented_manifests")
@pytest.mark.soak
def test_fragmented_manifests_are_worth_rewriting_from_the_time_that_counts(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lab's manifests are on a local disk: how long they take to read says nothing.
    monkeypatch.setattr(planning, "MANIFEST_SECONDS", -1e9)
    before = lake.observe("lab.fragmented_manifests").snapshot_id

    answer = tune_planning(lake, "lab.fragmented_manifests", filters=["carrier = 'HA'"], repeats=1)

    assert answer.rewritten is not None
    assert answer.rewritten.mean_after < MANIFEST_GAIN * answer.rewritten.count_before
    assert answer.rewritten.reads[0].before.data_files == answer.rewritten.reads[0].after.data_files
    assert [a.setting for a in answer.advice if a.is_change] == ["existing manifests"]
    assert {t.name for t in answer.modes} == {"local", "distributed"}
    assert answer.storage.scheme == "file"
    assert answer.write_into(tmp_path).read_text().count("rewrite_manifests") >= 1
    assert tune_charts.manifests_chart(answer).figure is not None
    monkeypatch.setattr(planning, "MANIFEST_SECONDS", 1e9)
    kept = replace(answer, advice=tuple(planning._advice(answer)))
    assert not kept.is_change
    assert kept.verdict().startswith("No change: a rewrite would turn 105 data manifests into 1, but that saves ")
    # The table itself is as it was, and no clone is left.
    assert lake.observe("lab.fragmented_manifests").snapshot_id == before
    assert not stale_clones(lake)


@pytest.mark.parametrize("table", [pytest.param(name, marks=pytest.mark.lab(name)) for name in ("healthy_unpartitioned", "empty")])
def test_what_is_healthy_is_left_alone(lake: Lake, table: str) -> None:
    answer = tune_planning(lake, f"lab.{table}", trial=False, repeats=1)

    assert not answer.is_change
    assert answer.verdict().startswith("No change: ")
    assert answer.script.sql == ()


@pytest.mark.lab("healthy_unpartitioned")
def test_a_trial_ends_at_its_budget_and_says_so(lake: Lake) -> None:
    answer = tune_planning(lake, "lab.healthy_unpartitioned", budget_seconds=1e-9)

    assert answer.stopped is not None
    assert "the trial is incomplete (the time budget of 0.000000001 s ran out)" in repr(answer)


@pytest.mark.lab("empty")
def test_repeats_are_at_least_one(lake: Lake) -> None:
    with pytest.raises(ParameterError, match="repeats is 0"):
        tune_planning(lake, "lab.empty", repeats=0)
