"""A row goes only by an equality delete that Iceberg's scan lists for the row's data file.

By the specification (scan planning) an equality delete applies to every older data file of its
partition. Iceberg's scan also leaves out the deletes that the bounds of the key columns rule out
for a file. Where bounds are right, no row of the file has a key of such a delete. Some are wrong:
Iceberg 1.12 compares the bounds of UUIDs as signed numbers. A join that finds a row by a delete
that is ruled out for its file therefore fails, and nothing is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from icekit.common.errors import ReadersDisagree
from icekit.engine.bridge import frame_of_rows, java_object
from icekit.engine.causes import raise_error_messages
from icekit.rows.deletes.listing import File, files_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The place of a delete file is the lower half of its order; a data file has the largest, so that
# only newer deletes have a higher order.
_INDEX_BITS = 32
_LAST = (1 << _INDEX_BITS) - 1
# All that the error that ends a join says, around the data file. The number is this process's own,
# so that no other raise_error says it.
_FAILURE = f"icekit: ruled out for a file ({token_hex(8)})"

#: The columns of :func:`ruled_out_deletes`: a data file's number, and the ruled-out deletes of its
# partition and of all partitions, as words of bits.
FILE = "ruled f"
OWN = "ruled own"
EVERYWHERE = "ruled everywhere"


def delete_order(sequence_number: int, file_index: int = _LAST) -> int:
    """The order of a delete file, from its data sequence number and its place in a list of deletes;
    or, without a place, of a data file.

    A delete is newer than a data file if its order is higher, and the highest order of a key tells
    which file has its newest delete.
    """
    return (sequence_number << _INDEX_BITS) | file_index


def checked_match_sql(match_sql: str, order_sql: str, bits_sql: str, file_sql: str) -> str:
    """SQL for ``match_sql``, which tells whether a delete matches a row; fails if the delete is
    ruled out for the row's ``file_sql``.

    ``order_sql`` is the delete's, and ``bits_sql`` has a bit for each place that is ruled out
    (null: none is).
    """
    bit_sql = f"({order_sql} & {_LAST}L)"
    word_sql = f"get({bits_sql}, CAST({bit_sql} DIV 64 AS int))"
    ruled_out_sql = f"coalesce(bit_get({word_sql}, CAST({bit_sql} % 64 AS int)) = 1, false)"
    failure_sql = f"CAST(raise_error(concat('{_FAILURE} ', {file_sql})) AS boolean)"
    return f"if({match_sql}, if({ruled_out_sql}, {failure_sql}, true), false)"


@contextlib.contextmanager
def ruled_out_as_disagreement(path_of: Callable[[str], str] = str) -> Iterator[None]:
    """Raise :class:`~icekit.common.errors.ReadersDisagree` where a query fails by
    :func:`checked_match_sql`; ``path_of`` gives the path of its ``file``.
    """
    try:
        yield
    except Exception as error:
        failed_files = [
            message.removeprefix(f"{_FAILURE} ")
            for message in raise_error_messages(error)
            if message.startswith(f"{_FAILURE} ")
        ]
        if not failed_files:
            raise
        raise ruled_out_error(path_of(failed_files[0])) from error


def ruled_out_error(data_path: str) -> ReadersDisagree:
    """The error for a data file with rows that a delete deletes which is ruled out for the file."""
    return ReadersDisagree(
        f"{data_path}: rows with the keys of equality deletes that Iceberg's readers do "
        "not apply to the file, because the bounds of a key column in the metadata rule these "
        "deletes out. Iceberg's readers show the rows; by the specification they are deleted. "
        "To keep what readers show, rewrite the file with Spark's own rewrite_data_files and "
        "rewrite-all. Other files may have such rows too."
    )


def ruled_out_deletes(
    spark: SparkSession,
    table: Any,
    snapshot_id: int,
    data_files: Sequence[File],
    delete_files: Sequence[File],
    scan_tasks: Any = None,
) -> DataFrame | None:
    """The deletes that are ruled out for some of the listed data files, by :data:`FILE`, the file's
    place in ``data_files``; None if there are none.

    ``scan_tasks`` are those of the scan that are of interest (None: all). ``delete_files`` of one
    partition, and global ones, follow one another in the order of their places.
    """
    java = java_object(spark, table, "RuledOut", table)
    java_rows = java.ofScan(
        snapshot_id, scan_tasks, files_text(data_files), files_text(delete_files)
    )
    schema = f"`{FILE}` int, `{OWN}` array<bigint>, `{EVERYWHERE}` array<bigint>"
    return None if java_rows.isEmpty() else frame_of_rows(spark, java_rows, schema)
