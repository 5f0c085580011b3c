"""Read from a Spark event log which queries scan a table, and how often.

An event log (``spark.eventLog.enabled``) has one JSON document per line; the plan of each query is
a tree in ``SparkListenerSQLExecutionStart``, and a scan of an Iceberg table is a node named
``BatchScan catalog.db.table``.
"""

import contextlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from icekit.common.errors import ParameterError
from icekit.common.sql import Identifier

_START = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
# Spark compresses with zstd by default; only Spark reads the framing of its lz4 and snappy.
_CODECS = {".zstd": "zstd", ".zst": "zstd", ".gz": "gzip"}
#: A query that changes the table also scans it, but does not count as a read.
_WRITES = (
    "ReplaceData",
    "WriteDelta",
    "AppendData",
    "OverwriteByExpression",
    "OverwritePartitionsDynamic",
)
_DAY_MS = 86_400_000
#: An event of a log, or a node of a plan in it.
Event = Mapping[str, Any]


def logged_queries(path: str, table: Identifier) -> Iterator[tuple[int, list[str]]]:
    """The queries of a log, a rolling log's folder or a folder of logs, each as its start in
    milliseconds and its scans of the table as Iceberg describes them; the table is named without
    its catalog.

    A query that does not read the table, or that changes it, has no scans. Raises
    :class:`~icekit.common.errors.ParameterError` for a file that cannot be read, or if there is no
    query at all.
    """
    event: Event | None = None
    for event in _logged_events(Path(path)):
        scan_descriptions = _scan_descriptions(event.get("sparkPlanInfo") or {}, ".".join(table))
        yield int(event.get("time") or 0), scan_descriptions
    if event is None:
        raise ParameterError(
            f"{path} has no query; give an event log of Spark SQL (spark.eventLog.enabled=true), "
            "not compressed, or with zstd or gzip."
        )


def reads_per_day(path: str, table: Identifier) -> float:
    """Queries per day that read a table.

    The days are from the first to the last query of the log, at least one. Raises as
    :func:`logged_queries` does.
    """
    timed_queries = [
        (start_ms, bool(scan_descriptions))
        for start_ms, scan_descriptions in logged_queries(path, table)
    ]
    logged_days = (max(timed_queries)[0] - min(timed_queries)[0]) / _DAY_MS
    return sum(is_read for _, is_read in timed_queries) / max(1.0, logged_days)


def _scan_descriptions(plan: Event, table_name: str) -> list[str]:
    scan_descriptions = []
    for plan_node in _plan_nodes(plan):
        node_name = str(plan_node.get("nodeName", ""))
        node_description = str(plan_node.get("simpleString", ""))
        # "ReplaceData IcebergWrite(table=lake.db.events, format=PARQUET)"
        written_table_name = node_description.partition("table=")[2].partition(",")[0].rstrip(")")
        if node_name.startswith(_WRITES) and f".{written_table_name}".endswith(f".{table_name}"):
            return []
        if node_name.startswith("BatchScan ") and node_name.replace(" ", ".", 1).endswith(
            f".{table_name}"
        ):
            scan_descriptions.append(node_description)
    return scan_descriptions


def _plan_nodes(plan: Event) -> Iterator[Event]:
    pending_nodes = [plan]
    while pending_nodes:
        plan_node = pending_nodes.pop()
        yield plan_node
        pending_nodes += plan_node.get("children") or ()


def _logged_events(log_path: Path) -> Iterator[Event]:
    if not log_path.exists():
        raise ParameterError(f"There is no event log {log_path}; give a file, or a folder of them.")
    for log_file in sorted(
        p for p in (log_path, *log_path.rglob("*")) if p.is_file() and p.name[0] != "."
    ):
        codec = _CODECS.get(Path(log_file.name.removesuffix(".inprogress")).suffix)
        try:
            with pa.input_stream(str(log_file), compression=codec) as stream:
                yield from _query_events(io.TextIOWrapper(stream, encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ParameterError(
                f"{log_file} cannot be read as an event log of Spark ({type(error).__name__}); "
                "give one that is not compressed, or with zstd or gzip."
            ) from None


def _query_events(log_lines: Iterable[str]) -> Iterator[Event]:
    """The events of queries; a killed application leaves half a line."""
    for log_line in log_lines:
        # Most events are of tasks, and parsing JSON takes most of the time.
        if _START in log_line:
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(log_line)
