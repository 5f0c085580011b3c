"""Random histories of real tables: what people, engines and icekit do, in any order, and nothing is
lost or revived.

Each rule does one thing to a real table and to its model; after each, :meth:`World.check` holds.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.sql import display_name, identifier
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.retention import Retention
from icekit.maintain.planning.maintenance import PROCEDURES, plan_maintenance_table
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.run.blocked import plan_of
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from icekit.rows.deletes import convert as converting
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import remove_stale_clones
from rigs.model.model import ID, MAIN, Column, K, Model, P, Row, V
from rigs.model.world import NAMESPACE, Killed, PlannedRewrite, World, at_crossing

NAMES = (
    "plain",
    "with.dot",
    "two words",
    "it's",
    'a "quote"',
    "Capital",
    "Größe",
    "100%",
    "back`tick",
    "a.b c.d",
)
COLUMNS = ("n", "two words", "Größe", "it's", "select", "UPPER")
LIMITS = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))
THRESHOLDS = Thresholds().with_changes(snapshots=2, fragmented_manifests=2)
#: Named errors of a commit that met another; the rows are compared all the same.
CONFLICT = re.compile(
    r"CommitConflict|CommitFailedException|ValidationException|Cannot commit|not an "
    r"ancestor|is missing, and"
)
#: There is nothing to go on with, or not from here.
NO_WAY_ON = re.compile(r"no unfinished run|is no longer an ancestor of the table's|[Pp]lan again")

which = st.integers(0, 2)
ids = st.sets(st.integers(0, 7), min_size=1, max_size=4)
partitions = st.sampled_from([0, 1])
here = st.booleans()
branches = st.sampled_from([MAIN, MAIN, "audit"])
events = st.sampled_from(
    [
        "killed",
        "upsert",
        "upsert and replace",
        "append",
        "delete",
        "planned rewrite",
        "rewrite",
        "expire",
        "convert",
    ]
)
meanwhile = (
    st.none()
    | st.tuples(st.integers(1, 8), events, ids)
    | st.tuples(st.integers(1, 8), st.just("killed"), ids)
)
Meanwhile = tuple[int, str, set[int]] | None


class Machine(RuleBasedStateMachine):
    """One history. ``lake`` is set by who runs it."""

    lake: ClassVar[Lake]
    world: ClassVar[World | None] = None
    steps: ClassVar[int] = 0
    #: How icekit's calls have ended.
    ends: ClassVar[Counter[str]] = Counter()
    #: Real kills of a history, each of which starts a process with a JVM.
    kills: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        if Machine.world is None or Machine.world.lake is not self.lake:
            Machine.world = World(self.lake, Path(mkdtemp(prefix="icekit-model-")))
        self.real = Machine.world
        self.real.clear()
        self.planned: dict[int, PlannedRewrite] = {}
        self.stamp = 0
        self.is_sound = False
        self.kills_left = self.kills

    def teardown(self) -> None:
        """See to the past, and leave nothing."""
        try:
            if self.is_sound:
                self.real.check_past()
        finally:
            self.real.clear()

    @invariant()
    def nothing_is_lost_or_revived(self) -> None:
        """What holds after every step."""
        Machine.steps += 1
        self.is_sound = False
        self.real.check()
        self.is_sound = True

    # The table

    @initialize(
        name=st.sampled_from(NAMES),
        version=st.sampled_from([2, 3, 1]),
        is_partitioned=st.booleans(),
        mode=st.sampled_from(["merge-on-read", "copy-on-write"]),
        granularity=st.sampled_from(["file", "partition"]),
    )
    def create(
        self, name: str, version: int, is_partitioned: bool, mode: str, granularity: str
    ) -> None:
        self.made_with = (is_partitioned, mode, granularity)
        self._create(name, version)
        self.append(0, {0, 1, 2, 3}, 0, False)

    def _create(self, name: str, version: int) -> None:
        is_partitioned, mode, granularity = self.made_with
        model = Model((NAMESPACE, name), version, fields=("p",) if is_partitioned else ())
        mode = mode if version > 1 else "copy-on-write"
        properties = {f"write.{kind}.mode": mode for kind in ("delete", "update", "merge")}
        properties |= {
            "format-version": str(version),
            "write.delete.granularity": granularity,
            "commit.manifest.min-count-to-merge": "4",
        }
        columns = ", ".join(f"{identifier(c.name)} {c.type}" for c in model.columns)
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        by = "PARTITIONED BY (p)" if is_partitioned else ""
        self.real.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg {by} TBLPROPERTIES ({pairs})", model
        )
        self.real.models.insert(0, model)

    def _model(self, number: int) -> Model:
        return self.real.models[number % len(self.real.models)]

    def _stamp(self) -> int:
        self.stamp += 1
        return self.stamp

    # People and engines

    @rule(which=which, ids=ids, p=partitions, here=here)
    def append(self, which: int, ids: set[int], p: int, here: bool) -> None:
        model = self._model(which)
        rows = model.new_rows(ids, p, self._stamp())
        self.real.sql(f"INSERT INTO {{t}} {model.values(rows)}", model, here=here)
        model.append(rows)

    @rule(which=which, ids=ids, p=partitions, every_spec=st.booleans(), branch=branches)
    def upsert(self, which: int, ids: set[int], p: int, every_spec: bool, branch: str) -> None:
        model = self._model(which)
        if model.version == 1 or branch not in model.branches:
            return
        rows = model.new_rows(ids, p, self._stamp())
        self.real.equality_delete(
            model, (ID,), rows, p, everywhere=every_spec, rows=rows, branch=branch
        )

    @rule(
        which=which,
        ids=ids,
        p=partitions,
        by=st.sampled_from([(ID,), (K,), (ID, K)]),
        every_spec=st.booleans(),
        branch=branches,
    )
    def delete_by_equality(
        self, which: int, ids: set[int], p: int, by: tuple[int, ...], every_spec: bool, branch: str
    ) -> None:
        model = self._model(which)
        if model.version == 1 or branch not in model.branches:
            return
        self.real.equality_delete(
            model, by, model.new_rows(ids, p, 0), p, everywhere=every_spec, branch=branch
        )

    @rule(which=which, ids=ids, p=st.sampled_from([None, None, 0, 1]), here=here)
    def delete(self, which: int, ids: set[int], p: int | None, here: bool) -> None:
        model = self._model(which)
        self.real.sql(
            f"DELETE FROM {{t}} WHERE {_is_in(model, ids) if p is None else f'p = {p}'}",
            model,
            here=here,
        )
        model.change(lambda row: None if (row[ID] in ids if p is None else row[P] == p) else row)

    @rule(which=which, ids=ids, here=here)
    def update(self, which: int, ids: set[int], here: bool) -> None:
        model, stamp = self._model(which), self._stamp()
        self.real.sql(
            f"UPDATE {{t}} SET {_name(model, V)} = {stamp} WHERE {_is_in(model, ids)}",
            model,
            here=here,
        )
        model.change(lambda row: {**row, V: stamp} if row[ID] in ids else row)

    @rule(which=which, ids=ids, p=partitions, deletes=st.booleans(), here=here)
    def merge(self, which: int, ids: set[int], p: int, deletes: bool, here: bool) -> None:
        model, stamp = self._model(which), self._stamp()
        rows = model.new_rows(ids, p, stamp)
        names = [identifier(f"s{place}") for place in range(len(model.columns))]
        source = f"({model.values(rows)} AS v({', '.join(names)})) AS s"
        matched = "DELETE" if deletes else f"UPDATE SET {_name(model, V)} = {stamp}"
        self.real.sql(
            f"MERGE INTO {{t}} AS t USING {source} ON t.{_name(model, ID)} = s.s0 AND t.p = {p} "
            f"WHEN MATCHED THEN {matched} WHEN NOT MATCHED THEN INSERT "
            f"({', '.join(identifier(c.name) for c in model.columns)}) VALUES ({', '.join(names)})",
            model,
            here=here,
        )
        there = {row[ID] for row in model.branches[MAIN] if row[P] == p}

        def merged(row: Row) -> Row | None:
            if row[P] != p or row[ID] not in ids:
                return row
            return None if deletes else {**row, V: stamp}

        model.change(merged)
        model.append(row for row in rows if row[ID] not in there)

    @rule(which=which, mode=st.sampled_from(["merge-on-read", "copy-on-write", "upgrade"]))
    def set_properties(self, which: int, mode: str) -> None:
        model = self._model(which)
        if mode == "upgrade" and model.version < 3:
            model.version += 1
            self._alter(model, f"SET TBLPROPERTIES ('format-version' = '{model.version}')")
        elif model.version > 1 and mode != "upgrade":
            pairs = ", ".join(
                f"'write.{kind}.mode' = '{mode}'" for kind in ("delete", "update", "merge")
            )
            self._alter(model, f"SET TBLPROPERTIES ({pairs})")

    # Evolution and refs

    @rule(
        which=which,
        how=st.sampled_from(["add", "rename", "drop", "widen", "partition", "truncate"]),
        place=st.integers(0, 5),
        name=st.sampled_from(COLUMNS),
        here=here,
    )
    def evolve(self, which: int, how: str, place: int, name: str, here: bool) -> None:
        model = self._model(which)
        columns, is_free = (
            model.columns,
            name.lower() not in {column.name.lower() for column in model.columns},
        )
        column = columns[place % len(columns)]
        named = identifier(column.name)
        if how == "add" and is_free:
            self._alter(model, f"ADD COLUMN {identifier(name)} string", here)
            model.columns = (*columns, Column(model.next_key, name, "string"))
            model.next_key += 1
        elif how == "rename" and is_free and column.key != P:
            self._alter(model, f"RENAME COLUMN {named} TO {identifier(name)}", here)
            model.columns = tuple(replace(c, name=name) if c is column else c for c in columns)
        elif how == "drop" and column.key > V:
            self._alter(model, f"DROP COLUMN {named}", here)
            model.columns = tuple(c for c in columns if c is not column)
        elif how == "widen" and column.type == "int" and column.key != P:
            self._alter(model, f"ALTER COLUMN {named} TYPE bigint", here)
            model.columns = tuple(replace(c, type="bigint") if c is column else c for c in columns)
        elif how in {"partition", "truncate"}:
            field, made = ("p", "p") if how == "partition" else ("p_trunc", "truncate(10, p)")
            # What version 1 puts in the place of a field that is dropped cannot be told by name
            # from the field.
            if field not in model.fields:
                self._alter(model, f"ADD PARTITION FIELD {made}", here)
                model.fields = (*model.fields, field)
            elif model.version > 1:
                self._alter(model, f"DROP PARTITION FIELD {made}", here)
                model.fields = tuple(f for f in model.fields if f != field)

    @rule(
        which=which,
        how=st.sampled_from(["branch", "no branch", "tag"]),
        name=st.sampled_from(["kept", "it's"]),
    )
    def name_a_snapshot(self, which: int, how: str, name: str) -> None:
        model = self._model(which)
        current = self.real.metadata(model).get("current-snapshot-id")
        if how == "branch" and "audit" not in model.branches:
            self._alter(model, "CREATE BRANCH audit")
            model.branches["audit"] = model.branches[MAIN]
        elif how == "no branch" and model.branches.pop("audit", None) is not None:
            self._alter(model, "DROP BRANCH audit")
        elif how == "tag" and name not in model.tags and current in model.past:
            self._alter(model, f"CREATE TAG {identifier(name)}")
            model.tags[name] = model.past[current]

    @rule(which=which, place=st.integers(0, 3))
    def roll_back(self, which: int, place: int) -> None:
        model = self._model(which)
        known = [snapshot for snapshot in self.real.ancestors(model) if snapshot in model.past]
        if known:
            snapshot = known[place % len(known)]
            self.real.call("rollback_to_snapshot", model, snapshot_id=snapshot)
            model.branches[MAIN] = model.past[snapshot].rows

    def _alter(self, model: Model, change: str, here: bool = False) -> None:
        self.real.sql(f"ALTER TABLE {{t}} {change}", model, here=here)

    # Other tables

    @rule(here=here, version=st.sampled_from([2, 3, 1]))
    def rename_and_swap(self, here: bool, version: int) -> None:
        if len(self.real.models) > 2:
            return
        old = self.real.models[0]
        name, new = old.name[-1], f"{old.name[-1]}_old{self._stamp()}"
        self.real.sql(f"ALTER TABLE {{t}} RENAME TO {identifier(NAMESPACE, new)}", old, here=here)
        old.name = (NAMESPACE, new)
        self._create(name, version)

    @rule(purge=st.booleans())
    def drop_the_oldest(self, purge: bool) -> None:
        if len(self.real.models) > 1:
            model = self.real.models.pop()
            self.planned.pop(id(model), None)
            self.real.sql(f"DROP TABLE {{t}} {'PURGE' if purge else ''}", model)

    # Iceberg's own maintenance

    @rule(
        which=which,
        option=st.sampled_from(["rewrite-all", "delete-file-threshold"]),
        with_sequence=st.booleans(),
        here=here,
    )
    def stock_rewrite(self, which: int, option: str, with_sequence: bool, here: bool) -> None:
        options = {option: "true" if option == "rewrite-all" else "1", "min-input-files": "1"}
        options |= {
            "use-starting-sequence-number": str(with_sequence).lower(),
            "remove-dangling-deletes": str(with_sequence).lower(),
        }
        self.real.call("rewrite_data_files", self._model(which), here=here, options=options)

    @rule(which=which, place=st.none() | st.integers(0, 3))
    def plan_a_rewrite(self, which: int, place: int | None) -> None:
        """Read and write what a rewrite comes to; it is committed later, or never."""
        model = self._model(which)
        if (planned := self.real.plan_rewrite(model, place)) is not None:
            self.planned[id(model)] = planned

    @rule(which=which, with_sequence=st.booleans())
    def commit_the_planned_rewrite(self, which: int, with_sequence: bool) -> None:
        self._commit_planned(self._model(which), with_sequence)

    def _commit_planned(self, model: Model, with_sequence: bool = True) -> None:
        if planned := self.planned.pop(id(model), None):
            try:
                self.real.commit_rewrite(model, planned, with_sequence=with_sequence)
            except Exception as error:
                self._refused(error, CONFLICT)

    @rule(which=which, last=st.integers(1, 3), here=here)
    def stock_expire(self, which: int, last: int, here: bool) -> None:
        self._expire(self._model(which), last, here)

    def _expire(self, model: Model, last: int, here: bool = False) -> None:
        catalog = identifier(self.real.lake.name)
        name = ".".join(
            part.replace("\\", "\\\\").replace("'", "\\'") for part in map(identifier, model.name)
        )
        self.real.sql(
            f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP "
            f"'2999-01-01', retain_last => {last})",
            model,
            here=here,
        )

    @rule(
        which=which,
        procedure=st.sampled_from(["rewrite_manifests", "rewrite_position_delete_files"]),
        here=here,
    )
    def stock_tidy(self, which: int, procedure: str, here: bool) -> None:
        self.real.call(procedure, self._model(which), here=here)

    @rule(which=which)
    def days_pass(self, which: int) -> None:
        self.real.days_pass(self._model(which))

    # icekit

    @rule(
        which=which,
        scope=st.sampled_from(["minor", "major"]),
        old_specs=st.booleans(),
        meanwhile=meanwhile,
    )
    def compact(self, which: int, scope: Any, old_specs: bool, meanwhile: Meanwhile) -> None:
        def work(model: Model) -> Outcome:
            policy = CompactionPolicy(
                scope=scope, leave_alone="0 minutes", min_files=2, old_specs=old_specs
            )
            plan = plan_table(
                self.lake, self.lake.observe(model.name), None, policy, ledger=self.real.ledger
            )
            return self.lake.run(
                plan,
                execute=True,
                ledger=self.real.ledger,
                limits=LIMITS,
                progress=self._say,
            )

        self._icekit(which, work, meanwhile)

    @rule(
        which=which, batch=st.sampled_from([None, 500, 1000]), branch=branches, meanwhile=meanwhile
    )
    def convert(self, which: int, batch: int | None, branch: str, meanwhile: Meanwhile) -> None:
        def work(model: Model) -> Outcome:
            return self.lake.convert(
                model.name,
                branch=None if branch == MAIN else branch,
                execute=True,
                batch_bytes=batch,
                ledger=self.real.ledger,
                limits=LIMITS,
                progress=self._say,
            )

        if branch in self._model(which).branches:
            self._icekit(which, work, meanwhile)

    @rule(which=which, slices=st.integers(1, 3), meanwhile=meanwhile)
    def convert_in_slices(self, which: int, slices: int, meanwhile: Meanwhile) -> None:
        self._icekit(
            which,
            lambda model: converting.convert(
                self.lake.spark, self.lake.sql_name(model.name), slices=slices
            ),
            meanwhile,
        )

    @rule(which=which, procedure=st.sampled_from(PROCEDURES), meanwhile=meanwhile)
    def maintain(self, which: int, procedure: Any, meanwhile: Meanwhile) -> None:
        def work(model: Model) -> Outcome | None:
            facts = self.lake.observe(
                model.name,
                storage=procedure == "remove_orphan_files",
                size_ratios=THRESHOLDS.size_ratios,
            )
            findings = diagnose(facts, THRESHOLDS)
            retention = Retention(keep_last=2, keep_hours=1)
            plan = plan_maintenance_table(
                self.lake, facts, findings, retention, thresholds=THRESHOLDS, procedures=[procedure]
            )
            return self.lake.run(
                plan,
                execute=True,
                ledger=self.real.ledger,
                limits=LIMITS,
                progress=self._say,
            )

        self._icekit(which, work, meanwhile)

    @rule(which=which, meanwhile=meanwhile)
    def go_on(self, which: int, meanwhile: Meanwhile) -> None:
        """Resume what was killed, whatever it was."""

        def work(model: Model) -> Outcome:
            record = Ledger(self.real.ledger).last_run(display_name(self.lake.sql_name(model.name)))
            command = plan_of(record).command if record is not None else "compact"
            return self.lake.resume(
                model.name,
                command=command,
                ledger=self.real.ledger,
                limits=LIMITS,
                progress=self._say,
            )

        self._icekit(which, work, meanwhile, NO_WAY_ON)

    @precondition(lambda self: self.kills_left > 0)
    @rule(which=which, ids=ids, place=st.sampled_from(["join", "commit"]))
    def kill_a_conversion(self, which: int, ids: set[int], place: str) -> None:
        """A process that dies while it reads the keys, or when its delete files are written and
        nothing names them yet; then go on.
        """
        self.kills_left -= 1
        self.upsert(which, ids, 0, True, MAIN)
        table = display_name(self._model(which).name)
        command = [sys.executable, "-m", "tests.deletes.killed", table, self.real.ledger, place]
        child = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert child.returncode in {0, 2, 9}, child.stdout + child.stderr
        self.go_on(which, None)
        remove_stale_clones(self.lake)

    @rule(which=which, ids=ids, p=partitions, adopted=st.booleans(), other=st.none() | events)
    def clone(self, which: int, ids: set[int], p: int, adopted: bool, other: str | None) -> None:
        """Write to a clone, let the table adopt a file of it, and drop it."""

        def work(model: Model) -> None:
            rows = model.new_rows(ids, p, self._stamp())
            with clone(self.lake, model.name) as copy:
                name = identifier(*self.lake.sql_name(copy.table))
                self.real.here.sql(f"DELETE FROM {name} WHERE {_is_in(model, {0, 1})}")
                self.real.here.sql(f"INSERT INTO {name} {model.values(rows)}")
                if other:
                    self._happen(model, other, ids)
                if adopted:
                    self.real.adopt(model, copy.table)
                    model.append(rows)

        self._icekit(which, work, None)

    def _icekit(
        self,
        which: int,
        work: Callable[[Model], Outcome | None],
        meanwhile: Meanwhile,
        *refusals: re.Pattern[str],
    ) -> None:
        """Let icekit work; it may refuse by name, but never call a change of rows proved or leave
        the table otherwise.

        Where nothing happens meanwhile, only ``refusals`` are an answer.
        """
        model = self._model(which)
        refusals = (CONFLICT, *refusals) if meanwhile else refusals
        crossing = (
            at_crossing(meanwhile[0], lambda: self._happen(model, *meanwhile[1:]))
            if meanwhile
            else nullcontext()
        )
        try:
            with warnings.catch_warnings(), self.real.mortal(), crossing:
                warnings.simplefilter("ignore")
                outcome = work(model)
        except Killed:
            Machine.ends["killed"] += 1
            return
        except Exception as error:
            self._refused(error, *refusals)
            Machine.ends[
                "nothing to go on with" if "no unfinished run" in str(error) else "refused"
            ] += 1
            return
        Machine.ends["done"] += 1
        if outcome is not None:
            self._say(f"{outcome.status} {[(a.status, a.error) for a in outcome.actions]}")
            assert outcome.proof is None or outcome.proof.ok is not False, outcome.proof

    def _happen(self, model: Model, what: str, ids: set[int]) -> None:
        """Something between two moments of icekit's work, elsewhere."""
        which = self.real.models.index(model)
        self._say(f"meanwhile: {what} {ids}")
        # A writer of today deletes under the spec of today alone.
        every_spec = len(ids) % 2 > 0
        if what == "killed":
            raise Killed
        if what == "append" or (
            model.version == 1 and what in {"upsert", "upsert and replace", "convert"}
        ):
            self.append(which, ids, 0, False)
        elif what == "upsert":
            self.upsert(which, ids, 0, every_spec, MAIN)
        elif what == "upsert and replace":
            # Deletes, and no older file that stays: what a commit may drop them by.
            self.upsert(which, ids, 0, every_spec, MAIN)
            self.delete(which, set(), 1, False)
            self.append(which, ids, 1, False)
        elif what == "delete":
            self.delete(which, ids, None, False)
        elif what == "planned rewrite":
            self._commit_planned(model)
        elif what == "rewrite":
            self.stock_rewrite(which, "rewrite-all", True, False)
        elif what == "expire":
            self._expire(model, 1)
        else:
            converting.convert(self.real.elsewhere, self.lake.sql_name(model.name))

    def _refused(self, error: Exception, *refusals: re.Pattern[str]) -> None:
        """Take a refusal by name for an answer; anything else is a failure."""
        text = f"{type(error).__name__}: {error}"
        if not any(refusal.search(text) for refusal in refusals):
            raise error
        self._say(f"refused: {text[:300]}")

    def _say(self, text: str) -> None:
        """Tell of what happens inside a step; hypothesis takes notes in its own thread alone."""
        if currently_in_test_context():
            note(f"  # {text}")


def _name(model: Model, key: int) -> str:
    return identifier(model.column(key).name)


def _is_in(model: Model, ids: set[int]) -> str:
    return f"{_name(model, ID)} IN ({', '.join(map(str, sorted(ids)))})"
