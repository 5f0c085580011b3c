"""Rule out equality deletes by the bounds of their keys, in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.compat import arrow_of
from icekit.engine.metadata_tables import CONTENT
from icekit.facts.files import Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.key_bounds import KeyColumn, Keyed, Spans, compared, decode, rule_out
from icekit.facts.rollup import Rollup
from icekit.facts.spark_entries import KIND, Snapshot, grouped, kind_code, place_hash, range_end_sql, state_code
from icekit.facts.spark_partitions import Partitions, partition_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rule_out_by_keys(snapshot: Snapshot, judged: DataFrame, rollup: Rollup, width: int) -> set[tuple[int, int]]:
    """The (place, sequence number) of equality deletes that apply to no data by key bounds; adds what they rule out of other data.

    The driver receives a row per partition with equality deletes, kind, key and (range of) sequence number.
    """
    columns = compared(snapshot.columns, rollup.by_key)
    applied = {partition for partition, kind in rollup.buckets if kind is Kind.EQUALITY_DELETES}
    if not columns or not applied:
        return set()
    table = arrow_of(
        _key_spans(snapshot, judged, columns, width, is_global=any(snapshot.specs[p.spec_id].is_unpartitioned for p in applied))
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
            held = deletes.setdefault(key, Keyed({column: Spans() for column in key if column in columns}))
        into = held.row(number, row["sequence"])
        held.files[into], held.records[into] = row["files"], row["records"]
        for column, spans in held.columns.items():
            place = order[column]
            low, high = (_bound(columns[column].type, row[f"{end}{place}"]) for end in ("low", "high"))
            spans.merge(into, low, high, row[f"null{place}"], row[f"value{place}"], row[f"bounded{place}"])
    everywhere = {number for partition, number in numbers.items() if snapshot.specs[partition.spec_id].is_unpartitioned}
    found, named = rule_out(data, deletes, everywhere, width == 1), list(numbers)
    for (number, end), counts in found.data.items():
        rollup.add_ruled_out(named[number], end, *counts)
    return {(places[number], end) for number, end in found.deletes}


def _key_spans(snapshot: Snapshot, judged: DataFrame, columns: Mapping[int, KeyColumn], width: int, *, is_global: bool) -> DataFrame:
    """What data files, and equality deletes that are not older than all data, may hold in the columns of keys."""
    from pyspark.sql import functions as F

    equality, place = kind_code(Kind.EQUALITY_DELETES), f"{place_hash(snapshot.scope)} AS place"
    applied = judged.where(f"state = 0 AND kind = {equality}").selectExpr(place, "sequence").distinct()
    entries = snapshot.files("entries").where(f"status < 2 AND {CONTENT} <> 1")
    stated, spans = [], []
    for i, (column, (kind, required)) in enumerate(columns.items()):
        nulls, values = (f"data_file.{name}_counts[{column}]" for name in ("null_value", "value"))
        maybe = "false" if required else f"coalesce({nulls}, 1) > 0"
        only = "false" if required else f"coalesce({nulls} > 0 AND {nulls} = {values}, false)"
        low, high = (f"if({only}, NULL, {_ordered(kind, f'data_file.{end}_bounds[{column}]')})" for end in ("lower", "upper"))
        stated += [f"{low} AS low{i}", f"{high} AS high{i}", f"{maybe} AS null{i}", f"NOT {only} AS value{i}"]
        spans += [f"{how}({name}{i}) AS {name}{i}" for name, how in (("low", "min"), ("high", "max"), ("null", "max"), ("value", "max"))]
        spans.append(f"min(NOT value{i} OR low{i} IS NOT NULL AND high{i} IS NOT NULL) AS bounded{i}")
    rows = entries.selectExpr(
        "data_file.spec_id AS spec_id",
        *partition_columns(entries, "data_file.partition", snapshot.names),
        f"{KIND} AS kind",
        "sequence_number AS sequence",
        "data_file.record_count AS records",
        "array_sort(data_file.equality_ids) AS ids",
        *stated,
    ).selectExpr("*", place)
    data, deletes = rows.where(f"kind <> {equality}"), rows.where(f"kind = {equality}").join(applied, ["place", "sequence"], "left_semi")
    if not is_global:
        data = data.join(applied.select("place").distinct(), "place", "left_semi")
    ranged = data.unionByName(deletes).withColumn("sequence", F.expr(range_end_sql(width)))
    keys = [*snapshot.scope, "place", "kind", "sequence", "ids"]
    return grouped(ranged, keys, "count(*) AS files", "sum(records) AS records", *spans)


# Two's complement of 128 bits, with the other sign, so that texts of hexadecimal digits have the order of the numbers.
_SIGN = 1 << 127


def _ordered(type_name: str, raw: str) -> str:
    """SQL for a bound in a form that has the order of :func:`icekit.facts.key_bounds.decode`; :func:`_bound` reads it."""
    if decode(type_name) is bytes:
        return raw
    digits = f"hex({raw})"
    if not type_name.startswith("decimal"):
        digits = f"concat_ws('', transform(sequence(length({raw}), 1, -1), i -> substring({digits}, 2 * i - 1, 2)))"
    padded = f"lpad({digits}, 32, if(substring({digits}, 1, 1) >= '8', 'F', '0'))"
    flipped = f"translate(substring({padded}, 1, 1), '0123456789ABCDEF', '89ABCDEF01234567') || substring({padded}, 2)"
    return f"if(length({raw}) > 0, {flipped}, NULL)"


def _bound(type_name: str, value: Any) -> Any:
    return value if value is None or decode(type_name) is bytes else int(value, 16) - _SIGN


def with_new_keys(snapshot: Snapshot, judged: DataFrame, new_keys: Iterable[tuple[int, int]], width: int) -> DataFrame:
    """The counts with these equality deletes among those that do not apply."""
    from pyspark.sql import functions as F

    ruled_out = snapshot.spark.createDataFrame(list(new_keys), "place LONG, last_sequence LONG").withColumn("is_new", F.lit(True))
    placed = judged.selectExpr("*", f"{place_hash(snapshot.scope)} AS place", f"{range_end_sql(width)} AS last_sequence")
    is_new = f"state = 0 AND kind = {kind_code(Kind.EQUALITY_DELETES)} AND is_new"
    state = F.expr(f"if({is_new}, {state_code(DeleteState.NEW_KEYS)}, state)")
    return placed.join(ruled_out, ["place", "last_sequence"], "left").withColumn("state", state)
