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


def files_by(facts: TableFacts) -> str | None:
    """The column in whose order a rewrite takes the files of a partition: the one with the least
    overlap, and declared columns first among those by which filters skip files at all; None if no
    column has bounds.
    """
    declared = declared_columns(facts)
    overlaps: dict[str, float] = {}
    for column in bounded_columns(facts):
        sample = facts.metrics_sample.column(column.name)
        if sample is not None and sample.stab_share is not None:
            overlap = sample.partition_overlap
            overlaps[column.name] = sample.stab_share if overlap is None else overlap

    def rank(name: str) -> tuple[bool, bool, float]:
        return overlaps[name] > MOST_OVERLAP, name not in declared, overlaps[name]

    return min(overlaps, key=rank, default=None)


def planned_columns(facts: TableFacts, file_count: int) -> list[Column]:
    """The columns whose ranges the engine's planner collects for so many files: the most important
    one alone, if these are very many.
    """
    return bounded_columns(facts)[: max(1, _MOST_RANGES // max(file_count, 1))]


def predicted_opens(
    bounded: Sequence[Column], ranges: Mapping[str, Any]
) -> tuple[FilterOpens, ...]:
    """What filters on some columns open before and after a rewrite, from the ranges of files as
    :meth:`icekit.engine.planner.RewriteGroups.ranges` gives them; without columns that some file has
    no bounds of.
    """
    filter_opens: list[FilterOpens] = []
    for column_index, column in enumerate(bounded, 1):
        before = _ranges(column, ranges["before"], column_index)
        after = _ranges(column, ranges["after"], column_index)
        if not before or not after:
            continue
        files_before = int(ranges["files_before"])
        files_after = int(ranges["files_after"])
        opens_after = _opens(after, files_after)
        if column.metrics_mode in _WITHOUT_BOUNDS:
            opens_after = float(files_after)
        filter_opens.append(
            FilterOpens(
                column.name, files_before, _opens(before, files_before), files_after, opens_after
            )
        )
    return tuple(filter_opens)


def _ranges(
    column: Column, files: Sequence[Sequence[Any]], column_index: int
) -> list[FileRange | None] | None:
    """The range of each file, None for one with nulls alone; None if a file has no bounds."""
    file_ranges: list[FileRange | None] = []
    for file in files:
        cell = file[column_index]
        if cell is None:
            return None
        try:
            # The bound of an empty text is empty, too.
            ends = [
                from_bytes(column.type, bytes.fromhex(end))
                for end in (cell.split(" ") if cell else ())
            ]
        except ValueError:
            return None
        file_ranges.append(FileRange(ends[0], ends[1], int(file[0])) if ends else None)
    return file_ranges


def _opens(sample: Sequence[FileRange | None], file_count: int) -> float:
    """The mean number of files that a filter opens among ``file_count``, which a sample is of."""
    ranges = [each for each in sample if each is not None]
    return file_opens_from_sample(ranges, round(file_count * len(ranges) / len(sample)))


def actual_opens(
    read: Callable[[str], bytes], metadata: Json, action: Action, commits: Iterable[Json]
) -> tuple[FilterOpens, ...]:
    """What the filters of an action's prediction open of the files that its commits added."""
    by_name = {column.name: column for column in columns(metadata, schema_of(metadata))}
    filters = [opens for opens in action.prediction.filters if opens.column in by_name]
    measured = [by_name[opens.column] for opens in filters]
    if not measured:
        return ()
    files = [
        [file["record_count"], *(_cell(column, file) for column in measured)]
        for file in _added_files(read, commits, measured)
    ]
    if not files:
        return ()
    sample = files
    if len(files) > _SAMPLED_FILES:
        sample = random.Random(0).sample(files, _SAMPLED_FILES)
    actual: list[FilterOpens] = []
    for column_index, opens in enumerate(filters, 1):
        ranges = _ranges(measured[column_index - 1], sample, column_index)
        opens_after = float(len(files)) if ranges is None else _opens(ranges, len(files))
        actual.append(replace(opens, files_after=len(files), opens_after=opens_after))
    return tuple(actual)


def _added_files(
    read: Callable[[str], bytes], commits: Iterable[Json], measured: Sequence[Column]
) -> Iterator[Record]:
    """The data files that some commits added."""
    ids = tuple(column.field_id for column in measured)
    for commit in commits:
        location = commit["manifest-list"]
        snapshot_id = commit["snapshot-id"]
        added = [
            manifest
            for manifest in manifest_list(read(location), location)
            if not is_delete_manifest(manifest) and manifest.get("added_snapshot_id") == snapshot_id
        ]
        for manifest, content in read_manifests_ahead(read, added):
            for file, _, _, added_by in files_of(
                manifest, content, _FIELDS, dict.fromkeys(_STATISTICS, ids)
            ):
                if added_by == snapshot_id:
                    yield file


class _File(NamedTuple):
    """A data file: its size, its rows, and its ranges by column as the planner writes them."""

    size_in_bytes: int
    rows: int
    cells: tuple[str | None, ...]
    order: tuple[Any, ...]


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
    def files(self) -> Mapping[Partition, Sequence[_File]]:
        """The files of each partition."""
        bounded = bounded_columns(self.facts)
        ids = tuple(column.field_id for column in bounded)
        by_name = self.facts.by_name
        files: dict[Partition, list[_File]] = defaultdict(list)
        of_columns = dict.fromkeys(_STATISTICS, ids)
        data_manifests = [
            m for m in self.manifests if not is_delete_manifest(m) and may_have_live_files(m)
        ]
        first = by_name.get(files_by(self.facts) or "")
        for manifest, content in read_manifests_ahead(self.read, data_manifests):
            for file, partition, *_ in files_of(manifest, content, _FIELDS, of_columns):
                cells = tuple(_cell(column, file) for column in bounded)
                files[partition].append(
                    _File(
                        file["file_size_in_bytes"], file["record_count"], cells, _order(first, file)
                    )
                )
        return files

    def opens(self, action: Action) -> tuple[FilterOpens, ...]:
        """What filters open before and after an action."""
        before: list[list[Any]] = []
        after: list[list[Any]] = []
        bounded = bounded_columns(self.facts)
        for partition in action.partitions:
            files_taken = [
                file for file in self.files.get(partition, ()) if self._takes(action, file)
            ]
            before += [[file.rows, *file.cells] for file in files_taken]
            after += [
                [sum(file.rows for file in files), *_hulls(bounded, files)]
                for files in self._written(files_taken)
            ]
        ranges = {
            "before": before,
            "after": after,
            "files_before": len(before),
            "files_after": len(after),
        }
        return predicted_opens(bounded, ranges)

    def _takes(self, action: Action, file: _File) -> bool:
        """Whether a rewrite takes a file (SizeBasedFileRewritePlanner)."""
        target = self.facts.target_bytes
        low = int(action.options.get("min-file-size-bytes", min_file_size(target)))
        high = int(action.options.get("max-file-size-bytes", max_file_size(target)))
        is_whole = action.options.get("rewrite-all") == "true"
        return is_whole or not low <= file.size_in_bytes <= high

    def _written(self, files: Sequence[_File]) -> Iterator[Sequence[_File]]:
        """The old files that become each new file: neighbours of about the size of one."""
        total = sum(file.size_in_bytes for file in files)
        number = expected_files(total, self.facts.target_bytes)
        files_by_output: dict[int, list[_File]] = defaultdict(list)
        position = 0
        for file in sorted(files, key=lambda each: each.order):
            share = total / number
            first = int((position + file.size_in_bytes / 2) / share)
            last = first
            if file.size_in_bytes > share:
                first = int(position / share)
                last = int((position + file.size_in_bytes - 1) / share)
            for output in range(first, last + 1):
                files_by_output[output].append(file)
            position += file.size_in_bytes
        yield from files_by_output.values()


def _cell(column: Column, file: Record) -> str | None:
    """A file's range in a column as the planner writes it (``OrderedPlanner.ranges``)."""
    ends = [(file.get(name) or {}).get(column.field_id) for name in sorted(BOUND_FIELDS)]
    if None not in ends:
        return " ".join(end.hex() for end in ends if end is not None)
    counts = [(file.get(name) or {}).get(column.field_id) for name in NULL_FIELDS]
    return "" if counts[0] is not None and counts[0] == counts[1] else None


def _order(column: Column | None, file: Record) -> tuple[Any, ...]:
    """What a file is ordered by: as ``OrderedPlanner`` does, by the middle of its range."""
    if column is None:
        return (0,)
    ends = [(file.get(name) or {}).get(column.field_id) for name in sorted(BOUND_FIELDS)]
    values = range_of(column.type, *ends)
    if values is None:
        return (1,)
    low, high = values
    return 0, 0.0 if isinstance(low, str) else float(low) / 2 + float(high) / 2, low, high


def _hulls(bounded: Sequence[Column], files: Sequence[_File]) -> Iterator[str | None]:
    """The range of some files together in each column."""
    for column_index, column in enumerate(bounded):
        cells = [file.cells[column_index] for file in files]
        if None in cells:
            yield None
            continue
        # As in _ranges.
        ends = [cell.split(" ") for cell in cells if cell]
        if not ends:
            yield ""
            continue

        def value(end: str, column: Column = column) -> Any:
            return from_bytes(column.type, bytes.fromhex(end))

        try:
            low = min((low for low, _ in ends), key=value)
            high = max((high for _, high in ends), key=value)
        except ValueError:
            yield None
            continue
        yield f"{low} {high}"
