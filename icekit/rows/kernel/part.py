"""A part of a job: the old files that one task resolves, and the deletes that apply to them.

Executors get the source of this module from the driver, so it imports nothing of icekit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """A data file: ``first_row_id`` is None without row lineage, ``constants`` are the partition's
    values by field id, which take the place of the file's.
    """

    path: str
    sequence_number: int
    first_row_id: int | None
    row_count: int
    constants: Mapping[str, Any]


@dataclass(frozen=True)
class EqualityDeletes:
    """The delete files of one key, each a path and its order
    (:func:`icekit.rows.deletes.ruled_out.delete_order`).

    ``ruled_out_words`` has for each data file the words of bits of the deletes that Iceberg's scan
    does not list for it; empty if it lists all.
    """

    field_ids: Sequence[int]
    paths_and_orders: Sequence[tuple[str, int]]
    ruled_out_words: Sequence[Sequence[int] | None]


@dataclass(frozen=True)
class Part:
    """Old files of one partition, the deletes that apply to them, and the paths of as many new
    files as they may become at most, of which ``expected_files`` are expected.

    ``position_deletes`` are files with the numbers of the data files that they apply to, and
    ``vectors`` deletion vectors: the number of a data file, the path, offset and length.
    ``summed_files`` are the numbers of data files whose rows are added up by themselves, too.
    ``attempt`` tells the files of one attempt of a task from those of another.
    """

    data_files: Sequence[DataFile]
    equality_deletes: Sequence[EqualityDeletes]
    position_deletes: Sequence[tuple[str, Sequence[int]]]
    vectors: Sequence[tuple[int, str, int, int]]
    summed_files: Sequence[int]
    new_paths: Sequence[str]
    expected_files: int
    max_file_bytes: int
    attempt: str

    @classmethod
    def of_json(cls, part_json: str, attempt: str) -> Part:
        """Read a part as icekit's Java class Kernel writes it."""
        values = json.loads(part_json)
        return cls(
            data_files=[_data_file(entry) for entry in values["data"]],
            equality_deletes=[
                EqualityDeletes(entry["field_ids"], entry["files"], entry["ruled_out"])
                for entry in values["deletes"]
            ],
            position_deletes=values["position_deletes"],
            vectors=values["vectors"],
            summed_files=values["chosen"],
            new_paths=values["outputs"],
            expected_files=values["files"],
            max_file_bytes=values["max_file_bytes"],
            attempt=attempt,
        )


def _data_file(entry: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=entry["path"],
        sequence_number=entry["sequence"],
        first_row_id=entry["first_row_id"],
        row_count=entry["rows"],
        constants=entry["constants"],
    )
