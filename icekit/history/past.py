"""Put together what is known of one table over time: its runs with the present one, and the maintenance between them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from icekit.catalog import Lake
from icekit.diagnose.findings import Findings, Thresholds
from icekit.errors import LedgerUnusable
from icekit.facts.model import TableFacts
from icekit.history.opening import remembered
from icekit.history.records import Health, health
from icekit.history.store import LAST
from icekit.history.trend import Trend, better, same_table, trends, worse
from icekit.sql import display_name

_PROCEDURE = re.compile(r"\.system\.(\w+)\(|icekit (\w+)")
#: Outcomes of compactions that are looked at.
_OUTCOMES = 200


@dataclass(frozen=True, slots=True)
class Maintained:
    """An action of icekit's that ended within the time of the runs; ``what`` is its procedure."""

    ended_ms: int
    what: str
    files_in: int | None = None
    files_out: int | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """One table over time: ``runs`` oldest first, the last one is now; ``is_kept`` tells whether a history was given."""

    table: str
    runs: tuple[Health, ...]
    maintained: tuple[Maintained, ...]
    thresholds: Thresholds
    is_kept: bool = True

    @property
    def trends(self) -> tuple[Trend, ...]:
        """Where each figure is going."""
        return trends(self.runs, self.thresholds)

    @property
    def worse(self) -> tuple[str, ...]:
        """What got worse since the run before."""
        return worse(self.runs[-2], self.runs[-1], self.thresholds) if len(self.runs) > 1 else ()

    @property
    def better(self) -> tuple[str, ...]:
        """The findings that are gone since the run before."""
        return better(self.runs[-2], self.runs[-1]) if len(self.runs) > 1 else ()


def past(lake: Lake, facts: TableFacts, findings: Findings, where: str, thresholds: Thresholds | None = None, *, count: int = LAST) -> Past:
    """What is kept of a table in ``where`` (``table``, a SQLite file; empty: nowhere), with the facts of now; writes nothing.

    At most ``count`` earlier runs, and the actions of the compaction ledger that ended since the first of them.
    """
    # Imported here: reports import the history, and what it would win comes from them.
    from icekit.compact.wins import wins

    limits = thresholds or Thresholds()
    now = health(facts, findings, wins(facts, findings, limits), "now", limits)
    before = remembered(where, lake, facts.name, count) if where else ()
    runs = tuple(same_table([*(h for h in before if h.observed_at_ms < now.observed_at_ms), now]))
    done = _maintained(lake, facts, runs[0].observed_at_ms) if where else ()
    return Past(facts.name, runs, done, limits, bool(where))


def _maintained(lake: Lake, facts: TableFacts, since_ms: int) -> tuple[Maintained, ...]:
    """The ledger's outcomes of a table; a ledger that cannot be read without starting Spark is left."""
    from icekit.compact.ledger import opened

    if os.environ.get("ICEKIT_LEDGER") == "table" and not lake.spark_is_running:
        return ()
    try:
        with opened(None, lake) as ledger:
            done = ledger.outcomes(display_name((facts.catalog, *facts.table)), _OUTCOMES)
    except LedgerUnusable:
        return ()
    found = [
        Maintained(r.ended_ms, _what(r.sql), (r.actual or {}).get("files_in"), (r.actual or {}).get("files_out"))
        for r in done
        if r.ended_ms is not None and since_ms <= r.ended_ms <= facts.collected_at_ms
    ]
    return tuple(sorted(found, key=lambda m: m.ended_ms))


def _what(sql: str) -> str:
    match = _PROCEDURE.search(sql)
    return (match[1] or match[2]) if match else "maintenance"
