"""Find what a commit changed: its partitions, from the manifest entries that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icekit.facts.metadata import leaves
from icekit.facts.model import Column, Partition, PartitionField, PartitionSpec
from icekit.facts.spark import Partitions, metadata_table, partition_columns, unified
from icekit.prove.fingerprint import Print, prints
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Json = Mapping[str, Any]

# What tells a file, and the order in which deletes apply to it.
_FILE = (
    "xxhash64(data_file.content, data_file.file_path, data_file.spec_id, sequence_number, data_file.record_count, "
    "isnull(data_file.content_offset), data_file.content_offset)"
)


@dataclass(frozen=True)
class Changes:
    """The partitions that a commit changed, sorted.

    ``is_complete`` is false if the files of its parent, less those it says it removed, plus
    those it says it added, are not its files: then it has lost or gained some silently, and
    its changed partitions say too little.
    """

    partitions: tuple[Partition, ...]
    is_complete: bool


def changes(spark: SparkSession, table: Identifier, parent_id: int, snapshot_id: int, specs: Mapping[int, PartitionSpec]) -> Changes:
    """Read what a commit added and removed, data and delete files; ``table`` is named with its catalog.

    Two aggregations of the commit's ``entries`` and one of its parent's, without statistics;
    the driver receives a row per changed partition.
    """
    entries = metadata_table(spark, table, "entries", snapshot_id)
    own = entries.where(f"snapshot_id = {snapshot_id} AND status > 0")
    names = unified(specs.values())
    distinct = own.selectExpr("data_file.spec_id AS spec_id", *partition_columns(own, "data_file.partition", names)).distinct()
    partitions = sorted(set(Partitions(specs, names).read(distinct.toArrow())), key=_order)
    # Live in the commit and not added by it, or removed by it: the parent's live files.
    kept = entries.where(f"CASE WHEN snapshot_id = {snapshot_id} THEN status <> 1 ELSE status < 2 END")
    before = metadata_table(spark, table, "entries", parent_id).where("status < 2")
    return Changes(tuple(partitions), is_complete=_files(kept) == _files(before))


def _files(entries: DataFrame) -> Print:
    return prints(entries.selectExpr(f"{_FILE} AS h"))[()]


def _order(partition: Partition) -> tuple[int, list[tuple[bool, str]]]:
    # Values of one field may be null or, where a spec changed, of different types.
    return partition.spec_id, [(value is None, str(value)) for value in partition.values]


def paths(schema: Json) -> dict[int, tuple[str, ...]]:
    """Where each column that is no collection's element is, by field id: its name, or names from struct to leaf."""

    def visit(fields: Sequence[Json], prefix: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
        for field in fields:
            path = (*prefix, field["name"])
            if isinstance(field["type"], str):
                yield field["id"], path
            elif field["type"]["type"] == "struct":
                yield from visit(field["type"]["fields"], path)

    return dict(visit(schema["fields"], ()))


def columns_of(schema: Json) -> tuple[Column, ...]:
    """The leaf columns of a schema as predicates need them; metrics are of no matter here."""
    return tuple(Column(*leaf, metrics_mode="") for leaf in leaves(schema["fields"]))


def named_as(specs: Mapping[int, PartitionSpec], schema: Json) -> dict[int, PartitionSpec]:
    """The specs with their source columns named as in a snapshot's schema; None where it has no such column."""
    names = {field_id: name for field_id, name, *_ in leaves(schema["fields"])}
    return {
        spec_id: replace(spec, fields=tuple(replace(field, source=names.get(field.source_id)) for field in spec.fields))
        for spec_id, spec in specs.items()
    }


def key_sql(catalog: str, field: PartitionField, path: tuple[str, ...], kind: str) -> str | None:
    """SQL for the value of a partition field of a row, None for a transform that is not known."""
    column = identifier(*path)
    name, _, width = field.transform.rstrip("]").partition("[")
    if name == "identity":
        return column
    if name in {"year", "month", "day", "hour"}:
        return f"{identifier(catalog, 'system', f'{name}s')}({column})"
    if name in {"bucket", "truncate"}:
        # Iceberg hashes a uuid's bytes; Spark reads it as text.
        source = f"unhex(replace({column}, '-', ''))" if kind == "uuid" else column
        return f"{identifier(catalog, 'system', name)}({int(width)}, {source})"
    return None
