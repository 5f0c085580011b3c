"""What a targeted plan wins beside the whole-table rewrite and the default one, and what it
costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import icekit
from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.sql import identifier, literal
from icekit.common.units import size
from icekit.health.facts.head import commits_since, head
from icekit.learn.lab import unpack_lab
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.record.results import Actual, actual_of
from icekit.rows.proof.fingerprint import fingerprint, row_hash
from rigs.bench.measure import Others, Timing, in_turns, show, verdict
from rigs.bench.tables import LAKE
from rigs.soak.table import clone

SPARK_CONF = "spark.driver.memory=2g"
REDUCTION_SHARE, BYTES_SHARE = 0.9, 0.3
TABLE = "skewed_small_files"


def run(sizes: Sequence[int], *, long: bool) -> None:
    """Run on the bench lake in a session of a known size; ``sizes`` are of other benches'
    tables.
    """
    del sizes
    os.environ["ICEKIT_SPARK_CONF"] = f"{os.environ.get('ICEKIT_SPARK_CONF', '')} {SPARK_CONF}"
    lake = icekit.connect()
    try:
        _bench(lake, 7 if long else 5)
    finally:
        lake.close()


def _bench(lake: Lake, runs: int) -> None:
    """Run the three side by side on copies of one table."""
    unpack_lab(lake, [TABLE], progress=lambda _: None)
    ways: dict[str, Callable[[str], float]] = {
        "targeted plan": lambda name: _targeted(lake, name),
        "whole table (rewrite-all)": lambda name: _call(
            lake, name, "options => map('rewrite-all', 'true')"
        ),
        "default rewrite_data_files": lambda name: _call(lake, name, ""),
    }
    copies = {way: clone(lake, f"bench_{place}", "lab", TABLE) for place, way in enumerate(ways)}
    files = _files(lake, copies["targeted plan"])
    every = sum(files)
    heap = lake.spark._jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    print(f"\n{TABLE}: {len(files):,} data files, {size(every)}; driver heap {size(heap)}")
    # The first rewrite of a session pays for its warm-up.
    _call(
        lake,
        clone(lake, "bench_warm", "lab", TABLE),
        "where => 'month = 1', options => map('rewrite-all', 'true')",
    )
    before = _scans(lake, copies.values(), runs)
    with Others() as others:
        seconds = {way: work(copies[way]) for way, work in ways.items()}
    after = _scans(lake, copies.values(), runs)
    did = {way: _did(lake, name) for way, name in copies.items()}
    all_reduction = (
        did["whole table (rewrite-all)"].files_in - did["whole table (rewrite-all)"].files_out
    )
    all_bytes = did["whole table (rewrite-all)"].bytes_in
    rows = []
    for way, name in copies.items():
        one = did[way]
        reduction, share = (one.files_in - one.files_out) / all_reduction, one.bytes_in / all_bytes
        told: tuple[str, ...] = ("", "")
        if way == "targeted plan":
            told = (verdict(reduction, REDUCTION_SHARE, at_least=True), verdict(share, BYTES_SHARE))
        rows.append(
            (
                *(
                    way,
                    f"{len(files):,}",
                    f"{len(_files(lake, name)):,}",
                    size(one.bytes_in),
                    f"{seconds[way]:.1f} s",
                ),
                *(f"{reduction:.0%}", told[0], f"{share:.0%}", told[1], others),
            )
        )
    targets = (f"≥ {REDUCTION_SHARE:.0%}", f"≤ {BYTES_SHARE:.0%}")
    header = (
        "rewrite",
        "files",
        "after",
        "rewritten",
        "seconds",
        "of the reduction",
        targets[0],
        "of the bytes",
        targets[1],
        "others",
    )
    show("A targeted plan beside the whole table, one run each in one warm session", header, rows)
    of_scans = (
        "scan",
        *(f"{kind} {when}" for kind in ("full", "filtered") for when in ("before", "after")),
    )
    timings = [
        (
            way,
            *(
                Timing(each[name, kind])
                for kind in ("full", "filtered")
                for each in (before, after)
            ),
        )
        for way, name in copies.items()
    ]
    show(f"Scans, median of {runs} in turns", of_scans, timings)
    _sums(lake, copies["targeted plan"], runs)


def _targeted(lake: Lake, name: str) -> float:
    """Plan without a budget, run and prove; the seconds of the rewrite alone."""
    facts = lake.observe(name)
    started = time.monotonic()
    # A fresh ledger: another bench's figures would bend the prediction.
    ledger = Ledger(LAKE / f"ledger-{os.getpid()}.db")
    plan = plan_table(lake, facts, policy=CompactionPolicy(leave_alone="0 minutes"), ledger=ledger)
    planned = time.monotonic() - started
    outcome = lake.run(plan, execute=True, ledger=ledger, progress=lambda _: None)
    did, said = outcome.actual, plan.prediction
    took = sum(a.seconds for a in outcome.actions)
    proof = outcome.proof.seconds if outcome.proof else 0.0
    rows = [
        ("files replaced", f"{said.files_in:,}", f"{did.files_in:,}"),
        ("files written", f"{said.files_out:,}", f"{did.files_out:,}"),
        ("bytes read", size(said.bytes_in), size(did.bytes_in)),
        ("bytes written", size(said.bytes_out), size(did.bytes_out)),
        ("delete files removed", f"{said.delete_files_removed:,}", f"{did.delete_files_removed:,}"),
        ("seconds", "unknown" if said.seconds is None else f"{said.seconds:.1f}", f"{took:.1f}"),
        ("seconds of planning", "", f"{planned:.1f}"),
        ("seconds of proof", "", f"{proof:.1f} ({proof / took:.0%} of the rewrite's)"),
    ]
    show(
        f"Predicted and actual; the run ended as {outcome.status}, proved: "
        f"{outcome.proof and outcome.proof.ok}",
        ("", "predicted", "actual"),
        rows,
    )
    return took


def _call(lake: Lake, name: str, arguments: str) -> float:
    started = time.monotonic()
    lake.spark.sql(
        f"CALL {identifier(lake.name)}.system.rewrite_data_files(table => "
        f"{literal(name)}{', ' * bool(arguments)}{arguments})"
    ).collect()
    return time.monotonic() - started


def _did(lake: Lake, name: str) -> Actual:
    """What the rewrites of a copy have changed."""
    at = head(lake, lake.identifier(name))
    return actual_of(
        s for s in commits_since(at, None) if (s.get("summary") or {}).get("operation") == "replace"
    )


def _files(lake: Lake, name: str) -> Sequence[int]:
    table = identifier(*lake.sql_name(lake.identifier(name)), "files")
    lake.spark.sql(f"REFRESH TABLE {identifier(*lake.sql_name(lake.identifier(name)))}")
    return [
        int(row[0]) for row in lake.spark.sql(f"SELECT file_size_in_bytes FROM {table}").collect()
    ]


def _scans(lake: Lake, names: Any, runs: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of a scan of all rows and of one by a filter that meets the sick partitions."""
    filters = {
        "full": "true",
        "filtered": "time_hour >= TIMESTAMP '2013-12-24 00:00:00Z' AND carrier = 'UA'",
    }

    def scan(name: str, where: str) -> Callable[[], object]:
        table = identifier(*lake.sql_name(lake.identifier(name)))
        return lambda: lake.spark.sql(
            f"SELECT sum(distance), max(tailnum), sum(arr_delay) FROM {table} WHERE {where}"
        ).collect()

    work = {
        f"{name} {kind}": scan(name, where) for name in names for kind, where in filters.items()
    }
    in_turns(1, work)
    taken = in_turns(runs, work)
    return {(key.split(" ")[0], key.split(" ")[1]): seconds for key, seconds in taken.items()}


def _sums(lake: Lake, name: str, runs: int) -> None:
    """The fingerprint's three sums of bigints beside one sum of decimals, on the same hashes."""
    table = lake.sql_name(lake.identifier(name))
    hashed = row_hash(lake.spark.table(identifier(*table)).schema)

    def decimals() -> object:
        return lake.spark.sql(
            f"SELECT count(*), sum(CAST({hashed} AS decimal(38, 0))) FROM {identifier(*table)}"
        ).collect()

    work: dict[str, Callable[[], object]] = {
        "three bigints": lambda: fingerprint(lake.spark, table),
        "decimal(38, 0)": decimals,
    }
    in_turns(1, work)
    show(
        f"The fingerprint of all rows by how hashes are added up, {runs} runs in turns",
        ("sum", "seconds"),
        [(k, Timing(v)) for k, v in in_turns(runs, work).items()],
    )
