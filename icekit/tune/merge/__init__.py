"""Review a MERGE: which files of the target it opens, which filters reach Iceberg and what is
shuffled; a narrower ON, tried on clones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, replace
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import reset_session_sql, set_session_sql, transform_sql
from icekit.common.units import count, size
from icekit.common.view import BYTES, COUNT, SECONDS
from icekit.engine.bridge import temporary_settings
from icekit.engine.errors import explain_errors
from icekit.engine.lake import session_in_catalog
from icekit.engine.planner import (
    executed_command_plan,
    is_scan_of,
    metric,
    node_class,
    nodes_with_match_filters,
)
from icekit.health.facts.model import TableFacts
from icekit.rows.proof.fingerprint import fingerprint, reading_settings
from icekit.sandbox.trial import BUDGET_BYTES, Budget, Sandbox, Trial
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.tune.ddl import spec_fields_of
from icekit.tune.experiment import Experiment, Figures, set_up_nothing
from icekit.tune.merge.engine import SHUFFLE, MergePlan, TargetScan, full_scan, merge_plan
from icekit.tune.merge.narrow import MergeKeys, NarrowedMerge, merge_keys, narrower_rewrite
from icekit.tune.statement import Statement, literal_count, parse_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.engine.lake import Lake


PARTITIONED = "storage-partitioned join"
# In the order in which they are left out: the last ones change the most.
SETTINGS: Mapping[str, str] = {
    "spark.sql.sources.v2.bucketing.allowCompatibleTransforms.enabled": "true",
    "spark.sql.sources.v2.bucketing.allowJoinKeysSubsetOfPartitionKeys.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
}


def partitioned_join_change(
    spark: SparkSession,
    statement: Statement,
    current_plan: MergePlan,
    keys: MergeKeys,
    facts: TableFacts,
) -> Change:
    """Settings by which the target's shuffle can be avoided, or what the tables lack; the facts
    are the target's.

    The settings are the smallest set found by leaving out one after the other.
    """
    if not current_plan.is_target_shuffled:
        return Change(PARTITIONED, None, None, "It is not needed: the target is not shuffled.")

    def avoids_shuffle(session_settings: Mapping[str, str]) -> bool:
        with temporary_settings(spark, session_settings):
            new_plan = merge_plan(spark, statement.sql, statement.target)
        return new_plan.scan.keeps_partitions_apart and not new_plan.is_target_shuffled

    session_settings = {
        key: setting_value
        for key, setting_value in SETTINGS.items()
        if spark.conf.get(key, None) != setting_value
    }
    if not avoids_shuffle(session_settings):
        field_terms = (transform_sql(*astuple(f)) for f in spec_fields_of(facts.default_spec))
        target_fields_text = ", ".join(field_terms) or "nothing"
        equalities_text = (
            ", ".join(f"{e.target_column} = {e.source_sql}" for e in keys.equalities) or "no column"
        )
        why = (
            "It needs both tables partitioned alike, by columns that ON sets equal. The target is "
            f"partitioned by {target_fields_text}, the source {current_plan.source_partitioning}, "
            f"and ON sets {equalities_text}."
        )
        return Change(PARTITIONED, None, None, why)
    for key in list(session_settings):
        fewer_settings = {k: v for k, v in session_settings.items() if k != key}
        if avoids_shuffle(fewer_settings):
            session_settings = fewer_settings
    values_before = [(key, spark.conf.get(key, None)) for key in session_settings]
    return Change(
        PARTITIONED,
        "not used",
        "used",
        f"With {count(len(session_settings), 'session setting')}, Spark joins the target's "
        "partitions as they are stored, without a shuffle.",
        tuple(
            set_session_sql(key, setting_value) for key, setting_value in session_settings.items()
        ),
        tuple(set_session_sql(k, v) if v else reset_session_sql(k) for k, v in values_before),
        side_effect="each task holds an entire partition, so partitions must fit into a task, and "
        "there are at most as many tasks as partitions",
    )


AS_IS = "as it is"
NARROWER = "narrower ON"
FILES = "files of the target opened"
OPENED = "size of these files"
SHUFFLED = "bytes shuffled"
TIME = "time on a clone"
_MEASURES = (
    Measure(FILES, COUNT),
    Measure(OPENED, BYTES),
    Measure(SHUFFLED, BYTES),
    Measure(TIME, SECONDS),
)
#: The most literals of a statement that is reviewed, because Spark's rules visit all of them for
# each plan.
MOST_LITERALS = 5_000


def review_merge(
    lake: Lake,
    sql: str,
    *,
    prove: bool = False,
    budget_seconds: float = 1800,
    budget_bytes: str = BUDGET_BYTES,
    progress: Callable[[str], None] = print,
) -> Answer:
    """Explain a MERGE without running it, and propose a narrower ON if that reads less.

    The review reads the source (some aggregations, and the guard), but only metadata of the target.
    ``prove`` also runs the statement and the narrower one, each on a zero-copy clone, and compares
    rows, bytes, shuffle and time. Raises :class:`~icekit.common.errors.StatementRefused` and the
    errors of finding a table; :class:`~icekit.common.errors.ParameterError` for a target in another
    catalog.
    """
    budget = Budget(budget_seconds, budget_bytes)
    with session_in_catalog(lake) as spark:
        statement = _parse_merge(spark, sql)
        catalog, *table_name = statement.target
        if catalog != lake.name:
            raise ParameterError(
                f"The target is in catalog {catalog}, but this is {lake.name}; connect to "
                f"{catalog}."
            )
        trial = Trial.start(lake, tuple(table_name), budget, progress=progress)
        review = MergeReview.from_statement(spark, statement, trial.facts)
        measurements = Measurements(_MEASURES)
        fingerprints = set[str]()
        measurements.add(AS_IS, _plan_figures(review.plan))
        if review.narrower_merge is not None:
            measurements.add(NARROWER, _plan_figures(review.narrower_merge.plan))
            if prove:
                measurements, fingerprints = _try_on_clones(
                    trial, statement, review.narrower_merge, measurements
                )
    return _merge_answer(trial, review, measurements, fingerprints)


def _parse_merge(spark: SparkSession, sql: str) -> Statement:
    """Read a MERGE, and refuse what cannot be reviewed."""
    statement = parse_statement(spark, sql)
    if statement.kind != "MERGE":
        raise StatementRefused(
            f"The statement is {statement.kind}; review-merge reads MERGE statements."
        )
    if (found_literal_count := literal_count(spark, statement)) > MOST_LITERALS:
        raise StatementRefused(
            f"The MERGE has {found_literal_count:,} literals. A review plans it several times, "
            f"which takes minutes with more than {MOST_LITERALS:,}; write the values to a table, "
            "and use that table in USING."
        )
    return statement


def _plan_figures(plan: MergePlan) -> Figures:
    return {FILES: plan.scan.file_count, OPENED: plan.size_in_bytes}


def _try_on_clones(
    trial: Trial, statement: Statement, narrower: NarrowedMerge, plan_measurements: Measurements
) -> tuple[Measurements, set[str]]:
    """Run both statements, each on its own clone: the figures (those of the plans if a trial was
    incomplete), and the fingerprints of the rows that the statements left.
    """
    # The proposal runs first, so that a warm session favours the statement as it is.
    statements_by_variant = {NARROWER: narrower.statement, AS_IS: statement}
    fingerprints_by_variant: dict[str, str] = {}

    def run_statement(variant: str, box: Sandbox) -> Figures:
        # At worst all of the target is rewritten.
        execution = box.run(
            statements_by_variant[variant].sql_for(box.name), expected_bytes=box.size_in_bytes
        )
        with (
            box.budget.cancel_jobs_when_spent(box.lake.spark),
            temporary_settings(box.lake.spark, reading_settings()),
        ):
            fingerprints_by_variant[variant] = str(
                fingerprint(box.lake.spark, statement.name_with_branch(box.name))[()]
            )
        plan_nodes = list(nodes_with_match_filters(executed_command_plan(execution.frame)))
        scan_nodes = [plan_node for plan_node in plan_nodes if is_scan_of(plan_node, box.name)]
        shuffle_nodes = [plan_node for plan_node in plan_nodes if node_class(plan_node) == SHUFFLE]
        return {
            FILES: sum(metric(plan_node, "resultDataFiles") for plan_node in scan_nodes),
            OPENED: sum(metric(plan_node, "totalDataFileSize") for plan_node in scan_nodes),
            SHUFFLED: sum(metric(plan_node, "shuffleBytesWritten") for plan_node in shuffle_nodes),
            TIME: execution.seconds,
        }

    variants = dict.fromkeys(statements_by_variant, set_up_nothing)
    experiment = Experiment(trial=trial, variants=variants, measures=_MEASURES)
    with experiment.open():
        experiment.measure("the statement", run_statement)
    return experiment.measurements if AS_IS in fingerprints_by_variant else plan_measurements, set(
        fingerprints_by_variant.values()
    )


@frozen
class MergeReview:
    """What the engine says of a MERGE, and the changes and sentences that follow; ``narrower`` is
    None where ``no_narrower_reason`` says why.
    """

    statement: Statement
    plan: MergePlan
    full_scan: TargetScan
    narrower_merge: NarrowedMerge | None
    no_narrower_reason: str
    join_change: Change

    @classmethod
    def from_statement(
        cls, spark: SparkSession, statement: Statement, facts: TableFacts
    ) -> MergeReview:
        """Ask Spark and Iceberg about a MERGE, which is not run; reads its source, and of the
        target only metadata.
        """
        with explain_errors(statement.target):
            plan = merge_plan(spark, statement.sql, statement.target)
            keys = merge_keys(plan, facts)
            return cls(
                statement,
                plan,
                full_scan(spark, statement.name_with_branch(statement.target)),
                *narrower_rewrite(spark, statement, keys, plan),
                partitioned_join_change(spark, statement, plan, keys, facts),
            )

    def changes(self) -> Iterator[Change]:
        """The proposals, and what was checked."""
        current_plan = self.plan
        narrower = self.narrower_merge
        narrower_change = Change(NARROWER, None, None, f"There is none: {self.no_narrower_reason}.")
        if narrower is not None:
            columns_text = " and ".join(
                f"{a.equality.target_column} ({a.form})" for a in narrower.predicates
            )
            narrower_change = Change(
                NARROWER,
                count(current_plan.scan.file_count, "file"),
                count(narrower.plan.scan.file_count, "file"),
                f"The source's current values of {columns_text} are written into ON. Every pair "
                "of rows that matches ON also passes the predicate, so every clause sees the same "
                "rows.",
                (narrower.statement.sql,),
                side_effect="the predicate fits only the source's current rows: create it again "
                "for each batch. If the source has changed since, rows that the predicate leaves "
                "out match nothing, and WHEN NOT MATCHED inserts them although they exist",
                check=(narrower.guard_sql,),
            )
        yield narrower_change
        yield replace(self.join_change, is_alternative=narrower is not None)
        opened_sentence = f"The target scan opens {self.opened_files_text()}."
        why = f"{opened_sentence} Filters that reached Iceberg: {current_plan.scan.pushed_filters}."
        yield Change("pruning", None, None, why)
        with_or_without_target_shuffle = "with" if current_plan.is_target_shuffled else "without"
        with_or_without_write_shuffle = "with" if current_plan.is_write_shuffled else "without"
        why = (
            f"Spark plans {current_plan.join_description}, {with_or_without_target_shuffle} a "
            f"shuffle of the target before it and {with_or_without_write_shuffle} a shuffle of "
            "the rows that are written."
        )
        yield Change("shuffle", None, None, why)

    def opened_files_text(self) -> str:
        """The files and bytes that the target scan opens, of all."""
        target_scan = self.plan.scan
        full_scan = self.full_scan
        delete_opens_text = count(target_scan.delete_file_count, "time")
        deletes_clause = (
            f", and delete files {delete_opens_text}" if target_scan.delete_file_count else ""
        )
        return (
            f"{target_scan.file_count:,} of {count(full_scan.file_count, 'data file')}, "
            f"{size(target_scan.size_in_bytes)} of {size(full_scan.size_in_bytes)}{deletes_clause}"
        )


def _merge_answer(
    trial: Trial, review: MergeReview, measurements: Measurements, fingerprints: set[str]
) -> Answer:
    """``fingerprints`` are the fingerprints that the statements left."""
    are_rows_different = len(fingerprints) > 1
    if are_rows_different:
        review = replace(review, narrower_merge=None, no_narrower_reason="it left different rows")
    verdict = f"No change: it opens {review.opened_files_text()}."
    if review.narrower_merge is not None:
        verdict = (
            "Write the source's values into ON: the statement then opens "
            f"{review.narrower_merge.plan.scan.file_count:,} of "
            f"{count(review.full_scan.file_count, 'data file')} instead of "
            f"{review.plan.scan.file_count:,}."
        )
    elif review.join_change.is_change:
        verdict = review.join_change.why
    confidence = Confidence.LOW if are_rows_different or trial.stop_reason else Confidence.MEDIUM
    confidence_reason = (
        "Spark planned the statement and Iceberg its scans; nothing was run. With --prove, the "
        "statement and a narrower ON run on clones."
    )
    if are_rows_different:
        verdict = confidence_reason = (
            "the narrower ON left DIFFERENT rows on a clone. If the statement does not write other "
            "values each time, such as the current time, report this."
        )
    elif trial.stop_reason:
        confidence_reason = f"the trial is incomplete: {trial.stop_reason}."
    elif fingerprints:
        confidence = Confidence.HIGH
        confidence_reason = "both statements ran on clones and left the same rows."
    failure_text = (
        "The trial could not show that the statement and the proposal leave the same rows."
    )
    return Answer(
        question="review-merge",
        facts=trial.facts,
        verdict=verdict,
        changes=tuple(review.changes()),
        measured=measurements,
        now=AS_IS,
        advised=NARROWER if review.narrower_merge else None,
        confidence=confidence,
        because=confidence_reason,
        stopped=trial.stop_reason,
        failure=failure_text if confidence is Confidence.LOW else None,
    )
