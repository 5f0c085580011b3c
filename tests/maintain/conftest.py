"""A small table with everything that maintenance is for, and a past of ten days."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from icekit.api import Lake
from icekit.compact.model import Plan
from icekit.compact.outcome import Outcome
from icekit.facts.metadata_file import load_metadata
from icekit.run.verbs import run
from icekit.sql import identifier
from tests.shapes import Shapes

DAY_MS = 86_400_000


@pytest.fixture
def sick(lake: Lake, scratch: str, shapes: Shapes) -> Callable[..., tuple[str, str]]:
    """Make a table of many appends and deletes, each commit with a manifest of its own."""

    def make(name: str = "sick", *, version: int = 2, properties: str = "") -> tuple[str, str]:
        sql, table = lake.spark.sql, identifier(lake.name, scratch, name)

        def build() -> None:
            sql(
                f"CREATE TABLE {table} (id BIGINT, k INT, day INT) USING iceberg PARTITIONED BY "
                f"(day, k) TBLPROPERTIES ('format-version'='{version}', "
                "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition', "
                "'commit.manifest-merge.enabled'='false', "
                f"'icekit.filter-columns'='k'{properties})"
            )
            for n in range(4):
                sql(
                    f"INSERT INTO {table} SELECT /*+ REPARTITION(1) */ id, CAST(id % 2 AS INT), 1 "
                    f"FROM range({n * 1000}, {n * 1000 + 1000})"
                )
            for n in range(6):
                sql(f"DELETE FROM {table} WHERE id % 1000 IN ({2 * n}, {2 * n + 1})")

        shapes.have((scratch, name), f"{version}{properties}", build)
        return (scratch, name)

    return make


@pytest.fixture
def aged(lake: Lake) -> Callable[..., None]:
    """Move a table's whole past back by some days: an edited copy of its metadata is registered in
    its place.
    """

    def make_old(table: tuple[str, ...], days: float = 10) -> None:
        back = round(days * DAY_MS)
        source = lake.tables.source(table)
        metadata: Any = json.loads(json.dumps(load_metadata(source)))
        metadata["last-updated-ms"] -= back
        for moment in (
            *metadata["snapshots"],
            *metadata["snapshot-log"],
            *metadata["metadata-log"],
        ):
            moment["timestamp-ms"] -= back
        old = Path(urlsplit(source.metadata_location).path)
        new = old.with_name(f"90000-{old.name.split('-', 1)[1]}")
        new.write_text(json.dumps(metadata))
        name = identifier(lake.name, *table)
        lake.spark.sql(f"DROP TABLE {name}")
        lake.spark.sql(
            f"CALL {identifier(lake.name)}.system.register_table(table => '{'.'.join(table)}', "
            f"metadata_file => '{new}')"
        )

    return make_old


@pytest.fixture
def go(lake: Lake, tmp_path: Path) -> Callable[[Plan], Outcome]:
    """Runs a plan."""
    return lambda plan: run(
        lake, plan, execute=True, ledger=str(tmp_path / "ledger.db"), progress=lambda _: None
    )


@pytest.fixture
def lose(lake: Lake) -> Callable[..., Path]:
    """Leave a file in a table's folder that no snapshot names, some days old."""

    def leave(table: tuple[str, ...], name: str = "lost.parquet", days: float = 10) -> Path:
        location = load_metadata(lake.tables.source(table))["location"]
        path = Path(urlsplit(location).path, "data", name)
        path.write_bytes(b"nobody knows me")
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
        return path

    return leave
