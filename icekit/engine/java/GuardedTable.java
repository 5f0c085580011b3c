package icekit;

import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/**
 * A table as it was when a piece of work began, whose commits go to the table as it is now ({@link GuardedOperations}).
 *
 * Groups of files that are at work next to each other share one table object, and a commit refreshes that which it is made by: the other
 * groups would go on with the columns, the partition specs and the format version that another job has changed meanwhile.
 */
public class GuardedTable extends BaseTable {
  private final BaseTable live;

  public GuardedTable(BaseTable table, String branch, Long head, PositionDeletes positions) {
    super(new Pinned(table.operations()), table.name(), table.reporter());
    this.live = new BaseTable(new GuardedOperations(table.operations(), branch, head, positions), table.name(), table.reporter());
  }

  /** The table as it is now, with the same commits. */
  public BaseTable live() { return live; }

  public RewriteFiles newRewrite() { return live.newRewrite(); }
  public RowDelta newRowDelta() { return live.newRowDelta(); }
  public RewriteManifests rewriteManifests() { return live.rewriteManifests(); }
  public ExpireSnapshots expireSnapshots() { return live.expireSnapshots(); }

  /** Iceberg's own method is not visible here, and tasks get a copy of the table. */
  Object writeReplace() { return SerializableTable.copyOf(this); }

  /** Reads the metadata of one moment, and commits nothing. */
  public static class Pinned implements TableOperations {
    private final TableOperations table;
    private final TableMetadata metadata;

    public Pinned(TableOperations table) {
      this.table = table;
      this.metadata = table.current();
    }

    public TableMetadata current() { return metadata; }
    public TableMetadata refresh() { return metadata; }
    public void commit(TableMetadata base, TableMetadata changed) {
      throw new UnsupportedOperationException("icekit makes no commit of this kind");
    }
    public FileIO io() { return table.io(); }
    public EncryptionManager encryption() { return table.encryption(); }
    public String metadataFileLocation(String name) { return table.metadataFileLocation(name); }
    public LocationProvider locationProvider() { return table.locationProvider(); }
    public TableOperations temp(TableMetadata temporary) { return table.temp(temporary); }
    public long newSnapshotId() { return table.newSnapshotId(); }
  }
}
