"""The new files of a part, as Iceberg's own writer would write them.

Executors get the source of this module from the driver, so it imports nothing of icekit but modules
that they get, too.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa

from icekit.rows.kernel.old_files import OldFiles, path_of
from icekit.rows.kernel.refusals import KernelRefused

# A row group is complete with so many rows, or bytes in memory: what a worker holds beside DuckDB.
_ROW_GROUP_ROWS = 1_000_000
_ROW_GROUP_BYTES = 64 << 20
# A column whose dictionary takes more than this share of the old file's column gets none.
_DICTIONARY_SHARE = 0.3


class NewFiles:
    """The new files of a part: rows are held until a row group is complete, and a file ends with
    its share of the rows, or at the largest size.
    """

    def __init__(self, old_files: OldFiles) -> None:
        self.part = old_files.part
        self.settings = old_files.settings
        self.old_files = old_files
        self._filesystem = old_files.filesystem
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
        self._writer_options: dict[str, Any] | None = None

    def expect(self, row_count: int) -> None:
        """Take so many rows, in files of about the same size."""
        live_share = row_count / max(1, self.old_files.row_count)
        file_count = max(1, -(-int(self.part.expected_files * live_share * 1000) // 1000))
        self._rows_per_file = -(-row_count // file_count)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add some rows."""
        while rows.num_rows:
            rows_to_end = self._rows_per_file - self._file_rows - self._held_rows
            self._hold(rows.slice(0, rows_to_end))
            rows = rows.slice(rows_to_end)

    def _hold(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        is_full = self._file_rows + self._held_rows == self._rows_per_file
        most_bytes = min(_ROW_GROUP_BYTES, self.settings.row_group_bytes)
        if is_full or self._held_rows >= _ROW_GROUP_ROWS or self._held_bytes >= most_bytes:
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
        for new_path in self._paths:
            with contextlib.suppress(Exception):
                self._filesystem.delete_file(path_of(new_path, self.settings.filesystem))

    def _write_row_group(self) -> None:
        if not self._batches:
            return
        if self._writer is None:
            self._open_file()
        row_group = pa.Table.from_batches(self._batches)
        self._writer.write_table(row_group, row_group_size=row_group.num_rows)
        self._file_rows += self._held_rows
        self._batches = []
        self._held_rows = 0
        self._held_bytes = 0

    def _open_file(self) -> None:
        import pyarrow.parquet as pq

        if len(self._paths) == len(self.part.new_paths):
            raise KernelRefused("rows that become far larger than they were")
        if self._writer_options is None:
            dictionary_columns = self._dictionary_columns()
            self._writer_options = {
                **self.settings.writer_options,
                "use_dictionary": dictionary_columns,
            }
        stem, dot, suffix = self.part.new_paths[len(self._paths)].rpartition(".")
        new_path = f"{stem}-{self.part.attempt}{dot}{suffix}"
        path_in_filesystem = path_of(new_path, self.settings.filesystem)
        if self.settings.filesystem is None:
            folder = path_in_filesystem.rpartition("/")[0]
            self._filesystem.create_dir(folder, recursive=True)
        self._paths.append(new_path)
        self._sink = self._filesystem.open_output_stream(path_in_filesystem)
        self._writer = pq.ParquetWriter(self._sink, self.settings.schema, **self._writer_options)

    def _close_file(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size_bytes = self._sink.tell()
        self._sink.close()
        metadata = self._writer.writer.metadata
        group_offsets = []
        for group_index in range(metadata.num_row_groups):
            first_column = metadata.row_group(group_index).column(0)
            offset = first_column.dictionary_page_offset or first_column.data_page_offset
            group_offsets.append(offset)
        self.closed.append(
            {
                "path": self._paths[-1],
                "rows": self._file_rows,
                "bytes": size_bytes,
                "offsets": group_offsets,
            }
        )
        self._writer = None
        self._file_rows = 0

    def _dictionary_columns(self) -> list[str]:
        """The columns of few values, by what dictionaries the largest of the old files has."""
        largest_file = max(self.part.data_files, key=lambda data_file: data_file.row_count)
        metadata = self.old_files.open(largest_file.path).metadata
        column_names: list[str] = []
        if not metadata.num_row_groups:
            return column_names
        row_group = metadata.row_group(0)
        for column_index in range(row_group.num_columns):
            column = row_group.column(column_index)
            if not column.has_dictionary_page or not column.total_compressed_size:
                continue
            dictionary_bytes = column.data_page_offset - column.dictionary_page_offset
            if dictionary_bytes <= _DICTIONARY_SHARE * column.total_compressed_size:
                column_names.append(column.path_in_schema)
        return column_names
