"""List the equality deletes of a snapshot, and the data files that they may delete rows from."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import pyarrow as pa

from icekit.engine.bridge import compiled
from icekit.engine.compat import frame_of
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Partition, Scalar
from icekit.facts.manifests import FileCounts
from icekit.facts.values import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Scope:
    """The equality deletes of one partition, or the global ones of an unpartitioned spec, and the
    data files they may apply to.

    ``number`` is its number in its listing, where global deletes come last. ``data_*`` count the
    data files older than the newest of these deletes: for global deletes in the complete table,
    else in the partition.
    """

    partition: Partition
    number: int
    is_global: bool
    max_sequence: int
    delete_files: int
    delete_records: int
    delete_bytes: int
    data_files: int
    data_records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class File:
    """A data file or an equality delete file (``field_ids`` are its key's), and the number of its
    partition; -1 for global deletes.
    """

    path: str
    field_ids: tuple[int, ...]
    size: int
    records: int
    sequence: int
    spec_id: int
    part: int

    @property
    def is_global(self) -> bool:
        """Whether a delete file applies to every partition."""
        return self.part == -1


class DeleteListing:
    """The equality deletes of a snapshot, rolled up by partition as ``scopes``, and the number of all
    its files as ``counted``; ``java`` has the files that were listed last.

    ``table`` is an object of Iceberg's API. ``up_to`` leaves out deletes of later sequence numbers.
    The driver receives a row per partition.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Any,
        snapshot_id: int,
        specs: Mapping[int, PartitionSpec],
        up_to: int | None = None,
    ) -> None:
        limit = 2**63 - 1 if up_to is None else up_to
        self.java = compiled(spark._jvm, table, "Listing", table, snapshot_id, limit)
        self.counted = FileCounts(*map(int, str(self.java.counted()).split()))
        rows = _rows(str(self.java.scopes()), 9)
        self.scopes = tuple(
            Scope(
                partition_of(int(spec_id), map(_value, values.split("/") if values else ())),
                number,
                specs[int(spec_id)].is_unpartitioned,
                *map(int, sums),
            )
            for number, (spec_id, values, *sums) in enumerate(rows)
        )

    def files(
        self, chosen: Iterable[Scope], slices: tuple[int, int] = (0, 1)
    ) -> tuple[list[File], list[File]]:
        """The equality delete files of some scopes, and the data files older than their newest; of
        these a part: (2, 5) is the third of five.

        The driver holds a row per file of a batch, not of the table.
        """
        deletes: list[File] = []
        data: list[File] = []
        for path, *more, key in _rows(str(self.java.list(_numbers(chosen), *slices)), 7):
            field_ids = tuple(map(int, re.findall(r"\d+", key)))
            (deletes if key else data).append(File(path, field_ids, *map(int, more)))
        return deletes, data

    def uncovered(
        self, chosen: Iterable[Scope], listed_at: Sequence[int], slices: int
    ) -> tuple[int, str]:
        """Count the data files with some scopes' deletes that the earlier slices have not seen, and
        name one.

        ``listed_at`` has, for each earlier slice, the sequence number of the snapshot that it was
        listed at. A rewrite may give its files the sequence number that the rewrite started from,
        so that deletes older than the files apply to them.
        """
        found = str(self.java.uncovered(_numbers(chosen), joined(listed_at), slices))
        files, _, path = found.partition(" ")
        return int(files), path

    def repeated(self, paths: Collection[str]) -> list[str]:
        """The given data files that the snapshot holds more than once (appended twice), with
        different sequence numbers.
        """
        return str(self.java.repeated(joined(paths))).split("\0")[:-1] if paths else []

    def where(self, expression: Any, *, case_sensitive: bool) -> tuple[frozenset[Partition], bool]:
        """The partitions with equality deletes that may hold rows of an Iceberg expression, and
        whether any were left out.

        An expression that no partition field answers selects every partition; then none are left
        out. Raises Iceberg's error for a column that does not exist.
        """
        narrows, *numbers = str(self.java.where(expression, case_sensitive)).split("\0")
        return frozenset(self.scopes[int(n)].partition for n in numbers), narrows == "true"


def local(
    spark: SparkSession, columns: Mapping[str, tuple[pa.DataType, Iterable[Any]]]
) -> DataFrame:
    """A frame of values from the driver, sent as Arrow: rows would be unpacked by Python
    processes.
    """
    return frame_of(
        spark,
        pa.table({name: pa.array(list(values), kind) for name, (kind, values) in columns.items()}),
    )


def joined(values: Iterable[object]) -> str:
    """Values as text for Java, with a zero between them."""
    return "\0".join(map(str, values))


def placed(files: Iterable[File]) -> str:
    """Path, number of the partition and sequence number of each file, :func:`joined`."""
    return joined(value for file in files for value in (file.path, file.part, file.sequence))


def _numbers(chosen: Iterable[Scope]) -> str:
    return joined(scope.number for scope in chosen)


def _rows(text: str, width: int) -> Iterator[list[str]]:
    """Rows of so many texts, each followed by a zero."""
    every = text.split("\0")
    return (every[start : start + width] for start in range(0, len(every) - 1, width))


def _value(text: str) -> Scalar:
    """A partition value by its kind."""
    kind, rest = text[0], text[1:]
    if kind == "s":
        return unquote_plus(rest)
    if kind == "b":
        return rest == "true"
    if kind == "-":
        return None
    return int(rest) if kind == "i" else float(rest)
