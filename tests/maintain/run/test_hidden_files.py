"""Tables whose files Iceberg's metadata tables cannot show, because the column of a partition field
was dropped: what needs these is left out or refused by name, and the rest goes on.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icekit.common.errors import EngineFailed
from icekit.engine.causes import is_engine_error
from icekit.engine.errors import explain, failure_kind, reason
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.iceberg.dropped_fields import (
    fields_blocking_files_table,
    fields_blocking_position_deletes,
)
from icekit.iceberg.file_kind import DELETE_KINDS
from icekit.maintain.plan import Plan
from icekit.maintain.planning.maintenance import DEFAULT_PROCEDURES
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.options import Limits
from tests.deletes.tables import of_every_file
from tests.maintain.tables import MERGE_ON_READ, Named, Table, is_proved

pytestmark = pytest.mark.spark

#: Of each shape of table: its columns, the partition fields, and those that are dropped with their
#: columns.
SHAPES = {
    "the newer of two": ("id bigint, k int, day int", "day, k", "k"),
    "the older of two": ("id bigint, k int, day int", "day, k", "day"),
    "the newer two of three": ("id bigint, a int, b int, c int", "a, b, c", "b, c"),
    "the older two of three": ("id bigint, a int, b int, c int", "a, b, c", "a, b"),
    "the only one": ("id bigint, k int", "k", "k"),
    "the only one of many columns": (
        f"id bigint, k int, {', '.join(f'c{n} int' for n in range(122))}",
        "k",
        "k",
    ),
    "the only one of fewer columns": (
        f"id bigint, k int, {', '.join(f'c{n} int' for n in range(120))}",
        "k",
        "k",
    ),
}


def without(table: Table, *fields: str) -> Table:
    """Drop partition fields, then their columns."""
    for field in fields:
        table.sql(f"ALTER TABLE {{t}} DROP PARTITION FIELD {field}")
    for field in fields:
        table.sql(f"ALTER TABLE {{t}} DROP COLUMN {field}")
    table.files.refresh()
    return table


def planned(table: Table, *procedures: str) -> Plan:
    return table.maintenance(
        *(procedures or DEFAULT_PROCEDURES),
        retention=Retention(keep_last=3),
        thresholds=Thresholds(snapshots=5, fragmented_manifests=3),
    )


def fails(table: Table, name: str) -> bool:
    """Whether Iceberg fails at a metadata table."""
    try:
        table.sql(f"SELECT * FROM {{t}}.{name}")
    except Exception as error:
        if not is_engine_error(error):
            raise
        return True
    return False


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_known_which_metadata_tables_iceberg_cannot_read(
    named: Named, shape: str, version: int
) -> None:
    """If this fails, Iceberg reads more of them, or fewer."""
    columns, by, dropped = SHAPES[shape]
    table = named("shaped").create(columns, by, version=version, **MERGE_ON_READ)
    ones = ", 1" * (len(columns.split(",")) - 1)
    table.sql(f"INSERT INTO {{t}} SELECT /*+ REPARTITION(1) */ id {ones} FROM range(9)")
    if version > 1:
        table.sql("DELETE FROM {t} WHERE id = 7")
    without(table, *dropped.split(", "))
    facts = table.lake.observe(table.name)
    hiding_files = fields_blocking_files_table(facts.specs, facts.columns)
    hiding_positions = fields_blocking_position_deletes(facts.specs)

    for name in ("files", "entries", "all_files", "all_entries"):
        assert bool(hiding_files) == fails(table, name), name
    if version > 1:
        assert bool(hiding_positions) == fails(table, "position_deletes")


def test_what_iceberg_says_is_said_in_plain_words_and_not_tried_again(neglected: Table) -> None:
    without(neglected, "k")
    with pytest.raises(Exception, match="Cannot partition by non-primitive") as raised:
        neglected.sql("SELECT * FROM {t}.files")
    error: Any = raised.value
    explained = explain(error, neglected.full)

    assert isinstance(explained, EngineFailed)
    for text in (str(explained), reason(error)):
        assert "the column of a partition field was dropped" in text
        assert "ADD PARTITION FIELD" in text
        assert "struct<" not in text
    assert failure_kind(error) == "other"


def test_maintenance_leaves_out_what_iceberg_cannot_do_and_does_the_rest(
    neglected: Table, aged: Callable[..., None]
) -> None:
    aged(neglected)
    without(neglected, "k")
    before = neglected.rows()
    plan = planned(neglected)
    named_plan = planned(neglected, "rewrite_position_delete_files", "rewrite_manifests")
    (expiry,) = is_proved(neglected.run(plan)).actions

    assert [action.procedure for action in plan.actions] == ["expire_snapshots"]
    assert [action.procedure for action in named_plan.actions] == []
    assert plan.refused == ()
    assert named_plan.refused == ("rewrite_manifests", "rewrite_position_delete_files")
    (note,) = (note for note in plan.notes if "partition field `k` was dropped" in note)
    assert "Run icekit compact" in note
    assert expiry.actual.items_after == len(neglected.snapshots()) == 3
    assert neglected.rows() == before


def of_two_specs(table: Table, old_files: int) -> Table:
    """Some files of a spec with a field whose column was dropped, and five commits of rows and of
    deletes under the current spec.
    """
    table.create(
        "id bigint, k int, day int",
        "day, k",
        commit_manifest__merge_enabled="false",
        **MERGE_ON_READ,
    )
    for n in range(old_files):
        table.sql(f"INSERT INTO {{t}} VALUES ({n}, 1, 1)")
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD k")
    for n in range(5):
        ids = f"range({1000 * n}, {1000 * n + 100}, 1, 1)"
        table.sql(f"INSERT INTO {{t}} SELECT id, 1, 2 FROM {ids}")
        table.sql(f"DELETE FROM {{t}} WHERE id = {1000 * n + 50}")
    table.sql("ALTER TABLE {t} DROP COLUMN k")
    table.files.refresh()
    return table


def test_a_note_says_why_each_is_left_out_and_what_to_do(named: Named) -> None:
    table = of_two_specs(named("noted"), 5)
    notes = [note for note in planned(table).notes if "`k` was dropped" in note]

    assert [note.partition(",")[0].partition(":")[0] for note in notes] == [
        "5 position delete files stay",
        "Iceberg cannot rewrite the manifests of partition spec 0",
        "Iceberg cannot rewrite the manifests",
    ]
    assert "icekit compact removes these deletes" in notes[0]
    assert "rewrite-all" in notes[1]
    assert "ADD PARTITION FIELD" in notes[2]


@pytest.mark.parametrize("old_files", [0, 3])
def test_manifests_of_the_current_spec_are_rewritten_once_a_field_was_added_and_dropped(
    named: Named, old_files: int
) -> None:
    """If a rewrite of the old manifests works, icekit no longer needs to leave it out."""
    table = of_two_specs(named("cured"), old_files)
    refused = planned(table, "rewrite_manifests")
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id) AS unused")
    table.sql("ALTER TABLE {t} DROP PARTITION FIELD unused")
    table.files.refresh()
    before = table.rows()
    plan = planned(table, "rewrite_manifests")
    is_proved(table.run(plan))

    assert (refused.actions, refused.refused) == ((), ("rewrite_manifests",))
    assert [action.arguments["spec_id"] for action in plan.actions] == [1]
    assert plan.refused == ()
    assert table.rows() == before
    if old_files:
        with pytest.raises(Exception, match="Cannot find field"):
            table.call("rewrite_manifests", "spec_id => 0")


@pytest.mark.parametrize("procedure", DEFAULT_PROCEDURES)
def test_what_was_planned_before_the_drop_is_refused_by_name_or_done(
    neglected: Table, aged: Callable[..., None], procedure: str
) -> None:
    aged(neglected)
    plan = planned(neglected, procedure)
    without(neglected, "k")
    before = neglected.rows()
    outcome = neglected.run(plan)
    (action,) = outcome.actions

    if procedure == "expire_snapshots":
        assert is_proved(outcome).actions[0].actual.items_after == 3
    else:
        assert (action.status, action.attempts) == ("failed", 0)
        assert "partition field `k` was dropped" in str(action.error)
        assert "Run icekit compact" in str(action.error)
    assert neglected.rows() == before


@pytest.mark.parametrize(
    ("procedure", "way_out"),
    [
        ("rewrite_manifests", "ADD PARTITION FIELD"),
        ("rewrite_position_delete_files", "icekit compact removes these deletes"),
    ],
)
def test_what_was_planned_elsewhere_is_refused_by_name(
    named: Named, procedure: str, way_out: str
) -> None:
    table = of_two_specs(named("planned"), 0)
    before = table.rows()
    action = replace(
        of_every_file(table, procedure), options={}, prediction=Prediction(source="metadata")
    )
    outcome = table.run(replace(planned(table), actions=(action,)))
    (refused,) = outcome.actions

    assert (refused.status, refused.attempts) == ("failed", 0)
    assert "partition field `k` was dropped" in str(refused.error)
    assert way_out in str(refused.error)
    assert table.rows() == before


@pytest.mark.parametrize("prove", ["checked", "full"])
def test_a_compaction_is_proved_by_all_rows(neglected: Table, prove: str) -> None:
    without(neglected, "k")
    before = neglected.rows()
    outcome = is_proved(neglected.run(neglected.plan(), limits=Limits(prove=prove)))

    assert outcome.proof is not None
    assert "Iceberg cannot read which files changed" in str(outcome.proof)
    assert neglected.rows() == before
    facts = neglected.lake.observe(neglected.name)
    assert [facts.total(kind).file_count for kind in DELETE_KINDS] == [0, 0, 0]


def test_orphans_are_removed_and_no_file_that_a_snapshot_has(
    neglected: Table, lose: Callable[..., Path]
) -> None:
    without(neglected, "k")
    before = neglected.rows()
    orphan = lose(neglected)
    neglected.age_files()
    outcome = is_proved(neglected.run(neglected.maintenance("remove_orphan_files", storage=True)))

    assert outcome.actions[0].actual.items_before == 1
    assert not orphan.exists()
    assert neglected.rows() == before


@pytest.mark.parametrize("dropped", ["k", "day"])
def test_partitions_keep_the_values_of_a_dropped_column(neglected: Table, dropped: str) -> None:
    """Iceberg's metadata tables do not have them: a collector that reads these would mix
    partitions, and call the ranges in manifests wrong.
    """
    without(neglected, dropped)
    local, spark = (
        neglected.lake.observe(neglected.name, collector=collector)
        for collector in ("local", "spark")
    )

    assert local.groups == spark.groups
    assert len({group.partition for group in spark.groups}) == 2
    assert spark.contradictions == ()
