"""Hold partition fields and orders of rows, and write the statements that change a table's, its
data files, and their undo; pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from icekit.common import frozen
from icekit.common.command_line import command_line
from icekit.common.sql import Identifier, call_sql, display_name, identifier, transform_sql
from icekit.health.facts.model import TableFacts
from icekit.health.facts.sort_order import column_sql
from icekit.iceberg.definition import PartitionSpec
from icekit.tune.answer import Change
from icekit.tune.filters import Columns

SORT = "sort"
ZORDER = "zorder"
OLD_DATA = "existing data files"

#: What one statement rewrites at most: one file group of Iceberg's (max-file-group-size-bytes).
MOST_BYTES = 100 << 30


@dataclass(frozen=True, slots=True, order=True)
class SpecField:
    """A partition field: a column by name and its transform as a spec names it (``day``,
    ``bucket[16]``).
    """

    column: str
    transform: str

    def __str__(self) -> str:
        return self.column if self.transform == "identity" else f"{self.transform}({self.column})"


def spec_fields_of(spec: PartitionSpec) -> tuple[SpecField, ...]:
    """A spec's fields by column; those that are void or whose column is gone are left out."""
    return tuple(
        SpecField(f.source, f.transform) for f in spec.active_fields if f.source is not None
    )


def spec_name(spec: Sequence[SpecField]) -> str:
    """``day(time_hour), carrier``; ``unpartitioned``."""
    return ", ".join(map(str, spec)) or "unpartitioned"


@frozen
class RowOrder:
    """An order of rows within a partition: ``kind`` is sort or zorder. Only a rewrite can apply a
    z-order. A sort without columns is by the order that the table has itself, directions, nulls
    and transforms included.
    """

    kind: str
    columns: tuple[str, ...]

    def __str__(self) -> str:
        columns_text = ", ".join(self.columns)
        return f"zorder({columns_text})" if self.kind == ZORDER else columns_text


def plain_sort_order(facts: TableFacts) -> RowOrder | None:
    """The table's sort order, as far as its first fields are plain columns; None without one."""
    plain_fields = takewhile(lambda field: field.transform == "identity", facts.sort_order)
    columns = tuple(field.source for field in plain_fields)
    return RowOrder(SORT, columns) if columns else None


def _sort_terms_sql(columns: Columns, column_names: Sequence[str]) -> str:
    return ", ".join(f"{column_sql(columns, n)} ASC NULLS FIRST" for n in column_names)


def write_order_sql(
    table: Identifier, columns: Columns, column_names: Sequence[str], *, is_by_partition: bool
) -> str:
    """The statement that new writes are ordered by; ``is_by_partition`` brings each partition to
    one task instead of sorting all rows.
    """
    write_order_clause = (
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY"
        if is_by_partition
        else "WRITE ORDERED BY"
    )
    return (
        f"ALTER TABLE {identifier(*table)} {write_order_clause} "
        f"{_sort_terms_sql(columns, column_names)}"
    )


def rewrite_files_sql(
    table: Identifier, columns: Columns, order: RowOrder | None, *, is_one_commit: bool = False
) -> str:
    """The call that rewrites old data, sorted where there is an order; ``table`` is named with its
    catalog.

    The call takes files of a good size too (``rewrite-all``). Groups of files are rewritten at
    once and committed one by one, unless ``is_one_commit``.
    """
    sort_arguments: dict[str, str] = {} if order is None else {"strategy": "sort"}
    if order is not None and order.columns:
        columns_sql = ", ".join(column_sql(columns, n) for n in order.columns)
        is_sort = order.kind == SORT
        sort_arguments["sort_order"] = (
            _sort_terms_sql(columns, order.columns) if is_sort else f"zorder({columns_sql})"
        )
    return call_sql(
        table[0],
        "rewrite_data_files",
        table=display_name(table[1:]),
        **sort_arguments,
        options={"rewrite-all": "true", "partial-progress.enabled": str(not is_one_commit).lower()},
    )


def rewrite_manifests_sql(table: Identifier) -> str:
    """The call that rewrites the manifests; ``table`` is named with its catalog."""
    return call_sql(table[0], "rewrite_manifests", table=display_name(table[1:]))


def rewrite_change(facts: TableFacts, why: str, order: RowOrder | None) -> Change:
    """Rewrite the existing data files, those of a large table in portions."""
    unscripted_change = Change(OLD_DATA, "as they are", "rewritten", why)
    if facts.data.size_in_bytes > MOST_BYTES:
        compact_options = ["--scope", "major", "--budget", "100 GB"]
        if order is not None:
            compact_options += ["--strategy", order.kind]
            compact_options += ["--columns", ",".join(order.columns)] if order.columns else []
        compact_command = command_line("compact", facts.catalog, facts.name, *compact_options)
        return replace(unscripted_change, why=f"{why} In portions: {compact_command}.")
    return replace(
        unscripted_change,
        sql=(rewrite_files_sql(facts.sql_name, facts.by_name, order),),
        side_effect="the undo does not move rewritten files back",
    )


def spec_change_sql(
    table: Identifier,
    columns: Columns,
    old_fields: Sequence[SpecField],
    new_fields: Sequence[SpecField],
) -> tuple[str, ...]:
    """The statements from one spec to another: each replaces, adds or drops one field; called the
    other way round they undo.
    """
    dropped_fields = [f for f in old_fields if f not in new_fields]
    added_fields = [f for f in new_fields if f not in old_fields]
    table_sql = identifier(*table)

    def field_sql(field: SpecField) -> str:
        return transform_sql(column_sql(columns, field.column), field.transform)

    alter_clauses = [
        f"REPLACE PARTITION FIELD {field_sql(a)} WITH {field_sql(b)}"
        for a, b in zip(dropped_fields, added_fields, strict=False)
    ]
    replaced_count = len(alter_clauses)
    alter_clauses += [
        f"DROP PARTITION FIELD {field_sql(f)}" for f in dropped_fields[replaced_count:]
    ]
    alter_clauses += [f"ADD PARTITION FIELD {field_sql(f)}" for f in added_fields[replaced_count:]]
    return tuple(f"ALTER TABLE {table_sql} {alter_clause}" for alter_clause in alter_clauses)
