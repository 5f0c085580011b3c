"""Find scratch tables whose process has died, and drop them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.engine.bridge import load_table, require_classic
from icekit.engine.errors import explain
from icekit.errors import IcekitError, TableNotFound
from icekit.facts.metadata_file import load_metadata
from icekit.owner import Owner
from icekit.sandbox.scratch import NAMESPACE, discard, drop_statement, ownership, stem
from icekit.sql import Identifier, display_name
from icekit.units import span


@dataclass(frozen=True, slots=True)
class StaleClone:
    """A scratch table that nobody uses any more, or whose use cannot be determined from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``of`` is the source table,
    ``started_ms`` the time it was made, since 1970; unknown values are None. ``drop`` drops it
    from the catalog, never with PURGE; ``scratch`` is its own folder, and ``own_files``
    means that the source table cannot need the files in it.
    """

    table: Identifier
    of: Identifier | None
    owner: Owner | None
    started_ms: int | None
    scratch: str | None
    is_dead: bool
    drop: str
    own_files: bool = False

    def age_ms(self, now: int) -> int | None:
        """Milliseconds since it was made; None if unknown."""
        return None if self.started_ms is None else max(0, now - self.started_ms)

    def line(self, now: int) -> str:
        """One line with the table, its age and whether its process is dead."""
        age = self.age_ms(now)
        old = "of unknown age" if age is None else f"{span(age)} old"
        of = display_name(self.of) if self.of else "an unknown table"
        if self.owner is None:
            whose = "unknown: its metadata cannot be read"
        elif self.is_dead:
            whose = f"dead: process {self.owner.pid} has ended"
        else:
            whose = (
                f"unknown: process {self.owner.pid} on {self.owner.host or 'an unknown host'} "
                "cannot be checked from here"
            )
        return f"{display_name(self.table)}  of {of}, {old}; {whose}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be
    checked from here.

    Checks every table in the namespace ``icekit_scratch`` that has the properties of
    :func:`~icekit.sandbox.scratch.owner_properties`, or those ``of`` one table. Reads one
    metadata file for each, and needs no JVM. Leaves out tables of living processes.
    """
    found = []
    for table in lake.tables.names_in((NAMESPACE,)):
        if of is not None and not table[-1].startswith(stem(of)):
            continue
        try:
            stale = _judge(lake, table)
        except TableNotFound:
            # Its own process has just dropped it.
            continue
        if stale is not None and (of is None or stale.of == of):
            found.append(stale)
    return tuple(found)


def remove_stale(lake: Lake, clones: Iterable[StaleClone] | None = None) -> tuple[StaleClone, ...]:
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns
    those clones.

    ``clones`` are some results of :func:`stale_clones`; default: all. Each is checked
    again before it is dropped. Files that the source table has adopted stay, with a warning. Raises
    :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect.
    """
    wanted = stale_clones(lake) if clones is None else tuple(clones)
    removed = []
    for table in (c.table for c in wanted if c.is_dead):
        require_classic(lake.spark)
        try:
            stale = _judge(lake, table)
        except TableNotFound:
            continue
        if stale is None or not stale.is_dead:
            continue
        try:
            io = load_table(lake.spark, lake.sql_name(table)).io()
        except Exception as error:
            raise explain(error, lake.sql_name(table)) from None
        discard(lake, table, stale.of, stale.scratch, io, none_adopted=stale.own_files)
        removed.append(stale)
    return tuple(removed)


def _judge(lake: Lake, table: Identifier) -> StaleClone | None:
    """The state of a scratch table; None if its process is alive, or if it does not belong to
    icekit.
    """
    drop = drop_statement(lake, table)
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        raise
    except IcekitError:
        return StaleClone(
            table=table,
            of=None,
            owner=None,
            started_ms=None,
            scratch=None,
            is_dead=False,
            drop=drop,
        )
    if whose is None or (whose.owner.is_visible() and not whose.owner.has_ended()):
        return None
    return StaleClone(
        table=table,
        of=whose.of,
        owner=whose.owner,
        started_ms=whose.started_ms,
        scratch=whose.scratch,
        is_dead=whose.owner.has_ended(),
        drop=drop,
        own_files=whose.own_files,
    )
