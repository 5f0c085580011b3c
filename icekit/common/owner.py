"""A process, distinguished from every other on every machine, and whether it is still alive."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

from icekit.common import frozen


@frozen
class Owner:
    """A process, distinguished from every other on every machine.

    ``boot_id``, ``pid_namespace`` and ``pid_started`` (clock ticks after boot) are None
    where there is no ``/proc``.
    """

    host: str
    boot_id: str | None
    pid_namespace: str | None
    pid: int
    pid_started: int | None

    @classmethod
    def this_process(cls) -> Owner:
        """This process; asked again each time, as a fork is another one."""
        pid = os.getpid()
        process_status = _process_status(pid)
        return cls(
            socket.gethostname(),
            _boot_id(),
            _pid_namespace(),
            pid,
            process_status[1] if process_status else None,
        )

    def is_checkable(self) -> bool:
        """Whether icekit can tell from here if the process is alive.

        A process id means something only on the same host since the same boot, and in the same pid
        namespace: containers may share a host name, and see only their own processes.
        """
        this_process = Owner.this_process()
        return (
            replace(self, pid=this_process.pid, pid_started=this_process.pid_started)
            == this_process
        )

    def has_ended(self) -> bool:
        """Whether the process is known to be dead; False if that cannot be checked from here."""
        if not self.is_checkable():
            return False
        process_status = _process_status(self.pid)
        if process_status is not None and self.pid_started is not None:
            state_letter, start_ticks = process_status
            # Killed, and its parent has not asked for its status yet: Z.
            return state_letter in "ZX" or start_ticks != self.pid_started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            # It belongs to another user, and is alive.
            return False
        return False


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _process_status(pid: int) -> tuple[str, int] | None:
    """The state and start time of a process, or None where ``/proc`` does not show it."""
    try:
        stat_text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name before the parenthesis may hold anything, also spaces and parentheses.
        stat_fields = stat_text.rpartition(")")[2].split()
        return stat_fields[0], int(stat_fields[19])
    except (OSError, IndexError, ValueError):
        return None
