"""Scan reports are read as catalogs and reporters write them: a line each, after other words, or one document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from icekit.errors import ParameterError
from icekit.facts.model import Column
from icekit.tune.filters import All, Anything, Either, Leaf
from icekit.tune.queries import filters_in

COLUMNS = {c.name: c for c in (Column(1, "id", "long", False, 0, "full"), Column(2, "day", "date", False, 1, "full"))}
EQUAL = {"type": "eq", "term": "id", "value": "(2-digit-int)"}
REPORT = {"table-name": "prod.db.events", "filter": EQUAL, "snapshot-id": 5}
OTHER = {"table-name": "prod.db.other", "filter": EQUAL}


def trees(path: Path, text: str) -> list[object]:
    path.write_text(text)
    return [tree for _, tree in filters_in(str(path), ("db", "events"), COLUMNS, set())]


def test_lines_lists_and_documents_are_read_and_other_tables_left_out(tmp_path: Path) -> None:
    lines = f"INFO received {json.dumps(REPORT)}\nINFO something else\n{json.dumps(OTHER)}\n{json.dumps(REPORT)}\n"
    want = Leaf("id", "=")

    assert trees(tmp_path / "lines", lines) == [want, want]
    assert trees(tmp_path / "one", json.dumps(REPORT, indent=1)) == [want]
    assert trees(tmp_path / "list", json.dumps([REPORT, OTHER], indent=1)) == [want]


def test_expressions_become_conditions_without_values(tmp_path: Path) -> None:
    late = {"type": "gt-eq", "term": "day", "value": "(date)"}
    both = {"type": "and", "left": EQUAL, "right": {"type": "not", "child": late}}
    either = {"type": "or", "left": EQUAL, "right": {"type": "is-null", "term": "day"}}
    unknown = {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}, "value": 1}

    def tree(expression: object) -> object:
        return trees(tmp_path / "e", json.dumps({**REPORT, "filter": expression}))[0]

    assert tree(both) == All((Leaf("id", "="), Leaf("day", "<")))
    assert tree(either) == Either((Leaf("id", "="), Leaf("day", "is null")))
    assert tree(unknown) == Anything()
    assert tree(True) == Anything()


def test_a_file_without_reports_or_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="has no scan report"):
        trees(tmp_path / "none", "no json here\n")
    with pytest.raises(ParameterError, match="cannot be read"):
        list(filters_in(str(tmp_path / "gone"), ("db", "events"), COLUMNS, set()))
