"""Name the files that are listed twice and the deletes that are misplaced, without a JVM."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.integrity import EXAMPLES, MOST_PARTITIONS, DeleteState, DuplicateFile, Integrity, MisplacedDelete
from icekit.facts.local_key_bounds import KeyReader
from icekit.facts.local_named_deletes import file_name, named_data_file
from icekit.facts.manifests import FILE_FIELDS, SIZE_FIELDS, Record, added_by, entries, is_delete_manifest
from icekit.facts.rollup import kind_of, sort_key
from icekit.facts.values import partition_of

DATA_FIELDS = SIZE_FIELDS | {"file_path"}
DELETE_FIELDS = FILE_FIELDS | {"file_path", "content_offset"}


def repeated_hashes(hashes: array[int]) -> frozenset[int]:
    """The hashes that are there more than once."""
    ordered = np.sort(np.frombuffer(hashes, np.int64))
    return frozenset(int(each) for each in ordered[1:][ordered[1:] == ordered[:-1]])


def file_identity(file: Record) -> int:
    """A hash that tells a delete file from others: a Puffin file holds many deletion vectors."""
    return hash((file["file_path"], file.get("content_offset")))


@dataclass
class Naming:
    """A second reading of the manifests, to name the files that are listed twice and the deletes that are misplaced."""

    specs: Mapping[int, PartitionSpec]
    twice: frozenset[int]
    states: Mapping[int, DeleteState]
    #: By kind, path and offset: [entries, records], and the snapshots that added them.
    repeated: dict[tuple[Kind, str, int | None], list[int]] = field(default_factory=dict)
    snapshots: dict[tuple[Kind, str, int | None], set[int]] = field(default_factory=dict)
    partitions: set[Partition] = field(default_factory=set)

    def named(self, found: Integrity, live: Sequence[Record], read: Callable[[str], bytes]) -> Integrity:
        """The same, with the counts of what is listed twice, and examples."""
        misplaced: list[MisplacedDelete] = []
        for manifest in live:
            raw, spec = read(manifest["manifest_path"]), self.specs[manifest["partition_spec_id"]]
            is_deletes = is_delete_manifest(manifest)
            own = ("status", "snapshot_id")
            fields = DELETE_FIELDS if is_deletes else DATA_FIELDS
            paths = KeyReader({}, is_deletes).fields
            for entry in entries(raw, manifest["manifest_path"], fields, own, paths):
                file = entry["data_file"]
                snapshot_id = added_by(entry, manifest) or 0
                kind = kind_of(file["content"], file["file_format"]) if is_deletes else Kind.DATA
                identity = file_identity(file) if is_deletes else hash(file["file_path"])
                values = tuple(file["partition"].values())
                if identity in self.twice:
                    self._repeat((kind, file["file_path"], file.get("content_offset")), file["record_count"], snapshot_id)
                    self.partitions.add(partition_of(spec.spec_id, values))
                if is_deletes and (state := self.states.get(identity)) is not None:
                    partition, named = partition_of(spec.spec_id, values), named_data_file(file) or ""
                    misplaced.append(MisplacedDelete(state, file["file_path"], partition, named, named, partition, snapshot_id))
            misplaced = heapq.nsmallest(EXAMPLES, misplaced, key=lambda each: (each.path, each.named_path))
        files = {key: counts for key, counts in self.repeated.items() if counts[0] > 1}
        data = [counts for key, counts in files.items() if key[0] is Kind.DATA]
        first = heapq.nsmallest(EXAMPLES, files, key=lambda key: (key[1], key[2] or 0))
        return replace(
            found,
            duplicate_data_file_count=len(data),
            duplicate_delete_file_count=len(files) - len(data),
            duplicate_record_count=sum((n - 1) * records for n, records in data),
            duplicate_partitions=tuple(sorted(self.partitions, key=sort_key)) if len(self.partitions) <= MOST_PARTITIONS else (),
            duplicates=tuple(DuplicateFile(key[1], key[0], files[key][0], tuple(sorted(self.snapshots[key]))) for key in first),
            misplaced=tuple(self._with_data(misplaced, live, read)) if misplaced else (),
        )

    def _repeat(self, key: tuple[Kind, str, int | None], records: int, snapshot_id: int) -> None:
        counts = self.repeated.setdefault(key, [0, records])
        counts[0] += 1
        self.snapshots.setdefault(key, set()).add(snapshot_id)

    def _with_data(
        self, misplaced: Sequence[MisplacedDelete], live: Sequence[Record], read: Callable[[str], bytes]
    ) -> Iterator[MisplacedDelete]:
        """The same deletes, each with the data file that it names, or the one in its place."""
        by_path: dict[str, Partition] = {each.named_path: each.partition for each in misplaced}
        by_name: dict[tuple[Partition, str], str] = {}
        names = {file_name(path) for path in by_path}
        for manifest in live:
            if is_delete_manifest(manifest):
                continue
            spec = self.specs[manifest["partition_spec_id"]]
            for entry in entries(read(manifest["manifest_path"]), manifest["manifest_path"], DATA_FIELDS):
                path = entry["data_file"]["file_path"]
                if file_name(path) not in names:
                    continue
                partition = partition_of(spec.spec_id, entry["data_file"]["partition"].values())
                if path in by_path:
                    by_path[path] = partition
                key = partition, file_name(path)
                by_name[key] = min(path, by_name.get(key, path))
        for each in misplaced:
            if each.state is DeleteState.MISFILED:
                yield replace(each, data_partition=by_path[each.named_path])
            else:
                yield replace(each, data_path=by_name.get((each.partition, file_name(each.named_path)), each.named_path))
