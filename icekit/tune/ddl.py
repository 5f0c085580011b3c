"""Hold partition fields and orders of rows, and write the statements that change a table's, its
data files, and their undo; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import FileGroup, Kind, Partition, Scalar
from icekit.facts.model import TableFacts
from icekit.facts.sort_order import quoted
from icekit.facts.where import MOST_PARTITIONS, askable, unfiltered_fields, where
from icekit.sql import Identifier, display_name, identifier, rewrite_data_files, transform_of
from icekit.tune.answer import Change
from icekit.tune.filters import Columns
from icekit.units import count

SORT, ZORDER = "sort", "zorder"
OLD_DATA = "existing data files"

#: What one statement rewrites at most, where a predicate can name a part of a larger table: one
# file group of Iceberg's (max-file-group-size-bytes).
PORTION_BYTES = 100 << 30
#: Rewriting in portions: a group of files is rewritten at once, and commits go by the portion.
_PORTIONS = {"rewrite-all": "true", "partial-progress.enabled": "true"}


@dataclass(frozen=True, slots=True, order=True)
class Field:
    """A partition field: a column by name and its transform as a spec names it (``day``,
    ``bucket[16]``).
    """

    column: str
    transform: str

    def __str__(self) -> str:
        return self.column if self.transform == "identity" else f"{self.transform}({self.column})"


def fields_of(spec: PartitionSpec) -> tuple[Field, ...]:
    """A spec's fields by column; those that are void or whose column is gone are left out."""
    return tuple(
        Field(f.source, f.transform)
        for f in spec.fields
        if f.source is not None and f.transform != "void"
    )


def spec_name(spec: Sequence[Field]) -> str:
    """``day(time_hour), carrier``; ``unpartitioned``."""
    return ", ".join(map(str, spec)) or "unpartitioned"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows within a partition: ``kind`` is sort or zorder. Only a rewrite can apply a
    z-order.
    """

    kind: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        listed = ", ".join(self.columns)
        return f"zorder({listed})" if self.kind == ZORDER else listed


def own_order(facts: TableFacts) -> RowOrder | None:
    """The table's sort order, as far as its first fields are plain columns; None without one."""
    columns: list[str] = []
    for field in facts.sort_order:
        if field.transform != "identity":
            break
        columns.append(field.source)
    return RowOrder(SORT, tuple(columns)) if columns else None


def _terms(columns: Columns, names: Sequence[str]) -> str:
    return ", ".join(f"{quoted(columns, n)} ASC NULLS FIRST" for n in names)


def write_order(
    table: Identifier, columns: Columns, names: Sequence[str], *, by_partition: bool
) -> str:
    """The statement that new writes are ordered by; ``by_partition`` brings each partition to one
    task instead of sorting all rows.
    """
    how = (
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY" if by_partition else "WRITE ORDERED BY"
    )
    return f"ALTER TABLE {identifier(*table)} {how} {_terms(columns, names)}"


def rewrite(
    table: Identifier,
    columns: Columns,
    order: RowOrder | None,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    by_table: bool = False,
) -> str:
    """The call that rewrites old data, sorted where there is an order; ``table`` is named with its
    catalog.

    ``by_table`` sorts by the order that the table has itself, directions, nulls and transforms
    included. The call takes files of a good size too (``rewrite-all``), so it should have a
    ``where`` on a large table.
    """
    sorting: dict[str, str] = {"strategy": "sort"} if order is not None or by_table else {}
    if order is not None:
        listed = ", ".join(quoted(columns, n) for n in order.columns)
        is_sort = order.kind == SORT
        sorting["sort_order"] = _terms(columns, order.columns) if is_sort else f"zorder({listed})"
    asked = {} if where is None else {"where": where}
    return rewrite_data_files(
        table[0],
        table=display_name(table[1:]),
        **sorting,
        **asked,
        options={**_PORTIONS, **(options or {})},
    )


def rewrite_old(
    facts: TableFacts, why: str, order: RowOrder | None = None, *, by_table: bool = False
) -> Change:
    """Rewrite the existing data files; of a large table, the portion that a predicate selects."""
    predicate = None
    if facts.data.size_in_bytes > PORTION_BYTES:
        predicate, files = portion(facts, PORTION_BYTES)
        if predicate is None:
            why += (
                " No predicate selects a part of the table by partitions: call rewrite_data_files "
                "with a where of your own."
            )
            return Change(OLD_DATA, "as they are", "rewritten in parts", why)
        why += (
            f" The statement is for one portion of {count(files, 'data file')}: continue with "
            "other partitions."
        )
    sql = rewrite(facts.sql_name, facts.by_name, order, predicate, by_table=by_table)
    return Change(
        OLD_DATA,
        "as they are",
        "rewritten",
        why,
        sql,
        side_effect="the undo does not move rewritten files back",
    )


def portion(facts: TableFacts, limit_bytes: int) -> tuple[str | None, int]:
    """A ``where`` for the last partitions that fit into ``limit_bytes`` together (one at least),
    and their data files.

    None where no predicate can tell them from the rest: the table is not partitioned, a column is
    gone, a value has no literal.
    """
    groups = sorted(
        (g for g in facts.of_kind(Kind.DATA) if _is_askable(facts, g.partition)),
        key=lambda g: (g.partition.spec_id, [_comparable(v) for v in g.partition.values]),
    )
    last = first_fitting(
        groups[: -MOST_PARTITIONS - 1 : -1], limit_bytes, lambda g: g.size_in_bytes
    )
    files, partitions = sum(g.file_count for g in last), [g.partition for g in last]
    if not partitions:
        return None, 0
    return where(facts.catalog, facts.specs_by_id, facts.columns, partitions), files


def first_fitting(
    groups: Sequence[FileGroup], most: int, size: Callable[[FileGroup], int]
) -> list[FileGroup]:
    """The first groups whose sizes are at most this together, one at least."""
    reached = accumulate(map(size, groups))
    fitting = [g for g, total in zip(groups, reached, strict=True) if total <= most]
    return fitting or list(groups[:1])


def _is_askable(facts: TableFacts, partition: Partition) -> bool:
    spec = facts.spec(partition.spec_id)
    return (
        not spec.is_unpartitioned
        and not unfiltered_fields(spec, facts.columns)
        and askable(spec, partition)
    )


def _comparable(value: Scalar) -> tuple[bool, bool, float, str]:
    """Numbers by size and not by their digits; nulls first, texts last."""
    if isinstance(value, str):
        return True, True, 0.0, value
    return value is not None, False, float(value or 0), ""


def change_spec(
    table: Identifier, columns: Columns, old: Sequence[Field], new: Sequence[Field]
) -> tuple[str, ...]:
    """The statements from one spec to another: each replaces, adds or drops one field; called the
    other way round they undo.
    """
    gone = [f for f in old if f not in new]
    added = [f for f in new if f not in old]
    name = identifier(*table)

    def term(field: Field) -> str:
        return transform_of(quoted(columns, field.column), field.transform)

    edits = [
        f"REPLACE PARTITION FIELD {term(a)} WITH {term(b)}"
        for a, b in zip(gone, added, strict=False)
    ]
    both = len(edits)
    edits += [f"DROP PARTITION FIELD {term(f)}" for f in gone[both:]]
    edits += [f"ADD PARTITION FIELD {term(f)}" for f in added[both:]]
    return tuple(f"ALTER TABLE {name} {edit}" for edit in edits)
