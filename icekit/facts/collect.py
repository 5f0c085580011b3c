"""Observe a table: choose a collector, and put its facts together."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from icekit.engine.bridge import iceberg_version
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
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.catalog.tables import TableSource


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
    ``auto`` reads without Spark while the manifest list counts few files.
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
    counted = file_counts(manifests, (snapshot or {}).get("summary"))
    used = choose(lake, collector, sum(map(live_count, manifests)) if counted is None else sum(counted))
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
            spark.check_listed(lake.spark, full, snapshot_id, counted, rollup.file_counts())
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
    from icekit.facts.orphans import REMEMBERED_SECONDS, TableQuery, list_orphans, orphans_before, sharing

    found = sharing(lake, name, load_metadata, TableQuery(say=say), max_age=REMEMBERED_SECONDS)
    if found.shared:
        return StorageFacts(int(orphans_before().timestamp() * 1000), 0, sharing=found)
    return replace(list_orphans(lake.spark, lake.sql_name(name), meta["location"]), sharing=found)
