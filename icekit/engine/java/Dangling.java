package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionMap;

/**
 * The delete files that a scan gives to no data file. Holds delete files, and nothing of a data file.
 *
 * A scan may leave a delete out by the bounds of its key, which some versions compare wrongly. So the sequence number has to agree. A reader that
 * compares paths without their scheme or folder may apply a delete that Iceberg does not: a position delete is kept if an old enough data file has
 * the file's name, unless it names exactly a file with a deletion vector, which replaces it for every reader.
 */
public class Dangling {
  private final Table table;
  /** The delete files that no data file has needed yet, by what tells them from others. */
  private final Map left = new LinkedHashMap();
  /** Those of a single data file, by the file's name without its folder. */
  private final Map byName = new HashMap();
  /** The data file that each of those names. */
  private final Map named = new HashMap();
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
    left.put(ContentFiles.key(delete), delete.copyWithoutStats());
    if (oldest.get(delete.specId(), delete.partition()) == null) {
      oldest.put(delete.specId(), delete.partition(), new long[] {Long.MAX_VALUE});
    }
    String path = ContentFileUtil.referencedDataFileLocation(delete);
    if (path == null) return;
    String name = ContentFiles.nameOf(path);
    if (!byName.containsKey(name)) byName.put(name, new ArrayList());
    ((List) byName.get(name)).add(left.get(ContentFiles.key(delete)));
    named.put(ContentFiles.key(delete), path);
  }

  private void see(FileScanTask task) {
    DataFile file = (DataFile) task.file();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      Object delete = each.next();
      if (seen.add(delete)) left.remove(ContentFiles.key((DeleteFile) delete));
    }
    long sequence = ContentFiles.sequence(file);
    oldestOfAll[0] = Math.min(oldestOfAll[0], sequence);
    long[] lowest = (long[]) oldest.get(file.specId(), file.partition());
    if (lowest != null) lowest[0] = Math.min(lowest[0], sequence);
    List same = (List) byName.get(ContentFiles.nameOf(file.location()));
    if (same == null) return;
    boolean hasVector = hasVector(task);
    for (Iterator each = same.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      boolean isReplaced = hasVector && file.location().equals(named.get(ContentFiles.key(delete)));
      if (ContentFiles.sequence(delete) >= sequence && !isReplaced) left.remove(ContentFiles.key(delete));
    }
  }

  private static boolean hasVector(FileScanTask task) {
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      if (ContentFiles.isVector((DeleteFile) each.next())) return true;
    }
    return false;
  }

  /** Whether a delete file that no data file needs is also too old for every data file. */
  private boolean isOlder(DeleteFile delete) {
    if (named.containsKey(ContentFiles.key(delete))) return true;
    PartitionSpec spec = ContentFiles.spec(table, delete);
    boolean isEquality = delete.content() == FileContent.EQUALITY_DELETES;
    long[] lowest = isEquality && spec.isUnpartitioned()
        ? oldestOfAll
        : (long[]) oldest.get(delete.specId(), delete.partition());
    return isEquality ? ContentFiles.sequence(delete) <= lowest[0] : ContentFiles.sequence(delete) < lowest[0];
  }

  /** How many delete files a commit removed, and how many of them its parent's scan needed. */
  public long[] removed(long parentId, long snapshotId) throws Exception {
    List found = of(parentId);
    Set dropped = new HashSet(), all = new HashSet();
    for (Iterator file = found.iterator(); file.hasNext();) dropped.add(ContentFiles.key((DeleteFile) file.next()));
    SnapshotChanges changes = SnapshotChanges.builderFor(table).snapshot(table.snapshot(snapshotId)).build();
    Iterator each = changes.removedDeleteFiles().iterator();
    while (each.hasNext()) all.add(ContentFiles.key((DeleteFile) each.next()));
    long count = all.size();
    all.removeAll(dropped);
    return new long[] {count, all.size()};
  }

  public static RewriteFiles without(RewriteFiles rewrite, List files) {
    for (Iterator each = files.iterator(); each.hasNext();) rewrite.deleteFile((DeleteFile) each.next());
    return rewrite;
  }
}
