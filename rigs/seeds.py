"""The command line of rigs that play one seed after another, on a lake of their own in ``build/``."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import icekit
from icekit.api import Lake

# As the tests' own session: many small queries are ready sooner where code is compiled lightly.
CONF = (
    "spark.master=local[2] spark.driver.memory=1g spark.sql.shuffle.partitions=2 "
    "'spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 "
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:ReservedCodeCacheSize=240m "
    "-XX:+UseSerialGC'"
)


def seeds_parser(rig: str, *, seed: int, rounds: int, steps: int) -> argparse.ArgumentParser:
    """A parser with the options that such rigs share, and these defaults."""
    parser = argparse.ArgumentParser(f"python -m rigs.{rig}")
    parser.add_argument(
        "--seed", type=int, default=seed, help="of the first round; others count on"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=steps, help="a round (default: %(default)s)")
    folder = Path(f"build/{rig}-lake")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ICEKIT_LAKE", str(folder.resolve()))
    os.environ.setdefault("ICEKIT_SPARK_CONF", CONF)
    return parser


def play_seeds(
    options: argparse.Namespace,
    play: Callable[[Lake, int], tuple[bool, str]],
    counters: Mapping[str, Counter[str]],
) -> bool:
    """Play each seed and print how it went; whether none failed. ``play`` gives whether a seed is
    clean, and what to print of it.
    """
    failed = []
    started = time.monotonic()
    with contextlib.closing(icekit.connect()) as lake:
        for seed in range(options.seed, options.seed + options.rounds):
            began = time.monotonic()
            is_clean, text = play(lake, seed)
            mark = "✔" if is_clean else "✖"
            print(
                f"seed {seed}: {time.monotonic() - began:.0f} s  {mark}\n{text}".rstrip(),
                flush=True,
            )
            if not is_clean:
                failed.append(seed)
    print(f"\n{options.rounds} rounds, {time.monotonic() - started:.0f} s")
    for name, counter in counters.items():
        print(f"  {name}: {counter.total()}, {dict(sorted(counter.items()))}")
    print(f"  failed seeds: {failed or 'none'}")
    return not failed
