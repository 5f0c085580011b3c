"""Which deletes hang over a partition, how often they are opened, and which a rewrite drops."""

import dataclasses

from icekit.compact.candidates import DeleteLoad, deletes_over, dropped_by
from icekit.compact.model import Action, Prediction, predicted
from icekit.compact.service import delete_files_removed
from icekit.engine.planner import PlannedRewrite
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import FileGroup, Kind, Partition, SequenceCounts
from icekit.facts.integrity import DeleteState, UnappliedDeletes
from icekit.facts.model import TableFacts
from tests.factories import (
    BY_DAY,
    FIRST_DAY,
    MIB,
    UNPARTITIONED,
    file_group,
    partition,
    sequence,
    table_facts,
)


def facts_of(rows: list[SequenceCounts], *groups: FileGroup, **more: object) -> TableFacts:
    """Facts of the sequence counts; data and equality delete files follow from them, per
    partition.
    """
    made = list(groups)
    for each in dict.fromkeys(r.partition for r in rows):
        data = sum(r.data_file_count for r in rows if r.partition == each)
        equality = sum(r.equality_delete_file_count for r in rows if r.partition == each)
        if data and not any(g.kind is Kind.DATA and g.partition == each for g in groups):
            made.append(file_group(*[500 * MIB] * data, of=each, records_per_file=100))
        if equality:
            made.append(
                file_group(
                    *[MIB] * equality, kind=Kind.EQUALITY_DELETES, of=each, records_per_file=10
                )
            )
    return table_facts(groups=tuple(made), sequences=tuple(rows), **more)


def data(number: int, of: Partition | None = None, files: int = 1) -> SequenceCounts:
    return sequence(number, of, data_file_count=files, data_record_count=100 * files)


def equality(number: int, of: Partition | None = None) -> SequenceCounts:
    return sequence(number, of, equality_delete_file_count=1, equality_delete_record_count=10)


def test_a_table_without_deletes_has_none_over_it() -> None:
    assert deletes_over(table_facts()) == {}


def test_each_data_file_opens_every_later_equality_delete_file() -> None:
    upserts = [
        sequence(
            n,
            data_file_count=1,
            data_record_count=100,
            equality_delete_file_count=1,
            equality_delete_record_count=10,
        )
        for n in (1, 2, 3, 4)
    ]
    over = deletes_over(facts_of(upserts))[partition()]

    # 3 + 2 + 1: a commit's own deletes reach older rows only.
    assert over == DeleteLoad(3, 6, 0.0, False, ("equality deletes",), is_least=True)


def test_deletes_that_key_bounds_rule_out_are_not_opened() -> None:
    upserts = [data(1, files=5), data(2), equality(3), equality(4)]
    upserts[0] = dataclasses.replace(upserts[0], ruled_out_file_count=2, ruled_out_record_count=20)
    upserts[1] = dataclasses.replace(upserts[1], ruled_out_file_count=1, ruled_out_record_count=10)
    over = deletes_over(facts_of(upserts))[partition()]

    assert over.files == 1
    assert over.opens == 1


def test_deletes_of_new_keys_are_dropped_with_all_data_that_is_older() -> None:
    rest, home = partition(FIRST_DAY + 1), Partition(1, ())
    new = [
        UnappliedDeletes(of, Kind.EQUALITY_DELETES, DeleteState.NEW_KEYS, files, MIB, 9)
        for of, files in ((partition(), 2), (home, 5))
    ]
    specs = (BY_DAY, PartitionSpec(1, UNPARTITIONED.fields))
    facts = facts_of([data(1), data(1, rest)], unapplied=tuple(new), specs=specs, default_spec_id=0)

    assert [
        dropped_by(facts, chosen, 9) for chosen in ([rest], [partition()], [partition(), rest])
    ] == [0, 2, 7]


def test_a_prediction_with_equality_deletes_promises_no_exact_bytes_or_file_opens() -> None:
    sure = Prediction(9, 900 * MIB, 2, 800 * MIB, delete_files_removed=5, file_opens_saved=40)

    assert predicted(sure).startswith(
        "9 files (900 MiB) become 2, in all 800 MiB, 5 delete files removed; a full scan opens 40 "
        "files fewer"
    )
    assert predicted(dataclasses.replace(sure, is_maximum=True)).startswith(
        "9 files (900 MiB) become at most 2, in all at most 800 MiB, 5 delete files removed; a full "
        "scan opens about 40 files fewer"
    )


def test_deletes_of_an_unpartitioned_spec_are_opened_everywhere_and_once_at_home() -> None:
    home = Partition(1, ())
    rows = [data(1), data(1, partition(FIRST_DAY + 1)), data(2, home), equality(3, home)]
    over = deletes_over(
        facts_of(rows, specs=(BY_DAY, PartitionSpec(1, UNPARTITIONED.fields)), default_spec_id=0)
    )

    assert {p: (o.files, o.opens) for p, o in over.items()} == {
        partition(): (1, 1),
        partition(FIRST_DAY + 1): (1, 1),
        home: (1, 1),
    }


def test_a_position_delete_file_is_opened_by_data_of_its_own_and_older_commits() -> None:
    rows = [
        data(1, files=2),
        data(3),
        sequence(2, position_delete_file_count=1, position_delete_record_count=150),
    ]
    shared = facts_of(rows, file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=150))
    over = deletes_over(shared, 0.05)[partition()]

    assert over == DeleteLoad(2, 2, 0.5, False, ("position deletes",))


def test_deletes_that_name_one_file_are_opened_once_each() -> None:
    rows = [
        data(1, files=4),
        sequence(2, position_delete_file_count=3, position_delete_record_count=30),
    ]
    vectors = facts_of(
        rows,
        file_group(
            60, 60, 60, kind=Kind.DELETION_VECTORS, records_per_file=10, file_scoped_count=3
        ),
        format_version=3,
    )

    assert deletes_over(vectors, 0.05)[partition()] == DeleteLoad(
        3, 3, 30 / 400, True, ("deletion vectors",)
    )


def test_light_position_deletes_are_not_worth_it_and_equality_deletes_are() -> None:
    rows = [data(1), sequence(2, position_delete_file_count=1, position_delete_record_count=4)]
    group = file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=4)

    assert deletes_over(facts_of(rows, group), 0.05) == {}
    assert deletes_over(facts_of([*rows, equality(3)], group), 0.05)[partition()].kinds == (
        "equality deletes",
    )


def test_more_positions_than_rows_delete_all_of_them_and_nobody_knows_how_many_keys_do() -> None:
    rows = [data(1), sequence(2, position_delete_file_count=1, position_delete_record_count=1000)]
    keys = [data(1), sequence(2, equality_delete_file_count=1, equality_delete_record_count=1000)]
    positions = facts_of(rows, file_group(MIB, kind=Kind.POSITION_DELETES, records_per_file=1000))

    assert deletes_over(positions)[partition()].deleted_share == 1.0
    assert deletes_over(facts_of(keys))[partition()].deleted_share == 0.0
    assert deletes_over(facts_of(keys))[partition()].is_least


def test_a_rewrite_drops_what_no_live_file_is_older_than() -> None:
    other = partition(FIRST_DAY + 1)
    rows = [data(1), equality(2), equality(3), data(1, other), equality(2, other)]
    facts = facts_of(rows)

    assert dropped_by(facts, [partition()], 3) == 2
    assert dropped_by(facts, [partition(), other], 3) == 3
    assert dropped_by(facts, [], 3) == 0


def test_what_dangles_already_goes_with_any_rewrite() -> None:
    other = partition(FIRST_DAY + 1)
    rows = [
        data(1),
        equality(2),
        data(5, other),
        equality(2, other),
        sequence(3, other, position_delete_file_count=1),
    ]
    facts = facts_of(rows, file_group(MIB, kind=Kind.POSITION_DELETES, of=other))

    assert dropped_by(facts, [partition()], 5) == 3


def test_position_deletes_of_the_starting_snapshot_itself_stay_unless_they_name_one_file() -> None:
    """An unscoped one at the sequence number that rewritten files keep may apply to them."""
    rows = [
        data(1),
        sequence(2, position_delete_file_count=1, position_delete_record_count=10),
        sequence(3, position_delete_file_count=1, position_delete_record_count=10),
    ]
    shared = facts_of(rows, file_group(MIB, MIB, kind=Kind.POSITION_DELETES))
    scoped = facts_of(rows, file_group(MIB, MIB, kind=Kind.POSITION_DELETES, file_scoped_count=2))

    assert dropped_by(shared, [partition()], 3) == 1
    assert dropped_by(scoped, [partition()], 3) == 2


def test_deletion_vectors_go_with_their_data_file_and_are_counted_once() -> None:
    rows = [
        data(1, files=2),
        sequence(2, position_delete_file_count=2, position_delete_record_count=20),
    ]
    facts = facts_of(
        rows,
        file_group(60, 60, kind=Kind.DELETION_VECTORS, records_per_file=10, file_scoped_count=2),
        format_version=3,
    )

    assert dropped_by(facts, [partition()], 2) == 2
    assert dropped_by(facts, [], 2) == 0


def test_global_equality_deletes_stay_while_other_partitions_need_them() -> None:
    home = Partition(1, ())
    rows = [data(1), equality(3, home)]
    specs = (BY_DAY, PartitionSpec(1, ()))
    facts = facts_of(rows, specs=specs, default_spec_id=0)
    other = facts_of([*rows, data(2, partition(FIRST_DAY + 1))], specs=specs, default_spec_id=0)

    assert dropped_by(other, [partition()], 3) == 0
    assert dropped_by(facts, [partition()], 3) == 1


def test_a_delete_file_that_several_data_files_open_is_removed_once() -> None:
    """The planner counts it for each data file; a plan never removes more delete files than the
    table has.
    """
    shared = facts_of([data(1, files=2)], file_group(MIB, MIB, MIB, kind=Kind.POSITION_DELETES))
    by_ratio = Action(
        "a1",
        "rewrite_data_files",
        "lake",
        ("db", "events"),
        "vectors",
        Prediction(),
        options={"delete-ratio-threshold": "0.05"},
    )

    assert [
        delete_files_removed(shared, by_ratio, PlannedRewrite(1, 2, MIB, 1, opens), 3)
        for opens in (None, 2, 3, 6)
    ] == [0, 2, 3, 3]
