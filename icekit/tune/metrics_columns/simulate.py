"""Files that filters would read with other bounds, or with rows in another order. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from icekit.tune.filters.model import Filter, leaves
from icekit.tune.filters.skipping import Bounds, bounds_of, may_match, truncated
from icekit.tune.metrics_columns.model import DEFAULT_LENGTH, FULL, LENGTHS, Skipping, truncate

#: Rows that a simulated file has at least.
_ROWS = 4


def skipping(
    column: str,
    filters: Sequence[Filter],
    *,
    is_text: bool,
    files: int,
    now: float | None,
    bounds: Bounds | None,
    values: Sequence[Any],
) -> Skipping:
    """What filters read by one column: ``filters`` are those that ask for it, with values where they are known.

    ``now`` are the files they read by the planner, ``bounds`` the real ones of some files (None: not known), ``values`` sampled
    rows. A mode never reads more than is read now, as it adds to what can be skipped by.
    """
    alone = [f.only(column) for f in filters]
    alone = [f for f in alone if f.is_bound]
    weight = sum(f.weight for f in filters)
    kinds = frozenset(leaf.kind for f in alone for leaf in leaves(f.tree) if leaf.op != "not null")
    by_mode: list[tuple[str, float]] = []
    if bounds is not None and len(bounds.lower) and alone:
        tried = [(truncate(n), truncated(bounds, n)) for n in LENGTHS] if is_text else [(truncate(DEFAULT_LENGTH), bounds)]
        for mode, kept in [*tried, (FULL, bounds)]:
            read = files * _share(alone, column, kept)
            by_mode.append((mode, read if now is None else min(read, now)))
    return Skipping(
        column,
        weight,
        kinds,
        files,
        now,
        tuple(by_mode),
        _sorted(alone, column, values, files) if alone else None,
        0 if bounds is None else len(bounds.lower),
    )


def _share(filters: Sequence[Filter], column: str, bounds: Bounds) -> float:
    """The share of files that filters read, by their weight."""
    total = sum(f.weight for f in filters)
    number = len(bounds.lower)
    return float(sum(f.weight * may_match(f.tree, {column: bounds}, number).mean() for f in filters) / total)


def _sorted(filters: Sequence[Filter], column: str, values: Sequence[Any], files: int) -> float | None:
    present = sorted(v for v in values if v is not None)
    groups = min(files, len(values) // _ROWS)
    if not present or groups < 1:
        return None
    rows = [*present, *([None] * (len(values) - len(present)))]
    cuts = [len(rows) * i // groups for i in range(groups + 1)]
    made = bounds_of([rows[low:high] for low, high in pairwise(cuts)])
    return files * _share(filters, column, made)
