"""Which deletes hang over a partition, how often they are opened, and which a rewrite drops."""

import dataclasses
from typing import Any

import pytest

from icekit.engine.planner import PlannedRewrite
from icekit.health.facts.files import FileGroup, SequenceCounts
from icekit.health.facts.integrity import DeleteState, UnappliedDeletes
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import PartitionSpec
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.partition import Partition
from icekit.maintain.action import Action
from icekit.maintain.planning.candidates import (
    DeleteLoad,
    delete_loads,
    dropped_and_dangling_delete_count,
)
from icekit.maintain.planning.table_plan import delete_files_removed, with_dangling_once
from icekit.maintain.prediction import Prediction
from tests.factories import BY_DAY, FIRST_DAY, MIB, file_group, partition, table_facts
from tests.maintain.delete_counts import data, equality, facts_of, position


def over(
    rows: list[SequenceCounts], *groups: FileGroup, **more: object
) -> dict[Partition, DeleteLoad]:
    """Deletes by partition, where position deletes are of a twentieth of the rows or more."""
    return dict(delete_loads(facts_of(rows, *groups, **more), 0.05))


def positions(*sizes: int, **more: Any) -> FileGroup:
    return file_group(*sizes, kind=Kind.POSITION_DELETES, **more)


#: An unpartitioned spec, whose deletes apply to every partition, next to the current one.
GLOBAL = {"specs": (BY_DAY, PartitionSpec(1, ())), "default_spec_id": 0}
DAY, HOME, OTHER = partition(), Partition(1, ()), partition(FIRST_DAY + 1)
UPSERTS = [
    dataclasses.replace(data(n), equality_delete_file_count=1, equality_delete_record_count=10)
    for n in (1, 2, 3, 4)
]
RULED_OUT = [
    dataclasses.replace(row, ruled_out_file_count=n, ruled_out_record_count=10 * n)
    for row, n in ((data(1, files=5), 2), (data(2), 1))
]
VECTORS: dict[str, Any] = {"kind": Kind.DELETION_VECTORS, "records_per_file": 10}


@pytest.mark.parametrize(
    ("by_partition", "load"),
    [
        # 3 + 2 + 1: a commit's own deletes reach older rows only. Nobody knows how many rows.
        (over(UPSERTS), DeleteLoad(3, 6, 0.0, False, ("equality deletes",), is_lower_bound=True)),
        # Not those that key bounds rule out.
        (
            over([*RULED_OUT, equality(3), equality(4)]),
            DeleteLoad(1, 1, 0.0, False, ("equality deletes",), is_lower_bound=True),
        ),
        # Data of its own and older commits.
        (
            over(
                [data(1, files=2), data(3), position(2, records=150)],
                positions(MIB, records_per_file=150),
            ),
            DeleteLoad(2, 2, 0.5, False, ("position deletes",)),
        ),
        # Once each where they name one file.
        (
            over(
                [data(1, files=4), position(2, 3, 30)],
                file_group(60, 60, 60, **VECTORS, file_scoped_count=3),
                format_version=3,
            ),
            DeleteLoad(3, 3, 30 / 400, True, ("deletion vectors",)),
        ),
        # More positions than rows delete all of them.
        (
            over([data(1), position(2, records=1000)], positions(MIB, records_per_file=1000)),
            DeleteLoad(1, 1, 1.0, False, ("position deletes",)),
        ),
    ],
)
def test_each_data_file_opens_the_deletes_that_may_apply_to_it(
    by_partition: dict[Partition, DeleteLoad], load: DeleteLoad
) -> None:
    assert by_partition == {DAY: load}


def test_light_position_deletes_are_not_worth_it_and_equality_deletes_are() -> None:
    rows = [data(1), position(2, records=4)]
    group = positions(MIB, records_per_file=4)

    assert over(rows, group) == delete_loads(table_facts()) == {}
    assert over([*rows, equality(3)], group)[DAY].delete_kinds == ("equality deletes",)


def test_deletes_of_an_unpartitioned_spec_are_opened_everywhere_and_once_at_home() -> None:
    rows = [data(1), data(1, OTHER), data(2, HOME), equality(3, HOME)]

    assert {
        p: (o.data_file_count, o.delete_opens) for p, o in over(rows, **GLOBAL).items()
    } == dict.fromkeys((DAY, OTHER, HOME), (1, 1))


OF_NEW_KEYS = tuple(
    UnappliedDeletes(of, Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, files, MIB, 9)
    for of, files in ((DAY, 2), (HOME, 5))
)
TWO_DAYS = facts_of([data(1), equality(2), equality(3), data(1, OTHER), equality(2, OTHER)])
NEW_KEYS = facts_of([data(1), data(1, OTHER)], unapplied=OF_NEW_KEYS, **GLOBAL)
ALREADY_DANGLING = [
    *(data(1), equality(2), data(5, OTHER), equality(2, OTHER)),
    position(3, of=OTHER),
]
BY_POSITION = [data(1), position(2), position(3)]
BY_VECTORS = facts_of(
    [data(1, files=2), position(2, 2, 20)],
    file_group(60, 60, **VECTORS, file_scoped_count=2),
    format_version=3,
)
GLOBALLY = [data(1), equality(3, HOME)]


@pytest.mark.parametrize(
    ("facts", "sequence_number", "chosen", "dropped"),
    [
        (TWO_DAYS, 3, [DAY], 2),
        (TWO_DAYS, 3, [DAY, OTHER], 3),
        (TWO_DAYS, 3, [], 0),
        # With all data that is older.
        (NEW_KEYS, 9, [OTHER], 0),
        (NEW_KEYS, 9, [DAY], 2),
        (NEW_KEYS, 9, [DAY, OTHER], 7),
        # What dangles already goes with any rewrite.
        (facts_of(ALREADY_DANGLING, positions(MIB, of=OTHER)), 5, [DAY], 3),
        # An unscoped one at the sequence number that rewritten files keep may apply to them.
        (facts_of(BY_POSITION, positions(MIB, MIB)), 3, [DAY], 1),
        (facts_of(BY_POSITION, positions(MIB, MIB, file_scoped_count=2)), 3, [DAY], 2),
        # Vectors go with their data file, and are counted once.
        (BY_VECTORS, 2, [DAY], 2),
        (BY_VECTORS, 2, [], 0),
        # Global ones stay while other partitions need them.
        (facts_of([*GLOBALLY, data(2, OTHER)], **GLOBAL), 3, [DAY], 0),
        (facts_of(GLOBALLY, **GLOBAL), 3, [DAY], 1),
    ],
)
def test_a_rewrite_drops_what_no_live_file_is_older_than(
    facts: TableFacts, sequence_number: int, chosen: list[Partition], dropped: int
) -> None:
    assert dropped_and_dangling_delete_count(facts, chosen, sequence_number) == dropped


def test_a_rewrite_of_some_files_of_a_partition_drops_the_deletes_that_only_those_need() -> None:
    """Files that stay may still need the others."""
    shared = facts_of([data(1, files=2), position(2, files=3)], positions(MIB, MIB, MIB))
    options = {"remove-dangling-deletes": "true"}
    action = Action("a1", "rewrite_data_files", "lake", ("t",), "", Prediction(), partitions=(DAY,))
    some = dataclasses.replace(action, options={**options, "delete-ratio-threshold": "0.05"})
    every = dataclasses.replace(action, options={**options, "delete-file-threshold": "1"})

    def dropped(action: Action, files_in: int) -> int:
        planned = PlannedRewrite(1, files_in, MIB, 1, scoped_deletes=2)
        return delete_files_removed(shared, action, planned, 3)

    assert [dropped(some, 1), dropped(some, 2), dropped(every, 1)] == [2, 3, 3]


def test_deletes_that_go_with_any_rewrite_are_counted_for_the_first_that_removes_some() -> None:
    def counted(*removed: int) -> list[int]:
        actions = [
            Action(
                f"a{number}",
                "rewrite_data_files",
                "lake",
                ("t",),
                "",
                Prediction(delete_files_removed=each),
            )
            for number, each in enumerate(removed)
        ]
        return [action.prediction.delete_files_removed for action in with_dangling_once(actions, 3)]

    assert counted(5, 4, 3) == [5, 1, 0]
    # Those that the planner was not asked about have no number.
    assert counted(0, 5, 0, 4) == [0, 5, 0, 1]
    assert counted() == []
