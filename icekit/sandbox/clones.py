"""Name scratch tables, make a clone of a table, provide it and remove it; drop scratch tables whose process died."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from icekit.catalog import Lake, connect
from icekit.engine.bridge import elements, load_table, metadata_of, require_classic, write_bytes
from icekit.engine.errors import explain, reason
from icekit.errors import CloneRefused, IcekitError, InvalidName, TableNotFound
from icekit.facts.lineage import choose_snapshot
from icekit.facts.manifests import entries, manifest_list
from icekit.facts.metadata import Json, named_files
from icekit.facts.metadata_file import load_metadata
from icekit.facts.paths import LOCAL, normal
from icekit.owner import Owner
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier, literal, parse_identifier
from icekit.units import count, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The namespace of scratch tables, and the name of the folder for theirs.
NAMESPACE = "icekit_scratch"

#: Table properties of a scratch table: its source table, who made it, when, where it writes, and whether the source table cannot need those files.
OF = "icekit.clone.of"
OF_UUID = "icekit.clone.of-uuid"
HOST = "icekit.clone.host"
BOOT_ID = "icekit.clone.boot-id"
PID_NAMESPACE = "icekit.clone.pid-namespace"
PID = "icekit.clone.pid"
PID_STARTED = "icekit.clone.pid-started"
STARTED_AT = "icekit.clone.started-at"
SCRATCH = "icekit.clone.scratch"
OWN_FILES = "icekit.clone.own-files"


def stem(table: Identifier) -> str:
    """The common start of the names of a table's scratch tables: every catalog and storage accepts these characters."""
    return re.sub(r"[^a-z0-9_]", "_", table[-1].lower())[:40] + "_"


def scratch_name(table: Identifier) -> Identifier:
    """A new, unique name for a scratch table of ``table``."""
    return NAMESPACE, f"{stem(table)}{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{uuid.uuid4().hex[:8]}"


def scratch_folder(location: str, made: Identifier) -> str:
    """The folder that a scratch table writes to: next to the location of its table; inside, if the location is a complete bucket."""
    location = location.rstrip("/")
    home = location.rpartition("/")[0] if urlsplit(location).path.strip("/") else location
    return f"{home}/{NAMESPACE}/{made[-1]}"


def marker(made: Identifier) -> str:
    """A string that the path of every file in a scratch table's own folder contains, and no other path."""
    return f"/{NAMESPACE}/{made[-1]}/"


def owner_properties(
    lake: Lake, table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False
) -> dict[str, str]:
    """The table properties by which :func:`icekit.sandbox.stale_clones` finds a scratch table whose process died.

    ``table`` is the source table, ``uuid`` its UUID. ``scratch`` is the folder, as
    :func:`scratch_folder` names it; without a folder only the entry in the catalog is removed. ``own_files``: no file in the folder
    is ever added to the source table (a clone's files may be), so the folder is removed without looking for such files.
    """
    return owned(lake.sql_name(table), scratch, uuid, own_files=own_files)


def owned(table: Identifier, scratch: str | None = None, uuid: str | None = None, *, own_files: bool = False) -> dict[str, str]:
    """The same for a table name that includes the catalog."""
    owner = Owner.here()
    properties = {
        OF: display_name(table),
        OF_UUID: uuid,
        HOST: owner.host,
        BOOT_ID: owner.boot_id,
        PID_NAMESPACE: owner.pid_namespace,
        PID: str(owner.pid),
        PID_STARTED: None if owner.pid_started is None else str(owner.pid_started),
        STARTED_AT: str(time.time_ns() // 1_000_000),
        SCRATCH: scratch,
        # Always set: a clone starts with the properties of its source table.
        OWN_FILES: str(own_files).lower(),
        # Or a session with spark.wap.branch or spark.wap.id would read and write something else than the scratch table's own snapshot.
        "write.wap.enabled": "false",
    }
    return {key: value for key, value in properties.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The properties of a scratch table, parsed; ``of`` is without its catalog, ``started_ms`` since 1970.

    ``own_files``: the source table cannot need the files in its folder.
    """

    of: Identifier | None
    owner: Owner
    started_ms: int | None
    scratch: str | None
    own_files: bool = False


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Parse the output of :func:`owner_properties`; None for a table that is not a scratch table."""
    if OF not in properties:
        return None
    try:
        of: Identifier | None = parse_identifier(properties[OF])[1:]
    except InvalidName:
        of = None
    pid = _number(properties.get(PID))
    # Without a process id nobody can see whether the process is running.
    host = properties.get(HOST, "") if pid is not None else ""
    owner = Owner(host, properties.get(BOOT_ID), properties.get(PID_NAMESPACE), pid or 0, _number(properties.get(PID_STARTED)))
    started_ms, own_files = _number(properties.get(STARTED_AT)), properties.get(OWN_FILES) == "true"
    return Ownership(of, owner, started_ms, properties.get(SCRATCH), own_files)


def is_clone_of(made: Identifier, properties: Mapping[str, str], table: Identifier, uuid: str | None) -> bool:
    """Tell whether a table is a scratch table of ``table``: by its name and folder too, because anybody can copy properties."""
    whose = ownership(properties)
    if whose is None or made[:-1] != (NAMESPACE,) or not f"{whose.scratch}/".endswith(marker(made)):
        return False
    known = properties.get(OF_UUID)
    return known == uuid if known and uuid else whose.of == table


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None


# --- Drop scratch tables, also those whose process died, and remove what they wrote unless the source table needs it now


def drop_statement(lake: Lake, made: Identifier) -> str:
    """The statement that drops a scratch table from the catalog. Not PURGE: that would delete the files of its source table."""
    return _drop(lake.sql_name(made))


def _drop(table: Identifier) -> str:
    return f"DROP TABLE IF EXISTS {identifier(*table)}"


def adopted(lake: Lake, made: Identifier, of: Identifier) -> frozenset[str]:
    """The files in a scratch table's folder that the source table's metadata names, by their paths in the folder.

    Checks every snapshot's data files, delete files, manifests and manifest lists, statistics
    and metadata files; reads the catalog and the files themselves, because a session may cache an older
    version. Reads only manifests that were written since the scratch table was made.
    Raises :class:`~icekit.errors.IcekitError` if the name now belongs to another table.
    """
    mark = marker(made)
    source = lake.tables.source(of)
    metadata = load_metadata(source)
    known = _metadata_of(lake, made)
    uuid, was = metadata.get("table-uuid"), (known.get("properties") or {}).get(OF_UUID)
    if uuid and was and uuid != was:
        raise IcekitError("another table has its name now")
    # A snapshot that was committed through the scratch table has its manifest list in the folder.
    old = {s["snapshot-id"] for s in known.get("snapshots") or () if mark not in (s.get("manifest-list") or "")}
    lists = [s["manifest-list"] for s in metadata.get("snapshots") or () if s.get("manifest-list") and s["snapshot-id"] not in old]
    manifests = {m["manifest_path"] for path in lists for m in manifest_list(source.read(path), path) if m["added_snapshot_id"] not in old}
    paths = [*named_files(metadata, source.metadata_location), *manifests]
    for path in sorted(manifests):
        paths += [entry["data_file"]["file_path"] for entry in entries(source.read(path), path, frozenset({"file_path"}))]
    return frozenset(inside for path in paths if (inside := _inside(path, mark)) is not None)


def _inside(location: str, mark: str) -> str | None:
    """A file's path in a scratch table's folder, however it is spelled; None for a file elsewhere."""
    family, _, path = normal(location)
    real = os.path.realpath(path) if family in LOCAL else path
    return next((spelling.partition(mark)[2] for spelling in (path, real) if mark in spelling), None)


def _metadata_of(lake: Lake, made: Identifier) -> Json:
    """The metadata of a scratch table; empty if it is gone or cannot be read."""
    try:
        return load_metadata(lake.tables.source(made))
    except IcekitError:
        return {}


def discard(lake: Lake, made: Identifier, of: Identifier | None, scratch: str | None, io: Any, *, none_adopted: bool = False) -> None:
    """Drop a scratch table and remove its folder, except files that ``of`` has adopted; warns about files that stay.

    ``io`` is a FileIO that reaches the folder. ``none_adopted`` means that ``of`` cannot have adopted anything: nothing was
    committed to it since, or it cannot use the files in the folder. Safe to repeat.
    """
    said = None
    kept: frozenset[str] | None = None
    if not scratch or not f"{scratch}/".endswith(marker(made)):
        said = f"{display_name(made)} has no folder of its own to remove."
    elif none_adopted:
        kept = frozenset()
    else:
        kept, said = _adopted(lake, made, of, scratch)
    if scratch and kept is not None:
        # Most files first, then the table, then its metadata: what a kill leaves behind can be found, or is small.
        with contextlib.suppress(Exception):
            _remove(io, f"{scratch}/data", made, kept)
    try:
        lake.spark.sql(drop_statement(lake, made))
    except Exception as error:
        raise explain(error, lake.sql_name(made)) from None
    if scratch and kept is not None:
        try:
            _remove(io, scratch, made, kept)
        except Exception as error:
            said = f"The files of {display_name(made)} could not be removed ({type(error).__name__}). Remove the folder {scratch}."
        if not kept:
            remove_folders(lake.spark, scratch)
    if said:
        warnings.warn(said, stacklevel=2)


def _adopted(lake: Lake, made: Identifier, of: Identifier | None, scratch: str) -> tuple[frozenset[str] | None, str | None]:
    """The files that must not be removed, and a sentence about them; None if they are unknown, so nothing may be removed."""
    name = display_name(of) if of else "its table"
    try:
        if of is None:
            raise IcekitError("its properties do not name it")
        kept = adopted(lake, made, of)
    except Exception as error:
        why = reason(explain(error, lake.sql_name(of or made)))
        return (
            None,
            f"icekit could not check whether {name} needs files in {scratch} ({why}), so it keeps them. If {name} does not need them, remove the folder.",
        )
    return kept, f"{name} has adopted {count(len(kept), 'file')} in {scratch}. icekit keeps these and removes the others." if kept else None


def _remove(io: Any, folder: str, made: Identifier, kept: frozenset[str]) -> None:
    """Remove the files of a folder with the table's own FileIO, because Spark may have no file system for it."""
    if not kept:
        io.deletePrefix(f"{folder}/")
        return
    for location in [str(file.location()) for file in elements(io.listPrefix(f"{folder}/"))]:
        if _inside(location, marker(made)) not in kept:
            io.deleteFile(location)


def remove_folders(spark: Any, folder: str) -> None:
    """Remove a scratch table's empty folders: object stores have none; elsewhere removing files leaves them behind."""
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    with contextlib.suppress(Exception):
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        files.delete(path, True)
        # The folder of all clones too, once it is empty.
        if not files.listStatus(path.getParent()):
            files.delete(path.getParent(), False)


# --- Find scratch tables whose process has died, and drop them


@dataclass(frozen=True, slots=True)
class StaleClone:
    """A scratch table that nobody uses any more, or whose use cannot be determined from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``of`` is the source table,
    ``started_ms`` the time it was made, since 1970; unknown values are None. ``drop`` drops it
    from the catalog, never with PURGE; ``scratch`` is its own folder, and ``own_files``
    means that the source table cannot need the files in it.
    """

    table: Identifier
    of: Identifier | None
    owner: Owner | None
    started_ms: int | None
    scratch: str | None
    is_dead: bool
    drop: str
    own_files: bool = False

    def age_ms(self, now: int) -> int | None:
        """Milliseconds since it was made; None if unknown."""
        return None if self.started_ms is None else max(0, now - self.started_ms)

    def line(self, now: int) -> str:
        """One line with the table, its age and whether its process is dead."""
        age = self.age_ms(now)
        old = "of unknown age" if age is None else f"{span(age)} old"
        of = display_name(self.of) if self.of else "an unknown table"
        if self.owner is None:
            whose = "unknown: its metadata cannot be read"
        elif self.is_dead:
            whose = f"dead: process {self.owner.pid} has ended"
        else:
            whose = f"unknown: process {self.owner.pid} on {self.owner.host or 'an unknown host'} cannot be checked from here"
        return f"{display_name(self.table)}  of {of}, {old}; {whose}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be checked from here.

    Checks every table in the namespace ``icekit_scratch`` that has the properties of
    :func:`~icekit.sandbox.owner_properties`, or those ``of`` one table. Reads one
    metadata file for each, and needs no JVM. Leaves out tables of living processes.
    """
    found = []
    for table in lake.tables.names_in((NAMESPACE,)):
        if of is not None and not table[-1].startswith(stem(of)):
            continue
        try:
            stale = _judge(lake, table)
        except TableNotFound:
            # Its own process has just dropped it.
            continue
        if stale is not None and (of is None or stale.of == of):
            found.append(stale)
    return tuple(found)


def remove_stale(lake: Lake, clones: Iterable[StaleClone] | None = None) -> tuple[StaleClone, ...]:
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns those clones.

    ``clones`` are some results of :func:`stale_clones`; default: all. Each is checked
    again before it is dropped. Files that the source table has adopted stay, with a warning. Raises
    :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect.
    """
    wanted = stale_clones(lake) if clones is None else tuple(clones)
    removed = []
    for table in (c.table for c in wanted if c.is_dead):
        require_classic(lake.spark)
        try:
            stale = _judge(lake, table)
        except TableNotFound:
            continue
        if stale is None or not stale.is_dead:
            continue
        try:
            io = load_table(lake.spark, lake.sql_name(table)).io()
        except Exception as error:
            raise explain(error, lake.sql_name(table)) from None
        discard(lake, table, stale.of, stale.scratch, io, none_adopted=stale.own_files)
        removed.append(stale)
    return tuple(removed)


def _judge(lake: Lake, table: Identifier) -> StaleClone | None:
    """The state of a scratch table; None if its process is alive, or if it does not belong to icekit."""
    drop = drop_statement(lake, table)
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        raise
    except IcekitError:
        return StaleClone(table=table, of=None, owner=None, started_ms=None, scratch=None, is_dead=False, drop=drop)
    if whose is None or (whose.owner.is_visible() and not whose.owner.has_ended()):
        return None
    return StaleClone(
        table=table,
        of=whose.of,
        owner=whose.owner,
        started_ms=whose.started_ms,
        scratch=whose.scratch,
        is_dead=whose.owner.has_ended(),
        drop=drop,
        own_files=whose.own_files,
    )


# --- The metadata of a clone: that of the table, changed so that nothing done with the clone reaches a file of the table


#: These set where files are written, in addition to the location and ``write.data.path``.
_ELSEWHERE = ("write.location-provider.impl", "write.object-storage.path", "write.folder-storage.path")


def own_paths(scratch: str) -> dict[str, str]:
    """The table properties that keep everything written through a clone in its folder, and prevent everything else from being deleted."""
    return {
        "gc.enabled": "false",
        "write.data.path": f"{scratch}/data",
        "write.metadata.path": f"{scratch}/metadata",
        "write.metadata.delete-after-commit.enabled": "false",
    }


def clone_metadata(metadata: Json, scratch: str, properties: Mapping[str, str], snapshot: str | int | None = None) -> dict[str, Any]:
    """The metadata of a clone whose location is ``scratch``, and whose main branch is at ``snapshot``.

    Schemas, specs, snapshots, branches and tags are those of the table. Different are

    - ``location``, because ``remove_orphan_files`` lists it and some engines and catalogs delete it with the table;
    - ``metadata-log``, which is empty: otherwise a commit would delete the table's metadata files under
      ``write.metadata.delete-after-commit.enabled``;
    - ``table-uuid``, because catalogs and caches distinguish tables by it;
    - properties: those of :func:`own_paths`, those given, and none that points to another folder.

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


# --- Ask a catalog whether DROP TABLE deletes files: then dropping a scratch table would delete those of its table


# The catalogs of each session that were asked, and keep the files.
_keeping: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()


def check_drop(spark: SparkSession, table: Identifier, scratch: str) -> None:
    """Raise :class:`~icekit.errors.CloneRefused` if the catalog of a table (named with it) deletes files when a table is dropped.

    Asked once in a session, of a table of icekit's own next to ``scratch``: another is registered over its
    files, as a clone is, and dropped. Cannot tell of a catalog that deletes later.
    """
    asked = _keeping.setdefault(spark, set())
    if table[0] in asked:
        return
    first, second = scratch_name(table[1:]), scratch_name(table[1:])
    folders = {made: f"{scratch.rpartition('/')[0]}/{made[-1]}" for made in (first, second)}
    drops = [_drop((table[0], *made)) for made in (second, first)]
    io: Any = None
    try:
        files, io = _table_of_one_file(spark, table, first, folders[first])
        _register_over(spark, table, (first, second), folders[second], io)
        spark.sql(drops[0])
        gone = [path for path in files if not io.newInputFile(path).exists()]
    finally:
        for drop in drops:
            with contextlib.suppress(Exception):
                spark.sql(drop)
        for folder in folders.values():
            with contextlib.suppress(Exception):
                io.deletePrefix(f"{folder}/")
            remove_folders(spark, folder)
    if gone:
        raise CloneRefused(
            f"Catalog {table[0]!r} deletes the files of a table that is dropped, so dropping a clone would delete files of the table: {_LOST}."
        )
    asked.add(table[0])


def _table_of_one_file(spark: Any, table: Identifier, made: Identifier, folder: str) -> tuple[list[str], Any]:
    """Make a scratch table with a file that nobody reads; returns its data file, manifest and manifest list, and its FileIO."""
    name = (table[0], *made)
    properties = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in owned(table, folder, own_files=True).items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(table[0], NAMESPACE)}")
    spark.sql(f"CREATE TABLE {identifier(*name)} (id INT) USING iceberg LOCATION {literal(folder)} TBLPROPERTIES ({properties})")
    loaded = load_table(spark, name)
    io, path = loaded.io(), f"{loaded.location()}/data/one.parquet"
    write_bytes(io, path, b"nobody reads it")
    file = spark._jvm.org.apache.iceberg.DataFiles.builder(loaded.spec()).withPath(path)
    loaded.newAppend().appendFile(file.withFileSizeInBytes(15).withRecordCount(1).build()).commit()
    snapshot = loaded.currentSnapshot()
    return [path, str(snapshot.manifestListLocation()), *(str(m.path()) for m in elements(snapshot.allManifests(io)))], io


def _register_over(spark: Any, table: Identifier, made: tuple[Identifier, Identifier], folder: str, io: Any) -> None:
    """Register the second scratch table over the files of the first, as a clone is."""
    metadata = metadata_of(spark, load_table(spark, (table[0], *made[0])))
    file = f"{folder}/metadata/00000-{uuid.uuid4()}.metadata.json"
    write_bytes(io, file, json.dumps(clone_metadata(metadata, folder, owned(table, folder, own_files=True))).encode())
    spark.sql(call(table[0], "register_table", table=display_name(made[1]), metadata_file=file))


# --- Make a clone of a table, provide it, and remove it


# What works without a clone.
_LOST = (
    "without clones there are no trials and no conversion of equality deletes; diagnosis, plans, "
    "runs and their proof still work (leave out --trial), and you can try changes to rows on a copied sample (CREATE TABLE … AS SELECT)"
)


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of ``of``: its name in the same catalog, and the folder that it writes to."""

    of: Identifier
    table: Identifier
    scratch: str


@contextlib.contextmanager
def clone(where: Lake | SparkSession, table: str | Identifier, snapshot: str | int | None = None) -> Iterator[Clone]:
    """A zero-copy clone of a table; the clone and everything it wrote are removed afterwards.

    ``where`` is a lake, or a Spark session: then the first part of the table's name is the catalog if
    the session has a catalog of that name; otherwise the table is looked up in the current catalog. The clone
    is at the table's current snapshot, or at ``snapshot`` (an id, a branch or a tag); it has all of the table's
    snapshots, branches and tags.

    Nothing that Iceberg's procedures, Spark's SQL and writers do to the clone deletes or
    overwrites a file of the table: the clone has its own metadata file, location, data and
    metadata paths and UUID, no log of the table's metadata files, and
    ``gc.enabled=false``, under which Iceberg refuses ``expire_snapshots``,
    ``remove_orphan_files`` and ``DROP TABLE … PURGE``. No catalog can prevent the following, so
    do not do this to a clone:

    - setting ``gc.enabled=true`` and then expiring, purging or removing orphan files;
    - purging with a tool that ignores ``gc.enabled``: ``dropTable(…, purge=true)`` of the Java
      catalog (deletes manifests and manifest lists), PyIceberg's ``purge_table`` (data files
      too), an engine that deletes a table's files whenever it is dropped, or a catalog that does so later (one that does so at once is refused);
    - giving a procedure a path inside the table's location to write to, such as
      ``staging_location`` of ``rewrite_table_path``;
    - unsetting ``write.data.path`` after ``SET LOCATION`` to the table's location: that overwrites
      nothing, but leaves files there.

    Work on the table itself can continue: files that its own expiry deletes are then missing for the clone too.
    A process that is killed leaves the clone behind; :func:`~icekit.sandbox.stale_clones` finds it.
    Files of the clone that the table has adopted meanwhile are kept, with a warning; files adopted by
    another table are not looked for.

    Raises :class:`~icekit.errors.CloneRefused` if the catalog cannot register such a table or
    gives it no access to the table's files; :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect;
    :class:`~icekit.errors.SnapshotNotFound`; and the errors of finding a table.
    """
    lake, name = _located(where, table)
    try:
        require_classic(lake.spark)
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
            # The session belongs to the caller: do not stop it.
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
        check_drop(spark, lake.sql_name(copy.of), copy.scratch)
        parser = jvm.org.apache.iceberg.TableMetadataParser
        parser.write(parser.fromJson(json.dumps(metadata)), io.newOutputFile(file))
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        spark.sql(call(lake.name, "register_table", table=display_name(copy.table), metadata_file=file))
        loaded = load_table(spark, lake.sql_name(copy.table))
        # A catalog may grant access only to a table's own location.
        if loaded.currentSnapshot() is not None:
            loaded.currentSnapshot().allManifests(loaded.io())
        return loaded.io()
    except CloneRefused:
        raise
    except Exception as error:
        why = reason(explain(error, lake.sql_name(copy.table)))
        raise CloneRefused(
            f"Catalog {lake.name!r} does not accept a clone of {display_name(copy.of)} ({why}): {_LOST}.", detail=scrub(str(error))
        ) from None


def _take_away(lake: Lake, copy: Clone, io: Any, began: str) -> None:
    """Drop the clone and remove its folder; warn about what is left, because the error from inside says more."""
    try:
        is_unchanged = lake.tables.source(copy.of).metadata_location == began
    except Exception:
        is_unchanged = False
    try:
        discard(lake, copy.table, copy.of, copy.scratch, io, none_adopted=is_unchanged)
    except Exception as error:
        warnings.warn(
            f"The clone of {display_name(copy.of)} could not be dropped ({type(error).__name__}). Run {drop_statement(lake, copy.table)} and remove the folder {copy.scratch}.",
            stacklevel=2,
        )


def _tell_of_stale(lake: Lake, table: Identifier) -> None:
    """Warn about clones of the same table that killed processes left behind; reads no metadata if no name matches."""
    with contextlib.suppress(Exception):
        dead = sum(stale.is_dead for stale in stale_clones(lake, table))
        if dead:
            said = (
                f"{count(dead, 'clone')} of {display_name(table)} {'was' if dead == 1 else 'were'} left behind by processes that have ended"
            )
            warnings.warn(f"{said}. List and remove stale clones with `icekit admin clones`.", stacklevel=4)
