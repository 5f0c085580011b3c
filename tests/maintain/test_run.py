"""Maintenance runs on real tables, loses nothing, and says how it knows."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.bridge import load_now
from icekit.engine.interrupting import Stop
from icekit.errors import ParameterError
from icekit.facts.head import head
from icekit.facts.naming import referenced, wanted
from icekit.facts.retention import Retention, retained
from icekit.maintain.plan import PROCEDURES, plan_maintenance_table
from icekit.prove.fingerprint import fingerprint
from icekit.prove.maintenance import prove_entries, prove_live
from icekit.run.checkpointed import guard_of
from icekit.run.verbs import run
from icekit.sql import call, display_name, identifier
from tests.resolve.tables import Table

pytestmark = pytest.mark.spark

LIMITS = Thresholds(snapshots=5, fragmented_manifests=3)
Make = Callable[..., Any]


def plan_of(
    lake: Lake,
    table: tuple[str, ...],
    only: str | None = None,
    retention: Retention | None = None,
    **options: Any,
) -> Any:
    facts = lake.observe(table, storage=True, size_ratios=LIMITS.size_ratios)
    findings = diagnose(facts, LIMITS)
    chosen = findings if only is None else Findings(f for f in findings if f.name == only)
    return plan_maintenance_table(
        lake, facts, chosen, retention, thresholds=LIMITS, procedures=PROCEDURES, **options
    )


def test_everything_is_fixed_in_order_and_proved(
    lake: Lake, sick: Make, aged: Make, lose: Make, go: Make
) -> None:
    table = sick()
    aged(table)
    name = identifier(lake.name, *table)
    first = head(lake, table).metadata["snapshots"][2]["snapshot-id"]
    lake.spark.sql(f"ALTER TABLE {name} CREATE TAG audit AS OF VERSION {first}")
    lost = lose(table)
    before = fingerprint(lake.spark, lake.sql_name(table))
    plan = plan_of(lake, table, retention=Retention(keep_last=3))

    outcome = go(plan)

    assert [a.action.procedure for a in outcome.actions] == [
        "rewrite_position_delete_files",
        "rewrite_manifests",
        "expire_snapshots",
        "remove_orphan_files",
    ]
    assert outcome.status == "done", outcome
    assert outcome.proof.ok is True
    deletes, manifests, expired, orphans = outcome.actions
    # What was predicted is what came.
    for one in outcome.actions:
        assert one.actual.items_after == one.action.prediction.files_out or one is expired
    assert deletes.actual.items_before == 12
    assert deletes.actual.items_after == 2
    assert manifests.actual.items_after == 2
    assert expired.actual.items_before == 12
    assert orphans.actual.items_before == 1
    assert orphans.actual.items_after == 0
    assert not lost.exists()
    assert fingerprint(lake.spark, lake.sql_name(table)) == before
    assert head(lake, table).metadata["refs"]["audit"]["snapshot-id"] == first
    assert plan_of(lake, table, retention=Retention(keep_last=3)).actions == ()


def test_a_dry_run_changes_nothing(lake: Lake, sick: Make, aged: Make, lose: Make) -> None:
    table = sick()
    aged(table)
    lost = lose(table)
    before = lake.tables.source(table).metadata_location
    plan = plan_of(lake, table)

    assert run(lake, plan).is_dry_run
    assert lost.exists()
    assert lake.tables.source(table).metadata_location == before


@pytest.mark.parametrize("retain_last", [1, 3])
@pytest.mark.parametrize("cut", [2, 6, 9])
def test_what_expires_is_what_iceberg_expires(
    lake: Lake, sick: Make, retain_last: int, cut: int
) -> None:
    table = sick()
    name, system = identifier(lake.name, *table), f"CALL {identifier(lake.name)}.system"
    ids = [s["snapshot-id"] for s in head(lake, table).metadata["snapshots"]]
    sql = lake.spark.sql
    for ref in (
        f"TAG kept AS OF VERSION {ids[1]}",
        f"TAG fleeting AS OF VERSION {ids[2]}",
        f"BRANCH side AS OF VERSION {ids[4]} WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
        f"BRANCH young AS OF VERSION {ids[5]}",
    ):
        sql(f"ALTER TABLE {name} CREATE {ref}")
    sql(f"INSERT INTO {name}.branch_young SELECT 1, 1, 2")
    java: Any = load_now(lake.spark, lake.sql_name(table))
    java.manageSnapshots().setMaxRefAgeMs("fleeting", 1).setMaxSnapshotAgeMs(
        "young", 1
    ).setMinSnapshotsToKeep("young", 2).commit()
    # Left behind by a rollback: on no branch any more.
    sql(f"{system}.rollback_to_snapshot('{'.'.join(table)}', {ids[-3]})")
    sql(f"REFRESH TABLE {name}")
    metadata = head(lake, table).metadata
    older_than_ms = metadata["snapshots"][cut]["timestamp-ms"]
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    predicted = retained(metadata, older_than_ms, retain_last, now_ms)

    moment = dt.datetime.fromtimestamp(older_than_ms / 1000, dt.UTC).isoformat(" ", "milliseconds")
    sql(
        f"{system}.expire_snapshots(table => '{'.'.join(table)}', retain_last => {retain_last}, "
        f"older_than => TIMESTAMP '{moment}')"
    )

    after = head(lake, table).metadata
    assert {s["snapshot-id"] for s in after["snapshots"]} == set(predicted.kept)
    assert set(after["refs"]) == set(predicted.refs)
    assert predicted.refs_dropped == ("fleeting",)


def test_nothing_young_expires_even_if_a_plan_says_so(
    lake: Lake, sick: Make, aged: Make, go: Make
) -> None:
    table = sick()
    aged(table)
    plan = plan_of(lake, table, "snapshots_piling_up", Retention(keep_last=3))
    now = replace(
        plan, actions=tuple(replace(a, older_than=dt.datetime.now(dt.UTC)) for a in plan.actions)
    )

    outcome = go(now)

    assert outcome.status == "failed"
    assert "never expire" in (outcome.actions[0].error or "")
    assert len(head(lake, table).metadata["snapshots"]) == 10


def test_expiry_run_twice_takes_nothing_more(lake: Lake, sick: Make, aged: Make, go: Make) -> None:
    table = sick()
    aged(table)
    plan = plan_of(lake, table, "snapshots_piling_up", Retention(keep_last=3))

    first, second = (go(plan) for _ in range(2))

    assert first.actions[0].actual.items_before == 10
    assert first.actions[0].actual.items_after == 3
    assert first.actions[0].actual.items_after == plan.actions[0].prediction.files_out
    assert second.actions[0].status == "skipped"


def test_orphans_are_left_where_the_listing_has_grown(
    lake: Lake, sick: Make, lose: Make, go: Make
) -> None:
    table = sick()
    lose(table, "a.parquet")
    plan = plan_of(lake, table, "orphan_files")
    lost = [lose(table, f"{n}.parquet") for n in range(3)]

    outcome = go(plan)

    assert outcome.status == "failed"
    assert "plan again" in (outcome.actions[0].error or "")
    assert all(path.exists() for path in lost)


def test_young_files_are_no_orphans(lake: Lake, sick: Make, lose: Make, go: Make) -> None:
    table = sick()
    young, old = lose(table, "young.parquet", days=1), lose(table, "old.parquet")

    outcome = go(plan_of(lake, table, "orphan_files"))

    assert outcome.status == "done", outcome
    assert young.exists()
    assert not old.exists()


def test_only_the_checked_list_is_removed(lake: Lake, sick: Make, lose: Make) -> None:
    table = sick()
    listed = lose(table, "listed.parquet")
    (action,) = plan_of(lake, table, "orphan_files").actions
    guard = guard_of(lake, action, lambda _: None, Stop())
    ready = guard.ready()
    later = lose(table, "later.parquet")

    assert ready is not None
    lake.spark.sql(ready.sql)
    guard.close()

    assert not listed.exists()
    assert later.exists()


def test_a_path_that_metadata_names_is_told_from_one_that_it_does_not(
    lake: Lake, sick: Make
) -> None:
    table = sick()
    metadata = head(lake, table).metadata
    manifests = lake.spark.sql(
        f"SELECT path FROM {identifier(lake.name, *table, 'manifests')} LIMIT 1"
    ).collect()[0][0]
    named = [
        metadata["snapshots"][0]["manifest-list"],
        manifests,
        metadata["metadata-log"][0]["metadata-file"],
    ]
    paths = lake.spark.createDataFrame(
        [
            (p,)
            for p in (
                "/nowhere/x.parquet",
                *(f"s3://other{p.removeprefix('file:')}" for p in named),
            )
        ],
        "file_path string",
    )

    assert referenced(lake, table, wanted(lake.spark, paths)) == sorted(
        f"s3://other{p.removeprefix('file:')}" for p in named
    )


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rewriting_manifests_keeps_every_entry(
    lake: Lake, scratch: str, version: int, go: Make
) -> None:
    name = identifier(lake.name, scratch, f"v{version}")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, k INT) USING iceberg PARTITIONED BY (k) TBLPROPERTIES "
        f"('format-version'='{version}', 'commit.manifest-merge.enabled'='false', "
        "'icekit.filter-columns'='k')"
    )
    for n in range(6):
        lake.spark.sql(
            f"INSERT INTO {name} SELECT id, CAST(id % 3 AS INT) FROM range({n * 10}, {n * 10 + 10})"
        )
    plan = plan_of(lake, (scratch, f"v{version}"), "fragmented_manifests")

    outcome = go(plan)

    assert outcome.status == "done", outcome
    assert outcome.proof.ok is True, outcome.proof
    assert outcome.actions[0].actual.items_before == 6
    assert outcome.actions[0].actual.items_after == 1
    assert "sort_by => array('k')" in outcome.actions[0].action.sql


def test_a_commit_that_adds_rows_is_no_rewrite_of_manifests(lake: Lake, sick: Make) -> None:
    table = sick()
    commit = head(lake, table).metadata["snapshots"][3]["snapshot-id"]

    proof = prove_entries(lake, table, [commit])

    assert proof.ok is False
    assert "NOT THE SAME" in repr(proof)


def test_a_live_file_that_is_gone_is_noticed(lake: Lake, sick: Make) -> None:
    table = sick()
    path = lake.spark.sql(
        f"SELECT file_path FROM {identifier(lake.name, *table, 'files')} WHERE content = 0"
    ).collect()[0][0]
    Path(path.removeprefix("file:")).unlink()

    proof = prove_live(lake, table, "remove_orphan_files")

    assert proof.ok is False
    assert path in repr(proof)


def test_position_deletes_become_vectors_after_an_upgrade(lake: Lake, sick: Make, go: Make) -> None:
    table = sick()
    lake.spark.sql(
        f"ALTER TABLE {identifier(lake.name, *table)} SET TBLPROPERTIES ('format-version'='3')"
    )
    facts = lake.observe(table)
    found = Findings(
        f
        for f in diagnose(facts, LIMITS.with_changes(delete_ratio=0.001))
        if f.name == "position_deletes"
    )
    plan = plan_maintenance_table(lake, facts, found)

    outcome = go(plan)

    assert outcome.status == "done", outcome
    assert outcome.proof.ok is True
    formats = lake.spark.sql(
        f"SELECT DISTINCT file_format FROM {identifier(lake.name, *table, 'delete_files')}"
    ).collect()
    assert [row[0] for row in formats] == ["PUFFIN"]
    assert outcome.actions[0].actual.items_after == plan.actions[0].prediction.files_out


def test_a_need_that_is_not_met_stops_the_plan(lake: Lake, sick: Make, aged: Make) -> None:
    table = sick()
    aged(table)

    with pytest.raises(ParameterError, match=r"Set keep_hours .--keep. to 240 hours"):
        plan_of(lake, table, "snapshots_piling_up", Retention(keep_last=2, need_hours=240))


def test_position_deletes_of_files_that_are_gone_are_dropped_and_the_prediction_allows_for_it(
    lake: Lake, scratch: str, go: Make
) -> None:
    """A compaction of some files leaves the deletes of these; older files keep the deletes from
    looking old.
    """
    table = Table(lake, scratch, "gone").create()
    for n in range(7):
        table.insert(f"(SELECT id, 'a' FROM range({10 * n}, {10 * n + 10}))")
    for n in range(1, 7):
        table.sql(f"DELETE FROM {{t}} WHERE id = {10 * n}")
    options = {"rewrite-all": "true"}
    lake.spark.sql(
        call(
            lake.name,
            "rewrite_data_files",
            table=display_name(table.name),
            where="id >= 30",
            options=options,
        )
    ).collect()
    plan = plan_of(lake, table.name, "v2_position_deletes")

    outcome = go(plan)

    (deletes,) = outcome.actions
    assert deletes.actual.items_before == 6
    assert deletes.action.prediction.files_in == 6
    assert deletes.actual.items_after == 2
    assert deletes.action.prediction.is_maximum
    assert "at most" in repr(plan)
    assert outcome.proof.ok is True
