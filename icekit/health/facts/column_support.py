"""Find the columns of a table that an engine cannot read or write, and the orders of rows that it
refuses.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from icekit.common.errors import ColumnsUnsupported
from icekit.common.sql import display_name
from icekit.common.units import first_names
from icekit.engine.column_types import Ability, Engine, first_reading_engine
from icekit.health.facts.model import TableFacts, UnsupportedColumn
from icekit.iceberg.metadata import Field, Json, child_fields, properties_of, schema_of

_MOST_COLUMNS = 5
# The column that Iceberg adds to the rows while it sorts them by a curve.
_RESERVED = {"zorder": "icezvalue", "hilbert": "icehvalue"}


def unsupported_columns(metadata: Json, engine: Engine) -> tuple[UnsupportedColumn, ...]:
    """The columns of the current schema that an engine cannot read, or cannot write into new data
    files of the table's format.
    """
    default_file_format = properties_of(metadata).get("write.format.default", "parquet")
    return tuple(
        _unsupported_fields(child_fields(schema_of(metadata)), engine, default_file_format.lower())
    )


def _unsupported_fields(
    fields: Iterable[Field], engine: Engine, file_format: str, *, is_element: bool = False
) -> Iterator[UnsupportedColumn]:
    for field in fields:
        if isinstance(field.type, str):
            # No format has a list of a type without values.
            has_representation = not (
                is_element and field.type == "unknown" and file_format != "avro"
            )
            if not engine.can(Ability.READ, field.type):
                yield UnsupportedColumn(field.names, field.type, Ability.READ)
            elif not has_representation or not engine.can(Ability.WRITE, field.type, file_format):
                yield UnsupportedColumn(field.names, field.type, Ability.WRITE)
            continue
        if file_format == "parquet" and _has_no_parquet_column(field.type):
            yield UnsupportedColumn(field.names, "struct of unknown", Ability.WRITE)
            continue
        is_struct = field.type.get("type") == "struct"
        renamed_children = (
            child._replace(names=field.names + child.names) for child in child_fields(field.type)
        )
        yield from _unsupported_fields(
            renamed_children, engine, file_format, is_element=not is_struct
        )


def _has_no_parquet_column(field_type: Any) -> bool:
    """Whether Parquet has no column for a type."""
    if isinstance(field_type, str):
        return field_type == "unknown"
    return field_type.get("type") == "struct" and all(
        _has_no_parquet_column(field.type) for field in child_fields(field_type)
    )


def engine_limits(engine: Engine, columns: Sequence[UnsupportedColumn]) -> str:
    """What an engine cannot do with columns: ``Spark … cannot read column c (time)``."""
    sentence_parts = []
    for ability in (Ability.READ, Ability.WRITE):
        column_texts = [
            f"{display_name(column.names)} ({column.type})"
            for column in columns
            if column.ability is ability
        ]
        if column_texts:
            column_noun = "column" if len(column_texts) == 1 else "columns"
            sentence_parts.append(
                f"{ability} {column_noun} {first_names(column_texts, _MOST_COLUMNS)}"
            )
    return f"{engine} cannot {' and cannot '.join(sentence_parts)}"


def newer_engine_sentence(columns: Sequence[UnsupportedColumn]) -> str:
    """The engine that can read all of them, as a sentence; empty if there is none."""
    reading_engines = [
        first_reading_engine(column.type) for column in columns if column.ability is Ability.READ
    ]
    engine_versions = [
        (reading_engine.spark, reading_engine.iceberg)
        for reading_engine in reading_engines
        if reading_engine is not None
    ]
    if not reading_engines or len(engine_versions) < len(reading_engines):
        return ""
    return f"{Engine(*max(engine_versions))} can read them."


def require_supported(facts: TableFacts) -> None:
    """Raise :class:`~icekit.common.errors.ColumnsUnsupported` for a table that the engine cannot
    read or write.
    """
    if facts.unsupported_columns:
        raise ColumnsUnsupported(
            f"{engine_limits(facts.engine, facts.unsupported_columns)}, so nothing of {facts.name} "
            "is "
            f"rewritten. icekit look {facts.name} says what can be done.",
            facts.unsupported_columns,
        )


def order_refusal(facts: TableFacts, strategy: str, column_names: Sequence[str]) -> str | None:
    """Why Iceberg's own action would refuse to order rows by these columns after it has begun; None
    if it would not. ``strategy`` is ``sort``, ``zorder`` or ``hilbert``.
    """
    columns = [facts.by_name[column_name] for column_name in column_names]
    required_ability = Ability.SORT if strategy == "sort" else Ability.CURVE
    if strategy != "sort" and (curve_refusal := _curve_refusal(facts, strategy, column_names)):
        return curve_refusal
    for column in columns:
        if not column.is_in_structs:
            return f"{column.name} is inside a list or a map"
        if not facts.engine.can(required_ability, column.type):
            return f"it has no order for the type of {column.name} ({column.type})"
    return None


def _curve_refusal(facts: TableFacts, strategy: str, column_names: Sequence[str]) -> str | None:
    if strategy == "hilbert" and not facts.engine.has_hilbert:
        return f"{facts.engine} has no Hilbert curve; Iceberg 1.12 on Spark 4 has one"
    for column in facts.columns:
        if column.names[0].lower() == _RESERVED[strategy]:
            return f"it adds a column of the name of {column.names[0]} while it orders rows"
    identity_columns = {
        partition_field.source
        for partition_field in facts.default_spec.fields
        if partition_field.transform == "identity"
    }
    if identity_columns.issuperset(column_names):
        return "all columns are identity partition columns, which have one value in each partition"
    for column in (facts.by_name[column_name] for column_name in column_names):
        top_level_name = column.names[0]
        if len(column.names) > 1 or "." in top_level_name or "`" in top_level_name:
            return f"{column.name!r} is inside a struct, or has a dot or a backtick in its name"
    return None
