"""Name the scratch tables of trials, and remove them with their files."""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from icekit.catalog import Lake
from icekit.engine.bridge import elements
from icekit.engine.errors import explain, reason
from icekit.errors import IcekitError, InvalidName
from icekit.facts.manifests import entries, manifest_list
from icekit.facts.metadata import Json, named_files
from icekit.facts.metadata_file import load_metadata
from icekit.facts.paths import LOCAL, normal
from icekit.owner import Owner
from icekit.sql import Identifier, display_name, identifier, parse_identifier
from icekit.units import count

#: The namespace of scratch tables, and the name of the folder for theirs.
NAMESPACE = "icekit_scratch"

#: Table properties of a scratch table: its source table, who made it, when, where it writes, and
# whether the source table cannot need those files.
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
    """The common start of the names of a table's scratch tables: every catalog and storage accepts
    these characters.
    """
    return re.sub(r"[^a-z0-9_]", "_", table[-1].lower())[:40] + "_"


def scratch_name(table: Identifier) -> Identifier:
    """A new, unique name for a scratch table of ``table``."""
    return (
        NAMESPACE,
        f"{stem(table)}{time.strftime('%Y%m%d%H%M%S', time.gmtime())}_{uuid.uuid4().hex[:8]}",
    )


def scratch_folder(location: str, made: Identifier) -> str:
    """The folder that a scratch table writes to: next to the location of its table; inside, if the
    location is a complete bucket.
    """
    location = location.rstrip("/")
    home = location.rpartition("/")[0] if urlsplit(location).path.strip("/") else location
    return f"{home}/{NAMESPACE}/{made[-1]}"


def marker(made: Identifier) -> str:
    """A string that the path of every file in a scratch table's own folder contains, and no other
    path.
    """
    return f"/{NAMESPACE}/{made[-1]}/"


def owned(
    table: Identifier,
    scratch: str | None = None,
    uuid: str | None = None,
    *,
    own_files: bool = False,
) -> dict[str, str]:
    """The table properties by which :func:`icekit.sandbox.stale.stale_clones` finds a scratch table
    whose process died.

    ``table`` is the source table, named with its catalog, ``uuid`` its UUID. ``scratch`` is the
    folder, as :func:`scratch_folder` names it; without a folder only the entry in the catalog is
    removed. ``own_files``: no file in the folder is ever added to the source table (a clone's files
    may be), so the folder is removed without looking for such files.
    """
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
        # Or a session with spark.wap.branch or spark.wap.id would read and write something else
        # than the scratch table's own snapshot.
        "write.wap.enabled": "false",
    }
    return {key: value for key, value in properties.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The properties of a scratch table, parsed; ``of`` is without its catalog, ``started_ms``
    since 1970; unknown values are None.

    ``own_files``: the source table cannot need the files in its folder.
    """

    of: Identifier | None = None
    owner: Owner | None = None
    started_ms: int | None = None
    scratch: str | None = None
    own_files: bool = False


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Parse the output of :func:`owned`; None for a table that is not a scratch table."""
    if OF not in properties:
        return None
    of: Identifier | None = None
    with contextlib.suppress(InvalidName):
        of = parse_identifier(properties[OF])[1:]
    pid, started = _number(properties.get(PID)), _number(properties.get(PID_STARTED))
    # Without a process id nobody can see whether the process is running.
    host = properties.get(HOST, "") if pid is not None else ""
    boot_id, namespace = properties.get(BOOT_ID), properties.get(PID_NAMESPACE)
    return Ownership(
        of,
        Owner(host, boot_id, namespace, pid or 0, started),
        _number(properties.get(STARTED_AT)),
        properties.get(SCRATCH),
        properties.get(OWN_FILES) == "true",
    )


def is_clone_of(
    made: Identifier, properties: Mapping[str, str], table: Identifier, uuid: str | None
) -> bool:
    """Tell whether a table is a scratch table of ``table``: by its name and folder too, because
    anybody can copy properties.
    """
    whose = ownership(properties)
    if whose is None or made[:-1] != (NAMESPACE,) or not f"{whose.scratch}/".endswith(marker(made)):
        return False
    known = properties.get(OF_UUID)
    return known == uuid if known and uuid else whose.of == table


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None


def drop_sql(table: Identifier) -> str:
    """The statement that drops a scratch table, named with its catalog. Not PURGE: that would
    delete the files of its source table.
    """
    return f"DROP TABLE IF EXISTS {identifier(*table)}"


def adopted(lake: Lake, made: Identifier, of: Identifier) -> frozenset[str]:
    """The files in a scratch table's folder that the source table's metadata names, by their paths
    in the folder.

    Checks every snapshot's data files, delete files, manifests and manifest lists, statistics and
    metadata files; reads the catalog and the files themselves, because a session may cache an older
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
    old = {
        s["snapshot-id"]
        for s in known.get("snapshots") or ()
        if mark not in (s.get("manifest-list") or "")
    }
    lists = [
        s["manifest-list"]
        for s in metadata.get("snapshots") or ()
        if s.get("manifest-list") and s["snapshot-id"] not in old
    ]
    manifests = {
        m["manifest_path"]
        for path in lists
        for m in manifest_list(source.read(path), path)
        if m["added_snapshot_id"] not in old
    }
    paths = [*named_files(metadata, source.metadata_location), *manifests]
    for path in sorted(manifests):
        paths += [
            entry["data_file"]["file_path"]
            for entry in entries(source.read(path), path, frozenset({"file_path"}))
        ]
    return frozenset(inside for path in paths if (inside := _inside(path, mark)) is not None)


def _inside(location: str, mark: str) -> str | None:
    """A file's path in a scratch table's folder, however it is spelled; None for a file
    elsewhere.
    """
    family, _, path = normal(location)
    real = os.path.realpath(path) if family in LOCAL else path
    return next(
        (spelling.partition(mark)[2] for spelling in (path, real) if mark in spelling), None
    )


def _metadata_of(lake: Lake, made: Identifier) -> Json:
    """The metadata of a scratch table; empty if it is gone or cannot be read."""
    try:
        return load_metadata(lake.tables.source(made))
    except IcekitError:
        return {}


def discard(
    lake: Lake,
    made: Identifier,
    of: Identifier | None,
    scratch: str | None,
    io: Any,
    *,
    none_adopted: bool = False,
) -> None:
    """Drop a scratch table and remove its folder, except files that ``of`` has adopted; warns about
    files that stay.

    ``io`` is a FileIO that reaches the folder. ``none_adopted`` means that ``of`` cannot have
    adopted anything: nothing was committed to it since, or it cannot use the files in the folder.
    Safe to repeat.
    """
    warning = None
    kept: frozenset[str] | None = None
    if not scratch or not f"{scratch}/".endswith(marker(made)):
        warning = f"{display_name(made)} has no folder of its own to remove."
    elif none_adopted:
        kept = frozenset()
    else:
        kept, warning = _adopted(lake, made, of, scratch)
    if kept is not None:
        # Most files first, then the table, then its metadata: what a kill leaves behind can be
        # found, or is small.
        with contextlib.suppress(Exception):
            _remove(io, f"{scratch}/data", made, kept)
    try:
        lake.spark.sql(drop_sql(lake.sql_name(made)))
    except Exception as error:
        raise explain(error, lake.sql_name(made)) from None
    if scratch and kept is not None:
        try:
            _remove(io, scratch, made, kept)
        except Exception as error:
            warning = (
                f"The files of {display_name(made)} could not be removed "
                f"({type(error).__name__}). Remove the folder {scratch}."
            )
        if not kept:
            remove_folders(lake.spark, scratch)
    if warning:
        warnings.warn(warning, stacklevel=2)


def _adopted(
    lake: Lake, made: Identifier, of: Identifier | None, scratch: str
) -> tuple[frozenset[str] | None, str | None]:
    """The files that must not be removed, and a sentence about them; None if they are unknown, so
    nothing may be removed.
    """
    name = display_name(of) if of else "its table"
    try:
        if of is None:
            raise IcekitError("its properties do not name it")
        kept = adopted(lake, made, of)
    except Exception as error:
        why = reason(explain(error, lake.sql_name(of or made)))
        return (
            None,
            f"icekit could not check whether {name} needs files in {scratch} ({why}), so it keeps "
            f"them. If {name} does not need them, remove the folder.",
        )
    adopting = (
        f"{name} has adopted {count(len(kept), 'file')} in {scratch}. icekit keeps these and "
        "removes the others."
    )
    return kept, adopting if kept else None


def _remove(io: Any, folder: str, made: Identifier, kept: frozenset[str]) -> None:
    """Remove the files of a folder with the table's own FileIO, because Spark may have no file
    system for it.
    """
    if not kept:
        io.deletePrefix(f"{folder}/")
        return
    for location in [str(file.location()) for file in elements(io.listPrefix(f"{folder}/"))]:
        if _inside(location, marker(made)) not in kept:
            io.deleteFile(location)


def remove_folders(spark: Any, folder: str) -> None:
    """Remove a scratch table's empty folders: object stores have none; elsewhere removing files
    leaves them behind.
    """
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)
    with contextlib.suppress(Exception):
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        files.delete(path, True)
        # The folder of all clones too, once it is empty.
        if not files.listStatus(path.getParent()):
            files.delete(path.getParent(), False)
