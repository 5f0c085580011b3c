"""What a table should hold: plain Python, which knows nothing of files, snapshots on disk or
sequence numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from icekit.common.sql import Identifier, literal

#: Keys of the columns that every table begins with; those that are added later count on.
ID, K, P, V = range(4)
MAIN = "main"

#: A row: values by the keys of columns. A column that was added later is not in it, and null.
Row = Mapping[int, Any]
#: A row as it is compared: each value as Spark's text of it.
Text = tuple[str | None, ...]


@dataclass(frozen=True)
class Column:
    """A column; its key stays when it is renamed or widened, as Iceberg's field id does."""

    key: int
    name: str
    type: str


@dataclass(frozen=True)
class State:
    """Rows at one moment, and the columns that they were read with."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def text(self, row: Row) -> Text:
        """A row as it is compared."""
        values = (row.get(column.key) for column in self.columns)
        return tuple(None if value is None else str(value) for value in values)

    def texts(self) -> Counter[Text]:
        """All rows as they are compared, each as often as it is there."""
        return Counter(self.text(row) for row in self.rows)


@dataclass
class Model:
    """One table: its rows by branch, its tags, and what the snapshots of ``main`` held when they
    were new.

    ``fields`` are the current partition fields; ``specs`` says in which partition spec a row of a
    branch lies, as that decides which equality deletes reach it. It is the one thing that is asked
    of the table: a compaction may move a row.
    """

    name: Identifier
    version: int
    columns: tuple[Column, ...] = (
        Column(ID, "id", "bigint"),
        Column(K, "k", "int"),
        Column(P, "p", "int"),
        Column(V, "v", "int"),
    )
    fields: tuple[str, ...] = ()
    branches: dict[str, tuple[Row, ...]] = field(default_factory=lambda: {MAIN: ()})
    tags: dict[str, State] = field(default_factory=dict)
    past: dict[int, State] = field(default_factory=dict)
    specs: dict[tuple[str, Text], int] = field(default_factory=dict)
    next_key: int = V + 1

    def column(self, key: int) -> Column:
        """A column by its key."""
        return next(column for column in self.columns if column.key == key)

    def state(self, branch: str = MAIN) -> State:
        """What a branch holds, as the columns are now."""
        return State(self.columns, self.branches[branch])

    def new_rows(self, ids: Collection[int], p: int, stamp: int) -> list[Row]:
        """Rows that no other step writes: ``stamp`` is the step's own number."""
        base = [{ID: i, K: None if i % 4 == 3 else i % 4, P: p, V: stamp} for i in sorted(ids)]
        more = {column.key: f"x{stamp}" for column in self.columns if column.key > V}
        return [{**row, **more} for row in base]

    def values(self, rows: Iterable[Row]) -> str:
        """Rows as a query, with the columns as they are now."""
        given = (", ".join(literal(row.get(column.key)) for column in self.columns) for row in rows)
        return "SELECT * FROM VALUES " + ", ".join(f"({row})" for row in given)

    def append(self, rows: Iterable[Row], branch: str = MAIN) -> None:
        """Put rows to those that are there."""
        self.branches[branch] = (*self.branches[branch], *rows)

    def change(self, change: Callable[[Row], Row | None], branch: str = MAIN) -> None:
        """Change every row; None takes it away."""
        changed = (change(row) for row in self.branches[branch])
        self.branches[branch] = tuple(row for row in changed if row is not None)

    def spec_of(self, row: Row, branch: str) -> int | None:
        """The partition spec that a row's file has, as the table last said."""
        return self.specs.get((branch, self.state(branch).text(row)))
