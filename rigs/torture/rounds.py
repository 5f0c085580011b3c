"""A round: a random table, steps of others and of icekit, and its rows after each by several
readers.

The reader of the specification says which rows are right. icekit may refuse a step, and never
change a row, or its id, or make one of an older snapshot unreadable.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.api import Lake
from icekit.common.errors import Status
from icekit.common.sql import identifier
from icekit.rows.deletes.resolved import resolved
from rigs.model.world import at_crossing
from rigs.torture.engines import DuckDB, has_duckdb, read_by_pyiceberg, read_by_spark, rows_of_frame
from rigs.torture.reader.metadata import EQUALITY_DELETES, POSITION_DELETES, files_of
from rigs.torture.reader.schema import MapOf, NotReadable, Primitive, path_to, walk
from rigs.torture.reader.table import Rows, live_rows
from rigs.torture.steps import REFUSALS, REFUSALS_BESIDE_OTHERS, Steps
from rigs.torture.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "torture"


@dataclass
class Report:
    """What a round came to. ``faults`` are icekit's; ``disagreements`` are the first of each reader.
    ``refusals`` are those that icekit documents, by the class of the error.
    """

    seed: int
    history: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    disagreements: dict[str, str] = field(default_factory=dict)
    endings: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    comparisons: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(frozen=True)
class _State:
    """The rows of a table at one moment, with their ids."""

    rows: Rows
    lineage: Counter[Any]
    has_ids: bool


class Round:
    """One table and all that happens to it, by one seed."""

    def __init__(self, lake: Lake, elsewhere: SparkSession, seed: int) -> None:
        self._lake = lake
        self._elsewhere = elsewhere
        self._chance = random.Random(seed)
        self._folder = Path(tempfile.mkdtemp(prefix="icekit-torture-"))
        self._table = (NAMESPACE, f"t{seed}")
        self.report = Report(seed)
        self._writers = Writers(lake, elsewhere, self._table, self._chance, self._folder)
        self._steps = Steps(lake, self._table, self._chance, self._folder)
        self._duckdb = DuckDB(self._folder) if has_duckdb() else None
        self._rows_of_snapshots: dict[int, Rows] = {}

    def play(self, steps: int) -> Report:
        """Make the table and take so many steps; nothing of it stays."""
        started = time.monotonic()
        self._elsewhere.sql(
            f"CREATE NAMESPACE IF NOT EXISTS {identifier(self._lake.name, NAMESPACE)}"
        )
        self._drop()
        try:
            self._say(f"create: {self._writers.create()}")
            self._say(self._writers.insert() or self._writers.write_by_hand() or "no rows")
            for _ in range(steps):
                (step,) = self._chance.choices(
                    (self._let_others_write, self._let_icekit_work, self._let_icekit_read),
                    (12, 8, 1),
                )
                step()
                if any("DISPROVED" in fault for fault in self.report.faults):
                    break
            self._check_snapshots()
        except Exception:
            self._fault("the rig failed: " + _short(traceback.format_exc(limit=-6)))
        finally:
            if self._duckdb is not None:
                self._duckdb.close()
            if not self.report.faults:
                self._drop()
            shutil.rmtree(self._folder, ignore_errors=True)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _drop(self) -> None:
        name = identifier(*self._lake.sql_name(self._table))
        self._elsewhere.sql(f"DROP TABLE IF EXISTS {name}")
        folder = Path(self._writers._lake_folder()) / "warehouse" / NAMESPACE / self._table[1]
        shutil.rmtree(folder, ignore_errors=True)

    def _say(self, text: str) -> None:
        self.report.history.append(text)

    def _fault(self, text: str) -> None:
        self.report.faults.append(text)
        self._say(f"FAULT {text}")

    # Steps

    def _let_others_write(self) -> None:
        self._say(self._writers.random_step())
        self._compare(self._state())

    def _let_icekit_work(self) -> None:
        before = self._state()
        snapshot_before = self._writers.metadata().current_snapshot_id
        features = ", ".join(self._features())
        events: list[str] = []

        def let_another_write() -> None:
            nonlocal before
            events.append(self._writers.random_step())
            self._say(f"meanwhile {events[-1]}")
            before = self._state()

        crossing: AbstractContextManager[None] = nullcontext()
        if self._chance.random() < 0.3:
            crossing = at_crossing(self._chance.randrange(1, 9), let_another_write)
        with crossing:
            ending = self._steps.random_step()
        label = str(ending.status) if ending.status is not None else "refused"
        self.report.endings[f"{ending.step.split()[0]}: {label}"] += 1
        self._say(f"icekit {ending.step}: {label} {_short(ending.error)}")
        after = self._state()
        if after.rows != before.rows:
            self._fault(
                f"{ending.step} changed rows ({label}; {features}): lost {_few(before.rows - after.rows)}, "
                f"revived {_few(after.rows - before.rows)}"
            )
        elif before.has_ids and after.lineage != before.lineage:
            changed = before.lineage - after.lineage
            self._fault(f"{ending.step} changed row ids ({label}): {_few(changed)}")
        if ending.status is Status.UNPROVED:
            self.report.disagreements.setdefault("proof", f"unproved: {_short(ending.error)}")
        if ending.status is Status.DISPROVED:
            self._fault(f"{ending.step} is DISPROVED: {_short(ending.error)}")
        refusals = REFUSALS_BESIDE_OTHERS if events else REFUSALS
        if not refusals.issuperset(ending.error_classes):
            self._fault(f"{ending.step} failed: {_short(ending.error)}")
        elif ending.status is None and not events:
            snapshot = self._writers.metadata().current_snapshot_id
            if snapshot != snapshot_before:
                self._fault(f"{ending.step} refused after a commit: {_short(ending.error)}")
        self.report.refusals.update(refusals.intersection(ending.error_classes))
        self._compare(after)

    def _let_icekit_read(self) -> None:
        """The rows with equality deletes resolved on a clone, which is a reader of icekit's own."""
        state = self._state()
        schema = self._writers.metadata().current_schema
        try:
            with resolved(self._lake, self._table) as frame:
                rows = rows_of_frame(frame, schema)
        except Exception as error:
            name = type(error).__name__
            text = f"read_resolved: {name}: {_short(str(error))}"
            if name not in REFUSALS:
                self._fault(text)
                return
            self.report.endings["read_resolved: refused"] += 1
            self.report.refusals[name] += 1
            self._say(f"icekit {text}")
            return
        self.report.endings["read_resolved: done"] += 1
        self._say("icekit read_resolved: done")
        if rows != state.rows:
            self._fault(
                f"read_resolved ({', '.join(self._features())}) lacks {_few(state.rows - rows)}, "
                f"has {_few(rows - state.rows)}"
            )

    # Readers

    def _state(self) -> _State:
        rows = live_rows(self._writers.metadata())
        lineage = Counter((each.row, each.lineage) for each in rows)
        has_ids = all(each.lineage[0] is not None for each in rows)
        return _State(Counter(each.row for each in rows), lineage, has_ids)

    def _compare(self, state: _State) -> None:
        """Read the table by each engine, and note where it reads other rows."""
        metadata = self._writers.metadata()
        schema = metadata.current_schema
        snapshot_id = metadata.current_snapshot_id
        if snapshot_id is None:
            return
        if snapshot_id not in self._rows_of_snapshots:
            rows = Counter(each.row for each in live_rows(metadata, snapshot_id))
            self._rows_of_snapshots[snapshot_id] = rows
        location = self._writers.location()
        full = self._lake.sql_name(self._table)
        self._judge("Spark", state.rows, lambda: read_by_spark(self._elsewhere, full, schema))
        self._judge("pyiceberg", state.rows, lambda: read_by_pyiceberg(location, schema))
        if self._duckdb is not None:
            duckdb = self._duckdb
            self._judge("DuckDB", state.rows, lambda: duckdb.read(location, schema))

    def _judge(self, engine: str, rows: Rows, read: Callable[[], Rows]) -> None:
        try:
            answer = read()
        except Exception as error:
            self.report.comparisons[f"{engine} cannot read"] += 1
            self._say(f"  {engine} cannot read: {type(error).__name__}: {_short(str(error), 160)}")
            return
        if answer == rows:
            self.report.comparisons[f"{engine} agrees"] += 1
            return
        self.report.comparisons[f"{engine} disagrees"] += 1
        text = (
            f"{engine} lacks {_few(rows - answer)}, has {_few(answer - rows)} "
            f"(of {rows.total()} rows; {', '.join(self._features())})"
        )
        self.report.disagreements.setdefault(engine, text)
        self._say(f"  {text}")

    def _features(self) -> list[str]:
        """What of a table readers are known to read differently."""
        metadata = self._writers.metadata()
        snapshot_id = metadata.current_snapshot_id
        files = [] if snapshot_id is None else files_of(metadata, snapshot_id)
        features = [f"version {metadata.version}"]
        ids = {each for file in files for each in file.equality_ids}
        for field_id in sorted(ids):
            struct = metadata.latest_struct_with(field_id)
            path = path_to(struct, field_id) if struct is not None else None
            if path is None:
                features.append(f"key {field_id} unknown")
                continue
            is_dropped = path_to(metadata.current_schema, field_id) is None
            kind = path[-1].type
            assert isinstance(kind, Primitive)
            features.append(
                f"{'dropped ' if is_dropped else ''}{'nested ' if len(path) > 1 else ''}"
                f"{kind.name} key"
            )
        if any(file.is_vector for file in files):
            features.append("vectors")
        if any(file.content == POSITION_DELETES and not file.is_vector for file in files):
            features.append("positions")
        features.append("/".join(sorted({file.format for file in files})))
        if any(field.initial_default is not None for field in walk(metadata.current_schema)):
            features.append("defaults")
        if any(isinstance(field.type, MapOf) for field in walk(metadata.current_schema)):
            features.append("maps")
        if metadata.name_mapping:
            features.append("name mapping")
        if any(metadata.specs.values()):
            features.append("partitions")
        if any(file.content == EQUALITY_DELETES for file in files):
            features.append("equality deletes")
        return features

    def _check_snapshots(self) -> None:
        """Each snapshot that is still there has the rows that it had."""
        metadata = self._writers.metadata()
        for snapshot_id, rows in self._rows_of_snapshots.items():
            if snapshot_id not in metadata.snapshots:
                continue
            try:
                now = Counter(each.row for each in live_rows(metadata, snapshot_id))
            except (OSError, NotReadable) as error:
                self._fault(f"snapshot {snapshot_id} is not readable: {error}")
                continue
            if now != rows:
                self._fault(f"snapshot {snapshot_id} has other rows than when it was new")


def _few(rows: Counter[Any]) -> str:
    texts = [str(row) for row in list(rows.elements())[:2]]
    return f"{rows.total()} rows {' '.join(texts)}"[:600]


def _short(text: str, length: int = 1500) -> str:
    """Without Java's part of it, which is long and says little."""
    text = text.split("\n\tat ")[0]
    return text if len(text) <= length else f"{text[:length]}…"
