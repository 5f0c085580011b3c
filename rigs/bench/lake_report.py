"""Report on 100 small tables as a whole cold process: kernels that are kept beside a kernel for
each table.

The tables are the lab's, each registered under several names in a catalog of its own: their
metadata is real and nothing is copied. A run writes where nothing was, and ends when the index is
there.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rigs.bench.measure import Others, show, verdict

TABLES = 100
LIMIT_SECONDS = 150.0
LAKE = Path("build/bench-many")
_LABS = (Path("lake"), Path("build/lake"))
_STAGES = ("observe", "notebook", "page")


def run(sizes: Sequence[int], *, long: bool = False) -> None:
    """Report on 100 tables; on a kernel for each of them too if ``long``, else of 20 by both."""
    if (lab := built_lab()) is None:
        return
    compared = TABLES if long else 20
    rows = []
    with Others() as others:
        for name, tables, fresh in (
            ("kept kernels", TABLES, False),
            ("kept kernels", compared, False),
            ("a kernel each", compared, True),
        ):
            if (name, tables) == ("kept kernels", compared) and compared == TABLES:
                continue
            seconds, stages, statuses = _measured(lab, tables, fresh=fresh)
            judged = verdict(seconds, LIMIT_SECONDS) if tables == TABLES and not fresh else ""
            rows.append(
                [
                    name,
                    tables,
                    f"{seconds:.1f} s",
                    *(f"{stages[s]:.2f} s" for s in _STAGES),
                    statuses,
                    judged,
                ]
            )
    title = (
        f"A lake report, whole cold process, medians of a table's stages (target: {TABLES} tables "
        f"in {LIMIT_SECONDS:.0f} s on 2 cores; others use {others})"
    )
    show(title, ["", "tables", "time", *_STAGES, "statuses", ""], rows)


def built_lab() -> Path | None:
    """The folder of a lab that is built; None, and a message, if there is none."""
    found = next((path for path in _LABS if (path / "catalog.db").exists()), None)
    if found is None:
        print("the lab is not built; run `icekit lab` first.")
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


def _measured(lab: Path, tables: int, *, fresh: bool) -> tuple[float, dict[str, float], str]:
    register(lab, LAKE, tables)
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import sys; from pathlib import Path; from icekit.report import Options, report; "
            f"report(['many.*'], Options(output=Path(sys.argv[1]), fresh_kernels={fresh}), "
            "progress=lambda line: None)"
        )
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, folder],
            check=True,
            env={**os.environ, "ICEKIT_LAKE": str(LAKE.resolve())},
        )
        seconds = time.perf_counter() - started
        done = [
            json.loads(line) for line in (Path(folder) / "run.jsonl").read_text().splitlines()[1:-1]
        ]
    stages = {
        stage: statistics.median(row["stages"][stage] for row in done if row["stages"])
        for stage in _STAGES
    }
    found = [row["status"] for row in done]
    return seconds, stages, ", ".join(f"{found.count(s)} {s}" for s in sorted(set(found)))
