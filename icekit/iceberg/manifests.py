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
from icekit.iceberg.filter_opens import FileRange, mean_file_opens, mean_overlap
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


def read_contents_ahead(read: Callable[[str], bytes], paths: Iterable[str]) -> Iterator[bytes]:
    """The contents of files, in order; while one is used, the next are read."""
    thread_pool = ThreadPoolExecutor(_AT_ONCE)
    read_futures = (thread_pool.submit(read, path) for path in paths)
    try:
        pending_futures = deque(islice(read_futures, _AT_ONCE))
        while pending_futures:
            content = pending_futures.popleft().result()
            pending_futures.extend(islice(read_futures, 1))
            yield content
    finally:
        # After an error or Ctrl+C nobody waits for the reads that have begun.
        thread_pool.shutdown(wait=False, cancel_futures=True)


def read_manifests_ahead(
    read: Callable[[str], bytes], manifests: Iterable[Record]
) -> Iterator[tuple[Record, bytes]]:
    """Manifests with their contents, in order; while one is used, the next are read."""
    manifests = tuple(manifests)
    manifest_contents = read_contents_ahead(
        read, (manifest["manifest_path"] for manifest in manifests)
    )
    yield from zip(manifests, manifest_contents, strict=True)


def manifest_list(raw: bytes, location: str) -> list[Record]:
    """Every manifest of a snapshot, as decoded from its manifest list."""
    import fastavro

    try:
        manifests: list[Any] = list(fastavro.reader(io.BytesIO(raw)))
        for manifest in manifests:
            if not all(
                isinstance(manifest[field_name], value_type)
                for field_name, value_type in _OF_MANIFEST.items()
            ):
                raise TypeError("a manifest without a path, a length or a partition spec")
        return manifests
    except Exception as error:
        raise _corrupt_error(location, error) from None


@lru_cache(maxsize=100)  # the manifests of a table share a few
def _entry_reader(
    schema_json: str,
    file_fields: frozenset[str],
    column_ids_by_field: tuple[tuple[str, tuple[int, ...]], ...],
) -> Read:
    """The reader of the entries of manifests with a schema; see :func:`files_of`."""
    from fastavro.schema import expand_schema

    entry_fields = "status", "snapshot_id", "sequence_number"
    map_keys_by_field: dict[str, tuple[int, ...] | None] = dict.fromkeys(file_fields)
    map_keys_by_field.update(column_ids_by_field)
    # With repeated named types written out: two equal decimals share one.
    schema = expand_schema(json.loads(schema_json))
    _check_fields(schema, map_keys_by_field.keys())
    return record_reader(schema, {**dict.fromkeys(entry_fields), "data_file": map_keys_by_field})


def files_of(
    manifest: Record,
    raw: bytes,
    file_fields: frozenset[str],
    column_ids_by_field: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    stride: int = 1,
) -> Iterator[tuple[Record, Partition, int, int | None]]:
    """The live files of a manifest, each with its partition, and the sequence number and the
    snapshot that it was added with: its entry's, or else those of the manifest (table spec,
    "Manifest Entry Inheritance").

    Of a file, only the ``file_fields`` are read, statistics by the ids of their columns, and of the
    statistics in ``column_ids_by_field`` only these columns. Only one entry in ``stride`` is read.
    """
    import fastavro

    manifest_path = manifest["manifest_path"]
    partitions_by_values = dict[tuple[object, ...], Partition]()
    manifest_snapshot_id = manifest.get("added_snapshot_id")
    manifest_sequence = manifest.get("sequence_number") or 0
    schema_json = ""
    try:
        avro_blocks = fastavro.block_reader(io.BytesIO(raw))
        schema_json = avro_blocks.metadata["avro.schema"]
        read_entry = _entry_reader(
            schema_json, file_fields | {"partition"}, tuple(column_ids_by_field.items())
        )
        skip_entry = _entry_reader(schema_json, frozenset(), ()) if stride > 1 else read_entry
        entry_count = 0
        for avro_block in avro_blocks:
            block_bytes = avro_block.bytes_.getvalue()  # type: ignore[attr-defined]
            offset = 0
            previous_entry_count = entry_count
            entry_count = entry_count + avro_block.num_records
            # What follows the last entry that is read need not be skipped.
            last_read_number = entry_count - entry_count % stride
            for entry_number in range(previous_entry_count + 1, last_read_number + 1):
                if entry_number % stride:
                    _, offset = skip_entry(block_bytes, offset)
                    continue
                entry, offset = read_entry(block_bytes, offset)
                if entry["status"] == 2:
                    continue
                file = entry["data_file"]
                snapshot_id = entry.get("snapshot_id")
                sequence_number = entry.get("sequence_number")
                partition_values = tuple(file["partition"].values())
                if partition_values not in partitions_by_values:
                    partitions_by_values[partition_values] = partition_of(
                        manifest["partition_spec_id"], partition_values
                    )
                yield (
                    file,
                    partitions_by_values[partition_values],
                    manifest_sequence if sequence_number is None else sequence_number,
                    manifest_snapshot_id if snapshot_id is None else snapshot_id,
                )
            if last_read_number == entry_count and offset != len(block_bytes):
                raise ValueError("a block does not end with its last entry")
    except Exception as error:
        if '"fixed_' in schema_json:
            raise MetadataUnreadable(
                f"{manifest_path} has partition values of type fixed, which Iceberg for Java "
                "writes as only Iceberg for Java can read them (apache/iceberg issue 17501). If "
                "Spark reads the table, nothing needs to be repaired; icekit can do nothing for it."
            ) from None
        raise _corrupt_error(manifest_path, error) from None


def _check_fields(schema: Any, file_fields: Set[str]) -> None:
    """Check that a manifest's own schema has the fields of every manifest; the schema may be
    corrupt too.
    """
    entry_field_types = {field["name"]: field["type"] for field in schema["fields"]}
    file_field_types = {
        field["name"]: field["type"] for field in entry_field_types["data_file"]["fields"]
    }
    if (
        missing_field_names := {"status"} - entry_field_types.keys()
        | (file_fields & _OF_FILE) - file_field_types.keys()
    ):
        raise KeyError(*missing_field_names)
    for map_field in file_fields & file_field_types.keys() & _MAPS:
        union_branches = (
            file_field_types[map_field]
            if isinstance(file_field_types[map_field], list)
            else [file_field_types[map_field]]
        )
        pair_schema = next(branch["items"] for branch in union_branches if isinstance(branch, dict))
        if {field["name"] for field in pair_schema["fields"]} != {"key", "value"}:
            raise KeyError(map_field)


def _corrupt_error(location: str, error: Exception) -> MetadataUnreadable:
    # With corrupt bytes a decoder may raise anything: ValueError, EOFError, KeyError, zlib.error …
    return MetadataUnreadable(
        f"{location} is corrupt ({type(error).__name__}: {first_line(error)[:120]}); restore it "
        "from a backup, or roll back to a snapshot before it."
    )


def content_mismatch_error(
    manifest: Record, actual_noun: str, listed_noun: str
) -> MetadataUnreadable:
    """The error for a manifest that holds other files than its entry in the manifest list says."""
    return MetadataUnreadable(
        f"The manifest list says that {manifest['manifest_path']} holds {listed_noun}, but it "
        f"holds {actual_noun}: engines would take one for the other. Restore the manifest list "
        "from a backup, or roll back to a snapshot before it."
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
        manifest.get(f"{entry_status}_files_count")
        or manifest.get(f"{entry_status}_data_files_count")
        or 0
        for entry_status in ("added", "existing")
    )


def has_live_count(manifest: Record) -> bool:
    """Tell whether a manifest list counts both the added and the existing entries."""
    return all(
        manifest.get(
            f"{entry_status}_files_count", manifest.get(f"{entry_status}_data_files_count")
        )
        is not None
        for entry_status in ("added", "existing")
    )


def has_entry_counts(manifest: Record) -> bool:
    """Tell whether a manifest list counts the entries: format v1 may leave that out."""
    return manifest.get("added_files_count", manifest.get("added_data_files_count")) is not None


def may_have_live_files(manifest: Record) -> bool:
    """Tell whether a manifest is worth reading."""
    return not has_entry_counts(manifest) or live_count(manifest) > 0


class FileCounts(NamedTuple):
    """The live data files and delete files of a snapshot."""

    data: int
    deletes: int


def file_counts(manifests: Sequence[Record]) -> FileCounts | None:
    """The file counts of a manifest list, which every engine plans by; None if it leaves them out,
    as format version 1 may.
    """
    if not all(map(has_entry_counts, manifests)):
        return None
    delete_count = sum(live_count(m) for m in manifests if is_delete_manifest(m))
    return FileCounts(sum(map(live_count, manifests)) - delete_count, delete_count)


def manifest_facts(
    manifests: Sequence[Record],
    specs: Iterable[PartitionSpec],
    live_counts: FileCounts,
    target_bytes: int,
) -> ManifestFacts:
    """Summarize the manifest list, whose live entries are ``live_counts``; ``target_bytes`` is
    ``commit.manifest.target-size-bytes``.

    Manifests that only list removed files count only as ``unread_count`` of their spec: no scan
    opens them, and the next merging commit drops them (ManifestGroup, MergingSnapshotProducer).
    A manifest smaller than half the target counts as undersized (a choice: two of them fit into
    one).
    """
    live_manifests = list(filter(may_have_live_files, manifests))
    data_manifests = [m for m in live_manifests if not is_delete_manifest(m)]
    delete_manifests = [m for m in live_manifests if is_delete_manifest(m)]
    return ManifestFacts(
        data_count=len(data_manifests),
        data_bytes=sum(m["manifest_length"] for m in data_manifests),
        data_entry_count=live_counts.data,
        delete_count=len(delete_manifests),
        delete_bytes=sum(m["manifest_length"] for m in delete_manifests),
        delete_entry_count=live_counts.deletes,
        undersized_count=sum(m["manifest_length"] < target_bytes / 2 for m in live_manifests),
        overlaps=tuple(_range_overlaps(data_manifests, specs)),
        by_spec=manifests_by_spec(manifests),
    )


def manifests_by_spec(manifests: Sequence[Record]) -> tuple[SpecManifests, ...]:
    """The manifests of a manifest list, counted by partition spec."""
    lengths_by_spec: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    unread_counts_by_spec = Counter(
        m["partition_spec_id"] for m in manifests if not may_have_live_files(m)
    )
    for manifest in manifests:
        lengths_by_spec[manifest["partition_spec_id"]][is_delete_manifest(manifest)].append(
            manifest["manifest_length"]
        )
    return tuple(
        SpecManifests(
            len(data_lengths),
            sum(data_lengths),
            len(delete_lengths),
            sum(delete_lengths),
            spec_id,
            unread_counts_by_spec[spec_id],
        )
        for spec_id, (data_lengths, delete_lengths) in sorted(lengths_by_spec.items())
    )


def _range_overlaps(
    manifests: Sequence[Record], specs: Iterable[PartitionSpec]
) -> Iterable[RangeOverlap]:
    for spec in specs:
        manifest_summaries = [
            m.get("partitions") or [] for m in manifests if m["partition_spec_id"] == spec.spec_id
        ]
        for field_index, field in enumerate(spec.fields):
            value_ranges = [
                value_range
                for field_summaries in manifest_summaries
                for field_summary in field_summaries[field_index : field_index + 1]
                if (value_range := range_of(field.result_type, *map(field_summary.get, BOUNDS)))
            ]
            if (n := len(value_ranges)) > 1:
                # Each range meets itself, too.
                overlap_share = (_overlap_count(value_ranges, value_ranges) - n) / (n * (n - 1))
                yield RangeOverlap(spec.spec_id, field.name, n, overlap_share)


def _overlap_count(
    value_ranges: Sequence[tuple[Any, Any]], other_value_ranges: Iterable[tuple[Any, Any]]
) -> int:
    """How many pairs of a range and another one have a value in common, in O(n log n)."""
    lows = sorted(low for low, _ in value_ranges)
    highs = sorted(high for _, high in value_ranges)
    return sum(
        bisect_right(lows, high) - bisect_left(highs, low) for low, high in other_value_ranges
    )


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
    data_manifests = [m for m in manifests if not is_delete_manifest(m) and may_have_live_files(m)]
    manifest_quotas = _sampled_manifests(data_manifests)
    if not manifest_quotas:
        return MetricsSample()
    sampled_files: list[Record] = []
    sampled_partitions: list[Partition] = []
    files_by_snapshot: dict[int, list[Record]] = defaultdict(list)
    max_entries_by_path = {
        manifest["manifest_path"]: max_entries for manifest, max_entries in manifest_quotas
    }
    for manifest, manifest_bytes in read_manifests_ahead(
        read, [manifest for manifest, _ in manifest_quotas]
    ):
        max_entries = max_entries_by_path[manifest["manifest_path"]]
        stride = max(1, live_count(manifest) // max_entries)
        file_iterator = files_of(manifest, manifest_bytes, _SAMPLED_FIELDS, stride=stride)
        sampled_entries = list(islice(file_iterator, max_entries + 1))
        sampled_files += [file for file, *_ in sampled_entries[:max_entries]]
        sampled_partitions += [partition for _, partition, *_ in sampled_entries[:max_entries]]
        is_fully_read = stride == 1 and len(sampled_entries) <= max_entries
        for file, _, _, snapshot_id in sampled_entries if is_fully_read else ():
            files_by_snapshot[snapshot_id or 0].append(file)
    commits_with_files = sorted(files_by_snapshot.items())
    files_with_sizes = [f for f in sampled_files if f.get("column_sizes")]
    identifier_columns = [c for c in columns if c.field_id in identifier_ids]
    return MetricsSample(
        len(sampled_files),
        tuple(_column_sample(column, sampled_files, sampled_partitions) for column in columns),
        sized_files=len(files_with_sizes),
        file_bytes=sum(f["file_size_in_bytes"] for f in files_with_sizes),
        column_bytes=sum(sum(f["column_sizes"].values()) for f in files_with_sizes),
        writes=tuple(
            filter(None, (_sampled_write(commit_files) for _, commit_files in commits_with_files))
        ),
        identifiers=tuple(c.name for c in identifier_columns),
        repeated=tuple(
            filter(
                None,
                (
                    _repeated_identifiers(*commit, identifier_columns)
                    for commit in commits_with_files
                ),
            )
        ),
    )


def _sampled_manifests(live_manifests: Sequence[Record]) -> list[tuple[Record, int]]:
    """The manifests that a sample of statistics reads, evenly spread, and how many files of each:
    as many of each as possible.
    """
    manifest_count = min(len(live_manifests), _LEAST_MANIFESTS)
    evenly_spread_manifests: list[Record] = []
    while manifest_count:
        evenly_spread_manifests = [
            live_manifests[i * (len(live_manifests) - 1) // max(manifest_count - 1, 1)]
            for i in range(manifest_count)
        ]
        has_enough_files = sum(map(live_count, evenly_spread_manifests)) >= SAMPLED_FILES
        if has_enough_files or manifest_count in {len(live_manifests), MOST_MANIFESTS}:
            break
        manifest_count = min(2 * manifest_count, len(live_manifests), MOST_MANIFESTS)
    manifest_quotas: list[tuple[Record, int]] = []
    remaining_file_count = SAMPLED_FILES
    manifests_smallest_first = sorted(
        evenly_spread_manifests,
        key=lambda m: live_count(m) if has_entry_counts(m) else SAMPLED_FILES,
    )
    for manifest_index, manifest in enumerate(manifests_smallest_first):
        equal_quota = max(
            1, remaining_file_count // (len(manifests_smallest_first) - manifest_index)
        )
        max_entries = (
            min(equal_quota, live_count(manifest)) if has_entry_counts(manifest) else equal_quota
        )
        manifest_quotas.append((manifest, max_entries))
        remaining_file_count -= max_entries
    return manifest_quotas


# Types whose values are whole numbers, so that bounds limit how many different ones there are.
_WHOLE = ("int", "long", "date", "time")


def _repeated_identifiers(
    snapshot_id: int, commit_files: Sequence[Record], identifier_columns: Sequence[Column]
) -> RepeatedIdentifiers | None:
    """What one commit added, if its bounds leave fewer identifiers than records: in a partition, or
    in all of them.
    """
    files_by_partition: dict[str, list[Record]] = defaultdict(list)
    for file in commit_files:
        files_by_partition[repr(file["partition"])].append(file)
    excess_counts = [
        (record_count - max_identifier_count, record_count, max_identifier_count)
        for file_group in (commit_files, *files_by_partition.values())
        if (max_identifier_count := _max_identifier_count(file_group, identifier_columns))
        is not None
        and (record_count := sum(file["record_count"] for file in file_group))
        > max_identifier_count
    ]
    return RepeatedIdentifiers(snapshot_id, *max(excess_counts)[1:]) if excess_counts else None


def _max_identifier_count(
    files: Sequence[Record], identifier_columns: Sequence[Column]
) -> int | None:
    """The most different identifiers that the bounds of files leave; None if they set no limit.

    Equal bounds are a single value, whatever its type: a truncated upper bound is larger than the
    lower one.
    """
    combination_count = 1
    for column in identifier_columns:
        encoded_bounds = {
            (file.get(end) or {}).get(column.field_id) for file in files for end in BOUND_FIELDS
        }
        if None in encoded_bounds or (
            len(encoded_bounds) > 1 and not column.type.startswith(_WHOLE)
        ):
            return None
        if len(encoded_bounds) > 1:
            bound_numbers = [
                int.from_bytes(raw, "little", signed=True)
                for raw in encoded_bounds
                if raw is not None
            ]
            combination_count *= max(bound_numbers) - min(bound_numbers) + 1
    return combination_count if identifier_columns else None


# The name of a file as Spark and Flink write it (OutputFileFactory): the task, its attempt, the
# operation, the number of the file.
_TASK = re.compile(r"(?:^|/)(\d{5,}-\d+-.+)-\d{5}\.\w+$")


def _sampled_write(commit_files: Sequence[Record]) -> SampledWrite | None:
    """What one commit added, with its tasks; None if a name does not say which task wrote the
    file.
    """
    task_matches = [_TASK.search(file["file_path"]) for file in commit_files]
    if None in task_matches:
        return None
    return SampledWrite(
        len(commit_files),
        len({task_match[1] for task_match in task_matches if task_match}),
        sum(file["file_size_in_bytes"] for file in commit_files),
        len({repr(file["partition"]) for file in commit_files}),
    )


def _column_sample(
    column: Column, files: Sequence[Record], partitions: Sequence[Partition]
) -> ColumnSample:
    value_counts = [(file.get("value_counts") or {}).get(column.field_id) for file in files]
    null_counts = [(file.get("null_value_counts") or {}).get(column.field_id) for file in files]
    lower_bounds = [(file.get("lower_bounds") or {}).get(column.field_id) for file in files]
    upper_bounds = [(file.get("upper_bounds") or {}).get(column.field_id) for file in files]
    bounds_file_count = sum(
        None not in bounds_pair for bounds_pair in zip(lower_bounds, upper_bounds, strict=True)
    )
    file_ranges: list[FileRange] = []
    ranges_by_partition: dict[Partition, list[FileRange]] = defaultdict(list)
    for file, partition, low, high in zip(
        files, partitions, lower_bounds, upper_bounds, strict=True
    ):
        value_range = range_of(column.type, low, high)
        if value_range is not None:
            file_ranges.append(FileRange(*value_range, file["record_count"]))
            ranges_by_partition[partition].append(file_ranges[-1])
    has_all_ranges = len(file_ranges) == bounds_file_count > 1
    # A file in which every value is null has no bounds, and needs none.
    all_null_file_count = sum(
        a is not None and a == b for a, b in zip(value_counts, null_counts, strict=True)
    )
    return ColumnSample(
        column.name,
        bounds_file_count,
        len(files) - value_counts.count(None),
        mean_file_opens(file_ranges) / len(file_ranges) if has_all_ranges else None,
        all_null_file_count,
        partition_overlap=mean_overlap(ranges_by_partition.values()) if has_all_ranges else None,
    )
