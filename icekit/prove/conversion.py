"""Check the delete files of a conversion before they are committed: their content, their places, and a sample of rows by other means."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from icekit.engine.bridge import compiled, java_list, lent
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.compat import arrow_of
from icekit.engine.staging import Staging
from icekit.facts.metadata import schema_of
from icekit.prove.commits import most_records
from icekit.prove.fingerprint import Fingerprint, exact_case, row_hash, summed_up
from icekit.prove.proof import CHECKED_POSITIONS_TAG, SAMPLED_FILES, SAMPLED_KEYS, UNSEEN, CheckedPositions, RowsDiffer
from icekit.resolve.convert import Pending, by_file
from icekit.resolve.delete_files import Positions
from icekit.resolve.join import DATA, KIND, KeySet, deduplicated, hinted, looked_up, path_to, sampled, tasks, words
from icekit.sql import identifier
from icekit.units import count

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from icekit.sql import Identifier

# In Java, because it visits every file that Iceberg plans to scan, and every deleted position.
_NAME = "icekit.Conversion"
_SOURCE = """
package icekit;

import java.util.*;
import java.util.function.Function;
import java.util.function.LongConsumer;
import java.util.zip.CRC32;
import org.apache.iceberg.*;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.util.ContentFileUtil;
import org.apache.iceberg.util.PartitionSet;

/** A commit that adds delete files, each for one data file, and removes others. */
public class Conversion {
  /** Deletes by position that are read for the data files of new deletion vectors: each of these reads all that apply to it. */
  private static final int MOST_OPENS = 10000;

  private final Staging staging;
  private final Table table;
  private final List added;
  private final List removed;
  /** What identifies the removed files. */
  private final Set gone = new HashSet();
  /** The equality deletes that are converted, by path: number of the partition (-1 for all) and sequence number. */
  private final Map deletes = new HashMap();
  /** The new delete files, by the path of their data file, and what Iceberg deletes there by position. */
  private final Map own = new HashMap();
  private final Map earlier = new HashMap();
  private int opens = 0;

  /** {@code deletes}: path, number of the partition and sequence number of each equality delete, all joined by zeros. */
  public Conversion(Staging staging, List added, List removed, String deletes) {
    this.staging = staging;
    this.table = staging.table;
    this.added = added;
    this.removed = removed;
    for (Iterator each = removed.iterator(); each.hasNext();) gone.add(key((DeleteFile) each.next()));
    for (Iterator each = added.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      own.put(delete.referencedDataFile(), delete);
    }
    String[] all = split(deletes);
    for (int i = 0; i + 2 < all.length; i += 3) this.deletes.put(all[i], all[i + 1] + " " + all[i + 2]);
  }

  private static String[] split(String joined) { return joined.split(String.valueOf((char) 0)); }

  /** What tells a delete file from others: a Puffin file holds many. */
  private static String key(DeleteFile file) { return file.location() + " " + file.contentOffset(); }

  private static boolean isVector(DeleteFile file) { return file.format() == FileFormat.PUFFIN; }

  /** A delete file that the commit would remove and should not, or would not remove and should; null if there is none. The last commit removes the equality deletes. */
  public String wrong(boolean isLast) {
    Set expected = new HashSet(isLast ? deletes.keySet() : Collections.EMPTY_SET);
    for (Iterator each = removed.iterator(); each.hasNext();) {
      DeleteFile delete = (DeleteFile) each.next();
      boolean isRight;
      if (delete.content() == FileContent.EQUALITY_DELETES) {
        isRight = expected.remove(delete.location());
      } else {
        // A position delete file replaces no other.
        DeleteFile instead = (DeleteFile) own.get(ContentFileUtil.referencedDataFileLocation(delete));
        isRight = instead != null && isVector(instead);
      }
      if (!isRight) return delete.location();
    }
    return expected.isEmpty() ? null : (String) expected.iterator().next();
  }

  /** What Iceberg reads from each {@code step}-th new delete file: the number of positions, the sum of their hashes and the data file; each followed by a zero. */
  public String positions(int first, int step) {
    StringBuilder found = new StringBuilder();
    for (int i = first; i < added.size(); i += step) {
      DeleteFile delete = (DeleteFile) added.get(i);
      String path = delete.referencedDataFile();
      found.append(summed(Collections.singletonList(delete), path)).append(' ').append(path).append((char) 0);
    }
    return found.toString();
  }

  private String summed(List positionDeletes, String path) {
    PositionDeleteIndex index = new BaseDeleteLoader(new Function() {
      public Object apply(Object file) { return table.io().newInputFile((DeleteFile) file); }
    }).loadPositionDeletes(positionDeletes, path);
    final long[] sums = new long[2];
    index.forEach(new LongConsumer() {
      public void accept(long position) {
        sums[0]++;
        sums[1] += mixed(position);
      }
    });
    return sums[0] + " " + sums[1];
  }

  /** A hash of a position: the last steps of SplitMix64. */
  private static long mixed(long value) {
    long hash = value + 0x9E3779B97F4A7C15L;
    hash = (hash ^ (hash >>> 30)) * 0xBF58476D1CE4E5B9L;
    hash = (hash ^ (hash >>> 27)) * 0x94D049BB133111EBL;
    return hash ^ (hash >>> 31);
  }

  /**
   * Compare the listing of a conversion with how Iceberg itself plans a scan of its snapshot. Data files are given as path, number of the partition,
   * sequence number, all joined by zeros. The result has what is wrong, as {@code unlisted}, {@code mismatched}, {@code misplaced} or {@code unplanned}
   * with a data file, and {@code kept} with a delete file that a new deletion vector has to replace and the commit does not remove;
   * {@code earlier}: a line for each new delete file: what the deletes by position say that apply to its data file, if it is a vector ("?" after so
   * many opens); and {@code chosen}: some tasks, as {@link Staging#some} chooses them, and one to which a new delete file belongs.
   */
  public Map planned(long snapshotId, String data, int place, int slices, int count, long most, long seed) throws Exception {
    Map listed = listed(data), result = new HashMap(), missing = new HashMap(own);
    Staging.Sample sample = new Staging.Sample(count, most, seed), hits = new Staging.Sample(1, most, seed);
    CloseableIterable tasks = ((TableScan) table.newScan().useSnapshot(snapshotId)).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext();) {
        FileScanTask task = (FileScanTask) each.next();
        String path = ((DataFile) task.file()).location();
        Set known = (Set) listed.get(path);
        // The bounds of a listed file may rule all deletes out.
        if (!isApplied(task) && known == null) continue;
        if (known != null && !isListed(task, known)) result.put("mismatched", path);
        if (!isIn(path, place, slices)) continue;
        if (known == null) result.put("unlisted", path);
        DeleteFile hit = (DeleteFile) missing.remove(path);
        if (hit != null) compare(task, hit, result);
        if (!areReadable(task)) continue;
        sample.offer(task, true);
        if (hit != null) hits.offer(task, true);
      }
    } finally {
      tasks.close();
    }
    if (!missing.isEmpty()) result.put("unplanned", missing.keySet().iterator().next());
    StringBuilder lines = new StringBuilder();
    for (Iterator each = added.iterator(); each.hasNext();) lines.append(earlier.get(((DeleteFile) each.next()).referencedDataFile())).append((char) 10);
    result.put("earlier", lines.toString());
    List chosen = sample.tasks();
    for (Iterator each = hits.random().iterator(); each.hasNext();) {
      Object task = each.next();
      if (!chosen.contains(task)) chosen.add(task);
    }
    result.put("chosen", chosen);
    return result;
  }

  /** The partitions and sequence numbers of listed data files, by path: a file may be in the table twice. */
  private static Map listed(String data) {
    Map found = new HashMap();
    String[] all = split(data);
    for (int i = 0; i + 2 < all.length; i += 3) {
      if (!found.containsKey(all[i])) found.put(all[i], new HashSet());
      ((Set) found.get(all[i])).add(all[i + 1] + " " + all[i + 2]);
    }
    return found;
  }

  /** Whether a file is in a slice: by the checksum of its path, as {@code crc32} is in Spark. */
  private static boolean isIn(String path, int place, int slices) throws Exception {
    CRC32 sum = new CRC32();
    sum.update(path.getBytes("UTF-8"));
    return sum.getValue() % slices == place;
  }

  private boolean isApplied(FileScanTask task) {
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      if (deletes.containsKey(((DeleteFile) its.next()).location())) return true;
    }
    return false;
  }

  /** Whether Iceberg applies the equality deletes to a listed file as the listing does: of the same partition, and newer than the file. */
  private boolean isListed(FileScanTask task, Set known) {
    long number = Staging.sequence((DataFile) task.file());
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      String said = (String) deletes.get(delete.location());
      if (said == null) continue;
      if (!said.endsWith(" " + Staging.sequence(delete)) || Staging.sequence(delete) <= number) return false;
      boolean isThere = false;
      for (Iterator ones = known.iterator(); ones.hasNext();) {
        String one = (String) ones.next();
        String part = one.substring(0, one.indexOf(' ') + 1);
        isThere = isThere || (one.equals(part + number) && (said.startsWith("-1 ") || said.startsWith(part)));
      }
      if (!isThere) return false;
    }
    return true;
  }

  /** Compare a new delete file with the deletes by position that Iceberg applies to its data file. */
  private void compare(FileScanTask task, DeleteFile hit, Map result) {
    DataFile file = (DataFile) task.file();
    PartitionSet parts = PartitionSet.create(table.specs());
    parts.add(file.specId(), file.partition());
    if (!parts.contains(hit.specId(), hit.partition())) result.put("misplaced", file.location());
    List before = new ArrayList();
    for (Iterator its = task.deletes().iterator(); isVector(hit) && its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      if (delete.content() != FileContent.POSITION_DELETES) continue;
      before.add(delete);
      if (ContentFileUtil.referencedDataFileLocation(delete) != null && !gone.contains(key(delete))) result.put("kept", delete.location());
    }
    opens += before.size();
    earlier.put(file.location(), before.isEmpty() ? "0 0" : opens > MOST_OPENS ? "?" : summed(before, file.location()));
  }

  /** Whether the key columns of all equality deletes are in the schema: before 1.12, Iceberg's reader fails at others. */
  private boolean areReadable(FileScanTask task) {
    for (Iterator its = task.deletes().iterator(); its.hasNext();) {
      DeleteFile delete = (DeleteFile) its.next();
      if (delete.content() != FileContent.EQUALITY_DELETES) continue;
      for (Iterator ids = delete.equalityFieldIds().iterator(); ids.hasNext();) {
        if (table.schema().findField(((Integer) ids.next()).intValue()) == null) return false;
      }
    }
    return true;
  }

  /** The tasks as they would be after the last commit of the conversion. */
  public List changed(List tasks) {
    List found = new ArrayList();
    for (Iterator each = tasks.iterator(); each.hasNext();) {
      FileScanTask task = (FileScanTask) each.next();
      DataFile file = (DataFile) task.file();
      DeleteFile more = (DeleteFile) own.get(file.location());
      // A reader that finds a deletion vector ignores other deletes by position.
      boolean isReplaced = more != null && isVector(more);
      List kept = new ArrayList();
      for (Iterator its = task.deletes().iterator(); its.hasNext();) {
        DeleteFile delete = (DeleteFile) its.next();
        if (!(delete.content() == FileContent.EQUALITY_DELETES ? deletes.containsKey(delete.location()) : isReplaced)) kept.add(delete);
      }
      if (more != null) kept.add(more);
      found.add(staging.task(file, kept));
    }
    return found;
  }
}
"""
# Delete files that are read at the same time.
_AT_ONCE = 4
# With fewer delete records, every key is looked up: a sample would show little, and might be empty.
_FEW = UNSEEN * SAMPLED_KEYS


def check_positions(pending: Pending) -> Mapping[str, str]:
    """Check what a conversion is about to commit; returns the tag that says what was checked, and raises :class:`RowsDiffer` if anything is wrong.

    Returns no tag, so that the commit is compared in full afterwards, for a key column that was dropped (before 1.12, Iceberg's own reader fails at such
    deletes), and where the JVM compiles no classes.
    """
    fields = schema_of(pending.found.at.metadata)["fields"]
    if not all(path_to(fields, field_id) for field_id in pending.found.keys.columns):
        return {}
    try:
        check = _Check(pending, Staging(pending.spark, pending.found.at.table))
    except Exception:
        return {}
    # A cache of deletes may hide some (apache/iceberg 15039).
    with lent(pending.spark, {**exact_case(fields), CACHE_KEYS[1]: "false"}):
        return {CHECKED_POSITIONS_TAG: check.run().text()}


class _Check:
    """The checks of one commit of a conversion."""

    def __init__(self, pending: Pending, staging: Staging) -> None:
        self.pending, self.staging = pending, staging
        self.spark, self.found = pending.spark, pending.found
        self.salt = random.getrandbits(31)
        found = self.found
        deletes = _joined(text for f in found.deletes for text in (f.path, str(-1 if found.is_global(f) else f.part), str(f.sequence)))
        files = (java_list(self.spark, some) for some in (pending.added, pending.removed))
        self.java = compiled(self.spark._jvm, staging.java, _NAME, _SOURCE, staging.java, *files, deletes)

    @property
    def view(self) -> Identifier:
        """The key view; only for deletes that apply to some file."""
        assert self.pending.view is not None
        return self.pending.view

    def run(self) -> CheckedPositions:
        """Make every check; raises if one fails."""
        pending = self.pending
        self._check_content()
        if path := self.java.wrong(pending.is_last):
            raise _differ(f"the commit would not remove the right delete files, of which one is {path}")
        chosen = self._planned()
        sampled, one_in = self._look_up() if pending.view else (0, 1)
        files, rows = self._check_files(chosen)
        return CheckedPositions(
            positions=sum(positions.count for positions in pending.written.values()),
            resolved=sum(key_set.records for key_set in self.found.key_sets),
            sampled=sampled,
            one_in=one_in,
            files=files,
            of_files=rows,
        )

    def _check_content(self) -> None:
        """Compare what Iceberg reads from each new delete file with what it is to hold: the positions found, and those deleted before."""
        pending = self.pending
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts = list(pool.map(lambda first: str(self.java.positions(first, _AT_ONCE)), range(_AT_ONCE)))
        lines = [text.split("\0") for text in texts]
        if len(pending.added) != len(pending.written):
            raise _differ(f"{count(len(pending.added), 'delete file')} were written for {count(len(pending.written), 'data file')}")
        for place, (number, positions) in enumerate(pending.written.items()):
            file, every = self.found.data[number], positions.all()
            found, earlier = (which.get(number, Positions()) for which in (pending.dead, pending.earlier))
            if not np.array_equal(every, found.with_more(earlier).all()):
                raise _differ(f"the positions for {file.path} are not those found and those deleted before")
            if (last := int(every[-1])) >= file.records:
                raise _differ(f"row {last:,} of {file.path} would be deleted, which has only {count(file.records, 'row')}")
            read = lines[place % _AT_ONCE][place // _AT_ONCE]
            if read != f"{_summed(every)} {file.path}":
                raise _differ(
                    f"Iceberg reads {read.split()[0]} deleted positions of {file.path}, but not the {positions.count:,} that were found"
                )

    def _planned(self) -> Any:
        """Compare the listing with how Iceberg plans a scan; returns some of its tasks, with the deletes that it applies to each."""
        pending, found = self.pending, self.found
        data = _joined(text for f in found.data for text in (f.path, str(f.part), str(f.sequence)))
        most = most_records(cluster_of(self.spark))
        result = self.java.planned(found.at.snapshot_id, data, *pending.slices, SAMPLED_FILES, most, self.salt)
        for key, text in _WRONG.items():
            if path := result.get(key):
                raise _differ(text.format(path))
        for number, line in zip(pending.written, str(result.get("earlier")).splitlines(), strict=True):
            if line not in {"?", _summed(pending.earlier.get(number, Positions()).all())}:
                raise _differ(f"the positions read as deleted before in {found.data[number].path} are not those that Iceberg applies")
        return result.get("chosen")

    def _look_up(self) -> tuple[int, int]:
        """Look up keys by a plain join: every key if the deletes are few, else one in :data:`SAMPLED_KEYS`; returns of how many rows, and one in how many keys."""
        key_sets = sorted(self.found.key_sets, key=lambda key_set: -key_set.records)
        with self._sampled_deletes(key_sets[0]) as deletes:
            # A table may have rows of few keys, and none in the sample.
            if deletes is not None and self._keys(key_sets[0]) >= UNSEEN:
                rows = self._sampled(key_sets, deletes)
                # That sample is by the keys of the largest set; each other one is looked up by its own.
                for key_set in key_sets[1:]:
                    self._look_up_one(key_set, key_sets)
                return rows, SAMPLED_KEYS
        found = self._found(key_sets, None)
        for number in self.pending.dead:
            if number not in found or found[number].count < self.pending.dead[number].count:
                raise _differ(f"in {self.found.data[number].path} rows without a delete would be deleted")
        return sum(file.records for file in self.found.data), 1

    def _look_up_one(self, key_set: KeySet, key_sets: Sequence[KeySet]) -> None:
        """Look up the keys of one set: a sample of them, or all deletes of the set if the rows have few sampled keys."""
        with self._sampled_deletes(key_set) as its_own:
            if its_own is not None and self._keys(key_set) >= UNSEEN:
                self._sampled([key_set, *(other for other in key_sets if other is not key_set)], its_own)
            else:
                self._found([key_set], None)

    def _keys(self, key_set: KeySet) -> int:
        """About how many different keys of a set the rows in its sample have."""
        columns = ", ".join(column.sql for column in key_set.columns)
        rows = f"FROM {identifier(*self.view)} WHERE {KIND} = {DATA} AND {self._sample(key_set, SAMPLED_KEYS)}"
        return int(self.spark.sql(f"SELECT approx_count_distinct(xxhash64({columns})) {rows}").collect()[0][0])

    def _shuffling(self, one_in: int, key_sets: Sequence[KeySet]) -> contextlib.AbstractContextManager[None]:
        """Shuffle one in so many rows and deletes of the first set, and all deletes of sets with other keys, into no more partitions than they need.

        Every task writes a file for each partition.
        """
        rows = sum(file.records for file in self.found.data)
        in_full = sum(key_set.records for key_set in key_sets if key_set.columns != key_sets[0].columns)
        sampled = max(rows, sum(key_set.records for key_set in key_sets)) // one_in
        partitions = max(tasks(sampled), tasks(in_full), self.spark.sparkContext.defaultParallelism)
        return lent(self.spark, {"spark.sql.shuffle.partitions": str(partitions)})

    @contextlib.contextmanager
    def _sampled_deletes(self, key_set: KeySet) -> Iterator[DataFrame | None]:
        """The newest delete of each sampled key of a set; None if a sample has too few different keys to show something."""
        if key_set.records < _FEW:
            yield None
            return
        deletes = deduplicated(self.spark, self.view, key_set, self._sample(key_set, SAMPLED_KEYS)).persist()
        try:
            with self._shuffling(SAMPLED_KEYS, [key_set]):
                records = deletes.count()
                # In how many partitions of the table a key is does not matter.
                keys = deletes.select(*(f"k{place}" for place in range(len(key_set.columns)))).distinct().count()
            yield hinted(deletes, records) if keys >= UNSEEN else None
        finally:
            deletes.unpersist()

    def _sample(self, key_set: KeySet, one_in: int) -> str:
        return sampled([column.sql for column in key_set.columns], self.salt, one_in)

    def _found(self, key_sets: Sequence[KeySet], deletes: DataFrame | None) -> dict[int, Positions]:
        """The rows that a plain join finds deleted, after a check that all of them would be."""
        frames = [self._rows([key_set], deletes).where("dead").select("f", "pos") for key_set in key_sets]
        every = reduce(lambda one, other: one.unionAll(other), frames)
        with self._shuffling(1 if deletes is None else SAMPLED_KEYS, key_sets):
            found = by_file(arrow_of(words(every, sum(key_set.records for key_set in key_sets))))
        for number, deleted in found.items():
            if lost := int((~_among(deleted, self.pending.dead.get(number))).sum()):
                raise _differ(f"in {self.found.data[number].path} {count(lost, 'deleted row')} would stay")
        return found

    def _sampled(self, key_sets: Sequence[KeySet], deletes: DataFrame) -> int:
        """Compare all rows with one key in some, deleted or not; returns how many."""
        records = sum(file.records for file in self.found.data) // SAMPLED_KEYS
        with self._shuffling(SAMPLED_KEYS, key_sets):
            got = arrow_of(words(self._rows(key_sets, deletes), records, "dead"))
        dead, live = by_file(got.filter(got.column("dead"))), by_file(got.filter(pc.invert(got.column("dead"))))
        for number in {*dead, *live}:
            deleted = self.pending.dead.get(number)
            lost = int((~_among(dead.get(number), deleted)).sum())
            taken = int(_among(live.get(number), deleted).sum())
            if lost or taken:
                raise _differ(
                    f"for one key in {SAMPLED_KEYS}, in {self.found.data[number].path} {count(lost, 'deleted row')} would stay, and {count(taken, 'row')} without a delete would be deleted"
                )
        return sum(positions.count for side in (dead, live) for positions in side.values())

    def _rows(self, key_sets: Sequence[KeySet], deletes: DataFrame | None) -> DataFrame:
        """All rows, or those of the sampled keys of the first set, whose ``deletes`` are given."""
        return looked_up(self.spark, self.view, key_sets, self._sample(key_sets[0], 1 if deletes is None else SAMPLED_KEYS), deletes)

    def _check_files(self, chosen: Any) -> tuple[int, int]:
        """Let Iceberg read some whole files with their deletes of now, and with those of after the commit; returns how many files and rows."""
        if not int(chosen.size()):
            return 0, 0
        before, after = self._read(chosen), self._read(self.java.changed(chosen))
        if before != after:
            raise _differ(
                f"from {count(int(chosen.size()), 'data file')}, Iceberg reads {before} before the commit, and would read {after} after it"
            )
        return int(chosen.size()), after.row_count

    def _read(self, tasks: Any) -> Fingerprint:
        with self.staging.reading(tasks) as rows:
            return summed_up(rows, row_hash(rows.schema))


# What Iceberg's plan may show of a data file.
_WRONG = {
    "unlisted": "the equality deletes apply to {}, where no deleted row was looked for",
    "unplanned": "{} is not in the scan of the table",
    "mismatched": "Iceberg applies other equality deletes to {} than the conversion did",
    "misplaced": "the delete file of {} is of another partition",
    "kept": "a new deletion vector has to replace {}, but the commit would not remove it",
}


def _among(some: Positions | None, others: Positions | None) -> npt.NDArray[np.bool_]:
    """Which of some positions are among others."""
    return np.isin((some or Positions()).all(), (others or Positions()).all())


def _joined(texts: Iterable[str]) -> str:
    return "\0".join(texts)


def _summed(positions: npt.NDArray[np.int64]) -> str:
    """How many positions, and the sum of their hashes, as Java says it: the last steps of SplitMix64, modulo 2**64, as a signed number."""
    mixed = positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return f"{len(positions)} {int(mixed.sum(dtype=np.uint64).astype(np.int64))}"


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer.of("delete files", what, "`icekit compact` removes these deletes in another way.")
