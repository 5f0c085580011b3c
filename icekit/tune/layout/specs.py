"""Candidate partition specs for the filters there are, scored on a sample by what filters would read and by partition size; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from icekit.tune.filters.model import EQUALITY, PREFIX, RANGE, Filter, leaves
from icekit.tune.layout.model import Candidate, Order
from icekit.tune.layout.orders import Check, choose, pays
from icekit.tune.layout.rows import Rows
from icekit.tune.layout.transforms import Field

_TIMES = ("year", "month", "day", "hour")
#: A column of so few values may be a partition field as it is.
LOW_CARDINALITY = 200
#: Candidates that are scored, and columns they are made of.
MOST, MOST_COLUMNS = 48, 4
#: Buckets are as many as make one file each, within these.
FEWEST_BUCKETS, MOST_BUCKETS = 4, 1024
#: A partition should have this share of the target size at least, or no file of it is ever of a good size: a stated choice.
WELL_FILLED = 0.5
#: Below this share of the target size partitions are tiny; fewer than so many of them are no burden: stated choices.
TINY, MANY = 0.25, 16
#: Specs that get an order of their own, beside the one that is best for the table as it is.
WITH_OWN_ORDER = 3


def candidates(rows: Rows, current: Sequence[Field], filters: Sequence[Filter], columns: Sequence[str]) -> list[tuple[Field, ...]]:
    """Specs to compare: the current one first, none at all, its parts, coarser and finer ones, and fields for what filters ask.

    None but the current one where a field of it cannot be worked out from the sample: what it rules out is not known then.
    """
    known = tuple(current)
    if not rows.knows(known):
        return [known]
    found: dict[tuple[Field, ...], None] = {known: None, (): None}
    for size in range(1, len(known)):
        found.update(dict.fromkeys(itertools.combinations(known, size)))
    for place, field in enumerate(known):
        for other in _neighbours(field, rows):
            found[(*known[:place], other, *known[place + 1 :])] = None
    single = [f for column in columns[:MOST_COLUMNS] if column in rows.columns for f in _fields(rows, column, filters)]
    found.update({(field,): None for field in single})
    for field in single:
        if all(field.column != f.column for f in known) and known:
            found[(*known, field)] = None
    for a, b in itertools.combinations(single, 2):
        if a.column != b.column:
            # Times first, as people read paths.
            found[(a, b) if a.name in _TIMES or b.name not in _TIMES else (b, a)] = None
    return list(found)[:MOST]


def score(
    rows: Rows, specs: Sequence[tuple[Field, ...]], filters: Sequence[Filter], order: Order | None, check: Check = bool
) -> list[Candidate]:
    """What the filters would read of each spec with an order within its partitions, in the order given; ``check`` comes before each."""
    found = []
    for spec in specs:
        check()
        spread = rows.spread(spec)
        fits = not spec or spread.mean_bytes >= WELL_FILLED * rows.target_bytes
        found.append(Candidate(spec, rows.read(spec, order, filters).share, spread, fits, order))
    return found


def with_own_orders(
    rows: Rows,
    scored: Sequence[Candidate],
    filters: Sequence[Filter],
    columns: Sequence[str],
    *,
    most: int,
    files: int,
    check: Check = bool,
) -> list[Candidate]:
    """The same, with the best order of its own for each of the few best specs that fit, where that pays; never for the first."""
    best_few = sorted((c for c in scored[1:] if c.fits), key=lambda c: (c.share, len(c.spec)))[:WITH_OWN_ORDER]
    found = []
    for one in scored:
        own = choose(rows, one.spec, filters, columns, None, most=most, files=files, check=check).best if one in best_few else None
        is_better = own is not None and pays(one.share, own.share, files)
        found.append(replace(one, share=own.share, order=own.order) if own is not None and is_better else one)
    return found


def best(scored: Sequence[Candidate]) -> Candidate | None:
    """The spec of well-filled partitions that is read least of; of near equals the one with fewer fields and partitions."""
    fitting = [c for c in scored if c.fits]
    if not fitting:
        return None
    least = min(c.share for c in fitting)
    return min((c for c in fitting if c.share <= least * 1.05 + 1e-9), key=lambda c: (len(c.spec), c.spread.partitions, c.share))


def is_tiny(candidate: Candidate, target_bytes: int) -> bool:
    """Tell whether a spec has many partitions that are too small for a file of a good size."""
    return candidate.spread.partitions >= MANY and candidate.spread.mean_bytes < TINY * target_bytes


def _neighbours(field: Field, rows: Rows) -> list[Field]:
    kind = rows.columns[field.column].kind
    if field.name in _TIMES:
        return [Field(field.column, t) for t in _units(kind) if t != field.transform]
    if field.name == "bucket":
        width = int(field.transform[7:-1])
        return [Field(field.column, f"bucket[{n}]") for n in {max(2, width // 4), width * 4} if n != width]
    return []


def _units(kind: str) -> tuple[str, ...]:
    return _TIMES[:3] if kind == "date" else _TIMES


def _fields(rows: Rows, column: str, filters: Sequence[Filter]) -> list[Field]:
    """Fields that serve what filters ask of a column."""
    of, asked = rows.columns[column], [leaf for f in filters for leaf in leaves(f.tree) if leaf.column == column]
    kinds = {leaf.kind for leaf in asked}
    if of.kind in {"date", "timestamp", "timestamptz"}:
        return [Field(column, unit) for unit in _units(of.kind)]
    found = []
    distinct = of.distinct_in_table(rows.table_rows)
    if distinct <= LOW_CARDINALITY and of.kind in {"string", "int", "long", "boolean", "uuid"}:
        found.append(Field(column, "identity"))
    elif EQUALITY in kinds and of.kind in {"string", "int", "long", "uuid", "binary"}:
        found.append(Field(column, f"bucket[{_buckets(rows)}]"))
    if PREFIX in kinds and of.kind == "string":
        # A prefix that drew no value, as from a column of nulls, has no length.
        shortest = min((len(str(leaf.values[0])) for leaf in asked if leaf.kind == PREFIX and leaf.values), default=0)
        found += [Field(column, f"truncate[{shortest}]")] if shortest else []
    if RANGE in kinds and of.kind in {"int", "long"} and distinct > LOW_CARDINALITY:
        found.append(Field(column, f"truncate[{_width(rows, column)}]"))
    return found


def _buckets(rows: Rows) -> int:
    """A power of two that makes partitions of one to two target sizes."""
    wanted = max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    return int(min(max(2 ** int(wanted).bit_length() // 2, FEWEST_BUCKETS), MOST_BUCKETS))


def _width(rows: Rows, column: str) -> int:
    """A power of ten that makes partitions of a target size or more, were the values spread evenly."""
    distinct = rows.columns[column].distinct
    span = int(distinct[-1]) - int(distinct[0]) + 1
    wanted = span / max(1.0, rows.table_bytes / max(rows.target_bytes, 1))
    width = 1
    while width < wanted:
        width *= 10
    return width
