package icekit;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.function.Function;
import org.apache.iceberg.*;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.types.Comparators;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/**
 * The ranges of the data files of a table in some columns, which scans of {@link #table} collect as they plan.
 *
 * The files that they plan are without statistics, as those of other scans: a file with the bounds of all columns takes a hundred times the
 * memory of two values.
 */
final class FileRanges {
  /** A file in which every value of a column is null: no filter on a value opens it. */
  private static final Object[] NULLS = new Object[0];

  private final Table plain;
  private final List fields = new ArrayList();
  private final Map ranges = new IdentityHashMap();
  private final Map specs = new HashMap();
  private final String schema;
  private final ResidualEvaluator all = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());

  /** For columns by their names; a name that the table does not have is a column that no file has a range in. */
  FileRanges(Table table, List names) {
    this.plain = table;
    this.schema = SchemaParser.toJson(table.schema());
    for (Iterator each = names.iterator(); each.hasNext();) {
      Types.NestedField field = table.schema().findField((String) each.next());
      fields.add(field == null || !field.type().isPrimitiveType() ? null : field);
    }
  }

  /** The table whose scans collect the ranges of the files that they plan. */
  Table table() {
    List names = new ArrayList();
    for (Iterator each = fields.iterator(); each.hasNext();) {
      Types.NestedField field = (Types.NestedField) each.next();
      if (field != null) names.add(plain.schema().findColumnName(field.fieldId()));
    }
    if (names.isEmpty() || !(plain instanceof HasTableOperations)) return plain;
    return new RangedTable(((HasTableOperations) plain).operations(), plain.name(), names);
  }

  private class RangedTable extends BaseTable {
    private final List names;

    RangedTable(TableOperations operations, String name, List names) {
      super(operations, name);
      this.names = names;
    }

    public TableScan newScan() { return collecting((TableScan) super.newScan().includeColumnStats(names)); }
  }

  /** A scan, and the scans that are refined from it, that hand over each planned file without its statistics. */
  private TableScan collecting(final TableScan scan) {
    return (TableScan) Proxy.newProxyInstance(TableScan.class.getClassLoader(), new Class[] {TableScan.class}, new InvocationHandler() {
      public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        Object result;
        try {
          result = method.invoke(scan, arguments);
        } catch (InvocationTargetException error) {
          throw error.getCause();
        }
        if (method.getName().equals("planFiles")) return collected((CloseableIterable) result);
        return result instanceof TableScan ? collecting((TableScan) result) : result;
      }
    });
  }

  /** By reflection, because the compiler of these classes calls no static method of an interface. */
  private Object collected(CloseableIterable tasks) throws Exception {
    Method transform = CloseableIterable.class.getMethod("transform", new Class[] {CloseableIterable.class, Function.class});
    return transform.invoke(null, new Object[] {tasks, new Function() {
      public Object apply(Object task) { return collected((FileScanTask) task); }
    }});
  }

  private FileScanTask collected(FileScanTask task) {
    DataFile file = (DataFile) task.file();
    DataFile bare = (DataFile) file.copyWithoutStats();
    Object[][] found = new Object[fields.size()][];
    for (int i = 0; i < found.length; i++) found[i] = range(file, (Types.NestedField) fields.get(i));
    ranges.put(bare, found);
    DeleteFile[] deletes = (DeleteFile[]) task.deletes().toArray(new DeleteFile[task.deletes().size()]);
    Integer id = new Integer(file.specId());
    if (!specs.containsKey(id)) specs.put(id, PartitionSpecParser.toJson(ContentFiles.spec(plain, file)));
    return new BaseFileScanTask(bare, deletes, schema, (String) specs.get(id), all);
  }

  /** The least and the greatest value of a file; {@link #NULLS} if it has none, null if it does not say. */
  private static Object[] range(DataFile file, Types.NestedField field) {
    if (field == null) return null;
    Integer id = new Integer(field.fieldId());
    ByteBuffer low = file.lowerBounds() == null ? null : (ByteBuffer) file.lowerBounds().get(id);
    ByteBuffer high = file.upperBounds() == null ? null : (ByteBuffer) file.upperBounds().get(id);
    if (low == null || high == null) {
      Object nulls = file.nullValueCounts() == null ? null : file.nullValueCounts().get(id);
      return nulls != null && nulls.equals(file.valueCounts() == null ? null : file.valueCounts().get(id)) ? NULLS : null;
    }
    try {
      return new Object[] {value(field.type(), low), value(field.type(), high)};
    } catch (RuntimeException corrupt) {
      return null;
    }
  }

  /** A value of its own: not a view of the manifest that it was read from. */
  private static Object value(Type type, ByteBuffer bytes) {
    Object value = Conversions.fromByteBuffer(type, bytes);
    if (value instanceof CharSequence) return value.toString();
    if (!(value instanceof ByteBuffer)) return value;
    byte[] copy = new byte[((ByteBuffer) value).remaining()];
    ((ByteBuffer) ((ByteBuffer) value).duplicate()).get(copy);
    return ByteBuffer.wrap(copy);
  }

  /** The range of a task's file in a column, by its place; null if there is none. */
  Object[] of(FileScanTask task, int column) {
    Object[][] found = (Object[][]) ranges.get(task.file());
    return found == null || found[column] == NULLS ? null : found[column];
  }

  Comparator comparator(int column) {
    Types.NestedField field = (Types.NestedField) fields.get(column);
    return field == null ? null : Comparators.forType((Type.PrimitiveType) field.type());
  }

  /** The range of some tasks' files together, in hexadecimal; "" for nulls alone, null if a file does not say. */
  String together(List tasks, int column) {
    Comparator values = comparator(column);
    Object low = null;
    Object high = null;
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      Object[][] found = (Object[][]) ranges.get(((FileScanTask) each.next()).file());
      if (found == null || found[column] == null) return null;
      if (found[column] == NULLS) continue;
      if (low == null || values.compare(found[column][0], low) < 0) low = found[column][0];
      if (high == null || values.compare(found[column][1], high) > 0) high = found[column][1];
    }
    if (low == null) return "";
    Type type = ((Types.NestedField) fields.get(column)).type();
    return hex(type, low) + " " + hex(type, high);
  }

  private static String hex(Type type, Object value) {
    ByteBuffer bytes = (ByteBuffer) Conversions.toByteBuffer(type, value).duplicate();
    StringBuilder text = new StringBuilder();
    while (bytes.hasRemaining()) {
      int one = bytes.get() & 255;
      text.append(Character.forDigit(one >> 4, 16)).append(Character.forDigit(one & 15, 16));
    }
    return text.toString();
  }
}
