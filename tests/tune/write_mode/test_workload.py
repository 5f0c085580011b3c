"""Synthetic statements name columns that can be asked for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from icekit.errors import ParameterError
from icekit.facts.model import Column
from icekit.tune.write_mode.history import Shape, synthetic
from tests.factories import table_facts

NO_LAKE = cast("Any", None)


def test_what_lists_and_maps_hold_is_not_asked_for() -> None:
    columns = (
        Column(1, "tags.element", "string", False, 0, "full"),
        Column(2, "m.key", "string", True, 1, "full"),
        Column(3, "m.value", "int", False, 1, "full"),
        Column(4, "s.x", "int", False, 2, "full", ("s", "x")),
        Column(5, "a.b", "long", False, 3, "full"),
    )

    for operation in ("delete", "update"):
        workload = synthetic(NO_LAKE, table_facts(columns=columns), Shape(operation, 0.1, "scattered", 1.0), 1)
        sql = workload.statements[0](("lake", "db", "t"))

        assert "xxhash64(`a.b`, 0)" in sql
        assert "element" not in sql


def test_a_table_of_nested_columns_alone_needs_a_statement() -> None:
    nested = (Column(1, "tags.element", "string", False, 0, "full"),)

    with pytest.raises(ParameterError, match="your own statement"):
        synthetic(NO_LAKE, table_facts(columns=nested), Shape("update", 0.1, "scattered", 1.0), 1)
