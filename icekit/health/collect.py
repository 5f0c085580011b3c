"""Observe a table: choose a collector and assemble the facts."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from icekit.common.errors import (
    MetadataUnreadable,
    ParameterError,
    require_known,
    require_library,
)
from icekit.common.sql import Identifier
from icekit.common.units import time_text
from icekit.engine.bridge import iceberg_version
from icekit.engine.column_types import Ability
from icekit.health.facts import local
from icekit.health.facts.column_support import unsupported_columns
from icekit.health.facts.counts import Rollup
from icekit.health.facts.head import MOST_MANIFESTS, RECENT_MINUTES, partitions_written_within
from icekit.health.facts.integrity import Integrity
from icekit.health.facts.metadata_file import RESTORE_OLDER, metadata_with_size
from icekit.health.facts.metadata_sections import largest_sections
from icekit.health.facts.model import TableFacts
from icekit.health.facts.retention import Retained, Retention, expiry, removed_by_ref_limits
from icekit.health.facts.rollup import bucket_edges, sort_key
from icekit.health.facts.snapshot_statistics import statistics_ages
from icekit.health.facts.storage import StorageSearch
from icekit.health.facts.writer_states import WriterLog, staged_writes
from icekit.health.storage.missing import ObservedSnapshot
from icekit.health.storage.use import measure_storage_use
from icekit.iceberg import metadata
from icekit.iceberg.definition import Flaw, MetadataFlaw
from icekit.iceberg.dropped_fields import fields_blocking_files_table
from icekit.iceberg.key_fields import misread_fields
from icekit.iceberg.manifests import (
    Record,
    file_counts,
    has_entry_counts,
    manifest_facts,
    manifest_list,
    sample_metrics,
)
from icekit.iceberg.metadata import Damaged, choose_snapshot, history

if TYPE_CHECKING:
    from icekit.engine.lake import Lake
    from icekit.engine.tables import TableSource


Collector = Literal["auto", "spark", "local"]

# Starting Spark is worth it from here: a cold start takes as long as reading this many files
# without Spark.
LOCAL_FILES = 200_000
# Using Spark is worth it from here if it already runs.
LOCAL_FILES_BESIDE_SPARK = 20_000
# The most files whose names are read after Spark has counted them, to tell those of old snapshots.
MOST_IDENTITIES = 20_000
FILTER_COLUMNS_PROPERTY = "icekit.filter-columns"
_MOST_EXAMPLES = 5


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
    """Collect the facts of a table at a snapshot; reads only metadata and changes nothing.

    ``ref`` is a branch, tag or snapshot id (default: the current snapshot). ``collector`` ``auto``
    reads without Spark while the manifest list counts few files. ``size_ratios`` are the file
    sizes, as shares of the target, at which thresholds count. ``filter_columns`` are the columns
    that queries filter by; default: the table property ``icekit.filter-columns``. ``storage`` also
    looks for missing files, and for orphan files unless another table of the catalog shares the
    location: this reads every table's metadata file, and ``say`` gets its progress
    (:func:`icekit.health.storage.search.search_storage`). ``progress`` is called with (manifests
    read, of how many).
    Raises the errors of :mod:`icekit.common.errors`.
    """
    start_seconds = time.monotonic()
    table_name = lake.identifier(table)
    table_source = lake.tables.source(table_name)
    meta, metadata_file_size = metadata_with_size(table_source)
    snapshot, ref_name = choose_snapshot(meta, ref)
    schema = metadata.schema_of(meta, (snapshot or {}).get("schema-id") if ref else None)
    definition_facts = _definition_facts(meta, schema, filter_columns)
    columns_without_support = unsupported_columns(meta, lake.engine)
    is_unreadable_by_spark = any(
        column.ability is Ability.READ for column in columns_without_support
    )
    identifier_field_ids = schema.get("identifier-field-ids") or ()
    specs_by_id = {spec.spec_id: spec for spec in definition_facts["specs"]}
    manifests = _read_manifests(snapshot, table_source, specs_by_id)
    observed_snapshot = ObservedSnapshot(meta, snapshot, manifests, specs_by_id)
    rollup_factory = partial(_new_rollup, observed_snapshot, tuple(size_ratios))
    # Spark does not even open the metadata tables of a table that it cannot read. Where the column
    # of a partition field was dropped, they do not have its values, or fail.
    current_columns = metadata.columns(meta, metadata.schema_of(meta))
    has_dropped_partition_columns = bool(
        fields_blocking_files_table(specs_by_id.values(), current_columns)
    ) or any(
        specs_by_id[manifest["partition_spec_id"]].dropped_column_fields for manifest in manifests
    )
    collector = "local" if is_unreadable_by_spark or has_dropped_partition_columns else collector
    rollup, used_collector = _count_files(
        lake, table_name, table_source, observed_snapshot, rollup_factory, collector, progress
    )
    now_ms = int(time.time() * 1000)
    removals_by_ref_limits = _removals_by_ref_limits(meta, now_ms)
    writer_log = WriterLog(meta)
    recent_partitions = partitions_written_within(
        table_source.read, observed_snapshot, RECENT_MINUTES, now_ms, manifests, MOST_MANIFESTS
    )
    storage_search = StorageSearch()
    if storage:
        from icekit.health.storage.search import search_storage

        storage_search = search_storage(
            lake, table_name, table_source, observed_snapshot, collector, say
        )
    file_facts = _file_facts(rollup, definition_facts["properties"])
    storage_use = None
    if snapshot is None or snapshot["snapshot-id"] == meta.get("current-snapshot-id"):
        if used_collector == "spark" and sum(rollup.file_counts()) <= MOST_IDENTITIES:
            local.add_file_identities(rollup, table_source.read)
        storage_use = measure_storage_use(
            table_source,
            meta,
            metadata_file_size,
            rollup,
            file_facts["groups"],
            file_facts["unapplied"],
            storage_search.storage,
        )
    return TableFacts(
        catalog=lake.name,
        table=table_name,
        snapshot_id=observed_snapshot.snapshot_id,
        ref=ref_name,
        snapshot_ms=(snapshot or {}).get("timestamp-ms"),
        **definition_facts,
        **file_facts,
        misread_keys=_misread_key_columns(meta, rollup),
        history=replace(
            history(meta, snapshot),
            expirable_count=_expirable_count(meta, now_ms, writer_log),
            past_limits=len(removals_by_ref_limits.expired_ids),
            refs_past_limits=removals_by_ref_limits.expired_refs,
            writers=writer_log.states(),
            staged=staged_writes(meta),
        ),
        metrics_sample=sample_metrics(
            manifests, definition_facts["columns"], table_source.read, identifier_field_ids
        ),
        recent=tuple(sorted(recent_partitions, key=sort_key)),
        metadata_bytes=metadata_file_size,
        metadata_sections=largest_sections(meta),
        flaws=_metadata_flaws(observed_snapshot, rollup.integrity, now_ms),
        statistics=statistics_ages(meta, snapshot),
        storage=storage_search.storage,
        missing=storage_search.missing,
        unlisted=storage_search.unlisted,
        storage_use=storage_use,
        unsupported_columns=columns_without_support,
        engine=lake.engine,
        collector=used_collector,
        iceberg_version=iceberg_version(lake.spark, lake.name)
        if used_collector == "spark"
        else None,
        collected_at_ms=now_ms,
        seconds=time.monotonic() - start_seconds,
    )


def _definition_facts(
    meta: metadata.Json, schema: metadata.Json, filter_columns: Sequence[str] | None
) -> dict[str, Any]:
    """The fields of :class:`TableFacts` that say how the table is defined."""
    properties = dict(metadata.properties_of(meta))
    columns = metadata.columns(meta, schema)
    specs = metadata.specs(meta)
    default_spec_id = meta.get("default-spec-id", 0)
    sort_order = metadata.sort_order(meta)
    return {
        "table_uuid": meta.get("table-uuid"),
        "location": meta["location"],
        "format_version": meta["format-version"],
        "schema_id": schema.get("schema-id", 0),
        "columns": columns,
        "specs": specs,
        "default_spec_id": default_spec_id,
        "sort_order": sort_order,
        "properties": properties,
        "settings": metadata.settings(properties),
        "distribution": metadata.distribution_modes(
            properties,
            is_partitioned=any(
                spec.spec_id == default_spec_id and not spec.is_unpartitioned for spec in specs
            ),
            is_sorted=bool(sort_order),
        ),
        "filter_columns": _filter_columns(filter_columns, properties, [c.name for c in columns]),
    }


def _file_facts(rollup: Rollup, properties: Mapping[str, str]) -> dict[str, Any]:
    """The fields of :class:`TableFacts` that count files."""
    manifest_target_bytes = metadata.number_property(
        properties, "commit.manifest.target-size-bytes"
    )
    return {
        "data_edges": rollup.bucket_edges,
        "groups": rollup.groups(),
        "sequences": rollup.sequences(),
        "sequence_width": rollup.sequence_width,
        "equality_keys": rollup.equality_keys(),
        "unapplied": rollup.unapplied_deletes(),
        "integrity": rollup.integrity,
        "manifests": manifest_facts(
            rollup.manifests, rollup.specs.values(), rollup.file_counts(), manifest_target_bytes
        ),
    }


def _misread_key_columns(meta: metadata.Json, rollup: Rollup) -> tuple[str, ...]:
    """The names of the key columns by which Iceberg's newest reader misreads equality deletes."""
    key_field_ids = [field_id for key in rollup.equality_keys() for field_id in key.field_ids]
    return tuple(misread_fields(meta, key_field_ids, reads_dropped_keys=True).values())


def _new_rollup(observed_snapshot: ObservedSnapshot, size_ratios: Iterable[float]) -> Rollup:
    meta = observed_snapshot.metadata
    target_bytes = metadata.number_property(metadata.properties_of(meta), metadata.TARGET)
    return Rollup(
        manifests=observed_snapshot.manifests,
        specs=observed_snapshot.specs_by_id,
        columns=metadata.key_columns(meta),
        bucket_edges=bucket_edges(target_bytes, size_ratios),
        target_bytes=target_bytes,
        last_sequence_number=int(meta.get("last-sequence-number") or 0),
    )


def _count_files(
    lake: Lake,
    table: Identifier,
    source: TableSource,
    observed_snapshot: ObservedSnapshot,
    rollup_factory: Callable[[], Rollup],
    collector: Collector,
    progress: Callable[[int, int], None] | None,
) -> tuple[Rollup, Literal["spark", "local"]]:
    """Count the files; also tells the collector that did."""
    rollup = rollup_factory()
    snapshot = observed_snapshot.snapshot or {}
    expected_file_counts = file_counts(observed_snapshot.manifests)
    # Iceberg's metadata tables fail where a manifest list does not count the entries.
    used_collector = (
        "local"
        if expected_file_counts is None
        else choose_collector(lake, collector, sum(expected_file_counts))
    )
    if used_collector == "local" or not snapshot:
        local.roll_up(rollup, source.read, progress)
        return rollup, used_collector
    from icekit.health.facts import spark

    sql_name = lake.sql_name(table)
    snapshot_id = snapshot["snapshot-id"]
    read_failure: MetadataUnreadable | None = None
    has_contradictions = False
    try:
        has_contradictions = spark.roll_up(rollup, lake.spark, sql_name, snapshot_id) or any(
            local.counts_in_empty_manifests(observed_snapshot.manifests, source.read).values()
        )
    except MetadataUnreadable as error:
        read_failure = error
    is_complete = read_failure is None and expected_file_counts in (None, rollup.file_counts())
    if has_contradictions or not is_complete:
        # A rare table: what contradicts itself, or cannot be read, is named in one place.
        local_rollup = rollup_factory()
        local.roll_up(local_rollup, source.read, progress)
        if local_rollup.integrity.miscounted_count:
            return local_rollup, "local"
        rollup.integrity = local_rollup.integrity
    if read_failure is not None:
        raise read_failure
    spark.check_file_counts(
        lake.spark, sql_name, snapshot_id, expected_file_counts, rollup.file_counts()
    )
    return rollup, used_collector


def _expirable_count(meta: Mapping[str, Any], now_ms: int, writer_log: WriterLog) -> int | None:
    """The snapshots that would expire now without a stated retention; None where the properties
    allow no expiry, or the snapshots of a branch are damaged.
    """
    try:
        now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        default_expiry = expiry(meta, Retention(), now, writer_log)
        return 0 if default_expiry.conflict else len(default_expiry.snapshots.expired_ids)
    except (ParameterError, Damaged):
        return None


def _removals_by_ref_limits(meta: Mapping[str, Any], now_ms: int) -> Retained:
    """What every expiry removes; nothing where the snapshots of a branch are damaged."""
    try:
        return removed_by_ref_limits(meta, now_ms)
    except (ParameterError, Damaged):
        return Retained((), (), (), ())


def choose_collector(
    lake: Lake, collector: Collector, file_count: int
) -> Literal["spark", "local"]:
    """The collector for a number of files, unless ``collector`` names one."""
    if collector in ("spark", "local"):
        return collector
    require_known(collector, ("auto", "spark", "local"), "collector")
    local_file_limit = LOCAL_FILES_BESIDE_SPARK if lake.spark_is_running else LOCAL_FILES
    if file_count <= local_file_limit:
        return "local"
    if not lake.spark_is_running:
        require_library(
            "pyspark", f"Reading the metadata of {file_count:,} files (unless with collector local)"
        )
    return "spark"


def _read_manifests(
    snapshot: metadata.Json | None, source: TableSource, spec_ids: Collection[int]
) -> list[Record]:
    if snapshot is None:
        return []
    manifest_list_location = snapshot.get("manifest-list")
    if manifest_list_location is None:
        raise MetadataUnreadable(
            f"Snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers before "
            "2019 did; any commit of a current engine rewrites it."
        )
    manifests = manifest_list(source.read(manifest_list_location), manifest_list_location)
    for manifest in manifests:
        if manifest["partition_spec_id"] not in spec_ids:
            raise MetadataUnreadable(
                f"{manifest_list_location} lists a manifest with partition spec "
                f"{manifest['partition_spec_id']}, but partition-specs in "
                f"{source.metadata_location} does not have that spec; {RESTORE_OLDER}."
            )
    return manifests


def _metadata_flaws(
    observed_snapshot: ObservedSnapshot, integrity: Integrity, now_ms: int
) -> tuple[MetadataFlaw, ...]:
    """What of the metadata is readable here, and refused by Iceberg where it needs it."""
    meta = observed_snapshot.metadata
    schema_ids = {schema.get("schema-id", 0) for schema in meta.get("schemas") or ()}
    snapshot_ids_without_schema = [
        snapshot["snapshot-id"]
        for snapshot in meta.get("snapshots") or ()
        if schema_ids and snapshot.get("schema-id") not in {None, *schema_ids}
    ]
    column_ids = {leaf_column.field_id for leaf_column in metadata.leaves(metadata.schema_of(meta))}
    default_sort_order_id = meta.get("default-sort-order-id", 0)
    broken_sort_order_ids = [
        sort_order["order-id"]
        for sort_order in meta.get("sort-orders") or ()
        if sort_order["order-id"] != default_sort_order_id
        and any(
            f["transform"] != "void" and f["source-id"] not in column_ids
            for f in sort_order["fields"]
        )
    ]
    observed_snapshot_id = observed_snapshot.snapshot_id
    examples_by_flaw = {
        Flaw.UNCOUNTED_MANIFESTS: [
            manifest["manifest_path"]
            for manifest in observed_snapshot.manifests
            if not has_entry_counts(manifest)
        ],
        Flaw.SCHEMA_GONE: [
            snapshot_id
            for snapshot_id in snapshot_ids_without_schema
            if snapshot_id == observed_snapshot_id
        ],
        Flaw.OLD_SCHEMA_GONE: [
            snapshot_id
            for snapshot_id in snapshot_ids_without_schema
            if snapshot_id != observed_snapshot_id
        ],
        Flaw.ORDER_BY_DROPPED: broken_sort_order_ids,
        Flaw.MISCOUNTED_MANIFESTS: [
            f"{miscounted_manifest.path}: {miscounted_manifest.listed_count:,} live files by the "
            f"manifest list {(observed_snapshot.snapshot or {}).get('manifest-list')}, "
            f"{miscounted_manifest.live_count:,} in the manifest"
            for miscounted_manifest in integrity.miscounted
        ],
        Flaw.FUTURE_TIMES: [
            f"until {time_text(future_time_ms)}"
            for future_time_ms in reversed(metadata.future_times(meta, now_ms))
        ],
    }
    counts_by_flaw = {Flaw.MISCOUNTED_MANIFESTS: integrity.miscounted_count}
    return tuple(
        MetadataFlaw(
            flaw,
            counts_by_flaw.get(flaw, len(examples)),
            tuple(map(str, examples[:_MOST_EXAMPLES])),
        )
        for flaw, examples in examples_by_flaw.items()
        if examples
    )


def declared_filter_columns(properties: Mapping[str, str]) -> list[str]:
    """The columns of the table property ``icekit.filter-columns``."""
    column_names = properties.get(FILTER_COLUMNS_PROPERTY, "").split(",")
    return list(filter(None, map(str.strip, column_names)))


def _filter_columns(
    stated_columns: Sequence[str] | None, properties: dict[str, str], table_columns: Sequence[str]
) -> tuple[str, ...]:
    """The stated columns, or else those of the table property; an unknown column is an error in the
    former and ignored in the latter.
    """
    if not stated_columns:
        return tuple(name for name in declared_filter_columns(properties) if name in table_columns)
    for column in stated_columns:
        require_known(column, table_columns, "column")
    return tuple(stated_columns)
