package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.util.Tasks;
import org.apache.iceberg.util.ThreadPools;

/** Looks up in storage what the commits of a table have added to it. */
public class Added {
  private final Table table;

  public Added(Table table) { this.table = table; }

  /**
   * What of a commit is gone: its manifest list, or manifests that it added, or (if these are there, and that is wanted) data and delete files
   * that it added. Empty also for a snapshot that the table does not have.
   */
  public List missing(long snapshotId, boolean withFiles) {
    final List gone = Collections.synchronizedList(new ArrayList());
    Snapshot snapshot = table.snapshot(snapshotId);
    if (snapshot == null || snapshot.manifestListLocation() == null) return gone;
    lookUp(Collections.singletonList(snapshot.manifestListLocation()), gone);
    if (!gone.isEmpty()) return gone;
    List manifests = new ArrayList();
    for (Iterator each = snapshot.allManifests(table.io()).iterator(); each.hasNext();) {
      ManifestFile manifest = (ManifestFile) each.next();
      if (manifest.snapshotId() != null && manifest.snapshotId().longValue() == snapshotId) manifests.add(manifest.path());
    }
    lookUp(manifests, gone);
    if (!gone.isEmpty() || !withFiles) return gone;
    SnapshotChanges changes = SnapshotChanges.builderFor(table).snapshot(snapshot).build();
    Set files = new LinkedHashSet();
    for (Iterator each = changes.addedDataFiles().iterator(); each.hasNext();) files.add(((ContentFile) each.next()).location());
    for (Iterator each = changes.addedDeleteFiles().iterator(); each.hasNext();) files.add(((ContentFile) each.next()).location());
    lookUp(files, gone);
    return gone;
  }

  private void lookUp(Collection paths, final List gone) {
    Tasks.foreach(paths).executeWith(ThreadPools.getWorkerPool()).run(new Tasks.Task() {
      public void run(Object path) {
        if (!table.io().newInputFile((String) path).exists()) gone.add(path);
      }
    });
  }
}
