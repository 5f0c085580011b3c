"""Let one pass of a policy run at a time, and say who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from icekit.errors import EXIT_HEALTHY, EXIT_UNHEALTHY, IcekitError
from icekit.extras import require
from icekit.units import moment, span

#: Seconds after which a pass that still runs is one that somebody should look at.
LONGEST = 86_400.0


class AnotherPass(IcekitError):
    """Another pass of the same policy is running: no failure, as the next one comes, unless it has run for too long."""

    exit_status = EXIT_HEALTHY

    def __init__(self, said: str, *, is_overlong: bool = False) -> None:
        super().__init__(said)
        self.exit_status = EXIT_UNHEALTHY if is_overlong else EXIT_HEALTHY


@contextlib.contextmanager
def one_at_a_time(path: Path, longest: float = LONGEST) -> Iterator[None]:
    """Hold the lock of a record of passes; raises :class:`AnotherPass` at once if it is held.

    ``longest`` is in seconds: one that has run for longer may hang, as a storage does that does not answer.

    The system lets go of it when the process ends, also by a kill. On a network file system locks are only as
    good as the file system's; there the ledger's claims still keep two runs off one table.
    """
    require("filelock", "A pass of a policy")
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_name(path.name + ".pass.json")
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        seconds = _seconds(holder)
        if seconds > longest:
            raise AnotherPass(
                f"Another pass of this policy is running{_who(holder)}, for {span(seconds * 1000)} now; see what it waits for, and end its process if it hangs: the next pass goes on with what is left.",
                is_overlong=True,
            ) from None
        raise AnotherPass(
            f"Another pass of this policy is running{_who(holder)}; this one does nothing, and the next is due as usual."
        ) from None
    try:
        holder.write_text(json.dumps({"since_ms": int(time.time() * 1000), "host": socket.gethostname(), "pid": os.getpid()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _seconds(holder: Path) -> float:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return max(0.0, time.time() - float(json.loads(holder.read_text())["since_ms"]) / 1000)
    return 0.0


def _who(holder: Path) -> str:
    # It may be gone by now, or not yet written.
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads(holder.read_text())
        return f" since {moment(said['since_ms'])} (process {said['pid']} on {said['host']})"
    return ""
