"""Measure the inputs of a forecast: sample the keys of equality deletes, and run Spark's own compaction with a small heap, on a clone."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from icekit.catalog import Lake, connect
from icekit.catalog.tables import SessionTables
from icekit.diagnose.heap import (
    ASSUMED_BYTES,
    HeapForecast,
    KeyColumnHeap,
    KeySample,
    binary_bytes,
    fixed_bytes,
    forecast_heap,
    key_columns,
    text_bytes,
)
from icekit.engine.cluster import Executor
from icekit.errors import ParameterError, require_seconds
from icekit.facts.collect import load_metadata, observe
from icekit.facts.manifests import FILE_FIELDS, entries, is_delete_manifest, manifest_list, may_have_live
from icekit.facts.metadata import snapshots_by_id
from icekit.facts.model import Column, Kind, Partition, TableFacts, partition_of
from icekit.facts.rollup import equality_deletes_applied
from icekit.sandbox import clone, remove_stale, stale_clones
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name
from icekit.units import span

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

    import pyarrow as pa

MAX_FILES = 8
MAX_RECORDS = 1_000_000
#: Keys repeat between the files of one partition: read few partitions, and several files of each.
MAX_PARTITIONS = 2
#: Delete manifests to read to find files to sample, spread evenly over the list.
MAX_MANIFESTS = 20
#: Larger files are skipped: a sample is not worth reading them in full.
MAX_FILE_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True)
class _DeleteFile:
    path: str
    format: str
    field_ids: tuple[int, ...]
    size_in_bytes: int
    record_count: int
    sequence_number: int


def sample_keys(lake: Lake, facts: TableFacts, *, max_files: int = MAX_FILES, max_records: int = MAX_RECORDS) -> KeySample:
    """Read the key columns of a few equality delete files of the partitions that load the most.

    Reads at most :data:`MAX_MANIFESTS` manifests, and of at most ``max_files`` Parquet files
    the first ``max_records`` records in total. Skips and counts files of other formats and very
    large ones. Raises :class:`~icekit.errors.MetadataUnreadable`.
    """
    if facts.snapshot_id is None or not facts.total(Kind.EQUALITY_DELETES).file_count:
        return KeySample()
    source = lake.tables.source(facts.table)
    snapshot = snapshots_by_id(load_metadata(source)).get(facts.snapshot_id)
    if snapshot is None or "manifest-list" not in snapshot:
        return KeySample()
    location = snapshot["manifest-list"]
    manifests = [m for m in manifest_list(source.read(location), location) if is_delete_manifest(m) and may_have_live(m)]
    by_partition = _delete_files(spread(manifests, MAX_MANIFESTS), source.read)
    columns = key_columns(facts)
    lengths: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    shares, files, records, skipped, partitions = [], 0, 0, 0, 0
    chosen = _worst(facts, by_partition)[:MAX_PARTITIONS]
    for place, partition in enumerate(chosen):
        there = sorted(by_partition[partition], key=lambda f: f.sequence_number)
        readable = [f for f in there if f.format == "PARQUET" and f.size_in_bytes <= MAX_FILE_BYTES]
        skipped += len(there) - len(readable)
        room = (max_files - files) // (len(chosen) - place)
        picked = spread(readable, room)
        read = [_keys(f, columns, source.read, max_records // len(chosen) // max(len(picked), 1)) for f in picked]
        for table in read:
            _measure(table, columns, lengths)
        counted = _distinct(read)
        shares += [counted[0] / counted[1]] if counted else []
        files, records, partitions = files + len(read), records + sum(t.num_rows for t in read), partitions + bool(read)
    return KeySample(
        tuple(_key_column(column, lengths.get(field_id)) for field_id, column in sorted(columns.items())),
        max(shares, default=None),
        files,
        records,
        partitions,
        skipped,
    )


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most this many items, spread evenly from the first to the last."""
    if len(items) <= most:
        return list(items)
    return [items[i * (len(items) - 1) // max(most - 1, 1)] for i in range(most)]


def _delete_files(manifests: Iterable[Mapping[str, Any]], read: Callable[[str], bytes]) -> dict[Partition, list[_DeleteFile]]:
    found: dict[Partition, list[_DeleteFile]] = defaultdict(list)
    for manifest in manifests:
        location = manifest["manifest_path"]
        for entry in entries(read(location), location, FILE_FIELDS | {"file_path"}):
            file = entry["data_file"]
            if file["content"] != 2:
                continue
            own = entry.get("sequence_number")
            partition = partition_of(manifest["partition_spec_id"], file["partition"].values())
            found[partition].append(
                _DeleteFile(
                    file["file_path"],
                    file["file_format"].upper(),
                    tuple(file.get("equality_ids") or ()),
                    file["file_size_in_bytes"],
                    file["record_count"],
                    manifest.get("sequence_number", 0) if own is None else own,
                )
            )
    return found


def _worst(facts: TableFacts, by_partition: Mapping[Partition, Sequence[_DeleteFile]]) -> list[Partition]:
    """Partitions with delete files, those whose data files load the most first."""
    load = {a.partition: a.max_deletes_per_file for a in equality_deletes_applied(facts)}
    return sorted(by_partition, key=lambda p: (-load.get(p, 0), -sum(f.record_count for f in by_partition[p]), str(p)))


def _keys(file: _DeleteFile, columns: Mapping[int, Column], read: Callable[[str], bytes], room: int) -> pa.Table:
    """The key columns of the first records of a delete file, named by field id."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(io.BytesIO(read(file.path)))
    ids = {field.name: int((field.metadata or {}).get(b"PARQUET:field_id", -1)) for field in parquet.schema_arrow}
    names = [name for name, field_id in ids.items() if field_id in file.field_ids and field_id in columns]
    batches, rows = [], 0
    for batch in parquet.iter_batches(min(65_536, max(room, 1)), columns=names):
        batches.append(batch.slice(0, room - rows))
        rows += batches[-1].num_rows
        if rows >= room:
            break
    schema = pa.schema([parquet.schema_arrow.field(name) for name in names])
    return pa.Table.from_batches(batches, schema).rename_columns([str(ids[name]) for name in names])


def _distinct(read: Sequence[pa.Table]) -> tuple[int, int] | None:
    """Distinct keys and records of the files of one partition; files with other keys than the first are skipped."""
    import pyarrow as pa

    alike = [t for t in read if t.num_rows and t.column_names and set(t.column_names) == set(read[0].column_names)]
    if len(alike) < 2:
        return None
    names = alike[0].column_names
    together = pa.concat_tables([t.select(names).replace_schema_metadata(None) for t in alike], promote_options="permissive")
    return together.group_by(names).aggregate([]).num_rows, together.num_rows


def _measure(table: pa.Table, columns: Mapping[int, Column], lengths: dict[int, list[float]]) -> None:
    """Add up the heap of values in variable-length columns."""
    import pyarrow.compute as pc

    for name in table.column_names:
        column = columns[int(name)]
        if fixed_bytes(column.type) is not None or not table.num_rows:
            continue
        values = table.column(name)
        octets = pc.binary_length(values)
        if column.type == "string":
            # Java uses one byte per character if it can; counted as two bytes if any character is beyond ASCII.
            letters = pc.utf8_length(values)
            octets = pc.if_else(pc.equal(octets, letters), octets, pc.multiply(letters, 2))
        size = text_bytes if column.type == "string" else binary_bytes
        for row in pc.value_counts(octets).to_pylist():
            lengths[int(name)][0] += row["counts"] * (size(row["values"]) if row["values"] is not None else 0)
        lengths[int(name)][1] += table.num_rows


def _key_column(column: Column, measured: Sequence[float] | None) -> KeyColumnHeap:
    fixed = fixed_bytes(column.type)
    if fixed is not None:
        return KeyColumnHeap(column.field_id, column.name, column.type, fixed, "type")
    if not measured or not measured[1]:
        return KeyColumnHeap(column.field_id, column.name, column.type, ASSUMED_BYTES, "assumed")
    return KeyColumnHeap(column.field_id, column.name, column.type, round(measured[0] / measured[1], 1), "sample")


def forecast_table(lake: Lake, table: Identifier | str, executor: Executor | str = "", *, ref: str | None = None) -> HeapForecast:
    """Forecast how much of an executor's heap Spark's own reading and rewriting of a table take; reads metadata and a sample of keys.

    ``executor`` is an :class:`Executor`, or a text for :meth:`Executor.parse`; the default is the executor of the lake's session.
    """
    facts = observe(lake, table, ref=ref)
    wanted = executor if isinstance(executor, Executor) else Executor.parse(executor) if executor else Executor.of(lake.spark)
    return forecast_heap(facts, wanted, sample_keys(lake, facts))


# --- Measure Spark's own compaction with a small heap: a real run, on a clone, in its own process


_SAID = "icekit stock rewrite: "
_OUT_OF_MEMORY = ("OutOfMemoryError", "GC overhead limit exceeded")
#: Makes Iceberg take files with equality deletes, which it would not take by size.
OPTIONS: Mapping[str, str] = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}


@dataclass(frozen=True, slots=True)
class StockRun:
    """The result of a stock ``rewrite_data_files`` on a clone; the clone is dropped, and the table is unchanged."""

    table: str
    executor: Executor
    outcome: Literal["finished", "out of memory", "stopped", "failed"]
    seconds: float
    detail: str = ""

    def __repr__(self) -> str:
        took = span(self.seconds * 1000)
        ended = {"finished": f"finished in {took}", "stopped": f"was stopped before it finished, after {took}"}.get(
            self.outcome, f"{'ran out of memory' if self.outcome == 'out of memory' else 'failed'} after {took}"
        )
        return f"A stock rewrite_data_files of {self.table} with {self.executor} {ended}." + (f" {self.detail}" if self.detail else "")


def stock_rewrite(lake: Lake, table: Identifier | str, executor: Executor | str, *, limit_seconds: float = 120) -> StockRun:
    """Run ``rewrite_data_files`` over a table's equality deletes on a zero-copy clone, in a local Spark with these cores and this heap.

    The process, and all that it started, is stopped after ``limit_seconds``. Raises
    :class:`~icekit.errors.ParameterError` for a catalog that only the running session knows.
    """
    if isinstance(lake.tables, SessionTables):
        raise ParameterError(
            "Another process cannot open a catalog that only the running session has. Configure a profile to try a stock run."
        )
    require_seconds("limit_seconds", limit_seconds)
    name = lake.identifier(table) if isinstance(table, str) else table
    wanted = Executor.parse(executor) if isinstance(executor, str) else executor
    settings = {
        "spark.master": f"local[{wanted.cores}]",
        "spark.driver.memory": f"{wanted.heap_bytes // 2**20}m",
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        "spark.sql.iceberg.executor-cache.enabled": "false",
        "spark.sql.shuffle.partitions": str(wanted.cores),
    }
    environment = {**os.environ, "ICEKIT_SPARK_CONF": " ".join(f"{key}={value}" for key, value in settings.items())}
    command = [sys.executable, "-m", "icekit.compact.equality_deletes.measure", lake.name, json.dumps(name)]
    started = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as child:
        try:
            said, _ = child.communicate(timeout=limit_seconds)
            outcome, seconds, detail = _read(said, time.monotonic() - started)
        except subprocess.TimeoutExpired:
            outcome, seconds, detail = "stopped", time.monotonic() - started, ""
        finally:
            _end(child)
    # A JVM that ran out of memory could not drop its clone.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remove_stale(lake, stale_clones(lake, name))
    return StockRun(display_name(name), wanted, outcome, seconds, detail)


def _read(said: str, seconds: float) -> tuple[Any, float, str]:
    for line in said.splitlines():
        if line.startswith(_SAID):
            told = json.loads(line.removeprefix(_SAID))
            return "finished", told["seconds"], f"It rewrote {told['files']:,} data files."
    if any(sign in said for sign in _OUT_OF_MEMORY):
        return "out of memory", seconds, ""
    return "failed", seconds, next((line for line in reversed(scrub(said).splitlines()) if line.strip()), "")[:300]


def _end(child: Popen[str]) -> None:
    """End the child and the JVM that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _child(catalog: str, name: Identifier) -> None:
    lake = connect(catalog)
    with clone(lake, name) as copy:
        started = time.monotonic()
        row = lake.spark.sql(call(lake.name, "rewrite_data_files", table=display_name(copy.table), options=dict(OPTIONS))).first()
        files = row["rewritten_data_files_count"] if row is not None else 0
        print(_SAID + json.dumps({"seconds": time.monotonic() - started, "files": files}), flush=True)


if __name__ == "__main__":
    _child(sys.argv[1], tuple(json.loads(sys.argv[2])))
