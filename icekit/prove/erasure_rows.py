"""Count the rows in the files themselves that match a predicate, even if deletes hide them.

Spark reads Parquet files by field id, so that renamed columns keep their values.
Files that cannot be read that way are named, never treated as empty. Where Spark has no
file system for the storage, files are copied to this machine first, some at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from icekit.engine.bridge import lent
from icekit.engine.errors import first_sentence
from icekit.engine.predicate import Predicate
from icekit.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

Json = Mapping[str, Any]

# After this many failed reads, a failing batch is reported as one: halving it would never end
# where nothing can be read.
MAX_FAILURES = 200

# A choice: the most bytes of copies at a time, but for a single larger file; and how many files are copied at once.
_COPIED_BYTES, _COPIED_AT_ONCE = 2 * 2**30, 8

_KEY, _MATCH = "icekit file key", "icekit match"
# The column of the deleted row in a position delete file of format version 2 (Iceberg's specification, reserved field ids).
_ROW, _ROW_ID = "row", 2_147_483_544

# Row groups are skipped by a column's name in the file, which another column may have had before.
# A file without ids must fail, because Spark would otherwise return nulls.
_SESSION = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.parquet.aggregatePushdown": "false",
}
_OPTIONS = {
    "__globPaths__": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}


@dataclass(frozen=True, slots=True)
class RowCount:
    """Matching rows of one file, and rows for which the predicate is NULL."""

    matching: int
    unknown: int


@dataclass
class Looked:
    """The rows by path key, and the files that could not be read, by path, with the reason."""

    counts: dict[str, RowCount] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def path_key(path: str) -> str:
    """Normalize a path so that ``file:/x``, ``file:///x`` and ``/x``, or s3a and s3, are equal."""
    for pattern, replacement in _SAME:
        path = re.sub(pattern, replacement, path)
    return path


_SAME = ((r"^file:/+", "/"), (r"^s3[an]://", "s3://"), (r"^abfss://", "abfs://"), (r"^wasbs://", "wasb://"), (r"(?<!:)/{2,}", "/"))


def path_key_column(path: Column) -> Column:
    """:func:`path_key` of a column of paths."""
    from pyspark.sql import functions as F

    for pattern, replacement in _SAME:
        path = F.regexp_replace(path, pattern, replacement)
    return path


def reading_by_id(spark: SparkSession) -> AbstractContextManager[None]:
    """Set the session to read Parquet by field id, and restore it."""
    return lent(spark, _SESSION)


class Copies:
    """Copies files to a temporary folder of this machine, as many at a time as fit; ``storage`` is the Java object of the same name."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def of(self, paths: Sequence[str], failed: dict[str, str]) -> Iterator[Mapping[str, str]]:
        """Copy the files in batches, and give the URI of the copy by path; a batch is deleted before the next one. Files that cannot be copied go to ``failed``."""
        with ThreadPoolExecutor(_COPIED_AT_ONCE) as pool:
            batch: list[str] = []
            batch_bytes = 0
            for path, size in zip(paths, pool.map(self._size, paths), strict=True):
                if isinstance(size, str):
                    failed[path] = size
                    continue
                if batch and batch_bytes + size > _COPIED_BYTES:
                    with self._copied(batch, failed, pool) as copies:
                        yield copies
                    batch, batch_bytes = [], 0
                batch.append(path)
                batch_bytes += size
            if batch:
                with self._copied(batch, failed, pool) as copies:
                    yield copies

    @contextmanager
    def _copied(self, paths: Sequence[str], failed: dict[str, str], pool: ThreadPoolExecutor) -> Iterator[Mapping[str, str]]:
        with TemporaryDirectory(prefix="icekit-") as folder:
            copies = {path: f"{folder}/{place}.parquet" for place, path in enumerate(paths)}
            for path, why in zip(paths, pool.map(self._copy, paths, copies.values()), strict=True):
                if why:
                    failed[path] = why
                    del copies[path]
            # With its scheme: Spark's default file system may be another.
            yield {path: Path(copy).as_uri() for path, copy in copies.items()}

    def _size(self, path: str) -> int | str:
        try:
            return int(self._storage.size(path))
        except Exception as error:
            return first_sentence(error)

    def _copy(self, path: str, to: str) -> str | None:
        try:
            self._storage.copy(path, to)
        except Exception as error:
            return first_sentence(error)
        return None


class FileReader:
    """Counts matching rows of Parquet files, thousands at a time, inside :func:`reading_by_id`.

    ``of_deletes`` reads the rows that position delete files contain in addition to their positions; ``copies`` are read
    in place of the files themselves.
    """

    def __init__(
        self,
        spark: SparkSession,
        schema: StructType,
        fields: Sequence[Json],
        predicate: Predicate,
        mapping: str | None,
        *,
        of_deletes: bool = False,
        copies: Copies | None = None,
    ) -> None:
        self._spark = spark
        self._copies = copies
        self._copied: Mapping[str, str] = {}
        self._schema = schema
        self._fields = fields
        self._predicate = predicate
        self._mapped = _mapped_names(mapping)
        self._of_deletes = of_deletes
        self._failures = 0

    def look(self, paths: Sequence[str], partitions: DataFrame | None = None) -> Looked:
        """Count the rows of every path; a failing batch is halved until the failing file is found.

        ``partitions`` gives identity partition values for files that lack the columns: a column
        ``key`` (see :func:`path_key`) and one for each replaced column of the table.
        """
        looked = Looked()
        if self._copies is None:
            self._look(list(paths), partitions, looked)
        else:
            for copies in self._copies.of(paths, looked.failed):
                self._copied = copies
                self._look(list(copies), partitions, looked)
        return looked

    def _look(self, paths: list[str], partitions: DataFrame | None, looked: Looked) -> None:
        if not paths:
            return
        try:
            looked.counts.update(self._count(paths, self._by_id(), partitions, looked))
        except Exception as error:
            self._failures += 1
            if len(paths) == 1:
                self._alone(paths[0], error, partitions, looked)
            elif self._failures > MAX_FAILURES:
                looked.failed.update(
                    dict.fromkeys(paths, f"read in one batch with other files, and the batch failed: {first_sentence(error)}")
                )
            else:
                half = len(paths) // 2
                self._look(paths[:half], partitions, looked)
                self._look(paths[half:], partitions, looked)

    def _alone(self, path: str, error: Exception, partitions: DataFrame | None, looked: Looked) -> None:
        """A file that cannot be read by id: an imported file without ids is read by name."""
        if "field Ids" not in str(error):
            looked.failed[path] = first_sentence(error)
        elif not self._mapped:
            looked.failed[path] = "it has no field ids, and the table has no name mapping"
        else:
            try:
                looked.counts.update(self._count([path], self._by_name(), partitions, looked))
            except Exception as second:
                looked.failed[path] = f"it has no field ids, and reading by name failed: {first_sentence(second)}"

    def _count(
        self, paths: list[str], columns: tuple[StructType, list[Column]], partitions: DataFrame | None, looked: Looked
    ) -> dict[str, RowCount]:
        from pyspark.sql import functions as F

        schema, selected = columns
        read_from = {path: self._copied.get(path, path) for path in paths}
        read = self._spark.read.schema(schema).options(**_OPTIONS).parquet(*read_from.values())
        there = {path_key(unquote(path)) for path in read.inputFiles()}
        # Spark treats names that begin with _ or . as hidden, even when it is given them.
        unseen = [path for path in paths if path_key(read_from[path]) not in there]
        # Spark gives the path as a URL.
        path = F.url_decode(F.replace(read.metadataColumn("_metadata")["file_path"], F.lit("+"), F.lit("%2B")))
        # A position delete file may contain the deleted rows; most do not.
        rows = (read.where(f"{_ROW} IS NOT NULL") if self._of_deletes else read).select(path_key_column(path).alias(_KEY), *selected)
        if self._copied:
            rows = self._with_own_keys(rows, read_from)
        if partitions is not None:
            rows = self._with_partitions(rows, partitions)
        # The predicate sees only the table's columns, under their own names.
        rows = rows.select(_KEY, F.expr(self._predicate.text).alias(_MATCH))
        counted = rows.groupBy(_KEY).agg(F.count_if(F.col(_MATCH)), F.count_if(F.col(_MATCH).isNull()))
        found = {
            row[0]: RowCount(row[1], row[2]) for row in counted.where(F.col(counted.columns[1]) + F.col(counted.columns[2]) > 0).collect()
        }
        looked.failed.update(dict.fromkeys(unseen, "Spark does not list it: its name begins with _ or ."))
        return found

    def _with_own_keys(self, rows: DataFrame, copies: Mapping[str, str]) -> DataFrame:
        """Rows of copies under the keys of the files that were copied."""
        from pyspark.sql import functions as F

        pairs = [(path_key(copy), path_key(path)) for path, copy in copies.items()]
        own = self._spark.createDataFrame(pairs, "`icekit copy` string, `icekit own key` string")
        joined = rows.join(F.broadcast(own), F.col(identifier(_KEY)) == F.col("`icekit copy`"), "left")
        # A row without a file would be a row that nobody finds.
        own_key = F.expr(f"coalesce(`icekit own key`, raise_error(concat('icekit: not a copied file: ', {identifier(_KEY)})))")
        return joined.withColumn(_KEY, own_key).drop("icekit copy", "icekit own key")

    def _with_partitions(self, rows: DataFrame, partitions: DataFrame) -> DataFrame:
        """Fill in identity partition values where the file has none, as Iceberg's readers do."""
        from pyspark.sql import functions as F

        values = partitions.select(
            F.col("key").alias("icekit partition key"),
            *(F.col(identifier(name)).alias(f"icekit value {name}") for name in partitions.columns if name != "key"),
        )
        joined = rows.join(F.broadcast(values), F.col(identifier(_KEY)) == F.col("`icekit partition key`"), "left")
        return joined.select(
            F.col(identifier(_KEY)),
            *(
                F.coalesce(F.col(identifier(name)), F.col(identifier(f"icekit value {name}")).cast(self._schema[name].dataType)).alias(name)
                if name in partitions.columns
                else F.col(identifier(name))
                for name in rows.columns
                if name != _KEY
            ),
        )

    def _by_id(self) -> tuple[StructType, list[Column]]:
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        fields, selected = [], []
        for iceberg, spark in zip(self._fields, self._schema, strict=True):
            uuid = iceberg["type"] == "uuid"
            kind = T.BinaryType() if uuid else _with_ids(iceberg["type"], spark.dataType)
            fields.append(T.StructField(spark.name, kind, True, {"parquet.field.id": iceberg["id"]}))
            column = F.col(identifier(*((_ROW,) if self._of_deletes else ()), spark.name))
            selected.append((_uuid(column) if uuid else column).alias(spark.name))
        if self._of_deletes:
            fields = [T.StructField(_ROW, T.StructType(fields), True, {"parquet.field.id": _ROW_ID})]
        return T.StructType(fields), selected

    def _by_name(self) -> tuple[StructType, list[Column]]:
        """Plain columns by the names in the table's name mapping; nested columns are left out."""
        from pyspark.sql import functions as F
        from pyspark.sql import types as T

        fields, selected = [], []
        for iceberg, spark in zip(self._fields, self._schema, strict=True):
            names = self._mapped.get(iceberg["id"], ())
            if not isinstance(iceberg["type"], str) or iceberg["type"] == "uuid" or not names:
                continue
            fields += [T.StructField(name, spark.dataType) for name in names]
            selected.append(F.coalesce(*(F.col(identifier(name)) for name in names)).alias(spark.name))
        return T.StructType(fields), selected


def _mapped_names(mapping: str | None) -> dict[int, tuple[str, ...]]:
    """Names by field id of ``schema.name-mapping.default``, top level; empty if there is none."""
    try:
        return {f["field-id"]: tuple(f["names"]) for f in json.loads(mapping or "[]") if f.get("field-id") is not None and f.get("names")}
    except (ValueError, KeyError, TypeError):
        return {}


def _with_ids(iceberg: Any, spark: Any) -> DataType:
    """Spark's type, with Iceberg's field ids inside structs."""
    from pyspark.sql import types as T

    if isinstance(iceberg, str):
        found: DataType = spark
        return found
    if iceberg["type"] == "struct":
        pairs = zip(iceberg["fields"], spark.fields, strict=True)
        return T.StructType(
            [T.StructField(s.name, _with_ids(i["type"], s.dataType), True, {"parquet.field.id": i["id"]}) for i, s in pairs]
        )
    if iceberg["type"] == "list":
        return T.ArrayType(_with_ids(iceberg["element"], spark.elementType))
    return T.MapType(_with_ids(iceberg["key"], spark.keyType), _with_ids(iceberg["value"], spark.valueType))


def _uuid(column: Column) -> Column:
    """Sixteen bytes as Iceberg shows them to Spark."""
    from pyspark.sql import functions as F

    return F.regexp_replace(F.lower(F.hex(column)), "^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
