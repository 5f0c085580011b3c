"""Check bloom filters: which columns would benefit, and which existing ones are unused; pure.

A bloom filter answers equality only (``ParquetBloomRowGroupFilter``: = and IN), and only row groups that bounds and dictionaries
leave are asked: where a column's values fit into a dictionary, Parquet writes one and Iceberg looks there
(``ParquetDictionaryRowGroupFilter``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from icekit.facts.metadata import ROW_GROUP
from icekit.facts.model import TableFacts
from icekit.sql import set_properties, unset_properties
from icekit.tune.answer import Advice, to_set
from icekit.tune.filters import EQUALITY, Filter, leaves
from icekit.tune.layout.model import BloomCheck, BloomTrial
from icekit.tune.layout.rows import SampleColumn
from icekit.units import count, percent, size

ENABLED, FPP, NDV = (f"write.parquet.bloom-filter-{what}.column." for what in ("enabled", "fpp", "ndv"))
MAX_BYTES, DICTIONARY = "write.parquet.bloom-filter-max-bytes", "write.parquet.dict-size-bytes"
#: What Iceberg takes where nothing is set (TableProperties).
_FPP, _MAX_BYTES, _DICTIONARY = 0.01, 1 << 20, 2 << 20
#: A lookup that reads this share of the bytes by bounds, or less, needs no bloom filter: a stated choice.
SKIPPED_BY_BOUNDS = 0.1
#: A bloom filter must save this share of the rows that lookups read, beyond the share by which files grow: a stated choice.
SAVES = 0.2
_TYPES = ("int", "long", "float", "double", "string", "date", "timestamp", "uuid", "binary", "fixed", "decimal", "time")


def check(
    facts: TableFacts, filters: Iterable[Filter], columns: Mapping[str, SampleColumn], by_bounds: Mapping[str, float]
) -> tuple[BloomCheck, ...]:
    """Judge each column that filters ask by equality, and each that has a bloom filter.

    ``columns`` are of the sample, ``by_bounds`` the share of bytes that lookups on a column read with the layout that is advised.
    """
    filters = tuple(filters)
    asked = {leaf.column for f in filters for leaf in leaves(f.tree) if leaf.kind == EQUALITY}
    there = enabled(facts.properties)
    found = []
    for name in [*there, *sorted(asked - set(there))]:
        column = columns.get(name)
        if column is None and name not in there:
            continue  # not sampled: inside a list or a map, or beyond the columns most asked for
        distinct = column.distinct_in_table(facts.data.record_count) if column is not None else 0.0
        a_group = min(distinct, _rows_a_group(facts))
        width = _width(column)
        unknown = _unknown(name, name in asked, column, bool(filters), facts)
        check = BloomCheck(name, name in there, distinct, a_group * width, unknown, unknown is None)
        if unknown is None:
            check = replace(check, reason=_against(check, column, by_bounds.get(name), facts, is_asked=name in asked))
        found.append(check)
    return tuple(found)


def by_column(shares: Mapping[Filter, float]) -> dict[str, float]:
    """The largest share that a filter reads which asks for a column by equality, by column."""
    found: dict[str, float] = {}
    for one, share in shares.items():
        for leaf in leaves(one.tree):
            if leaf.kind == EQUALITY:
                found[leaf.column] = max(found.get(leaf.column, 0.0), share)
    return found


def enabled(properties: Mapping[str, str]) -> list[str]:
    """Columns that have a bloom filter switched on."""
    return sorted(k.removeprefix(ENABLED) for k, v in properties.items() if k.startswith(ENABLED) and v.lower() == "true")


def wasted(facts: TableFacts, checks: Iterable[BloomCheck]) -> list[str]:
    """The properties of bloom filters that are set and serve no filter."""
    columns = [c.column for c in checks if c.is_there and c.is_judged and c.reason is not None]
    return [k for k in facts.properties if k in {f"{prefix}{c}" for c in columns for prefix in (ENABLED, FPP, NDV)}]


def needed_bytes(distinct: float, fpp: float = _FPP) -> int:
    """Bytes of a bloom filter for so many distinct values: a power of two, as Parquet's split blocks are.

    Source: ``BlockSplitBloomFilter.optimalNumOfBits``: -8 n / ln(1 - fpp^(1/8)) bits.
    """
    bits = -8 * max(distinct, 1.0) / math.log(1 - fpp ** (1 / 8))
    return int(max(32, 1 << math.ceil(math.log2(bits / 8))))


def settings(facts: TableFacts, one: BloomCheck) -> dict[str, str]:
    """The properties that give a column a bloom filter of a fitting size.

    Without the number of distinct values each row group gets one of ``write.parquet.bloom-filter-max-bytes``, however few there are.
    """
    a_group = max(1, round(min(one.distinct, _rows_a_group(facts))))
    wanted = needed_bytes(a_group)
    found = {f"{NDV}{one.column}": str(a_group)}
    if wanted > int(facts.properties.get(MAX_BYTES, _MAX_BYTES)):
        found[MAX_BYTES] = str(wanted)
    return {**found, f"{ENABLED}{one.column}": "true"}


def advise(facts: TableFacts, checks: Sequence[BloomCheck], trials: Mapping[str, BloomTrial]) -> tuple[Advice, ...]:
    """One advice a column: switch on what the trial shows to save, off what serves no filter, leave the rest."""
    return tuple(_advice(facts, one, trials.get(one.column)) for one in checks)


def _advice(facts: TableFacts, one: BloomCheck, tried: BloomTrial | None) -> Advice:
    setting, now = f"{ENABLED}{one.column}", "true" if one.is_there else None
    if one.is_there and one.is_judged and one.reason is not None:
        names = wasted(facts, [one])
        back = {k: facts.properties[k] for k in names}
        undo = set_properties(facts.sql_name, back)
        evidence = f"It costs {_size(facts, one)} per row group to write and has no use: {one.reason}."
        return Advice(setting, now, "not set", evidence, unset_properties(facts.sql_name, names), undo=undo)
    if one.reason is not None:
        return Advice(setting, now, now, f"{one.reason[:1].upper()}{one.reason[1:]}.")
    what = f"at least {one.distinct:,.0f} distinct values, {size(one.distinct_bytes)} per row group: too many for a dictionary."
    if one.is_there:
        return Advice(setting, now, now, f"It is set and used by filters: {what}")
    if tried is None:
        return Advice(setting, now, now, f"A bloom filter may help: {what} It was not tried, so there is no advice.")
    saved = 1 - tried.rows_with / tried.rows_without if tried.rows_without else 0.0
    grown = tried.bytes_with / tried.bytes_without - 1
    verified = (
        f"{count(tried.lookups, 'lookup')} read {tried.rows_without:,} rows without and {tried.rows_with:,} with it, "
        f"{percent(max(saved, 0.0))} fewer; data files grew by {percent(max(grown, 0.0))}."
    )
    if saved - grown < SAVES:
        return Advice(setting, now, now, f"A bloom filter saves too little: {what}", verified=verified)
    return replace(to_set(facts, settings(facts, one), current=now, evidence=what, verified=verified), setting=setting)


def _unknown(name: str, is_asked: bool, column: SampleColumn | None, has_filters: bool, facts: TableFacts) -> str | None:
    """Why nothing can be said of a bloom filter; None where something can. What is not known is no reason to take it off."""
    if not has_filters:
        return f"the use of a bloom filter on {name} is not known, because no filters are known"
    there = facts.by_name.get(name)
    if is_asked and (column is None or not len(column.distinct)) and there is not None and there.type.startswith(_TYPES):
        return f"the use of a bloom filter on {name} is not known, because no value of {name} was sampled"
    return None


def _against(check: BloomCheck, column: SampleColumn | None, by_bounds: float | None, facts: TableFacts, *, is_asked: bool) -> str | None:
    """Why a bloom filter would not serve a column; None where it would."""
    name, distinct, distinct_bytes = check.column, check.distinct, check.distinct_bytes
    if not is_asked:
        return f"no filter uses = or IN on {name}"
    if column is None or not column.kind.startswith(_TYPES):
        return f"the type of {name} has no bloom filter"
    if by_bounds is not None and by_bounds <= SKIPPED_BY_BOUNDS:
        return f"with the advised layout, bounds alone reduce a lookup on {name} to {percent(by_bounds)} of the bytes"
    limit = int(facts.properties.get(DICTIONARY, _DICTIONARY))
    if distinct_bytes <= limit:
        return (
            f"about {distinct:,.0f} distinct values of {name} ({size(distinct_bytes)} per row group) fit into a dictionary "
            f"({DICTIONARY} {size(limit)}), which rules out row groups as well"
        )
    return None


def _size(facts: TableFacts, one: BloomCheck) -> str:
    limit = int(facts.properties.get(MAX_BYTES, _MAX_BYTES))
    stated = facts.properties.get(f"{NDV}{one.column}")
    return size(min(limit, needed_bytes(float(stated))) if stated else limit)


def _rows_a_group(facts: TableFacts) -> float:
    row_bytes = facts.data.size_in_bytes / max(facts.data.record_count, 1)
    return min(facts.int_setting(ROW_GROUP), facts.target_bytes) / max(row_bytes, 1e-9)


def _width(column: SampleColumn | None) -> float:
    """Bytes of a value in a dictionary: a text has its length and four more."""
    if column is None or not len(column.distinct):
        return 8.0
    if column.kind in {"string", "uuid"}:
        return 4 + sum(len(v) for v in column.distinct[:1000]) / min(len(column.distinct), 1000)
    return 4.0 if column.kind in {"int", "float", "date"} else 8.0
