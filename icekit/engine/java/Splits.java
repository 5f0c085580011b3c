package icekit;

import java.util.List;
import org.apache.iceberg.actions.RewriteFileGroup;
import org.apache.iceberg.util.TableScanUtil;

/** How the files of a group become tasks, each of which writes a file: as Iceberg packs them, but only neighbours together. */
final class Splits {
  /** The bins that are open as files are packed: with one, each task has the files that follow each other. */
  private static final int LOOKBACK = 1;
  // A choice: a writer begins another file at 86 to 97 percent of the size that it is given, so a larger task may write two.
  private static final double FULL = 0.86;
  private static final int STEPS = 12;

  private Splits() {}

  static List of(List tasks, long size) { return TableScanUtil.planTaskGroups(tasks, size, LOOKBACK, 0L); }

  /** The largest size of a task of a group that certainly becomes one file. */
  static long most(RewriteFileGroup group) {
    return Math.max(group.inputSplitSize(), (long) (FULL * group.maxOutputFileSize()));
  }

  /** The smallest size of a split, between two, with which the tasks are no more than the files that are wanted; the larger one if none does. */
  static long size(List tasks, long least, long most, int files) {
    if (most <= least || of(tasks, least).size() <= files) return least;
    if (of(tasks, most).size() > files) return most;
    long low = least;
    long high = most;
    for (int i = 0; i < STEPS; i++) {
      long middle = low + (high - low) / 2;
      if (of(tasks, middle).size() <= files) high = middle;
      else low = middle;
    }
    return high;
  }
}
