"""Review a MERGE: which files of the target it opens, which filters reach Iceberg and what is
shuffled; a narrower ON, tried on clones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.answer.grid import BYTES, COUNT, SECONDS
from icekit.catalog.lake import session_of
from icekit.engine.bridge import is_case_sensitive, load_now
from icekit.engine.errors import engine_errors, explain, reason
from icekit.engine.planner import is_scan_of, kind, metric, nodes_with_searches, ran_command
from icekit.errors import ParameterError, RehearsalFailed, StatementRefused
from icekit.prove.fingerprint import fingerprint
from icekit.sandbox.trial import BUDGET_BYTES, Budget, Sandbox, Trial
from icekit.secrets import scrub
from icekit.sql import display_name, reset_session, set_session
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements
from icekit.tune.experiment import Experiment, unchanged
from icekit.tune.merge.engine import (
    EnginePlan,
    Scan,
    keys_of,
    planned,
    read_plan,
    unstable_writes,
    whole,
)
from icekit.tune.merge.narrow import (
    PartitionedJoin,
    Rewrite,
    partitioned_join,
    partitioning,
    rewrite,
)
from icekit.tune.statement import Statement, literal_count, parse
from icekit.units import count, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake

AS_IS, NARROWER, PARTITIONED = "as it is", "narrower ON", "storage-partitioned join"
FILES, OPENED, SHUFFLED, TIME = (
    "files of the target opened",
    "size of these files",
    "bytes shuffled",
    "time on a clone",
)
_MEASURES = (
    Measure(FILES, COUNT),
    Measure(OPENED, BYTES),
    Measure(SHUFFLED, BYTES),
    Measure(TIME, SECONDS),
)
#: The most literals of a statement that is reviewed, because Spark's rules visit all of them for
# each plan.
MOST_LITERALS = 5_000
_BY_SOURCE = "not matched by source"


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
    ``prove`` also runs the statement and the proposals, each on a zero-copy clone, and compares
    rows, bytes, shuffle and time. Raises :class:`~icekit.errors.StatementRefused` and the errors of
    finding a table; :class:`~icekit.errors.ParameterError` for a target in another catalog.
    """
    budget = Budget(budget_seconds, budget_bytes)
    with session_of(lake) as spark:
        review = MergeReview.of(spark, sql)
        catalog, *name = review.statement.target
        if catalog != lake.name:
            raise ParameterError(
                f"The target is in catalog {catalog}, but this is {lake.name}; connect to "
                f"{catalog}."
            )
        trial = Trial.of(lake, tuple(name), budget, progress=progress)
        measured = Measurements(_MEASURES)
        measured.add(AS_IS, {FILES: review.plan.scan.files, OPENED: review.plan.size_in_bytes})
        if review.narrower is not None:
            measured.add(
                NARROWER,
                {
                    FILES: review.narrower.plan.scan.files,
                    OPENED: review.narrower.plan.size_in_bytes,
                },
            )
        rows: dict[str, str] = {}
        if prove:
            measured, rows = _tried(trial, review) or (measured, rows)
    return _answer(trial, review, measured, rows, prove=prove)


def _parsed(spark: SparkSession, sql: str) -> Statement:
    statement = parse(spark, sql)
    if statement.kind != "MERGE":
        raise StatementRefused(
            f"This is {'an' if statement.kind == 'UPDATE' else 'a'} {statement.kind}; "
            "review-merge reads MERGE statements."
        )
    if (literals := literal_count(spark, statement)) > MOST_LITERALS:
        raise StatementRefused(
            f"The MERGE has {literals:,} literals. A review plans it several times, which takes "
            f"minutes with more than {MOST_LITERALS:,}; write the values to a table, and use that "
            "table in USING."
        )
    return statement


def _tried(trial: Trial, review: MergeReview) -> tuple[Measurements, dict[str, str]] | None:
    """Run the proposals and the statement as it is, each on its own clone; None if there is nothing
    to compare or nothing finished.

    Proposals run first, so that a warm session favours the statement as it is.
    """
    ways: dict[str, tuple[Statement, Mapping[str, str]]] = {}
    if review.narrower is not None:
        ways[NARROWER] = (parse(trial.lake.spark, review.narrower.sql), {})
    if review.joined.settings:
        ways[PARTITIONED] = (review.statement, dict(review.joined.settings))
    if not ways:
        return None
    ways[AS_IS] = (review.statement, {})
    rows: dict[str, str] = {}
    experiment = Experiment(
        trial=trial, variants=dict.fromkeys(ways, unchanged), measures=_MEASURES
    )
    with experiment.open():
        experiment.measure("the statement", partial(_run, ways=ways, rows=rows))
    return (experiment.measured, rows) if AS_IS in rows else None


def _run(
    name: str,
    box: Sandbox,
    ways: Mapping[str, tuple[Statement, Mapping[str, str]]],
    rows: dict[str, str],
) -> dict[str, float]:
    statement, settings = ways[name]
    try:
        # At worst all of the target is rewritten.
        done = box.run(statement.on(box.name), expected_bytes=box.size_in_bytes, settings=settings)
    except engine_errors() as error:
        raise RehearsalFailed(
            f"On a clone of {display_name(statement.target[1:])} the statement failed "
            f"({reason(error)}); nothing was run on the table itself. Fix the statement or its "
            "source.",
            detail=scrub(str(error)),
        ) from None
    branch = (f"branch_{statement.branch}",) if statement.branch else ()
    with box.budget.watching(box.lake.spark):
        rows[name] = str(fingerprint(box.lake.spark, (*box.name, *branch))[()])
    files = opened = shuffled = 0
    for node in nodes_with_searches(ran_command(done.frame)):
        if kind(node) == "ShuffleExchangeExec":
            shuffled += metric(node, "shuffleBytesWritten")
        elif is_scan_of(node, box.name):
            files, opened = (
                files + metric(node, "resultDataFiles"),
                opened + metric(node, "totalDataFileSize"),
            )
    return {FILES: files, OPENED: opened, SHUFFLED: shuffled, TIME: done.seconds}


@dataclass(frozen=True, kw_only=True)
class MergeReview:
    """What the engine says of a MERGE, and the changes and sentences that follow; ``narrower`` is
    None where ``why_not`` says why.

    ``fields`` are the target's partition fields (column, transform), ``keyed`` its columns with an
    equality in ON; ``unstable`` is what makes the statement write other values each time.
    """

    statement: Statement
    plan: EnginePlan
    total: Scan
    narrower: Rewrite | None
    why_not: str
    joined: PartitionedJoin
    fields: tuple[tuple[str, str], ...]
    keyed: frozenset[str]
    broadcast_bytes: int | None
    unstable: str | None

    @classmethod
    def of(cls, spark: SparkSession, sql: str) -> MergeReview:
        """Ask Spark and Iceberg about a MERGE, which is not run; reads its source, and of the
        target only metadata.
        """
        statement = _parsed(spark, sql)
        try:
            table = load_now(spark, statement.target)
            plan = planned(spark, statement.sql)
            before = read_plan(plan, statement.target)
            keys = keys_of(plan, table, case_sensitive=is_case_sensitive(spark))
            narrower, why_not = rewrite(spark, statement, keys, before)
            return cls(
                statement=statement,
                plan=before,
                total=whole(spark, statement.target, statement.branch),
                narrower=narrower,
                why_not=why_not,
                joined=partitioned_join(spark, statement, before, keys),
                fields=tuple(partitioning(table)),
                keyed=frozenset(e.column for e in keys.equalities),
                broadcast_bytes=_broadcast_bytes(spark),
                unstable=unstable_writes(plan),
            )
        except StatementRefused:
            raise
        except Exception as error:
            raise explain(error, statement.target) from error

    def changes(self, refuted: set[str]) -> Iterator[Change]:
        """The proposals and what was checked; a proposal that a trial refutes is dropped."""
        yield self._narrower(is_refuted=NARROWER in refuted)
        yield self._partitioned(is_refuted=PARTITIONED in refuted)
        yield from self._pruning()
        yield _checked("shuffle", self._shuffle())
        yield _checked("writing", self._writing())

    def _narrower(self, *, is_refuted: bool) -> Change:
        rewrite, plan = self.narrower, self.plan
        if rewrite is None or is_refuted:
            return _checked(
                NARROWER,
                "Dropped: it left different rows."
                if rewrite is not None
                else f"There is no narrower ON: {self.why_not}.",
            )
        forms = {"ranges": "its ranges", "bounds": "from smallest to largest"}
        columns = " and ".join(
            f"{a.column} ({forms.get(a.form) or count(a.distinct, 'value')})" for a in rewrite.added
        )
        outcome = (
            "would be inserted although they exist"
            if "not matched" in self.statement.clauses
            else "would not be matched"
        )
        return Change(
            NARROWER,
            count(plan.scan.files, "file"),
            count(rewrite.plan.scan.files, "file"),
            f"With the source's current values of {columns} written into ON, the target scan "
            f"opens {count(rewrite.plan.scan.files, 'file')} instead of {plan.scan.files:,}. "
            "Every pair of rows that matches ON also passes the predicate, so every clause sees "
            "the same rows.",
            rewrite.sql,
            side_effect="the predicate fits only the source's current rows: create it again for "
            "each batch. If the source has changed since, rows that the predicate leaves out "
            f"{outcome}",
            check=rewrite.guard,
            is_whole=True,
        )

    def _partitioned(self, *, is_refuted: bool) -> Change:
        joined = self.joined
        if joined.is_used:
            return _checked(PARTITIONED, "It is in use: Spark joins partitions as they are stored.")
        if is_refuted:
            return _checked(PARTITIONED, "Dropped: it left different rows.")
        if joined.settings:
            fields = (
                ", ".join(joined.plan.scan.grouped_by) if joined.plan else "its partition fields"
            )
            return Change(
                PARTITIONED,
                "not used",
                "used",
                f"With {count(len(joined.settings), 'session setting')}, Spark joins the target "
                f"by {fields} as it is stored, without a shuffle.",
                "; ".join(set_session(key, value) for key, value in joined.settings),
                "; ".join(
                    reset_session(key) if value is None else set_session(key, value)
                    for key, value in joined.before
                ),
                side_effect="each task holds an entire partition, so partitions must fit into a "
                "task, and there are at most as many tasks as partitions",
                is_alternative=self.narrower is not None,
            )
        if not joined.lacks:
            return _checked(PARTITIONED, "It is not needed: the target is not shuffled.")
        return _checked(PARTITIONED, f"It does not apply: {'; '.join(joined.lacks)}.")

    def _pruning(self) -> Iterator[Change]:
        statement, plan = self.statement, self.plan
        reached = "; ".join(plan.scan.filters)
        filters = (
            f"Filters that reached Iceberg: {reached}."
            if reached
            else "No filter of ON reaches Iceberg: a source column's values are not known before "
            "the source is read."
        )
        yield _checked("pruning", f"The target scan opens {self.opened()}. {filters}")
        if plan.mode == "copy-on-write" and plan.group_filter is not None:
            why = (
                "Copy-on-write searches for matches in the join columns of "
                f"{count(plan.group_filter.files, 'file')} first, then opens only the files with "
                "a match."
            )
            yield _checked("group filtering", why)
        elif plan.mode == "merge-on-read" and not any(
            "dynamicpruning#" in f for f in plan.scan.runtime_filters
        ):
            yield _checked(
                "group filtering",
                "Merge-on-read has no group filtering, and dynamic partition pruning does not "
                "reach this scan.",
            )
        if _BY_SOURCE in statement.clauses:
            proposed = "a separate DELETE or UPDATE, if it concerns only some partitions"
            why = (
                "WHEN NOT MATCHED BY SOURCE checks every row of the target against the source, so "
                "the entire target is read and joined."
            )
            yield Change(_BY_SOURCE, "part of the MERGE", proposed, why)
        for column in dict.fromkeys(
            c for c, transform in self.fields if c not in self.keyed and transform != "void"
        ):
            why = (
                f"The target is partitioned by {column}, but ON does not set it equal to a column "
                f"of the source. If the key determines {column} (a row never moves to another "
                "value), add it to ON to skip files. Only you can know this: icekit never adds it."
            )
            yield Change(
                "partition column", "not in ON", f"{column} in ON, if the key determines it", why
            )

    def opened(self) -> str:
        """The files and bytes that the target scan opens, of all."""
        scan, total = self.plan.scan, self.total
        text = (
            f"{scan.files:,} of {count(total.files, 'data file')}, {size(scan.size_in_bytes)} of "
            f"{size(total.size_in_bytes)}"
        )
        return text + (
            f", and delete files {count(scan.delete_files, 'time')}" if scan.delete_files else ""
        )

    def _shuffle(self) -> str:
        plan = self.plan
        if plan.join is None:
            return "There is no join: ON can never be true."
        text = f"Spark plans a {plan.join_type} {plan.join}."
        if not plan.is_target_shuffled:
            how = (
                f"the {plan.broadcast} is broadcast to every task"
                if plan.broadcast
                else "matching partitions of both sides are joined directly"
            )
            return f"{text} The target is not shuffled: {how}."
        return (
            f"{text} The target is shuffled ({size(plan.scan.size_in_bytes)} of files, by "
            f"{', '.join(plan.keys) or 'the join keys'}): {self._why_shuffled()}"
        )

    def _why_shuffled(self) -> str:
        plan, limit = self.plan, self.broadcast_bytes
        if plan.join_type in {"RightOuter", "LeftAnti"}:
            return (
                "NOT MATCHED needs the rows of the source without a match, so Spark could "
                "broadcast only the target. A storage-partitioned join can help."
            )
        if plan.join_type == "FullOuter":
            return (
                "it is a full outer join, which cannot use a broadcast. A storage-partitioned "
                "join can avoid it."
            )
        if not plan.keys:
            return "ON has no equality for the join."
        if limit is not None and limit < 0:
            return "broadcasting is turned off (spark.sql.autoBroadcastJoinThreshold=-1)."
        if plan.source_bytes is not None and limit is not None and plan.source_bytes > limit:
            return (
                f"Spark estimates the source at {size(plan.source_bytes)}, more than its "
                f"broadcast limit of {size(limit)} (spark.sql.autoBroadcastJoinThreshold)."
            )
        return "a sort-merge join needs both sides shuffled by key."

    def _writing(self) -> str:
        if self.plan.write_exchange is None:
            more = (
                " Each task writes a file into every partition it has rows for: at worst, tasks × "
                "partitions files."
                if self.fields
                else ""
            )
            return (
                f"The tasks that joined rows also write them by {self.plan.mode}, without a "
                f"shuffle.{more}"
            )
        return (
            f"Before the write by {self.plan.mode}, Spark shuffles rows into tasks sized by "
            "adaptive execution: a partition gets one or a few files."
        )


def _broadcast_bytes(spark: SparkSession) -> int | None:
    session: Any = spark._jsparkSession
    with contextlib.suppress(Exception):
        return int(session.sessionState().conf().autoBroadcastJoinThreshold())
    return None


def _checked(about: str, why: str) -> Change:
    return Change(about, None, None, why)


def _answer(
    trial: Trial,
    review: MergeReview,
    measured: Measurements,
    rows: Mapping[str, str],
    *,
    prove: bool,
) -> Answer:
    different = {name for name in rows if rows[name] != rows.get(AS_IS)}
    refuted = different if review.unstable is None else set[str]()
    changes = tuple(review.changes(refuted))
    advised = next(
        (c.setting for c in changes if c.sql and c.is_change and not c.is_alternative), None
    )
    is_compared = bool(rows) and not different and trial.stopped is None
    failure = None
    if prove and (different or trial.stopped):
        failure = (
            "The trial could not show that the statement and the proposal leave the same rows."
        )
    if refuted:
        confidence, because = (
            Confidence.LOW,
            "on clones, a proposal left DIFFERENT rows than the statement. Report this.",
        )
    elif different:
        confidence, because = (
            Confidence.MEDIUM,
            f"rows cannot be compared, because the statement writes {review.unstable}, which "
            "differs from run to run.",
        )
    elif is_compared:
        confidence, because = (
            Confidence.HIGH,
            "the statement and the proposals ran on clones; both leave the same rows.",
        )
    elif trial.stopped:
        confidence, because = Confidence.LOW, f"the trial is incomplete: {trial.stopped}."
    else:
        more = (
            "There is no other statement or setting to compare it with, so --prove proved nothing."
            if prove
            else "With --prove it runs on clones."
        )
        confidence, because = (
            Confidence.MEDIUM,
            f"Spark planned the statement and Iceberg its scans; nothing was run. {more}",
        )
    return Answer(
        question="review-merge",
        facts=trial.facts,
        verdict=_verdict(review, advised, refuted, has_choice=any(c.is_change for c in changes)),
        changes=changes,
        measured=measured,
        now=AS_IS,
        advised=advised if advised in measured.rounds else None,
        confidence=confidence,
        because=because,
        notes=(
            "Of the target, only metadata was read; the source was read in a few aggregations.",
        ),
        plans={"Spark's plan": review.plan.tree},
        stopped=trial.stopped,
        failure=failure,
    )


def _verdict(
    review: MergeReview, advised: str | None, refuted: set[str], *, has_choice: bool
) -> str:
    now = f"it opens {review.opened()}"
    if refuted:
        return (
            f"Do not use the proposed {' or '.join(sorted(refuted))}: on clones, it left "
            "DIFFERENT rows than the statement. Report this."
        )
    if advised == NARROWER and review.narrower is not None:
        then = (
            f"{review.narrower.plan.scan.files:,} of {count(review.total.files, 'data file')} "
            f"instead of {review.plan.scan.files:,}"
        )
        return f"Write the source's values into ON: the statement then opens {then}."
    if advised == PARTITIONED:
        return (
            f"Use {count(len(review.joined.settings), 'session setting')}: a storage-partitioned "
            f"join avoids the shuffle of the target. Now {now}."
        )
    return (
        f"No better statement was found; {now}. What may help needs a decision of yours."
        if has_choice
        else f"No change: {now}."
    )


__all__ = ["MergeReview", "review_merge"]
