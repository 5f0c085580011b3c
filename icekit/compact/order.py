"""Choose the row order of a rewrite, and refuse one that Iceberg cannot make."""

from __future__ import annotations

from collections.abc import Sequence

from icekit.compact.model import RewriteOrder
from icekit.compact.policy import Policy
from icekit.errors import ParameterError, require_known
from icekit.facts.model import TableFacts


def sort_by(facts: TableFacts, policy: Policy) -> RewriteOrder:
    """The row order that a policy asks for: its columns, else the table's sort order, else its
    filter columns.

    Raises :class:`~icekit.errors.ParameterError` for an unknown column, or if none is known.
    """
    known = {column.name: column for column in facts.columns}
    for name in policy.columns:
        require_known(name, known, "column")
    if policy.strategy == "binpack":
        return RewriteOrder()
    wanted = policy.columns
    if not wanted and policy.strategy == "sort" and facts.sort_order:
        return RewriteOrder("sort")
    if not wanted:
        wanted = tuple(f.source for f in facts.sort_order) or facts.filter_columns
    if not wanted:
        raise ParameterError(
            f"{facts.name} has no sort order and declares no filter columns. Name the columns to "
            f"{policy.strategy} by (columns: a,b), or set the table property "
            "icekit.filter-columns."
        )
    for name in wanted:
        path = known[name].names
        if policy.strategy != "sort" and (len(path) > 1 or "." in path[0] or "`" in path[0]):
            raise ParameterError(
                f"Spark cannot {policy.strategy} by {name!r}: a curve cannot use a column inside "
                "a struct, or with a dot or a backtick in its name. Use the strategy sort."
            )
    if policy.strategy != "sort" and (refused := _refused_by_curve(facts, policy.strategy, wanted)):
        raise ParameterError(
            f"Iceberg cannot {policy.strategy} {facts.name}: {refused}. Use the strategy sort."
        )
    return RewriteOrder(policy.strategy, tuple(known[name].names for name in wanted))


# The column that a curve's action adds while it sorts (Z_COLUMN and H_COLUMN of Iceberg's
# SparkZOrderFileRewriteRunner and SparkHilbertFileRewriteRunner).
_CURVE_COLUMNS = {"zorder": "ICEZVALUE", "hilbert": "ICEHVALUE"}
# Types that SparkZOrderUDF has no bytes for.
_NOT_ZORDERED = ("decimal", "time(", "variant", "geometry", "geography", "unknown")


def _refused_by_curve(facts: TableFacts, strategy: str, columns: Sequence[str]) -> str | None:
    """Why Iceberg's own action would refuse a curve through these columns, after the run has begun;
    None if it would not.
    """
    reserved = _CURVE_COLUMNS[strategy]
    if any(column.names[0].upper() == reserved for column in facts.columns):
        return f"the table has a column named {reserved}, which the action needs for its own values"
    constant = {
        field.source for field in facts.default_spec.fields if field.transform == "identity"
    }
    if constant.issuperset(columns):
        return "all columns are identity partition columns, which have one value in each partition"
    types = {name: facts.by_name[name].type for name in columns}
    unusable = [
        f"{name} ({kind})"
        for name, kind in types.items()
        if kind == "time" or kind.startswith(_NOT_ZORDERED)
    ]
    return (
        f"it has no bytes for the type of {', '.join(unusable)}"
        if strategy == "zorder" and unusable
        else None
    )
