"""Hold the review of a MERGE: how the engine would run it, a narrower ON, a join without a shuffle; shown as the card of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from icekit.answer.grid import BYTES, COUNT, SECONDS, TEXT, Grid
from icekit.saving import slug, write_json
from icekit.sql import Identifier, display_name, identifier, reset_session, set_session, statements
from icekit.tune.card import Advice, Card, Effect, Script, tried_or_not
from icekit.tune.statement import Statement
from icekit.units import count, elapsed, size


@dataclass(frozen=True, slots=True)
class Scan:
    """What one scan of the target would open, from the engine's own planner.

    ``filters`` are those that reached Iceberg, ``grouped_by`` the partition fields whose
    partitions it keeps apart. ``size_in_bytes`` is the size of the data files, of which a columnar
    scan reads only a part; ``partitions`` is None if it is not known.
    """

    files: int
    size_in_bytes: int
    delete_files: int
    partitions: int | None
    filters: tuple[str, ...] = ()
    runtime_filters: tuple[str, ...] = ()
    grouped_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """How Spark would run a MERGE, found without running it.

    ``mode`` is copy-on-write, merge-on-read or append (no clause touches an existing row).
    ``group_filter`` is the scan by which a copy-on-write MERGE finds the files that hold matches,
    at run time. ``broadcast`` is the side that is sent to every task, source or target. ``exchange`` is the shuffle of the target before the join (None: there is
    none), ``write_exchange`` the shuffle of the rows before they are written.
    """

    mode: str
    join: str | None
    join_type: str | None
    keys: tuple[str, ...]
    scan: Scan
    group_filter: Scan | None
    broadcast: str | None
    exchange: str | None
    write_exchange: str | None
    source_bytes: int | None
    tree: str

    @property
    def is_target_shuffled(self) -> bool:
        """Tell whether the target's rows go through a shuffle before the join."""
        return self.exchange is not None

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the target's files that are opened: by the scan itself, and by the search for matches before it."""
        return self.scan.size_in_bytes + (self.group_filter.size_in_bytes if self.group_filter else 0)


@dataclass(frozen=True, slots=True)
class Added:
    """One predicate that narrows the target scan, and its origin.

    ``column`` is the target's column, ``expression`` what ON sets equal to it, ``form`` how
    the source's values are written: values, ranges or bounds.
    """

    column: str
    expression: str
    form: str
    predicate: str
    distinct: int
    has_nulls: bool


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The statement with predicates that ON implies for every row of this source.

    ``guard`` counts the source's rows that the predicates leave out: it must give 0 just before
    the statement is run, because such rows would be inserted although they are there.
    """

    sql: str
    predicate: str
    added: tuple[Added, ...]
    guard: str
    plan: EnginePlan


@dataclass(frozen=True, slots=True)
class PartitionedJoin:
    """Whether a storage-partitioned join would avoid the shuffle.

    ``is_used`` is true if the session uses one already. ``settings`` are those that are missing (the smallest set
    found, by leaving out one after the other), ``before`` their values in the session (None: not set). If the
    layout prevents the join, ``lacks`` says how, and ``layout`` is SQL for a source that would work.
    """

    is_used: bool
    is_possible: bool
    settings: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    plan: EnginePlan | None = None
    before: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MergeRun:
    """One statement run on a clone: what it really opened and shuffled."""

    seconds: float
    files: int
    size_in_bytes: int
    shuffle_bytes: int
    rows: str


@dataclass(frozen=True, slots=True)
class MergeTrial:
    """Two ways of running the same MERGE, each on a clone of its own.

    ``unstable`` is what makes the statement write other values each time, as ``current_timestamp()`` does.
    """

    what: str
    before: MergeRun
    after: MergeRun
    unstable: str | None = None

    @property
    def is_same(self) -> bool:
        """Tell whether both left the same rows."""
        return self.before.rows == self.after.rows

    @property
    def is_refuted(self) -> bool:
        """Tell whether the rows differ although the statement writes the same values each time."""
        return not self.is_same and self.unstable is None

    def verdict(self) -> str:
        """The result of the trial for the rows."""
        if self.is_same:
            return "both leave the same rows"
        if self.unstable:
            return f"rows cannot be compared, because the statement writes {self.unstable}, which differs from run to run"
        return "the two statements leave DIFFERENT rows; do not use the proposal, and report this"


# --- Say in sentences what a plan of a MERGE means; pure


_BY_SOURCE = "not matched by source"


@dataclass(frozen=True, kw_only=True)
class MergeContext:
    """What is known besides the plan: the target's partition fields (column, transform), columns with an equality in ON, columns of the source."""

    fields: tuple[tuple[str, str], ...]
    keyed: frozenset[str]
    source_columns: frozenset[str]
    broadcast_bytes: int | None


NARROWER, PARTITIONED = "narrower ON", "storage-partitioned join"


def advise(review: Review, why_not: str, known: MergeContext) -> tuple[Advice, ...]:
    """What to change and what was checked; ``why_not`` says why there is no narrower statement. A proposal that a trial refutes is dropped."""
    statement, plan = review.statement, review.plan
    return (
        _rewrite(review, why_not),
        _partitioned(review),
        *_pruning(review, known),
        _shuffle(statement, plan, known.broadcast_bytes),
        _writing(plan, known.fields),
    )


def _checked(about: str, said: str) -> Advice:
    return Advice(about, None, None, said)


def opened(scan: Scan, total: Scan) -> str:
    """The files and bytes that a scan opens, of the total."""
    said = f"{scan.files:,} of {count(total.files, 'data file')}, {size(scan.size_in_bytes)} of {size(total.size_in_bytes)}"
    if scan.partitions is not None and total.partitions is not None:
        said += f", in {scan.partitions:,} of {count(total.partitions, 'partition')}"
    # A delete file counts once for each data file that it is opened with.
    return said + (f", and delete files {count(scan.delete_files, 'time')}" if scan.delete_files else "")


def _pruning(review: Review, known: MergeContext) -> Iterator[Advice]:
    statement, plan, total = review.statement, review.plan, review.total
    reached = "; ".join(plan.scan.filters)
    said = f"The target scan opens {opened(plan.scan, total)}."
    said += (
        f" Filters that reached Iceberg: {reached}."
        if reached
        else " No filter of ON reaches Iceberg, because the values of a source column are not known before the source is read."
    )
    yield _checked("pruning", said)
    if plan.mode == "copy-on-write" and plan.group_filter is not None:
        narrowed = (
            " At run time, dynamic pruning limits this search to the partitions in the source." if _is_pruned(plan.group_filter) else ""
        )
        yield _checked(
            "group filtering",
            f"Copy-on-write searches for matches first: it reads the join columns of {count(plan.group_filter.files, 'file')}, then opens only "
            f"the files with a match. So the figure above is an upper limit, and the search reads its files in addition.{narrowed}",
        )
    elif plan.mode == "copy-on-write" and _BY_SOURCE in statement.clauses:
        yield _checked("group filtering", "There is no group filtering: NOT MATCHED BY SOURCE may change rows in any file.")
    elif plan.mode == "merge-on-read":
        yield _checked(
            "group filtering",
            "Merge-on-read has no group filtering; "
            + (
                "dynamic partition pruning limits the scan at run time to the partitions in the source."
                if _is_pruned(plan.scan)
                else "dynamic partition pruning does not reach this scan. For updates, Spark numbers the target's rows to check whether one "
                "matches twice, which prevents pruning; for deletes alone, it prunes if the source has its own filter."
            ),
        )
    if _BY_SOURCE in statement.clauses:
        yield Advice(
            "not matched by source",
            "part of the MERGE",
            "a separate DELETE or UPDATE, if it concerns only some partitions",
            "WHEN NOT MATCHED BY SOURCE checks every row of the target against the source, so the entire target is read and joined and, with "
            "copy-on-write, every file may be rewritten.",
        )
    missing = [column for column, transform in known.fields if column not in known.keyed and transform != "void"]
    for column in dict.fromkeys(missing):
        yield _dependency(statement, column, column in known.source_columns)


def _is_pruned(scan: Scan) -> bool:
    return any("dynamicpruning#" in f for f in scan.runtime_filters)


def _dependency(statement: Statement, column: str, is_in_source: bool) -> Advice:
    """A partition column that ON leaves out: what would have to be true, and how to check it."""
    said = (
        f"The target is partitioned by {column}, but ON has no usable equality between it and the source. If the key determines {column} (a row never moves to "
        f"another value, and the source has the column), add it to ON to skip files. Only you can know this: icekit never adds it."
    )
    if not is_in_source or statement.source_alias is None:
        return _checked("partition column", f"{said} The source has no column of that name.")
    mine, other = identifier(*statement.qualifier, column), identifier(statement.source_alias, column)
    name = identifier(*statement.target, *((f"branch_{statement.branch}",) if statement.branch else ()))
    alias = f" AS {identifier(statement.alias)}" if statement.alias is not None else ""
    lead = f"{statement.with_clause} " if statement.with_clause else ""
    check = (
        f"{lead}SELECT count(*) AS moved FROM {name}{alias} JOIN {statement.source} ON {statement.condition} WHERE NOT ({mine} <=> {other})"
    )
    then = f"{column} in ON, if the key determines it"
    return Advice("partition column", "not in ON", then, f"{said} The check reads as much as the MERGE does.", check=check)


def _rewrite(review: Review, why_not: str) -> Advice:
    rewrite, plan = review.rewrite, review.plan
    if rewrite is None:
        return _checked(NARROWER, f"There is no narrower ON: {why_not}.")
    trial = review.trial(NARROWER)
    if trial is not None and trial.is_refuted:
        return _checked(NARROWER, f"Dropped: {trial.verdict()}.")
    columns = " and ".join(f"{a.column} ({_form(a.form, a.distinct)})" for a in rewrite.added)
    outcome = "would be inserted although they exist" if "not matched" in review.statement.clauses else "would not be matched"
    return Advice(
        NARROWER,
        count(plan.scan.files, "file"),
        count(rewrite.plan.scan.files, "file"),
        f"With the source's current values of {columns} written into ON, the target scan opens {count(rewrite.plan.scan.files, 'file')} "
        f"instead of {plan.scan.files:,}, {size(rewrite.plan.size_in_bytes)} instead of {size(plan.size_in_bytes)}. Every pair of rows that matches ON "
        "also passes the predicate, so every clause sees the same rows.",
        rewrite.sql,
        verified=_verified(trial),
        breaks="the predicate fits only the source's current rows: create it again for each batch. If the source has changed since, "
        f"rows that the predicate leaves out {outcome}",
        check=rewrite.guard,
    )


def _verified(trial: MergeTrial | None) -> str | None:
    return None if trial is None else f"on clones, {trial.verdict()}."


def _form(form: str, distinct: int) -> str:
    return {"values": count(distinct, "value"), "ranges": "its ranges", "bounds": "from smallest to largest"}[form]


def _shuffle(statement: Statement, plan: EnginePlan, broadcast_bytes: int | None) -> Advice:
    if plan.join is None:
        return _checked("shuffle", "There is no join: ON can never be true.")
    kind = {
        "Inner": "inner",
        "RightOuter": "right outer",
        "LeftOuter": "left outer",
        "FullOuter": "full outer",
        "LeftAnti": "left anti",
    }.get(plan.join_type or "", plan.join_type)
    said = f"Spark plans a {kind} {plan.join}."
    if not plan.is_target_shuffled:
        how = (
            f"the {plan.broadcast} is broadcast to every task"
            if plan.broadcast
            else "matching partitions of both sides are joined directly"
        )
        return _checked("shuffle", f"{said} The target is not shuffled: {how}.")
    why = _why(statement, plan, broadcast_bytes)
    return _checked(
        "shuffle",
        f"{said} The target is shuffled ({size(plan.scan.size_in_bytes)} of files, by {', '.join(plan.keys) or 'the join keys'}): {why} "
        "Adaptive execution may combine partitions or split skewed ones at run time, but it does not avoid the shuffle.",
    )


def _why(statement: Statement, plan: EnginePlan, broadcast_bytes: int | None) -> str:
    if plan.join_type in {"RightOuter", "LeftAnti"}:
        return (
            "NOT MATCHED needs the rows of the source without a match, so Spark could broadcast only the target, which is too large, or not allowed "
            "because Spark must check whether a row matches twice. A smaller source would not help; a storage-partitioned join can."
        )
    if plan.join_type == "FullOuter":
        kept = (
            "NOT MATCHED BY SOURCE"
            if _BY_SOURCE in statement.clauses
            else "copy-on-write, which also writes back unmatched rows of its files,"
        )
        return f"NOT MATCHED together with {kept} makes it a full outer join, which cannot use a broadcast. A storage-partitioned join can avoid it."
    if not plan.keys:
        return "ON has no equality for the join."
    if broadcast_bytes is not None and broadcast_bytes < 0:
        return "broadcasting is turned off (spark.sql.autoBroadcastJoinThreshold=-1)."
    if plan.source_bytes is not None and broadcast_bytes is not None and plan.source_bytes > broadcast_bytes:
        return (
            f"Spark estimates the source at {size(plan.source_bytes)}, more than its broadcast limit of {size(broadcast_bytes)} "
            "(spark.sql.autoBroadcastJoinThreshold)."
        )
    return "a sort-merge join needs both sides shuffled by key."


def _partitioned(review: Review) -> Advice:
    joined = review.partitioned_join
    if joined.is_used:
        return _checked(PARTITIONED, "It is in use: Spark joins partitions as they are stored.")
    if joined.is_possible and joined.settings:
        trial = review.trial(PARTITIONED)
        if trial is not None and trial.is_refuted:
            return _checked(PARTITIONED, f"Dropped: {trial.verdict()}.")
        fields = ", ".join(joined.plan.scan.grouped_by) if joined.plan else "its partition fields"
        these = "this setting" if len(joined.settings) == 1 else "these settings"
        undo = (reset_session(key) if value is None else set_session(key, value) for key, value in joined.before)
        return Advice(
            PARTITIONED,
            "not used",
            "used",
            f"With {these}, Spark joins the target by {fields} as it is stored, without a shuffle.",
            "; ".join(set_session(key, value) for key, value in joined.settings),
            verified=_verified(trial),
            breaks="each task holds an entire partition, so partitions must fit into a task, and there are at most as many tasks as partitions",
            undo="; ".join(undo),
            is_alternative=review.rewrite is not None,
        )
    if not joined.lacks:
        return _checked(PARTITIONED, "It is not needed: the target is not shuffled.")
    said = f"It does not apply: {'; '.join(joined.lacks)}."
    if not joined.layout:
        return _checked(PARTITIONED, said)
    return Advice(
        PARTITIONED,
        "does not apply",
        "a source with the target's partitioning",
        f"{said} A source with this layout would work. It was not tried.",
        "; ".join(joined.layout),
        is_alternative=True,
    )


def _writing(plan: EnginePlan, fields: tuple[tuple[str, str], ...]) -> Advice:
    if plan.write_exchange is None:
        more = " Each task writes a file into every partition it has rows for: at worst, tasks × partitions files." if fields else ""
        return _checked("writing", f"The tasks that joined rows also write them, without a shuffle.{more}")
    by = "sorted ranges" if plan.write_exchange.startswith("range") else "partition" if fields else "a shuffle"
    return _checked(
        "writing",
        f"Before the write, Spark shuffles rows by {by}, into tasks sized by adaptive execution. So a partition gets one or a few files, and a MERGE that "
        "touches many partitions writes at least one small file into each.",
    )


# --- The review of a MERGE, as the card of an answer


_WAYS = {
    "statement": TEXT,
    "how_known": TEXT("basis"),
    "file_count": COUNT("files opened"),
    "size_in_bytes": BYTES("size of the files"),
    "shuffle_bytes": BYTES("shuffled"),
    "seconds": SECONDS("time"),
    "rows": TEXT("rows after the MERGE"),
}


@dataclass(frozen=True, repr=False)
class Review(Card):
    """A MERGE explained, with ways to read and shuffle less; nothing was run on the table.

    ``total`` is a scan of the entire target, ``unstable`` the part of the statement that writes different values each time. ``trials`` are filled on request;
    ``stopped`` says why some are missing; ``is_proof_asked`` is true if trials were requested, even if there was nothing to try.
    """

    question: ClassVar[str] = "review-merge"

    statement: Statement
    table: Identifier
    total: Scan
    plan: EnginePlan
    rewrite: Rewrite | None
    partitioned_join: PartitionedJoin
    advice: tuple[Advice, ...] = ()
    unstable: str | None = None
    trials: tuple[MergeTrial, ...] = ()
    stopped: str | None = None
    is_proof_asked: bool = False

    @property
    def name(self) -> str:
        """The target's name, without its catalog."""
        return display_name(self.table[1:])

    @property
    def script(self) -> Script:
        """The narrower statement, or the settings that avoid the shuffle; empty if the statement should stay as it is."""
        # A statement is not split at its semicolons: it may have some in its texts.
        if (narrower := self._advised(NARROWER)) is not None:
            return Script((narrower.sql or "",))
        settings = self._advised(PARTITIONED)
        return Script() if settings is None else Script(*(statements(text or "") for text in (settings.sql, settings.undo)))

    @property
    def guard(self) -> str:
        """The query that must return 0 just before the narrower statement runs, or a sentence that there is none."""
        return self.rewrite.guard if self.rewrite is not None else "There is no narrower statement, so there is nothing to guard."

    @property
    def is_proved(self) -> bool:
        """Tell whether all trials finished with the same rows; also true without trials."""
        return self.stopped is None and all(trial.is_same for trial in self.trials)

    @property
    def failure(self) -> str | None:
        """Why a run that asked this failed, or None."""
        return None if self.is_proved else "The trial could not show that the statement and the proposal leave the same rows."

    def trial(self, what: str) -> MergeTrial | None:
        """The trial of a proposal; None if it was not tried."""
        return next((trial for trial in self.trials if trial.what == what), None)

    def _advised(self, what: str) -> Advice | None:
        return next((a for a in self.advice if a.setting == what and a.sql and not a.is_alternative), None)

    def badge(self) -> tuple[str, str]:
        """The kind of card and its label; critical if a trial left different rows."""
        return ("critical", "✖ different rows") if any(t.is_refuted for t in self.trials) else super().badge()

    def verdict(self) -> str:
        """What to change and the files that the target scan then opens, or that the statement should stay as it is."""
        here = f"it opens {opened(self.plan.scan, self.total)}"
        refuted = next((t for t in self.trials if t.is_refuted), None)
        if refuted is not None:
            return f"Do not use the proposed {refuted.what}: on clones, it left DIFFERENT rows than the statement. Report this."
        if self._advised(NARROWER) is not None and self.rewrite is not None:
            join = " Alternatively, a storage-partitioned join avoids the shuffle of the target." if self.partitioned_join.settings else ""
            then = f"{self.rewrite.plan.scan.files:,} of {count(self.total.files, 'data file')} instead of {self.plan.scan.files:,}"
            return f"Write the source's values into ON: the statement then opens {then}.{join}"
        if self._advised(PARTITIONED) is not None:
            settings = count(len(self.partitioned_join.settings), "session setting")
            return f"Use {settings}: a storage-partitioned join avoids the shuffle of the target. Now {here}."
        return (
            f"No better statement was found; {here}. What may help needs a decision of yours." if self.is_change else f"No change: {here}."
        )

    def effects(self) -> list[Effect]:
        """The files and bytes that the statement opens, and what it shuffles: measured on clones, or planned."""
        advised = self._advised(NARROWER) or self._advised(PARTITIONED)
        if advised is None:
            return []
        trial, found = self.trial(advised.setting), []
        if trial is not None:
            before, after = trial.before, trial.after
            found += [
                Effect("files of the target opened", f"{before.files:,}", f"{after.files:,}"),
                Effect("size of these files", size(before.size_in_bytes), size(after.size_in_bytes)),
                Effect("bytes shuffled", size(before.shuffle_bytes), size(after.shuffle_bytes), after.shuffle_bytes > before.shuffle_bytes),
                Effect("time on a clone", elapsed(before.seconds), elapsed(after.seconds), after.seconds > before.seconds),
            ]
        elif advised.check is not None and self.rewrite is not None:
            then = self.rewrite.plan
            found += [
                Effect("files of the target opened", f"{self.plan.scan.files:,}", f"{then.scan.files:,}"),
                Effect("size of these files", size(self.plan.size_in_bytes), size(then.size_in_bytes)),
            ]
        else:
            found.append(Effect("files of the target whose rows are shuffled", size(self.plan.scan.size_in_bytes), "none"))
        if advised.check is not None:
            found.append(Effect("queries of the source before each run", "–", "1", is_cost=True))
        return found

    def confidence(self) -> str:
        """Whether the proposals were only planned, or also run on clones with the same rows."""
        if not self.trials and self.stopped is None:
            why = "Spark planned the statement and Iceberg its scans; nothing was run."
            why += (
                " There is no other statement or setting to compare it with, so --prove (prove=True) proved nothing."
                if self.is_proof_asked
                else " With --prove (prove=True) it runs on clones."
            )
            return tried_or_not(self, level="medium", why=why)
        worst = next((t for t in self.trials if not t.is_same), None)
        level = "high" if worst is None else "medium" if worst.unstable else "low"
        said = worst.verdict() if worst is not None else "both leave the same rows"
        return tried_or_not(
            self, level=level, why=f"the statement and the proposals ran on clones; {said}." if self.trials else "nothing was tried."
        )

    def tables(self) -> Mapping[str, Grid]:
        """The ways to run the statement: planned from metadata, and measured on clones if requested."""
        rows: list[tuple[object, ...]] = [
            ("the whole target", "planned", self.total.files, self.total.size_in_bytes, None, None, None),
            ("as it is", "planned", self.plan.scan.files, self.plan.size_in_bytes, None, None, None),
        ]
        if self.rewrite is not None:
            rows.append((NARROWER, "planned", self.rewrite.plan.scan.files, self.rewrite.plan.size_in_bytes, None, None, None))
        for place, trial in enumerate(self.trials):
            measured = [("as it is", trial.before)] if place == 0 else []
            for name, run in [*measured, (trial.what, trial.after)]:
                rows.append((name, "measured", run.files, run.size_in_bytes, run.shuffle_bytes, run.seconds, run.rows))
        return {"ways": Grid("Ways to run the statement", _WAYS, rows)}

    def basis(self) -> Sequence[str]:
        """How the statement writes, and the basis of the review."""
        return (
            f"The statement writes by {self.plan.mode}.",
            "Of the target, only metadata was read; the source was read in a few aggregations.",
        )

    def plans(self) -> Mapping[str, str]:
        """Spark's plan of the statement."""
        return {"Spark's plan": self.plan.tree}

    def document(self) -> dict[str, Any]:
        """The review as JSON: figures in bytes and seconds, the SQL as it is to be run."""
        rewrite = self.rewrite
        return {
            **super().document(),
            "table": display_name(self.table),
            "branch": self.statement.branch,
            "statement": self.statement.sql,
            "clauses": list(self.statement.clauses),
            "total": asdict(self.total),
            "plan": _plan(self.plan),
            "rewrite": None if rewrite is None else {**asdict(rewrite), "plan": _plan(rewrite.plan)},
            "storage_partitioned_join": {
                "is_used": self.partitioned_join.is_used,
                "is_possible": self.partitioned_join.is_possible,
                "settings": dict(self.partitioned_join.settings),
                "lacks": list(self.partitioned_join.lacks),
                "layout": list(self.partitioned_join.layout),
            },
            "trials": [{**asdict(trial), "is_same": trial.is_same} for trial in self.trials],
        }

    def write_into(self, folder: Path) -> Path:
        """Write the review as JSON into a folder, under the name of the table."""
        return write_json(folder / f"merge-{slug(display_name(self.table))}.json", self.document())


def _plan(plan: EnginePlan) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(plan).items() if k != "tree"}, "is_target_shuffled": plan.is_target_shuffled}
