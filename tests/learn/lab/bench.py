"""Two tables by the names of lab tables, small enough for a test, in a lake without Spark."""

from pathlib import Path

import pyarrow as pa

from icekit.api import Lake
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import keep, reset
from tests.offline import catalog_of

ROWS = pa.table({"id": [1, 2, 3]})


class Bench:
    """A lake without Spark, with two tables that go by the names of lab tables; both are kept with
    three rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.catalog = catalog_of(path)
        self.lake = Lake("lake", None, EmbeddedTables(path))
        self.catalog.create_namespace("lab")
        for name in ("small_files", "evolved"):
            location = str(path / "warehouse" / "lab" / name)
            self.catalog.create_table(("lab", name), ROWS.schema, location=location).append(ROWS)
            keep(self.lake, name)

    def rows(self, name: str = "small_files") -> int:
        return int(self.catalog.load_table(("lab", name)).scan().to_arrow().num_rows)

    def folder(self, name: str = "small_files") -> Path:
        return self.path / "warehouse" / "lab" / name

    def files(self) -> list[tuple[Path, int]]:
        return sorted((p, p.stat().st_size) for p in self.folder().rglob("*") if p.is_file())

    def reset(self, *names: str) -> list[str]:
        return reset(self.lake, names or None, progress=lambda _: None)
