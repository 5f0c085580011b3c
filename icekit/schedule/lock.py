"""Let one pass of a policy run at a time, and say who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from icekit.errors import EXIT_HEALTHY, IcekitError
from icekit.units import moment


class AnotherPass(IcekitError):
    """Another pass of the same policy is running: no failure, as the next one comes."""

    exit_status = EXIT_HEALTHY


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of a record of passes; raises :class:`AnotherPass` at once if it is held.

    The system lets go of it when the process ends, also by a kill. On a network file system locks are only as
    good as the file system's; there the ledger's claims still keep two runs off one table.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    holder = path.with_name(path.name + ".pass.json")
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise AnotherPass(
            f"Another pass of this policy is running{_who(holder)}; this one does nothing, and the next is due as usual."
        ) from None
    try:
        holder.write_text(json.dumps({"since_ms": int(time.time() * 1000), "host": socket.gethostname(), "pid": os.getpid()}))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _who(holder: Path) -> str:
    # It may be gone by now, or not yet written.
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads(holder.read_text())
        return f" since {moment(said['since_ms'])} (process {said['pid']} on {said['host']})"
    return ""
