"""Find scratch tables whose process has died, and drop them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.clone.removal import discard, drop_statement
from icekit.clone.scratch import NAMESPACE, ownership, stem
from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain
from icekit.errors import CloneRefused, IcekitError, TableNotFound
from icekit.facts.collect import load_metadata
from icekit.owner import Owner
from icekit.sql import Identifier, display_name
from icekit.units import span


@dataclass(frozen=True, slots=True)
class StaleClone:
    """A scratch table that nobody uses any more, or of which that cannot be told from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``of`` is the table it was made of,
    ``started_ms`` when it was made, since 1970; what is not known is None. ``drop`` takes it
    out of the catalog, and never with PURGE; ``scratch`` is the folder that is its own, and ``own_files``
    says that the table cannot have come to need what is in it.
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
        """Milliseconds since it was made; None if that is not known."""
        return None if self.started_ms is None else max(0, now - self.started_ms)

    def line(self, now: int) -> str:
        """One line that says what it is and how old."""
        age = self.age_ms(now)
        old = "of unknown age" if age is None else f"{span(age)} old"
        of = display_name(self.of) if self.of else "an unknown table"
        if self.owner is None:
            whose = "unknown: its metadata cannot be read"
        elif self.is_dead:
            whose = f"dead: process {self.owner.pid} has ended"
        else:
            whose = f"unknown: process {self.owner.pid} on {self.owner.host or 'an unknown host'} cannot be seen from here"
        return f"{display_name(self.table)}  of {of}, {old}; {whose}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be seen from here.

    Every table in the namespace ``icekit_scratch`` that carries the properties of
    :func:`~icekit.clone.owner_properties` is looked at, or those ``of`` one table. Reads one
    metadata file each, and needs no JVM. What belongs to a living process is left out.
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
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns those.

    ``clones`` are some that :func:`stale_clones` has found; default: all. Each is looked at
    again before it is dropped. What the table has adopted since stays, with a warning. Raises
    :class:`~icekit.errors.CloneRefused` where there is no JVM bridge.
    """
    wanted = stale_clones(lake) if clones is None else tuple(clones)
    removed = []
    for table in (c.table for c in wanted if c.is_dead):
        if not has_bridge(lake.spark):
            raise CloneRefused(
                "Removing a clone's files needs the JVM bridge, which Spark Connect has not; run this in a Spark session of your own."
            )
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
    """What has become of a scratch table; None if it lives, or is none of icekit's."""
    drop = drop_statement(lake, table)
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        raise
    except IcekitError:
        return StaleClone(table, None, None, None, None, False, drop)
    if whose is None or (whose.owner.is_visible() and not whose.owner.has_ended()):
        return None
    return StaleClone(table, whose.of, whose.owner, whose.started_ms, whose.scratch, whose.owner.has_ended(), drop, whose.own_files)
