"""Write a table's sort order as SQL, and the statements that restore it; pure."""

from collections.abc import Mapping

from icekit.common.sql import (
    Identifier,
    identifier,
    set_properties_sql,
    transform_sql,
    unset_properties_sql,
)
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column, SortField

DISTRIBUTION = "write.distribution-mode"


def column_sql(columns_by_name: Mapping[str, Column], column_name: str) -> str:
    """A column's path as SQL, by its dotted name."""
    column = columns_by_name.get(column_name)
    return identifier(*(column.names if column is not None else (column_name,)))


def order_restoration(table: Identifier, facts: TableFacts) -> tuple[str, str]:
    """The statements that restore the current order and distribution.

    ``WRITE ORDERED BY`` also sets ``write.distribution-mode`` to range and ``WRITE UNORDERED`` to
    none (from Iceberg's SQL extensions), so the undo restores that property too.
    """
    table_sql = identifier(*table)
    if facts.sort_order:
        order_statement = (
            f"ALTER TABLE {table_sql} WRITE LOCALLY ORDERED BY "
            f"{', '.join(_sort_term(facts.by_name, f) for f in facts.sort_order)}"
        )
    else:
        order_statement = f"ALTER TABLE {table_sql} WRITE UNORDERED"
    current_mode = facts.properties.get(DISTRIBUTION)
    mode_statement = (
        set_properties_sql(table, {DISTRIBUTION: current_mode})
        if current_mode is not None
        else unset_properties_sql(table, [DISTRIBUTION])
    )
    return order_statement, mode_statement


def _sort_term(columns_by_name: Mapping[str, Column], sort_field: SortField) -> str:
    source_sql = column_sql(columns_by_name, sort_field.source)
    term_sql = transform_sql(source_sql, sort_field.transform)
    null_order = sort_field.null_order.replace("-", " ")
    return f"{term_sql} {sort_field.direction.upper()} {null_order.upper()}"
