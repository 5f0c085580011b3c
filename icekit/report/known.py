"""Keep the facts of tables that were observed, each for as long as its table does not move."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from icekit.catalog import Lake
from icekit.diagnose.document import load_facts, save_facts
from icekit.facts.model import TableFacts
from icekit.saving import slug
from icekit.sql import Identifier, display_name


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
