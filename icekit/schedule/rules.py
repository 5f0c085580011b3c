"""Give each table of a catalog the first rule that matches it; pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icekit.errors import nearest
from icekit.schedule.model import Policy, Rule
from icekit.sql import Identifier

#: Namespaces that icekit itself makes.
_OWN = frozenset({"icekit", "icekit_scratch"})


@dataclass(frozen=True)
class Assigned:
    """The tables that a policy looks after, each with its rule, and the patterns that stand for nothing."""

    tables: tuple[tuple[Identifier, Rule], ...]
    unmatched: tuple[str, ...] = ()


def assign(policy: Policy, names: Sequence[Identifier]) -> Assigned:
    """The first matching rule of each table, in the catalog's order.

    A rule matches by ``match`` and not by ``exclude``; what the policy excludes no rule takes.
    """
    found = []
    for name in names:
        written = ".".join(name)
        if _matches(written, policy.exclude):
            continue
        rule = next((r for r in policy.tables if _takes(name, r)), None)
        if rule is not None:
            found.append((name, rule))
    known = [".".join(name) for name in names]
    lost = [
        f"rule {rule.name}: no table matches {pattern!r}{nearest(pattern.strip('*.'), known, count=1) or '.'}"
        for rule in policy.tables
        for pattern in rule.match
        if not any(_matches(one, [pattern]) for one in known)
    ]
    return Assigned(tuple(found), tuple(lost))


def _takes(name: Identifier, rule: Rule) -> bool:
    written = ".".join(name)
    # Clones, the ledger and the history are nobody's tables, unless a pattern names their namespace.
    patterns = [p for p in rule.match if p.startswith("icekit")] if name[0] in _OWN else rule.match
    return _matches(written, patterns) and not _matches(written, rule.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
