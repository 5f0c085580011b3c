"""What is advised follows from the sample and the trial, and a layout that serves its filters is left."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from icekit.engine.planner import PlannedScan
from icekit.facts.metadata import ROW_GROUP, undo_order
from icekit.facts.model import PartitionField, PartitionSpec, SortField, TableFacts
from icekit.facts.where import MOST_PARTITIONS
from icekit.tune import ddl
from icekit.tune.card import script
from icekit.tune.filters import All, Filter, Leaf
from icekit.tune.layout import clustering, found_there
from icekit.tune.layout.advise import (
    OLD_DATA,
    ORDER,
    SPEC,
    LayoutComparison,
    advise_blooms,
    advise_instead,
    advise_layout,
    check_blooms,
    is_confirmed,
    lookups_of,
    needed_bytes,
    unused_blooms,
)
from icekit.tune.layout.clustering import levels, partition_shares
from icekit.tune.layout.model import (
    HILBERT,
    SORT,
    BloomCheck,
    BloomTrial,
    Field,
    LayoutCandidate,
    LayoutOrder,
    OrderDepth,
    Orders,
    Overlap,
    PartitionSpread,
    Sizing,
    TriedLayout,
    own_order,
)
from icekit.tune.layout.rows import LayoutProposal, SampleColumn, best, propose
from tests.factories import BY_DAY, FIRST_DAY, MIB, TARGET, UNPARTITIONED, file_group, partition, table_facts

TABLE = ("prod", "db", "events")
DAY = Field("event_time", "day")
MONTH = Field("event_time", "month")
BY_TIME = (SortField("event_time", "identity", "asc", "nulls-first"),)


def orders(best: LayoutOrder | None, share: float, own: float | None = None, came: float = 1.0) -> Orders:
    step = None if best is None else OrderDepth(best, share, ((best, share),))
    return Orders(came, own, () if step is None else (step,), step)


def candidate(
    spec: tuple[Field, ...], share: float, partitions: int = 10, mean: float = 2000 * MIB, order: LayoutOrder | None = None
) -> LayoutCandidate:
    return LayoutCandidate(spec, share, PartitionSpread(partitions, mean, mean), mean >= TARGET / 2, order)


def tried(share: float, before: float = 1.0, **given: Any) -> TriedLayout:
    made = TriedLayout((DAY,), None, before, share, 40, 40, 20_000 * MIB, 20_000 * MIB, 60.0, is_sample=False, scale=1.0)
    return replace(made, **given)


def advised(facts: TableFacts, proposal: LayoutProposal, found: Orders, specs: list[LayoutCandidate], **given: Any) -> dict[str, Any]:
    """What is advised of a proposal: with what a trial found, if there was one (``tried``), and without one as it is proposed."""
    ran = given.get("tried")
    options: dict[str, Any] = {
        "worn": (),
        "share_now": 1.0,
        "tried": ran,
        "is_kept": ran is None or is_confirmed(facts, proposal, ran),
        **given,
    }
    return {a.setting: a for a in advise_layout(facts, LayoutComparison(proposal=proposal, orders=found, candidates=specs, **options))}


def test_a_layout_that_serves_its_filters_is_left() -> None:
    facts = table_facts(sort_order=BY_TIME)
    found = orders(LayoutOrder(SORT, ("event_time",)), 0.03, own=0.03)

    proposal = propose(facts, (DAY,), own_order(facts), found, [candidate((DAY,), 0.03), candidate((MONTH,), 0.03)], 0.03)

    assert proposal.change((DAY,)) is None
    assert not any(a.is_change for a in advised(facts, proposal, found, [candidate((DAY,), 0.03)], share_now=0.03).values())


def test_a_layout_that_is_nearly_as_good_raises_a_doubt_and_a_clear_winner_none() -> None:
    facts = table_facts()
    found = orders(LayoutOrder(SORT, ("carrier",)), 0.5)

    def doubt(*others: LayoutCandidate) -> str | None:
        return propose(facts, (DAY,), None, found, [candidate((DAY,), 0.5), candidate((MONTH,), 0.1), *others], 1.0).doubt

    assert doubt() is None
    assert doubt(candidate((), 0.3)) is None
    assert "another layout reads about as much (" in str(doubt(candidate((), 0.105)))


def test_a_saving_near_the_limit_raises_a_doubt_on_both_sides() -> None:
    def doubt(share: float) -> str | None:
        found = orders(LayoutOrder(SORT, ("carrier",)), share)
        return propose(table_facts(), (DAY,), None, found, [candidate((DAY,), share)], 1.0).doubt

    assert [doubt(share) is not None for share in (0.9, 0.82, 0.78, 0.5)] == [False, True, True, False]
    assert doubt(0.82) == "on the sample, 100 % → 82 % of the bytes is close to the threshold, a saving of 20 %"


def test_equal_candidates_are_chosen_by_name_whatever_their_order() -> None:
    equal = [candidate((Field(name, "identity"),), 0.1) for name in ("carrier", "dest", "origin")]

    assert {chosen.name for order in itertools.permutations(equal) if (chosen := best(order)) is not None} == {"carrier"}


def test_an_order_is_advised_with_the_rewrite_and_the_way_back() -> None:
    facts, best = table_facts(), LayoutOrder(SORT, ("carrier",))
    found = orders(best, 0.1)
    proposal = propose(facts, (DAY,), None, found, [candidate((DAY,), 0.1)], 1.0)

    got = advised(facts, proposal, found, [candidate((DAY,), 0.1)], tried=tried(0.12, order=best))

    assert got[ORDER].sql == "ALTER TABLE `prod`.`db`.`events` WRITE ORDERED BY `carrier` ASC NULLS FIRST"
    assert got[ORDER].undo == (
        "ALTER TABLE `prod`.`db`.`events` WRITE UNORDERED; ALTER TABLE `prod`.`db`.`events` UNSET TBLPROPERTIES IF EXISTS ('write.distribution-mode')"
    )
    assert "12 %" in got[ORDER].verified
    assert "sort_order => '`carrier` ASC NULLS FIRST'" in got[OLD_DATA].sql
    assert not got[SPEC].is_change


def test_what_a_trial_does_not_bear_out_is_not_advised() -> None:
    facts, best = table_facts(), LayoutOrder(SORT, ("carrier",))
    found = orders(best, 0.1)
    proposal = propose(facts, (DAY,), None, found, [candidate((DAY,), 0.1)], 1.0)

    got = advised(facts, proposal, found, [candidate((DAY,), 0.1)], tried=tried(0.95))
    stopped = advised(facts, proposal, found, [candidate((DAY,), 0.1)], is_kept=False)
    grown = advised(facts, proposal, found, [candidate((DAY,), 0.1)], tried=tried(0.1, bytes_after=90_000 * MIB))

    assert not any(a.is_change for a in (*got.values(), *stopped.values(), *grown.values()))
    assert "did not confirm it" in got[ORDER].evidence


def test_a_curve_is_a_rewrite_and_no_table_setting() -> None:
    facts, best = table_facts(), LayoutOrder(HILBERT, ("carrier", "event_id"))
    found = orders(best, 0.1)
    proposal = propose(facts, (DAY,), None, found, [candidate((DAY,), 0.1)], 1.0)

    got = advised(facts, proposal, found, [candidate((DAY,), 0.1)])

    assert got[ORDER].sql is None
    assert "sort_order => 'hilbert(`carrier`, `event_id`)'" in got[OLD_DATA].sql


def test_a_curve_that_is_no_better_when_tried_gives_way_to_a_sort() -> None:
    curve, sort = LayoutOrder(HILBERT, ("carrier", "event_id")), LayoutOrder(SORT, ("carrier",))
    found = Orders(
        1.0, None, (OrderDepth(sort, 0.2, ((sort, 0.2),)), OrderDepth(curve, 0.1, ((curve, 0.1),))), OrderDepth(curve, 0.1, ((curve, 0.1),))
    )
    proposal = LayoutProposal((DAY,), curve, 0.1)

    simpler = proposal.simpler(found, tried(0.19))

    assert simpler is not None
    assert simpler.order == sort
    assert proposal.simpler(found, tried(0.1)) is None
    assert proposal.simpler(found, None) is None


def test_an_order_that_has_worn_off_is_sorted_again_where_it_has() -> None:
    facts = table_facts(sort_order=BY_TIME)
    found = orders(LayoutOrder(SORT, ("event_time",)), 0.1, own=0.1)
    proposal = propose(facts, (DAY,), own_order(facts), found, [candidate((DAY,), 0.1)], 0.8)
    worn = [Overlap(partition(FIRST_DAY + 9), "event_day=2026-01-10", 40, 400 * MIB, 33.0)]

    got = advised(facts, proposal, found, [candidate((DAY,), 0.1)], share_now=0.8, worn=worn)

    assert proposal.is_worn
    assert not got[ORDER].is_change
    assert "no longer follow it" in got[ORDER].evidence
    assert "strategy => 'sort', where" in got[OLD_DATA].sql
    assert "TIMESTAMP \\'2026-01-10 00:00:00+00:00\\'" in got[OLD_DATA].sql
    assert "33.0 of 40 files" in got[OLD_DATA].evidence


def test_a_spec_must_save_more_than_the_order_does() -> None:
    facts, best = (
        table_facts(specs=(UNPARTITIONED,), groups=(file_group(*[500 * MIB] * 40, of=partition_of()),)),
        LayoutOrder(SORT, ("event_time",)),
    )
    near = propose(facts, (), None, orders(best, 0.10), [candidate((), 0.10), candidate((DAY,), 0.095)], 1.0)
    far = propose(facts, (), None, orders(best, 0.50), [candidate((), 0.50), candidate((DAY,), 0.05)], 1.0)

    assert near.spec == ()
    assert far.spec == (DAY,)
    got = advised(facts, far, orders(best, 0.5), [candidate((), 0.5), candidate((DAY,), 0.05)])
    assert got[SPEC].sql == "ALTER TABLE `prod`.`db`.`events` ADD PARTITION FIELD days(`event_time`)"
    assert got[SPEC].undo == "ALTER TABLE `prod`.`db`.`events` DROP PARTITION FIELD days(`event_time`)"


def partition_of() -> Any:
    from icekit.facts.model import Partition

    return Partition(0, ())


def test_tiny_partitions_are_made_coarser_if_filters_read_no_more() -> None:
    facts = table_facts()
    tiny = candidate((DAY,), 0.05, partitions=400, mean=20 * MIB)

    coarser = propose(facts, (DAY,), None, orders(None, 0), [tiny, candidate((MONTH,), 0.05, 14)], 0.05)
    costly = propose(facts, (DAY,), None, orders(None, 0), [tiny, candidate((MONTH,), 0.5, 14)], 0.05)

    assert coarser.spec == (MONTH,)
    assert costly.spec == (DAY,)
    got = advised(facts, coarser, orders(None, 0), [tiny, candidate((MONTH,), 0.05, 14)], share_now=0.05)
    assert got[SPEC].sql == "ALTER TABLE `prod`.`db`.`events` REPLACE PARTITION FIELD days(`event_time`) WITH months(`event_time`)"


def test_a_large_table_is_rewritten_by_the_portion_or_by_no_statement_at_all() -> None:
    best = LayoutOrder(SORT, ("carrier",))
    days = tuple(file_group(60 << 30, of=partition(FIRST_DAY + n)) for n in range(4))
    large = table_facts(groups=days)
    whole = table_facts(specs=(UNPARTITIONED,), groups=(file_group(200 << 30, of=partition_of()),))
    by_day = propose(large, (DAY,), None, orders(best, 0.1), [candidate((DAY,), 0.1)], 1.0)
    by_none = propose(whole, (), None, orders(best, 0.1), [candidate((), 0.1)], 1.0)

    portion = advised(large, by_day, orders(best, 0.1), [candidate((DAY,), 0.1)])[OLD_DATA]
    remark = advised(whole, by_none, orders(best, 0.1), [candidate((), 0.1)])[OLD_DATA]

    assert "TIMESTAMP \\'2026-01-04 00:00:00+00:00\\'" in portion.sql
    assert "TIMESTAMP \\'2026-01-02 00:00:00+00:00\\'" not in portion.sql
    assert "1 data file" in portion.evidence
    assert remark.sql is None
    assert "your own where" in remark.evidence


def test_a_portion_takes_the_last_partitions_by_number_and_no_more_than_a_predicate_can_name() -> None:
    by_number = PartitionSpec(0, (PartitionField(1000, "event_id", "identity", 1, "event_id", "long"),))
    facts = table_facts(specs=(by_number,), groups=tuple(file_group(MIB, of=partition(n)) for n in (None, 9, 10, 100)))
    many = table_facts(specs=(by_number,), groups=tuple(file_group(1, of=partition(n)) for n in range(3_000)))

    predicate, files = ddl.portion(facts, 2 * MIB)

    assert files == 2
    assert "10L" in str(predicate)
    assert "100L" in str(predicate)
    assert "9L" not in str(predicate)
    assert ddl.portion(many, 1 << 30)[1] == MOST_PARTITIONS


def test_a_spec_that_cannot_be_judged_is_left_and_says_so() -> None:
    facts, month_only = table_facts(), [candidate((DAY, Field("gone", "zorder[3]")), 0.9)]

    got = advised(facts, LayoutProposal((DAY,), None, 0.9), orders(None, 0), month_only)

    assert not got[SPEC].is_change
    assert "cannot be computed" in got[SPEC].evidence


def test_partitions_are_pruned_by_the_spec_they_were_written_with() -> None:
    by_carrier = PartitionSpec(1, (PartitionField(1001, "carrier", "identity", 3, "carrier", "string"),))
    groups = (
        *(file_group(100 * MIB, of=partition(FIRST_DAY + day)) for day in range(2)),
        file_group(200 * MIB, of=partition("UA", spec_id=1)),
    )
    facts = table_facts(specs=(BY_DAY, by_carrier), groups=groups)
    carrier, both = Leaf("carrier", "=", ("AA",)), Leaf("event_time", "<", ((FIRST_DAY + 1) * 86_400_000_000,))
    filters = [Filter("a", carrier), Filter("b", both), Filter("c", All((carrier, both)))]

    assert list(partition_shares(facts, filters).values()) == [0.5, 0.75, 0.25]
    assert not levels(facts, filters, {})[0].is_ignored_by_spec
    assert levels(facts, filters, {})[0].file_share is None


def column(distinct: int, kind: str = "string") -> SampleColumn:
    return SampleColumn.of([f"{n:036}" if kind == "string" else n for n in range(distinct)], kind)


def judged(facts: TableFacts, filters: list[Filter], columns: dict[str, SampleColumn], **by_bounds: float) -> dict[str, BloomCheck]:
    return {c.column: c for c in check_blooms(facts, filters, columns, by_bounds)}


def test_a_bloom_filter_is_for_equality_on_values_too_many_for_a_dictionary() -> None:
    facts = table_facts(columns=(*table_facts().columns,))
    asked = [Filter("carrier", Leaf("carrier", "=", ("x",)))]

    assert judged(facts, asked, {"carrier": column(50_000)})["carrier"].reason is None
    assert "dictionary" in str(judged(facts, asked, {"carrier": SampleColumn.of(["UA", "AA"] * 9, "string")})["carrier"].reason)
    assert "bounds" in str(judged(facts, asked, {"carrier": column(50_000)}, carrier=0.01)["carrier"].reason)
    assert judged(facts, [Filter("r", Leaf("carrier", ">", ("x",)))], {"carrier": column(50_000)}) == {}


def test_a_bloom_filter_that_serves_no_filter_is_taken_off() -> None:
    name = "write.parquet.bloom-filter-enabled.column.carrier"
    facts = table_facts(properties={name: "true"})
    checks = check_blooms(facts, [Filter("id", Leaf("event_id", "=", (7,)))], {}, {})

    (got,) = advise_blooms(facts, checks, {})

    assert got.sql == f"ALTER TABLE `prod`.`db`.`events` UNSET TBLPROPERTIES IF EXISTS ('{name}')"
    assert got.undo == f"ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ('{name}' = 'true')"
    assert "no filter uses" in got.evidence


@pytest.mark.parametrize(
    ("filters", "columns"),
    [
        ([], {}),
        ([Filter("c", Leaf("carrier", "=", ("UA",)))], {}),
        ([Filter("c", Leaf("carrier", "=", ("UA",)))], {"carrier": SampleColumn.of([], "string")}),
    ],
)
def test_a_bloom_filter_stays_while_no_filters_are_known_or_its_column_was_not_sampled(
    filters: list[Filter], columns: dict[str, SampleColumn]
) -> None:
    facts = table_facts(properties={"write.parquet.bloom-filter-enabled.column.carrier": "true"})
    checks = check_blooms(facts, filters, columns, {})

    (got,) = advise_blooms(facts, checks, {})

    assert unused_blooms(facts, checks) == []
    assert not got.is_change
    assert "is not known" in got.evidence


@pytest.mark.parametrize(("rows", "is_advised"), [(1_000, True), (90_000, False)])
def test_a_bloom_filter_is_advised_by_what_lookups_read_with_it(rows: int, is_advised: bool) -> None:
    check = BloomCheck("carrier", False, 1e6, 36e6, None)
    trial = BloomTrial("carrier", 8, 100_000, rows, 10 * MIB, 11 * MIB)

    (got,) = advise_blooms(table_facts(), [check], {"carrier": trial})

    assert got.is_change == is_advised
    assert got.verified is not None
    assert "grew by 10 %" in got.verified


def test_a_bloom_filter_has_the_size_that_its_values_need() -> None:
    # 10 bits a value at 1 %, in powers of two.
    assert needed_bytes(100_000) == 131_072
    assert needed_bytes(1) == 32


def sized(**given: Any) -> Sizing:
    made: dict[str, Any] = {
        "row_bytes": 100.0,
        "columns": 20,
        "row_group_bytes": 128 * MIB,
        "rows_a_group": 1e6,
        "chunk_bytes": 6.4 * MIB,
        "open_files": 1,
        "open_files_from": "not partitioned",
        "heap_bytes": 4096 * MIB,
    }
    return Sizing(**made | given)


def test_smaller_row_groups_are_a_remark_for_writers_with_many_open_files() -> None:
    (fits,) = clustering.advise(table_facts(), sized())
    (many,) = clustering.advise(table_facts(), sized(open_files=100))

    assert str(16 * MIB) not in fits.evidence
    assert str(16 * MIB) in many.evidence
    # The heap is this session's, not that of the table's writers.
    assert (many.proposed, many.sql) == (str(16 * MIB), None)


def test_larger_row_groups_are_a_remark_for_a_table_of_thousands_of_columns() -> None:
    facts = table_facts(properties={ROW_GROUP: str(32 * MIB)})
    narrow = sized(columns=5000, row_group_bytes=32 * MIB, chunk_bytes=32 * MIB / 5000)

    (got,) = clustering.advise(facts, narrow)

    assert str(512 * MIB) in got.evidence
    assert (got.proposed, got.sql) == (str(512 * MIB), None)
    assert str(512 * MIB) not in clustering.advise(facts, replace(narrow, heap_bytes=256 * MIB))[0].evidence


def test_leaving_format_version_1_is_a_remark_as_it_cannot_be_undone() -> None:
    from tests.factories import history

    assert clustering.version(table_facts()) is None
    kept = clustering.version(table_facts(format_version=1))
    raised = clustering.version(table_facts(format_version=1, history=history(operations=(("overwrite", 3),))))
    assert kept is not None
    assert not kept.is_change
    assert raised is not None
    assert not raised.is_change
    assert raised.proposed == "1"
    assert "'format-version' = '2'" in raised.evidence


def test_a_spec_is_changed_field_by_field_and_back() -> None:
    columns = table_facts().by_name
    old, new = (DAY,), (MONTH, Field("event_id", "bucket[16]"))

    assert ddl.change_spec(TABLE, columns, old, new) == (
        "ALTER TABLE `prod`.`db`.`events` REPLACE PARTITION FIELD days(`event_time`) WITH months(`event_time`)",
        "ALTER TABLE `prod`.`db`.`events` ADD PARTITION FIELD bucket(16, `event_id`)",
    )
    assert ddl.change_spec(TABLE, columns, new, old) == (
        "ALTER TABLE `prod`.`db`.`events` REPLACE PARTITION FIELD months(`event_time`) WITH days(`event_time`)",
        "ALTER TABLE `prod`.`db`.`events` DROP PARTITION FIELD bucket(16, `event_id`)",
    )


def test_the_order_that_was_there_comes_back_with_its_distribution() -> None:
    facts = table_facts(sort_order=BY_TIME, properties={"write.distribution-mode": "hash"})

    assert undo_order(TABLE, facts) == (
        "ALTER TABLE `prod`.`db`.`events` WRITE LOCALLY ORDERED BY `event_time` ASC NULLS FIRST; "
        "ALTER TABLE `prod`.`db`.`events` SET TBLPROPERTIES ('write.distribution-mode' = 'hash')"
    )


def test_filters_that_open_nothing_on_a_sample_are_not_compared_there() -> None:
    found, lost = Filter("found", Leaf("carrier", "=", ("UA",))), Filter("lost", Leaf("carrier", "=", ("ZZ",)))

    assert list(found_there({found: PlannedScan(3, MIB, 0), lost: PlannedScan(0, 0, 0)})) == [found]


def test_a_trial_on_a_sample_is_judged_by_what_the_sample_read_before() -> None:
    facts, best = table_facts(), LayoutOrder(SORT, ("carrier",))
    found = orders(best, 0.1)
    proposal = propose(facts, (DAY,), None, found, [candidate((DAY,), 0.1)], 1.0)
    same = tried(0.3, before=0.3, is_sample=True, scale=10.0, files_before=4)

    got = advised(facts, proposal, found, [candidate((DAY,), 0.1)], tried=same)

    assert not any(a.is_change for a in got.values())
    assert "30 % of the bytes on a copied sample of 10 % of the table (30 % in the sample before)" in got[ORDER].verified


def test_a_bloom_filter_is_the_alternative_to_a_new_spec_for_point_lookups_only() -> None:
    check = BloomCheck("event_id", False, 1e6, 36e6, None)
    bucket = (DAY, Field("event_id", "bucket[16]"))
    lookup, range_ = Filter("id", Leaf("event_id", "=", (7,))), Filter("id", Leaf("event_id", ">", (7,)))

    assert lookups_of(bucket, (DAY,), [lookup], [check]) == (check,)
    assert lookups_of(bucket, (DAY,), [lookup, range_], [check]) == ()
    assert lookups_of(bucket, bucket, [lookup], [check]) == ()
    assert lookups_of(bucket, (DAY,), [lookup], [replace(check, reason="it fits into a dictionary")]) == ()


def test_an_alternative_that_the_trial_confirms_is_not_in_the_script() -> None:
    check = BloomCheck("event_id", False, 1e6, 36e6, None)
    good = BloomTrial("event_id", 8, 100_000, 1_000, 10 * MIB, 10 * MIB)

    (instead,) = advise_instead(table_facts(), [check], {"event_id": good})
    none = advise_instead(table_facts(), [check], {"event_id": replace(good, rows_with=90_000)})

    assert instead.is_alternative
    assert instead.evidence.startswith("The cheaper alternative to the new partition spec")
    assert instead.sql is not None
    assert "write.parquet.bloom-filter-enabled.column.event_id" in instead.sql
    assert script(TABLE, {}, (instead,)).sql == ()
    assert none == advise_instead(table_facts(), [check], {}) == []
