"""A row goes only by an equality delete that Iceberg's scan lists for the row's data file.

By the specification (scan planning) an equality delete applies to every older data file of its partition. Iceberg's scan also
leaves out the deletes that the bounds of the key columns rule out for a file. Where bounds are right, no row of the file
has a key of such a delete. Some are wrong: Iceberg 1.12 compares the bounds of UUIDs as signed numbers. A join that
finds a row by a delete that is ruled out for its file therefore fails, and nothing is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import compiled
from icekit.engine.errors import described
from icekit.errors import ReadersDisagree
from icekit.resolve.listing import File

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The place of a delete file is the lower half of its order; a data file has the largest, so that only newer deletes have a higher order.
_PLACE_BITS = 32
_LAST = (1 << _PLACE_BITS) - 1
# In the error that ends a join.
_MARK = "icekit:ruled-out"
# Most files that an error names.
_NAMED = 5
#: As many files are looked for: one more than an error names.
MOST_FILES = _NAMED + 1

#: The columns of :func:`ruled_out`: a data file's number, and the ruled-out deletes of its partition and of all partitions, as words of bits.
FILE, OWN, EVERYWHERE = "ruled f", "ruled own", "ruled everywhere"


def order_of(sequence: int, place: int = _LAST) -> int:
    """The order of a delete file, from its data sequence number and its place in a list of deletes; or, without a place, of a data file.

    A delete is newer than a data file if its order is higher, and the highest order of a key tells which file has its newest delete.
    """
    return (sequence << _PLACE_BITS) | place


def order_sql(sequence: str, place: str = f"{_LAST}L") -> str:
    """SQL for :func:`order_of`."""
    return f"shiftleft({sequence}, {_PLACE_BITS}) | {place}"


def unless_ruled_out(found: str, order: str, words: str) -> str:
    """SQL for ``found``, which tells whether a delete matches a row; fails if the delete is ruled out for the row's file.

    ``order`` is the delete's, and ``words`` has a bit for each place that is ruled out (null: none is).
    """
    failure = f"CAST(raise_error('{_MARK}') AS boolean)"
    return f"if({found}, if({_is_ruled_out(order, words)}, {failure}, true), false)"


def by_ruled_out(found: str, order: str, words: str) -> str:
    """SQL for whether a row is ``found`` by a delete that is ruled out for its file; see :func:`unless_ruled_out`."""
    return f"{found} AND {_is_ruled_out(order, words)}"


def _is_ruled_out(order: str, words: str) -> str:
    place = f"({order} & {_LAST}L)"
    return f"coalesce(bit_get(get({words}, CAST({place} DIV 64 AS int)), CAST({place} % 64 AS int)) = 1, false)"


@contextlib.contextmanager
def disagreement(files: Callable[[], Sequence[str]] = tuple) -> Iterator[None]:
    """Raise :class:`~icekit.errors.ReadersDisagree` where a query fails by :func:`unless_ruled_out`; ``files`` finds such data files, up to :data:`MOST_FILES`."""
    try:
        yield
    except Exception as error:
        if _MARK not in described(error):
            raise
        paths = files()
        names = ", ".join(paths[:_NAMED]) + (" and more" if len(paths) > _NAMED else "")
        raise ReadersDisagree(
            f"{names or 'A data file'}: rows with the keys of equality deletes that Iceberg's readers do not apply to the file, because the "
            "bounds of a key column in the metadata rule these deletes out. Iceberg's readers show the rows; by the specification they are "
            "deleted. To keep what readers show, rewrite the file with Spark's own rewrite_data_files and rewrite-all."
        ) from error


_NAME = "icekit.RuledOut"
_SOURCE = """
package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.spark.sql.RowFactory;

/** Which deletes that apply by the specification a scan does not list for a data file. */
public class RuledOut {
  private final Table table;

  public RuledOut(Table table) { this.table = table; }

  /** Deletes that one partition shares, in the order of their places. */
  private static class Deletes {
    final List sequences = new ArrayList();
    final Map places = new HashMap();

    void add(String path, long sequence) {
      places.put(path, new Integer(sequences.size()));
      sequences.add(new Long(sequence));
    }

    /** The places of deletes newer than a file that its task does not list; null if it lists all. */
    long[] missing(long sequence, Collection listed) {
      BitSet found = new BitSet();
      for (int i = 0; i < sequences.size(); i++) found.set(i, ((Long) sequences.get(i)).longValue() > sequence);
      for (Iterator each = listed.iterator(); each.hasNext();) {
        Integer place = (Integer) places.get(each.next());
        if (place != null) found.clear(place.intValue());
      }
      return found.isEmpty() ? null : found.toLongArray();
    }
  }

  private static Set locations(FileScanTask task) {
    Set found = new HashSet();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (delete.content() == FileContent.EQUALITY_DELETES) found.add(delete.location());
    }
    return found;
  }

  private static long sequence(ContentFile file) { return file.dataSequenceNumber() == null ? 0L : file.dataSequenceNumber().longValue(); }

  /** For each task of one partition: the ruled-out places in a list of delete files; null if there are none in any task. */
  public static List ofTasks(List tasks, List files) {
    Deletes deletes = new Deletes();
    for (Iterator each = files.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      deletes.add(delete.location(), sequence(delete));
    }
    List found = new ArrayList();
    boolean isAny = false;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      long[] missing = deletes.missing(sequence((DataFile) task.file()), locations(task));
      isAny = isAny || missing != null;
      found.add(missing);
    }
    return isAny ? found : null;
  }

  /**
   * A row for each listed data file for which the scan of a snapshot rules some listed deletes out: its number, and the places of its
   * partition's and of global deletes. Files are given as path, number of the partition (-1 for global deletes) and sequence number, all
   * joined by zeros; deletes of one partition follow one another in the order of their places.
   */
  public List ofScan(long snapshotId, String data, String deletes) throws Exception {
    Map parts = new HashMap(), files = new HashMap();
    String[] all = split(deletes);
    for (int i = 0; i + 2 < all.length; i += 3) {
      if (!parts.containsKey(all[i + 1])) parts.put(all[i + 1], new Deletes());
      ((Deletes) parts.get(all[i + 1])).add(all[i], Long.parseLong(all[i + 2]));
    }
    all = split(data);
    for (int i = 0; i + 2 < all.length; i += 3) {
      // A file may be in the table twice, with two sequence numbers.
      files.put(all[i] + " " + all[i + 2], new String[] {String.valueOf(i / 3), all[i + 1]});
    }
    List found = new ArrayList();
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        DataFile file = (DataFile) task.file();
        String[] known = (String[]) files.get(file.location() + " " + sequence(file));
        if (known == null) continue;
        Set listed = locations(task);
        long[] own = missing(parts, known[1], sequence(file), listed), everywhere = missing(parts, "-1", sequence(file), listed);
        if (own != null || everywhere != null) found.add(RowFactory.create(new Object[] {Integer.valueOf(known[0]), own, everywhere}));
      }
    } finally {
      tasks.close();
    }
    return found;
  }

  private static long[] missing(Map parts, String part, long sequence, Set listed) {
    Deletes deletes = (Deletes) parts.get(part);
    return deletes == null ? null : deletes.missing(sequence, listed);
  }

  private static String[] split(String joined) { return joined.split(String.valueOf((char) 0)); }
}
"""


def scan_of(spark: SparkSession, table: Any) -> Any:
    """The Java object that asks Iceberg's scan of a table (an object of its API)."""
    return compiled(spark._jvm, table, _NAME, _SOURCE, table)


def ruled_out(
    spark: SparkSession, table: Any, snapshot_id: int, data: Sequence[File], deletes: Iterable[tuple[File, int]]
) -> DataFrame | None:
    """The deletes that are ruled out for some of the listed data files, by :data:`FILE`, the file's place in ``data``; None if there are none.

    ``deletes`` have the number of their partition, -1 for global ones; those of one partition follow one another in the order of their places.
    """
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    files = _joined((file, file.part) for file in data)
    rows = scan_of(spark, table).ofScan(snapshot_id, files, _joined(deletes))
    if rows.isEmpty():
        return None
    schema = getattr(jvm, "org.apache.spark.sql.types.StructType").fromDDL(
        f"`{FILE}` int, `{OWN}` array<bigint>, `{EVERYWHERE}` array<bigint>"
    )
    return DataFrame(spark._jsparkSession.createDataFrame(rows, schema), spark)


def _joined(files: Iterable[tuple[File, int]]) -> str:
    return "\0".join(text for file, part in files for text in (file.path, str(part), str(file.sequence)))
