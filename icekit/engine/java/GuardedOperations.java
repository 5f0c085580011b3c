package icekit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.*;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/**
 * Commits to a table, and says truly whether a commit was made; refuses that of a rewrite which would drop deletes newer than the files it
 * rewrites, drop the deletion vector of a file that stays, or change row ids.
 *
 * Iceberg takes many errors for the answer "not made" (CleanableFailure; without strict cleanup every error), and removes the manifests of the
 * snapshot: a catalog, or a proxy before it, that answers 503 or 409 after the commit was made leaves a table that nobody can read. So after
 * each error the table is loaded anew. If it has the commit, the commit was made, and the error is dropped. If it does not, only an error by
 * which a catalog refuses a commit says that it was not made; after every other one it may still be made (CommitStateUnknownException), so
 * that nothing is removed.
 *
 * Dropped deletes: the output of a rewrite has an old sequence number (use-starting-sequence-number, Iceberg's default), so that equality deletes that a
 * stream commits meanwhile apply to it too, and are no conflict. But each commit drops the delete files older than every data file that
 * it leaves in place, and does not count the files that it adds: MergingSnapshotProducer.apply (1.12.0, according to its bytecode) takes
 * the lowest sequence number of the existing manifests, without the files that it replaces, for
 * ManifestFilterManager.dropDeleteFilesOlderThan, and considers its new manifests only afterwards (apache/iceberg pull request 10962 is
 * open). Whether an older file stays is decided on the state that the commit is based on: another writer may replace the last one while
 * the rewrite runs, so no check before the commit, and no margin of files, is enough. A file of ours that is never replaced would add a
 * commit and a file to a person's table, and others may drop it too. With a new number ({@code false}), every equality delete committed
 * meanwhile for a replaced file is a conflict: safe, but next to a stream that reaches all partitions no rewrite ever succeeds. A check
 * after the commit is too late: readers have seen the rows. So the commit itself is checked before the catalog receives it:
 * TableOperations.commit gets the complete new snapshot with its manifests, and after a conflict the next one. The check is in Java, so
 * that all other exceptions reach Iceberg unchanged (the files of a commit that may have succeeded must not be deleted).
 *
 * Vectors: a rewrite drops the deletion vectors of the files that it replaces, which is Iceberg's work. One of a file that stays would
 * bring its deleted rows back, and no comparison of the rewritten rows would show it; so the commit itself is checked for that too.
 *
 * Row ids: the first commit after an upgrade to format version 3 gives each row an id. What a rewrite read before it has no ids, so its
 * new files would get others. Such a commit is a conflict: the rewrite is tried again with the ids.
 */
class GuardedOperations implements TableOperations {
  private final TableOperations table;
  private final String branch;
  private final Long head;
  /** The branches whose rows had no ids when they were read. */
  private final Set unnumbered = new HashSet();
  /** What compares the rows that position deletes delete; null if a commit may change them. */
  private final PositionDeletes positions;

  /** With a branch, a commit is refused unless this snapshot is its head. */
  public GuardedOperations(TableOperations table, String branch, Long head, PositionDeletes positions) {
    this.table = table;
    this.branch = branch;
    this.head = head;
    this.positions = positions;
    for (Iterator refs = table.current().refs().entrySet().iterator(); refs.hasNext();) {
      Map.Entry ref = (Map.Entry) refs.next();
      Snapshot read = table.current().snapshot(((SnapshotRef) ref.getValue()).snapshotId());
      if (read != null && read.firstRowId() == null) unnumbered.add(ref.getKey());
    }
  }

  public void commit(TableMetadata base, TableMetadata metadata) {
    if (branch != null && (base.ref(branch) == null || base.ref(branch).snapshotId() != head.longValue())) {
      throw new ValidationException("Cannot commit: %s is no longer at snapshot %s", new Object[] {branch, head});
    }
    for (Iterator changes = metadata.changes().iterator(); changes.hasNext();) {
      Object change = changes.next();
      if (change instanceof MetadataUpdate.AddSnapshot) {
        Snapshot added = ((MetadataUpdate.AddSnapshot) change).snapshot();
        check(metadata, added);
        if (positions != null) checkPositions(base, metadata, added);
      }
      if (change instanceof MetadataUpdate.SetSnapshotRef) {
        MetadataUpdate.SetSnapshotRef ref = (MetadataUpdate.SetSnapshotRef) change;
        if (unnumbered.contains(ref.name())) checkIds(base.ref(ref.name()), base, metadata.snapshot(ref.snapshotId()));
      }
    }
    try {
      table.commit(base, metadata);
    } catch (CommitStateUnknownException error) {
      if (!isMade(metadata, error)) throw error;
    } catch (RuntimeException error) {
      if (isMade(metadata, error)) return;
      if (isRefusal(error)) throw error;
      throw new CommitStateUnknownException(error);
    }
  }

  /** Whether the table, loaded anew after an error, has what a commit changes; for a commit that neither adds nor removes a snapshot, nobody knows. */
  private boolean isMade(TableMetadata metadata, RuntimeException error) {
    TableMetadata now;
    try {
      now = table.refresh();
    } catch (RuntimeException unread) {
      CommitStateUnknownException unknown = new CommitStateUnknownException(error);
      unknown.addSuppressed(unread);
      throw unknown;
    }
    if (now == null) return false;
    boolean isSeen = false;
    for (Iterator changes = metadata.changes().iterator(); changes.hasNext();) {
      Object change = changes.next();
      if (change instanceof MetadataUpdate.AddSnapshot) {
        if (now.snapshot(((MetadataUpdate.AddSnapshot) change).snapshot().snapshotId()) == null) return false;
        isSeen = true;
      }
      if (change instanceof MetadataUpdate.RemoveSnapshots) {
        for (Iterator ids = ((MetadataUpdate.RemoveSnapshots) change).snapshotIds().iterator(); ids.hasNext();) {
          if (now.snapshot(((Long) ids.next()).longValue()) != null) return false;
        }
        isSeen = true;
      }
    }
    return isSeen;
  }

  /** Whether a catalog that answers so has made no commit. */
  private static boolean isRefusal(RuntimeException error) {
    return error instanceof CommitFailedException
        || error instanceof ValidationException
        || error instanceof BadRequestException
        || error instanceof NotAuthorizedException
        || error instanceof ForbiddenException
        || error instanceof NoSuchTableException;
  }

  /** A commit that rewrites position deletes must delete the same rows as before it. */
  private void checkPositions(TableMetadata base, TableMetadata metadata, Snapshot added) {
    if (added.parentId() == null) return;
    String path;
    try {
      path = positions.changedBy(tableOf(base), added.parentId().longValue(), tableOf(metadata), added.snapshotId());
    } catch (Exception error) {
      throw new ValidationException(error, "Cannot commit: position deletes could not be compared: %s", new Object[] {error});
    }
    if (path != null) {
      throw new ValidationException("Cannot commit: other rows of a data file would be deleted by position than before: %s", new Object[] {path});
    }
  }

  private Table tableOf(TableMetadata metadata) { return new BaseTable(new StaticTableOperations(metadata, table.io()), "compared"); }

  /** Rows of files that were read without ids must not have got some since. */
  private void checkIds(SnapshotRef before, TableMetadata base, Snapshot added) {
    Snapshot parent = before == null ? null : base.snapshot(before.snapshotId());
    if (parent == null || parent.firstRowId() == null || !changes(added).removedDataFiles().iterator().hasNext()) return;
    throw new ValidationException("Cannot commit: rows have got row ids since they were read without", new Object[0]);
  }

  /** With the specs of the table: a snapshot alone cannot read manifests of a spec whose column was dropped. */
  private SnapshotChanges changes(Snapshot snapshot) {
    return SnapshotChanges.builderFor(new BaseTable(table, "guarded")).snapshot(snapshot).build();
  }

  /** The files of a commit are read once for both checks, and not at all for a rewrite of all manifests, which has many to read. */
  private void check(TableMetadata metadata, Snapshot snapshot) {
    // Without a new data file, no delete can be newer than one.
    boolean addsData = snapshot.summary().get("added-data-files") != null;
    boolean dropsVectors = snapshot.summary().get("removed-dvs") != null;
    if (!addsData && !dropsVectors) return;
    SnapshotChanges changes = changes(snapshot);
    if (addsData) checkEqualityDeletes(changes);
    if (dropsVectors) checkVectors(metadata, snapshot, changes);
  }

  private void checkEqualityDeletes(SnapshotChanges changes) {
    long oldest = Long.MAX_VALUE;
    for (Iterator files = changes.addedDataFiles().iterator(); files.hasNext();) {
      Long number = ((DataFile) files.next()).dataSequenceNumber();
      if (number != null) oldest = Math.min(oldest, number.longValue());
    }
    for (Iterator files = changes.removedDeleteFiles().iterator(); files.hasNext();) {
      DeleteFile file = (DeleteFile) files.next();
      Long number = file.dataSequenceNumber();
      if (file.content() == FileContent.EQUALITY_DELETES && (number == null || number.longValue() > oldest)) {
        throw new ValidationException(
            "Cannot commit: equality deletes that apply to a rewritten file would be dropped with the last older data file: %s",
            new Object[] {file.location()});
      }
    }
  }

  /** A commit may drop a deletion vector only with its data file, or for another vector, or if no data file has its path any more. */
  private void checkVectors(TableMetadata metadata, Snapshot snapshot, SnapshotChanges changes) {
    Set settled = new HashSet();
    for (Iterator files = changes.removedDataFiles().iterator(); files.hasNext();) settled.add(((DataFile) files.next()).location());
    for (Iterator files = changes.addedDeleteFiles().iterator(); files.hasNext();) settled.add(((DeleteFile) files.next()).referencedDataFile());
    Set dropped = new HashSet();
    for (Iterator files = changes.removedDeleteFiles().iterator(); files.hasNext();) {
      DeleteFile file = (DeleteFile) files.next();
      if (ContentFiles.isVector(file) && !settled.contains(file.referencedDataFile())) dropped.add(file.referencedDataFile());
    }
    if (dropped.isEmpty()) return;
    for (Iterator manifests = snapshot.dataManifests(table.io()).iterator(); manifests.hasNext();) {
      String path = firstLive((ManifestFile) manifests.next(), metadata, dropped);
      if (path != null) {
        throw new ValidationException("Cannot commit: the deletion vector of a data file that stays would be dropped: %s", new Object[] {path});
      }
    }
  }

  /** The first of some data files that a manifest lists; null without one. */
  private String firstLive(ManifestFile manifest, TableMetadata metadata, Set paths) {
    ManifestReader files = ManifestFiles.read(manifest, table.io(), metadata.specsById());
    try {
      for (Iterator each = files.iterator(); each.hasNext();) {
        String path = ((DataFile) each.next()).location();
        if (paths.contains(path)) return path;
      }
      return null;
    } finally {
      try {
        files.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  public TableMetadata current() { return table.current(); }
  public TableMetadata refresh() { return table.refresh(); }
  public FileIO io() { return table.io(); }
  public EncryptionManager encryption() { return table.encryption(); }
  public String metadataFileLocation(String name) { return table.metadataFileLocation(name); }
  public LocationProvider locationProvider() { return table.locationProvider(); }
  public TableOperations temp(TableMetadata metadata) { return table.temp(metadata); }
  public long newSnapshotId() { return table.newSnapshotId(); }
  public boolean requireStrictCleanup() { return table.requireStrictCleanup(); }
}
