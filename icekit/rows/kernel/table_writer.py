"""Find out whether the kernel can write new files of a table, and how they are written."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.engine.cluster import is_local as is_local_session
from icekit.iceberg.definition import SortField
from icekit.iceberg.metadata import Json, properties_of, schema_of
from icekit.iceberg.paths import is_local, local_path
from icekit.rows.kernel.duckdb_io import can_store
from icekit.rows.kernel.executors import missing_on_executors
from icekit.rows.kernel.kernel import FIELD_ID, LAST_UPDATED, ROW_ID, TableWriter
from icekit.rows.kernel.row_order import SortColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: A choice: what DuckDB holds in each worker before it spills.
MEMORY_BYTES = 256 << 20
#: What a worker's task needs beside Python.
PACKAGES = ("duckdb", "numpy", "pyarrow")
# Iceberg's codecs, as pyarrow names them. Those of lz4 differ, and Java has no brotli.
_CODECS = {"zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "uncompressed": "none"}
# Types whose values stay the same from one file to another, which the canaries in tests/rows prove.
_TYPES = {
    *("boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz"),
    *("string", "uuid", "binary"),
}
_PARAMETRIC_TYPES = ("fixed[", "decimal(")


class KernelUnavailable(Exception):
    """The kernel cannot rewrite a table, or some of its files; says why."""


def missing_packages() -> list[str]:
    """The packages of the kernel that this Python has not."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def key_reader(spark: SparkSession, table: Any, keys: Mapping[int, str]) -> TableWriter:
    """How the kernel reads keys in files of a table (an object of Iceberg's API), by their field ids
    and types; it writes nothing by it.

    Raises :class:`KernelUnavailable`.
    """
    if missing := missing_packages():
        raise KernelUnavailable(f"Python has no package {missing[0]}")
    for kind in keys.values():
        _check_type("of a key", kind)
    fields = [
        {"id": field_id, "name": f"k{field_id}", "type": kind, "required": False}
        for field_id, kind in keys.items()
    ]
    schema = _arrow_schema({"type": "struct", "fields": fields})
    reader = TableWriter(
        schema=schema,
        key_types={field_id: schema.field(f"k{field_id}").type for field_id in keys},
        options={},
        row_group_bytes=0,
        memory_bytes=MEMORY_BYTES,
        filesystem=_filesystem(table),
    )
    _check_executors(spark, table)
    return reader


def table_writer(
    spark: SparkSession,
    table: Any,
    metadata: Json,
    keys: Mapping[int, str],
    order: Sequence[SortField] | None,
) -> TableWriter:
    """How the kernel writes new files of a table (an object of Iceberg's API); ``keys`` are the
    field ids and types of equality deletes, ``order`` is how rows are sorted, None if they stay in
    the order of their files.

    Raises :class:`KernelUnavailable`.
    """
    schema = schema_of(metadata)
    properties = properties_of(metadata)
    if properties.get("write.format.default", "parquet").lower() != "parquet":
        raise KernelUnavailable("its new files are not Parquet")
    if order is None and int(metadata.get("default-sort-order-id", 0)) != 0:
        raise KernelUnavailable("its rows are sorted as they are written")
    for each in schema["fields"]:
        _check_field(each)
    options = _options(spark, properties)
    bloom_filters = _bloom_filters(properties)
    if bloom_filters:
        options["bloom_filter_options"] = bloom_filters
    reader = key_reader(spark, table, keys)
    _check_writer(options)
    arrow_schema = _arrow_schema(schema, has_lineage=int(metadata["format-version"]) >= 3)
    return replace(
        reader,
        schema=arrow_schema,
        order=_sort_columns(arrow_schema, order or ()),
        options=options,
        row_group_bytes=int(properties.get("write.parquet.row-group-size-bytes", 128 << 20)),
    )


def _sort_columns(schema: pa.Schema, order: Sequence[SortField]) -> Sequence[SortColumn]:
    """How the kernel sorts rows; raises :class:`KernelUnavailable` for what it cannot sort."""
    nested = [each.name for each in schema if not can_store(each.type)]
    if order and nested:
        raise KernelUnavailable(f"its rows are sorted, and column {nested[0]} is nested")
    columns = []
    for each in order:
        if each.transform != "identity":
            raise KernelUnavailable(f"its rows are sorted by {each.transform} of {each.source}")
        if each.source not in schema.names:
            raise KernelUnavailable(f"its rows are sorted by {each.source}")
        index = schema.names.index(each.source)
        is_descending = each.direction == "desc"
        columns.append(SortColumn(index, is_descending, each.null_order == "nulls-first"))
    return columns


def _check_executors(spark: SparkSession, table: Any) -> None:
    """Check that executors on other machines can run the kernel."""
    if is_local_session(spark):
        return
    location = str(table.operations().current().metadataFileLocation())
    path = local_path(location) if is_local(location) else ""
    if missing := missing_on_executors(spark, PACKAGES, path):
        raise KernelUnavailable(missing)


def _check_field(iceberg_field: Json) -> None:
    name = iceberg_field.get("name")
    kind = iceberg_field["type"]
    if iceberg_field.get("initial-default") is not None:
        raise KernelUnavailable(f"column {name} has an initial default")
    _check_type(name, kind)


def _check_type(name: object, kind: Any) -> None:
    if isinstance(kind, str):
        if kind not in _TYPES and not kind.startswith(_PARAMETRIC_TYPES):
            raise KernelUnavailable(f"column {name} is a {kind}")
        return
    for inner in kind.get("fields", ()):
        _check_field(inner)
    for part in ("element", "key", "value"):
        if part in kind:
            _check_type(name, kind[part])


def _arrow_schema(schema: Json, *, has_lineage: bool = False) -> pa.Schema:
    """A schema of Iceberg with the types that pyarrow reads from Parquet files."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    parsed = Schema.model_validate_json(json.dumps(schema))
    fields = [_small(each) for each in schema_to_pyarrow(parsed)]
    if has_lineage:
        for name, field_id in (
            ("_row_id", ROW_ID),
            ("_last_updated_sequence_number", LAST_UPDATED),
        ):
            metadata = {FIELD_ID: str(field_id).encode()}
            fields.append(pa.field(name, pa.int64(), metadata=metadata))
    return pa.schema(fields)


def _small(arrow_field: pa.Field) -> pa.Field:
    """A field without the types of 64-bit offsets that pyiceberg prefers."""
    return arrow_field.with_type(_small_type(arrow_field.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([_small(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    return kind


def _options(spark: SparkSession, properties: Mapping[str, str]) -> dict[str, Any]:
    """The options of pyarrow's writer that have the effect of the table's properties."""

    def setting(session: str, name: str, default: str) -> str:
        own = properties.get(f"write.parquet.{name}", default)
        return str(spark.conf.get(f"spark.sql.iceberg.{session}", own))

    codec = setting("compression-codec", "compression-codec", "gzip").lower()
    if codec not in _CODECS:
        raise KernelUnavailable(f"its files are compressed by {codec}")
    level = setting("compression-level", "compression-level", "")
    return {
        "compression": _CODECS[codec],
        "compression_level": int(level) if level.lstrip("-").isdigit() else None,
        "data_page_size": int(properties.get("write.parquet.page-size-bytes", 1 << 20)),
        "max_rows_per_page": int(properties.get("write.parquet.page-row-limit", 20_000)),
        "dictionary_pagesize_limit": int(properties.get("write.parquet.dict-size-bytes", 2 << 20)),
        "write_page_index": True,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, Any]:
    """The columns that get a bloom filter, as pyarrow's writer takes them."""
    prefix = "write.parquet.bloom-filter-enabled.column."
    rates = "write.parquet.bloom-filter-fpp.column."
    return {
        name.removeprefix(prefix): {
            "fpp": float(properties.get(rates + name.removeprefix(prefix), 0.01))
        }
        for name, value in properties.items()
        if name.startswith(prefix) and value.lower() == "true"
    }


def _check_writer(options: Mapping[str, Any]) -> None:
    """Check that this pyarrow knows all options."""
    import pyarrow.parquet as pq

    parameters = inspect.signature(pq.ParquetWriter.__init__).parameters
    file_parameters = inspect.signature(pq.ParquetFile.__init__).parameters
    known = {*parameters, "data_page_size"}
    if not known.issuperset(options) or "arrow_extensions_enabled" not in file_parameters:
        raise KernelUnavailable("pyarrow is too old")


def _filesystem(table: Any) -> Any:
    """The file system of pyarrow in which the table's files are; None for this machine's disks."""
    location = str(table.location())
    if is_local(location):
        return None
    from pyiceberg.io import load_file_io

    try:
        properties = {str(key): str(value) for key, value in dict(table.io().properties()).items()}
        io: Any = load_file_io(properties, location)
        scheme, _, rest = location.partition("://")
        return io.fs_by_scheme(scheme, rest.partition("/")[0])
    except Exception as error:
        raise KernelUnavailable("pyarrow does not reach its files") from error
