"""Choose the column in whose order a rewrite takes files, and predict how many files filters open
before and after it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from icekit.health.facts.column_bounds import MOST_OVERLAP, bounded_columns, declared_columns
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import expected_files, max_file_size, min_file_size
from icekit.iceberg.definition import Column
from icekit.iceberg.filter_opens import FileRange, FilterOpens, file_opens_from_sample
from icekit.iceberg.manifests import (
    BOUND_FIELDS,
    DATA_FIELDS,
    NULL_FIELDS,
    Record,
    files_of,
    is_delete_manifest,
    manifest_list,
    may_have_live_files,
    read_manifests_ahead,
)
from icekit.iceberg.metadata import Json, columns, schema_of
from icekit.iceberg.partition import Partition
from icekit.iceberg.values import from_bytes, range_of
from icekit.maintain.action import Action

#: A choice: the most files and manifests that are read for a prediction without the engine's
# planner, which takes about 0.15 ms for each file.
_MOST_FILES = 2_000
_MOST_MANIFESTS = 100
# A choice: the ranges that the driver holds while it plans, of about 150 bytes each.
_MOST_RANGES = 400_000
# A choice: the most files whose ranges are looked at after a run.
_SAMPLED_FILES = 300
_STATISTICS = BOUND_FIELDS | NULL_FIELDS
_FIELDS = DATA_FIELDS | _STATISTICS
# Modes of metrics that write no bounds.
_WITHOUT_BOUNDS = frozenset({"none", "counts"})


def file_order_column(facts: TableFacts) -> str | None:
    """The column in whose order a rewrite takes the files of a partition: the one with the least
    overlap, and declared columns first among those by which filters skip files at all; None if no
    column has bounds.
    """
    declared_names = declared_columns(facts)
    overlap_by_column: dict[str, float] = {}
    for column in bounded_columns(facts):
        column_sample = facts.metrics_sample.column(column.name)
        if column_sample is not None and column_sample.stab_share is not None:
            partition_overlap = column_sample.partition_overlap
            overlap_by_column[column.name] = (
                column_sample.stab_share if partition_overlap is None else partition_overlap
            )

    def rank(name: str) -> tuple[bool, bool, float]:
        return (
            overlap_by_column[name] > MOST_OVERLAP,
            name not in declared_names,
            overlap_by_column[name],
        )

    return min(overlap_by_column, key=rank, default=None)


def range_columns(facts: TableFacts, file_count: int) -> list[Column]:
    """The columns whose ranges the engine's planner collects for so many files: the most important
    one alone, if these are very many.
    """
    return bounded_columns(facts)[: max(1, _MOST_RANGES // max(file_count, 1))]


def predicted_filter_opens(
    columns_with_bounds: Sequence[Column], planner_ranges: Mapping[str, Any]
) -> tuple[FilterOpens, ...]:
    """What filters on some columns open before and after a rewrite, from the ranges of files as
    :meth:`icekit.engine.planner.RewriteGroups.ranges` gives them; without columns of which some
    file has no bounds.
    """
    filter_opens: list[FilterOpens] = []
    for column_index, column in enumerate(columns_with_bounds, 1):
        ranges_before = _file_ranges(column, planner_ranges["before"], column_index)
        ranges_after = _file_ranges(column, planner_ranges["after"], column_index)
        if not ranges_before or not ranges_after:
            continue
        files_before = int(planner_ranges["files_before"])
        files_after = int(planner_ranges["files_after"])
        opens_after = _mean_opens(ranges_after, files_after)
        if column.metrics_mode in _WITHOUT_BOUNDS:
            opens_after = float(files_after)
        filter_opens.append(
            FilterOpens(
                column.name,
                files_before,
                _mean_opens(ranges_before, files_before),
                files_after,
                opens_after,
            )
        )
    return tuple(filter_opens)


def _file_ranges(
    column: Column, file_rows: Sequence[Sequence[Any]], column_index: int
) -> list[FileRange | None] | None:
    """The range of each file, None for one with nulls alone; None if a file has no bounds."""
    file_ranges: list[FileRange | None] = []
    for file_row in file_rows:
        range_hex = file_row[column_index]
        if range_hex is None:
            return None
        try:
            # The bound of an empty text is empty, too.
            range_ends = [
                from_bytes(column.type, bytes.fromhex(end))
                for end in (range_hex.split(" ") if range_hex else ())
            ]
        except ValueError:
            return None
        file_ranges.append(
            FileRange(range_ends[0], range_ends[1], int(file_row[0])) if range_ends else None
        )
    return file_ranges


def _mean_opens(sampled_ranges: Sequence[FileRange | None], file_count: int) -> float:
    """The mean number of files that a filter opens among ``file_count``, which a sample is of."""
    known_ranges = [file_range for file_range in sampled_ranges if file_range is not None]
    return file_opens_from_sample(
        known_ranges, round(file_count * len(known_ranges) / len(sampled_ranges))
    )


def filter_opens_of_added_files(
    read: Callable[[str], bytes], metadata: Json, action: Action, commits: Iterable[Json]
) -> tuple[FilterOpens, ...]:
    """What the filters of an action's prediction open of the files that its commits added."""
    columns_by_name = {column.name: column for column in columns(metadata, schema_of(metadata))}
    predicted_filters = [
        filter_opens
        for filter_opens in action.prediction.filters
        if filter_opens.column in columns_by_name
    ]
    filter_columns = [columns_by_name[filter_opens.column] for filter_opens in predicted_filters]
    if not filter_columns:
        return ()
    file_rows = [
        [file["record_count"], *(_range_cell(column, file) for column in filter_columns)]
        for file in _added_files(read, commits, filter_columns)
    ]
    if not file_rows:
        return ()
    sampled_rows = file_rows
    if len(file_rows) > _SAMPLED_FILES:
        sampled_rows = random.Random(0).sample(file_rows, _SAMPLED_FILES)
    filters_with_actual_opens: list[FilterOpens] = []
    for column_index, filter_opens in enumerate(predicted_filters, 1):
        file_ranges = _file_ranges(filter_columns[column_index - 1], sampled_rows, column_index)
        opens_after = (
            float(len(file_rows))
            if file_ranges is None
            else _mean_opens(file_ranges, len(file_rows))
        )
        filters_with_actual_opens.append(
            replace(filter_opens, files_after=len(file_rows), opens_after=opens_after)
        )
    return tuple(filters_with_actual_opens)


def _added_files(
    read: Callable[[str], bytes], commits: Iterable[Json], filter_columns: Sequence[Column]
) -> Iterator[Record]:
    """The data files that some commits added."""
    field_ids = tuple(column.field_id for column in filter_columns)
    for commit in commits:
        manifest_list_path = commit["manifest-list"]
        snapshot_id = commit["snapshot-id"]
        added_manifests = [
            manifest
            for manifest in manifest_list(read(manifest_list_path), manifest_list_path)
            if not is_delete_manifest(manifest) and manifest.get("added_snapshot_id") == snapshot_id
        ]
        for manifest, manifest_bytes in read_manifests_ahead(read, added_manifests):
            for file, _, _, adding_snapshot_id in files_of(
                manifest, manifest_bytes, _FIELDS, dict.fromkeys(_STATISTICS, field_ids)
            ):
                if adding_snapshot_id == snapshot_id:
                    yield file


class _BoundedFile(NamedTuple):
    """A data file: its size, its rows, and its ranges by column as the planner writes them."""

    size_in_bytes: int
    row_count: int
    range_cells: tuple[str | None, ...]
    sort_values: tuple[Any, ...]


@dataclass(frozen=True)
class FileBounds:
    """The bounds of the data files of a table without deletes and older specs, read from its
    manifests.
    """

    facts: TableFacts
    read: Callable[[str], bytes]
    manifests: Sequence[Record]

    @property
    def is_small(self) -> bool:
        """Whether all files can be read in a fraction of a second."""
        return self.facts.data.file_count <= _MOST_FILES and len(self.manifests) <= _MOST_MANIFESTS

    @cached_property
    def files_by_partition(self) -> Mapping[Partition, Sequence[_BoundedFile]]:
        """The files of each partition."""
        columns_with_bounds = bounded_columns(self.facts)
        field_ids = tuple(column.field_id for column in columns_with_bounds)
        columns_by_name = self.facts.by_name
        files_by_partition: dict[Partition, list[_BoundedFile]] = defaultdict(list)
        field_ids_by_statistic = dict.fromkeys(_STATISTICS, field_ids)
        data_manifests = [
            m for m in self.manifests if not is_delete_manifest(m) and may_have_live_files(m)
        ]
        order_column = columns_by_name.get(file_order_column(self.facts) or "")
        for manifest, manifest_bytes in read_manifests_ahead(self.read, data_manifests):
            for file, partition, *_ in files_of(
                manifest, manifest_bytes, _FIELDS, field_ids_by_statistic
            ):
                range_cells = tuple(_range_cell(column, file) for column in columns_with_bounds)
                files_by_partition[partition].append(
                    _BoundedFile(
                        file["file_size_in_bytes"],
                        file["record_count"],
                        range_cells,
                        _sort_values(order_column, file),
                    )
                )
        return files_by_partition

    def filter_opens(self, action: Action) -> tuple[FilterOpens, ...]:
        """What filters open before and after an action."""
        rows_before: list[list[Any]] = []
        rows_after: list[list[Any]] = []
        columns_with_bounds = bounded_columns(self.facts)
        for partition in action.partitions:
            rewritten_files = [
                file
                for file in self.files_by_partition.get(partition, ())
                if self._takes(action, file)
            ]
            rows_before += [[file.row_count, *file.range_cells] for file in rewritten_files]
            rows_after += [
                [
                    sum(file.row_count for file in input_files),
                    *_joint_ranges(columns_with_bounds, input_files),
                ]
                for input_files in self._files_by_output(rewritten_files)
            ]
        planner_ranges = {
            "before": rows_before,
            "after": rows_after,
            "files_before": len(rows_before),
            "files_after": len(rows_after),
        }
        return predicted_filter_opens(columns_with_bounds, planner_ranges)

    def _takes(self, action: Action, file: _BoundedFile) -> bool:
        """Whether a rewrite takes a file (SizeBasedFileRewritePlanner)."""
        target_bytes = self.facts.target_bytes
        min_bytes = int(action.options.get("min-file-size-bytes", min_file_size(target_bytes)))
        max_bytes = int(action.options.get("max-file-size-bytes", max_file_size(target_bytes)))
        takes_all = action.options.get("rewrite-all") == "true"
        return takes_all or not min_bytes <= file.size_in_bytes <= max_bytes

    def _files_by_output(self, files: Sequence[_BoundedFile]) -> Iterator[Sequence[_BoundedFile]]:
        """The old files that become each new file: neighbours of about the size of one."""
        total_bytes = sum(file.size_in_bytes for file in files)
        output_count = expected_files(total_bytes, self.facts.target_bytes)
        files_by_output: dict[int, list[_BoundedFile]] = defaultdict(list)
        offset_bytes = 0
        for file in sorted(files, key=lambda file: file.sort_values):
            output_bytes = total_bytes / output_count
            first_output = int((offset_bytes + file.size_in_bytes / 2) / output_bytes)
            last_output = first_output
            if file.size_in_bytes > output_bytes:
                first_output = int(offset_bytes / output_bytes)
                last_output = int((offset_bytes + file.size_in_bytes - 1) / output_bytes)
            for output_number in range(first_output, last_output + 1):
                files_by_output[output_number].append(file)
            offset_bytes += file.size_in_bytes
        yield from files_by_output.values()


def _range_cell(column: Column, file: Record) -> str | None:
    """A file's range in a column as the planner writes it (``OrderedPlanner.ranges``)."""
    range_ends = [
        (file.get(statistic) or {}).get(column.field_id) for statistic in sorted(BOUND_FIELDS)
    ]
    if None not in range_ends:
        return " ".join(end.hex() for end in range_ends if end is not None)
    null_count = (file.get("null_value_counts") or {}).get(column.field_id)
    value_count = (file.get("value_counts") or {}).get(column.field_id)
    has_only_nulls = null_count is not None and null_count == value_count
    return "" if has_only_nulls else None


def _sort_values(column: Column | None, file: Record) -> tuple[Any, ...]:
    """What a file is ordered by: as ``OrderedPlanner`` does, by the middle of its range."""
    if column is None:
        return (0,)
    range_ends = [
        (file.get(statistic) or {}).get(column.field_id) for statistic in sorted(BOUND_FIELDS)
    ]
    value_range = range_of(column.type, *range_ends)
    if value_range is None:
        return (1,)
    low_value, high_value = value_range
    middle = 0.0 if isinstance(low_value, str) else float(low_value) / 2 + float(high_value) / 2
    return 0, middle, low_value, high_value


def _joint_ranges(
    columns_with_bounds: Sequence[Column], files: Sequence[_BoundedFile]
) -> Iterator[str | None]:
    """The range of some files together in each column."""
    for column_index, column in enumerate(columns_with_bounds):
        range_cells = [file.range_cells[column_index] for file in files]
        if None in range_cells:
            yield None
            continue
        # As in _file_ranges.
        range_ends = [range_cell.split(" ") for range_cell in range_cells if range_cell]
        if not range_ends:
            yield ""
            continue

        def value(end: str, column: Column = column) -> Any:
            return from_bytes(column.type, bytes.fromhex(end))

        try:
            low_hex = min((low_hex for low_hex, _ in range_ends), key=value)
            high_hex = max((high_hex for _, high_hex in range_ends), key=value)
        except ValueError:
            yield None
            continue
        yield f"{low_hex} {high_hex}"
