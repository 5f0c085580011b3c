"""Maintenance is planned in the order that is right, and only what a finding asks for."""

import dataclasses
import datetime as dt
from typing import Any

import pytest
from pydantic import TypeAdapter

from icekit.common.errors import EngineFailed, ParameterError, Status
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Finding, Findings
from icekit.health.facts.integrity import DeleteState, UnappliedDeletes
from icekit.health.facts.retention import Retention
from icekit.health.facts.storage import (
    MissingCount,
    MissingFile,
    MissingFiles,
    Role,
    SharedPlace,
    Sharing,
    StorageFacts,
)
from icekit.iceberg.definition import PartitionField, PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifest_counts import ManifestFacts, SpecManifests
from icekit.iceberg.manifests import manifests_by_spec
from icekit.iceberg.snapshots import Ref
from icekit.maintain.plan import Plan
from icekit.maintain.planning import maintenance as upkeep
from icekit.maintain.planning.maintenance import (
    DEFAULT_PROCEDURES,
    PROCEDURES,
    cluster_by,
    plan_maintenance,
)
from icekit.maintain.run.outcome import ActionOutcome, Outcome
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    FIRST_DAY,
    KIB,
    MIB,
    NOW_MS,
    file_group,
    finding,
    healthy_groups,
    history,
    manifest_facts,
    partition,
    table_facts,
)
from tests.golden import Golden
from tests.maintain.test_retention import DAY_MS, FLINK, daily, hourly, metadata, staged
from tests.maintain.test_retention import NOW_MS as RETENTION_NOW_MS

NOW = dt.datetime.fromtimestamp(RETENTION_NOW_MS / 1000, dt.UTC)
ALL = ("v2_position_deletes", "fragmented_manifests", "snapshots_piling_up", "orphan_files")


SHARED = Sharing((SharedPlace("db.events_old", "s3://bucket/db/events"),))


def sick(**overrides: Any) -> Any:
    deletes = file_group(*[10 * KIB] * 20, kind=Kind.POSITION_DELETES, of=partition(FIRST_DAY))
    groups = (*healthy_groups(), deletes)
    made: dict[str, Any] = {
        "groups": groups,
        "properties": {"write.delete.granularity": "partition"},
        "manifests": manifest_facts(
            groups,
            data_count=100,
            data_bytes=10 * MIB,
            undersized_count=100,
            delete_count=20,
            delete_bytes=MIB,
        ),
        "storage": StorageFacts(NOW_MS, 7, ("s3://bucket/db/events/data/lost.parquet",)),
    }
    return table_facts(**made | overrides)


def planned(
    facts: Any,
    *names: str | Finding,
    retention: Retention | None = None,
    meta: Any = None,
    **options: Any,
) -> Plan:
    return plan_maintenance(
        facts,
        Findings(finding(name) if isinstance(name, str) else name for name in names),
        retention,
        metadata=meta or metadata(hourly(300)),
        now=NOW,
        **{"procedures": PROCEDURES} | options,
    )


def test_nothing_is_planned_that_no_finding_asks_for() -> None:
    assert planned(sick()).actions == ()
    # A retention that people need is no wish to keep less.
    assert planned(sick(), retention=Retention(need_hours=1)).actions == ()


def test_no_procedure_runs_on_a_table_that_lost_files_and_the_plan_names_them() -> None:
    lost = MissingFiles(
        (MissingCount(Role.DATA, 1, 0, 10),),
        (MissingFile(Role.DATA, "s3://b/a.parquet", partition(FIRST_DAY), 10, 7, 5, None),),
    )
    facts = sick(missing=lost)

    plan = planned(facts, *ALL, *(f for f in diagnose(facts) if f.name == "missing_files"))

    assert plan.actions == ()
    assert plan.waits is not None
    assert "s3://b/a.parquet" in plan.waits
    assert plan.waits in repr(plan)
    only_statistics = MissingFiles((MissingCount(Role.STATISTICS, 1, 0, 0),))
    assert planned(sick(missing=only_statistics), *ALL).actions


def test_position_deletes_are_not_rewritten_beside_some_that_a_vector_replaces() -> None:
    replaced = UnappliedDeletes(
        partition(FIRST_DAY), Kind.POSITION_DELETES, DeleteState.REPLACED, 1, KIB, 5
    )
    deletes = file_group(*[KIB] * 9, kind=Kind.POSITION_DELETES, of=partition(FIRST_DAY))
    facts = sick(groups=(*healthy_groups(), deletes), format_version=3, unapplied=(replaced,))
    plan = planned(facts, "v2_position_deletes")

    assert plan.actions == ()
    assert "finding replaced_deletes" in plan.notes[0]


def test_manifests_are_clustered_by_the_fields_that_filters_use_first() -> None:
    gone = PartitionField(1001, "gone", "void", 4, "amount", "double")
    spec = PartitionSpec(0, (*BY_DAY.fields, gone, *BY_CARRIER.fields))

    assert cluster_by(spec, ("carrier", "amount")) == ("carrier", "event_day")
    assert cluster_by(spec, ("event_id",)) == ()


def test_manifests_are_counted_by_spec_and_content_and_one_that_is_alone_stays() -> None:
    records = [
        {"partition_spec_id": spec, "content": content, "manifest_length": length}
        for spec, content, length in ((0, 0, 5), (0, 1, 7), (1, 0, 9))
    ]
    layer = SpecManifests(1, MIB, 12, MIB)

    assert manifests_by_spec(records) == (SpecManifests(1, 5, 1, 7), SpecManifests(1, 9, spec_id=1))
    assert (layer.rewritten_count(8 * MIB), layer.replacement_count(8 * MIB)) == (12, 1)
    assert not SpecManifests(2, MIB).is_fragmented(8 * MIB)


def test_nothing_is_planned_but_what_is_named_and_an_unknown_name_is_refused() -> None:
    assert [
        a.procedure for a in planned(sick(), *ALL, procedures=["rewrite_manifests"]).actions
    ] == ["rewrite_manifests"]
    with pytest.raises(ParameterError, match="did you mean remove_orphan_files"):
        planned(sick(), procedures=["remove_orphans"])


@pytest.mark.parametrize("sharing", [SHARED, Sharing(unchecked="db.broken cannot be read")])
def test_no_orphan_goes_where_another_table_is_or_may_be(sharing: Sharing) -> None:
    plan = planned(sick(storage=StorageFacts(NOW_MS, 7, sharing=sharing)), "orphan_files")
    outcome = Outcome(plan, None, ())

    assert plan.actions == ()
    assert plan.notes == (sharing.refusal,)
    assert plan.summary == "remove_orphan_files is refused; nothing else is worth doing."
    assert (outcome.status, outcome.exit_status) == ("refused", 1)


def test_a_refused_removal_ends_with_1_also_where_all_else_is_done() -> None:
    facts = sick(storage=StorageFacts(NOW_MS, 0, sharing=SHARED))
    plan = planned(facts, *ALL)
    done = Outcome(
        plan, "run", tuple(ActionOutcome(action, Status.DONE) for action in plan.actions)
    )

    assert plan.actions
    assert (plan.refused, len(plan.actions)) == (("remove_orphan_files",), 3)
    assert done.status == "refused"
    assert done.exit_status == 1
    # A plan that does not ask for it, or finds none, has nothing to refuse.
    assert planned(facts, *ALL, procedures=DEFAULT_PROCEDURES).refused == ()
    assert planned(sick(storage=StorageFacts(NOW_MS, 0)), "snapshots_piling_up").refused == ()


def test_a_partition_field_named_as_a_column_of_position_deletes_leaves_out_one_procedure() -> None:
    fields = BY_CARRIER.fields[0], dataclasses.replace(BY_CARRIER.fields[0], name="spec_id")
    facts = sick(specs=(BY_DAY, PartitionSpec(1, fields)))
    plan = planned(facts, *ALL, procedures=DEFAULT_PROCEDURES)
    of_vectors = dataclasses.replace(fields[0], name="content_offset")

    assert [a.procedure for a in plan.actions] == ["rewrite_manifests", "expire_snapshots"]
    assert any("(spec_id)" in note and "icekit compact" in note for note in plan.notes)
    # A nightly pass does all that can be done; one who names the procedure is told by the status.
    assert plan.refused == ()
    assert planned(facts, *ALL).refused == ("rewrite_position_delete_files",)
    for version, names in ((2, ()), (3, ("content_offset",))):
        facts = sick(specs=(BY_DAY, PartitionSpec(1, (of_vectors,))), format_version=version)
        assert facts.fields_named_as_columns_of_position_deletes == names


def test_a_procedure_that_the_engine_cannot_plan_is_refused_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(lake: Any, action: Any) -> None:
        raise EngineFailed("no such method")

    monkeypatch.setattr(upkeep, "with_planner_prediction", fail)
    plan = planned(sick(), *ALL, lake=object(), procedures=DEFAULT_PROCEDURES)

    assert [a.procedure for a in plan.actions] == ["rewrite_manifests", "expire_snapshots"]
    assert plan.refused == ("rewrite_position_delete_files",)
    assert "rewrite_position_delete_files cannot run on this table: no such method." in plan.notes
    assert "rewrite_position_delete_files is not planned." in repr(plan)


def test_orphans_under_three_days_and_branches_are_refused() -> None:
    young = StorageFacts(RETENTION_NOW_MS - 2 * 86_400_000, 7)

    with pytest.raises(ParameterError, match="only those older than 3 days"):
        planned(sick(storage=young), "orphan_files")
    facts = sick(ref="work", history=history(refs=(Ref("work", "branch", 1),)))

    with pytest.raises(ParameterError, match="Observe the table without ref"):
        planned(facts, *ALL)


def test_a_plan_survives_the_ledger() -> None:
    needed = staged(daily(40, {33: FLINK}), 20)
    plan = planned(sick(filter_columns=("event_time",)), *ALL, meta=needed)
    kept = TypeAdapter(Plan)

    assert kept.validate_python(kept.dump_python(plan, mode="json")) == plan


SCOPED = file_group(
    *[10 * KIB] * 4, kind=Kind.POSITION_DELETES, of=partition(FIRST_DAY), file_scoped_count=4
)
TAGGED = metadata(hourly(300), {"audit": {"snapshot-id": 50, "type": "tag"}})
LAYER = ManifestFacts(by_spec=(SpecManifests(100, 20 * MIB, 30, 9 * MIB),))
OWN_LIMIT = {"snapshot-id": 30, "type": "branch", "max-snapshot-age-ms": DAY_MS}
PLANNED = {
    # Without an action; the notes say why.
    "none-to-expire": lambda: planned(sick(), "snapshots_piling_up", meta=metadata(hourly(100))),
    "collection-is-off": lambda: planned(
        sick(properties={"gc.enabled": "false"}), "snapshots_piling_up"
    ),
    "orphans-not-listed": lambda: planned(sick(storage=None), "orphan_files"),
    "one-delete-file-a-data-file": lambda: planned(
        sick(groups=(*healthy_groups(), SCOPED)), "v2_position_deletes"
    ),
    "all": lambda: planned(sick(), *reversed(ALL), meta=TAGGED),
    # The tag's snapshot stays: time travel reaches back to the last day all the same.
    "a-day": lambda: planned(
        sick(), "snapshots_piling_up", meta=TAGGED, retention=Retention(keep_hours=24)
    ),
    "by-filters": lambda: planned(
        sick(filter_columns=("event_time",), manifests=LAYER), "fragmented_manifests"
    ),
    "by-default": lambda: planned(
        sick(storage=StorageFacts(NOW_MS, 7, (), 3 * MIB, 6)), *ALL, procedures=DEFAULT_PROCEDURES
    ),
    "after-data-files": lambda: planned(sick(format_version=3), "small_files", "position_deletes"),
    "weighed-orphans": lambda: planned(
        sick(storage=StorageFacts(NOW_MS, 7, ("s3://bucket/lost",), 3 * MIB, 6)), "orphan_files"
    ),
    "stated-retention": lambda: planned(sick(), retention=Retention(keep_hours=1, keep_last=1)),
    "for-writers": lambda: planned(
        sick(),
        retention=Retention(keep_hours=1, keep_last=3),
        meta=staged(daily(40, {2: {"mz-frontier": "[5]"}, 33: FLINK}), 20),
    ),
    "all-needed-by-a-writer": lambda: planned(
        sick(), "snapshots_piling_up", meta=daily(30, {1: FLINK})
    ),
    "own-age-limit": lambda: planned(
        sick(),
        "snapshots_piling_up",
        meta=daily(30, {2: FLINK}, {"main": OWN_LIMIT}),
    ),
}


@pytest.mark.parametrize("case", PLANNED)
def test_a_plan_of_maintenance_looks_like_its_golden_file(case: str, golden: Golden) -> None:
    golden(f"maintain/{case}.txt", repr(PLANNED[case]()))
