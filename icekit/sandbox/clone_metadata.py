"""Write a clone's metadata, and check that dropping a clone can delete no file of the table."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icekit.engine.bridge import elements, load_table, metadata_of, write_bytes
from icekit.errors import CloneRefused
from icekit.facts.lineage import choose_snapshot
from icekit.facts.metadata import Json
from icekit.sandbox.scratch import NAMESPACE, drop_sql, owned, remove_folders, scratch_name
from icekit.sql import Identifier, call, display_name, identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: These set where files are written, in addition to the location and ``write.data.path``.
_ELSEWHERE = (
    "write.location-provider.impl",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def own_paths(scratch: str) -> dict[str, str]:
    """The table properties that keep everything written through a clone in its folder, and prevent
    everything else from being deleted.
    """
    return {
        "gc.enabled": "false",
        "write.data.path": f"{scratch}/data",
        "write.metadata.path": f"{scratch}/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
    }


def clone_metadata(
    metadata: Json, scratch: str, properties: Mapping[str, str], snapshot: str | int | None = None
) -> dict[str, Any]:
    """The metadata of a clone whose location is ``scratch``, and whose main branch is at
    ``snapshot``.

    Schemas, specs, snapshots, branches and tags are those of the table. Different are

    - ``location``, because ``remove_orphan_files`` lists it and some engines and catalogs delete it
      with the table;
    - ``metadata-log``, which is empty: otherwise a commit would delete the table's metadata files
      under ``write.metadata.delete-after-commit.enabled``;
    - ``table-uuid``, because catalogs and caches distinguish tables by it;
    - properties: those of :func:`own_paths`, those given, and none that points to another folder.

    Raises :class:`~icekit.errors.SnapshotNotFound`.
    """
    chosen, _ = choose_snapshot(metadata, snapshot)
    kept = {k: v for k, v in (metadata.get("properties") or {}).items() if k not in _ELSEWHERE}
    copied = {
        **metadata,
        "table-uuid": str(uuid.uuid4()),
        "location": scratch,
        "metadata-log": [],
        "properties": {**kept, **own_paths(scratch), **properties},
    }
    if chosen is None or chosen["snapshot-id"] == metadata.get("current-snapshot-id"):
        return copied
    # As set_current_snapshot does.
    moved = chosen["snapshot-id"]
    now = max(time.time_ns() // 1_000_000, int(metadata["last-updated-ms"]))
    refs = metadata.get("refs") or {}
    copied["current-snapshot-id"] = moved
    copied["refs"] = {
        **refs,
        "main": {"type": "branch", **refs.get("main", {}), "snapshot-id": moved},
    }
    copied["snapshot-log"] = [
        *(metadata.get("snapshot-log") or ()),
        {"timestamp-ms": now, "snapshot-id": moved},
    ]
    copied["last-updated-ms"] = now
    return copied


# The catalogs of each session that were asked, and keep the files.
_keeping: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def check_drop(spark: SparkSession, table: Identifier, scratch: str) -> None:
    """Raise :class:`~icekit.errors.CloneRefused` if the catalog of a table (named with it) deletes
    files when a table is dropped.

    Asked once in a session, of a table of icekit's own next to ``scratch``: another is registered
    over its files, as a clone is, and dropped. Cannot tell of a catalog that deletes later.
    """
    asked = _keeping.setdefault(spark, set())
    if table[0] in asked:
        return
    first, second = ((table[0], *scratch_name(table[1:])) for _ in range(2))
    home = scratch.rpartition("/")[0]
    folders = [f"{home}/{name[-1]}" for name in (first, second)]
    io: Any = None
    try:
        files, io = _table_of_one_file(spark, table, first, folders[0])
        existing = metadata_of(spark, load_table(spark, first))
        own = owned(table[1:], folders[1], own_files=True)
        register(spark, second, clone_metadata(existing, folders[1], own), io)
        spark.sql(drop_sql(second))
        gone = [path for path in files if not io.newInputFile(path).exists()]
    finally:
        for name in (second, first):
            with contextlib.suppress(Exception):
                spark.sql(drop_sql(name))
        for folder in folders:
            with contextlib.suppress(Exception):
                io.deletePrefix(f"{folder}/")
            remove_folders(spark, folder)
    if gone:
        raise CloneRefused(
            f"Catalog {table[0]!r} deletes the files of a table that is dropped, so dropping a "
            f"clone would delete files of the table: {LOST_WITHOUT_CLONES}."
        )
    asked.add(table[0])


def _table_of_one_file(
    spark: Any, table: Identifier, name: Identifier, folder: str
) -> tuple[list[str], Any]:
    """Make a scratch table with a file that nobody reads; returns its data file, manifest and
    manifest list, and its FileIO.
    """
    properties = ", ".join(
        f"{literal(k)} = {literal(v)}" for k, v in owned(table[1:], folder, own_files=True).items()
    )
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(table[0], NAMESPACE)}")
    spark.sql(
        f"CREATE TABLE {identifier(*name)} (id INT) USING iceberg LOCATION {literal(folder)} "
        f"TBLPROPERTIES ({properties})"
    )
    loaded = load_table(spark, name)
    io, path = loaded.io(), f"{loaded.location()}/data/one.parquet"
    write_bytes(io, path, b"nobody reads it")
    file = spark._jvm.org.apache.iceberg.DataFiles.builder(loaded.spec()).withPath(path)
    loaded.newAppend().appendFile(file.withFileSizeInBytes(15).withRecordCount(1).build()).commit()
    snapshot = loaded.currentSnapshot()
    return [
        path,
        str(snapshot.manifestListLocation()),
        *(str(m.path()) for m in elements(snapshot.allManifests(io))),
    ], io


def register(spark: Any, table: Identifier, metadata: Json, io: Any) -> None:
    """Write the metadata file of a clone, named with its catalog, and register it."""
    file = f"{metadata['location']}/metadata/00000-{uuid.uuid4()}.metadata.json"
    # As Iceberg writes it, which refuses what it cannot read.
    parser = spark._jvm.org.apache.iceberg.TableMetadataParser
    parser.write(parser.fromJson(json.dumps(metadata)), io.newOutputFile(file))
    name = display_name(table[1:])
    spark.sql(call(table[0], "register_table", table=name, metadata_file=file))


# What works without a clone.
LOST_WITHOUT_CLONES = (
    "without clones there are no trials; diagnosis, plans, runs and their proof still work (leave "
    "out --trial), and you can try changes to rows on a copied sample (CREATE TABLE … AS SELECT)"
)
