"""Run trials on zero-copy clones or, where there can be none, on a copied sample, within a budget of time and bytes."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.clone import NAMESPACE, clone, owner_properties, remove_folders, scratch_folder, scratch_name
from icekit.engine.interrupting import cancelled_when, new_tag, tagged
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.errors import CloneRefused, ParameterError, require_seconds
from icekit.facts.files import Kind, Partition
from icekit.facts.model import TableFacts
from icekit.facts.where import askable, unfiltered_fields, where
from icekit.sql import Identifier, identifier, literal, set_properties, statements, transform_of, unset_properties
from icekit.tune.ddl import DISTRIBUTION, MOST_PARTITIONS, undo_order
from icekit.units import percent, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake


# --- Hold a trial to the time and bytes that it was given, also inside a statement that runs too long


_INTERRUPT = "spark.job.interruptOnCancel"


class BudgetSpent(Exception):
    """The trial ends here; what was measured so far stands."""


class Budget:
    """So many seconds and, if given, so many bytes written, from now on."""

    def __init__(self, seconds: float, size_in_bytes: int | None = None) -> None:
        require_seconds("budget_seconds", seconds)
        self.seconds, self.bytes = seconds, size_in_bytes
        self.bytes_written = 0
        self._ends = time.monotonic() + seconds

    def check(self, next_bytes: int = 0) -> None:
        """Raise :class:`BudgetSpent` when time is up, or when the next step would write too much."""
        if self._is_over():
            raise BudgetSpent(f"the budget of {self.seconds:,g} s was spent")
        if self.bytes is not None and self.bytes_written + next_bytes > self.bytes:
            raise BudgetSpent(
                f"the next step would write about {size(next_bytes)}, and of the budget of {size(self.bytes)} {size(self.bytes_written)} are spent"
            )

    def _is_over(self) -> bool:
        return time.monotonic() >= self._ends

    @contextmanager
    def watching(self, spark: SparkSession, next_bytes: int = 0) -> Iterator[None]:
        """Cancel the Spark jobs of what runs within when time is up; raises :class:`BudgetSpent` then."""
        self.check(next_bytes)
        context = spark.sparkContext
        tag = new_tag()
        before = context.getLocalProperty(_INTERRUPT)
        context.setInterruptOnCancel(True)
        try:
            with tagged(spark, tag), cancelled_when(self._is_over, spark, tag):
                yield
        except Exception as error:
            if self._is_over():
                raise BudgetSpent(f"the budget of {self.seconds:,g} s was spent while a step ran") from error
            raise
        finally:
            context.setInterruptOnCancel(before == "true")


#: Files that a sample is made of are named one by one.
_MOST_FILES = 2_000
_FANOUT = "write.spark.fanout.enabled"


@dataclass(frozen=True, slots=True)
class Place:
    """A table that may be written to: a clone, or a sample of a table that is ``scale`` times as large."""

    table: Identifier
    size_in_bytes: int
    scale: float = 1.0
    is_sample: bool = False


def places(
    lake: Lake,
    facts: TableFacts,
    number: int,
    *,
    sample_bytes: int,
    always_sample: bool,
    budget: Budget,
    progress: Callable[[str], None],
    partitioned: bool = True,
) -> Places:
    """Open ``number`` places; leaving what is returned takes all of them away. ``partitioned`` says whether samples are as the table is."""
    stack = Places()
    try:
        if not always_sample:
            try:
                for _ in range(number):
                    copy = stack.enter_context(clone(lake, facts.table, facts.ref or facts.snapshot_id))
                    stack.places.append(Place(copy.table, facts.data.size_in_bytes))
                return stack
            except CloneRefused as error:
                stack.close()
                stack.places.clear()
                progress(f"{error} The trial goes on with copied samples.")
        for _ in range(number):
            stack.places.append(stack.enter_context(_sample(lake, facts, sample_bytes, budget, partitioned=partitioned)))
            budget.bytes_written += stack.places[-1].size_in_bytes
        first = stack.places[0]
        progress(f"tried on a copied sample of {size(first.size_in_bytes)}, {percent(1 / first.scale)} of the table; figures are scaled")
    except BaseException:
        stack.close()
        raise
    return stack


class Places(contextlib.ExitStack):
    """An exit stack that knows its places."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[Place] = []


@contextlib.contextmanager
def _sample(lake: Lake, facts: TableFacts, sample_bytes: int, budget: Budget, *, partitioned: bool) -> Iterator[Place]:
    """A copy of some of a table's rows with its partitioning, sort order and properties; gone afterwards.

    Whole partitions from all over the table while they fit, else some data files. Rows are copied as they lie, neither shuffled
    nor sorted, so that an order that has worn off is as worn in the copy; the order and the distribution are set after that.
    """
    made = scratch_name(facts.table)
    name = identifier(*lake.sql_name(made))
    source = identifier(*lake.sql_name(facts.table))
    scratch = scratch_folder(facts.location, made)
    properties = {
        **{k: v for k, v in facts.properties.items() if k.startswith(("write.", "read.", "format-version")) and "path" not in k},
        "format-version": str(facts.format_version),
        **owner_properties(lake, facts.table, scratch, own_files=True),
    }
    as_they_lie = {**properties, DISTRIBUTION: "none", _FANOUT: "true"}
    pairs = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in as_they_lie.items())
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
    try:
        lake.spark.sql(
            f"CREATE TABLE {name} USING iceberg TBLPROPERTIES ({pairs}) LOCATION {literal(scratch)} AS SELECT * FROM {source} LIMIT 0"
        )
        for field in facts.default_spec.fields if partitioned else ():
            if field.source is not None and field.transform != "void":
                column = next(c for c in facts.columns if c.field_id == field.source_id)
                lake.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD {transform_of(identifier(*column.names), field.transform)}")
        version = f"VERSION AS OF {facts.snapshot_id}"
        # Only the copy: what takes the table away again must not be cancelled.
        with budget.watching(lake.spark, min(sample_bytes, facts.data.size_in_bytes)):
            lake.spark.sql(f"INSERT INTO {name} SELECT * FROM {source} {version} WHERE {_chosen(lake, facts, sample_bytes)}")
        _set_as_it_is(lake, facts, lake.sql_name(made))
        got = metadata_table(lake.spark, lake.sql_name(made), "data_files").selectExpr("coalesce(sum(file_size_in_bytes), 0)").collect()
        copied = int(got[0][0])
        if not copied:
            raise ParameterError("The sample of the table has no rows; give a larger sample_bytes.")
        yield Place(made, copied, max(1.0, facts.data.size_in_bytes / copied), is_sample=True)
    finally:
        try:
            # Its files are all its own.
            lake.spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
        finally:
            remove_folders(lake.spark, scratch)


def _set_as_it_is(lake: Lake, facts: TableFacts, full: Identifier) -> None:
    """Give a copy the sort order, the distribution and the writer of the table."""
    for statement in statements(undo_order(full, facts)):
        lake.spark.sql(statement)
    there = facts.properties.get(_FANOUT)
    lake.spark.sql(unset_properties(full, [_FANOUT]) if there is None else set_properties(full, {_FANOUT: there}))


def _chosen(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    if facts.data.size_in_bytes <= sample_bytes:
        return "true"
    taken = some_partitions(facts, sample_bytes)
    specs = {s.spec_id: s for s in facts.specs}
    predicate = where(facts.catalog, specs, facts.columns, taken, of_rows=True) if taken else None
    if predicate is not None:
        return predicate
    return some_files(lake, facts, sample_bytes)


def some_partitions(facts: TableFacts, sample_bytes: int) -> list[Partition]:
    """Partitions with data from all over the table, in the order of a hash of their values, that fit into so many bytes together.

    Larger ones than what is left are passed over; empty where a predicate can name none of them. Pure.
    """
    specs = {s.spec_id: s for s in facts.specs}
    usable = {i for i, s in specs.items() if not s.is_unpartitioned and not unfiltered_fields(s, facts.columns)}
    groups = [g for g in facts.of_kind(Kind.DATA) if g.partition.spec_id in usable and askable(specs[g.partition.spec_id], g.partition)]
    taken: list[Partition] = []
    reached = 0
    for group in sorted(groups, key=lambda g: zlib.crc32(repr((g.partition.spec_id, g.partition.values)).encode())):
        if reached + group.size_in_bytes <= sample_bytes:
            taken.append(group.partition)
            reached += group.size_in_bytes
        if len(taken) == MOST_PARTITIONS:
            break
    return taken


def some_files(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    """A predicate for the rows of some data files from all over the table, of about this many bytes together; ``true`` if that is all.

    It bounds the rows and not what is opened: ``_file`` is no column that Iceberg plans by, so Spark opens each data file of the
    snapshot and reads the columns asked for. Whole partitions would be planned by, and tell nothing of the partitions left out.
    """
    if facts.data.size_in_bytes <= sample_bytes:
        return "true"
    mean = max(1.0, facts.data.size_in_bytes / max(facts.data.file_count, 1))
    assert facts.snapshot_id is not None  # there is data
    files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files", facts.snapshot_id)
    listed = spread(files.select("file_path"), min(_MOST_FILES, max(1, int(sample_bytes / mean))))
    return f"_file IN ({', '.join(map(literal, listed))})"
