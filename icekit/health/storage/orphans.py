"""Find files that no snapshot references, and tables that share a location, so that no table's file
counts as an orphan of another.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import posixpath
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from icekit.common.errors import NotATable, TableNotFound, first_line
from icekit.common.sql import Identifier, call_sql, display_name, identifier, orphan_arguments
from icekit.common.units import count, span
from icekit.common.waiting import run_each_within
from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain_errors
from icekit.engine.metadata_tables import sample_paths
from icekit.engine.tables import SessionTables
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.facts.storage import EXAMPLES, SharedPlace, Sharing, StorageFacts
from icekit.iceberg.manifests import (
    Record,
    files_of,
    manifest_list,
    read_contents_ahead,
    read_manifests_ahead,
)
from icekit.iceberg.metadata import Json, directly_named_files, properties_of
from icekit.iceberg.paths import folder_spellings, may_overlap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.engine.lake import Lake
    from icekit.engine.tables import TableSource

# remove_orphan_files ignores younger files: a writer may be about to commit them.
ORPHAN_AGE = dt.timedelta(days=3)
#: The most orphans whose size is read, one request to the storage each; of more, these are a
#: sample.
MOST_MEASURED = 2_000
_MEASURING_THREADS = 16
_MEASURING_SECONDS = 60.0


def list_orphans(spark: SparkSession, table: Identifier, location: str) -> StorageFacts:
    """Count orphan files with the dry run of ``remove_orphan_files``, and measure their sizes;
    ``table`` includes its catalog.

    Orphans are three days old or older, the procedure's default. Lists the complete location
    and reads every snapshot's manifests, in Spark. At most :data:`MOST_MEASURED` files are
    measured, chosen by a hash of their paths; none without the JVM bridge.
    """
    cutoff = orphan_cutoff()
    dry_run_sql = call_sql(
        table[0],
        "remove_orphan_files",
        **orphan_arguments(display_name(table[1:]), location),
        older_than=cutoff,
    )
    with explain_errors(table):
        orphan_files = spark.sql(dry_run_sql).toDF("file_path")
        orphan_count = orphan_files.count()
        measured_paths = sample_paths(orphan_files, MOST_MEASURED)
        measured_sizes = _measured_sizes(spark, table, measured_paths)
    return StorageFacts(
        int(cutoff.timestamp() * 1000),
        orphan_count,
        tuple(sorted(measured_paths)[:EXAMPLES]),
        estimated_bytes(orphan_count, measured_sizes),
        len(measured_sizes),
    )


def referenced_files(
    source: TableSource, metadata: Json, excluded_snapshot_ids: Collection[int] = ()
) -> Iterator[str]:
    """Every file that a table's metadata file and snapshots reference; some data files are named
    several times. The manifests that ``excluded_snapshot_ids`` have added are left out.
    """
    yield from paths_in_metadata(source, metadata)
    manifests = manifests_of(source, metadata, excluded_snapshot_ids)
    yield from manifests
    yield from paths_in_manifests(source, manifests.values())


def paths_in_manifests(source: TableSource, manifests: Iterable[Record]) -> Iterator[str]:
    """The paths of the live data and delete files in some manifests."""
    for manifest, manifest_bytes in read_manifests_ahead(source.read, manifests):
        file_records = files_of(manifest, manifest_bytes, frozenset({"file_path"}))
        yield from (file_record["file_path"] for file_record, *_ in file_records)


def paths_in_metadata(source: TableSource, metadata: Json) -> Iterator[str]:
    """The files that a table has for its metadata file alone: itself, the files that it names, and
    the hint of a Hadoop catalog.
    """
    yield from directly_named_files(metadata, source.metadata_location)
    yield posixpath.join(str(metadata["location"]), "metadata", "version-hint.text")


def manifests_of(
    source: TableSource, metadata: Json, excluded_snapshot_ids: Collection[int] = ()
) -> dict[str, Record]:
    """The manifests of a table's snapshots, by path; ``excluded_snapshot_ids`` as in
    :func:`referenced_files`.
    """
    list_paths = [
        snapshot["manifest-list"]
        for snapshot in metadata.get("snapshots") or ()
        if snapshot["snapshot-id"] not in excluded_snapshot_ids
    ]
    return {
        manifest["manifest_path"]: manifest
        for list_path, list_bytes in zip(
            list_paths, read_contents_ahead(source.read, list_paths), strict=True
        )
        for manifest in manifest_list(list_bytes, list_path)
        if manifest.get("added_snapshot_id") not in excluded_snapshot_ids
    }


def orphan_cutoff() -> dt.datetime:
    """A file must be older than this moment to count as an orphan now."""
    return (dt.datetime.now(dt.UTC) - ORPHAN_AGE).replace(microsecond=0)


def estimated_bytes(file_count: int, sizes: Sequence[int]) -> int | None:
    """The total bytes of ``count`` files from the sizes of some, with their mean for the rest; None
    if there are files but no sizes.
    """
    if not file_count or len(sizes) >= file_count:
        return sum(sizes)
    return round(file_count * sum(sizes) / len(sizes)) if sizes else None


def _measured_sizes(spark: SparkSession, table: Identifier, paths: Sequence[str]) -> list[int]:
    """Bytes of each file from the table's own FileIO; files without an answer in time are left
    out.
    """
    if not paths or not has_bridge(spark):
        return []
    from py4j.protocol import Py4JError

    io: Any = load_table(spark, table).io()

    file_lengths: list[int] = []

    def measure(path: str) -> None:
        with contextlib.suppress(Py4JError):  # the file is gone, or access is denied
            file_lengths.append(int(io.newInputFile(path).getLength()))

    run_each_within(
        _MEASURING_SECONDS, paths, measure, thread_count=min(_MEASURING_THREADS, len(paths))
    )
    return list(file_lengths)


T = TypeVar("T")

#: Choices: the time limit for comparing the tables of a catalog, in seconds, and the number of
#: threads.
COMPARING_SECONDS = 900.0
#: A choice: how long the locations of other tables are remembered while many tables are checked in
#: turn.
REMEMBERED_SECONDS = 300.0
_READING_THREADS = 8
_REPORT_INTERVAL_SECONDS = 10.0
#: The number of unreadable tables that a sentence names.
_NAMED_TABLES = 3

#: The table properties that say where files are written, in addition to the location
#: (LocationProviders, TableProperties).
_PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass
class _Memory:
    """What was read of a catalog since a moment (monotonic seconds): the names of its tables, and
    the paths of each and the folders of the files that its metadata file names. A report asks for
    each table in turn.
    """

    start_seconds: float
    table_names: list[Identifier] = field(default_factory=list)
    paths_by_table: dict[Identifier, tuple[str, ...]] = field(default_factory=dict)


# Keyed by the catalog object, which a lake in another thread shares.
_memories: WeakKeyDictionary[Any, _Memory] = WeakKeyDictionary()


def declared_paths(metadata: Json) -> tuple[str, ...]:
    """The declared paths of a table's files: its location, and the paths in its properties."""
    properties = properties_of(metadata)
    return (
        str(metadata["location"]),
        *(str(properties[key]) for key in _PATH_PROPERTIES if properties.get(key)),
    )


@dataclass(frozen=True, kw_only=True)
class ReadLimits:
    """Limits for reading the other tables of a catalog: a time in seconds, ``say`` for progress,
    and ``is_stopped`` to end early.
    """

    max_seconds: float = COMPARING_SECONDS
    say: Callable[[str], None] | None = None
    is_stopped: Callable[[], bool] = lambda: False


def sharing(
    lake: Lake,
    table: Identifier,
    read_limits: ReadLimits | None = None,
    *,
    max_age_seconds: float = 0.0,
) -> Sharing:
    """Compare a table's paths with those of every other table of its catalog, clones included.

    Another table shares a place if its location or a path in its properties equals, contains or
    lies inside one of this table's paths, or if such a path contains one of its metadata, manifest
    list or statistics files that this table does not name. Reads one metadata file per table, in a
    few threads, without a JVM if the catalog needs none; ignores data files and views.
    ``unchecked`` names tables that could not be read in time. Results that are at most
    ``max_age_seconds`` old are reused. Raises the errors of :mod:`icekit.common.errors` if the
    table itself cannot be read.
    """
    table_source = lake.tables.source(table)
    metadata = load_metadata(table_source)
    table_folders = [folder_spellings(path) for path in declared_paths(metadata)]
    table_files = directly_named_files(metadata, table_source.metadata_location)
    now_seconds = time.monotonic()
    catalog_memory = _memories.get(lake.tables)
    if catalog_memory is None or catalog_memory.start_seconds <= now_seconds - max_age_seconds:
        catalog_memory = _memories[lake.tables] = _Memory(now_seconds)

    def list_tables() -> list[Identifier]:
        if table not in catalog_memory.table_names:
            catalog_memory.table_names = lake.tables.names()
        return catalog_memory.table_names

    def shared_place_of(name: Identifier, paths: Iterable[str]) -> SharedPlace | None:
        for path in paths:
            if any(may_overlap(folder_spellings(path), folder) for folder in table_folders):
                return SharedPlace(display_name(name), path)
        return None

    def compare(name: Identifier) -> SharedPlace | None:
        remembered_paths = catalog_memory.paths_by_table.get(name)
        # Only a negative answer is reused: the other table may be gone, or this table may name the
        # same files.
        if remembered_paths is not None and not shared_place_of(name, remembered_paths):
            return None
        other_paths, other_files = _paths_and_files(lake, name)
        catalog_memory.paths_by_table[name] = (*other_paths, *_folders_of(other_files))
        return shared_place_of(name, other_paths) or shared_place_of(
            name, _folders_of(other_files - table_files)
        )

    shared_places_by_table, unchecked_reason = read_other_tables(
        lake, table, compare, "comparing locations", read_limits, list_tables
    )
    shared_places = sorted(
        (
            shared_place
            for shared_place in shared_places_by_table.values()
            if shared_place is not None
        ),
        key=lambda shared_place: shared_place.table,
    )
    return Sharing(tuple(shared_places), unchecked_reason)


def read_other_tables(
    lake: Lake,
    table: Identifier,
    read_table: Callable[[Identifier], T],
    activity: str,
    read_limits: ReadLimits | None = None,
    list_tables: Callable[[], list[Identifier]] | None = None,
) -> tuple[dict[Identifier, T], str | None]:
    """The result of ``read_table`` for each other table of a table's catalog, in a few threads, and
    which tables could not be checked (None: all were).

    A table that was dropped after the listing is left out. A table that is still listed but not
    found counts as unchecked: some catalogs answer so without read permission. ``say`` gets the
    progress of ``activity``; reading ends once ``is_stopped`` returns true.
    """
    read_limits = read_limits or ReadLimits()
    try:
        table_names = (list_tables or lake.tables.names)()
    except Exception as error:
        return {}, f"the tables of catalog {lake.name!r} cannot be listed: {first_line(error)}"
    other_tables = [name for name in table_names if name != table]
    if len(other_tables) == len(table_names):
        return (
            {},
            f"the list of the tables of catalog {lake.name!r} does not have {display_name(table)}: "
            "it is not complete, or it writes the name in another way",
        )
    outcomes_by_table = _outcomes(other_tables, read_table, activity, read_limits)
    answers_by_table: dict[Identifier, T] = {}
    unread_reasons: dict[Identifier, str] = {}
    tables_not_found = set()
    for name, outcome in outcomes_by_table.items():
        if isinstance(outcome, TableNotFound):
            tables_not_found.add(name)
        elif isinstance(outcome, Exception):
            unread_reasons[name] = first_line(outcome)
        else:
            answers_by_table[name] = outcome
    if tables_not_found:
        try:
            table_names = lake.tables.names()
        except Exception:
            table_names = list(tables_not_found)
        unread_reasons |= dict.fromkeys(
            tables_not_found.intersection(table_names),
            "the catalog lists it, but says that it does not exist",
        )
    return answers_by_table, _unchecked_text(
        unread_reasons, len(outcomes_by_table), len(other_tables), read_limits.max_seconds
    )


def _paths_and_files(lake: Lake, table: Identifier) -> tuple[tuple[str, ...], frozenset[str]]:
    """The paths of another table, and the files that its metadata file names."""
    try:
        table_source = lake.tables.source(table)
        metadata = load_metadata(table_source)
    except NotATable:
        return location_of_another_format(lake, table), frozenset()
    return declared_paths(metadata), directly_named_files(metadata, table_source.metadata_location)


def _folders_of(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({path.rpartition("/")[0] for path in paths}))


def location_of_another_format(lake: Lake, table: Identifier) -> tuple[str, ...]:
    """The location of a table of another format, which a session's catalog lists too; none for a
    view.
    """
    if not isinstance(lake.tables, SessionTables):
        return ()
    description_rows = lake.spark.sql(
        f"DESCRIBE TABLE EXTENDED {identifier(*lake.sql_name(table))}"
    ).collect()
    return tuple(
        str(row["data_type"])
        for row in description_rows
        if row["col_name"] == "Location" and row["data_type"]
    )


def _outcomes(
    table_names: list[Identifier],
    read_table: Callable[[Identifier], T],
    activity: str,
    read_limits: ReadLimits,
) -> dict[Identifier, T | Exception]:
    """The answers of tables, or the errors, without the tables that were not reached in time."""
    outcomes_by_table: dict[Identifier, T | Exception] = {}
    last_report_seconds = time.monotonic()

    def read_one(name: Identifier) -> None:
        try:
            outcomes_by_table[name] = read_table(name)
        except Exception as error:
            outcomes_by_table[name] = error

    def may_continue() -> bool:
        nonlocal last_report_seconds
        if (
            read_limits.say is not None
            and time.monotonic() - last_report_seconds >= _REPORT_INTERVAL_SECONDS
        ):
            last_report_seconds = time.monotonic()
            read_limits.say(
                f"  {activity}: {len(outcomes_by_table):,} of {count(len(table_names), 'table')}"
            )
        return not read_limits.is_stopped()

    run_each_within(
        read_limits.max_seconds,
        table_names,
        read_one,
        thread_count=min(_READING_THREADS, len(table_names)),
        may_continue=may_continue,
    )
    return dict(outcomes_by_table)


def _unchecked_text(
    unread_reasons: Mapping[Identifier, str], checked_count: int, table_count: int, seconds: float
) -> str | None:
    reasons = [
        f"{display_name(name)} cannot be read: {why}"
        for name, why in sorted(unread_reasons.items())[:_NAMED_TABLES]
    ]
    if len(unread_reasons) > _NAMED_TABLES:
        reasons.append(f"{len(unread_reasons):,} tables cannot be read")
    if checked_count < table_count:
        reasons.append(
            f"only {checked_count:,} of {count(table_count, 'table')} compared within "
            f"{span(seconds * 1000)}"
        )
    return "; ".join(reasons) or None
