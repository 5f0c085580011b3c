from typing import Any

import pytest

from icekit.common.errors import ParameterError
from icekit.engine.cluster import Executor
from icekit.health.facts.files import EqualityKey
from icekit.health.facts.heap import (
    ASSUMED_BYTES,
    BASE_BYTES,
    RECORD_BYTES,
    HeapForecast,
    forecast_heap,
    value_bytes,
    verdict,
)
from icekit.health.facts.model import TableFacts
from tests.factories import GIB, MIB, empty_facts, table_facts
from tests.golden import Golden
from tests.health.diagnose.test_deletes import upserts
from tests.maintain.delete_counts import facts_of

BY_ID = (EqualityKey((1,), 1, 1),)
SMALL = Executor(2, 8 * GIB)


def upserted(deletes: int = 10, **overrides: Any) -> TableFacts:
    """One file under so many deletes of a later commit."""
    return facts_of(upserts({1: 100}, {2: deletes}), **{"equality_keys": BY_ID, **overrides})


def forecast(facts: TableFacts, executor: Executor = SMALL) -> HeapForecast:
    return forecast_heap(facts, executor)


@pytest.mark.parametrize(
    "facts",
    [
        table_facts(),
        empty_facts(),
        facts_of(upserts({2: 100}, {1: 1000})),
    ],
    ids=["no deletes", "empty", "none that applies"],
)
def test_without_equality_deletes_there_is_nothing_to_forecast(facts: TableFacts) -> None:
    found = forecast(facts)

    assert found.is_empty
    assert found.verdict == "fits"
    assert found.needed_bytes == 0


def test_the_peak_is_the_records_of_the_worst_file_times_their_bytes_times_the_tasks() -> None:
    facts = upserted(1_000_000)

    for tasks in (2, 5):
        needed = forecast(facts, Executor(tasks, GIB)).needed_bytes
        assert needed == BASE_BYTES + tasks * 1_000_000 * (RECORD_BYTES + 8)


def test_values_have_the_bytes_of_their_type() -> None:
    expected = {
        "int": 4,
        "long": 8,
        "timestamptz": 8,
        "uuid": 16,
        "decimal(38, 2)": 16,
        "fixed[5]": 5,
        "string": ASSUMED_BYTES,
    }

    assert {name: value_bytes(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("keys", "key_bytes"),
    [((EqualityKey((1,), 1, 5), EqualityKey((1, 2), 1, 5)), 16), ((), ASSUMED_BYTES)],
    ids=["the largest of several", "a text where the columns are not known"],
)
def test_the_bytes_of_a_key_are_those_of_its_columns(keys: object, key_bytes: int) -> None:
    assert forecast(upserted(equality_keys=keys)).key_bytes == key_bytes


def test_verdicts_have_borders() -> None:
    assert [verdict(int(share * GIB), GIB) for share in (0.6, 0.61, 1.0, 1.01)] == [
        "fits",
        "tight",
        "tight",
        "will not fit",
    ]


def test_forecasts_look_like_their_golden_files(golden: Golden) -> None:
    """What does not fit names the commands that need no such heap."""
    golden("heap/fits.txt", forecast(upserted(1_000_000)).text())
    golden("heap/will-not-fit.txt", forecast(upserted(50_000_000)).text())
    golden("heap/nothing.txt", forecast(table_facts()).text())


@pytest.mark.parametrize(
    ("text", "executor"),
    [
        ("2 cores 4g", Executor(2, 4 * GIB)),
        ("1 core, 512m", Executor(1, 512 * MIB)),
        ("4 cores and 16 GB", Executor(4, 16 * GIB)),
    ],
)
def test_an_executor_is_read_from_words(text: str, executor: Executor) -> None:
    assert Executor.parse(text) == executor


@pytest.mark.parametrize("text", ["", "4g", "two cores 4g", "0 cores 4g"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="executor"):
        Executor.parse(text)
