"""See what Spark's own compaction comes to on a small heap: really run, on a clone, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from icekit.catalog import Lake, connect
from icekit.catalog.tables import SessionTables
from icekit.engine.cluster import Executor
from icekit.errors import ParameterError, require_seconds
from icekit.sandbox import clone, remove_stale, stale_clones
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name
from icekit.units import span

if TYPE_CHECKING:
    from subprocess import Popen

_SAID = "icekit stock rewrite: "
_OUT_OF_MEMORY = ("OutOfMemoryError", "GC overhead limit exceeded")
#: What makes Iceberg take files under equality deletes, which sizes alone do not.
OPTIONS: Mapping[str, str] = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}


@dataclass(frozen=True, slots=True)
class StockRun:
    """What became of a stock ``rewrite_data_files``: on a clone, which is gone, so the table is as it was."""

    table: str
    executor: Executor
    outcome: Literal["finished", "out of memory", "stopped", "failed"]
    seconds: float
    detail: str = ""

    def __repr__(self) -> str:
        took = span(self.seconds * 1000)
        ended = {"finished": f"finished in {took}", "stopped": f"was stopped, unfinished, after {took}"}.get(
            self.outcome, f"{'ran out of memory' if self.outcome == 'out of memory' else 'failed'} after {took}"
        )
        return f"A stock rewrite_data_files of {self.table} with {self.executor} {ended}." + (f" {self.detail}" if self.detail else "")


def stock_rewrite(lake: Lake, table: Identifier | str, executor: Executor | str, *, limit_seconds: float = 120) -> StockRun:
    """Run ``rewrite_data_files`` over a table's equality deletes on a zero-copy clone, in a local Spark of so many cores and so much heap.

    It is stopped after ``limit_seconds``, with all that it started. Raises
    :class:`~icekit.errors.ParameterError` for a catalog that only the running session knows.
    """
    if isinstance(lake.tables, SessionTables):
        raise ParameterError(
            "A catalog of the running session cannot be opened by another process; configure a profile to try a stock run."
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
    command = [sys.executable, "-m", "icekit.compact.equality_deletes.stock", lake.name, json.dumps(name)]
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
