"""Check where a policy writes, before a pass has done its work; nothing is made."""

from __future__ import annotations

import os
from pathlib import Path

from icekit.errors import ParameterError
from icekit.schedule.model import Policy


def check_places(policy: Policy) -> None:
    """Refuse an output, or another file of the policy, that cannot be written; raises :class:`~icekit.errors.ParameterError` with all of them."""
    files = {
        "ledger": policy.ledger,
        "history": policy.history,
        "state": policy.state,
        "monitoring.junit": policy.monitoring.junit,
        "monitoring.prometheus": policy.monitoring.prometheus,
    }
    databases = {"ledger", "history", "state"}
    wrong = [_wrong("output", policy.output, is_folder=True)]
    wrong += [
        _wrong(key, Path(path), is_folder=False, is_database=key in databases)
        for key, path in files.items()
        if path and str(path) != "table"
    ]
    if said := [problem for problem in wrong if problem]:
        raise ParameterError(f"{'; '.join(said)}. Name other places in the policy, or ask for access.")


def _wrong(key: str, path: Path, *, is_folder: bool, is_database: bool = False) -> str | None:
    """Why something cannot be written there; None where it can."""
    try:
        path = path.expanduser()
        if path.exists() and path.is_dir() != is_folder:
            return f"{key}: {path} is {'a file and not a folder' if is_folder else 'a folder and not a file'}"
        there = path
        while not there.exists() and there != there.parent:
            there = there.parent
        if there != path and not there.is_dir():
            return f"{key}: {path} cannot be made, as {there} is a file"
        if not _may_write(there):
            return f"{key}: {there} may not be written to"
        # SQLite writes its log into files next to it.
        if is_database and not _may_write(path.parent if there == path else there):
            return f"{key}: {path.parent} may not be written to, and SQLite needs files next to {path.name}"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{key}: {path} cannot be used ({getattr(error, 'strerror', None) or error})"
    return None


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK | (os.X_OK if path.is_dir() else 0), effective_ids=os.access in os.supports_effective_ids)
