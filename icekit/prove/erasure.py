"""Prove that a person's rows are gone: from every snapshot, ref and file, deleted or not.

A ``DELETE`` hides rows or leaves them in older snapshots, and files outlive snapshots. So this
reads the files themselves. It names what it cannot read, and then nothing is proven.
Not checked: bounds of columns inside manifests, Puffin statistics, copies elsewhere.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge, iceberg_version
from icekit.engine.cluster import is_local
from icekit.engine.compat import where_then
from icekit.engine.errors import explain, first_sentence
from icekit.engine.metadata_tables import files_below, has_file_system, metadata_table, storage
from icekit.engine.planner import filter_expression
from icekit.engine.predicate import Predicate, read_predicate
from icekit.facts.collect import load_metadata
from icekit.facts.metadata import schema_of, specs
from icekit.facts.model import PartitionSpec
from icekit.facts.orphans import sharing
from icekit.prove import erasure_result
from icekit.prove.erasure_result import UNREFERENCED, Erasure, FileRows, RefRows, SnapshotRows
from icekit.prove.erasure_rows import Copies, FileReader, Looked, path_key, path_key_column, reading_by_id
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from icekit.catalog import Lake

__all__ = ["Erasure", "FileRows", "RefRows", "SnapshotRows", "prove_erased"]


# --- Find every file that a snapshot reaches, and which snapshots reach a file; only from metadata tables


DATA, POSITION_DELETES, EQUALITY_DELETES = "data", "position deletes", "equality deletes"
EXAMPLE_SNAPSHOTS = 3


@dataclass(frozen=True, slots=True)
class FilesReached:
    """The given files that one snapshot reaches: how many of each kind, and their rows."""

    data_file_count: int = 0
    equality_delete_file_count: int = 0
    position_delete_file_count: int = 0
    data_row_count: int = 0


@dataclass(frozen=True, slots=True)
class Reach:
    """By path: how many snapshots reach it, and a few of them. By snapshot: its files."""

    paths: Mapping[str, tuple[int, tuple[int, ...]]]
    snapshots: Mapping[int, FilesReached]


def reachable_files(spark: SparkSession, table: Identifier, specs: Sequence[PartitionSpec], columns: Mapping[str, int]) -> DataFrame:
    """Every file of every snapshot, once: ``key``, ``path``, ``kind``, ``format``, ``equality_ids``, ``added_by`` and partition values.

    Of ``columns`` (names and field ids), those that some spec partitions by identity are included
    under their own names with the prefix ``=``.
    """
    from pyspark.sql import functions as F

    files = metadata_table(spark, table, "all_files")
    values = []
    fields = _partition_fields(files)
    for column, field_id in columns.items():
        names = {f.name for spec in specs for f in spec.fields if f.source_id == field_id and f.transform == "identity"} & set(fields)
        if names:
            values.append(F.coalesce(*(F.col(f"partition.{identifier(name)}") for name in sorted(names))).alias(f"={column}"))
    kind = F.when(F.col("content") == 0, DATA).when(F.col("content") == 2, EQUALITY_DELETES).otherwise(POSITION_DELETES)
    picked = files.select(
        path_key_column(F.col("file_path")).alias("key"),
        F.col("file_path").alias("path"),
        kind.alias("kind"),
        F.upper("file_format").alias("format"),
        "equality_ids",
        *values,
    )
    # A rewritten manifest lists its files again.
    return picked.groupBy("key").agg(*(F.first(F.col(identifier(c)), ignorenulls=True).alias(c) for c in picked.columns if c != "key"))


def _partition_fields(files: DataFrame) -> list[str]:
    if "partition" not in files.columns:
        return []
    struct: Any = files.schema["partition"].dataType
    return list(struct.names)


def reach_of(spark: SparkSession, table: Identifier, files: Sequence[tuple[str, str, int]]) -> Reach:
    """Which snapshots reach the files, given as (path, kind, rows).

    Each manifest is read once, however many snapshots share it: ``input_file_name()`` of
    ``all_entries`` gives a row's manifest, and ``all_manifests`` the snapshots of
    each manifest.
    """
    from pyspark.sql import functions as F

    if not files:
        return Reach({}, {})
    asked = spark.createDataFrame(list(files), "path string, kind string, row_count bigint")
    entries = (
        metadata_table(spark, table, "all_entries")
        .where("status < 2")
        .selectExpr("input_file_name() AS manifest", "data_file.file_path AS path")
    )
    manifests = metadata_table(spark, table, "all_manifests").selectExpr("path AS manifest", "reference_snapshot_id AS snapshot").distinct()
    held = (
        entries.join(F.broadcast(asked), "path")
        .join(manifests, "manifest")
        .select("path", "kind", "row_count", "snapshot")
        .distinct()
        .persist()
    )
    try:
        by_path = held.groupBy("path").agg(F.count("*"), F.slice(F.sort_array(F.collect_list("snapshot")), 1, EXAMPLE_SNAPSHOTS))
        paths = {row[0]: (int(row[1]), tuple(row[2])) for row in by_path.collect()}
        data = F.col("kind") == DATA
        counts = [F.count_if(F.col("kind") == kind) for kind in (DATA, EQUALITY_DELETES, POSITION_DELETES)]
        by_snapshot = held.groupBy("snapshot").agg(*counts, F.sum(F.when(data, F.col("row_count")).otherwise(0)))
        snapshots = {row[0]: FilesReached(*map(int, row[1:])) for row in by_snapshot.collect()}
    finally:
        held.unpersist()
    return Reach(paths, snapshots)


def unreferenced_files(spark: SparkSession, table: Identifier, location: str, reachable: DataFrame) -> DataFrame:
    """Files under a location of a table (named with its catalog) that no snapshot reaches: ``key``, ``path``, ``modified_at_ms``."""
    from pyspark.sql import functions as F

    found = files_below(spark, table, location).select(path_key_column(F.col("path")).alias("key"), "path", "modified_at_ms")
    return found.join(reachable.select("key"), "key", "left_anti")


Json = Mapping[str, Any]


# Most paths that the driver holds, and Spark lists, at a time.
BATCH_FILES = 5000
# Most unreadable files that are named.
NAMED = 100


def prove_erased(
    lake: Lake,
    table: Identifier | str,
    predicate: str,
    *,
    unreferenced: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Erasure:
    """Name every snapshot, ref and file in which rows that match a predicate can still be read; writes nothing.

    ``predicate`` is SQL over the table's current columns. Reads its columns of every
    reachable data file and equality delete file, and with ``unreferenced`` also of the
    Parquet files under the table's location that no snapshot reaches; Spark does not list
    names there that begin with ``_`` or ``.``. ``progress`` is called with (batches of
    files read, of how many).

    Raises ParameterError for a predicate that Spark cannot analyse, and the errors of
    :mod:`icekit.errors` for a table that cannot be read.
    """
    name = lake.identifier(table) if isinstance(table, str) else table
    try:
        return _Proof(lake, name, predicate).run(unreferenced=unreferenced, progress=progress or (lambda _done, _of: None))
    except Exception as error:
        raise explain(error, lake.sql_name(name)) from error


class _Proof:
    """One proof in progress."""

    def __init__(self, lake: Lake, name: Identifier, predicate: str) -> None:
        self.lake, self.spark, self.name = lake, lake.spark, name
        self.meta = load_metadata(lake.tables.source(name))
        self.sql_name = lake.sql_name(name)
        self.spark.sql(f"REFRESH TABLE {identifier(*self.sql_name)}")
        self.schema: StructType = self.spark.table(identifier(*self.sql_name)).schema
        self.fields: Sequence[Json] = schema_of(self.meta)["fields"]
        self.predicate: Predicate = read_predicate(self.spark, self.spark.createDataFrame([], self.schema), predicate, what="predicate")
        self.properties: Json = self.meta.get("properties") or {}
        self.snapshots = {s["snapshot-id"]: s for s in self.meta.get("snapshots") or ()}
        self.files: list[FileRows] = []
        self.not_looked: list[str] = []
        self.looked_count = 0
        self.unread_count = 0

    def run(self, *, unreferenced: bool, progress: Callable[[int, int], None]) -> Erasure:
        given = (self.spark, self.schema, self.fields, self.predicate, self.properties.get("schema.name-mapping.default"))
        copies = self._copies()
        reader, of_deletes = FileReader(*given, copies=copies), FileReader(*given, of_deletes=True, copies=copies)
        ids = {f["name"]: f["id"] for f in self._columns()}
        for column in self._columns():
            if column.get("initial-default") is not None:
                self.not_looked.append(f"column {column['name']} has an initial default, which files older than the column do not contain")
        reachable = reachable_files(self.spark, self.sql_name, specs(self.meta), ids).persist()
        try:
            with reading_by_id(self.spark):
                self._look_into_reachable(reader, of_deletes, reachable, progress)
                if unreferenced:
                    self._look_into_unreferenced(reader, reachable)
                else:
                    self.not_looked.append("files that no snapshot reaches: not requested")
        finally:
            reachable.unpersist()
        return self._conclude()

    def _copies(self) -> Copies | None:
        """The copier for files that Spark cannot read where they are; None if it can, or if its tasks run elsewhere."""
        location = str(self.meta["location"])
        if not has_bridge(self.spark) or has_file_system(self.spark, location):
            return None
        if not is_local(self.spark):
            self.not_looked.append(
                f"{location}: Spark has no Hadoop file system for it; add the library for your storage to the session (for s3://, hadoop-aws and "
                "spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem)"
            )
            return None
        return Copies(storage(self.spark, self.sql_name))

    def _columns(self) -> list[Json]:
        wanted = self.predicate.columns
        return [f for f in self.fields if wanted is None or f["name"] in wanted]

    def _look_into_reachable(
        self, reader: FileReader, of_deletes: FileReader, reachable: DataFrame, progress: Callable[[int, int], None]
    ) -> None:
        from pyspark.sql import functions as F

        values = [c for c in reachable.columns if c.startswith("=")]
        wanted = {f["id"] for f in self._columns()}
        # A deletion vector contains only positions.
        candidates = reachable.where(F.col("format") != "PUFFIN")
        batches = math.ceil(candidates.count() / BATCH_FILES)
        for batch in range(batches):
            progress(batch, batches)
            part = candidates.where(F.pmod(F.xxhash64("key"), F.lit(batches)) == batch)
            rows = part.select("key", "path", "kind", "format", "equality_ids").collect()
            partitions = part.select("key", *(F.col(identifier(v)).alias(v[1:]) for v in values)) if values else None
            for row in rows:
                if row["format"] != "PARQUET":
                    self._unread(row["path"], f"it is {row['format'].title()}, and icekit reads only Parquet")
            deletes = [row for row in rows if row["format"] == "PARQUET" and row["kind"] == POSITION_DELETES]
            in_deletes = of_deletes.look([row["path"] for row in deletes])
            self._note(in_deletes, len(deletes))
            for row in deletes:
                if (held := in_deletes.counts.get(row["key"])) and held.matching:
                    self.files.append(FileRows(row["path"], row["kind"], held.matching, 0, ()))
            readable = [row for row in rows if row["format"] == "PARQUET" and row["kind"] != POSITION_DELETES]
            looked = reader.look([row["path"] for row in readable], partitions)
            self._note(looked, len(readable))
            for row in readable:
                found = looked.counts.get(row["key"])
                if found and found.matching:
                    self.files.append(FileRows(row["path"], row["kind"], found.matching, 0, ()))
                elif (
                    found
                    and row["kind"] == EQUALITY_DELETES
                    and (self.predicate.columns is None or not wanted <= set(row["equality_ids"] or ()))
                ):
                    self._unread(
                        row["path"], f"{count(found.unknown, 'key')} in it cannot be distinguished from matching rows by its columns"
                    )
        if batches:
            progress(batches, batches)

    def _look_into_unreferenced(self, reader: FileReader, reachable: DataFrame) -> None:
        from pyspark.sql import functions as F

        location = str(self.meta["location"])
        inside = path_key(location).rstrip("/") + "/"
        for key in ("write.data.path", "write.object-storage.path", "write.folder-storage.path"):
            if key in self.properties and not (path_key(self.properties[key]) + "/").startswith(inside):
                self.not_looked.append(f"{self.properties[key]} ({key}): unreferenced files outside the table's location are not listed")
        metadata = path_key(self.properties.get("write.metadata.path", inside + "metadata")).rstrip("/") + "/"
        try:
            listed = unreferenced_files(self.spark, self.sql_name, location, reachable).persist()
            try:
                # Files that a table keeps in addition to its rows; any other file may contain rows.
                orphans = listed.where(~F.col("key").startswith(metadata) | F.lower("key").endswith(".parquet"))
                batches = math.ceil(orphans.count() / BATCH_FILES)
                for batch in range(batches):
                    self._unreferenced_batch(reader, orphans.where(F.pmod(F.xxhash64("key"), F.lit(batches)) == batch).collect())
            finally:
                listed.unpersist()
        except Exception as error:
            self.not_looked.append(f"{location}: its files cannot be listed ({first_sentence(error)})")

    def _unreferenced_batch(self, reader: FileReader, rows: Sequence[Any]) -> None:
        parquet = [row for row in rows if row["key"].lower().endswith(".parquet")]
        for row in rows:
            if not row["key"].lower().endswith(".parquet"):
                self._unread(row["path"], "no snapshot reaches it, and it is not named *.parquet")
        looked = reader.look([row["path"] for row in parquet])
        self._note(looked, len(parquet))
        for row in parquet:
            found = looked.counts.get(row["key"])
            if found and found.matching:
                self.files.append(FileRows(row["path"], UNREFERENCED, found.matching, 0, (), row["modified_at_ms"]))

    def _note(self, looked: Looked, asked: int) -> None:
        self.looked_count += asked - len(looked.failed)
        for path, why in looked.failed.items():
            self._unread(path, why)

    def _unread(self, path: str, why: str) -> None:
        # A table of unreadable files must not fill the driver.
        if self.unread_count < NAMED:
            self.not_looked.append(f"{path}: {why}")
        self.unread_count += 1

    def _conclude(self) -> Erasure:
        reach = reach_of(self.spark, self.sql_name, [(f.path, f.kind, f.row_count) for f in self.files if f.kind != UNREFERENCED])
        files = tuple(
            FileRows(f.path, f.kind, f.row_count, *reach.paths.get(f.path, (0, ())), f.modified_at_ms)
            for f in sorted(self.files, key=lambda f: f.path)
        )
        self.not_looked += [
            f"{f.path}: icekit could not determine which snapshots reach it"
            for f in files
            if f.kind != UNREFERENCED and not f.snapshot_count
        ]
        asked = self._refs(reach)
        refs = tuple(r for r in asked if r.holds_rows)
        self._check_unchanged()
        more = self.unread_count - NAMED
        not_looked = (*self.not_looked, *([f"and {count(more, 'more file')}"] if more > 0 else ()))
        found = bool(files or any(r.row_count for r in asked))
        situation = self._situation(reach, asked, files)
        return Erasure(
            table=display_name(self.name),
            predicate=self.predicate.text,
            erased=False if found else None if not_looked else True,
            live_rows=asked,
            snapshots=tuple(self._snapshot(i, held) for i, held in sorted(reach.snapshots.items(), key=lambda s: self._time(s[0]))),
            refs=refs,
            files=files,
            not_looked_into=not_looked,
            actions=erasure_result.actions(situation),
            notes=erasure_result.notes(situation),
            looked_into_count=self.looked_count,
            orphans_removable_from_ms=erasure_result.removable_from_ms(situation.newest_orphan_ms)
            if situation.newest_orphan_ms is not None
            else None,
        )

    def _refs(self, reach: Reach) -> tuple[RefRows, ...]:
        """Main first. Rows of a ref are read if it may have matching rows; main is always read."""
        current = self.meta.get("current-snapshot-id")
        heads = {"main": ("BRANCH", current if current in self.snapshots else None)}
        heads.update({n: (r["type"].upper(), r["snapshot-id"]) for n, r in sorted((self.meta.get("refs") or {}).items())})
        answers: dict[int | None, int | None] = {None: 0}
        found = []
        for ref, (kind, head) in heads.items():
            holds = head in reach.snapshots
            if ref != "main" and not holds and not self.not_looked:
                continue
            if head is not None and head not in answers:
                try:
                    answers[head] = self._live(head)
                except Exception as error:
                    answers[head] = None
                    self.not_looked.append(f"rows of {kind.lower()} {ref}: {first_sentence(error)}")
            found.append(RefRows(ref, kind, head, answers[head], holds or bool(answers[head])))
        return tuple(found)

    def _live(self, snapshot_id: int) -> int:
        """Matching rows that a reader of a snapshot gets; columns are found by id under their current names."""
        from pyspark.sql import functions as F

        frame = self.spark.sql(f"SELECT * FROM {identifier(*self.sql_name)} VERSION AS OF {snapshot_id}")
        schema_id, where = self.snapshots[snapshot_id].get("schema-id"), self.predicate.text
        then = {f["id"]: f["name"] for f in schema_of(self.meta, schema_id)["fields"]}
        if schema_id != self.meta.get("current-schema-id"):
            where = where_then(where, iceberg_version(self.spark, self.lake.name))
        selected = [
            (F.col(identifier(then[now["id"]])) if now["id"] in then else F.lit(None).cast(field.dataType)).alias(field.name)
            for now, field in zip(self.fields, self.schema, strict=True)
        ]
        return frame.select(*selected).where(where).count()

    def _time(self, snapshot_id: int) -> int:
        return int(self.snapshots.get(snapshot_id, {}).get("timestamp-ms", 0))

    def _snapshot(self, snapshot_id: int, held: FilesReached) -> SnapshotRows:
        parts = [count(held.data_file_count, "data file")] * bool(held.data_file_count)
        parts += [count(held.equality_delete_file_count, "equality delete file")] * bool(held.equality_delete_file_count)
        parts += [count(held.position_delete_file_count, "position delete file")] * bool(held.position_delete_file_count)
        return SnapshotRows(snapshot_id, self._time(snapshot_id), f"reaches {' and '.join(parts)} with matching rows")

    def _check_unchanged(self) -> None:
        now = load_metadata(self.lake.tables.source(self.name))
        if {s["snapshot-id"] for s in now.get("snapshots") or ()} != set(self.snapshots) or now.get("refs") != self.meta.get("refs"):
            self.not_looked.append("the table was written to during the proof; run the proof again")

    def _situation(self, reach: Reach, asked: Sequence[RefRows], files: Sequence[FileRows]) -> erasure_result.Situation:
        main = next(r for r in asked if r.name == "main")
        held = reach.snapshots.get(main.snapshot_id, FilesReached()) if main.snapshot_id is not None else FilesReached()
        live = main.row_count or 0
        orphaned = [f.modified_at_ms for f in files if f.kind == UNREFERENCED and f.modified_at_ms is not None]
        rewrite = held.data_row_count > live or self.properties.get("write.delete.mode") == "merge-on-read"
        return erasure_result.Situation(
            table=self.sql_name,
            predicate=self.predicate.text,
            location=str(self.meta["location"]),
            rows_live=live,
            rows_held=held.data_row_count,
            equality_deletes_held=bool(held.equality_delete_file_count),
            position_deletes_held=bool(held.position_delete_file_count),
            merge_on_read=self.properties.get("write.delete.mode") == "merge-on-read",
            where=rewrite and self._usable_where(),
            head_committed_at_ms=self._time(main.snapshot_id) if main.snapshot_id is not None else 0,
            refs=[(r.name, r.type) for r in asked if r.holds_rows and r.name != "main"],
            snapshot_ids=sorted(reach.snapshots),
            newest_orphan_ms=max(orphaned, default=None),
            orphans_stay=sharing(self.lake, self.name, load_metadata).refusal if orphaned else None,
            gc_enabled=str(self.properties.get("gc.enabled", "true")).lower() != "false",
        )

    def _usable_where(self) -> bool:
        """Ask Iceberg whether the predicate, as its procedures parse it, can select files."""
        with contextlib.suppress(Exception):
            filter_expression(self.spark, self.sql_name, self.predicate.text)
            return True
        return False
