"""The old files of a part, opened one after another.

Executors get the source of this module from the driver, so it imports nothing of icekit but modules
that they get, too.
"""

from __future__ import annotations

from typing import Any

from icekit.rows.kernel.current_schema import field_id_of
from icekit.rows.kernel.kernel_settings import KernelSettings
from icekit.rows.kernel.part import DataFile, Part
from icekit.rows.kernel.refusals import KernelRefused


class OldFiles:
    """The old files of a part, each opened when its rows are read; rows have numbers through all of
    them.
    """

    def __init__(self, part: Part, settings: KernelSettings) -> None:
        import pyarrow.fs

        self.part = part
        self.settings = settings
        self.filesystem = settings.filesystem or pyarrow.fs.LocalFileSystem()
        self.row_count = 0
        #: The number of the first row of each data file.
        self.first_rows: list[int] = []
        for data_file in part.data_files:
            self.first_rows.append(self.row_count)
            self.row_count += data_file.row_count

    def open(self, location: str) -> Any:
        """A Parquet file; raises :class:`KernelRefused` if its columns have no ids."""
        import pyarrow.parquet as pq

        # A UUID stays the 16 bytes that it is.
        parquet_file = pq.ParquetFile(
            path_of(location, self.settings.filesystem),
            filesystem=self.filesystem,
            pre_buffer=self.settings.filesystem is not None,
            arrow_extensions_enabled=False,
        )
        if any(field_id_of(column) is None for column in parquet_file.schema_arrow):
            raise KernelRefused("a file whose columns have no field ids")
        return parquet_file

    def opened_data(self, data_file: DataFile) -> Any:
        """A data file; raises :class:`KernelRefused` if it has not the rows that its metadata says
        it has.
        """
        parquet_file = self.open(data_file.path)
        if parquet_file.metadata.num_rows != data_file.row_count:
            raise KernelRefused("a data file with another number of rows than its metadata says")
        return parquet_file

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Some bytes of a file of any kind."""
        file_path = path_of(location, self.settings.filesystem)
        with self.filesystem.open_input_file(file_path) as input_file:
            return bytes(input_file.read_at(length, offset))


def path_of(location: str, filesystem: Any) -> str:
    """The path of a location in the file system: nothing is decoded, as Iceberg reads it."""
    if filesystem is not None:
        return location.partition("://")[2]
    if not location.startswith("file:"):
        return location
    path = location.removeprefix("file:")
    return "/" + path[2:].partition("/")[2] if path.startswith("//") else path
