"""Where a trial runs: a zero-copy clone for each variant or, where there can be none, a copied sample."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.clone import NAMESPACE, clone, owner_properties, remove_folders, scratch_folder, scratch_name
from icekit.errors import CloneRefused, ParameterError
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.sql import Identifier, identifier, literal, transform_of
from icekit.tune.budget import Budget
from icekit.units import percent, size
from icekit.where import where

if TYPE_CHECKING:
    from icekit.catalog import Lake


#: Files that a sample is made of are named one by one.
_MOST_FILES = 2_000


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
            with budget.watching(lake.spark, min(sample_bytes, facts.data.size_in_bytes)):
                stack.places.append(stack.enter_context(_sample(lake, facts, sample_bytes, partitioned=partitioned)))
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
def _sample(lake: Lake, facts: TableFacts, sample_bytes: int, *, partitioned: bool) -> Iterator[Place]:
    """A copy of some of a table's rows with its partitioning, sort order and properties; gone afterwards.

    Whole partitions from the middle of the list while they fit, else some data files.
    """
    made = scratch_name(facts.table)
    name = identifier(*lake.sql_name(made))
    source = identifier(*lake.sql_name(facts.table))
    scratch = scratch_folder(facts.location, made)
    properties = {
        **{k: v for k, v in facts.properties.items() if k.startswith(("write.", "read.", "format-version")) and "path" not in k},
        "format-version": str(facts.format_version),
        **owner_properties(lake, facts.table, scratch),
    }
    pairs = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in properties.items())
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
        lake.spark.sql(f"INSERT INTO {name} SELECT * FROM {source} {version} WHERE {_chosen(lake, facts, sample_bytes)}")
        got = lake.spark.sql(f"SELECT coalesce(sum(file_size_in_bytes), 0) FROM {identifier(*lake.sql_name(made), 'data_files')}").collect()
        copied = int(got[0][0])
        if not copied:
            raise ParameterError("The sample of the table has no rows; give a larger sample_bytes.")
        yield Place(made, copied, max(1.0, facts.data.size_in_bytes / copied), is_sample=True)
    finally:
        # Its files are all its own.
        lake.spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")
        remove_folders(lake.spark, scratch)


def _chosen(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    groups = sorted(facts.of_kind(Kind.DATA), key=lambda g: g.size_in_bytes)
    if facts.data.size_in_bytes <= sample_bytes:
        return "true"
    middle = len(groups) // 2
    taken, reached = [], 0
    for place in sorted(range(len(groups)), key=lambda i: abs(i - middle)):
        if reached + groups[place].size_in_bytes > sample_bytes:
            break
        taken.append(groups[place].partition)
        reached += groups[place].size_in_bytes
    specs = {s.spec_id: s for s in facts.specs}
    predicate = where(facts.catalog, specs, facts.columns, taken, of_rows=True) if taken else None
    if predicate is not None:
        return predicate
    return some_files(lake, facts, sample_bytes)


def some_files(lake: Lake, facts: TableFacts, sample_bytes: int) -> str:
    """A predicate for the rows of some data files from all over the table, of about this many bytes together; ``true`` if that is all."""
    if facts.data.size_in_bytes <= sample_bytes:
        return "true"
    mean = max(1.0, facts.data.size_in_bytes / max(facts.data.file_count, 1))
    listed = lake.spark.sql(
        f"SELECT file_path FROM {identifier(*lake.sql_name(facts.table), 'data_files')} ORDER BY xxhash64(file_path) "
        f"LIMIT {min(_MOST_FILES, max(1, int(sample_bytes / mean)))}"
    ).collect()
    return f"_file IN ({', '.join(literal(row.file_path) for row in listed)})"
