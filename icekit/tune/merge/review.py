"""Review a MERGE: ask the engine how it would run and what would make it read less, then run both ways on clones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake
from icekit.catalog.lake import session_of
from icekit.clone import clone
from icekit.engine.bridge import elements, is_case_sensitive, lent, load_now
from icekit.engine.errors import explain, reason
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.planner import is_scan_of, kind, metric, nodes_with_searches, ran_command
from icekit.errors import RehearsalFailed, StatementRefused, require_seconds
from icekit.parsing import size_in_bytes
from icekit.prove.fingerprint import fingerprint
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name
from icekit.tune.merge.engine import keys_of, planned, read_plan, unstable_writes, whole
from icekit.tune.merge.model import MergeRun, MergeTrial, Review, lines
from icekit.tune.merge.rewrite import partitioned_join, partitioning, rewrite
from icekit.tune.place import Budget, BudgetSpent
from icekit.tune.statement import Statement, literal_count, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- Run a MERGE both ways on clones: the same rows, and what each really read and shuffled


_SMALL_BYTES = 256 * 2**20


def try_review(where: Lake | SparkSession, review: Review, budget: Budget) -> tuple[tuple[MergeTrial, ...], str | None]:
    """Run what a review offers beside the statement as it is, each on a clone of the target; the clones are gone afterwards.

    What is offered runs first, so that a warm session speaks for the statement as it is. A small
    table's statements are run once more before that, unmeasured: starting up would outweigh them.
    Returns the trials that were finished, and why there are no more if the budget was spent.
    """
    trials: list[MergeTrial] = []
    target = review.total.size_in_bytes
    try:
        if review.total.size_in_bytes <= _SMALL_BYTES and (review.rewrite is not None or review.partitioned_join.settings):
            run_on_clone(where, review.statement, budget, target)
        before: MergeRun | None = None
        if review.rewrite is not None:
            with session_of(where) as spark:
                narrower = parse(spark, review.rewrite.sql)
            after = run_on_clone(where, narrower, budget, target)
            before = run_on_clone(where, review.statement, budget, target)
            trials.append(MergeTrial("narrower ON", before, after, review.unstable))
        if review.partitioned_join.settings:
            after = run_on_clone(where, review.statement, budget, target, dict(review.partitioned_join.settings))
            before = before or run_on_clone(where, review.statement, budget, target)
            trials.append(MergeTrial("storage-partitioned join", before, after, review.unstable))
    except BudgetSpent as error:
        return tuple(trials), str(error)
    return tuple(trials), None


def run_on_clone(
    where: Lake | SparkSession, statement: Statement, budget: Budget, size_in_bytes: int, settings: Mapping[str, str] | None = None
) -> MergeRun:
    """Run a statement on a clone of its target, under settings lent to the session for it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    catalog, *name = statement.target
    with clone(where, tuple(name) if isinstance(where, Lake) else statement.target) as copy, session_of(where) as spark:
        on: Identifier = (catalog, *copy.table)
        with lent(spark, settings or {}):
            started = time.monotonic()
            try:
                # At worst all of the target is written anew.
                with budget.watching(spark, size_in_bytes):
                    frame = spark.sql(statement.on(on))
            except (PySparkException, Py4JJavaError) as error:
                raise RehearsalFailed(
                    f"On a clone of {display_name(statement.target[1:])} the statement failed ({reason(error)}); nothing was run on the table itself. Mend the statement or its source.",
                    detail=scrub(str(error)),
                ) from None
            seconds = time.monotonic() - started
        read, shuffled = _measured(ran_command(frame), on)
        branch = (f"branch_{statement.branch}",) if statement.branch else ()
        snapshots = metadata_table(spark, on, "snapshots").orderBy("committed_at", ascending=False)
        added = snapshots.selectExpr("summary['added-files-size']").limit(1).collect()
        budget.bytes_written += int(added[0][0] or 0) if added else 0
        with budget.watching(spark):
            rows = fingerprint(spark, (*on, *branch))[()]
    files = sum(f for f, _ in read)
    return MergeRun(seconds, files, sum(b for _, b in read), shuffled, str(rows))


def _measured(plan: Any, table: Identifier) -> tuple[list[tuple[int, int]], int]:
    """Files and bytes of each scan of a table in a plan that was run, and the bytes of all its shuffles."""
    if plan is None:
        return [], 0
    read: list[tuple[int, int]] = []
    shuffled = 0
    for node in nodes_with_searches(plan):
        if kind(node) == "ShuffleExchangeExec":
            shuffled += metric(node, "shuffleBytesWritten")
        elif is_scan_of(node, table):
            read.append((metric(node, "resultDataFiles"), metric(node, "totalDataFileSize")))
    return read, shuffled


#: Literals of a statement that is reviewed: Spark's rules walk all of them for each plan.
MOST_LITERALS = 5_000


def review_merge(
    where: Lake | SparkSession, sql: str, *, prove: bool = False, budget_seconds: float = 1800, budget_bytes: str = "20 GB"
) -> Review:
    """Explain a MERGE without running it, and offer the same with a narrower ON where that reads less.

    ``where`` is a Spark session, or a lake: then names without a catalog are looked for in its
    catalog. The source is read (some aggregations, and the guard), of the target only metadata.
    ``prove`` also runs the statement and what is offered, each on a zero-copy clone, and compares
    rows, bytes, shuffle and time, until ``budget_seconds`` or ``budget_bytes`` (data written) are spent. Raises :class:`~icekit.errors.StatementRefused` and the errors of
    finding a table; with ``prove`` :class:`~icekit.errors.CloneRefused`.
    """
    require_seconds("budget_seconds", budget_seconds)
    most_bytes = size_in_bytes(budget_bytes)
    with session_of(where) as spark:
        statement = parse(spark, sql)
        if statement.kind != "MERGE":
            raise StatementRefused(f"This is {_a(statement.kind)}; review_merge reads MERGE statements.")
        if (literals := literal_count(spark, statement)) > MOST_LITERALS:
            raise StatementRefused(
                f"The MERGE has {literals:,} literals. A review plans it several times, and with more than {MOST_LITERALS:,} that takes minutes; "
                "write the values to a table, and join it in USING."
            )
        try:
            table = load_now(spark, statement.target)
            plan = planned(spark, statement.sql)
            before = read_plan(spark, plan, statement.target)
            keys = keys_of(plan, table, case_sensitive=is_case_sensitive(spark))
            narrower, why_not = rewrite(spark, statement, keys, before)
            joined = partitioned_join(spark, statement, before, keys)
        except StatementRefused:
            raise
        except Exception as error:
            raise explain(error, statement.target) from error
        total = whole(spark, statement.target, statement.branch)
        said = lines(
            statement,
            total,
            before,
            narrower,
            why_not,
            joined,
            fields=tuple(partitioning(table)),
            keyed=frozenset(e.column for e in keys.equalities),
            source_columns=frozenset(str(a.name()) for a in (elements(keys.source.output()) if keys.source is not None else ())),
            broadcast_bytes=_broadcast_bytes(spark),
        )
        review = Review(statement, statement.target, total, before, narrower, joined, said, unstable_writes(plan))
    if not prove:
        return review

    trials, stopped = try_review(where, review, Budget(budget_seconds, most_bytes))
    return replace(review, trials=trials, stopped=stopped)


def _broadcast_bytes(spark: SparkSession) -> int | None:
    jvm_session: Any = spark._jsparkSession
    with contextlib.suppress(Exception):
        return int(jvm_session.sessionState().conf().autoBroadcastJoinThreshold())
    return None


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "UPDATE" else f"a {kind}"
