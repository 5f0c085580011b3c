"""Read manifest lists and manifests: count them, measure how their partition ranges overlap, sample
their statistics.

Works on the bytes of the manifest list and of a few manifests, so both collectors share it.
"""

import io
import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from icekit.common.errors import MetadataUnreadable, first_line
from icekit.iceberg.decode import Read, record_reader
from icekit.iceberg.definition import Column, PartitionSpec
from icekit.iceberg.filter_opens import FileRange, mean_opens, overlap
from icekit.iceberg.manifest_counts import (
    ColumnSample,
    ManifestFacts,
    MetricsSample,
    RangeOverlap,
    RepeatedIdentifiers,
    SampledWrite,
    SpecManifests,
)
from icekit.iceberg.partition import Partition
from icekit.iceberg.values import partition_of, range_of

DATA_FIELDS = frozenset({"content", "file_path", "record_count", "file_size_in_bytes"})
DELETE_FIELDS = DATA_FIELDS | {
    "content_offset",
    "content_size_in_bytes",
    "equality_ids",
    "file_format",
    "referenced_data_file",
}
BOUND_FIELDS = frozenset({"lower_bounds", "upper_bounds"})
NULL_FIELDS = frozenset({"null_value_counts", "value_counts"})
_SAMPLED_FIELDS = DATA_FIELDS | BOUND_FIELDS | NULL_FIELDS | {"column_sizes"}
_MAPS = BOUND_FIELDS | NULL_FIELDS | {"column_sizes"}
# The fields of a file that every manifest has, from any writer.
_OF_FILE = frozenset(
    {"file_path", "partition", "record_count", "file_size_in_bytes", "file_format"}
)
# The fields of a manifest that every manifest list has, from any writer.
_OF_MANIFEST = {"manifest_path": str, "manifest_length": int, "partition_spec_id": int}

#: The bounds of a partition field in a manifest list.
BOUNDS = ("lower_bound", "upper_bound")

Record = Mapping[str, Any]


#: Files that are read at once: a storage answers after a while, and has time for many.
_AT_ONCE = 16


def contents_ahead(read: Callable[[str], bytes], paths: Iterable[str]) -> Iterator[bytes]:
    """The contents of files, in order; while one is used, the next are read."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    begun = (pool.submit(read, path) for path in paths)
    try:
        reading = deque(islice(begun, _AT_ONCE))
        while reading:
            raw = reading.popleft().result()
            reading.extend(islice(begun, 1))
            yield raw
    finally:
        # After an error or Ctrl+C nobody waits for the reads that have begun.
        pool.shutdown(wait=False, cancel_futures=True)


def read_ahead(
    read: Callable[[str], bytes], manifests: Iterable[Record]
) -> Iterator[tuple[Record, bytes]]:
    """Manifests with their contents, in order; while one is used, the next are read."""
    manifests = tuple(manifests)
    contents = contents_ahead(read, (manifest["manifest_path"] for manifest in manifests))
    yield from zip(manifests, contents, strict=True)


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
    of_columns: tuple[tuple[str, tuple[int, ...]], ...],
) -> Read:
    """The reader of the entries of manifests with a schema; see :func:`files_of`."""
    from fastavro.schema import expand_schema

    entry_fields = "status", "snapshot_id", "sequence_number"
    field_keys: dict[str, tuple[int, ...] | None] = dict.fromkeys(file_fields)
    field_keys.update(of_columns)
    # With repeated named types written out: two equal decimals share one.
    schema = expand_schema(json.loads(schema_text))
    _check_fields(schema, field_keys.keys())
    return record_reader(schema, {**dict.fromkeys(entry_fields), "data_file": field_keys})


def files_of(
    manifest: Record,
    raw: bytes,
    fields: frozenset[str],
    of_columns: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    stride: int = 1,
) -> Iterator[tuple[Record, Partition, int, int | None]]:
    """The live files of a manifest, each with its partition, and the sequence number and the
    snapshot that it was added with: its entry's, or else those of the manifest (table spec,
    "Manifest Entry Inheritance").

    Of a file, only the ``fields`` are read, statistics by the ids of their columns, and of the
    statistics ``of_columns`` only these columns. Only one entry in ``stride`` is read.
    """
    import fastavro

    location = manifest["manifest_path"]
    partitions = dict[tuple[object, ...], Partition]()
    added_by = manifest.get("added_snapshot_id")
    added_at = manifest.get("sequence_number") or 0
    schema = ""
    try:
        blocks = fastavro.block_reader(io.BytesIO(raw))
        schema = blocks.metadata["avro.schema"]
        read = _reader(schema, fields | {"partition"}, tuple(of_columns.items()))
        skip = _reader(schema, frozenset(), ()) if stride > 1 else read
        number = 0
        for block in blocks:
            data = block.bytes_.getvalue()  # type: ignore[attr-defined]
            offset = 0
            before = number
            number = number + block.num_records
            # What follows the last entry that is read need not be skipped.
            last = number - number % stride
            for index in range(before + 1, last + 1):
                if index % stride:
                    _, offset = skip(data, offset)
                    continue
                entry, offset = read(data, offset)
                if entry["status"] == 2:
                    continue
                file = entry["data_file"]
                snapshot_id = entry.get("snapshot_id")
                sequence = entry.get("sequence_number")
                values = tuple(file["partition"].values())
                if values not in partitions:
                    partitions[values] = partition_of(manifest["partition_spec_id"], values)
                yield (
                    file,
                    partitions[values],
                    added_at if sequence is None else sequence,
                    added_by if snapshot_id is None else snapshot_id,
                )
            if last == number and offset != len(data):
                raise ValueError("a block does not end with its last entry")
    except Exception as error:
        if '"fixed_' in schema:
            raise MetadataUnreadable(
                f"{location} has partition values of type fixed, which Iceberg for Java writes as "
                "only Iceberg for Java can read them (apache/iceberg issue 17501). If Spark reads the "
                "table, nothing needs to be repaired; icekit can do nothing for it."
            ) from None
        raise _corrupt(location, error) from None


def _check_fields(schema: Any, file_fields: Set[str]) -> None:
    """Check that a manifest's own schema has the fields of every manifest; the schema may be
    corrupt too.
    """
    entry = {field["name"]: field["type"] for field in schema["fields"]}
    file = {field["name"]: field["type"] for field in entry["data_file"]["fields"]}
    if missing := {"status"} - entry.keys() | (file_fields & _OF_FILE) - file.keys():
        raise KeyError(*missing)
    for name in file_fields & file.keys() & _MAPS:
        branches = file[name] if isinstance(file[name], list) else [file[name]]
        pair = next(branch["items"] for branch in branches if isinstance(branch, dict))
        if {field["name"] for field in pair["fields"]} != {"key", "value"}:
            raise KeyError(name)


def _corrupt(location: str, error: Exception) -> MetadataUnreadable:
    # With corrupt bytes a decoder may raise anything: ValueError, EOFError, KeyError, zlib.error …
    return MetadataUnreadable(
        f"{location} is corrupt ({type(error).__name__}: {first_line(error)[:120]}); restore it "
        "from a backup, or roll back to a snapshot before it."
    )


def listed_as_other(manifest: Record, held: str, listed: str) -> MetadataUnreadable:
    """The error for a manifest that holds other files than its entry in the manifest list says."""
    return MetadataUnreadable(
        f"The manifest list says that {manifest['manifest_path']} holds {listed}, but it holds "
        f"{held}: engines would take one for the other. Restore the manifest list from a backup, or "
        "roll back to a snapshot before it."
    )


#: A choice: the data files of a sample of statistics.
SAMPLED_FILES = 300
#: A choice: the manifests that such a sample reads; the least, and the most where each has few
# files.
_LEAST_MANIFESTS = 3
MOST_MANIFESTS = 100


def is_delete_manifest(manifest: Record) -> bool:
    """Tell whether a manifest holds delete files."""
    return bool(manifest.get("content", 0) == 1)


def live_count(manifest: Record) -> int:
    """Added and existing entries; old writers name the counts differently."""
    return sum(
        manifest.get(f"{change}_files_count") or manifest.get(f"{change}_data_files_count") or 0
        for change in ("added", "existing")
    )


def has_live_count(manifest: Record) -> bool:
    """Tell whether a manifest list counts both the added and the existing entries."""
    return all(
        manifest.get(f"{change}_files_count", manifest.get(f"{change}_data_files_count"))
        is not None
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


def file_counts(manifests: Sequence[Record]) -> FileCounts | None:
    """The file counts of a manifest list, which every engine plans by; None if it leaves them out,
    as format version 1 may.
    """
    if not all(map(is_counted, manifests)):
        return None
    deletes = sum(live_count(m) for m in manifests if is_delete_manifest(m))
    return FileCounts(sum(map(live_count, manifests)) - deletes, deletes)


def manifest_facts(
    manifests: Sequence[Record],
    specs: Iterable[PartitionSpec],
    files: FileCounts,
    target_bytes: int,
) -> ManifestFacts:
    """Summarize the manifest list, whose live entries are ``files``; ``target_bytes`` is
    ``commit.manifest.target-size-bytes``.

    Manifests that only list removed files count only as ``unread_count`` of their spec: no scan
    opens them, and the next merging commit drops them (ManifestGroup, MergingSnapshotProducer).
    A manifest smaller than half the target counts as undersized (a choice: two of them fit into
    one).
    """
    live_manifests = list(filter(may_have_live, manifests))
    data = [m for m in live_manifests if not is_delete_manifest(m)]
    deletes = [m for m in live_manifests if is_delete_manifest(m)]
    return ManifestFacts(
        data_count=len(data),
        data_bytes=sum(m["manifest_length"] for m in data),
        data_entry_count=files.data,
        delete_count=len(deletes),
        delete_bytes=sum(m["manifest_length"] for m in deletes),
        delete_entry_count=files.deletes,
        undersized_count=sum(m["manifest_length"] < target_bytes / 2 for m in live_manifests),
        overlaps=tuple(_overlaps(data, specs)),
        by_spec=by_spec(manifests),
    )


def by_spec(manifests: Sequence[Record]) -> tuple[SpecManifests, ...]:
    """The manifests of a manifest list, counted by partition spec."""
    lengths: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    unread = Counter(m["partition_spec_id"] for m in manifests if not may_have_live(m))
    for manifest in manifests:
        lengths[manifest["partition_spec_id"]][is_delete_manifest(manifest)].append(
            manifest["manifest_length"]
        )
    return tuple(
        SpecManifests(len(data), sum(data), len(deletes), sum(deletes), spec_id, unread[spec_id])
        for spec_id, (data, deletes) in sorted(lengths.items())
    )


def _overlaps(
    manifests: Sequence[Record], specs: Iterable[PartitionSpec]
) -> Iterable[RangeOverlap]:
    for spec in specs:
        of_spec = [
            m.get("partitions") or [] for m in manifests if m["partition_spec_id"] == spec.spec_id
        ]
        for index, field in enumerate(spec.fields):
            ranges = [
                decoded
                for summaries in of_spec
                for summary in summaries[index : index + 1]
                if (decoded := range_of(field.result_type, *map(summary.get, BOUNDS)))
            ]
            if (n := len(ranges)) > 1:
                # Each range meets itself, too.
                share = (_meeting(ranges, ranges) - n) / (n * (n - 1))
                yield RangeOverlap(spec.spec_id, field.name, n, share)


def _meeting(ranges: Sequence[tuple[Any, Any]], others: Iterable[tuple[Any, Any]]) -> int:
    """How many pairs of a range and another one have a value in common, in O(n log n)."""
    lows = sorted(low for low, _ in ranges)
    highs = sorted(high for _, high in ranges)
    return sum(bisect_right(lows, high) - bisect_left(highs, low) for low, high in others)


def sample_metrics(
    manifests: Sequence[Record],
    columns: Sequence[Column],
    read: Callable[[str], bytes],
    identifier_ids: Collection[int],
) -> MetricsSample:
    """Sample the statistics of up to 300 data files in manifests from the newest to the oldest, so
    that a sample also has files written before a setting changed: in three, or in as many more as
    that takes, up to 100.

    ``identifier_ids`` are the field ids of the schema's identifier fields.
    """
    data_manifests = [m for m in manifests if not is_delete_manifest(m) and may_have_live(m)]
    shares = _sampled_manifests(data_manifests)
    if not shares:
        return MetricsSample()
    files: list[Record] = []
    partitions: list[Partition] = []
    writes: dict[int, list[Record]] = defaultdict(list)
    most_of = {manifest["manifest_path"]: most_entries for manifest, most_entries in shares}
    for manifest, content in read_ahead(read, [manifest for manifest, _ in shares]):
        most_entries = most_of[manifest["manifest_path"]]
        stride = max(1, live_count(manifest) // most_entries)
        sampled_files = files_of(manifest, content, _SAMPLED_FIELDS, stride=stride)
        sampled = list(islice(sampled_files, most_entries + 1))
        files += [file for file, *_ in sampled[:most_entries]]
        partitions += [partition for _, partition, *_ in sampled[:most_entries]]
        is_whole = stride == 1 and len(sampled) <= most_entries
        for file, _, _, snapshot_id in sampled if is_whole else ():
            writes[snapshot_id or 0].append(file)
    commits = sorted(writes.items())
    sized = [f for f in files if f.get("column_sizes")]
    identifiers = [c for c in columns if c.field_id in identifier_ids]
    return MetricsSample(
        len(files),
        tuple(_column_sample(column, files, partitions) for column in columns),
        sized_files=len(sized),
        file_bytes=sum(f["file_size_in_bytes"] for f in sized),
        column_bytes=sum(sum(f["column_sizes"].values()) for f in sized),
        writes=tuple(filter(None, (_write(added) for _, added in commits))),
        identifiers=tuple(c.name for c in identifiers),
        repeated=tuple(
            filter(None, (_repeated_identifiers(*commit, identifiers) for commit in commits))
        ),
    )


def _sampled_manifests(live: Sequence[Record]) -> list[tuple[Record, int]]:
    """The manifests that a sample of statistics reads, evenly spread, and how many files of each: as
    many of each as possible.
    """
    number = min(len(live), _LEAST_MANIFESTS)
    spread: list[Record] = []
    while number:
        spread = [live[i * (len(live) - 1) // max(number - 1, 1)] for i in range(number)]
        enough = sum(map(live_count, spread)) >= SAMPLED_FILES
        if enough or number in {len(live), MOST_MANIFESTS}:
            break
        number = min(2 * number, len(live), MOST_MANIFESTS)
    shares: list[tuple[Record, int]] = []
    files = SAMPLED_FILES
    by_size = sorted(spread, key=lambda m: live_count(m) if is_counted(m) else SAMPLED_FILES)
    for index, manifest in enumerate(by_size):
        equal = max(1, files // (len(by_size) - index))
        most_entries = min(equal, live_count(manifest)) if is_counted(manifest) else equal
        shares.append((manifest, most_entries))
        files -= most_entries
    return shares


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
    product = 1
    for column in identifiers:
        bounds = {
            (file.get(end) or {}).get(column.field_id) for file in files for end in BOUND_FIELDS
        }
        if None in bounds or (len(bounds) > 1 and not column.type.startswith(_WHOLE)):
            return None
        if len(bounds) > 1:
            numbers = [
                int.from_bytes(raw, "little", signed=True) for raw in bounds if raw is not None
            ]
            product *= max(numbers) - min(numbers) + 1
    return product if identifiers else None


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


def _column_sample(
    column: Column, files: Sequence[Record], partitions: Sequence[Partition]
) -> ColumnSample:
    counts = [(file.get("value_counts") or {}).get(column.field_id) for file in files]
    nulls = [(file.get("null_value_counts") or {}).get(column.field_id) for file in files]
    lows = [(file.get("lower_bounds") or {}).get(column.field_id) for file in files]
    highs = [(file.get("upper_bounds") or {}).get(column.field_id) for file in files]
    bounds_file_count = sum(None not in pair for pair in zip(lows, highs, strict=True))
    ranges: list[FileRange] = []
    by_partition: dict[Partition, list[FileRange]] = defaultdict(list)
    for file, partition, low, high in zip(files, partitions, lows, highs, strict=True):
        values = range_of(column.type, low, high)
        if values is not None:
            ranges.append(FileRange(*values, file["record_count"]))
            by_partition[partition].append(ranges[-1])
    is_known = len(ranges) == bounds_file_count > 1
    # A file in which every value is null has no bounds, and needs none.
    empty = sum(a is not None and a == b for a, b in zip(counts, nulls, strict=True))
    return ColumnSample(
        column.name,
        bounds_file_count,
        len(files) - counts.count(None),
        mean_opens(ranges) / len(ranges) if is_known else None,
        empty,
        partition_overlap=overlap(by_partition.values()) if is_known else None,
    )
