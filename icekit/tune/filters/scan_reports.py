"""Read filters from Iceberg's scan reports, as REST catalogs get them and metrics reporters write them: JSON, one or a line each.

A report names columns and operations and hides values: ``(2-digit-int)``. Source: ``ScanReportParser``, ``ExpressionParser``
and ``ExpressionUtil.sanitize``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icekit.errors import ParameterError
from icekit.facts.parts import Column
from icekit.sql import Identifier
from icekit.tune.filters.model import Anything, Leaf, Node, conjunction, disjunction, negated

_OPERATIONS = {
    "eq": "=",
    "in": "in",
    "lt": "<",
    "lt-eq": "<=",
    "gt": ">",
    "gt-eq": ">=",
    "starts-with": "prefix",
    "is-null": "is null",
    "not-null": "not null",
}


def filters_in(path: str, table: Identifier, columns: Mapping[str, Column], unknown: set[str]) -> Iterator[tuple[str, Node]]:
    """The filters of reports about a table (named without its catalog): as JSON, and as a tree without values.

    Raises :class:`~icekit.errors.ParameterError` for a file that cannot be read, or holds no report.
    """
    found = False
    for report in _reports(Path(path)):
        found = True
        name = str(report.get("table-name", ""))
        if name == ".".join(table) or name.endswith(f".{'.'.join(table)}"):
            tree = _node(report.get("filter", True), columns, unknown)
            yield json.dumps(report.get("filter", True)), tree
    if not found:
        raise ParameterError(f"{path} holds no scan report; give JSON as a REST catalog or a metrics reporter writes it.")


def _reports(path: Path) -> Iterator[Mapping[str, Any]]:
    found = False
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                # Reporters that log put other words before the document.
                _, brace, rest = line.partition("{")
                for report in _in(brace + rest):
                    found = True
                    yield report
        if not found:
            # One document over several lines.
            yield from _in(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParameterError(f"{path} cannot be read as scan reports ({type(error).__name__}); give a file of JSON.") from None


def _in(text: str) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError:
        return
    for report in document if isinstance(document, list) else [document]:
        # What a client sends to a REST catalog names its type; a report alone is told by its parts.
        if isinstance(report, dict) and "filter" in report and "table-name" in report:
            yield report


def _node(expression: Any, columns: Mapping[str, Column], unknown: set[str]) -> Node:
    if not isinstance(expression, dict):
        return Anything()
    kind = str(expression.get("type", ""))
    if kind in {"and", "or"}:
        parts = tuple(_node(expression.get(side), columns, unknown) for side in ("left", "right"))
        return conjunction(parts) if kind == "and" else disjunction(parts)
    if kind == "not":
        return negated(_node(expression.get("child"), columns, unknown))
    term = expression.get("term")
    if kind not in _OPERATIONS or not isinstance(term, str):
        return Anything()
    if term not in columns:
        unknown.add(term)
        return Anything()
    return Leaf(columns[term].name, _OPERATIONS[kind])
