"""Count in a Spark event log how often a table was read.

An event log (``spark.eventLog.enabled``) has a JSON document a line; the plan of each query is a
tree in ``SparkListenerSQLExecutionStart``, and a scan of an Iceberg table is a node named
``BatchScan catalog.db.table``.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from icekit.errors import ParameterError
from icekit.sql import Identifier

_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
#: Spark compresses with zstd by default; its lz4 and snappy have framing of their own that only it reads.
_CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
_UNREADABLE = {".lz4", ".snappy", ".lzf"}
#: A query that changes the table scans it too, and is no read of it.
_WRITES = ("ReplaceData", "WriteDelta", "AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic")
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a log: when it began, in milliseconds, and the scans of the table in it, as Iceberg describes them.

    It has none if it does not read the table, or changes it.
    """

    at_ms: int
    scans: tuple[str, ...]


def queries(path: str, table: Identifier) -> Iterator[Query]:
    """The queries of a log, a rolling log's folder or a folder of logs; the table is named without its catalog.

    Raises :class:`~icekit.errors.ParameterError` for a file that cannot be read, or if there is no query at all.
    """
    name, found = ".".join(table), False
    for event in _events(Path(path)):
        found = True
        yield Query(int(event.get("time") or 0), tuple(_scans(event.get("sparkPlanInfo") or {}, name)))
    if not found:
        raise ParameterError(f"{path} holds no query; give an event log of Spark SQL (spark.eventLog.enabled=true).")


def reads_per_day(path: str, table: Identifier) -> float:
    """Queries a day that read a table.

    The days are from the first to the last query of the log, one at least. Raises as :func:`queries` does.
    """
    first, last, reads = None, 0, 0
    for query in queries(path, table):
        first = query.at_ms if first is None else min(first, query.at_ms)
        last = max(last, query.at_ms)
        reads += bool(query.scans)
    return reads / max(1.0, (last - (first or 0)) / _DAY_MS)


def _scans(plan: Mapping[str, Any], name: str) -> Iterator[str]:
    nodes = list(_nodes(plan))
    for node in nodes:
        if str(node.get("nodeName", "")).startswith(_WRITES):
            # "ReplaceData IcebergWrite(table=lake.db.events, format=PARQUET)"
            written = str(node.get("simpleString", "")).partition("table=")[2].partition(",")[0].rstrip(")")
            if _is(written, name):
                return
    for node in nodes:
        scanned = str(node.get("nodeName", ""))
        if scanned.startswith("BatchScan ") and _is(scanned.removeprefix("BatchScan "), name):
            yield str(node.get("simpleString", ""))


def _is(full: str, name: str) -> bool:
    return full == name or full.endswith(f".{name}")


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.get("children") or ()


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.exists():
        raise ParameterError(f"There is no event log {path}; give a file, or a folder of them.")
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")) if path.is_dir() else [path]
    for file in files:
        suffix = Path(file.name.removesuffix(".inprogress")).suffix
        if suffix in _UNREADABLE:
            raise ParameterError(
                f"{file.name} is compressed as only Spark reads it; write event logs with spark.eventLog.compression.codec=zstd, or without compression."
            )
        try:
            with pa.input_stream(str(file), compression=_CODECS.get(suffix)) as stream:
                yield from _started(io.TextIOWrapper(stream, encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ParameterError(f"{file} cannot be read as an event log of Spark ({type(error).__name__}).") from None


def _started(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The events of queries; the last line of an application that was killed may be cut off, and is left out if others are there."""
    found, broken = False, None
    for line in lines:
        if broken is not None:
            raise broken
        # Most events are of tasks, and most of the time goes into reading JSON.
        if _START in line:
            try:
                event = json.loads(line)
            except ValueError as error:
                broken = error
                continue
            if event.get("Event") == _START:
                found = True
                yield event
    if broken is not None and not found:
        raise broken
