"""Choose the rows that a trial writes: those of a usual commit again, and enough for several files of the target size.

Both are rows of the table itself, read as the writer got them where that can be told: one task for each file that
the commit left, or splits of a quarter of the target size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from icekit.facts.files import FileGroup, Kind
from icekit.facts.model import TableFacts
from icekit.facts.parts import Commit
from icekit.facts.where import where
from icekit.sql import Identifier, identifier, literal
from icekit.tune.advisory_size.written import ENOUGH
from icekit.units import count, size

#: Commits that are looked at for what is usual.
RECENT = 20
#: Spark's split of a large file; a writer's task reads about as much.
_SPLIT_BYTES = 128 * 2**20
_MIN_SPLIT_BYTES = 64 * 2**10
#: A commit that brought rows together leaves fewer files than this for each partition and each target size.
SCATTERED = 2.0
#: A little more than enough, as what is written anew may be smaller.
_ROOM = 1.25
_ALONE = str(2**40)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows to write: ``sql`` reads them, ``size_in_bytes`` is what they take in the table now.

    ``as_written`` tells whether the tasks are those of the writer that wrote the rows first.
    """

    described: str
    sql: str
    size_in_bytes: int
    records: int
    partitions: int | None
    as_written: bool


def usual(facts: TableFacts, table: Identifier, *, sample_bytes: int, tasks: int) -> Source | None:
    """The rows of a recent append of median size; None where the snapshots have none, or it is too large.

    ``tasks`` read the rows of a commit that brought them together: how they came to its writer nobody knows.
    """
    found = [(before, commit) for before, commit in pairwise(facts.history.commits) if _is_append(commit)][-RECENT:]
    if not found:
        return None
    ordered = sorted(found, key=lambda pair: pair[1].added_records or 0)
    before, commit = ordered[(len(ordered) - 1) // 2]
    added = commit.added_bytes or 0
    if added > sample_bytes:
        return None
    # Files that the bytes alone explain are not scattered.
    scattered = (commit.added_data_files or 1) >= SCATTERED * (max(commit.changed_partitions or 1, 1) + added // facts.target_bytes)
    options = {"start-snapshot-id": str(before.snapshot_id), "end-snapshot-id": str(commit.snapshot_id)}
    if scattered:
        # One task for each file: the tasks that wrote them.
        options["file-open-cost"] = _ALONE
    hint = "" if scattered else f"/*+ REPARTITION({max(1, tasks)}) */ "
    how = "one task for each file it left" if scattered else f"read by {count(max(1, tasks), 'task')}, in no order"
    return Source(
        f"the rows of a usual commit again ({commit.added_records or 0:,} rows, {how})",
        f"SELECT {hint}* FROM {identifier(*table)} {_with(options)}",
        added,
        commit.added_records or 0,
        commit.changed_partitions,
        scattered,
    )


def aim(facts: TableFacts, sample_bytes: int) -> int:
    """The target size to try at: the table's own, or a smaller one where the sample does not hold enough files of that."""
    largest = max((g.size_in_bytes for g in facts.of_kind(Kind.DATA)), default=0)
    wanted = ENOUGH * facts.target_bytes * _ROOM
    if largest < wanted or wanted <= sample_bytes:
        return facts.target_bytes
    return max(1, int(sample_bytes / ENOUGH / _ROOM))


def large(
    facts: TableFacts, table: Identifier, data_files: str, *, target_bytes: int, sample_bytes: int, shuffled: bool = True
) -> Source | None:
    """Rows of the largest partitions, enough for several files of the target size where the table has them; None without rows.

    Where they are to be ``shuffled`` they are read by tasks of a quarter of the target, as Spark's splits of
    128 MB are of 512 MB; without a shuffle a task's split is what decides, and is the session's own.
    ``data_files`` is SQL for that metadata table.
    """
    groups = sorted((g for g in facts.of_kind(Kind.DATA) if g.size_in_bytes), key=lambda g: -g.size_in_bytes)
    if not groups:
        return None
    wanted = min(sample_bytes, int(ENOUGH * target_bytes * _ROOM))
    taken = _taken(groups, wanted)
    total = sum(g.size_in_bytes for g in taken)
    specs = {s.spec_id: s for s in facts.specs}
    whole = len(taken) == len(groups)
    predicate = None if whole else where(facts.catalog, specs, facts.columns, [g.partition for g in taken], of_rows=True)
    if predicate is None:
        total = sum(g.size_in_bytes for g in groups)
    share = min(1.0, wanted / total) if total else 1.0
    conditions = [f"({predicate})"] if predicate else []
    if share < 0.9:
        # Whole files, so that rows stay as near each other as they are; of a few that are large, rows.
        paths = f"SELECT file_path FROM {data_files} WHERE pmod(xxhash64(file_path), 1000) < {max(1, round(share * 1000))}"
        many = facts.data.file_count * share >= ENOUGH * 4
        conditions.append(f"_file IN ({paths})" if many else f"rand(7) < {share:.6f}")
    else:
        share = 1.0
    split = max(_MIN_SPLIT_BYTES, min(_SPLIT_BYTES, target_bytes // 4))
    options = {"versionAsOf": str(facts.snapshot_id), **({"split-size": str(split), "file-open-cost": "0"} if shuffled else {})}
    rows = round(share * sum(g.record_count for g in (taken if predicate else groups)))
    kept = f"{rows:,} rows of {count(len(taken), 'partition')}" if predicate or len(groups) > 1 else f"{rows:,} rows"
    return Source(
        f"{kept} in one commit ({size(share * total)} as they are now, read by tasks of {size(split) if shuffled else 'a split'})",
        f"SELECT * FROM {identifier(*table)} {_with(options)}" + (f" WHERE {' AND '.join(conditions)}" if conditions else ""),
        round(share * total),
        rows,
        len(taken),
        False,
    )


def _taken(groups: Sequence[FileGroup], wanted: int) -> list[FileGroup]:
    """The smallest group that has enough by itself, else the largest ones until there is enough."""
    alone = [g for g in groups if g.size_in_bytes >= wanted]
    if alone:
        return [alone[-1]]
    taken: list[FileGroup] = []
    reached = 0
    for group in groups:
        if reached + group.size_in_bytes > wanted and taken:
            continue
        taken.append(group)
        reached += group.size_in_bytes
        if len(taken) == ENOUGH:
            break
    return taken


def _is_append(commit: Commit) -> bool:
    return commit.operation == "append" and bool(commit.added_data_files) and bool(commit.added_records)


def _with(options: Mapping[str, str]) -> str:
    return f"WITH ({', '.join(f'{identifier(k)} = {literal(v)}' for k, v in options.items())})"
