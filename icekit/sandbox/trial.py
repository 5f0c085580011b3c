"""Try changes in sandboxes: zero-copy clones or, if the catalog does not accept them, copied
samples, within a budget of time and bytes.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.errors import (
    LONGEST_WAIT,
    CloneRefused,
    ParameterError,
    SparkUnavailable,
    require_number,
)
from icekit.common.parsing import size_in_bytes
from icekit.common.sql import Identifier, identifier, literal
from icekit.common.units import percent, plain_number, size
from icekit.engine.bridge import require_classic, temporary_settings
from icekit.engine.cluster import CACHE_KEYS
from icekit.engine.effort import Effort, cost_unit, measure_effort
from icekit.engine.errors import engine_errors, reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.metadata_tables import metadata_table, sample_paths
from icekit.engine.planner import PlannedScan, plan_scan
from icekit.health.collect import observe
from icekit.health.facts.column_support import require_supported
from icekit.health.facts.files import FileGroup
from icekit.health.facts.head import commits_since, head
from icekit.health.facts.model import TableFacts
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.metadata import Json, summary_of
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import MOST_PARTITIONS, fields_without_column
from icekit.sandbox.clones import clone
from icekit.sandbox.scratch import NAMESPACE, ScratchTable, create_scratch_table, discard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.lake import Lake


class BudgetSpent(Exception):
    """The trial ends here; measurements made so far stand."""


#: Default budget of a question about a table.
BUDGET_BYTES = "20 GB"


class Budget:
    """A budget of seconds and of bytes written, starting now."""

    def __init__(self, seconds: float, size_text: str = BUDGET_BYTES) -> None:
        require_number("budget_seconds", seconds, is_positive=True, maximum=LONGEST_WAIT)
        self._time_up_sentence = f"the time budget of {plain_number(seconds, 6)} s ran out"
        self.limit_bytes = size_in_bytes(size_text)
        self.bytes_written = 0
        self._stop = Stop(seconds)

    def check(self, next_bytes: int = 0) -> None:
        """Raise :class:`BudgetSpent` when the time is up, or when the next step would write too
        much.
        """
        if self._stop.is_set:
            raise BudgetSpent(self._time_up_sentence)
        if self.bytes_written + next_bytes > self.limit_bytes:
            raise BudgetSpent(
                f"the next step would write about {size(next_bytes)}, and "
                f"{size(self.bytes_written)} of the budget of {size(self.limit_bytes)} are used"
            )

    @contextmanager
    def cancel_jobs_when_spent(self, spark: SparkSession, next_bytes: int = 0) -> Iterator[None]:
        """Cancel the Spark jobs of the block when the time is up; raises :class:`BudgetSpent`
        then.
        """
        self.check(next_bytes)
        try:
            with self._stop.cancel_jobs_on_stop(spark):
                yield
        except Stopped as stopped:
            raise BudgetSpent(self._time_up_sentence) from stopped.__cause__


#: The files of a sample are named one by one.
_MOST_FILES = 2_000
#: Options of a write that neither shuffles nor sorts the rows for the table.
_AS_THEY_LIE = {"use-table-distribution-and-ordering": "false", "fanout-enabled": "true"}


@frozen
class StatementResult:
    """The result of a statement: wall-clock seconds, the snapshots it made, its frame, and its cost
    in the sandbox's unit.
    """

    seconds: float
    snapshots: Sequence[Json]
    frame: DataFrame
    cost: float = 0.0

    def summary_total(self, key: str) -> int:
        """A counter of the snapshots' summaries, such as ``added-files-size``."""
        return sum(int(summary_of(snapshot).get(key) or 0) for snapshot in self.snapshots)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A table that may be written to: a clone, or a sample of a table that is ``scale`` times as
    large.

    The budget applies to each step, and what the step writes counts against it. ``cost_unit`` is
    what the cost of a step is measured in (see :mod:`icekit.engine.effort`).
    """

    lake: Lake
    table: Identifier
    size_in_bytes: int
    budget: Budget
    scale: float
    is_sample: bool
    cost_unit: str

    @property
    def name(self) -> Identifier:
        """The table's name, with its catalog."""
        return self.lake.sql_name(self.table)

    def set(self, *statements: str) -> None:
        """Run statements that only change settings."""
        for statement in statements:
            self.lake.spark.sql(statement)

    def run(
        self, sql: str, *, expected_bytes: int = 0, settings: Mapping[str, str] | None = None
    ) -> StatementResult:
        """Run a statement with temporary session settings; raises :class:`BudgetSpent` if it may
        write more than is left.
        """
        spark = self.lake.spark
        snapshot_id_before = head(self.lake, self.table).snapshot_id
        with (
            temporary_settings(spark, settings or {}),
            self.budget.cancel_jobs_when_spent(spark, expected_bytes),
            measure_effort(spark, self.cost_unit) as effort,
        ):
            frame = spark.sql(sql)
            frame.collect()
        statement_result = StatementResult(
            effort.seconds,
            commits_since(head(self.lake, self.table), snapshot_id_before),
            frame,
            effort.cost,
        )
        self.budget.bytes_written += statement_result.summary_total("added-files-size")
        return statement_result

    def scan(self, condition: str | None = None) -> Effort:
        """Read all columns of the table, and discard the rows; delete files are read again each
        time.
        """
        spark = self.lake.spark
        with (
            temporary_settings(spark, dict.fromkeys(CACHE_KEYS, "false")),
            self.budget.cancel_jobs_when_spent(spark),
        ):
            table_frame = spark.table(identifier(*self.name))
            filtered_frame = table_frame.where(condition) if condition else table_frame
            with measure_effort(spark, self.cost_unit) as effort:
                filtered_frame.write.format("noop").mode("overwrite").save()
        return effort

    def plan(self, condition: str | None = None) -> PlannedScan:
        """The files that Iceberg plans to read for a condition."""
        with self.budget.cancel_jobs_when_spent(self.lake.spark):
            return plan_scan(self.lake.spark, self.name, condition)

    def observe(self) -> TableFacts:
        """What it is now."""
        return observe(self.lake, self.table, collector="spark")


@dataclass(kw_only=True)
class Trial:
    """What a question about a table may try, and within which limits; ``stop_reason`` says why the
    trial ended early, None if it did not.
    """

    lake: Lake
    facts: TableFacts
    budget: Budget
    sample_bytes: int
    progress: Callable[[str], None]
    stop_reason: str | None = field(default=None, init=False)

    @classmethod
    def start(
        cls,
        lake: Lake,
        table: str | Identifier,
        budget: Budget,
        sample_bytes: str = "1 GB",
        progress: Callable[[str], None] = print,
    ) -> Trial:
        """A trial of the current table; refused over Spark Connect, and for a table that the
        engine cannot read or write.
        """
        parsed_sample_bytes = size_in_bytes(sample_bytes)
        require_classic(lake.spark)
        facts = observe(lake, table, collector="spark")
        require_supported(facts)
        return cls(
            lake=lake,
            facts=facts,
            budget=budget,
            sample_bytes=parsed_sample_bytes,
            progress=progress,
        )

    @property
    def is_large(self) -> bool:
        """Whether the table has more than ``sample_bytes``."""
        return self.facts.data.size_in_bytes > self.sample_bytes

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """End the block, but not the question, when the budget runs out, when there is nothing to
        try on, or when the engine fails.

        Measurements stand, unmeasured changes are not advised, and the answer says why
        (``stop_reason``).
        """
        try:
            yield
        except BudgetSpent as error:
            self.stop_reason = str(error)
        except (SparkUnavailable, CloneRefused) as error:
            self.stop_reason = f"nothing could be tried: {error}"
        except engine_errors() as error:
            self.stop_reason = (
                f"Spark failed during the trial ({reason(error)}); the table was not touched"
            )
        else:
            return
        self.progress(f"stopped: {self.stop_reason}; the answer rests on the measurements so far")

    @contextmanager
    def sandboxes(
        self, sandbox_count: int, *, always_sample: bool = False
    ) -> Iterator[Sequence[Sandbox]]:
        """Provide ``number`` clones, or copied samples where the catalog refuses clones, and remove
        all of them.
        """
        with contextlib.ExitStack() as cleanup_stack:
            if not always_sample:
                try:
                    clones = [
                        cleanup_stack.enter_context(self._clone()) for _ in range(sandbox_count)
                    ]
                except CloneRefused as error:
                    self.progress(f"{error} The trial continues with copied samples.")
                else:
                    yield clones
                    return
            samples = [cleanup_stack.enter_context(self._sample()) for _ in range(sandbox_count)]
            first_sample = samples[0]
            self.progress(
                f"tried on a copied sample of {size(first_sample.size_in_bytes)}, "
                f"{percent(1 / first_sample.scale)} of the table; figures are scaled"
            )
            yield samples

    def _sandbox(self, table: Identifier, size_in_bytes: int, *, is_sample: bool) -> Sandbox:
        return Sandbox(
            lake=self.lake,
            table=table,
            size_in_bytes=size_in_bytes,
            budget=self.budget,
            scale=max(1.0, self.facts.data.size_in_bytes / max(size_in_bytes, 1)),
            is_sample=is_sample,
            cost_unit=cost_unit(self.lake.spark, self.facts.location),
        )

    @contextmanager
    def _clone(self) -> Iterator[Sandbox]:
        facts = self.facts
        with clone(self.lake, facts.table, facts.ref or facts.snapshot_id) as clone_table:
            yield self._sandbox(clone_table.table, facts.data.size_in_bytes, is_sample=False)

    @contextmanager
    def _sample(self) -> Iterator[Sandbox]:
        """A copy of some of a table's rows with its partitioning, sort order and properties;
        removed afterwards.

        Takes complete partitions from all over the table while they fit, otherwise some data files.
        Rows are copied in file order, neither shuffled nor sorted, so that the copy is clustered as
        poorly as the table.
        """
        lake = self.lake
        facts = self.facts
        sample_table = ScratchTable.new(facts.table, facts.location)
        inherited_properties = {
            table_name: value
            for table_name, value in facts.properties.items()
            if table_name.startswith(("write.", "read.")) and "path" not in table_name
        }
        properties = {
            **inherited_properties,
            "format-version": str(facts.format_version),
            **sample_table.ownership_properties(own_files=True),
        }
        lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        io = create_scratch_table(lake, sample_table, properties)
        try:
            table_name = lake.sql_name(sample_table.table)
            self._copy_rows(identifier(*table_name))
            size_frame = metadata_table(lake.spark, table_name, "data_files").selectExpr(
                "coalesce(sum(file_size_in_bytes), 0)"
            )
            copied_bytes = int(size_frame.collect()[0][0])
            if not copied_bytes:
                raise ParameterError(
                    "The sample of the table has no rows. Give a larger sample_bytes."
                )
            self.budget.bytes_written += copied_bytes
            yield self._sandbox(sample_table.table, copied_bytes, is_sample=True)
        finally:
            discard(lake, sample_table, io, none_adopted=True)

    def _copy_rows(self, sample_name: str) -> None:
        """Copy the rows of the sample as they lie."""
        lake = self.lake
        facts = self.facts
        # Without an id, the columns are those that the table has now, as those of the copy.
        version_sql = f" VERSION AS OF {facts.snapshot_id}" if facts.ref else ""
        # Only the copy can be cancelled: the removal of the table must not be.
        with self.budget.cancel_jobs_when_spent(
            lake.spark, min(self.sample_bytes, facts.data.size_in_bytes)
        ):
            filter_sql = _sample_filter_sql(lake, facts, self.sample_bytes)
            sampled_frame = lake.spark.sql(
                f"SELECT * FROM {identifier(*lake.sql_name(facts.table))}{version_sql} WHERE "
                f"{filter_sql}"
            )
            sampled_frame.writeTo(sample_name).options(**_AS_THEY_LIE).append()


def _sample_filter_sql(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    if facts.data.size_in_bytes > sample_bytes and (
        sampled_partitions := sample_partitions(facts, sample_bytes)
    ):
        partitions_sql = facts.where(sampled_partitions, is_for_query=True)
        if partitions_sql is not None:
            return partitions_sql
    return sampled_files_sql(lake, facts, sample_bytes)


def sample_partitions(facts: TableFacts, sample_bytes: int) -> list[Partition]:
    """Partitions with data from all over the table, in the order of a hash of their values, that
    fit this many bytes together.

    Partitions larger than the rest of the budget are skipped; empty if no predicate can name any.
    Pure.
    """
    usable_spec_ids = {
        s.spec_id
        for s in facts.specs
        if not s.is_unpartitioned and not fields_without_column(s, facts.columns)
    }
    groups = [
        g
        for g in facts.of_kind(Kind.DATA)
        if g.partition.spec_id in usable_spec_ids and facts.is_filterable(g.partition)
    ]
    groups_in_hash_order = sorted(
        groups, key=lambda g: zlib.crc32(repr((g.partition.spec_id, g.partition.values)).encode())
    )
    return [
        g.partition for g in groups_within(groups_in_hash_order, sample_bytes)[:MOST_PARTITIONS]
    ]


def groups_within(groups: Iterable[FileGroup], limit_bytes: int) -> list[FileGroup]:
    """The groups that fit this many bytes together, each if there is room left for it."""
    fitting_groups = []
    bytes_so_far = 0
    for group in groups:
        if bytes_so_far + group.size_in_bytes <= limit_bytes:
            fitting_groups.append(group)
            bytes_so_far += group.size_in_bytes
    return fitting_groups


def sampled_files_sql(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    """A predicate for the rows of some data files from all over the table, about this many bytes in
    total; ``true`` if that is all.

    It limits the rows but not the files opened: Iceberg does not plan by the column ``_file``, so
    Spark opens each data file of the snapshot and reads the requested columns. Iceberg would plan
    by complete partitions, but they would not represent the partitions left out.
    """
    if facts.data.size_in_bytes <= sample_bytes:
        return "true"
    mean_file_bytes = max(1.0, facts.data.size_in_bytes / max(facts.data.file_count, 1))
    assert facts.snapshot_id is not None  # a table with data has a snapshot
    files_frame = metadata_table(
        lake.spark, lake.sql_name(facts.table), "data_files", facts.snapshot_id
    )
    sampled_paths = sample_paths(
        files_frame.select("file_path"),
        min(_MOST_FILES, max(1, int(sample_bytes / mean_file_bytes))),
    )
    return f"_file IN ({', '.join(map(literal, sampled_paths))})"
