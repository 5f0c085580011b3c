"""What a plan predicts is what its run makes, and a plan of what was made is empty: random small
tables of every kind.

The long round is marked ``soak``; a failing table is told step by step.
"""

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from icekit import diagnose
from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import Status
from icekit.maintain.plan import Plan
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.prediction import Certainty
from icekit.maintain.run.outcome import Outcome
from tests.deletes.tables import Table
from tests.maintain.tables import MERGE_ON_READ, Named, is_proved

pytestmark = pytest.mark.spark

#: The short round of the gate: tables with small files, vectors, equality deletes and two specs.
SEEDS = (0, 4, 9)
KIB = 1024
TARGETS = (8 * KIB, 20 * KIB, 64 * KIB, 2**20, 512 * 2**20)
SPECS = ("", "k", "bucket(3, id)", "truncate(2, s)", "days(ts)", "k, bucket(2, id)", "months(ts)")


@dataclass
class Story:
    """A random table, and what has happened to it."""

    table: Table
    random: Random
    told: list[str] = field(default_factory=list)
    rows: int = 0

    def build(self) -> None:
        """Create it, and let a few things happen."""
        choose = self.random.choice
        self.version = choose((2, 3))
        self.target = choose(TARGETS)
        properties = {
            "format-version": str(self.version),
            "write.delete.mode": "merge-on-read",
            "write.delete.granularity": choose(("file", "partition")),
            "write.target-file-size-bytes": str(self.target),
            "write.parquet.row-group-size-bytes": str(choose((4 * KIB, 128 * 2**20))),
        }
        self.spec = choose(SPECS)
        self.told.append(f"partitioned by {self.spec!r}; {properties}")
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        by = f"PARTITIONED BY ({self.spec})" if self.spec else ""
        self.table.sql(
            "CREATE TABLE {t} (id BIGINT, k INT, s STRING, ts TIMESTAMP, v STRING) USING iceberg "
            f"{by} TBLPROPERTIES ({listed})"
        )
        for _ in range(self.random.randint(1, 3)):
            self.insert()
        for _ in range(self.random.randint(1, 5)):
            getattr(self, choose(("insert", "insert", "delete", "delete", "upsert", "evolve")))()

    def insert(self) -> None:
        """Append a few files of some rows each."""
        rows, files = self.random.choice((3, 40, 400, 3000)), self.random.choice((1, 1, 2, 6))
        text = self.random.choice(("uuid()", "'same'", "repeat(CAST(id AS STRING), 20)"))
        keys = self.random.choice((1, 2, 5))
        self.told.append(f"insert {rows} rows of {keys} keys into {files} files, {text}")
        hint = "COALESCE(1)" if files == 1 else f"REPARTITION({files})"
        self.table.sql(
            f"INSERT INTO {{t}} SELECT /*+ {hint} */ id, CAST(id % {keys} AS INT), CAST(id % {keys} "
            f"AS STRING) || 'xx', TIMESTAMP '2026-01-30 10:00:00' + make_dt_interval(CAST(id % {keys}"
            f" AS INT)), {text} FROM range({self.rows}, {self.rows + rows})"
        )
        self.rows += rows

    def delete(self) -> None:
        """Delete rows by position: a share of all, or those of a key."""
        n = self.random.choice((2, 3, 50))
        where = self.random.choice((f"id % {n} = 1", f"id % {n} <> 1", "k = 1", "k = 0 AND id > 5"))
        self.told.append(f"delete {where}")
        self.table.sql(f"DELETE FROM {{t}} WHERE {where}")

    def upsert(self) -> None:
        """Delete rows by equality, where the test's writer can name the partition."""
        part: dict[str, Any] | None = {"k": 0} if self.spec == "k" else None
        if self.spec not in {"", "k"}:
            return
        ids = self.random.choice(("range(0, 30, 3)", "range(100000, 100010)"))
        self.told.append(f"equality deletes {ids}")
        self.table.delete("id", f"SELECT id FROM {ids}", part)

    def evolve(self) -> None:
        """Change the partition spec."""
        if self.spec and self.random.random() < 0.3:
            for term in re.findall(r"\w+(?:\(.*?\))?", self.spec):
                self.table.sql(f"ALTER TABLE {{t}} DROP PARTITION FIELD {term}")
            self.told.append("unpartitioned")
            self.spec = ""
            return
        more = self.random.choice([s for s in SPECS if s and "," not in s and s != self.spec])
        if more in self.spec or (self.spec.startswith(("days", "months")) and "ts" in more):
            return
        self.told.append(f"add {more}")
        self.table.sql(f"ALTER TABLE {{t}} ADD PARTITION FIELD {more}")
        self.spec = f"{self.spec}, {more}" if self.spec else more

    def policy(self) -> CompactionPolicy:
        """Any that does not sort."""
        choose = self.random.choice
        given: dict[str, Any] = {
            "leave_alone": "0 minutes",
            "min_files": choose((None, 2)),
            "delete_ratio": choose((None, 0.01)),
            "old_specs": choose((False, False, True)),
            "scope": choose(("minor", "minor", "minor", "major")),
            "max_action_partitions": choose((100, 2)),
        }
        self.told.append(f"policy {given}")
        return CompactionPolicy(**given)

    def needs_two_rounds(self) -> bool:
        """Whether position deletes may stay in force over rewritten files: these keep their age
        because of equality deletes, and a delete of a partition applies to files of its own age.
        """
        self.table.files.refresh()
        facts = self.table.lake.observe(self.table.name)
        return bool(facts.equality_delete_partitions) and not facts.are_positions_scoped

    def moves(self, plan: Plan) -> bool:
        """Whether a plan takes files of an older spec, which Iceberg's own action shuffles."""
        spec_id = int(self.table.files.table().spec().specId())
        return any(p.spec_id != spec_id for action in plan.actions for p in action.partitions)

    def plan(self, policy: CompactionPolicy) -> Plan:
        """The plan of the table as it is now."""
        self.table.files.refresh()
        facts = self.table.lake.observe(self.table.name)
        return plan_table(self.table.lake, facts, diagnose(facts), policy)

    def run(self, plan: Plan, folder: Any) -> Outcome:
        """Run a plan."""
        outcome = self.table.lake.run(
            plan,
            execute=True,
            ledger=str(folder / "l.db"),
            progress=self.told.append,
        )
        self.table.files.refresh()
        return outcome


def check(lake: Lake, scratch: str, seed: int, folder: Any) -> list[Certainty]:
    """Build a random table, run its plan, and compare; returns how certain its predictions were."""
    story = Story(Table(lake, scratch, f"predicted {seed}"), Random(seed))
    try:
        story.build()
        policy = story.policy()
        before = story.table.rows()
        rounds = 2 if story.needs_two_rounds() else 1
        plan = story.plan(policy)
        story.told.append(plan.text())
        certainties = []
        #: Deletes of a whole partition left fewer rows than a plan can know: files came out smaller.
        has_fewer = False
        if plan.actions:
            outcome = story.run(plan, folder)
            story.told.append(outcome.text())
            assert outcome.status is Status.DONE
            assert story.table.rows() == before
            for each in outcome.actions:
                predicted, actual = each.action.prediction, each.actual
                certainties.append(predicted.certainty)
                assert actual.files_in == predicted.files_in
                if predicted.certainty is Certainty.EXACT:
                    assert actual.files_out == predicted.files_out
                if predicted.certainty is Certainty.AT_MOST:
                    assert actual.files_out <= predicted.files_out
                    has_fewer = has_fewer or actual.files_out < predicted.files_out
        # Where only writing a file tells how large it becomes, its parts are combined once.
        if Certainty.ABOUT in certainties or has_fewer or story.moves(plan):
            rounds = 2
        for _ in range(rounds - 1):
            story.run(story.plan(policy), folder)
        again = story.plan(policy)
        story.told.append(again.text())
        assert again.actions == ()
        return certainties
    except BaseException as error:
        error.add_note("\n".join(story.told))
        raise
    finally:
        story.table.sql("DROP TABLE IF EXISTS {t} PURGE")


@pytest.mark.core("0", "4")
@pytest.mark.parametrize(
    "seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(100, 160))]
)
def test_files_are_made_as_predicted_and_the_next_plan_is_empty(
    lake: Lake, scratch: str, tmp_path: Any, seed: int
) -> None:
    check(lake, scratch, seed, tmp_path)


def figures(plan: Plan) -> list[tuple[int, int, str]]:
    """Files before and after of each action, and how certain that is."""
    predictions = [action.prediction for action in plan.actions]
    return [(p.files_in, p.files_out, str(p.certainty)) for p in predictions]


def done(outcome: Outcome) -> list[tuple[int, int]]:
    """Files before and after of each action, as they came."""
    return [(o.actual.files_in, o.actual.files_out) for o in is_proved(outcome).actions]


def test_files_of_an_older_spec_are_taken_once_and_by_an_action_of_their_own(named: Named) -> None:
    """The filter of the current spec's partition also selects files of days with such rows."""
    columns = "id bigint, ts timestamp, region string"
    moving = named("moving").create(columns, "days(ts)")
    regions = "element_at(array('a', 'b', 'c', 'd'), CAST(id % 4 AS int) + 1)"
    for day in (1, 2, 3):
        moment = f"TIMESTAMP '2026-01-0{day} 10:00:00'"
        moving.sql(
            f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, {moment}, {regions} FROM range(40)"
        )
    moving.sql("ALTER TABLE {t} DROP PARTITION FIELD days(ts)")
    moving.sql("ALTER TABLE {t} ADD PARTITION FIELD region")
    for _ in range(5):
        moving.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, {moment}, 'a' FROM range(10)")

    plan = moving.plan()
    assert figures(plan) == [(5, 1, "exact")]
    assert any("A CALL that is run by itself also takes" in note for note in plan.notes)
    assert done(moving.run(plan)) == [(5, 1)]
    assert moving.plan().actions == ()

    plan = moving.plan(old_specs=True)
    assert figures(plan) == [(3, 120, "at most")]
    assert done(moving.run(plan)) == [(3, 4)]


def test_a_partition_whose_rows_vectors_delete_leaves_no_file(named: Named) -> None:
    table = named("vectors").create(version=3, **MERGE_ON_READ)
    select = "id, cast(id % 3 AS int) AS part, 'a' AS name"
    for start in (0, 90):
        table.fill(1, 90, select, start)
    # Of one partition all rows are deleted, of another some; a whole partition would be removed.
    table.sql("DELETE FROM {t} WHERE id IN (SELECT id FROM {t} WHERE part = 1 OR id % 9 = 0)")
    plan = table.plan()

    assert figures(plan) == [(4, 1, "exact")]
    assert done(table.run(plan)) == [(4, 1)]


def test_a_small_target_makes_as_many_files_as_predicted(named: Named) -> None:
    """A writer takes the rows that it holds for as large as they are uncompressed."""
    target: dict[str, Any] = {"write_target__file__size__bytes": str(16 * KIB)}
    table = named("small target").create(by="", **target)
    for start in range(0, 12_000, 2_000):
        table.fill(1, 2_000, "id, 0 AS part, repeat(CAST(id AS string), 20) AS name", start)
    plan = table.plan()
    (predicted,) = figures(plan)

    assert predicted[2] == "exact"
    assert done(table.run(plan)) == [predicted[:2]]
    assert table.plan().actions == ()


def test_rows_in_another_bucket_than_the_transform_gives_are_named_as_the_cause(
    named: Named,
) -> None:
    table = named("hashed otherwise").create(by="bucket(4, id)")
    for start in range(0, 50, 10):
        file = table.files.data(
            f"SELECT id, 0, 'a' FROM range({start}, {start + 10})", {"id_bucket": 0}
        )
        table.append(file)
    before = table.rows()
    outcome = table.compact()

    assert outcome.actual.files_out == 4
    assert table.rows() == before
    assert "rows were in files of another partition than the transform gives" in repr(outcome)
