"""Rows of an old file in the table's schema of today.

Columns stay in Arrow, with the ids of their fields. Executors get the source of this module from
the driver, so it imports nothing of icekit but modules that they get, too.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from icekit.rows.kernel.part import DataFile
from icekit.rows.kernel.refusals import KernelRefused

#: The metadata of an Arrow field that has the id of the Parquet column.
FIELD_ID = b"PARQUET:field_id"
#: The ids of the columns with a row's lineage (table spec, "Reserved Field IDs").
ROW_ID = 2_147_483_540
LAST_UPDATED = 2_147_483_539


def field_id_of(field: pa.Field) -> int | None:
    """The id of a field; None if it has none."""
    id_text = (field.metadata or {}).get(FIELD_ID)
    return None if id_text is None else int(id_text)


def fields_of(struct_type: pa.DataType) -> list[pa.Field]:
    """The fields of a struct."""
    return [struct_type.field(i) for i in range(struct_type.num_fields)]


def in_current_schema(
    batch: pa.RecordBatch, data_file: DataFile, first_position: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of a data file with the table's fields; the file's rows from ``first_position`` on."""
    import numpy as np
    import pyarrow.compute as pc

    index_by_id = {field_id_of(field): i for i, field in enumerate(batch.schema)}
    columns = []
    for table_field in schema:
        field_id = field_id_of(table_field)
        index = index_by_id.get(field_id)
        if str(field_id) in data_file.constants:
            constant = data_file.constants[str(field_id)]
            column = constant_column(constant, table_field.type, batch.num_rows)
        elif index is not None:
            column = _as_type(batch.column(index), batch.schema.field(index), table_field)
        else:
            column = pa.nulls(batch.num_rows, table_field.type)
        if field_id == ROW_ID and data_file.first_row_id is not None:
            first_id = data_file.first_row_id + first_position
            row_ids = pa.array(np.arange(first_id, first_id + batch.num_rows))
            column = pc.coalesce(column, row_ids)
        if field_id == LAST_UPDATED:
            column = column.fill_null(data_file.sequence_number)
        columns.append(column)
    return pa.record_batch(columns, schema=schema)


def constant_column(value: Any, arrow_type: pa.DataType, row_count: int) -> pa.Array:
    """A column with a partition's value, as Iceberg writes a single value as JSON, in each row."""
    if value is None:
        return pa.nulls(row_count, arrow_type)
    if pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type):
        return pa.repeat(pa.scalar(value, arrow_type), row_count)
    return pa.repeat(pa.scalar(str(value)).cast(arrow_type), row_count)


def _as_type(column: pa.Array, file_field: pa.Field, table_field: pa.Field) -> pa.Array:
    """A column in the type that the table has today; raises :class:`KernelRefused` for a change
    that is not known to be exact.
    """
    file_type = file_field.type
    table_type = table_field.type
    has_same_ids = _has_same_ids(file_field, table_field)
    if file_type == table_type and has_same_ids:
        return column
    if pa.types.is_struct(file_type) and pa.types.is_struct(table_type):
        return _as_struct(column, file_type, table_type)
    if isinstance(table_type, pa.BaseExtensionType) and file_type == table_type.storage_type:
        return pa.ExtensionArray.from_storage(table_type, column)
    is_wider = (
        (pa.types.is_int32(file_type) and pa.types.is_int64(table_type))
        or (pa.types.is_float32(file_type) and pa.types.is_float64(table_type))
        or (pa.types.is_decimal(file_type) and pa.types.is_decimal(table_type))
    )
    if is_wider or (has_same_ids and _has_same_names(file_field, table_field)):
        try:
            return column.cast(table_type)
        except pa.ArrowInvalid as error:
            raise KernelRefused(
                f"a column of {file_type} that does not become {table_type}"
            ) from error
    raise KernelRefused(f"a column whose type changed from {file_type} to {table_type}")


def _as_struct(column: pa.Array, file_type: pa.DataType, table_type: pa.DataType) -> pa.Array:
    """A struct with the fields that it has in the table."""
    index_by_id = {field_id_of(field): i for i, field in enumerate(fields_of(file_type))}
    # Of a struct that is null, each field is null.
    file_columns = column.flatten()
    table_columns = []
    for table_field in fields_of(table_type):
        index = index_by_id.get(field_id_of(table_field))
        if index is None:
            table_columns.append(pa.nulls(len(column), table_field.type))
        else:
            table_columns.append(_as_type(file_columns[index], file_type.field(index), table_field))
    return pa.StructArray.from_arrays(
        table_columns,
        fields=fields_of(table_type),
        mask=column.is_null() if column.null_count else None,
    )


def _has_same_ids(file_field: pa.Field, table_field: pa.Field) -> bool:
    """Whether all fields inside have the ids that they have in the table."""
    file_fields = _inner_fields(file_field.type)
    table_fields = _inner_fields(table_field.type)
    return len(file_fields) == len(table_fields) and all(
        field_id_of(inner_file) == field_id_of(inner_table)
        and _has_same_ids(inner_file, inner_table)
        for inner_file, inner_table in zip(file_fields, table_fields, strict=True)
    )


def _has_same_names(file_field: pa.Field, table_field: pa.Field) -> bool:
    """Whether nested fields have the names and the simple types that they have in the table."""
    file_fields = _inner_fields(file_field.type)
    table_fields = _inner_fields(table_field.type)
    if not file_fields or len(file_fields) != len(table_fields):
        return False
    for inner_file, inner_table in zip(file_fields, table_fields, strict=True):
        if pa.types.is_struct(file_field.type) and inner_file.name != inner_table.name:
            return False
        is_simple = not _inner_fields(inner_file.type) and not _inner_fields(inner_table.type)
        if is_simple and inner_file.type != inner_table.type:
            return False
        if not is_simple and not _has_same_names(inner_file, inner_table):
            return False
    return True


def _inner_fields(arrow_type: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, of a map's entries, or of a list's elements."""
    if pa.types.is_struct(arrow_type):
        return fields_of(arrow_type)
    if pa.types.is_map(arrow_type):
        return [arrow_type.key_field, arrow_type.item_field]
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return [arrow_type.value_field]
    return []
