package icekit;

import java.util.*;
import org.apache.iceberg.*;
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

  /** For each task of one partition: the ruled-out places in a list of delete files; null if there are none in any task. */
  public static List ofTasks(List tasks, List files) {
    Deletes deletes = new Deletes();
    for (Iterator each = files.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      deletes.add(delete.location(), ContentFiles.sequence(delete));
    }
    List found = new ArrayList();
    boolean isAny = false;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      long[] missing = deletes.missing(ContentFiles.sequence((DataFile) task.file()), locations(task));
      isAny = isAny || missing != null;
      found.add(missing);
    }
    return isAny ? found : null;
  }

  /**
   * A row for each listed data file for which the scan of a snapshot, or of some of its tasks, rules some listed deletes out: its number, and the
   * places of its partition's and of global deletes. Files are given as path, number of the partition (-1 for global deletes) and sequence number, all
   * joined by zeros; deletes of one partition follow one another in the order of their places.
   */
  public List ofScan(long snapshotId, List some, String data, String deletes) throws Exception {
    Map parts = new HashMap(), files = new HashMap();
    String[] all = ContentFiles.split(deletes);
    for (int i = 0; i + 2 < all.length; i += 3) {
      if (!parts.containsKey(all[i + 1])) parts.put(all[i + 1], new Deletes());
      ((Deletes) parts.get(all[i + 1])).add(all[i], Long.parseLong(all[i + 2]));
    }
    all = ContentFiles.split(data);
    for (int i = 0; i + 2 < all.length; i += 3) {
      // A file may be in the table twice, with two sequence numbers.
      files.put(all[i] + " " + all[i + 2], new String[] {String.valueOf(i / 3), all[i + 1]});
    }
    List found = new ArrayList();
    Iterable tasks = ContentFiles.tasks(table, snapshotId, some);
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        DataFile file = (DataFile) task.file();
        String[] known = (String[]) files.get(file.location() + " " + ContentFiles.sequence(file));
        if (known == null) continue;
        Set listed = locations(task);
        long[] own = missing(parts, known[1], ContentFiles.sequence(file), listed), everywhere = missing(parts, "-1", ContentFiles.sequence(file), listed);
        if (own != null || everywhere != null) found.add(RowFactory.create(new Object[] {Integer.valueOf(known[0]), own, everywhere}));
      }
    } finally {
      ContentFiles.close(tasks);
    }
    return found;
  }

  private static long[] missing(Map parts, String part, long sequence, Set listed) {
    Deletes deletes = (Deletes) parts.get(part);
    return deletes == null ? null : deletes.missing(sequence, listed);
  }
}
