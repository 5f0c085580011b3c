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
    require,
    require_known,
)
from icekit.common.sql import Identifier
from icekit.common.units import time_text
from icekit.engine.bridge import iceberg_version
from icekit.engine.column_types import Ability
from icekit.health.facts import local
from icekit.health.facts.column_support import unsupported_columns
from icekit.health.facts.counts import Rollup
from icekit.health.facts.head import MOST_MANIFESTS, RECENT_MINUTES, written_within
from icekit.health.facts.integrity import Integrity
from icekit.health.facts.metadata_file import RESTORE_OLDER, sized_metadata
from icekit.health.facts.metadata_sections import sections
from icekit.health.facts.model import TableFacts
from icekit.health.facts.retention import Retained, Retention, expiry, past_own_limits
from icekit.health.facts.rollup import edges, sort_key
from icekit.health.facts.snapshot_statistics import statistics_ages
from icekit.health.facts.storage import StorageSearch
from icekit.health.facts.writer_states import WriterLog, staged_writes
from icekit.health.storage.missing import Searched
from icekit.iceberg import metadata
from icekit.iceberg.definition import Flaw, MetadataFlaw
from icekit.iceberg.dropped_fields import fields_hiding_files
from icekit.iceberg.key_fields import misread_fields
from icekit.iceberg.manifests import (
    Record,
    file_counts,
    is_counted,
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
FILTER_COLUMNS_PROPERTY = "icekit.filter-columns"
_EXAMPLES = 5


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
    (:func:`icekit.health.storage.search.search_storage`). ``progress`` is called with (manifests read, of
    how many).
    Raises the errors of :mod:`icekit.common.errors`.
    """
    started = time.monotonic()
    name = lake.identifier(table)
    source = lake.tables.source(name)
    meta, metadata_bytes = sized_metadata(source)
    snapshot, chosen_ref = choose_snapshot(meta, ref)
    schema = metadata.schema_of(meta, (snapshot or {}).get("schema-id") if ref else None)
    definition = _definition(meta, schema, filter_columns)
    unsupported = unsupported_columns(meta, lake.engine)
    is_unreadable = any(column.ability is Ability.READ for column in unsupported)
    identifiers = schema.get("identifier-field-ids") or ()
    specs = {spec.spec_id: spec for spec in definition["specs"]}
    manifests = _manifests(snapshot, source, specs)
    searched = Searched(meta, snapshot, manifests, specs)
    new_rollup = partial(_new_rollup, searched, tuple(size_ratios))
    # Spark does not even open the metadata tables of a table that it cannot read. Where the column of
    # a partition field was dropped, they do not have its values, or fail.
    current_columns = metadata.columns(meta, metadata.schema_of(meta))
    is_hidden = bool(fields_hiding_files(specs.values(), current_columns)) or any(
        specs[manifest["partition_spec_id"]].dropped for manifest in manifests
    )
    collector = "local" if is_unreadable or is_hidden else collector
    rollup, used = _count(lake, name, source, searched, new_rollup, collector, progress)
    now_ms = int(time.time() * 1000)
    by_limits = _removed_by_limits(meta, now_ms)
    writer_log = WriterLog(meta)
    recent = written_within(
        source.read, searched, RECENT_MINUTES, now_ms, manifests, MOST_MANIFESTS
    )
    storage_search = StorageSearch()
    if storage:
        from icekit.health.storage.search import search_storage

        storage_search = search_storage(lake, name, source, searched, collector, say)
    return TableFacts(
        catalog=lake.name,
        table=name,
        snapshot_id=searched.snapshot_id,
        ref=chosen_ref,
        snapshot_ms=(snapshot or {}).get("timestamp-ms"),
        **definition,
        **_files(rollup, definition["properties"]),
        misread_keys=_misread_keys(meta, rollup),
        history=replace(
            history(meta, snapshot),
            expirable_count=_expirable(meta, now_ms, writer_log),
            past_limits=len(by_limits.expired),
            refs_past_limits=by_limits.refs_dropped,
            writers=writer_log.states(),
            staged=staged_writes(meta),
        ),
        metrics_sample=sample_metrics(manifests, definition["columns"], source.read, identifiers),
        recent=tuple(sorted(recent, key=sort_key)),
        metadata_bytes=metadata_bytes,
        metadata_sections=sections(meta),
        flaws=_flaws(searched, rollup.integrity, now_ms),
        statistics=statistics_ages(meta, snapshot),
        storage=storage_search.storage,
        missing=storage_search.missing,
        unlisted=storage_search.unlisted,
        unsupported_columns=unsupported,
        engine=lake.engine,
        collector=used,
        iceberg_version=iceberg_version(lake.spark, lake.name) if used == "spark" else None,
        collected_at_ms=now_ms,
        seconds=time.monotonic() - started,
    )


def _definition(
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
            partitioned=any(s.spec_id == default_spec_id and not s.is_unpartitioned for s in specs),
            is_sorted=bool(sort_order),
        ),
        "filter_columns": _filter_columns(filter_columns, properties, [c.name for c in columns]),
    }


def _files(rollup: Rollup, properties: Mapping[str, str]) -> dict[str, Any]:
    """The fields of :class:`TableFacts` that count files."""
    target_bytes = metadata.number(properties, "commit.manifest.target-size-bytes")
    return {
        "data_edges": rollup.edges,
        "groups": rollup.groups(),
        "sequences": rollup.sequences(),
        "sequence_width": rollup.width,
        "equality_keys": rollup.equality_keys(),
        "unapplied": rollup.unapplied_deletes(),
        "integrity": rollup.integrity,
        "manifests": manifest_facts(
            rollup.manifests, rollup.specs.values(), rollup.file_counts(), target_bytes
        ),
    }


def _misread_keys(meta: metadata.Json, rollup: Rollup) -> tuple[str, ...]:
    """The names of the key columns by which Iceberg's newest reader misreads equality deletes."""
    field_ids = [field_id for key in rollup.equality_keys() for field_id in key.field_ids]
    return tuple(misread_fields(meta, field_ids, reads_dropped_keys=True).values())


def _new_rollup(searched: Searched, size_ratios: Iterable[float]) -> Rollup:
    meta = searched.metadata
    target = metadata.number(metadata.properties_of(meta), metadata.TARGET)
    rollup_arguments = searched.manifests, searched.specs, metadata.key_columns(meta)
    last = int(meta.get("last-sequence-number") or 0)
    return Rollup(*rollup_arguments, edges(target, size_ratios), target, last)


def _count(
    lake: Lake,
    name: Identifier,
    source: TableSource,
    searched: Searched,
    new_rollup: Callable[[], Rollup],
    collector: Collector,
    progress: Callable[[int, int], None] | None,
) -> tuple[Rollup, Literal["spark", "local"]]:
    """Count the files; also tells the collector that did."""
    rollup = new_rollup()
    snapshot = searched.snapshot or {}
    counted_files = file_counts(searched.manifests)
    # Iceberg's metadata tables fail where a manifest list does not count the entries.
    used = "local" if counted_files is None else choose(lake, collector, sum(counted_files))
    if used == "local" or not snapshot:
        local.roll_up(rollup, source.read, progress)
        return rollup, used
    from icekit.health.facts import spark

    full = lake.sql_name(name)
    snapshot_id = snapshot["snapshot-id"]
    failure: MetadataUnreadable | None = None
    is_contradicted = False
    try:
        is_contradicted = spark.roll_up(rollup, lake.spark, full, snapshot_id) or any(
            local.live_in_unread(searched.manifests, source.read).values()
        )
    except MetadataUnreadable as error:
        failure = error
    is_complete = failure is None and counted_files in (None, rollup.file_counts())
    if is_contradicted or not is_complete:
        # A rare table: what contradicts itself, or cannot be read, is named in one place.
        named_rollup = new_rollup()
        local.roll_up(named_rollup, source.read, progress)
        if named_rollup.integrity.miscounted_count:
            return named_rollup, "local"
        rollup.integrity = named_rollup.integrity
    if failure is not None:
        raise failure
    spark.check_listed(lake.spark, full, snapshot_id, counted_files, rollup.file_counts())
    return rollup, used


def _expirable(meta: Mapping[str, Any], now_ms: int, writer_log: WriterLog) -> int | None:
    """The snapshots that would expire now without a stated retention; None where the properties
    allow no expiry, or the snapshots of a branch are damaged.
    """
    try:
        now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        expiring = expiry(meta, Retention(), now, writer_log)
        return 0 if expiring.conflict else len(expiring.snapshots.expired)
    except (ParameterError, Damaged):
        return None


def _removed_by_limits(meta: Mapping[str, Any], now_ms: int) -> Retained:
    """What every expiry removes; nothing where the snapshots of a branch are damaged."""
    try:
        return past_own_limits(meta, now_ms)
    except (ParameterError, Damaged):
        return Retained((), (), (), ())


def choose(lake: Lake, collector: Collector, file_count: int) -> Literal["spark", "local"]:
    """The collector for a number of files, unless ``collector`` names one."""
    if collector in ("spark", "local"):
        return collector
    require_known(collector, ("auto", "spark", "local"), "collector")
    limit = LOCAL_FILES_BESIDE_SPARK if lake.spark_is_running else LOCAL_FILES
    if file_count <= limit:
        return "local"
    if not lake.spark_is_running:
        require(
            "pyspark", f"Reading the metadata of {file_count:,} files (unless with collector local)"
        )
    return "spark"


def _manifests(
    snapshot: metadata.Json | None, source: TableSource, specs: Collection[int]
) -> list[Record]:
    if snapshot is None:
        return []
    location = snapshot.get("manifest-list")
    if location is None:
        raise MetadataUnreadable(
            f"Snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers before "
            "2019 did; any commit of a current engine rewrites it."
        )
    manifests = manifest_list(source.read(location), location)
    for manifest in manifests:
        if manifest["partition_spec_id"] not in specs:
            raise MetadataUnreadable(
                f"{location} lists a manifest with partition spec "
                f"{manifest['partition_spec_id']}, but partition-specs in "
                f"{source.metadata_location} does not have that spec; {RESTORE_OLDER}."
            )
    return manifests


def _flaws(searched: Searched, integrity: Integrity, now_ms: int) -> tuple[MetadataFlaw, ...]:
    """What of the metadata is readable here, and refused by Iceberg where it needs it."""
    meta = searched.metadata
    schemas = {schema.get("schema-id", 0) for schema in meta.get("schemas") or ()}
    without = [
        s["snapshot-id"]
        for s in meta.get("snapshots") or ()
        if schemas and s.get("schema-id") not in {None, *schemas}
    ]
    columns = {leaf.field_id for leaf in metadata.leaves(metadata.schema_of(meta))}
    default = meta.get("default-sort-order-id", 0)
    orders = [
        order["order-id"]
        for order in meta.get("sort-orders") or ()
        if order["order-id"] != default
        and any(f["transform"] != "void" and f["source-id"] not in columns for f in order["fields"])
    ]
    observed = searched.snapshot_id
    ids_of = {
        Flaw.UNCOUNTED_MANIFESTS: [
            manifest["manifest_path"] for manifest in searched.manifests if not is_counted(manifest)
        ],
        Flaw.SCHEMA_GONE: [each for each in without if each == observed],
        Flaw.OLD_SCHEMA_GONE: [each for each in without if each != observed],
        Flaw.ORDER_BY_DROPPED: orders,
        Flaw.MISCOUNTED_MANIFESTS: [
            f"{each.path}: {each.listed_count:,} live files by the manifest list "
            f"{(searched.snapshot or {}).get('manifest-list')}, {each.live_count:,} in the manifest"
            for each in integrity.miscounted
        ],
        Flaw.FUTURE_TIMES: [
            f"until {time_text(each)}" for each in reversed(metadata.future_times(meta, now_ms))
        ],
    }
    counts = {Flaw.MISCOUNTED_MANIFESTS: integrity.miscounted_count}
    return tuple(
        MetadataFlaw(flaw, counts.get(flaw, len(ids)), tuple(map(str, ids[:_EXAMPLES])))
        for flaw, ids in ids_of.items()
        if ids
    )


def declared_filter_columns(properties: Mapping[str, str]) -> list[str]:
    """The columns of the table property ``icekit.filter-columns``."""
    names = properties.get(FILTER_COLUMNS_PROPERTY, "").split(",")
    return list(filter(None, map(str.strip, names)))


def _filter_columns(
    stated_columns: Sequence[str] | None, properties: dict[str, str], known_columns: Sequence[str]
) -> tuple[str, ...]:
    """The stated columns, or else those of the table property; an unknown column is an error in the
    former and ignored in the latter.
    """
    if not stated_columns:
        return tuple(c for c in declared_filter_columns(properties) if c in known_columns)
    for column in stated_columns:
        require_known(column, known_columns, "column")
    return tuple(stated_columns)
