"""The facts count the equality deletes that Iceberg plans for each data file, whatever their
keys.
"""

from collections.abc import Callable

import pytest

from icekit import diagnose
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.engine.bridge import elements, temporary_settings
from icekit.health import TableFacts
from icekit.health.facts import counts
from icekit.health.facts.integrity import DeleteState
from icekit.health.facts.rollup import equality_deletes_applied
from icekit.iceberg.file_kind import Kind
from icekit.maintain.planning.table_plan import plan_table
from tests.deletes.tables import TYPES, Table, add_column, types
from tests.deletes.writing import rows_of
from tests.health.both import facts_of

pytestmark = pytest.mark.spark

# The data files with equality deletes, the delete records that each loads summed up, the most of
# one, and the delete files that any has.
Planned = tuple[int, int, int, int]


def planned(table: Table) -> Planned:
    """What a scan gives each data file."""
    tasks = table.files.table().newScan().planFiles()
    loads, paths = [], set()
    for task in elements(tasks):
        deletes = [
            each for each in elements(task.deletes()) if str(each.content()) == "EQUALITY_DELETES"
        ]
        paths |= {str(each.location()) for each in deletes}
        loads.append(sum(int(each.recordCount()) for each in deletes))
    tasks.close()
    loads = [each for each in loads if each]
    return len(loads), sum(loads), max(loads, default=0), len(paths)


def counted(facts: TableFacts) -> Planned:
    """The same of the facts."""
    applied = list(equality_deletes_applied(facts))
    return (
        sum(each.data_file_count for each in applied),
        sum(each.record_loads for each in applied),
        max((each.max_deletes_per_file for each in applied), default=0),
        facts.total(Kind.EQUALITY_DELETES).file_count,
    )


def ids(low: int, high: int) -> str:
    return f"SELECT id FROM range({low}, {high})"


def rows(low: int, high: int) -> str:
    return f"SELECT id, 'a' FROM range({low}, {high})"


def _new_keys(table: Table, commits: int = 5, earlier: int = 0) -> None:
    """Upserts of ten new ids, which delete these and some earlier ones."""
    table.create()
    for low in range(0, 10 * commits, 10):
        commit = table.commit().data(rows(low, low + 10))
        commit.deletes("id", ids(low - earlier, low + 10)).done()


def _recent_keys(table: Table) -> None:
    _new_keys(table, commits=8, earlier=12)


def _one_late_old_key(table: Table) -> None:
    _new_keys(table)
    table.delete("id", ids(3, 4)).delete("id", ids(500, 501))


def _nulls(table: Table) -> None:
    table.create()
    some, none, every = (
        "SELECT 1L, CAST(NULL AS STRING) UNION ALL SELECT 2L, 'm'",
        "SELECT 3L, 'b'",
        "SELECT 4L, CAST(NULL AS STRING)",
    )
    for data in (some, none, every):
        table.data(data)
    for deletes in (
        "SELECT 'x'",
        "SELECT 'b'",
        "SELECT CAST(NULL AS STRING)",
        "SELECT CAST(NULL AS STRING) UNION ALL SELECT 'z'",
    ):
        table.delete("name", deletes)


def _without_bounds(table: Table, mode: str = "counts") -> None:
    table.create(write_metadata_metrics_default=mode)
    for n in range(3):
        table.commit().data(
            f"SELECT id, if(id % 3 = {n}, NULL, 'a') FROM range({10 * n}, {10 * n + 2})"
        ).deletes("id", ids(90, 91)).done()
    table.delete("name", "SELECT 'q'").delete("name", "SELECT CAST(NULL AS STRING)")


def _bounds_since_a_change(table: Table) -> None:
    """The first files have no metrics; a commit has one file with bounds and one without."""
    _without_bounds(table, "none")
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'truncate(16)')"
    )
    for n in range(5, 8):
        table.commit().data(rows(10 * n, 10 * n + 2)).deletes("id", ids(10 * n, 10 * n + 2)).done()


def _partitions(table: Table) -> None:
    table.create("id bigint, p int", "p")
    for n in range(4):
        commit = table.commit()
        for p in range(3):
            low = 10 * n if p else 0
            commit.data(f"SELECT id, {p} FROM range({low}, {low + 10})", {"p": p})
            commit.deletes("id", ids(low, low + 10), {"p": p})
        commit.done()
    table.data("SELECT 1L, CAST(NULL AS INT)", {"p": None})
    table.delete("id", ids(1, 2), {"p": None}).delete("id", ids(7, 8), {"p": None})


def _everywhere(table: Table) -> None:
    """Deletes of an unpartitioned spec apply to data of all specs."""
    table.create("id bigint, p int")
    table.commit().data("SELECT id, 0 FROM range(10)").deletes("id", ids(0, 10)).done()
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD p")
    for n in range(1, 4):
        table.data(f"SELECT id, {n} FROM range({10 * n}, {10 * n + 10})", {"p": n})
        table.delete("id", ids(10 * n + 5, 10 * n + 25), spec=0).delete("id", ids(15, 16), {"p": n})
    table.delete("id", ids(300, 310), spec=0)


def _two_columns(table: Table) -> None:
    table.create("id bigint, p int")
    for n in range(3):
        table.commit().data(f"SELECT id, {n} FROM range(10)").deletes(
            ["id", "p"], f"SELECT id, {n} FROM range(10)"
        ).done()
    table.delete(["id", "p"], "SELECT 3L, 1").delete(["id", "p"], "SELECT 30L, 1").delete(
        "p", "SELECT 2"
    ).delete("p", "SELECT 9")


def _wider_types(table: Table) -> None:
    """Bounds of the first files have the old width."""
    table.create("id int, d decimal(5,2)")
    table.commit().data("SELECT -7, CAST(-1.50 AS DECIMAL(5,2))").deletes("id", "SELECT -9").done()
    table.sql("ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    table.sql("ALTER TABLE {t} ALTER COLUMN d TYPE decimal(20,2)")
    table.data("SELECT 70000000000L, CAST(300000000000.25 AS DECIMAL(20,2))")
    for key in ("-8L", "-7L", "3L", "70000000000L", "-70000000000L"):
        table.delete("id", f"SELECT {key}")
    for key in ("-1.5", "-1.51", "0", "300000000000.25", "300000000000.26"):
        table.delete("d", f"SELECT CAST({key} AS DECIMAL(20,2))")


def _names_that_differ_by_case(table: Table) -> None:
    with temporary_settings(table.spark, {"spark.sql.caseSensitive": "true"}):
        table.create("id bigint, ID bigint")
        for n in range(3):
            table.commit().data(f"SELECT {n}L, {10 * n}L").deletes("ID", f"SELECT {10 * n}L").done()
        table.delete("ID", "SELECT 10L")


def _required(table: Table) -> None:
    table.create("id bigint NOT NULL, s struct<k: int>")
    for n in range(3):
        table.commit().data(f"SELECT {n}L, named_struct('k', {n})").deletes(
            "id", f"SELECT {n}L"
        ).done()
    table.delete("id", "SELECT 1L")


def _texts(table: Table) -> None:
    """Bounds are cut to 16 characters; characters beyond the first plane come last."""
    table.create("id bigint, name string")
    long = "abcdefghijklmnopqrst"
    for n, value in enumerate((f"'{long}'", "'\\uFFFD'", "'😀'", "''", "'ß'")):
        table.data(f"SELECT {n}L, {value}")
    for value in (
        f"'{long[:16]}a'",
        f"'{long[:15]}z'",
        "'\\uFFFD'",
        "'😀'",
        "'😁'",
        "''",
        "'z'",
        "'ss'",
        "'ß'",
    ):
        table.delete("name", f"SELECT {value}")


_VALUES = {name: value for name, value in TYPES.items() if name != "c_uuid"}


def _every_type(table: Table) -> None:
    columns = ", ".join(
        f"{name} {kind}" for name, (kind, _, _) in _VALUES.items() if name != "c_fixed"
    )
    table.create(f"id bigint, {columns}")
    add_column(table, "c_fixed", types(table).FixedType.ofLength(4))
    for place in (1, 2):
        table.data(rows_of([[str(place), *(value[place] for value in _VALUES.values())]]))
        commit = table.commit()
        for name, value in _VALUES.items():
            commit.deletes(name, f"SELECT cast({value[3 - place]} AS {value[0]})")
        commit.done()
    commit = table.commit()
    for name, value in _VALUES.items():
        commit.deletes(name, f"SELECT cast({value[1]} AS {value[0]})")
    commit.done()


EXACT = {
    "new keys": _new_keys,
    "recent keys": _recent_keys,
    "one late old key": _one_late_old_key,
    "nulls": _nulls,
    "counts alone": _without_bounds,
    "bounds since a change": _bounds_since_a_change,
    "partitions": _partitions,
    "deletes of an unpartitioned spec": _everywhere,
    "two columns": _two_columns,
    "wider types": _wider_types,
    "required": _required,
    "names that differ by case": _names_that_differ_by_case,
    "texts": _texts,
    "every type": _every_type,
}


@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
def test_what_applies_is_what_a_scan_plans(table: Table, make: Callable[[Table], None]) -> None:
    make(table)

    assert counted(facts_of(table)) == planned(table)


def states(facts: TableFacts) -> list[tuple[DeleteState, int]]:
    return [(each.state, each.file_count) for each in facts.unapplied]


def test_deletes_of_new_keys_apply_to_nothing_and_can_be_dropped_when_the_data_was_rewritten(
    table: Table,
) -> None:
    _new_keys(table)
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.upsert.enabled' = 'true')")
    facts = facts_of(table)
    findings = diagnose(facts)
    # The deletes of the first commit are older than all data that they could apply to.
    assert states(facts) == [(DeleteState.DANGLING, 1), (DeleteState.NEW_KEYS, 4)]
    others = {"equality_deletes", "executor_cache", "deletes_default_rewrite_ignores"}
    assert not others & findings.names
    (statement,) = next(f for f in findings if f.name == "equality_deletes_of_new_keys").sql
    table.spark.sql(statement)
    before = table.rewritten()
    facts = facts_of(table)
    # Iceberg's commit has dropped those that are older than all data.
    assert states(facts) == [(DeleteState.DANGLING, 1)]
    plan = plan_table(table.lake, facts, policy=CompactionPolicy(leave_alone="0 minutes"))
    (action,) = plan.actions
    assert action.only_drops_deletes
    assert action.prediction.delete_files_removed == 1
    assert table.lake.run(plan, execute=True).status == "done"
    table.files.refresh()
    after = table.lake.observe(table.name, collector="local")
    assert not after.has_deletes
    assert after.properties["write.upsert.enabled"] == "false"
    assert table.rows() == before


@pytest.mark.parametrize("make", [_recent_keys, _one_late_old_key, _everywhere, _partitions])
def test_ranges_of_sequence_numbers_give_an_upper_bound(
    table: Table, make: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "MAX_SEQUENCE_ROWS", 4)
    make(table)

    assert all(
        known >= real for known, real in zip(counted(facts_of(table)), planned(table), strict=True)
    )
