"""Drop a scratch table, and remove what it wrote unless the source table needs it now."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any

from icekit.catalog import Lake
from icekit.engine.bridge import elements
from icekit.engine.errors import explain, reason
from icekit.errors import IcekitError
from icekit.facts.manifests import entries, manifest_list
from icekit.facts.metadata import Json, named_files
from icekit.facts.metadata_file import load_metadata
from icekit.facts.paths import LOCAL, normal
from icekit.sandbox.scratch import OF_UUID, marker
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count


def drop_statement(lake: Lake, made: Identifier) -> str:
    """The statement that drops a scratch table from the catalog. Not PURGE: that would delete the files of its source table."""
    return drop_sql(lake.sql_name(made))


def drop_sql(table: Identifier) -> str:
    """The same for a table name that includes the catalog."""
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
