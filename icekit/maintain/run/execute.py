"""Run an action on Spark, tagged and stoppable."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common.errors import EngineFailed
from icekit.common.sql import identifier
from icekit.engine.bridge import (
    guarded_table,
    load_latest_table,
    old_iceberg_message,
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
from icekit.maintain.run.delete_paths import check_paths, check_paths_of_deletes
from icekit.maintain.run.rewrite import CheckedRewrite, RewriteResult, ordered, spark_actions
from icekit.rows.deletes.conversion_inputs import remaining_deletes
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


# A sequence number that no delete has.
_ALL = 2**62


def convert_action(
    spark: SparkSession, action: Action, tags: Mapping[str, str], *, stop: Stop, check: bool = True
) -> None:
    """Run a conversion's action, each commit checked, and tagged with the files and bytes read for
    it; see :func:`icekit.rows.deletes.convert.convert`.
    """
    slices = action.integer_argument("slices", 1)

    def with_read(scopes: Sequence[Scope]) -> Mapping[str, str]:
        files, size = conversion_reads(scopes, slices)
        return {**tags, FILES_READ_TAG: str(files), BYTES_READ_TAG: str(size)}

    convert(
        spark,
        action.sql_name,
        **_taken(action),
        slices=slices,
        tags=with_read,
        check=PositionCheck if check else None,
        before_commit=stop.check,
    )


def deletes_left(spark: SparkSession, action: Action) -> bool:
    """Whether the table still has equality deletes that the action was planned for."""
    snapshot_deletes = remaining_deletes(spark, action.sql_name, **_taken(action))
    return snapshot_deletes is not None and bool(snapshot_deletes.scopes)


def _taken(action: Action) -> dict[str, Any]:
    """The deletes that a conversion takes."""
    return {
        "branch": action.branch,
        "partitions": action.partitions,
        "max_sequence": action.integer_argument("up_to", _ALL),
    }


# The procedures that Iceberg's own action may run alone with any version.
_OF_ANY_VERSION = frozenset({"rewrite_manifests", "expire_snapshots", "remove_orphan_files"})


def require_api(spark: SparkSession, actions: Iterable[Action]) -> None:
    """Raise :class:`~icekit.common.errors.EngineFailed`, before anything is written, if the
    session's Iceberg is too old for one of the actions.
    """
    if any(action.procedure not in _OF_ANY_VERSION for action in actions) and (
        missing := old_iceberg_message(spark)
    ):
        raise EngineFailed(missing)


_LAST_WAIT_SECONDS = 20.0
_REWRITE_CATALOG = "spark.sql.catalog.default_rewrite_catalog"


def execute(
    spark: SparkSession,
    action: Action,
    tags: Mapping[str, str],
    *,
    stop: Stop,
    tick: Callable[[float], None],
    check: bool = True,
) -> RewriteResult:
    """Run an action's procedure, every commit of it tagged; ``tick`` is called with the seconds so
    far.

    This runs the same action as the procedure, because ``CALL`` passes no snapshot properties on
    (``spark.sql.iceberg.snapshot-property`` does not reach it). Raises the errors of the engine,
    and :class:`Stopped`; starts nothing after a request to stop.
    """
    stop.check()
    ended: list[RewriteResult | BaseException] = []
    job_tag = new_job_tag(f"{tags.get(RUN_TAG, '')}-{action.action_id}")

    def work() -> None:
        try:
            with tag_jobs(spark, job_tag):
                ended.append(_run(spark, action, tags, stop=stop, check=check))
        except BaseException as error:
            ended.append(error)

    worker = threading.Thread(target=with_thread_context(spark, work), name=job_tag, daemon=True)
    started = time.monotonic()
    worker.start()
    try:
        with _interrupts(stop):
            is_alive = True
            while is_alive:
                worker.join(POLL_SECONDS)
                # Before the tick, so that the last one comes after the last commit.
                is_alive = worker.is_alive()
                tick(time.monotonic() - started)
                if stop.is_set:
                    # Repeatedly: each group that is still waiting starts a job of its own.
                    cancel_jobs(spark, job_tag)
    except BaseException:
        # A user who does not wait (a second Ctrl-C) must not leave a rewrite running after its
        # claim is released.
        stop.set()
        for _ in range(int(_LAST_WAIT_SECONDS / POLL_SECONDS)):
            if not worker.is_alive():
                break
            cancel_jobs(spark, job_tag)
            worker.join(POLL_SECONDS)
        raise
    if stop.is_set:
        raise Stopped
    answer = ended[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _run(
    spark: SparkSession, action: Action, tags: Mapping[str, str], *, stop: Stop, check: bool
) -> RewriteResult:
    name = action.sql_name
    # Iceberg sets this property on whichever session is active when its source is first used, which
    # may be one that a rewrite has cloned for itself: then every group of every later rewrite
    # fails.
    if spark.conf.get(_REWRITE_CATALOG, None) is None:
        spark.conf.set(_REWRITE_CATALOG, "org.apache.iceberg.spark.SparkRewriteTableCatalog")
    actions = spark_actions(spark)
    loaded = load_latest_table(spark, name)
    table = guarded_table(spark, loaded)
    answer = RewriteResult()
    if action.procedure == "rewrite_data_files":
        answer = _rewrite_data(spark, action, table, tags, stop=stop, check=check)
        if action.options.get(DANGLING) == "true":
            drop_dangling(spark, name, tags, branch=action.branch, stop=stop)
    elif action.rewrites_position_deletes:
        check_paths_of_deletes(spark, action)
        positions = None
        if check:
            positions = PositionDeletes.of_table(spark, table)
            tags = {**tags, COMPARED_POSITIONS_TAG: "true"}
        in_java = positions and positions.java
        deletes = actions.rewritePositionDeletes(
            guarded_table(spark, loaded, position_deletes=in_java)
        )
        with changed_rows_as_disagreement(positions):
            _set_up(spark, action, deletes, action.options, tags).execute()
    elif action.procedure == "rewrite_manifests":
        manifests = actions.rewriteManifests(table)
        if "spec_id" in action.arguments:
            manifests = manifests.specId(action.integer_argument("spec_id", 0))
        if isinstance(sort_columns := action.arguments.get("sort_by"), tuple):
            # After the spec: the names are looked up in its fields.
            manifests = manifests.sortBy(list(sort_columns))
        _set_up(spark, action, manifests, {}, tags).execute()
    elif action.procedure == CONVERT:
        convert_action(spark, action, tags, stop=stop, check=check)
    elif action.procedure == "expire_snapshots":
        # Compares the metadata before its commit with that after it.
        result = _expiry(actions.expireSnapshots(table.live()), action).execute()
        return RewriteResult(manifest_lists=int(result.deletedManifestListsCount()))
    else:
        spark.sql(action.sql)
        return answer
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return answer


def _expiry(expiry: Any, action: Action) -> Any:
    """Iceberg's own expiry, as the procedure of an action sets it up."""
    if action.older_than is not None:
        expiry = expiry.expireOlderThan(int(action.older_than.timestamp() * 1000))
    if "retain_last" in action.arguments:
        expiry = expiry.retainLast(action.integer_argument("retain_last", 1))
    if isinstance(snapshot_ids := action.arguments.get("snapshot_ids"), tuple):
        for snapshot_id in snapshot_ids:
            expiry = expiry.expireSnapshotId(int(snapshot_id))
    if action.arguments.get("stream_results"):
        expiry = expiry.option("stream-results", "true")
    return expiry


def _rewrite_data(
    spark: SparkSession,
    action: Action,
    table: Any,
    tags: Mapping[str, str],
    *,
    stop: Stop,
    check: bool,
) -> RewriteResult:
    """Rewrite data files: here if that is possible, so that the result is proved before it is
    committed; else by Iceberg's own action.
    """
    why = ""
    try:
        return CheckedRewrite(spark, action, table, tags, stop=stop, check=check).run()
    except NotHere as refusal:
        why = str(refusal)
    groups = check_paths(spark, action)
    if groups is None or not groups.groups.size():
        return RewriteResult(NOTHING_PLANNED)
    planned_rewrite = groups.rollup(keeps_order=not action.order.is_sorting)
    if groups.left_out_group_count:
        raise EngineFailed(
            f"Only Iceberg's own action can do this rewrite ({why}), and its filter also takes files "
            "of older partition specs. Move those first: icekit compact --old-specs."
        )
    # Dangling deletes are dropped in a separate commit, which then carries the tags too. Files that
    # move to another spec get a new sequence number, so that an equality delete of the meantime is
    # a conflict: with the old one, a delete under the old spec would no longer apply to them, and
    # one under the new spec would.
    options = {key: value for key, value in action.options.items() if key != DANGLING}
    options["use-starting-sequence-number"] = "false"
    # Iceberg shuffles the rows of files that move to another spec anyway, by their new partitions
    # and the table's sort order: without one, by the column that their files were in the order of.
    column = action.order.files_by
    is_unordered = not (action.order.is_sorting or bool(table.sortOrder().isSorted()))
    if column and is_unordered and planned_rewrite.moved:
        action = replace(action, order=RewriteOrder("sort", ((column,),)))
    stock = spark_actions(spark).rewriteDataFiles(table)
    stock = _set_up(spark, action, ordered(spark, stock, table, action), options, tags)
    if action.branch:
        stock = stock.toBranch(action.branch)
    result = stock.execute()
    # Without partial progress, it may count the files of a failed group and not the group.
    return RewriteResult(
        planned_rewrite,
        max(int(result.rewriteFailures().size()), int(result.failedDataFilesCount() > 0)),
    )


def _set_up(
    spark: SparkSession,
    action: Action,
    java_action: Any,
    options: Mapping[str, str],
    tags: Mapping[str, str],
) -> Any:
    """Iceberg's own action with options, the filter, and the tags of its commits."""
    for key, value in options.items():
        java_action = java_action.option(key, value)
    if action.where is not None:
        expression = filter_expression(spark, action.sql_name, action.where)
        java_action = java_action.filter(expression)
    for key, value in tags.items():
        java_action = java_action.snapshotProperty(key, value)
    return java_action


@contextlib.contextmanager
def _interrupts(stop: Stop) -> Iterator[None]:
    """Turn the first Ctrl-C into a request to stop; the second raises KeyboardInterrupt as
    usual.
    """
    import signal

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def first(_number: int, _frame: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
