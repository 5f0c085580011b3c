"""A small table with everything that maintenance is for, and a past of ten days."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icekit.health.facts.metadata_file import load_metadata
from tests.damage import on_disk
from tests.maintain.tables import Named, Table
from tests.shapes import Shapes

DAY_MS = 86_400_000


@pytest.fixture
def neglected(named: Named, shapes: Shapes) -> Table:
    """A table of many appends and deletes, each commit with a manifest of its own."""
    made = named("neglected")

    def build() -> None:
        made.create(
            "id BIGINT, k INT, day INT",
            "day, k",
            write_delete_mode="merge-on-read",
            write_delete_granularity="partition",
            commit_manifest__merge_enabled="false",
            icekit_filter__columns="k",
        )
        for n in range(4):
            ids = f"range({n * 1000}, {n * 1000 + 1000})"
            made.insert(f"(SELECT id, CAST(id % 2 AS INT) AS k, 1 AS day FROM {ids})")
        for n in range(6):
            made.sql(f"DELETE FROM {{t}} WHERE id % 1000 IN ({2 * n}, {2 * n + 1})")

    shapes.have(made.name, "of many commits", build)
    return made


@pytest.fixture
def aged() -> Callable[..., None]:
    """Move a table's whole past back by some days: an edited copy of its metadata is registered in
    its place.
    """

    def make_old(table: Table, days: float = 10) -> None:
        back = round(days * DAY_MS)
        source = table.lake.tables.source(table.name)
        metadata: Any = json.loads(json.dumps(load_metadata(source)))
        metadata["last-updated-ms"] -= back
        for moment in (
            *metadata["snapshots"],
            *metadata["snapshot-log"],
            *metadata["metadata-log"],
        ):
            moment["timestamp-ms"] -= back
        old = on_disk(source.metadata_location)
        new = old.with_name(f"90000-{old.name.split('-', 1)[1]}")
        new.write_text(json.dumps(metadata))
        table.sql("DROP TABLE {t}")
        table.call("register_table", f"metadata_file => '{new}'")

    return make_old


@pytest.fixture
def lose() -> Callable[..., Path]:
    """Leave a file in a table's folder that no snapshot names, some days old."""

    def leave(table: Table, name: str = "lost.parquet", days: float = 10) -> Path:
        path = table.location / "data" / name
        path.write_bytes(b"nobody knows me")
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
        return path

    return leave
