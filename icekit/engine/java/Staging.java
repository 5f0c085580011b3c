package icekit;

import java.util.*;
import java.lang.reflect.*;
import java.util.function.Function;
import org.apache.iceberg.*;
import org.apache.iceberg.actions.*;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.expressions.*;
import org.apache.iceberg.io.FileInfo;
import org.apache.iceberg.io.SupportsPrefixOperations;
import org.apache.iceberg.spark.*;
import org.apache.iceberg.util.*;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.RowFactory;

/** Scan tasks of one table, which Spark reads and writes by the name under which they are staged. */
public class Staging {
  public final Table table;
  private final String schema;
  private final ResidualEvaluator all = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());

  public Staging(Table table) {
    this.table = table;
    this.schema = SchemaParser.toJson(table.schema());
  }

  public FileScanTask task(DataFile file, List deletes) {
    return task(file, deletes, ContentFiles.spec(table, file));
  }

  private FileScanTask task(DataFile file, List deletes, PartitionSpec spec) {
    DeleteFile[] given = (DeleteFile[]) deletes.toArray(new DeleteFile[deletes.size()]);
    return new BaseFileScanTask(file, given, schema, PartitionSpecParser.toJson(spec), all);
  }

  /** A spec without fields; its id is the number of a file, which Spark then reads as _spec_id. */
  private PartitionSpec numbered(int number) {
    String none = PartitionSpecParser.toJson(PartitionSpec.unpartitioned());
    return PartitionSpecParser.fromJson(table.schema(), none.replaceFirst("spec-id.:[0-9]+", "spec-id\":" + number));
  }

  /** The tasks without their equality deletes; position deletes and deletion vectors stay. */
  public List plain(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      List kept = new ArrayList();
      for (Iterator deletes = task.deletes().iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (delete.content() != FileContent.EQUALITY_DELETES) kept.add(delete);
      }
      found.add(task((DataFile) task.file(), kept));
    }
    return found;
  }

  /** The equality deletes of the tasks by the field ids of their key: each once, but one that is in the table with two sequence numbers twice. */
  public Map deletes(List tasks) {
    Map found = new TreeMap();
    Set seen = new HashSet();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      for (Iterator deletes = ((FileScanTask) each.next()).deletes().iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (delete.content() != FileContent.EQUALITY_DELETES || !seen.add(delete.location() + " " + ContentFiles.sequence(delete))) continue;
        String key = new TreeSet(delete.equalityFieldIds()).toString();
        if (!found.containsKey(key)) found.put(key, new ArrayList());
        ((List) found.get(key)).add(delete);
      }
    }
    return found;
  }

  /** The tasks that have equality deletes. */
  public List underEqualityDeletes(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      Object task = each.next();
      if (!deletes(Collections.singletonList(task)).isEmpty()) found.add(task);
    }
    return found;
  }

  /** Tasks that read delete files as if they were data files of no partition: as Iceberg does, all columns come from the file. */
  public List asData(List deletes) {
    List found = new ArrayList();
    for (Iterator each = deletes.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      PartitionSpec none = numbered(found.size());
      found.add(task(ContentFiles.asData(delete, none).build(), Collections.EMPTY_LIST, none));
    }
    return found;
  }

  /** Tasks that read data files which no snapshot has yet. */
  public List ofNew(Collection files) throws Exception {
    List found = new ArrayList();
    for (Iterator each = files.iterator(); each.hasNext();) {
      DataFile file = (DataFile) ((DataFile) each.next()).copyWithoutStats();
      // A reader takes the row lineage that a file holds only if it knows what to put where the file holds none.
      set(file, "setFirstRowId");
      set(file, "setDataSequenceNumber");
      // Iceberg 1.11 puts this one there.
      set(file, "setFileSequenceNumber");
      found.add(task(file, Collections.EMPTY_LIST));
    }
    return found;
  }

  private static void set(DataFile file, String name) throws Exception {
    java.lang.reflect.Method method = file.getClass().getMethod(name, new Class[] {Long.class});
    method.setAccessible(true);
    method.invoke(file, new Object[] {new Long(0L)});
  }

  /** Whether all rows have an id: those of an upgraded table get theirs with the next commit. */
  public boolean haveRowIds(List tasks) {
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      if (((DataFile) ((FileScanTask) each.next()).file()).firstRowId() == null) return false;
    }
    return true;
  }

  /** A row for each file: path and data sequence number. */
  public List rows(Collection files) {
    List found = new ArrayList();
    for (Iterator each = files.iterator(); each.hasNext();) {
      ContentFile file = file(each.next());
      found.add(RowFactory.create(new Object[] {file.location(), new Long(ContentFiles.sequence(file))}));
    }
    return found;
  }

  /** Whether all tasks are of one partition of a spec. */
  public boolean areOf(List tasks, int specId) {
    PartitionSet parts = PartitionSet.create(table.specs());
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      DataFile file = (DataFile) ((FileScanTask) each.next()).file();
      parts.add(file.specId(), file.partition());
      if (file.specId() != specId || parts.size() > 1) return false;
    }
    return true;
  }

  /** The tasks of each partition. */
  public List byPartition(List tasks) {
    PartitionMap found = PartitionMap.create(table.specs());
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      if (found.get(file.specId(), file.partition()) == null) found.put(file.specId(), file.partition(), new ArrayList());
      ((List) found.get(file.specId(), file.partition())).add(task);
    }
    return new ArrayList(found.values());
  }

  /** The records of those files that are in the partition of a task. */
  public long recordsBeside(Collection files, FileScanTask task) {
    PartitionSet parts = PartitionSet.create(table.specs());
    parts.add(((DataFile) task.file()).specId(), ((DataFile) task.file()).partition());
    long records = 0;
    for (Iterator each = files.iterator(); each.hasNext();) {
      DataFile file = (DataFile) each.next();
      if (parts.contains(file.specId(), file.partition())) records += file.recordCount();
    }
    return records;
  }

  /** The rows of new files that were in the files of other partitions before; at least so many, where deletes took some. */
  public long misplaced(Collection added, Collection tasks) {
    PartitionMap rows = PartitionMap.create(table.specs());
    for (Iterator each = added.iterator(); each.hasNext();) count(rows, (ContentFile) each.next(), 1);
    for (Iterator each = tasks.iterator(); each.hasNext();) count(rows, (ContentFile) ((FileScanTask) each.next()).file(), -1);
    long found = 0;
    for (Iterator each = rows.values().iterator(); each.hasNext();) found += Math.max(0, ((Long) each.next()).longValue());
    return found;
  }

  private static void count(PartitionMap rows, ContentFile file, int sign) {
    Long before = (Long) rows.get(file.specId(), file.partition());
    long now = (before == null ? 0 : before.longValue()) + sign * file.recordCount();
    rows.put(file.specId(), file.partition(), new Long(now));
  }

  /** How many different paths files, or those of tasks, have. */
  public int paths(Collection files) {
    Set found = new HashSet();
    for (Iterator each = files.iterator(); each.hasNext();) found.add(file(each.next()).location());
    return found.size();
  }

  private static ContentFile file(Object fileOrTask) {
    return fileOrTask instanceof FileScanTask ? (ContentFile) ((FileScanTask) fileOrTask).file() : (ContentFile) fileOrTask;
  }

  /** What Iceberg reads from delete files as the positions that they delete in a data file. */
  static PositionDeleteIndex positions(final Table table, List positionDeletes, String path) {
    return new BaseDeleteLoader(new Function() {
      public Object apply(Object file) { return table.io().newInputFile((DeleteFile) file); }
    }).loadPositionDeletes(positionDeletes, path);
  }

  /** The deletes by position that tasks apply to the data files of these paths, joined by zeros: in turn a path and a deletion vector. */
  public List vectors(List tasks, String paths) {
    Set given = new HashSet(Arrays.asList(ContentFiles.split(paths)));
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      String path = ((DataFile) task.file()).location();
      List applied = ContentFiles.positionDeletes(task);
      if (applied.isEmpty() || !given.contains(path)) continue;
      PositionDeleteIndex index = positions(table, applied, path);
      if (index.isEmpty()) continue;
      found.add(path);
      found.add(ByteBuffers.toByteArray(index.serialize()));
    }
    return found;
  }

  public long records(Collection files) {
    long found = 0;
    for (Iterator each = files.iterator(); each.hasNext();) found += file(each.next()).recordCount();
    return found;
  }

  /**
   * By how many times their files the tasks are split as too large: the bytes of a delete file count for each row group of each file that
   * it applies to.
   */
  public double weight(Collection tasks) {
    double files = 0;
    double deletes = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      List offsets = ((DataFile) task.file()).splitOffsets();
      files += task.length();
      deletes += (task.sizeBytes() - task.length()) * (double) Math.max(1, offsets == null ? 1 : offsets.size());
    }
    return files == 0 ? 1 : (files + deletes) / files;
  }

  /** How many records of equality deletes a reader of the tasks takes in, once for each task; -1 if it takes in more than this for one task. */
  public long applied(List tasks, long most) {
    long found = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      long records = equalityRecords((FileScanTask) each.next());
      if (records > most) return -1;
      found += records;
    }
    return found;
  }

  private static long equalityRecords(FileScanTask task) {
    long records = 0;
    for (Iterator deletes = task.deletes().iterator(); deletes.hasNext();) {
      DeleteFile delete = (DeleteFile) deletes.next();
      if (delete.content() == FileContent.EQUALITY_DELETES) records += delete.recordCount();
    }
    return records;
  }

  /**
   * Some tasks at random, each older than some equality delete if there are any, and the newest; all with few enough records of deletes to
   * fit a reader's memory.
   */
  public List some(List tasks, int count, long most, long seed) {
    long last = -1;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      for (Iterator deletes = ((FileScanTask) each.next()).deletes().iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (delete.content() == FileContent.EQUALITY_DELETES) last = Math.max(last, ContentFiles.sequence(delete));
      }
    }
    Sample sample = new Sample(count, most, seed);
    // The bounds of a file may rule all deletes out.
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      sample.offer(task, last < 0 || ContentFiles.sequence((DataFile) task.file()) < last);
    }
    return sample.tasks();
  }

  /** Chooses as {@link #some} does from tasks that it is offered one after another: a reservoir, so each is as likely to be chosen as any other. */
  public static class Sample {
    private final int count;
    private final long most;
    private final Random random;
    private final List chosen = new ArrayList();
    private int seen = 0;
    private FileScanTask newest = null;

    public Sample(int count, long most, long seed) {
      this.count = count;
      this.most = most;
      this.random = new Random(seed);
    }

    public void offer(FileScanTask task, boolean isOlder) {
      long records = equalityRecords(task);
      if (count == 0 || records > most) return;
      if (newest == null || ContentFiles.sequence((DataFile) task.file()) > ContentFiles.sequence((DataFile) newest.file())) newest = task;
      if (!isOlder) return;
      int spot = random.nextInt(++seen);
      if (chosen.size() < count) chosen.add(task);
      else if (spot < count) chosen.set(spot, task);
    }

    /** Without the newest. */
    public List random() { return chosen; }

    public List tasks() {
      List found = new ArrayList(chosen);
      if (newest != null && !found.contains(newest)) found.add(newest);
      return found;
    }
  }

  /** The part of an action of Iceberg's that sorts; its methods are not public. */
  public Object runner(Object action, Map options) throws Exception {
    Field field = action.getClass().getDeclaredField("runner");
    field.setAccessible(true);
    FileRewriteRunner runner = (FileRewriteRunner) field.get(action);
    runner.init(options);
    method(runner, "sortFunction");
    method(runner, "sortedDF");
    return runner;
  }

  /** Rows in the order in which a runner writes those of a group, for so many files. */
  public Dataset sorted(Object runner, RewriteFileGroup group, int files, Dataset rows) throws Exception {
    Object spec = table.specs().get(new Integer(group.outputSpecId()));
    Object order = method(runner, "sortFunction").invoke(runner, new Object[] {group.fileScanTasks(), spec, new Integer(files)});
    return (Dataset) method(runner, "sortedDF").invoke(runner, new Object[] {rows, order});
  }

  /** The id that new files get for their sort order; 0 for an order that is none of the table's. Before 1.11, Iceberg gives them none. */
  public int sortOrderId(Object runner) throws Exception {
    Object order = method(runner, "sortOrder").invoke(runner, new Object[0]);
    Method[] all = org.apache.iceberg.util.SortOrderUtil.class.getMethods();
    for (int i = 0; i < all.length; i++) {
      if (all[i].getName().equals("findTableSortOrder")) return ((SortOrder) all[i].invoke(null, new Object[] {table, order})).orderId();
    }
    return 0;
  }

  private static Method method(Object object, String name) throws Exception {
    for (Class each = object.getClass(); each != null; each = each.getSuperclass()) {
      Method[] all = each.getDeclaredMethods();
      for (int i = 0; i < all.length; i++) {
        if (!all[i].getName().equals(name) || Modifier.isAbstract(all[i].getModifiers())) continue;
        all[i].setAccessible(true);
        return all[i];
      }
    }
    throw new NoSuchMethodException(name);
  }

  public String stage(List tasks, String id) {
    SparkTableCache.get().add(id, table);
    ScanTaskSetManager.get().stageTasks(table, id, tasks);
    return id;
  }

  /**
   * Removes the files that a failed write of staged tasks has left in the folders of their partitions: on a full disk, Iceberg's own writers do
   * not remove a file that they cannot close. Only files whose names have the id of that query, which no other write has.
   */
  public void takeBack(String id, String queryId, int specId) {
    SupportsPrefixOperations io = (SupportsPrefixOperations) table.io();
    PartitionSpec spec = (PartitionSpec) table.specs().get(new Integer(specId));
    Set folders = new LinkedHashSet();
    for (Iterator each = ScanTaskSetManager.get().fetchTasks(table, id).iterator(); each.hasNext();) {
      DataFile file = (DataFile) ((FileScanTask) each.next()).file();
      String location = spec.isPartitioned()
          ? table.locationProvider().newDataLocation(spec, file.partition(), queryId)
          : table.locationProvider().newDataLocation(queryId);
      folders.add(location.substring(0, location.length() - queryId.length()));
    }
    for (Iterator each = folders.iterator(); each.hasNext();) {
      List left = new ArrayList();
      for (Iterator files = io.listPrefix((String) each.next()).iterator(); files.hasNext();) {
        String location = ((FileInfo) files.next()).location();
        if (location.substring(location.lastIndexOf('/') + 1).indexOf("-" + queryId + "-") >= 0) left.add(location);
      }
      for (Iterator files = left.iterator(); files.hasNext();) table.io().deleteFile((String) files.next());
    }
  }

  public Set written(String id) { return FileRewriteCoordinator.get().fetchNewFiles(table, id); }

  public void clear(String id) {
    SparkTableCache.get().remove(id);
    ScanTaskSetManager.get().removeTasks(table, id);
    FileRewriteCoordinator.get().clearRewrite(table, id);
  }
}
