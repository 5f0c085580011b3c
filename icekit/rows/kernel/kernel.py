"""Resolve files of one partition in a Python worker of a Spark task: rows that no delete deletes go
to new files.

DuckDB compares keys alone, and says by number which rows are deleted; the rows themselves stay in
Arrow from the old files to the new ones, with the ids of their fields, unless they are sorted.
Executors get the source of this module and of those that it imports from the driver, and have
nothing else of icekit.
"""

from __future__ import annotations

import array
import base64
import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.duckdb_io import RowSource, can_store, duckdb_settings, storage_type_of, to_duckdb
from icekit.rows.kernel.hashes import RowSums
from icekit.rows.kernel.row_order import SortColumn, in_order

#: The metadata of an Arrow field that has the id of the Parquet column.
FIELD_ID = b"PARQUET:field_id"
#: The ids of the columns with a row's lineage (table spec, "Reserved Field IDs").
ROW_ID = 2_147_483_540
LAST_UPDATED = 2_147_483_539
# Rows that are decoded at a time: small enough for a processor's cache.
_BATCH_ROWS = 16_384
# A row group is complete with so many rows, or bytes in memory: what a worker holds beside DuckDB.
_ROW_GROUP_ROWS = 1_000_000
_ROW_GROUP_BYTES = 64 << 20
# A column whose dictionary takes more than this share of the old file's column gets none.
_DICTIONARY_SHARE = 0.3
# An order has the sequence number above the place (icekit.rows.deletes.ruled_out.order_of).
_INDEX_BITS = 32


class KernelRefused(Exception):
    """Files that this module cannot rewrite exactly; says why."""


@dataclass(frozen=True)
class KernelSettings:
    """What the new files of a table have in common, whatever group they are of.

    ``schema`` has the fields of the table's schema of today, each with its id. ``options`` are
    those of :class:`pyarrow.parquet.ParquetWriter`. The rows of a part are sorted by ``order``, or
    stay in the order of its files.
    """

    schema: pa.Schema
    key_types: Mapping[int, pa.DataType]
    options: Mapping[str, Any]
    row_group_bytes: int
    memory_bytes: int
    order: Sequence[SortColumn] = ()
    #: The file system of pyarrow; None for the disks of this machine.
    filesystem: Any = None


@dataclass(frozen=True)
class DataFile:
    """A data file: ``first_row_id`` is None without row lineage, ``constants`` are the partition's
    values by field id, which take the place of the file's.
    """

    path: str
    sequence: int
    first_row_id: int | None
    rows: int
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EqualityDeletes:
    """The delete files of one key, each a path and its order
    (:func:`icekit.rows.deletes.ruled_out.delete_order`).

    ``ruled_out`` has for each data file the words of bits of the deletes that Iceberg's scan does
    not list for it; empty if it lists all.
    """

    field_ids: Sequence[int]
    files: Sequence[tuple[str, int]]
    ruled_out: Sequence[Sequence[int] | None] = ()


@dataclass(frozen=True)
class Part:
    """Old files of one partition, the deletes that apply to them, and the paths of so many new files
    as they may become at most, of which ``files`` are expected.

    ``position_deletes`` are files with the numbers of the data files that they apply to, and
    ``vectors`` deletion vectors: the number of a data file, the path, offset and length.
    ``chosen`` are the numbers of data files whose rows are added up by themselves, too.
    """

    data: Sequence[DataFile]
    deletes: Sequence[EqualityDeletes]
    position_deletes: Sequence[tuple[str, Sequence[int]]]
    vectors: Sequence[tuple[int, str, int, int]]
    chosen: Sequence[int]
    outputs: Sequence[str]
    files: int
    max_file_bytes: int
    attempt: str = ""

    @classmethod
    def of_json(cls, text: str, attempt: str) -> Part:
        """Read a part as icekit's Java class Kernel writes it."""
        values = json.loads(text)
        values["data"] = [DataFile(**each) for each in values["data"]]
        values["deletes"] = [EqualityDeletes(**each) for each in values["deletes"]]
        return cls(**values, attempt=attempt)


def resolve(text: str, table: KernelSettings, folder: str, attempt: str) -> str:
    """Write the rows of a part that live; returns as JSON the new files, and what was read.

    ``attempt`` tells the files of one attempt of a task from those of another. DuckDB spills to
    ``folder``. Raises :class:`KernelRefused`, and removes what it has written where it fails.
    """
    part = Part.of_json(text, attempt)
    files = _Files(part, table)
    is_live = _live_rows(files, folder)
    new_files = _NewFiles(part, table, files)
    try:
        total, by_file = _write(files, new_files, is_live, folder)
        new_files.close()
    except BaseException:
        new_files.remove()
        raise
    return json.dumps(
        {
            "files": new_files.closed,
            "read": files.rows - files.deleted_by_position,
            "rows": total.rows,
            "sum": str(total.hash_sum),
            "chosen": [[number, sums.rows, str(sums.hash_sum)] for number, sums in by_file.items()],
        }
    )


def deleted_rows(text: str, table: KernelSettings, folder: str, attempt: str) -> str:
    """The positions of the rows that equality deletes delete in a part's data files; returns as JSON
    a bitmap of each file that has some, by its number. Nothing is written.
    """
    import numpy as np
    from pyroaring import BitMap64

    files = _Files(Part.of_json(text, attempt), table)
    is_dead = np.zeros(files.rows, bool)
    for rows in _rows_deleted_by_keys(files, folder):
        is_dead[rows] = True
    bitmaps = {}
    for number, data_file in enumerate(files.part.data):
        first = files.first_rows[number]
        positions = np.flatnonzero(is_dead[first : first + data_file.rows])
        if len(positions):
            bitmap = BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))
            bitmaps[number] = base64.b64encode(bitmap.serialize()).decode()
    return json.dumps({"bitmaps": bitmaps})


class _Files:
    """The old files of a part, each opened when its rows are read."""

    def __init__(self, part: Part, table: KernelSettings) -> None:
        import pyarrow.fs

        self.part = part
        self.table = table
        self.filesystem = table.filesystem or pyarrow.fs.LocalFileSystem()
        self.rows = 0
        self.deleted_by_position = 0
        self.first_rows: list[int] = []
        for data_file in part.data:
            self.first_rows.append(self.rows)
            self.rows += data_file.rows

    def open(self, location: str) -> Any:
        """A Parquet file; raises :class:`KernelRefused` if its columns have no ids."""
        import pyarrow.parquet as pq

        # A UUID stays the 16 bytes that it is.
        file = pq.ParquetFile(
            path_of(location, self.table.filesystem),
            filesystem=self.filesystem,
            pre_buffer=self.table.filesystem is not None,
            arrow_extensions_enabled=False,
        )
        if any(_id_of(each) is None for each in file.schema_arrow):
            raise KernelRefused("a file whose columns have no field ids")
        return file

    def opened_data(self, data_file: DataFile) -> Any:
        """A data file; raises :class:`KernelRefused` if it has not the rows that its metadata says
        it has.
        """
        file = self.open(data_file.path)
        if file.metadata.num_rows != data_file.rows:
            raise KernelRefused("a data file with another number of rows than its metadata says")
        return file


def path_of(location: str, filesystem: Any) -> str:
    """The path of a location in the file system: nothing is decoded, as Iceberg reads it."""
    if filesystem is not None:
        return location.partition("://")[2]
    if not location.startswith("file:"):
        return location
    path = location.removeprefix("file:")
    return "/" + path[2:].partition("/")[2] if path.startswith("//") else path


def _id_of(arrow_field: pa.Field) -> int | None:
    text = (arrow_field.metadata or {}).get(FIELD_ID)
    return None if text is None else int(text)


# Which rows live


def _live_rows(files: _Files, folder: str) -> Any:
    """A boolean for each row of the old files, in their order; None if no delete applies."""
    import numpy as np

    part = files.part
    if not (part.deletes or part.position_deletes or part.vectors):
        return None
    is_live = np.ones(files.rows, bool)
    for positions, number in _positions(files):
        start = files.first_rows[number]
        if len(positions) and int(positions.max()) >= part.data[number].rows:
            raise KernelRefused("a position delete beyond the end of its data file")
        is_live[start + positions] = False
    files.deleted_by_position = files.rows - int(is_live.sum())
    for rows in _rows_deleted_by_keys(files, folder):
        is_live[rows] = False
    return is_live


def _positions(files: _Files) -> Iterator[tuple[Any, int]]:
    """The deleted positions of data files, each with the number of its file."""
    import numpy as np
    import pyarrow.compute as pc

    with_vector = {number for number, *_ in files.part.vectors}
    for path, numbers in files.part.position_deletes:
        # A vector replaces all other position deletes of its data file.
        numbers_by_path: dict[str, list[int]] = {}
        for number in numbers:
            if number not in with_vector:
                numbers_by_path.setdefault(files.part.data[number].path, []).append(number)
        for batch in files.open(path).iter_batches(_BATCH_ROWS * 4, columns=["file_path", "pos"]):
            for name in pc.unique(batch.column(0)).to_pylist():
                if name not in numbers_by_path:
                    continue
                positions = batch.column(1).filter(pc.equal(batch.column(0), name))
                # A table may have a data file twice.
                for number in numbers_by_path[name]:
                    yield positions.to_numpy(zero_copy_only=False), number
    for number, path, offset, length in files.part.vectors:
        from pyroaring import BitMap64

        blob = _read_range(files, path, offset, length)
        # Length, magic, bitmap, checksum (Puffin spec, "deletion-vector-v1").
        positions = BitMap64.deserialize(blob[8:-4])
        yield np.fromiter(positions, np.int64, len(positions)), number


def _read_range(files: _Files, location: str, offset: int, length: int) -> bytes:
    with files.filesystem.open_input_file(path_of(location, files.table.filesystem)) as file:
        return bytes(file.read_at(length, offset))


def _rows_deleted_by_keys(files: _Files, folder: str) -> Iterator[Any]:
    """The numbers of the rows that equality deletes of any key delete; a row may come twice."""
    for deletes in files.part.deletes:
        for rows, orders in _deleted_by_key(files, deletes, folder):
            _check_listed(files, deletes, rows, orders)
            yield rows


def _deleted_by_key(
    files: _Files, deletes: EqualityDeletes, folder: str
) -> Iterator[tuple[Any, Any]]:
    """The numbers of the rows that have a newer delete of their key, and the order of the newest."""
    import duckdb

    data = [(each.path, (each.sequence + 1 << _INDEX_BITS) - 1) for each in files.part.data]
    names = [f"k{i}" for i in range(len(deletes.field_ids))]
    keys = ", ".join(names)
    # Not USING, and not =: a delete of a null deletes the rows with a null.
    same = " AND ".join(f"d.{name} IS NOT DISTINCT FROM n.{name}" for name in names)
    with duckdb.connect(config=duckdb_settings(files.table.memory_bytes, folder)) as connection:
        deleted_keys = _keys_of(files, deletes.field_ids, deletes.files)
        row_keys = _keys_of(files, deletes.field_ids, data, files.part.data)
        connection.register("deletes", deleted_keys.reader)
        connection.register("data", row_keys.reader)
        dead = connection.sql(
            f"SELECT d.row, n.newest FROM data d JOIN (SELECT {keys}, max(file_order) AS newest "
            f"FROM deletes GROUP BY {keys}) n ON {same} WHERE n.newest > d.file_order"
        )
        try:
            for batch in dead.to_arrow_reader(1_000_000):
                yield batch.column(0).to_numpy(), batch.column(1).to_numpy()
        except duckdb.OutOfMemoryException as error:
            raise KernelRefused("its keys take more memory than a worker has") from error
        except Exception:
            deleted_keys.raise_error()
            row_keys.raise_error()
            raise


def _check_listed(files: _Files, deletes: EqualityDeletes, rows: Any, orders: Any) -> None:
    """Refuse rows whose delete Iceberg's scan rules out for their file."""
    import numpy as np

    if not deletes.ruled_out or not len(rows):
        return
    numbers = np.searchsorted(files.first_rows, rows, side="right") - 1
    places = orders & ((1 << _INDEX_BITS) - 1)
    for number in np.unique(numbers):
        words = deletes.ruled_out[number]
        if words is None:
            continue
        bits = np.array(words, np.int64).view(np.uint64)
        of_file = places[numbers == number]
        of_file = of_file[of_file // 64 < len(bits)]
        if np.any(bits[of_file // 64] >> (of_file % 64).astype(np.uint64) & np.uint64(1)):
            raise RuledOut(files.part.data[number].path)


class RuledOut(Exception):
    """A row is deleted by a delete that Iceberg's scan rules out for the data file of this path."""


def _keys_of(
    files: _Files,
    field_ids: Sequence[int],
    paths: Iterable[tuple[str, int]],
    data: Sequence[DataFile] = (),
) -> RowSource:
    """The keys in some files as columns ``k0``, ``k1`` …, with the order of the file; with ``data``
    also the number of each row.
    """
    import numpy as np

    types = [files.table.key_types[field_id] for field_id in field_ids]
    fields = [
        pa.field(f"k{i}", _comparable(pa.nulls(0, kind), kind).type) for i, kind in enumerate(types)
    ]
    fields.append(pa.field("file_order", pa.int64()))
    if data:
        fields.append(pa.field("row", pa.int64()))
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for index, (path, order) in enumerate(paths):
            constants = data[index].constants if data else {}
            file = files.opened_data(data[index]) if data else files.open(path)
            ways = [_names_to(file.schema_arrow, field_id) for field_id in field_ids]
            selected = [".".join(way) for way in ways if way]
            for batch in file.iter_batches(_BATCH_ROWS * 4, columns=selected, use_threads=False):
                count = batch.num_rows
                columns: list[pa.Array] = []
                for field_id, way, kind in zip(field_ids, ways, types, strict=True):
                    if str(field_id) in constants:
                        column = _constant(constants[str(field_id)], kind, count)
                    else:
                        column = _leaf(batch, way, kind)
                    columns.append(_comparable(column, kind))
                columns.append(pa.repeat(pa.scalar(order, pa.int64()), count))
                if data:
                    columns.append(pa.array(np.arange(row, row + count)))
                row += count
                yield pa.record_batch(columns, schema=schema)

    return RowSource(schema, batches())


def _names_to(fields: Iterable[pa.Field], field_id: int) -> list[str]:
    """The names from the outermost struct to a field; empty where a file lacks it."""
    for each in fields:
        if _id_of(each) == field_id:
            return [each.name]
        if pa.types.is_struct(each.type):
            inner = _names_to(_fields_of(each.type), field_id)
            if inner:
                return [each.name, *inner]
    return []


def _fields_of(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]


def _leaf(batch: pa.RecordBatch, way: Sequence[str], kind: pa.DataType) -> pa.Array:
    """A column by its names; nulls where the file lacks it."""
    if not way:
        return pa.nulls(batch.num_rows, kind)
    column = batch.column(way[0])
    for name in way[1:]:
        # Of a struct that is null, each field is null.
        column = column.flatten()[column.type.get_field_index(name)]
    return column


def _comparable(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A key column as values that DuckDB compares as Iceberg does; ``kind`` is its type in the
    table.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = storage_type_of(kind)
    if column.type != kind:
        column = column.cast(kind)
    if pa.types.is_floating(kind) or not can_store(kind):
        raise KernelRefused(f"a key of the type {kind}")
    return to_duckdb(column)


# Rows in the table's schema of today


def _adapted(
    batch: pa.RecordBatch, data_file: DataFile, first_position: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of a data file with the table's fields; the file's rows from ``first_position`` on."""
    import numpy as np
    import pyarrow.compute as pc

    by_id = {_id_of(each): i for i, each in enumerate(batch.schema)}
    columns = []
    for wanted in schema:
        field_id = _id_of(wanted)
        index = by_id.get(field_id)
        if str(field_id) in data_file.constants:
            column = _constant(data_file.constants[str(field_id)], wanted.type, batch.num_rows)
        elif index is not None:
            column = _as_type(batch.column(index), batch.schema.field(index), wanted)
        else:
            column = pa.nulls(batch.num_rows, wanted.type)
        if field_id == ROW_ID and data_file.first_row_id is not None:
            start = data_file.first_row_id + first_position
            ids = pa.array(np.arange(start, start + batch.num_rows))
            column = pc.coalesce(column, ids)
        if field_id == LAST_UPDATED:
            column = column.fill_null(data_file.sequence)
        columns.append(column)
    return pa.record_batch(columns, schema=schema)


def _constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A partition's value, as Iceberg writes a single value as JSON, in so many rows."""
    if value is None:
        return pa.nulls(count, kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return pa.repeat(pa.scalar(value, kind), count)
    return pa.repeat(pa.scalar(str(value)).cast(kind), count)


def _as_type(column: pa.Array, source: pa.Field, wanted: pa.Field) -> pa.Array:
    """A column in the type that the table has today; raises :class:`KernelRefused` for a change
    that is not known to be exact.
    """
    before = source.type
    after = wanted.type
    if before == after and _same_ids(source, wanted):
        return column
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        by_id = {_id_of(each): i for i, each in enumerate(_fields_of(before))}
        # Of a struct that is null, each field is null.
        children = column.flatten()
        inner = []
        for each in _fields_of(after):
            index = by_id.get(_id_of(each))
            if index is None:
                inner.append(pa.nulls(len(column), each.type))
            else:
                inner.append(_as_type(children[index], before.field(index), each))
        return pa.StructArray.from_arrays(
            inner, fields=_fields_of(after), mask=column.is_null() if column.null_count else None
        )
    if isinstance(after, pa.BaseExtensionType) and before == after.storage_type:
        return pa.ExtensionArray.from_storage(after, column)
    is_wider = (
        (pa.types.is_int32(before) and pa.types.is_int64(after))
        or (pa.types.is_float32(before) and pa.types.is_float64(after))
        or (pa.types.is_decimal(before) and pa.types.is_decimal(after))
    )
    if is_wider or (_same_names(source, wanted) and _same_ids(source, wanted)):
        try:
            return column.cast(after)
        except pa.ArrowInvalid as error:
            raise KernelRefused(f"a column of {before} that does not become {after}") from error
    raise KernelRefused(f"a column whose type changed from {before} to {after}")


def _same_ids(source: pa.Field, wanted: pa.Field) -> bool:
    """Whether all fields inside have the ids that they have in the table."""
    inner = _inside(source.type)
    outer = _inside(wanted.type)
    return len(inner) == len(outer) and all(
        _id_of(one) == _id_of(other) and _same_ids(one, other)
        for one, other in zip(inner, outer, strict=True)
    )


def _same_names(source: pa.Field, wanted: pa.Field) -> bool:
    """Whether nested fields have the names and the simple types that they have in the table."""
    inner = _inside(source.type)
    outer = _inside(wanted.type)
    if not inner or len(inner) != len(outer):
        return False
    for one, other in zip(inner, outer, strict=True):
        if pa.types.is_struct(source.type) and one.name != other.name:
            return False
        is_simple = not _inside(one.type) and not _inside(other.type)
        if is_simple and one.type != other.type:
            return False
        if not is_simple and not _same_names(one, other):
            return False
    return True


def _inside(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return _fields_of(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    return []


# Writing


def _write(
    files: _Files, new_files: _NewFiles, is_live: Any, folder: str
) -> tuple[RowSums, Mapping[int, RowSums]]:
    """Write the rows that live; returns the sums of all of them, and of those of each chosen
    file.
    """
    import duckdb

    live_rows = files.rows if is_live is None else int(is_live.sum())
    new_files.expect(live_rows)
    total = RowSums()
    by_file = {number: RowSums() for number in files.part.chosen}
    table = files.table
    rows = _read(files, is_live, total, by_file)
    if table.order:
        rows = in_order(rows, table.schema, table.order, duckdb_settings(table.memory_bytes, folder))
    try:
        for batch in rows:
            new_files.write(batch)
    except duckdb.OutOfMemoryException as error:
        raise KernelRefused("its rows take more memory to sort than a worker has") from error
    if total.rows != live_rows:
        raise KernelRefused(f"{total.rows:,} rows were read, but {live_rows:,} live")
    return total, by_file


def _read(
    files: _Files, is_live: Any, total: RowSums, by_file: Mapping[int, RowSums]
) -> Iterator[pa.RecordBatch]:
    """The rows that live, in the order of the old files; they are added up as they are read."""
    for number, data_file in enumerate(files.part.data):
        position = 0
        file = files.opened_data(data_file)
        # The partition's values take the place of the file's.
        names = [
            each.name for each in file.schema_arrow if str(_id_of(each)) not in data_file.constants
        ]
        for batch in file.iter_batches(_BATCH_ROWS, columns=names or None, use_threads=False):
            start = files.first_rows[number] + position
            live = None if is_live is None else is_live[start : start + batch.num_rows]
            first_position = position
            position += batch.num_rows
            if live is not None and not live.any():
                continue
            rows = _adapted(batch, data_file, first_position, files.table.schema)
            if live is not None and not live.all():
                rows = rows.filter(pa.array(live))
            # What was read is hashed, and Spark reads what was written.
            total.add(rows)
            if number in by_file:
                by_file[number].add(rows)
            yield rows


class _NewFiles:
    """The new files of a part: rows are held until a row group is complete, and a file ends with its
    share of the rows, or at the largest size.
    """

    def __init__(self, part: Part, table: KernelSettings, files: _Files) -> None:
        self.part = part
        self.table = table
        self.files = files
        self._filesystem = files.filesystem
        #: Of each file its path, rows, bytes, and the offsets of its row groups.
        self.closed: list[dict[str, Any]] = []
        self._paths: list[str] = []
        self._batches: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._held_bytes = 0
        self._file_rows = 0
        self._rows_per_file = 0
        self._sink: Any = None
        self._writer: Any = None
        self._options: dict[str, Any] | None = None

    def expect(self, rows: int) -> None:
        """Take so many rows, in files of about the same size."""
        share = rows / max(1, self.files.rows)
        count = max(1, -(-int(self.part.files * share * 1000) // 1000))
        self._rows_per_file = -(-rows // count)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add some rows."""
        while rows.num_rows:
            room = self._rows_per_file - self._file_rows - self._held_rows
            self._hold(rows.slice(0, room))
            rows = rows.slice(room)

    def _hold(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        is_full = self._file_rows + self._held_rows == self._rows_per_file
        limit = min(_ROW_GROUP_BYTES, self.table.row_group_bytes)
        if is_full or self._held_rows >= _ROW_GROUP_ROWS or self._held_bytes >= limit:
            self._write_row_group()
            if is_full or self._sink.tell() >= self.part.max_file_bytes:
                self._close_file()

    def close(self) -> None:
        """End the last file."""
        self._write_row_group()
        self._close_file()

    def remove(self) -> None:
        """Remove what was written, also where it is open, and so takes space on a full disk."""
        self._writer = None
        if self._sink is not None:
            with contextlib.suppress(Exception):
                self._sink.close()
        for path in self._paths:
            with contextlib.suppress(Exception):
                self._filesystem.delete_file(path_of(path, self.table.filesystem))

    def _write_row_group(self) -> None:
        if not self._batches:
            return
        if self._writer is None:
            self._open_file()
        rows = pa.Table.from_batches(self._batches)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._file_rows += self._held_rows
        self._batches = []
        self._held_rows = 0
        self._held_bytes = 0

    def _open_file(self) -> None:
        import pyarrow.parquet as pq

        if len(self._paths) == len(self.part.outputs):
            raise KernelRefused("rows that become far larger than they were")
        if self._options is None:
            self._options = {**self.table.options, "use_dictionary": self._dictionary_columns()}
        stem, dot, ending = self.part.outputs[len(self._paths)].rpartition(".")
        path = f"{stem}-{self.part.attempt}{dot}{ending}"
        file_path = path_of(path, self.table.filesystem)
        if self.table.filesystem is None:
            self._filesystem.create_dir(file_path.rpartition("/")[0], recursive=True)
        self._paths.append(path)
        self._sink = self._filesystem.open_output_stream(file_path)
        self._writer = pq.ParquetWriter(self._sink, self.table.schema, **self._options)

    def _close_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        metadata = self._writer.writer.metadata
        offsets = []
        for index in range(metadata.num_row_groups):
            column = metadata.row_group(index).column(0)
            offsets.append(column.dictionary_page_offset or column.data_page_offset)
        self.closed.append(
            {"path": self._paths[-1], "rows": self._file_rows, "bytes": size, "offsets": offsets}
        )
        self._writer = None
        self._file_rows = 0

    def _dictionary_columns(self) -> list[str]:
        """The columns of few values, by what dictionaries the largest of the old files has."""
        largest = max(self.part.data, key=lambda data_file: data_file.rows)
        metadata = self.files.open(largest.path).metadata
        names: list[str] = []
        if not metadata.num_row_groups:
            return names
        group = metadata.row_group(0)
        for index in range(group.num_columns):
            column = group.column(index)
            if not column.has_dictionary_page or not column.total_compressed_size:
                continue
            size = column.data_page_offset - column.dictionary_page_offset
            if size <= _DICTIONARY_SHARE * column.total_compressed_size:
                names.append(column.path_in_schema)
        return names
