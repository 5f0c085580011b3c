"""Run one action on Spark, tagged and stoppable."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from icekit.compact.conversion import convert_action
from icekit.compact.model import CONVERT, Action
from icekit.engine.bridge import has_bridge, java_list, load_now
from icekit.engine.commit_guard import guarded
from icekit.engine.errors import kind_of
from icekit.engine.interrupting import POLL_SECONDS, cancel, new_tag, tagged
from icekit.engine.planner import filter_expression
from icekit.engine.session import make_active, pinned
from icekit.sql import identifier, renewing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Who asks a run to stop: a person, the end of its time, or the loss of its claim on the table.
Reason = Literal["person", "clock", "claim"]

_LAST_WAIT_SECONDS = 20.0
_DANGLING_TRIES = 5
_REWRITE_CATALOG = "spark.sql.catalog.default_rewrite_catalog"


class Stopped(Exception):
    """A person asked to stop; what was committed stays."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the engine says of one call; it may misreport, so the table is asked as well."""

    failed_data_files: int = 0
    failed_groups: int = 0


class Stop:
    """Asks a run to stop between commits; the first Ctrl-C sets it. ``reason`` is who asked, None as long as nobody did."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason: Reason | None = None

    def set(self, reason: Reason = "person") -> None:
        """Ask to stop: groups in flight are given up, what is committed stays. A person's word stands above the others."""
        if self.reason is None or reason == "person":
            self.reason = reason
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Tell whether somebody asked."""
        return self._event.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait, but not after somebody asked; raises :class:`Stopped`."""
        if self._event.wait(seconds):
            raise Stopped


def execute(spark: SparkSession, action: Action, tags: Mapping[str, str], *, stop: Stop, tick: Callable[[float], None]) -> Answer:
    """Run an action's procedure, every commit of it tagged; ``tick`` is called with the seconds so far.

    Through the JVM bridge this is the action that the procedure itself runs, since ``CALL``
    passes no snapshot properties on (``spark.sql.iceberg.snapshot-property`` does not reach
    it). Under Spark Connect it is the ``CALL``, and its commits carry no tag. Raises what the
    engine raises, and :class:`Stopped`; nothing is begun after somebody asked.
    """
    stop.sleep(0)  # raises where somebody did
    run = _by_bridge if has_bridge(spark) else _by_sql
    told: list[Answer | BaseException] = []
    job_tag = new_tag(f"{tags.get('icekit.run-id', '')}-{action.action_id}")

    def work() -> None:
        try:
            with tagged(spark, job_tag):
                told.append(run(spark, action, tags))
        except BaseException as error:
            told.append(error)

    worker = threading.Thread(target=pinned(spark, work), name=job_tag, daemon=True)
    started = time.monotonic()
    worker.start()
    try:
        with _interrupts(stop):
            while worker.is_alive():
                worker.join(POLL_SECONDS)
                tick(time.monotonic() - started)
                if stop.is_set:
                    # Again and again: each group that is still waiting starts a job of its own.
                    cancel(spark, job_tag)
    except BaseException:
        # Whoever cannot wait (a second Ctrl-C) must not leave a rewrite that goes on after its claim is gone.
        stop.set()
        for _ in range(int(_LAST_WAIT_SECONDS / POLL_SECONDS)):
            if not worker.is_alive():
                break
            cancel(spark, job_tag)
            worker.join(POLL_SECONDS)
        raise
    if stop.is_set:
        raise Stopped
    answer = told[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _by_bridge(spark: SparkSession, action: Action, tags: Mapping[str, str]) -> Answer:
    name = (action.catalog, *action.table)
    jvm: Any = spark._jvm
    # Iceberg sets it on whichever session is active when its source is first used, which may be one
    # that a rewrite has cloned for itself: then every group of every later rewrite fails.
    if spark.conf.get(_REWRITE_CATALOG, None) is None:
        spark.conf.set(_REWRITE_CATALOG, "org.apache.iceberg.spark.SparkRewriteTableCatalog")
    make_active(spark)
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    table = load_now(spark, name)
    if action.procedure == "rewrite_data_files":
        checked = guarded(jvm, table)
        rewrite = actions.rewriteDataFiles(table if checked is None else checked)
        for key, value in (action.options if checked is not None else renewing(action.options)).items():
            # Dropped in a commit of its own below, which then carries the tags too.
            if key != "remove-dangling-deletes":
                rewrite = rewrite.option(key, value)
        rewrite = _ordered(spark, rewrite, table, action)
        if action.where is not None:
            rewrite = rewrite.filter(filter_expression(spark, name, action.where))
        if action.branch:
            rewrite = rewrite.toBranch(action.branch)
        result = _with_tags(rewrite, tags).execute()
        answer = Answer(int(result.failedDataFilesCount()), int(result.rewriteFailures().size()))
        if action.options.get("remove-dangling-deletes") == "true":
            _drop_dangling(spark, actions, action, tags)
    elif action.procedure == "rewrite_position_delete_files":
        deletes = actions.rewritePositionDeletes(table)
        for key, value in action.options.items():
            deletes = deletes.option(key, value)
        if action.where is not None:
            deletes = deletes.filter(filter_expression(spark, name, action.where))
        _with_tags(deletes, tags).execute()
        answer = Answer()
    elif action.procedure == "rewrite_manifests":
        manifests = actions.rewriteManifests(table)
        if "spec_id" in action.arguments:
            manifests = manifests.specId(int(str(action.arguments["spec_id"])))
        if isinstance(by := action.arguments.get("sort_by"), tuple):
            # After the spec: its fields are what the names are looked up in.
            manifests = manifests.sortBy(java_list(spark, by))
        _with_tags(manifests, tags).execute()
        answer = Answer()
    elif action.procedure == CONVERT:
        convert_action(spark, action, tags)
        answer = Answer()
    else:
        return _by_sql(spark, action, tags)
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return answer


def _drop_dangling(spark: SparkSession, actions: Any, action: Action, tags: Mapping[str, str]) -> None:
    """Drop dangling deletes; Iceberg 1.12 refuses if any commit comes meanwhile, so this commit alone is tried again."""
    for tries_left in reversed(range(_DANGLING_TRIES)):
        dangling = actions.removeDanglingDeleteFiles(load_now(spark, (action.catalog, *action.table)))
        if action.branch:
            dangling = dangling.toBranch(action.branch)
        try:
            _with_tags(dangling, tags).execute()
            return
        except Exception as error:
            if not tries_left or kind_of(error) != "conflict":
                raise


def _with_tags(java_action: Any, tags: Mapping[str, str]) -> Any:
    for key, value in tags.items():
        java_action = java_action.snapshotProperty(key, value)
    return java_action


def _ordered(spark: SparkSession, rewrite: Any, table: Any, action: Action) -> Any:
    """Give a rewrite its strategy, as the procedure does."""
    order = action.order
    if not order.is_sorting:
        return rewrite.binPack()
    if not order.by:
        return rewrite.sort()
    jvm: Any = spark._jvm
    if order.strategy == "sort":
        builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
        nulls = jvm.org.apache.iceberg.NullOrder
        for path, direction in order.by:
            add = builder.desc if direction.startswith("DESC") else builder.asc
            builder = add(".".join(path), nulls.NULLS_LAST if direction.endswith("LAST") else nulls.NULLS_FIRST)
        return rewrite.sort(builder.build())
    gateway: Any = spark.sparkContext._gateway
    columns = gateway.new_array(gateway.jvm.java.lang.String, len(order.by))
    for place, (path, _) in enumerate(order.by):
        columns[place] = ".".join(path)
    return rewrite.hilbert(columns) if order.strategy == "hilbert" else rewrite.zOrder(columns)


def _by_sql(spark: SparkSession, action: Action, tags: Mapping[str, str]) -> Answer:
    del tags  # CALL has no way to pass them on
    row = spark.sql(action.sql).first()
    told = row.asDict() if row is not None else {}
    return Answer(int(told.get("failed_data_files_count") or 0), 0)


@contextlib.contextmanager
def _interrupts(stop: Stop) -> Iterator[None]:
    """Turn the first Ctrl-C into a request to stop; a second one is Python's own."""
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
