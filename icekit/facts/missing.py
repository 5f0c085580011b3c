"""Find the files that a table references and that are gone from storage, or have another size than
their entries say.
"""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from icekit.engine.bridge import encryption_of, has_bridge, load_table
from icekit.engine.compat import arrow_of, frame_of
from icekit.engine.errors import first_sentence
from icekit.engine.metadata_tables import metadata_table, with_lengths
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind, Partition
from icekit.facts.head import Head
from icekit.facts.manifests import Record, files_of, live_count, may_have_live
from icekit.facts.metadata import statistics_files
from icekit.facts.paths import LOCAL, normal
from icekit.facts.rollup import kind_of, sort_key
from icekit.facts.snapshot_statistics import statistics_ages
from icekit.facts.spark_entries import Partitions, grouped
from icekit.facts.storage import MissingCount, MissingFile, MissingFiles, Role
from icekit.sql import Identifier
from icekit.units import count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icekit.catalog import Lake
    from icekit.catalog.tables import TableSource

_EXAMPLES = 5
_MOST_PARTITIONS = 1000
#: A choice: the most data files and delete files that Spark looks up, with two requests to the
# storage for each.
MOST_CHECKED = 1_000_000
#: A choice: the files that one task looks up.
_FILES_PER_TASK = 500
_ROLES = tuple(Role)
_FILE_FIELDS = frozenset(
    {"file_path", "file_size_in_bytes", "record_count", "partition", "content", "file_format"}
)


class _Reference(NamedTuple):
    """A file that metadata names; without a size, only its existence can be checked."""

    role: Role
    path: str
    size: int | None
    snapshot_id: int | None
    records: int = 0
    partition: Partition | None = None


@dataclass(frozen=True)
class Searched(Head):
    """What is looked up: a table's metadata, its observed snapshot, and the manifests of that
    snapshot.
    """

    manifests: Sequence[Record]
    specs: Mapping[int, PartitionSpec]

    def of_metadata(self) -> Iterator[_Reference]:
        """Manifests, manifest lists and statistics files: all that metadata names without a
        manifest being read.
        """
        for manifest in self.manifests:
            yield _Reference(
                Role.MANIFEST,
                manifest["manifest_path"],
                manifest["manifest_length"],
                manifest.get("added_snapshot_id"),
            )
        for snapshot in self.metadata.get("snapshots") or ():
            if path := snapshot.get("manifest-list"):
                yield _Reference(Role.MANIFEST_LIST, path, None, snapshot["snapshot-id"])
        newest = {age.snapshot_id for age in statistics_ages(self.metadata, self.snapshot)}
        for file in statistics_files(self.metadata):
            if file["snapshot-id"] in newest:
                yield _Reference(
                    Role.STATISTICS,
                    file["statistics-path"],
                    file["file-size-in-bytes"],
                    file["snapshot-id"],
                )

    def files(self, source: TableSource) -> Iterator[_Reference]:
        """The data files and delete files."""
        for manifest in filter(may_have_live, self.manifests):
            raw = source.read(manifest["manifest_path"])
            for file, partition, snapshot_id in files_of(manifest, raw, _FILE_FIELDS):
                role = _role(file)
                # A vector is read by its place in the file, whatever the size of the file.
                size = None if role is Role.VECTOR else file["file_size_in_bytes"]
                yield _Reference(
                    role, file["file_path"], size, snapshot_id, file["record_count"], partition
                )

    def before(self, ids: Iterable[int | None]) -> int | None:
        """The newest snapshot of the lineage from before all these; None without one, or if one is
        not in the lineage.
        """
        line = [snapshot["snapshot-id"] for snapshot in self.lineage()]
        indexes = [line.index(each) if each in line else len(line) for each in ids]
        after = max(indexes, default=len(line)) + 1
        return line[after] if after < len(line) else None


def missing_files(
    lake: Lake, table: Identifier, source: TableSource, searched: Searched, *, with_spark: bool
) -> MissingFiles:
    """Look up every referenced file: on a disk of this machine, or by the table's own FileIO in
    Spark's tasks.

    Says in ``unchecked`` why it could not; raises :class:`~icekit.errors.MetadataUnreadable` for a
    manifest that cannot be read.
    """
    on_disk = None if with_spark else _on_disk(source, searched)
    if on_disk is not None:
        return on_disk
    if (files := sum(map(live_count, searched.manifests))) > MOST_CHECKED:
        return MissingFiles(
            unchecked=f"there are {count(files, 'file')}, and icekit looks up at most "
            f"{MOST_CHECKED:,}"
        )
    if not has_bridge(lake.spark):
        return MissingFiles(unchecked="Spark Connect gives no access to the table's storage")
    try:
        return _in_spark(lake.spark, lake.sql_name(table), searched, files)
    except Exception as error:
        return MissingFiles(unchecked=first_sentence(error))


def _role(file: Mapping[str, Any]) -> Role:
    kind = kind_of(file.get("content") or 0, file["file_format"])
    return {Kind.DATA: Role.DATA, Kind.DELETION_VECTORS: Role.VECTOR}.get(kind, Role.DELETES)


@dataclass
class _Tally:
    """Counts what is missing; holds a few examples."""

    counts: dict[Role, list[int]] = field(default_factory=dict)
    examples: list[MissingFile] = field(default_factory=list)
    partitions: Counter[Partition] = field(default_factory=Counter)
    added_by: set[int | None] = field(default_factory=set)

    def add(self, reference: _Reference, actual: int | None) -> None:
        role, path, size, snapshot_id, records, partition = reference
        row = self.counts.setdefault(role, [0, 0, 0])
        row[0 if actual is None else 1] += 1
        row[2] += records
        file = MissingFile(role, path, partition, records, snapshot_id, size, actual)
        self.examples = heapq.nsmallest(_EXAMPLES, (*self.examples, file), key=_order)
        if role is Role.DATA and partition is not None and actual is None:
            self.partitions[partition] += 1
        if role not in (Role.MANIFEST_LIST, Role.STATISTICS):
            self.added_by.add(snapshot_id)

    def result(self, searched: Searched) -> MissingFiles:
        """All that is missing, the partitions with the most files first."""
        return MissingFiles(
            tuple(MissingCount(role, *self.counts[role]) for role in _ROLES if role in self.counts),
            tuple(self.examples),
            _fullest(self.partitions.items()),
            searched.before(self.added_by),
        )


def _order(file: MissingFile) -> tuple[int, str, int]:
    return _ROLES.index(file.role), file.path, file.record_count


def _on_disk(source: TableSource, searched: Searched) -> MissingFiles | None:
    """What is missing on a disk of this machine; None if a file is elsewhere, or cannot be looked
    up.
    """
    tally = _Tally()
    # A path without a scheme may be another machine's: what was read to get here must be on this
    # disk.
    if not all(
        Path(normal(path).path).is_file()
        for path in (source.metadata_location, str((searched.snapshot or {}).get("manifest-list")))
    ):
        return None
    for references in (searched.of_metadata(), searched.files(source)):
        for reference in references:
            family, _, path = normal(reference.path)
            if family not in LOCAL:
                return None
            try:
                # A Path object for each file would take longer than the look-up.
                actual: int | None = os.stat(path).st_size  # noqa: PTH116
            except (FileNotFoundError, NotADirectoryError):
                actual = None
            except OSError:
                return None  # Spark reports it
            if actual is None or reference.size not in (None, actual):
                tally.add(reference, actual)
    return tally.result(searched)


_ADDED = f"role < {_ROLES.index(Role.MANIFEST_LIST)}"


def _in_spark(
    spark: SparkSession, table: Identifier, searched: Searched, files: int
) -> MissingFiles:
    partitions = Partitions(searched.specs)
    listed = metadata_table(spark, table, "entries", searched.snapshot_id).where("status < 2")
    is_vector = "upper(data_file.file_format) = 'PUFFIN'"
    of_files = listed.selectExpr(
        "data_file.file_path AS path",
        f"if({is_vector}, NULL, data_file.file_size_in_bytes) AS size",
        f"CASE WHEN data_file.content = 0 THEN {_ROLES.index(Role.DATA)} WHEN {is_vector} THEN "
        f"{_ROLES.index(Role.VECTOR)} ELSE {_ROLES.index(Role.DELETES)} END AS role",
        "data_file.record_count AS records",
        "snapshot_id",
        *partitions.of_entries(listed),
    )
    named = of_files.unionByName(_frame(spark, searched.of_metadata()), allowMissingColumns=True)
    checked = with_lengths(spark, table, named.repartition(max(1, -(-files // _FILES_PER_TASK))))
    # An encrypted file is longer than what its entry says.
    compared = "" if encryption_of(load_table(spark, table)) else " OR length <> size"
    missing = checked.where(f"length < 0{compared}").persist()
    try:
        return _summarized(missing, partitions, searched)
    finally:
        missing.unpersist()


def _summarized(missing: DataFrame, partitions: Partitions, searched: Searched) -> MissingFiles:
    """The same result as a tally's, of which the driver receives counts and examples alone."""
    sums = "if(length < 0, 1L, 0L)", "if(length < 0, 0L, 1L)", "records"
    counted = grouped(missing, ["role"], *map("sum({})".format, sums)).collect()
    counts = [MissingCount(_ROLES[role], *row) for role, *row in sorted(map(tuple, counted))]
    if not counts:
        return MissingFiles()
    added_by = missing.where(_ADDED).select("snapshot_id").distinct().limit(_MOST_PARTITIONS)
    of_data = missing.where(f"role = {_ROLES.index(Role.DATA)} AND length < 0")
    by_partition = grouped(of_data, partitions.scope, "count(*) AS count")
    fullest = by_partition.orderBy("count", ascending=False).limit(_MOST_PARTITIONS)
    return MissingFiles(
        tuple(counts),
        tuple(_examples(missing.orderBy("role", "path", "records").limit(_EXAMPLES), partitions)),
        _fullest(partitions.rows(fullest, "count")),
        searched.before(row[0] for row in added_by.collect()),
    )


def _fullest(counts: Iterable[tuple[Partition, int]]) -> tuple[tuple[Partition, int], ...]:
    """The partitions with the most files."""
    ordered = sorted(counts, key=lambda each: (-each[1], sort_key(each[0])))
    return tuple(ordered[:_MOST_PARTITIONS])


def _examples(missing: DataFrame, partitions: Partitions) -> Iterator[MissingFile]:
    table: pa.Table = arrow_of(missing)
    has_partition = table.column("spec_id").is_valid()
    filed = iter(partitions.read(table.filter(has_partition)))
    for row in table.to_pylist():
        yield MissingFile(
            _ROLES[row["role"]],
            row["path"],
            None if row["spec_id"] is None else next(filed),
            row["records"],
            row["snapshot_id"],
            row["size"],
            None if row["length"] < 0 else row["length"],
        )


def _frame(spark: SparkSession, references: Iterable[_Reference]) -> DataFrame:
    import pyarrow as pa

    schema = pa.schema(
        {
            "path": pa.string(),
            "size": pa.int64(),
            "role": pa.int32(),
            "records": pa.int64(),
            "snapshot_id": pa.int64(),
        }
    )
    rows = [{**each._asdict(), "role": _ROLES.index(each.role)} for each in references]
    return frame_of(spark, pa.Table.from_pylist(rows, schema))
