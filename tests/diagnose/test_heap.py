from typing import Any

import pytest

from icekit.diagnose.heap import (
    ASSUMED_BYTES,
    BASE_BYTES,
    RECORD_BYTES,
    HeapForecast,
    forecast_heap,
    value_bytes,
    verdict,
)
from icekit.engine.cluster import Executor
from icekit.errors import ParameterError
from icekit.facts.files import EqualityKey, FileGroup, Kind, SequenceCounts
from icekit.facts.model import TableFacts
from tests.factories import GIB, KIB, MIB, empty_facts, file_group, sequence, table_facts

BY_ID = (EqualityKey((1,), 1, 1),)
SMALL = Executor(2, 8 * GIB)


def upserted(*sequences: SequenceCounts, **overrides: Any) -> TableFacts:
    """Facts with small files that agree with the sequence counts."""
    groups: list[FileGroup] = []
    for p in dict.fromkeys(each.partition for each in sequences):
        own = [s for s in sequences if s.partition == p]
        if data := sum(s.data_file_count for s in own):
            groups.append(file_group(*[MIB] * data, of=p))
        if deletes := sum(s.equality_delete_file_count for s in own):
            records = sum(s.equality_delete_record_count for s in own) // deletes
            kind = Kind.EQUALITY_DELETES
            groups.append(file_group(*[KIB] * deletes, of=p, kind=kind, records_per_file=records))
    given = {"groups": tuple(groups), "sequences": sequences, "equality_keys": BY_ID}
    return table_facts(**given | overrides)


def data(number: int, files: int = 1) -> SequenceCounts:
    return sequence(number, data_file_count=files, data_record_count=files * 1_000_000)


def deletes(number: int, records: int) -> SequenceCounts:
    return sequence(number, equality_delete_file_count=1, equality_delete_record_count=records)


#: What most tests forecast: one file under ten deletes.
TEN = data(1), deletes(2, 10)


def forecast(facts: TableFacts, executor: Executor = SMALL) -> HeapForecast:
    return forecast_heap(facts, executor)


@pytest.mark.parametrize(
    "facts",
    [
        table_facts(),
        empty_facts(),
        table_facts(format_version=1),
        upserted(deletes(1, 1000), data(2)),
    ],
    ids=["no deletes", "empty", "v1", "none that applies"],
)
def test_without_equality_deletes_there_is_nothing_to_forecast(facts: TableFacts) -> None:
    found = forecast(facts)

    assert found.is_empty
    assert found.verdict == "fits"
    assert found.needed_bytes == 0
    for shown in (repr(found), found._repr_html_()):
        assert "nothing to forecast" in shown


def test_the_oldest_data_file_is_the_worst_and_loads_add_up_over_files() -> None:
    found = forecast(upserted(data(1), deletes(2, 10), data(2, files=2), deletes(3, 5)))

    assert found.records == 15
    assert found.data_file_count == 3
    assert found.loads == 15 + 2 * 5


def test_the_peak_is_the_records_of_the_worst_file_times_their_bytes_times_the_tasks() -> None:
    facts = upserted(data(1), deletes(2, 1_000_000))

    for executor, tasks in (
        (Executor(2, 8 * GIB), 2),
        (Executor(5, GIB), 5),
    ):
        assert forecast(facts, executor).needed_bytes == BASE_BYTES + tasks * 1_000_000 * (
            RECORD_BYTES + 8
        )
    assert "1,000,000 × (500 + 8 bytes of the key) × 2 tasks" in repr(forecast(facts))


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
    assert forecast(upserted(*TEN, equality_keys=keys)).key_bytes == key_bytes


def test_verdicts_have_borders() -> None:
    assert [verdict(int(share * GIB), GIB) for share in (0.6, 0.61, 1.0, 1.01)] == [
        "fits",
        "tight",
        "tight",
        "will not fit",
    ]


def test_what_does_not_fit_names_the_commands_that_need_no_such_heap() -> None:
    found = forecast(upserted(data(1, files=9), deletes(2, 50_000_000)), Executor(2, 2 * GIB))

    assert "icekit compact db.events --catalog prod does not need this memory." in repr(found)
    assert "icekit convert db.events --catalog prod does not need it either" in repr(found)
    assert "✖ will not fit" in found._repr_html_()
    assert "convert" not in repr(forecast(upserted(*TEN)))


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
