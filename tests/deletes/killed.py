"""The process that is killed while it reads the keys, or when its delete files are written and
nothing names them yet.
"""

import os
import sys
from typing import Any

import pytest

import icekit
from icekit.rows.deletes import convert


def main(table: str, ledger: str, place: str = "commit") -> None:
    """Convert, and die in the place of the commit, or of the join that reads the view of the
    keys.
    """

    def die(*_: Any, **__: Any) -> None:
        print("killed", flush=True)
        os._exit(9)

    pytest.MonkeyPatch().setattr(convert, "dead_rows" if place == "join" else "commit", die)
    icekit.connect().convert(table, execute=True, ledger=ledger)


if __name__ == "__main__":
    main(*sys.argv[1:])
