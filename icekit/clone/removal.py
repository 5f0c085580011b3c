"""Drop scratch tables, also those whose process died, and remove what they wrote unless the table has come to need it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from icekit.catalog import Lake
from icekit.clone.scratch import NAMESPACE, OF_UUID, marker, ownership, stem
from icekit.engine.bridge import elements, has_bridge, load_table
from icekit.engine.errors import explain, reason
from icekit.errors import CloneRefused, IcekitError, TableNotFound
from icekit.facts.collect import load_metadata
from icekit.facts.manifests import contains, entries, manifest_list
from icekit.facts.metadata import Json, named_files
from icekit.owner import Owner
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count, span


def drop_statement(lake: Lake, made: Identifier) -> str:
    """The statement that takes a scratch table out of the catalog. Not PURGE: that would delete the files of its table."""
    return f"DROP TABLE IF EXISTS {identifier(*lake.sql_name(made))}"


def adopted(lake: Lake, made: Identifier, of: Identifier) -> frozenset[str]:
    """The files in a scratch table's folder that its table's metadata names, by their paths in the folder.

    Looks at every snapshot's data files, delete files, manifests and manifest lists, at statistics
    and metadata files; reads the catalog and the files themselves, as a session may have an older
    copy. Of the manifests only those are read that were written since the scratch table was made.
    Raises :class:`~icekit.errors.IcekitError` if the name is another table's by now.
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
        raw = source.read(path)
        if contains(raw, path, mark):
            paths += [entry["data_file"]["file_path"] for entry in entries(raw, path, frozenset({"file_path"}))]
    return frozenset(path.partition(mark)[2] for path in paths if mark in path)


def _metadata_of(lake: Lake, made: Identifier) -> Json:
    """The metadata of a scratch table; empty if it is gone or cannot be read."""
    try:
        return load_metadata(lake.tables.source(made))
    except IcekitError:
        return {}


def discard(lake: Lake, made: Identifier, of: Identifier | None, scratch: str | None, io: Any, *, none_adopted: bool = False) -> None:
    """Drop a scratch table and remove its folder, but for files that ``of`` has adopted; says what stays in a warning.

    ``io`` is a FileIO that reaches the folder. ``none_adopted`` says that ``of`` cannot have adopted anything, as nothing was
    committed to it since, or as what is in the folder is of no use to it. Safe to repeat.
    """
    said = None
    kept: frozenset[str] | None = None
    if not scratch or not f"{scratch}/".endswith(marker(made)):
        said = f"{display_name(made)} has no folder of its own that could be removed."
    elif none_adopted:
        kept = frozenset()
    else:
        kept, said = _adopted(lake, made, of, scratch)
    if scratch and kept is not None:
        # The bulk goes before the table, and the table before its metadata: what a kill leaves can be listed, or is small.
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
            said = f"What {display_name(made)} wrote could not be removed ({type(error).__name__}): remove the folder {scratch}."
        if not kept:
            remove_folders(lake.spark, scratch)
    if said:
        warnings.warn(said, stacklevel=2)


def _adopted(lake: Lake, made: Identifier, of: Identifier | None, scratch: str) -> tuple[frozenset[str] | None, str | None]:
    """What may not be removed, and how to say so; None if it is not known, and nothing may."""
    name = display_name(of) if of else "its table"
    try:
        if of is None:
            raise IcekitError("its properties do not name it")
        kept = adopted(lake, made, of)
    except Exception as error:
        why = reason(explain(error, lake.sql_name(of or made)))
        return None, f"It is not known whether {name} needs files in {scratch} ({why}), so they are kept; remove the folder if not."
    return kept, f"{name} has adopted {count(len(kept), 'file')} in {scratch}; these are kept, the others removed." if kept else None


def _remove(io: Any, folder: str, made: Identifier, kept: frozenset[str]) -> None:
    """Remove the files of a folder: by the table's own FileIO, as Spark may have no file system for it."""
    if not kept:
        io.deletePrefix(f"{folder}/")
        return
    for location in [str(file.location()) for file in elements(io.listPrefix(f"{folder}/"))]:
        if location.partition(marker(made))[2] not in kept:
            io.deleteFile(location)


def remove_folders(spark: Any, folder: str) -> None:
    """Remove a scratch table's empty folders: an object store has none, elsewhere a removal of files leaves them."""
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
    """A scratch table that nobody uses any more, or of which that cannot be told from here.

    ``is_dead`` is True if its process is known to have ended, False if it ran on another host
    (or before a restart, or in another container). ``of`` is the table it was made of,
    ``started_ms`` when it was made, since 1970; what is not known is None. ``drop`` takes it
    out of the catalog, and never with PURGE; ``scratch`` is the folder that is its own, and ``own_files``
    says that the table cannot have come to need what is in it.
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
        """Milliseconds since it was made; None if that is not known."""
        return None if self.started_ms is None else max(0, now - self.started_ms)

    def line(self, now: int) -> str:
        """One line that says what it is and how old."""
        age = self.age_ms(now)
        old = "of unknown age" if age is None else f"{span(age)} old"
        of = display_name(self.of) if self.of else "an unknown table"
        if self.owner is None:
            whose = "unknown: its metadata cannot be read"
        elif self.is_dead:
            whose = f"dead: process {self.owner.pid} has ended"
        else:
            whose = f"unknown: process {self.owner.pid} on {self.owner.host or 'an unknown host'} cannot be seen from here"
        return f"{display_name(self.table)}  of {of}, {old}; {whose}"


def stale_clones(lake: Lake, of: Identifier | None = None) -> tuple[StaleClone, ...]:
    """The scratch tables that dead processes left behind, and those of processes that cannot be seen from here.

    Every table in the namespace ``icekit_scratch`` that carries the properties of
    :func:`~icekit.clone.owner_properties` is looked at, or those ``of`` one table. Reads one
    metadata file each, and needs no JVM. What belongs to a living process is left out.
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
    """Drop the stale clones whose process is known to have ended, and remove their folders; returns those.

    ``clones`` are some that :func:`stale_clones` has found; default: all. Each is looked at
    again before it is dropped. What the table has adopted since stays, with a warning. Raises
    :class:`~icekit.errors.CloneRefused` where there is no JVM bridge.
    """
    wanted = stale_clones(lake) if clones is None else tuple(clones)
    removed = []
    for table in (c.table for c in wanted if c.is_dead):
        if not has_bridge(lake.spark):
            raise CloneRefused(
                "Removing a clone's files needs the JVM bridge, which Spark Connect has not; run this in a Spark session of your own."
            )
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
    """What has become of a scratch table; None if it lives, or is none of icekit's."""
    drop = drop_statement(lake, table)
    try:
        whose = ownership(load_metadata(lake.tables.source(table)).get("properties") or {})
    except TableNotFound:
        raise
    except IcekitError:
        return StaleClone(table, None, None, None, None, False, drop)
    if whose is None or (whose.owner.is_visible() and not whose.owner.has_ended()):
        return None
    return StaleClone(table, whose.of, whose.owner, whose.started_ms, whose.scratch, whose.owner.has_ended(), drop, whose.own_files)
