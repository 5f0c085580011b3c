"""What grows with a table's files and partitions and with a catalog's tables: time, memory, and the
size of what is handed over and written.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rigs.bench.lake_report import LAKE, built_lab, register
from rigs.bench.measure import in_child, show, verdict
from rigs.bench.tables import BenchTable, build

TABLES = (BenchTable(1_000_000), BenchTable(200_000, partitions=100_000))
LARGEST = BenchTable(5_000_000)
FLEET = 1_000
HEAP_MB = 1536
#: Goals: a page, and the facts that one process hands to another.
PAGE_MB, FACTS_MB = 5.0, 50.0


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Measure one table after another, then a catalog of many."""
    tables = (*TABLES, LARGEST) if long else TABLES
    build(list(tables))
    conf = f"{os.environ.get('ICEKIT_SPARK_CONF', '')} spark.driver.memory={HEAP_MB}m"
    steps, sized = [], []
    for table in tables:
        found = in_child(__name__, "steps", table.name, ICEKIT_SPARK_CONF=conf)
        steps.append(
            (
                table.name,
                *(f"{found['seconds'][name]:.1f} s" for name in _STEPS),
                _mb(found["peak_heap"]),
                _mb(found["python"]),
            )
        )
        page = in_child(__name__, "page", table.name, ICEKIT_SPARK_CONF=conf)
        judged = verdict(page["html"] / 1e6, PAGE_MB), verdict(found["facts"] / 1e6, FACTS_MB)
        sized.append(
            (
                table.name,
                _mb(found["facts"]),
                judged[1],
                _mb(page["html"]),
                judged[0],
                _mb(page["json"]),
                f"{page['seconds']:.0f} s",
                _mb(page["python"]),
            )
        )
    show(
        f"Steps in one process, Spark's start included in the first (-Xmx{HEAP_MB}m)",
        ("table", *_STEPS, "peak heap", "Python"),
        steps,
    )
    show(
        f"A whole `icekit report`, and sizes (targets: facts ≤ {FACTS_MB:.0f} MB, page ≤ "
        f"{PAGE_MB:.0f} MB)",
        ("table", "facts", "", "page", "", "page's JSON", "report", "Python"),
        sized,
    )
    if lab := built_lab():
        register(lab, LAKE, FLEET)
        fleet = in_child(__name__, "page", "many.*", ICEKIT_LAKE=str(LAKE.resolve()))
        show(
            f"A report on {FLEET:,} small tables",
            ("", "time", "index", "", "all pages", "Python"),
            [
                (
                    "",
                    f"{fleet['seconds']:.0f} s",
                    _mb(fleet["index"]),
                    verdict(fleet["index"] / 1e6, PAGE_MB),
                    _mb(fleet["html"]),
                    _mb(fleet["python"]),
                )
            ],
        )


_STEPS = ("facts", "findings", "plan", "proposals", "hand-over")


def _of_steps(table: str) -> dict[str, Any]:
    import icekit
    from icekit.health.diagnose import diagnose
    from icekit.health.diagnose.document import save_facts
    from icekit.health.facts.model import TableFacts

    lake, seconds = icekit.connect(), {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        done = work()
        seconds[name] = time.perf_counter() - started
        return done

    with tempfile.TemporaryDirectory() as folder:
        facts: TableFacts = timed("facts", lambda: lake.observe(table))
        findings = timed("findings", lambda: diagnose(facts, session_conf=lake.session_conf()))
        timed("plan", lambda: lake.plan(facts, findings))
        timed("proposals", lambda: lake.propose(table))
        path = Path(folder, "facts.json")
        size = timed("hand-over", lambda: save_facts(facts, path)).stat().st_size
    beans = lake.spark._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    pools = [pool for pool in beans.getMemoryPoolMXBeans() if str(pool.getType()) == "Heap memory"]
    peak = sum(pool.getPeakUsage().getUsed() for pool in pools)
    lake.close()
    return {
        "seconds": seconds,
        "facts": size,
        "peak_heap": peak,
        "python": _rss(resource.RUSAGE_SELF),
    }


def _of_page(tables: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        command = [sys.executable, "-m", "icekit", "report", tables, "--output", folder]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds, written = time.perf_counter() - started, list(Path(folder).rglob("*"))

        def of(suffix: str) -> int:
            return sum(
                path.stat().st_size
                for path in written
                if path.suffix == suffix and path.stem != "index"
            )

        index = next((path.stat().st_size for path in written if path.name == "index.html"), 0)
        return {
            "seconds": seconds,
            "html": of(".html"),
            "json": of(".json"),
            "index": index,
            "python": _rss(resource.RUSAGE_CHILDREN),
        }


def _rss(whose: int) -> int:
    """The most memory that a process of these has had."""
    return resource.getrusage(whose).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
    print(json.dumps({"steps": _of_steps, "page": _of_page}[sys.argv[1]](sys.argv[2])))
