"""Compare what position deletes and deletion vectors say with the rows that a rewrite leaves out."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import compiled, elements, load_now
from icekit.engine.errors import complaint
from icekit.engine.planner import plan_rewrite
from icekit.engine.staging import Staging
from icekit.errors import DeletesUnmatched, EngineFailed
from icekit.prove.proof import RowsDiffer
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.compact.model import Action

# In Java, because it visits every file and every deleted position.
#
# A delete file is read once (while the positions fit), by Iceberg's own loader. It may hold
# positions of files outside a group, or of files that were replaced since: these are legal. A path
# is wrong if it is of no live data file, and the table has a data file with the same name in the
# delete's partition: a moved table, or a scheme that another engine writes otherwise.
_NAME = "icekit.PositionDeletes"
_SOURCE = """
package icekit;

import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.function.Supplier;
import org.apache.iceberg.*;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.StructLikeWrapper;
import org.apache.spark.sql.Row;

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

  private static List positions(FileScanTask task) {
    List found = new ArrayList();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (delete.content() == FileContent.POSITION_DELETES) found.add(delete);
    }
    return found;
  }

  private static boolean isVector(DeleteFile delete) { return delete.format() == FileFormat.PUFFIN; }

  /** The tasks that have position deletes. */
  public List deleted(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      if (!positions(task).isEmpty()) found.add(task);
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
      for (Iterator deletes = positions((FileScanTask) each.next()).iterator(); deletes.hasNext();) {
        DeleteFile delete = (DeleteFile) deletes.next();
        if (ContentFileUtil.referencedDataFileLocation(delete) == null) return -1;
        found += delete.recordCount();
      }
    }
    return found;
  }

  public boolean haveEqualityDeletes(List tasks) { return !staging.deletes(tasks).isEmpty(); }

  /** The delete files of the tasks that hold paths, each once. */
  public List files(List tasks) {
    Map found = new LinkedHashMap();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      Object task = each.next();
      List deletes = task instanceof PositionDeletesScanTask
          ? Collections.singletonList(((PositionDeletesScanTask) task).file())
          : positions((FileScanTask) task);
      for (Iterator delete = deletes.iterator(); delete.hasNext();) {
        DeleteFile file = (DeleteFile) delete.next();
        if (!isVector(file)) found.put(file.location(), file);
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
    List deletes = positions(task);
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
    String name = nameOf(path);
    if (!byName.containsKey(name)) byName.put(name, new ArrayList());
    ((List) byName.get(name)).add(entry);
  }

  private void see(DataFile file, boolean areSuspect) {
    List same = (List) byName.get(nameOf(file.location()));
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
    if (delete.specId() != file.specId() || Staging.sequence(delete) < Staging.sequence(file)) return false;
    PartitionSpec spec = (PartitionSpec) table.specs().get(new Integer(file.specId()));
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

  private static String nameOf(String path) { return path.substring(path.lastIndexOf('/') + 1); }
}
"""
# The share of the driver's heap that read positions may take, if each takes eight bytes.
_HEAP_SHARE = 1 / 8


class PositionDeletes:
    """The position deletes and deletion vectors of one snapshot, to check rewrites of its data files."""

    def __init__(self, staging: Staging, snapshot_id: int) -> None:
        self.staging, self.snapshot_id = staging, snapshot_id
        jvm: Any = staging.spark._jvm
        most = int(jvm.java.lang.Runtime.getRuntime().maxMemory() * _HEAP_SHARE / 8)
        #: An object of the Java class.
        self.java = compiled(jvm, staging.java, _NAME, _SOURCE, staging.java, jvm.java.lang.Long.valueOf(most))
        self._is_looked_up = False
        self._lock = threading.Lock()

    def check_listed(self, tasks: Any) -> None:
        """Check that no delete file names a data file of some scan tasks by another path; its deletes would apply to nothing.

        Raises :class:`~icekit.errors.DeletesUnmatched`.
        """
        with self._lock:
            if not self._is_looked_up:
                self.java.lookUp(self.snapshot_id)
                self._is_looked_up = True
        _refuse(self.java.unlisted(tasks))

    def check_paths(self, files: Any, tasks: Any = None) -> None:
        """Check the paths inside delete files against the files of these scan tasks, or of the snapshot, as :meth:`check_listed` does."""
        # Java keeps what one call finds.
        with self._lock:
            wrong = self.java.wrong(files, tasks, self.snapshot_id)
        _refuse(wrong)

    def check_deleted(self, tasks: Any, rows: int | None, *, is_observed: bool = False) -> None:
        """Check that a rewrite read every row of some scan tasks once, without those that position deletes delete.

        ``rows`` are those that it read, before any equality delete took one; if they are unknown (None), rows under position
        deletes are counted again, and so are rows that were counted in a query (``is_observed``), if they are too many: Spark counts those of
        a task that it runs again twice. Where each delete names one file, and the records add up, nothing is read. Raises
        :class:`~icekit.errors.DeletesUnmatched` or :class:`~icekit.prove.proof.RowsDiffer`.
        """
        java, staging = self.java, self.staging
        of, deleted = tasks, java.deleted(tasks)
        if rows is None:
            if not deleted.size():
                return
            of, rows = deleted, _count(staging, staging.java.plain(deleted, False))
        records, of_files = int(java.records(of)), int(staging.java.records(of))
        if of_files - rows == records >= 0:
            return
        if deleted.size():
            self.check_paths(java.files(deleted), of)
        expected = int(java.expected(of, None))
        if of_files - rows != expected:
            # A writer may have counted the rows of a file wrongly.
            counted = _counted(staging, java.bare(of))
            of_files, expected = int(java.total(counted)), int(java.expected(of, counted))
        if is_observed and of_files - rows < expected:
            rows = _count(staging, staging.java.plain(of, False))
        if of_files - rows != expected:
            raise RowsDiffer.of(
                "files",
                f"{count(expected, 'row')} of the old files are deleted by position, but {of_files - rows:,} were left out",
                "Nothing was changed.",
            )


def check_paths(spark: SparkSession, action: Action) -> None:
    """Check the paths in the position deletes that Iceberg's own action would apply or rewrite.

    Raises :class:`~icekit.errors.DeletesUnmatched` if they are of no data file, but should be.
    """
    table = load_now(spark, action.sql_name)
    snapshot = table.snapshot(action.branch) if action.branch else table.currentSnapshot()
    if snapshot is None:
        return
    of_deletes = action.procedure == "rewrite_position_delete_files"
    plan = plan_rewrite(
        spark,
        action.sql_name,
        action.options,
        where=action.where,
        branch=action.branch,
        of_deletes=of_deletes,
    )
    try:
        deletes = PositionDeletes(Staging(spark, table), int(snapshot.snapshotId()))
    except Exception as error:
        if not _has_any(table, snapshot):
            return
        raise EngineFailed(
            "The table has position deletes, and this JVM compiles no class to check that they apply to its data files "
            f"({complaint(error)}). Nothing was changed. Run this with a Java and a Spark that icekit is tested with (docs/limits.md), "
            "or call Iceberg's own procedure, without this check."
        ) from error
    tasks = spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
    for group in elements(plan.groups()):
        tasks.addAll(group.fileScanTasks())
    if not of_deletes:
        deletes.check_listed(tasks)
    deletes.check_paths(deletes.java.files(tasks), None if of_deletes else tasks)


def _has_any(table: Any, snapshot: Any) -> bool:
    """Whether a snapshot may have position deletes or deletion vectors."""
    is_none = snapshot.summary().get("total-position-deletes") == "0"
    return not is_none and int(snapshot.deleteManifests(table.io()).size()) > 0


def _count(staging: Staging, tasks: Any) -> int:
    with staging.reading(tasks) as rows:
        return rows.count()


def _counted(staging: Staging, tasks: Any) -> Any:
    """Java's list of the rows in each file of some tasks."""
    from pyspark.sql import functions as F

    with staging.reading(tasks) as rows:
        return rows.groupBy(F.input_file_name().alias("path")).count()._jdf.collectAsList()


def _refuse(wrong: Any) -> None:
    """Raise the error for a path that Java found to be wrong, if it found one."""
    if wrong is None:
        return
    file, path, positions, instead = _texts(wrong)
    is_one = positions == "1"
    names = f"{'names' if is_one else 'name'} the data file {path}, which the table has as {instead}"
    raise DeletesUnmatched(
        f"{count(int(positions), 'position delete')} in {file} {names if path else 'may name no data file'}, "
        f"so Spark does not apply {'it' if is_one else 'them'}, but other engines may. Nothing was committed. "
        "If these rows should go, delete them again with Spark (with write.delete.mode = copy-on-write), and run this again; "
        "if they should stay, Iceberg's own rewrite_data_files keeps them."
    )


def _texts(array: Iterable[Any]) -> list[str]:
    return [str(each) for each in elements(array)]
