"""Say what every kind of catalog answers about its tables, how bytes are read, and what is told when neither works.

Each kind answers the same questions: which tables are there, where is this one's current
metadata, and what are the bytes at a location. The embedded lake and a pyiceberg profile need
no JVM for it; a catalog known only to a Spark session does.
"""

from __future__ import annotations

import concurrent.futures
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from icekit.errors import MetadataUnreadable, PermissionDenied, first_line, trace
from icekit.sql import Identifier

T = TypeVar("T")

# A catalog that has not answered by then is down for the person who waits; listing all of a
# large one may take longer.
DEADLINE_SECONDS = 12.0
LISTING_SECONDS = 300.0


@dataclass(frozen=True)
class Source:
    """Where a table's metadata is, and how to read bytes from its storage."""

    metadata_location: str
    read: Callable[[str], bytes]


class Tables(Protocol):
    """What every kind of catalog can tell about its tables."""

    def names(self) -> list[Identifier]:
        """Every table of the catalog, sorted."""

    def names_in(self, namespace: Identifier) -> list[Identifier]:
        """The tables of one namespace, sorted; none if there is no such namespace."""

    def source(self, table: Identifier) -> Source:
        """Find one table; raises TableNotFound with near names, or NotATable for a view."""

    def close(self) -> None:
        """Let go of connections."""


def read_local(location: str) -> bytes:
    """Read a file of this machine, given as a path or a ``file:`` URI."""
    path = location
    if location.startswith("file:"):
        # As both engines do: nothing is decoded, and # and ? are letters like others.
        path = location.removeprefix("file:")
        path = "/" + path[2:].partition("/")[2] if path.startswith("//") else path
    return reading(location, lambda: Path(path).read_bytes())


def reading(location: str, read: Callable[[], bytes]) -> bytes:
    """Read, and name the file that is gone or forbidden."""
    try:
        return within(60, read)
    except FileNotFoundError:
        raise MetadataUnreadable(
            f"{location} is gone, and the table cannot be read without it; restore it, or roll the catalog back to an older metadata file."
        ) from None
    except PermissionError:
        raise PermissionDenied(f"Reading {location} is not permitted; ask for read access to the table's location.") from None
    except (OSError, ValueError) as error:
        # pyarrow and fsspec have no class for it.
        if re.search(r"ACCESS_DENIED|AccessDenied|Forbidden|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID", str(error)):
            raise PermissionDenied(
                f"Reading {location} is not permitted ({first_line(error)}); check the profile's keys, or ask for read access.",
                detail=trace(error),
            ) from None
        raise MetadataUnreadable(f"{location} cannot be read: {first_line(error)}.", detail=trace(error)) from None


def within(seconds: float | None, work: Callable[[], T], *, spared: Callable[[], float] = lambda: 0.0) -> T:
    """Do the work in a thread that may be left behind; raises TimeoutError after ``seconds`` (None: never).

    ``spared`` says how many seconds so far do not count.

    A daemon thread, and not an executor's: the process must be able to end while a dead
    host is still being waited for.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    if seconds is None:
        return future.result()
    began = time.monotonic()
    while (left := seconds + spared() - (time.monotonic() - began)) > 0:
        if concurrent.futures.wait([future], left).done:
            return future.result()
    raise TimeoutError
