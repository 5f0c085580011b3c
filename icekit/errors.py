"""Name what went wrong and what to do next, in one sentence.

Every error a person can cause or meet is an :class:`IcekitError`: its message is one
sentence that ends in the next step, its ``exit_status`` is what a scheduler sees, and its
``detail`` (shown by ``--debug`` only) is the underlying trace with secrets removed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from icekit.secrets import scrub

EXIT_HEALTHY = 0
EXIT_UNHEALTHY = 1
EXIT_MISCONFIGURED = 2
EXIT_CRASHED = 3


class IcekitError(Exception):
    """Something a person can mend; the message says how, and holds no secret wherever it is shown."""

    exit_status = EXIT_MISCONFIGURED

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__(scrub(message))
        self.detail = None if detail is None else scrub(detail)


class ProfileError(IcekitError):
    """A catalog profile is missing, or holds a key that cannot be used."""


class CatalogUnreachable(IcekitError):
    """The catalog did not answer, or refused."""


class PermissionDenied(IcekitError):
    """The catalog or the storage said no."""


class InvalidName(IcekitError):
    """A table name that cannot be read as one."""


class TableNotFound(IcekitError):
    """No table of that name; near names are suggested."""


class NotATable(IcekitError):
    """A view, or a table of another format."""


class SnapshotNotFound(IcekitError):
    """A snapshot, branch or tag that does not exist (any more)."""


class MetadataUnreadable(IcekitError):
    """A metadata file, manifest list or manifest is gone or corrupt."""


class ParameterError(IcekitError):
    """A parameter that does not exist, or a value it cannot take."""


class CloneRefused(IcekitError):
    """The catalog takes no second table for the same files, or the session cannot clean one up."""


class ConversionRefused(IcekitError):
    """Equality deletes that cannot be converted, and why."""


class StatementRefused(IcekitError):
    """A statement that cannot be read or tried, and why."""


class RehearsalFailed(IcekitError):
    """A trial on a clone failed or changed rows; the table itself was not touched."""

    exit_status = EXIT_UNHEALTHY


class SparkUnavailable(IcekitError):
    """Spark is needed and cannot be started or used."""


class TableClaimed(IcekitError):
    """Another run is at work on the table; the message names it."""


class ClaimLost(IcekitError):
    """A run's claim on its table has gone to another run."""


class LedgerUnusable(IcekitError):
    """The record of runs cannot be read or written."""


class HistoryUnusable(IcekitError):
    """The history of tables' health cannot be read or written."""


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """Render ``; did you mean a, b?`` for the nearest known names, or an empty string."""
    near = difflib.get_close_matches(name, sorted(set(known)), n=count, cutoff=0.55)
    return f"; did you mean {', '.join(near)}?" if near else ""
