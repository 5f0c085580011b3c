"""What queries ask of a table: conditions on columns, as far as Iceberg can skip files by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from icekit.facts.files import Scalar
from icekit.facts.parts import Column
from icekit.facts.where import among, literal_of
from icekit.sql import identifier

EQUALITY, RANGE, PREFIX, NULLS = "equality", "range", "prefix", "nulls"
_KINDS = {
    "=": EQUALITY,
    "in": EQUALITY,
    "<": RANGE,
    "<=": RANGE,
    ">": RANGE,
    ">=": RANGE,
    "prefix": PREFIX,
    "is null": NULLS,
    "not null": NULLS,
}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "is null": "not null", "not null": "is null"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition on one column: ``op`` is =, in, <, <=, >, >=, prefix, is null or not null.

    ``values`` are as facts keep them (dates in days, timestamps in microseconds); empty where the
    source of the filter does not tell them, and for nulls.
    """

    column: str
    op: str
    values: tuple[Scalar, ...] = ()

    @property
    def kind(self) -> str:
        """One of equality, range, prefix, nulls."""
        return _KINDS[self.op]

    @property
    def is_bound(self) -> bool:
        """Tell whether its values are known."""
        return bool(self.values) or self.kind == NULLS


@dataclass(frozen=True, slots=True)
class Anything:
    """A condition that no bounds can rule out, such as of a function."""


@dataclass(frozen=True, slots=True)
class All:
    """Conditions that all hold."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions of which one holds."""

    parts: tuple[Node, ...]


Node = Leaf | Anything | All | Either


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter of queries; ``weight`` is how often it was seen, ``origin`` where.

    ``text`` is as it was found. ``tree`` is what Iceberg may skip files by.
    """

    text: str
    tree: Node
    weight: float = 1.0
    origin: str = "stated"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it asks for, in their order; those asked only to be not null are left out, as Spark asks that of every column."""
        return tuple(dict.fromkeys(leaf.column for leaf in leaves(self.tree) if leaf.op != "not null"))

    @property
    def is_bound(self) -> bool:
        """Tell whether all its values are known."""
        return all(leaf.is_bound for leaf in leaves(self.tree))

    def only(self, column: str) -> Filter:
        """The filter with what it asks of one column, as if it asked nothing else."""
        return replace(self, tree=_kept(self.tree, lambda leaf: leaf.column == column))


def leaves(node: Node) -> Iterator[Leaf]:
    """The conditions on columns in a tree."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, (All, Either)):
        for part in node.parts:
            yield from leaves(part)


def conjunction(parts: Iterator[Node] | tuple[Node, ...]) -> Node:
    """Conditions that all hold, as simply as can be said."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, All) else [] if isinstance(part, Anything) else [part]
    # Spark asks of every column that it be not null; what compares with a value says so too.
    compared = {part.column for part in flat if isinstance(part, Leaf) and part.kind != NULLS}
    unique = tuple(dict.fromkeys(p for p in flat if not (isinstance(p, Leaf) and p.op == "not null" and p.column in compared)))
    return Anything() if not unique else unique[0] if len(unique) == 1 else All(unique)


def disjunction(parts: Iterator[Node] | tuple[Node, ...]) -> Node:
    """Conditions of which one holds; nothing is known if one of them may be anything."""
    flat: list[Node] = []
    for part in parts:
        if isinstance(part, Anything):
            return part
        flat += part.parts if isinstance(part, Either) else [part]
    unique = tuple(dict.fromkeys(flat))
    return unique[0] if len(unique) == 1 else Either(unique)


def negated(node: Node) -> Node:
    """The opposite, as far as bounds can tell it: that a value differs rules out no file."""
    if isinstance(node, Leaf):
        return replace(node, op=_NEGATED[node.op]) if node.op in _NEGATED else Anything()
    if isinstance(node, All):
        return disjunction(tuple(map(negated, node.parts)))
    if isinstance(node, Either):
        return conjunction(tuple(map(negated, node.parts)))
    return node


def _kept(node: Node, wanted: Callable[[Leaf], bool]) -> Node:
    if isinstance(node, Leaf):
        return node if wanted(node) else Anything()
    if isinstance(node, All):
        return conjunction(tuple(_kept(part, wanted) for part in node.parts))
    if isinstance(node, Either):
        return disjunction(tuple(_kept(part, wanted) for part in node.parts))
    return node


def with_leaves(node: Node, change: Callable[[Leaf], Node]) -> Node:
    """The tree with each condition changed."""
    if isinstance(node, Leaf):
        return change(node)
    if isinstance(node, All):
        return conjunction(tuple(with_leaves(part, change) for part in node.parts))
    if isinstance(node, Either):
        return disjunction(tuple(with_leaves(part, change) for part in node.parts))
    return node


def sql(node: Node, columns: Mapping[str, Column]) -> str:
    """A tree as a predicate of Spark SQL that Iceberg takes whole; ``columns`` are the table's leaves by name.

    Raises KeyError for a column that is not there, ValueError for a value that has no literal or is not known.
    """
    if isinstance(node, Anything):
        return "true"
    if isinstance(node, (All, Either)):
        return f" {'AND' if isinstance(node, All) else 'OR'} ".join(f"({sql(part, columns)})" for part in node.parts)
    column = columns[node.column]
    term = identifier(*column.names)
    if node.kind == NULLS:
        return f"{term} IS {'NOT ' * (node.op == 'not null')}NULL"
    if not node.values:
        raise ValueError(f"the values of {node.column} are not known")
    if node.op == "in":
        return among(term, column.type, node.values)
    if node.op == "prefix":
        return f"startswith({term}, {literal_of(column.type, node.values[0])})"
    return f"{term} {node.op} {literal_of(column.type, node.values[0])}"


def predicates(filters: Iterable[Filter], columns: Mapping[str, Column]) -> list[tuple[Filter, str]]:
    """The filters with their SQL; left out are those without values, of columns that are gone, or with values that have no literal."""
    found = []
    for one in filters:
        try:
            found.append((one, sql(one.tree, columns)))
        except (KeyError, ValueError, OverflowError):
            continue
    return found
