"""Filters are read from a list, and many queries of a few kinds keep the weight of each kind,
whatever their values.
"""

from typing import Any, cast

import pytest

from icekit.errors import ParameterError
from icekit.tune.filters import Anything, Filter, Leaf
from icekit.tune.queries import MOST_FILTERS, MOST_VALUES, _Merged, read_filters
from tests.factories import table_facts


def test_lookups_that_are_each_asked_once_outweigh_a_few_that_are_asked_twice() -> None:
    found = _Merged()
    found.add(Filter("", Leaf("id", "=", (n,))) for n in range(10_000))
    found.add(Filter("", Leaf("day", "=", (n,)), weight=2.0) for n in range(250))

    kept, shapes = found.kept()

    weights = {
        column: sum(f.weight for f in kept if f.columns == (column,)) for column in ("id", "day")
    }
    assert weights == {"id": 10_000.0, "day": 500.0}
    assert shapes == 2
    assert len(kept) == 2 * MOST_VALUES


def test_equal_filters_are_one_and_those_that_ask_nothing_are_counted() -> None:
    found = _Merged()
    found.add(
        [
            Filter("a", Leaf("id", "=", (1,))),
            Filter("b", Leaf("id", "=", (1,))),
            Filter("c", Anything(), 3.0),
        ]
    )
    found.add([Filter("bucket[4](id) = 1", Anything(), 5.0, is_pushed=True)])

    (only,), _ = found.kept()

    assert only.weight == 2.0
    assert found.blind == 3.0
    assert found.undecided == 5.0


def test_the_rarest_kinds_are_left_out() -> None:
    found = _Merged()
    found.add(
        Filter("", Leaf(f"c{n}", "=", (1,)), weight=float(n + 1)) for n in range(MOST_FILTERS + 5)
    )

    kept, shapes = found.kept()

    assert shapes == len(kept) == MOST_FILTERS
    assert kept[-1].columns == ("c5",)


@pytest.mark.parametrize("given", ["id = 7", [7]])
def test_filters_are_a_list_of_texts_under_every_question(given: Any) -> None:
    with pytest.raises(ParameterError, match="give a list of SQL predicates or queries"):
        read_filters(cast("Any", None), table_facts(), sql=given)
