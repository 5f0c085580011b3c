"""Tables to try changes of, and what a trial must leave as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icekit.sandbox.scratch import NAMESPACE
from tests import tables


class Table(tables.Table):
    """A table partitioned by ``part``."""

    COLUMNS = "id bigint, part int, name string"
    BY = "part"

    def state(self) -> tuple[Any, ...]:
        """The table's metadata and files, and what is left of its clones."""
        home = Path(self.lake.observe(self.name).location.removeprefix("file:"))
        names = [n for n in self.lake.tables.names() if n[0] == NAMESPACE]
        return (
            self.lake.tables.source(self.name).metadata_location,
            sorted(home.rglob("*")),
            (home.parent / NAMESPACE).exists(),
            names,
        )
