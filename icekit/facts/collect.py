"""Observe a table: choose a collector, assemble the facts, and reject metadata that is damaged or contradicts itself."""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from icekit.engine.bridge import iceberg_version
from icekit.errors import MetadataUnreadable, ParameterError, first_line, nearest, require
from icekit.facts import local, metadata
from icekit.facts.flaws import Flaw, MetadataFlaw
from icekit.facts.manifest_counts import ManifestFacts
from icekit.facts.manifests import (
    Record,
    file_counts,
    is_counted,
    live_count,
    manifest_facts,
    manifest_list,
    sample_metrics,
)
from icekit.facts.metadata import Damaged, lineage
from icekit.facts.metrics_sample import MetricsSample
from icekit.facts.missing import Searched, missing_files
from icekit.facts.model import TableFacts
from icekit.facts.recent import MOST_MANIFESTS, RECENT_MINUTES, written_since
from icekit.facts.retention import expirable
from icekit.facts.rollup import Cut, Rollup, edges, sequence_width, sort_key
from icekit.facts.storage import MissingFiles, Role, StorageFacts
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake
    from icekit.catalog.tables import TableSource

Collector = Literal["auto", "spark", "local"]

# Starting Spark is worth it from here: a cold start takes as long as reading this many files without Spark.
LOCAL_FILES = 200_000
# Using Spark is worth it from here if it already runs.
LOCAL_FILES_BESIDE_SPARK = 20_000
FILTER_COLUMNS_PROPERTY = "icekit.filter-columns"
_EXAMPLES = 5
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
    """Collect the facts of a table at a snapshot; reads only metadata and changes nothing.

    ``ref`` is a branch, tag or snapshot id (default: the current snapshot). ``collector``
    ``auto`` reads without Spark while the manifest list counts few files.
    ``size_ratios`` are the file sizes, as shares of the target, at which thresholds count.
    ``filter_columns`` are the columns that queries filter by; default: the table property
    ``icekit.filter-columns``. ``storage`` also lists orphan files, unless another
    table of the catalog shares the location: this reads every table's metadata file, and ``say``
    gets its progress. Spark lists them, unless the table is small and on a disk of this machine. ``progress`` is called with (manifests read, of how many).

    Raises the errors of :mod:`icekit.errors`, each of which says what to do.
    """
    started = time.monotonic()
    name = lake.identifier(table) if isinstance(table, str) else table
    source = lake.tables.source(name)
    meta, metadata_bytes = sized_metadata(source)
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
    flaws = _flaws(meta, snapshot, manifests)
    is_uncounted = any(each.flaw is Flaw.UNCOUNTED_MANIFESTS for each in flaws)
    if is_uncounted:
        used = "local"  # Iceberg's metadata tables fail
    if snapshot is not None:
        counts = manifest_facts(manifests, specs, metadata.int_setting(in_force, "commit.manifest.target-size-bytes"))
        sample = sample_metrics(manifests, columns, source.read, schema.get("identifier-field-ids") or ())
        by_id, widths = {spec.spec_id: spec for spec in specs}, _widths(manifests, int(meta.get("last-sequence-number", 0)))
        of_keys = metadata.key_columns(meta)
        if used == "local":
            rollup, width = local.roll_up(manifests, by_id, cut, source.read, widths, progress, of_keys)
        else:
            from icekit.facts import spark

            full, snapshot_id = lake.sql_name(name), snapshot["snapshot-id"]
            rollup, width = spark.roll_up(lake.spark, full, snapshot_id, manifests, by_id, cut, widths, of_keys)
            spark.check_listed(lake.spark, full, snapshot_id, counted, rollup.file_counts())
        if is_uncounted:
            there = rollup.file_counts()
            counts = replace(counts, data_entry_count=there.data, delete_entry_count=there.deletes)
    now_ms = int(time.time() * 1000)
    recent = written_since(source.read, meta, snapshot, now_ms - int(RECENT_MINUTES * 60_000), manifests, MOST_MANIFESTS)
    searched = Searched(meta, snapshot, manifests, {spec.spec_id: spec for spec in specs})
    listed, missing, unlisted = _storage(lake, name, source, searched, used, say) if storage else (None, None, None)
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
        history=replace(metadata.history(meta, snapshot), expirable_count=_expirable(meta, now_ms)),
        metrics_sample=sample,
        equality_keys=rollup.equality_keys(),
        unapplied=rollup.unapplied_deletes(),
        integrity=rollup.integrity,
        recent=tuple(sorted(recent, key=sort_key)),
        metadata_bytes=metadata_bytes,
        storage=listed,
        missing=missing,
        flaws=flaws,
        statistics=metadata.statistics_ages(meta, snapshot),
        unlisted=unlisted,
        collector=used,
        iceberg_version=iceberg_version(lake.spark, lake.name) if used == "spark" else None,
        collected_at_ms=now_ms,
        seconds=time.monotonic() - started,
    )


def _expirable(meta: Mapping[str, Any], now_ms: int) -> int | None:
    """The snapshots that would expire now; None where the properties allow no expiry, or the snapshots of a branch are damaged."""
    try:
        return expirable(meta, now_ms)
    except (ParameterError, Damaged):
        return None


def load_metadata(source: TableSource) -> dict[str, Any]:
    """The table's metadata JSON, as from :func:`sized_metadata`."""
    return sized_metadata(source)[0]


def sized_metadata(source: TableSource) -> tuple[dict[str, Any], int]:
    """The table's metadata JSON, compressed or not, and the size of its file.

    Raises :class:`~icekit.errors.MetadataUnreadable` for a file that is not metadata or is damaged; the message says where.
    """
    location = source.metadata_location
    raw = source.read(location)
    file_bytes = len(raw)
    try:
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        loaded: dict[str, Any] = json.loads(raw)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        why = "it is empty" if not raw else first_line(error)
        raise MetadataUnreadable(f"{location} is not table metadata ({why}); {_OLDER}.") from None
    check_metadata(loaded, location)
    return loaded, file_bytes


def check_metadata(loaded: Any, location: str) -> None:
    """Raise :class:`~icekit.errors.MetadataUnreadable` for damaged metadata; ``location`` is the path of the metadata file."""
    try:
        check(loaded)
    except Damaged as problem:
        raise MetadataUnreadable(f"The table metadata {location} is damaged: {problem}; {_OLDER}.") from None


def choose(lake: Lake, collector: Collector, file_count: int) -> Literal["spark", "local"]:
    """The collector for a number of files, unless ``collector`` names one."""
    if collector in ("spark", "local"):
        return collector
    if collector != "auto":
        raise ParameterError(
            f"There is no collector {collector!r}{nearest(collector, ['auto', 'spark', 'local'], count=1) or '; use auto, spark or local.'}"
        )
    limit = LOCAL_FILES_BESIDE_SPARK if lake.spark_is_running else LOCAL_FILES
    if file_count <= limit:
        return "local"
    if not lake.spark_is_running:
        require("pyspark", f"Reading the metadata of {file_count:,} files (unless with collector local)")
    return "spark"


def _manifests(snapshot: metadata.Json | None, source: TableSource, spec_ids: Collection[int]) -> list[Record]:
    if snapshot is None:
        return []
    location = snapshot.get("manifest-list")
    if location is None:
        raise MetadataUnreadable(
            f"Snapshot {snapshot['snapshot-id']} lists its manifests inline, as writers before 2019 did; any commit of a current engine rewrites it."
        )
    found = manifest_list(source.read(location), location)
    for manifest in found:
        if manifest["partition_spec_id"] not in spec_ids:
            raise MetadataUnreadable(
                f"{location} lists a manifest with partition spec {manifest['partition_spec_id']}, but partition-specs in {source.metadata_location} does not have that spec; {_OLDER}."
            )
    return found


def _flaws(meta: metadata.Json, snapshot: metadata.Json | None, manifests: Sequence[Record]) -> tuple[MetadataFlaw, ...]:
    """What of the metadata is readable here, and refused by Iceberg where it needs it."""
    schemas = {schema.get("schema-id", 0) for schema in meta.get("schemas") or ()}
    without = [s["snapshot-id"] for s in meta.get("snapshots") or () if schemas and s.get("schema-id") not in {None, *schemas}]
    observed = None if snapshot is None else snapshot["snapshot-id"]
    columns, default = _field_ids(metadata.schema_of(meta)), meta.get("default-sort-order-id", 0)
    orders = [
        order["order-id"]
        for order in meta.get("sort-orders") or ()
        if order["order-id"] != default and any(f["transform"] != "void" and f["source-id"] not in columns for f in order["fields"])
    ]
    found = {
        Flaw.UNCOUNTED_MANIFESTS: [manifest["manifest_path"] for manifest in manifests if not is_counted(manifest)],
        Flaw.SCHEMA_GONE: [each for each in without if each == observed],
        Flaw.OLD_SCHEMA_GONE: [each for each in without if each != observed],
        Flaw.ORDER_BY_DROPPED: orders,
    }
    return tuple(MetadataFlaw(flaw, len(ids), tuple(map(str, ids[:_EXAMPLES]))) for flaw, ids in found.items() if ids)


def _widths(manifests: Sequence[Record], last_sequence: int) -> Callable[[int], int]:
    """The width of sequence numbers for a number of partitions."""
    file_count = sum(map(live_count, manifests))
    return lambda partition_count: sequence_width(file_count, partition_count, last_sequence)


def declared_filter_columns(properties: Mapping[str, str]) -> list[str]:
    """The columns of the table property ``icekit.filter-columns``."""
    return [name for c in properties.get(FILTER_COLUMNS_PROPERTY, "").split(",") if (name := c.strip())]


def _filter_columns(stated: Sequence[str] | None, properties: dict[str, str], known: Sequence[str]) -> tuple[str, ...]:
    """The stated columns, or else those of the table property; an unknown column is an error in the former and ignored in the latter."""
    if not stated:
        return tuple(c for c in declared_filter_columns(properties) if c in known)
    for column in stated:
        if column not in known:
            near = nearest(column, known) or "; columns: " + ", ".join(known[:10]) + "."
            raise ParameterError(f"There is no column {column!r} to filter by{near}")
    return tuple(stated)


def _storage(
    lake: Lake, name: Identifier, source: TableSource, searched: Searched, used: Collector, say: Callable[[str], None] | None
) -> tuple[StorageFacts | None, MissingFiles | None, str | None]:
    """The orphan files, the missing files, and why orphan files were not listed."""
    from icekit.facts.orphans import REMEMBERED_SECONDS, TableQuery, list_orphans, orphans_before, orphans_on_disk, sharing

    meta = searched.metadata

    def latest() -> tuple[TableSource, metadata.Json]:
        now = lake.tables.source(name)
        return now, load_metadata(now)

    missing = None
    if searched.snapshot is not None:
        missing = missing_files(lake, name, source, searched, with_spark=used == "spark")
        if missing.counts and searched.snapshot_id not in metadata.snapshots_by_id(latest()[1]):
            missing = MissingFiles(unchecked="the snapshot expired while its files were looked up")
    # The procedure rejects a table whose files others may share: nobody can say which files are orphans.
    if str((meta.get("properties") or {}).get("gc.enabled", "true")).lower() == "false":
        return None, missing, "gc.enabled is false, so another table may use the files"
    if missing is not None and missing.count(Role.MANIFEST_LIST).gone_count:
        return None, missing, "the manifest list of a snapshot is gone, so it is not known which files that snapshot references"
    found = sharing(lake, name, load_metadata, TableQuery(say=say), max_age=REMEMBERED_SECONDS)
    if found.shared:
        return StorageFacts(int(orphans_before().timestamp() * 1000), 0, sharing=found), missing, None
    on_disk = orphans_on_disk(meta, latest) if used == "local" else None
    try:
        listed = on_disk or list_orphans(lake.spark, lake.sql_name(name), meta["location"])
    except MetadataUnreadable as error:
        return None, missing, first_line(error).rstrip(".")
    return replace(listed, sharing=found), missing, None


# --- Reject table metadata that is damaged or contradicts itself, with the field and its value; pure
#
# Rejects what Iceberg's own parser rejects (TableMetadataParser, TableMetadata): a required field that is missing or null, and a value
# of another kind. Except unknown type names, because a newer Iceberg may have more. Also rejects errors that the parser ignores:
# a lineage with a circle, duplicate ids, a current snapshot that is lost although the snapshot log has it,
# and a format version newer than the rules here.


#: The format versions with rules here (table spec).
VERSIONS = (1, 2, 3)
_REF_TYPES = ("branch", "tag")
# Ids that mean "no snapshot", as writers of format version 1 write them.
_NONE = (None, -1)
# The figures read from a snapshot's summary (SnapshotSummary); engines add to the totals with every commit.
_FIGURES = tuple(
    [f"{did}-{what}" for did in ("added", "deleted", "total") for what in ("data-files", "records")]
    + [f"{did}-{what}" for did in ("added", "removed", "total") for what in ("delete-files", "files-size")]
    + [f"{did}-{what}" for did in ("added", "removed") for what in ("equality-delete-files", "position-delete-files", "dvs")]
    + [f"{did}-{what}" for did in ("added", "removed", "total") for what in ("equality-deletes", "position-deletes")]
    + ["changed-partition-count"]
)
_FIGURE = re.compile(r"-?[0-9]{1,19}")
# The end of the year 9999: a later moment cannot be written as a date.
_LAST_MS = 253_402_300_799_999
_LONGEST = 60
# Types nested deeper than any engine writes would overflow the stack of a reader.
_DEEPEST = 200


def check(metadata: Any) -> None:
    """Raise :class:`~icekit.facts.metadata.Damaged` for the first error in a table's metadata JSON."""
    _kind(metadata, dict, "the document", "an object")
    version = _present(metadata, "format-version")
    if isinstance(version, bool) or version not in VERSIONS or not isinstance(version, int):
        newer = isinstance(version, int) and version > max(VERSIONS)
        raise Damaged(
            f"format-version is {_shown(version)}, but {'only versions' if newer else 'there are versions'} 1 to {max(VERSIONS)}"
            f"{' are known here: a newer icekit may support it' if newer else ''}"
        )
    _kind(_present(metadata, "location"), str, "location", "a string")
    for key in ("last-updated-ms", "last-column-id", *(("next-row-id",) if version > 2 else ())):
        _whole(_present(metadata, key), key)
    if version > 1:
        for key in ("table-uuid", "last-partition-id", "sort-orders"):
            _present(metadata, key)
    _kind(metadata.get("table-uuid") or "", str, "table-uuid", "a string")
    if metadata.get("last-partition-id") is not None:
        _whole(metadata["last-partition-id"], "last-partition-id")
    for key, value in _map(metadata, "properties").items():
        _kind(value, str, f"properties.{key}", "a string")
    columns = _field_ids(_check_schemas(metadata, version))
    _check_specs(metadata, version, columns)
    _check_orders(metadata, columns)
    _check_snapshots(metadata, version)
    _check_statistics(metadata)
    for place, entry in enumerate(_objects(metadata, "metadata-log")):
        _whole(entry.get("timestamp-ms"), f"metadata-log[{place}].timestamp-ms")
        _kind(entry.get("metadata-file"), str, f"metadata-log[{place}].metadata-file", "a string")


def _check_schemas(metadata: Mapping[str, Any], version: int) -> Mapping[str, Any]:
    """Check all schemas; returns the current one."""
    schemas = _objects(metadata, "schemas")
    if not schemas:
        if version > 1 or metadata.get("schema") is None:
            raise Damaged("schemas is empty or missing, so the table has no columns")
        _check_schema(metadata["schema"], "schema")
        return dict(metadata["schema"])
    for place, schema in enumerate(schemas):
        _check_schema(schema, f"schemas[{place}]")
    ids = _unique((schema.get("schema-id", 0) for schema in schemas), "schemas", "schema-id")
    current = _present(metadata, "current-schema-id")
    _named(current, ids, "current-schema-id", "schemas")
    return next((schema for schema in schemas if schema.get("schema-id", 0) == current), schemas[-1])


def _field_ids(kind: Any) -> set[int]:
    """The ids of all columns of a checked schema or type, nested ones too."""
    if isinstance(kind, str):
        return set()
    inner = [(field["id"], field["type"]) for field in kind.get("fields") or ()]
    inner += [(kind[f"{part}-id"], kind[part]) for part in ("element", "key", "value") if part in kind]
    return {number for number, _ in inner}.union(*(_field_ids(nested) for _, nested in inner))


def _check_schema(schema: Any, where: str) -> None:
    _kind(schema, dict, where, "an object")
    if schema.get("type") != "struct":
        raise Damaged(f"{where}.type is {_shown(schema.get('type'))}, but must be struct")
    if schema.get("schema-id") is not None:
        _whole(schema["schema-id"], f"{where}.schema-id")
    _check_fields(schema.get("fields"), f"{where}.fields")


def _check_fields(fields: Any, where: str) -> None:
    for place, field in enumerate(_kind(fields, list, where, "a list")):
        at = f"{where}[{place}]"
        _kind(field, dict, at, "an object")
        _whole(field.get("id"), f"{at}.id")
        _kind(field.get("name"), str, f"{at}.name", "a string")
        _kind(field.get("required"), bool, f"{at}.required", "true or false")
        _kind(field.get("doc", ""), str, f"{at}.doc", "a string")
        _check_type(field.get("type"), f"{at}.type")


def _check_type(kind: Any, where: str) -> None:
    if isinstance(kind, str):
        return
    if where.count(".") > _DEEPEST:
        raise Damaged(f"{where[:_LONGEST]}… is a type nested more than {_DEEPEST // 2} times")
    _kind(kind, dict, where, "a type")
    match kind.get("type"):
        case "struct":
            _check_fields(kind.get("fields"), f"{where}.fields")
        case "list":
            _whole(kind.get("element-id"), f"{where}.element-id")
            _kind(kind.get("element-required"), bool, f"{where}.element-required", "true or false")
            _check_type(kind.get("element"), f"{where}.element")
        case "map":
            _whole(kind.get("key-id"), f"{where}.key-id")
            _whole(kind.get("value-id"), f"{where}.value-id")
            _kind(kind.get("value-required"), bool, f"{where}.value-required", "true or false")
            _check_type(kind.get("key"), f"{where}.key")
            _check_type(kind.get("value"), f"{where}.value")
        case other:
            raise Damaged(f"{where}.type is {_shown(other)}, but a nested type is a struct, a list or a map")


def _check_specs(metadata: Mapping[str, Any], version: int, columns: set[int]) -> None:
    specs = _objects(metadata, "partition-specs")
    if not specs:
        if version > 1:
            raise Damaged("partition-specs is empty or missing, so it is not known how the files are partitioned")
        fields = _present(metadata, "partition-spec")
        _check_spec_fields(fields, "partition-spec")
        _check_sources(fields, "partition-spec", columns)
        return
    for place, spec in enumerate(specs):
        _check_spec_fields(spec.get("fields"), f"partition-specs[{place}].fields")
    ids = _unique((spec.get("spec-id") for spec in specs), "partition-specs", "spec-id")
    default = _present(metadata, "default-spec-id")
    _named(default, ids, "default-spec-id", "partition-specs")
    place = next(place for place, spec in enumerate(specs) if spec["spec-id"] == default)
    _check_sources(specs[place]["fields"], f"partition-specs[{place}].fields", columns)


def _check_sources(fields: Sequence[Mapping[str, Any]], where: str, columns: set[int]) -> None:
    """Check the columns that partition or sort new files; for a dropped column, version 1 keeps only a placeholder."""
    for place, field in enumerate(fields):
        for source in [field["source-id"]] if field.get("source-id") is not None else field.get("source-ids") or []:
            if field["transform"] != "void" and source not in columns:
                raise Damaged(f"{where}[{place}].source-id is {source}, but no column of the current schema has that id")


def _check_spec_fields(fields: Any, where: str) -> None:
    for place, field in enumerate(_kind(fields, list, where, "a list")):
        at = f"{where}[{place}]"
        _kind(field, dict, at, "an object")
        _kind(field.get("name"), str, f"{at}.name", "a string")
        _kind(field.get("transform"), str, f"{at}.transform", "a string")
        sources = (
            [field["source-id"]] if field.get("source-id") is not None else _kind(field.get("source-ids"), list, f"{at}.source-id", "an id")
        )
        for source in sources:
            _whole(source, f"{at}.source-id")
        _optional(field, "field-id", at)


def _check_orders(metadata: Mapping[str, Any], columns: set[int]) -> None:
    orders = _objects(metadata, "sort-orders")
    for place, order in enumerate(orders):
        for number, field in enumerate(_kind(order.get("fields"), list, f"sort-orders[{place}].fields", "a list")):
            at = f"sort-orders[{place}].fields[{number}]"
            _kind(field, dict, at, "an object")
            for key in ("transform", "direction", "null-order"):
                _kind(field.get(key), str, f"{at}.{key}", "a string")
            _whole(field.get("source-id"), f"{at}.source-id")
    ids = _unique((order.get("order-id") for order in orders), "sort-orders", "order-id")
    # Version 1 may have none at all.
    if default := _present(metadata, "default-sort-order-id") if "sort-orders" in metadata else 0:
        _named(default, ids, "default-sort-order-id", "sort-orders")
        place = next(place for place, order in enumerate(orders) if order["order-id"] == default)
        _check_sources(orders[place]["fields"], f"sort-orders[{place}].fields", columns)


def _check_snapshots(metadata: Mapping[str, Any], version: int) -> None:
    snapshots = _objects(metadata, "snapshots")
    last = _whole(_present(metadata, "last-sequence-number"), "last-sequence-number") if version > 1 else None
    for place, snapshot in enumerate(snapshots):
        _check_snapshot(snapshot, f"snapshots[{place}]", last)
    ids = _unique((snapshot["snapshot-id"] for snapshot in snapshots), "snapshots", "snapshot-id")
    current = metadata.get("current-snapshot-id")
    if current not in _NONE:
        _named(current, ids, "current-snapshot-id", "snapshots")
    refs = _map(metadata, "refs")
    for name, ref in refs.items():
        _kind(ref, dict, f"refs.{name}", "an object")
        if ref.get("type") not in _REF_TYPES:
            raise Damaged(f"refs.{name}.type is {_shown(ref.get('type'))}, but a ref is a branch or a tag")
        _named(ref.get("snapshot-id"), ids, f"refs.{name}.snapshot-id", "snapshots")
        for key in ("max-ref-age-ms", "max-snapshot-age-ms", "min-snapshots-to-keep"):
            if ref.get(key) is not None:
                _whole(ref[key], f"refs.{name}.{key}")
    head = refs["main"]["snapshot-id"] if "main" in refs else None
    if head is not None and head != current:
        raise Damaged(f"current-snapshot-id is {_shown(current)}, but refs.main.snapshot-id is {head}: they must be equal")
    _check_lineage(snapshots)
    _check_log(metadata, ids)


def _check_log(metadata: Mapping[str, Any], ids: set[int]) -> None:
    """Without a current snapshot, check that the snapshot log does not name one.

    Iceberg removes snapshots from the list and from the log together, and leaves both unchanged when CREATE OR REPLACE
    removes the current snapshot, which is a later change. Staged commits and other branches are not in the log.
    """
    log = _objects(metadata, "snapshot-log")
    for place, entry in enumerate(log):
        number = _whole(entry.get("snapshot-id"), f"snapshot-log[{place}].snapshot-id")
        moment = _whole(entry.get("timestamp-ms"), f"snapshot-log[{place}].timestamp-ms")
        if metadata.get("current-snapshot-id") not in _NONE:
            continue
        if number not in ids:
            raise Damaged(f"no snapshot is current, but snapshot-log[{place}].snapshot-id is {number}, which is not in snapshots")
        if place == len(log) - 1 and moment == metadata.get("last-updated-ms"):
            raise Damaged(
                f"no snapshot is current, but according to snapshot-log[{place}] the last change (last-updated-ms) made {number} the current one"
            )


def _check_snapshot(snapshot: Mapping[str, Any], where: str, last: int | None) -> None:
    _whole(snapshot.get("snapshot-id"), f"{where}.snapshot-id")
    if not 0 <= _whole(snapshot.get("timestamp-ms"), f"{where}.timestamp-ms") <= _LAST_MS:
        raise Damaged(f"{where}.timestamp-ms is {snapshot['timestamp-ms']}, but must be milliseconds since 1970, before the year 10000")
    for key in ("parent-snapshot-id", "sequence-number"):
        _optional(snapshot, key, where)
    for key in ("schema-id", "first-row-id"):
        if snapshot.get(key) is not None:
            _whole(snapshot[key], f"{where}.{key}")
    if snapshot.get("first-row-id") is not None:
        _whole(snapshot.get("added-rows"), f"{where}.added-rows")
    number = snapshot.get("sequence-number") or 0
    if last is not None and number > last:
        raise Damaged(f"{where}.sequence-number is {number}, but last-sequence-number is {last}: no commit can be newer than the last one")
    listing = snapshot.get("manifest-list")
    if listing is None:
        _kind(snapshot.get("manifests"), list, f"{where}.manifest-list", "a string")
    else:
        _kind(listing, str, f"{where}.manifest-list", "a string")
    summary = _map(snapshot, "summary", f"{where}.summary")
    for key, value in summary.items():
        _kind(value, str, f"{where}.summary.{key}", "a string")
    for key in _FIGURES:
        if key in summary and not _FIGURE.fullmatch(summary[key]):
            raise Damaged(f"{where}.summary.{key} is {_shown(summary[key])}, but must be a whole number")


def _check_statistics(metadata: Mapping[str, Any]) -> None:
    for key in ("statistics", "partition-statistics"):
        for place, file in enumerate(_objects(metadata, key)):
            at = f"{key}[{place}]"
            _kind(file.get("statistics-path"), str, f"{at}.statistics-path", "a string")
            of_table = ("file-footer-size-in-bytes",) if key == "statistics" else ()
            for number in ("snapshot-id", "file-size-in-bytes", *of_table):
                _whole(file.get(number), f"{at}.{number}")
            for number, blob in enumerate(_kind(file.get("blob-metadata"), list, f"{at}.blob-metadata", "a list") if of_table else ()):
                _check_blob(_kind(blob, dict, f"{at}.blob-metadata[{number}]", "an object"), f"{at}.blob-metadata[{number}]")


def _check_blob(blob: Mapping[str, Any], where: str) -> None:
    _kind(blob.get("type"), str, f"{where}.type", "a string")
    for key in ("snapshot-id", "sequence-number"):
        _whole(blob.get(key), f"{where}.{key}")
    for field in _kind(blob.get("fields"), list, f"{where}.fields", "a list"):
        _whole(field, f"{where}.fields")
    for key, value in _map(blob, "properties", f"{where}.properties").items():
        _kind(value, str, f"{where}.properties.{key}", "a string")


def _check_lineage(snapshots: Sequence[Mapping[str, Any]]) -> None:
    """Check each snapshot's ancestors; every snapshot is visited once."""
    by_id: dict[int | None, Mapping[str, Any]] = {snapshot["snapshot-id"]: snapshot for snapshot in snapshots}
    done: set[object] = set()
    for snapshot in snapshots:
        walked = []
        for ancestor in lineage(by_id, snapshot):
            if ancestor["snapshot-id"] in done:
                break
            walked.append(ancestor["snapshot-id"])
        done.update(walked)


def _present(metadata: Mapping[str, Any], key: str) -> Any:
    if metadata.get(key) is None:
        raise Damaged(f"{key} is {'null' if key in metadata else 'missing'}")
    return metadata[key]


def _kind(value: Any, kind: type, where: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise Damaged(f"{where} is {_shown(value)}, but must be {wanted}")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise Damaged(f"{where} is {_shown(value)}, but must be a 64-bit whole number")
    return value


def _optional(of: Mapping[str, Any], key: str, where: str) -> None:
    """Check a whole number that may be missing, but not null."""
    if key in of:
        _whole(of[key], f"{where}.{key}")


def _map(of: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    found: Mapping[str, Any] = _kind(of.get(key, {}), dict, where or key, "an object")
    return found


#: Lists for which the parser takes null too.
_MAY_BE_NULL = ("metadata-log", "snapshot-log")


def _objects(metadata: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    is_empty = key not in metadata or (metadata[key] is None and key in _MAY_BE_NULL)
    found: Sequence[Mapping[str, Any]] = _kind([] if is_empty else metadata[key], list, key, "a list")
    for place, one in enumerate(found):
        _kind(one, dict, f"{key}[{place}]", "an object")
    return found


def _unique(ids: Iterator[Any], where: str, key: str) -> set[int]:
    found: set[int] = set()
    for place, one in enumerate(ids):
        if _whole(one, f"{where}[{place}].{key}") in found:
            raise Damaged(f"{where}[{place}].{key} is {one}, but another entry of {where} has the same")
        found.add(one)
    return found


def _named(value: Any, ids: set[int], where: str, among: str) -> None:
    if _whole(value, where) not in ids:
        there = f"{len(ids):,} others are" if len(ids) > 1 else "one other is" if ids else "nothing is"
        raise Damaged(f"{where} is {value}, which is not in {among} ({there})")


def _shown(value: Any) -> str:
    """A value as in JSON; a long one is cut."""
    text = {None: "missing or null", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else None
    text = text or ("a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
