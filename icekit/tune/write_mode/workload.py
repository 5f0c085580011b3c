"""What a trial runs: a person's own statement, or synthetic ones shaped like a table's history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import metadata_table
from icekit.errors import ParameterError
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.parts import Column
from icekit.facts.where import where
from icekit.sql import Identifier, identifier, literal
from icekit.tune.statement import Statement
from icekit.tune.write_mode.history import MERGE_ON_READ, WriteHistory
from icekit.units import count, percent

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: Rows that a commit changes where the history does not say.
DEFAULT_SHARE = 0.01
OPERATIONS = ("delete", "update", "merge")
SCATTERED, CLUSTERED = "scattered", "clustered"
#: A commit that touched more than this share of the files is taken for a scattered one.
_SCATTERED_SHARE = 0.5
_HASHED_COLUMNS = 8
_UNIT = 1_000_000


@dataclass(frozen=True)
class Workload:
    """Some statements, each of which is one commit; ``statements`` take the table to aim at, named with its catalog.

    ``operation`` tells which write mode applies (``write.<operation>.mode``).
    """

    operation: str
    described: str
    statements: tuple[Callable[[Identifier], str], ...]
    is_synthetic: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic commit changes: this share of the rows, in all files or in this share of them."""

    operation: str
    share: float
    spread: str
    file_share: float

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ParameterError(f"The operation is {self.operation!r}; give one of {', '.join(OPERATIONS)}.")
        if self.spread not in (SCATTERED, CLUSTERED):
            raise ParameterError(f"The spread is {self.spread!r}; give {SCATTERED} or {CLUSTERED}.")
        for name, value in (("share of rows", self.share), ("share of files", self.file_share)):
            if not 0 < value <= 1:
                raise ParameterError(f"The {name} is {value}; give a number above 0 and up to 1, such as 0.01.")


def own(statement: Statement) -> Workload:
    """A person's own statement, as one commit."""
    return Workload(statement.kind.lower(), f"your {statement.kind}", (statement.on,), is_synthetic=False)


def shaped_like(
    facts: TableFacts,
    history: WriteHistory,
    *,
    operation: str | None = None,
    share: float | None = None,
    spread: str | None = None,
    file_share: float | None = None,
) -> Shape:
    """The shape of a table's row-level commits so far; what is given is taken, what is unknown is the default."""
    rows = facts.data.record_count
    seen = [o for o in history.row_level if o.kind in OPERATIONS] or list(history.row_level)
    if operation is not None:
        seen = [o for o in seen if o.kind == operation] or seen
    usual = seen[0] if seen else None
    kind = operation or (usual.kind if usual and usual.kind in OPERATIONS else "update" if usual else "merge")
    told = next((o.rows_changed for o in seen if o.rows_changed), None)
    if share is None:
        share = min(max(told / rows, 1e-6), 1.0) if told and rows else DEFAULT_SHARE
    # A partition-granular delete file hides how many data files it reaches.
    touched = next((o.file_share for o in seen if o.file_share), None)
    if file_share is None:
        file_share = touched if touched and not (usual and usual.mode == MERGE_ON_READ and touched < share) else 1.0
    if spread is None:
        spread = SCATTERED if file_share > _SCATTERED_SHARE else CLUSTERED
    if spread == CLUSTERED and file_share == 1.0:
        file_share = min(1.0, max(share * 2, 1 / max(facts.data.file_count, 1)))
    return Shape(kind, share, spread, file_share if spread == CLUSTERED else 1.0)


def synthetic(lake: Lake, facts: TableFacts, shape: Shape, commits: int, *, is_copied: bool = False) -> Workload:
    """Statements of a shape, each for other rows of the table as it is now.

    A MERGE needs a key, which nobody has named, so an UPDATE stands in for it: it writes the same
    rows and files, without the join. ``is_copied`` says that each copy has files of its own.
    """
    columns = [c for c in _tops(facts) if not c.type.startswith(("variant", "geo"))]
    if not columns:
        raise ParameterError("The table has no column of a plain type to choose rows by; give a statement of your own to try.")
    hashed = ", ".join(identifier(c.name) for c in columns[:_HASHED_COLUMNS])
    if shape.spread == SCATTERED:
        places: Sequence[str | None] = [None] * commits
        within = shape.share
    else:
        places, reached = _places(lake, facts, shape, commits, is_copied)
        within = min(1.0, shape.share / max(reached, 1e-9))
    made = []
    for number, place in enumerate(places):
        # Other rows each time; and no BETWEEN, which Iceberg 1.12 cannot take of an expression in a DELETE.
        chosen = f"pmod(xxhash64({hashed}, {number}), {_UNIT}) < {max(1, round(within * _UNIT))}"
        made.append(_statement(facts, shape.operation, f"({place}) AND {chosen}" if place is not None else chosen))
    stand_in = " (an UPDATE stands in for the MERGE)" if shape.operation == "merge" else ""
    files = "all files" if shape.spread == SCATTERED else f"{percent(shape.file_share)} of the files"
    described = f"{shape.operation.upper()} of {percent(shape.share)} of the rows in {files}{stand_in}, {count(commits, 'commit')}"
    return Workload(shape.operation, described, tuple(made), is_synthetic=True)


def _statement(facts: TableFacts, operation: str, predicate: str) -> Callable[[Identifier], str]:
    if operation == "delete":
        return lambda table: f"DELETE FROM {identifier(*table)} WHERE {predicate}"
    sources = {f.source for s in facts.specs for f in s.fields} | {f.source for f in facts.sort_order}
    tops = [c.name for c in _tops(facts)]
    # Set to itself: the row is written anew, wherever it belongs.
    column = identifier(next((name for name in tops if name not in sources), tops[0]))
    return lambda table: f"UPDATE {identifier(*table)} SET {column} = {column} WHERE {predicate}"


def _tops(facts: TableFacts) -> list[Column]:
    """The columns of a plain type; what lists and maps hold is named after them, and cannot be asked for by that name."""
    return [c for c in facts.columns if len(c.names) == 1 and not c.name.endswith((".element", ".key", ".value"))]


def _places(lake: Lake, facts: TableFacts, shape: Shape, commits: int, is_copied: bool) -> tuple[list[str], float]:
    """Where each commit's rows are, and the share of all rows that one such place holds: partitions where there are, else files."""
    groups = sorted(facts.of_kind(Kind.DATA), key=lambda g: (g.partition.spec_id, [str(v) for v in g.partition.values]))
    total = facts.data.record_count
    files = max(1, round(shape.file_share * facts.data.file_count))
    specs = {s.spec_id: s for s in facts.specs}
    found: list[str] = []
    rows, left = 0, list(groups)
    while len(found) < commits and left and not specs[left[0].partition.spec_id].is_unpartitioned:
        taken = [left.pop()]
        count_taken = taken[0].file_count
        while left and count_taken + left[-1].file_count <= files:
            count_taken += left[-1].file_count
            taken.append(left.pop())
        predicate = where(facts.catalog, specs, facts.columns, [g.partition for g in taken], of_rows=True)
        if predicate is None:
            break
        found.append(predicate)
        rows += sum(g.record_count for g in taken)
    if len(found) == commits:
        return found, rows / commits / max(total, 1)
    if is_copied:
        raise ParameterError(
            "A copied sample has too few partitions to cluster changes in; give spread=scattered, or a statement of your own."
        )
    data_files = metadata_table(lake.spark, lake.sql_name(facts.table), "data_files")
    listed = data_files.select("file_path", "record_count").orderBy("file_path").limit(files * commits).collect()
    if len(listed) < commits:
        raise ParameterError("The table has fewer data files than the trial has commits; give commits=1, or a statement of your own.")
    each = len(listed) // commits
    parts = [listed[i * each : (i + 1) * each] for i in range(commits)]
    predicates = [f"_file IN ({', '.join(literal(row.file_path) for row in part)})" for part in parts]
    return predicates, sum(row.record_count for part in parts for row in part) / commits / max(total, 1)
