"""Find scratch tables whose process has died, and drop them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.engine.bridge import load_table, require_classic
from icekit.engine.errors import explain
from icekit.errors import IcekitError, TableNotFound
from icekit.facts.metadata_file import load_metadata
from icekit.sandbox.scratch import NAMESPACE, Ownership, discard, drop_sql, ownership, stem
from icekit.sql import Identifier, display_name
from icekit.units import span


@dataclass(frozen=True, slots=True)
class StaleClone:
    """A scratch table that nobody uses any more, or whose use cannot be determined from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``drop`` drops it from the catalog, never with
    PURGE; ``whose`` are its properties, all unknown if its metadata cannot be read.
    """

    table: Identifier
    drop: str
    whose: Ownership
    is_dead: bool = False

    def line(self, now: int) -> str:
        """One line with the table, its age and whether its process is dead."""
        whose, owner = self.whose, self.whose.owner
        started = whose.started_ms
        old = "of unknown age" if started is None else f"{span(max(0, now - started))} old"
        of = display_name(whose.of) if whose.of else "an unknown table"
        if owner is None:
            state = "unknown: its metadata cannot be read"
        elif self.is_dead:
            state = f"dead: process {owner.pid} has ended"
        else:
            host = owner.host or "an unknown host"
            state = f"unknown: process {owner.pid} on {host} cannot be checked from here"
        return f"{display_name(self.table)}  of {of}, {old}; {state}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be
    checked from here.

    Checks every table in the namespace ``icekit_scratch`` that has the properties of
    :func:`~icekit.sandbox.scratch.owned`, or those ``of`` one table. Reads one
    metadata file for each, and needs no JVM. Leaves out tables of living processes.
    """
    stale = []
    for table in lake.tables.names_in((NAMESPACE,)):
        if of is None or table[-1].startswith(stem(of)):
            clone = _judge(lake, table)
            if clone is not None and of in {None, clone.whose.of}:
                stale.append(clone)
    return tuple(stale)


def remove_stale(lake: Lake, clones: Iterable[StaleClone] | None = None) -> tuple[StaleClone, ...]:
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns
    those clones.

    ``clones`` are some results of :func:`stale_clones`; default: all. Each is checked
    again before it is dropped. Files that the source table has adopted stay, with a warning. Raises
    :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect.
    """
    wanted = stale_clones(lake) if clones is None else tuple(clones)
    removed = []
    for table in (clone.table for clone in wanted if clone.is_dead):
        require_classic(lake.spark)
        stale = _judge(lake, table)
        if stale is None or not stale.is_dead:
            continue
        try:
            io = load_table(lake.spark, lake.sql_name(table)).io()
        except Exception as error:
            raise explain(error, lake.sql_name(table)) from None
        whose = stale.whose
        discard(lake, table, whose.of, whose.scratch, io, none_adopted=whose.own_files)
        removed.append(stale)
    return tuple(removed)


def _judge(lake: Lake, table: Identifier) -> StaleClone | None:
    """The state of a scratch table; None if its process is alive, if it is gone, or if it does not
    belong to icekit.
    """
    drop = drop_sql(lake.sql_name(table))
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        # Its own process has just dropped it.
        return None
    except IcekitError:
        return StaleClone(table, drop, Ownership())
    if whose is None or whose.owner is None:
        return None
    is_dead = whose.owner.has_ended()
    return (
        StaleClone(table, drop, whose, is_dead) if is_dead or not whose.owner.is_visible() else None
    )
