"""Collect the file rollup in Spark: the tasks that read manifests also count the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING
from zlib import crc32

from icekit.common.errors import MetadataUnreadable
from icekit.common.sql import Identifier, display_name, identifier
from icekit.common.units import count
from icekit.engine.bridge import iceberg_version, temporary_settings
from icekit.engine.compat import arrow_of
from icekit.engine.errors import explain_errors
from icekit.health.facts.counts import NEVER, Rollup, add
from icekit.health.facts.integrity import DeleteState, NarrowManifest
from icekit.health.facts.spark_entries import (
    ENTRY,
    KINDS,
    REDUCERS,
    STATES,
    Snapshot,
    aggregate,
    file_hash_sql,
    file_name_sql,
    kind_code,
    range_end_sql,
    scalar_sql,
    state_code,
)
from icekit.health.facts.summaries import (
    FieldRange,
    comparable_value,
    manifest_integrity,
    narrow_summaries,
)
from icekit.iceberg import PATH_FIELD_ID
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.key_bounds import KeyBounds, KeyColumn, comparable_key_columns
from icekit.iceberg.manifests import FileCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def roll_up(rollup: Rollup, spark: SparkSession, table: Identifier, snapshot_id: int) -> bool:
    """Count every live file of a snapshot; ``table`` includes its catalog.

    Tells whether files are listed more than once or deletes are misplaced:
    :func:`icekit.health.facts.local.roll_up` names them.

    With delete files this reads ``entries``, the only table with sequence numbers. The columns
    that count are cached while they are aggregated: by partition, by file and by manifest. The
    driver receives a row per partition, kind, size bucket and, with deletes, sequence number, and a
    row per manifest. More is read only to join delete files with the data files that they name, and
    to compare the key bounds of equality deletes.
    """
    snapshot = Snapshot(spark, table, snapshot_id, rollup)
    with explain_errors(table):
        file_rows = _live_file_rows(snapshot).persist()
        try:
            if rollup.has_deletes:
                rollup.set_sequence_width(
                    aggregate(file_rows, snapshot.partition_columns, "count(*)").count
                )
                _read_counts(snapshot, with_delete_state(snapshot, file_rows))
                rollup.move_dangling_to_unapplied()
                _read_equality_keys(snapshot, file_rows)
                rule_out_by_keys(snapshot, file_rows)
            else:
                _read_counts(snapshot, file_rows)
            return has_contradictions(snapshot, file_rows)
        finally:
            file_rows.unpersist()


def _live_file_rows(snapshot: Snapshot) -> DataFrame:
    """The live files; with what tells which deletes apply only if there are any."""
    bucket_edges = snapshot.rollup.bucket_edges
    data_kind_code = kind_code(Kind.DATA)
    size_sql = "data_file.file_size_in_bytes"
    file_key_sql = file_hash_sql("data_file.file_path")
    manifest_sql = "input_file_name()"
    extra_columns = []
    manifest_paths = {m["manifest_path"] for m in snapshot.rollup.manifests}
    # A string takes longer than its hash, which is used where no two manifests share it.
    if len({crc32(path.encode()) for path in manifest_paths}) == len(manifest_paths):
        manifest_sql = f"crc32({manifest_sql})"
    if snapshot.rollup.has_deletes:
        # Only deletion vectors have a size of content, and Iceberg before 1.8 has no such column.
        size_sql = f"coalesce(data_file.content_size_in_bytes, {size_sql})"
        file_key_sql = ENTRY
        name_hash_sql = file_hash_sql(file_name_sql("data_file.file_path"))
        extra_columns = [f"{name_hash_sql} AS name", "array_sort(data_file.equality_ids) AS ids"]
    file_rows = snapshot.entries(
        f"{size_sql} AS size",
        f"{file_key_sql} AS file",
        f"{manifest_sql} AS manifest",
        # Here, because Spark shuffles once more for a key that is a constant, unless it is cached.
        "-1 AS named_state",
        *extra_columns,
    )
    return file_rows.selectExpr(
        "*", f"if(kind = {data_kind_code}, {_bucket_sql('size', bucket_edges)}, 0L) AS bucket"
    )


def _read_counts(snapshot: Snapshot, file_rows: DataFrame) -> None:
    """Read the counts of files, of those that apply and of those that do not."""
    from pyspark.sql import functions as F

    rollup = snapshot.rollup
    group_columns = "kind", "sequence", "bucket", "state"
    rows_with_ranges = file_rows.withColumn(
        "sequence", F.expr(range_end_sql(rollup.sequence_width))
    )
    count_rows = aggregate(
        rows_with_ranges.selectExpr("*", "greatest(named_state, 0) AS state"),
        [*snapshot.partition_columns, *group_columns],
        "count_if(named_state = 0) AS scoped",
        "count(*) AS files",
        "sum(size) AS bytes",
        "sum(records) AS records",
        "min(size) AS low",
        "max(size) AS high",
    )
    sum_columns = "scoped", "files", "bytes", "records", "low", "high"
    for (
        partition,
        kind_index,
        sequence_number,
        lower_edge,
        state_number,
        file_scoped_count,
        *bucket_row,
    ) in snapshot.partitions.rows(count_rows, *group_columns, *sum_columns):
        kind = KINDS[kind_index]
        if state_number:
            add(rollup.unapplied_counts[partition, kind, STATES[state_number - 1]], *bucket_row[:3])
            continue
        rollup.bucket_counts[partition, kind, sequence_number][lower_edge] = bucket_row
        if file_scoped_count:
            rollup.file_scoped_counts[partition, kind] += file_scoped_count


def check_file_counts(
    spark: SparkSession,
    table: Identifier,
    snapshot_id: int,
    expected_counts: FileCounts | None,
    file_counts: FileCounts,
) -> None:
    """Check that the metadata tables list as many files as the snapshot has; ``expected_counts`` is
    None if nothing counts them.

    Raises :class:`~icekit.common.errors.MetadataUnreadable` otherwise: with a file missing here,
    icekit would call a table healthy, or a delete resolved.
    """
    if expected_counts is None or file_counts == expected_counts:
        return
    expected_counts_text = (
        f"{count(expected_counts.data, 'data file')} and "
        f"{count(expected_counts.deletes, 'delete file')}"
    )
    listed_counts_text = (
        f"{count(file_counts.data, 'data file')} and {count(file_counts.deletes, 'delete file')}"
    )
    raise MetadataUnreadable(
        f"Snapshot {snapshot_id} of {display_name(table[1:])} has {expected_counts_text}, but the "
        f"metadata tables of this session's Iceberg ({iceberg_version(spark, table[0])}) list "
        f"{listed_counts_text}; use another version of iceberg-spark-runtime."
    )


def _bucket_sql(size_sql: str, bucket_edges: Sequence[int]) -> str:
    cases_sql = " ".join(
        f"WHEN {size_sql} < {upper_edge}L THEN {lower_edge}L"
        for lower_edge, upper_edge in pairwise(bucket_edges)
    )
    return f"CASE {cases_sql} ELSE {bucket_edges[-1]}L END"


def _read_equality_keys(snapshot: Snapshot, file_rows: DataFrame) -> None:
    rollup = snapshot.rollup
    if not any(
        key[1] is Kind.EQUALITY_DELETES for key in (*rollup.bucket_counts, *rollup.unapplied_counts)
    ):
        return
    equality_deletes = file_rows.where(f"kind = {kind_code(Kind.EQUALITY_DELETES)}")
    for key_field_ids, *file_and_record_count in aggregate(
        equality_deletes, ["ids"], "count(*)", "sum(records)"
    ).collect():
        add(rollup.equality_key_counts[tuple(key_field_ids or ())], *file_and_record_count)


# Spark's names (``typeName()``) of Iceberg's types, where :func:`scalar_sql` needs them.
_SPARK_TYPES = {"timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


def with_delete_state(snapshot: Snapshot, file_rows: DataFrame) -> DataFrame:
    """The files with ``named_state``: whether the delete files that name a single data file,
    directly or by equal bounds (ContentFileUtil.referencedDataFile), apply to it; -1 for others.

    A delete applies to the live data file that has exactly the path it names, is not newer, and has
    its spec and partition, and a file with a deletion vector has no other deletes by position
    (DeleteFileIndex). Only this needs bounds of delete files, and a join by path.
    """
    lower_bound_sql = f"lower_bounds[{PATH_FIELD_ID}]"
    upper_bound_sql = f"upper_bounds[{PATH_FIELD_ID}]"
    path_sql = (
        f"coalesce(referenced_data_file, if({lower_bound_sql} = {upper_bound_sql}, "
        f"decode({lower_bound_sql}, 'utf-8'), NULL)) AS path"
    )
    position_delete_files = snapshot.metadata_rows("delete_files").where("content + 0 = 1")
    named_path_rows = position_delete_files.selectExpr(
        f"{file_hash_sql('file_path', 'content_offset')} AS file", path_sql
    )
    named_path_hashes = named_path_rows.where("path IS NOT NULL").selectExpr(
        "file",
        f"{file_hash_sql('path')} AS named",
        f"{file_hash_sql(file_name_sql('path'))} AS named_name",
    )
    if named_path_hashes.isEmpty():
        return file_rows
    is_data_sql = f"kind = {kind_code(Kind.DATA)}"
    data_rows = file_rows.where(is_data_sql)
    delete_rows = file_rows.where(f"NOT {is_data_sql}")
    oldest_aggregates = "min_by(place, sequence) AS named_place", "min(sequence) AS named_sequence"
    oldest_data_by_path = aggregate(
        data_rows.selectExpr("file AS named", "place", "sequence"), ["named"], *oldest_aggregates
    )
    oldest_data_by_name = aggregate(
        data_rows.selectExpr("place", "name AS named_name", "sequence"),
        ["place", "named_name"],
        "min(sequence) AS alike_sequence",
    )
    state_sql = (
        "CASE WHEN named_sequence IS NULL AND alike_sequence <= sequence THEN "
        f"{state_code(DeleteState.UNMATCHED)} WHEN coalesce(named_sequence, {NEVER}L) > sequence "
        f"THEN {state_code(DeleteState.DANGLING)} WHEN is_vector AND vectors > 1 THEN "
        f"{state_code(DeleteState.SEVERAL_VECTORS)} WHEN NOT is_vector AND vectors > 0 THEN "
        f"{state_code(DeleteState.REPLACED)} WHEN named_place <> place THEN "
        f"{state_code(DeleteState.MISFILED)} ELSE 0 END"
    )
    is_vector_sql = f"kind = {kind_code(Kind.DELETION_VECTORS)} AS is_vector"
    scoped_delete_rows = delete_rows.selectExpr("file", "place", "sequence", is_vector_sql).join(
        named_path_hashes.distinct(), "file"
    )
    vector_counts = aggregate(
        scoped_delete_rows.where("is_vector"), ["named"], "count(DISTINCT file) AS vectors"
    )
    joined_deletes = (
        scoped_delete_rows.repartition(REDUCERS, "named")
        .join(oldest_data_by_path, "named", "left")
        .join(vector_counts, "named", "left")
        .repartition(REDUCERS, "place", "named_name")
        .join(oldest_data_by_name, ["place", "named_name"], "left")
    )
    states_by_file = aggregate(joined_deletes, ["file"], f"min({state_sql}) AS state")
    deletes_with_state = delete_rows.drop("named_state").join(states_by_file, "file", "left")
    return data_rows.unionByName(
        deletes_with_state.selectExpr("*", "coalesce(state, -1) AS named_state").drop("state")
    )


def rule_out_by_keys(snapshot: Snapshot, file_rows: DataFrame) -> None:
    """Compare the key bounds of equality deletes with those of data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence
    number.
    """
    rollup = snapshot.rollup
    key_columns = comparable_key_columns(rollup.columns, rollup.equality_key_counts)
    if not key_columns or not any(
        kind is Kind.EQUALITY_DELETES for _, kind, _ in rollup.bucket_counts
    ):
        return
    # The names of two columns may differ by case alone.
    with temporary_settings(snapshot.spark, {"spark.sql.caseSensitive": "true"}):
        span_table = arrow_of(_key_spans(snapshot, file_rows, key_columns))
    partitions = snapshot.partitions.read(span_table)
    partition_numbers = {
        partition: partition_number
        for partition_number, partition in enumerate(dict.fromkeys(partitions))
    }
    data_bounds = KeyBounds.of_columns(key_columns)
    delete_bounds_by_key = dict[tuple[int, ...], KeyBounds]()
    for partition, row in zip(partitions, span_table.to_pylist(), strict=True):
        partition_number = partition_numbers[partition]
        key = tuple(row["ids"] or ())
        key_bounds = data_bounds
        if row["kind"] != kind_code(Kind.DATA):
            key_bounds = delete_bounds_by_key.setdefault(
                key, KeyBounds.of_columns(c for c in key if c in key_columns)
            )
        bounds_row = key_bounds.row(partition_number, row["sequence"])
        key_bounds.file_counts[bounds_row] = row["files"]
        key_bounds.record_counts[bounds_row] = row["records"]
        for field_id, column_spans in key_bounds.spans_by_column.items():
            column_spans.merge(
                bounds_row, *(row[f"{span_field}{field_id}"] for span_field in column_spans._fields)
            )
    rollup.rule_out_deletes(list(partition_numbers), data_bounds, delete_bounds_by_key)


def _key_spans(
    snapshot: Snapshot, file_rows: DataFrame, key_columns: Mapping[int, KeyColumn]
) -> DataFrame:
    """What equality deletes, and the data files that they may apply to, may hold in the columns of
    keys: for each, the fields of :class:`~icekit.iceberg.key_bounds.ColumnSpans`.
    """
    from pyspark.sql import functions as F

    equality_kind_code = kind_code(Kind.EQUALITY_DELETES)
    rollup = snapshot.rollup
    span_columns = []
    span_aggregates = []
    for field_id, column in key_columns.items():
        metrics_sql = f"readable_metrics.{identifier(column.name)}"
        null_count_sql = f"{metrics_sql}.null_value_count"
        value_count_sql = f"{metrics_sql}.value_count"
        may_be_null_sql = "false" if column.required else f"coalesce({null_count_sql}, 1) > 0"
        is_only_null_sql = (
            f"coalesce({may_be_null_sql} AND {null_count_sql} = {value_count_sql}, false)"
        )
        spark_type = _SPARK_TYPES.get(column.type, column.type)
        bounds_sql = (
            scalar_sql(f"{metrics_sql}.{end}_bound", spark_type) for end in ("lower", "upper")
        )
        low_sql, high_sql = (f"if({is_only_null_sql}, NULL, {end})" for end in bounds_sql)
        span_columns += [
            f"{low_sql} AS low{field_id}",
            f"{high_sql} AS high{field_id}",
            f"{may_be_null_sql} AS has_null{field_id}",
            f"NOT {is_only_null_sql} AS has_value{field_id}",
        ]
        is_bounded_sql = (
            f"NOT has_value{field_id} OR low{field_id} IS NOT NULL AND high{field_id} IS NOT NULL"
        )
        span_aggregates += [
            f"min(low{field_id}) AS low{field_id}",
            f"max(high{field_id}) AS high{field_id}",
            f"max(has_null{field_id}) AS has_null{field_id}",
            f"max(has_value{field_id}) AS has_value{field_id}",
            f"min({is_bounded_sql}) AS is_bounded{field_id}",
        ]
    key_rows = snapshot.entries("array_sort(data_file.equality_ids) AS ids", *span_columns)
    key_rows = key_rows.where(f"kind IN ({kind_code(Kind.DATA)}, {equality_kind_code})")
    if not rollup.has_global_deletes:
        delete_partitions = aggregate(
            file_rows.where(f"kind = {equality_kind_code}"), ["place"], "count(*) AS deletes"
        )
        key_rows = key_rows.join(delete_partitions.hint("broadcast"), "place", "left_semi")
    group_columns = [*snapshot.partition_columns, "kind", "sequence", "ids"]
    rows_with_ranges = key_rows.withColumn("sequence", F.expr(range_end_sql(rollup.sequence_width)))
    return aggregate(
        rows_with_ranges,
        group_columns,
        "count(*) AS files",
        "sum(records) AS records",
        *span_aggregates,
    )


def has_contradictions(snapshot: Snapshot, file_rows: DataFrame) -> bool:
    """Tell whether ``file_rows``, which the rollup has counted, have files that are listed more
    than once or deletes that are misplaced; adds what the manifests alone contradict.
    """
    rollup = snapshot.rollup
    narrow_manifests, live_counts_by_path = _narrow_manifests_and_counts(snapshot, file_rows)
    rollup.integrity = manifest_integrity(rollup.manifests, narrow_manifests, live_counts_by_path)
    if rollup.integrity.miscounted_count:
        return True
    misplaced_states = {
        DeleteState.MISFILED,
        DeleteState.UNMATCHED,
        DeleteState.REPLACED,
        DeleteState.SEVERAL_VECTORS,
    }
    if any(state in misplaced_states for _, _, state in rollup.unapplied_counts):
        return True
    entry_counts = aggregate(file_rows.select("file"), ["file"], "count(*) AS entries")
    return not entry_counts.where("entries > 1").isEmpty()


def _narrow_manifests_and_counts(
    snapshot: Snapshot, file_rows: DataFrame
) -> tuple[list[NarrowManifest], dict[str, int]]:
    """The manifests whose summary does not cover their entries, and the live files of each: one row
    per manifest and spec, with the range of each partition field. A manifest whose path Spark
    spells in another way is not compared.
    """
    from pyspark.sql import functions as F

    specs = snapshot.rollup.specs
    value_columns = snapshot.partitions.value_columns
    narrow_manifests: list[NarrowManifest] = []
    live_counts_by_path: dict[str, int] = {}
    manifests_by_key = {m["manifest_path"]: m for m in snapshot.rollup.manifests}
    manifests_by_key |= {
        crc32(path.encode()): manifest for path, manifest in manifests_by_key.items()
    }
    spark_types = dict(file_rows.dtypes)
    aggregates = ["count(*) AS files"]
    for column in value_columns:
        is_nan_sql = f"isnan({column})" if spark_types[column] in {"float", "double"} else "false"
        value_sql = f"if({is_nan_sql}, NULL, {column})"
        aggregates += [
            f"min({value_sql}) AS low_{column}",
            f"max({value_sql}) AS high_{column}",
            f"max({column} IS NULL) AS null_{column}",
            f"max({is_nan_sql}) AS nan_{column}",
        ]
    group_columns = ["manifest", "spec_id"]
    # Not with ``aggregate``, which shuffles a row per file: a task has read a few manifests, so it
    # aggregates by manifest before it shuffles.
    with temporary_settings(snapshot.spark, {"spark.sql.shuffle.partitions": str(REDUCERS)}):
        manifest_rows = arrow_of(file_rows.groupBy(*group_columns).agg(*map(F.expr, aggregates)))
    for row in manifest_rows.to_pylist():
        manifest = manifests_by_key.get(row["manifest"])
        if manifest is None or manifest["partition_spec_id"] != row["spec_id"]:
            continue
        live_counts_by_path[manifest["manifest_path"]] = row["files"]
        partition_fields = specs[row["spec_id"]].fields
        entry_ranges = []
        for i, field in zip(
            snapshot.partitions.indexes[row["spec_id"]], partition_fields, strict=True
        ):
            low_value, high_value, *null_and_nan_flags = (
                row[f"{column_prefix}_p{i}"] for column_prefix in ("low", "high", "null", "nan")
            )
            comparable_bounds = (
                comparable_value(field.result_type, end) for end in (low_value, high_value)
            )
            entry_ranges.append(FieldRange(*comparable_bounds, *map(bool, null_and_nan_flags)))
        narrow_manifests += narrow_summaries(manifest, partition_fields, entry_ranges)
    return narrow_manifests, live_counts_by_path
