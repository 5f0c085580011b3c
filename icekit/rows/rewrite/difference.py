"""Find out in which column, and in which values, rows that should be equal differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.sql import display_name, identifier
from icekit.engine.compat import available_types
from icekit.rows.proof.fingerprint import Fingerprint, hash_sums, row_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

#: The most columns to compare one by one, and the most rows to look a pair of values up in.
MOST_COLUMNS = 200
MOST_ROWS = 10_000_000
_LONGEST_VALUE = 100


@frozen
class ColumnDifference:
    """A column whose values differ, and two values of one row; None where none was found."""

    column: str
    value_before: str | None = None
    value_after: str | None = None

    def __str__(self) -> str:
        if self.value_before is None or self.value_after is None:
            return f"other values of column {self.column}"
        return (
            f"column {self.column}, for example {self.value_after} in place of {self.value_before}"
        )


def column_difference(
    rows_before: DataFrame, rows_after: DataFrame, row_count: int
) -> ColumnDifference | None:
    """The first column whose values differ between ``row_count`` rows and as many others with the
    same columns; None if no column's values do.
    """
    fields = [
        field
        for field in rows_before.schema.fields[:MOST_COLUMNS]
        if field.name in rows_after.columns
    ]
    prints_before_and_after = [_column_prints(rows, fields) for rows in (rows_before, rows_after)]
    differing_fields = [
        field
        for field, print_before, print_after in zip(fields, *prints_before_and_after, strict=True)
        if print_before != print_after
    ]
    if not differing_fields:
        return None
    column_name = display_name((differing_fields[0].name,))
    if row_count > MOST_ROWS:
        return ColumnDifference(column_name)
    equal_fields = [field for field in fields if field not in differing_fields]
    return ColumnDifference(
        column_name, *_differing_values(rows_before, rows_after, differing_fields[0], equal_fields)
    )


def _column_prints(rows: DataFrame, fields: list[StructField]) -> list[Fingerprint]:
    """The fingerprint of each column, in one query."""
    column_hashes = rows.selectExpr(
        *(f"{_hash_sql([field])} AS h{field_index}" for field_index, field in enumerate(fields))
    )
    sums = [
        sum_column
        for hash_name in column_hashes.columns
        for sum_column in hash_sums(hash_name, hash_name)
    ]
    row = column_hashes.agg(*sums).collect()[0].asDict()
    return [Fingerprint.of_sums(row, hash_name) for hash_name in column_hashes.columns]


def _hash_sql(fields: list[StructField]) -> str:
    from pyspark.sql.types import StructType

    return row_hash(StructType(fields))


def _differing_values(
    rows_before: DataFrame,
    rows_after: DataFrame,
    field: StructField,
    equal_fields: list[StructField],
) -> tuple[str, str] | tuple[()]:
    """Two values of rows that are equal in other columns, in one query."""
    from pyspark.sql import functions as F

    value_sql = _text_sql(identifier(field.name), field.dataType)
    text_sql = f"coalesce(left({value_sql}, {_LONGEST_VALUE}), 'null')"
    counted_sides = [
        rows.selectExpr(
            f"{_hash_sql(equal_fields)} AS rest",
            f"{_hash_sql([field])} AS own",
            f"{text_sql} AS value",
            f"{row_weight} AS n",
        )
        for rows, row_weight in ((rows_before, 1), (rows_after, -1))
    ]
    # What is as often on both sides is no difference.
    value_counts = (
        counted_sides[0]
        .union(counted_sides[1])
        .groupBy("rest", "own", "value")
        .agg(F.sum("n").alias("n"))
    )
    value_pairs = (
        value_counts.groupBy("rest")
        .agg(
            F.expr("min(value) FILTER (WHERE n > 0)").alias("before"),
            F.expr("min(value) FILTER (WHERE n < 0)").alias("after"),
        )
        .where("before IS NOT NULL AND after IS NOT NULL")
    )
    row = value_pairs.orderBy("before").first()
    return () if row is None else (str(row["before"]), str(row["after"]))


def _text_sql(value_sql: str, spark_type: DataType) -> str:
    if isinstance(spark_type, available_types("GeometryType", "GeographyType")):
        return f"hex(ST_AsBinary({value_sql}))"
    return f"CAST({value_sql} AS string)"
