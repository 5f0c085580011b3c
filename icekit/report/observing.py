"""Collect the facts of a table within its time limit, and keep them until the table changes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from icekit.catalog import Lake
from icekit.catalog.lake import in_time
from icekit.diagnose import diagnose
from icekit.diagnose.document import load_facts, save_facts
from icekit.diagnose.findings import Findings
from icekit.diagnose.gate import limits
from icekit.errors import EXIT_CRASHED, IcekitError
from icekit.facts.model import TableFacts
from icekit.options.commands import ReportOptions
from icekit.saving import slug
from icekit.sql import Identifier, display_name
from icekit.waiting import DeadlineExceeded


class FactsCache:
    """Facts in files of a folder, for later requests for the same tables; only their names are in
    memory.

    Facts are valid while the table's metadata file is the one they were collected from: every
    commit, and every change of a property, writes a new file. Storage changes without a new one
    (``remove_orphan_files`` commits nothing), so call :meth:`forget` after any action on a table.
    Without a folder nothing is saved. Threads may share it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._at: dict[Identifier, tuple[str, bool]] = {}

    def forget(self, name: Identifier) -> None:
        """Make the next call collect the table's facts again."""
        self._at.pop(name, None)

    def observe(
        self, lake: Lake, name: Identifier, *, storage: bool = False, **asked: Any
    ) -> TableFacts:
        """As :func:`icekit.facts.observe`; the facts are collected if they are unknown, or the
        table has changed.

        ``storage`` asks for facts about the table's storage; the result may include them anyway.
        """
        from icekit.facts import observe

        collect = functools.partial(observe, lake, name, storage=storage, **asked)
        if self._folder is None:
            return collect()
        kept = self._folder / f"{slug(display_name(name))}.facts.json"
        # Read before the facts are collected, because changes during the collection are not seen.
        at = lake.tables.source(name).metadata_location
        if self._at.get(name) in ((at, True), (at, storage)):
            return load_facts(kept)
        facts = collect()
        # With a full disk, facts are not kept but collected again.
        with contextlib.suppress(OSError):
            save_facts(facts, kept)
            self._at[name] = (at, storage)
        return facts


class TimedOut(IcekitError):
    """A table took longer than its time limit."""

    exit_status = EXIT_CRASHED

    def __init__(self, table: str, seconds: float | None) -> None:
        super().__init__(
            f"{table} was not finished within {seconds or 0:,.0f} s. Raise --timeout (`timeout` "
            "under `report` in a policy), or report on this table alone, with --collector spark "
            "if it is large."
        )


def observed(
    lake: Lake,
    name: Identifier,
    options: ReportOptions,
    *,
    collect: Callable[..., TableFacts],
) -> tuple[TableFacts, Findings]:
    """A table's facts and findings; cancels its Spark work and raises :class:`TimedOut` after the
    time limit.

    Reading without Spark cannot be stopped (:func:`icekit.catalog.lake.in_time`). ``collect`` is
    :meth:`FactsCache.observe`, or takes the same arguments.
    """
    chosen = limits(options.thresholds)

    def work(taken: Any) -> TableFacts:
        return collect(
            taken,
            name,
            ref=options.ref or None,
            collector=options.collector,
            size_ratios=chosen.size_ratios,
            filter_columns=list(options.filter_columns) or None,
            storage=options.storage,
        )

    try:
        facts = in_time(lake, options.timeout, work)
    except DeadlineExceeded:
        raise TimedOut(display_name(name), options.timeout) from None
    return facts, diagnose(facts, chosen, session_conf=lake.session_conf())
