"""What a process does that has its session from a Connect server: commands and verbs, of which it
writes down how each ended.
"""

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import icekit
from icekit.common.errors import IcekitError
from tests.commands import command

MERGE = "MERGE INTO lake.db.deletes t USING lake.db.small s ON t.id = s.id WHEN MATCHED THEN DELETE"


def verb(call: Callable[[], object]) -> dict[str, Any]:
    """Whether a call gave a result (0), an error of icekit's (2), or another one (3)."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            call()
            status = 0
        except IcekitError as error:
            status = 2
            print(error)
        except Exception:
            status = 3
            traceback.print_exc(file=said)
    return {"status": status, "said": said.getvalue()}


def verbs() -> dict[str, Callable[[], object]]:
    """A call of each public method of a connected lake."""
    lake = icekit.connect("lake")
    return {
        "observe": lambda: lake.observe("db.small"),
        "look": lambda: lake.look("db.small"),
        "plan": lambda: lake.plan(lake.observe("db.small")),
        "propose": lambda: lake.propose("db.small"),
        "run": lambda: lake.run(lake.plan(lake.observe("db.small"))),
        "convert": lambda: lake.convert("db.deletes"),
        "write-mode": lambda: lake.tune("write-mode", "db.deletes", operation="delete"),
        "review_merge": lambda: lake.review_merge(MERGE),
        "tune": lambda: lake.tune("planning", "db.small"),
        "read_resolved": lambda: lake.read_resolved("db.deletes").count(),
        "pack": lambda: lake.pack("db.small", "by-verb.icekit.zip"),
        "unpack": lambda: lake.unpack("by-verb.icekit.zip"),
        "resume": lambda: lake.resume("db.small"),
    }


if __name__ == "__main__":
    ended = {}
    for arguments in json.load(sys.stdin):
        status, said = command(*arguments)
        ended[" ".join(arguments)] = {"status": status, "said": said}
    ended |= {f"Lake.{name}": verb(call) for name, call in verbs().items()}
    print(json.dumps(ended))
