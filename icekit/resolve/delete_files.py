"""Write the position delete files of a conversion, through the table's own FileIO, and know the delete files there are."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import elements, java_list, write_bytes
from icekit.resolve.listing import File
from icekit.resolve.vectors import PATH_ID, POSITION_ID, Positions, position_file, vector_blob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 4
# Iceberg's specification: the blob of a deletion vector, and the field it is about.
_VECTOR, _ROW_POSITION_ID = "deletion-vector-v1", 2_147_483_645
#: Deletion vectors that one Puffin file holds at most.
VECTORS_PER_FILE = 1_000


@dataclass
class Present:
    """Delete files of a snapshot as Iceberg's API knows them: equality deletes by path, and position deletes by data file.

    ``shared`` are position delete files of more than one data file: the rows of each, by path.
    """

    equality: dict[str, Any] = field(default_factory=dict)
    of_data_file: dict[str, list[Any]] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)


def present(table: Any, snapshot: Any, jvm: Any, equality: Collection[str], *, positions: bool) -> Present:
    """Find delete files in a snapshot's manifests; ``positions`` also those of positions, which one data file alone has."""
    iceberg = jvm.org.apache.iceberg
    found = Present()
    wanted = set(equality)
    for manifest in elements(snapshot.deleteManifests(table.io())):
        if not positions and len(found.equality) == len(wanted):
            break
        for delete in entries(iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())):
            location = delete.location()
            if location in wanted:
                found.equality[location] = delete
            elif positions and delete.content().id() == 1:
                data_file = iceberg.util.ContentFileUtil.referencedDataFileLocation(delete)
                if data_file is None:
                    found.shared[location] = int(delete.recordCount())
                else:
                    found.of_data_file.setdefault(str(data_file), []).append(delete)
    return found


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partition as Iceberg's API wants it, and as its JSON has it."""

    value: Any
    json: Mapping[str, Any]


#: None for a file of an unpartitioned spec.
Placed = Partitioned | None


def placed(jvm: Any, table: Any, file: Any) -> Placed:
    """The partition of a data or delete file of Iceberg's API."""
    spec = table.specs()[file.specId()]
    if spec.isUnpartitioned():
        return None
    said = json.loads(jvm.org.apache.iceberg.ContentFileParser.toJson(file, spec))
    return Partitioned(file.partition(), said["partition"])


def partitions_of(table: Any, snapshot: Any, jvm: Any, paths: Collection[str]) -> dict[str, Placed]:
    """The partition of data files, by path."""
    wanted = set(paths)
    found: dict[str, Placed] = {}
    for manifest in elements(snapshot.dataManifests(table.io())):
        if len(found) == len(wanted):
            break
        for data in entries(jvm.org.apache.iceberg.ManifestFiles.read(manifest, table.io(), table.specs())):
            if (location := data.location()) in wanted:
                found[location] = placed(jvm, table, data)
    return found


def entries(reader: Any) -> Iterator[Any]:
    """The live files of a manifest reader, which is closed afterwards."""
    try:
        yield from elements(reader)
    finally:
        reader.close()


class Writer:
    """Writes what a conversion adds to a table, and can take it back as long as nothing names it."""

    def __init__(self, spark: SparkSession, table: Any, format_version: int) -> None:
        jvm: Any = spark._jvm
        self._spark, self._jvm = spark, jvm
        self._version = format_version
        self._io, self._provider, self._specs = table.io(), table.locationProvider(), table.specs()
        self._mapper = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        self.written: list[str] = []
        self.bytes_written = 0

    def write(self, found: Sequence[tuple[File, Positions, Placed]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for (data file, positions, partition)."""
        if not found:
            return []
        if self._version >= 3:
            return self._vectors(found)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda one: self._position_file(*one), found))

    def _position_file(self, file: File, positions: Positions, partition: Placed) -> Any:
        content = position_file(file.path, positions)
        location = self._location(file.spec_id, partition, "parquet")
        self._put(location, content)
        every = positions.all()
        bounds = [{PATH_ID: file.path.encode(), POSITION_ID: int(p).to_bytes(8, "little")} for p in (every[0], every[-1])]
        # The path in full: it tells readers that know no referenced data file that this is of one file.
        lower, upper = ({"keys": list(b), "values": [value.hex().upper() for value in b.values()]} for b in bounds)
        more = {"file-format": "PARQUET", "lower-bounds": lower, "upper-bounds": upper}
        return self._made(file, partition, location, len(content), len(every), more)

    def _vectors(self, found: Sequence[tuple[File, Positions, Placed]]) -> list[Any]:
        jvm, made = self._jvm, []
        puffin = jvm.org.apache.iceberg.puffin
        for start in range(0, len(found), VECTORS_PER_FILE):
            some = found[start : start + VECTORS_PER_FILE]
            location = self._location(some[0][0].spec_id, some[0][2], "puffin")
            self.written.append(location)
            writer = puffin.Puffin.write(self._io.newOutputFile(location)).createdBy("icekit").build()
            blobs = []
            try:
                fields = java_list(self._spark, [_ROW_POSITION_ID])
                for file, positions, partition in some:
                    content, count = vector_blob(positions), positions.count
                    properties = {"referenced-data-file": file.path, "cardinality": str(count)}
                    wrapped = jvm.java.nio.ByteBuffer.wrap(content)
                    blob = puffin.Blob(_VECTOR, fields, -1, -1, wrapped, puffin.PuffinCompressionCodec.NONE, properties)
                    blobs.append((file, count, partition, writer.write(blob)))
            finally:
                writer.close()
            size = writer.fileSize()
            self.bytes_written += size
            for file, count, partition, blob in blobs:
                more = {"file-format": "PUFFIN", "content-offset": blob.offset(), "content-size-in-bytes": blob.length()}
                made.append(self._made(file, partition, location, size, count, more))
        return made

    def _made(self, file: File, partition: Placed, location: str, size: int, count: int, more: Mapping[str, Any]) -> Any:
        """A delete file as Iceberg's API knows it; from JSON, which takes a few calls where a builder takes dozens."""
        said = {
            "spec-id": file.spec_id,
            "content": "POSITION_DELETES",
            "file-path": location,
            **({"partition": partition.json} if partition else {}),
            "file-size-in-bytes": size,
            "record-count": count,
            "referenced-data-file": file.path,
            **more,
        }
        iceberg = self._jvm.org.apache.iceberg
        return iceberg.ContentFileParser.fromJson(self._mapper.readTree(json.dumps(said)), self._specs[file.spec_id])

    def _location(self, spec_id: int, partition: Placed, suffix: str) -> str:
        name = f"icekit-{uuid.uuid4()}-deletes.{suffix}"
        if partition is None:
            return str(self._provider.newDataLocation(name))
        return str(self._provider.newDataLocation(self._specs[spec_id], partition.value, name))

    def _put(self, location: str, content: bytes) -> None:
        self.written.append(location)
        write_bytes(self._io, location, content)
        self.bytes_written += len(content)

    def take_back(self) -> None:
        """Remove what was written; only where it is certain that no commit names it."""
        for location in self.written:
            with contextlib.suppress(Exception):
                self._io.deleteFile(location)
        self.written = []


def commit(
    spark: SparkSession,
    table: Any,
    *,
    start: int,
    branch: str | None,
    added: Sequence[Any],
    removed: Sequence[Any],
    touched: Sequence[str],
    tags: Mapping[str, str],
) -> None:
    """Put position deletes in the place of equality deletes, in one commit that anything in its way makes fail.

    ``touched`` are the data files that ``added`` point at: they must be there still, and so
    must be what is removed. Deletes committed since ``start`` stay, and apply.
    """
    delta = table.newRowDelta().validateFromSnapshot(start).validateDeletedFiles()
    if touched:
        delta = delta.validateDataFilesExist(java_list(spark, touched))
    for file in added:
        delta.addDeletes(file)
    for file in removed:
        delta.removeDeletes(file)
    for key, value in tags.items():
        delta.set(key, value)
    if branch:
        delta = delta.toBranch(branch)
    delta.commit()
