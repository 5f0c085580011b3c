"""Fingerprint rows in any order, in one Spark aggregation and plain SQL, with columns matched by
field id.

A row is hashed to 64 bits and the hashes of all rows are added up: equal multisets of rows have
equal fingerprints, and unequal ones differ except with a chance of about one in 2**64. This detects
errors; it does not protect against somebody who forges rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ColumnUnhashed
from icekit.common.sql import Identifier, free_name, identifier
from icekit.engine.bridge import temporary_settings
from icekit.engine.compat import available_types
from icekit.health.facts.spark_entries import scalar_sql
from icekit.iceberg.partition import Scalar
from icekit.iceberg.values import to_scalar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from icekit.rows.deletes.resolved import ResolvedSnapshot


Json = Mapping[str, Any]

MODULUS = 1 << 128
#: Columns that a row keeps through every rewrite (table spec, "Row Lineage").
LINEAGE = ("_row_id", "_last_updated_sequence_number")
# A hash is added up in pieces of at most 22 bits, each in a bigint: no overflow (an error in ANSI
# mode) below 2**41 rows, and no decimals, which are slow to add.
_PIECE_BITS = 22
_SHIFTS = (0, 22, 44)


@frozen
class Fingerprint:
    """The fingerprint of some rows: their number, and the sum of their hashes modulo 2**128.

    The sum of two is the fingerprint of both sets of rows together.
    """

    row_count: int = 0
    hash_sum: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(
            self.row_count + other.row_count, (self.hash_sum + other.hash_sum) % MODULUS
        )

    @classmethod
    def of_sums(cls, sums: Mapping[str, Any], sum_name: str) -> Fingerprint:
        """From the values of :func:`hash_sums`."""
        shifted_pieces = (int(sums[f"{sum_name}_{shift}"] or 0) << shift for shift in _SHIFTS)
        return cls(int(sums[f"{sum_name}_n"]), sum(shifted_pieces) % MODULUS)

    def __str__(self) -> str:
        return f"{self.row_count:,} rows ({self.hash_sum:x})"


def fingerprint(
    spark: SparkSession,
    table: Identifier,
    *,
    snapshot_id: int | None = None,
    where: str | None = None,
    by: Sequence[str] = (),
    schema: StructType | None = None,
    resolved_snapshot: ResolvedSnapshot | None = None,
    lineage: bool = False,
) -> Mapping[tuple[Scalar, ...], Fingerprint]:
    """Fingerprint a table's rows, deletes applied; ``table`` is named with its catalog.

    ``snapshot_id`` reads another snapshot, whose schema and column names then
    apply to ``where`` (a SQL predicate) and ``by`` (SQL expressions to group by; the driver
    receives a row per group). Without ``by`` the only key is ``()``. ``schema`` names the columns
    to compare and the types to compare them as; without it, all columns as they are. Compare
    fingerprints only if they were made with equal schemas, up to names: see :func:`row_hash`.
    ``stripped`` is read instead of the table, with a ``schema``, and drops the rows that equality
    deletes delete.
    ``lineage`` includes each row's :data:`LINEAGE`, which a table has from format version 3 on. The
    session has the :func:`reading_settings` of the table.
    """
    lineage_columns = [identifier(keys_name) for keys_name in LINEAGE] if lineage else []
    columns_sql = ["*", *lineage_columns]
    table_sql = identifier(*table)
    key_columns: list[str] = []
    if snapshot_id is not None:
        table_sql += f" VERSION AS OF {snapshot_id}"
    if resolved_snapshot is not None and schema is not None:
        # One struct, whose name no column of the table has.
        keys_name = identifier(free_name("icekit keys", schema.names))
        columns_sql = [
            *resolved_snapshot.selected_sql,
            *lineage_columns,
            f"{resolved_snapshot.keys_sql} AS {keys_name}",
        ]
        table_sql = identifier(*resolved_snapshot.table)
        key_columns = [f"{keys_name}.*"]
    rows = spark.sql(f"SELECT {', '.join(columns_sql)} FROM {table_sql}")
    hash_sql = row_hash(rows.schema if schema is None else _with_lineage(schema, lineage))
    selected_rows = rows if where is None else rows.where(where)
    keyed_hashes = selected_rows.selectExpr(
        *(f"{key} AS k{i}" for i, key in enumerate(by)), f"{hash_sql} AS h", *key_columns
    )
    return fingerprints_by_key(
        keyed_hashes
        if resolved_snapshot is None
        else resolved_snapshot.without_deleted_rows(keyed_hashes)
    )


def _with_lineage(schema: StructType, has_lineage: bool) -> StructType:
    from pyspark.sql import types as T

    return T.StructType(
        [*schema.fields, *(T.StructField(name, T.LongType()) for name in LINEAGE if has_lineage)]
    )


# Spark 4.1 reads geometries and geographies, but has their functions, which the hash needs, turned
# off; an older one ignores the setting.
_GEOSPATIAL = {"spark.sql.geospatial.enabled": "true"}


def reading_settings(*schemas: Json) -> dict[str, str]:
    """The settings that a session needs to read and hash the columns of any of these schemas: some
    fields of one struct may differ by case alone.
    """
    case_settings = (
        {"spark.sql.caseSensitive": "true"} if any(map(_is_case_ambiguous, schemas)) else {}
    )
    return {**_GEOSPATIAL, **case_settings}


def _is_case_ambiguous(iceberg_type: Any) -> bool:
    if not isinstance(iceberg_type, Mapping):
        return False
    struct_fields = iceberg_type.get("fields", ())
    lower_names = {str(field["name"]).lower() for field in struct_fields}
    inner_types = [field["type"] for field in struct_fields]
    inner_types += [iceberg_type.get(key) for key in ("element", "key", "value")]
    return len(lower_names) < len(struct_fields) or any(map(_is_case_ambiguous, inner_types))


def fingerprint_of(rows: DataFrame, hash_sql: str) -> Fingerprint:
    """The fingerprint of rows with this hash, which is SQL."""
    return fingerprints_by_key(rows.selectExpr(f"{hash_sql} AS h"))[()]


def hash_sums(hash_column: str, sum_name: str, filter_sql: str = "true") -> list[Column]:
    """Aggregates that add up a column of hashes, for :meth:`Fingerprint.of_sums`; ``filter_sql``
    takes only some rows.
    """
    from pyspark.sql import functions as F

    piece_mask = (1 << _PIECE_BITS) - 1
    pieces_sql = [
        (shift, f"shiftrightunsigned(`{hash_column}`, {shift}) & {piece_mask}L")
        for shift in _SHIFTS
    ]
    return [
        F.expr(f"count_if({filter_sql})").alias(f"{sum_name}_n"),
        *(
            F.expr(f"sum(if({filter_sql}, {piece_sql}, 0L))").alias(f"{sum_name}_{shift}")
            for shift, piece_sql in pieces_sql
        ),
    ]


def grouped_sums(rows: DataFrame, group_columns: Sequence[str], *sums: Column) -> DataFrame:
    """Aggregates of rows, :func:`hash_sums` ones among them, for each value of some columns.

    An addition in Spark's ANSI mode makes an object, to see an overflow, which :func:`hash_sums`
    rules out; in which mode it is made is decided as the query is put together.
    """
    with temporary_settings(rows.sparkSession, {"spark.sql.ansi.enabled": "false"}):
        return rows.groupBy(*group_columns).agg(*sums)


def fingerprints_by_key(hashed_rows: DataFrame) -> Mapping[tuple[Scalar, ...], Fingerprint]:
    """Add up the hashes of a frame of ``k0, k1, …, h`` for each key; ``h`` is a bigint."""
    key_types = [(f.name, f.dataType.typeName()) for f in hashed_rows.schema.fields[:-1]]
    total_rows = grouped_sums(
        hashed_rows, [key_name for key_name, _ in key_types], *hash_sums("h", "h")
    )
    # Spark converts timestamps to numbers: Python would read them in its own time zone.
    scalar_columns_sql = [
        f"{scalar_sql(key_name, key_type)} AS {key_name}" for key_name, key_type in key_types
    ]
    fingerprints: dict[tuple[Scalar, ...], Fingerprint] = {}
    for row in total_rows.selectExpr(
        *scalar_columns_sql, *total_rows.columns[len(key_types) :]
    ).collect():
        key = tuple(to_scalar(value) for value in row[: len(key_types)])
        # Spark distinguishes keys that facts do not (-0.0 and 0.0 are equal keys in Python).
        fingerprints[key] = fingerprints.get(key, Fingerprint()) + Fingerprint.of_sums(
            row.asDict(), "h"
        )
    return fingerprints


def row_hash(schema: StructType) -> str:
    """SQL for a 64-bit hash of a row of these columns; names and nullability do not affect it.
    It raises :class:`~icekit.common.errors.ColumnUnhashed` for a type that it does not know.

    Distinguishes values that Spark's ``xxhash64`` confuses: it skips nulls, so each value is
    preceded by whether it is null, and each collection by its size. ``xxhash64`` refuses maps, so a
    map is hashed as the sorted hashes of its entries, in any order; it also refuses variants, so a
    variant is hashed as its JSON and its types, and geometries and geographies, as their bytes and
    their reference system. A number, date or timestamp is cast to the type in
    ``schema``, because an ``int`` and the ``bigint`` it was promoted to hash differently. Values
    are equal if SQL calls them equal: 0.0 and -0.0, and any two NaN. Decimals hash by value at
    their scale, binary by its bytes, timestamps by the instant.
    """
    # A row without columns is still a row.
    arguments_sql = [
        argument_sql
        for field in schema.fields
        for argument_sql in _hash_arguments_sql(identifier(field.name), field.dataType, 0)
    ]
    return f"xxhash64({', '.join(arguments_sql or ['true'])})"


def _hash_arguments_sql(value_sql: str, spark_type: DataType, depth: int) -> Iterator[str]:
    """The arguments to hash so that values of one type have equal hashes only if they are equal."""
    from pyspark.sql import types as T

    yield f"isnull({value_sql})"
    # Each lambda has its own name; otherwise the inner one would hide the outer.
    item_name = f"e{depth}"
    if isinstance(spark_type, T.StructType):
        for field in spark_type.fields:
            yield from _hash_arguments_sql(
                f"{value_sql}.{identifier(field.name)}", field.dataType, depth
            )
    elif isinstance(spark_type, T.ArrayType):
        yield f"if(isnull({value_sql}), NULL, size({value_sql}))"
        element_sql = _hash_arguments_sql(item_name, spark_type.elementType, depth + 1)
        yield f"transform({value_sql}, {item_name} -> xxhash64({', '.join(element_sql)}))"
    elif isinstance(spark_type, T.MapType):
        entry_key_sql = _hash_arguments_sql(f"{item_name}.key", spark_type.keyType, depth + 1)
        entry_value_sql = _hash_arguments_sql(f"{item_name}.value", spark_type.valueType, depth + 1)
        yield f"if(isnull({value_sql}), NULL, size({value_sql}))"
        yield (
            f"sort_array(transform(map_entries({value_sql}), {item_name} -> "
            f"xxhash64({', '.join([*entry_key_sql, *entry_value_sql])})))"
        )
    elif isinstance(spark_type, available_types("VariantType")):
        yield f"to_json({value_sql})"
        yield f"schema_of_variant({value_sql})"
    elif isinstance(spark_type, available_types("GeometryType", "GeographyType")):
        yield f"ST_AsBinary({value_sql})"
        yield f"ST_Srid({value_sql})"
    elif isinstance(spark_type, (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType)):
        yield f"CAST({value_sql} AS {spark_type.simpleString()})"
    elif isinstance(spark_type, (T.StringType, T.BinaryType, T.BooleanType)):
        yield value_sql
    elif not isinstance(spark_type, T.NullType):
        raise ColumnUnhashed(
            f"icekit cannot compare values of the type {spark_type.simpleString()}, so it cannot "
            "check rows with such a column. --prove none rewrites them without a check."
        )


# From the narrower to the wider (table spec, "Schema Evolution"); other promotions keep the newer.
_WIDER = {("long", "int"), ("double", "float")}


def shared_columns(
    spark: SparkSession, before_schema: Json, after_schema: Json
) -> tuple[StructType, StructType, tuple[str, ...]]:
    """The columns that two Iceberg schemas share, for
    :func:`icekit.rows.proof.fingerprint.row_hash`.

    Returns the columns named as in ``before_schema``, the same columns named as in
    ``after_schema``, ordered by field id and with the wider of their two types, and the dotted
    names of columns that only one of them has, which cannot be compared.
    """
    left_out_names: list[str] = []
    old_type, new_type = _shared_types(before_schema, after_schema, "", left_out_names)
    return _spark_schema(spark, old_type), _spark_schema(spark, new_type), tuple(left_out_names)


def _shared_types(
    before_type: Any, after_type: Any, name_prefix: str, left_out_names: list[str]
) -> tuple[Any, Any]:
    """What two types of Iceberg share, as JSON with the names of each."""
    if isinstance(before_type, str) or isinstance(after_type, str):
        # Only an unknown type, which is always null, can have become a nested one.
        are_primitive = isinstance(before_type, str) and isinstance(after_type, str)
        primitive_type = _wider_type(before_type, after_type) if are_primitive else "unknown"
        return primitive_type, primitive_type
    old_type: dict[str, Any] = dict(before_type)
    new_type: dict[str, Any] = dict(after_type)
    if after_type["type"] == "struct":
        # Without the ids of identifier fields, which one of them may lack.
        old_type = {"type": "struct", "fields": []}
        new_type = {"type": "struct", "fields": []}
        old_fields = {f["id"]: f for f in before_type["fields"]}
        new_fields = {f["id"]: f for f in after_type["fields"]}
        for field_id in sorted(old_fields.keys() | new_fields.keys()):
            old_field = old_fields.get(field_id)
            new_field = new_fields.get(field_id)
            if old_field is None or new_field is None:
                left_out_names.append(name_prefix + (old_field or new_field or {})["name"])
                continue
            shared_types = _shared_types(
                old_field["type"],
                new_field["type"],
                f"{name_prefix}{old_field['name']}.",
                left_out_names,
            )
            old_type["fields"].append({**old_field, "type": shared_types[0]})
            new_type["fields"].append({**new_field, "type": shared_types[1]})
    for nested_part in ("element", "key", "value"):
        if nested_part in after_type:
            part_prefix = f"{name_prefix}{nested_part}."
            old_type[nested_part], new_type[nested_part] = _shared_types(
                before_type[nested_part], after_type[nested_part], part_prefix, left_out_names
            )
    return old_type, new_type


def _spark_schema(spark: SparkSession, iceberg_schema: Json) -> StructType:
    """A schema of Iceberg, converted by Iceberg."""
    from pyspark.sql.types import StructType

    java_iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    java_schema = java_iceberg.SchemaParser.fromJson(json.dumps(iceberg_schema))
    java_spark_schema = java_iceberg.spark.SparkSchemaUtil.convert(java_schema)
    return StructType.fromJson(json.loads(java_spark_schema.json()))


def _wider_type(before_type: str, after_type: str) -> str:
    if (before_type, after_type) in _WIDER or after_type == "unknown":
        return before_type
    if before_type.startswith("decimal") and after_type.startswith("decimal"):
        return max(before_type, after_type, key=lambda kind: int(re.findall(r"\d+", kind)[0]))
    return after_type
