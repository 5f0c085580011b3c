"""From facts and findings to ordered actions with their exact SQL; nothing runs, and nothing is
asked of an engine.
"""

import datetime as dt
import math
from dataclasses import replace
from typing import Any

import pytest

from icekit.compact.model import NOTHING, Action, Plan, RewriteOrder
from icekit.compact.order import sort_by
from icekit.compact.plan import Predict, plan, saves_nothing
from icekit.compact.policy import Policy
from icekit.compact.selection import conflict_chance
from icekit.compact.skipped import Skipped, SkipReason
from icekit.compact.speed import Speed
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.cluster import Cluster, Executor
from icekit.errors import ParameterError
from icekit.facts.definition import Column, PartitionField, PartitionSpec, SortField
from icekit.facts.files import FileGroup, Kind, Partition
from icekit.facts.model import TableFacts
from icekit.facts.snapshots import Ref
from icekit.maintain.savings import waiting, wins
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    COLUMNS,
    FIRST_DAY,
    GIB,
    MIB,
    NEWER,
    UNPARTITIONED,
    commit,
    file_group,
    finding,
    findings,
    history,
    partition,
    sequence,
    table_facts,
)

SMALL = findings("small_files", "oversized_files")
OLD = findings("old_partition_spec")
SMALL_AND_OLD = Findings((*SMALL, *OLD))
CLUSTER = Cluster(Executor(4, 4 * GIB), 1, "4 cores")


def at(day: int) -> dt.datetime:
    return dt.datetime(2026, 1, day, tzinfo=dt.UTC)


def taken(planned: Plan) -> list[Partition]:
    return [p for action in planned.actions for p in action.partitions]


NOW = at(20)
BEYOND = SkipReason.PLANNER_OVER_BUDGET
DAY_1 = (
    "`event_time` >= TIMESTAMP \\'2026-01-01 00:00:00+00:00\\' AND `event_time` < TIMESTAMP "
    "\\'2026-01-02 00:00:00+00:00\\'"
)


def small(day: int = 1, files: int = 5, size: int = 10 * MIB) -> FileGroup:
    return file_group(*[size] * files, of=partition(FIRST_DAY + day - 1))


def made(facts: TableFacts, named: Findings = SMALL, **options: object) -> Plan:
    policy = {k: options.pop(k) for k in list(options) if k in Policy.__dataclass_fields__}
    return plan(facts, named, Policy(**policy), now=NOW, **options)  # type: ignore[arg-type]


def of(*groups: FileGroup, **more: object) -> TableFacts:
    return table_facts(groups=groups, **more)


FOUR_DAYS = of(*(small(d) for d in range(1, 5)))


def equality(**more: object) -> TableFacts:
    rows = (
        sequence(1, data_file_count=3, data_record_count=300),
        sequence(2, equality_delete_file_count=1, equality_delete_record_count=30),
    )
    groups = (
        file_group(*[500 * MIB] * 3, records_per_file=100),
        file_group(MIB, kind=Kind.EQUALITY_DELETES, records_per_file=30),
    )
    return of(*groups, sequences=rows, **more)


def test_small_files_are_combined_by_the_default_rules() -> None:
    (action,) = made(of(small())).actions

    assert action.sql == (
        f"CALL `prod`.system.rewrite_data_files(table => 'db.events', where => '{DAY_1}', options "
        "=> map('partial-progress.enabled', 'true', 'use-starting-sequence-number', 'false'))"
    )
    assert action.action_id == "a1"
    assert action.title == "rewrite_data_files event_day=2026-01-01"
    assert action.why.startswith("small files in 1 partition: merges small files")
    assert action.prediction.files_in == 5
    assert action.prediction.files_out == 1
    assert action.prediction.source == "facts"


def test_files_under_equality_deletes_are_taken_whatever_their_size_and_the_deletes_dropped() -> (
    None
):
    (action,) = made(equality(), findings("equality_deletes")).actions

    assert action.sql == (
        f"CALL `prod`.system.rewrite_data_files(table => 'db.events', where => '{DAY_1}', options "
        "=> map('partial-progress.enabled', 'true', 'delete-file-threshold', '1', "
        "'use-starting-sequence-number', 'false'))"
    )


def test_deletes_that_name_one_file_are_taken_by_their_ratio() -> None:
    groups = (
        file_group(500 * MIB, records_per_file=100),
        file_group(60, kind=Kind.DELETION_VECTORS, records_per_file=30, file_scoped_count=1),
    )
    (action,) = made(
        of(*groups, format_version=3), findings("deletion_vectors"), delete_ratio=0.1
    ).actions

    assert action.options == {
        "partial-progress.enabled": "true",
        "delete-ratio-threshold": "0.1",
        "remove-dangling-deletes": "true",
    }


def test_a_major_rewrite_takes_every_file_of_the_partition() -> None:
    (action,) = made(of(small(), file_group(of=partition(FIRST_DAY + 1))), scope="major").actions

    assert action.options == {"partial-progress.enabled": "true", "rewrite-all": "true"}
    assert action.partition_names == ("event_day=2026-01-01",)


def test_ordering_rows_names_strategy_and_columns() -> None:
    facts = of(small())
    by_curve = made(facts, strategy="zorder", columns=("carrier", "amount")).actions[0]
    by_columns = made(facts, strategy="sort", columns=("carrier",)).actions[0]

    assert (
        "strategy => 'sort', sort_order => 'zorder(`carrier`, `amount`)', where => " in by_curve.sql
    )
    assert (
        "strategy => 'sort', sort_order => '`carrier` ASC NULLS FIRST', where => " in by_columns.sql
    )
    assert "ordered by zorder(`carrier`, `amount`)" in by_curve.why
    assert by_curve.prediction.shuffle_bytes == by_curve.prediction.bytes_in


def test_rows_are_ordered_by_the_tables_own_order_else_by_its_filter_columns() -> None:
    sorted_by = of(
        small(),
        sort_order=(SortField("carrier", "identity", "asc", "nulls-first"),),
        filter_columns=("amount",),
    )

    assert sort_by(sorted_by, Policy(strategy="sort")) == RewriteOrder("sort")
    assert sort_by(sorted_by, Policy(strategy="hilbert")).by == (("carrier",),)
    assert sort_by(sorted_by, Policy(strategy="hilbert")).sql == "hilbert(`carrier`)"
    assert (
        sort_by(of(small(), filter_columns=("amount",)), Policy(strategy="zorder")).sql
        == "zorder(`amount`)"
    )
    assert "strategy => 'sort', where => " in made(sorted_by, strategy="sort").actions[0].sql


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            {"strategy": "sort", "columns": ("carier",)},
            "no column 'carier'; did you mean carrier",
        ),
        (
            {"strategy": "zorder"},
            r"Name the columns to zorder by .* or set the table property icekit\.filter-columns",
        ),
        # Also where no rows are ordered.
        ({"columns": ("carier",)}, "no column 'carier'; did you mean carrier"),
        ({"columns": ("zz",)}, "no column 'zz'; use one of "),
    ],
)
def test_a_column_that_is_unknown_or_not_named_is_refused_with_what_to_do(
    policy: dict[str, Any], said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        made(of(small()), **policy)


def test_columns_without_an_order_are_not_used() -> None:
    assert "The columns are not used" in " ".join(made(of(small()), columns=("carrier",)).notes)


def test_odd_column_names_are_quoted_part_by_part() -> None:
    columns = (
        *COLUMNS,
        Column(7, "c`d", "string", False, 4, "full"),
        Column(8, "a.b", "string", False, 4, "full", path=("a.b",)),
        Column(9, "s.it's `x`", "string", False, 5, "full", path=("s", "it's `x`")),
    )
    facts = of(
        small(), columns=(*columns, Column(10, "s.x", "int", False, 5, "full", path=("s", "x")))
    )
    order = sort_by(facts, Policy(strategy="sort", columns=("a.b", "s.it's `x`")))

    assert order.sql == "`a.b` ASC NULLS FIRST, `s`.`it's ``x``` ASC NULLS FIRST"
    # A curve through any of these fails in Spark, with an error that names something else.
    for name in ("a.b", "c`d", "s.it's `x`", "s.x"):
        with pytest.raises(ParameterError, match="Use the strategy sort"):
            sort_by(facts, Policy(strategy="zorder", columns=(name,)))


def test_a_healthy_table_gives_a_plan_without_actions() -> None:
    nothing = made(table_facts(), Findings())

    assert not any((nothing.actions, nothing.left_alone, nothing.parallelism, nothing.notes))
    assert nothing.summary == NOTHING
    assert nothing.prediction.files_in == 0


def test_an_unpartitioned_table_is_rewritten_without_a_filter() -> None:
    facts = of(file_group(*[MIB] * 5, of=Partition(0, ())), specs=(UNPARTITIONED,))
    (action,) = made(facts).actions

    assert action.where is None
    assert action.partition_names == ("(unpartitioned)",)


def test_only_a_branch_can_be_rewritten_and_every_action_names_it() -> None:
    refs = (Ref("audit", "branch", 1), Ref("v1", "tag", 1))
    on_branch = of(small(), ref="audit", history=history(refs=refs))

    assert "branch => 'audit'" in made(on_branch).actions[0].sql
    for ref in ("v1", "123456"):
        with pytest.raises(ParameterError, match=f"{ref} is not a branch"):
            made(of(small(), ref=ref, history=history(refs=refs)))


def test_special_actions_stay_on_the_branch_too() -> None:
    on_branch = of(
        small(),
        ref="audit",
        history=history(refs=(Ref("audit", "branch", 1),)),
        specs=(BY_DAY, NEWER),
    )
    named = Findings((finding("old_partition_spec"), finding("dangling_deletes", files_at_stake=3)))
    planned = made(on_branch, named, old_specs=True)

    assert [a.branch for a in planned.actions] == ["audit", "audit"]
    assert [a.action_id for a in planned.actions] == ["a1", "a2"]
    assert planned.catalog == "prod"
    assert planned.ref == "audit"
    assert "branch => 'audit'" in planned.actions[0].sql
    assert planned.actions[1].sql == "icekit compact db.events --catalog prod --ref audit --execute"


@pytest.mark.parametrize(
    ("budget", "covered"),
    [
        ({"budget_bytes": 60 * MIB}, [2]),
        ({"budget_bytes": 130 * MIB}, [2, 1]),
        ({"budget_files": 21}, [2]),
        ({"budget_rows": 1_500_000}, [2]),
        ({"budget_minutes": 1.0}, [2]),
    ],
)
def test_a_budget_covers_what_saves_most_per_byte(
    budget: dict[str, Any], covered: list[int]
) -> None:
    facts = of(small(1, 5, 10 * MIB), small(2, 20, MIB), small(3, 5, 200 * MIB))
    planned = made(facts, speed=Speed(0, 2 * MIB / 2), **budget)

    assert [p.values[0] for p in taken(planned)] == sorted(FIRST_DAY + d - 1 for d in covered)
    assert [left.reason for left in planned.left_alone] == [SkipReason.BUDGET_SPENT]
    assert planned.left_alone[0].partition_count == 3 - len(covered)


def test_a_budget_in_minutes_needs_a_throughput_where_there_is_something_to_do() -> None:
    with pytest.raises(ParameterError, match=r"give the budget in bytes \(budget: 200 GB\)"):
        made(of(small()), budget_minutes=5)
    assert made(table_facts(), budget_minutes=5).actions == ()
    with pytest.raises(ParameterError, match="far smaller than this table's rewrites"):
        made(of(small()), budget_minutes=5, speed=Speed(2.0, 1.0, most_bytes=MIB))


@pytest.mark.parametrize(
    ("budget", "is_enough"),
    [
        ({"budget_bytes": 60 * MIB}, True),
        ({"budget_bytes": 60 * MIB - 1}, False),
        ({"budget_minutes": 1, "speed": Speed(0, MIB)}, True),
        ({"budget_minutes": 1, "speed": Speed(0, MIB - 1)}, False),
        ({"budget_files": 5}, True),
        ({"budget_files": 4}, False),
        # Of two the smaller holds.
        ({"budget_minutes": 1, "speed": Speed(0, MIB), "budget_bytes": 59 * MIB}, False),
        ({"budget_minutes": 0.9, "speed": Speed(0, MIB), "budget_bytes": GIB}, False),
        ({"budget_minutes": 1, "speed": Speed(0, MIB), "budget_bytes": GIB}, True),
    ],
)
def test_a_budget_is_spent_to_its_last_byte_minute_and_file(
    budget: dict[str, Any], is_enough: bool
) -> None:
    assert len(made(of(small(1, 5, 12 * MIB)), **budget).actions) == is_enough


def test_the_last_hours_are_counted_back_from_now() -> None:
    # NOW is the 20th: 18 days before it the 1st has ended, and the 2nd has not.
    planned = made(of(small(1), small(2)), skip_last_hours=18 * 24)

    assert taken(planned) == [partition()]


def test_files_from_before_a_table_was_partitioned_are_left_alone() -> None:
    old = file_group(*[MIB] * 5, of=Partition(0, ()))
    facts = of(old, file_group(of=partition(spec_id=1)), specs=(UNPARTITIONED, NEWER))

    # Nobody knows how many days their rows are of.
    planned = made(facts, SMALL_AND_OLD)
    assert planned.actions == ()
    assert "--old-specs moves all of them" in planned.notes[-1]
    (action,) = made(facts, SMALL_AND_OLD, old_specs=True).actions
    assert (action.where or "").startswith("NOT (`event_time` >= ")
    assert action.prediction.is_maximum


def test_files_that_no_filter_tells_from_the_current_spec_s_are_left_alone() -> None:
    newer = PartitionSpec(1, (PartitionField(1001, "carrier", "identity", 9, None, "string"),))
    facts = of(
        file_group(of=Partition(0, ())),
        file_group(of=Partition(1, ("UA",))),
        specs=(UNPARTITIONED, newer),
    )
    planned = made(facts, OLD, old_specs=True)

    assert planned.actions == ()
    assert planned.left_alone[0].reason == SkipReason.LONG_FILTER


def test_partitions_of_older_specs_are_an_action_of_their_own() -> None:
    now = file_group(*[10 * MIB] * 5, of=partition(FIRST_DAY + 8, spec_id=1))
    planned = made(
        of(small(1), small(2), now, specs=(BY_DAY, NEWER)),
        SMALL_AND_OLD,
    )

    assert [a.partitions for a in sorted(planned.actions, key=lambda a: -len(a.partitions))] == [
        (partition(), partition(FIRST_DAY + 1)),
        (partition(FIRST_DAY + 8, spec_id=1),),
    ]
    assert "only where that saves file opens" in planned.notes[-1]


def test_three_partitions_that_are_left_alone_are_named_and_all_counted() -> None:
    days = [partition(FIRST_DAY + d) for d in range(4)]
    (left,) = made(FOUR_DAYS, recent=days, leave_alone_minutes=60).left_alone

    assert left.partition_count == 4
    assert left.examples == ("event_day=2026-01-01", "event_day=2026-01-02", "event_day=2026-01-03")


def test_partitions_written_lately_or_outside_the_window_are_left_alone() -> None:
    lately = made(of(small(1), small(2)), recent=[partition()], leave_alone_minutes=60)
    outside = made(of(small(1), small(2)), since=at(2))

    assert lately.waits is None
    assert taken(lately) == taken(outside) == [partition(FIRST_DAY + 1)]
    assert lately.left_alone[0].reason == SkipReason.RECENT
    assert outside.left_alone[0].reason == SkipReason.OUTSIDE_WINDOW
    assert lately.left_alone[0].examples == ("event_day=2026-01-01",)


def changed_every(seconds: float, share: float) -> TableFacts:
    """Two small partitions of a table with a commit every so often, of which some overwrite
    files.
    """
    commits = [
        commit(n, operation="overwrite" if n < 100 * share else "append") for n in range(100)
    ]
    return of(small(1), small(2), history=history(*commits, median_seconds_between_commits=seconds))


def test_a_report_counts_only_what_compact_would_run_now_and_says_what_waits() -> None:
    facts = changed_every(60.0, 1.0)
    live = replace(facts, recent=(partition(),))

    assert wins(facts, SMALL).opens_saved == 8
    assert waiting(facts, SMALL) == ""
    assert wins(live, SMALL).opens_saved == 4
    assert waiting(live, SMALL) == (
        "Compaction postpones 1 partition, written within the last 60 minutes, where another "
        "commit may conflict with the rewrite. Rewriting them would spare each full scan 4 file opens."
    )


def test_a_policy_takes_the_limits_of_the_findings_unless_it_sets_its_own() -> None:
    four, limits = (
        of(small(1, files=4)),
        Thresholds(min_input_files=4, delete_ratio=0.5),
    )

    assert Policy(delete_ratio=0.1).within(limits) == limits.with_changes(delete_ratio=0.1)
    assert [
        len(plan(four, SMALL, own, thresholds=limits).actions)
        for own in (Policy(), Policy(min_files=5))
    ] == [1, 0]
    assert made(four, thresholds=limits).actions[0].options["min-input-files"] == "4"


def test_oversized_files_are_split_although_a_scan_opens_more() -> None:
    (action,) = made(of(file_group(3 * GIB))).actions
    predicted = replace(action, prediction=replace(action.prediction, file_opens_saved=-5))

    assert not saves_nothing(predicted)


def test_partitions_written_lately_are_left_alone_where_a_commit_is_likely_to_conflict() -> None:
    days = [partition(), partition(FIRST_DAY + 1)]

    appended = made(changed_every(1.0, 0.0), recent=days)
    nightly = made(changed_every(86_400.0, 1.0), recent=days)
    stream = made(changed_every(60.0, 1.0), recent=days)
    asked = made(changed_every(1.0, 0.0), recent=days, leave_alone_minutes=30)

    assert [len(p.actions) for p in (appended, nightly, stream, asked)] == [1, 1, 0, 0]
    assert [s.reason for s in stream.left_alone] == [SkipReason.LIKELY_CONFLICT]
    assert [s.reason for s in asked.left_alone] == [SkipReason.RECENT]


def test_the_chance_of_a_conflict_counts_the_commits_that_change_files() -> None:
    assert conflict_chance(changed_every(60.0, 0.5), 60.0) == pytest.approx(1 - math.exp(-0.5))
    assert conflict_chance(changed_every(60.0, 0.0), 1e9) == 0.0
    assert conflict_chance(of(small(), history=history(commit())), 60.0) == 0.0


def test_upserts_alone_do_not_conflict_with_a_rewrite_and_so_do_not_count() -> None:
    upserts = [commit(n, operation="overwrite", added_delete_files=1) for n in range(10)]
    overwrite = commit(10, operation="overwrite", removed_data_files=1)

    assert (
        conflict_chance(
            equality(history=history(*upserts, median_seconds_between_commits=60.0)), 60.0
        )
        == 0.0
    )
    assert (
        conflict_chance(
            equality(history=history(*upserts, overwrite, median_seconds_between_commits=60.0)),
            60.0,
        )
        > 0.0
    )


def test_a_partition_is_at_risk_for_as_long_as_the_whole_action_takes() -> None:
    """One commit in five minutes: a partition takes five seconds, a hundred of them minutes."""
    many = [file_group(*[20 * MIB] * 10, of=partition(FIRST_DAY + day)) for day in range(100)]
    commits = [commit(n, operation="overwrite", removed_data_files=1) for n in range(10)]
    lately = history(*commits, median_seconds_between_commits=300.0)

    one, hundred = (
        made(of(*groups, history=lately), recent=[groups[0].partition])
        for groups in (many[:1], many)
    )

    assert len(one.left_alone) == 0
    assert len(hundred.left_alone) == 1


def test_a_plan_whose_candidates_are_all_left_alone_says_what_they_would_save_and_how_to_plan_them() -> (
    None
):
    planned = made(changed_every(10.0, 1.0), recent=[partition(), partition(FIRST_DAY + 1)])
    outside = made(of(small(1)), since=at(2))

    assert planned.waits == (
        "Skipped 2 partitions, written within the last 60 minutes, where another commit may "
        "conflict with the rewrite. Rewriting them would spare each full scan 8 file opens. To "
        "plan them anyway, add --leave-alone '0 minutes'."
    )
    assert planned.summary == planned.waits
    assert "healthy" not in planned._repr_html_()
    assert outside.waits is not None
    assert outside.waits.startswith("Skipped 1 partition, outside the time window.")
    assert "--leave-alone" not in outside.waits
    assert NOTHING not in repr(outside)


def test_a_plan_says_that_the_target_file_size_should_change_first() -> None:
    facts = of(file_group(*[MIB] * 200), properties={"write.target-file-size-bytes": str(MIB)})
    nothing = made(facts, diagnose(facts))
    mixed = of(
        file_group(*[MIB] * 200),
        small(2, 8, MIB // 8),
        properties={"write.target-file-size-bytes": str(MIB)},
    )
    some = made(mixed, diagnose(mixed))

    assert nothing.waits is not None
    assert nothing.waits.startswith(
        "No rewrite helps before the target file size changes: the target file size is 1 MiB"
    )
    assert some.waits is None
    assert any(
        note.startswith("Change the target file size before this plan runs") for note in some.notes
    )


def test_partitions_that_no_filter_can_ask_for_are_left_alone() -> None:
    by_amount = PartitionSpec(
        0, (PartitionField(1000, "amount", "identity", 4, "amount", "double"),)
    )
    nan = made(
        of(
            file_group(*[MIB] * 5, of=partition("nan")),
            file_group(*[MIB] * 5, of=partition(1.5)),
            specs=(by_amount,),
        )
    )
    gone = made(of(small(), columns=COLUMNS[:1]))

    assert taken(nan) == [partition(1.5)]
    assert nan.left_alone[0].reason is SkipReason.NAN
    assert gone.actions == ()
    assert gone.left_alone[0].reason is SkipReason.NO_FILTER


def test_one_action_is_bounded_in_bytes_and_in_partitions() -> None:
    facts = of(*(small(d) for d in range(1, 8)))

    assert [len(a.partitions) for a in made(facts, max_action_partitions=3).actions] == [3, 3, 1]
    assert [len(a.partitions) for a in made(facts, max_action_bytes=100 * MIB).actions] == [
        2,
        2,
        2,
        1,
    ]
    assert [a.action_id for a in made(facts, max_action_partitions=3).actions] == ["a1", "a2", "a3"]
    assert len(made(facts, max_action_bytes=MIB).actions) == 7


def test_partitions_that_are_rewritten_differently_are_actions_of_their_own() -> None:
    facts = equality()
    facts = replace(facts, groups=(*facts.groups, small(2)))
    planned = made(facts, findings("equality_deletes", "small_files"))

    assert {a.options.get("delete-file-threshold"): a.partitions for a in planned.actions} == {
        None: (partition(FIRST_DAY + 1),),
        "1": (partition(),),
    }


def test_deletes_that_dangle_are_dropped_without_a_rewrite() -> None:
    named = Findings(
        (
            finding(
                "dangling_deletes",
                files_at_stake=7,
                evidence="7 of 9 delete files are older than all data",
            ),
        )
    )
    (action,) = made(table_facts(), named).actions

    # No statement: Iceberg's own action drops what no scan was asked about.
    assert action.sql == "icekit compact db.events --catalog prod --execute"
    assert action.only_drops
    assert action.prediction.delete_files_removed == 7
    assert action.prediction.files_in == 0
    assert action.prediction.source == "metadata"
    assert action.why.startswith("7 of 9 delete files are older than all data")


def test_dangling_deletes_have_no_action_of_their_own_where_another_drops_them() -> None:
    assert len(made(equality(), findings("equality_deletes", "dangling_deletes")).actions) == 1


def evolved(**more: object) -> TableFacts:
    return of(
        file_group(*[500 * MIB] * 2, of=partition(FIRST_DAY)),
        file_group(500 * MIB, of=partition(FIRST_DAY + 1, spec_id=1)),
        specs=(BY_DAY, NEWER),
        **more,
    )


def test_files_of_older_specs_move_only_where_that_is_asked() -> None:
    asked = made(evolved(), OLD, old_specs=True)
    (action,) = asked.actions

    first, second, third = (f"TIMESTAMP '2026-01-0{day} 00:00:00+00:00'" for day in (1, 2, 3))
    assert action.unless == f"`event_time` >= {second} AND `event_time` < {third}"
    assert (
        action.where
        == f"(`event_time` >= {first} AND `event_time` < {second}) AND NOT ({action.unless})"
    )
    assert action.options["rewrite-all"] == "true"
    assert made(evolved(), OLD).actions == ()
    assert made(evolved(), Findings(), old_specs=True).actions == ()


def test_a_budget_holds_for_older_specs_too() -> None:
    planned = made(evolved(), OLD, old_specs=True, budget_bytes=GIB // 2)

    assert planned.actions == ()
    assert planned.left_alone == (
        Skipped(SkipReason.TOO_MANY_BYTES, 1, ("event_day=2026-01-01",), GIB // 2, 1000 * MIB),
    )


def test_moving_files_of_older_specs_may_take_the_whole_budget_and_the_planner_is_asked() -> None:
    (action,) = made(
        evolved(), OLD, old_specs=True, budget_bytes=1000 * MIB, predict=planner(1000 * MIB)
    ).actions

    assert action.action_id == "a1"
    assert action.prediction.source == "planner"
    assert (
        made(
            evolved(),
            OLD,
            old_specs=True,
            budget_bytes=1000 * MIB - 1,
            predict=planner(1000 * MIB),
        ).actions
        == ()
    )


def test_actions_have_names_of_their_own_also_where_the_planner_drops_one_between() -> None:
    new = [file_group(*[10 * MIB] * 5, of=partition(FIRST_DAY + d, spec_id=1)) for d in range(2)]
    facts = of(
        file_group(*[500 * MIB] * 2, of=partition(FIRST_DAY)),
        *new,
        specs=(BY_DAY, NEWER),
    )
    asked = []

    def nothing_at_first(action: Action) -> Action:
        asked.append(action)
        return planner(GIB, groups=min(len(asked) - 1, 1))(action)

    planned = made(
        facts, SMALL_AND_OLD, predict=nothing_at_first, old_specs=True, max_action_partitions=1
    )

    # By its name a run finds an action's commits: two of one name would be taken for each other.
    assert len(asked) == 3
    assert [action.action_id for action in planned.actions] == ["a1", "a2"]


def test_changed_limits_become_options() -> None:
    limits = Thresholds(min_file_size_ratio=0.5, max_file_size_ratio=2.0)
    facts = of(file_group(*[10 * MIB] * 3, ratios=limits.size_ratios))
    (action,) = plan(facts, SMALL, Policy(min_files=3), thresholds=limits, now=NOW).actions

    assert action.options == {
        "partial-progress.enabled": "true",
        "min-input-files": "3",
        "min-file-size-bytes": str(256 * MIB),
        "max-file-size-bytes": str(GIB),
    }


def test_the_cluster_decides_how_much_runs_at_once_and_says_why() -> None:
    planned = made(FOUR_DAYS, cluster=CLUSTER)
    (action,) = planned.actions

    assert action.options["max-concurrent-file-group-rewrites"] == "4"
    assert [e.name for e in planned.parallelism] == [
        "max-concurrent-file-group-rewrites",
        "max-file-group-size-bytes",
        "partial-progress.max-commits",
    ]
    assert made(table_facts(), Findings(), cluster=CLUSTER).parallelism == ()


def test_the_cluster_is_asked_for_what_the_rewrite_is() -> None:
    def options(**policy: Any) -> set[str]:
        return set(made(of(small()), cluster=CLUSTER, **policy).actions[0].options)

    assert "max-file-group-size-bytes" in options()
    assert "shuffle-partitions-per-file" in options(strategy="sort", columns=("carrier",))
    # Every file of a partition: the engine's largest group, and no shuffle.
    assert not {"max-file-group-size-bytes", "shuffle-partitions-per-file"} & options(scope="major")


def planner(bytes_per_partition: int, groups: int = 1) -> Predict:
    """An engine that takes so many bytes of each partition."""

    def predict(action: Action) -> Action:
        taken = bytes_per_partition * max(len(action.partitions), 1)
        prediction = replace(action.prediction, bytes_in=taken, groups=groups, source="planner")
        return replace(action, prediction=prediction)

    return predict


def test_the_engines_planner_has_the_last_word() -> None:
    planned = made(of(small()), predict=planner(77))
    nothing = made(of(small()), predict=planner(0, groups=0))

    assert planned.actions[0].prediction.bytes_in == 77
    assert planned.actions[0].prediction.source == "planner"
    assert nothing.actions == ()
    assert nothing.left_alone[0].reason == SkipReason.PLANNER_FINDS_NOTHING


def eight_files_each(action: Action) -> Action:
    """An engine that takes eight files of each partition."""
    return replace(
        action, prediction=replace(action.prediction, files_in=8 * len(action.partitions))
    )


@pytest.mark.parametrize(
    ("predict", "budget", "left"),
    [
        (planner(80 * MIB), {"budget_bytes": 200 * MIB}, [(BEYOND, 2)]),
        (planner(80 * MIB), {"budget_minutes": 1.0}, [(BEYOND, 2)]),
        # Facts say five files each, so that three partitions fit.
        (eight_files_each, {"budget_files": 16}, [(SkipReason.BUDGET_SPENT, 1), (BEYOND, 1)]),
    ],
)
def test_a_plan_is_cut_until_the_planners_figure_is_within_the_budget(
    predict: Predict, budget: dict[str, Any], left: list[tuple[SkipReason, int]]
) -> None:
    planned = made(FOUR_DAYS, predict=predict, speed=Speed(0, 200 * MIB / 60), **budget)

    assert [len(a.partitions) for a in planned.actions] == [2]
    assert [(each.reason, each.partition_count) for each in planned.left_alone] == left


@pytest.mark.parametrize(
    ("predict", "budget"),
    [(planner(80 * MIB), {"budget_bytes": 200 * MIB}), (eight_files_each, {"budget_files": 20})],
)
def test_each_action_has_what_those_before_it_left_of_the_budget(
    predict: Predict, budget: dict[str, Any]
) -> None:
    planned = made(FOUR_DAYS, predict=predict, max_action_partitions=1, **budget)

    # Facts say 50 MiB in five files each, and all four fit; the planner's third does not.
    assert [len(a.partitions) for a in planned.actions] == [1, 1]
    assert [left.partition_count for left in planned.left_alone] == [1, 1]


def test_what_does_not_fit_the_budget_at_all_is_left_alone() -> None:
    planned = made(of(small()), predict=planner(GIB), budget_bytes=200 * MIB)

    assert planned.actions == ()
    assert planned.left_alone[0].reason == BEYOND


def test_notes_say_what_share_is_read_and_how_likely_a_conflict_is() -> None:
    rivals = history(
        *(commit(n, operation="overwrite" if n % 2 else "append") for n in reversed(range(20)))
    )
    notes = made(of(small(), history=rivals), predict=planner(10 * MIB)).notes

    assert any("20 % of the table" in n for n in notes)
    assert any("50 % of the last 20 delete, overwrite or replace files" in n for n in notes)
    assert "the engine's planner was not asked" in " ".join(made(of(small())).notes)


def test_rivals_are_counted_among_the_last_hundred_commits() -> None:
    old = history(
        *(commit(n, operation="overwrite" if n == 100 else "append") for n in reversed(range(101)))
    )

    assert (
        made(of(small(), history=old)).notes[0]
        == "No recent commit could conflict with this rewrite."
    )
    assert not any("Commits are" in n for n in made(of(small(), history=history(commit(0)))).notes)


def test_the_plan_is_of_the_snapshot_that_was_looked_at() -> None:
    planned = made(of(small()))

    assert planned.snapshot_id == 9_000_000_000_000_000_000
    assert planned.table_uuid == "3f1b8e8e-0000-4000-8000-000000000001"
    assert planned.ref is None
    assert planned.made_at_ms == int(NOW.timestamp() * 1000)


def test_an_optimizer_that_manages_the_table_is_named_before_anything_runs() -> None:
    managed = of(small(), properties={"self-optimizing.enabled": "true"})

    assert (
        "Another optimizer may manage this table: the table property self-optimizing.enabled is "
        "of Apache Amoro" in " ".join(made(managed).notes)
    )
    assert "optimizer" not in " ".join(made(table_facts(properties=managed.properties)).notes)


def test_rows_stand_next_to_bytes_and_the_planners_bytes_scale_them() -> None:
    facts = of(small())
    planned = made(facts, predict=planner(10 * MIB))

    assert made(facts).prediction.rows_in == 5_000_000
    assert "about 5,000,000 rows" in " ".join(made(facts).notes)
    assert planned.actions[0].prediction.rows_in == 5_000_000, (
        "this planner says nothing about rows"
    )


@pytest.mark.parametrize(
    ("strategy", "more", "columns", "why"),
    [
        (
            "zorder",
            Column(9, "icezvalue", "int", False, 4, "full"),
            ("amount",),
            "the table has a column named ICEZVALUE",
        ),
        (
            "hilbert",
            Column(9, "ICEHVALUE", "int", False, 4, "full"),
            ("amount",),
            "the table has a column named ICEHVALUE",
        ),
        (
            "zorder",
            Column(9, "price", "decimal(9, 2)", False, 4, "full"),
            ("amount", "price"),
            r"no bytes for the type of price \(decimal\(9, 2\)\)",
        ),
    ],
)
def test_what_icebergs_action_refuses_of_a_curve_the_plan_refuses(
    strategy: str, more: Column, columns: tuple[str, ...], why: str
) -> None:
    facts = of(small(), columns=(*COLUMNS, more))

    with pytest.raises(ParameterError, match=rf"{why}.* Use the strategy sort\."):
        made(facts, strategy=strategy, columns=columns)
    assert made(facts, strategy="sort", columns=columns).actions


def test_a_curve_through_identity_partition_columns_alone_is_refused() -> None:
    facts = of(file_group(*[MIB] * 9, of=partition("UA")), specs=(BY_CARRIER,))

    with pytest.raises(ParameterError, match="all columns are identity partition columns"):
        made(facts, strategy="zorder", columns=("carrier",))
    assert made(facts, strategy="zorder", columns=("carrier", "amount")).actions
