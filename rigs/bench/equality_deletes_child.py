"""One measured run on a copy of an upsert table, in a process of its own; told as lines of JSON
while it goes.

Its argument is a JSON object: the table (as of :class:`~rigs.bench.upserts.Upserts`), the kind of
run and the garbage collector's log. A run is one phase or two, timed apart.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import icekit
from icekit.api import Lake
from icekit.common.sql import call_sql, identifier
from icekit.maintain.run.options import Limits
from icekit.rows.proof.fingerprint import fingerprint
from rigs.bench.measure import Others
from rigs.bench.upserts import copied, expected, make_upserts

#: Phases by kind of run.
KINDS = {
    "stock": ("rewrite",),
    "stock, cached": ("rewrite, cached",),
    "compact": ("compact",),
    "convert": ("convert", "rewrite"),
    "read": ("read",),
    "convert, read": ("convert", "read"),
}
#: With these, Iceberg's own rewrite takes all files under deletes.
STOCK_OPTIONS = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}
_PAUSE = re.compile(r"Pause (\w+).*?(\d+)M->(\d+)M\(")


def main(order: Mapping[str, Any]) -> None:
    """Do what is ordered; whatever fails is told, and ends the process at once."""
    lake = icekit.connect()
    tell("starting")
    started = time.monotonic()
    jvm = int(lake.spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    name = make_upserts(lake, **order["table"])
    if order["kind"] == "make":
        files = files_by_content(lake, name)
        tell("made", files=files)
        lake.close()
        return
    with copied(lake, name, "run") as copy:
        tell("measuring", jvm=jvm, start_seconds=time.monotonic() - started)
        for phase in KINDS[order["kind"]]:
            _measure(lake, copy, phase, jvm, Path(order["gc_log"]))
        tell("measured")
        found = fingerprint(lake.spark, lake.sql_name(lake.identifier(copy)))[()]
        tell(
            "checked",
            rows=found.row_count,
            print=f"{found.hash_sum:x}",
            right=found == expected(lake, name),
            files=files_by_content(lake, copy),
        )
    lake.close()


def tell(event: str, **said: object) -> None:
    """Print a line for the process that waits for this one."""
    print(json.dumps({"event": event, **said}), flush=True)


def pauses(log: Path, start: int = 0) -> dict[str, int | None]:
    """The heap's use in MB around the collections that a log tells of, from an offset on.

    ``peak_mb`` is the largest before a collection, garbage included; ``kept_mb`` after any,
    where what is dead in the old generation still counts; ``live_mb`` after a full one, which
    leaves what is alive, or None if there was none.
    """
    text = log.read_text()[start:] if log.exists() else ""
    found = [(kind, int(before), int(after)) for kind, before, after in _PAUSE.findall(text)]
    return {
        "peak_mb": max((before for _, before, _ in found), default=None),
        "kept_mb": max((after for _, _, after in found), default=None),
        "live_mb": max((after for kind, _, after in found if kind == "Full"), default=None),
    }


def cpu_seconds(process: int) -> float:
    """Seconds of processor time of a process so far; NaN where Linux does not tell, or it has
    ended.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(lake: Lake, table: str, phase: str, jvm: int, log: Path) -> None:
    work: dict[str, Callable[[], object]] = {
        "rewrite": lambda: _stock_rewrite(lake, table),
        "rewrite, cached": lambda: _stock_rewrite(lake, table, **{"cache-delete-files": "true"}),
        "compact": lambda: _compact(lake, table),
        "convert": lambda: _convert(lake, table),
        "read": lambda: fingerprint(lake.spark, lake.sql_name(lake.identifier(table))),
    }
    held = sum(size for _, size, _ in files_by_content(lake, table).values())
    logged = log.stat().st_size if log.exists() else 0
    cpu, started = cpu_seconds(jvm), time.monotonic()
    with Others() as others:
        work[phase]()
    took = time.monotonic() - started
    memory = pauses(log, logged)
    # What is used now counts too: a run may end without a collection.
    beans: Any = lake.spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    now = int(beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 2**20)
    memory["peak_mb"] = max(memory["peak_mb"] or 0, now)
    used = cpu_seconds(jvm) - cpu
    tell(
        "phase",
        phase=phase,
        bytes=held,
        seconds=took,
        cpu=used,
        others=others.share,
        files=files_by_content(lake, table),
        **memory,
    )


def _stock_rewrite(lake: Lake, table: str, **more: str) -> None:
    """What icekit is compared with: Iceberg's own rewrite of all files under deletes."""
    options = {**STOCK_OPTIONS, **more}
    lake.spark.sql(
        call_sql(lake.name, "rewrite_data_files", table=table, options=options)
    ).collect()


def _compact(lake: Lake, table: str) -> None:
    """All of `icekit compact --execute` but the start of Spark: observe, plan, rewrite, check,
    commit.
    """
    plan = lake.plan(lake.observe(table), leave_alone="0 minutes")
    print(lake.run(plan, execute=True, progress=lambda said: print(said, flush=True)), flush=True)


def _convert(lake: Lake, table: str) -> None:
    outcome = lake.convert(
        table,
        execute=True,
        progress=lambda said: print(said, flush=True),
        limits=Limits(prove="none"),
    )
    print(outcome, flush=True)


def files_by_content(lake: Lake, table: str) -> dict[str, list[int]]:
    """Files, bytes and records by content: data, position deletes, equality deletes."""
    name = lake.sql_name(lake.identifier(table))
    lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
    kinds = {0: "data", 1: "position deletes", 2: "equality deletes"}
    counted = lake.spark.sql(
        "SELECT content, count(*), sum(file_size_in_bytes), sum(record_count) FROM "
        f"{identifier(*name, 'files')} GROUP BY 1"
    )
    return {kinds[row[0]]: [int(value) for value in row[1:]] for row in counted.collect()}


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except BaseException as problem:
        tell("failed", error=f"{type(problem).__name__}: {problem}"[:4000])
        # Not by way of what cleans up: that would wait for a JVM that may be gone.
        os._exit(1)
