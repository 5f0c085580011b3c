"""What the kernel has to know of a table.

Executors get the source of this module from the driver, so it imports nothing of icekit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from icekit.rows.kernel.row_order import SortColumn


@dataclass(frozen=True)
class KernelSettings:
    """How keys and rows of a table are read, and how its new files are written, whatever part they
    are of.

    ``schema`` has the fields of the table's schema of today, each with its id. ``key_types`` are by
    field id. ``writer_options`` are those of :class:`pyarrow.parquet.ParquetWriter`. The rows of a
    part are sorted by ``sort_columns``, or stay in the order of its files.
    """

    schema: pa.Schema
    key_types: Mapping[int, pa.DataType]
    writer_options: Mapping[str, Any]
    row_group_bytes: int
    memory_bytes: int
    sort_columns: Sequence[SortColumn] = ()
    #: The file system of pyarrow; None for the disks of this machine.
    filesystem: Any = None
