"""Report on 100 small tables as a whole cold process.

The tables are the lab's, each registered under several names in a catalog of its own: their
metadata is real and nothing is copied. A run writes where nothing was, and ends when the index is
there.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rigs.bench.measure import Others, show, verdict

TABLES = 100
#: A tenth of eight minutes, for 1,000 tables.
LIMIT_SECONDS = 48.0
LAKE = Path("build/bench-many")
_LABS = (Path("lake"), Path("build/lake"))


def run(sizes: Sequence[int], *, long: bool = False) -> None:
    """Report on 100 tables."""
    if (lab := built_lab()) is None:
        return
    with Others() as others:
        seconds, statuses = _measured(lab, TABLES)
    title = (
        f"A lake report, whole cold process (target: {TABLES} tables in {LIMIT_SECONDS:.0f} s on 2 "
        f"cores; others use {others})"
    )
    row = [TABLES, f"{seconds:.1f} s", statuses, verdict(seconds, LIMIT_SECONDS)]
    show(title, ["tables", "time", "statuses", ""], [row])


def built_lab() -> Path | None:
    """The folder of a lake with the lab; None, and a message, if there is none."""
    found = next((path for path in _LABS if (path / "catalog.db").exists()), None)
    if found is None:
        print("the lab is not there; run `icekit lab --all` first.")
    return found


def register(lab: Path, lake: Path, count: int) -> None:
    """A catalog in which the lab's tables stand under ``count`` names; their metadata and data stay
    where they are.
    """
    shutil.rmtree(lake, ignore_errors=True)
    lake.mkdir(parents=True)
    shutil.copy(lab / "catalog.db", lake)
    with sqlite3.connect(lake / "catalog.db") as catalog:
        rows = catalog.execute(
            "SELECT catalog_name, table_name, metadata_location, iceberg_type FROM iceberg_tables "
            "WHERE table_namespace = 'lab' ORDER BY table_name"
        ).fetchall()
        catalog.execute("DELETE FROM iceberg_tables")
        for n in range(count):
            owner, name, location, kind = rows[n % len(rows)]
            catalog.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                "metadata_location, previous_metadata_location, iceberg_type) VALUES (?, 'many', "
                "?, ?, NULL, ?)",
                (owner, f"t{n:03d}_{name}", location, kind),
            )
    catalog.close()


def _measured(lab: Path, tables: int) -> tuple[float, str]:
    register(lab, LAKE, tables)
    code = (
        "import json, sys; from icekit.report.service import report; "
        "from icekit.common.commands.observe import ReportOptions; "
        "run = report(ReportOptions(tables=('many.*',), output=sys.argv[1]), progress=lambda line: None); "
        "print(json.dumps([row.status for row in run.rows]))"
    )
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code, folder],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ICEKIT_LAKE": str(LAKE.resolve())},
        )
        seconds = time.perf_counter() - started
    found = json.loads(done.stdout.splitlines()[-1])
    return seconds, ", ".join(f"{found.count(s)} {s}" for s in sorted(set(found)))
