"""Real tables beside their models: who writes to them, and the rule that holds after every step."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fastavro

from icekit.api import Lake
from icekit.common.sql import Argument, call_sql, display_name, identifier, literal
from icekit.engine.bridge import elements, guarded_table
from icekit.engine.tables import EmbeddedTables
from icekit.maintain.record.claims import now_ms
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.run import execute as execution
from icekit.maintain.run import rewrite as rewriting
from icekit.maintain.run.run_plan import PlanRun
from icekit.rows.deletes import convert as converting
from icekit.sandbox.scratch import NAMESPACE as CLONES
from rigs.model.model import MAIN, Model, P, Row, State, Text
from tests.deletes.writing import Files
from tests.elsewhere import elsewhere

NAMESPACE = "a model's"
DAY_MS = 86_400_000

# Where another commit, or a kill, may come: before and after each of these.
_CROSSINGS = (
    (converting, "find_inputs"),
    (converting, "deleted_positions"),
    (converting, "commit"),
    (PlanRun, "_execute"),
    # Between the state that a rewrite begins from and its commit.
    (execution, "_rewrite_data"),
    (rewriting.CheckedRewrite, "_commit"),
    (PlanRun, "_run_part"),
    (PlanRun, "_prove"),
)


class Killed(BaseException):
    """Ends icekit in the middle of its work, as a kill does."""


@dataclass(frozen=True)
class PlannedRewrite:
    """A rewrite of data files that is written and not yet committed."""

    start: int
    sequence: int
    old: tuple[Any, ...]
    vectors: tuple[Any, ...]
    new: Any


@contextlib.contextmanager
def at_crossing(number: int, event: Callable[[], None]) -> Iterator[None]:
    """Let something happen at one of the places that a kill or another commit may come at, if
    it is reached.
    """
    crossed, failures = 0, []

    def cross() -> None:
        nonlocal crossed
        crossed += 1
        if crossed == number:
            try:
                event()
            except Exception as failure:
                failures.append(failure)
                raise

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            cross()
            answer = original(*given, **named)
            cross()
            return answer

        return run

    with contextlib.ExitStack() as patches:
        for where, name in _CROSSINGS:
            patches.enter_context(patch.object(where, name, wrapped(getattr(where, name))))
        yield
    if failures:
        raise AssertionError(f"what came in between failed: {failures[0]}") from failures[0]


class World:
    """The tables of one history, written to from here (the session that icekit uses) and from
    elsewhere.

    Elsewhere is a session with a catalog that caches nothing: what it commits, the other does not
    know of.
    """

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake = lake
        self.here = lake.spark
        self.elsewhere = elsewhere(lake.spark)
        self.elsewhere.conf.set(f"spark.sql.catalog.{lake.name}.cache-enabled", "false")
        self.elsewhere.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")
        self.elsewhere.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        self.ledger = str(folder / "ledger.db")
        self.models: list[Model] = []
        self._manifests: dict[str, list[str]] = {}

    # Writers

    def full(self, model: Model) -> str:
        """The table's name for SQL."""
        return identifier(*self.lake.sql_name(model.name))

    def sql(self, statement: str, model: Model, *, here: bool = False) -> list[Any]:
        """Run a statement; ``{t}`` is the table. A person who writes here looks first what has come
        from elsewhere.
        """
        if here:
            self.here.sql(f"REFRESH TABLE {self.full(model)}")
        return (
            (self.here if here else self.elsewhere)
            .sql(statement.replace("{t}", self.full(model)))
            .collect()
        )

    def call(
        self,
        procedure: str,
        model: Model,
        *,
        here: bool = False,
        options: Mapping[str, str] | None = None,
        **arguments: Argument,
    ) -> None:
        """Run one of Iceberg's procedures."""
        table = display_name(model.name)
        self.sql(
            call_sql(self.lake.name, procedure, options=options, table=table, **arguments),
            model,
            here=here,
        )

    def files(self, model: Model) -> Files:
        """What writes files of the table elsewhere."""
        return Files(self.elsewhere, self.lake.sql_name(model.name))

    def specs(self, table: Any) -> dict[int, Any]:
        """The partition specs of a table of Iceberg's API."""
        return {int(number): spec for number, spec in dict(table.specs()).items()}

    def part(self, spec: Any, p: int) -> dict[str, Any]:
        """The partition of rows with ``p``: each field is made of it."""
        values = {"identity": p, "truncate[10]": 0, "void": None}
        return {
            str(field.name()): values[str(field.transform().toString())] for field in spec.fields()
        }

    def equality_delete(
        self,
        model: Model,
        by: tuple[int, ...],
        keys: list[Row],
        p: int,
        *,
        everywhere: bool,
        rows: list[Row] | None = None,
        branch: str = MAIN,
    ) -> None:
        """Commit equality deletes of a partition, and new rows beside them, as an upsert stream
        does.

        In the current partition spec, or in every spec there is; one without partitions reaches all
        rows.
        """
        files = self.files(model)
        table = files.table()
        commit, specs, current = files.commit(), self.specs(table), int(table.spec().specId())
        chosen = specs if everywhere else {current: specs[current]}
        columns = [model.column(key) for key in by]
        wanted = {tuple(key[each] for each in by) for key in keys}
        query = model_values(sorted(wanted, key=str))
        for number, spec in chosen.items():
            commit.deletes(
                [column.name for column in columns], query, self.part(spec, p), spec=number
            )
        if rows:
            commit.data(model.values(rows), self.part(specs[current], p))
        commit.done(None if branch == MAIN else branch)
        reaches_all = any(spec.isUnpartitioned() for spec in chosen.values())

        def without(row: Row) -> Row | None:
            number = model.spec_of(row, branch)
            is_beside = row[P] == p
            if number is not None:
                # A partition of a truncated column holds rows of other values, too.
                own = specs[number]
                is_beside = self.part(own, row[P]) == self.part(own, p)
            is_reached = reaches_all or (is_beside and (everywhere or number == current))
            return None if is_reached and tuple(row[each] for each in by) in wanted else row

        model.change(without, branch)
        model.append(rows or (), branch)

    def plan_rewrite(self, model: Model, place: int | None = None) -> PlannedRewrite | None:
        """Write what a rewrite of one partition's data files (or one of them) comes to, and do not
        commit it.
        """
        files = self.files(model)
        table = files.table()
        snapshot = table.currentSnapshot()
        if snapshot is None:
            return None
        groups: dict[str, list[Any]] = defaultdict(list)
        for task in elements(table.newScan().planFiles()):
            groups[f"{task.file().specId()} {task.file().partition().toString()}"].append(task)
        if not groups:
            return None
        tasks = max(groups.values(), key=len)
        tasks = tasks if place is None else [tasks[place % len(tasks)]]
        old = tuple({str(task.file().location()): task.file() for task in tasks}.values())
        vectors = {
            str(d.contentOffset()) + str(d.location()): d
            for task in tasks
            for d in task.deletes()
            if str(d.format()) == "PUFFIN"
        }
        spec = self.specs(table)[int(old[0].specId())]
        paths = ", ".join(
            "'" + str(file.location()).replace("\\", "\\\\").replace("'", "\\'") + "'"
            for file in old
        )
        rows = f"SELECT * FROM {self.full(model)} WHERE _file IN ({paths})"
        new = None
        if self.elsewhere.sql(rows).count():
            partition = old[0].partition()
            values = {
                str(field.name()): partition.get(place)
                for place, field in enumerate(elements(spec.fields()))
            }
            new = files.data(rows, values, spec=int(spec.specId()), format="parquet")
        return PlannedRewrite(
            int(snapshot.snapshotId()),
            int(snapshot.sequenceNumber()),
            old,
            tuple(vectors.values()),
            new,
        )

    def commit_rewrite(self, model: Model, planned: PlannedRewrite, *, with_sequence: bool) -> None:
        """Commit it as the stock ``rewrite_data_files`` does; ``with_sequence`` gives the new file
        its old sequence number.

        Under icekit's guard, as Iceberg's own commit drops deletes that what it adds still needs.
        """
        table = guarded_table(self.elsewhere, self.files(model).table())
        rewrite = table.newRewrite().validateFromSnapshot(planned.start)
        if with_sequence:
            rewrite = rewrite.dataSequenceNumber(planned.sequence)
        for file in planned.old:
            rewrite = rewrite.deleteFile(file)
        for vector in planned.vectors:
            rewrite = rewrite.deleteFile(vector)
        if planned.new is not None:
            rewrite = rewrite.addFile(planned.new)
        rewrite.commit()

    def adopt(self, model: Model, clone: tuple[str, ...]) -> None:
        """Commit to the table the data files that the last commit of its clone added."""
        table = self.files(model).table()
        copy = Files(self.elsewhere, self.lake.sql_name(clone)).table()
        append = table.newAppend()
        for file in elements(copy.currentSnapshot().addedDataFiles(copy.io())):
            append = append.appendFile(file)
        append.commit()

    def days_pass(self, model: Model, days: int = 10) -> None:
        """Move the table's whole past back, and that of all files on disk, as if it were later."""
        source, back = self.lake.tables.source(model.name), days * DAY_MS
        metadata = json.loads(source.read(source.metadata_location))
        metadata["last-updated-ms"] -= back
        for moment in (
            *metadata["snapshots"],
            *metadata["snapshot-log"],
            *metadata["metadata-log"],
        ):
            moment["timestamp-ms"] -= back
        old = Path(_path(source.metadata_location))
        new = old.with_name(f"{int(old.name.split('-')[0]) + 1:05}-{time.time_ns()}.metadata.json")
        new.write_text(json.dumps(metadata))
        self._in_catalog(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_namespace = ? AND "
            "table_name = ?",
            str(new),
            *model.name,
        )
        for path in self._folder().rglob("*"):
            if path.is_file():
                os.utime(path, (path.stat().st_atime, path.stat().st_mtime - back / 1000))

    @contextlib.contextmanager
    def mortal(self) -> Iterator[None]:
        """Let a kill leave the ledger as a process that is gone does: its claim stays, and its run
        is still running.
        """
        is_dead = False

        def unless_dead(original: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *given, **named: None if is_dead else original(*given, **named)

        def die(*_: Any) -> None:
            nonlocal is_dead
            is_dead = True

        with contextlib.ExitStack() as patches:
            for name in ("release", "save_run", "save_action"):
                patches.enter_context(
                    patch.object(Ledger, name, unless_dead(getattr(Ledger, name)))
                )
            patches.enter_context(patch.object(Killed, "__init__", die))
            try:
                yield
            finally:
                if is_dead and Path(self.ledger).exists():
                    self._end_the_owners()

    def _end_the_owners(self) -> None:
        """Let every claim be of a process that has ended."""
        with contextlib.closing(sqlite3.connect(self.ledger)) as database, database:
            for claim in Ledger(self.ledger).claims():
                gone = replace(claim, owner=replace(claim.owner, pid_started=0))
                database.execute(
                    "UPDATE claims SET document = ? WHERE key = ?",
                    (json.dumps(asdict(gone)), claim.key),
                )

    # What holds after every step

    def check(self) -> None:
        """Rows are those of the models, every file that a table names exists, no claim and no clone
        is left.
        """
        for model in self.models:
            self._check_files(model)
        sources = [
            (model, branch, True, model.state(branch))
            for model in self.models
            for branch in model.branches
        ]
        sources += [
            (model, tag, False, state) for model in self.models for tag, state in model.tags.items()
        ]
        found = self._read(
            [
                (model, "" if ref == MAIN else f"VERSION AS OF {literal(ref)}", state)
                for model, ref, _, state in sources
            ]
        )
        for (model, ref, is_branch, state), rows in zip(sources, found, strict=True):
            _compare(
                f"{display_name(model.name)}, {ref}",
                state.texts(),
                Counter(text for text, _ in rows),
            )
            if is_branch:
                model.specs.update({(ref, text): spec for text, spec in rows})
        names = [name for name in self.lake.tables.names() if name[0] in {NAMESPACE, CLONES}]
        assert sorted(names) == sorted(model.name for model in self.models), (
            f"the catalog has {names}"
        )
        claims = Ledger(self.ledger).claims() if Path(self.ledger).exists() else ()
        living = [claim for claim in claims if not claim.is_dead(now_ms())]
        assert not living, f"claims are left: {living}"

    def check_past(self) -> None:
        """Every snapshot that was seen and is still there holds what it held."""
        sources = []
        for model in self.models:
            there = {int(s["snapshot-id"]) for s in self.metadata(model)["snapshots"]}
            sources += [
                (model, f"VERSION AS OF {i}", state)
                for i, state in model.past.items()
                if i in there
            ]
        for (model, at, state), rows in zip(sources, self._read(sources), strict=True):
            _compare(
                f"{display_name(model.name)} {at}", state.texts(), Counter(text for text, _ in rows)
            )

    def metadata(self, model: Model) -> Mapping[str, Any]:
        """The table's metadata as the catalog has it now."""
        source = self.lake.tables.source(model.name)
        found: Mapping[str, Any] = json.loads(source.read(source.metadata_location))
        return found

    def ancestors(self, model: Model) -> list[int]:
        """The snapshots that the current one came from, newest first."""
        metadata = self.metadata(model)
        parents = {
            int(s["snapshot-id"]): int(s.get("parent-snapshot-id") or -1)
            for s in metadata["snapshots"]
        }
        at = parents.get(int(metadata.get("current-snapshot-id") or -1), -1)
        found = []
        while at in parents:
            found.append(at)
            at = parents[at]
        return found

    def _read(self, sources: list[tuple[Model, str, State]]) -> list[list[tuple[Text, int]]]:
        """The rows of each source with their partition specs, in one query."""
        queries = []
        for number, (model, at, state) in enumerate(sources):
            columns = ", ".join(
                f"CAST({identifier(column.name)} AS STRING)" for column in state.columns
            )
            queries.append(
                f"SELECT {number} AS source, _spec_id AS spec, array({columns}) AS row FROM "
                f"{self.full(model)} {at}"
            )
        found: list[list[tuple[Text, int]]] = [[] for _ in sources]
        for row in self.elsewhere.sql(" UNION ALL ".join(queries)).collect() if queries else ():
            found[row["source"]].append((tuple(row["row"]), row["spec"]))
        return found

    def _check_files(self, model: Model) -> None:
        metadata = self.metadata(model)
        current = metadata.get("current-snapshot-id")
        if current not in {None, -1}:
            model.past.setdefault(int(current), model.state())
        named = [s["manifest-list"] for s in metadata["snapshots"]]
        named += [log["metadata-file"] for log in metadata["metadata-log"]]
        named += [
            s["statistics-path"]
            for key in ("statistics", "partition-statistics")
            for s in metadata.get(key) or ()
        ]
        for snapshot in metadata["snapshots"]:
            for manifest in self._avro(
                snapshot["manifest-list"], lambda entry: entry["manifest_path"]
            ):
                named.append(manifest)
                named += self._avro(
                    manifest,
                    lambda entry: entry["data_file"]["file_path"] if entry["status"] != 2 else None,
                )
        missing = sorted({location for location in named if not Path(_path(location)).exists()})
        assert not missing, f"{display_name(model.name)} names files that are gone: {missing}"

    def _avro(self, location: str, path: Callable[[Mapping[str, Any]], str | None]) -> list[str]:
        """Paths in a manifest or manifest list, which never changes."""
        if location not in self._manifests:
            content = io.BytesIO(Path(_path(location)).read_bytes())
            self._manifests[location] = [
                found
                for entry in fastavro.reader(content)
                if (found := path(entry)) is not None  # type: ignore[arg-type]
            ]
        return self._manifests[location]

    # Beginning and end

    @property
    def _lake_folder(self) -> Path:
        tables = self.lake.tables
        assert isinstance(tables, EmbeddedTables)
        return tables.path

    def _folder(self) -> Path:
        return self._lake_folder / "warehouse" / NAMESPACE

    def _in_catalog(self, statement: str, *values: str) -> None:
        with (
            contextlib.closing(
                sqlite3.connect(self._lake_folder / "catalog.db", timeout=30)
            ) as database,
            database,
        ):
            database.execute(statement, values)

    def clear(self) -> None:
        """Take away all tables and files of a history, whatever state it ended in."""
        for name in self.lake.tables.names():
            if name[0] in {NAMESPACE, CLONES}:
                with contextlib.suppress(Exception):
                    self.here.sql(f"DROP TABLE IF EXISTS {identifier(*self.lake.sql_name(name))}")
        # A table whose metadata is gone cannot be dropped.
        self._in_catalog(
            "DELETE FROM iceberg_tables WHERE table_namespace IN (?, ?)", NAMESPACE, CLONES
        )
        shutil.rmtree(self._folder(), ignore_errors=True)
        Path(self.ledger).unlink(missing_ok=True)
        self.models.clear()
        self._manifests.clear()


def model_values(keys: list[tuple[Any, ...]]) -> str:
    """Keys as a query."""
    return "SELECT * FROM VALUES " + ", ".join(
        "(" + ", ".join("NULL" if v is None else str(v) for v in key) + ")" for key in keys
    )


def _compare(what: str, expected: Counter[Text], found: Counter[Text]) -> None:
    assert found == expected, (
        f"{what}: lost {dict(expected - found)}, too many {dict(found - expected)}"
    )


def _path(location: str) -> str:
    return location.removeprefix("file://").removeprefix("file:")
