"""Into which batches a conversion is packed."""

from icekit.iceberg.partition import Partition
from icekit.maintain.planning.conversion import MAX_FILES, RECORD_BYTES, batches
from icekit.rows.deletes.listing import Scope


def scope(
    name: str, records: int = 10, rows: int = 10, *, files: int = 1, everywhere: bool = False
) -> Scope:
    number = ord(name)
    return Scope(Partition(0, (name,)), number, everywhere, 5, 1, records, 1000, files, rows, 1000)


def packed(*scopes: Scope, budget: int = 10**12) -> list[tuple[str, int]]:
    return [
        ("".join(chr(s.scope_index) for s in batch.scopes), batch.slice_count)
        for batch in batches(scopes, budget)
    ]


def test_partitions_that_fit_are_one_commit() -> None:
    assert packed(scope("b"), scope("a"), scope("c")) == [("abc", 1)]


def test_a_batch_ends_before_the_disk_is_full() -> None:
    assert packed(scope("a"), scope("b"), scope("c"), budget=2 * 20 * RECORD_BYTES) == [
        ("ab", 1),
        ("c", 1),
    ]


def test_a_batch_ends_before_the_driver_holds_too_many_files() -> None:
    assert packed(
        scope("a", files=MAX_FILES // 2), scope("b", files=MAX_FILES // 2), scope("c")
    ) == [("a", 1), ("bc", 1)]


def test_a_partition_too_large_for_the_disk_is_sliced_by_data_files() -> None:
    """The deletes are read beside each slice."""
    assert packed(
        scope("a"), scope("b", records=100, rows=1000), scope("c"), budget=300 * RECORD_BYTES
    ) == [("a", 1), ("b", 5), ("c", 1)]


def test_deletes_that_alone_are_too_large_still_end_in_slices() -> None:
    assert packed(scope("a", records=10_000, rows=1000), budget=100 * RECORD_BYTES) == [("a", 40)]


def test_global_deletes_come_last_as_they_are_removed_when_all_is_looked_at() -> None:
    assert packed(scope("g", everywhere=True), scope("a")) == [("a", 1), ("g", 1)]


def test_nothing_is_no_batch() -> None:
    assert batches((), 1) == []
