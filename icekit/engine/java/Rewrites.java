package icekit;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.actions.RewriteFileGroup;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionSet;

/**
 * The groups of a rewrite of data files: which files they take, and how many they leave. A rewrite that keeps the order of rows reads a group in
 * tasks of neighbours ({@link Splits}), and each task writes one file. {@link #splitSize} decides both the tasks of the rewrite and their prediction.
 */
public class Rewrites {
  private static final ObjectMapper JSON = new ObjectMapper();
  /** Larger than any group, so that it is read in one task. */
  public static final long ONE_TASK = 1L << 50;
  /** A split may grow to this multiple of its size, where most of its rows are deleted. */
  private static final double MOST_GROWTH = 32;
  /** What a writer holds at least before it ends a file, and the ids of a row, before compression. */
  private static final double IN_MEMORY = 64 << 20, ROW_IDS = 16;

  private final Table table;
  private final Staging staging;

  public Rewrites(Table table) {
    this.table = table;
    this.staging = new Staging(table);
  }

  /** The groups of a plan in a list. With {@code staysInSpec} without those whose files are all of other specs than the current one. */
  public List groups(Iterable planned, boolean staysInSpec) {
    List all = new ArrayList(), own = new ArrayList();
    boolean isMixed = false;
    for (Iterator each = planned.iterator(); each.hasNext();) {
      RewriteFileGroup group = (RewriteFileGroup) each.next();
      all.add(group);
      int moving = moving(group);
      if (moving < group.inputFileNum()) own.add(group);
      isMixed = isMixed || (moving > 0 && moving < group.inputFileNum());
    }
    // Iceberg puts files of other specs beside those whose partition values are all null; it takes them together.
    return staysInSpec && !isMixed ? own : all;
  }

  /** The files of a group that are of another spec than the new files. */
  static int moving(RewriteFileGroup group) {
    int found = 0;
    for (Iterator each = group.fileScanTasks().iterator(); each.hasNext();) {
      if (((DataFile) ((FileScanTask) each.next()).file()).specId() != group.outputSpecId()) found++;
    }
    return found;
  }

  /** The share of the rows of some tasks that deletes of single data files leave, at least. */
  public double liveShare(Collection tasks) {
    double rows = 0, live = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      long records = ((DataFile) task.file()).recordCount();
      rows += records;
      live += Math.max(0, records - deleted(task, false));
    }
    return rows == 0 ? 1 : Math.max(live / rows, 1 / MOST_GROWTH);
  }

  /** The positions in the deletes of a task that name its file; a vector has each once. */
  private static long deleted(FileScanTask task, boolean isOnlyVectors) {
    long found = 0;
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (isVector(delete) || (!isOnlyVectors && isScoped(delete))) found += delete.recordCount();
    }
    return found;
  }

  private static boolean isVector(DeleteFile delete) { return delete.format() == FileFormat.PUFFIN; }

  private static boolean isScoped(DeleteFile delete) {
    return delete.content() == FileContent.POSITION_DELETES && ContentFileUtil.referencedDataFileLocation(delete) != null;
  }

  /**
   * The bytes of a split of some tasks of a group whose rows become one file, if such a share of its rows lives: with those, neighbours become no
   * more files than the group's bytes come to, if any size does that.
   */
  public long splitSize(RewriteFileGroup group, List tasks, double share) {
    if (group.expectedOutputFiles() == 1) return ONE_TASK;
    double growth = staging.weight(tasks) / share;
    long least = (long) Math.min(group.inputSplitSize() * growth, (double) ONE_TASK);
    long most = (long) Math.min(Splits.most(group) * growth, (double) ONE_TASK);
    return Splits.size(tasks, least, most, (int) Math.max(1, Math.ceil(group.expectedOutputFiles() * share)));
  }

  /** The tasks that Spark reads a group in. */
  private List packed(List tasks, long splitSize) { return Splits.of(tasks, splitSize); }

  /** The old files, or their parts, of each task of a group: its rows become a file, unless deletes leave none. */
  List parts(RewriteFileGroup group) {
    List tasks = staging.plain(group.fileScanTasks());
    List found = new ArrayList();
    for (Iterator each = packed(tasks, splitSize(group, tasks, liveShare(tasks))).iterator(); each.hasNext();) {
      Collection together = ((ScanTaskGroup) each.next()).tasks();
      if (rows(together) != NONE) found.add(new ArrayList(together));
    }
    return found;
  }

  /** Whether no task of a group becomes larger than the largest file to be written, if such a share of its rows lives. */
  public boolean isOneFileEach(RewriteFileGroup group, List tasks, double share) {
    for (Iterator each = packed(tasks, splitSize(group, tasks, share)).iterator(); each.hasNext();) {
      if (files(group, ((ScanTaskGroup) each.next()).tasks(), share) > 1) return false;
    }
    return true;
  }

  private static long files(RewriteFileGroup group, Collection tasks, double share) {
    double rows = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      rows += task.length() - lastFooter(task);
    }
    return Math.max(1, (long) Math.ceil(rows * share / group.maxOutputFileSize()));
  }

  /**
   * The bytes of a file with the rows of some tasks. Its footer, which a writer ends no file for, grows with its row groups; the last part of an old
   * file has the whole footer.
   */
  private static double fileSize(Collection tasks, double share) {
    double bytes = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      List offsets = file.splitOffsets();
      bytes += task.length() - lastFooter(task);
      if (offsets != null && !offsets.isEmpty()) bytes += (double) footer(file) * rowGroups(task, offsets) / offsets.size();
    }
    return bytes * share;
  }

  /** The most bytes of the row ids that a new file gets, and its old ones may not have (format version 3). */
  private static double rowIds(Collection tasks, double share) {
    double bytes = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      if (((DataFile) task.file()).firstRowId() != null) bytes += ROW_IDS * task.estimatedRowsCount();
    }
    return bytes * share;
  }

  /** About the bytes of a file's footer: by what its last row group seems to be larger than the largest of the others. */
  private static long footer(DataFile file) {
    List offsets = file.splitOffsets();
    if (offsets == null || offsets.size() < 2) return 0;
    long largest = 0;
    for (int i = 1; i < offsets.size(); i++) largest = Math.max(largest, offset(offsets, i) - offset(offsets, i - 1));
    return Math.max(0, file.fileSizeInBytes() - offset(offsets, offsets.size() - 1) - largest);
  }

  /** The bytes of the footer in a part of a file. */
  private static long lastFooter(FileScanTask task) {
    DataFile file = (DataFile) task.file();
    return task.start() + task.length() >= file.fileSizeInBytes() ? footer(file) : 0;
  }

  private static int rowGroups(FileScanTask task, List offsets) {
    int found = 0;
    for (int i = 0; i < offsets.size(); i++) if (offset(offsets, i) >= task.start() && offset(offsets, i) < task.start() + task.length()) found++;
    return found;
  }

  private static long offset(List offsets, int i) { return ((Long) offsets.get(i)).longValue(); }

  /** What is known of the rows that a task has after deletes. */
  private static final int NONE = 0, MAYBE = 1, SOME = 2;

  private static int rows(Collection tasks) {
    int found = NONE;
    for (Iterator each = tasks.iterator(); each.hasNext() && found != SOME;) found = Math.max(found, rows((FileScanTask) each.next()));
    return found;
  }

  private static int rows(FileScanTask task) {
    DataFile file = (DataFile) task.file();
    long records = file.recordCount();
    if (records == 0 || deleted(task, true) >= records) return NONE;
    // A part of a file begins at its first row group.
    List offsets = file.splitOffsets();
    long header = offsets == null || offsets.isEmpty() ? 0 : ((Long) offsets.get(0)).longValue();
    boolean isWhole = task.length() >= file.fileSizeInBytes() - header;
    // Without offsets a part of a file may hold no row group.
    if (task.deletes().isEmpty()) return isWhole || offsets != null ? SOME : MAYBE;
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (!isVector(delete) && !isScoped(delete)) return MAYBE;
    }
    return isWhole && deleted(task, false) < records ? SOME : MAYBE;
  }

  /** The files that a rewrite takes from one spec and puts into another, and their partitions. */
  private static class Moved {
    final Set partitions;
    final long[] sums = new long[3];

    Moved(Set partitions) { this.partitions = partitions; }
  }

  /**
   * What the groups take and leave, as JSON. Files that stay in their partitions are counted as {@code written}: exactly, unless {@code is_upper_bound}
   * (fewer come where deletes leave a task no row) or {@code is_estimate} (rows are sorted, or a file may become larger than it should be). Those that
   * move to another spec are {@code moved}: of each spec its partitions, files, bytes and rows. {@code scoped_deletes} are the delete files that
   * name one data file of the groups. {@code oversized_in} and {@code oversized_out} are files larger than the limit, before and after.
   */
  public String rolledUp(List groups, boolean keepsOrder, long limit) throws Exception {
    long files = 0, bytes = 0, records = 0, written = 0, largest = 0, scoped = 0, maxFile = 0, oversizedIn = 0, oversizedOut = 0;
    boolean isMost = false, isAbout = false;
    SortedMap moved = new TreeMap();
    for (Iterator each = groups.iterator(); each.hasNext();) {
      RewriteFileGroup group = (RewriteFileGroup) each.next();
      List tasks = group.fileScanTasks();
      files += group.inputFileNum();
      bytes += group.inputFilesSizeInBytes();
      records += staging.records(tasks);
      largest = Math.max(largest, group.inputFilesSizeInBytes());
      maxFile = Math.max(maxFile, group.maxOutputFileSize());
      boolean hasEquality = false;
      for (Iterator of = tasks.iterator(); of.hasNext();) {
        FileScanTask task = (FileScanTask) of.next();
        if (task.file().fileSizeInBytes() > limit) oversizedIn++;
        for (Iterator over = task.deletes().iterator(); over.hasNext();) {
          DeleteFile delete = (DeleteFile) over.next();
          if (isVector(delete) || isScoped(delete)) scoped++;
          hasEquality = hasEquality || delete.content() == FileContent.EQUALITY_DELETES;
        }
      }
      if (moving(group) > 0) {
        move(tasks, moved);
        continue;
      }
      if (!keepsOrder) {
        written += group.expectedOutputFiles();
        isAbout = true;
        continue;
      }
      long least = 0, most = 0;
      List plain = hasEquality ? staging.plain(tasks) : tasks;
      double share = liveShare(tasks);
      for (Iterator of = packed(plain, splitSize(group, plain, share)).iterator(); of.hasNext();) {
        Collection together = ((ScanTaskGroup) of.next()).tasks();
        int rows = rows(together);
        if (rows == NONE) continue;
        long number = files(group, together, share);
        double size = fileSize(together, share) / number;
        double mostBytes = size + rowIds(together, share) / number;
        isAbout = isAbout || number > 1 || mostBytes > Math.min(limit, group.maxOutputFileSize() + IN_MEMORY);
        if (size > limit) oversizedOut += number;
        most += number;
        least += rows == SOME && !hasEquality ? number : 0;
      }
      // Spark may write as many files as the planner expects; a reader of deletes packs by their bytes, too.
      if (hasEquality) most = Math.max(most, Math.max(group.expectedOutputFiles(), packed(tasks, splitSize(group, tasks, 1)).size()));
      isMost = isMost || least < most;
      written += most;
    }
    Map found = new LinkedHashMap();
    found.put("groups", new Integer(groups.size()));
    found.put("files_in", new Long(files));
    found.put("bytes_in", new Long(bytes));
    found.put("rows_in", new Long(records));
    found.put("written", new Long(written));
    found.put("is_upper_bound", Boolean.valueOf(isMost));
    found.put("is_estimate", Boolean.valueOf(isAbout));
    found.put("scoped_deletes", new Long(scoped));
    found.put("oversized_in", new Long(oversizedIn));
    found.put("oversized_out", new Long(oversizedOut));
    found.put("largest_group_bytes", new Long(largest));
    found.put("max_file_bytes", new Long(maxFile));
    List rows = new ArrayList();
    for (Iterator each = moved.entrySet().iterator(); each.hasNext();) {
      Map.Entry entry = (Map.Entry) each.next();
      Moved of = (Moved) entry.getValue();
      rows.add(new Object[] {entry.getKey(), new Integer(of.partitions.size()), new Long(of.sums[0]), new Long(of.sums[1]), new Long(of.sums[2])});
    }
    found.put("moved", rows);
    return JSON.writeValueAsString(found);
  }

  private void move(List tasks, Map moved) {
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      DataFile file = (DataFile) ((FileScanTask) each.next()).file();
      Integer specId = new Integer(file.specId());
      if (!moved.containsKey(specId)) moved.put(specId, new Moved(PartitionSet.create(table.specs())));
      Moved of = (Moved) moved.get(specId);
      ((PartitionSet) of.partitions).add(file.specId(), file.partition());
      of.sums[0]++;
      of.sums[1] += file.fileSizeInBytes();
      of.sums[2] += file.recordCount();
    }
  }
}
