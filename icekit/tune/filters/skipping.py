"""Tell from bounds which files a filter can skip, as Iceberg does (``InclusiveMetricsEvaluator``); pure.

For layouts that are not there yet: a sample's rows sorted another way, bounds truncated to another length.
For files that are there, :func:`icekit.tune.statement.planned` asks Iceberg itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icekit.tune.filters.model import All, Either, Leaf, Node


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one column in some files or groups of rows: an element a file.

    ``lower`` and ``upper`` are arrays (numbers, or objects that compare); ``has_values`` tells which have a
    row that is not null, ``has_nulls`` which have one that is. Where ``is_known`` is false nothing is skipped.
    """

    lower: Any
    upper: Any
    has_values: Any
    has_nulls: Any
    is_known: Any


def may_match(node: Node, bounds: Mapping[str, Bounds], files: int) -> Any:
    """Which of the files may hold rows that a filter asks for: an array of ``files`` booleans."""
    if isinstance(node, All):
        return np.logical_and.reduce([may_match(part, bounds, files) for part in node.parts])
    if isinstance(node, Either):
        return np.logical_or.reduce([may_match(part, bounds, files) for part in node.parts])
    if not isinstance(node, Leaf) or node.column not in bounds:
        return np.ones(files, dtype=bool)
    column = bounds[node.column]
    if node.op == "is null":
        return column.has_nulls
    if node.op == "not null":
        return column.has_values
    if not node.values:
        return np.ones(files, dtype=bool)
    return column.has_values & (~column.is_known | _within(node, column))


def _within(node: Leaf, column: Bounds) -> Any:
    found = np.zeros(len(column.lower), dtype=bool)
    # Bounds that are not known may be None, which does not compare.
    known = column.is_known & column.has_values
    lower, upper = column.lower[known], column.upper[known]
    values = [_comparable(v, lower) for v in node.values]
    value = values[0]
    if node.op in {"=", "in"}:
        hit = np.zeros(len(lower), dtype=bool)
        for one in values:
            hit |= ((lower <= one) & (upper >= one)).astype(bool)
    elif node.op in {"<", "<="}:
        hit = lower < value if node.op == "<" else lower <= value
    elif node.op in {">", ">="}:
        hit = upper > value if node.op == ">" else upper >= value
    else:  # prefix: the bounds are compared as far as the prefix, and no further than they are long
        hit = np.array([low[: len(value)] <= value <= up[: len(value)] for low, up in zip(lower, upper, strict=True)], dtype=bool)
    found[known] = np.asarray(hit, dtype=bool)
    return found


def _comparable(value: Any, lower: Any) -> Any:
    # Facts keep decimals as text, samples as numbers.
    return float(value) if isinstance(value, str) and len(lower) and isinstance(lower[0], float) else value


def bounds_of(groups: Sequence[Sequence[Any]]) -> Bounds:
    """The bounds of a column in groups of its values, None among them."""
    present = [[v for v in group if v is not None] for group in groups]
    has_values = np.array([bool(p) for p in present], dtype=bool)

    def array(values: list[Any]) -> Any:
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found

    return Bounds(
        array([min(p) if p else None for p in present]),
        array([max(p) if p else None for p in present]),
        has_values,
        np.array([len(p) < len(g) for p, g in zip(present, groups, strict=True)], dtype=bool),
        has_values.copy(),
    )


def truncated(bounds: Bounds, length: int) -> Bounds:
    """The bounds of a text as ``truncate(length)`` keeps them: the lower cut off, the upper the next text after its cut.

    Source: ``UnicodeUtil.truncateStringMin`` and ``truncateStringMax``; an upper bound that has no next text is kept unknown.
    """
    lower, upper, known = bounds.lower.copy(), bounds.upper.copy(), bounds.is_known.copy()
    for place in np.flatnonzero(known):
        lower[place] = lower[place][:length]
        cut = _next(upper[place], length)
        known[place] = cut is not None
        upper[place] = cut
    return Bounds(lower, upper, bounds.has_values, bounds.has_nulls, known)


def _next(text: str, length: int) -> str | None:
    if len(text) <= length:
        return text
    cut = text[:length]
    for place in range(length - 1, -1, -1):
        code = ord(cut[place]) + 1
        # Surrogates are no characters.
        code = 0xE000 if code == 0xD800 else code
        if code <= 0x10FFFF:
            return cut[:place] + chr(code)
    return None
