"""Find which deletes apply, and which are misplaced, in Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import arrow_of
from icekit.engine.metadata_tables import CONTENT
from icekit.facts.files import Kind
from icekit.facts.integrity import (
    EXAMPLES,
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    Integrity,
    MisplacedDelete,
    NarrowManifest,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, Spans, compared, decode, rule_out
from icekit.facts.local_deletes import PATH_FIELD_ID, file_name
from icekit.facts.manifests import FieldRange, Record, comparable, narrow_fields, of_manifests
from icekit.facts.rollup import Rollup, sort_key
from icekit.facts.spark_entries import (
    ENTRY,
    KIND,
    KINDS,
    REDUCERS,
    STATES,
    Partitions,
    Snapshot,
    file_hash,
    grouped,
    kind_code,
    last_part,
    partition_columns,
    place_hash,
    range_end_sql,
    state_code,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# No data file has this sequence number.
NEVER = f"{2**63 - 1}L"


def named_deletes(snapshot: Snapshot, rows: DataFrame) -> DataFrame | None:
    """The delete files that name a single data file, and whether they apply to it: as ``state``;
    None without any.

    A delete applies to the live data file that has exactly the path it names, is not newer, and has
    its spec and partition (DeleteFileIndex). Only this needs bounds of delete files, and a join by
    path.
    """
    scoped = named_paths(snapshot).selectExpr(
        "file", f"{file_hash('named')} AS named", f"{file_hash(last_part('named'))} AS named_name"
    )
    if scoped.isEmpty():
        return None
    deletes = (
        rows.where(f"kind <> {kind_code(Kind.DATA)}")
        .select("file", "place", "sequence")
        .join(scoped, "file")
    )
    data = rows.where(f"kind = {kind_code(Kind.DATA)}")
    oldest = "min_by(place, sequence) AS named_place", "min(sequence) AS named_sequence"
    live = grouped(data.selectExpr("file AS named", "place", "sequence"), ["named"], *oldest)
    beside = grouped(
        data.selectExpr("place", "name AS named_name", "sequence"),
        ["place", "named_name"],
        "min(sequence) AS alike_sequence",
    )
    state = (
        f"CASE WHEN named_sequence IS NULL THEN if(coalesce(alike_sequence, {NEVER}) <= sequence, "
        f"{state_code(DeleteState.UNMATCHED)}, {state_code(DeleteState.DANGLING)}) WHEN "
        f"named_sequence > sequence THEN {state_code(DeleteState.DANGLING)} WHEN named_place <> "
        f"place THEN {state_code(DeleteState.MISFILED)} ELSE 0 END AS state"
    )
    joined = deletes.repartition(REDUCERS, "named").join(live, "named", "left")
    return (
        joined.repartition(REDUCERS, "place", "named_name")
        .join(beside, ["place", "named_name"], "left")
        .selectExpr("*", state)
    )


def named_paths(snapshot: Snapshot) -> DataFrame:
    """The data file that each delete file names, if it is only one: directly, or by equal bounds
    (ContentFileUtil.referencedDataFile).
    """
    lower, upper = (f"{end}_bounds[{PATH_FIELD_ID}]" for end in ("lower", "upper"))
    named = (
        f"coalesce(referenced_data_file, if({lower} = {upper}, decode({lower}, 'utf-8'), NULL)) "
        "AS named"
    )
    files = snapshot.files("delete_files").where("content + 0 = 1")
    return (
        files.selectExpr(f"{file_hash('file_path', 'content_offset')} AS file", named)
        .where("named IS NOT NULL")
        .distinct()
    )


def rule_out_by_keys(
    snapshot: Snapshot, judged: DataFrame, rollup: Rollup, width: int
) -> set[tuple[int, int]]:
    """The (place, sequence number) of equality deletes that apply to no data by key bounds; adds
    what they rule out of other data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence
    number.
    """
    columns = compared(snapshot.columns, rollup.by_key)
    applied = {partition for partition, kind in rollup.buckets if kind is Kind.EQUALITY_DELETES}
    if not columns or not applied:
        return set()
    table = arrow_of(
        _key_spans(
            snapshot,
            judged,
            columns,
            width,
            is_global=any(snapshot.specs[p.spec_id].is_unpartitioned for p in applied),
        )
    )
    partitions = Partitions(snapshot.specs, snapshot.names).read(table)
    numbers = {partition: number for number, partition in enumerate(dict.fromkeys(partitions))}
    data, deletes = Keyed({column: Spans() for column in columns}), dict[tuple[int, ...], Keyed]()
    places, order = dict[int, int](), {column: place for place, column in enumerate(columns)}
    for partition, row in zip(partitions, table.to_pylist(), strict=True):
        number, key = numbers[partition], tuple(row["ids"] or ())
        places[number] = row["place"]
        held = data
        if row["kind"] != kind_code(Kind.DATA):
            held = deletes.setdefault(
                key, Keyed({column: Spans() for column in key if column in columns})
            )
        into = held.row(number, row["sequence"])
        held.files[into], held.records[into] = row["files"], row["records"]
        for column, spans in held.columns.items():
            place = order[column]
            low, high = (
                _bound(columns[column].type, row[f"{end}{place}"]) for end in ("low", "high")
            )
            spans.merge(
                into, low, high, row[f"null{place}"], row[f"value{place}"], row[f"bounded{place}"]
            )
    everywhere = {
        number
        for partition, number in numbers.items()
        if snapshot.specs[partition.spec_id].is_unpartitioned
    }
    found, named = rule_out(data, deletes, everywhere, width == 1), list(numbers)
    for (number, end), counts in found.data.items():
        rollup.add_ruled_out(named[number], end, *counts)
    return {(places[number], end) for number, end in found.deletes}


def _key_spans(
    snapshot: Snapshot,
    judged: DataFrame,
    columns: Mapping[int, KeyColumn],
    width: int,
    *,
    is_global: bool,
) -> DataFrame:
    """What data files, and equality deletes that are not older than all data, may hold in the
    columns of keys.
    """
    from pyspark.sql import functions as F

    equality, place = kind_code(Kind.EQUALITY_DELETES), f"{place_hash(snapshot.scope)} AS place"
    applied = (
        judged.where(f"state = 0 AND kind = {equality}").selectExpr(place, "sequence").distinct()
    )
    entries = snapshot.files("entries").where(f"status < 2 AND {CONTENT} <> 1")
    stated, spans = [], []
    for i, (column, (kind, required)) in enumerate(columns.items()):
        nulls, values = (f"data_file.{name}_counts[{column}]" for name in ("null_value", "value"))
        maybe = "false" if required else f"coalesce({nulls}, 1) > 0"
        only = "false" if required else f"coalesce({nulls} > 0 AND {nulls} = {values}, false)"
        low, high = (
            f"if({only}, NULL, {_ordered(kind, f'data_file.{end}_bounds[{column}]')})"
            for end in ("lower", "upper")
        )
        stated += [
            f"{low} AS low{i}",
            f"{high} AS high{i}",
            f"{maybe} AS null{i}",
            f"NOT {only} AS value{i}",
        ]
        spans += [
            f"{how}({name}{i}) AS {name}{i}"
            for name, how in (("low", "min"), ("high", "max"), ("null", "max"), ("value", "max"))
        ]
        spans.append(
            f"min(NOT value{i} OR low{i} IS NOT NULL AND high{i} IS NOT NULL) AS bounded{i}"
        )
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", snapshot.names),
        f"{KIND} AS kind",
        "sequence_number AS sequence",
        "data_file.record_count AS records",
        "array_sort(data_file.equality_ids) AS ids",
        *stated,
    ).selectExpr("*", place)
    data, deletes = (
        rows.where(f"kind <> {equality}"),
        rows.where(f"kind = {equality}").join(applied, ["place", "sequence"], "left_semi"),
    )
    if not is_global:
        data = data.join(applied.select("place").distinct(), "place", "left_semi")
    ranged = data.unionByName(deletes).withColumn("sequence", F.expr(range_end_sql(width)))
    keys = [*snapshot.scope, "place", "kind", "sequence", "ids"]
    return grouped(ranged, keys, "count(*) AS files", "sum(records) AS records", *spans)


# Two's complement of 128 bits, with the other sign, so that texts of hexadecimal digits have the
# order of the numbers.
_SIGN = 1 << 127


def _ordered(type_name: str, raw: str) -> str:
    """SQL for a bound in a form that has the order of :func:`icekit.facts.key_bounds.decode`;
    :func:`_bound` reads it.
    """
    if decode(type_name) is bytes:
        return raw
    digits = f"hex({raw})"
    if not type_name.startswith("decimal"):
        digits = (
            f"concat_ws('', transform(sequence(length({raw}), 1, -1), i -> substring({digits}, 2 "
            "* i - 1, 2)))"
        )
    padded = f"lpad({digits}, 32, if(substring({digits}, 1, 1) >= '8', 'F', '0'))"
    flipped = (
        f"translate(substring({padded}, 1, 1), '0123456789ABCDEF', '89ABCDEF01234567') || "
        f"substring({padded}, 2)"
    )
    return f"if(length({raw}) > 0, {flipped}, NULL)"


def _bound(type_name: str, value: Any) -> Any:
    return value if value is None or decode(type_name) is bytes else int(value, 16) - _SIGN


def with_new_keys(
    snapshot: Snapshot, judged: DataFrame, new_keys: Iterable[tuple[int, int]], width: int
) -> DataFrame:
    """The counts with these equality deletes among those that do not apply."""
    from pyspark.sql import functions as F

    ruled_out = snapshot.spark.createDataFrame(
        list(new_keys), "place LONG, last_sequence LONG"
    ).withColumn("is_new", F.lit(True))
    placed = judged.selectExpr(
        "*", f"{place_hash(snapshot.scope)} AS place", f"{range_end_sql(width)} AS last_sequence"
    )
    is_new = f"state = 0 AND kind = {kind_code(Kind.EQUALITY_DELETES)} AND is_new"
    state = F.expr(f"if({is_new}, {state_code(DeleteState.NEW_KEYS)}, state)")
    return placed.join(ruled_out, ["place", "last_sequence"], "left").withColumn("state", state)


def integrity_of(snapshot: Snapshot, rows: DataFrame, rollup: Rollup) -> Integrity:
    """What contradicts itself in the files of ``rows``, which ``rollup`` has counted."""
    found = of_manifests(snapshot.manifests, _narrow(snapshot, rows))
    twice = (
        rows.select("file")
        .repartition(REDUCERS, "file")
        .groupBy("file")
        .count()
        .where("count > 1")
        .select("file")
    )
    if not twice.isEmpty():
        found = _duplicates(snapshot, twice, found)
    if any(state is not DeleteState.DANGLING for _, _, state in rollup.unapplied):
        found = replace(found, misplaced=tuple(_misplaced(snapshot, rows)))
    return found


def _narrow(snapshot: Snapshot, rows: DataFrame) -> Iterable[NarrowManifest]:
    """The manifests whose summary does not cover their entries: one row per manifest and spec, with
    the range of each partition field.

    A row's manifest is known by a 32-bit hash of the path that Spark reads; manifests with the same
    hash are not compared.
    """
    names = snapshot.names
    partitioned = [
        m
        for m in snapshot.manifests
        if m.get("partitions") and not snapshot.specs[m["partition_spec_id"]].is_unpartitioned
    ]
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
        sums += [
            f"min({value}) AS low{i}",
            f"max({value}) AS high{i}",
            f"max(p{i} IS NULL) AS null{i}",
            f"max({is_nan}) AS nan{i}",
        ]
    table = arrow_of(
        grouped(rows.select("manifest", *snapshot.scope), ["manifest", "spec_id"], *sums)
    ).to_pylist()
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
            listed,
            keys,
            "count(*) AS entries",
            "max(records) AS records",
            "sort_array(collect_set(snapshot_id)) AS snapshots",
        ).where("entries > 1")
        counted = (
            files.selectExpr(
                f"kind = {kind_code(Kind.DATA)} AS is_data", "(entries - 1) * records AS again"
            )
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
        duplicate_partitions=tuple(sorted(partitions, key=sort_key))
        if len(partitions) <= MOST_PARTITIONS
        else (),
        duplicates=tuple(
            DuplicateFile(row["path"], KINDS[row["kind"]], row["entries"], tuple(row["snapshots"]))
            for row in first
        ),
    )


def _entries(snapshot: Snapshot) -> DataFrame:
    """The live entries with the path of the file, its partition, and the snapshot that added
    them.
    """
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
    """A few misfiled and unmatched deletes, each with the data file that it names, or the one in
    its place.
    """
    from pyspark.sql import functions as F

    named = named_deletes(snapshot, rows)
    if named is None:
        return
    wrong = (
        named.where(f"state > {state_code(DeleteState.DANGLING)}")
        .select("file", "state")
        .distinct()
    )
    found = (
        _entries(snapshot)
        .join(wrong, "file")
        .join(named_paths(snapshot), "file")
        .orderBy("path", "named")
        .limit(EXAMPLES)
    )
    deletes = arrow_of(found.selectExpr("*", f"{place_hash(snapshot.scope)} AS place"))
    paths = set(deletes.column("named").to_pylist())
    files = (
        _entries(snapshot)
        .where(f"kind = {kind_code(Kind.DATA)}")
        .selectExpr("*", f"{place_hash(snapshot.scope)} AS place")
    )
    is_beside = F.expr(last_part("path")).isin(sorted(map(file_name, paths))) & F.col("place").isin(
        deletes.column("place").to_pylist()
    )
    data = arrow_of(files.where(F.col("path").isin(sorted(paths)) | is_beside))
    known = Partitions(snapshot.specs, snapshot.names)
    by_path = dict(zip(data.column("path").to_pylist(), known.read(data), strict=True))
    columns = [deletes.column(c).to_pylist() for c in ("state", "path", "named", "snapshot_id")]
    for partition, state, path, named_path, snapshot_id in zip(
        known.read(deletes), *columns, strict=True
    ):
        reason, data_path = STATES[state - 1], named_path
        if reason is DeleteState.UNMATCHED:
            beside = (
                p
                for p, held in by_path.items()
                if held == partition and file_name(p) == file_name(named_path)
            )
            data_path = min(beside, default=named_path)
        yield MisplacedDelete(
            reason,
            path,
            partition,
            named_path,
            data_path,
            by_path.get(data_path, partition),
            snapshot_id,
        )
