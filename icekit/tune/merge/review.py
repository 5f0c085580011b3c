"""Review a MERGE: ask the engine how it would run, then what would make it read and shuffle less."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake
from icekit.catalog.lake import session_of
from icekit.engine.bridge import elements, load_now
from icekit.engine.errors import explain
from icekit.engine.session import is_case_sensitive
from icekit.errors import StatementRefused, require_seconds
from icekit.parsing import size_in_bytes
from icekit.tune.budget import Budget
from icekit.tune.merge.advice import lines
from icekit.tune.merge.engine import planned, read_plan, whole
from icekit.tune.merge.keys import keys_of, unstable_writes
from icekit.tune.merge.partitioned_join import partitioned_join
from icekit.tune.merge.result import Review
from icekit.tune.merge.rewrite import partitioning, rewrite
from icekit.tune.statement import literal_count, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    from icekit.tune.merge.trial import try_review

    trials, stopped = try_review(where, review, Budget(budget_seconds, most_bytes))
    return replace(review, trials=trials, stopped=stopped)


def _broadcast_bytes(spark: SparkSession) -> int | None:
    jvm_session: Any = spark._jsparkSession
    with contextlib.suppress(Exception):
        return int(jvm_session.sessionState().conf().autoBroadcastJoinThreshold())
    return None


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "UPDATE" else f"a {kind}"
