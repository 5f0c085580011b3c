import json
from typing import Any

import pytest

from icekit.compact.equality_deletes import Executor, HeapForecast, KeyColumnHeap, KeySample, forecast_heap
from icekit.diagnose.heap import BASE_BYTES, MAX_PARTITIONS, RecordHeap, fixed_bytes, text_bytes, verdict
from icekit.errors import ParameterError
from icekit.facts.model import EqualityKey, FileGroup, Kind, Partition, PartitionField, PartitionSpec, SequenceCounts, TableFacts
from tests import factories as make

BY_ID = (EqualityKey((1,), 1, 1),)
BY_CARRIER = (EqualityKey((3,), 1, 1),)
ROOMY = Executor(2, 100 * make.GIB, delete_cache=False)
# Of a heap with 32-bit references, where the formula's figures hold.
SMALL = Executor(2, 8 * make.GIB, delete_cache=False)


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


def sample(share: float | None = None, columns: tuple[KeyColumnHeap, ...] = ()) -> KeySample:
    return KeySample(columns, share, 4, 1000, 1)


def worst(facts: TableFacts, executor: Executor = SMALL, keys: KeySample | None = None) -> Any:
    found = forecast_heap(facts, executor, keys).worst
    assert found is not None
    return found


def test_a_table_without_equality_deletes_has_nothing_to_forecast() -> None:
    forecast = forecast_heap(make.table_facts(), SMALL)

    assert forecast.is_empty
    assert forecast.verdict == "fits"
    assert "nothing to forecast" in repr(forecast)
    assert forecast.worst is None


@pytest.mark.parametrize("facts", [make.empty_facts(), make.table_facts(format_version=1)], ids=["empty", "v1"])
def test_an_empty_table_and_one_of_version_1_have_nothing_to_forecast(facts: TableFacts) -> None:
    assert forecast_heap(facts, SMALL).is_empty


def test_deletes_of_the_same_commit_and_of_earlier_ones_do_not_apply() -> None:
    facts = upserted(deletes(1, 1000), data(2), deletes(3, 7), deletes(4, 10))

    assert worst(facts).deletes_per_file == 17
    assert forecast_heap(upserted(deletes(1, 1000), data(2)), SMALL).is_empty


def test_the_oldest_data_file_is_the_worst_and_loads_add_up_over_files() -> None:
    facts = upserted(data(1), deletes(2, 10), data(2, files=2), deletes(3, 5))

    found = worst(facts)
    assert (found.deletes_per_file, found.data_file_count, found.loads) == (15, 3, 15 + 2 * 5)


def test_deletes_apply_to_their_own_partition_only() -> None:
    here, there = make.partition(1), make.partition(2)
    forecast = forecast_heap(upserted(data(1, of=here), deletes(2, 10, here), data(1, of=there), deletes(2, 3, there)), SMALL)

    assert [(p.partition, p.deletes_per_file) for p in forecast.partitions] == [(here, 10), (there, 3)]
    assert forecast.partition_count == 2


def test_deletes_of_another_spec_do_not_apply() -> None:
    by_hour = PartitionSpec(1, (PartitionField(1001, "event_hour", "hour", 2, "event_time", "int"),))
    facts = upserted(data(1), deletes(2, 10, make.partition(5, spec_id=1)), specs=(make.BY_DAY, by_hour))

    assert forecast_heap(facts, SMALL).is_empty


def test_deletes_of_an_unpartitioned_spec_apply_everywhere() -> None:
    everywhere = Partition(1, ())
    specs = (make.BY_DAY, PartitionSpec(1, ()))
    facts = upserted(data(1, of=make.partition(1)), data(3, of=make.partition(2)), deletes(2, 10, everywhere), specs=specs)

    assert [(p.partition.values, p.deletes_per_file) for p in forecast_heap(facts, SMALL).partitions] == [((1,), 10)]


def test_an_unpartitioned_table_is_one_partition() -> None:
    whole = Partition(0, ())
    forecast = forecast_heap(upserted(data(1, of=whole), deletes(2, 10, whole), specs=(make.UNPARTITIONED,)), SMALL)

    assert [p.deletes_per_file for p in forecast.partitions] == [10]
    assert "(unpartitioned)" in repr(forecast)


def test_without_a_sample_every_delete_record_is_a_key() -> None:
    facts = upserted(data(1), deletes(2, 1000))

    forecast = forecast_heap(facts, SMALL)
    assert forecast.distinct_basis == "upper bound"
    assert worst(facts).distinct_keys == 1000
    assert "upper bound" in repr(forecast)


def test_a_sample_tells_how_many_keys_are_distinct() -> None:
    facts = upserted(data(1), deletes(2, 1000))
    forecast = forecast_heap(facts, SMALL, sample(0.25))

    assert forecast.distinct_basis == "sample"
    assert worst(facts, keys=sample(0.25)).distinct_keys == 250
    assert forecast.read_bytes < forecast_heap(facts, SMALL).read_bytes


def test_a_sample_of_single_files_leaves_the_upper_bound() -> None:
    assert forecast_heap(upserted(data(1), deletes(2, 10)), SMALL, sample(None)).distinct_basis == "upper bound"


def test_a_long_takes_what_was_measured() -> None:
    long, text = RecordHeap(1, 24), RecordHeap(1, text_bytes(36))

    assert long.list_bytes == 84 + 24
    # Retained by a hash set of so many keys: 196 bytes of a long, 269 of a string of 36 characters.
    assert long.retained(1_500_000) / 1_500_000 == pytest.approx(196, rel=0.05)
    assert text.retained(1_500_000) / 1_500_000 == pytest.approx(252, rel=0.1)


def test_a_composite_key_adds_up_and_more_than_two_columns_need_a_larger_record() -> None:
    assert RecordHeap(2, 48).list_bytes - RecordHeap(1, 24).list_bytes == 24
    assert RecordHeap(3, 0).list_bytes - RecordHeap(2, 0).list_bytes == 8


def test_a_heap_of_32_gib_has_longer_references() -> None:
    facts = upserted(data(1), deletes(2, 1_000_000))

    assert worst(facts, Executor(2, 32 * make.GIB)).set_bytes > 1.2 * worst(facts, Executor(2, 31 * make.GIB)).set_bytes


@pytest.mark.parametrize(
    ("type_name", "size"), [("long", 24), ("decimal(18, 2)", 40), ("decimal(19,2)", 104), ("fixed[5]", 24), ("string", None)]
)
def test_types_have_sizes(type_name: str, size: int | None) -> None:
    assert fixed_bytes(type_name) == size


def test_the_largest_of_several_keys_counts() -> None:
    facts = upserted(data(1), deletes(2, 10), equality_keys=(EqualityKey((1,), 1, 5), EqualityKey((1, 2), 1, 5)))

    assert [c.name for c in forecast_heap(facts, SMALL).key] == ["event_id", "event_time"]


@pytest.mark.parametrize(("share", "expected"), [(0.6, "fits"), (0.61, "tight"), (1.0, "tight"), (1.01, "will not fit")])
def test_verdicts_have_borders(share: float, expected: str) -> None:
    assert verdict(int(share * make.GIB), make.GIB) == expected


def test_text_of_unknown_length_never_fits_until_it_is_sampled() -> None:
    facts = upserted(data(1), deletes(2, 10), equality_keys=BY_CARRIER)
    sampled = sample(1.0, (KeyColumnHeap(3, "carrier", "string", 48, "sample"),))

    assert forecast_heap(facts, ROOMY).verdict == "tight"
    assert forecast_heap(facts, ROOMY).cores_that_fit is None
    assert forecast_heap(facts, ROOMY, sampled).verdict == "fits"


def test_facts_without_field_ids_assume_a_text() -> None:
    forecast = forecast_heap(upserted(data(1), deletes(2, 10), equality_keys=()), ROOMY)

    assert [c.basis for c in forecast.key] == ["assumed"]


def test_the_largest_number_of_cores_that_fits_is_told() -> None:
    # Two sets of about 200 MB a task.
    facts = upserted(data(1, files=50), deletes(2, 1_000_000))
    wide = forecast_heap(facts, Executor(16, 2 * make.GIB))

    assert wide.verdict == "will not fit"
    assert wide.cores_that_fit == 2
    assert forecast_heap(facts, Executor(2, 2 * make.GIB)).verdict == "fits"
    assert forecast_heap(facts, Executor(3, 2 * make.GIB)).verdict == "tight"
    assert "executors of 2 cores" in repr(wide)


def test_no_number_of_cores_is_0_and_the_remedy_is_to_convert() -> None:
    forecast = forecast_heap(upserted(data(1, files=9), deletes(2, 50_000_000)), Executor(2, 2 * make.GIB))

    assert forecast.verdict == "will not fit"
    assert forecast.cores_that_fit == 0
    assert "icekit convert db.events --catalog prod" in repr(forecast)


def test_more_cores_a_task_make_fewer_sets() -> None:
    facts = upserted(data(1, files=50), deletes(2, 1_000_000))

    assert forecast_heap(facts, Executor(16, 2 * make.GIB, task_cpus=8)).verdict == "fits"


def test_there_are_no_more_sets_than_files_and_their_pieces() -> None:
    one, many = (
        forecast_heap(upserted(data(1, files=n), deletes(2, 1_000_000)), Executor(8, 8 * make.GIB, delete_cache=False)) for n in (2, 8)
    )

    held = one.read_bytes - BASE_BYTES
    assert many.read_bytes - BASE_BYTES == pytest.approx(4 * held, rel=0.05)


def test_a_reader_may_still_hold_the_set_of_the_file_before() -> None:
    one, two = (worst(upserted(data(1, files=n), deletes(2, 1_000_000))) for n in (1, 2))

    assert one.set_bytes == two.set_bytes
    assert one.previous_set_bytes == 0
    assert two.previous_set_bytes == pytest.approx(1_000_000 * (108 + 80 + 8), rel=0.05)


def test_a_rewrite_also_holds_the_row_group_it_writes() -> None:
    found = worst(upserted(data(1, files=300), deletes(2, 10)))

    assert found.rewrite_bytes - found.read_bytes == 2 * 128 * make.MIB


def test_tasks_share_the_lists_of_the_executor_cache_where_all_find_room() -> None:
    cached = Executor(2, 8 * make.GIB)
    few = upserted(data(1, files=9), deletes(2, 1_000_000))
    many = upserted(data(1, files=9), deletes(2, 20_000_000))

    assert forecast_heap(few, cached).read_bytes < forecast_heap(few, SMALL).read_bytes
    assert forecast_heap(few, cached).rewrite_bytes == forecast_heap(few, SMALL).rewrite_bytes
    # 128 MiB by its own estimate of 8 bytes a long are 1.7 GiB of lists.
    assert forecast_heap(many, cached).read_bytes - forecast_heap(many, SMALL).read_bytes == pytest.approx(1.69 * make.GIB, rel=0.01)


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_bounded_and_counted() -> None:
    parts = [make.partition(day) for day in range(100_000)]
    rows = [row for day, p in enumerate(parts) for row in (data(1, of=p), deletes(2, day + 1, p))]
    facts = upserted(*rows)

    forecast = forecast_heap(facts, SMALL)

    assert (len(forecast.partitions), forecast.partition_count) == (MAX_PARTITIONS, 100_000)
    assert forecast.worst is not None
    assert forecast.worst.deletes_per_file == 100_000
    assert "99,990 more partitions" in repr(forecast)


def test_it_is_written_as_json() -> None:
    forecast = forecast_heap(upserted(data(1), deletes(2, 10)), SMALL)

    written = json.loads(json.dumps(forecast.to_dict()))
    assert written["table"] == "db.events"
    assert written["verdict"] == "fits"
    assert written["executor"] == {"cores": 2, "heap_bytes": 8 * make.GIB, "task_cpus": 1, "delete_cache": False}
    assert written["partitions"][0]["path"] == "event_day=2026-01-01"


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
    assert HeapForecast("c", ("db", "t"), None, SMALL).name == "db.t"
