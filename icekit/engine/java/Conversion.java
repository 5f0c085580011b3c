package icekit;

import java.util.*;
import java.util.function.LongConsumer;
import org.apache.iceberg.*;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionSet;
import org.apache.spark.sql.catalyst.expressions.XXH64;

/** A commit that adds delete files, each for one data file, and removes others. */
public class Conversion {
  /** Deletes by position that are read for the data files of new deletion vectors: each of these reads all that apply to it. */
  private static final int MOST_OPENS = 10000;

  private final Staging staging;
  private final Table table;
  private final List added;
  private final List removed;
  /** What identifies the removed files. */
  private final Set gone = new HashSet();
  /** The equality deletes that are converted, by path: number of the partition (-1 for all) and sequence number. */
  private final Map deletes = new HashMap();
  /** The new delete files, by the path of their data file, and what Iceberg deletes there by position. */
  private final Map own = new HashMap();
  private final Map earlier = new HashMap();
  private int opens = 0;

  /** {@code deletes}: path, number of the partition and sequence number of each equality delete, all joined by zeros. */
  public Conversion(Staging staging, List added, List removed, String deletes) {
    this.staging = staging;
    this.table = staging.table;
    this.added = added;
    this.removed = removed;
    for (Iterator each = removed.iterator(); each.hasNext();) gone.add(ContentFiles.key((DeleteFile) each.next()));
    for (Iterator each = added.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      own.put(delete.referencedDataFile(), delete);
    }
    String[] all = ContentFiles.split(deletes);
    for (int i = 0; i + 2 < all.length; i += 3) this.deletes.put(all[i], all[i + 1] + " " + all[i + 2]);
  }

  /** A delete file that the commit would remove and should not, or would not remove and should; null if there is none. The last commit removes the equality deletes. */
  public String wrong(boolean isLast) {
    Set expected = new HashSet(isLast ? deletes.keySet() : Collections.EMPTY_SET);
    for (Iterator each = removed.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      boolean isRight;
      if (delete.content() == FileContent.EQUALITY_DELETES) {
        isRight = expected.remove(delete.location());
      } else {
        // A position delete file replaces no other.
        DeleteFile instead = (DeleteFile) own.get(ContentFileUtil.referencedDataFileLocation(delete));
        isRight = instead != null && ContentFiles.isVector(instead);
      }
      if (!isRight) return delete.location();
    }
    return expected.isEmpty() ? null : (String) expected.iterator().next();
  }

  /** What Iceberg reads from each {@code step}-th new delete file: the number of positions, the sum of their hashes and the data file; each followed by a zero. */
  public String positions(int first, int step) {
    StringBuilder found = new StringBuilder();
    for (int i = first; i < added.size(); i += step) {
      DeleteFile delete = (DeleteFile) added.get(i);
      String path = delete.referencedDataFile();
      found.append(summed(Collections.singletonList(delete), path)).append(' ').append(path).append((char) 0);
    }
    return found.toString();
  }

  /** The data files that the new delete files are for, by their metadata, joined by zeros. */
  public String referenced() {
    StringBuilder found = new StringBuilder();
    for (int i = 0; i < added.size(); i++) {
      if (i > 0) found.append((char) 0);
      found.append(((DeleteFile) added.get(i)).referencedDataFile());
    }
    return found.toString();
  }

  private String summed(List positionDeletes, String path) {
    PositionDeleteIndex index = Staging.positions(table, positionDeletes, path);
    final long[] sums = new long[2];
    index.forEach(new LongConsumer() {
      public void accept(long position) {
        sums[0]++;
        sums[1] += hash(position);
      }
    });
    return sums[0] + " " + sums[1];
  }

  /** The hash that icekit.rows.proof.fingerprint.row_hash gives a row of one position. */
  private static long hash(long position) {
    return XXH64.hashLong(position, XXH64.hashInt(0, 42L));
  }

  /**
   * Compare the listing of a conversion with how Iceberg itself plans a scan of its snapshot, or with {@code some} of its tasks. Data files are given as path, number of the partition,
   * sequence number, all joined by zeros. The result has what is wrong, as {@code unlisted}, {@code mismatched}, {@code misplaced} or {@code unplanned}
   * with a data file, and {@code kept} with a delete file that a new deletion vector has to replace and the commit does not remove;
   * {@code earlier}: a line for each new delete file: what the deletes by position say that apply to its data file, if it is a vector ("?" after so
   * many opens); and {@code chosen}: some tasks, as {@link Staging#some} chooses them, and one to which a new delete file belongs.
   */
  public Map planned(long snapshotId, List some, String data, int place, int slices, int count, long most, long seed) throws Exception {
    Map listed = listed(data), result = new HashMap(), missing = new HashMap(own);
    Staging.Sample sample = new Staging.Sample(count, most, seed), hits = new Staging.Sample(1, most, seed);
    Iterable tasks = ContentFiles.tasks(table, snapshotId, some);
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        String path = ((DataFile) task.file()).location();
        Set known = (Set) listed.get(path);
        // The bounds of a listed file may rule all deletes out.
        if (!isApplied(task) && known == null) continue;
        if (known != null && !isListed(task, known)) result.put("mismatched", path);
        if (ContentFiles.slice(path, slices) != place) continue;
        if (known == null) result.put("unlisted", path);
        DeleteFile hit = (DeleteFile) missing.remove(path);
        if (hit != null) compare(task, hit, result);
        if (!areOthersReadable(task)) continue;
        sample.offer(task, true);
        if (hit != null) hits.offer(task, true);
      }
    } finally {
      ContentFiles.close(tasks);
    }
    if (!missing.isEmpty()) result.put("unplanned", missing.keySet().iterator().next());
    StringBuilder lines = new StringBuilder();
    for (Iterator each = added.iterator(); each.hasNext();) lines.append(earlier.get(((DeleteFile) each.next()).referencedDataFile())).append((char) 10);
    result.put("earlier", lines.toString());
    List chosen = sample.tasks();
    for (Iterator each = hits.random().iterator(); each.hasNext();) {
      Object task = each.next();
      if (!chosen.contains(task)) chosen.add(task);
    }
    result.put("chosen", chosen);
    return result;
  }

  /** The partitions and sequence numbers of listed data files, by path: a file may be in the table twice. */
  private static Map listed(String data) {
    Map found = new HashMap();
    String[] all = ContentFiles.split(data);
    for (int i = 0; i + 2 < all.length; i += 3) {
      if (!found.containsKey(all[i])) found.put(all[i], new HashSet());
      ((Set) found.get(all[i])).add(all[i + 1] + " " + all[i + 2]);
    }
    return found;
  }

  private boolean isApplied(FileScanTask task) {
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      if (deletes.containsKey(((DeleteFile) its.next()).location())) return true;
    }
    return false;
  }

  /** Whether Iceberg applies the equality deletes to a listed file as the listing does: of the same partition, and newer than the file. */
  private boolean isListed(FileScanTask task, Set known) {
    long number = ContentFiles.sequence((DataFile) task.file());
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      String said = (String) deletes.get(delete.location());
      if (said == null) continue;
      if (!said.endsWith(" " + ContentFiles.sequence(delete)) || ContentFiles.sequence(delete) <= number) return false;
      boolean isThere = false;
      for (Iterator ones = known.iterator(); ones.hasNext();) {
        String one = (String) ones.next();
        String part = one.substring(0, one.indexOf(' ') + 1);
        isThere = isThere || (one.equals(part + number) && (said.startsWith("-1 ") || said.startsWith(part)));
      }
      if (!isThere) return false;
    }
    return true;
  }

  /** Compare a new delete file with the deletes by position that Iceberg applies to its data file. */
  private void compare(FileScanTask task, DeleteFile hit, Map result) {
    DataFile file = (DataFile) task.file();
    PartitionSet parts = PartitionSet.create(table.specs());
    parts.add(file.specId(), file.partition());
    if (!parts.contains(hit.specId(), hit.partition())) result.put("misplaced", file.location());
    List before = ContentFiles.isVector(hit) ? ContentFiles.positionDeletes(task) : Collections.EMPTY_LIST;
    for (Iterator its = before.iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      if (ContentFileUtil.referencedDataFileLocation(delete) != null && !gone.contains(ContentFiles.key(delete))) result.put("kept", delete.location());
    }
    opens += before.size();
    earlier.put(file.location(), before.isEmpty() ? "0 0" : opens > MOST_OPENS ? "?" : summed(before, file.location()));
  }

  /** Whether the key columns of the equality deletes that stay are in the schema: before 1.12, Iceberg's reader fails at others. */
  private boolean areOthersReadable(FileScanTask task) {
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      if (delete.content() != FileContent.EQUALITY_DELETES || deletes.containsKey(delete.location())) continue;
      for (Iterator ids = delete.equalityFieldIds().iterator(); ids.hasNext();) {
        if (table.schema().findField(((Integer) ids.next()).intValue()) == null) return false;
      }
    }
    return true;
  }

  /** The tasks as they would be after the last commit of the conversion. */
  public List changed(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      DeleteFile more = (DeleteFile) own.get(file.location());
      // A reader that finds a deletion vector ignores other deletes by position.
      boolean isReplaced = more != null && ContentFiles.isVector(more);
      List kept = new ArrayList();
      for (Iterator its = task.deletes().iterator(); its.hasNext();) {
        DeleteFile delete = (DeleteFile) its.next();
        if (!(delete.content() == FileContent.EQUALITY_DELETES ? deletes.containsKey(delete.location()) : isReplaced)) kept.add(delete);
      }
      if (more != null) kept.add(more);
      found.add(staging.task(file, kept));
    }
    return found;
  }
}
