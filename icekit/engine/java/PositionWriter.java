package icekit;

import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.puffin.Blob;
import org.apache.iceberg.puffin.BlobMetadata;
import org.apache.iceberg.puffin.Puffin;
import org.apache.iceberg.puffin.PuffinCompressionCodec;
import org.apache.iceberg.puffin.PuffinWriter;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Types;

/** Writes the position delete files and deletion vectors of a listing's data files, which are given by their places. */
public class PositionWriter {
  private final Table table;
  private final Listing listing;

  public PositionWriter(Table table, Listing listing) {
    this.table = table;
    this.listing = listing;
  }

  /** Where a file of this name belongs, in the partition of a data file. */
  public String location(int place, String name) {
    ContentFile file = listing.dataFile(place);
    PartitionSpec spec = ContentFiles.spec(table, file);
    if (spec.isUnpartitioned()) return table.locationProvider().newDataLocation(name);
    return table.locationProvider().newDataLocation(spec, file.partition(), name);
  }

  private FileMetadata.Builder made(ContentFile file, String location, long size) {
    PartitionSpec spec = ContentFiles.spec(table, file);
    FileMetadata.Builder builder = FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(location).withFileSizeInBytes(size)
        .withReferencedDataFile(file.location());
    return spec.isPartitioned() ? builder.withPartition(file.partition()) : builder;
  }

  /** A Parquet file of so many positions, from the first to the last. */
  public DeleteFile write(int place, String location, byte[] content, long records, long first, long last) throws Exception {
    OutputStream stream = table.io().newOutputFile(location).createOrOverwrite();
    try {
      stream.write(content);
    } finally {
      stream.close();
    }
    ContentFile file = listing.dataFile(place);
    Metrics metrics = new Metrics(new Long(records), null, null, null, null, bounds(file.location(), first), bounds(file.location(), last));
    return made(file, location, content.length).withFormat(FileFormat.PARQUET).withMetrics(metrics).build();
  }

  /** The full path shows readers that ignore the referenced data file that this covers one file. */
  private static Map bounds(String path, long position) throws Exception {
    Map found = new HashMap();
    found.put(new Integer(MetadataColumns.DELETE_FILE_PATH.fieldId()), ByteBuffer.wrap(path.getBytes("UTF-8")));
    found.put(new Integer(MetadataColumns.DELETE_FILE_POS.fieldId()), Conversions.toByteBuffer(Types.LongType.get(), new Long(position)));
    return found;
  }

  /** A Puffin file of vectors, whose blobs come one after another; given are place, bytes and positions of each, all joined by zeros. */
  public List vectors(String location, byte[] blobs, String given) throws Exception {
    String[] all = ContentFiles.split(given);
    List fields = Collections.singletonList(new Integer(MetadataColumns.ROW_POSITION.fieldId()));
    List places = new ArrayList();
    PuffinWriter writer = Puffin.write(table.io().newOutputFile(location)).createdBy("icekit").build();
    try {
      int start = 0;
      for (int i = 0; i + 2 < all.length; i += 3) {
        Map properties = new HashMap();
        properties.put("referenced-data-file", listing.dataFile(Integer.parseInt(all[i])).location());
        properties.put("cardinality", all[i + 2]);
        int length = Integer.parseInt(all[i + 1]);
        ByteBuffer content = ByteBuffer.wrap(Arrays.copyOfRange(blobs, start, start + length));
        start += length;
        places.add(writer.write(new Blob("deletion-vector-v1", fields, -1, -1, content, PuffinCompressionCodec.NONE, properties)));
      }
    } finally {
      writer.close();
    }
    List found = new ArrayList();
    for (int i = 0; i < places.size(); i++) {
      BlobMetadata blob = (BlobMetadata) places.get(i);
      found.add(made(listing.dataFile(Integer.parseInt(all[3 * i])), location, writer.fileSize()).withFormat(FileFormat.PUFFIN)
          .withContentOffset(blob.offset()).withContentSizeInBytes(blob.length()).withRecordCount(Long.parseLong(all[3 * i + 2])).build());
    }
    return found;
  }
}
