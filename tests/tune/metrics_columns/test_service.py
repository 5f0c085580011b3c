"""Metrics of real tables, measured and tried with Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.engine.bridge import load_now
from icekit.engine.planner import PlannedScan
from icekit.errors import ParameterError
from icekit.sandbox import NAMESPACE
from icekit.sandbox.trial import BudgetSpent, Sandbox
from icekit.sql import identifier
from icekit.tune.metrics_columns import MetricsColumns, try_metrics, tune_metrics_columns
from icekit.tune.metrics_columns.advise import Footers
from icekit.tune.metrics_columns.model import COLUMN, DEFAULT
from icekit.tune.queries import names_ever
from tests.trials import trial_of
from tests.workshop import Workshop

pytestmark = pytest.mark.spark


def asked(lake: Lake, table: str, **options: Any) -> MetricsColumns:
    return tune_metrics_columns(lake, table, progress=lambda _: None, **options)


@pytest.fixture(scope="module")
def urls(lake: Lake, workshop: Workshop) -> MetricsColumns:
    workshop.have(["urls"])
    return asked(lake, "lab.urls")


def test_a_table_sorted_by_urls_starts_to_skip_with_longer_bounds(urls: MetricsColumns) -> None:
    skip, prefix = urls.skipping[0], next(p for p in urls.prefixes if p.column == "url")

    # What is simulated for the default is what the planner says of the table.
    assert (skip.column, skip.now, skip.by_mode[0]) == ("url", 12.0, ("truncate(16)", 12.0))
    assert (prefix.common, prefix.colliding) == (41, 1.0)
    assert urls.trial is not None
    assert urls.trial.reads is not None
    before, after = urls.trial.reads
    assert before == 12
    assert after < 2.5
    assert urls.script.sql[0].endswith("SET TBLPROPERTIES ('write.metadata.metrics.column.url' = 'truncate(96)')")


def test_the_table_is_only_read_and_no_clone_is_left(lake: Lake, urls: MetricsColumns) -> None:
    facts = lake.observe("lab.urls")

    assert (facts.snapshot_id, facts.properties) == (urls.facts.snapshot_id, urls.facts.properties)
    assert not [name for name in lake.tables.names() if name[0] == NAMESPACE]


@pytest.mark.lab("wide_table")
@pytest.mark.soak
def test_manifests_of_a_wide_table_shrink_and_no_filter_loses(lake: Lake) -> None:
    answer = asked(lake, "lab.wide_table")

    assert answer.trial is not None
    assert answer.trial.shrinks is not None
    assert answer.trial.shrinks >= 0.6
    assert len(answer.trial.filters) == 16
    assert not answer.trial.losses
    assert dict(next(a for a in answer.advice if a.setting == DEFAULT).properties)[f"{COLUMN}tailnum"] == "truncate(16)"


@pytest.mark.lab("healthy_unpartitioned")
def test_a_healthy_table_is_left_as_it_is_and_not_even_tried(lake: Lake) -> None:
    answer = asked(lake, "lab.healthy_unpartitioned", filters=["dest = 'BOS'", "dest IN ('ATL', 'MIA') AND distance > 500"])

    assert not answer.is_change
    assert answer.trial is None
    assert answer.verdict().startswith("No change: ")
    assert [s.column for s in answer.skipping] == ["dest", "distance"]


@pytest.mark.lab("empty")
def test_a_table_without_data_files_has_nothing_to_measure(lake: Lake) -> None:
    answer = asked(lake, "lab.empty")

    assert not answer.is_change
    assert "no data files" in answer.verdict()


@pytest.mark.lab("urls")
def test_what_is_no_predicate_and_a_budget_that_is_none_are_refused(lake: Lake) -> None:
    with pytest.raises(ParameterError, match="as one expression"):
        asked(lake, "lab.urls", filters=["url LIKE"])
    with pytest.raises(ParameterError, match="no_such_column"):
        asked(lake, "lab.urls", filters=["no_such_column = 1"])
    with pytest.raises(ParameterError, match="budget_seconds cannot be 0"):
        asked(lake, "lab.urls", budget_seconds=0)


@pytest.mark.lab("urls")
def test_measuring_that_runs_out_of_time_says_so_and_advises_nothing(lake: Lake) -> None:
    answer = asked(lake, "lab.urls", budget_seconds=0.0001)

    assert answer.stopped == "the time budget of 0.0001 s ran out"
    assert not answer.is_change
    assert "not fully measured" in answer.advice[0].evidence


def test_of_many_files_some_are_tried_and_the_rest_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch, urls: MetricsColumns) -> None:
    monkeypatch.setattr("icekit.tune.metrics_columns.MOST_FILES", 5)
    shown = try_metrics(
        trial_of(lake, urls.facts),
        {f"{COLUMN}url": "full"},
        [("none", "url = 'nowhere'", 1.0), ("last", "url > 'https://tracking.example.org/v2'", 1.0)],
    )

    assert (shown.files, shown.total_files) == (5, 12)
    # Bounds of sixteen characters rule out a text that begins otherwise, and cannot tell v1 from v2.
    assert [(f.before, f.after) for f in shown.filters] == [(0, 0), (12, 7)]


def test_planning_on_the_clone_is_held_to_the_budget(lake: Lake, monkeypatch: pytest.MonkeyPatch, urls: MetricsColumns) -> None:
    def spent(box: Sandbox, condition: str | None = None) -> PlannedScan:
        raise BudgetSpent("time is up")

    monkeypatch.setattr(Sandbox, "plan", spent)

    assert try_metrics(trial_of(lake, urls.facts), {f"{COLUMN}url": "full"}, []).stopped == "time is up"


@pytest.mark.lab("healthy_unpartitioned")
def test_filters_of_a_scan_report_are_tried_with_values_that_the_table_has(lake: Lake, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    where = {"type": "eq", "term": "dest", "value": "(hash-00000000)"}
    report.write_text(json.dumps({"table-name": "lake.lab.healthy_unpartitioned", "snapshot-id": 1, "filter": where}))

    answer = asked(lake, "lab.healthy_unpartitioned", scan_reports=str(report))

    assert [s.column for s in answer.skipping] == ["dest"]
    assert answer.skipping[0].now is not None
    assert answer.skipping[0].now < 4


@pytest.fixture
def odd(lake: Lake, scratch: str) -> Iterator[tuple[str, ...]]:
    """A table of odd names in two files that somebody has set metrics for."""
    name = (lake.name, scratch, "odd_metrics")
    settings = {f"{COLUMN}a b": "counts", f"{COLUMN}n": "none", f"{COLUMN}t": "full"}
    pairs = ", ".join(f'"{k}" = "{v}"' for k, v in settings.items())
    lake.spark.sql(
        f"CREATE TABLE {identifier(*name)} (n bigint, who struct<`it's`: string>, `a b` string, amount decimal(9,2), t timestamp) "
        f"USING iceberg TBLPROPERTIES ({pairs}, 'icekit.filter-columns' = 'who.it\\'s,amount')"
    )
    for low in (0, 100):
        lake.spark.sql(
            f"INSERT INTO {identifier(*name)} SELECT id, named_struct(\"it's\", concat('tenant-0000000000-', id + 100)), "
            f"if(id % 7 = 0, null, 'x'), id / 4, timestamp_seconds(id) FROM range({low}, {low + 50}, 1, 1)"
        )
    # The files have the old name, the property is renamed with its column.
    lake.spark.sql(f"ALTER TABLE {identifier(*name)} RENAME COLUMN t TO `at`")
    yield name
    lake.spark.sql(f"DROP TABLE {identifier(*name)} PURGE")


def test_footers_tell_what_a_writer_under_the_same_settings_has_written(lake: Lake, odd: tuple[str, ...]) -> None:
    table = load_now(lake.spark, odd)
    java: Any = lake.spark._jvm
    footers = Footers(lake, table)
    facts = lake.observe(odd[1:])
    config = footers.config(names_ever(lake, facts)[0], {c.field_id: c.metrics_mode for c in facts.columns})
    reader = java.org.apache.iceberg.ManifestFiles
    manifests = table.currentSnapshot().dataManifests(table.io())

    files = [reader.read(m, table.io(), table.specs()).iterator().next() for m in manifests]

    assert len(files) == 2
    for file in files:
        told = footers.metrics(str(file.location()), config)
        for name in ("columnSizes", "valueCounts", "nullValueCounts", "lowerBounds", "upperBounds"):
            there = getattr(file, name)()
            assert getattr(told, name)().equals(there), name
            assert there.size() > 0


def test_nested_and_oddly_named_columns_are_measured_and_set_by_their_names(lake: Lake, odd: tuple[str, ...]) -> None:
    answer = asked(lake, f"{odd[1]}.{odd[2]}")

    assert {s.column: s.now for s in answer.skipping} == {"who.it's": 2.0, "amount": 1.0}
    assert {c.column: c.bounded_files for c in answer.entry.columns} == {"who.it's": 2, "amount": 2, "at": 2, "n": 0, "a b": 0}
    # Iceberg refuses a property of a column that it does not find.
    assert next(a for a in answer.advice if a.is_change).properties == ((f"{COLUMN}who.it's", "truncate(24)"),)
    assert answer.trial is not None
    assert {(f.before, f.after) for f in answer.trial.filters if "who" in f.text} == {(2, 1)}
