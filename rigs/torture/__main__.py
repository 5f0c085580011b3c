"""``python -m rigs.torture``: random tables by many writers, read by several readers after each
step of icekit; fails if a row is lost, revived or changed.
"""

from __future__ import annotations

import logging
import random
import sys
import warnings
from collections import Counter

from icekit.api import Lake
from rigs.seeds import play_seeds, seeds_parser
from rigs.torture.rounds import Round
from tests.elsewhere import elsewhere


def main() -> int:
    """Play the rounds; the exit status is 1 if icekit was at fault in any."""
    parser = seeds_parser(
        "torture", seed=random.SystemRandom().randrange(10**6), rounds=20, steps=12
    )
    parser.add_argument("--verbose", action="store_true", help="print every step")
    options = parser.parse_args()
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    calls: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    readers: Counter[str] = Counter()

    def play(lake: Lake, seed: int) -> tuple[bool, str]:
        other = elsewhere(lake.spark)
        other.conf.set(f"spark.sql.catalog.{lake.name}.cache-enabled", "false")
        other.conf.set("spark.sql.iceberg.executor-cache.enabled", "false")
        report = Round(lake, other, seed).play(options.steps)
        calls.update(report.endings)
        refusals.update(report.refusals)
        readers.update(report.comparisons)
        is_told = report.faults or options.verbose
        lines = report.history if is_told else report.disagreements.values()
        return not report.faults, "\n".join(f"    {line}" for line in lines)

    is_clean = play_seeds(options, play, {"calls": calls, "refusals": refusals, "readers": readers})
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
