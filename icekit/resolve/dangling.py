"""Find the delete files that a scan gives to no data file, and drop them in one checked commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import compiled, guarded, load_now, load_table
from icekit.engine.errors import explain, kind_of
from icekit.engine.interrupting import Stop
from icekit.errors import EngineFailed, MetadataUnreadable
from icekit.sql import Identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In Java, because it visits every file that Iceberg plans to scan. It holds delete files, and
# nothing of a data file.
#
# A scan may leave a delete out by the bounds of its key, which some versions compare wrongly, and
# it gives a data file with a vector no other position deletes. So the sequence number has to
# agree. A reader that compares paths without their scheme or folder may apply a delete that
# Iceberg does not: a position delete is kept if an old enough data file has the file's name.
_NAME = "icekit.Dangling"
_SOURCE = """
package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionMap;

public class Dangling {
  private final Table table;
  /** The delete files that no data file has needed yet, by what tells them from others. */
  private final Map left = new LinkedHashMap();
  /** Those of a single data file, by the file's name without its folder. */
  private final Map byName = new HashMap();
  private final Set named = new HashSet();
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap());
  /** The oldest data file of each partition that has delete files, and of all. */
  private final PartitionMap oldest;
  private final long[] oldestOfAll = {Long.MAX_VALUE};

  public Dangling(Table table) {
    this.table = table;
    this.oldest = PartitionMap.create(table.specs());
  }

  /** The delete files of a snapshot that apply to no data file. */
  public List of(long snapshotId) throws Exception {
    Snapshot snapshot = table.snapshot(snapshotId);
    for (Iterator each = snapshot.deleteManifests(table.io()).iterator(); each.hasNext();) {
      ManifestFile manifest = (ManifestFile) each.next();
      ManifestReader files = ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
      try {
        for (Iterator file = files.iterator(); file.hasNext();) add((DeleteFile) file.next());
      } finally {
        files.close();
      }
    }
    if (left.isEmpty()) return new ArrayList();
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) see((FileScanTask) each.next());
    } finally {
      tasks.close();
    }
    List found = new ArrayList();
    for (Iterator each = left.values().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (isOlder(delete)) found.add(delete);
    }
    return found;
  }

  private void add(DeleteFile delete) {
    left.put(key(delete), delete.copyWithoutStats());
    if (oldest.get(delete.specId(), delete.partition()) == null) {
      oldest.put(delete.specId(), delete.partition(), new long[] {Long.MAX_VALUE});
    }
    String path = ContentFileUtil.referencedDataFileLocation(delete);
    if (path == null) return;
    String name = nameOf(path);
    if (!byName.containsKey(name)) byName.put(name, new ArrayList());
    ((List) byName.get(name)).add(left.get(key(delete)));
    named.add(key(delete));
  }

  private void see(FileScanTask task) {
    DataFile file = (DataFile) task.file();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      Object delete = each.next();
      if (seen.add(delete)) left.remove(key((DeleteFile) delete));
    }
    long sequence = sequence(file);
    oldestOfAll[0] = Math.min(oldestOfAll[0], sequence);
    long[] lowest = (long[]) oldest.get(file.specId(), file.partition());
    if (lowest != null) lowest[0] = Math.min(lowest[0], sequence);
    List same = (List) byName.get(nameOf(file.location()));
    if (same == null) return;
    for (Iterator each = same.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (sequence(delete) >= sequence) left.remove(key(delete));
    }
  }

  /** Whether a delete file that no data file needs is also too old for every data file. */
  private boolean isOlder(DeleteFile delete) {
    if (named.contains(key(delete))) return true;
    PartitionSpec spec = (PartitionSpec) table.specs().get(new Integer(delete.specId()));
    boolean isEquality = delete.content() == FileContent.EQUALITY_DELETES;
    long[] lowest = isEquality && spec.isUnpartitioned()
        ? oldestOfAll
        : (long[]) oldest.get(delete.specId(), delete.partition());
    return isEquality ? sequence(delete) <= lowest[0] : sequence(delete) < lowest[0];
  }

  /** How many delete files a commit removed, and how many of them its parent's scan needed. */
  public long[] removed(long parentId, long snapshotId) throws Exception {
    List found = of(parentId);
    Set dropped = new HashSet(), all = new HashSet();
    for (Iterator file = found.iterator(); file.hasNext();) dropped.add(key((DeleteFile) file.next()));
    SnapshotChanges changes = SnapshotChanges.builderFor(table).snapshot(table.snapshot(snapshotId)).build();
    Iterator each = changes.removedDeleteFiles().iterator();
    while (each.hasNext()) all.add(key((DeleteFile) each.next()));
    long count = all.size();
    all.removeAll(dropped);
    return new long[] {count, all.size()};
  }

  public static RewriteFiles without(RewriteFiles rewrite, List files) {
    for (Iterator each = files.iterator(); each.hasNext();) rewrite.deleteFile((DeleteFile) each.next());
    return rewrite;
  }

  /** A Puffin file holds many deletion vectors. */
  private static String key(DeleteFile file) { return file.location() + " " + file.contentOffset(); }

  private static String nameOf(String path) { return path.substring(path.lastIndexOf('/') + 1); }

  private static long sequence(ContentFile file) {
    return file.dataSequenceNumber() == null ? 0L : file.dataSequenceNumber().longValue();
  }
}
"""
# How often a commit is tried whose scan another commit made stale.
_TRIES = 5


def drop_dangling(
    spark: SparkSession,
    name: Identifier,
    tags: Mapping[str, str],
    *,
    branch: str | None = None,
    stop: Stop | None = None,
) -> int:
    """Drop the delete files that apply to no data file; returns how many; ``name`` has its catalog.

    Only the commit of an unchanged table is accepted: another writer may have added a data file to
    which an old delete applies. Raises the errors of :mod:`icekit.errors`.
    """
    for tries_left in reversed(range(_TRIES)):
        if stop is not None:
            stop.check()
        table = load_now(spark, name)
        files, snapshot_id = _dangling(spark, name, table, branch)
        if files is None or not files.size():
            return 0
        if stop is not None:
            stop.check()
        try:
            _commit(spark, table, files, (branch or "main", snapshot_id), tags)
        except Exception as error:
            # Nobody else has committed: Iceberg would refuse it again.
            is_final = kind_of(error) == "refused" and _snapshot_id(load_now(spark, name), branch) == snapshot_id
            if is_final or not tries_left or kind_of(error) not in {"conflict", "refused"}:
                raise
        else:
            return int(files.size())
    return 0


def count_dangling(spark: SparkSession, name: Identifier, *, branch: str | None = None) -> int:
    """How many delete files :func:`drop_dangling` would drop now; it commits nothing."""
    files, _ = _dangling(spark, name, load_now(spark, name), branch)
    return 0 if files is None else int(files.size())


def removed(spark: SparkSession, name: Identifier, parent_id: int, snapshot_id: int) -> tuple[int, int]:
    """Count the delete files that a commit removed, and those that applied to a data file before it."""
    table = load_table(spark, name)
    count, needed = _java(spark, table).removed(parent_id, snapshot_id)
    return int(count), int(needed)


def _java(spark: SparkSession, table: Any) -> Any:
    return compiled(spark._jvm, table, _NAME, _SOURCE, table)


def _dangling(spark: SparkSession, name: Identifier, table: Any, branch: str | None) -> tuple[Any, int]:
    """Java's list of the delete files (None without a snapshot), and the snapshot."""
    snapshot_id = _snapshot_id(table, branch)
    if snapshot_id is None:
        return None, 0
    try:
        return _java(spark, table).of(snapshot_id), snapshot_id
    except Exception as error:
        known = explain(error, name)
        if isinstance(known, MetadataUnreadable):
            raise known from error
        raise


def _snapshot_id(table: Any, branch: str | None) -> int | None:
    snapshot = table.snapshot(branch) if branch else table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def _commit(spark: SparkSession, table: Any, files: Any, base: tuple[str, int], tags: Mapping[str, str]) -> None:
    jvm: Any = spark._jvm
    checked = guarded(jvm, table, base=base)
    if checked is None:
        raise EngineFailed("The JVM compiles no class to check the commit, so the deletes stay.")
    rewrite = _java(spark, table).without(checked.newRewrite(), files)
    rewrite = rewrite.validateFromSnapshot(base[1]).toBranch(base[0])
    for key, value in tags.items():
        rewrite = rewrite.set(key, value)
    rewrite.commit()
