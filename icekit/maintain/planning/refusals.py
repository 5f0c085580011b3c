"""Say which of Iceberg's own procedures cannot run on a table because the column of a partition
field was dropped, and what to do then.
"""

from collections.abc import Iterable, Sequence

from icekit.engine.errors import ADD_A_FIELD
from icekit.iceberg.definition import Column, PartitionSpec
from icekit.iceberg.dropped_fields import (
    fields_blocking_files_table,
    fields_blocking_position_deletes,
    quoted_field_names,
    unreadable_position_deletes_reason,
)


def manifest_refusal(
    specs: Sequence[PartitionSpec], columns: Iterable[Column], spec_id: int
) -> str:
    """Why Iceberg (1.12) cannot rewrite the manifests of a spec, and what to do, as sentences;
    empty if it can.

    It reads their entries from a metadata table, and needs the field of each partition value there.
    """
    spec_fields = [field for spec in specs if spec.spec_id == spec_id for field in spec.fields]
    if dropped_names := [field.name for field in spec_fields if field.source is None]:
        return (
            f"Iceberg cannot rewrite the manifests of partition spec {spec_id}, because the column "
            f"of partition field {quoted_field_names(dropped_names)} was dropped. A rewrite of "
            "all data files into the current spec removes these manifests (rewrite_data_files with "
            "rewrite-all)."
        )
    if blocking_fields := fields_blocking_files_table(specs, columns):
        return (
            "Iceberg cannot rewrite the manifests, because it cannot read the table's metadata "
            f"tables: the column of partition field {quoted_field_names(blocking_fields)} was "
            f"dropped. {ADD_A_FIELD}."
        )
    return ""


def positions_refusal(specs: Iterable[PartitionSpec]) -> str:
    """Why Iceberg (1.12) cannot rewrite position delete files, and what to do, as sentences; empty
    if it can.
    """
    blocking_fields = fields_blocking_position_deletes(specs)
    if not blocking_fields:
        return ""
    return (
        f"{unreadable_position_deletes_reason(blocking_fields)}. icekit compact removes these "
        "deletes with the rows that they delete."
    )
