"""Find which of Iceberg's metadata tables cannot be read because the column of a partition field
was dropped.
"""

from collections.abc import Iterable

from icekit.common.sql import identifier
from icekit.iceberg.definition import Column, PartitionSpec
from icekit.iceberg.metadata import Json, columns, schema_of, specs

# The highest id of a field of these tables that is no partition field
# (org.apache.iceberg.DataFile).
_LAST_FILE_FIELD_ID = 145
# The ids that readable_metrics takes for a column: a struct, and the six fields in it
# (org.apache.iceberg.MetricsUtil).
_IDS_OF_A_COLUMN = 7


def fields_blocking_files_table(
    specs: Iterable[PartitionSpec], columns: Iterable[Column]
) -> tuple[str, ...]:
    """The partition fields for which Iceberg (1.12) cannot read the metadata tables of files and
    entries; ``columns`` are those of the current schema.

    These tables have the partition fields whose column is left, and count the ids of
    ``readable_metrics`` on from the highest of them. Iceberg still looks up each field of each spec
    by its id: where that has become the id of a struct of metrics, it refuses to partition by it.
    """
    partition_fields = [field for spec in specs for field in spec.fields]
    remaining_field_ids = [field.field_id for field in partition_fields if field.source is not None]
    first_metrics_id = max([_LAST_FILE_FIELD_ID, *remaining_field_ids]) + 1
    metrics_column_count = sum(column.type != "variant" for column in columns)
    # The last one is readable_metrics itself.
    metrics_struct_ids = range(
        first_metrics_id,
        first_metrics_id + _IDS_OF_A_COLUMN * metrics_column_count + 1,
        _IDS_OF_A_COLUMN,
    )
    blocking_names = (
        field.name
        for field in partition_fields
        if field.source is None and field.field_id in metrics_struct_ids
    )
    return tuple(dict.fromkeys(blocking_names))


def fields_blocking_files_table_of(metadata: Json) -> tuple[str, ...]:
    """The same for a table's metadata JSON."""
    return fields_blocking_files_table(specs(metadata), columns(metadata, schema_of(metadata)))


def fields_blocking_position_deletes(specs: Iterable[PartitionSpec]) -> tuple[str, ...]:
    """The partition fields for which Iceberg (1.12) cannot read the metadata table
    ``position_deletes``: it has no field for them, but fields for others.
    """
    partition_fields = [field for spec in specs for field in spec.fields]
    if all(field.source is None for field in partition_fields):
        return ()
    return tuple(dict.fromkeys(field.name for field in partition_fields if field.source is None))


def unreadable_position_deletes_reason(field_names: Iterable[str]) -> str:
    """Why the metadata table ``position_deletes`` cannot be read, without the full stop."""
    return (
        "Iceberg cannot read the table's metadata table position_deletes, because the column of "
        f"partition field {quoted_field_names(field_names)} was dropped"
    )


def quoted_field_names(field_names: Iterable[str]) -> str:
    """The names of partition fields, quoted as in SQL."""
    return ", ".join(map(identifier, field_names))
