package icekit;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableScan;

/** What the other classes ask of a data or delete file. */
final class ContentFiles {
  private ContentFiles() {}

  static long sequence(ContentFile file) { return file.dataSequenceNumber() == null ? 0L : file.dataSequenceNumber().longValue(); }

  static PartitionSpec spec(Table table, ContentFile file) { return (PartitionSpec) table.specs().get(new Integer(file.specId())); }

  /** A data file of another spec that reads what a data file or delete file holds; still without its partition. */
  static DataFiles.Builder asData(ContentFile file, PartitionSpec spec) {
    DataFiles.Builder made = DataFiles.builder(spec).withPath(file.location()).withFormat(file.format())
        .withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(file.recordCount());
    return file.splitOffsets() == null ? made : made.withSplitOffsets(file.splitOffsets());
  }

  static boolean isVector(DeleteFile file) { return file.format() == FileFormat.PUFFIN; }

  /** The position deletes and deletion vectors of a task. */
  static List positionDeletes(FileScanTask task) {
    List found = new ArrayList();
    for (Iterator each = task.deletes().iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      if (delete.content() == FileContent.POSITION_DELETES) found.add(delete);
    }
    return found;
  }

  /** What tells a delete file from others: a Puffin file holds many deletion vectors. */
  static String key(DeleteFile file) { return file.location() + " " + file.contentOffset(); }

  /** A path without its folder. */
  static String nameOf(String path) { return path.substring(path.lastIndexOf('/') + 1); }

  /** The slice of a data file: computed from its path, so that the file stays in its slice whatever is added or removed. */
  static int slice(String path, int slices) throws Exception {
    CRC32 sum = new CRC32();
    sum.update(path.getBytes("UTF-8"));
    return (int) (sum.getValue() % slices);
  }

  /** The tasks of a scan of a snapshot, which {@link #close} closes, or {@code some} of them; null stands for all. */
  static Iterable tasks(Table table, long snapshotId, List some) {
    return some == null ? (Iterable) ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles() : some;
  }

  static void close(Iterable tasks) throws IOException {
    if (tasks instanceof Closeable) ((Closeable) tasks).close();
  }

  /** Texts that came joined by zeros. */
  static String[] split(String joined) { return joined.split(String.valueOf((char) 0)); }
}
