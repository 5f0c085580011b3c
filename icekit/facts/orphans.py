"""Find files that no snapshot references, and tables that share a location, so that no table's file
counts as an orphan of another.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import os
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from icekit.catalog.tables import SessionTables
from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain
from icekit.errors import MetadataUnreadable, NotATable, TableNotFound, first_line
from icekit.facts.manifests import entries, manifest_list
from icekit.facts.metadata import Json, named_files, specs
from icekit.facts.paths import LOCAL, normal, overlapping, place
from icekit.facts.storage import SharedPlace, Sharing, StorageFacts
from icekit.sql import Identifier, call, display_name, identifier, orphan_arguments
from icekit.units import count, span
from icekit.waiting import each_within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog.lake import Lake
    from icekit.catalog.tables import TableSource

# remove_orphan_files ignores younger files: a writer may be about to commit them.
ORPHAN_AGE = dt.timedelta(days=3)
EXAMPLES = 5
# Names that Hadoop hides (HiddenPathFilter).
_HIDDEN = ("_", ".")
#: The most orphans whose size is read, one request to the storage each; of more, these are a
# sample.
WEIGHED = 2_000
_WEIGHED_AT_ONCE = 16
_WEIGHING_SECONDS = 60.0
#: A choice: the most old files on a disk, and references to files in metadata, that are compared
# without Spark.
_FEW_FILES = 200_000


def list_orphans(
    spark: SparkSession, table: Identifier, location: str, now: dt.datetime | None = None
) -> StorageFacts:
    """Count orphan files with the dry run of ``remove_orphan_files``, and measure their sizes;
    ``table`` includes its catalog.

    Orphans are three days old or older, the procedure's default. Lists the complete location
    and reads every snapshot's manifests, in Spark. At most :data:`WEIGHED` files are measured,
    chosen by a hash of their paths; none without the JVM bridge.
    """
    from pyspark.sql import functions as F

    older_than = orphans_before(now)
    statement = call(
        table[0],
        "remove_orphan_files",
        **orphan_arguments(display_name(table[1:]), location),
        older_than=older_than,
    )
    try:
        listed = spark.sql(statement)
        total = listed.count()
        path = F.col(listed.columns[0])
        chosen = [
            str(row[0]) for row in listed.orderBy(F.xxhash64(path), path).limit(WEIGHED).collect()
        ]
        sizes = _sizes(spark, table, chosen)
    except Exception as error:
        raise explain(error, table) from error
    return StorageFacts(
        int(older_than.timestamp() * 1000),
        total,
        tuple(sorted(chosen)[:EXAMPLES]),
        weighed(total, sizes),
        len(sizes),
    )


def orphans_on_disk(
    metadata: Json, latest: Callable[[], tuple[TableSource, Json]], now: dt.datetime | None = None
) -> StorageFacts | None:
    """Find the files that :func:`list_orphans` finds, and measure all, for a table on a disk of
    this machine; starts no Spark.

    ``latest`` reads the table's metadata again, after the files are listed: what another writer
    commits meanwhile is no orphan.

    None if only Spark can tell: the storage is elsewhere, a symbolic link is in it, metadata of
    format version 1 lists manifests inline, or there are more than :data:`_FEW_FILES` old files or
    references. It also leaves to Spark to report damaged metadata. Hidden files are left out as by
    DeleteOrphanFilesSparkAction (PartitionAwareHiddenPathFilter).
    """
    older_than = orphans_before(now)
    shown = tuple(
        f"{part.name}="
        for spec in specs(metadata)
        for part in spec.fields
        if part.name.startswith(_HIDDEN)
    )
    old = _old_files(str(metadata["location"]), older_than.timestamp(), shown)
    if old is None:
        return None
    try:
        source, last = latest()
        if last["location"] != metadata["location"] or not all(
            snapshot.get("manifest-list") for snapshot in last.get("snapshots") or ()
        ):
            return None
        for index, name in enumerate(referenced_files(source, last) if old else ()):
            if index >= _FEW_FILES:
                return None
            old.pop(normal(name).path, None)
    except MetadataUnreadable:
        return None  # a snapshot may have expired meanwhile
    examples = tuple(f"file:{path}" for path in sorted(old)[:EXAMPLES])
    return StorageFacts(
        int(older_than.timestamp() * 1000), len(old), examples, sum(old.values()), len(old)
    )


def _old_files(location: str, older_than: float, shown: tuple[str, ...]) -> dict[str, int] | None:
    """Paths and sizes of a folder's files from before a moment (seconds since 1970); ``shown`` are
    beginnings of names that are not hidden.
    """
    family, _, top = normal(location)
    if family not in LOCAL or os.path.realpath(top) != top:
        return None
    sizes: dict[str, int] = {}
    folders = [top]
    try:
        while folders:
            with os.scandir(folders.pop()) as listed:
                for entry in listed:
                    if entry.is_symlink() or len(sizes) > _FEW_FILES:
                        return None
                    if entry.name.startswith(_HIDDEN) and not entry.name.startswith(shown):
                        continue
                    if entry.is_dir():
                        folders.append(entry.path)
                    elif (about := entry.stat()).st_mtime < older_than:
                        sizes[entry.path] = about.st_size
    except OSError:
        return None  # Spark reports it, if it cannot list the folder either
    return sizes


def referenced_files(source: TableSource, metadata: Json) -> Iterator[str]:
    """Every file that a table's metadata file and snapshots reference; some data files are named
    several times.
    """
    yield from named_files(metadata, source.metadata_location)
    yield posixpath.join(str(metadata["location"]), "metadata", "version-hint.text")
    seen: set[str] = set()
    for snapshot in metadata.get("snapshots") or ():
        path = snapshot["manifest-list"]
        for manifest in manifest_list(source.read(path), path):
            if (name := manifest["manifest_path"]) not in seen:
                seen.add(name)
                yield name
                yield from (
                    entry["data_file"]["file_path"]
                    for entry in entries(source.read(name), name, frozenset({"file_path"}))
                )


def orphans_before(now: dt.datetime | None = None) -> dt.datetime:
    """A file must be older than this moment to count as an orphan now."""
    return ((now or dt.datetime.now(dt.UTC)) - ORPHAN_AGE).replace(microsecond=0)


def weighed(count: int, sizes: Sequence[int]) -> int | None:
    """The total bytes of ``count`` files from the sizes of some, with their mean for the rest; None
    if there are files but no sizes.
    """
    if not count or len(sizes) >= count:
        return sum(sizes)
    return round(count * sum(sizes) / len(sizes)) if sizes else None


def _sizes(spark: SparkSession, table: Identifier, paths: Sequence[str]) -> list[int]:
    """Bytes of each file from the table's own FileIO; files without an answer in time are left
    out.
    """
    if not paths or not has_bridge(spark):
        return []
    from py4j.protocol import Py4JError

    io: Any = load_table(spark, table).io()

    lengths: list[int] = []

    def weigh(path: str) -> None:
        with contextlib.suppress(Py4JError):  # the file is gone, or access is denied
            lengths.append(int(io.newInputFile(path).getLength()))

    each_within(_WEIGHING_SECONDS, paths, weigh, at_once=min(_WEIGHED_AT_ONCE, len(paths)))
    return list(lengths)


Say = Callable[[str], None]
T = TypeVar("T")
#: Reads a table's metadata JSON, as :func:`icekit.facts.metadata_file.load_metadata` does.
Load = Callable[["TableSource"], Json]

#: Choices: the time limit for comparing the tables of a catalog, in seconds, and the number of
# threads.
COMPARING_SECONDS = 900.0
#: A choice: how long the locations of other tables are remembered while many tables are checked in
# turn.
REMEMBERED_SECONDS = 300.0
_AT_ONCE = 8
_SAYING_SECONDS = 10.0
#: The number of unreadable tables that a sentence names.
_NAMED = 3

#: The table properties that say where files are written, in addition to the location
# (LocationProviders, TableProperties).
_PATHS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True)
class _Known:
    """The paths of a table, the folders of the files that its metadata file names, and when they
    were read (monotonic seconds).
    """

    at: float = -math.inf
    declared: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass
class _Memory:
    """The known paths of a catalog's tables, and when the tables were listed: a report asks for
    each table in turn.
    """

    names: list[Identifier] = field(default_factory=list)
    listed_at: float = -math.inf
    tables: dict[Identifier, _Known] = field(default_factory=dict)


# Keyed by the catalog object, which a lake in another thread shares.
_memories: WeakKeyDictionary[Any, _Memory] = WeakKeyDictionary()


def declared_paths(metadata: Json) -> tuple[str, ...]:
    """The declared paths of a table's files: its location, and the paths in its properties."""
    properties = metadata.get("properties") or {}
    return (
        str(metadata["location"]),
        *(str(properties[key]) for key in _PATHS if properties.get(key)),
    )


@dataclass(frozen=True, kw_only=True)
class TableQuery:
    """Limits for reading the other tables of a catalog: a time in seconds, ``say`` for progress,
    and ``stopped`` to end early.
    """

    seconds: float = COMPARING_SECONDS
    say: Say | None = None
    stopped: Callable[[], bool] = lambda: False


def sharing(
    lake: Lake,
    table: Identifier,
    load: Load,
    asking: TableQuery | None = None,
    *,
    max_age: float = 0.0,
) -> Sharing:
    """Compare a table's paths with those of every other table of its catalog, clones included.

    Another table shares a place if its location or a path in its properties equals, contains or
    lies inside one of this table's paths, or if such a path contains one of its metadata, manifest
    list or statistics files that this table does not name. Reads one metadata file per table, in a
    few threads, without a JVM if the catalog needs none; ignores data files and views.
    ``unchecked`` names tables that could not be read in time. Results of the last ``max_age``
    seconds are reused. Raises the errors of :mod:`icekit.errors` if the table itself cannot be
    read.
    """
    source = lake.tables.source(table)
    metadata = load(source)
    mine = [place(path) for path in declared_paths(metadata)]
    own_files = named_files(metadata, source.metadata_location)
    memory = _memories.setdefault(lake.tables, _Memory())
    since = time.monotonic() - max_age

    def names() -> list[Identifier]:
        if memory.listed_at <= since or table not in memory.names:
            memory.names, memory.listed_at = lake.tables.names(), time.monotonic()
        return memory.names

    def meeting(name: Identifier, paths: Iterable[str]) -> SharedPlace | None:
        for path in paths:
            if any(overlapping(place(path), own) for own in mine):
                return SharedPlace(display_name(name), path)
        return None

    def compare(name: Identifier) -> SharedPlace | None:
        known = memory.tables.get(name, _Known())
        # Only a negative answer is reused: the other table may be gone, or this table may name the
        # same files.
        if known.at > since and not meeting(name, (*known.declared, *known.folders)):
            return None
        known, files = _read(lake, name, load, memory)
        return meeting(name, known.declared) or meeting(name, _folders(files - own_files))

    compared, unchecked = of_others(lake, table, compare, "comparing locations", asking, names)
    shared = sorted(
        (each for each in compared.values() if each is not None), key=lambda each: each.table
    )
    return Sharing(tuple(shared), unchecked)


def of_others(
    lake: Lake,
    table: Identifier,
    ask: Callable[[Identifier], T],
    what: str,
    asking: TableQuery | None = None,
    names: Callable[[], list[Identifier]] | None = None,
) -> tuple[dict[Identifier, T], str | None]:
    """The result of ``ask`` for each other table of a table's catalog, in a few threads, and which
    tables could not be checked (None: all were).

    A table that was dropped after the listing is left out. A table that is still listed but not
    found counts as unchecked: some catalogs answer so without read permission. ``say`` gets the
    progress of ``what``; reading ends once ``stopped`` returns true.
    """
    asking = asking or TableQuery()
    try:
        listed = (names or lake.tables.names)()
    except Exception as error:
        return {}, f"the tables of catalog {lake.name!r} cannot be listed: {first_line(error)}"
    others = [name for name in listed if name != table]
    if table not in listed:
        location = lake.tables.source(table).metadata_location
        others = [name for name in listed if not _is_alias(lake, name, table, location)]
    if len(others) == len(listed):
        return (
            {},
            f"the list of the tables of catalog {lake.name!r} is not complete: "
            f"{display_name(table)} is not in it",
        )
    outcomes = _each(others, ask, what, asking)
    errors = {name: each for name, each in outcomes.items() if isinstance(each, Exception)}
    missing = {name for name, error in errors.items() if isinstance(error, TableNotFound)}
    unread = {name: first_line(errors[name]) for name in errors.keys() - missing}
    if missing:
        try:
            listed = lake.tables.names()
        except Exception:
            listed = list(missing)
        unread |= dict.fromkeys(
            missing.intersection(listed), "the catalog lists it, but says that it does not exist"
        )
    answers = {name: each for name, each in outcomes.items() if not isinstance(each, Exception)}
    return answers, _unchecked(unread, len(outcomes), len(others), asking.seconds)


def _is_alias(lake: Lake, name: Identifier, table: Identifier, metadata_location: str) -> bool:
    """Tell whether a name is another spelling of an unlisted table, in a catalog that ignores
    case.
    """
    if ".".join(name).casefold() != ".".join(table).casefold():
        return False
    try:
        return lake.tables.source(name).metadata_location == metadata_location
    except Exception:
        return False  # it is also compared, which reports the error


def _read(
    lake: Lake, name: Identifier, load: Load, memory: _Memory
) -> tuple[_Known, frozenset[str]]:
    """The paths of another table, read again, and the files that its metadata file names."""
    began = time.monotonic()
    try:
        source = lake.tables.source(name)
        metadata = load(source)
        files = named_files(metadata, source.metadata_location)
        known = _Known(began, declared_paths(metadata), _folders(files))
    except NotATable:
        files, known = frozenset(), _Known(began, location_of_another_format(lake, name))
    memory.tables[name] = known
    return known, files


def _folders(files: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({file.rpartition("/")[0] for file in files}))


def location_of_another_format(lake: Lake, name: Identifier) -> tuple[str, ...]:
    """The location of a table of another format, which a session's catalog lists too; none for a
    view.
    """
    if not isinstance(lake.tables, SessionTables):
        return ()
    described = lake.spark.sql(
        f"DESCRIBE TABLE EXTENDED {identifier(*lake.sql_name(name))}"
    ).collect()
    return tuple(
        str(row["data_type"])
        for row in described
        if row["col_name"] == "Location" and row["data_type"]
    )


def _each(
    names: list[Identifier], ask: Callable[[Identifier], T], what: str, asking: TableQuery
) -> dict[Identifier, T | Exception]:
    """The answers of tables, or the errors, without the tables that were not reached in time."""
    outcomes: dict[Identifier, T | Exception] = {}
    last_said = time.monotonic()

    def work(name: Identifier) -> None:
        try:
            outcomes[name] = ask(name)
        except Exception as error:
            outcomes[name] = error

    def goes_on() -> bool:
        nonlocal last_said
        if asking.say is not None and time.monotonic() - last_said >= _SAYING_SECONDS:
            last_said = time.monotonic()
            asking.say(f"  {what}: {len(outcomes):,} of {count(len(names), 'table')}")
        return not asking.stopped()

    each_within(asking.seconds, names, work, at_once=min(_AT_ONCE, len(names)), goes_on=goes_on)
    return dict(outcomes)


def _unchecked(
    unread: Mapping[Identifier, str], reached: int, of: int, seconds: float
) -> str | None:
    reasons = [
        f"{display_name(name)} cannot be read: {why}"
        for name, why in sorted(unread.items())[:_NAMED]
    ]
    if len(unread) > _NAMED:
        reasons.append(f"{count(len(unread) - _NAMED, 'more table')} cannot be read")
    if reached < of:
        reasons.append(
            f"only {reached:,} of {count(of, 'table')} compared within {span(seconds * 1000)}"
        )
    return "; ".join(reasons) or None
