"""A run and an action as a ledger keeps them, a clock for its claims, and processes that claim."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import icekit
from icekit.common.errors import Status
from icekit.maintain.prediction import Prediction
from icekit.maintain.record.claims import ActionRecord, RunRecord

TABLE = "lake.db.t"
RUN = RunRecord(
    "r1",
    TABLE,
    "uuid",
    Status.RUNNING,
    1000,
    None,
    {"actions": [1, 2.5, None]},
    None,
)
ACTION = ActionRecord(
    "r1",
    "a1",
    0,
    TABLE,
    7,
    Status.PENDING,
    1,
    Prediction(2, seconds=1.5),
    None,
    None,
    (),
    None,
    None,
    None,
)


class Clock:
    """Milliseconds that stand still until told to pass."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@contextlib.contextmanager
def other_process(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python with ``ledger`` open at ``path`` in a process that is killed at the end."""
    start = (
        "import sys\nfrom icekit.maintain.record.ledger import *\nfrom icekit.common.errors import *\nledger = "
        f"Ledger({str(path)!r})\n"
    )
    root = Path(icekit.__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", start + code],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextlib.contextmanager
def claimed_by(book: Path, table: str, run_id: str = "other") -> Iterator[subprocess.Popen[str]]:
    """A process that lives and holds a table."""
    hold = f"ledger.claim({table!r}, {run_id!r})\nprint('held', flush=True)\nsys.stdin.read()\n"
    with other_process(hold, book) as process:
        assert said(process) == "held"
        yield process
