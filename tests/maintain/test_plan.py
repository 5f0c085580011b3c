"""From facts and findings to ordered actions with their exact SQL; nothing runs, and nothing is
asked of an engine.
"""

import datetime as dt
import math
from dataclasses import replace
from typing import Any

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ParameterError
from icekit.engine.cluster import Cluster, Executor
from icekit.engine.column_types import Engine
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.files import FileGroup
from icekit.health.facts.integrity import DeleteState, UnappliedDeletes
from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column, PartitionField, PartitionSpec, SortField
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.filter_opens import FilterOpens
from icekit.iceberg.manifest_counts import MetricsSample
from icekit.iceberg.partition import Partition
from icekit.iceberg.snapshots import Ref
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import Speed
from icekit.maintain.plan import NOTHING, Plan, Skipped, SkipReason
from icekit.maintain.planning.candidates import candidates
from icekit.maintain.planning.compaction import Predict, plan, row_order
from icekit.maintain.planning.file_order import file_order_column
from icekit.maintain.planning.savings import savings_of, waiting_sentence
from icekit.maintain.planning.selection import conflict_chance
from icekit.maintain.policy import thresholds_of
from icekit.maintain.prediction import Certainty, Prediction
from icekit.maintain.run.trial import without_gain
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from icekit.show.charts import candidate_grid
from tests.factories import (
    BY_CARRIER,
    BY_DAY,
    COLUMNS,
    FIRST_DAY,
    GIB,
    MIB,
    NEWER,
    UNPARTITIONED,
    column_sample,
    commit,
    file_group,
    finding,
    findings,
    history,
    partition,
    table_facts,
)
from tests.maintain.delete_counts import SMALL, of, under_equality_deletes
from tests.maintain.policies import policy_of

OLD = findings("old_partition_spec")
SMALL_AND_OLD = Findings((*SMALL, *OLD))
CLUSTER = Cluster(Executor(4, 4 * GIB), 1, "4 cores")
NOW = dt.datetime(2026, 1, 20, tzinfo=dt.UTC)
SECOND = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
DAY_1 = (
    "`event_time` >= TIMESTAMP \\'2026-01-01 00:00:00+00:00\\' AND `event_time` < TIMESTAMP "
    "\\'2026-01-02 00:00:00+00:00\\'"
)


def taken(planned: Plan) -> list[Partition]:
    return [p for action in planned.actions for p in action.partitions]


def left(planned: Plan) -> list[tuple[SkipReason, int]]:
    return [(skipped.reason, skipped.partition_count) for skipped in planned.left_alone]


def small(day: int = 1, files: int = 5, size: int = 10 * MIB) -> FileGroup:
    return file_group(*[size] * files, of=partition(FIRST_DAY + day - 1))


def position_deletes_of(share: float) -> tuple[FileGroup, FileGroup]:
    """A well-sized data file, and a delete file that names it, for a share of its rows."""
    rows = 1_000_000
    deletes = file_group(
        MIB,
        kind=Kind.POSITION_DELETES,
        records_per_file=int(rows * share),
        file_scoped_count=1,
    )
    return file_group(500 * MIB, records_per_file=rows), deletes


def made(facts: TableFacts, named: Findings = SMALL, **options: object) -> Plan:
    every = vars(CompactionPolicy())
    policy = {k: options.pop(k) for k in list(options) if k in every}
    return plan(facts, named, policy_of(policy), now=NOW, **options)  # type: ignore[arg-type]


ONE_DAY = of(small())
TWO_DAYS = of(small(1), small(2))
FOUR_DAYS = of(*(small(d) for d in range(1, 5)))

SEVEN_DANGLE = UnappliedDeletes(partition(), Kind.EQUALITY_DELETES, DeleteState.DANGLING, 7, MIB, 9)


def test_small_files_are_combined_by_the_default_rules() -> None:
    planned = made(ONE_DAY)
    (action,) = planned.actions

    assert action.sql == (
        f"CALL `prod`.system.rewrite_data_files(table => 'db.events', where => '{DAY_1}', options "
        "=> map('partial-progress.enabled', 'true', 'use-starting-sequence-number', 'false'))"
    )
    assert action.action_id == "a1"
    assert action.title == "rewrite_data_files event_day=2026-01-01"
    assert action.why.startswith("small files in 1 partition: merges small files")
    assert action.prediction == Prediction(
        *(5, 50 * MIB, 1, 50 * MIB), groups=1, file_opens_saved=4, rows_in=5_000_000
    )
    # The plan is of the snapshot that was looked at.
    assert planned.snapshot_id == 9_000_000_000_000_000_000
    assert planned.table_uuid == "3f1b8e8e-0000-4000-8000-000000000001"
    assert planned.ref is None
    assert planned.made_at_ms == int(NOW.timestamp() * 1000)


VECTORS = of(
    file_group(500 * MIB, records_per_file=100),
    file_group(60, kind=Kind.DELETION_VECTORS, records_per_file=30, file_scoped_count=1),
    format_version=3,
)
LIMITS = Thresholds(min_file_size_ratio=0.5, max_file_size_ratio=2.0)
OTHER_SIZES = of(file_group(*[10 * MIB] * 3, ratios=LIMITS.size_ratios))


@pytest.mark.parametrize(
    ("facts", "named", "how", "options"),
    [
        (
            under_equality_deletes(),
            findings("equality_deletes", "dangling_deletes"),
            {},
            {"delete-file-threshold": "1", "remove-dangling-deletes": "true"},
        ),
        (
            VECTORS,
            findings("deletion_vectors"),
            {"delete_ratio": 0.1},
            {"delete-ratio-threshold": "0.1", "remove-dangling-deletes": "true"},
        ),
        # By size, too, a rewrite may take the last data file that a delete applies to.
        (
            of(small(), file_group(60, kind=Kind.DELETION_VECTORS), format_version=3),
            SMALL,
            {},
            {"remove-dangling-deletes": "true"},
        ),
        (
            of(small(), file_group(of=partition(FIRST_DAY + 1))),
            SMALL,
            {"scope": "major"},
            {"rewrite-all": "true"},
        ),
        (
            OTHER_SIZES,
            SMALL,
            {"min_files": 3, "thresholds": LIMITS},
            {
                "min-input-files": "3",
                "min-file-size-bytes": str(256 * MIB),
                "max-file-size-bytes": str(GIB),
            },
        ),
    ],
)
def test_options_say_which_files_of_the_partitions_are_taken(
    facts: TableFacts, named: Findings, how: dict[str, Any], options: dict[str, str]
) -> None:
    (action,) = made(facts, named, **how).actions
    expected = {"partial-progress.enabled": "true", **options}

    assert action.options.items() >= expected.items()
    assert action.options.keys() - expected.keys() <= {"use-starting-sequence-number"}
    assert action.partition_names == ("event_day=2026-01-01",)


def test_ordering_rows_names_strategy_and_columns() -> None:
    by_curve = made(ONE_DAY, strategy="zorder", columns=("carrier", "amount")).actions[0]
    by_columns = made(ONE_DAY, strategy="sort", columns=("carrier",)).actions[0]

    assert "'sort', sort_order => 'zorder(`carrier`, `amount`)', where => " in by_curve.sql
    assert "'sort', sort_order => '`carrier` ASC NULLS FIRST', where => " in by_columns.sql
    assert "ordered by zorder(`carrier`, `amount`)" in by_curve.why
    assert by_curve.prediction.shuffle_bytes == by_curve.prediction.bytes_in
    assert "The columns are not used" in " ".join(made(ONE_DAY, columns=("carrier",)).notes)


def test_rows_are_ordered_by_the_tables_own_order_else_by_its_filter_columns() -> None:
    sorted_by = of(
        small(),
        sort_order=(SortField("carrier", "identity", "asc", "nulls-first"),),
        filter_columns=("amount",),
    )
    filtered_by = of(small(), filter_columns=("amount",))

    assert row_order(sorted_by, CompactionPolicy(strategy="sort")) == RewriteOrder("sort")
    assert row_order(sorted_by, CompactionPolicy(strategy="hilbert")).sql == "hilbert(`carrier`)"
    assert row_order(filtered_by, CompactionPolicy(strategy="zorder")).sql == "zorder(`amount`)"
    assert "strategy => 'sort', where => " in made(sorted_by, strategy="sort").actions[0].sql


#: Columns with odd names: a curve through any of them fails in Spark, with an error that names
#: something else.
ODD = (
    Column(7, "c`d", "string", False, 4, "full"),
    Column(8, "a.b", "string", False, 4, "full", path=("a.b",)),
    Column(9, "s.it's `x`", "string", False, 5, "full", path=("s", "it's `x`")),
    Column(10, "s.x", "int", False, 5, "full", path=("s", "x")),
)
OPAQUE = (
    Column(11, "v", "variant", False, 6, "full"),
    Column(12, "g", "geometry(OGC:CRS84)", False, 7, "full"),
    Column(13, "l.element", "int", False, 8, "full", is_in_structs=False),
)
PRICE = Column(9, "price", "decimal(9, 2)", False, 4, "full")


@pytest.mark.parametrize(
    ("policy", "columns", "problem"),
    [
        ({"strategy": "sort", "columns": ("carier",)}, (), "no column 'carier'; did you mean carr"),
        # Also where no rows are ordered.
        ({"columns": ("carier",)}, (), "no column 'carier'; did you mean carrier"),
        (
            {"strategy": "zorder"},
            (),
            r"Name the columns to zorder by .* or set the table property icekit\.filter-columns",
        ),
        *(
            (
                {"strategy": strategy, "columns": ("amount", "price")},
                (PRICE,),
                r"no order for the type of price \(decimal\(9, 2\)\)\. Use the strategy sort\.",
            )
            for strategy in ("zorder", "hilbert")
        ),
        *(
            ({"strategy": strategy, "columns": (column.name,)}, ODD, "Use the strategy sort")
            for column in ODD
            for strategy in ("zorder", "hilbert")
        ),
        *(
            ({"strategy": strategy, "columns": (column.name,)}, OPAQUE, "Use other columns")
            for column in OPAQUE
            for strategy in ("sort", "zorder", "hilbert")
        ),
        (
            {"strategy": "zorder", "columns": ("amount",)},
            (Column(9, "IceZValue", "int", False, 4, "full"),),
            "adds a column of the name of IceZValue while it orders rows. Use the strategy sort",
        ),
        (
            {"strategy": "hilbert", "columns": ("amount",)},
            (Column(9, "ICEHVALUE", "int", False, 4, "full"),),
            "adds a column of the name of ICEHVALUE",
        ),
    ],
)
def test_an_order_that_cannot_be_made_is_refused_with_what_to_do(
    policy: dict[str, Any], columns: tuple[Column, ...], problem: str
) -> None:
    with pytest.raises(ParameterError, match=problem):
        made(of(small(), columns=(*COLUMNS, *columns)), **policy)


def test_a_hilbert_curve_is_planned_only_where_iceberg_has_one() -> None:
    policy: dict[str, Any] = {"strategy": "hilbert", "columns": ("amount", "carrier")}
    assert made(of(small()), **policy).actions
    for engine in (Engine("4.0", "1.11.0"), Engine("4.1", "1.11.0"), Engine("3.5", "1.12.0")):
        with pytest.raises(ParameterError, match=f"{engine} has no Hilbert curve; .* Use the "):
            made(replace(of(small()), engine=engine), **policy)


def test_a_curve_through_identity_partition_columns_alone_is_refused() -> None:
    facts = of(file_group(*[MIB] * 9, of=partition("UA")), specs=(BY_CARRIER,))

    with pytest.raises(ParameterError, match="all columns are identity partition columns"):
        made(facts, strategy="zorder", columns=("carrier",))
    assert made(facts, strategy="zorder", columns=("carrier", "amount")).actions


def test_odd_column_names_are_quoted_part_by_part() -> None:
    facts = of(small(), columns=(*COLUMNS, *ODD))
    order = row_order(facts, CompactionPolicy(strategy="sort", columns=("a.b", "s.it's `x`")))

    assert order.sql == "`a.b` ASC NULLS FIRST, `s`.`it's ``x``` ASC NULLS FIRST"


def test_a_plan_covers_the_candidates_whose_partitions_it_takes() -> None:
    every = candidates(FOUR_DAYS, SMALL, CompactionPolicy(), Thresholds())

    assert all(candidate_grid(FOUR_DAYS, every, made(FOUR_DAYS))["in_plan"])
    within = candidate_grid(FOUR_DAYS, every, made(FOUR_DAYS, budget_files=12))
    assert within["in_plan"] == [True, True, False, False]


def test_a_healthy_table_gives_a_plan_without_actions() -> None:
    nothing = made(table_facts(), Findings(), cluster=CLUSTER)

    assert not any((nothing.actions, nothing.left_alone, nothing.parallelism, nothing.notes))
    assert nothing.summary == NOTHING
    assert nothing.prediction.files_in == 0


def test_an_unpartitioned_table_is_rewritten_without_a_filter() -> None:
    facts = of(file_group(*[MIB] * 5, of=Partition(0, ())), specs=(UNPARTITIONED,))
    (action,) = made(facts).actions

    assert action.where is None
    assert action.partition_names == ("(unpartitioned)",)


def test_only_a_branch_can_be_rewritten_and_every_action_names_it() -> None:
    refs = history(refs=(Ref("audit", "branch", 1), Ref("v1", "tag", 1)))
    on_branch = of(small(), ref="audit", history=refs, unapplied=(SEVEN_DANGLE,))
    planned = made(on_branch, findings("small_files", "dangling_deletes"))
    (rewrite,) = planned.actions
    (drop,) = made(on_branch, findings("dangling_deletes")).actions

    assert (rewrite.branch, drop.branch) == ("audit", "audit")
    assert (planned.catalog, planned.ref) == ("prod", "audit")
    assert "branch => 'audit'" in rewrite.sql
    assert drop.sql == "icekit compact db.events --catalog prod --ref audit --execute"
    for ref in ("v1", "123456"):
        with pytest.raises(ParameterError, match=f"{ref} is not a branch"):
            made(of(small(), ref=ref, history=refs))


@pytest.mark.parametrize(
    ("budget", "covered"),
    [
        ({"budget_bytes": 20 * MIB}, [2]),
        ({"budget_bytes": 20 * MIB - 1}, []),
        ({"budget_bytes": 70 * MIB}, [2, 1]),
        ({"budget_files": 20}, [2]),
        ({"budget_files": 19}, [1, 3]),
        ({"budget_rows": 20_000_000}, [2]),
        ({"budget_minutes": 70 / 60}, [2, 1]),
        ({"budget_minutes": 1}, [2]),
        # Of two the smaller holds.
        ({"budget_minutes": 1, "budget_bytes": 19 * MIB}, []),
        ({"budget_minutes": 0.3, "budget_bytes": GIB}, []),
    ],
)
def test_a_budget_covers_what_saves_most_per_byte_to_its_last_byte_minute_and_file(
    budget: dict[str, Any], covered: list[int]
) -> None:
    facts = of(small(1, 5, 10 * MIB), small(2, 20, MIB), small(3, 5, 200 * MIB))
    planned = made(facts, speed=Speed(((60 * MIB, 60.0),)), **budget)

    assert [p.values[0] for p in taken(planned)] == sorted(FIRST_DAY + d - 1 for d in covered)
    assert left(planned) == [(SkipReason.OVER_BUDGET, 3 - len(covered))]


def test_a_budget_in_minutes_needs_a_speed_where_there_is_something_to_do() -> None:
    for speed in (None, Speed(((MIB, 3.0),))):
        with pytest.raises(ParameterError, match=r"give the budget in bytes \(budget: 200 GB\)"):
            made(ONE_DAY, budget_minutes=5, speed=speed)
    assert made(table_facts(), budget_minutes=5).actions == ()


OLD_FILES = file_group(*[MIB] * 5, of=Partition(0, ()))
CARRIERS = PartitionSpec(1, (PartitionField(1001, "carrier", "identity", 9, None, "string"),))
BY_AMOUNT = PartitionSpec(0, (PartitionField(1000, "amount", "identity", 4, "amount", "double"),))


def test_files_from_before_a_table_was_partitioned_are_left_alone() -> None:
    facts = of(OLD_FILES, file_group(of=partition(spec_id=1)), specs=(UNPARTITIONED, NEWER))

    # Nobody knows how many days their rows are of.
    planned = made(facts, SMALL_AND_OLD)
    assert planned.actions == ()
    assert "--old-specs moves all of them" in planned.notes[-1]
    (action,) = made(facts, SMALL_AND_OLD, old_specs=True).actions
    assert (action.where or "").startswith("NOT (`event_time` >= ")
    assert action.prediction.certainty is Certainty.AT_MOST


def test_partitions_that_no_filter_selects_alone_are_left_alone() -> None:
    values = (file_group(*[MIB] * 5, of=partition(value)) for value in ("nan", 1.5))
    nan = made(of(*values, specs=(BY_AMOUNT,)))
    dropped = made(of(small(), columns=COLUMNS[:1]))
    newer = (file_group(of=Partition(0, ())), file_group(of=Partition(1, ("UA",))))
    unpartitioned = made(of(*newer, specs=(UNPARTITIONED, CARRIERS)), OLD, old_specs=True)

    assert taken(nan) == [partition(1.5)]
    assert [p.actions for p in (dropped, unpartitioned)] == [(), ()]
    for planned in (nan, dropped, unpartitioned):
        assert left(planned) == [(SkipReason.NO_FILTER, 1)]


def test_partitions_written_lately_or_outside_the_window_are_left_alone() -> None:
    days = [partition(FIRST_DAY + d) for d in range(4)]
    lately = made(TWO_DAYS, recent=days[:1], leave_alone_minutes=60)
    outside = made(TWO_DAYS, since=SECOND)
    all_four = made(FOUR_DAYS, recent=days, leave_alone_minutes=60)

    assert lately.waits is None
    assert taken(lately) == taken(outside) == days[1:2]
    assert left(lately) == [(SkipReason.RECENT, 1)]
    assert left(outside) == [(SkipReason.OUTSIDE_WINDOW, 1)]
    # 18 days before the 20th the 1st has ended, and the 2nd has not.
    assert taken(made(TWO_DAYS, skip_last_hours=18 * 24)) == days[:1]
    # Three are named, and all counted.
    examples = tuple(f"event_day=2026-01-0{day}" for day in (1, 2, 3))
    assert all_four.left_alone == (Skipped(SkipReason.RECENT, 4, examples),)


def changed_every(seconds: float, share: float) -> TableFacts:
    """Two small partitions of a table with a commit every so often, of which some overwrite
    files.
    """
    commits = [
        commit(n, operation="overwrite" if n < 100 * share else "append") for n in range(100)
    ]
    return replace(TWO_DAYS, history=history(*commits, median_seconds_between_commits=seconds))


def test_a_report_counts_only_what_compact_would_run_now_and_says_what_waits() -> None:
    facts = changed_every(60.0, 1.0)
    live = replace(facts, recent=(partition(),))

    assert savings_of(facts, SMALL).opens_saved == 8
    # Without the speed of past runs, a time is no limit.
    assert savings_of(facts, SMALL, policy=CompactionPolicy(budget="1 minute")).opens_saved == 8
    assert waiting_sentence(facts, SMALL) == ""
    assert savings_of(live, SMALL).opens_saved == 4
    assert waiting_sentence(live, SMALL) == (
        f"Compaction postpones {Skipped(SkipReason.LIKELY_CONFLICT, 1).count_and_reason}. Rewriting them would "
        "save each full scan 4 file opens."
    )


def test_a_policy_takes_the_limits_of_the_findings_unless_it_sets_its_own() -> None:
    limits = Thresholds(min_input_files=4, delete_ratio=0.5)
    four, five = (
        made(of(small(1, files=4)), thresholds=limits, min_files=own).actions for own in (None, 5)
    )

    assert thresholds_of(CompactionPolicy(delete_ratio=0.1), limits) == limits.with_changes(
        delete_ratio=0.1
    )
    assert four[0].options["min-input-files"] == "4"
    assert five == ()


def test_a_rewrite_whose_trial_saves_nothing_is_left_alone() -> None:
    planned = made(TWO_DAYS, max_action_partitions=1)
    first, second = planned.actions
    idle = replace(first, prediction=Prediction(5, 50, 5, 50, file_opens_saved=0, source="trial"))
    tried = without_gain(replace(planned, actions=(idle, second)))

    assert tried.actions == (second,)
    assert left(tried) == [(SkipReason.SAVES_NOTHING, 1)]
    # The benefit of an order, or of smaller files, is not fewer files.
    assert without_gain(replace(planned, actions=(replace(idle, must_save=False),))).actions
    assert not made(of(file_group(3 * GIB))).actions[0].must_save


def test_partitions_written_lately_are_left_alone_where_a_commit_is_likely_to_conflict() -> None:
    days = [partition(), partition(FIRST_DAY + 1)]

    appended = made(changed_every(1.0, 0.0), recent=days)
    nightly = made(changed_every(86_400.0, 1.0), recent=days)
    stream = made(changed_every(60.0, 1.0), recent=days)

    assert [len(p.actions) for p in (appended, nightly, stream)] == [1, 1, 0]
    assert left(stream) == [(SkipReason.LIKELY_CONFLICT, 2)]


def test_the_chance_of_a_conflict_counts_the_commits_that_change_files() -> None:
    """An upsert that removes no file does not conflict with a rewrite."""
    upserts = [commit(n, operation="overwrite", added_delete_files=1) for n in range(10)]
    overwrite = commit(10, operation="overwrite", removed_data_files=1)
    only_upserts, not_only = (
        under_equality_deletes(history=history(*commits, median_seconds_between_commits=60.0))
        for commits in (upserts, [*upserts, overwrite])
    )

    assert conflict_chance(changed_every(60.0, 0.5), 60.0) == pytest.approx(1 - math.exp(-0.5))
    assert conflict_chance(changed_every(60.0, 0.0), 1e9) == 0.0
    assert conflict_chance(of(small(), history=history(commit())), 60.0) == 0.0
    assert conflict_chance(only_upserts, 60.0) == 0.0 < conflict_chance(not_only, 60.0)


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
    outside = made(ONE_DAY, since=SECOND)

    assert planned.waits == planned.summary
    assert planned.waits == (
        f"Skipped {Skipped(SkipReason.LIKELY_CONFLICT, 2).count_and_reason}. Rewriting them would save each full "
        "scan 8 file opens. To plan them anyway, add --leave-alone '0 minutes'."
    )
    assert "healthy" not in planned._repr_html_()
    assert outside.waits is not None
    assert outside.waits.startswith("Skipped 1 partition, outside the time window.")
    assert "--leave-alone" not in outside.waits
    assert NOTHING not in repr(outside)


def test_a_plan_says_that_the_target_file_size_should_change_first() -> None:
    target = {"write.target-file-size-bytes": str(MIB)}
    facts = of(file_group(*[MIB] * 200), properties=target)
    mixed = of(file_group(*[MIB] * 200), small(2, 8, MIB // 8), properties=target)
    nothing, some = (made(each, diagnose(each)) for each in (facts, mixed))

    assert (nothing.waits or "").startswith(
        "No rewrite helps before the target file size changes: the target file size is 1 MiB"
    )
    assert some.waits is None
    assert "Change the target file size before this plan runs" in " ".join(some.notes)


def test_one_action_is_bounded_in_bytes_and_in_partitions() -> None:
    facts = of(*(small(d) for d in range(1, 8)))

    def sizes(**limits: Any) -> list[int]:
        return [len(action.partitions) for action in made(facts, **limits).actions]

    assert sizes(max_action_partitions=3) == [3, 3, 1]
    assert sizes(max_action_bytes=100 * MIB) == [2, 2, 2, 1]
    assert sizes(max_action_bytes=MIB) == [1] * 7


def test_partitions_that_are_rewritten_differently_are_actions_of_their_own() -> None:
    facts = under_equality_deletes()
    with_deletes = replace(facts, groups=(*facts.groups, small(2)))
    now = file_group(*[10 * MIB] * 5, of=partition(FIRST_DAY + 8, spec_id=1))
    of_two_specs = of(small(1), small(2), now, specs=(BY_DAY, NEWER))
    planned = made(of_two_specs, SMALL_AND_OLD)

    actions = made(with_deletes, findings("equality_deletes", "small_files")).actions
    assert {a.options.get("delete-file-threshold"): a.partitions for a in actions} == {
        None: (partition(FIRST_DAY + 1),),
        "1": (partition(),),
    }
    assert {len(a.partitions): a.partitions[0].spec_id for a in planned.actions} == {2: 0, 1: 1}
    assert "only where that saves file opens" in planned.notes[-2]
    assert planned.notes[-1].startswith("A CALL that is run by itself also takes files of older")


def test_deletes_that_dangle_are_dropped_without_a_rewrite() -> None:
    """Not where another action drops them: see the options of a rewrite for its deletes."""
    evidence = "7 of 9 delete files are older than all data"
    named = Findings([finding("dangling_deletes", evidence=evidence)])
    (action,) = made(table_facts(unapplied=(SEVEN_DANGLE,)), named).actions

    # No statement: Iceberg's own action drops what no scan was asked about.
    assert action.sql == "icekit compact db.events --catalog prod --execute"
    assert action.only_drops_deletes
    assert (action.prediction.files_in, action.prediction.delete_files_removed) == (0, 7)
    assert action.prediction.source == "metadata"
    assert action.why.startswith(evidence)


EVOLVED = of(
    file_group(*[500 * MIB] * 2, of=partition(FIRST_DAY)),
    file_group(500 * MIB, of=partition(FIRST_DAY + 1, spec_id=1)),
    specs=(BY_DAY, NEWER),
)


def test_files_of_older_specs_move_only_where_that_is_asked() -> None:
    (action,) = made(EVOLVED, OLD, old_specs=True).actions

    first, second, third = (f"TIMESTAMP '2026-01-0{day} 00:00:00+00:00'" for day in (1, 2, 3))
    assert action.unless == f"`event_time` >= {second} AND `event_time` < {third}"
    assert (
        action.where
        == f"(`event_time` >= {first} AND `event_time` < {second}) AND NOT ({action.unless})"
    )
    assert action.options["rewrite-all"] == "true"
    assert made(EVOLVED, OLD).actions == ()
    assert made(EVOLVED, Findings(), old_specs=True).actions == ()


def planner(bytes_per_partition: int, groups: int = 1) -> Predict:
    """An engine that takes so many bytes of each partition."""

    def predict(action: Action) -> Action:
        taken = bytes_per_partition * max(len(action.partitions), 1)
        prediction = replace(action.prediction, bytes_in=taken, groups=groups, source="planner")
        return replace(action, prediction=prediction)

    return predict


def test_a_budget_holds_for_older_specs_too_and_the_planner_is_asked() -> None:
    enough, too_little = (
        made(EVOLVED, OLD, old_specs=True, budget_bytes=budget, predict=planner(1000 * MIB))
        for budget in (1000 * MIB, 1000 * MIB - 1)
    )

    assert [(a.action_id, a.prediction.source) for a in enough.actions] == [("a1", "planner")]
    assert left(too_little) == [(SkipReason.OVER_BUDGET, 1)]


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


def test_the_cluster_decides_how_much_runs_at_once_and_says_why() -> None:
    planned, in_order, major = (
        made(FOUR_DAYS, cluster=CLUSTER, **policy)
        for policy in ({}, {"strategy": "sort", "columns": ("carrier",)}, {"scope": "major"})
    )
    at_once, commits = "max-concurrent-file-group-rewrites", "partial-progress.max-commits"

    assert planned.actions[0].options[at_once] == "4"
    # Every file of a partition: the engine's largest group.
    assert [[e.name for e in each.parallelism] for each in (planned, in_order, major)] == [
        [at_once, "max-file-group-size-bytes", commits],
        [at_once, "shuffle-partitions-per-file", commits],
        [at_once, commits],
    ]


def test_the_engines_planner_has_the_last_word() -> None:
    nothing = made(ONE_DAY, predict=planner(0, groups=0))

    assert nothing.actions == ()
    assert left(nothing) == [(SkipReason.PLANNER_FINDS_NOTHING, 1)]


SLOWER = FilterOpens("carrier", 5, 1.0, 1, 1.0), FilterOpens("amount", 60, 1.0, 12, 8.25)


def opening_more(action: Action) -> Action:
    """An engine that opens more files for a filter on one column afterwards."""
    return replace(action, prediction=replace(action.prediction, filters=SLOWER))


def test_a_rewrite_that_makes_a_filter_slower_is_left_to_a_person() -> None:
    warning = "A filter on amount opens 8.2 of 12 files afterwards, and 1 of 60 before"

    attended = made(ONE_DAY, predict=opening_more)
    alone = made(ONE_DAY, predict=opening_more, attended=False)
    one_of_two = made(
        TWO_DAYS,
        predict=lambda action: (
            opening_more(action) if action.partitions[0] == partition(FIRST_DAY) else action
        ),
        max_action_partitions=1,
        attended=False,
    )

    assert attended.text().splitlines()[2] == f"Slower filter: {warning} (a1)."
    assert (alone.actions, left(alone)) == ((), [(SkipReason.SLOWER_FILTERS, 1)])
    assert alone.waits is not None
    assert alone.waits.startswith(f"{warning}: such a rewrite starts only when a person")
    assert "icekit compact db.events --catalog prod --execute" in alone.waits
    # Nothing else waits for it.
    assert left(one_of_two) == [(SkipReason.SLOWER_FILTERS, 1)]
    assert taken(one_of_two) == [partition(FIRST_DAY + 1)]
    assert one_of_two.notes[-1] == alone.waits


def clustered(**overlaps: tuple[float, float | None]) -> TableFacts:
    """Facts with columns of this overlap in the table and within a partition."""
    columns = [
        column_sample(name, stab_share=share, partition_overlap=within)
        for name, (share, within) in overlaps.items()
    ]
    return table_facts(metrics_sample=MetricsSample(20, tuple(columns)))


def test_files_are_taken_in_the_order_of_the_column_that_separates_them_best() -> None:
    one = clustered(carrier=(0.05, None), amount=(0.3, None), event_id=(0.2, None))
    # Partitions by day separate the times of the table, but not those of a day.
    by_day = clustered(event_time=(0.05, 1.0), event_id=(0.4, 0.1))
    none = clustered(carrier=(1.0, 1.0), amount=(0.9, 0.9))

    assert file_order_column(one) == "carrier"
    assert file_order_column(replace(one, filter_columns=("amount",))) == "amount", (
        "declared, and skips files"
    )
    assert file_order_column(by_day) == "event_id"
    assert file_order_column(none) == "amount"
    assert file_order_column(replace(none, filter_columns=("carrier",))) == "carrier"
    assert file_order_column(clustered()) is None
    assert made(of(small(), metrics_sample=one.metrics_sample)).actions[0].order == RewriteOrder(
        files_by="carrier"
    )


def eight_files_each(action: Action) -> Action:
    """An engine that takes eight files of each partition."""
    return replace(
        action, prediction=replace(action.prediction, files_in=8 * len(action.partitions))
    )


@pytest.mark.parametrize(
    ("predict", "policy", "actions", "over"),
    [
        (planner(80 * MIB), {"budget_bytes": 200 * MIB}, [2], [2]),
        (planner(80 * MIB), {"budget_minutes": 1.0}, [2], [2]),
        # Facts say five files each, so that three partitions fit.
        (eight_files_each, {"budget_files": 16}, [2], [1, 1]),
        # Facts say 50 MiB in five files each, and all four fit; the planner's third does not.
        (
            planner(80 * MIB),
            {"budget_bytes": 200 * MIB, "max_action_partitions": 1},
            [1, 1],
            [1, 1],
        ),
        (eight_files_each, {"budget_files": 20, "max_action_partitions": 1}, [1, 1], [1, 1]),
        (planner(GIB), {"budget_bytes": 200 * MIB}, [], [4]),
    ],
)
def test_a_plan_is_cut_until_the_planners_figures_are_within_the_budget(
    predict: Predict, policy: dict[str, Any], actions: list[int], over: list[int]
) -> None:
    planned = made(FOUR_DAYS, predict=predict, speed=Speed(((200 * MIB, 60.0),)), **policy)

    assert [len(a.partitions) for a in planned.actions] == actions
    assert left(planned) == [(SkipReason.OVER_BUDGET, number) for number in over]


def test_notes_say_what_is_read_and_how_likely_a_conflict_is() -> None:
    """Of the last hundred commits."""
    operations = ["overwrite" if n % 2 else "append" for n in range(20)]
    rivals = history(*(commit(20 - n, operation=each) for n, each in enumerate(operations)))
    past = history(
        *(commit(n, operation="overwrite" if n == 100 else "append") for n in reversed(range(101)))
    )

    def notes(**more: Any) -> str:
        return " ".join(made(of(small(), **more)).notes)

    asked = " ".join(made(ONE_DAY, predict=planner(10 * MIB)).notes)
    assert "20 % of the table" in asked
    assert "not asked" not in asked
    assert "about 5,000,000 rows" in notes()
    assert "the engine's planner was not asked" in notes()
    assert "50 % of the last 20 delete, overwrite or replace files" in notes(history=rivals)
    assert "Commits are" not in notes(history=past)
    assert (
        "Another optimizer may manage this table: the table property self-optimizing.enabled"
        in (notes(properties={"self-optimizing.enabled": "true"}))
    )


@pytest.mark.parametrize(
    ("facts", "limits"),
    [
        (of(small(1, files=3)), {"min_files": 2}),
        (of(*position_deletes_of(0.03)), {"delete_ratio": 0.01}),
    ],
)
def test_a_limit_of_the_policy_holds_for_findings_as_for_the_plan(
    facts: TableFacts, limits: dict[str, Any]
) -> None:
    default, stricter = (made(facts, diagnose(facts), **each) for each in ({}, limits))
    thresholds = thresholds_of(CompactionPolicy(**limits), Thresholds())
    by_thresholds = made(facts, diagnose(facts, thresholds), thresholds=thresholds)

    assert default.actions == ()
    assert stricter.actions == by_thresholds.actions != ()
