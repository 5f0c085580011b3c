"""Change files of a table as no engine would, and point the catalog at the result."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

from icekit.api import Lake
from icekit.common.sql import Identifier, identifier
from icekit.health.facts.metadata_file import load_metadata
from icekit.learn.lab import lake_folder

Json = dict[str, Any]


def on_disk(location: str) -> Path:
    """The path of a file of the embedded lake, `..` resolved by name as Hadoop does."""
    return Path(os.path.normpath(location.removeprefix("file://").removeprefix("file:")))


def change_avro(location: str, change: Callable[[list[Json]], None]) -> None:
    """Change the records of a manifest or manifest list in place."""
    path = on_disk(location)
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema, header, records = reader.writer_schema, reader.metadata, list(reader)
    change(records)
    with path.open("wb") as file:
        fastavro.writer(
            file,
            schema,
            records,
            metadata={key: value for key, value in header.items() if not key.startswith("avro.")},
        )
    # The checksum that Hadoop's local file system keeps beside a file.
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def change_metadata(lake: Lake, table: Identifier, change: Callable[[Json], None]) -> None:
    """Give a table changed metadata, without asking Iceberg."""
    source = lake.tables.source(table)
    metadata = load_metadata(source)
    change(metadata)
    path = on_disk(source.metadata_location)
    changed = path.with_name(f"99999-{path.name}")
    changed.write_text(json.dumps(metadata))
    database = sqlite3.connect(lake_folder(lake) / "catalog.db", timeout=60)
    with contextlib.closing(database) as catalog, catalog:
        where = "table_namespace = ? AND table_name = ?"
        catalog.execute(
            f"UPDATE iceberg_tables SET metadata_location = ? WHERE {where}",
            [str(changed), ".".join(table[:-1]), table[-1]],
        )
    lake.spark.sql(f"REFRESH TABLE {identifier(*lake.sql_name(table))}")
