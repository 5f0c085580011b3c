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


def column_sql(columns: Mapping[str, Column], name: str) -> str:
    """A column's path as SQL, by its dotted name."""
    column = columns.get(name)
    return identifier(*(column.names if column is not None else (name,)))


def order_restoration(table: Identifier, facts: TableFacts) -> tuple[str, str]:
    """The statements that restore the current order and distribution.

    ``WRITE ORDERED BY`` also sets ``write.distribution-mode`` to range and ``WRITE UNORDERED`` to
    none (from Iceberg's SQL extensions), so the undo restores that property too.
    """
    name = identifier(*table)
    if facts.sort_order:
        order_statement = (
            f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY "
            f"{', '.join(_sort_term(facts.by_name, f) for f in facts.sort_order)}"
        )
    else:
        order_statement = f"ALTER TABLE {name} WRITE UNORDERED"
    current_mode = facts.properties.get(DISTRIBUTION)
    mode_statement = (
        set_properties_sql(table, {DISTRIBUTION: current_mode})
        if current_mode is not None
        else unset_properties_sql(table, [DISTRIBUTION])
    )
    return order_statement, mode_statement


def _sort_term(columns: Mapping[str, Column], field: SortField) -> str:
    term = transform_sql(column_sql(columns, field.source), field.transform)
    return f"{term} {field.direction.upper()} {field.null_order.replace('-', ' ').upper()}"
