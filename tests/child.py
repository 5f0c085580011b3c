"""Start a victim, watch from outside how far it is, and kill it with all that it started."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.004
#: What never ends is a failure too.
PATIENCE_SECONDS = 300


def python(*arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run Python to its end in a process of its own, and keep what it writes."""
    options = {"capture_output": True, "text": True, "check": False, **how}
    return subprocess.run([sys.executable, *map(str, arguments)], **options)


class Child:
    """A process with a group of its own, whose output goes to a file."""

    def __init__(self, module: str, arguments: Sequence[object], log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def lines(self) -> list[str]:
        """What it has said so far."""
        return self.log.read_text(errors="replace").splitlines()

    @property
    def ended(self) -> bool:
        """Tell whether it is gone."""
        return self.process.poll() is not None

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; False if the process ended before. Raises when it never comes."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if self.ended:
                return condition()
            if time.monotonic() > give_up:
                said = "\n".join(self.lines)
                self.kill()
                raise AssertionError(f"nothing for {PATIENCE_SECONDS} s; it had said:\n{said}")
            time.sleep(POLL_SECONDS)
        return True

    def go(self) -> None:
        """Wait until it is ready, and let it begin."""
        assert self.until(lambda: "ready" in self.lines), "\n".join(self.lines)
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def kill(self, *, with_jvm: bool = True) -> None:
        """SIGKILL, if it still runs: Python and its JVM, or Python alone, whose JVM then lives on
        for a moment.
        """
        with contextlib.suppress(ProcessLookupError):
            if with_jvm:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
