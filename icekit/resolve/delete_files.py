"""Write the position delete files of a conversion, through the table's own FileIO, and know the delete files there are."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icekit.resolve.listing import File
from icekit.resolve.vectors import PATH_ID, POSITION_ID, Positions, position_file, vector_blob
from icekit.resolve.view import write_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 4
#: Deletion vectors that one Puffin file holds at most.
VECTORS_PER_FILE = 1_000


@dataclass
class Present:
    """Delete files of a snapshot as Iceberg's API knows them: equality deletes by path, and position deletes by data file."""

    equality: dict[str, Any] = field(default_factory=dict)
    of_data_file: dict[str, list[Any]] = field(default_factory=dict)
    shared_position_files: int = 0


def present(table: Any, snapshot: Any, jvm: Any, equality: Collection[str], *, positions: bool) -> Present:
    """Find delete files in a snapshot's manifests; ``positions`` also those of positions, which one data file alone has."""
    iceberg = jvm.org.apache.iceberg
    found = Present()
    wanted = set(equality)
    for manifest in snapshot.deleteManifests(table.io()):
        if not positions and len(found.equality) == len(wanted):
            break
        for delete in entries(iceberg.ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs())):
            location = delete.location()
            if location in wanted:
                found.equality[location] = delete
            elif positions and delete.content().id() == 1:
                data_file = iceberg.util.ContentFileUtil.referencedDataFileLocation(delete)
                if data_file is None:
                    found.shared_position_files += 1
                else:
                    found.of_data_file.setdefault(str(data_file), []).append(delete)
    return found


def partitions_of(table: Any, snapshot: Any, jvm: Any, paths: Collection[str]) -> dict[str, Any]:
    """The partition of data files as Iceberg's API wants it, by path."""
    wanted = set(paths)
    found: dict[str, Any] = {}
    for manifest in snapshot.dataManifests(table.io()):
        if len(found) == len(wanted):
            break
        for data in entries(jvm.org.apache.iceberg.ManifestFiles.read(manifest, table.io(), table.specs())):
            if (location := data.location()) in wanted:
                found[location] = data.partition()
    return found


def entries(reader: Any) -> Iterator[Any]:
    """The live files of a manifest reader, which is closed afterwards."""
    try:
        iterator = reader.iterator()
        while iterator.hasNext():
            yield iterator.next()
    finally:
        reader.close()


class Writer:
    """Writes what a conversion adds to a table, and can take it back as long as nothing names it."""

    def __init__(self, spark: SparkSession, table: Any, format_version: int) -> None:
        self._jvm: Any = spark._jvm
        self._table, self._version = table, format_version
        self._io = table.io()
        self.written: list[str] = []
        self.bytes_written = 0

    def write(self, found: Sequence[tuple[File, Positions, Any]]) -> list[Any]:
        """Position delete files, or deletion vectors from format version 3 on, for (data file, positions, partition)."""
        if not found:
            return []
        if self._version >= 3:
            return self._vectors(found)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda one: self._position_file(*one), found))

    def _position_file(self, file: File, positions: Positions, partition: Any) -> Any:
        content = position_file(file.path, positions)
        spec = self._table.specs()[file.spec_id]
        location = self._location(spec, partition, "parquet")
        self._put(location, content)
        jvm = self._jvm
        every = positions.all()
        count = len(every)

        def bounds(position: int) -> dict[int, Any]:
            # The path in full: it tells readers that know no referenced data file that this is of one file.
            wrap = jvm.java.nio.ByteBuffer.wrap
            return {PATH_ID: wrap(file.path.encode()), POSITION_ID: wrap(position.to_bytes(8, "little"))}

        none = jvm.java.util.HashMap()
        metrics = jvm.org.apache.iceberg.Metrics(count, none, none, none, none, bounds(int(every[0])), bounds(int(every[-1])))
        return self._builder(spec, partition, file, location, len(content), count).withFormat("parquet").withMetrics(metrics).build()

    def _vectors(self, found: Sequence[tuple[File, Positions, Any]]) -> list[Any]:
        jvm, made = self._jvm, []
        puffin = jvm.org.apache.iceberg.puffin
        for start in range(0, len(found), VECTORS_PER_FILE):
            some = found[start : start + VECTORS_PER_FILE]
            location = self._location(self._table.specs()[some[0][0].spec_id], some[0][2], "puffin")
            self.written.append(location)
            writer = puffin.Puffin.write(self._io.newOutputFile(location)).createdBy("icekit").build()
            blobs = []
            try:
                for file, positions, partition in some:
                    content, count = vector_blob(positions), positions.count
                    properties = {"referenced-data-file": file.path, "cardinality": str(count)}
                    fields = jvm.java.util.ArrayList()
                    fields.add(2_147_483_645)
                    blob = puffin.Blob(
                        "deletion-vector-v1",
                        fields,
                        -1,
                        -1,
                        jvm.java.nio.ByteBuffer.wrap(content),
                        puffin.PuffinCompressionCodec.NONE,
                        properties,
                    )
                    blobs.append((file, count, partition, writer.write(blob)))
            finally:
                writer.close()
            size = writer.fileSize()
            self.bytes_written += size
            for file, count, partition, blob in blobs:
                spec = self._table.specs()[file.spec_id]
                made.append(
                    self._builder(spec, partition, file, location, size, count)
                    .withFormat("puffin")
                    .withContentOffset(blob.offset())
                    .withContentSizeInBytes(blob.length())
                    .build()
                )
        return made

    def _builder(self, spec: Any, partition: Any, file: File, location: str, size: int, count: int) -> Any:
        builder = self._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(location)
        if partition is not None and not spec.isUnpartitioned():
            builder = builder.withPartition(partition)
        return builder.withFileSizeInBytes(size).withRecordCount(count).withReferencedDataFile(file.path)

    def _location(self, spec: Any, partition: Any, suffix: str) -> str:
        name = f"icekit-{uuid.uuid4()}-deletes.{suffix}"
        provider = self._table.locationProvider()
        if partition is None or spec.isUnpartitioned():
            return str(provider.newDataLocation(name))
        return str(provider.newDataLocation(spec, partition, name))

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
    jvm: Any = spark._jvm
    delta = table.newRowDelta().validateFromSnapshot(start).validateDeletedFiles()
    if touched:
        paths = jvm.java.util.ArrayList()
        for path in touched:
            paths.add(path)
        delta = delta.validateDataFilesExist(paths)
    for file in added:
        delta.addDeletes(file)
    for file in removed:
        delta.removeDeletes(file)
    for key, value in tags.items():
        delta.set(key, value)
    if branch:
        delta = delta.toBranch(branch)
    delta.commit()
