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
from icekit.rows.deletes.listing import File, placed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The place of a delete file is the lower half of its order; a data file has the largest, so that
# only newer deletes have a higher order.
_PLACE_BITS = 32
_LAST = (1 << _PLACE_BITS) - 1
# All that the error that ends a join says, around the data file. The number is this process's own, so
# that no other raise_error says it.
_FAILURE = f"icekit: ruled out for a file ({token_hex(8)})"

#: The columns of :func:`ruled_out`: a data file's number, and the ruled-out deletes of its
# partition and of all partitions, as words of bits.
FILE = "ruled f"
OWN = "ruled own"
EVERYWHERE = "ruled everywhere"


def order_of(sequence: int, place: int = _LAST) -> int:
    """The order of a delete file, from its data sequence number and its place in a list of deletes;
    or, without a place, of a data file.

    A delete is newer than a data file if its order is higher, and the highest order of a key tells
    which file has its newest delete.
    """
    return (sequence << _PLACE_BITS) | place


def unless_ruled_out(is_matched: str, order: str, words: str, file: str) -> str:
    """SQL for ``is_matched``, which tells whether a delete matches a row; fails if the delete is ruled
    out for the row's ``file``.

    ``order`` is the delete's, and ``words`` has a bit for each place that is ruled out (null: none
    is).
    """
    bit = f"({order} & {_LAST}L)"
    word = f"get({words}, CAST({bit} DIV 64 AS int))"
    is_ruled_out = f"coalesce(bit_get({word}, CAST({bit} % 64 AS int)) = 1, false)"
    failure = f"CAST(raise_error(concat('{_FAILURE} ', {file})) AS boolean)"
    return f"if({is_matched}, if({is_ruled_out}, {failure}, true), false)"


@contextlib.contextmanager
def disagreement(path_of: Callable[[str], str] = str) -> Iterator[None]:
    """Raise :class:`~icekit.common.errors.ReadersDisagree` where a query fails by
    :func:`unless_ruled_out`; ``path_of`` gives the path of its ``file``.
    """
    try:
        yield
    except Exception as error:
        files = [
            message.removeprefix(f"{_FAILURE} ")
            for message in raise_error_messages(error)
            if message.startswith(f"{_FAILURE} ")
        ]
        if not files:
            raise
        raise not_shown(path_of(files[0])) from error


def not_shown(path: str) -> ReadersDisagree:
    """The error for a data file with rows that a delete deletes which is ruled out for the file."""
    return ReadersDisagree(
        f"{path}: rows with the keys of equality deletes that Iceberg's readers do "
        "not apply to the file, because the bounds of a key column in the metadata rule these "
        "deletes out. Iceberg's readers show the rows; by the specification they are deleted. "
        "To keep what readers show, rewrite the file with Spark's own rewrite_data_files and "
        "rewrite-all. Other files may have such rows too."
    )


def ruled_out(
    spark: SparkSession,
    table: Any,
    snapshot_id: int,
    data: Sequence[File],
    deletes: Sequence[File],
    tasks: Any = None,
) -> DataFrame | None:
    """The deletes that are ruled out for some of the listed data files, by :data:`FILE`, the file's
    place in ``data``; None if there are none.

    ``tasks`` are those of the scan that are of interest (None: all). ``deletes`` of one partition, and global ones, follow one another in the order of their places.
    """
    java = java_object(spark, table, "RuledOut", table)
    rows = java.ofScan(snapshot_id, tasks, placed(data), placed(deletes))
    schema = f"`{FILE}` int, `{OWN}` array<bigint>, `{EVERYWHERE}` array<bigint>"
    return None if rows.isEmpty() else frame_of_rows(spark, rows, schema)
