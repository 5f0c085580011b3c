"""``python -m icekit``: the command, called without its script."""

import sys

from icekit.cli.main import main

if __name__ == "__main__":
    sys.exit(main(program_name="python -m icekit"))
