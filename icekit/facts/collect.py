"""Observe a table: choose a collector, and put its facts together."""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from icekit.engine.bridge import has_bridge, iceberg_version, load_table
from icekit.engine.errors import explain
from icekit.errors import MetadataUnreadable, ParameterError, first_line, nearest
from icekit.facts import local, metadata
from icekit.facts.checking import check
from icekit.facts.manifests import (
    Record,
    file_counts,
    is_delete_manifest,
    live_count,
    manifest_facts,
    manifest_list,
    may_have_live,
    sample_metrics,
)
from icekit.facts.metadata import Damaged
from icekit.facts.model import ManifestFacts, MetricsSample, StorageFacts, TableFacts
from icekit.facts.rollup import Cut, Rollup, edges, sequence_width
from icekit.sql import Identifier, call, display_name, orphan_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake
    from icekit.catalog.tables import TableSource


# --- List files under a table's location that no snapshot references, and weigh them; delete nothing


# remove_orphan_files leaves younger files alone: a writer may be about to commit them.
ORPHAN_AGE = dt.timedelta(days=3)
EXAMPLES = 5
#: Orphans whose size is asked for, each a request to the storage; of more, these stand for all.
WEIGHED = 2_000
_AT_ONCE = 16
_WEIGHING_SECONDS = 60.0


def list_orphans(spark: SparkSession, table: Identifier, location: str, now: dt.datetime | None = None) -> StorageFacts:
    """Count and weigh orphan files by the dry run of ``remove_orphan_files``; ``table`` has its catalog.

    Three days old or older, the procedure's own default. Reads the whole location's
    listing and every snapshot's manifests, in Spark. At most :data:`WEIGHED` files are weighed,
    chosen by a hash of their paths; without the JVM bridge none is.
    """
    from pyspark.sql import functions as F

    older_than = orphans_before(now)
    statement = call(table[0], "remove_orphan_files", **orphan_arguments(display_name(table[1:]), location), older_than=older_than)
    try:
        found = spark.sql(statement)
        count = found.count()
        path = F.col(found.columns[0])
        chosen = [str(row[0]) for row in found.orderBy(F.xxhash64(path), path).limit(WEIGHED).collect()]
        sizes = _sizes(spark, table, chosen)
    except Exception as error:
        raise explain(error, table) from error
    return StorageFacts(int(older_than.timestamp() * 1000), count, tuple(sorted(chosen)[:EXAMPLES]), weighed(count, sizes), len(sizes))


def orphans_before(now: dt.datetime | None = None) -> dt.datetime:
    """The moment before which a file must have been written to be taken for an orphan now."""
    return ((now or dt.datetime.now(dt.UTC)) - ORPHAN_AGE).replace(microsecond=0)


def weighed(count: int, sizes: Sequence[int]) -> int | None:
    """The bytes of ``count`` files by the sizes of some: their mean for the others; None where there are files and no sizes."""
    if not count or len(sizes) >= count:
        return sum(sizes)
    return round(count * sum(sizes) / len(sizes)) if sizes else None


def _sizes(spark: SparkSession, table: Identifier, paths: Sequence[str]) -> list[int]:
    """Bytes of each file by the table's own FileIO; what it cannot tell, or not in time, is left out."""
    if not paths or not has_bridge(spark):
        return []
    from py4j.protocol import Py4JError

    io: Any = load_table(spark, table).io()

    todo, found, ended = iter(paths), list[int](), threading.Event()
    one_at_a_time = threading.Lock()

    def work() -> None:
        while not ended.is_set():
            with one_at_a_time:
                path = next(todo, None)
            if path is None:
                return
            with contextlib.suppress(Py4JError):  # it is gone since, or may not be looked at
                found.append(int(io.newInputFile(path).getLength()))

    # Not an executor's, which would keep the process until a storage that does not answer has been asked for every file.
    threads = [threading.Thread(target=work, name="icekit-weighing", daemon=True) for _ in range(min(_AT_ONCE, len(paths)))]
    until = time.monotonic() + _WEIGHING_SECONDS
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    finally:
        ended.set()
    return list(found)


Collector = Literal["auto", "spark", "local"]

# Where starting Spark pays: a cold start takes as long as reading this many files without it.
LOCAL_FILES = 200_000
# And where it pays when it runs already.
LOCAL_FILES_BESIDE_SPARK = 20_000
FILTER_COLUMNS_PROPERTY = "icekit.filter-columns"
_OLDER = "restore it, or point the catalog at the metadata file before it (register_table)"


def observe(
    lake: Lake,
    table: str | Identifier,
    *,
    ref: str | int | None = None,
    collector: Collector = "auto",
    size_ratios: Iterable[float] = (),
    filter_columns: Sequence[str] | None = None,
    storage: bool = False,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> TableFacts:
    """Collect the facts of a table at a snapshot; reads metadata only and changes nothing.

    ``ref`` is a branch, tag or snapshot id (default: the current snapshot). ``collector``
    ``auto`` reads without Spark while the snapshot summary counts few files.
    ``size_ratios`` are file sizes, as shares of the target, that thresholds will ask for.
    ``filter_columns`` are the columns that queries filter by; default: the table property
    ``icekit.filter-columns``. ``storage`` also lists orphan files, through Spark, unless another
    table of the catalog shares the location: every table's metadata file is read for it, and ``say``
    is told how far that is. ``progress`` is called with (manifests read, of how many).

    Raises the errors of :mod:`icekit.errors`, each of which says what to do.
    """
    started = time.monotonic()
    name = lake.identifier(table) if isinstance(table, str) else table
    source = lake.tables.source(name)
    meta = load_metadata(source)
    snapshot, chosen_ref = metadata.choose_snapshot(meta, ref)
    properties = dict(meta.get("properties") or {})
    specs = metadata.specs(meta)
    schema = metadata.schema_of(meta, snapshot.get("schema-id") if snapshot is not None and ref else None)
    in_force = metadata.settings(properties)
    columns = metadata.columns(meta, schema)
    target = metadata.int_setting(in_force, "write.target-file-size-bytes")
    ratios = tuple(size_ratios)
    cut = Cut(edges(target, ratios), edges(metadata.int_setting(in_force, "write.delete.target-file-size-bytes"), ratios), target)
    manifests = _manifests(snapshot, source, {spec.spec_id for spec in specs})
    counts, sample = ManifestFacts(), MetricsSample()
    rollup, width = Rollup(), 1
    used = choose(lake, collector, _file_count(snapshot, manifests))
    if snapshot is not None:
        counts = manifest_facts(manifests, specs, metadata.int_setting(in_force, "commit.manifest.target-size-bytes"))
        sample = sample_metrics(manifests, columns, source.read)
        by_id, widths = {spec.spec_id: spec for spec in specs}, _widths(manifests, int(meta.get("last-sequence-number", 0)))
        if used == "local":
            rollup, width = local.roll_up(manifests, by_id, cut, source.read, widths, progress)
        else:
            from icekit.facts import spark

            full, snapshot_id = lake.sql_name(name), snapshot["snapshot-id"]
            with_deletes = any(is_delete_manifest(m) and may_have_live(m) for m in manifests)
            rollup, width = spark.roll_up(lake.spark, full, snapshot_id, by_id, cut, widths if with_deletes else None)
            spark.check_listed(lake.spark, full, snapshot_id, file_counts(manifests, snapshot.get("summary")), rollup.file_counts())
    sort = metadata.sort_order(meta)
    default_spec_id = meta.get("default-spec-id", 0)
    return TableFacts(
        catalog=lake.name,
        table=name,
        table_uuid=meta.get("table-uuid"),
        location=meta["location"],
        format_version=meta["format-version"],
        snapshot_id=snapshot["snapshot-id"] if snapshot is not None else None,
        ref=chosen_ref,
        snapshot_ms=snapshot["timestamp-ms"] if snapshot is not None else None,
        schema_id=schema.get("schema-id", 0),
        columns=columns,
        top_level_column_count=len(schema["fields"]),
        specs=specs,
        default_spec_id=default_spec_id,
        sort_order=sort,
        properties=properties,
        settings=in_force,
        distribution=metadata.distribution_modes(
            properties, partitioned=any(s.spec_id == default_spec_id and not s.is_unpartitioned for s in specs), is_sorted=bool(sort)
        ),
        filter_columns=_filter_columns(filter_columns, properties, [c.name for c in columns]),
        data_edges=cut.data,
        delete_edges=cut.deletes,
        groups=rollup.groups(),
        sequences=rollup.sequences(lambda spec_id: any(s.spec_id == spec_id and s.is_unpartitioned for s in specs)),
        sequence_width=width,
        manifests=counts,
        history=metadata.history(meta, snapshot),
        metrics_sample=sample,
        equality_keys=rollup.equality_keys(),
        storage=_storage(lake, name, meta, say) if storage else None,
        collector=used,
        iceberg_version=iceberg_version(lake.spark, lake.name) if used == "spark" else None,
        collected_at_ms=int(time.time() * 1000),
        seconds=time.monotonic() - started,
    )


def load_metadata(source: TableSource) -> dict[str, Any]:
    """The table's metadata JSON, compressed or not.

    Raises :class:`~icekit.errors.MetadataUnreadable` for what is no metadata, or is damaged: it says where.
    """
    location = source.metadata_location
    raw = source.read(location)
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        loaded: dict[str, Any] = json.loads(raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        why = "it is empty" if not raw else first_line(error)
        raise MetadataUnreadable(f"{location} is not table metadata ({why}); {_OLDER}.") from None
    check_metadata(loaded, location)
    return loaded


def check_metadata(loaded: Any, location: str) -> None:
    """Raise :class:`~icekit.errors.MetadataUnreadable` for metadata that is damaged; ``location`` is where it was read."""
    try:
        check(loaded)
    except Damaged as problem:
        raise MetadataUnreadable(f"The table metadata {location} is damaged: {problem}; {_OLDER}.") from None


def choose(lake: Lake, collector: Collector, file_count: int) -> Literal["spark", "local"]:
    """Which collector to use for a number of files, unless told."""
    if collector in ("spark", "local"):
        return collector
    if collector != "auto":
        raise ParameterError(
            f"There is no collector {collector!r}{nearest(collector, ['auto', 'spark', 'local'], count=1) or '; use auto, spark or local.'}"
        )
    limit = LOCAL_FILES_BESIDE_SPARK if lake.spark_is_running else LOCAL_FILES
    return "local" if file_count <= limit else "spark"


def _manifests(snapshot: metadata.Json | None, source: TableSource, spec_ids: Collection[int]) -> list[Record]:
    if snapshot is None:
        return []
    location = snapshot.get("manifest-list")
    if location is None:
        raise MetadataUnreadable(
            f"Snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers before 2019 did; rewrite it with any commit of a current engine."
        )
    found = manifest_list(source.read(location), location)
    for manifest in found:
        if manifest["partition_spec_id"] not in spec_ids:
            raise MetadataUnreadable(
                f"{location} lists a manifest of partition spec {manifest['partition_spec_id']}, which partition-specs in {source.metadata_location} does not have; {_OLDER}."
            )
    return found


def _file_count(snapshot: metadata.Json | None, manifests: Iterable[Record]) -> int:
    summary = (snapshot or {}).get("summary") or {}
    if "total-data-files" in summary:
        return int(summary["total-data-files"]) + int(summary.get("total-delete-files", 0))
    return sum(map(live_count, manifests))


def _widths(manifests: Sequence[Record], last_sequence: int) -> Callable[[int], int]:
    """The width of sequence numbers for a number of partitions."""
    file_count = sum(map(live_count, manifests))
    return lambda partition_count: sequence_width(file_count, partition_count, last_sequence)


def _filter_columns(stated: Sequence[str] | None, properties: dict[str, str], known: Sequence[str]) -> tuple[str, ...]:
    """The columns stated, else those the table property names; unknown ones are refused or left."""
    if not stated:
        declared = [c.strip() for c in properties.get(FILTER_COLUMNS_PROPERTY, "").split(",")]
        return tuple(c for c in declared if c in known)
    for column in stated:
        if column not in known:
            near = nearest(column, known) or "; there are " + ", ".join(known[:10]) + "."
            raise ParameterError(f"There is no column {column!r} to filter by{near}")
    return tuple(stated)


def _storage(lake: Lake, name: Identifier, meta: metadata.Json, say: Callable[[str], None] | None) -> StorageFacts | None:
    # The procedure refuses a table whose files others may share; then nobody can tell orphans.
    if str((meta.get("properties") or {}).get("gc.enabled", "true")).lower() == "false":
        return None
    from icekit.facts.sharing import REMEMBERED_SECONDS, TableQuery, sharing

    found = sharing(lake, name, load_metadata, TableQuery(say=say), max_age=REMEMBERED_SECONDS)
    if found.shared:
        return StorageFacts(int(orphans_before().timestamp() * 1000), 0, sharing=found)
    return replace(list_orphans(lake.spark, lake.sql_name(name), meta["location"]), sharing=found)
