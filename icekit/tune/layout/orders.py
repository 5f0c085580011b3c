"""Choose columns to order by: what filters would read of a sample, sorted, z-ordered or along a Hilbert curve; pure.

Columns are added one at a time, each time the one that helps most (greedy forward selection), until one more no longer pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from icekit.tune.filters.model import Filter
from icekit.tune.layout.curves import takes
from icekit.tune.layout.model import HILBERT, SORT, ZORDER, Order, Orders, Step
from icekit.tune.layout.rows import Rows
from icekit.tune.layout.transforms import Field

Check = Callable[[], object]
#: Another column must save this share of what is read without it, and a curve that of what a sort reads: stated choices.
PAYS, CURVE_PAYS = 0.1, 0.2
#: Columns that are looked at, those most asked for.
MOST_COLUMNS = 8


def choose(
    rows: Rows,
    spec: Sequence[Field],
    filters: Sequence[Filter],
    columns: Sequence[str],
    own: Order | None,
    *,
    most: int,
    files: int,
    check: Check = bool,
) -> Orders:
    """Compare orders of rows within a spec's partitions; ``columns`` are asked for by filters, ``own`` is the table's order.

    An order by up to ``most`` columns. ``files`` are the table's: less than half a file of all bytes is no difference. ``check``
    is called before each order, and may raise where time is up.
    """
    came = rows.read(spec, None, filters)
    owned = rows.read(spec, own, filters).share if own is not None else None
    # Within a partition an identity column has one value.
    fixed = {f.column for f in spec if f.transform == "identity"}
    open_ = [c for c in columns if c not in fixed and c in rows.columns and len(rows.columns[c].distinct) > 1][:MOST_COLUMNS]
    steps: list[Step] = []
    while open_ and len(steps) < most:
        chosen = steps[-1].order.columns if steps else ()
        step = _best(rows, spec, filters, chosen, [c for c in open_ if c not in chosen], check)
        if step is None:
            break
        steps.append(step)
    best = steps[0] if steps else None
    for step in steps[1:]:
        if best is not None and pays(best.share, step.share, files):
            best = step
    return Orders(came.share, owned, tuple(steps), best, came.is_coarse)


def pays(before: float, after: float, files: int, margin: float = PAYS) -> bool:
    """Tell whether reading less is worth a change: by the margin, and by half a file a query at least."""
    return before - after >= max(margin * before, 0.5 / max(files, 1))


def _best(
    rows: Rows, spec: Sequence[Field], filters: Sequence[Filter], chosen: tuple[str, ...], more: Sequence[str], check: Check
) -> Step | None:
    tried: dict[Order, float] = {}
    for column in more:
        columns = (*chosen, column)
        orders = [Order(SORT, columns)]
        if len(columns) > 1:
            # The first columns of a sort weigh most; a column may serve better before those chosen.
            orders.append(Order(SORT, (column, *chosen)))
            # Iceberg's curves take top-level columns only (SparkZOrderFileRewriteRunner).
            if all(takes(rows.columns[c].kind) and c not in rows.nested for c in columns):
                orders += [Order(ZORDER, columns), Order(HILBERT, columns)]
        for order in orders:
            check()
            tried[order] = rows.read(spec, order, filters).share
    if not tried:
        return None
    sort = min((o for o in tried if o.kind == SORT), key=lambda o: tried[o])
    curve = min((o for o in tried if o.kind != SORT), key=lambda o: tried[o], default=None)
    # New files keep a sort order, and a curve only comes of a rewrite: it must be clearly better.
    best = curve if curve is not None and tried[curve] < tried[sort] * (1 - CURVE_PAYS) else sort
    by_kind: dict[str, Order] = {}
    for order in sorted(tried, key=lambda o: tried[o]):
        by_kind.setdefault(order.kind, order)
    return Step(best, tried[best], tuple((o, tried[o]) for o in by_kind.values()))
