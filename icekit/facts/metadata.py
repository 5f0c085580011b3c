"""Read table metadata JSON: schema, specs, sort order, properties, snapshots; write a sort order as SQL."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from icekit.errors import MetadataUnreadable, ParameterError, SnapshotNotFound, nearest
from icekit.facts.definition import Column, DistributionMode, PartitionField, PartitionSpec, Setting, SortField
from icekit.facts.key_bounds import KeyColumn
from icekit.facts.model import TableFacts
from icekit.facts.snapshots import Commit, History, Ref, SnapshotStatistics, StatisticsAge
from icekit.facts.values import result_type
from icekit.sql import Identifier, call, display_name, identifier, set_properties, transform_of, unset_properties

Json = Mapping[str, Any]

TARGET, ROW_GROUP = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"
MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")

# Table properties that findings and advice use, with Iceberg's defaults (TableProperties).
DEFAULTS: Mapping[str, str | None] = {
    "write.format.default": "parquet",
    TARGET: "536870912",
    "write.delete.target-file-size-bytes": "67108864",
    # Tables created since Iceberg 1.4 have zstd in their properties; without the property writers use gzip.
    "write.parquet.compression-codec": "gzip",
    ROW_GROUP: "134217728",
    "write.distribution-mode": None,
    "write.delete.distribution-mode": None,
    "write.update.distribution-mode": None,
    "write.merge.distribution-mode": None,
    "write.spark.advisory-partition-size-bytes": None,
    "write.spark.fanout.enabled": "false",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "write.delete.granularity": "partition",
    "write.metadata.metrics.default": "truncate(16)",
    "write.metadata.metrics.max-inferred-column-defaults": "100",
    "write.metadata.previous-versions-max": "100",
    "write.metadata.delete-after-commit.enabled": "false",
    "commit.manifest.target-size-bytes": "8388608",
    "commit.manifest.min-count-to-merge": "100",
    "commit.manifest-merge.enabled": "true",
    "history.expire.max-snapshot-age-ms": "432000000",
    "history.expire.min-snapshots-to-keep": "1",
    "gc.enabled": "true",
}

# Properties parsed as whole numbers here, each with the smallest usable value.
_ANY = -(2**63)
_NUMBERS: Mapping[str, int] = {
    TARGET: 1,
    "write.delete.target-file-size-bytes": 1,
    ROW_GROUP: 1,
    "write.parquet.page-size-bytes": 1,
    "write.parquet.dict-size-bytes": 0,
    "write.parquet.bloom-filter-max-bytes": 1,
    "write.spark.advisory-partition-size-bytes": 1,
    "write.metadata.metrics.max-inferred-column-defaults": _ANY,
    "write.metadata.previous-versions-max": _ANY,
    "commit.manifest.target-size-bytes": 1,
    "commit.manifest.min-count-to-merge": _ANY,
    "read.split.target-size": 1,
    "history.expire.max-snapshot-age-ms": _ANY,
    "history.expire.max-ref-age-ms": _ANY,
    "history.expire.min-snapshots-to-keep": _ANY,
}
#: TableProperties.SPLIT_SIZE_DEFAULT and SPLIT_OPEN_FILE_COST_DEFAULT.
SPLIT_BYTES, OPEN_FILE_COST = 128 * 2**20, 4 * 2**20
_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
_NUMBER_OF_COLUMN = "write.parquet.bloom-filter-ndv.column."


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """A table property that is a whole number.

    Raises :class:`~icekit.errors.ParameterError` for a value that writers or icekit cannot use: Iceberg
    accepts any Java Long, but a size of 0 gives a file for every thousand rows.
    """
    stated, least = properties.get(name), _NUMBERS.get(name, 1)
    if stated is None:
        return default
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stated) and least <= int(stated) < 2**63:
        return int(stated)
    wanted = "a whole number" if least == _ANY else f"a whole number of {least} or more"
    raise ParameterError(
        f"The table property {name} is {stated[:100]!r}, but must be {wanted}; set it, or remove it to use the default "
        f"(ALTER TABLE … UNSET TBLPROPERTIES ('{name}'))."
    )


def schema_of(metadata: Json, schema_id: int | None = None) -> Json:
    """A schema by id; without an id, the current schema."""
    schemas = metadata.get("schemas") or [metadata["schema"]]
    wanted = metadata.get("current-schema-id", 0) if schema_id is None else schema_id
    return next((s for s in schemas if s.get("schema-id", 0) == wanted), schemas[-1])


def leaves(fields: Sequence[Json], prefix: str = "", top: int | None = None) -> Iterator[tuple[int, str, str, bool, int]]:
    """Every leaf as (field id, dotted name, type, required, top-level position)."""
    for place, column in enumerate(fields):
        name = prefix + column["name"]
        position = place if top is None else top
        yield from _leaf(column["id"], name, column["type"], column.get("required", False), position)


def _leaf(field_id: int, name: str, kind: Any, required: bool, position: int) -> Iterator[tuple[int, str, str, bool, int]]:
    if isinstance(kind, str):
        yield field_id, name, kind, required, position
    elif kind["type"] == "struct":
        yield from leaves(kind["fields"], f"{name}.", position)
    elif kind["type"] == "list":
        yield from _leaf(kind["element-id"], f"{name}.element", kind["element"], kind["element-required"], position)
    elif kind["type"] == "map":
        yield from _leaf(kind["key-id"], f"{name}.key", kind["key"], True, position)
        yield from _leaf(kind["value-id"], f"{name}.value", kind["value"], kind["value-required"], position)


def _nested_paths(fields: Sequence[Json], above: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Field id and names from the top down, for fields inside structs; the path of other fields is their name."""
    for column in fields:
        path = (*above, column["name"])
        if above:
            yield column["id"], path
        if isinstance(column["type"], dict) and column["type"]["type"] == "struct":
            yield from _nested_paths(column["type"]["fields"], path)


def specs(metadata: Json) -> tuple[PartitionSpec, ...]:
    """Every partition spec, by id; source columns have the names of the current schema."""
    raw = metadata.get("partition-specs") or [{"spec-id": 0, "fields": metadata.get("partition-spec") or []}]
    types: dict[int, tuple[str | None, str]] = {}
    for schema in metadata.get("schemas") or [metadata["schema"]]:
        types.update({i: (None, kind) for i, _, kind, _, _ in leaves(schema["fields"])})
    types.update({i: (name, kind) for i, name, kind, _, _ in leaves(schema_of(metadata)["fields"])})
    found = []
    for spec in sorted(raw, key=lambda s: s["spec-id"]):
        fields = []
        for place, field in enumerate(spec["fields"]):
            source_id = field.get("source-id") or (field.get("source-ids") or [0])[0]
            source, kind = types.get(source_id, (None, "string"))
            fields.append(
                PartitionField(
                    field.get("field-id", 1000 + place),
                    field["name"],
                    field["transform"],
                    source_id,
                    source,
                    result_type(field["transform"], kind),
                )
            )
        found.append(PartitionSpec(spec["spec-id"], tuple(fields)))
    return tuple(found)


def sort_order(metadata: Json) -> tuple[SortField, ...]:
    """The default sort order; empty when unsorted."""
    names = {i: name for i, name, _, _, _ in leaves(schema_of(metadata)["fields"])}
    wanted = metadata.get("default-sort-order-id", 0)
    order = next((o for o in metadata.get("sort-orders") or () if o["order-id"] == wanted), {"fields": ()})
    return tuple(
        SortField(names.get(f.get("source-id"), f"field {f.get('source-id')}"), f["transform"], f["direction"], f["null-order"])
        for f in order["fields"]
    )


def settings(properties: Mapping[str, str]) -> tuple[Setting, ...]:
    """The properties that icekit uses, each marked as set or default.

    Raises :class:`~icekit.errors.ParameterError` for a property that should be a number and is not, including those parsed later.
    """
    for name in properties:
        if name in _NUMBERS or name.startswith(_NUMBER_OF_COLUMN):
            number(properties, name, 0)
    return tuple(
        Setting(name, properties[name], "table property") if name in properties else Setting(name, default, "default")
        for name, default in DEFAULTS.items()
    )


def int_setting(in_force: Iterable[Setting], name: str) -> int:
    """A whole number from :func:`settings`, which has validated it; 0 without a value."""
    return int(next(s.value for s in in_force if s.name == name) or 0)


def distribution_modes(properties: Mapping[str, str], *, partitioned: bool, is_sorted: bool) -> tuple[DistributionMode, ...]:
    """The distribution in force for appends and for the three row-level operations.

    Source: SparkWriteConf and SparkWriteUtil. A session's
    ``spark.sql.iceberg.distribution-mode`` and a write option override all of them.
    """
    if is_sorted:
        append = DistributionMode("append", "range", "default for a sorted table")
    elif partitioned:
        append = DistributionMode("append", "hash", "default for a partitioned table")
    else:
        append = DistributionMode("append", "none", "default for an unpartitioned, unsorted table")
    if (stated := properties.get("write.distribution-mode")) is not None:
        mode = stated.lower()
        # Nothing to hash or range by (SparkWriteConf, adjustWriteDistributionMode).
        void = (mode == "hash" and not partitioned) or (mode == "range" and not partitioned and not is_sorted)
        origin = (
            f"table property write.distribution-mode is {mode}, which needs a partitioning or an order"
            if void
            else "table property write.distribution-mode"
        )
        append = DistributionMode("append", "none" if void else mode, origin)
    found = [append]
    for operation in ("delete", "update", "merge"):
        name = f"write.{operation}.distribution-mode"
        if name in properties:
            found.append(DistributionMode(operation, properties[name].lower(), f"table property {name}"))
        elif operation == "merge" and properties.get("write.merge.mode", "copy-on-write") == "copy-on-write" and not partitioned:
            found.append(DistributionMode(operation, append.mode, f"as append: {append.origin}"))
        else:
            found.append(DistributionMode(operation, "hash", f"default of {name}"))
    return tuple(found)


def columns(metadata: Json, schema: Json) -> tuple[Column, ...]:
    """The leaf columns with the metrics mode in force for new files (MetricsConfig)."""
    properties = metadata.get("properties") or {}
    fields = schema["fields"]
    default = properties.get("write.metadata.metrics.default")
    inferred_default = int(DEFAULTS[_INFERRED] or 0)
    limit = number(properties, _INFERRED, inferred_default)
    # As MetricsConfig does with a negative value.
    limit = inferred_default if limit < 0 else limit
    # Transforms that preserve the order (MetricsConfig: order-preserving sorted columns).
    ordered = {f.source for f in sort_order(metadata) if not f.transform.startswith("bucket")}
    inferred = _limited(fields, limit)
    paths = dict(_nested_paths(fields))
    found = []
    for field_id, name, kind, required, position in leaves(fields):
        mode = default or ("truncate(16)" if field_id in inferred else "none")
        if name in ordered and mode in {"none", "counts"}:
            mode = "truncate(16)"
        mode = properties.get(f"write.metadata.metrics.column.{name}", mode)
        found.append(
            Column(
                field_id=field_id,
                name=name,
                type=kind,
                required=required,
                position=position,
                metrics_mode=mode,
                path=paths.get(field_id, ()),
            )
        )
    return tuple(found)


def key_columns(metadata: Json) -> dict[int, KeyColumn]:
    """The leaf columns of the current schema as keys of equality deletes, by field id.

    A scan compares bounds by the type and the nullability in a schema of the table (DeleteFileIndex); required is what every schema requires.
    """
    required: dict[int, bool] = {}
    for schema in metadata.get("schemas") or [metadata["schema"]]:
        for field_id, _, _, is_required, _ in leaves(schema["fields"]):
            required[field_id] = is_required and required.get(field_id, True)
    return {field_id: KeyColumn(kind, required[field_id]) for field_id, _, kind, _, _ in leaves(schema_of(metadata)["fields"])}


def _limited(fields: Sequence[Json], limit: int) -> set[int]:
    """Ids of the leaves that get metrics by default: in each struct, its own leaves before nested ones.

    Source: MetricsConfig.limitFieldIds.
    """
    found: set[int] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, str) or len(found) >= limit:
            return
        if kind["type"] == "struct":
            children = [(f["id"], f["type"]) for f in kind["fields"]]
        elif kind["type"] == "list":
            children = [(kind["element-id"], kind["element"])]
        else:
            children = [(kind["key-id"], kind["key"]), (kind["value-id"], kind["value"])]
        for field_id, child in children:
            if isinstance(child, str) and len(found) < limit:
                found.add(field_id)
        for _, child in children:
            visit(child)

    visit({"type": "struct", "fields": fields})
    return found


#: The figures of a summary that count the rows that a commit changed (SnapshotSummary).
_CHANGED_RECORDS = ("added-records", "deleted-records", "added-position-deletes", "added-equality-deletes")


def named_files(metadata: Json, metadata_location: str) -> frozenset[str]:
    """A metadata file and the files that it names directly: other metadata files, manifest lists and statistics."""
    found = [metadata_location, *(entry["metadata-file"] for entry in metadata.get("metadata-log") or ())]
    found += [s["manifest-list"] for s in metadata.get("snapshots") or () if s.get("manifest-list")]
    found += [s["statistics-path"] for key in ("statistics", "partition-statistics") for s in metadata.get(key) or ()]
    return frozenset(found)


def statistics_of(metadata: Json, snapshot_id: int | None) -> tuple[SnapshotStatistics, ...]:
    """The statistics of a snapshot: a commit leaves them with the snapshot before it, and has none of its own."""
    table, partition = (
        [file for file in metadata.get(key) or () if file["snapshot-id"] == snapshot_id] for key in ("statistics", "partition-statistics")
    )
    found: list[SnapshotStatistics] = []
    if table:
        fields = schema_of(metadata)["fields"]
        names = {field_id: name for field_id, name, *_ in leaves(fields)}
        ids = [i for file in table for blob in file.get("blob-metadata") or () for i in blob["fields"]]
        columns = dict.fromkeys(names[i] for i in ids if i in names)
        # What compute_table_stats takes without columns.
        by_default = {field["name"] for field in fields if isinstance(field["type"], str)}
        found.append(SnapshotStatistics("table", () if columns.keys() == by_default else tuple(columns)))
    return (*found, *([SnapshotStatistics("partition")] if partition else ()))


def renewal(catalog: str, table: Sequence[str], statistics: SnapshotStatistics) -> str:
    """The statement that computes such statistics for the current snapshot."""
    columns = {"columns": statistics.columns} if statistics.columns else {}
    return call(catalog, f"compute_{statistics.kind}_stats", table=display_name(table), **columns)


def statistics_ages(metadata: Json, snapshot: Json | None) -> tuple[StatisticsAge, ...]:
    """How far the newest statistics of each kind are behind a snapshot; without those whose snapshot is not in its lineage."""
    found: dict[str, StatisticsAge] = {}
    changed = 0
    computed_for = {file["snapshot-id"] for key in ("statistics", "partition-statistics") for file in metadata.get(key) or ()}
    for commits, ancestor in enumerate(lineage(snapshots_by_id(metadata), snapshot) if computed_for else ()):
        snapshot_id, summary = ancestor["snapshot-id"], ancestor.get("summary") or {}
        for computed in statistics_of(metadata, snapshot_id) if snapshot_id in computed_for else ():
            records = summary.get("total-records")
            age = StatisticsAge(computed, snapshot_id, commits, changed, None if records is None else int(records))
            found.setdefault(computed.kind, age)
        if summary.get("operation") != "replace":
            changed += sum(int(summary.get(key, 0)) for key in _CHANGED_RECORDS)
    return tuple(found.values())


# --- Read the snapshots of table metadata JSON: the chosen snapshot, its lineage, and the history


MAX_COMMITS = 1000


class Damaged(MetadataUnreadable):
    """A table's metadata is wrong; the message says where."""


class CyclicLineage(Damaged):
    """A snapshot that is its own ancestor."""

    def __init__(self, ids: Sequence[object]) -> None:
        shown = " → ".join(str(one) for one in (*ids[:5], *(["…"] if len(ids) > 5 else []), ids[0]))
        super().__init__(f"parent-snapshot-id forms a circle ({shown}), so the history of the table is not known")


def choose_snapshot(metadata: Json, ref: str | int | None) -> tuple[Json | None, str | None]:
    """The chosen snapshot, and the name of its branch or tag if ``ref`` is one.

    ``ref`` is a branch, a tag, a snapshot id, or None for the current snapshot. Raises
    :class:`~icekit.errors.SnapshotNotFound`.
    """
    snapshots = {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}
    refs = metadata.get("refs") or {}
    if ref is None or ref == "":
        current = metadata.get("current-snapshot-id")
        return snapshots.get(current), None
    if str(ref) in refs:
        return snapshots[refs[str(ref)]["snapshot-id"]], str(ref)
    if str(ref).lstrip("-").isdigit():
        if int(ref) in snapshots:
            return snapshots[int(ref)], None
        newest = max(snapshots.values(), key=lambda s: s["timestamp-ms"], default=None)
        there = f"the newest of {len(snapshots):,} snapshots is {newest['snapshot-id']}" if newest else "the table has no snapshots"
        raise SnapshotNotFound(f"Snapshot {ref} does not exist, or has expired; {there}.")
    known = ", ".join(sorted(refs)) or "none"
    raise SnapshotNotFound(f"There is no branch or tag {str(ref)!r}{nearest(str(ref), refs) or f'; known refs: {known}.'}")


def snapshots_by_id(metadata: Json) -> Mapping[int | None, Json]:
    """The existing snapshots by id; None, the parent of a first snapshot, finds none."""
    return {s["snapshot-id"]: s for s in metadata.get("snapshots") or ()}


def lineage(snapshots: Mapping[int | None, Json], snapshot: Json | None) -> Iterator[Json]:
    """A snapshot and its existing ancestors, newest first; ``snapshots`` are all snapshots by id.

    Raises :class:`CyclicLineage` if a snapshot is its own ancestor.
    """
    seen: dict[object, None] = {}
    while snapshot is not None:
        if snapshot["snapshot-id"] in seen:
            ids = list(seen)
            raise CyclicLineage(ids[ids.index(snapshot["snapshot-id"]) :])
        seen[snapshot["snapshot-id"]] = None
        yield snapshot
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))


def history(metadata: Json, snapshot: Json | None) -> History:
    """Cadence, operations, writers and refs, of all snapshots and of the chosen snapshot's lineage."""
    snapshots = snapshots_by_id(metadata)
    ancestors = list(lineage(snapshots, snapshot))[::-1]
    times = [s["timestamp-ms"] for s in ancestors]
    gaps = [(b - a) / 1000 for a, b in pairwise(times)]
    every = [s["timestamp-ms"] for s in snapshots.values()]
    operations = Counter(str((s.get("summary") or {}).get("operation", "unknown")) for s in ancestors)
    return History(
        snapshot_count=len(snapshots),
        lineage_count=len(ancestors),
        oldest_snapshot_ms=min(every, default=None),
        newest_snapshot_ms=max(every, default=None),
        median_seconds_between_commits=statistics.median(gaps) if gaps else None,
        operations=tuple(sorted(operations.items())),
        commits=tuple(_commit(s) for s in ancestors[-MAX_COMMITS:]),
        refs=tuple(Ref(name, ref["type"], ref["snapshot-id"]) for name, ref in sorted((metadata.get("refs") or {}).items())),
        metadata_log_count=len(metadata.get("metadata-log") or ()),
        schema_count=len(metadata.get("schemas") or ()) or 1,
    )


def _commit(snapshot: Json) -> Commit:
    summary = snapshot.get("summary") or {}

    def number(key: str) -> int | None:
        return int(summary[key]) if key in summary else None

    return Commit(
        snapshot_id=snapshot["snapshot-id"],
        committed_at_ms=snapshot["timestamp-ms"],
        operation=summary.get("operation"),
        writer=_writer(summary),
        added_data_files=number("added-data-files"),
        added_delete_files=number("added-delete-files"),
        added_bytes=number("added-files-size"),
        added_records=number("added-records"),
        removed_data_files=number("deleted-data-files"),
        changed_partitions=number("changed-partition-count"),
        removed_delete_files=number("removed-delete-files"),
        removed_bytes=number("removed-files-size"),
    )


def _writer(summary: Mapping[str, str]) -> str | None:
    if "engine-name" in summary:
        return " ".join(filter(None, (summary["engine-name"], summary.get("engine-version"), summary.get("app-id"))))
    if "flink.job-id" in summary:
        return f"flink {summary['flink.job-id']}"
    if "spark.app.id" in summary:
        return f"spark {summary['spark.app.id']}"
    return summary.get("iceberg-version")


# --- Write a table's sort order as SQL, and the statements that restore it; pure


DISTRIBUTION = "write.distribution-mode"


def quoted(columns: Mapping[str, Column], name: str) -> str:
    """A column's path as SQL, by its dotted name."""
    found = columns.get(name)
    return identifier(*(found.names if found is not None else (name,)))


def undo_order(table: Identifier, facts: TableFacts) -> str:
    """The statements that restore the current order and distribution.

    ``WRITE ORDERED BY`` also sets ``write.distribution-mode`` to range and ``WRITE UNORDERED`` to none (from Iceberg's SQL
    extensions), so the undo restores that property too.
    """
    name = identifier(*table)
    if facts.sort_order:
        order = f"ALTER TABLE {name} WRITE LOCALLY ORDERED BY {', '.join(_sorted(facts.by_name, f) for f in facts.sort_order)}"
    else:
        order = f"ALTER TABLE {name} WRITE UNORDERED"
    there = facts.properties.get(DISTRIBUTION)
    mode = set_properties(table, {DISTRIBUTION: there}) if there is not None else unset_properties(table, [DISTRIBUTION])
    return f"{order}; {mode}"


def _sorted(columns: Mapping[str, Column], field: SortField) -> str:
    term = transform_of(quoted(columns, field.source), field.transform)
    return f"{term} {field.direction.upper()} {field.null_order.replace('-', ' ').upper()}"


def split_bytes(facts: TableFacts) -> int:
    """The bytes that one read task takes (``read.split.target-size``); an unusable value counts as the default."""
    return _usable(facts, "read.split.target-size", SPLIT_BYTES, least=1)


def open_file_cost(facts: TableFacts) -> int:
    """The bytes that Iceberg counts for opening a file when it packs read tasks; an unusable value counts as the default."""
    return _usable(facts, "read.split.open-file-cost", OPEN_FILE_COST)


def _usable(facts: TableFacts, name: str, default: int, least: int = 0) -> int:
    stated = facts.properties.get(name, "")
    return int(stated) if stated.isdecimal() and int(stated) >= least else default
