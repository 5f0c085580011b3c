"""Collect the facts of a table within its time limit, and keep them until the table changes."""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from icekit.common.commands.observe import ReportOptions
from icekit.common.errors import EXIT_CRASHED, IcekitError
from icekit.common.saving import slug
from icekit.common.sql import Identifier, display_name
from icekit.common.waiting import DeadlineExceeded
from icekit.engine.lake import Lake, run_in_time
from icekit.health import observe
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.document import load_facts, save_facts
from icekit.health.diagnose.findings import Findings, Thresholds
from icekit.health.facts.model import TableFacts


class TimedOut(IcekitError):
    """A table took longer than its time limit."""

    exit_status = EXIT_CRASHED

    def __init__(self, table: str, seconds: float | None) -> None:
        super().__init__(
            f"{table} was not finished within {seconds or 0:,.0f} s. Raise --timeout (`timeout` "
            "under `report` in a policy), or report on this table alone, with --collector spark "
            "if it is large."
        )


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
        self._collected_from: dict[Identifier, tuple[str, bool]] = {}

    def forget(self, name: Identifier) -> None:
        """Make the next call collect the table's facts again."""
        self._collected_from.pop(name, None)

    def facts_and_findings(
        self, lake: Lake, name: Identifier, options: ReportOptions
    ) -> tuple[TableFacts, Findings]:
        """A table's facts, which are collected if they are unknown or the table has changed, and
        its findings; cancels its Spark work and raises :class:`TimedOut` after the time limit.

        Reading without Spark cannot be stopped (:func:`icekit.engine.lake.run_in_time`).
        """
        thresholds = Thresholds().with_changes(**options.thresholds)
        collect_facts = partial(self._collect_or_load, name, options, thresholds.size_ratios)
        try:
            facts = run_in_time(lake, options.timeout, collect_facts)
        except DeadlineExceeded:
            raise TimedOut(display_name(name), options.timeout) from None
        return facts, diagnose(facts, thresholds, session_conf=lake.session_conf())

    def _collect_or_load(
        self, name: Identifier, options: ReportOptions, size_ratios: Sequence[float], lake: Lake
    ) -> TableFacts:
        """The facts of a table; they may include those of its storage also where nobody asked."""
        collect_facts = partial(
            observe,
            lake,
            name,
            size_ratios=size_ratios,
            **options.only("ref", "filter_columns", "collector", "storage"),
        )
        if self._folder is None:
            return collect_facts()
        facts_file = self._folder / f"{slug(display_name(name))}.facts.json"
        # Read before the facts are collected, because changes during the collection are not seen.
        metadata_location = lake.tables.source(name).metadata_location
        if self._collected_from.get(name) in (
            (metadata_location, True),
            (metadata_location, options.storage),
        ):
            return load_facts(facts_file)
        facts = collect_facts()
        # With a full disk, facts are not kept but collected again.
        with contextlib.suppress(OSError):
            save_facts(facts, facts_file)
            self._collected_from[name] = (metadata_location, options.storage)
        return facts
