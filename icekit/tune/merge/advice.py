"""Say in sentences what a plan of a MERGE means; pure."""

from __future__ import annotations

from collections.abc import Iterator

from icekit.sql import identifier, set_session
from icekit.tune.merge.model import EnginePlan, Line, PartitionedJoin, Rewrite, Scan
from icekit.tune.statement import Statement
from icekit.units import count, size

_BY_SOURCE = "not matched by source"


def lines(
    statement: Statement,
    total: Scan,
    plan: EnginePlan,
    rewrite: Rewrite | None,
    why_not: str,
    joined: PartitionedJoin,
    *,
    fields: tuple[tuple[str, str], ...],
    keyed: frozenset[str],
    source_columns: frozenset[str],
    broadcast_bytes: int | None,
) -> tuple[Line, ...]:
    """Everything a review has to say, in the order in which it is read."""
    return (
        *_pruning(statement, total, plan, fields, keyed, source_columns),
        *_rewrite(statement, plan, rewrite, why_not),
        *_shuffle(statement, plan, broadcast_bytes),
        *_partitioned(joined),
        *_writing(plan, fields),
    )


def opened(scan: Scan, total: Scan) -> str:
    """What a scan opens of how much."""
    said = f"{scan.files:,} of {count(total.files, 'data file')}, {size(scan.size_in_bytes)} of {size(total.size_in_bytes)}"
    if scan.partitions is not None and total.partitions is not None:
        said += f", in {scan.partitions:,} of {count(total.partitions, 'partition')}"
    return said + (f", with {count(scan.delete_files, 'delete file')}" if scan.delete_files else "")


def _pruning(
    statement: Statement,
    total: Scan,
    plan: EnginePlan,
    fields: tuple[tuple[str, str], ...],
    keyed: frozenset[str],
    source_columns: frozenset[str],
) -> Iterator[Line]:
    reached = "; ".join(plan.scan.filters)
    said = f"The target scan opens {opened(plan.scan, total)}."
    said += (
        f" Filters that reached Iceberg: {reached}."
        if reached
        else " No filter of ON reaches Iceberg: an equality with a column of the source is not known before the source is read."
    )
    yield Line("pruning", said)
    if plan.mode == "copy-on-write" and plan.group_filter is not None:
        narrowed = (
            " The search itself is narrowed at run time to the partitions that the source names." if _is_pruned(plan.group_filter) else ""
        )
        yield Line(
            "group filtering",
            f"Copy-on-write looks for matches first: it reads the join columns of {count(plan.group_filter.files, 'file')}, then opens only "
            f"the files that hold a match. So the figure above is the most that is opened whole, and the search reads those files besides.{narrowed}",
        )
    elif plan.mode == "copy-on-write" and _BY_SOURCE in statement.clauses:
        yield Line("group filtering", "There is no group filtering: NOT MATCHED BY SOURCE may change rows in any file.")
    elif plan.mode == "merge-on-read":
        yield Line(
            "group filtering",
            "Merge-on-read has no group filtering; "
            + (
                "dynamic partition pruning narrows the scan at run time to the partitions that the source names."
                if _is_pruned(plan.scan)
                else "no dynamic partition pruning reaches this scan. Where rows are updated, Spark numbers the target's rows to see whether one "
                "matches twice, and prunes nothing below that; where they are only deleted, it prunes by a source that has a filter of its own."
            ),
        )
    if _BY_SOURCE in statement.clauses:
        yield Line(
            "not matched by source",
            "WHEN NOT MATCHED BY SOURCE asks of every row of the target whether the source has it, so the whole target is read, joined and, in "
            "copy-on-write, every file may be written anew. If only some partitions can be concerned, do that part by a DELETE or UPDATE of its own.",
        )
    missing = [column for column, transform in fields if column not in keyed and transform != "void"]
    for column in dict.fromkeys(missing):
        yield _dependency(statement, column, column in source_columns)


def _is_pruned(scan: Scan) -> bool:
    return any("dynamicpruning#" in f for f in scan.runtime_filters)


def _dependency(statement: Statement, column: str, is_in_source: bool) -> Line:
    """A partition column that ON leaves out: what would have to be true, and how to check it."""
    said = (
        f"The target is partitioned by {column}, for which ON has no equality with the source that could be used. If the key determines {column} (a row never moves to "
        f"another one, and the source carries it), ON can have it too and files can be skipped by it. That is for you to know: it is never added here."
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
        yield Line("narrower ON", f"No predicate is offered: {why_not}.")
        return
    columns = " and ".join(f"{a.column} ({_form(a.form, a.distinct)})" for a in rewrite.added)
    yield Line(
        "narrower ON",
        f"With what the source holds now for {columns} written into ON, the target scan opens {count(rewrite.plan.scan.files, 'file')} "
        f"instead of {plan.scan.files:,}, {size(rewrite.plan.size_in_bytes)} instead of {size(plan.size_in_bytes)}. Each pair of rows that ON "
        "lets match passes the predicate, so every clause sees the same rows.",
        (rewrite.sql,),
    )
    insert = "would be inserted though they are there" if "not matched" in statement.clauses else "would not be matched"
    yield Line(
        "when it is not the same",
        f"If the source changes between this review and the run: rows that the predicate leaves out {insert}. Make the predicate anew for each "
        "batch, and run this just before; it must give 0:",
        (rewrite.guard,),
    )


def _form(form: str, distinct: int) -> str:
    return {"values": count(distinct, "value"), "ranges": "its ranges", "bounds": "from least to greatest"}[form]


def _shuffle(statement: Statement, plan: EnginePlan, broadcast_bytes: int | None) -> Iterator[Line]:
    if plan.join is None:
        yield Line("join", "There is no join: ON can never hold.")
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
        how = f"the {plan.broadcast} is broadcast to every task" if plan.broadcast else "the partitions of both sides are joined one by one"
        yield Line("shuffle", f"{said} The target is not shuffled: {how}.")
        return
    why = _why(statement, plan, broadcast_bytes)
    yield Line(
        "shuffle",
        f"{said} The target is shuffled ({size(plan.scan.size_in_bytes)} of files, by {', '.join(plan.keys) or 'the join keys'}): {why} "
        "Adaptive execution may join fewer or split skewed partitions at run time, but what is shuffled stays shuffled.",
    )


def _why(statement: Statement, plan: EnginePlan, broadcast_bytes: int | None) -> str:
    if plan.join_type in {"RightOuter", "LeftAnti"}:
        return (
            "rows of the source that match nothing must be found for NOT MATCHED, so that only the target could be broadcast, which is too large, or forbidden "
            "because Spark must see whether a row matches twice. A smaller source would not help; a storage-partitioned join can."
        )
    if plan.join_type == "FullOuter":
        kept = (
            "NOT MATCHED BY SOURCE" if _BY_SOURCE in statement.clauses else "copy-on-write, which writes unmatched rows of its files back,"
        )
        return (
            f"NOT MATCHED together with {kept} makes it a full outer join, which has no broadcast. A storage-partitioned join can spare it."
        )
    if not plan.keys:
        return "ON has no equality to join by."
    if broadcast_bytes is not None and broadcast_bytes < 0:
        return "broadcasting is turned off (spark.sql.autoBroadcastJoinThreshold=-1)."
    if plan.source_bytes is not None and broadcast_bytes is not None and plan.source_bytes > broadcast_bytes:
        return (
            f"Spark takes the source for {size(plan.source_bytes)}, more than the {size(broadcast_bytes)} it broadcasts "
            "(spark.sql.autoBroadcastJoinThreshold)."
        )
    return "a sort-merge join needs both sides by key."


def _partitioned(joined: PartitionedJoin) -> Iterator[Line]:
    about = "storage-partitioned join"
    if joined.is_used:
        yield Line(about, "It is in use: partitions are joined as they are stored.")
    elif joined.is_possible and joined.settings:
        fields = ", ".join(joined.plan.scan.grouped_by) if joined.plan else "its partition fields"
        yield Line(
            about,
            f"It would apply: planned again under {'this setting' if len(joined.settings) == 1 else 'these settings'}, the target is joined by {fields} as it is "
            "stored, without a shuffle. Each task then holds a whole partition, so partitions must fit a task, and there are no more tasks than partitions.",
            tuple(set_session(key, value) for key, value in joined.settings),
        )
    elif not joined.lacks:
        yield Line(about, "It is not needed: the target is not shuffled.")
    else:
        said = "; ".join(joined.lacks)
        layout = " A source laid out like this would do:" if joined.layout else ""
        yield Line(about, f"It does not apply: {said}.{layout}", joined.layout)


def _writing(plan: EnginePlan, fields: tuple[tuple[str, str], ...]) -> Iterator[Line]:
    if plan.write_exchange is None:
        more = " Each task that holds rows of a partition leaves a file in it: tasks times partitions, at worst." if fields else ""
        yield Line("writing", f"Rows are written by the tasks that joined them, without a shuffle.{more}")
        return
    by = "sorted ranges" if plan.write_exchange.startswith("range") else "partition" if fields else "a shuffle"
    yield Line(
        "writing",
        f"Before it is written, each row is sent by {by} to one task, which adaptive execution sizes. So a partition gets a file or a few, and a MERGE that "
        "touches many partitions leaves at least one small file in each.",
    )
