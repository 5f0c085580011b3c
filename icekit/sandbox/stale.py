"""Find scratch tables whose process has died, and drop them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.engine.bridge import load_table, require_classic
from icekit.engine.errors import explaining
from icekit.errors import IcekitError, TableNotFound
from icekit.facts.metadata_file import load_metadata
from icekit.sandbox.scratch import NAMESPACE, Ownership, ScratchTable, discard, ownership, stem
from icekit.sql import Identifier, display_name
from icekit.units import span


@dataclass(frozen=True, slots=True)
class StaleClone:
    """A scratch table that nobody uses any more, or whose use cannot be determined from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``whose`` it is, None if its metadata cannot be read.
    """

    table: Identifier
    whose: Ownership | None
    is_dead: bool = False

    def line(self, now: int) -> str:
        """One line with the table, its age and whether its process is dead."""
        name, whose = display_name(self.table), self.whose
        if whose is None:
            return f"{name}  unknown: its metadata cannot be read"
        age = span(max(0, now - whose.started_ms))
        state = "has ended" if self.is_dead else "cannot be checked from here"
        process = f"process {whose.owner.pid} on {whose.owner.host} {state}"
        return f"{name}  of {display_name(whose.of)}, {age} old; {process}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be
    checked from here.

    Checks every table in the namespace ``icekit_scratch`` that has the properties of
    :meth:`~icekit.sandbox.scratch.ScratchTable.owned`, or those ``of`` one table. Reads one
    metadata file for each, and needs no JVM. Leaves out tables of living processes.
    """
    stale = []
    for table in lake.tables.names_in((NAMESPACE,)):
        if of is None or table[-1].startswith(stem(of)):
            clone = _judge(lake, table)
            if clone is not None and (of is None or (clone.whose and clone.whose.of == of)):
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
        if stale is None or stale.whose is None or not stale.is_dead:
            continue
        with explaining(lake.sql_name(table)):
            io = load_table(lake.spark, lake.sql_name(table)).io()
        whose = stale.whose
        scratch = ScratchTable(whose.of, table, whose.scratch)
        discard(lake, scratch, io, none_adopted=whose.own_files)
        removed.append(stale)
    return tuple(removed)


def _judge(lake: Lake, table: Identifier) -> StaleClone | None:
    """The state of a scratch table; None if its process is alive, if it is gone, or if it does not
    belong to icekit.
    """
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        # Its own process has just dropped it.
        return None
    except IcekitError:
        return StaleClone(table, None)
    if whose is None:
        return None
    is_dead = whose.owner.has_ended()
    return StaleClone(table, whose, is_dead) if is_dead or not whose.owner.is_visible() else None
