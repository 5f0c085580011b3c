"""Name the scratch tables of trials, remove them with their files, and find those whose process
has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from icekit.common import frozen
from icekit.common.errors import IcekitError, TableNotFound
from icekit.common.owner import Owner
from icekit.common.sql import Identifier, display_name, identifier
from icekit.common.units import count, span
from icekit.engine.bridge import elements, load_table, require_classic
from icekit.engine.errors import explain, explain_errors, reason
from icekit.engine.lake import Lake
from icekit.health.facts.head import head
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.storage.orphans import referenced_files
from icekit.iceberg.metadata import Json, properties_of
from icekit.iceberg.paths import LOCAL, normal_path_of

#: The namespace of scratch tables, and the name of the folder for theirs.
NAMESPACE = "icekit_scratch"

#: The table property by which a scratch table is known: an :class:`Ownership`, as JSON.
OWNED = "icekit.clone"


def name_prefix(source_table: Identifier) -> str:
    """The common start of the names of a table's scratch tables: every catalog and storage accepts
    these characters.
    """
    return re.sub(r"[^a-z0-9_]", "_", source_table[-1].lower())[:40] + "_"


@frozen
class ScratchTable:
    """A scratch table of ``source_table``: its name in the same catalog, and the folder that it
    writes to.
    """

    source_table: Identifier
    table: Identifier
    folder: str

    @classmethod
    def new(cls, source_table: Identifier, location: str) -> ScratchTable:
        """A scratch table with a new, unique name and folder: next to the location of its table;
        inside, if the location is a complete bucket.
        """
        time_text = time.strftime("%Y%m%d%H%M%S", time.gmtime())
        table_name = f"{name_prefix(source_table)}{time_text}_{uuid.uuid4().hex[:8]}"
        location = location.rstrip("/")
        parent_folder = (
            location.rpartition("/")[0] if urlsplit(location).path.strip("/") else location
        )
        return cls(
            source_table, (NAMESPACE, table_name), f"{parent_folder}/{NAMESPACE}/{table_name}"
        )

    @property
    def path_marker(self) -> str:
        """A string that the path of every file in the table's own folder contains, and no other
        path.
        """
        return f"/{NAMESPACE}/{self.table[-1]}/"

    @property
    def has_own_folder(self) -> bool:
        """Whether its folder is the one that its name stands for."""
        is_in_namespace = self.table[:-1] == (NAMESPACE,)
        return is_in_namespace and f"{self.folder}/".endswith(self.path_marker)

    def ownership_properties(
        self, of_uuid: str | None = None, *, own_files: bool = False
    ) -> dict[str, str]:
        """The table properties by which :func:`icekit.sandbox.scratch.stale_clones` finds the table
        if its process died; the arguments are those of an :class:`Ownership`.
        """
        started_ms = time.time_ns() // 1_000_000
        ownership_record = Ownership(
            self.source_table, of_uuid, Owner.this_process(), started_ms, self.folder, own_files
        )
        return {
            # Always set: a clone starts with the properties of its source table.
            OWNED: json.dumps(asdict(ownership_record)),
            # Or a session with spark.wap.branch or spark.wap.id would read and write something
            # else than the scratch table's own snapshot.
            "write.wap.enabled": "false",
        }


@frozen
class Ownership:
    """Whose a scratch table is: its source table (without its catalog, and its UUID), the process
    that made it, and when (milliseconds since 1970).

    ``scratch`` is its folder. ``own_files``: no file in the
    folder is ever added to the source table (a clone's files may be), so the folder is removed
    without looking for such files.
    """

    of: Identifier
    of_uuid: str | None
    owner: Owner
    started_ms: int
    scratch: str
    own_files: bool


_OWNERSHIP = TypeAdapter(Ownership)


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Parse the output of :meth:`ScratchTable.ownership_properties`; None for a table that is no
    scratch table.
    """
    try:
        return _OWNERSHIP.validate_json(properties.get(OWNED, ""))
    except ValidationError:
        return None


def is_clone_of(
    scratch_name: Identifier,
    properties: Mapping[str, str],
    source_table: Identifier,
    source_uuid: str | None,
) -> bool:
    """Tell whether a table is a scratch table of ``table``: by its name and folder too, because
    anybody can copy properties.
    """
    ownership_record = ownership(properties)
    if (
        ownership_record is None
        or not ScratchTable(
            ownership_record.of, scratch_name, ownership_record.scratch
        ).has_own_folder
    ):
        return False
    return (
        ownership_record.of_uuid == source_uuid
        if ownership_record.of_uuid and source_uuid
        else ownership_record.of == source_table
    )


def create_scratch_table(
    lake: Lake, scratch_table: ScratchTable, properties: Mapping[str, str]
) -> Any:
    """Create an empty scratch table with the schema, partitioning and sort order of its source
    table; returns its FileIO.
    """
    spark: Any = lake.spark
    iceberg_package = spark._jvm.org.apache.iceberg
    source_table = load_table(spark, lake.sql_name(scratch_table.source_table))
    java_catalog = iceberg_package.spark.Spark3Util.loadIcebergCatalog(
        spark._jsparkSession, lake.name
    )
    # No part of a scratch table's name has a dot.
    java_name = iceberg_package.catalog.TableIdentifier.parse(".".join(scratch_table.table))
    table_builder = java_catalog.buildTable(java_name, source_table.schema()).withPartitionSpec(
        source_table.spec()
    )
    table_builder = table_builder.withSortOrder(source_table.sortOrder()).withLocation(
        scratch_table.folder
    )
    return table_builder.withProperties(dict(properties)).create().io()


def drop_sql(table: Identifier) -> str:
    """The statement that drops a scratch table, named with its catalog. Not PURGE: that would
    delete the files of its source table.
    """
    return f"DROP TABLE IF EXISTS {identifier(*table)}"


def adopted_paths(lake: Lake, scratch_table: ScratchTable) -> frozenset[str]:
    """The files in a scratch table's folder that the source table's metadata names, by their paths
    in the folder.

    Checks every snapshot's data files, delete files, manifests and manifest lists, statistics and
    metadata files; reads the catalog and the files themselves, because a session may cache an older
    version. Reads only manifests that were written since the scratch table was made.
    Raises :class:`~icekit.common.errors.IcekitError` if the name now belongs to another table.
    """
    table_source = lake.tables.source(scratch_table.source_table)
    metadata = load_metadata(table_source)
    scratch_metadata: Json = {}
    with contextlib.suppress(IcekitError):  # it is gone or cannot be read
        scratch_metadata = load_metadata(lake.tables.source(scratch_table.table))
    table_uuid = metadata.get("table-uuid")
    ownership_record = ownership(properties_of(scratch_metadata))
    if (
        table_uuid
        and ownership_record
        and ownership_record.of_uuid
        and table_uuid != ownership_record.of_uuid
    ):
        raise IcekitError("another table has its name now")
    # A snapshot that was committed through the scratch table has its manifest list in the folder.
    older_snapshot_ids = {
        s["snapshot-id"]
        for s in scratch_metadata.get("snapshots") or ()
        if scratch_table.path_marker not in (s.get("manifest-list") or "")
    }
    referenced_paths = referenced_files(
        table_source, metadata, excluded_snapshot_ids=older_snapshot_ids
    )
    return frozenset(
        path_in_folder
        for path in referenced_paths
        if (path_in_folder := _path_in_folder(path, scratch_table)) is not None
    )


def _path_in_folder(location: str, scratch_table: ScratchTable) -> str | None:
    """A file's path in a scratch table's folder, however it is spelled; None for a file
    elsewhere.
    """
    storage_kind, _, path = normal_path_of(location)
    for spelling in (path, os.path.realpath(path) if storage_kind in LOCAL else path):
        _, path_marker, inner_path = spelling.partition(scratch_table.path_marker)
        if path_marker:
            return inner_path
    return None


def discard(lake: Lake, scratch_table: ScratchTable, io: Any, *, none_adopted: bool) -> None:
    """Drop a scratch table and remove its folder, except files that its source table has adopted;
    warns about files that stay.

    ``io`` is a FileIO that reaches the folder. ``none_adopted`` means that the source table cannot
    have adopted anything: nothing was committed to it since, or it cannot use the files in the
    folder. Safe to repeat.
    """
    kept_paths = _paths_to_keep(lake, scratch_table, none_adopted=none_adopted)
    if kept_paths is not None:
        # Most files first, then the table, then its metadata: what a kill leaves behind can be
        # found, or is small.
        with contextlib.suppress(Exception):
            _remove_files(io, f"{scratch_table.folder}/data", scratch_table, kept_paths)
    with explain_errors(lake.sql_name(scratch_table.table)):
        lake.spark.sql(drop_sql(lake.sql_name(scratch_table.table)))
    if kept_paths is None:
        return
    try:
        _remove_files(io, scratch_table.folder, scratch_table, kept_paths)
    except Exception as error:
        _warn(
            f"The files of {display_name(scratch_table.table)} could not be removed "
            f"({type(error).__name__}). Remove the folder {scratch_table.folder}."
        )
    if not kept_paths:
        remove_folders(lake.spark, scratch_table.folder)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


def _paths_to_keep(
    lake: Lake, scratch_table: ScratchTable, *, none_adopted: bool
) -> frozenset[str] | None:
    """The files that must not be removed; None if they are unknown, so nothing may be removed."""
    if not scratch_table.has_own_folder:
        _warn(f"{display_name(scratch_table.table)} has no folder of its own to remove.")
        return None
    if none_adopted:
        return frozenset()
    source_name = display_name(scratch_table.source_table)
    try:
        kept_paths = adopted_paths(lake, scratch_table)
    except Exception as error:
        why = reason(explain(error, lake.sql_name(scratch_table.source_table)))
        _warn(
            f"icekit could not check whether {source_name} needs files in {scratch_table.folder} "
            f"({why}), so it keeps them. If {source_name} does not need them, remove the folder."
        )
        return None
    if kept_paths:
        _warn(
            f"{source_name} has adopted {count(len(kept_paths), 'file')} in "
            f"{scratch_table.folder}. icekit keeps these and removes the others."
        )
    return kept_paths


def _remove_files(
    io: Any, folder: str, scratch_table: ScratchTable, kept_paths: frozenset[str]
) -> None:
    """Remove the files of a folder with the table's own FileIO, because Spark may have no file
    system for it.
    """
    if not kept_paths:
        io.deletePrefix(f"{folder}/")
        return
    for location in [str(file.location()) for file in elements(io.listPrefix(f"{folder}/"))]:
        if _path_in_folder(location, scratch_table) not in kept_paths:
            io.deleteFile(location)


def remove_folders(spark: Any, folder: str) -> None:
    """Remove a scratch table's empty folders: object stores have none; elsewhere removing files
    leaves them behind.
    """
    hadoop_path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    with contextlib.suppress(Exception):
        file_system = hadoop_path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        file_system.delete(hadoop_path, True)
        # The folder of all clones too, once it is empty.
        if not file_system.listStatus(hadoop_path.getParent()):
            file_system.delete(hadoop_path.getParent(), False)


@frozen
class StaleClone:
    """A scratch table that nobody uses any more, or whose use cannot be determined from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host (or
    before a restart, or in another container). ``ownership`` says whose it is, None if its metadata
    cannot be read.
    """

    table: Identifier
    ownership: Ownership | None
    is_dead: bool = False

    def summary(self, now_ms: int) -> str:
        """One line with the table, its age and whether its process is dead."""
        table_name = display_name(self.table)
        ownership_record = self.ownership
        if ownership_record is None:
            return f"{table_name}  unknown: its metadata cannot be read"
        age = span(max(0, now_ms - ownership_record.started_ms))
        state_text = "has ended" if self.is_dead else "cannot be checked from here"
        process_text = (
            f"process {ownership_record.owner.pid} on {ownership_record.owner.host} {state_text}"
        )
        return f"{table_name}  of {display_name(ownership_record.of)}, {age} old; {process_text}"


def stale_clones(lake: Lake, source_table: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be
    checked from here.

    Checks every table in the namespace ``icekit_scratch`` that has the properties of
    :meth:`~icekit.sandbox.scratch.ScratchTable.ownership_properties`, or those of one
    ``source_table``. Reads one metadata file for each, and needs no JVM. Leaves out tables of
    living processes.
    """
    abandoned_clones = []
    for table in lake.tables.names_in((NAMESPACE,)):
        if source_table is None or table[-1].startswith(name_prefix(source_table)):
            stale_clone = _clone_if_stale(lake, table)
            if stale_clone is not None and (
                source_table is None
                or (stale_clone.ownership and stale_clone.ownership.of == source_table)
            ):
                abandoned_clones.append(stale_clone)
    return tuple(abandoned_clones)


def remove_stale_clones(
    lake: Lake, clones: Iterable[StaleClone] | None = None
) -> tuple[StaleClone, ...]:
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns
    those clones.

    ``clones`` are some results of :func:`stale_clones`; default: all. Each is checked
    again before it is dropped. Files that the source table has adopted stay, with a warning. Raises
    :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect.
    """
    clones_to_remove = stale_clones(lake) if clones is None else tuple(clones)
    removed_clones = []
    for table in (clone.table for clone in clones_to_remove if clone.is_dead):
        require_classic(lake.spark)
        stale_clone = _clone_if_stale(lake, table)
        if stale_clone is None or stale_clone.ownership is None or not stale_clone.is_dead:
            continue
        with explain_errors(lake.sql_name(table)):
            io = load_table(lake.spark, lake.sql_name(table)).io()
        ownership_record = stale_clone.ownership
        scratch_table = ScratchTable(ownership_record.of, table, ownership_record.scratch)
        discard(lake, scratch_table, io, none_adopted=ownership_record.own_files)
        removed_clones.append(stale_clone)
    return tuple(removed_clones)


def _clone_if_stale(lake: Lake, table: Identifier) -> StaleClone | None:
    """The state of a scratch table; None if its process is alive, if it is gone, or if it does not
    belong to icekit.
    """
    try:
        ownership_record = ownership(properties_of(head(lake, table).metadata))
    except TableNotFound:
        # Its own process has just dropped it.
        return None
    except IcekitError:
        return StaleClone(table, None)
    if ownership_record is None:
        return None
    is_dead = ownership_record.owner.has_ended()
    return (
        StaleClone(table, ownership_record, is_dead)
        if is_dead or not ownership_record.owner.is_checkable()
        else None
    )
