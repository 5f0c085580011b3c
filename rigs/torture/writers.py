"""Commits of others to a table: Spark's SQL, pyiceberg, and files written by hand.

Everything is drawn from one source of chance, and from what the table is: a step that does not fit
the table does nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import IllegalArgumentException, UnsupportedOperationException

from icekit.common.sql import Identifier, identifier, literal
from icekit.engine.bridge import elements
from icekit.engine.lake import Lake
from rigs.torture.handmade import vector_blob, with_id
from rigs.torture.reader.metadata import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    File,
    Metadata,
    files_of,
    local,
    read_metadata,
)
from rigs.torture.reader.schema import (
    FILE_PATH,
    POS,
    Field,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
    path_to,
    selected,
)
from rigs.torture.reader.table import TableRow, live_rows
from rigs.torture.values import NAMES, NO_KEYS, SQL_TYPES, arrow_table, random_value
from tests.deletes.writing import Files, Part
from tests.offline import catalog_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = 1
#: Formats that a table's files may have; not every reader reads others than Parquet.
FORMATS = (("parquet",), ("parquet",), ("parquet", "avro", "orc"))
#: Types that Spark cannot write, and so no SQL.
NOT_IN_SPARK = frozenset({"time", "timestamp_ns", "timestamptz_ns"})


class _InPartitionsOfFiles(Files):
    """Writes files into the partitions that data files have."""

    def _partition(self, spec: Any, part: Part) -> Any:
        """The partition of a data file of this spec, as Iceberg has it."""
        assert len(list(elements(spec.fields()))) == part["tuple"].size()
        return part["tuple"]

    def refresh(self) -> None:
        # Spark cannot load a table with a type that it lacks; then it remembers nothing of it.
        with contextlib.suppress(UnsupportedOperationException):
            super().refresh()


class Writers:
    """All that others do to one table. ``steps`` are their names."""

    def __init__(
        self,
        lake: Lake,
        spark: SparkSession,
        table: Identifier,
        chance: random.Random,
        folder: Path,
    ) -> None:
        self.lake = lake
        self.spark = spark
        self.table = table
        self.chance = chance
        self.folder = folder
        self.formats: Sequence[str] = ()
        self._numbers = itertools.count()
        self._ids = itertools.count(1)
        self._full = lake.sql_name(table)
        self._files = _InPartitionsOfFiles(spark, self._full)
        jvm: Any = spark._jvm
        self._iceberg = jvm.org.apache.iceberg
        #: How often each step is drawn.
        self.steps: Mapping[Callable[[], str | None], int] = {
            self.insert: 4,
            self.write_by_hand: 3,
            self.delete: 3,
            self.update: 1,
            self.delete_by_key: 6,
            self.upsert: 3,
            self.delete_by_position: 3,
            self.write_lone_vector: 1,
            self.change_schema: 5,
            self.change_spec: 2,
            self.upgrade: 1,
            self.rewrite: 2,
            self.append_by_pyiceberg: 1,
            self.delete_by_pyiceberg: 1,
            self.roll_back: 1,
        }

    # The table as it is

    def location(self) -> str:
        """The metadata file of today."""
        return self.lake.tables.source(self.table).metadata_location

    def metadata(self) -> Metadata:
        return read_metadata(self.location())

    def rows(self) -> list[TableRow]:
        return live_rows(self.metadata())

    def files(self) -> list[File]:
        metadata = self.metadata()
        snapshot_id = metadata.current_snapshot_id
        return [] if snapshot_id is None else files_of(metadata, snapshot_id)

    def sql(self, statement: str) -> None:
        """Run a statement; ``{t}`` is the table."""
        self.spark.sql(statement.replace("{t}", identifier(*self._full))).collect()

    def random_step(self) -> str:
        """Do something; says what."""
        steps = list(self.steps)
        while True:
            (step,) = self.chance.choices(steps, list(self.steps.values()))
            summary = step()
            if summary is not None:
                return f"{step.__name__}: {summary}"

    # The beginning

    def create(self) -> str:
        """Create the table; its first column is its id."""
        chance = self.chance
        self.formats = chance.choice(FORMATS)
        version = chance.choice((1, 2, 2, 2, 3, 3))
        names = chance.sample(NAMES, 4)
        columns = {
            "id": "bigint",
            "k": chance.choice(("int", "string", "date", "decimal(9,2)")),
            **{name: chance.choice(SQL_TYPES) for name in names},
        }
        mode = chance.choice(("merge-on-read", "merge-on-read", "copy-on-write"))
        properties = {
            "format-version": str(version),
            "write.delete.granularity": chance.choice(("file", "partition")),
            "commit.manifest.min-count-to-merge": chance.choice(("2", "100")),
            "write.spark.fanout.enabled": "true",
            "write.distribution-mode": "none",
        }
        if version > 1:
            for kind in ("delete", "update", "merge"):
                properties[f"write.{kind}.mode"] = mode
        by = chance.choice(("", "", "k", "bucket(2, id)", "truncate(2, id)", "k, bucket(2, id)"))
        types = self._iceberg.types.Types
        more = {
            "u": types.UUIDType.get(),
            "f": types.FixedType.ofLength(3),
        }
        more = {name: kind for name, kind in more.items() if chance.random() < 0.3}
        if chance.random() < 0.06:
            # Spark has no such type, so everything is written by hand.
            more["t"] = types.TimeType.get()
            by = ""
        declared = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        partitioned = f"PARTITIONED BY ({by})" if by else ""
        self.sql(
            f"CREATE TABLE {{t}} ({declared}) USING iceberg {partitioned} TBLPROPERTIES ({pairs})"
        )
        for name, kind in more.items():
            self._files.table().updateSchema().addColumn(name, kind).commit()
        self._files.refresh()
        return f"version {version}, {declared}, by {by or 'nothing'}, {mode}"

    # Data

    def random_rows(self, count: int, schema: Struct) -> list[dict[int, Any]]:
        """New rows by field id, with ids of their own."""
        rows = []
        for _ in range(count):
            row = {field.id: random_value(field.type, self.chance) for field in schema.fields}
            if ID in row:
                row[ID] = next(self._ids)
            rows.append(row)
        return rows

    def query_of(self, rows: Sequence[Mapping[int, Any]], schema: Struct) -> str:
        """A query that gives these rows."""
        path = self.folder / f"{next(self._numbers)}.parquet"
        pq.write_table(arrow_table(rows, schema, with_ids=False, top_names=False), path)
        return f"SELECT /*+ COALESCE(1) */ * FROM parquet.`{path}`"

    def _is_for_spark(self) -> bool:
        fields = self.metadata().current_schema.fields
        return not any(
            isinstance(field.type, Primitive) and field.type.name in NOT_IN_SPARK
            for field in fields
        )

    def insert(self) -> str | None:
        """Append rows in the format of the moment."""
        if not self._is_for_spark():
            return None
        file_format = self.chance.choice(self.formats)
        count = self.chance.randrange(1, 12)
        schema = self.metadata().current_schema
        self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default' = '{file_format}')")
        self.sql(f"INSERT INTO {{t}} {self.query_of(self.random_rows(count, schema), schema)}")
        return f"{count} rows, {file_format}"

    def write_by_hand(self) -> str | None:
        """A data file of an unpartitioned spec, which may lack columns, have an older schema, or no
        ids.
        """
        metadata = self.metadata()
        specs = [spec_id for spec_id, fields in metadata.specs.items() if not fields]
        if not specs:
            return None
        schema = metadata.current_schema
        if self.chance.random() < 0.3:
            schema = metadata.schemas[self.chance.choice(list(metadata.schemas))]
        if self.chance.random() < 0.4:
            # The id stays, so that rows can be told apart.
            fields = [each for each in schema.fields if each.id == ID or self.chance.random() < 0.7]
            schema = Struct(tuple(fields))
        has_ids = self.chance.random() < 0.8
        if not has_ids and "schema.name-mapping.default" not in metadata.properties:
            self._map_names()
        if not has_ids:
            schema = metadata.current_schema
        rows = self.random_rows(self.chance.randrange(1, 8), schema)
        table = arrow_table(rows, schema, with_ids=has_ids)
        path = self._path("parquet")
        pq.write_table(table, local(path))
        self._append(path, self.chance.choice(specs))
        return f"{len(rows)} rows of {table.column_names}{'' if has_ids else ', without ids'}"

    def _map_names(self) -> None:
        java = self._files.table()
        mapping = self._iceberg.mapping
        text = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(java.schema()))
        java.updateProperties().set("schema.name-mapping.default", text).commit()
        self._files.refresh()

    def _path(self, suffix: str) -> str:
        """A path of a new file of the table, as the table spells them."""
        java = self._files.table()
        name = f"torture-{next(self._numbers):04}.{suffix}"
        path = str(java.locationProvider().newDataLocation(name))
        local(path).parent.mkdir(parents=True, exist_ok=True)
        return path

    def _append(self, path: str, spec_id: int) -> None:
        java = self._files.table()
        file = java.io().newInputFile(path)
        config = self._iceberg.MetricsConfig.forTable(java)
        metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(file, config)
        builder = self._iceberg.DataFiles.builder(java.specs()[spec_id]).withInputFile(file)
        builder = builder.withFormat("parquet").withMetrics(metrics)
        java.newAppend().appendFile(builder.build()).commit()
        self._files.refresh()

    # Deletes by SQL

    def _ids_of_rows(self) -> list[int]:
        rows = self.rows()
        numbers = sorted({dict(each.row)[ID] for each in rows if dict(each.row).get(ID)})
        return self.chance.sample(numbers, min(len(numbers), self.chance.randrange(1, 5)))

    def _id_name(self) -> str | None:
        field = self.metadata().current_schema.field(ID)
        return None if field is None else identifier(field.name)

    def delete(self) -> str | None:
        """Delete rows as the table's mode says: files are rewritten, or positions written."""
        name = self._id_name()
        numbers = self._ids_of_rows()
        if name is None or not numbers or not self._is_for_spark():
            return None
        if self.metadata().version > 1:
            mode = self.chance.choice(("merge-on-read", "merge-on-read", "copy-on-write"))
            self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
        self.sql(f"DELETE FROM {{t}} WHERE {name} IN ({', '.join(map(str, numbers))})")
        return f"ids {numbers}"

    def update(self) -> str | None:
        """Set a column to null in some rows."""
        name = self._id_name()
        numbers = self._ids_of_rows()
        if name is None or not numbers or not self._is_for_spark():
            return None
        fields = [field for field in self.metadata().current_schema.fields if field.id != ID]
        column = identifier(self.chance.choice(fields).name)
        self.sql(
            f"UPDATE {{t}} SET {column} = NULL WHERE {name} IN ({', '.join(map(str, numbers))})"
        )
        return f"{column} of ids {numbers}"

    # Deletes by files

    def _partitions(self) -> list[tuple[File, Any]]:
        """Each partition with data as a data file of it, and Iceberg's own tuple of its values."""
        java = self._files.table()
        tuples = {
            str(task.file().location()): task.file().partition()
            for task in elements(java.newScan().planFiles())
        }
        partitions = {}
        for file in self.files():
            if file.content == DATA and file.path in tuples:
                partitions[file.spec_id, file.partition] = (file, tuples[file.path])
        return list(partitions.values())

    def _key_fields(self, schema: Struct) -> list[int]:
        """Fields that may be keys: primitive, not floating-point, in structs alone."""
        return [
            field.id
            for field in _leaves(schema)
            if isinstance(field.type, Primitive) and field.type.name not in NO_KEYS | NOT_IN_SPARK
        ]

    def delete_by_key(self) -> str | None:
        """Equality deletes of one or two columns at any depth, in some partitions or for all."""
        metadata = self.metadata()
        schema = metadata.current_schema
        keys = self._key_fields(schema)
        if metadata.version == 1 or not keys or metadata.current_snapshot_id is None:
            return None
        nested = [each for each in keys if schema.field(each) is None]
        pool = nested if nested and self.chance.random() < 0.5 else keys
        by = self.chance.sample(pool, min(len(pool), self.chance.choice((1, 1, 1, 2))))
        extra = self.chance.sample(keys, 1) if self.chance.random() < 0.2 else []
        extra = [each for each in extra if each not in by]
        key_fields = selected(schema, [*by, *extra])
        rows = self._key_rows(key_fields)
        partitions = self._partitions()
        count = min(len(partitions), self.chance.randrange(1, 3))
        commit = self._files.commit()
        file_format = self.chance.choice(self.formats)
        query = self.query_of(rows, key_fields)
        for file, values in self.chance.sample(partitions, count):
            commit.deletes(
                by,
                query,
                {"tuple": values},
                spec=file.spec_id,
                format=file_format,
                extra=extra,
            )
        whole = [spec_id for spec_id, fields in metadata.specs.items() if not fields]
        if whole and self.chance.random() < 0.5:
            commit.deletes(by, query, spec=whole[0], format=file_format, extra=extra)
        commit.done()
        return f"fields {[_name(schema, each) for each in by]}, {len(rows)} keys, {file_format}"

    def _key_rows(self, fields: Struct) -> list[dict[int, Any]]:
        """Keys of some rows, and some of none."""
        rows = self.rows()
        count = self.chance.randrange(1, 5)
        picked = self.chance.sample(rows, min(len(rows), count))
        keys = [_part_of(dict(each.row), fields) for each in picked]
        others = self.chance.randrange(3)
        keys += [random_value(fields, self.chance, null=0) for _ in range(others)]
        return keys or [random_value(fields, self.chance, null=0)]

    def upsert(self) -> str | None:
        """Rows of one partition again, with an equality delete of their ids in the same commit."""
        metadata = self.metadata()
        schema = metadata.current_schema
        if metadata.version == 1 or schema.field(ID) is None or not self._is_for_spark():
            return None
        sources = {field.source_id for fields in metadata.specs.values() for field in fields}
        here = [
            row for row in self.rows() if row.file.spec_id == metadata.document["default-spec-id"]
        ]
        if not here:
            return None
        partition = self.chance.choice(here).file
        tuples = {file.path: values for file, values in self._partitions()}
        peers = [row for row in here if row.file.partition == partition.partition]
        values = next((tuples[row.file.path] for row in peers if row.file.path in tuples), None)
        if values is None:
            return None
        picked = self.chance.sample(peers, min(len(peers), self.chance.randrange(1, 4)))
        rows = []
        for each in picked:
            row = _plain_row(dict(each.row), schema)
            fresh = random_value(schema, self.chance, null=0)
            for field in schema.fields:
                inside = {inner.id for inner in _leaves(Struct((field,)))}
                if field.id != ID and sources.isdisjoint(inside):
                    row[field.id] = fresh[field.id]
            rows.append(row)
        keys = selected(schema, [ID])
        file_format = self.chance.choice(self.formats)
        commit = self._files.commit()
        part = {"tuple": values}
        commit.deletes([ID], self.query_of(rows, keys), part, format=file_format)
        commit.data(self.query_of(rows, schema), part, format=self.chance.choice(self.formats))
        commit.done()
        return f"{len(rows)} rows, {file_format}"

    def delete_by_position(self) -> str | None:
        """A position delete file of version 2 for one or more data files of a partition."""
        metadata = self.metadata()
        if metadata.version != 2:
            return None
        partitions = self._partitions()
        if not partitions:
            return None
        file, values = self.chance.choice(partitions)
        rows = [
            row
            for row in self.rows()
            if (row.file.spec_id, row.file.partition) == (file.spec_id, file.partition)
        ]
        if not rows:
            return None
        picked = self.chance.sample(rows, min(len(rows), self.chance.randrange(1, 5)))
        positions = sorted({(row.file.path, row.position) for row in picked})
        if self.chance.random() < 0.5:
            # Positions past the end, and of files that are gone, delete nothing.
            positions.append((positions[-1][0], 10_000))
        path = self._path("parquet")
        _write_positions(local(path), positions)
        java = self._files.table()
        stream = java.io().newInputFile(path)
        builder = self._iceberg.FileMetadata.deleteFileBuilder(java.specs()[file.spec_id])
        builder = builder.ofPositionDeletes().withInputFile(stream).withFormat("parquet")
        builder = builder.withRecordCount(len(positions))
        if metadata.specs[file.spec_id]:
            builder = builder.withPartition(values)
        if self.chance.random() < 0.6:
            config = self._iceberg.MetricsConfig.forPositionDelete()
            metrics = self._iceberg.parquet.ParquetUtil.fileMetrics(stream, config)
            builder = builder.withMetrics(metrics)
        paths = {each for each, _ in positions}
        if len(paths) == 1 and self.chance.random() < 0.5:
            builder = builder.withReferencedDataFile(positions[0][0])
        java.newRowDelta().addDeletes(builder.build()).commit()
        self._files.refresh()
        return f"{len(positions)} in {len(paths)} files"

    def write_lone_vector(self) -> str | None:
        """A deletion vector that lacks the older position deletes of its data file."""
        metadata = self.metadata()
        files = self.files()
        if metadata.version < 3:
            return None
        with_vector = {file.referenced_data_file for file in files if file.is_vector}
        rows = [row for row in self.rows() if row.file.path not in with_vector]
        partitions = {(file.spec_id, file.partition): values for file, values in self._partitions()}
        if not rows:
            return None
        row = self.chance.choice(rows)
        blob = vector_blob([row.position])
        path = self._path("puffin")
        local(path).write_bytes(_puffin(blob, row.file.path))
        java = self._files.table()
        builder = self._iceberg.FileMetadata.deleteFileBuilder(java.specs()[row.file.spec_id])
        builder = builder.ofPositionDeletes().withFormat("puffin").withPath(path)
        builder = builder.withFileSizeInBytes(local(path).stat().st_size).withRecordCount(1)
        builder = builder.withContentOffset(4).withContentSizeInBytes(len(blob))
        builder = builder.withReferencedDataFile(row.file.path)
        if metadata.specs[row.file.spec_id]:
            builder = builder.withPartition(partitions[row.file.spec_id, row.file.partition])
        java.newRowDelta().addDeletes(builder.build()).commit()
        self._files.refresh()
        has_positions = any(
            file.content == POSITION_DELETES and not file.is_vector for file in files
        )
        return f"position {row.position}, {'beside' if has_positions else 'no'} position deletes"

    # Evolution

    def change_schema(self) -> str | None:
        """Add, drop, rename, widen or move a column at any depth."""
        metadata = self.metadata()
        schema = metadata.current_schema
        sources = {field.source_id for fields in metadata.specs.values() for field in fields}
        fields = [field for field in _with_structs(schema) if field.id != ID]
        free = [field for field in fields if _inner_ids(field).isdisjoint(sources)]
        how = self.chance.choice(("add", "drop", "drop", "rename", "widen", "move"))
        update = self._files.table().updateSchema()
        number = next(self._numbers)
        if how == "add":
            parents = [_name(schema, each.id) for each in fields if isinstance(each.type, Struct)]
            parent = self.chance.choice([None, *parents])
            summary = self._add_column(update, parent, f"added {number}", metadata.version)
        elif how == "drop" and len(schema.fields) > 3 and free:
            field = self.chance.choice(free)
            if _is_alone(schema, field):
                return None
            summary = _name(schema, field.id)
            update.deleteColumn(summary)
        elif how == "rename" and fields:
            summary = _name(schema, self.chance.choice(fields).id)
            update.renameColumn(summary, f"renamed {number}")
        elif how == "widen":
            widened = [(each, kind) for each in free if (kind := _wider(each.type)) is not None]
            if not widened:
                return None
            field, kind = self.chance.choice(widened)
            summary = _name(schema, field.id)
            update.updateColumn(summary, self._iceberg.types.Types.fromPrimitiveString(kind))
        elif how == "move":
            summary = _name(schema, self.chance.choice(schema.fields).id)
            update.moveFirst(summary)
        else:
            return None
        update.commit()
        self._files.refresh()
        return f"{how} {summary}"

    def _add_column(self, update: Any, parent: str | None, name: str, version: int) -> str:
        kind = self.chance.choice(("int", "string", "date", "decimal(9, 2)"))
        java_type = self._iceberg.types.Types.fromPrimitiveString(kind)
        default = {"int": 7, "string": "default", "date": None, "decimal(9, 2)": None}[kind]
        if version > 2 and default is not None and self.chance.random() < 0.6:
            literal_value = self._iceberg.expressions.Literal.of(default)
            if parent is None:
                update.addColumn(name, java_type, "", literal_value)
            else:
                update.addColumn(parent, name, java_type, "", literal_value)
            return f"{name} {kind} in {parent}, default {default}"
        if parent is None:
            update.addColumn(name, java_type)
        else:
            update.addColumn(parent, name, java_type)
        return f"{name} {kind} in {parent}"

    def change_spec(self) -> str | None:
        """Add or remove a partition field."""
        java = self._files.table()
        fields = list(elements(java.spec().fields()))
        current = [field for field in fields if str(field.transform().toString()) != "void"]
        update = java.updateSpec()
        schema = self.metadata().current_schema
        if current and self.chance.random() < 0.6:
            name = str(self.chance.choice(current).name())
            update.removeField(name)
            summary = f"remove {name}"
        else:
            expressions = self._iceberg.expressions.Expressions
            keys = [
                field
                for each in self._key_fields(schema)
                # Of fixed values, Iceberg writes manifests that are no valid Avro (issue 17501).
                if (field := schema.field(each)) and getattr(field.type, "name", "") != "fixed"
            ]
            if not keys:
                return None
            field = self.chance.choice(keys)
            name = field.name
            term = self.chance.choice((expressions.ref(name), expressions.bucket(name, 2)))
            if field.type == Primitive("boolean"):
                # Iceberg does not put booleans into buckets.
                term = expressions.ref(name)
            try:
                update.addField(f"p{next(self._numbers)}", term)
            except IllegalArgumentException as error:
                # The table has the field already, also under another name.
                if "duplicate" not in str(error) and "redundant" not in str(error):
                    raise
                return None
            summary = f"add {term.toString()}"
        update.commit()
        self._files.refresh()
        return summary

    def upgrade(self) -> str | None:
        """To the next format version."""
        version = self.metadata().version
        if version == 3 or not self._is_for_spark():
            return None
        self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{version + 1}')")
        return f"to version {version + 1}"

    # Maintenance by others

    def rewrite(self) -> str | None:
        """Iceberg's own maintenance."""
        procedure, options = self.chance.choice(
            (
                ("rewrite_manifests", ""),
                ("rewrite_position_delete_files", ", options => map('rewrite-all', 'true')"),
                (
                    "rewrite_data_files",
                    ", options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'true')",
                ),
            )
        )
        if not self._is_for_spark():
            return None
        if procedure != "rewrite_manifests" and self._has_odd_keys():
            # Iceberg's own rewrite changes rows under such keys.
            return None
        full = ".".join(self.table)
        catalog = identifier(self.lake.name)
        self.sql(f"CALL {catalog}.system.{procedure}(table => {literal(full)}{options})")
        return procedure

    def _has_odd_keys(self) -> bool:
        return any(
            self.metadata().current_schema.field(each) is None
            for file in self.files()
            if file.content == EQUALITY_DELETES
            for each in file.equality_ids
        )

    def roll_back(self) -> str | None:
        """To the parent of the current snapshot."""
        metadata = self.metadata()
        current = metadata.snapshots.get(metadata.current_snapshot_id or -1, {})
        parent = current.get("parent-snapshot-id")
        if parent not in metadata.snapshots or self.chance.random() < 0.5:
            return None
        java = self._files.table()
        java.manageSnapshots().rollbackTo(parent).commit()
        self._files.refresh()
        return f"to {parent}"

    # pyiceberg

    def append_by_pyiceberg(self) -> str | None:
        """Rows by another writer, which writes versions 1 and 2."""
        metadata = self.metadata()
        transforms = {field.transform for fields in metadata.specs.values() for field in fields}
        if metadata.version > 2 or not transforms <= {"identity", "void"}:
            return None
        if not self._is_for_spark():
            return None
        schema = metadata.current_schema
        rows = self.random_rows(self.chance.randrange(1, 6), schema)
        self.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'parquet')")
        with catalog_of(self._lake_folder()) as catalog:
            table = catalog.load_table(self.table)
            table.append(arrow_table(rows, schema, with_ids=True).cast(table.schema().as_arrow()))
        self._files.refresh()
        return f"{len(rows)} rows"

    def delete_by_pyiceberg(self) -> str | None:
        """Rows deleted by rewriting their files, by another writer."""
        metadata = self.metadata()
        field = metadata.current_schema.field(ID)
        numbers = self._ids_of_rows()
        has_deletes = any(file.content != DATA for file in self.files())
        has_others = any(file.format != "parquet" for file in self.files())
        transforms = {each.transform for fields in metadata.specs.values() for each in fields}
        if metadata.version > 2 or field is None or not numbers or has_deletes or has_others:
            return None
        if not transforms <= {"identity", "void"}:
            return None
        with catalog_of(self._lake_folder()) as catalog:
            names = ", ".join(map(str, numbers))
            catalog.load_table(self.table).delete(f"{_quoted(field.name)} IN ({names})")
        self._files.refresh()
        return f"ids {numbers}"

    def _lake_folder(self) -> Path:
        tables: Any = self.lake.tables
        path: Path = tables.path
        return path


def _write_positions(path: Path, positions: Sequence[tuple[str, int]]) -> None:
    """A position delete file of Parquet."""
    fields = [
        with_id("file_path", pa.string(), FILE_PATH).with_nullable(False),
        with_id("pos", pa.int64(), POS).with_nullable(False),
    ]
    paths = pa.array([file for file, _ in positions])
    numbers = pa.array([position for _, position in positions], pa.int64())
    pq.write_table(pa.Table.from_arrays([paths, numbers], schema=pa.schema(fields)), path)


def _quoted(name: str) -> str:
    """A column's name for pyiceberg's parser of filters."""
    return '"' + name.replace('"', '""') + '"'


def _puffin(blob: bytes, path: str) -> bytes:
    """A Puffin file of one vector, at offset 4."""
    payload = json.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1",
                    "fields": [2147483645],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": 4,
                    "length": len(blob),
                    "properties": {"referenced-data-file": path, "cardinality": "1"},
                }
            ]
        }
    ).encode()
    footer = b"PFA1" + payload + len(payload).to_bytes(4, "little") + bytes(4) + b"PFA1"
    return b"PFA1" + blob + footer


def _leaves(struct: Struct) -> list[Field]:
    """The fields that hold values, in structs alone."""
    leaves = []
    for field in struct.fields:
        leaves += _leaves(field.type) if isinstance(field.type, Struct) else [field]
    return leaves


def _with_structs(struct: Struct) -> list[Field]:
    fields = []
    for field in struct.fields:
        fields.append(field)
        if isinstance(field.type, Struct):
            fields += _with_structs(field.type)
    return fields


def _inner_ids(field: Field) -> set[int]:
    return {field.id, *(each.id for each in _with_structs(Struct((field,))))}


def _is_alone(schema: Struct, field: Field) -> bool:
    """Whether a struct has no other field."""
    path = path_to(schema, field.id) or ()
    return len(path) > 1 and isinstance(path[-2].type, Struct) and len(path[-2].type.fields) == 1


def _name(schema: Struct, field_id: int) -> str:
    """A column's full name, as Iceberg's API takes it."""
    return ".".join(field.name for field in path_to(schema, field_id) or ())


def _wider(kind: Any) -> str | None:
    match kind:
        case Primitive("int"):
            return "long"
        case Primitive("float"):
            return "double"
        case Primitive("decimal", scale, size) if size < 30:
            return f"decimal({size + 4}, {scale})"
    return None


def _plain_row(row: Mapping[int, Any], schema: Struct) -> dict[int, Any]:
    """A counted row as a mapping again, with structs as mappings."""
    return {field.id: _plain(row[field.id], field.type) for field in schema.fields}


def _plain(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    match kind:
        case Struct():
            return _plain_row(dict(value), kind)
        case ListOf(element):
            return tuple(_plain(each, element.type) for each in value)
        case MapOf(key, mapped):
            return tuple(
                (_plain(one, key.type), _plain(other, mapped.type)) for one, other in value
            )
    return value


def _part_of(row: Mapping[int, Any], fields: Struct) -> dict[int, Any]:
    """The values of a counted row in some fields; a struct that is null stays so."""
    part = {}
    for field in fields.fields:
        value = row[field.id]
        if value is not None and isinstance(field.type, Struct):
            value = _part_of(dict(value), field.type)
        part[field.id] = value
    return part
