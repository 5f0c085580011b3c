"""Ask the engine's planner what is left of an action, cut the action down, and run it on Spark,
tagged and stoppable.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.common.errors import EngineFailed, ParameterError
from icekit.common.sql import identifier
from icekit.common.units import count
from icekit.deletes.convert import convert
from icekit.deletes.dangling import drop_dangling
from icekit.deletes.find import remaining
from icekit.deletes.listing import Scope
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
from icekit.engine.lake import Lake
from icekit.engine.planner import NOTHING_PLANNED, filter_expression, partitions_with_files_up_to
from icekit.health.facts.head import head
from icekit.iceberg.metadata import columns, schema_of, specs
from icekit.iceberg.partition import Partition
from icekit.iceberg.where import where
from icekit.maintain.actions import excluding
from icekit.maintain.actual import BYTES_READ_TAG, FILES_READ_TAG, RUN_TAG
from icekit.maintain.asking import ask_planner, engine_groups
from icekit.maintain.model import CONVERT, DANGLING, REWRITE_NOTHING, Action, RewriteOrder
from icekit.maintain.position_deletes import (
    PositionDeletes,
    check_paths,
    check_paths_of_deletes,
    other_rows_explained,
)
from icekit.maintain.rewrite import CheckedRewrite, RewriteResult, ordered, spark_actions
from icekit.maintain.rewrite_session import NotHere
from icekit.prove.checked import COMPARED_POSITIONS_TAG
from icekit.prove.conversion import PositionCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def partitions_left(
    spark: SparkSession, action: Action, sequence_number: int
) -> tuple[Partition, ...] | None:
    """The partitions in which the planner selects a file that was there at a sequence number.

    Files that the run wrote itself may be selected again (deletes with the sequence number that
    the run starts from still apply to its files), but they are done. None where groups cannot be
    assigned to a partition: groups of older specs.
    """
    planned_groups = engine_groups(spark, action)
    if planned_groups is None:
        return ()
    # Texts that differ from Java's are not found; then nothing is left out.
    partitions_by_text = {tuple(str(value) for value in p.values): p for p in action.partitions}
    left: list[Partition] = []
    for values in partitions_with_files_up_to(spark, planned_groups.groups, sequence_number):
        if values not in partitions_by_text:
            return None
        left.append(partitions_by_text[values])
    return tuple(dict.fromkeys(left))


def narrowed(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions."""
    metadata = head(lake, action.table).metadata
    specs_by_id = {spec.spec_id: spec for spec in specs(metadata)}
    partition_filter = where(
        action.catalog, specs_by_id, columns(metadata, schema_of(metadata)), partitions
    )
    if partition_filter is None and action.where is not None:
        raise ParameterError(
            f"No filter selects only {count(len(partitions), 'partition')} of {action.title} any "
            "more. Plan again."
        )
    return replace(
        action,
        partitions=tuple(partitions),
        where=excluding(partition_filter, action.unless),
        partition_names=(),
    )


def smaller_parts(lake: Lake, action: Action, *, floor_bytes: int) -> tuple[Action, ...]:
    """The action in smaller parts: fewer partitions, then smaller groups; a partition of a
    conversion in more commits.

    Groups become no smaller than ``floor_bytes``. Empty when nothing smaller is possible.
    """
    parts = action.partitions
    if len(parts) > 1:
        middle = len(parts) // 2
        halves = enumerate((parts[:middle], parts[middle:]), 1)
        return tuple(
            replace(_part(lake, action, half), action_id=f"{action.action_id}.{number}")
            for number, half in halves
        )
    if action.procedure == CONVERT:
        slices = _number(action, "slices", 1)
        arguments = {**action.arguments, "slices": slices * 4}
        smaller = replace(action, action_id=f"{action.action_id}.s", arguments=arguments)
        return (smaller,) if slices < _MOST_SLICES else ()
    if action.options.get("rewrite-all") != "true":
        group_bytes = ask_planner(lake.spark, action).largest_group_bytes // 2
        if group_bytes >= floor_bytes:
            options = {**_gentler(action.options), "max-file-group-size-bytes": str(group_bytes)}
            return (replace(action, action_id=f"{action.action_id}.s", options=options),)
    return ()


def only_dangling(action: Action) -> Action | None:
    """An action that only drops an action's dangling deletes, for a kill between its two commits;
    None if it drops none.
    """
    if action.options.get(DANGLING) != "true":
        return None
    options = {
        key: value
        for key, value in action.options.items()
        if key not in {"rewrite-all", "delete-file-threshold"}
    }
    return replace(action, options={**options, **REWRITE_NOTHING})


def _part(lake: Lake, action: Action, partitions: Sequence[Partition]) -> Action:
    """The action for some of its partitions, with half as many groups at the same time."""
    if action.procedure == CONVERT:
        return replace(action, partitions=tuple(partitions), partition_names=())
    return replace(narrowed(lake, action, partitions), options=_gentler(action.options))


def _gentler(options: Mapping[str, str]) -> dict[str, str]:
    """The same options with half as many groups at the same time."""
    at_once = int(options.get("max-concurrent-file-group-rewrites", "5"))
    return {**options, "max-concurrent-file-group-rewrites": str(max(1, at_once // 2))}


# Most parts of one batch: each reads the deletes again.
_MOST_SLICES = 64
# A sequence number that no delete has.
_ALL = 2**62


def convert_action(
    spark: SparkSession, action: Action, tags: Mapping[str, str], *, stop: Stop, check: bool = True
) -> None:
    """Run a conversion's action, each commit checked, and tagged with the files and bytes read for
    it; see :func:`icekit.deletes.convert.convert`.
    """
    slices = _number(action, "slices", 1)

    def with_read(scopes: Sequence[Scope]) -> Mapping[str, str]:
        files, size = read_of(scopes, slices)
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


def data_under(scopes: Sequence[Scope]) -> tuple[int, int, int]:
    """The data files that the deletes of some scopes apply to, their bytes and their rows."""
    # Global deletes of two specs apply to the same data files, and are converted separately from
    # those of partitions.
    everywhere = sorted((s for s in scopes if s.is_global), key=lambda s: s.data_files)
    widest_scopes = everywhere[-1:] or scopes
    return (
        sum(s.data_files for s in widest_scopes),
        sum(s.data_bytes for s in widest_scopes),
        sum(s.data_records for s in widest_scopes),
    )


def read_of(scopes: Sequence[Scope], slices: int = 1) -> tuple[int, int]:
    """The files that one commit of a conversion reads, and their bytes: all the deletes, and its
    slice of the data files that they apply to.
    """
    files, size, _ = data_under(scopes)
    return (
        files // slices + sum(s.delete_files for s in scopes),
        size // slices + sum(s.delete_bytes for s in scopes),
    )


def deletes_left(spark: SparkSession, action: Action) -> bool:
    """Whether the table still has equality deletes that the action was planned for."""
    snapshot_deletes = remaining(spark, action.sql_name, **_taken(action))
    return snapshot_deletes is not None and bool(snapshot_deletes.scopes)


def _taken(action: Action) -> dict[str, Any]:
    """The deletes that a conversion takes."""
    return {
        "branch": action.branch,
        "partitions": action.partitions,
        "up_to": _number(action, "up_to", _ALL),
    }


def _number(action: Action, argument: str, default: int) -> int:
    return int(str(action.arguments.get(argument, default)))


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
    elif action.rewrites_deletes:
        check_paths_of_deletes(spark, action)
        positions = None
        if check:
            positions = PositionDeletes.of_table(spark, table)
            tags = {**tags, COMPARED_POSITIONS_TAG: "true"}
        in_java = positions and positions.java
        deletes = actions.rewritePositionDeletes(guarded_table(spark, loaded, positions=in_java))
        with other_rows_explained(positions):
            _set_up(spark, action, deletes, action.options, tags).execute()
    elif action.procedure == "rewrite_manifests":
        manifests = actions.rewriteManifests(table)
        if "spec_id" in action.arguments:
            manifests = manifests.specId(_number(action, "spec_id", 0))
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
        expiry = expiry.retainLast(_number(action, "retain_last", 1))
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
    if groups.left_out_count:
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
