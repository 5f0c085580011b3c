"""Filters are read from a list, and many queries of a few kinds keep the weight of each kind,
whatever their values.
"""

from typing import Any

import pytest

from icekit.errors import ParameterError
from icekit.options.commands import QUESTIONS
from icekit.tune.filters import ANYTHING, Filter, Leaf
from icekit.tune.queries import MOST_VALUES, merged


def test_lookups_that_are_each_asked_once_outweigh_a_few_that_are_asked_twice() -> None:
    lookups = [Leaf("id", "=", (n,)) for n in range(10_000)]
    days = [Leaf("day", "=", (n,)) for n in range(250)]

    kept = merged([*lookups, *days, *days])

    weights = {
        column: sum(f.weight for f in kept if f.columns == (column,)) for column in ("id", "day")
    }
    assert weights == {"id": 10_000.0, "day": 500.0}
    assert len(kept) == 2 * MOST_VALUES


def test_equal_filters_are_one_and_those_that_ask_nothing_are_left_out() -> None:
    kept = merged([Leaf("id", "=", (1,)), Leaf("id", "=", (1,)), ANYTHING])

    assert kept == (Filter(Leaf("id", "=", (1,)), 2.0),)


@pytest.mark.parametrize("given", ["id = 7", [["id = 7"]]])
def test_filters_are_a_list_of_texts_under_every_question(given: Any) -> None:
    for question in ("layout", "metrics-columns", "planning"):
        with pytest.raises(ParameterError, match="filters must be a list of strings"):
            QUESTIONS[question].of({"filters": given})
