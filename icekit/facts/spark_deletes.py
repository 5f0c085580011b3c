"""Find which deletes apply in Spark, and whether manifests contradict themselves."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import arrow_of
from icekit.facts.files import Kind
from icekit.facts.integrity import (
    DeleteState,
    NarrowManifest,
)
from icekit.facts.key_bounds import KeyColumn, Keyed, compared, decode
from icekit.facts.local_deletes import NEVER, PATH_FIELD_ID
from icekit.facts.manifests import (
    FieldRange,
    Record,
    comparable,
    narrow_fields,
    of_manifests,
)
from icekit.facts.spark_entries import (
    KIND,
    REDUCERS,
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
    """The delete files that name a single data file, directly or by equal bounds
    (ContentFileUtil.referencedDataFile), and whether they apply to it: as ``named_state``; None
    without any.

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
        return None
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
    return grouped(judged, ["file"], f"min({state}) AS named_state")


def rule_out_by_keys(snapshot: Snapshot, judged: DataFrame) -> None:
    """Compare the key bounds of equality deletes with those of data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence
    number.
    """
    rollup = snapshot.rollup
    columns = compared(rollup.columns, rollup.by_key)
    if not columns or not any(kind is Kind.EQUALITY_DELETES for _, kind, _ in rollup.counted):
        return
    table = arrow_of(_key_spans(snapshot, judged, columns))
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
            ends = (_bound(columns[column].type, row[f"{end}{column}"]) for end in ("low", "high"))
            spans.merge(
                into, *ends, *(row[f"{has}{column}"] for has in ("null", "value", "bounded"))
            )
    rollup.rule_out(numbers, data, deletes)


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
    keys = [*snapshot.scope, "kind", "sequence", "ids"]
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
            low, high, *has = (row[f"{of}_p{i}"] for of in ("low", "high", "null", "nan"))
            ends = (comparable(field.result_type, end) for end in (low, high))
            ranges.append(FieldRange(*ends, *map(bool, has)))
        yield from narrow_fields(same[0], fields, ranges)
