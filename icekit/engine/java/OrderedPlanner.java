package icekit;

import java.lang.reflect.Field;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.actions.BinPackRewriteFilePlanner;
import org.apache.iceberg.actions.RewriteFileGroup;
import org.apache.iceberg.actions.SizeBasedFileRewritePlanner;
import org.apache.iceberg.expressions.Expression;

/**
 * Iceberg's planner of a rewrite, which takes the files of each partition in the order of their values in one column.
 *
 * Iceberg's own takes them as the manifests are read, by several threads, so that a group, a task and a new file hold files from anywhere in
 * the range of a column: after it, a filter opens all files that come of a table where it opened one. Here neighbours stay together, so
 * that a new file covers a part of the range. Only files are ordered, no rows: this costs nothing.
 */
public class OrderedPlanner extends BinPackRewriteFilePlanner {
  private final FileRanges files;
  private final boolean isOrdered;
  private final int columns;

  /** Orders by a column, unless that is null; {@link #ranges} gives the ranges in others. */
  public OrderedPlanner(Table table, Expression filter, Snapshot snapshot, Boolean isCaseSensitive, String column, List others) {
    this(new FileRanges(table, names(column, others)), filter, snapshot, isCaseSensitive, column != null, others.size());
  }

  private OrderedPlanner(
      FileRanges files, Expression filter, Snapshot snapshot, Boolean isCaseSensitive, boolean isOrdered, int columns) {
    super(files.table(), filter, new Long(snapshot.snapshotId()), isCaseSensitive.booleanValue());
    this.files = files;
    this.isOrdered = isOrdered;
    this.columns = columns;
  }

  private static List names(String column, List others) {
    List names = new ArrayList(others);
    if (column != null) names.add(column);
    return names;
  }

  /** The largest file that is of the right size, after {@code init}; no method gives it. */
  public long maxFileSize() throws Exception {
    Field field = SizeBasedFileRewritePlanner.class.getDeclaredField("maxFileSize");
    field.setAccessible(true);
    return field.getLong(this);
  }

  protected Iterable planFileGroups(Iterable tasks) { return super.planFileGroups(isOrdered ? sorted(tasks) : tasks); }

  private List sorted(Iterable tasks) {
    // The last of the columns.
    final Comparator values = files.comparator(columns);
    List keyed = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      keyed.add(new Keyed(task, files.of(task, columns)));
    }
    Collections.sort(keyed, new Comparator() {
      public int compare(Object one, Object other) { return ((Keyed) one).compare((Keyed) other, values); }
    });
    List found = new ArrayList(keyed.size());
    for (Iterator each = keyed.iterator(); each.hasNext();) found.add(((Keyed) each.next()).task);
    return found;
  }

  /** A file by the middle of its range: one late row, far below the others, does not move it to the front. Values without a middle go by their ends. */
  private static class Keyed {
    final FileScanTask task;
    private final Object low;
    private final Object high;
    private final double middle;

    Keyed(FileScanTask task, Object[] range) {
      this.task = task;
      this.low = range == null ? null : range[0];
      this.high = range == null ? null : range[1];
      this.middle = low instanceof Number ? ((Number) low).doubleValue() / 2 + ((Number) high).doubleValue() / 2 : 0;
    }

    /** Files without a range come last, and keep their order. */
    int compare(Keyed other, Comparator values) {
      if (low == null || other.low == null) return (low == null ? 1 : 0) - (other.low == null ? 1 : 0);
      int order = Double.compare(middle, other.middle);
      if (order == 0) order = values.compare(low, other.low);
      return order == 0 ? values.compare(high, other.high) : order;
    }
  }

  /**
   * The ranges in the other columns, as JSON: of some of the files that the groups take, and of some of the files that come of them; and how
   * many of both there are. A file is a list: its rows, then its range in each column, as {@link FileRanges#together} writes it. Groups
   * whose files move to another spec are left out: nobody knows where their rows go.
   */
  public String ranges(Rewrites rewrites, List groups, int most) {
    Sample before = new Sample(most);
    Sample after = new Sample(most);
    for (Iterator each = groups.iterator(); each.hasNext();) {
      RewriteFileGroup group = (RewriteFileGroup) each.next();
      if (Rewrites.moving(group) > 0) continue;
      for (Iterator tasks = group.fileScanTasks().iterator(); tasks.hasNext();) before.offer(Collections.singletonList(tasks.next()));
      for (Iterator parts = rewrites.parts(group).iterator(); parts.hasNext();) after.offer(parts.next());
    }
    return "{\"before\": " + json(before.chosen) + ", \"after\": " + json(after.chosen)
        + ", \"files_before\": " + before.seen + ", \"files_after\": " + after.seen + "}";
  }

  /** Some of what it is offered, each as likely as any other. */
  private static class Sample {
    final List chosen = new ArrayList();
    int seen = 0;
    private final int most;
    private final Random random = new Random(7);

    Sample(int most) { this.most = most; }

    void offer(Object one) {
      int spot = seen < most ? seen : random.nextInt(seen + 1);
      if (seen < most) chosen.add(one);
      else if (spot < most) chosen.set(spot, one);
      seen++;
    }
  }

  private String json(List sample) {
    StringBuilder text = new StringBuilder("[");
    for (Iterator each = sample.iterator(); each.hasNext();) {
      List tasks = (List) each.next();
      long rows = 0;
      for (Iterator parts = tasks.iterator(); parts.hasNext();) rows += ((FileScanTask) parts.next()).estimatedRowsCount();
      text.append(text.length() > 1 ? ", [" : "[").append(rows);
      for (int i = 0; i < columns; i++) {
        String range = files.together(tasks, i);
        text.append(range == null ? ", null" : ", \"" + range + "\"");
      }
      text.append("]");
    }
    return text.append("]").toString();
  }
}
