"""Make a clone of a table, lend it, and take it away again."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.catalog import Lake, connect
from icekit.clone.removal import discard, drop_statement, stale_clones
from icekit.clone.scratch import NAMESPACE, owner_properties, scratch_folder, scratch_name
from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain, reason
from icekit.errors import CloneRefused
from icekit.facts.collect import load_metadata
from icekit.facts.metadata import Json, choose_snapshot
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier, parse_identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- The metadata of a clone: the table's own, made so that what is done with it reaches no file of the table


#: These say where files are written, past the location and ``write.data.path`` or beside them.
_ELSEWHERE = ("write.location-provider.impl", "write.object-storage.path", "write.folder-storage.path")


def own_paths(scratch: str) -> dict[str, str]:
    """The table properties that keep all that is written through a clone in its folder, and all else from being deleted."""
    return {
        "gc.enabled": "false",
        "write.data.path": f"{scratch}/data",
        "write.metadata.path": f"{scratch}/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
    }


def clone_metadata(metadata: Json, scratch: str, properties: Mapping[str, str], snapshot: str | int | None = None) -> dict[str, Any]:
    """The metadata of a clone whose location is ``scratch``, and whose main branch is at ``snapshot``.

    Schemas, specs, snapshots, branches and tags are the table's. Different are

    - ``location``, as ``remove_orphan_files`` lists it and some engines and catalogs delete it with the table;
    - ``metadata-log``, which is empty: else a commit would delete the table's metadata files under
      ``write.metadata.delete-after-commit.enabled``;
    - ``table-uuid``, as catalogs and caches tell tables apart by it;
    - properties: those of :func:`own_paths`, those given, and none that leads elsewhere.

    Raises :class:`~icekit.errors.SnapshotNotFound`.
    """
    chosen, _ = choose_snapshot(metadata, snapshot)
    kept = {k: v for k, v in (metadata.get("properties") or {}).items() if k not in _ELSEWHERE}
    made = {
        **metadata,
        "table-uuid": str(uuid.uuid4()),
        "location": scratch,
        "metadata-log": [],
        "properties": {**kept, **own_paths(scratch), **properties},
    }
    if chosen is None or chosen["snapshot-id"] == metadata.get("current-snapshot-id"):
        return made
    # As set_current_snapshot does.
    moved = chosen["snapshot-id"]
    now = max(time.time_ns() // 1_000_000, int(metadata["last-updated-ms"]))
    refs = metadata.get("refs") or {}
    made["current-snapshot-id"] = moved
    made["refs"] = {**refs, "main": {"type": "branch", **refs.get("main", {}), "snapshot-id": moved}}
    made["snapshot-log"] = [*(metadata.get("snapshot-log") or ()), {"timestamp-ms": now, "snapshot-id": moved}]
    made["last-updated-ms"] = now
    return made


# What a person does without a clone.
_LOST = (
    "without one there is no trial, no rehearsal and no conversion of equality deletes; diagnosis, plans with Iceberg's own prediction, "
    "runs and their proof work all the same (leave out --trial), and what concerns rows can be tried on a copied sample (CREATE TABLE … AS SELECT)"
)


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of ``of``: its own name in the same catalog, and the folder of all that it writes."""

    of: Identifier
    table: Identifier
    scratch: str


@contextlib.contextmanager
def clone(where: Lake | SparkSession, table: str | Identifier, snapshot: str | int | None = None) -> Iterator[Clone]:
    """A zero-copy clone of a table; it and what it wrote are gone afterwards.

    ``where`` is a lake, or a Spark session: then the table's first name part is the catalog if
    the session has one of that name, else it is looked for in the current catalog. The clone
    is at the table's current snapshot, or at ``snapshot`` (an id, a branch or a tag); all its
    snapshots, branches and tags are there.

    Nothing that Iceberg's procedures, Spark's SQL and writers do to the clone deletes or
    overwrites a file of the table: the clone has a metadata file, a location, data and
    metadata paths and a UUID of its own, no log of the table's metadata files, and
    ``gc.enabled=false``, under which Iceberg refuses ``expire_snapshots``,
    ``remove_orphan_files`` and ``DROP TABLE … PURGE``. What no catalog can prevent, and so
    nobody should do to a clone:

    - setting ``gc.enabled=true`` and then expiring, purging or removing orphan files;
    - purging by what does not ask for ``gc.enabled``: ``dropTable(…, purge=true)`` of the Java
      catalog (deletes manifests and manifest lists), pyiceberg's ``purge_table`` (data files
      too), an engine or a catalog that deletes a table's files whenever it is dropped;
    - giving a procedure a path inside the table's location to write to, as
      ``rewrite_table_path`` takes one in ``staging_location``;
    - unsetting ``write.data.path`` after ``SET LOCATION`` to the table's: that overwrites
      nothing, but leaves files there.

    The table itself can go on: files that its own expiry deletes are gone for the clone too.
    A process that is killed leaves the clone behind, which :func:`~icekit.clone.stale_clones` finds.
    Files of the clone's that the table has adopted meanwhile are kept, with a warning; a table
    of another name that adopts some is not looked for.

    Raises :class:`~icekit.errors.CloneRefused` where the catalog registers no such table or
    gives it no access to the table's files, or where there is no JVM bridge to clean up with;
    :class:`~icekit.errors.SnapshotNotFound`; and the errors of finding a table.
    """
    lake, name = _located(where, table)
    try:
        if not has_bridge(lake.spark):
            raise CloneRefused(f"A clone needs the JVM bridge, which Spark Connect has not: {_LOST}.")
        source = lake.tables.source(name)
        made = scratch_name(name)
        metadata = load_metadata(source)
        scratch = scratch_folder(str(metadata["location"]), made)
        wanted = clone_metadata(metadata, scratch, owner_properties(lake, name, scratch, metadata.get("table-uuid")), snapshot)
        _tell_of_stale(lake, name)
        copy = Clone(name, made, scratch)
        io = _io(lake, name)
        try:
            io = _register(lake, copy, wanted, io)
            yield copy
        finally:
            _take_away(lake, copy, io, source.metadata_location)
    finally:
        if lake is not where:
            # The session is not ours to stop.
            lake.tables.close()


def _located(where: Lake | SparkSession, table: str | Identifier) -> tuple[Lake, Identifier]:
    """The lake and the name in it, without the catalog."""
    if isinstance(where, Lake):
        return where, where.identifier(table) if isinstance(table, str) else table
    parts = parse_identifier(table) if isinstance(table, str) else table
    if len(parts) > 2 and where.conf.get(f"spark.sql.catalog.{parts[0]}", None) is not None:
        return connect(parts[0], spark=where), parts[1:]
    return connect(where.catalog.currentCatalog(), spark=where), parts


def _io(lake: Lake, table: Identifier) -> Any:
    """The table's own FileIO."""
    try:
        return load_table(lake.spark, lake.sql_name(table)).io()
    except Exception as error:
        raise explain(error, lake.sql_name(table)) from None


def _register(lake: Lake, copy: Clone, metadata: dict[str, Any], io: Any) -> Any:
    """Write the clone's metadata file and register it; returns the clone's own FileIO, which has read from the table."""
    spark = lake.spark
    jvm: Any = spark._jvm
    file = f"{copy.scratch}/metadata/00000-{uuid.uuid4()}.metadata.json"
    try:
        parser = jvm.org.apache.iceberg.TableMetadataParser
        parser.write(parser.fromJson(json.dumps(metadata)), io.newOutputFile(file))
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        spark.sql(call(lake.name, "register_table", table=display_name(copy.table), metadata_file=file))
        loaded = load_table(spark, lake.sql_name(copy.table))
        # A catalog may lend access to a table's own location only.
        if loaded.currentSnapshot() is not None:
            loaded.currentSnapshot().allManifests(loaded.io())
        return loaded.io()
    except Exception as error:
        why = reason(explain(error, lake.sql_name(copy.table)))
        raise CloneRefused(
            f"Catalog {lake.name!r} takes no clone of {display_name(copy.of)} ({why}): {_LOST}.", detail=scrub(str(error))
        ) from None


def _take_away(lake: Lake, copy: Clone, io: Any, began: str) -> None:
    """Drop the clone and remove its folder; what is left of it is told in a warning, as what happened inside says more."""
    try:
        is_unchanged = lake.tables.source(copy.of).metadata_location == began
    except Exception:
        is_unchanged = False
    try:
        discard(lake, copy.table, copy.of, copy.scratch, io, none_adopted=is_unchanged)
    except Exception as error:
        warnings.warn(
            f"The clone of {display_name(copy.of)} could not be dropped ({type(error).__name__}): run {drop_statement(lake, copy.table)} and remove the folder {copy.scratch}.",
            stacklevel=2,
        )


def _tell_of_stale(lake: Lake, table: Identifier) -> None:
    """Warn of clones of the same table that killed processes have left; reads no metadata if there is none by name."""
    with contextlib.suppress(Exception):
        dead = sum(stale.is_dead for stale in stale_clones(lake, table))
        if dead:
            said = f"{count(dead, 'clone')} of {display_name(table)} were left by processes that have ended"
            warnings.warn(f"{said}: list and remove them with `icekit clones`.", stacklevel=4)
