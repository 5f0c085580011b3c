package icekit.bench;

import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.SplittableRandom;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileMetadata;
import org.apache.iceberg.ManifestFile;
import org.apache.iceberg.ManifestFiles;
import org.apache.iceberg.ManifestWriter;
import org.apache.iceberg.Metrics;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableUtil;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * Makes data and delete files that exist in metadata only, by Iceberg's own builders and writers.
 *
 * Compiled in the Spark driver by Janino, which Spark brings along for its own generated code: a
 * py4j call per file would take minutes for 100,000 files. (Janino knows no generics.)
 */
public class BenchFiles {
  private final Table table;
  private final int partitions;

  /** For a table partitioned by one date field, whose files are spread over so many days. */
  public BenchFiles(Table table, int partitions) {
    this.table = table;
    this.partitions = partitions;
  }

  /** Write files from a number on into one manifest until it has its target size. */
  public ManifestFile manifest(String location, long from, long to, long targetBytes) throws IOException {
    OutputFile file = table.io().newOutputFile(location);
    ManifestWriter writer = ManifestFiles.write(TableUtil.formatVersion(table), table.spec(), file, null);
    for (long i = from; i < to && (i % 250 != 0 || writer.length() < targetBytes); i++) {
      writer.add(data(i));
    }
    writer.close();
    return writer.toManifestFile();
  }

  /** Commit data files, and every so many of them an equality delete file for the same partition. */
  public void upsert(long from, long to, int filesPerDelete) {
    RowDelta delta = table.newRowDelta();
    for (long i = from; i < to; i++) {
      delta.addRows(data(i));
      // Shifted by one each time round the partitions, so that all of them get some.
      if ((i + i / partitions) % filesPerDelete == 0) {
        delta.addDeletes(delete(i));
      }
    }
    delta.commit();
  }

  private DataFile data(long number) {
    SplittableRandom random = new SplittableRandom(number);
    // Half near the 512 MB target, half of any size below it, as tables with streams look.
    double scale = random.nextBoolean() ? 0.6 + 0.8 * random.nextDouble() : Math.pow(2, -14 * random.nextDouble());
    long size = (long) (512 * 1024 * 1024 * scale);
    int day = (int) (number % partitions);
    return DataFiles.builder(table.spec())
        .withPath(table.location() + "/data/" + name(number) + ".parquet")
        .withFormat("parquet")
        .withPartition(partition(day))
        .withFileSizeInBytes(size)
        .withMetrics(metrics(number, day, size, 1 + size / 100, random))
        .build();
  }

  private DeleteFile delete(long number) {
    SplittableRandom random = new SplittableRandom(-number);
    long size = 1024 + random.nextInt(1024 * 1024);
    int day = (int) (number % partitions);
    return FileMetadata.deleteFileBuilder(table.spec())
        .ofEqualityDeletes(new int[] {1})
        .withPath(table.location() + "/data/" + name(number) + "-deletes.parquet")
        .withFormat("parquet")
        .withPartition(partition(day))
        .withFileSizeInBytes(size)
        .withMetrics(metrics(number, day, size, 1 + size / 10, random))
        .build();
  }

  private PartitionData partition(int day) {
    PartitionData values = new PartitionData(table.spec().partitionType());
    values.set(0, Integer.valueOf(FIRST_DAY + day));
    return values;
  }

  private static final int FIRST_DAY = 19723;

  private static String name(long number) {
    SplittableRandom random = new SplittableRandom(number * 31);
    return String.format("%05d-%d-%016x%016x-00001", new Object[] {
        Long.valueOf(number % 1000), Long.valueOf(number), Long.valueOf(random.nextLong()), Long.valueOf(random.nextLong())});
  }

  private Metrics metrics(long number, int day, long size, long records, SplittableRandom random) {
    Map sizes = new HashMap();
    Map values = new HashMap();
    Map nulls = new HashMap();
    Map nans = new HashMap();
    Map lower = new HashMap();
    Map upper = new HashMap();
    Object[] columns = table.schema().columns().toArray();
    for (int c = 0; c < columns.length; c++) {
      Types.NestedField column = (Types.NestedField) columns[c];
      Integer id = Integer.valueOf(column.fieldId());
      sizes.put(id, Long.valueOf(size / columns.length * (50 + random.nextInt(100)) / 100));
      values.put(id, Long.valueOf(records));
      nulls.put(id, Long.valueOf(c < 4 ? 0 : random.nextLong(records)));
      if (column.type().typeId() == Type.TypeID.DOUBLE) {
        nans.put(id, Long.valueOf(0));
      }
      Object[] range = range(column.type(), c, number, day, random);
      lower.put(id, Conversions.toByteBuffer(column.type(), range[0]));
      upper.put(id, Conversions.toByteBuffer(column.type(), range[1]));
    }
    return new Metrics(Long.valueOf(records), sizes, values, nulls, nans, lower, upper);
  }

  /** Bounds: the first column's follow the order of writing, times the partition; the others overlap. */
  private static Object[] range(Type type, int place, long number, int day, SplittableRandom random) {
    String kind = type.typeId().toString();
    if (kind.equals("TIMESTAMP")) {
      long start = (FIRST_DAY + day) * 86400000000L;
      long into = random.nextLong(43200000000L);
      return new Object[] {Long.valueOf(start + into), Long.valueOf(start + 86400000000L - 1 - random.nextLong(43200000000L))};
    }
    if (kind.equals("DATE")) {
      return new Object[] {Integer.valueOf(FIRST_DAY + day), Integer.valueOf(FIRST_DAY + day + random.nextInt(30))};
    }
    if (kind.equals("STRING")) {
      return new Object[] {"0" + Long.toString(random.nextLong(1L << 62), 36), "z" + Long.toString(random.nextLong(1L << 62), 36)};
    }
    if (kind.equals("DOUBLE")) {
      return new Object[] {Double.valueOf(random.nextDouble()), Double.valueOf(1000 * (1 + random.nextDouble()))};
    }
    if (kind.equals("DECIMAL")) {
      return new Object[] {decimal(random.nextInt(10000)), decimal(10000 + random.nextInt(90000000))};
    }
    if (kind.equals("BOOLEAN")) {
      return new Object[] {Boolean.FALSE, Boolean.TRUE};
    }
    if (kind.equals("INTEGER")) {
      return new Object[] {Integer.valueOf(random.nextInt(10)), Integer.valueOf(1000 + random.nextInt(1000))};
    }
    if (place == 0) {
      return new Object[] {Long.valueOf(number * 1000), Long.valueOf(number * 1000 + 999)};
    }
    return new Object[] {Long.valueOf(random.nextInt(1000000)), Long.valueOf(1000000L + random.nextLong(1L << 40))};
  }

  private static BigDecimal decimal(long cents) {
    return new BigDecimal(BigInteger.valueOf(cents), 2);
  }
}
