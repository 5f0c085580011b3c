"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from icekit.engine.bridge import iceberg_version
from icekit.engine.errors import explaining
from icekit.errors import MetadataUnreadable
from icekit.facts.counts import Rollup, add
from icekit.facts.files import Kind
from icekit.facts.manifests import FileCounts
from icekit.facts.spark_deletes import (
    is_contradicted,
    rule_out_by_keys,
    with_named_state,
)
from icekit.facts.spark_entries import (
    ENTRY,
    KINDS,
    STATES,
    Snapshot,
    file_hash,
    grouped,
    kind_code,
    last_part,
    partition_columns,
    range_end_sql,
)
from icekit.sql import Identifier, display_name
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def roll_up(rollup: Rollup, spark: SparkSession, table: Identifier, snapshot_id: int) -> bool:
    """Count every live file of a snapshot; ``table`` includes its catalog.

    Tells whether files are listed more than once or deletes are misplaced:
    :func:`icekit.facts.local.roll_up` names them.

    Without delete files this reads ``data_files``, which reads no statistics. With delete files it
    reads ``entries``, the only table with sequence numbers. The columns that count are cached while
    they are aggregated: by partition, by file and by manifest. The driver receives a row per
    partition, kind, size bucket and, with deletes, sequence number, and a row per manifest. More is
    read only to join delete files with the data files that they name, and to compare the key bounds
    of equality deletes.
    """
    snapshot = Snapshot(spark, table, snapshot_id, rollup)
    with explaining(table):
        rows = (_with_deletes(snapshot) if rollup.has_deletes else _plain(snapshot)).persist()
        try:
            if rollup.has_deletes:
                rollup.set_width(grouped(rows, snapshot.scope, "count(*)").count)
                _read(snapshot, with_named_state(snapshot, rows))
                rollup.set_older_apart()
                _read_equality_keys(snapshot, rows)
                rule_out_by_keys(snapshot, rows)
            else:
                _read(snapshot, rows.selectExpr("*", "0L AS sequence", "-1 AS named_state"))
            return is_contradicted(snapshot, rows)
        finally:
            rows.unpersist()


#: A column of every row: the path of its manifest.
_MANIFEST = "input_file_name() AS manifest"


def _plain(snapshot: Snapshot) -> DataFrame:
    files = snapshot.files("data_files")
    return files.selectExpr(
        "spec_id",
        *partition_columns(files, "partition", snapshot.partitions.names),
        f"{kind_code(Kind.DATA)} AS kind",
        f"{_bucket('file_size_in_bytes', snapshot.rollup.edges)} AS bucket",
        "file_size_in_bytes AS size",
        "record_count AS records",
        f"{file_hash('file_path')} AS file",
        _MANIFEST,
    )


def _with_deletes(snapshot: Snapshot) -> DataFrame:
    edges, data = snapshot.rollup.edges, kind_code(Kind.DATA)
    return snapshot.entries(
        # Only deletion vectors have a size of content.
        "coalesce(data_file.content_size_in_bytes, data_file.file_size_in_bytes) AS size",
        f"if(kind = {data}, {_bucket('size', edges)}, 0L) AS bucket",
        f"{ENTRY} AS file",
        f"{file_hash(last_part('data_file.file_path'))} AS name",
        "array_sort(data_file.equality_ids) AS ids",
        _MANIFEST,
    )


def _read(snapshot: Snapshot, rows: DataFrame) -> None:
    """Read the counts of files, of those that apply and of those that do not."""
    from pyspark.sql import functions as F

    rollup = snapshot.rollup
    keys = "kind", "sequence", "bucket", "state"
    ranged = rows.withColumn("sequence", F.expr(range_end_sql(rollup.width)))
    counted = grouped(
        ranged.selectExpr("*", "greatest(named_state, 0) AS state"),
        [*snapshot.scope, *keys],
        "count_if(named_state = 0) AS scoped",
        "count(*) AS files",
        "sum(size) AS bytes",
        "sum(records) AS records",
        "min(size) AS low",
        "max(size) AS high",
    )
    sums = "scoped", "files", "bytes", "records", "low", "high"
    for partition, code, sequence, edge, state, scoped, *row in snapshot.partitions.rows(
        counted, *keys, *sums
    ):
        kind = KINDS[code]
        if state:
            add(rollup.unapplied[partition, kind, STATES[state - 1]], *row[:3])
            continue
        rollup.counted[partition, kind, sequence][edge] = row
        if scoped:
            rollup.file_scoped[partition, kind] += scoped


def check_listed(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    expected: FileCounts | None,
    listed: FileCounts,
) -> None:
    """Check that the metadata tables list as many files as the snapshot has; ``expected`` is None
    if nothing counts them.

    Raises :class:`~icekit.errors.MetadataUnreadable` otherwise: with a file missing here, icekit
    would call a table healthy, or a delete resolved.
    """
    if expected is None or listed == expected:
        return
    existing, seen = (
        f"{count(n.data, 'data file')} and {count(n.deletes, 'delete file')}"
        for n in (expected, listed)
    )
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {existing}, but the metadata "
        f"tables of this session's Iceberg ({iceberg_version(spark, table[0])}) list {seen}; use "
        "another version of iceberg-spark-runtime."
    )


def _bucket(size: str, edges: Sequence[int]) -> str:
    cases = " ".join(f"WHEN {size} < {upper}L THEN {lower}L" for lower, upper in pairwise(edges))
    return f"CASE {cases} ELSE {edges[-1]}L END"


def _read_equality_keys(snapshot: Snapshot, rows: DataFrame) -> None:
    rollup = snapshot.rollup
    if not any(key[1] is Kind.EQUALITY_DELETES for key in (*rollup.counted, *rollup.unapplied)):
        return
    deletes = rows.where(f"kind = {kind_code(Kind.EQUALITY_DELETES)}")
    for ids, *counts in grouped(deletes, ["ids"], "count(*)", "sum(records)").collect():
        add(rollup.by_key[tuple(ids or ())], *counts)
