package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

/** A table that no catalog has: the keys of listed files. What a join has to know of a file are the first values of its partition. */
public class KeyTable implements TableOperations {
  private final Table source;
  private final TableMetadata metadata;

  public KeyTable(Table source, String metadata) {
    this.source = source;
    this.metadata = TableMetadataParser.fromJson(metadata);
  }

  public Table table() { return new BaseTable(this, "keys"); }

  public TableMetadata current() { return metadata; }

  public TableMetadata refresh() { return metadata; }

  public FileIO io() { return source.io(); }

  public void commit(TableMetadata base, TableMetadata metadata) { throw new UnsupportedOperationException("a table of keys does not change"); }

  public String metadataFileLocation(String name) { throw new UnsupportedOperationException("a table of keys has no files"); }

  public LocationProvider locationProvider() { return source.locationProvider(); }

  /**
   * Tasks that read the keys of a listing's data files, or delete files. Given are place, order and partition of each, all joined by zeros. Of a data file,
   * a key that its spec has as it is comes from the partition, as Iceberg reads it; a delete file holds its keys, so its spec has none.
   */
  public List tasks(Staging staging, Listing listing, String places, boolean isData, int specOfDeletes) {
    String[] all = ContentFiles.split(places);
    List found = new ArrayList();
    Map bySpec = new HashMap();
    for (int i = 0; i + 2 < all.length; i += 3) {
      int place = Integer.parseInt(all[i]);
      ContentFile file = isData ? listing.dataFile(place) : listing.deleteFile(place);
      PartitionSpec spec = metadata.spec(isData ? file.specId() : specOfDeletes);
      if (!bySpec.containsKey(spec)) bySpec.put(spec, new PartitionData(spec.partitionType()));
      PartitionData values = (PartitionData) bySpec.get(spec);
      values.set(0, new Integer(place));
      values.set(1, new Long(all[i + 1]));
      values.set(2, new Integer(all[i + 2]));
      for (int field = 3; field < spec.fields().size(); field++) {
        values.set(field, constant(file, ((PartitionField) spec.fields().get(field)).sourceId()));
      }
      found.add(staging.task(ContentFiles.asData(file, spec).withPartition(values).build(), Collections.EMPTY_LIST));
    }
    return found;
  }

  /** The value of a column that the partition of a file gives. */
  private Object constant(ContentFile file, int columnId) {
    List fields = ContentFiles.spec(source, file).fields();
    for (int i = 0; i < fields.size(); i++) {
      PartitionField field = (PartitionField) fields.get(i);
      if (field.sourceId() == columnId && field.transform().isIdentity()) return file.partition().get(i, Object.class);
    }
    throw new IllegalStateException("column " + columnId + " is not in the partition of " + file.location());
  }
}
