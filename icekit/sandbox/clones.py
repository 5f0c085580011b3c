"""Make a clone of a table, provide it, and remove it; check that dropping it can delete no file of
the table.
"""

import contextlib
import json
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from icekit.common.errors import CloneRefused
from icekit.common.sql import Identifier, call_sql, display_name, identifier, literal
from icekit.engine.bridge import elements, load_table, metadata_of, require_classic
from icekit.engine.errors import explain, explain_errors, reason
from icekit.engine.lake import Lake
from icekit.health.facts.metadata_file import load_metadata
from icekit.iceberg.metadata import Json, check_clock, choose_snapshot, properties_of
from icekit.sandbox.scratch import NAMESPACE, ScratchTable, discard, drop_sql, remove_folders

# What works without a clone.
LOST_WITHOUT_CLONES = (
    "without clones there are no trials; diagnosis, plans, runs and their proof still work (leave "
    "out --trial), and you can try changes to rows on a copied sample (CREATE TABLE … AS SELECT)"
)


@contextlib.contextmanager
def clone(
    lake: Lake,
    table: str | Identifier,
    snapshot: str | int | None = None,
    *,
    change_metadata: Callable[[Json], Json] = lambda metadata: metadata,
) -> Iterator[ScratchTable]:
    """A zero-copy clone of a table; the clone and everything it wrote are removed afterwards.

    The clone is at the table's current snapshot, or at ``snapshot`` (an id, a branch or a tag); it
    has all of the table's snapshots, branches and tags. ``change_metadata`` gives the metadata that
    it begins with, from the table's.

    Nothing that Iceberg's procedures, Spark's SQL and writers do to the clone deletes or
    overwrites a file of the table: the clone has its own metadata file, location, data and
    metadata paths and UUID, no log of the table's metadata files, and
    ``gc.enabled=false``, under which Iceberg refuses ``expire_snapshots``,
    ``remove_orphan_files`` and ``DROP TABLE … PURGE``. No catalog can prevent the following, so
    do not do this to a clone:

    - setting ``gc.enabled=true`` and then expiring, purging or removing orphan files;
    - purging with a tool that ignores ``gc.enabled``: ``dropTable(…, purge=true)`` of the Java
      catalog (deletes manifests and manifest lists), PyIceberg's ``purge_table`` (data files too),
      an engine that deletes a table's files whenever it is dropped, or a catalog that does so later
      (one that does so at once is refused);
    - giving a procedure a path inside the table's location to write to, such as
      ``staging_location`` of ``rewrite_table_path``;
    - unsetting ``write.data.path`` after ``SET LOCATION`` to the table's location: that overwrites
      nothing, but leaves files there.

    Work on the table itself can continue: files that its own expiry deletes are then missing for
    the clone too. A process that is killed leaves the clone behind;
    :func:`~icekit.sandbox.scratch.stale_clones` finds it. Files of the clone that the table has
    adopted meanwhile are kept, with a warning; files adopted by another table are not looked for.

    Raises :class:`~icekit.common.errors.CloneRefused` if the catalog cannot register such a table
    or gives it no access to the table's files;
    :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect;
    :class:`~icekit.common.errors.SnapshotNotFound`; and the errors of finding a table.
    """
    table_name = lake.identifier(table)
    require_classic(lake.spark)
    table_source = lake.tables.source(table_name)
    metadata = load_metadata(table_source)
    # What is tried on the clone commits to it.
    check_clock(metadata, display_name(table_name), time.time_ns() // 1_000_000)
    target_snapshot, _ = choose_snapshot(metadata, snapshot)
    clone_table = ScratchTable.new(table_name, metadata["location"])
    with explain_errors(lake.sql_name(table_name)):
        io = load_table(lake.spark, lake.sql_name(table_name)).io()
    try:
        io = _register_at_snapshot(
            lake, clone_table, change_metadata(metadata), target_snapshot, io
        )
        yield clone_table
    finally:
        _remove_clone(lake, clone_table, io, table_source.metadata_location)


def _register_at_snapshot(
    lake: Lake, clone_table: ScratchTable, metadata: Json, target_snapshot: Json | None, io: Any
) -> Any:
    """Register a clone of a table with this metadata, and the chosen snapshot as the current one;
    returns the clone's own FileIO, which has read from the table.
    """
    spark = lake.spark
    ownership_properties = clone_table.ownership_properties(metadata.get("table-uuid"))
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        require_drop_keeps_files(lake, clone_table.source_table, metadata["location"])
        register_clone(
            lake,
            clone_table,
            clone_metadata(metadata, clone_table.folder, ownership_properties),
            io,
        )
        if target_snapshot is not None and target_snapshot["snapshot-id"] != metadata.get(
            "current-snapshot-id"
        ):
            procedure_arguments = {
                "table": display_name(clone_table.table),
                "snapshot_id": target_snapshot["snapshot-id"],
            }
            spark.sql(call_sql(lake.name, "set_current_snapshot", **procedure_arguments))
        loaded_clone = load_table(spark, lake.sql_name(clone_table.table))
        io = loaded_clone.io()
        current_snapshot = loaded_clone.currentSnapshot()
        # A catalog may grant access only to a table's own location.
        if current_snapshot is not None:
            current_snapshot.allManifests(io)
        return io
    except CloneRefused:
        raise
    except Exception as error:
        why = reason(explain(error, lake.sql_name(clone_table.table)))
        raise CloneRefused(
            f"Catalog {lake.name!r} does not accept a clone of "
            f"{display_name(clone_table.source_table)} ({why}): "
            f"{LOST_WITHOUT_CLONES}."
        ) from None


def _remove_clone(
    lake: Lake, clone_table: ScratchTable, io: Any, metadata_location_before: str
) -> None:
    """Drop the clone and remove its folder; warn about what is left, because the error from inside
    says more.
    """
    try:
        is_unchanged = (
            lake.tables.source(clone_table.source_table).metadata_location
            == metadata_location_before
        )
    except Exception:
        is_unchanged = False
    try:
        discard(lake, clone_table, io, none_adopted=is_unchanged)
    except Exception as error:
        warnings.warn(
            f"The clone of {display_name(clone_table.source_table)} could not be dropped "
            f"({type(error).__name__}). Run {drop_sql(lake.sql_name(clone_table.table))} and "
            f"remove the folder {clone_table.folder}.",
            stacklevel=2,
        )


#: These set where files are written, in addition to the location and ``write.data.path``.
_ELSEWHERE = (
    "write.location-provider.impl",
    "write.object-storage.path",
    "write.folder-storage.path",
)


def isolating_properties(folder: str) -> dict[str, str]:
    """The table properties that keep everything written through a clone in its folder, and prevent
    everything else from being deleted.
    """
    return {
        "gc.enabled": "false",
        "write.data.path": f"{folder}/data",
        "write.metadata.path": f"{folder}/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
    }


def clone_metadata(metadata: Json, folder: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of a clone whose location is ``scratch``.

    Schemas, specs, snapshots, branches and tags are those of the table. Different are

    - ``location``, because ``remove_orphan_files`` lists it and some engines and catalogs delete it
      with the table;
    - ``metadata-log``, which is empty: otherwise a commit would delete the table's metadata files
      under ``write.metadata.delete-after-commit.enabled``;
    - ``table-uuid``, because catalogs and caches distinguish tables by it;
    - properties: those of :func:`isolating_properties`, those given, and none that points to
      another folder.
    """
    inherited_properties = {k: v for k, v in properties_of(metadata).items() if k not in _ELSEWHERE}
    return {
        **metadata,
        "table-uuid": str(uuid.uuid4()),
        "location": folder,
        "metadata-log": [],
        "properties": {**inherited_properties, **isolating_properties(folder), **properties},
    }


# The catalogs of each session that were asked, and keep the files.
_catalogs_keeping_files: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def require_drop_keeps_files(lake: Lake, table: Identifier, location: str) -> None:
    """Raise :class:`~icekit.common.errors.CloneRefused` if the catalog of a table at a location
    deletes files when a table is dropped.

    Asked once in a session, of a table of icekit's own next to the location: another is registered
    over its files, as a clone is, and dropped. Cannot tell of a catalog that deletes later.
    """
    spark: Any = lake.spark
    checked_catalogs = _catalogs_keeping_files.setdefault(spark, set())
    if lake.name in checked_catalogs:
        return
    table_with_file, overlapping_clone = (ScratchTable.new(table, location) for _ in range(2))
    io: Any = None
    try:
        file_paths, io = _create_table_of_one_file(lake, table_with_file)
        table_metadata = metadata_of(spark, load_table(spark, lake.sql_name(table_with_file.table)))
        ownership_properties = overlapping_clone.ownership_properties(own_files=True)
        register_clone(
            lake,
            overlapping_clone,
            clone_metadata(table_metadata, overlapping_clone.folder, ownership_properties),
            io,
        )
        spark.sql(drop_sql(lake.sql_name(overlapping_clone.table)))
        missing_paths = [path for path in file_paths if not io.newInputFile(path).exists()]
    finally:
        for scratch_table in (overlapping_clone, table_with_file):
            with contextlib.suppress(Exception):
                spark.sql(drop_sql(lake.sql_name(scratch_table.table)))
            with contextlib.suppress(Exception):
                io.deletePrefix(f"{scratch_table.folder}/")
            remove_folders(spark, scratch_table.folder)
    if missing_paths:
        raise CloneRefused(
            f"Catalog {lake.name!r} deletes the files of a table that is dropped, so dropping a "
            f"clone would delete files of the table: {LOST_WITHOUT_CLONES}."
        )
    checked_catalogs.add(lake.name)


def _create_table_of_one_file(lake: Lake, scratch_table: ScratchTable) -> tuple[list[str], Any]:
    """Make a scratch table with a file that nobody reads; returns its data file, manifest and
    manifest list, and its FileIO.
    """
    table_name = lake.sql_name(scratch_table.table)
    properties_sql = ", ".join(
        f"{literal(k)} = {literal(v)}"
        for k, v in scratch_table.ownership_properties(own_files=True).items()
    )
    lake.spark.sql(
        f"CREATE TABLE {identifier(*table_name)} USING iceberg LOCATION "
        f"{literal(scratch_table.folder)} TBLPROPERTIES ({properties_sql}) AS SELECT 1 AS id"
    )
    loaded_table = load_table(lake.spark, table_name)
    io = loaded_table.io()
    snapshot = loaded_table.currentSnapshot()
    return [
        str(snapshot.manifestListLocation()),
        *(str(manifest.path()) for manifest in elements(snapshot.allManifests(io))),
        *(str(file.location()) for file in elements(snapshot.addedDataFiles(io))),
    ], io


def register_clone(lake: Lake, scratch_table: ScratchTable, metadata: Json, io: Any) -> None:
    """Write the metadata file of a clone, and register it."""
    spark: Any = lake.spark
    metadata_path = f"{scratch_table.folder}/metadata/00000-{uuid.uuid4()}.metadata.json"
    # As Iceberg writes it, which refuses what it cannot read.
    parser = spark._jvm.org.apache.iceberg.TableMetadataParser
    parser.write(parser.fromJson(json.dumps(metadata)), io.newOutputFile(metadata_path))
    clone_name = display_name(scratch_table.table)
    spark.sql(call_sql(lake.name, "register_table", table=clone_name, metadata_file=metadata_path))
