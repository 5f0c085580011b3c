"""Run a MERGE both ways on clones: the same rows, and what each really read and shuffled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake
from icekit.catalog.lake import session_of
from icekit.clone import clone
from icekit.engine.errors import reason
from icekit.engine.metadata_tables import metadata_table
from icekit.engine.plan_nodes import is_scan_of, kind, metric, nodes_with_searches, ran_command
from icekit.engine.session import lent
from icekit.errors import RehearsalFailed
from icekit.prove.fingerprint import fingerprint
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name
from icekit.tune.budget import Budget, BudgetSpent
from icekit.tune.merge.model import Run, Trial
from icekit.tune.merge.result import Review
from icekit.tune.statement import Statement, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_BYTES = 256 * 2**20


def try_review(where: Lake | SparkSession, review: Review, budget: Budget) -> tuple[tuple[Trial, ...], str | None]:
    """Run what a review offers beside the statement as it is, each on a clone of the target; the clones are gone afterwards.

    What is offered runs first, so that a warm session speaks for the statement as it is. A small
    table's statements are run once more before that, unmeasured: starting up would outweigh them.
    Returns the trials that were finished, and why there are no more if the budget was spent.
    """
    trials: list[Trial] = []
    target = review.total.size_in_bytes
    try:
        if review.total.size_in_bytes <= _SMALL_BYTES and (review.rewrite is not None or review.partitioned_join.settings):
            run_on_clone(where, review.statement, budget, target)
        before: Run | None = None
        if review.rewrite is not None:
            with session_of(where) as spark:
                narrower = parse(spark, review.rewrite.sql)
            after = run_on_clone(where, narrower, budget, target)
            before = run_on_clone(where, review.statement, budget, target)
            trials.append(Trial("narrower ON", before, after, review.unstable))
        if review.partitioned_join.settings:
            after = run_on_clone(where, review.statement, budget, target, dict(review.partitioned_join.settings))
            before = before or run_on_clone(where, review.statement, budget, target)
            trials.append(Trial("storage-partitioned join", before, after, review.unstable))
    except BudgetSpent as error:
        return tuple(trials), str(error)
    return tuple(trials), None


def run_on_clone(
    where: Lake | SparkSession, statement: Statement, budget: Budget, size_in_bytes: int, settings: Mapping[str, str] | None = None
) -> Run:
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
    return Run(seconds, files, sum(b for _, b in read), shuffled, str(rows))


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
