"""Read manifest lists and manifests: count them, measure how their partition ranges overlap, sample
their statistics.

Works on the bytes of the manifest list and of a few manifests, so both collectors share it.
"""

from __future__ import annotations

import io
import json
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from icekit.errors import MetadataUnreadable, first_line
from icekit.facts.decode import Fields, Read, record_reader
from icekit.facts.definition import Column, PartitionField, PartitionSpec
from icekit.facts.files import Partition
from icekit.facts.integrity import EXAMPLES, Integrity, NarrowManifest
from icekit.facts.manifest_counts import (
    ColumnSample,
    ManifestFacts,
    MetricsSample,
    RangeOverlap,
    RepeatedIdentifiers,
    SampledWrite,
    SpecManifests,
)
from icekit.facts.values import from_bytes, partition_of, to_scalar

SIZE_FIELDS = frozenset({"partition", "record_count", "file_size_in_bytes"})
FILE_FIELDS = SIZE_FIELDS | {
    "content",
    "file_format",
    "content_size_in_bytes",
    "referenced_data_file",
    "equality_ids",
}
BOUND_FIELDS = frozenset({"lower_bounds", "upper_bounds"})
COUNT_FIELDS = frozenset({"value_counts", "column_sizes"})
NULL_FIELDS = frozenset({"null_value_counts", "value_counts"})
_SAMPLED_FIELDS = BOUND_FIELDS | COUNT_FIELDS | SIZE_FIELDS | {"file_path"}
# The fields of a file that every manifest has, from any writer.
_OF_FILE = frozenset(
    {"file_path", "partition", "record_count", "file_size_in_bytes", "file_format"}
)
# The fields of a manifest that every manifest list has, from any writer.
_OF_MANIFEST = {"manifest_path": str, "manifest_length": int, "partition_spec_id": int}

Record = Mapping[str, Any]


#: Files that are read at once: a storage answers after a while, and has time for many.
_AT_ONCE = 16


def read_ahead(read: Callable[[str], bytes], paths: Sequence[str]) -> Iterator[bytes]:
    """The contents of files, in order; while one is used, the next are read."""
    if len(paths) < 2:
        yield from map(read, paths)
        return
    pool, left = ThreadPoolExecutor(_AT_ONCE), iter(paths)
    try:
        reading = deque(pool.submit(read, path) for path in islice(left, _AT_ONCE))
        while reading:
            content = reading.popleft().result()
            reading.extend(pool.submit(read, path) for path in islice(left, 1))
            yield content
    finally:
        # After an error or Ctrl+C nobody waits for the reads that have begun.
        pool.shutdown(wait=False, cancel_futures=True)


def manifest_list(raw: bytes, location: str) -> list[Record]:
    """Every manifest of a snapshot, as decoded from its manifest list."""
    import fastavro

    try:
        manifests: list[Any] = list(fastavro.reader(io.BytesIO(raw)))
        for manifest in manifests:
            if not all(isinstance(manifest[field], kind) for field, kind in _OF_MANIFEST.items()):
                raise TypeError("a manifest without a path, a length or a partition spec")
        return manifests
    except Exception as error:
        raise _corrupt(location, error) from None


@lru_cache(maxsize=100)  # the manifests of a table share a few
def _reader(
    schema_text: str,
    file_fields: frozenset[str],
    own: tuple[str, ...],
    of_columns: tuple[tuple[str, tuple[int, ...]], ...],
) -> Read:
    """The reader of the entries of manifests with a schema; see :func:`entries`."""
    from fastavro.schema import expand_schema

    wanted: Fields = {
        **dict.fromkeys(own),
        "data_file": {**dict.fromkeys(file_fields), **dict(of_columns)},
    }
    # With repeated named types written out: two equal decimals share one.
    schema = expand_schema(json.loads(schema_text))
    _check_fields(schema, file_fields | dict(of_columns).keys())
    return record_reader(schema, wanted)


def entries(
    raw: bytes,
    location: str,
    file_fields: frozenset[str] = FILE_FIELDS,
    own: Sequence[str] = ("status", "sequence_number"),
    of_columns: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Iterator[Record]:
    """The live entries of a manifest, reduced to the given fields of ``data_file`` and ``own``
    fields, of which ``status`` is one.

    ``of_columns`` are fields of statistics with the ids of the columns to read, as
    :data:`~icekit.facts.decode.Fields` says.
    """
    import fastavro

    try:
        blocks = fastavro.block_reader(io.BytesIO(raw))
        schema = blocks.metadata["avro.schema"]
        read = _reader(schema, file_fields, tuple(own), tuple(of_columns.items()))
        for block in blocks:
            data, at = block.bytes_.getvalue(), 0  # type: ignore[attr-defined]
            for _ in range(block.num_records):
                entry, at = read(data, at)
                if entry["status"] != 2:
                    yield entry
            if at != len(data):
                raise ValueError("a block does not end with its last entry")
    except Exception as error:
        raise _corrupt(location, error) from None


def _check_fields(schema: Any, file_fields: frozenset[str]) -> None:
    """Check that a manifest's own schema has the fields of every manifest; the schema may be
    corrupt too.
    """
    entry = {field["name"]: field["type"] for field in schema["fields"]}
    file = {field["name"]: field["type"] for field in entry["data_file"]["fields"]}
    if missing := {"status"} - entry.keys() | (file_fields & _OF_FILE) - file.keys():
        raise KeyError(*missing)
    for name in file_fields & file.keys() & (BOUND_FIELDS | COUNT_FIELDS | NULL_FIELDS):
        branches = file[name] if isinstance(file[name], list) else [file[name]]
        pair = next(branch["items"] for branch in branches if isinstance(branch, dict))
        if {field["name"] for field in pair["fields"]} != {"key", "value"}:
            raise KeyError(name)


def _corrupt(location: str, error: Exception) -> MetadataUnreadable:
    if "need to install" in str(error):
        return MetadataUnreadable(
            f"{location} uses a compression codec that is not installed here: "
            f"{first_line(error)[:120]}."
        )
    # With corrupt bytes a decoder may raise anything: ValueError, EOFError, KeyError, zlib.error …
    return MetadataUnreadable(
        f"{location} is corrupt ({type(error).__name__}: {first_line(error)[:120]}); restore it "
        "from a backup, or roll back to a snapshot before it."
    )


#: A choice: the data files of a sample of statistics.
SAMPLED_FILES = 300


def is_delete_manifest(manifest: Record) -> bool:
    """Tell whether a manifest holds delete files."""
    return bool(manifest.get("content", 0) == 1)


def live_count(manifest: Record) -> int:
    """Added and existing entries; old writers name the counts differently."""
    return sum(
        manifest.get(f"{change}_files_count") or manifest.get(f"{change}_data_files_count") or 0
        for change in ("added", "existing")
    )


def is_counted(manifest: Record) -> bool:
    """Tell whether a manifest list counts the entries: format v1 may leave that out."""
    return manifest.get("added_files_count", manifest.get("added_data_files_count")) is not None


def may_have_live(manifest: Record) -> bool:
    """Tell whether a manifest is worth reading."""
    return not is_counted(manifest) or live_count(manifest) > 0


class FileCounts(NamedTuple):
    """The live data files and delete files of a snapshot."""

    data: int
    deletes: int


def file_counts(
    manifests: Sequence[Record], summary: Mapping[str, Any] | None = None
) -> FileCounts | None:
    """The file counts of a manifest list, which every engine plans by; without them, the counts of
    the snapshot's summary.

    Format version 1 may leave out the former, and a writer the latter: None if both are missing.
    """
    if all(is_counted(manifest) for manifest in manifests):
        deletes = sum(live_count(m) for m in manifests if is_delete_manifest(m))
        return FileCounts(sum(map(live_count, manifests)) - deletes, deletes)
    if summary and "total-data-files" in summary:
        return FileCounts(
            int(summary["total-data-files"]), int(summary.get("total-delete-files", 0))
        )
    return None


def files_of(
    manifest: Record,
    raw: bytes,
    fields: frozenset[str],
    of_columns: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Iterator[tuple[Record, Partition, int | None]]:
    """The live files of a manifest, each with its partition and the snapshot that added it: its
    entry's, or else that of the manifest (table spec, "Manifest Entry Inheritance").
    """
    own = ("status", "snapshot_id")
    for entry in entries(raw, manifest["manifest_path"], fields, own, of_columns):
        file, added_by = entry["data_file"], entry.get("snapshot_id")
        partition = partition_of(manifest["partition_spec_id"], file["partition"].values())
        yield file, partition, manifest.get("added_snapshot_id") if added_by is None else added_by


def manifest_facts(
    manifests: Sequence[Record],
    specs: Iterable[PartitionSpec],
    files: FileCounts,
    target_bytes: int,
) -> ManifestFacts:
    """Summarize the manifest list, whose live entries are ``files``; ``target_bytes`` is
    ``commit.manifest.target-size-bytes``.

    A data manifest smaller than half the target counts as undersized (a choice:
    two of them fit into one).
    """
    data = [m for m in manifests if not is_delete_manifest(m)]
    deletes = [m for m in manifests if is_delete_manifest(m)]
    return ManifestFacts(
        data_count=len(data),
        data_bytes=sum(m["manifest_length"] for m in data),
        data_entry_count=files.data,
        delete_count=len(deletes),
        delete_bytes=sum(m["manifest_length"] for m in deletes),
        delete_entry_count=files.deletes,
        undersized_data_manifest_count=sum(m["manifest_length"] < target_bytes / 2 for m in data),
        overlaps=tuple(_overlaps(data, specs)),
        by_spec=by_spec(manifests),
    )


def by_spec(manifests: Sequence[Record]) -> tuple[SpecManifests, ...]:
    """The manifests of a manifest list, counted by partition spec."""
    lengths: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for manifest in manifests:
        lengths[manifest["partition_spec_id"]][is_delete_manifest(manifest)].append(
            manifest["manifest_length"]
        )
    return tuple(
        SpecManifests(spec_id, len(data), sum(data), len(deletes), sum(deletes))
        for spec_id, (data, deletes) in sorted(lengths.items())
    )


def _overlaps(
    manifests: Sequence[Record], specs: Iterable[PartitionSpec]
) -> Iterable[RangeOverlap]:
    for spec in specs:
        of_spec = [
            m.get("partitions") or []
            for m in manifests
            if m["partition_spec_id"] == spec.spec_id and may_have_live(m)
        ]
        for index, field in enumerate(spec.fields):
            ranges = [
                decoded
                for summaries in of_spec
                for summary in summaries[index : index + 1]
                if (decoded := _range(field.result_type, *map(summary.get, _ENDS)))
            ]
            if len(ranges) > 1:
                yield RangeOverlap(spec.spec_id, field.name, len(ranges), _mean_share(ranges))


_ENDS = ("lower_bound", "upper_bound")


def _range(type_name: str, low: bytes | None, high: bytes | None) -> tuple[Any, Any] | None:
    """Two bounds as values that compare; None without one of them, or without an order."""
    if low is None or high is None:
        return None
    try:
        return from_bytes(type_name, low), from_bytes(type_name, high)
    except ValueError:
        return None


def _mean_share(ranges: Sequence[tuple[Any, Any]]) -> float:
    """Mean share of the other ranges that intersect a range, in O(n log n)."""
    lows = sorted(low for low, _ in ranges)
    highs = sorted(high for _, high in ranges)
    apart = sum(
        bisect_left(highs, low) + len(lows) - bisect_right(lows, high) for low, high in ranges
    )
    n = len(ranges)
    return 1 - apart / (n * (n - 1))


def sampled_manifests(manifests: Sequence[Record]) -> list[Record]:
    """Up to three data manifests: the newest, the oldest and a middle one, so that a sample also
    has files written before a setting changed.
    """
    data = [m for m in manifests if not is_delete_manifest(m) and may_have_live(m)]
    return [data[i] for i in sorted({0, len(data) // 2, len(data) - 1})] if data else []


def sample_metrics(
    manifests: Sequence[Record],
    columns: Sequence[Column],
    read: Callable[[str], bytes],
    identifier_ids: Collection[int],
) -> MetricsSample:
    """Sample the statistics of up to 300 data files in up to three data manifests.

    ``identifier_ids`` are the field ids of the schema's identifier fields.
    """
    data = sampled_manifests(manifests)
    if not data:
        return MetricsSample()
    files: list[Record] = []
    writes: dict[int, list[Record]] = defaultdict(list)
    for manifest in data:
        sampled, is_whole = _sampled(manifest, read, SAMPLED_FILES // len(data))
        files += [file for file, _ in sampled]
        # A writer leaves out the snapshot that it commits.
        for file, snapshot_id in sampled if is_whole else ():
            writes[snapshot_id or 0].append(file)
    commits = sorted(writes.items())
    sized = [f for f in files if f.get("column_sizes")]
    identifiers = [c for c in columns if c.field_id in identifier_ids]
    return MetricsSample(
        len(files),
        _column_samples(columns, files),
        sized_files=len(sized),
        file_bytes=sum(f["file_size_in_bytes"] for f in sized),
        column_bytes=sum(pair["value"] for f in sized for pair in f["column_sizes"]),
        writes=tuple(filter(None, (_write(added) for _, added in commits))),
        identifiers=tuple(c.name for c in identifiers),
        repeated=tuple(
            filter(None, (_repeated_identifiers(*commit, identifiers) for commit in commits))
        ),
    )


def _sampled(
    manifest: Record, read: Callable[[str], bytes], most: int
) -> tuple[list[tuple[Record, int | None]], bool]:
    """The first files of a manifest with the snapshots that added them, and whether these are
    all.
    """
    files = files_of(manifest, read(manifest["manifest_path"]), _SAMPLED_FIELDS)
    sampled = [(file, snapshot_id) for file, _, snapshot_id in islice(files, most + 1)]
    return sampled[:most], len(sampled) <= most


# Types whose values are whole numbers, so that bounds limit how many different ones there are.
_WHOLE = ("int", "long", "date", "time")


def _repeated_identifiers(
    snapshot_id: int, files: Sequence[Record], identifiers: Sequence[Column]
) -> RepeatedIdentifiers | None:
    """What one commit added, if its bounds leave fewer identifiers than records: in a partition, or
    in all of them.
    """
    partitions: dict[str, list[Record]] = defaultdict(list)
    for file in files:
        partitions[repr(file["partition"])].append(file)
    repeated = [
        (records - most, records, most)
        for group in (files, *partitions.values())
        if (most := _most_identifiers(group, identifiers)) is not None
        and (records := sum(file["record_count"] for file in group)) > most
    ]
    return RepeatedIdentifiers(snapshot_id, *max(repeated)[1:]) if repeated else None


def _most_identifiers(files: Sequence[Record], identifiers: Sequence[Column]) -> int | None:
    """The most different identifiers that the bounds of files leave; None if they set no limit.

    Equal bounds are a single value, whatever its type: a truncated upper bound is larger than the
    lower one.
    """
    most = 1
    for column in identifiers:
        bounds = {
            _as_map(f.get(f"{end}_bounds")).get(column.field_id)
            for f in files
            for end in ("lower", "upper")
        }
        if None in bounds or (len(bounds) > 1 and not column.type.startswith(_WHOLE)):
            return None
        if len(bounds) > 1:
            numbers = [
                int.from_bytes(raw, "little", signed=True) for raw in bounds if raw is not None
            ]
            most *= max(numbers) - min(numbers) + 1
    return most if identifiers else None


# The name of a file as Spark and Flink write it (OutputFileFactory): the task, its attempt, the
# operation, the number of the file.
_TASK = re.compile(r"(?:^|/)(\d{5,}-\d+-.+)-\d{5}\.\w+$")


def _write(files: Sequence[Record]) -> SampledWrite | None:
    """What one commit added, with its tasks; None if a name does not say which task wrote the
    file.
    """
    tasks = [_TASK.search(file["file_path"]) for file in files]
    if None in tasks:
        return None
    return SampledWrite(
        len(files),
        len({task[1] for task in tasks if task}),
        sum(file["file_size_in_bytes"] for file in files),
        len({repr(file["partition"]) for file in files}),
    )


def _as_map(pairs: Iterable[Record] | None) -> dict[int, bytes]:
    return {pair["key"]: pair["value"] for pair in pairs or ()}


def _column_samples(columns: Iterable[Column], files: Iterable[Record]) -> tuple[ColumnSample, ...]:
    decoded = [
        (
            {p["key"] for p in f.get("value_counts") or ()},
            _as_map(f.get("lower_bounds")),
            _as_map(f.get("upper_bounds")),
        )
        for f in files
    ]

    def sample(column: Column) -> ColumnSample:
        key = column.field_id
        counted = sum(key in counts for counts, _, _ in decoded)
        bounded = [(low[key], high[key]) for _, low, high in decoded if key in low and key in high]
        ranges = [r for bounds in bounded if (r := _range(column.type, *bounds))]
        is_known = len(ranges) == len(bounded) > 1
        return ColumnSample(
            column.name, len(bounded), counted, _stab_share(ranges) if is_known else None
        )

    return tuple(map(sample, columns))


def _stab_share(ranges: Sequence[tuple[Any, Any]]) -> float:
    """Mean share of ranges that contain a value; the values are the lower bounds of all ranges."""
    lows = sorted(low for low, _ in ranges)
    highs = sorted(high for _, high in ranges)
    hits = sum(bisect_right(lows, low) - bisect_left(highs, low) for low, _ in ranges)
    return hits / len(ranges) ** 2


class FieldRange(NamedTuple):
    """The values of one partition field in a manifest's entries, as values that compare; ``low``
    and ``high`` are None without any.
    """

    low: Any = None
    high: Any = None
    has_null: bool = False
    has_nan: bool = False


def field_ranges(
    fields: Sequence[PartitionField], partitions: Iterable[Sequence[Any]]
) -> list[FieldRange]:
    """The range of each partition field over the distinct partitions of a manifest."""
    ranges = []
    for field, values in zip(fields, zip(*partitions, strict=True), strict=False):
        present = [value for value in values if value is not None]
        numbers = [
            comparable(field.result_type, value)
            for value in present
            if not (isinstance(value, float) and math.isnan(value))
        ]
        low, high = min(numbers, default=None), max(numbers, default=None)
        has_null, has_nan = len(present) < len(values), len(numbers) < len(present)
        ranges.append(FieldRange(low, high, has_null, has_nan))
    return ranges


def comparable(result_type: str, value: Any) -> Any:
    """A partition value as :func:`icekit.facts.values.from_bytes` gives bounds."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return Decimal(value) if result_type.startswith("decimal") and isinstance(value, str) else value


def narrow_fields(
    manifest: Record, fields: Sequence[PartitionField], ranges: Sequence[FieldRange]
) -> Iterator[NarrowManifest]:
    """The partition fields whose summary does not cover the entries of a manifest.

    A filter skips the manifest by its summary (ManifestEvaluator), which may be wider than the
    entries, and may be left out. UUIDs are not compared: writers order them differently.
    """
    summaries = manifest.get("partitions") or []
    for summary, field, held in zip(summaries, fields, ranges, strict=False):
        missing = None
        if held.has_null and summary.get("contains_null") is False:
            missing = "null"
        elif held.has_nan and summary.get("contains_nan") is False:
            missing = "NaN"
        listed: tuple[Any, Any] = (None, None)
        is_narrow = False
        if held.low is not None and field.result_type != "uuid":
            raw = map(summary.get, _ENDS)
            try:
                listed = tuple(
                    None if bound is None else from_bytes(field.result_type, bound) for bound in raw
                )  # type: ignore[assignment]
                is_narrow = None in listed or held.low < listed[0] or held.high > listed[1]
            except (ValueError, TypeError):
                listed = (None, None)
        if missing or is_narrow:
            low, high = (to_scalar(bound) for bound in listed)
            yield NarrowManifest(
                manifest["manifest_path"],
                manifest["partition_spec_id"],
                is_delete_manifest(manifest),
                field.name,
                (low, high),
                (to_scalar(held.low), to_scalar(held.high)),
                missing,
            )


def of_manifests(manifests: Sequence[Record], narrow: Iterable[NarrowManifest]) -> Integrity:
    """What a manifest list, and the ``narrow`` manifests of it, show."""
    listed = Counter(manifest["manifest_path"] for manifest in manifests)
    beside = Counter(
        (manifest["partition_spec_id"], is_delete_manifest(manifest)) for manifest in manifests
    )
    unlike = sorted(
        (replace(m, is_alone=beside[m.spec_id, m.is_deletes] == 1) for m in set(narrow)),
        key=lambda m: (m.path, m.field),
    )
    return Integrity(
        duplicate_manifests=tuple(sorted(path for path, entries in listed.items() if entries > 1)),
        narrow_manifest_count=len({m.path for m in unlike}),
        narrow_manifests=tuple(unlike[:EXAMPLES]),
    )
