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
from icekit.rows.kernel.current_schema import FIELD_ID, LAST_UPDATED, ROW_ID
from icekit.rows.kernel.duckdb_io import can_store
from icekit.rows.kernel.executors import missing_on_executors
from icekit.rows.kernel.kernel_settings import KernelSettings
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
    return [
        package_name for package_name in PACKAGES if importlib.util.find_spec(package_name) is None
    ]


def reader_settings(
    spark: SparkSession, table: Any, key_types: Mapping[int, str]
) -> KernelSettings:
    """How the kernel reads keys in files of a table (an object of Iceberg's API), by their field
    ids and types; it writes nothing by it.

    Raises :class:`KernelUnavailable`.
    """
    if missing_names := missing_packages():
        raise KernelUnavailable(f"Python has no package {missing_names[0]}")
    for key_type in key_types.values():
        _check_type("of a key", key_type)
    key_fields = [
        {"id": field_id, "name": f"k{field_id}", "type": key_type, "required": False}
        for field_id, key_type in key_types.items()
    ]
    schema = _arrow_schema({"type": "struct", "fields": key_fields})
    settings = KernelSettings(
        schema=schema,
        key_types={field_id: schema.field(f"k{field_id}").type for field_id in key_types},
        writer_options={},
        row_group_bytes=0,
        memory_bytes=MEMORY_BYTES,
        filesystem=_pyarrow_filesystem(table),
    )
    _check_executors(spark, table)
    return settings


def writer_settings(
    spark: SparkSession,
    table: Any,
    metadata: Json,
    key_types: Mapping[int, str],
    order: Sequence[SortField] | None,
) -> KernelSettings:
    """How the kernel writes new files of a table (an object of Iceberg's API); ``key_types`` are
    the field ids and types of equality deletes, ``order`` is how rows are sorted, None if they stay
    in the order of their files.

    Raises :class:`KernelUnavailable`.
    """
    schema = schema_of(metadata)
    properties = properties_of(metadata)
    if properties.get("write.format.default", "parquet").lower() != "parquet":
        raise KernelUnavailable("its new files are not Parquet")
    if order is None and int(metadata.get("default-sort-order-id", 0)) != 0:
        raise KernelUnavailable("its rows are sorted as they are written")
    for schema_field in schema["fields"]:
        _check_field(schema_field)
    writer_options = _writer_options(spark, properties)
    bloom_filter_options = _bloom_filter_options(properties)
    if bloom_filter_options:
        writer_options["bloom_filter_options"] = bloom_filter_options
    reader = reader_settings(spark, table, key_types)
    _check_pyarrow(writer_options)
    arrow_schema = _arrow_schema(schema, has_lineage=int(metadata["format-version"]) >= 3)
    return replace(
        reader,
        schema=arrow_schema,
        sort_columns=_sort_columns(arrow_schema, order or ()),
        writer_options=writer_options,
        row_group_bytes=int(properties.get("write.parquet.row-group-size-bytes", 128 << 20)),
    )


def _sort_columns(schema: pa.Schema, order: Sequence[SortField]) -> Sequence[SortColumn]:
    """How the kernel sorts rows; raises :class:`KernelUnavailable` for what it cannot sort."""
    nested_columns = [sort_field.name for sort_field in schema if not can_store(sort_field.type)]
    if order and nested_columns:
        raise KernelUnavailable(f"its rows are sorted, and column {nested_columns[0]} is nested")
    sort_columns = []
    for sort_field in order:
        if sort_field.transform != "identity":
            raise KernelUnavailable(
                f"its rows are sorted by {sort_field.transform} of {sort_field.source}"
            )
        if sort_field.source not in schema.names:
            raise KernelUnavailable(f"its rows are sorted by {sort_field.source}")
        column_index = schema.names.index(sort_field.source)
        is_descending = sort_field.direction == "desc"
        sort_columns.append(
            SortColumn(column_index, is_descending, sort_field.null_order == "nulls-first")
        )
    return sort_columns


def _check_executors(spark: SparkSession, table: Any) -> None:
    """Check that executors on other machines can run the kernel."""
    if is_local_session(spark):
        return
    metadata_location = str(table.operations().current().metadataFileLocation())
    metadata_path = local_path(metadata_location) if is_local(metadata_location) else ""
    if missing_text := missing_on_executors(spark, PACKAGES, metadata_path):
        raise KernelUnavailable(missing_text)


def _check_field(iceberg_field: Json) -> None:
    column_name = iceberg_field.get("name")
    iceberg_type = iceberg_field["type"]
    if iceberg_field.get("initial-default") is not None:
        raise KernelUnavailable(f"column {column_name} has an initial default")
    _check_type(column_name, iceberg_type)


def _check_type(column_name: object, iceberg_type: Any) -> None:
    if isinstance(iceberg_type, str):
        if iceberg_type not in _TYPES and not iceberg_type.startswith(_PARAMETRIC_TYPES):
            raise KernelUnavailable(f"column {column_name} is a {iceberg_type}")
        return
    for inner_field in iceberg_type.get("fields", ()):
        _check_field(inner_field)
    for nested_part in ("element", "key", "value"):
        if nested_part in iceberg_type:
            _check_type(column_name, iceberg_type[nested_part])


def _arrow_schema(iceberg_schema: Json, *, has_lineage: bool = False) -> pa.Schema:
    """A schema of Iceberg with the types that pyarrow reads from Parquet files."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema

    parsed_schema = Schema.model_validate_json(json.dumps(iceberg_schema))
    arrow_fields = [_small_field(arrow_field) for arrow_field in schema_to_pyarrow(parsed_schema)]
    if has_lineage:
        for lineage_name, field_id in (
            ("_row_id", ROW_ID),
            ("_last_updated_sequence_number", LAST_UPDATED),
        ):
            field_metadata = {FIELD_ID: str(field_id).encode()}
            arrow_fields.append(pa.field(lineage_name, pa.int64(), metadata=field_metadata))
    return pa.schema(arrow_fields)


def _small_field(arrow_field: pa.Field) -> pa.Field:
    """A field without the types of 64-bit offsets that pyiceberg prefers."""
    return arrow_field.with_type(_small_type(arrow_field.type))


def _small_type(arrow_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_large_string(arrow_type):
        return pa.string()
    if pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_struct(arrow_type):
        return pa.struct([_small_field(arrow_type.field(i)) for i in range(arrow_type.num_fields)])
    if pa.types.is_large_list(arrow_type) or pa.types.is_list(arrow_type):
        return pa.list_(_small_field(arrow_type.value_field))
    if pa.types.is_map(arrow_type):
        return pa.map_(_small_field(arrow_type.key_field), _small_field(arrow_type.item_field))
    return arrow_type


def _writer_options(spark: SparkSession, properties: Mapping[str, str]) -> dict[str, Any]:
    """The options of pyarrow's writer that have the effect of the table's properties."""

    def setting(session_name: str, property_name: str, default: str) -> str:
        table_value = properties.get(f"write.parquet.{property_name}", default)
        return str(spark.conf.get(f"spark.sql.iceberg.{session_name}", table_value))

    codec_name = setting("compression-codec", "compression-codec", "gzip").lower()
    if codec_name not in _CODECS:
        raise KernelUnavailable(f"its files are compressed by {codec_name}")
    level_text = setting("compression-level", "compression-level", "")
    return {
        "compression": _CODECS[codec_name],
        "compression_level": int(level_text) if level_text.lstrip("-").isdigit() else None,
        "data_page_size": int(properties.get("write.parquet.page-size-bytes", 1 << 20)),
        "max_rows_per_page": int(properties.get("write.parquet.page-row-limit", 20_000)),
        "dictionary_pagesize_limit": int(properties.get("write.parquet.dict-size-bytes", 2 << 20)),
        "write_page_index": True,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }


def _bloom_filter_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """The columns that get a bloom filter, as pyarrow's writer takes them."""
    enabled_prefix = "write.parquet.bloom-filter-enabled.column."
    rate_prefix = "write.parquet.bloom-filter-fpp.column."
    return {
        property_name.removeprefix(enabled_prefix): {
            "fpp": float(
                properties.get(rate_prefix + property_name.removeprefix(enabled_prefix), 0.01)
            )
        }
        for property_name, property_value in properties.items()
        if property_name.startswith(enabled_prefix) and property_value.lower() == "true"
    }


def _check_pyarrow(options: Mapping[str, Any]) -> None:
    """Check that this pyarrow knows all options."""
    import pyarrow.parquet as pq

    writer_parameters = inspect.signature(pq.ParquetWriter.__init__).parameters
    file_parameters = inspect.signature(pq.ParquetFile.__init__).parameters
    known_options = {*writer_parameters, "data_page_size"}
    if not known_options.issuperset(options) or "arrow_extensions_enabled" not in file_parameters:
        raise KernelUnavailable("pyarrow is too old")


def _pyarrow_filesystem(table: Any) -> Any:
    """The file system of pyarrow in which the table's files are; None for this machine's disks."""
    table_location = str(table.location())
    if is_local(table_location):
        return None
    from pyiceberg.io import load_file_io

    try:
        io_properties = {
            str(key): str(property_value)
            for key, property_value in dict(table.io().properties()).items()
        }
        io: Any = load_file_io(io_properties, table_location)
        scheme, _, bucket_and_path = table_location.partition("://")
        return io.fs_by_scheme(scheme, bucket_and_path.partition("/")[0])
    except Exception as error:
        raise KernelUnavailable("pyarrow does not reach its files") from error
