"""Which deletes hang over a partition, how often they are opened, and which a rewrite drops."""

import dataclasses
from typing import Any

from icekit.compact.candidates import DeleteLoad, deletes_over, dropped_by
from icekit.compact.model import Action, Prediction
from icekit.compact.service import delete_files_removed
from icekit.engine.planner import PlannedRewrite
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import DeleteState, UnappliedDeletes
from icekit.facts.model import TableFacts
from tests.compact.delete_counts import data, equality, facts_of, position
from tests.factories import BY_DAY, FIRST_DAY, MIB, file_group, partition, table_facts


def load(rows: list[SequenceCounts], *groups: FileGroup, **more: object) -> DeleteLoad:
    """Of the one partition, by position deletes of a twentieth of the rows or more."""
    return deletes_over(facts_of(rows, *groups, **more), 0.05)[partition()]


def positions(*sizes: int, **more: Any) -> FileGroup:
    return file_group(*sizes, kind=Kind.POSITION_DELETES, **more)


def dropped(facts: TableFacts, sequence_number: int, *chosen: list[Partition]) -> list[int]:
    """How many delete files go when each of these is rewritten."""
    return [dropped_by(facts, partitions, sequence_number) for partitions in chosen]


EQUALITY_FIELDS = ("equality_delete_file_count", "equality_delete_record_count")
#: An unpartitioned spec, whose deletes apply to every partition, next to the current one.
GLOBAL = {"specs": (BY_DAY, PartitionSpec(1, ())), "default_spec_id": 0}
HOME, OTHER = Partition(1, ()), partition(FIRST_DAY + 1)


def test_each_data_file_opens_every_later_equality_delete_file() -> None:
    upserts = [
        dataclasses.replace(data(n), **{f: getattr(equality(n), f) for f in EQUALITY_FIELDS})
        for n in (1, 2, 3, 4)
    ]

    # 3 + 2 + 1: a commit's own deletes reach older rows only.
    assert load(upserts) == DeleteLoad(3, 6, 0.0, False, ("equality deletes",), is_least=True)
    assert deletes_over(table_facts()) == {}


def test_deletes_that_key_bounds_rule_out_are_not_opened() -> None:
    ruled_out = (
        dataclasses.replace(row, ruled_out_file_count=n, ruled_out_record_count=10 * n)
        for row, n in ((data(1, files=5), 2), (data(2), 1))
    )
    over = load([*ruled_out, equality(3), equality(4)])

    assert (over.files, over.opens) == (1, 1)


def test_deletes_of_new_keys_are_dropped_with_all_data_that_is_older() -> None:
    new = tuple(
        UnappliedDeletes(of, Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, files, MIB, 9)
        for of, files in ((partition(), 2), (HOME, 5))
    )
    facts = facts_of([data(1), data(1, OTHER)], unapplied=new, **GLOBAL)

    assert dropped(facts, 9, [OTHER], [partition()], [partition(), OTHER]) == [0, 2, 7]


def test_deletes_of_an_unpartitioned_spec_are_opened_everywhere_and_once_at_home() -> None:
    rows = [data(1), data(1, OTHER), data(2, HOME), equality(3, HOME)]
    over = deletes_over(facts_of(rows, **GLOBAL))

    assert {p: (o.files, o.opens) for p, o in over.items()} == dict.fromkeys(
        (partition(), OTHER, HOME), (1, 1)
    )


def test_a_position_delete_file_is_opened_by_data_of_its_own_and_older_commits() -> None:
    rows = [data(1, files=2), data(3), position(2, records=150)]

    assert load(rows, positions(MIB, records_per_file=150)) == DeleteLoad(
        2, 2, 0.5, False, ("position deletes",)
    )


def test_deletes_that_name_one_file_are_opened_once_each() -> None:
    vectors = file_group(
        60, 60, 60, kind=Kind.DELETION_VECTORS, records_per_file=10, file_scoped_count=3
    )
    over = load([data(1, files=4), position(2, 3, 30)], vectors, format_version=3)

    assert over == DeleteLoad(3, 3, 30 / 400, True, ("deletion vectors",))


def test_light_position_deletes_are_not_worth_it_and_equality_deletes_are() -> None:
    rows = [data(1), position(2, records=4)]
    group = positions(MIB, records_per_file=4)

    assert deletes_over(facts_of(rows, group), 0.05) == {}
    assert load([*rows, equality(3)], group).kinds == ("equality deletes",)


def test_more_positions_than_rows_delete_all_of_them_and_nobody_knows_how_many_keys_do() -> None:
    rows = [data(1), position(2, records=1000)]
    by_keys = load([data(1), equality(2)])

    assert load(rows, positions(MIB, records_per_file=1000)).deleted_share == 1.0
    assert (by_keys.deleted_share, by_keys.is_least) == (0.0, True)


def test_a_rewrite_drops_what_no_live_file_is_older_than() -> None:
    rows = [data(1), equality(2), equality(3), data(1, OTHER), equality(2, OTHER)]

    assert dropped(facts_of(rows), 3, [partition()], [partition(), OTHER], []) == [2, 3, 0]


def test_what_dangles_already_goes_with_any_rewrite() -> None:
    dangling = position(3, of=OTHER)
    rows = [data(1), equality(2), data(5, OTHER), equality(2, OTHER), dangling]
    facts = facts_of(rows, positions(MIB, of=OTHER))

    assert dropped(facts, 5, [partition()]) == [3]


def test_position_deletes_of_the_starting_snapshot_itself_stay_unless_they_name_one_file() -> None:
    """An unscoped one at the sequence number that rewritten files keep may apply to them."""
    rows = [data(1), position(2), position(3)]
    shared = facts_of(rows, positions(MIB, MIB))
    scoped = facts_of(rows, positions(MIB, MIB, file_scoped_count=2))

    assert dropped(shared, 3, [partition()]) == [1]
    assert dropped(scoped, 3, [partition()]) == [2]


def test_deletion_vectors_go_with_their_data_file_and_are_counted_once() -> None:
    facts = facts_of(
        [data(1, files=2), position(2, 2, 20)],
        file_group(60, 60, kind=Kind.DELETION_VECTORS, records_per_file=10, file_scoped_count=2),
        format_version=3,
    )

    assert dropped(facts, 2, [partition()], []) == [2, 0]


def test_global_equality_deletes_stay_while_other_partitions_need_them() -> None:
    rows = [data(1), equality(3, HOME)]
    facts = facts_of(rows, **GLOBAL)
    other = facts_of([*rows, data(2, OTHER)], **GLOBAL)

    assert dropped(other, 3, [partition()]) == [0]
    assert dropped(facts, 3, [partition()]) == [1]


def test_a_delete_file_that_several_data_files_open_is_removed_once() -> None:
    """The planner counts it for each data file; a plan never removes more delete files than the
    table has.
    """
    shared = facts_of([data(1, files=2)], positions(MIB, MIB, MIB))
    options = {"delete-ratio-threshold": "0.05"}
    by_ratio = Action("a1", "rewrite_data_files", "lake", ("t",), "", Prediction(), options=options)

    assert [
        delete_files_removed(shared, by_ratio, PlannedRewrite(1, 2, MIB, 1, opens), 3)
        for opens in (None, 2, 3, 6)
    ] == [0, 2, 3, 3]
