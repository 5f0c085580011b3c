"""Row groups and target size against the width of rows and a writer's memory.

Parquet buffers a whole row group in memory before it writes it, once for each file a task has open. A task has one file open
where rows are sorted by partition, and one a partition in the fanout writer, which Spark uses where no order is asked for
(``SparkWriteConf.useFanoutWriter``).
"""

from __future__ import annotations

from icekit.facts.model import TableFacts
from icekit.sql import Identifier, set_properties
from icekit.tune.advice import Advice
from icekit.tune.layout.model import Sizing
from icekit.units import count, size

ROW_GROUP, TARGET, FANOUT = "write.parquet.row-group-size-bytes", "write.target-file-size-bytes", "write.spark.fanout.enabled"
#: Of a task's heap for open row groups; the rest is for sorting, reading and Spark itself (spark.memory.fraction is 0.6): a stated choice.
SHARE_OF_HEAP = 0.4
#: A column's part of a row group under this is more seeking than reading on an object store: a stated choice.
SMALL_CHUNK = 64 * 1024
_MOST_ROW_GROUP, _LEAST_ROW_GROUP = 512 << 20, 8 << 20


def sizing(facts: TableFacts, heap_bytes: int | None) -> Sizing | None:
    """Rows, row groups and open files of the table's writers; None without rows."""
    if not facts.data.record_count:
        return None
    row_bytes = facts.data.size_in_bytes / facts.data.record_count
    group = min(facts.int_setting(ROW_GROUP), facts.target_bytes)
    open_files, why = _open_files(facts)
    columns = len(facts.columns)
    return Sizing(row_bytes, columns, group, group / row_bytes, group / max(columns, 1), open_files, why, heap_bytes)


def _open_files(facts: TableFacts) -> tuple[int, str]:
    if facts.default_spec.is_unpartitioned:
        return 1, "not partitioned"
    distribution = next((d.mode for d in facts.distribution if d.operation.lower() in {"append", "write"}), None)
    fans_out = facts.setting(FANOUT) == "true" or not facts.sort_order
    if not fans_out or distribution in {"hash", "range"}:
        return 1, "rows come sorted or distributed by partition"
    changed = [c.changed_partitions for c in facts.history.commits if c.changed_partitions]
    most = max(changed, default=1)
    return most, f"fanout writer without distribution; a commit changed {count(most, 'partition')} at most"


def advise(facts: TableFacts, found: Sizing | None) -> tuple[Advice, ...]:
    """Remarks: a smaller row group where writers need too much memory, a larger one where columns are cut too fine."""
    if found is None:
        return ()
    current = facts.setting(ROW_GROUP)
    heap = found.heap_bytes
    if heap is not None and found.writer_bytes > SHARE_OF_HEAP * heap:
        wanted = _power(SHARE_OF_HEAP * heap / found.open_files)
        evidence = (
            f"A task holds {count(found.open_files, 'row group')} of {size(found.row_group_bytes)} in memory ({found.open_files_from}), "
            f"{size(found.writer_bytes)} of its {size(heap)} of heap in this session."
        )
        if wanted < found.row_group_bytes:
            return (_remark(current, f"{evidence} Writers of this size would fit with {ROW_GROUP} = {wanted}."),)
    if found.chunk_bytes < SMALL_CHUNK and found.row_group_bytes < facts.target_bytes and facts.target_bytes >= _LEAST_ROW_GROUP:
        wanted = _power(min(facts.target_bytes, _MOST_ROW_GROUP, found.columns * 2 * SMALL_CHUNK))
        if wanted > found.row_group_bytes and (heap is None or wanted * found.open_files <= SHARE_OF_HEAP * heap):
            evidence = (
                f"{count(found.columns, 'column')} share a row group of {size(found.row_group_bytes)}: {size(found.chunk_bytes)} a column, "
                "so that a query of few columns seeks more than it reads."
            )
            return (_remark(current, f"{evidence} With {ROW_GROUP} = {wanted} a column's part would be large enough."),)
    memory = f", {size(found.writer_bytes)} of a task's {size(heap)} of heap" if heap is not None else ""
    evidence = (
        f"{size(found.row_bytes)} a row: {found.rows_a_group:,.0f} rows a row group, {size(found.chunk_bytes)} a column of "
        f"{found.columns:,}, {count(found.open_files, 'open file')} a task{memory}."
    )
    return (Advice(ROW_GROUP, current, current, evidence),)


def _remark(current: str | None, evidence: str) -> Advice:
    """A remark and no statement: the memory is this session's, and the table's writers may have another."""
    return Advice(ROW_GROUP, current, current, f"{evidence} Compare it with the memory of the jobs that write the table before it is set.")


def _power(limit: float) -> int:
    """The largest power of two within a limit, of 8 MiB at least."""
    return max(_LEAST_ROW_GROUP, 1 << (int(limit).bit_length() - 1))


def version(table: Identifier, facts: TableFacts) -> Advice | None:
    """Whether version 2 would serve a table of format version 1, as a remark: there is no way back. None for later versions."""
    if facts.format_version != 1:
        return None
    # INSERT OVERWRITE and a compaction's replace count here too, so this alone speaks for nothing that cannot be undone.
    changed = {name: number for name, number in facts.history.operations if name in {"overwrite", "delete"}}
    merging = [k for k in ("write.delete.mode", "write.update.mode", "write.merge.mode") if facts.properties.get(k) == "merge-on-read"]
    lacks = "Format version 1 has no delete files and no sequence numbers: each DELETE, UPDATE and MERGE copies the files it touches"
    if not changed and not merging:
        return Advice("format-version", "1", "1", f"{lacks}. The history has only appends, so nothing is lost by it.")
    why = (
        f"{sum(changed.values()):,} commits of the history overwrote or deleted rows"
        if changed
        else f"{merging[0]} is set and has no effect"
    )
    statement = set_properties(table, {"format-version": "2"})
    return Advice(
        "format-version",
        "1",
        "1",
        f"{lacks}, and {why}. Where merge-on-read is wanted: {statement}. There is no way back to version 1, and all readers must know delete files.",
    )
