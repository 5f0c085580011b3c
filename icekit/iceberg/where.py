"""Turn partitions into predicates over rows: the ``where`` of a procedure, the filter of a proof.

Each partition transform has one predicate over its source column that is true for exactly the
rows of the partition. Times become ranges, so that column bounds can skip files too;
buckets and truncations use the catalog's own functions, which Iceberg's planner
understands (``SparkV2Filters``).
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from icekit.common.sql import identifier, literal
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec
from icekit.iceberg.partition import Partition, Scalar
from icekit.iceberg.values import base_type, moment_of, sort_key

#: The most partitions that one predicate names, so that it stays readable and fast to plan: a
# choice.
MOST_PARTITIONS = 2_000
#: Transforms of time, the coarsest first.
UNITS = ("year", "month", "day", "hour")
#: Transforms whose predicates need no function: ranges and lists of the column's own values.
WITHOUT_FUNCTIONS = frozenset({"identity", "void", *UNITS})
#: Types with these prefixes have no bounds by which Iceberg can skip files.
NO_BOUNDS = ("list", "map", "struct", "variant", "geometry", "geography", "unknown")
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001

_DAY = dt.timedelta(days=1)
_HOUR = dt.timedelta(hours=1)
_FUNCTIONS = {unit: f"{unit}s" for unit in UNITS} | {"bucket": "bucket", "truncate": "truncate"}
# A box is a product: for each field of a spec, the values it may have.
_Combination = tuple[frozenset[Scalar], ...]


def where(
    catalog: str,
    specs: Mapping[int, PartitionSpec],
    columns: Sequence[Column],
    partitions: Iterable[Partition],
    *,
    is_for_query: bool = False,
) -> str | None:
    """A Spark SQL predicate that is true for the rows of these partitions; None if it would be true
    for all rows.

    It selects complete partitions of its own spec. Files of other specs may hold such rows too,
    and a rewrite takes those files unless their bounds rule it out. A field whose column was
    dropped cannot be in a predicate, which is then wider than the partitions, see
    :func:`fields_without_column`; a value without a literal makes the predicate None. Without
    partitions the predicate is ``false``. In a query (``is_for_query``) a
    UUID is a string; a procedure's planner uses the UUID type.
    """
    values_by_spec: dict[int, set[tuple[Scalar, ...]]] = {}
    for partition in partitions:
        values_by_spec.setdefault(partition.spec_id, set()).add(partition.values)
    if not values_by_spec:
        return "false"
    columns_by_id = {column.field_id: column for column in columns}
    # For a planner a UUID is no string: without its type, its column is not read as one.
    expression_columns = [
        replace(column, type="") if column.type == "uuid" and not is_for_query else column
        for column in columns
    ]
    combination_predicates: list[str] = []
    for spec_id in sorted(values_by_spec):
        field_terms = {
            field_index: (field, term_sql)
            for field_index, field in enumerate(specs[spec_id].fields)
            if (term_sql := field_expression(catalog, field, expression_columns)) is not None
        }
        if not field_terms:
            return None
        merged_combinations = _merged_combinations(
            {
                tuple(frozenset({field_values[i]}) for i in field_terms)
                for field_values in values_by_spec[spec_id]
            }
        )
        for merged_combination in merged_combinations:
            try:
                field_predicates = [
                    _field_predicate(field, columns_by_id[field.source_id], term_sql, field_values)
                    for (field, term_sql), field_values in zip(
                        field_terms.values(), merged_combination, strict=True
                    )
                ]
            except (OverflowError, ValueError):
                return None  # a time before year 1 or after 9999
            combination_predicates.append(
                " AND ".join(f"({p})" if " OR " in p else p for p in field_predicates)
                if len(field_predicates) > 1
                else field_predicates[0]
            )
    if len(combination_predicates) == 1:
        return combination_predicates[0]
    return " OR ".join(f"({a})" for a in combination_predicates)


def lookup_of(column: Column) -> str | None:
    """A point lookup on a column without a value (``id = ?``), as the tuning questions take it;
    None for a column without bounds.
    """
    return None if column.type.startswith(NO_BOUNDS) else f"{identifier(*column.names)} = ?"


def in_values(term_sql: str, type_name: str, values: Iterable[Scalar]) -> str:
    """A predicate for rows in which a term (SQL) of this type has one of some values, in the form
    that facts keep.

    Raises ValueError or OverflowError for a time without a literal, as do the functions below.
    """
    literals = ", ".join(literal_of(type_name, value) for value in sorted(values, key=sort_key))
    return f"{term_sql} IN ({literals})"


def in_range(term_sql: str, type_name: str, low: Scalar, high: Scalar) -> str:
    """A predicate for rows in which a term is between two values, both inclusive."""
    low_literal = literal_of(type_name, low)
    high_literal = literal_of(type_name, high)
    return f"{term_sql} >= {low_literal} AND {term_sql} <= {high_literal}"


def fields_without_column(spec: PartitionSpec, columns: Sequence[Column]) -> tuple[str, ...]:
    """The partition fields that a predicate cannot contain, because their column was dropped."""
    return tuple(
        field.name for field in spec.active_fields if field_expression("c", field, columns) is None
    )


def is_filterable(spec: PartitionSpec, partition: Partition) -> bool:
    """Tell whether a procedure can take a predicate for this partition.

    It cannot for NaN, for which Iceberg has no filter, nor for times without a literal.
    """
    try:
        for field, value in zip(spec.fields, partition.values, strict=True):
            if value == "nan" and field.result_type in {"float", "double"}:
                return False
            if isinstance(value, int) and field.transform in UNITS:
                time_unit_start(field.transform, value + 1)
            elif field.transform == "identity":  # no other transform keeps a time as it is
                literal_of(field.result_type, value)
    except (OverflowError, ValueError):
        return False
    return True


def field_expression(catalog: str, field: PartitionField, columns: Sequence[Column]) -> str | None:
    """The value of a partition field as an expression over a row; None if its column was
    dropped.
    """
    column = next((c for c in columns if c.field_id == field.source_id), None)
    if column is None or field.transform == "void":
        return None
    transform_name, _, parameter_text = field.transform.partition("[")
    source_sql = identifier(*column.names)
    if transform_name == "identity":
        return source_sql
    if transform_name not in _FUNCTIONS:
        return None
    if column.type == "uuid":
        # Iceberg hashes the bytes of a UUID; Spark reads it as a string.
        source_sql = f"unhex(replace({source_sql}, '-', ''))"
    function_sql = f"{identifier(catalog)}.system.{_FUNCTIONS[transform_name]}"
    return (
        f"{function_sql}({parameter_text[:-1]}, {source_sql})"
        if parameter_text
        else f"{function_sql}({source_sql})"
    )


def _merged_combinations(combinations: set[_Combination]) -> list[_Combination]:
    """Merge combinations that differ in only one field; together they cover the same values."""
    if not combinations:
        return []
    for i in reversed(range(len(next(iter(combinations))))):
        values_by_other_fields: dict[tuple[frozenset[Scalar], ...], frozenset[Scalar]] = {}
        for combination in combinations:
            other_values = combination[:i] + combination[i + 1 :]
            values_by_other_fields[other_values] = (
                values_by_other_fields.get(other_values, frozenset()) | combination[i]
            )
        combinations = {
            (*other_values[:i], field_values, *other_values[i:])
            for other_values, field_values in values_by_other_fields.items()
        }
    return sorted(
        combinations,
        key=lambda combination: [
            sorted(map(sort_key, field_values)) for field_values in combination
        ],
    )


def _field_predicate(
    field: PartitionField, column: Column, term_sql: str, field_values: frozenset[Scalar]
) -> str:
    """A predicate for the rows that have some values of one field; ``term_sql`` is the field as an
    expression.
    """
    source_sql = identifier(*column.names)
    predicate_parts = [f"{source_sql} IS NULL"] if None in field_values else []
    non_null_values = [value for value in field_values if value is not None]
    if field.transform in UNITS:
        predicate_parts += unit_range_predicates(
            source_sql, column.type, field.transform, sorted(map(int, non_null_values))
        )
        return " OR ".join(predicate_parts)
    term_type = "int" if field.transform.startswith("bucket") else column.type
    if term_type in {"float", "double"} and "nan" in non_null_values:
        # True for the rows, but Iceberg's planner has no such filter, see is_filterable().
        predicate_parts.append(f"isnan({source_sql})")
        non_null_values.remove("nan")
    if len(non_null_values) > 1:
        predicate_parts.append(in_values(term_sql, term_type, non_null_values))
    elif non_null_values:
        predicate_parts.append(f"{term_sql} = {literal_of(term_type, non_null_values[0])}")
    return " OR ".join(predicate_parts)


def unit_range_predicates(
    source_sql: str, column_type: str, transform: str, unit_numbers: Sequence[int]
) -> list[str]:
    """``source >= … AND source < …`` for each run of consecutive years, months, days or hours
    counted from 1970.
    """
    number_runs: list[list[int]] = []
    for unit_number in unit_numbers:
        if number_runs and unit_number == number_runs[-1][1] + 1:
            number_runs[-1][1] = unit_number
        else:
            number_runs.append([unit_number, unit_number])
    range_predicates = [
        f"{source_sql} >= {moment_literal(column_type, time_unit_start(transform, first_number))} "
        f"AND {source_sql} < "
        f"{moment_literal(column_type, time_unit_start(transform, last_number + 1))}"
        for first_number, last_number in number_runs
    ]
    return (
        [f"({range_predicate})" for range_predicate in range_predicates]
        if len(range_predicates) > 1
        else range_predicates
    )


def time_unit_start(transform: str, unit_number: int) -> dt.datetime:
    """When a year, month, day or hour counted from 1970 begins."""
    if transform == "year":
        return dt.datetime(1970 + unit_number, 1, 1)  # noqa: DTZ001
    if transform == "month":
        return dt.datetime(1970 + unit_number // 12, unit_number % 12 + 1, 1)  # noqa: DTZ001
    return _EPOCH + unit_number * (_DAY if transform == "day" else _HOUR)


def moment_literal(type_name: str, moment: dt.datetime) -> str:
    """A date or time literal of the column's own type, whatever the session's time zone."""
    if type_name == "date":
        return f"DATE '{moment.date().isoformat()}'"
    moment_text = moment.isoformat(" ")
    return (
        f"TIMESTAMP '{moment_text}+00:00'"
        if "tz" in type_name
        else f"TIMESTAMP_NTZ '{moment_text}'"
    )


def literal_of(type_name: str, value: Scalar) -> str:
    """A partition value, as facts keep it, as a literal of the column's type.

    Raises ValueError or OverflowError for a time without a Spark literal, and for invalid hex.
    """
    base_type_name = base_type(type_name)
    if base_type_name == "date" and isinstance(value, int):
        return moment_literal(type_name, _EPOCH + value * _DAY)
    if base_type_name.startswith("timestamp") and isinstance(value, int):
        if base_type_name.endswith("_ns"):
            raise ValueError(
                f"a {base_type_name} has no literal: Spark's times end at microseconds"
            )
        return moment_literal(type_name, _EPOCH + dt.timedelta(microseconds=value))
    if base_type_name in {"float", "double"}:
        return f"CAST({literal(str(value))} AS {base_type_name.upper()})"
    if base_type_name == "decimal":
        return f"CAST({literal(str(value))} AS {type_name.upper()})"
    if base_type_name in {"binary", "fixed"}:
        # The value may come from a log, which anybody may have written.
        return f"X'{bytes.fromhex(str(value)).hex()}'"
    if base_type_name == "long":
        return f"{value}L"
    return literal(value)


def partition_time_range(
    spec: PartitionSpec, partition: Partition
) -> tuple[dt.datetime, dt.datetime] | None:
    """The time range of a partition's rows: its first time field, inclusive start and exclusive
    end, in UTC.
    """
    for field, value in zip(spec.fields, partition.values, strict=True):
        time_unit = "day" if field.result_type == "date" else field.transform
        try:
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            if time_unit in UNITS:
                start = time_unit_start(time_unit, value).replace(tzinfo=dt.UTC)
                end = time_unit_start(time_unit, value + 1).replace(tzinfo=dt.UTC)
                return start, end
            if time_unit == "identity" and field.result_type.startswith("timestamp"):
                moment = moment_of(field.result_type, value)
                return moment, moment + dt.timedelta(microseconds=1)
        except (ValueError, OverflowError):
            return None
    return None
