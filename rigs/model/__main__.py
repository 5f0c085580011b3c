"""``python -m rigs.model``: long random histories on a fixed list of seeds; fails if anything is
lost or revived.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from pathlib import Path

import icekit
from rigs.model.histories import run
from rigs.model.machine import Machine

LAKE = Path("build/model-lake")
# As the tests' own session: many small queries are ready sooner where code is compiled lightly.
CONF = (
    "spark.master=local[2] spark.driver.memory=1g spark.sql.shuffle.partitions=2 "
    "'spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 "
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC'"
)


def main() -> int:
    """Run the histories of each seed; the exit status is 1 if any failed."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.model",
        description="Random histories of small tables, each step checked.",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(1, 21)), help="default: 1 to 20"
    )
    parser.add_argument("--histories", type=int, default=5, help="a seed (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=25, help="a history (default: %(default)s)")
    parser.add_argument(
        "--kills", type=int, default=1, help="real kills a history at most (default: %(default)s)"
    )
    given = parser.parse_args()
    LAKE.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ICEKIT_LAKE", str(LAKE.resolve()))
    os.environ.setdefault("ICEKIT_SPARK_CONF", CONF)
    Machine.lake = icekit.connect()
    Machine.kills = given.kills
    failed, started = [], time.monotonic()
    for seed in given.seeds:
        before, began = Machine.steps, time.monotonic()
        try:
            run(seed, given.histories, given.steps)
            said = "✔"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            # Java's part of it is long and says little; the steps are notes on the error.
            said = (
                "".join(traceback.format_tb(error.__traceback__)[-4:])
                + str(error).split("\n\tat ")[0][:3000]
            )
            print("\n".join([said, *getattr(error, "__notes__", ())]), flush=True)
            failed.append(seed)
            said = "✖"
        print(
            f"seed {seed}: {Machine.steps - before} steps in {time.monotonic() - began:.0f} s  "
            f"{said}",
            flush=True,
        )
    print(
        f"\n{Machine.steps} steps, {time.monotonic() - started:.0f} s; failed seeds: "
        f"{failed or 'none'}; calls: {dict(Machine.ends)}"
    )
    Machine.lake.close()
    return 1 if failed or Machine.ends["refused"] > Machine.ends["done"] else 0


if __name__ == "__main__":
    sys.exit(main())
