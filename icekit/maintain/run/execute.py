"""Execute an action on Spark, tagged and stoppable."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common.errors import EngineFailed
from icekit.common.sql import identifier
from icekit.engine.bridge import (
    guarded_table,
    load_latest_table,
    with_thread_context,
)
from icekit.engine.interrupting import (
    POLL_SECONDS,
    Stop,
    Stopped,
    cancel_jobs,
    new_job_tag,
    tag_jobs,
)
from icekit.engine.planner import NOTHING_PLANNED, filter_expression
from icekit.maintain.action import CONVERT, DANGLING, Action
from icekit.maintain.record.results import BYTES_READ_TAG, FILES_READ_TAG, RUN_TAG
from icekit.maintain.run.delete_paths import (
    check_applied_delete_paths,
    check_rewritten_delete_paths,
)
from icekit.maintain.run.rewrite import CheckedRewrite, RewriteResult, spark_actions, with_row_order
from icekit.rows.deletes.convert import convert
from icekit.rows.deletes.dangling import drop_dangling
from icekit.rows.deletes.listing import Scope, conversion_reads
from icekit.rows.proof.checked import COMPARED_POSITIONS_TAG
from icekit.rows.proof.conversion import PositionCheck
from icekit.rows.proof.position_deletes import PositionDeletes, changed_rows_as_disagreement
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from icekit.rows.rewrite.rewrite_session import NotHere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# More than the sequence number of any delete.
_ANY_SEQUENCE_NUMBER = 2**62
_LAST_WAIT_SECONDS = 20.0
_REWRITE_CATALOG = "spark.sql.catalog.default_rewrite_catalog"


class Execution:
    """An action that Spark executes in a thread of its own; made by :func:`executing`."""

    def __init__(self, spark: SparkSession, job_tag: str, stop: Stop) -> None:
        self._spark = spark
        self._job_tag = job_tag
        self._stop = stop
        self._ends: list[RewriteResult | BaseException] = []

    def start(self, action: Action, summary_tags: Mapping[str, str], *, check: bool) -> None:
        """Start the thread."""

        def work() -> None:
            try:
                with tag_jobs(self._spark, self._job_tag):
                    result = _run_procedure(
                        self._spark, action, summary_tags, stop=self._stop, check=check
                    )
                    self._ends.append(result)
            except BaseException as error:
                self._ends.append(error)

        self._worker = threading.Thread(
            target=with_thread_context(self._spark, work), name=self._job_tag, daemon=True
        )
        self._start_time = time.monotonic()
        self._worker.start()

    def elapsed_seconds(self) -> Iterator[float]:
        """The seconds so far, from time to time until the action has ended; the last after its last
        commit.
        """
        is_alive = True
        while is_alive:
            self._worker.join(POLL_SECONDS)
            is_alive = self._worker.is_alive()
            yield time.monotonic() - self._start_time
            if self._stop.is_set:
                # Repeatedly: each group that is still waiting starts a job of its own.
                cancel_jobs(self._spark, self._job_tag)

    def abandon(self) -> None:
        """Stop the action, and wait for its end some seconds."""
        self._stop.set()
        for _ in range(int(_LAST_WAIT_SECONDS / POLL_SECONDS)):
            if not self._worker.is_alive():
                break
            cancel_jobs(self._spark, self._job_tag)
            self._worker.join(POLL_SECONDS)

    def result(self) -> RewriteResult:
        """The result of an action that has ended; raises the errors of the engine, and
        :class:`Stopped` after a request to stop.
        """
        if self._stop.is_set:
            raise Stopped
        end = self._ends[0]
        if isinstance(end, BaseException):
            raise end
        return end


@contextlib.contextmanager
def executing(
    spark: SparkSession,
    action: Action,
    summary_tags: Mapping[str, str],
    *,
    stop: Stop,
    check: bool = True,
) -> Iterator[Execution]:
    """Execute an action's procedure within the block, every commit of it tagged; what is written is
    checked before a commit if ``check``.

    This runs the same action as the procedure, because ``CALL`` passes no snapshot properties on
    (``spark.sql.iceberg.snapshot-property`` does not reach it). The first Ctrl-C is a request to
    stop. Raises :class:`Stopped` and starts nothing after such a request.
    """
    stop.check()
    job_tag = new_job_tag(f"{summary_tags.get(RUN_TAG, '')}-{action.action_id}")
    execution = Execution(spark, job_tag, stop)
    execution.start(action, summary_tags, check=check)
    try:
        with stop.on_interrupt():
            yield execution
    except BaseException:
        # A user who does not wait (a second Ctrl-C) must not leave a rewrite running after its
        # claim is released.
        execution.abandon()
        raise


def execute(
    spark: SparkSession,
    action: Action,
    summary_tags: Mapping[str, str],
    *,
    stop: Stop,
    check: bool = True,
) -> RewriteResult:
    """Execute an action to its end, as :func:`executing` does, and return its result."""
    with executing(spark, action, summary_tags, stop=stop, check=check) as execution:
        for _ in execution.elapsed_seconds():
            pass
    return execution.result()


def _run_procedure(
    spark: SparkSession, action: Action, summary_tags: Mapping[str, str], *, stop: Stop, check: bool
) -> RewriteResult:
    table_name = action.sql_name
    # Iceberg sets this property on whichever session is active when its source is first used, which
    # may be one that a rewrite has cloned for itself: then every group of every later rewrite
    # fails.
    if spark.conf.get(_REWRITE_CATALOG, None) is None:
        spark.conf.set(_REWRITE_CATALOG, "org.apache.iceberg.spark.SparkRewriteTableCatalog")
    iceberg_actions = spark_actions(spark)
    latest_table = load_latest_table(spark, table_name)
    checked_table = guarded_table(spark, latest_table)
    rewrite_result = RewriteResult()
    if action.procedure == "rewrite_data_files":
        rewrite_result = _rewrite_data(
            spark, action, checked_table, summary_tags, stop=stop, check=check
        )
        if action.options.get(DANGLING) == "true":
            drop_dangling(spark, table_name, summary_tags, branch=action.branch, stop=stop)
    elif action.rewrites_position_deletes:
        check_rewritten_delete_paths(spark, action)
        position_deletes = None
        if check:
            position_deletes = PositionDeletes.of_table(spark, checked_table)
            summary_tags = {**summary_tags, COMPARED_POSITIONS_TAG: "true"}
        java_position_deletes = position_deletes and position_deletes.java
        delete_rewrite = iceberg_actions.rewritePositionDeletes(
            guarded_table(spark, latest_table, position_deletes=java_position_deletes)
        )
        with changed_rows_as_disagreement(position_deletes):
            _configured_action(
                spark, action, delete_rewrite, action.options, summary_tags
            ).execute()
    elif action.procedure == "rewrite_manifests":
        manifest_rewrite = iceberg_actions.rewriteManifests(checked_table)
        if "spec_id" in action.arguments:
            manifest_rewrite = manifest_rewrite.specId(action.integer_argument("spec_id", 0))
        if isinstance(sort_columns := action.arguments.get("sort_by"), tuple):
            # After the spec: the names are looked up in its fields.
            manifest_rewrite = manifest_rewrite.sortBy(list(sort_columns))
        _configured_action(spark, action, manifest_rewrite, {}, summary_tags).execute()
    elif action.procedure == CONVERT:
        _convert(spark, action, summary_tags, stop=stop, check=check)
    elif action.procedure == "expire_snapshots":
        # Compares the metadata before its commit with that after it.
        expiry_result = _configured_expiry(
            iceberg_actions.expireSnapshots(checked_table.live()), action
        ).execute()
        return RewriteResult(deleted_manifest_lists=int(expiry_result.deletedManifestListsCount()))
    else:
        spark.sql(action.sql)
        return rewrite_result
    spark.sql(f"REFRESH TABLE {identifier(*table_name)}")
    return rewrite_result


def _configured_expiry(expiry_action: Any, action: Action) -> Any:
    """Iceberg's own expiry, as the procedure of an action sets it up."""
    if action.older_than is not None:
        expiry_action = expiry_action.expireOlderThan(int(action.older_than.timestamp() * 1000))
    if "retain_last" in action.arguments:
        expiry_action = expiry_action.retainLast(action.integer_argument("retain_last", 1))
    if isinstance(snapshot_ids := action.arguments.get("snapshot_ids"), tuple):
        for snapshot_id in snapshot_ids:
            expiry_action = expiry_action.expireSnapshotId(int(snapshot_id))
    if action.arguments.get("stream_results"):
        expiry_action = expiry_action.option("stream-results", "true")
    return expiry_action


def _convert(
    spark: SparkSession, action: Action, summary_tags: Mapping[str, str], *, stop: Stop, check: bool
) -> None:
    """Run a conversion's action, each commit checked, and tagged with the files and bytes read for
    it; see :func:`icekit.rows.deletes.convert.convert`.
    """
    slice_count = action.integer_argument("slices", 1)

    def summary_tags_with_read(scopes: Sequence[Scope]) -> Mapping[str, str]:
        file_count, bytes_read = conversion_reads(scopes, slice_count)
        return {**summary_tags, FILES_READ_TAG: str(file_count), BYTES_READ_TAG: str(bytes_read)}

    convert(
        spark,
        action.sql_name,
        branch=action.branch,
        partitions=action.partitions,
        max_sequence=action.integer_argument("up_to", _ANY_SEQUENCE_NUMBER),
        slices=slice_count,
        summary_tags_of=summary_tags_with_read,
        check=PositionCheck if check else None,
        before_commit=stop.check,
    )


def _rewrite_data(
    spark: SparkSession,
    action: Action,
    table: Any,
    summary_tags: Mapping[str, str],
    *,
    stop: Stop,
    check: bool,
) -> RewriteResult:
    """Rewrite data files: here if that is possible, so that the result is proved before it is
    committed; else by Iceberg's own action.
    """
    checked_rewrite_refusal = ""
    try:
        return CheckedRewrite(spark, action, table, summary_tags, stop=stop, check=check).run()
    except NotHere as refusal:
        checked_rewrite_refusal = str(refusal)
    checked_groups = check_applied_delete_paths(spark, action)
    if checked_groups is None or not checked_groups.groups.size():
        return RewriteResult(NOTHING_PLANNED)
    planned_rewrite = checked_groups.rollup(keeps_order=not action.order.is_sorting)
    if checked_groups.left_out_group_count:
        raise EngineFailed(
            f"Only Iceberg's own action can do this rewrite ({checked_rewrite_refusal}), and its filter also "
            "takes files of older partition specs. Move those first: icekit compact --old-specs."
        )
    # Dangling deletes are dropped in a separate commit, which then carries the tags too. Files that
    # move to another spec get a new sequence number, so that an equality delete of the meantime is
    # a conflict: with the old one, a delete under the old spec would no longer apply to them, and
    # one under the new spec would.
    options = {key: value for key, value in action.options.items() if key != DANGLING}
    options["use-starting-sequence-number"] = "false"
    # Iceberg shuffles the rows of files that move to another spec anyway, by their new partitions
    # and the table's sort order: without one, by the column that their files were in the order of.
    file_order_column = action.order.files_by
    is_unordered = not (action.order.is_sorting or bool(table.sortOrder().isSorted()))
    if file_order_column and is_unordered and planned_rewrite.moved:
        action = replace(action, order=RewriteOrder("sort", ((file_order_column,),)))
    stock_rewrite = spark_actions(spark).rewriteDataFiles(table)
    stock_rewrite = _configured_action(
        spark, action, with_row_order(spark, stock_rewrite, table, action), options, summary_tags
    )
    if action.branch:
        stock_rewrite = stock_rewrite.toBranch(action.branch)
    stock_result = stock_rewrite.execute()
    # Without partial progress, it may count the files of a failed group and not the group.
    return RewriteResult(
        planned_rewrite,
        max(
            int(stock_result.rewriteFailures().size()), int(stock_result.failedDataFilesCount() > 0)
        ),
    )


def _configured_action(
    spark: SparkSession,
    action: Action,
    java_action: Any,
    options: Mapping[str, str],
    summary_tags: Mapping[str, str],
) -> Any:
    """Iceberg's own action with options, the filter, and the tags of its commits."""
    for key, value in options.items():
        java_action = java_action.option(key, value)
    if action.where is not None:
        filter_expression_object = filter_expression(spark, action.sql_name, action.where)
        java_action = java_action.filter(filter_expression_object)
    for key, value in summary_tags.items():
        java_action = java_action.snapshotProperty(key, value)
    return java_action
