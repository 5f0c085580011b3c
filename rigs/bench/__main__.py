"""``python -m rigs.bench``: measure, with each target beside the actual figure."""

from __future__ import annotations

import argparse
import os
import platform
import time
from importlib import import_module

from rigs.bench.measure import Line, Others, show_lines
from rigs.bench.tables import SIZES, use_bench_lake

# Each is a module of this folder with ``run(sizes, *, long)``. The first measure what has a goal for
# each release, and give back its lines; the others take up to an hour each.
BENCHES = ("commands", "facts", "commits", "small_files", "headline")
AT_LENGTH = (
    *("partitions", "lake_report", "compact", "write_mode", "forecast", "equality_deletes"),
    *("file_sizes", "scale"),
)


def main() -> None:
    """Run the benches named, or the first of them."""
    parser = argparse.ArgumentParser(
        prog="python -m rigs.bench",
        description="Measure; a figure that misses its target is no failure.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"benches to run: {', '.join(BENCHES)} (default: these), {', '.join(AT_LENGTH)}",
    )
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        help="files of the tables, separated by commas (default: %(default)s)",
    )
    parser.add_argument("--long", action="store_true", help="more runs, and what takes minutes")
    arguments = parser.parse_args()
    every = (*BENCHES, *AT_LENGTH)
    if unknown := set(arguments.names) - set(every):
        parser.error(
            f"there is no bench {', '.join(sorted(unknown))}; there are {', '.join(every)}"
        )
    use_bench_lake()
    with Others() as others:
        time.sleep(1)
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}; "
        f"others use {others} of them"
    )
    lines: list[Line] = []
    sizes = [int(size) for size in arguments.sizes.split(",")]
    for name in arguments.names or BENCHES:
        bench = import_module(f"rigs.bench.{name}")
        lines += bench.run(sizes, long=arguments.long) or ()
    if lines:
        show_lines(lines)


if __name__ == "__main__":
    main()
