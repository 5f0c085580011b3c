"""Hold the review of a MERGE: how the engine would run it, a narrower ON, a join without a shuffle; as sentences, text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from icekit.answer import html
from icekit.answer.grid import BYTES, COUNT, SECONDS, TEXT, Grid
from icekit.saving import slug, versions, write_json
from icekit.secrets import mask
from icekit.sql import Identifier, display_name, identifier, set_session
from icekit.tune.statement import Statement
from icekit.units import count, size


@dataclass(frozen=True, slots=True)
class Scan:
    """One scan of the target as the engine's own planner has planned it: what it would open.

    ``filters`` are those that reached Iceberg, ``grouped_by`` the partition fields whose
    partitions it keeps apart. ``size_in_bytes`` is the size of the data files, of which a columnar
    scan reads some; ``partitions`` is None where it could not be told.
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
    """How Spark would run a MERGE, asked without running it.

    ``mode`` is copy-on-write, merge-on-read or append (no clause touches an existing row).
    ``group_filter`` is the scan by which a copy-on-write MERGE finds the files that hold matches,
    at run time. ``broadcast`` is the side that is sent to every task, source or target. ``exchange`` is the shuffle of the target before the join, None where there is
    none; ``write_exchange`` that of the rows before they are written.
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
    """One predicate that narrows the target, and what it was made from.

    ``column`` is the target's column, ``expression`` what ON sets equal to it, ``form`` how
    the source's values are told: values, ranges or bounds.
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

    ``is_used`` tells of the session as it is, ``settings`` which are missing (the smallest set
    found, by leaving out one after the other). Where the layout is at fault ``lacks`` says how,
    and ``layout`` is SQL for a source that would do.
    """

    is_used: bool
    is_possible: bool
    settings: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    layout: tuple[str, ...] = ()
    plan: EnginePlan | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of advice: what it is about, one or two sentences, and the SQL to paste."""

    about: str
    said: str
    sql: tuple[str, ...] = ()


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


# --- Say in sentences what a plan of a MERGE means; pure


_BY_SOURCE = "not matched by source"


@dataclass(frozen=True, kw_only=True)
class MergeContext:
    """What is known besides the plan: the target's partition fields (column, transform), columns with an equality in ON, columns of the source."""

    fields: tuple[tuple[str, str], ...]
    keyed: frozenset[str]
    source_columns: frozenset[str]
    broadcast_bytes: int | None


def lines(review: Review, why_not: str, known: MergeContext) -> tuple[Line, ...]:
    """Everything a review has to say, in the order in which it is read; ``why_not`` says why there is no narrower statement."""
    statement, plan = review.statement, review.plan
    return (
        *_pruning(review, known),
        *_rewrite(statement, plan, review.rewrite, why_not),
        *_shuffle(statement, plan, known.broadcast_bytes),
        *_partitioned(review.partitioned_join),
        *_writing(plan, known.fields),
    )


def opened(scan: Scan, total: Scan) -> str:
    """The files and bytes that a scan opens, of the total."""
    said = f"{scan.files:,} of {count(total.files, 'data file')}, {size(scan.size_in_bytes)} of {size(total.size_in_bytes)}"
    if scan.partitions is not None and total.partitions is not None:
        said += f", in {scan.partitions:,} of {count(total.partitions, 'partition')}"
    return said + (f", with {count(scan.delete_files, 'delete file')}" if scan.delete_files else "")


def _pruning(review: Review, known: MergeContext) -> Iterator[Line]:
    statement, plan, total = review.statement, review.plan, review.total
    reached = "; ".join(plan.scan.filters)
    said = f"The target scan opens {opened(plan.scan, total)}."
    said += (
        f" Filters that reached Iceberg: {reached}."
        if reached
        else " No filter of ON reaches Iceberg, because the values of a source column are not known before the source is read."
    )
    yield Line("pruning", said)
    if plan.mode == "copy-on-write" and plan.group_filter is not None:
        narrowed = (
            " At run time, dynamic pruning limits this search to the partitions in the source." if _is_pruned(plan.group_filter) else ""
        )
        yield Line(
            "group filtering",
            f"Copy-on-write searches for matches first: it reads the join columns of {count(plan.group_filter.files, 'file')}, then opens only "
            f"the files with a match. So the figure above is an upper limit, and the search reads its files in addition.{narrowed}",
        )
    elif plan.mode == "copy-on-write" and _BY_SOURCE in statement.clauses:
        yield Line("group filtering", "There is no group filtering: NOT MATCHED BY SOURCE may change rows in any file.")
    elif plan.mode == "merge-on-read":
        yield Line(
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
        yield Line(
            "not matched by source",
            "WHEN NOT MATCHED BY SOURCE checks every row of the target against the source, so the entire target is read and joined and, with "
            "copy-on-write, every file may be rewritten. If it concerns only some partitions, use a separate DELETE or UPDATE instead.",
        )
    missing = [column for column, transform in known.fields if column not in known.keyed and transform != "void"]
    for column in dict.fromkeys(missing):
        yield _dependency(statement, column, column in known.source_columns)


def _is_pruned(scan: Scan) -> bool:
    return any("dynamicpruning#" in f for f in scan.runtime_filters)


def _dependency(statement: Statement, column: str, is_in_source: bool) -> Line:
    """A partition column that ON leaves out: what would have to be true, and how to check it."""
    said = (
        f"The target is partitioned by {column}, but ON has no usable equality between it and the source. If the key determines {column} (a row never moves to "
        f"another value, and the source has the column), add it to ON to skip files. Only you can know this: icekit never adds it."
    )
    if not is_in_source or statement.source_alias is None:
        return Line("partition column", f"{said} The source has no column of that name.")
    mine, other = identifier(*statement.qualifier, column), identifier(statement.source_alias, column)
    name = identifier(*statement.target, *((f"branch_{statement.branch}",) if statement.branch else ()))
    alias = f" AS {identifier(statement.alias)}" if statement.alias is not None else ""
    lead = f"{statement.with_clause} " if statement.with_clause else ""
    check = (
        f"{lead}SELECT count(*) AS moved FROM {name}{alias} JOIN {statement.source} ON {statement.condition} WHERE NOT ({mine} <=> {other})"
    )
    return Line("partition column", f"{said} This query must give 0 (it reads as much as the MERGE does):", (check,))


def _rewrite(statement: Statement, plan: EnginePlan, rewrite: Rewrite | None, why_not: str) -> Iterator[Line]:
    if rewrite is None:
        yield Line("narrower ON", f"There is no narrower ON: {why_not}.")
        return
    columns = " and ".join(f"{a.column} ({_form(a.form, a.distinct)})" for a in rewrite.added)
    yield Line(
        "narrower ON",
        f"With the source's current values of {columns} written into ON, the target scan opens {count(rewrite.plan.scan.files, 'file')} "
        f"instead of {plan.scan.files:,}, {size(rewrite.plan.size_in_bytes)} instead of {size(plan.size_in_bytes)}. Every pair of rows that matches ON "
        "also passes the predicate, so every clause sees the same rows.",
        (rewrite.sql,),
    )
    insert = "would be inserted although they exist" if "not matched" in statement.clauses else "would not be matched"
    yield Line(
        "if the source changes",
        f"If the source changes between this review and the run, rows that the predicate leaves out {insert}. Create the predicate again for each "
        "batch, and run this query just before; it must return 0:",
        (rewrite.guard,),
    )


def _form(form: str, distinct: int) -> str:
    return {"values": count(distinct, "value"), "ranges": "its ranges", "bounds": "from smallest to largest"}[form]


def _shuffle(statement: Statement, plan: EnginePlan, broadcast_bytes: int | None) -> Iterator[Line]:
    if plan.join is None:
        yield Line("join", "There is no join: ON can never be true.")
        return
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
        yield Line("shuffle", f"{said} The target is not shuffled: {how}.")
        return
    why = _why(statement, plan, broadcast_bytes)
    yield Line(
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


def _partitioned(joined: PartitionedJoin) -> Iterator[Line]:
    about = "storage-partitioned join"
    if joined.is_used:
        yield Line(about, "It is in use: Spark joins partitions as they are stored.")
    elif joined.is_possible and joined.settings:
        fields = ", ".join(joined.plan.scan.grouped_by) if joined.plan else "its partition fields"
        yield Line(
            about,
            f"It would apply: with {'this setting' if len(joined.settings) == 1 else 'these settings'}, Spark joins the target by {fields} as it is "
            "stored, without a shuffle. Each task then holds an entire partition, so partitions must fit into a task, and there are at most as many tasks as partitions.",
            tuple(set_session(key, value) for key, value in joined.settings),
        )
    elif not joined.lacks:
        yield Line(about, "It is not needed: the target is not shuffled.")
    else:
        said = "; ".join(joined.lacks)
        layout = " A source with this layout would work:" if joined.layout else ""
        yield Line(about, f"It does not apply: {said}.{layout}", joined.layout)


def _writing(plan: EnginePlan, fields: tuple[tuple[str, str], ...]) -> Iterator[Line]:
    if plan.write_exchange is None:
        more = " Each task writes a file into every partition it has rows for: at worst, tasks × partitions files." if fields else ""
        yield Line("writing", f"The tasks that joined rows also write them, without a shuffle.{more}")
        return
    by = "sorted ranges" if plan.write_exchange.startswith("range") else "partition" if fields else "a shuffle"
    yield Line(
        "writing",
        f"Before the write, Spark shuffles rows by {by}, into tasks sized by adaptive execution. So a partition gets one or a few files, and a MERGE that "
        "touches many partitions writes at least one small file into each.",
    )


# --- The review of a MERGE, as text, HTML and JSON


@dataclass(frozen=True, slots=True)
class Review:
    """A MERGE explained, with ways to read and shuffle less; nothing was run on the table.

    ``total`` is a scan of the entire target, ``unstable`` the part of the statement that writes different values each time. ``trials`` are filled on request;
    ``stopped`` says why some are missing.
    """

    statement: Statement
    table: Identifier
    total: Scan
    plan: EnginePlan
    rewrite: Rewrite | None
    partitioned_join: PartitionedJoin
    lines: tuple[Line, ...]
    unstable: str | None = None
    trials: tuple[MergeTrial, ...] = ()
    stopped: str | None = None

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

    def write_into(self, folder: Path) -> Path:
        """Write the review as JSON into a folder, under the name of the table."""
        return write_json(folder / f"merge-{slug(display_name(self.table))}.json", document(self))

    def __repr__(self) -> str:
        return review_text(self)

    def _repr_html_(self) -> str:
        return review_html(self)


def review_text(review: Review) -> str:
    """A review as lines for a terminal."""
    said = [f"MERGE into {display_name(review.table[1:])} ({review.plan.mode}): {summary(review)}"]
    for line in review.lines:
        said += ["", f"{line.about}", f"    {line.said}", *(f"    {row}" for sql in line.sql for row in sql.splitlines())]
    for trial in review.trials:
        said += ["", *trial_lines(trial)]
    said += ["", f"The trial is incomplete: {review.stopped}."] if review.stopped else []
    return mask("\n".join(said))


def summary(review: Review) -> str:
    """A review in a sentence."""
    said = f"it opens {opened(review.plan.scan, review.total)}"
    if review.rewrite is not None:
        said += f"; {opened(review.rewrite.plan.scan, review.total)} with its source's values written into ON"
    if review.partitioned_join.settings:
        said += "; a storage-partitioned join would avoid the shuffle of the target"
    return said + "."


def trial_lines(trial: MergeTrial) -> list[str]:
    """A trial as lines: the comparison, and the figures of both statements."""
    return [f"{trial.what}, tried on clones: {verdict(trial)}", *trial_grid(trial).lines("    ")]


def verdict(trial: MergeTrial) -> str:
    """The result of a trial for the rows."""
    if trial.is_same:
        return "both leave the same rows"
    if trial.unstable:
        return f"rows cannot be compared, because the statement writes {trial.unstable}, which differs from run to run"
    return "the two statements leave DIFFERENT rows; do not use the proposal, and report this"


_TRIED = {
    "statement": TEXT("statement on a clone"),
    "files": COUNT("files read"),
    "size_in_bytes": BYTES("size of the files"),
    "shuffle_bytes": BYTES("shuffled"),
    "seconds": SECONDS("time"),
    "rows": TEXT("rows after the MERGE"),
}


def trial_grid(trial: MergeTrial) -> Grid:
    """The figures of a trial."""
    rows = [
        (name, run.files, run.size_in_bytes, run.shuffle_bytes, run.seconds, run.rows)
        for name, run in (("current statement", trial.before), (trial.what, trial.after))
    ]
    return Grid("", _TRIED, rows)


def review_html(review: Review) -> str:
    """A review as cards, with the SQL ready to copy."""
    parts = [f"<p>{html.prose(f'MERGE into {display_name(review.table[1:])} ({review.plan.mode}): {summary(review)}')}</p>"]
    parts += [_card(line) for line in review.lines]
    parts.append(f"<details><summary>Spark's plan</summary><pre>{html.text(review.plan.tree)}</pre></details>")
    parts += [_trial(trial) for trial in review.trials]
    parts += [f"<p>The trial is incomplete: {html.prose(review.stopped)}.</p>"] if review.stopped else []
    return mask(html.framed(*parts))


def _card(line: Line) -> str:
    heading = f'<p class="title"><small>{html.text(line.about)}</small></p>'
    return f'<div class="finding info">{heading}<p>{html.prose(line.said)}</p>{html.statements(line.sql)}</div>'


def _trial(trial: MergeTrial) -> str:
    kind, mark = (
        ("fine", "✔ same rows") if trial.is_same else ("warning", "▲ not compared") if trial.unstable else ("critical", "✖ different rows")
    )
    said = f'<p class="title"><span class="badge">{mark}</span> <small>{html.text(trial.what)}, tried on clones: {html.prose(verdict(trial))}</small></p>'
    return f'<div class="finding {kind}">{said}{trial_grid(trial).html()}</div>'


#: Goes up by one when a field changes its meaning or is removed; an added field does not count.
SCHEMA_VERSION = 1


def document(review: Review) -> dict[str, Any]:
    """A review as JSON: figures in bytes and seconds, the SQL as it is to be run."""
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "table": display_name(review.table),
        "branch": review.statement.branch,
        "statement": review.statement.sql,
        "versions": versions(),
        "clauses": list(review.statement.clauses),
        "total": asdict(review.total),
        "plan": _plan(review.plan),
        "rewrite": None,
        "storage_partitioned_join": {
            "is_used": review.partitioned_join.is_used,
            "is_possible": review.partitioned_join.is_possible,
            "settings": dict(review.partitioned_join.settings),
            "lacks": list(review.partitioned_join.lacks),
            "layout": list(review.partitioned_join.layout),
        },
        "lines": [asdict(line) for line in review.lines],
        "stopped": review.stopped,
        "trials": [{**asdict(trial), "is_same": trial.is_same} for trial in review.trials],
    }
    if review.rewrite is not None:
        found["rewrite"] = {
            "sql": review.rewrite.sql,
            "predicate": review.rewrite.predicate,
            "guard": review.rewrite.guard,
            "added": [asdict(added) for added in review.rewrite.added],
            "plan": _plan(review.rewrite.plan),
        }
    return found


def _plan(plan: EnginePlan) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(plan).items() if k != "tree"}, "is_target_shuffled": plan.is_target_shuffled}
