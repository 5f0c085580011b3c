"""Find which deletes apply, and which are misplaced, in Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import arrow_of
from icekit.facts.files import Kind
from icekit.facts.integrity import (
    EXAMPLES,
    MOST_PARTITIONS,
    DeleteState,
    DuplicateFile,
    MisplacedDelete,
    NarrowManifest,
    file_name,
    misplaced_deletes,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, compared, decode
from icekit.facts.local_deletes import NEVER, PATH_FIELD_ID
from icekit.facts.manifests import (
    FieldRange,
    FileCounts,
    Record,
    comparable,
    narrow_fields,
    of_manifests,
)
from icekit.facts.ruled_out import rule_out
from icekit.facts.spark_entries import (
    ENTRY,
    KIND,
    KINDS,
    REDUCERS,
    STATES,
    Snapshot,
    file_hash,
    grouped,
    kind_code,
    last_part,
    range_end_sql,
    state_code,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        f"CASE WHEN named_sequence IS NULL THEN if(coalesce(alike_sequence, {NEVER}L) <= sequence, "
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


def rule_out_by_keys(snapshot: Snapshot, judged: DataFrame) -> set[tuple[int, int]]:
    """The (place, sequence number) of equality deletes that apply to no data by key bounds; adds
    what they rule out of other data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence
    number.
    """
    rollup = snapshot.rollup
    columns = compared(rollup.columns, rollup.by_key)
    if not columns or not any(kind is Kind.EQUALITY_DELETES for _, kind in rollup.buckets):
        return set()
    table = arrow_of(_key_spans(snapshot, judged, columns))
    partitions = snapshot.partitions.read(table)
    numbers = {partition: number for number, partition in enumerate(dict.fromkeys(partitions))}
    data, deletes = Keyed.of(columns), dict[tuple[int, ...], Keyed]()
    places = dict[int, int]()
    for partition, row in zip(partitions, table.to_pylist(), strict=True):
        number, key = numbers[partition], tuple(row["ids"] or ())
        places[number] = row["place"]
        keyed = data
        if row["kind"] != kind_code(Kind.DATA):
            keyed = deletes.setdefault(key, Keyed.of(c for c in key if c in columns))
        into = keyed.row(number, row["sequence"])
        keyed.files[into], keyed.records[into] = row["files"], row["records"]
        for column, spans in keyed.columns.items():
            ends = (_bound(columns[column].type, row[f"{end}{column}"]) for end in ("low", "high"))
            spans.merge(
                into, *ends, *(row[f"{has}{column}"] for has in ("null", "value", "bounded"))
            )
    everywhere = {number for partition, number in numbers.items() if rollup.is_global(partition)}
    ruled_out, named = rule_out(data, deletes, everywhere, rollup.width == 1), list(numbers)
    for (number, end), counts in ruled_out.data.items():
        rollup.by_sequence[named[number], end][8:] = counts
    return {(places[number], end) for number, end in ruled_out.deletes}


def _key_spans(
    snapshot: Snapshot, judged: DataFrame, columns: Mapping[int, KeyColumn]
) -> DataFrame:
    """What data files, and equality deletes that are not older than all data, may hold in the
    columns of keys.
    """
    from pyspark.sql import functions as F

    equality, rollup = kind_code(Kind.EQUALITY_DELETES), snapshot.rollup
    applied = snapshot.with_place(judged.where(f"state = 0 AND kind = {equality}"))
    applied = applied.select("place", "sequence").distinct()
    stated, spans = [], []
    for i, (kind, required) in columns.items():
        nulls, values = (f"data_file.{name}_counts[{i}]" for name in ("null_value", "value"))
        maybe = "false" if required else f"coalesce({nulls}, 1) > 0"
        only = "false" if required else f"coalesce({nulls} > 0 AND {nulls} = {values}, false)"
        bounds = (_ordered(kind, f"data_file.{end}_bounds[{i}]") for end in ("lower", "upper"))
        low, high = (f"if({only}, NULL, {bound})" for bound in bounds)
        stated += [
            f"{low} AS low{i}",
            f"{high} AS high{i}",
            f"{maybe} AS null{i}",
            f"NOT {only} AS value{i}",
        ]
        spans += [
            f"min(low{i}) AS low{i}",
            f"max(high{i}) AS high{i}",
            f"max(null{i}) AS null{i}",
            f"max(value{i}) AS value{i}",
            f"min(NOT value{i} OR low{i} IS NOT NULL AND high{i} IS NOT NULL) AS bounded{i}",
        ]
    entries = snapshot.entries(
        f"{KIND} AS kind",
        "sequence_number AS sequence",
        "data_file.record_count AS records",
        "array_sort(data_file.equality_ids) AS ids",
        *stated,
    )
    rows = snapshot.with_place(entries)
    data, deletes = (
        rows.where(f"kind = {kind_code(Kind.DATA)}"),
        rows.where(f"kind = {equality}").join(applied, ["place", "sequence"], "left_semi"),
    )
    if not rollup.has_global_deletes:
        data = data.join(applied.select("place").distinct(), "place", "left_semi")
    end = F.expr(range_end_sql(rollup.width))
    keys = [*snapshot.scope, "place", "kind", "sequence", "ids"]
    ranged = data.unionByName(deletes).withColumn("sequence", end)
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
    snapshot: Snapshot, judged: DataFrame, new_keys: Iterable[tuple[int, int]]
) -> DataFrame:
    """The counts with these equality deletes among those that do not apply."""
    from pyspark.sql import functions as F

    ruled_out = snapshot.spark.createDataFrame(
        list(new_keys), "place LONG, last_sequence LONG"
    ).withColumn("is_new", F.lit(True))
    end = f"{range_end_sql(snapshot.rollup.width)} AS last_sequence"
    is_new = f"state = 0 AND kind = {kind_code(Kind.EQUALITY_DELETES)} AND is_new"
    state = F.expr(f"if({is_new}, {state_code(DeleteState.NEW_KEYS)}, state)")
    placed = snapshot.with_place(judged).selectExpr("*", end)
    return placed.join(ruled_out, ["place", "last_sequence"], "left").withColumn("state", state)


def add_integrity(snapshot: Snapshot, rows: DataFrame) -> None:
    """Add what contradicts itself in the files of ``rows``, which the rollup has counted."""
    rollup = snapshot.rollup
    rollup.integrity = of_manifests(rollup.manifests, _narrow(snapshot, rows))
    repeated = grouped(rows.select("file"), ["file"], "count(*) AS entries").where("entries > 1")
    if not repeated.isEmpty():
        _add_duplicates(snapshot, repeated.select("file"))
    if any(state is not DeleteState.DANGLING for _, _, state in rollup.unapplied):
        rollup.integrity = replace(rollup.integrity, misplaced=_misplaced(snapshot, rows))


def _narrow(snapshot: Snapshot, rows: DataFrame) -> Iterable[NarrowManifest]:
    """The manifests whose summary does not cover their entries: one row per manifest and spec, with
    the range of each partition field.

    A row's manifest is known by a 32-bit hash of the path that Spark reads; manifests with the same
    hash are not compared.
    """
    specs, columns = snapshot.rollup.specs, snapshot.partitions.columns
    if not any(
        m.get("partitions") and not specs[m["partition_spec_id"]].is_unpartitioned
        for m in snapshot.rollup.manifests
    ):
        return
    by_hash: dict[int, list[Record]] = {}
    for manifest in {m["manifest_path"]: m for m in snapshot.rollup.manifests}.values():
        by_hash.setdefault(zlib.crc32(manifest["manifest_path"].encode()), []).append(manifest)
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
        same = by_hash.get(row["manifest"], [])
        if len(same) != 1 or same[0]["partition_spec_id"] != row["spec_id"]:
            continue
        fields = specs[row["spec_id"]].fields
        ranges = []
        for i, field in zip(snapshot.partitions.indexes[row["spec_id"]], fields, strict=True):
            kind = field.result_type
            low, high = (comparable(kind, row[f"{end}_{columns[i]}"]) for end in ("low", "high"))
            has_null, has_nan = (bool(row[f"{of}_{columns[i]}"]) for of in ("null", "nan"))
            ranges.append(FieldRange(low, high, has_null, has_nan))
        yield from narrow_fields(same[0], fields, ranges)


def _add_duplicates(snapshot: Snapshot, repeated: DataFrame) -> None:
    """Add the counts of files that are listed more than once, and examples."""
    listed = _entries(snapshot).join(repeated, "file", "left_semi").persist()
    try:
        files = grouped(
            listed,
            ["kind", "path", "offset"],
            "count(*) AS entries",
            "max(records) AS records",
            "sort_array(collect_set(snapshot_id)) AS snapshots",
        ).where("entries > 1")
        is_data = f"kind = {kind_code(Kind.DATA)} AS is_data"
        counted = grouped(
            files.selectExpr(is_data, "(entries - 1) * records AS again"),
            ["is_data"],
            "count(*)",
            "sum(again)",
        )
        totals = {is_data: sums for is_data, *sums in counted.collect()}
        first = files.orderBy("path", "offset").limit(EXAMPLES).collect()
        partitions = snapshot.partitions.read(
            arrow_of(listed.select(*snapshot.scope).distinct().limit(MOST_PARTITIONS + 1))
        )
    finally:
        listed.unpersist()
    of_data, of_deletes = totals.get(True, (0, 0)), totals.get(False, (0, 0))
    snapshot.rollup.add_duplicates(
        FileCounts(of_data[0], of_deletes[0]),
        of_data[1],
        partitions,
        (
            DuplicateFile(row["path"], KINDS[row["kind"]], row["entries"], tuple(row["snapshots"]))
            for row in first
        ),
    )


def _entries(snapshot: Snapshot) -> DataFrame:
    """The live entries with the path of the file, its partition, and the snapshot that added
    them.
    """
    return snapshot.with_place(
        snapshot.entries(
            f"{ENTRY} AS file",
            f"{KIND} AS kind",
            "data_file.file_path AS path",
            "data_file.content_offset AS offset",
            "data_file.record_count AS records",
            "snapshot_id",
        )
    )


def _misplaced(snapshot: Snapshot, rows: DataFrame) -> tuple[MisplacedDelete, ...]:
    """A few misfiled and unmatched deletes, each with the data file that it names, or the one in
    its place.
    """
    from pyspark.sql import functions as F

    judged = named_deletes(snapshot, rows)
    if judged is None:
        return ()
    wrong = judged.where(f"state > {state_code(DeleteState.DANGLING)}")
    deletes = (
        _entries(snapshot)
        .join(wrong.select("file", "state").distinct(), "file")
        .join(named_paths(snapshot), "file")
        .orderBy("path", "named")
        .limit(EXAMPLES)
    )
    listed = list(
        snapshot.partitions.rows(deletes, "path", "named", "state", "snapshot_id", "place")
    )
    names = sorted({named for _, _, named, *_ in listed})
    is_beside = F.expr(last_part("path")).isin(sorted(map(file_name, names))) & F.col("place").isin(
        [partition_hash for *_, partition_hash in listed]
    )
    files = _entries(snapshot).where(f"kind = {kind_code(Kind.DATA)}")
    data = files.where(F.col("path").isin(names) | is_beside)
    return misplaced_deletes(
        (
            (path, named, STATES[state - 1], partition, snapshot_id)
            for partition, path, named, state, snapshot_id, _ in listed
        ),
        {path: partition for partition, path in snapshot.partitions.rows(data, "path")},
    )
