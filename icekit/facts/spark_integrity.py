"""Find what contradicts itself in a snapshot, and name it, in Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.engine.compat import arrow_of
from icekit.facts.files import Kind
from icekit.facts.integrity import EXAMPLES, MOST_PARTITIONS, DeleteState, DuplicateFile, Integrity, MisplacedDelete, NarrowManifest
from icekit.facts.local_named_deletes import file_name
from icekit.facts.manifests import FieldRange, Record, comparable, narrow_fields, of_manifests
from icekit.facts.rollup import Rollup, sort_key
from icekit.facts.spark_entries import ENTRY, KIND, KINDS, REDUCERS, STATES, Snapshot, grouped, kind_code, last_part, place_hash, state_code
from icekit.facts.spark_named_deletes import named_deletes, named_paths
from icekit.facts.spark_partitions import Partitions, partition_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def integrity_of(snapshot: Snapshot, rows: DataFrame, rollup: Rollup) -> Integrity:
    """What contradicts itself in the files of ``rows``, which ``rollup`` has counted."""
    found = of_manifests(snapshot.manifests, _narrow(snapshot, rows))
    twice = rows.select("file").repartition(REDUCERS, "file").groupBy("file").count().where("count > 1").select("file")
    if not twice.isEmpty():
        found = _duplicates(snapshot, twice, found)
    if any(state is not DeleteState.DANGLING for _, _, state in rollup.unapplied):
        found = replace(found, misplaced=tuple(_misplaced(snapshot, rows)))
    return found


def _narrow(snapshot: Snapshot, rows: DataFrame) -> Iterable[NarrowManifest]:
    """The manifests whose summary does not cover their entries: one row per manifest and spec, with the range of each partition field.

    A row's manifest is known by a 32-bit hash of the path that Spark reads; manifests with the same hash are not compared.
    """
    names = snapshot.names
    partitioned = [m for m in snapshot.manifests if m.get("partitions") and not snapshot.specs[m["partition_spec_id"]].is_unpartitioned]
    if not partitioned:
        return
    by_hash: dict[int, list[Record]] = {}
    for manifest in {m["manifest_path"]: m for m in snapshot.manifests}.values():
        by_hash.setdefault(zlib.crc32(manifest["manifest_path"].encode()), []).append(manifest)
    types = dict(rows.dtypes)
    sums = []
    for i in range(len(names)):
        is_nan = f"isnan(p{i})" if types[f"p{i}"] in {"float", "double"} else "false"
        value = f"if({is_nan}, NULL, p{i})"
        sums += [f"min({value}) AS low{i}", f"max({value}) AS high{i}", f"max(p{i} IS NULL) AS null{i}", f"max({is_nan}) AS nan{i}"]
    table = arrow_of(grouped(rows.select("manifest", *snapshot.scope), ["manifest", "spec_id"], *sums)).to_pylist()
    place = {field_id: i for i, (field_id, _) in enumerate(names)}
    for row in table:
        same = by_hash.get(row["manifest"], [])
        if len(same) != 1 or same[0]["partition_spec_id"] != row["spec_id"]:
            continue
        spec = snapshot.specs[row["spec_id"]]
        ranges = []
        for field in spec.fields:
            i = place[field.field_id]
            low, high = (comparable(field.result_type, row[f"{end}{i}"]) for end in ("low", "high"))
            ranges.append(FieldRange(low, high, bool(row[f"null{i}"]), bool(row[f"nan{i}"])))
        yield from narrow_fields(same[0], [(f.name, f.result_type) for f in spec.fields], ranges)


def _duplicates(snapshot: Snapshot, twice: DataFrame, found: Integrity) -> Integrity:
    """The counts of files that are listed twice, and examples."""
    listed = _entries(snapshot).join(twice, "file", "left_semi").persist()
    try:
        keys = ["kind", "path", "offset"]
        files = grouped(
            listed, keys, "count(*) AS entries", "max(records) AS records", "sort_array(collect_set(snapshot_id)) AS snapshots"
        ).where("entries > 1")
        counted = (
            files.selectExpr(f"kind = {kind_code(Kind.DATA)} AS is_data", "(entries - 1) * records AS again")
            .groupBy("is_data")
            .agg({"*": "count", "again": "sum"})
        )
        totals = {row["is_data"]: (row["count(1)"], row["sum(again)"]) for row in counted.collect()}
        first = files.orderBy("path", "offset").limit(EXAMPLES).collect()
        partitions = Partitions(snapshot.specs, snapshot.names).read(
            arrow_of(listed.select(*snapshot.scope).distinct().limit(MOST_PARTITIONS + 1))
        )
    finally:
        listed.unpersist()
    return replace(
        found,
        duplicate_data_file_count=totals.get(True, (0, 0))[0],
        duplicate_delete_file_count=totals.get(False, (0, 0))[0],
        duplicate_record_count=totals.get(True, (0, 0))[1],
        duplicate_partitions=tuple(sorted(partitions, key=sort_key)) if len(partitions) <= MOST_PARTITIONS else (),
        duplicates=tuple(DuplicateFile(row["path"], KINDS[row["kind"]], row["entries"], tuple(row["snapshots"])) for row in first),
    )


def _entries(snapshot: Snapshot) -> DataFrame:
    """The live entries with the path of the file, its partition, and the snapshot that added them."""
    entries = snapshot.files("entries").where("status < 2")
    return entries.selectExpr(
        f"{ENTRY} AS file",
        f"{KIND} AS kind",
        "data_file.file_path AS path",
        "data_file.content_offset AS offset",
        "data_file.record_count AS records",
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", snapshot.names),
        "snapshot_id",
    )


def _misplaced(snapshot: Snapshot, rows: DataFrame) -> Iterable[MisplacedDelete]:
    """A few misfiled and unmatched deletes, each with the data file that it names, or the one in its place."""
    from pyspark.sql import functions as F

    named = named_deletes(snapshot, rows)
    if named is None:
        return
    wrong = named.where(f"state > {state_code(DeleteState.DANGLING)}").select("file", "state").distinct()
    found = _entries(snapshot).join(wrong, "file").join(named_paths(snapshot), "file").orderBy("path", "named").limit(EXAMPLES)
    deletes = arrow_of(found.selectExpr("*", f"{place_hash(snapshot.scope)} AS place"))
    paths = set(deletes.column("named").to_pylist())
    files = _entries(snapshot).where(f"kind = {kind_code(Kind.DATA)}").selectExpr("*", f"{place_hash(snapshot.scope)} AS place")
    is_beside = F.expr(last_part("path")).isin(sorted(map(file_name, paths))) & F.col("place").isin(deletes.column("place").to_pylist())
    data = arrow_of(files.where(F.col("path").isin(sorted(paths)) | is_beside))
    known = Partitions(snapshot.specs, snapshot.names)
    by_path = dict(zip(data.column("path").to_pylist(), known.read(data), strict=True))
    columns = [deletes.column(c).to_pylist() for c in ("state", "path", "named", "snapshot_id")]
    for partition, state, path, named_path, snapshot_id in zip(known.read(deletes), *columns, strict=True):
        reason, data_path = STATES[state - 1], named_path
        if reason is DeleteState.UNMATCHED:
            beside = (p for p, held in by_path.items() if held == partition and file_name(p) == file_name(named_path))
            data_path = min(beside, default=named_path)
        yield MisplacedDelete(reason, path, partition, named_path, data_path, by_path.get(data_path, partition), snapshot_id)
