"""Maintenance runs on real tables, loses nothing, and says how it knows."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from icekit.engine.bridge import load_latest_table
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.head import head
from icekit.health.facts.retention import Retention, retained_snapshots
from icekit.health.storage.file_references import lookup_files, referenced_paths
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.maintain.plan import Plan
from icekit.maintain.planning.maintenance import DEFAULT_PROCEDURES, PROCEDURES
from icekit.maintain.prediction import Certainty
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.guard import OrphanGuard
from icekit.maintain.run.maintenance_proof import prove_entries
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.outcome import ActionOutcome
from tests.maintain.tables import MERGE_ON_READ, Named, Table, is_proved

pytestmark = pytest.mark.spark

LIMITS = Thresholds(snapshots=5, fragmented_manifests=3)
Make = Callable[..., Any]


def planned(table: Table, *procedures: str, keep_last: int | None = None) -> Plan:
    return table.maintenance(
        *(procedures or PROCEDURES),
        storage=True,
        retention=Retention(keep_last=keep_last),
        thresholds=LIMITS,
    )


def metadata_of(table: Table) -> Any:
    return head(table.lake, table.name).metadata


def proved(table: Table, plan: Plan) -> tuple[ActionOutcome, ...]:
    """Run a plan: it is done and proved."""
    return is_proved(table.run(plan)).actions


@pytest.mark.slow
def test_everything_is_fixed_in_order_and_proved(neglected: Table, aged: Make, lose: Make) -> None:
    aged(neglected)
    first = neglected.snapshots()[2]
    neglected.sql(f"ALTER TABLE {{t}} CREATE TAG audit AS OF VERSION {first}")
    lost = lose(neglected)
    before, here = neglected.rows(), neglected.lake.tables.source(neglected.name).metadata_location
    plan = planned(neglected, keep_last=3)
    assert neglected.run(plan, execute=False).is_dry_run
    assert lost.exists()
    assert neglected.lake.tables.source(neglected.name).metadata_location == here

    actions = proved(neglected, plan)

    assert [a.action.procedure for a in actions] == [
        "rewrite_position_delete_files",
        "rewrite_manifests",
        "expire_snapshots",
        "remove_orphan_files",
    ]
    deletes, manifests, expired, orphans = actions
    # What was predicted is what came.
    for one in actions:
        assert one.actual.items_after == one.action.prediction.files_out or one is expired
    assert [(a.actual.items_before, a.actual.items_after) for a in (deletes, orphans)] == [
        (12, 2),
        (1, 0),
    ]
    assert (manifests.actual.items_after, expired.actual.items_before) == (2, 12)
    assert not lost.exists()
    assert neglected.rows() == before
    assert metadata_of(neglected)["refs"]["audit"]["snapshot-id"] == first
    assert planned(neglected, keep_last=3).actions == ()


@pytest.mark.parametrize("retain_last", [1, 3])
@pytest.mark.parametrize("cut", [2, 6, 9])
def test_what_expires_is_what_iceberg_expires(neglected: Table, retain_last: int, cut: int) -> None:
    ids = neglected.snapshots()
    for ref in (
        f"TAG kept AS OF VERSION {ids[1]}",
        f"TAG fleeting AS OF VERSION {ids[2]}",
        f"BRANCH side AS OF VERSION {ids[4]} WITH SNAPSHOT RETENTION 2 SNAPSHOTS",
        f"BRANCH young AS OF VERSION {ids[5]}",
    ):
        neglected.sql(f"ALTER TABLE {{t}} CREATE {ref}")
    neglected.sql(f"INSERT INTO {neglected.sql_name}.branch_young SELECT 1, 1, 2")
    java: Any = load_latest_table(neglected.spark, neglected.full)
    java.manageSnapshots().setMaxRefAgeMs("fleeting", 1).setMaxSnapshotAgeMs(
        "young", 1
    ).setMinSnapshotsToKeep("young", 2).commit()
    # Left behind by a rollback: on no branch any more.
    neglected.call("rollback_to_snapshot", f"snapshot_id => {ids[-3]}")
    neglected.sql("REFRESH TABLE {t}")
    metadata = metadata_of(neglected)
    older_than_ms = metadata["snapshots"][cut]["timestamp-ms"]
    now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    predicted = retained_snapshots(metadata, older_than_ms, retain_last, now_ms)

    moment = dt.datetime.fromtimestamp(older_than_ms / 1000, dt.UTC).isoformat(" ", "milliseconds")
    neglected.call(
        "expire_snapshots",
        f"retain_last => {retain_last}",
        f"older_than => TIMESTAMP '{moment}'",
    )

    after = metadata_of(neglected)
    assert {s["snapshot-id"] for s in after["snapshots"]} == set(predicted.remaining_ids)
    assert set(after["refs"]) == set(predicted.remaining_refs)
    assert predicted.expired_refs == ("fleeting",)


@pytest.mark.core
def test_nothing_young_expires_even_if_a_plan_says_so(neglected: Table, aged: Make) -> None:
    aged(neglected)
    plan = planned(neglected, "expire_snapshots", keep_last=3)
    now = dt.datetime.now(dt.UTC)

    outcome = neglected.run(
        replace(plan, actions=tuple(replace(a, older_than=now) for a in plan.actions))
    )

    assert outcome.status == "failed"
    assert "never expire" in (outcome.actions[0].error or "")
    assert len(neglected.snapshots()) == 10


def test_expiry_run_twice_takes_nothing_more(neglected: Table, aged: Make) -> None:
    aged(neglected)
    plan = planned(neglected, "expire_snapshots", keep_last=3)

    first, second = (neglected.run(plan).actions[0] for _ in range(2))

    assert first.actual.items_before == 10
    assert first.actual.items_after == plan.actions[0].prediction.files_out == 3
    assert second.status == "skipped"


@pytest.mark.core
def test_orphans_are_left_where_the_listing_has_grown(neglected: Table, lose: Make) -> None:
    lose(neglected, "a.parquet")
    plan = planned(neglected, "remove_orphan_files")
    lost = [lose(neglected, f"{n}.parquet") for n in range(3)]

    outcome = neglected.run(plan)

    assert outcome.status == "failed"
    assert "plan again" in (outcome.actions[0].error or "")
    assert all(path.exists() for path in lost)


@pytest.mark.slow
def test_young_files_are_no_orphans(neglected: Table, lose: Make) -> None:
    young, old = lose(neglected, "young.parquet", days=1), lose(neglected, "old.parquet")

    proved(neglected, planned(neglected, "remove_orphan_files"))

    assert young.exists()
    assert not old.exists()


@pytest.mark.core
def test_only_the_checked_list_is_removed(neglected: Table, lose: Make) -> None:
    listed = lose(neglected, "listed.parquet")
    (action,) = planned(neglected, "remove_orphan_files").actions
    progress = ActionProgress(action, None, 0)
    guard = OrphanGuard(neglected.lake, RunSettings(say=lambda _: None), progress)
    ready = guard.action_to_run()
    later = lose(neglected, "later.parquet")

    assert ready is not None
    neglected.sql(ready.sql)
    guard.close()

    assert not listed.exists()
    assert later.exists()


def test_a_path_that_metadata_names_is_told_from_one_that_it_does_not(neglected: Table) -> None:
    metadata = metadata_of(neglected)
    named = [
        metadata["snapshots"][0]["manifest-list"],
        neglected.sql("SELECT path FROM {t}.manifests LIMIT 1")[0][0],
        metadata["metadata-log"][0]["metadata-file"],
    ]
    elsewhere = [f"s3://other{path.removeprefix('file:')}" for path in named]
    rows = [(path,) for path in ("/nowhere/x.parquet", *elsewhere)]
    paths = neglected.spark.createDataFrame(rows, "file_path string")

    assert referenced_paths(
        neglected.lake, neglected.name, lookup_files(neglected.spark, paths)
    ) == sorted(elsewhere)


@pytest.mark.core
@pytest.mark.parametrize("version", [1, 2, 3])
def test_rewriting_manifests_keeps_every_entry(named: Named, version: int) -> None:
    table = named(f"v{version}").create(
        "id BIGINT, k INT",
        "k",
        version,
        commit_manifest__merge_enabled="false",
        icekit_filter__columns="k",
    )
    for n in range(6):
        table.fill(1, 10, "id, CAST(id % 3 AS INT)", start=n * 10)

    (action,) = proved(table, planned(table, "rewrite_manifests"))

    assert (action.actual.items_before, action.actual.items_after) == (6, 1)
    assert "sort_by => array('k')" in action.action.sql


def test_the_first_rewrite_of_manifests_after_an_upgrade_gives_rows_ids_and_loses_nothing(
    neglected: Table,
) -> None:
    neglected.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")

    (action,) = proved(neglected, planned(neglected, "rewrite_manifests"))

    assert action.actual.items_after < action.actual.items_before
    files = neglected.sql("SELECT count(DISTINCT first_row_id), count(*) FROM {t}.data_files")
    assert files[0][0] == files[0][1]


@pytest.mark.core
def test_a_commit_that_adds_rows_is_no_rewrite_of_manifests(neglected: Table) -> None:
    proof = prove_entries(neglected.lake, neglected.name, neglected.snapshots()[3:4])

    assert proof.ok is False
    assert "NOT THE SAME" in repr(proof)


def test_position_deletes_become_vectors_after_an_upgrade(neglected: Table) -> None:
    neglected.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")
    plan = neglected.maintenance(
        "rewrite_position_delete_files", thresholds=LIMITS.with_changes(delete_ratio=0.001)
    )

    (action,) = proved(neglected, plan)

    formats = neglected.sql("SELECT DISTINCT file_format FROM {t}.delete_files")
    assert [row[0] for row in formats] == ["PUFFIN"]
    assert action.actual.items_after == plan.actions[0].prediction.files_out


def test_position_deletes_of_files_that_are_gone_are_dropped_and_the_prediction_allows_for_it(
    named: Named,
) -> None:
    """A compaction of some files leaves the deletes of these; older files keep the deletes from
    looking old.
    """
    table = named("gone").create(by="", **MERGE_ON_READ)
    for n in range(7):
        table.fill(1, 10, start=10 * n)
    for n in range(1, 7):
        table.sql(f"DELETE FROM {{t}} WHERE id = {10 * n}")
    table.call("rewrite_data_files", "where => 'id >= 30'", "options => map('rewrite-all', 'true')")
    plan = planned(table, "rewrite_position_delete_files")

    (deletes,) = proved(table, plan)

    assert deletes.actual.items_before == deletes.action.prediction.files_in == 6
    assert deletes.actual.items_after == 2
    assert deletes.action.prediction.certainty is Certainty.AT_MOST
    assert "at most" in repr(plan)


def test_a_partition_field_named_as_a_metadata_column_stops_one_procedure_only(
    named: Named,
) -> None:
    table = named("collides").create("id bigint, partition int", "partition", **MERGE_ON_READ)
    for start in range(0, 400, 100):
        table.sql(f"INSERT INTO {{t}} SELECT id, 0 FROM range({start}, {start + 100})")
    table.sql("DELETE FROM {t} WHERE id % 10 = 0")
    plan = table.maintenance(*DEFAULT_PROCEDURES, thresholds=LIMITS)
    facts = table.lake.observe(table.name)

    assert facts.fields_named_as_columns_of_position_deletes == ("partition",)
    assert [a.procedure for a in plan.actions] == ["rewrite_manifests"]
    assert any("(partition)" in note for note in plan.notes)
    # The engine's own columns, of a table on which it can be asked.
    for version in (2, 3):
        other = named(f"named {version}").create(version=version, **MERGE_ON_READ).fill(1)
        columns = other.lake.spark.table(f"{other.sql_name}.position_deletes").columns
        specs = tuple(PartitionField(1000, name, "identity", 1, "id", "int") for name in columns)
        facts = other.lake.observe(other.name)
        known = replace(facts, specs=(PartitionSpec(0, specs),))
        assert known.fields_named_as_columns_of_position_deletes == tuple(columns)
