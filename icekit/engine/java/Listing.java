package icekit;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Projections;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.Tasks;
import org.apache.iceberg.util.ThreadPools;

/**
 * The equality deletes of a snapshot by partition, and the data files that they apply to by the specification. Read from the manifests, in
 * Iceberg's own threads: a scan would leave out what the bounds of keys rule out.
 *
 * A scope is a partition with equality deletes; those of an unpartitioned spec are global. Scopes are known by their numbers. Results are JSON.
 */
public class Listing {
  /** What is read of a data file: no statistics. */
  private static final List COLUMNS = Arrays.asList(
      new String[] {"content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "split_offsets"});

  /** As many data files, or delete files, are remembered; more are read from their manifests again. */
  private static final int MOST_KEPT = 20000;

  /** Python reads NaN as a number. */
  private static final ObjectMapper JSON = new ObjectMapper().configure(JsonGenerator.Feature.QUOTE_NON_NUMERIC_NUMBERS, false);

  private final Table table;
  private final Snapshot snapshot;
  private final Map kept = new HashMap();
  /** Until all files are counted: later visits may skip manifests. */
  private boolean isCounting = true;
  private final long upTo;
  /** By the text of their partition, in the order of their numbers: global ones come last. */
  private final SortedMap scopes = new TreeMap();
  private final long[] counted = new long[2];
  private final SortedSet keyIds = new TreeSet();
  /** What was listed last, and the numbers of partitions without equality deletes. */
  private final List data = new ArrayList();
  private final List deletes = new ArrayList();
  private final Map others = new HashMap();

  private static class Scope {
    final int specId;
    final StructLike partition;
    final boolean isGlobal;
    int number;
    long newest = -1;
    /** Files, records and bytes of the deletes, and of the data files older than the newest. */
    final long[] sums = new long[6];

    Scope(ContentFile file, boolean isGlobal) {
      this.specId = file.specId();
      this.partition = file.partition();
      this.isGlobal = isGlobal;
    }

    void add(ContentFile file, int place) {
      sums[place]++;
      sums[place + 1] += file.recordCount();
      sums[place + 2] += file.fileSizeInBytes();
    }
  }

  /** Sees one file after another, as what it has found out before, beside other threads. */
  private abstract static class Visitor {
    boolean skips(ManifestFile manifest) { return false; }

    Object look(ContentFile file, ManifestFile manifest) throws Exception { return file; }

    abstract void see(ContentFile file, Object looked) throws Exception;
  }

  private static class Found {
    final ContentFile file;
    final int part;

    Found(ContentFile file, int part) {
      this.file = file;
      this.part = part;
    }
  }

  /**
   * Leaves out deletes of later sequence numbers. With some scan tasks of the snapshot: only their data files, and the deletes that the scan gives
   * them; no manifest is read.
   */
  public Listing(Table table, long snapshotId, long upTo, List tasks) throws Exception {
    this.table = table;
    this.snapshot = table.snapshot(snapshotId);
    if (snapshot == null) throw new IllegalArgumentException("Snapshot " + snapshotId + " has expired");
    this.upTo = upTo;
    if (tasks != null) keep(tasks);
    visitDeletes(new Visitor() {
      Object look(ContentFile file, ManifestFile manifest) throws Exception { return isTaken(file) ? key(file) : null; }

      void see(ContentFile file, Object key) { count(file, (String) key); }
    });
    int number = 0;
    for (Iterator each = scopes.values().iterator(); each.hasNext();) ((Scope) each.next()).number = number++;
    visitData(new Visitor() {
      Object look(ContentFile file, ManifestFile manifest) throws Exception { return reaching(file); }

      void see(ContentFile file, Object reaching) {
        counted[0]++;
        for (Iterator each = ((List) reaching).iterator(); each.hasNext();) ((Scope) each.next()).add(file, 3);
      }
    });
    isCounting = false;
  }

  /** The files of scan tasks, as {@link #visit} keeps those of manifests. */
  private void keep(List tasks) {
    List data = new ArrayList(), deletes = new ArrayList();
    Set seen = new HashSet();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      data.add(new Object[] {task.file(), null});
      for (Iterator its = task.deletes().iterator(); its.hasNext();) {
        DeleteFile delete = (DeleteFile) its.next();
        // One that is in the table twice, with two sequence numbers, is refused as anywhere else.
        if (seen.add(ContentFiles.key(delete) + " " + ContentFiles.sequence(delete))) deletes.add(new Object[] {delete, null});
      }
    }
    kept.put(ManifestContent.DATA, data);
    kept.put(ManifestContent.DELETES, deletes);
  }

  private void count(ContentFile file, String key) {
    counted[1]++;
    if (key == null) return;
    Scope scope = (Scope) scopes.get(key);
    if (scope == null) scopes.put(key, scope = new Scope(file, isGlobal(file)));
    scope.add(file, 0);
    keyIds.addAll(key(((DeleteFile) file).equalityFieldIds()));
    scope.newest = Math.max(scope.newest, ContentFiles.sequence(file));
  }

  private boolean isTaken(ContentFile file) { return file.content() == FileContent.EQUALITY_DELETES && ContentFiles.sequence(file) <= upTo; }

  private boolean isGlobal(ContentFile file) { return ContentFiles.spec(table, file).isUnpartitioned(); }

  /** The scopes that have deletes newer than a data file which apply to it. */
  private List reaching(ContentFile file) throws Exception {
    List found = new ArrayList();
    long sequence = ContentFiles.sequence(file);
    Scope own = scopes.isEmpty() ? null : (Scope) scopes.get(key(file));
    if (own != null && !own.isGlobal && sequence < own.newest) found.add(own);
    for (Iterator each = scopes.tailMap("1").values().iterator(); each.hasNext();) {
      Scope scope = (Scope) each.next();
      if (sequence < scope.newest) found.add(scope);
    }
    return found;
  }

  /** Tells a partition from every other, of any spec. */
  private String key(ContentFile file) throws Exception {
    return (isGlobal(file) ? "1" : "0") + file.specId() + " " + JSON.writeValueAsString(values(file.partition()));
  }

  /** The values of a partition: nulls, numbers, booleans, and the text of others. */
  private static List values(StructLike partition) {
    List found = new ArrayList();
    for (int i = 0; i < partition.size(); i++) {
      Object value = partition.get(i, Object.class);
      if (value instanceof Float) found.add(new Double(((Number) value).doubleValue()));
      else if (value == null || value instanceof Integer || value instanceof Long || value instanceof Double || value instanceof Boolean) found.add(value);
      else found.add(text(value));
    }
    return found;
  }

  private static String text(Object value) {
    if (value instanceof java.math.BigDecimal) return ((java.math.BigDecimal) value).toPlainString();
    if (!(value instanceof ByteBuffer)) return value.toString();
    StringBuilder found = new StringBuilder();
    byte[] bytes = ByteBuffers.toByteArray((ByteBuffer) value);
    for (int i = 0; i < bytes.length; i++) {
      found.append(Character.forDigit(bytes[i] >> 4 & 15, 16)).append(Character.forDigit(bytes[i] & 15, 16));
    }
    return found.toString();
  }

  private void visitDeletes(final Visitor visitor) throws Exception { visit(snapshot.deleteManifests(table.io()), ManifestContent.DELETES, visitor); }

  private void visitData(final Visitor visitor) throws Exception { visit(snapshot.dataManifests(table.io()), ManifestContent.DATA, visitor); }

  private void visit(List manifests, ManifestContent content, final Visitor visitor) throws Exception {
    if (kept.containsKey(content)) {
      for (Iterator each = ((List) kept.get(content)).iterator(); each.hasNext();) {
        Object[] one = (Object[]) each.next();
        visitor.see((ContentFile) one[0], visitor.look((ContentFile) one[0], (ManifestFile) one[1]));
      }
      return;
    }
    final List seen = new ArrayList();
    Tasks.foreach((Iterable) manifests).executeWith(ThreadPools.getWorkerPool()).stopOnFailure().throwFailureWhenFinished().run(new Tasks.Task() {
      public void run(Object item) throws Exception {
        ManifestFile manifest = (ManifestFile) item;
        if (visitor.skips(manifest)) return;
        // Of deletes everything: bounds may name the data file of a position delete.
        ManifestReader files = manifest.content() == ManifestContent.DATA
            ? ManifestFiles.read(manifest, table.io(), table.specs()).select(COLUMNS)
            : ManifestFiles.readDeleteManifest(manifest, table.io(), table.specs());
        try {
          for (Iterator each = files.iterator(); each.hasNext();) {
            ContentFile file = (ContentFile) each.next();
            Object looked = visitor.look(file, manifest);
            synchronized (visitor) {
              visitor.see(file, looked);
              if (isCounting && seen.size() <= MOST_KEPT) seen.add(new Object[] {file, manifest});
            }
          }
        } finally {
          files.close();
        }
      }
    }, Exception.class);
    if (isCounting && seen.size() <= MOST_KEPT) kept.put(content, seen);
  }

  /** How many data files and delete files there are. */
  public String counted() throws Exception { return JSON.writeValueAsString(counted); }

  /** The field ids of all keys. */
  public String keyIds() throws Exception { return JSON.writeValueAsString(keyIds); }

  /** Of each scope: its spec, the values of its partition, its newest sequence number and its sums. */
  public String scopes() throws Exception {
    List found = new ArrayList();
    for (Iterator each = scopes.values().iterator(); each.hasNext();) {
      Scope scope = (Scope) each.next();
      found.add(new Object[] {new Integer(scope.specId), values(scope.partition), new Long(scope.newest), scope.sums});
    }
    return JSON.writeValueAsString(found);
  }

  /** The scopes whose partitions may hold rows of an expression, and whether any was left out. */
  public String where(Expression expression, boolean isCaseSensitive) throws Exception {
    List found = new ArrayList();
    boolean narrows = false;
    Map evaluators = new HashMap();
    for (Iterator each = scopes.values().iterator(); each.hasNext();) {
      Scope scope = (Scope) each.next();
      PartitionSpec spec = (PartitionSpec) table.specs().get(new Integer(scope.specId));
      if (!evaluators.containsKey(spec)) {
        Expression projected = Projections.inclusive(spec, isCaseSensitive).project(expression);
        narrows = narrows || projected.op() != Expression.Operation.TRUE;
        evaluators.put(spec, new Evaluator(spec.partitionType(), projected, isCaseSensitive));
      }
      if (((Evaluator) evaluators.get(spec)).eval(scope.partition)) found.add(new Integer(scope.number));
    }
    return JSON.writeValueAsString(new Object[] {found, Boolean.valueOf(narrows)});
  }

  private static BitSet numbers(String joined) {
    BitSet found = new BitSet();
    String[] all = ContentFiles.split(joined);
    for (int i = 0; i < all.length; i++) found.set(Integer.parseInt(all[i]));
    return found;
  }

  private boolean isReached(ContentFile file, BitSet chosen) throws Exception {
    for (Iterator each = reaching(file).iterator(); each.hasNext();) {
      if (chosen.get(((Scope) each.next()).number)) return true;
    }
    return false;
  }

  /**
   * List the deletes of some scopes, and those data files they apply to that are in a slice: path, size, records, sequence number, spec, number of
   * the partition (-1 for global deletes) and key of each, null for a data file; first the deletes. Both are in the order in which they were
   * written: tasks then read neighbouring files, whose keys repeat.
   */
  public String list(String joined, final int place, final int slices) throws Exception {
    final BitSet chosen = numbers(joined);
    deletes.clear();
    data.clear();
    others.clear();
    visitDeletes(new Visitor() {
      void see(ContentFile file, Object looked) throws Exception {
        Scope scope = isTaken(file) ? (Scope) scopes.get(key(file)) : null;
        if (scope == null || !chosen.get(scope.number)) return;
        deletes.add(new Found((ContentFile) file.copyWithoutStats(), scope.isGlobal ? -1 : scope.number));
      }
    });
    visitData(new Visitor() {
      Object look(ContentFile file, ManifestFile manifest) throws Exception {
        return isReached(file, chosen) && ContentFiles.slice(file.location(), slices) == place ? file : null;
      }

      void see(ContentFile file, Object listed) throws Exception {
        if (listed != null) data.add(new Found(file, part(file)));
      }
    });
    List found = new ArrayList();
    add(deletes, found);
    add(data, found);
    return JSON.writeValueAsString(found);
  }

  private int part(ContentFile file) throws Exception {
    String key = key(file);
    if (scopes.containsKey(key)) return ((Scope) scopes.get(key)).number;
    if (!others.containsKey(key)) others.put(key, new Integer(scopes.size() + others.size()));
    return ((Integer) others.get(key)).intValue();
  }

  private static SortedSet key(List fieldIds) { return fieldIds == null ? new TreeSet() : new TreeSet(fieldIds); }

  private static void add(List files, List found) {
    Collections.sort(files, new Comparator() {
      public int compare(Object one, Object other) {
        Found a = (Found) one, b = (Found) other;
        if (a.part != b.part) return a.part < b.part ? -1 : 1;
        long first = ContentFiles.sequence(a.file), second = ContentFiles.sequence(b.file);
        return first != second ? (first < second ? -1 : 1) : a.file.location().compareTo(b.file.location());
      }
    });
    for (Iterator each = files.iterator(); each.hasNext();) {
      Found one = (Found) each.next();
      found.add(new Object[] {one.file.location(), new Long(one.file.fileSizeInBytes()), new Long(one.file.recordCount()),
          new Long(ContentFiles.sequence(one.file)), new Integer(one.file.specId()), new Integer(one.part),
          one.file.content() == FileContent.EQUALITY_DELETES ? key(one.file.equalityFieldIds()) : null});
    }
  }

  /**
   * What a scan lists, which rules deletes out by the bounds of keys. Of each scope with such deletes: its number, the data files and their rows,
   * and the delete files and their records.
   */
  public String applied() throws Exception {
    Map found = new TreeMap();
    Set seen = new HashSet();
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshot.snapshotId())).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        Set reached = new HashSet();
        for (Iterator deletes = task.deletes().iterator(); deletes.hasNext();) {
          DeleteFile delete = (DeleteFile) deletes.next();
          Scope scope = isTaken(delete) ? (Scope) scopes.get(key(delete)) : null;
          if (scope == null) continue;
          Integer number = new Integer(scope.number);
          if (!found.containsKey(number)) found.put(number, new long[4]);
          long[] sums = (long[]) found.get(number);
          if (reached.add(number)) {
            sums[0]++;
            sums[1] += ((DataFile) task.file()).recordCount();
          }
          if (seen.add(delete.location())) {
            sums[2]++;
            sums[3] += delete.recordCount();
          }
        }
      }
    } finally {
      tasks.close();
    }
    List rows = new ArrayList();
    for (Iterator each = found.entrySet().iterator(); each.hasNext();) {
      Map.Entry entry = (Map.Entry) each.next();
      rows.add(new Object[] {entry.getKey(), entry.getValue()});
    }
    return JSON.writeValueAsString(rows);
  }

  /** A listed file, as Iceberg knows it. */
  public ContentFile deleteFile(int place) { return ((Found) deletes.get(place)).file; }

  public ContentFile dataFile(int place) { return ((Found) data.get(place)).file; }

  /**
   * The data files, to which the deletes of some scopes apply, that the earlier slices have not seen. Each slice has the
   * sequence number of the snapshot that it was listed at. A rewrite may give its files the number that it started from, so that older deletes
   * apply to them; the number of a file's own commit tells.
   */
  public String uncovered(String joined, String listedAt, final int slices) throws Exception {
    final BitSet chosen = numbers(joined);
    final String[] seen = ContentFiles.split(listedAt);
    final SortedSet paths = new TreeSet();
    visitData(new Visitor() {
      boolean skips(ManifestFile manifest) { return manifest.sequenceNumber() <= Long.parseLong(seen[0]); }

      Object look(ContentFile file, ManifestFile manifest) throws Exception {
        int slice = ContentFiles.slice(file.location(), slices);
        // Iceberg before 1.0 did not keep the number; then the manifest tells, and one that was merged since looks new.
        long added = file.fileSequenceNumber() == null ? manifest.sequenceNumber() : file.fileSequenceNumber().longValue();
        return slice < seen.length && added > Long.parseLong(seen[slice]) && isReached(file, chosen) ? file : null;
      }

      void see(ContentFile file, Object unseen) {
        if (unseen != null) paths.add(file.location());
      }
    });
    return JSON.writeValueAsString(paths);
  }

  /** Those of some data files that the snapshot has more than once (appended twice). */
  public String repeated(String joined) throws Exception {
    final Set given = new HashSet(Arrays.asList(ContentFiles.split(joined)));
    final Set seen = new HashSet();
    final SortedSet found = new TreeSet();
    visitData(new Visitor() {
      void see(ContentFile file, Object looked) {
        if (given.contains(file.location()) && !seen.add(file.location())) found.add(file.location());
      }
    });
    return JSON.writeValueAsString(found);
  }

  /** The position deletes and vectors of some data files, by data file; and the number of rows of those that cover several files, by path. */
  public List positionDeletes(String joined) throws Exception {
    final Set given = new HashSet(Arrays.asList(ContentFiles.split(joined)));
    final Map own = new HashMap(), shared = new HashMap();
    visitDeletes(new Visitor() {
      void see(ContentFile file, Object looked) {
        if (file.content() != FileContent.POSITION_DELETES) return;
        String path = ContentFileUtil.referencedDataFileLocation((DeleteFile) file);
        if (path == null) shared.put(file.location(), new Long(file.recordCount()));
        if (path == null || !given.contains(path)) return;
        if (!own.containsKey(path)) own.put(path, new ArrayList());
        ((List) own.get(path)).add(file);
      }
    });
    return Arrays.asList(new Object[] {own, shared});
  }
}
