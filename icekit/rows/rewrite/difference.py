"""Find out in which column, and in which values, rows that should be equal differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.sql import display_name, identifier
from icekit.engine.compat import available_types
from icekit.rows.proof.fingerprint import Fingerprint, row_hash, summed

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
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"other values of column {self.column}"
        return f"column {self.column}, for example {self.after} in place of {self.before}"


def column_difference(
    before: DataFrame, after: DataFrame, row_count: int
) -> ColumnDifference | None:
    """The first column whose values differ between ``row_count`` rows and as many others with the
    same columns; None if no column's values do.
    """
    fields = [field for field in before.schema.fields[:MOST_COLUMNS] if field.name in after.columns]
    prints = [_prints(rows, fields) for rows in (before, after)]
    differing = [field for field, one, other in zip(fields, *prints, strict=True) if one != other]
    if not differing:
        return None
    column = display_name((differing[0].name,))
    if row_count > MOST_ROWS:
        return ColumnDifference(column)
    equal = [field for field in fields if field not in differing]
    return ColumnDifference(column, *_values(before, after, differing[0], equal))


def _prints(rows: DataFrame, fields: list[StructField]) -> list[Fingerprint]:
    """The fingerprint of each column, in one query."""
    hashes = rows.selectExpr(
        *(f"{_hash([field])} AS h{number}" for number, field in enumerate(fields))
    )
    sums = [each for name in hashes.columns for each in summed(name, name)]
    row = hashes.agg(*sums).collect()[0].asDict()
    return [Fingerprint.of_sums(row, name) for name in hashes.columns]


def _hash(fields: list[StructField]) -> str:
    from pyspark.sql.types import StructType

    return row_hash(StructType(fields))


def _values(
    before: DataFrame, after: DataFrame, field: StructField, equal: list[StructField]
) -> tuple[str, str] | tuple[()]:
    """Two values of rows that are equal in other columns, in one query."""
    from pyspark.sql import functions as F

    text = (
        f"coalesce(left({_text(identifier(field.name), field.dataType)}, {_LONGEST_VALUE}), 'null')"
    )
    sides = [
        rows.selectExpr(
            f"{_hash(equal)} AS rest", f"{_hash([field])} AS own", f"{text} AS value", f"{one} AS n"
        )
        for rows, one in ((before, 1), (after, -1))
    ]
    # What is as often on both sides is no difference.
    counts = sides[0].union(sides[1]).groupBy("rest", "own", "value").agg(F.sum("n").alias("n"))
    pairs = (
        counts.groupBy("rest")
        .agg(
            F.expr("min(value) FILTER (WHERE n > 0)").alias("before"),
            F.expr("min(value) FILTER (WHERE n < 0)").alias("after"),
        )
        .where("before IS NOT NULL AND after IS NOT NULL")
    )
    row = pairs.orderBy("before").first()
    return () if row is None else (str(row["before"]), str(row["after"]))


def _text(value: str, kind: DataType) -> str:
    if isinstance(kind, available_types("GeometryType", "GeographyType")):
        return f"hex(ST_AsBinary({value}))"
    return f"CAST({value} AS string)"
