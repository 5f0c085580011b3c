"""Send what child processes print while they start to a file: noise, unless the start fails."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def stderr_to_file() -> Iterator[Path]:
    """Point file descriptor 2 at a file for a while; yields its path.

    A child inherits the descriptor when it is launched and keeps writing there for its whole
    life. The file is unlinked on the way out, and goes with the last process that has it.
    """
    with tempfile.NamedTemporaryFile(prefix="icekit-", suffix=".log", delete=False) as log:
        path = Path(log.name)
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
    try:
        yield path
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        path.unlink(missing_ok=True)
