import json
from typing import Any

import pytest

from icekit.compact.equality_deletes import Executor, HeapForecast, forecast_heap
from icekit.diagnose.heap import ASSUMED_BYTES, BASE_BYTES, RECORD_BYTES, value_bytes, verdict
from icekit.errors import ParameterError
from icekit.facts.definition import PartitionField, PartitionSpec
from icekit.facts.files import EqualityKey, FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.model import TableFacts
from tests import factories as make

BY_ID = (EqualityKey((1,), 1, 1),)
SMALL = Executor(2, 8 * make.GIB)


def upserted(*sequences: SequenceCounts, **overrides: Any) -> TableFacts:
    """Facts with small files that agree with the sequence counts."""
    groups: list[FileGroup] = []
    by_partition: dict[Partition, list[SequenceCounts]] = {}
    for each in sequences:
        by_partition.setdefault(each.partition, []).append(each)
    for p, own in by_partition.items():
        data = sum(s.data_file_count for s in own)
        deletes = sum(s.equality_delete_file_count for s in own)
        groups += [make.file_group(*[make.MIB] * data, of=p)] if data else []
        if deletes:
            records = sum(s.equality_delete_record_count for s in own) // deletes
            groups.append(make.file_group(*[make.KIB] * deletes, of=p, kind=Kind.EQUALITY_DELETES, records_per_file=records))
    return make.table_facts(**{"groups": tuple(groups), "sequences": sequences, "equality_keys": BY_ID} | overrides)


def data(number: int, files: int = 1, of: Partition | None = None) -> SequenceCounts:
    return make.sequence(number, of, data_file_count=files, data_record_count=files * 1_000_000)


def deletes(number: int, records: int, of: Partition | None = None) -> SequenceCounts:
    return make.sequence(number, of, equality_delete_file_count=1, equality_delete_record_count=records)


def forecast(facts: TableFacts, executor: Executor = SMALL) -> HeapForecast:
    return forecast_heap(facts, executor)


def test_a_table_without_equality_deletes_has_nothing_to_forecast() -> None:
    found = forecast(make.table_facts())

    assert (found.is_empty, found.verdict, found.needed_bytes) == (True, "fits", 0)
    assert "nothing to forecast" in repr(found)
    assert "nothing to forecast" in found._repr_html_()


@pytest.mark.parametrize("facts", [make.empty_facts(), make.table_facts(format_version=1)], ids=["empty", "v1"])
def test_an_empty_table_and_one_of_version_1_have_nothing_to_forecast(facts: TableFacts) -> None:
    assert forecast(facts).is_empty


def test_deletes_of_the_same_commit_and_of_earlier_ones_do_not_apply() -> None:
    assert forecast(upserted(deletes(1, 1000), data(2), deletes(3, 7), deletes(4, 10))).records == 17
    assert forecast(upserted(deletes(1, 1000), data(2))).is_empty


def test_the_oldest_data_file_is_the_worst_and_loads_add_up_over_files() -> None:
    found = forecast(upserted(data(1), deletes(2, 10), data(2, files=2), deletes(3, 5)))

    assert (found.records, found.data_file_count, found.loads) == (15, 3, 15 + 2 * 5)


def test_deletes_apply_to_their_own_partition_only() -> None:
    here, there = make.partition(1), make.partition(2)
    found = forecast(upserted(data(1, of=here), deletes(2, 10, here), data(1, of=there), deletes(2, 13, there)))

    assert (found.records, found.path) == (13, "event_day=1970-01-03")


def test_deletes_of_another_spec_do_not_apply() -> None:
    by_hour = PartitionSpec(1, (PartitionField(1001, "event_hour", "hour", 2, "event_time", "int"),))

    assert forecast(upserted(data(1), deletes(2, 10, make.partition(5, spec_id=1)), specs=(make.BY_DAY, by_hour))).is_empty


def test_deletes_of_an_unpartitioned_spec_apply_everywhere() -> None:
    everywhere = Partition(1, ())
    specs = (make.BY_DAY, PartitionSpec(1, ()))
    found = forecast(upserted(data(1, of=make.partition(1)), data(3, of=make.partition(2)), deletes(2, 10, everywhere), specs=specs))

    assert (found.records, found.data_file_count) == (10, 1)


def test_an_unpartitioned_table_is_one_partition() -> None:
    whole = Partition(0, ())
    found = forecast(upserted(data(1, of=whole), deletes(2, 10, whole), specs=(make.UNPARTITIONED,)))

    assert (found.records, found.path) == (10, "(unpartitioned)")


def test_the_peak_is_the_records_of_the_worst_file_times_their_bytes_times_the_tasks() -> None:
    facts = upserted(data(1), deletes(2, 1_000_000))

    for executor, tasks in ((Executor(2, 8 * make.GIB), 2), (Executor(16, 8 * make.GIB, task_cpus=8), 2), (Executor(5, make.GIB), 5)):
        assert forecast(facts, executor).needed_bytes == BASE_BYTES + tasks * 1_000_000 * (RECORD_BYTES + 8)
    assert "1,000,000 × (500 + 8 bytes of the key) × 2 tasks" in repr(forecast(facts))


@pytest.mark.parametrize(
    ("type_name", "bytes_"),
    [("int", 4), ("long", 8), ("timestamptz", 8), ("uuid", 16), ("decimal(38, 2)", 16), ("fixed[5]", 5), ("string", ASSUMED_BYTES)],
)
def test_values_have_bytes(type_name: str, bytes_: int) -> None:
    assert value_bytes(type_name) == bytes_


def test_the_largest_of_several_keys_counts() -> None:
    keys = (EqualityKey((1,), 1, 5), EqualityKey((1, 2), 1, 5))

    assert forecast(upserted(data(1), deletes(2, 10), equality_keys=keys)).key_bytes == 16


def test_facts_without_field_ids_assume_a_text() -> None:
    assert forecast(upserted(data(1), deletes(2, 10), equality_keys=())).key_bytes == ASSUMED_BYTES


@pytest.mark.parametrize(("share", "expected"), [(0.6, "fits"), (0.61, "tight"), (1.0, "tight"), (1.01, "will not fit")])
def test_verdicts_have_borders(share: float, expected: str) -> None:
    assert verdict(int(share * make.GIB), make.GIB) == expected


def test_the_largest_number_of_cores_that_fits_is_told() -> None:
    # 484 MiB a task.
    facts = upserted(data(1, files=50), deletes(2, 1_000_000))
    wide = forecast(facts, Executor(16, 2 * make.GIB))

    assert (wide.verdict, wide.cores_that_fit) == ("will not fit", 1)
    assert "executors of 1 core." in repr(wide)
    assert [forecast(facts, Executor(cores, 2 * make.GIB)).verdict for cores in (1, 2, 3, 4)] == ["fits", "tight", "tight", "will not fit"]
    assert forecast(facts, Executor(8, 2 * make.GIB, task_cpus=8)).verdict == "fits"


def test_no_number_of_cores_is_0_and_the_remedies_are_named() -> None:
    found = forecast(upserted(data(1, files=9), deletes(2, 50_000_000)), Executor(2, 2 * make.GIB))

    assert (found.verdict, found.cores_that_fit) == ("will not fit", 0)
    assert "it fits with no number of cores" in repr(found)
    assert "icekit compact db.events --catalog prod does not need this memory." in repr(found)
    assert "icekit convert db.events --catalog prod does not need it either" in repr(found)
    assert "✖ will not fit" in found._repr_html_()


def test_what_fits_needs_no_remedy() -> None:
    assert "convert" not in repr(forecast(upserted(data(1), deletes(2, 10))))


def test_it_is_written_as_json() -> None:
    written = json.loads(json.dumps(forecast(upserted(data(1), deletes(2, 10))).to_dict()))

    assert (written["table"], written["verdict"], written["records"]) == ("db.events", "fits", 10)
    assert written["executor"] == {"cores": 2, "heap_bytes": 8 * make.GIB, "task_cpus": 1}
    assert written["path"] == "event_day=2026-01-01"


@pytest.mark.parametrize(
    ("text", "executor"),
    [
        ("2 cores 4g", Executor(2, 4 * make.GIB)),
        ("1 core, 512m", Executor(1, 512 * make.MIB)),
        ("4 cores and 16 GB, 2 cpus per task", Executor(4, 16 * make.GIB, 2)),
    ],
)
def test_an_executor_is_read_from_words(text: str, executor: Executor) -> None:
    assert Executor.parse(text) == executor


@pytest.mark.parametrize("text", ["", "4g", "two cores 4g", "0 cores 4g"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="executor"):
        Executor.parse(text)


def test_it_is_frozen() -> None:
    assert isinstance(hash(Executor(1, 1)), int)
