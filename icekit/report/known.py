"""Keep the facts of tables that were observed, each for as long as its table does not move."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from icekit.catalog import Lake
from icekit.facts.model import TableFacts
from icekit.report.document import load_facts, save_facts
from icekit.saving import slug
from icekit.sql import Identifier, display_name


class Known:
    """Facts in files of a folder, for whoever asks for the same tables again; in memory are their names only.

    Facts are good while the table's metadata file is the one that they were collected from: any commit, and any change of a
    property, writes another. They are asked for in one way only, so that a table has one set of them. Threads may share it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at: dict[Identifier, str] = {}

    def file_of(self, name: Identifier) -> Path:
        """Where a table's facts are, or will be."""
        return self._folder / f"{slug(display_name(name))}.facts.json"

    def facts(self, lake: Lake, name: Identifier, collect: Callable[[], TableFacts]) -> TableFacts:
        """The facts of a table as it is now; they are collected if they are not known, or the table has moved."""
        # Before they are collected: what moves meanwhile is not known.
        at = lake.tables.source(name).metadata_location
        if self._at.get(name) == at:
            return load_facts(self.file_of(name))
        made = collect()
        # A full disk takes no facts away; they are collected again.
        with contextlib.suppress(OSError):
            save_facts(made, self.file_of(name))
            self._at[name] = at
        return made
