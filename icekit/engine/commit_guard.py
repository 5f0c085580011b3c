"""Refuse the commit of a rewrite that would drop deletes newer than what it rewrites."""

from __future__ import annotations

from typing import Any

# What a rewrite writes has an old sequence number (use-starting-sequence-number, Iceberg's default), so that equality
# deletes that a stream commits meanwhile apply to it too, and are no conflict. But each commit drops the delete files
# older than every data file that it leaves in place, and what it adds itself is not counted: MergingSnapshotProducer.apply
# (1.12.0, by its bytecode) takes the least sequence number of the manifests that were there, files that it replaces
# left out, for ManifestFilterManager.dropDeleteFilesOlderThan, and looks at its new manifests after that (apache/iceberg
# pull request 10962 is open). Whether an older file stays is settled on the state that is committed on: another
# writer may replace the last one while the rewrite runs, so that no look before it, and no margin of files, tells. A file
# of ours that is never replaced would be one more commit and one more file in a person's table, and others may drop it too.
# With a new number (``false``) every equality delete of the meantime over a replaced file is a conflict: safe, but next to
# a stream that reaches all partitions no rewrite ends. A look after the commit comes late: readers have seen the rows.
# So the commit itself is looked at, before the catalog takes it: TableOperations.commit is given the new snapshot whole,
# with its manifests, and on a conflict is given the next one that was made. Java refuses, so that all other exceptions
# reach Iceberg as they are (one that is not known to have failed must not have its files deleted), by a class of 30 lines
# that Janino compiles, the compiler that Spark's own code generation runs on.
_NAME = "icekit.GuardedOperations"
_SOURCE = """
package icekit;

import java.util.Iterator;
import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

public class GuardedOperations implements TableOperations {
  private final TableOperations table;

  public GuardedOperations(TableOperations table) { this.table = table; }

  public void commit(TableMetadata base, TableMetadata metadata) {
    for (Iterator changes = metadata.changes().iterator(); changes.hasNext();) {
      Object change = changes.next();
      if (change instanceof MetadataUpdate.AddSnapshot) check(((MetadataUpdate.AddSnapshot) change).snapshot());
    }
    table.commit(base, metadata);
  }

  private void check(Snapshot snapshot) {
    long oldest = Long.MAX_VALUE;
    for (Iterator files = snapshot.addedDataFiles(io()).iterator(); files.hasNext();) {
      Long number = ((DataFile) files.next()).dataSequenceNumber();
      if (number != null) oldest = Math.min(oldest, number.longValue());
    }
    for (Iterator files = snapshot.removedDeleteFiles(io()).iterator(); files.hasNext();) {
      DeleteFile file = (DeleteFile) files.next();
      Long number = file.dataSequenceNumber();
      if (file.content() == FileContent.EQUALITY_DELETES && (number == null || number.longValue() > oldest)) {
        throw new ValidationException(
            "Cannot commit: equality deletes that apply to a rewritten file would be dropped with the last older data file: %s",
            new Object[] {file.location()});
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
"""


def guarded(jvm: Any, table: Any) -> Any | None:
    """The table (as Iceberg's API knows it), which refuses commits that drop deletes of what they add; None where none can be made."""
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(table.getClass().getClassLoader())
        compiler.cook(_SOURCE)
        constructor = compiler.getClassLoader().loadClass(_NAME).getConstructors()[0]
        given = jvm.java.util.ArrayList()
        given.add(table.operations())
        return jvm.org.apache.iceberg.BaseTable(constructor.newInstance(given.toArray()), table.name(), table.reporter())
    except Exception:
        return None  # a JVM that lets nothing be compiled, or a table that is not Iceberg's own
