package icekit;

import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.function.Supplier;
import org.apache.iceberg.*;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.StructLikeWrapper;
import org.apache.spark.sql.Row;

/**
 * What position deletes and deletion vectors say. A delete file is read once (while the positions fit), by Iceberg's own loader. It may hold
 * positions of files outside a group, or of files that were replaced since: these are legal. A path is wrong if it is of no live data file, and
 * the table has a data file with the same name in the delete's partition: a moved table, or a scheme that another engine writes otherwise.
 */
public class PositionDeletes {
  private static final int AT_ONCE = 8;

  private final Staging staging;
  private final Table table;
  private final long most;
  /** Delete files that were read, the last used last, and the number of their positions. */
  private final Map cached = new LinkedHashMap(16, 0.75f, true);
  private final Map sizes = new HashMap();
  private long held = 0;
  private final ConcurrentHashMap locks = new ConcurrentHashMap();
  /** What delete files say: entries by the name of the data file without its folder. */
  private final Map byName = new HashMap();
  /** What delete files say of a single data file that the table does not have: an entry by each data file in whose place it stands. */
  private final Map unlisted = new HashMap();
  /** The data file for which {@link #changedBy} found other deleted rows, and whether a deletion vector applied to it before. */
  private volatile String changedPath = null;
  private volatile boolean isVectorChanged = false;

  /** At most so many positions are held. */
  public PositionDeletes(Staging staging, long most) {
    this.staging = staging;
    this.table = staging.table;
    this.most = most;
  }

  /** The positions of one path in one delete file. */
  private static class Entry {
    DeleteFile delete;
    String path;
    long count;
    /** The data file that has the same name. */
    String instead = null;
    final List besides = new ArrayList();
    /** Whether the table has, or had, a data file with this path. */
    boolean isKnown = false;
  }

  /** The tasks that have position deletes. */
  public List deleted(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      if (!ContentFiles.positionDeletes(task).isEmpty()) found.add(task);
    }
    return found;
  }

  /** The tasks without any delete. */
  public List bare(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      found.add(staging.task((DataFile) ((FileScanTask) each.next()).file(), Collections.EMPTY_LIST));
    }
    return found;
  }

  /** The records of deletes that each name the file of one task; -1 if a delete file may be of several. */
  public long records(List tasks) {
    long found = 0;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      for (Iterator deletes = ContentFiles.positionDeletes((FileScanTask) each.next()).iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (ContentFileUtil.referencedDataFileLocation(delete) == null) return -1;
        found += delete.recordCount();
      }
    }
    return found;
  }

  /** The delete files of the tasks that hold paths, each once. */
  public List files(List tasks) {
    Map found = new LinkedHashMap();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      Object task = each.next();
      List deletes = task instanceof PositionDeletesScanTask
          ? Collections.singletonList(((PositionDeletesScanTask) task).file())
          : ContentFiles.positionDeletes((FileScanTask) task);
      for (Iterator delete = deletes.iterator(); delete.hasNext();) {
        DeleteFile file = (DeleteFile) delete.next();
        if (!ContentFiles.isVector(file)) found.put(file.location(), file);
      }
    }
    return new ArrayList(found.values());
  }

  /** How many rows of its file the position deletes of each task delete, in all; the files' rows are counted, as path and number, or null. */
  public long expected(List tasks, List counted) throws Exception {
    long found = 0;
    List results = all(tasks, counted == null ? null : counts(counted), true);
    for (Iterator each = results.iterator(); each.hasNext();) found += ((Long) ((Future) each.next()).get()).longValue();
    return found;
  }

  public long total(List counted) {
    long found = 0;
    for (Iterator each = counted.iterator(); each.hasNext();) found += ((Row) each.next()).getLong(1);
    return found;
  }

  private static Map counts(List rows) {
    Map found = new HashMap();
    for (Iterator each = rows.iterator(); each.hasNext();) {
      Row row = (Row) each.next();
      found.put(row.getString(0), new Long(row.getLong(1)));
    }
    return found;
  }

  private List all(List given, final Map counts, final boolean areTasks) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
    try {
      List works = new ArrayList();
      for (Iterator each = given.iterator(); each.hasNext();) {
        final Object one = each.next();
        works.add(new Callable() {
          public Object call() {
            if (areTasks) return new Long(count((FileScanTask) one, counts));
            paths((DeleteFile) one);
            return new Long(0L);
          }
        });
      }
      return pool.invokeAll(works);
    } finally {
      pool.shutdownNow();
    }
  }

  private long count(FileScanTask task, Map counts) {
    List deletes = ContentFiles.positionDeletes(task);
    if (deletes.isEmpty()) return 0;
    Long counted = counts == null ? new Long(((DataFile) task.file()).recordCount()) : (Long) counts.get(((DataFile) task.file()).location());
    final long rows = counted == null ? 0L : counted.longValue();
    final long[] found = {0};
    PositionDeleteIndex index = loader().loadPositionDeletes(deletes, ((DataFile) task.file()).location());
    index.forEach(new LongConsumer() {
      public void accept(long position) {
        if (position < rows) found[0]++;
      }
    });
    return found[0];
  }

  /** Reads all paths of a delete file, and keeps what it read. */
  private class Loader extends BaseDeleteLoader {
    Loader(Function open) { super(open, null); }

    protected boolean canCache(long size) { return true; }

    protected Object getOrLoad(String key, Supplier read, long size) {
      locks.putIfAbsent(key, new Object());
      synchronized (locks.get(key)) {
        Object known = recall(key);
        return known == null ? keep(key, read.get(), size) : known;
      }
    }
  }

  /** The positions in a delete file by path; null if a path is missing, which Iceberg's loader may not expect. */
  private Map paths(DeleteFile delete) {
    try {
      loader().loadPositionDeletes(Collections.singletonList(delete), "");
    } catch (NullPointerException missing) {
      return null;
    }
    return (Map) recall(delete.location());
  }

  private Loader loader() {
    return new Loader(new Function() {
      public Object apply(Object file) { return table.io().newInputFile((DeleteFile) file); }
    });
  }

  /**
   * A data file of which a commit deletes other rows by position than the snapshot before it does; null if there is none. Both are read as a scan
   * gives delete files to data files: a deletion vector replaces all other position deletes of its file.
   */
  public String changedBy(Table before, long parentId, Table after, long snapshotId) throws Exception {
    Set touched = new HashSet();
    SnapshotChanges changes = SnapshotChanges.builderFor(after).snapshot(after.snapshot(snapshotId)).build();
    for (Iterator each = changes.removedDeleteFiles().iterator(); each.hasNext();) touched.add(ContentFiles.key((DeleteFile) each.next()));
    for (Iterator each = changes.addedDeleteFiles().iterator(); each.hasNext();) touched.add(ContentFiles.key((DeleteFile) each.next()));
    final Map deletesBefore = touched(before, parentId, touched);
    final Map deletesAfter = touched(after, snapshotId, touched);
    Set paths = new TreeSet(deletesBefore.keySet());
    paths.addAll(deletesAfter.keySet());
    ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
    try {
      List works = new ArrayList();
      for (Iterator each = paths.iterator(); each.hasNext();) {
        final String path = (String) each.next();
        works.add(new Callable() {
          public Object call() { return areEqual((List) deletesBefore.get(path), (List) deletesAfter.get(path), path) ? null : path; }
        });
      }
      for (Iterator each = pool.invokeAll(works).iterator(); each.hasNext();) {
        String path = (String) ((Future) each.next()).get();
        if (path == null) continue;
        isVectorChanged = hasVector((List) deletesBefore.get(path));
        changedPath = path;
        return path;
      }
      return null;
    } finally {
      pool.shutdownNow();
    }
  }

  /** The data file that {@link #changedBy} found; null without one. */
  public String changedPath() { return changedPath; }

  public boolean isVectorChanged() { return isVectorChanged; }

  private static boolean hasVector(List deletes) {
    if (deletes == null) return false;
    for (Iterator each = deletes.iterator(); each.hasNext();) {
      if (ContentFiles.isVector((DeleteFile) each.next())) return true;
    }
    return false;
  }

  /** The position deletes of each data file to which a scan gives one of some delete files. */
  private static Map touched(Table table, long snapshotId, Set keys) throws Exception {
    Map found = new HashMap();
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        List deletes = ContentFiles.positionDeletes(task);
        boolean isTouched = false;
        for (Iterator delete = deletes.iterator(); delete.hasNext();) {
          if (keys.contains(ContentFiles.key((DeleteFile) delete.next()))) isTouched = true;
        }
        if (isTouched) found.put(((DataFile) task.file()).location(), deletes);
      }
    } finally {
      tasks.close();
    }
    return found;
  }

  private boolean areEqual(List before, List after, String path) {
    PositionDeleteIndex deletedBefore = index(before, path);
    final PositionDeleteIndex deletedAfter = index(after, path);
    final boolean[] isEqual = {deletedBefore.cardinality() == deletedAfter.cardinality()};
    deletedBefore.forEach(new LongConsumer() {
      public void accept(long position) {
        if (!deletedAfter.isDeleted(position)) isEqual[0] = false;
      }
    });
    return isEqual[0];
  }

  private PositionDeleteIndex index(List deletes, String path) {
    return loader().loadPositionDeletes(deletes == null ? Collections.EMPTY_LIST : deletes, path);
  }

  private synchronized Object recall(String key) { return cached.get(key); }

  private synchronized Object keep(String key, Object found, long size) {
    cached.put(key, found);
    sizes.put(key, new Long(size));
    held += size;
    for (Iterator each = cached.keySet().iterator(); held > most && each.hasNext();) {
      Object eldest = each.next();
      if (eldest.equals(key)) break;
      held -= ((Long) sizes.get(eldest)).longValue();
      each.remove();
    }
    return found;
  }

  /**
   * A path in some delete files that is wrong, as delete file, path, number of positions and the data file in whose place it stands; null if there
   * is none. The data files are those of the tasks, or all of the snapshot.
   */
  public String[] wrong(List deletes, List tasks, long snapshotId) throws Exception {
    List wanted = new ArrayList(deletes);
    for (int first = 0; first < wanted.size(); first += 1000) {
      List some = wanted.subList(first, Math.min(wanted.size(), first + 1000));
      byName.clear();
      read(some);
      if (tasks == null) seeAll(snapshotId, true);
      else for (Iterator each = tasks.iterator(); each.hasNext();) see((DataFile) ((FileScanTask) each.next()).file(), true);
      if (suspect() != null && tasks != null) seeAll(snapshotId, false);
      if (suspect() != null) seeHistory();
      Entry found = suspect();
      if (found != null) return said(found, found.instead);
    }
    return null;
  }

  private void read(List deletes) throws Exception {
    List results = all(deletes, null, false);
    for (int i = 0; i < deletes.size(); i++) {
      ((Future) results.get(i)).get();
      DeleteFile delete = (DeleteFile) deletes.get(i);
      Map paths = paths(delete);
      if (paths == null) add(delete, "", delete.recordCount(), "");
      else for (Iterator each = paths.entrySet().iterator(); each.hasNext();) add(delete, (Map.Entry) each.next());
    }
  }

  private void add(DeleteFile delete, Map.Entry positions) {
    if (positions.getKey() == null) {
      add(delete, "", delete.recordCount(), "");
      return;
    }
    String path = String.valueOf(positions.getKey()), named = ContentFileUtil.referencedDataFileLocation(delete);
    long count = ((PositionDeleteIndex) positions.getValue()).cardinality();
    add(delete, path, count, named == null || named.equals(path) ? null : named);
  }

  private void add(DeleteFile delete, String path, long count, String instead) {
    Entry entry = new Entry();
    entry.delete = delete;
    entry.path = path;
    entry.count = count;
    entry.instead = instead;
    String name = ContentFiles.nameOf(path);
    if (!byName.containsKey(name)) byName.put(name, new ArrayList());
    ((List) byName.get(name)).add(entry);
  }

  private void see(DataFile file, boolean areSuspect) {
    List same = (List) byName.get(ContentFiles.nameOf(file.location()));
    if (same == null) return;
    for (Iterator each = same.iterator(); each.hasNext();) {
      Entry entry = (Entry) each.next();
      if (entry.path.equals(file.location())) entry.isKnown = true;
      else if (areSuspect && isBeside(entry.delete, file)) {
        entry.instead = file.location();
        entry.besides.add(file.location());
      }
    }
  }

  private void seeAll(long snapshotId, boolean areSuspect) throws Exception {
    Iterator each = table.snapshot(snapshotId).dataManifests(table.io()).iterator();
    while (each.hasNext()) seeIn((ManifestFile) each.next(), areSuspect);
  }

  private void seeIn(ManifestFile manifest, boolean areSuspect) throws Exception {
    ManifestReader files = ManifestFiles.read(manifest, table.io(), table.specs());
    files.select(Arrays.asList(new String[] {"file_path", "partition"}));
    try {
      for (Iterator file = files.iterator(); file.hasNext();) see((DataFile) file.next(), areSuspect);
    } finally {
      files.close();
    }
  }

  /** A delete of a data file that an earlier snapshot had is right, although another file has the name today: files that were added may share names. */
  private void seeHistory() throws Exception {
    Set seen = new HashSet();
    for (Iterator each = table.snapshots().iterator(); each.hasNext();) {
      Iterator manifests = ((Snapshot) each.next()).dataManifests(table.io()).iterator();
      while (manifests.hasNext()) {
        ManifestFile manifest = (ManifestFile) manifests.next();
        if (suspect() != null && seen.add(manifest.path())) seeIn(manifest, false);
      }
    }
  }

  /** Whether a delete is of the partition of a data file, and not older. */
  private boolean isBeside(DeleteFile delete, DataFile file) {
    if (delete.specId() != file.specId() || ContentFiles.sequence(delete) < ContentFiles.sequence(file)) return false;
    PartitionSpec spec = ContentFiles.spec(table, file);
    StructLikeWrapper own = StructLikeWrapper.forType(spec.partitionType());
    return own.copyFor(delete.partition()).equals(own.copyFor(file.partition()));
  }

  /**
   * Find the delete files of a snapshot that name, in its metadata, a data file which the table has under another path: a scan gives them to no
   * data file, so no task lists them. Data files are read only if some delete file names one.
   */
  public void lookUp(long snapshotId) throws Exception {
    byName.clear();
    unlisted.clear();
    for (Iterator each = table.snapshot(snapshotId).deleteManifests(table.io()).iterator(); each.hasNext();) {
      ManifestReader files = ManifestFiles.readDeleteManifest((ManifestFile) each.next(), table.io(), table.specs());
      try {
        for (Iterator file = files.iterator(); file.hasNext();) {
          DeleteFile delete = (DeleteFile) file.next();
          String path = ContentFileUtil.referencedDataFileLocation(delete);
          if (path != null) add((DeleteFile) delete.copyWithoutStats(), path, delete.recordCount(), null);
        }
      } finally {
        files.close();
      }
    }
    if (!byName.isEmpty()) seeAll(snapshotId, true);
    if (suspect() != null) seeHistory();
    for (Iterator each = byName.values().iterator(); each.hasNext();) {
      for (Iterator entries = ((List) each.next()).iterator(); entries.hasNext();) {
        Entry entry = (Entry) entries.next();
        if (!entry.isKnown) for (Iterator file = entry.besides.iterator(); file.hasNext();) unlisted.put(file.next(), entry);
      }
    }
    byName.clear();
  }

  /** What {@link #lookUp} found for a data file of some tasks, as {@link #wrong} says it. */
  public String[] unlisted(List tasks) {
    for (Iterator each = tasks.iterator(); each.hasNext() && !unlisted.isEmpty();) {
      String path = ((DataFile) ((FileScanTask) each.next()).file()).location();
      Entry found = (Entry) unlisted.get(path);
      if (found != null) return said(found, path);
    }
    return null;
  }

  private static String[] said(Entry entry, Object instead) {
    return new String[] {entry.delete.location(), entry.path, String.valueOf(entry.count), String.valueOf(instead)};
  }

  private Entry suspect() {
    for (Iterator each = byName.values().iterator(); each.hasNext();) {
      for (Iterator entries = ((List) each.next()).iterator(); entries.hasNext();) {
        Entry entry = (Entry) entries.next();
        if (entry.instead != null && !entry.isKnown) return entry;
      }
    }
    return null;
  }
}
