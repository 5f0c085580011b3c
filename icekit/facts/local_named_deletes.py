"""Find the data file that a delete file names, and whether the delete applies to it, without a JVM."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icekit.facts.integrity import DeleteState
from icekit.facts.manifests import Record

# Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
# The order of sequence numbers of no data file.
NEVER = 2**63 - 1


@dataclass
class DataFiles:
    """The data files, column by column: hashes of their paths, and of their partitions and names."""

    paths: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("q"))
    partitions: array[int] = field(default_factory=lambda: array("i"))
    sequences: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class ScopedDeletes(DataFiles):
    """The delete files that name a single data file, column by column: that file's path and name, and the delete's own figures."""

    files: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    records: array[int] = field(default_factory=lambda: array("q"))
    is_vector: array[int] = field(default_factory=lambda: array("b"))

    def states(self, data: DataFiles) -> list[DeleteState | None]:
        """Why each delete applies to nothing; None if it applies.

        A delete applies to the live data file that has exactly the path it names, is not newer, and has its spec and partition
        (DeleteFileIndex).
        """
        named, partitions = _oldest(data.paths, data.sequences, data.partitions)(self.paths)
        alike, _ = _oldest(data.names, data.sequences, data.partitions)(self.names)
        sequences = np.frombuffer(self.sequences, np.int64)
        is_live, is_older, is_beside = named != NEVER, named <= sequences, partitions == np.frombuffer(self.partitions, np.int32)
        code = np.where(is_live, np.where(is_older, np.where(is_beside, 0, 2), 1), np.where(alike <= sequences, 3, 1))
        known = (None, DeleteState.DANGLING, DeleteState.MISFILED, DeleteState.UNMATCHED)
        return [known[each] for each in code]


def _oldest(keys: array[int], sequences: array[int], partitions: array[int]) -> Callable[[array[int]], tuple[Any, Any]]:
    """A function from keys to the lowest sequence number of a file with the key, and that file's partition; ``NEVER`` and -1 without one."""
    ordered = np.lexsort((np.frombuffer(sequences, np.int64), np.frombuffer(keys, np.int64)))
    sorted_keys = np.frombuffer(keys, np.int64)[ordered]

    def find(wanted: array[int]) -> tuple[Any, Any]:
        asked = np.frombuffer(wanted, np.int64)
        if not len(sorted_keys):
            return np.full(len(asked), NEVER), np.full(len(asked), -1)
        first = np.minimum(np.searchsorted(sorted_keys, asked), len(sorted_keys) - 1)
        is_there, file = sorted_keys[first] == asked, ordered[first]
        return (
            np.where(is_there, np.frombuffer(sequences, np.int64)[file], NEVER),
            np.where(is_there, np.frombuffer(partitions, np.int32)[file], -1),
        )

    return find


def name_hash(partition: int, path: str) -> int:
    """A hash of a file's name in its partition."""
    return hash((partition, path.rpartition("/")[2]))


def file_name(path: str) -> str:
    """A file's name without its folder."""
    return path.rpartition("/")[2]


def named_data_file(file: Record) -> str | None:
    """The path of the only data file that a position delete file or deletion vector names, directly or by equal bounds of its path column.

    Source: ContentFileUtil.referencedDataFile. The bounds are those of the path column, if they were read, and maybe of others.
    """
    if (path := file.get("referenced_data_file")) is not None:
        return str(path)
    (lower, *_), (upper, *_) = (file.get(f"{end}_bounds") or (None,) for end in ("lower", "upper"))
    return lower.decode(errors="replace") if lower is not None and lower == upper else None
