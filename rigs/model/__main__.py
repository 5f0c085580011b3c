"""``python -m rigs.model``: long random histories on a fixed list of seeds; fails if anything is
lost or revived.
"""

from __future__ import annotations

import sys
import traceback

from icekit.api import Lake
from rigs.model.histories import run
from rigs.model.machine import Machine
from rigs.seeds import play_seeds, seeds_parser


def main() -> int:
    """Run the histories of each seed; the exit status is 1 if any failed."""
    parser = seeds_parser("model", seed=1, rounds=20, steps=25)
    parser.add_argument("--histories", type=int, default=5, help="a round (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=1, help="real ones a history, at most")
    options = parser.parse_args()
    Machine.kills = options.kills

    def play(lake: Lake, seed: int) -> tuple[bool, str]:
        Machine.lake = lake
        try:
            run(seed, options.histories, options.steps)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Java's part of it is long and says little; the steps are notes on the error.
            trace = "".join(traceback.format_tb(error.__traceback__)[-4:])
            message = str(error).split("\n\tat ")[0][:3000]
            return False, "\n".join([trace + message, *getattr(error, "__notes__", ())])
        return True, ""

    is_clean = play_seeds(options, play, {"calls": Machine.ends})
    print(f"  steps: {Machine.steps}")
    return 0 if is_clean and Machine.ends["refused"] <= Machine.ends["done"] else 1


if __name__ == "__main__":
    sys.exit(main())
