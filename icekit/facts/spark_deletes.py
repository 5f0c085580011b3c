"""Find which deletes apply in Spark, and whether manifests contradict themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from icekit.engine.bridge import lent
from icekit.engine.compat import arrow_of
from icekit.facts.counts import NEVER
from icekit.facts.files import Kind
from icekit.facts.integrity import (
    DeleteState,
    NarrowManifest,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, compared
from icekit.facts.local_deletes import PATH_FIELD_ID
from icekit.facts.spark_entries import (
    REDUCERS,
    Snapshot,
    file_hash,
    grouped,
    kind_code,
    last_part,
    range_end_sql,
    scalar_sql,
    state_code,
)
from icekit.facts.summaries import FieldRange, comparable, narrow_fields, of_manifests
from icekit.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's names (``typeName()``) of Iceberg's types, where :func:`scalar_sql` needs them.
_SPARK_TYPES = {"timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


def with_named_state(snapshot: Snapshot, rows: DataFrame) -> DataFrame:
    """The files with ``named_state``: whether the delete files that name a single data file,
    directly or by equal bounds (ContentFileUtil.referencedDataFile), apply to it; -1 for others.

    A delete applies to the live data file that has exactly the path it names, is not newer, and has
    its spec and partition (DeleteFileIndex). Only this needs bounds of delete files, and a join by
    path.
    """
    lower, upper = (f"{end}_bounds[{PATH_FIELD_ID}]" for end in ("lower", "upper"))
    path = (
        f"coalesce(referenced_data_file, if({lower} = {upper}, decode({lower}, 'utf-8'), NULL)) "
        "AS path"
    )
    files = snapshot.files("delete_files").where("content + 0 = 1")
    named = files.selectExpr(f"{file_hash('file_path', 'content_offset')} AS file", path)
    scoped = named.where("path IS NOT NULL").selectExpr(
        "file", f"{file_hash('path')} AS named", f"{file_hash(last_part('path'))} AS named_name"
    )
    if scoped.isEmpty():
        return rows.selectExpr("*", "-1 AS named_state")
    is_data = f"kind = {kind_code(Kind.DATA)}"
    data, deletes = rows.where(is_data), rows.where(f"NOT {is_data}")
    oldest = "min_by(place, sequence) AS named_place", "min(sequence) AS named_sequence"
    live = grouped(data.selectExpr("file AS named", "place", "sequence"), ["named"], *oldest)
    beside = grouped(
        data.selectExpr("place", "name AS named_name", "sequence"),
        ["place", "named_name"],
        "min(sequence) AS alike_sequence",
    )
    state = (
        "CASE WHEN named_sequence IS NULL AND alike_sequence <= sequence THEN "
        f"{state_code(DeleteState.UNMATCHED)} WHEN coalesce(named_sequence, {NEVER}L) > sequence "
        f"THEN {state_code(DeleteState.DANGLING)} WHEN named_place <> place THEN "
        f"{state_code(DeleteState.MISFILED)} ELSE 0 END"
    )
    judged = (
        deletes.select("file", "place", "sequence")
        .join(scoped.distinct(), "file")
        .repartition(REDUCERS, "named")
        .join(live, "named", "left")
        .repartition(REDUCERS, "place", "named_name")
        .join(beside, ["place", "named_name"], "left")
    )
    states = grouped(judged, ["file"], f"min({state}) AS state")
    known = deletes.join(states, "file", "left").selectExpr(
        "*", "coalesce(state, -1) AS named_state"
    )
    return data.selectExpr("*", "-1 AS named_state").unionByName(known.drop("state"))


def rule_out_by_keys(snapshot: Snapshot, rows: DataFrame) -> None:
    """Compare the key bounds of equality deletes with those of data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence
    number.
    """
    rollup = snapshot.rollup
    columns = compared(rollup.columns, rollup.by_key)
    if not columns or not any(kind is Kind.EQUALITY_DELETES for _, kind, _ in rollup.counted):
        return
    # The names of two columns may differ by case alone.
    with lent(snapshot.spark, {"spark.sql.caseSensitive": "true"}):
        table = arrow_of(_key_spans(snapshot, rows, columns))
    partitions = snapshot.partitions.read(table)
    numbers = {partition: number for number, partition in enumerate(dict.fromkeys(partitions))}
    data, deletes = Keyed.of(columns), dict[tuple[int, ...], Keyed]()
    for partition, row in zip(partitions, table.to_pylist(), strict=True):
        number, key = numbers[partition], tuple(row["ids"] or ())
        keyed = data
        if row["kind"] != kind_code(Kind.DATA):
            keyed = deletes.setdefault(key, Keyed.of(c for c in key if c in columns))
        into = keyed.row(number, row["sequence"])
        keyed.files[into], keyed.records[into] = row["files"], row["records"]
        for column, spans in keyed.columns.items():
            spans.merge(into, *(row[f"{name}{column}"] for name in spans._fields))
    rollup.rule_out(list(numbers), data, deletes)


def _key_spans(snapshot: Snapshot, rows: DataFrame, columns: Mapping[int, KeyColumn]) -> DataFrame:
    """What equality deletes, and the data files that they may apply to, may hold in the columns of
    keys: for each, the fields of :class:`~icekit.facts.key_bounds.Spans`.
    """
    from pyspark.sql import functions as F

    equality, rollup = kind_code(Kind.EQUALITY_DELETES), snapshot.rollup
    stated, spans = [], []
    for i, column in columns.items():
        metrics = f"readable_metrics.{identifier(column.name)}"
        nulls, values = (f"{metrics}.{name}_count" for name in ("null_value", "value"))
        maybe = "false" if column.required else f"coalesce({nulls}, 1) > 0"
        only = f"coalesce({maybe} AND {nulls} = {values}, false)"
        kind = _SPARK_TYPES.get(column.type, column.type)
        ends = (scalar_sql(f"{metrics}.{end}_bound", kind) for end in ("lower", "upper"))
        low, high = (f"if({only}, NULL, {end})" for end in ends)
        stated += [
            f"{low} AS low{i}",
            f"{high} AS high{i}",
            f"{maybe} AS has_null{i}",
            f"NOT {only} AS has_value{i}",
        ]
        is_bounded = f"NOT has_value{i} OR low{i} IS NOT NULL AND high{i} IS NOT NULL"
        spans += [
            f"min(low{i}) AS low{i}",
            f"max(high{i}) AS high{i}",
            f"max(has_null{i}) AS has_null{i}",
            f"max(has_value{i}) AS has_value{i}",
            f"min({is_bounded}) AS is_bounded{i}",
        ]
    files = snapshot.entries("array_sort(data_file.equality_ids) AS ids", *stated)
    data, deletes = (files.where(f"kind = {kind}") for kind in (kind_code(Kind.DATA), equality))
    if not rollup.has_global_deletes:
        data = data.join(rows.where(f"kind = {equality}").select("place"), "place", "left_semi")
    end = F.expr(range_end_sql(rollup.width))
    keys = [*snapshot.scope, "kind", "sequence", "ids"]
    ranged = data.unionByName(deletes).withColumn("sequence", end)
    return grouped(ranged, keys, "count(*) AS files", "sum(records) AS records", *spans)


def is_contradicted(snapshot: Snapshot, rows: DataFrame) -> bool:
    """Tell whether ``rows``, which the rollup has counted, have files that are listed more than
    once or deletes that are misplaced; adds what the manifests alone contradict.
    """
    rollup = snapshot.rollup
    rollup.integrity = of_manifests(rollup.manifests, _narrow(snapshot, rows))
    misplaced = {DeleteState.MISFILED, DeleteState.UNMATCHED}
    if any(state in misplaced for _, _, state in rollup.unapplied):
        return True
    repeated = grouped(rows.select("file"), ["file"], "count(*) AS entries").where("entries > 1")
    return not repeated.isEmpty()


def _narrow(snapshot: Snapshot, rows: DataFrame) -> Iterable[NarrowManifest]:
    """The manifests whose summary does not cover their entries: one row per manifest and spec, with
    the range of each partition field. A manifest whose path Spark spells in another way is not
    compared.
    """
    specs, columns = snapshot.rollup.specs, snapshot.partitions.columns
    if not any(
        m.get("partitions") and not specs[m["partition_spec_id"]].is_unpartitioned
        for m in snapshot.rollup.manifests
    ):
        return
    by_path = {manifest["manifest_path"]: manifest for manifest in snapshot.rollup.manifests}
    types = dict(rows.dtypes)
    sums = []
    for column in columns:
        is_nan = f"isnan({column})" if types[column] in {"float", "double"} else "false"
        value = f"if({is_nan}, NULL, {column})"
        sums += [
            f"min({value}) AS low_{column}",
            f"max({value}) AS high_{column}",
            f"max({column} IS NULL) AS null_{column}",
            f"max({is_nan}) AS nan_{column}",
        ]
    keys = ["manifest", "spec_id"]
    for row in arrow_of(grouped(rows.select("manifest", *snapshot.scope), keys, *sums)).to_pylist():
        manifest = by_path.get(row["manifest"])
        if manifest is None or manifest["partition_spec_id"] != row["spec_id"]:
            continue
        fields = specs[row["spec_id"]].fields
        ranges = []
        for i, field in zip(snapshot.partitions.indexes[row["spec_id"]], fields, strict=True):
            low, high, *has = (row[f"{of}_p{i}"] for of in ("low", "high", "null", "nan"))
            ends = (comparable(field.result_type, end) for end in (low, high))
            ranges.append(FieldRange(*ends, *map(bool, has)))
        yield from narrow_fields(manifest, fields, ranges)
