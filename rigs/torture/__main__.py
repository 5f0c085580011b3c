"""``python -m rigs.torture``: random tables by many writers, read by several readers after each
step of icekit; fails if a row is lost, revived or changed.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import icekit
from rigs.torture.rounds import Round
from tests.elsewhere import elsewhere

LAKE = Path("build/torture-lake")
# As the tests' own session: many small queries are ready sooner where code is compiled lightly.
CONF = (
    "spark.master=local[2] spark.driver.memory=1g spark.sql.shuffle.partitions=2 "
    "'spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 "
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC'"
)


def main() -> int:
    """Play the rounds; the exit status is 1 if icekit was at fault in any."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.torture",
        description="Random tables, steps of icekit between commits of others, and every reader.",
    )
    parser.add_argument("--rounds", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=12, help="a round (default: %(default)s)")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of the first round; the others count on (default: a new one)",
    )
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    LAKE.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ICEKIT_LAKE", str(LAKE.resolve()))
    os.environ.setdefault("ICEKIT_SPARK_CONF", CONF)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    lake = icekit.connect()
    other = elsewhere(lake.spark)
    other.conf.set(f"spark.sql.catalog.{lake.name}.cache-enabled", "false")
    other.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")
    endings: Counter[str] = Counter()
    comparisons: Counter[str] = Counter()
    failed = []
    started = time.monotonic()
    for number in range(seed, seed + options.rounds):
        report = Round(lake, other, number).play(options.steps)
        endings.update(report.endings)
        comparisons.update(report.comparisons)
        mark = "✖" if report.faults else "✔"
        print(f"seed {number}: {report.seconds:.0f} s  {mark}", flush=True)
        if report.faults or options.verbose:
            print("\n".join(f"    {line}" for line in report.history), flush=True)
        else:
            for text in report.disagreements.values():
                print(f"    {text}", flush=True)
        if report.faults:
            failed.append(number)
    print(f"\n{options.rounds} rounds, {time.monotonic() - started:.0f} s")
    print(f"  calls: {dict(sorted(endings.items()))}")
    print(f"  readers: {dict(sorted(comparisons.items()))}")
    print(f"  failed seeds: {failed or 'none'}")
    lake.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
