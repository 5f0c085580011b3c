"""Choose the partitions that a filter may select, as Iceberg projects it onto each spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements
from icekit.facts.model import Partition, Scalar
from icekit.facts.spark import scalar
from icekit.resolve.delete_files import entries
from icekit.resolve.find import At

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions_where(spark: SparkSession, at: At, expression: Any, *, case_sensitive: bool = False) -> tuple[frozenset[Partition], bool]:
    """The partitions with equality deletes that may hold rows of an Iceberg expression, and whether that leaves any out.

    An expression that no partition field answers selects every partition: then nothing is left
    out. Raises what Iceberg raises for a column that does not exist.
    """
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    chosen: set[Partition] = set()
    narrows = False
    projected: dict[int, Any] = {}
    for manifest in elements(at.snapshot.deleteManifests(at.table.io())):
        spec_id = int(manifest.partitionSpecId())
        if spec_id not in projected:
            made = iceberg.expressions.Projections.inclusive(at.table.specs()[spec_id], case_sensitive).project(expression)
            narrows = narrows or str(made) != "true"
            projected[spec_id] = made
        reader = iceberg.ManifestFiles.readDeleteManifest(manifest, at.table.io(), at.table.specs()).filterPartitions(projected[spec_id])
        width = len(at.specs[spec_id].fields)
        for delete in entries(reader):
            partition = delete.partition()
            chosen.add(Partition(spec_id, tuple(_scalar(partition.get(place)) for place in range(width))))
    return frozenset(chosen), narrows


def _scalar(value: Any) -> Scalar:
    """A value of Iceberg's API in the form that facts keep."""
    if hasattr(value, "getClass"):  # what py4j leaves as a Java object
        return str(value.toString()) if "ByteBuffer" not in value.getClass().getName() else bytes(value.array()).hex()
    return scalar(value)
