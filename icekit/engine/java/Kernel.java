package icekit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.actions.RewriteFileGroup;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.parquet.ParquetUtil;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** What icekit.rows.kernel.part is told of old files, as JSON, and the new files that it has written as data files of the table. */
public class Kernel {
  private static final ObjectMapper JSON = new ObjectMapper();
  private final Table table;
  private final Staging staging;
  private final Rewrites rewrites;
  private final MetricsConfig metrics;

  public Kernel(Table table) {
    this.table = table;
    this.staging = new Staging(table);
    this.rewrites = new Rewrites(table);
    this.metrics = MetricsConfig.forTable(table);
  }

  /** Why the kernel does not read the files of some tasks; null if it does. */
  public String refusal(List tasks, int specId, boolean needsIds) {
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      if (file.specId() != specId) return "their data files move to another partition spec";
      if (file.format() != FileFormat.PARQUET) return "a data file is in the format " + file.format();
      if (needsIds && file.firstRowId() == null) return "its rows have no ids yet";
      if (file.keyMetadata() != null) return "a data file is encrypted";
      for (Iterator over = task.deletes().iterator(); over.hasNext();) {
        DeleteFile delete = (DeleteFile) over.next();
        if (delete.format() != FileFormat.PARQUET && delete.format() != FileFormat.PUFFIN) return "a delete file is in the format " + delete.format();
      }
    }
    return null;
  }

  /**
   * The tasks of a group that are written in one go: all of them, or those of each split. Null if a part of a file would
   * be read by itself.
   */
  public List parts(RewriteFileGroup group, List tasks, boolean isWhole) {
    List found = new ArrayList();
    if (isWhole) {
      found.add(tasks);
      return found;
    }
    for (Iterator each = Splits.of(tasks, rewrites.splitSize(group, tasks, rewrites.liveShare(tasks))).iterator(); each.hasNext();) {
      List part = new ArrayList();
      for (Iterator of = ((ScanTaskGroup) each.next()).tasks().iterator(); of.hasNext();) {
        FileScanTask task = (FileScanTask) of.next();
        List offsets = ((DataFile) task.file()).splitOffsets();
        long header = offsets == null || offsets.isEmpty() ? 0 : ((Long) offsets.get(0)).longValue();
        if (task.length() < task.file().fileSizeInBytes() - header) return null;
        part.add(task);
      }
      found.add(part);
    }
    return found;
  }

  /** A part as JSON, but for the numbers of its chosen files: those of these locations. {@code operation} is in the names of its new files. */
  public String part(List tasks, Collection chosen, int files, long maxFileBytes, int number, String operation) throws Exception {
    DataFile first = (DataFile) ((FileScanTask) tasks.get(0)).file();
    PartitionSpec spec = ContentFiles.spec(table, first);
    Map constants = constants(spec, first.partition());
    Set numbers = new TreeSet();
    List data = new ArrayList(), vectors = new ArrayList();
    Map positions = new LinkedHashMap();
    long bytes = 0;
    for (int i = 0; i < tasks.size(); i++) {
      FileScanTask task = (FileScanTask) tasks.get(i);
      DataFile file = (DataFile) task.file();
      bytes += file.fileSizeInBytes();
      Map one = new LinkedHashMap();
      one.put("path", file.location());
      one.put("sequence", new Long(ContentFiles.sequence(file)));
      one.put("first_row_id", file.firstRowId());
      one.put("rows", new Long(file.recordCount()));
      one.put("constants", constants);
      data.add(one);
      if (chosen.contains(file.location())) numbers.add(new Integer(i));
      for (Iterator each = task.deletes().iterator(); each.hasNext();) {
        DeleteFile delete = (DeleteFile) each.next();
        if (delete.content() == FileContent.EQUALITY_DELETES) continue;
        if (ContentFiles.isVector(delete)) {
          vectors.add(new Object[] {new Integer(i), delete.location(), delete.contentOffset(), delete.contentSizeInBytes()});
          continue;
        }
        if (!positions.containsKey(delete.location())) positions.put(delete.location(), new ArrayList());
        ((List) positions.get(delete.location())).add(new Integer(i));
      }
    }
    Map found = new LinkedHashMap();
    found.put("data", data);
    found.put("deletes", deletes(tasks));
    found.put("position_deletes", pairs(positions));
    found.put("vectors", vectors);
    found.put("chosen", numbers);
    // Rows may take more than before, with another codec.
    long most = files + 16 + 8 * bytes / Math.max(1, maxFileBytes);
    List outputs = new ArrayList();
    for (int i = 0; i < most; i++) {
      String name = String.format("%05d-0-%s-%05d.parquet", new Object[] {new Integer(number), operation, new Integer(i + 1)});
      outputs.add(spec.isPartitioned() ? table.locationProvider().newDataLocation(spec, first.partition(), name) : table.locationProvider().newDataLocation(name));
    }
    found.put("outputs", outputs);
    found.put("files", new Integer(files));
    found.put("max_file_bytes", new Long(maxFileBytes));
    return JSON.writeValueAsString(found);
  }

  private static List pairs(Map map) {
    List found = new ArrayList();
    for (Iterator each = map.entrySet().iterator(); each.hasNext();) {
      Map.Entry entry = (Map.Entry) each.next();
      found.add(new Object[] {entry.getKey(), entry.getValue()});
    }
    return found;
  }

  private List deletes(List tasks) throws Exception {
    List found = new ArrayList();
    for (Iterator each = staging.deletes(tasks).entrySet().iterator(); each.hasNext();) {
      Map.Entry entry = (Map.Entry) each.next();
      List files = (List) entry.getValue(), listed = new ArrayList();
      for (int i = 0; i < files.size(); i++) {
        DeleteFile delete = (DeleteFile) files.get(i);
        listed.add(new Object[] {delete.location(), new Long((ContentFiles.sequence(delete) << 32) | i)});
      }
      Map one = new LinkedHashMap();
      one.put("field_ids", JSON.readTree((String) entry.getKey()));
      one.put("files", listed);
      List ruledOut = RuledOut.ofTasks(tasks, files);
      one.put("ruled_out", ruledOut == null ? Collections.EMPTY_LIST : ruledOut);
      found.add(one);
    }
    return found;
  }

  /** The values of a partition by which readers replace those of a file, by the id of their column. */
  private Map constants(PartitionSpec spec, StructLike partition) throws Exception {
    Map found = new LinkedHashMap();
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField field = (PartitionField) spec.fields().get(i);
      if (!field.transform().isIdentity()) continue;
      found.put(String.valueOf(field.sourceId()), json(table.schema().findType(field.sourceId()), partition.get(i, Object.class)));
    }
    return found;
  }

  private static JsonNode json(Type type, Object value) throws Exception {
    return value == null ? JSON.nullNode() : JSON.readTree(SingleValueParser.toJson(type, value));
  }

  /** Why the kernel does not read the keys of listed files; null if it does. */
  public String refusal(Listing listing, int dataFiles, int deleteFiles) {
    for (int i = 0; i < dataFiles + deleteFiles; i++) {
      ContentFile file = i < dataFiles ? listing.dataFile(i) : listing.deleteFile(i - dataFiles);
      if (file.format() != FileFormat.PARQUET) return "a file is in the format " + file.format();
    }
    return null;
  }

  /** The values of the partitions of listed data files by which readers replace those of a file, by the id of their column, as JSON. */
  public String constants(Listing listing, String places) throws Exception {
    List found = new ArrayList();
    String[] all = ContentFiles.split(places);
    for (int i = 0; i < all.length; i++) {
      ContentFile file = listing.dataFile(Integer.parseInt(all[i]));
      found.add(constants(ContentFiles.spec(table, file), file.partition()));
    }
    return JSON.writeValueAsString(found);
  }

  /** The values of the partition of a task, of those fields that are no identity, as JSON: the field's place, and the value. */
  public String transformed(FileScanTask task) throws Exception {
    DataFile file = (DataFile) task.file();
    PartitionSpec spec = ContentFiles.spec(table, file);
    Map found = new LinkedHashMap();
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField field = (PartitionField) spec.fields().get(i);
      if (field.transform().isIdentity() || field.transform().isVoid()) continue;
      Type type = ((Types.NestedField) spec.partitionType().fields().get(i)).type();
      found.put(String.valueOf(i), json(type, file.partition().get(i, Object.class)));
    }
    return JSON.writeValueAsString(found);
  }

  /**
   * The new files of a part, which are in the partition of a task. {@code written}: path, rows, bytes and offsets of row groups of each, as JSON.
   * {@code orderId} is the id of the table's sort order that their rows have, 0 for none.
   */
  public Set added(FileScanTask task, String written, int orderId) throws Exception {
    DataFile old = (DataFile) task.file();
    PartitionSpec spec = ContentFiles.spec(table, old);
    Set found = new HashSet();
    for (Iterator each = JSON.readTree(written).iterator(); each.hasNext();) {
      JsonNode one = (JsonNode) each.next();
      InputFile file = table.io().newInputFile(one.get("path").asText());
      List offsets = new ArrayList();
      for (Iterator of = one.get("offsets").iterator(); of.hasNext();) offsets.add(new Long(((JsonNode) of.next()).asLong()));
      DataFiles.Builder builder = DataFiles.builder(spec).withPath(one.get("path").asText()).withFormat(FileFormat.PARQUET)
          .withFileSizeInBytes(file.getLength()).withMetrics(ParquetUtil.fileMetrics(file, metrics)).withSplitOffsets(offsets);
      if (spec.isPartitioned()) builder.withPartition(old.partition());
      if (orderId != 0) builder.withSortOrder((SortOrder) table.sortOrders().get(new Integer(orderId)));
      found.add(builder.build());
    }
    return found;
  }
}
