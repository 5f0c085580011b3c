"""Name the scratch tables of trials, and remove them with their files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from icekit.catalog import Lake
from icekit.engine.bridge import elements
from icekit.engine.errors import explain, explaining, reason
from icekit.errors import IcekitError
from icekit.facts.metadata import Json
from icekit.facts.metadata_file import load_metadata
from icekit.facts.orphans import referenced_files
from icekit.facts.paths import LOCAL, normal
from icekit.owner import Owner
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

#: The namespace of scratch tables, and the name of the folder for theirs.
NAMESPACE = "icekit_scratch"

#: The table property by which a scratch table is known: an :class:`Ownership`, as JSON.
OWNED = "icekit.clone"


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


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose a scratch table is: its source table (without its catalog, and its UUID), the process
    that made it, and when (milliseconds since 1970).

    ``scratch`` is its folder, as :func:`scratch_folder` names it. ``own_files``: no file in the
    folder is ever added to the source table (a clone's files may be), so the folder is removed
    without looking for such files.
    """

    of: Identifier
    of_uuid: str | None
    owner: Owner
    started_ms: int
    scratch: str
    own_files: bool


def owned(
    table: Identifier, scratch: str, uuid: str | None = None, *, own_files: bool = False
) -> dict[str, str]:
    """The table properties by which :func:`icekit.sandbox.stale.stale_clones` finds a scratch table
    whose process died; the arguments are those of an :class:`Ownership`.
    """
    started_ms = time.time_ns() // 1_000_000
    whose = Ownership(table, uuid, Owner.here(), started_ms, scratch, own_files)
    return {
        # Always set: a clone starts with the properties of its source table.
        OWNED: json.dumps(asdict(whose)),
        # Or a session with spark.wap.branch or spark.wap.id would read and write something else
        # than the scratch table's own snapshot.
        "write.wap.enabled": "false",
    }


_OWNERSHIP = TypeAdapter(Ownership)


def ownership(properties: Mapping[str, str]) -> Ownership | None:
    """Parse the output of :func:`owned`; None for a table that is not a scratch table."""
    try:
        return _OWNERSHIP.validate_json(properties.get(OWNED, ""))
    except ValidationError:
        return None


def is_clone_of(
    made: Identifier, properties: Mapping[str, str], table: Identifier, uuid: str | None
) -> bool:
    """Tell whether a table is a scratch table of ``table``: by its name and folder too, because
    anybody can copy properties.
    """
    whose = ownership(properties)
    if whose is None or made[:-1] != (NAMESPACE,) or not f"{whose.scratch}/".endswith(marker(made)):
        return False
    return whose.of_uuid == uuid if whose.of_uuid and uuid else whose.of == table


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
    known: Json = {}
    with contextlib.suppress(IcekitError):  # it is gone or cannot be read
        known = load_metadata(lake.tables.source(made))
    uuid, whose = metadata.get("table-uuid"), ownership(known.get("properties") or {})
    if uuid and whose and whose.of_uuid and uuid != whose.of_uuid:
        raise IcekitError("another table has its name now")
    # A snapshot that was committed through the scratch table has its manifest list in the folder.
    old = {
        s["snapshot-id"]
        for s in known.get("snapshots") or ()
        if mark not in (s.get("manifest-list") or "")
    }
    paths = referenced_files(source, metadata, without=old)
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


def discard(
    lake: Lake,
    made: Identifier,
    of: Identifier,
    scratch: str,
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
    if not f"{scratch}/".endswith(marker(made)):
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
    with explaining(lake.sql_name(made)):
        lake.spark.sql(drop_sql(lake.sql_name(made)))
    if kept is not None:
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
    lake: Lake, made: Identifier, of: Identifier, scratch: str
) -> tuple[frozenset[str] | None, str | None]:
    """The files that must not be removed, and a sentence about them; None if they are unknown, so
    nothing may be removed.
    """
    name = display_name(of)
    try:
        kept = adopted(lake, made, of)
    except Exception as error:
        why = reason(explain(error, lake.sql_name(of)))
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
