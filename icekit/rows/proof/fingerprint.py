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
    value: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.row_count + other.row_count, (self.value + other.value) % MODULUS)

    @classmethod
    def of_sums(cls, sums: Mapping[str, Any], name: str) -> Fingerprint:
        """From the values of :func:`summed`."""
        pieces = (int(sums[f"{name}_{shift}"] or 0) << shift for shift in _SHIFTS)
        return cls(int(sums[f"{name}_n"]), sum(pieces) % MODULUS)

    def __str__(self) -> str:
        return f"{self.row_count:,} rows ({self.value:x})"


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
    lineage_columns = [identifier(name) for name in LINEAGE] if lineage else []
    columns = ["*", *lineage_columns]
    source = identifier(*table)
    keys: list[str] = []
    if snapshot_id is not None:
        source += f" VERSION AS OF {snapshot_id}"
    if resolved_snapshot is not None and schema is not None:
        # One struct, whose name no column of the table has.
        name = identifier(free_name("icekit keys", schema.names))
        columns = [
            *resolved_snapshot.selected_sql,
            *lineage_columns,
            f"{resolved_snapshot.keys_sql} AS {name}",
        ]
        source = identifier(*resolved_snapshot.table)
        keys = [f"{name}.*"]
    rows = spark.sql(f"SELECT {', '.join(columns)} FROM {source}")
    hashed = row_hash(rows.schema if schema is None else _with_lineage(schema, lineage))
    selected_rows = rows if where is None else rows.where(where)
    keyed = selected_rows.selectExpr(
        *(f"{key} AS k{i}" for i, key in enumerate(by)), f"{hashed} AS h", *keys
    )
    return prints(
        keyed if resolved_snapshot is None else resolved_snapshot.without_deleted_rows(keyed)
    )


def _with_lineage(schema: StructType, lineage: bool) -> StructType:
    from pyspark.sql import types as T

    return T.StructType(
        [*schema.fields, *(T.StructField(name, T.LongType()) for name in LINEAGE if lineage)]
    )


# Spark 4.1 reads geometries and geographies, but has their functions, which the hash needs, turned
# off; an older one ignores the setting.
_GEOSPATIAL = {"spark.sql.geospatial.enabled": "true"}


def reading_settings(*schemas: Json) -> dict[str, str]:
    """The settings that a session needs to read and hash the columns of any of these schemas: some
    fields of one struct may differ by case alone.
    """
    exact_case = {"spark.sql.caseSensitive": "true"} if any(map(_is_ambiguous, schemas)) else {}
    return {**_GEOSPATIAL, **exact_case}


def _is_ambiguous(kind: Any) -> bool:
    if not isinstance(kind, Mapping):
        return False
    fields = kind.get("fields", ())
    names = {str(field["name"]).lower() for field in fields}
    inner = [field["type"] for field in fields]
    inner += [kind.get(key) for key in ("element", "key", "value")]
    return len(names) < len(fields) or any(map(_is_ambiguous, inner))


def summed_up(rows: DataFrame, hashed: str) -> Fingerprint:
    """The fingerprint of rows with this hash, which is SQL."""
    return prints(rows.selectExpr(f"{hashed} AS h"))[()]


def summed(column: str, name: str, where: str = "true") -> list[Column]:
    """Aggregates that add up a column of hashes, for :meth:`Fingerprint.of_sums`; ``where`` takes
    only some rows.
    """
    from pyspark.sql import functions as F

    mask = (1 << _PIECE_BITS) - 1
    pieces = [(shift, f"shiftrightunsigned(`{column}`, {shift}) & {mask}L") for shift in _SHIFTS]
    return [
        F.expr(f"count_if({where})").alias(f"{name}_n"),
        *(
            F.expr(f"sum(if({where}, {piece}, 0L))").alias(f"{name}_{shift}")
            for shift, piece in pieces
        ),
    ]


def added_up(rows: DataFrame, by: Sequence[str], *sums: Column) -> DataFrame:
    """Aggregates of rows, :func:`summed` ones among them, for each value of some columns.

    An addition in Spark's ANSI mode makes an object, to see an overflow, which :func:`summed` rules
    out; in which mode it is made is decided as the query is put together.
    """
    with temporary_settings(rows.sparkSession, {"spark.sql.ansi.enabled": "false"}):
        return rows.groupBy(*by).agg(*sums)


def prints(hashed: DataFrame) -> Mapping[tuple[Scalar, ...], Fingerprint]:
    """Add up the hashes of a frame of ``k0, k1, …, h`` for each key; ``h`` is a bigint."""
    keys = [(f.name, f.dataType.typeName()) for f in hashed.schema.fields[:-1]]
    totals = added_up(hashed, [name for name, _ in keys], *summed("h", "h"))
    # Spark converts timestamps to numbers: Python would read them in its own time zone.
    key_columns = [f"{scalar_sql(name, kind)} AS {name}" for name, kind in keys]
    fingerprints: dict[tuple[Scalar, ...], Fingerprint] = {}
    for row in totals.selectExpr(*key_columns, *totals.columns[len(keys) :]).collect():
        key = tuple(to_scalar(value) for value in row[: len(keys)])
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
    arguments = [
        argument
        for field in schema.fields
        for argument in _arguments(identifier(field.name), field.dataType, 0)
    ]
    return f"xxhash64({', '.join(arguments or ['true'])})"


def _arguments(value: str, kind: DataType, depth: int) -> Iterator[str]:
    """The arguments to hash so that values of one type have equal hashes only if they are equal."""
    from pyspark.sql import types as T

    yield f"isnull({value})"
    # Each lambda has its own name; otherwise the inner one would hide the outer.
    item = f"e{depth}"
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            yield from _arguments(f"{value}.{identifier(field.name)}", field.dataType, depth)
    elif isinstance(kind, T.ArrayType):
        yield f"if(isnull({value}), NULL, size({value}))"
        yield (
            f"transform({value}, {item} -> "
            f"xxhash64({', '.join(_arguments(item, kind.elementType, depth + 1))}))"
        )
    elif isinstance(kind, T.MapType):
        key = _arguments(f"{item}.key", kind.keyType, depth + 1)
        entry = _arguments(f"{item}.value", kind.valueType, depth + 1)
        yield f"if(isnull({value}), NULL, size({value}))"
        yield (
            f"sort_array(transform(map_entries({value}), {item} -> "
            f"xxhash64({', '.join([*key, *entry])})))"
        )
    elif isinstance(kind, available_types("VariantType")):
        yield f"to_json({value})"
        yield f"schema_of_variant({value})"
    elif isinstance(kind, available_types("GeometryType", "GeographyType")):
        yield f"ST_AsBinary({value})"
        yield f"ST_Srid({value})"
    elif isinstance(kind, (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType)):
        yield f"CAST({value} AS {kind.simpleString()})"
    elif isinstance(kind, (T.StringType, T.BinaryType, T.BooleanType)):
        yield value
    elif not isinstance(kind, T.NullType):
        raise ColumnUnhashed(
            f"icekit cannot compare values of the type {kind.simpleString()}, so it cannot check "
            "rows with such a column. --prove none rewrites them without a check."
        )


# From the narrower to the wider (table spec, "Schema Evolution"); other promotions keep the newer.
_WIDER = {("long", "int"), ("double", "float")}


def shared(
    spark: SparkSession, before: Json, after: Json
) -> tuple[StructType, StructType, tuple[str, ...]]:
    """The columns that two Iceberg schemas share, for :func:`icekit.rows.proof.fingerprint.row_hash`.

    Returns the columns named as in ``before``, the same columns named as in ``after``, ordered
    by field id and with the wider of their two types, and the dotted names of columns that only
    one of them has, which cannot be compared.
    """
    left_out: list[str] = []
    old, new = _shared_types(before, after, "", left_out)
    return _in_spark(spark, old), _in_spark(spark, new), tuple(left_out)


def _shared_types(before: Any, after: Any, prefix: str, left_out: list[str]) -> tuple[Any, Any]:
    """What two types of Iceberg share, as JSON with the names of each."""
    if isinstance(before, str) or isinstance(after, str):
        # Only an unknown type, which is always null, can have become a nested one.
        are_primitive = isinstance(before, str) and isinstance(after, str)
        kind = _wider(before, after) if are_primitive else "unknown"
        return kind, kind
    old: dict[str, Any] = dict(before)
    new: dict[str, Any] = dict(after)
    if after["type"] == "struct":
        # Without the ids of identifier fields, which one of them may lack.
        old = {"type": "struct", "fields": []}
        new = {"type": "struct", "fields": []}
        olds = {f["id"]: f for f in before["fields"]}
        news = {f["id"]: f for f in after["fields"]}
        for field_id in sorted(olds.keys() | news.keys()):
            was = olds.get(field_id)
            now = news.get(field_id)
            if was is None or now is None:
                left_out.append(prefix + (was or now or {})["name"])
                continue
            kinds = _shared_types(was["type"], now["type"], f"{prefix}{was['name']}.", left_out)
            old["fields"].append({**was, "type": kinds[0]})
            new["fields"].append({**now, "type": kinds[1]})
    for part in ("element", "key", "value"):
        if part in after:
            path = f"{prefix}{part}."
            old[part], new[part] = _shared_types(before[part], after[part], path, left_out)
    return old, new


def _in_spark(spark: SparkSession, schema: Json) -> StructType:
    """A schema of Iceberg, converted by Iceberg."""
    from pyspark.sql.types import StructType

    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    parsed = iceberg.SchemaParser.fromJson(json.dumps(schema))
    converted = iceberg.spark.SparkSchemaUtil.convert(parsed)
    return StructType.fromJson(json.loads(converted.json()))


def _wider(before: str, after: str) -> str:
    if (before, after) in _WIDER or after == "unknown":
        return before
    if before.startswith("decimal") and after.startswith("decimal"):
        return max(before, after, key=lambda kind: int(re.findall(r"\d+", kind)[0]))
    return after
