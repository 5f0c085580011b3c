"""``python -m rigs.soak``: kill compactions at random moments, or write all the while; fails if
anything is lost.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import icekit
from icekit.common.commands.compaction_policy import Scope
from rigs.soak.rounds import Length, Rounds, choose
from rigs.soak.table import make_template

LAKE = Path("build/soak-lake")
SCOPES: tuple[Scope, Scope] = ("minor", "major")


def main() -> int:
    """Run what was asked for; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.soak", description="Kill compactions, or write while they run."
    )
    parser.add_argument("--rounds", type=int, default=50, help="kills (default: %(default)s)")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="replays the moments of another soak (default: a new one)",
    )
    parser.add_argument(
        "--partitions", type=int, default=6, help="partitions of the table (default: %(default)s)"
    )
    parser.add_argument(
        "--writer",
        type=int,
        nargs="?",
        const=100,
        metavar="COMMITS",
        help="instead: write so many commits while compacting",
    )
    parser.add_argument(
        "--convert",
        type=int,
        nargs="?",
        const=100,
        metavar="TIMES",
        help="instead: write while equality deletes are converted so many times",
    )
    given = parser.parse_args()
    LAKE.mkdir(parents=True, exist_ok=True)
    os.environ["ICEKIT_LAKE"] = str(LAKE.resolve())
    os.environ.setdefault(
        "ICEKIT_SPARK_CONF",
        "spark.master=local[2] spark.driver.memory=1g spark.sql.shuffle.partitions=2",
    )
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    if given.writer or given.convert:
        from rigs.soak.writing import soak_writer

        return soak_writer(given.writer or 1, seed, Path("build/soak"), given.convert or 0)
    return _kill(given.rounds, seed, given.partitions)


def _kill(rounds: int, seed: int, partitions: int) -> int:
    started = time.monotonic()
    chance = random.Random(seed)
    print(f"seed {seed}; a table of {partitions} partitions", flush=True)
    lake = icekit.connect()
    make_template(lake, partitions, commits=6)
    # The number of the soak's process keeps the ledger and the names of two soaks apart.
    soak = Rounds(lake, Path("build/soak").resolve() / f"{seed}-{os.getpid()}")
    lengths: dict[Scope, Length] = {}
    hit: Counter[str] = Counter()
    failed = 0
    try:
        for scope in SCOPES:
            lengths[scope], result = soak.whole(f"whole_{scope}", scope)
            failed += bool(result.wrong)
            print(f"{scope:<5} not killed: {lengths[scope]}{_told(result.wrong)}", flush=True)
        plans = [
            (f"r{number:03}", scope := SCOPES[number % 2], choose(chance, lengths[scope]))
            for number in range(1, rounds + 1)
        ]
        for place, (name, scope, moment) in enumerate(plans):
            coming = plans[place + 1][:2] if place + 1 < len(plans) else None
            result = soak.killed(
                name,
                scope,
                moment,
                lambda coming=coming: soak.prepare(*coming) if coming else None,  # type: ignore[misc]
            )
            failed += bool(result.wrong)
            hit[_kind(result.where)] += 1
            print(
                f"{place + 1:>3}/{rounds} {scope:<5} killed at {moment}: {result.where}; "
                f"{result.seconds:.0f} s{_told(result.wrong)}",
                flush=True,
            )
    finally:
        soak.close()
        lake.close()
    print(f"\n{rounds} kills, {failed} failed, seed {seed}, {time.monotonic() - started:.0f} s")
    for where, times in hit.most_common():
        print(f"  {times:>3} {where}")
    return 1 if failed else 0


def _kind(where: str) -> str:
    """Where a kill hit, without the number of the action."""
    head, _, rest = where.partition(", ")
    if "proof" in rest:
        return "in a proof"
    if "not committed" in rest:
        return "between rewrite and commit"
    if head.startswith("action"):
        return (
            "in an action, before its first commit"
            if rest.startswith("0 ")
            else "in an action, between commits"
        )
    return "between actions" if head.startswith("after") else where


def _told(wrong: tuple[str, ...]) -> str:
    return "".join(f"\n    ✖ {each}" for each in wrong) if wrong else "  ✔"


if __name__ == "__main__":
    sys.exit(main())
