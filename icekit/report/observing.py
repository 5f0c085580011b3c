"""Collect the facts of one table for its notebook within its time, and keep them while the table does not move."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from icekit.catalog import Lake
from icekit.catalog.deadline import TookTooLong, Waited, in_time, tagged
from icekit.diagnose import diagnose
from icekit.diagnose.document import load_facts, save_facts
from icekit.diagnose.findings import Findings
from icekit.engine import interrupting
from icekit.errors import IcekitError
from icekit.facts.model import TableFacts
from icekit.notebook import limits
from icekit.report.journal import Options
from icekit.saving import slug
from icekit.sql import Identifier, display_name


class TimedOut(IcekitError):
    """A table that took longer than it was given."""


class Observed(NamedTuple):
    """Facts and findings of one table; ``waited`` are the seconds in which Spark was started, for all tables."""

    facts: TableFacts
    findings: Findings
    waited: float = 0.0


def observed(
    lake: Lake,
    name: Identifier,
    options: Options,
    seconds: float | None = None,
    *,
    collect: Callable[..., TableFacts] | None = None,
) -> Observed:
    """A table's facts and findings; raises :class:`TimedOut` after so many seconds, its Spark work cancelled.

    Reading without Spark cannot be stopped (:func:`icekit.catalog.deadline.in_time`). ``collect`` stands for
    :meth:`icekit.catalog.Lake.observe`.
    """
    chosen, waited = limits(options.thresholds), Waited()

    def work(taken: Lake) -> TableFacts:
        from icekit.facts import observe

        return (collect or observe)(
            taken,
            name,
            ref=options.ref or None,
            collector=options.collector,
            size_ratios=chosen.size_ratios,
            filter_columns=list(options.filter_columns) or None,
            storage=options.storage,
        )

    if seconds is None:
        with tagged(lake, interrupting.new_tag(), waited) as taken:
            facts = work(taken)
    else:
        try:
            facts = in_time(lake, seconds, work, waited=waited)
        except TookTooLong:
            raise timed_out(name, seconds) from None
    return Observed(facts, diagnose(facts, chosen, session_conf=lake.session_conf()), waited.seconds)


def timed_out(name: Identifier, seconds: float) -> TimedOut:
    """What is said of a table that took too long, and what to do."""
    return TimedOut(
        f"{display_name(name)} was not done within {seconds:,.0f} s; give it more with --timeout (`timeout:` in a policy), or report on it alone, with --collector spark if it is large."
    )


def clear(output: Path, name: Identifier) -> None:
    """Remove what an earlier run left of a table."""
    base = slug(display_name(name))
    for suffix in (".html", ".json", ".ipynb", ".error.txt"):
        (output / f"{base}{suffix}").unlink(missing_ok=True)


def kept(facts: TableFacts, scratch: Path) -> Path:
    """Facts in a file, for the notebook."""
    return save_facts(facts, scratch / f"{slug(facts.name)}.facts.json")


# --- Keep the facts of tables that were observed, each for as long as its table does not move


class Known:
    """Facts in files of a folder, for whoever asks for the same tables again; in memory are their names only.

    Facts are good while the table's metadata file is the one that they were collected from: any commit, and any change of a
    property, writes another. What lies in its storage changes without one (``remove_orphan_files`` commits nothing), so
    whoever has run anything on a table calls :meth:`forget`. Without a folder nothing is kept. Threads may share it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._at: dict[Identifier, tuple[str, bool]] = {}

    def forget(self, name: Identifier) -> None:
        """Have a table's facts collected anew."""
        self._at.pop(name, None)

    def facts(self, lake: Lake, name: Identifier, collect: Callable[[], TableFacts], *, storage: bool = False) -> TableFacts:
        """The facts of a table as it is now; they are collected if they are not known, or the table has moved.

        ``storage`` asks for facts with what lies in the table's storage; others may have it too.
        """
        if self._folder is None:
            return collect()
        kept = self._folder / f"{slug(display_name(name))}.facts.json"
        # Before they are collected: what moves meanwhile is not known.
        at = lake.tables.source(name).metadata_location
        if self._at.get(name) in ((at, True), (at, storage)):
            return load_facts(kept)
        made = collect()
        # A full disk takes no facts away; they are collected again.
        with contextlib.suppress(OSError):
            save_facts(made, kept)
            self._at[name] = (at, storage)
        return made
