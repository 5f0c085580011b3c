"""Start a real server on this machine, and wait for it."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: Sequence[object],
    port: int,
    log: Path,
    environment: Mapping[str, str] | None = None,
    stop: signal.Signals = signal.SIGTERM,
    host: str = "127.0.0.1",
) -> Iterator[None]:
    """A server in the folder of its log, from when it answers at its port until the block ends."""
    with (
        log.open("w") as out,
        subprocess.Popen(
            [str(part) for part in command],
            stdout=out,
            stderr=out,
            env=os.environ | dict(environment or {}),
            cwd=log.parent,
        ) as server,
    ):
        try:
            while not _answers(host, port):
                assert server.poll() is None, log.read_text()[-3000:]
                time.sleep(0.2)
            yield
        finally:
            server.send_signal(stop)


def _answers(host: str, port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((host, port)) == 0
