"""Stage scan tasks for Spark, as Iceberg's own rewrite does, and collect the new data files without committing them."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import compiled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of :meth:`Staging.files`: number, path, data sequence number.
FILES = "file int, path string, sequence bigint"

# In Java, because it visits every file and its deletes: over the bridge each visit would cost a millisecond.
_NAME = "icekit.Staging"
_SOURCE = """
package icekit;

import java.util.*;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.zip.CRC32;
import java.lang.reflect.*;
import org.apache.iceberg.*;
import org.apache.iceberg.actions.*;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.expressions.*;
import org.apache.iceberg.spark.*;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionSet;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.RowFactory;

public class Staging {
  private final Table table;
  private final String schema;
  private final ResidualEvaluator all = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());

  public Staging(Table table) {
    this.table = table;
    this.schema = SchemaParser.toJson(table.schema());
  }

  private FileScanTask task(DataFile file, List deletes) {
    return task(file, deletes, (PartitionSpec) table.specs().get(new Integer(file.specId())));
  }

  private FileScanTask task(DataFile file, List deletes, PartitionSpec spec) {
    DeleteFile[] given = (DeleteFile[]) deletes.toArray(new DeleteFile[deletes.size()]);
    return new BaseFileScanTask(file, given, schema, PartitionSpecParser.toJson(spec), all);
  }

  /** A spec with the fields of another; its id is the number of a file, which Spark then reads as _spec_id. */
  private PartitionSpec numbered(PartitionSpec spec, int number) {
    return PartitionSpecParser.fromJson(table.schema(), PartitionSpecParser.toJson(spec).replaceFirst("spec-id.:[0-9]+", "spec-id" + '"' + ":" + number));
  }

  /** The tasks without their equality deletes; position deletes and deletion vectors stay. Files are numbered, if that is wanted. */
  public List plain(List tasks, boolean isNumbered) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      List kept = new ArrayList();
      for (Iterator deletes = task.deletes().iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (delete.content() != FileContent.EQUALITY_DELETES) kept.add(delete);
      }
      DataFile file = (DataFile) task.file();
      if (!isNumbered) {
        found.add(task(file, kept));
        continue;
      }
      PartitionSpec spec = numbered((PartitionSpec) table.specs().get(new Integer(file.specId())), found.size());
      DataFiles.Builder made = DataFiles.builder(spec).withPath(file.location()).withFormat(file.format())
          .withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(file.recordCount());
      if (spec.isPartitioned()) made.withPartition(file.partition());
      if (file.splitOffsets() != null) made.withSplitOffsets(file.splitOffsets());
      found.add(task(made.build(), kept, spec));
    }
    return found;
  }

  /** The equality deletes of the tasks, each once, by the field ids of their key. */
  public Map deletes(List tasks) {
    Map found = new TreeMap();
    Set seen = new HashSet();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      for (Iterator deletes = ((FileScanTask) each.next()).deletes().iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (delete.content() != FileContent.EQUALITY_DELETES || !seen.add(delete.location())) continue;
        String key = new TreeSet(delete.equalityFieldIds()).toString();
        if (!found.containsKey(key)) found.put(key, new ArrayList());
        ((List) found.get(key)).add(delete);
      }
    }
    return found;
  }

  /** Tasks that read delete files as if they were data files of no partition: as Iceberg does, all columns come from the file. */
  public List asData(List deletes) {
    List found = new ArrayList();
    for (Iterator each = deletes.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      PartitionSpec none = numbered(PartitionSpec.unpartitioned(), found.size());
      DataFiles.Builder made = DataFiles.builder(none).withPath(delete.location()).withFormat(delete.format())
          .withFileSizeInBytes(delete.fileSizeInBytes()).withRecordCount(delete.recordCount());
      if (delete.splitOffsets() != null) made.withSplitOffsets(delete.splitOffsets());
      found.add(task(made.build(), Collections.EMPTY_LIST, none));
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

  /** A row for each file: number, path, data sequence number. */
  public List rows(Collection files) {
    List found = new ArrayList();
    for (Iterator each = files.iterator(); each.hasNext();) {
      Object one = each.next();
      ContentFile file = one instanceof FileScanTask ? (ContentFile) ((FileScanTask) one).file() : (ContentFile) one;
      found.add(RowFactory.create(new Object[] {new Integer(found.size()), file.location(), new Long(sequence(file))}));
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

  public int paths(Collection tasks) {
    Set found = new HashSet();
    for (Iterator each = tasks.iterator(); each.hasNext();) found.add(((DataFile) ((FileScanTask) each.next()).file()).location());
    return found.size();
  }

  public long records(Collection files) {
    long found = 0;
    for (Iterator each = files.iterator(); each.hasNext();) {
      Object one = each.next();
      found += (one instanceof FileScanTask ? (ContentFile) ((FileScanTask) one).file() : (ContentFile) one).recordCount();
    }
    return found;
  }

  private static long number(FileScanTask task) { return sequence((DataFile) task.file()); }

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

  /** Some tasks at random, each with equality deletes, and the newest; all with few enough records of deletes to fit a reader's memory. */
  public List some(List tasks, int count, long most, long seed) {
    List found = new ArrayList();
    List shuffled = new ArrayList(tasks);
    Collections.shuffle(shuffled, new Random(seed));
    for (Iterator each = shuffled.iterator(); each.hasNext() && found.size() < count;) {
      FileScanTask task = (FileScanTask) each.next();
      long records = equalityRecords(task);
      if (records > 0 && records <= most) found.add(task);
    }
    FileScanTask newest = null;
    for (Iterator each = tasks.iterator(); count > 0 && each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      if (equalityRecords(task) <= most && (newest == null || number(task) > number(newest))) newest = task;
    }
    if (newest != null && !found.contains(newest)) found.add(newest);
    return found;
  }

  private static String[] split(String joined) { return joined.split(String.valueOf((char) 0)); }

  /** Whether a file is in a slice: by the checksum of its path, as {@code crc32} is in Spark. */
  private static boolean isIn(String path, int place, int slices) throws Exception {
    CRC32 sum = new CRC32();
    sum.update(path.getBytes("UTF-8"));
    return sum.getValue() % slices == place;
  }

  private PositionDeleteIndex index(List deletes, String path) {
    return new BaseDeleteLoader(new Function() {
      public Object apply(Object file) { return table.io().newInputFile(((DeleteFile) file).location()); }
    }).loadPositionDeletes(deletes, path);
  }

  private static String summed(PositionDeleteIndex index) {
    final long[] sums = new long[2];
    index.forEach(new LongConsumer() {
      public void accept(long position) {
        sums[0]++;
        sums[1] += mixed(position);
      }
    });
    return sums[0] + " " + sums[1];
  }

  /** What Iceberg reads from each {@code step}-th of some delete files of one data file each: a line with the number of positions, the sum of their hashes and the data file. */
  public String positions(List deletes, int first, int step) {
    StringBuilder found = new StringBuilder();
    for (int i = first; i < deletes.size(); i += step) {
      DeleteFile delete = (DeleteFile) deletes.get(i);
      String path = delete.referencedDataFile();
      found.append(summed(index(Collections.singletonList(delete), path))).append(' ').append(path).append((char) 0);
    }
    return found.toString();
  }

  /**
   * Compare the listing of a conversion with how Iceberg itself plans a scan of its snapshot. Files are given as path, number of the partition (-1 for
   * all), sequence number, all joined by zeros. The result has what is wrong, as {@code unlisted}, {@code mismatched}, {@code misplaced} or
   * {@code pruned} with a data file, and {@code kept} with a delete file that a new deletion vector has to replace and {@code removed} lacks;
   * {@code earlier}: for each new deletion vector, what the deletes by position say that apply to its data file ("?" after so many opens);
   * and {@code chosen}: some tasks, see {@link #some}, and one to which a new delete file belongs.
   */
  public Map planned(long snapshotId, String deletes, String data, int place, int slices, List added, List removed, int count, long most, long seed) throws Exception {
    Map listed = new HashMap();
    String[] all = split(data);
    for (int i = 0; i + 2 < all.length; i += 3) {
      // A file may be in the table twice, with two sequence numbers.
      if (!listed.containsKey(all[i])) listed.put(all[i], new HashSet());
      ((Set) listed.get(all[i])).add(all[i + 1] + " " + all[i + 2]);
    }
    Set gone = new HashSet();
    for (Iterator each = removed.iterator(); each.hasNext();) gone.add(key((DeleteFile) each.next()));
    Map wanted = new HashMap();
    all = split(deletes);
    for (int i = 0; i + 2 < all.length; i += 3) wanted.put(all[i], all[i + 1] + " " + all[i + 2]);
    Map own = new HashMap();
    for (int i = 0; i < added.size(); i++) own.put(((DeleteFile) added.get(i)).referencedDataFile(), new Integer(i));
    String[] earlier = new String[added.size()];
    Map result = new HashMap();
    List chosen = new ArrayList();
    FileScanTask newest = null, hit = null;
    Random random = new Random(seed);
    int seen = 0, hits = 0, opens = 0;
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        DataFile file = (DataFile) task.file();
        String path = file.location();
        Set known = (Set) listed.get(path);
        boolean isApplied = false;
        List before = new ArrayList();
        for (Iterator its = task.deletes().iterator(); its.hasNext();) {
          DeleteFile delete = (DeleteFile) its.next();
          if (delete.content() == FileContent.POSITION_DELETES) before.add(delete);
          String said = (String) wanted.get(delete.location());
          if (said == null) continue;
          isApplied = true;
          boolean isSame = said.endsWith(" " + sequence(delete)) && sequence(delete) > sequence(file);
          boolean isThere = false;
          for (Iterator ones = known == null ? Collections.EMPTY_SET.iterator() : known.iterator(); ones.hasNext();) {
            String one = (String) ones.next();
            String part = one.substring(0, one.indexOf(' ') + 1);
            isThere = isThere || (one.equals(part + sequence(file)) && (said.startsWith("-1 ") || said.startsWith(part)));
          }
          if (known != null && !(isSame && isThere)) result.put("mismatched", path);
        }
        if (!isApplied || !isIn(path, place, slices)) continue;
        if (known == null) result.put("unlisted", path);
        Integer number = (Integer) own.remove(path);
        if (number != null) {
          DeleteFile delete = (DeleteFile) added.get(number.intValue());
          PartitionSet parts = PartitionSet.create(table.specs());
          parts.add(file.specId(), file.partition());
          if (!parts.contains(delete.specId(), delete.partition())) result.put("misplaced", path);
          boolean isVector = delete.format() == FileFormat.PUFFIN;
          opens += isVector ? before.size() : 0;
          earlier[number.intValue()] = !isVector || before.isEmpty() ? "0 0" : opens > MOST_OPENS ? "?" : summed(index(before, path));
          for (Iterator its = before.iterator(); isVector && its.hasNext();) {
            DeleteFile one = (DeleteFile) its.next();
            if (ContentFileUtil.referencedDataFileLocation(one) != null && !gone.contains(key(one))) result.put("kept", one.location());
          }
        }
        long records = equalityRecords(task);
        if (records > most || !areReadable(task)) continue;
        if (number != null && random.nextInt(++hits) == 0) hit = task;
        if (newest == null || number(task) > number(newest)) newest = task;
        // A reservoir: each task is as likely to be chosen as any other.
        int spot = random.nextInt(++seen);
        if (chosen.size() < count) chosen.add(task);
        else if (spot < count) chosen.set(spot, task);
      }
    } finally {
      tasks.close();
    }
    if (newest != null && !chosen.contains(newest)) chosen.add(newest);
    if (hit != null && !chosen.contains(hit)) chosen.add(hit);
    if (!own.isEmpty()) result.put("pruned", own.keySet().iterator().next());
    StringBuilder lines = new StringBuilder();
    for (int i = 0; i < earlier.length; i++) lines.append(earlier[i]).append((char) 10);
    result.put("earlier", lines.toString());
    result.put("chosen", chosen);
    return result;
  }

  /** Deletes by position that are read for the data files of new deletion vectors: each of these reads all that apply to it. */
  private static final int MOST_OPENS = 10000;

  /** What tells a delete file from others: a Puffin file holds many. */
  private static String key(DeleteFile file) { return file.location() + " " + file.contentOffset(); }

  /** Whether the key columns of all equality deletes are in the schema: before 1.12, Iceberg's reader fails at others. */
  private boolean areReadable(FileScanTask task) {
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      if (delete.content() != FileContent.EQUALITY_DELETES) continue;
      for (Iterator ids = delete.equalityFieldIds().iterator(); ids.hasNext();) {
        if (table.schema().findField(((Integer) ids.next()).intValue()) == null) return false;
      }
    }
    return true;
  }

  private static long sequence(ContentFile file) { return file.dataSequenceNumber() == null ? 0L : file.dataSequenceNumber().longValue(); }

  /** A delete file that a commit would remove and should not, or would not remove and should; null if there is none. {@code deletes}: the equality deletes that go. */
  public String wrong(List removed, String deletes, List added) {
    Set expected = new HashSet(deletes.isEmpty() ? Collections.EMPTY_LIST : Arrays.asList(split(deletes)));
    Set replaced = new HashSet();
    for (Iterator each = added.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      // A position delete file replaces no other.
      if (delete.format() == FileFormat.PUFFIN) replaced.add(delete.referencedDataFile());
    }
    for (Iterator each = removed.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      boolean isRight = delete.content() == FileContent.EQUALITY_DELETES ? expected.remove(delete.location())
          : replaced.contains(ContentFileUtil.referencedDataFileLocation(delete));
      if (!isRight) return delete.location();
    }
    return expected.isEmpty() ? null : (String) expected.iterator().next();
  }

  /** The tasks as they would be after a commit that removes all equality deletes of some paths (joined by zeros) and adds deletes by position for single data files. */
  public List changed(List tasks, String removed, List added) {
    Set gone = new HashSet(Arrays.asList(split(removed)));
    Map more = new HashMap();
    for (Iterator each = added.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      more.put(delete.referencedDataFile(), delete);
    }
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      DeleteFile own = (DeleteFile) more.get(file.location());
      // A reader that finds a deletion vector ignores other deletes by position.
      boolean isVector = own != null && own.format() == FileFormat.PUFFIN;
      List kept = new ArrayList();
      for (Iterator its = task.deletes().iterator(); its.hasNext();) {
        DeleteFile delete = (DeleteFile) its.next();
        boolean isGone = delete.content() == FileContent.EQUALITY_DELETES ? gone.contains(delete.location()) : isVector;
        if (!isGone) kept.add(delete);
      }
      if (own != null) kept.add(own);
      found.add(task(file, kept));
    }
    return found;
  }

  /** A hash of a position: the last steps of SplitMix64. */
  public static long mixed(long value) {
    long hash = value + 0x9E3779B97F4A7C15L;
    hash = (hash ^ (hash >>> 30)) * 0xBF58476D1CE4E5B9L;
    hash = (hash ^ (hash >>> 27)) * 0x94D049BB133111EBL;
    return hash ^ (hash >>> 31);
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

  public Set written(String id) { return FileRewriteCoordinator.get().fetchNewFiles(table, id); }

  public void clear(String id) {
    SparkTableCache.get().remove(id);
    ScanTaskSetManager.get().removeTasks(table, id);
    FileRewriteCoordinator.get().clearRewrite(table, id);
  }
}
"""


class Staging:
    """Scan tasks of one table (an object of Iceberg's API), staged for Spark under names that only this session's JVM knows."""

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self.spark, self.table = spark, table
        self.java = compiled(spark._jvm, table, _NAME, _SOURCE, table)

    def files(self, files: Any) -> DataFrame:
        """A frame of :data:`FILES` for Java's files or tasks."""
        from pyspark.sql import DataFrame

        jvm: Any = self.spark._jvm
        schema = getattr(jvm, "org.apache.spark.sql.types.StructType").fromDDL(FILES)
        return DataFrame(self.spark._jsparkSession.createDataFrame(self.java.rows(files), schema), self.spark)

    @contextlib.contextmanager
    def reading(self, tasks: Any, options: Mapping[str, str] | None = None) -> Iterator[DataFrame]:
        """The rows of some tasks, with their metadata columns; valid only inside the ``with``."""
        name = str(uuid.uuid4())
        self.java.stage(tasks, name)
        try:
            yield self.frame(name, options)
        finally:
            self.java.clear(name)

    def frame(self, name: str, options: Mapping[str, str] | None = None) -> DataFrame:
        """The rows of the tasks that are staged under a name."""
        # Older versions of Iceberg read the task set's name from an option.
        return self.spark.read.format("iceberg").options(**{"scan-task-set-id": name, "file-open-cost": "0", **(options or {})}).load(name)

    def sorted(self, frame: DataFrame, runner: Any, group: Any, files: int) -> DataFrame:
        """Rows in the order in which Iceberg's own action, whose runner this is, writes those of a group."""
        from pyspark.sql import DataFrame

        return DataFrame(self.java.sorted(runner, group, files, frame._jdf), self.spark)

    def write(self, frame: DataFrame, name: str, options: Mapping[str, str]) -> Any:
        """Write rows to new data files of the table, which are not committed yet; returns Java's set of them."""
        frame.write.format("iceberg").options(**{"rewritten-file-scan-task-set-id": name, **options}).mode("append").save(name)
        return self.java.written(name)
