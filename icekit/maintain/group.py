"""Write the rows of one group to new files, and check the files before their commit: among others
the rows of some keys, by a plain join that has nothing in common with the rewrite's own.
"""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.common.units import count
from icekit.common.waiting import DeadlineExceeded, within
from icekit.deletes.applies import disagreement, order_sql
from icekit.deletes.join import hinted, sampled
from icekit.engine.bridge import elements
from icekit.engine.causes import java_classes
from icekit.engine.staging import Staging
from icekit.health.metadata import columns, schema_of
from icekit.maintain.difference import column_difference
from icekit.maintain.group_rows import GroupRows
from icekit.maintain.key import Key
from icekit.prove.checked import SAMPLED_FILES, SAMPLED_KEYS, UNSEEN, CheckedRows, RowsDiffer
from icekit.prove.fingerprint import Fingerprint, summed
from icekit.prove.readers import most_records, shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

_OBSERVED_SECONDS = 120
# A split may grow to this multiple of its size, where most of its rows are deleted.
_MOST_GROWTH = 32
# What a writer holds uncompressed: of each column a page and a dictionary of Parquet
# (write.parquet.page-size-bytes, dict-size-bytes), or a stripe of ORC.
_IN_MEMORY_OF_A_COLUMN, _LEAST_IN_MEMORY = 4 * 2**20, 64 * 2**20


@frozen
class Sample:
    """The rows with one in ``one_in`` of the keys of a key set: how many there are, and the
    fingerprint of those that live.
    """

    one_in: int
    rows: int
    live: Fingerprint


class Group(GroupRows):
    """One group of files: its rows without those that equality deletes delete, written to new files
    and checked.
    """

    def compare_files(self, group: Any) -> None:
        """Read some whole files of a group twice, also without equality deletes."""
        if not (self.keys or self.by_reader):
            self.chosen.addAll(self._some(SAMPLED_FILES, group.fileScanTasks()))

    def run(self) -> CheckedRows:
        """Write the group's new files and check them; raises if they are not right, after removing
        them.
        """
        name = str(uuid.uuid4())
        self.rewrite.stop.check()
        self.rewrite.deletes.check_listed(self.tasks)
        try:
            with contextlib.ExitStack() as stack:
                staged, reading, reading_name = self._stage(stack, name)
                # The same rows, to find their columns: how they are split follows from how many of
                # them live.
                first = reading.frame(reading_name, {})
                table_rows = first if reading is self.staging else self.staging.frame(name, {})
                self.hash = self._hash(table_rows)
                projection = self._projection(table_rows.columns)
                newest = {key: self._newest(stack, key) for key in self.keys}
                samples = (
                    {key: self._sampled(first, key) for key in self.keys}
                    if self.rewrite.check
                    else {}
                )
                stock = self._stock()
                share = self._live_share(samples.values(), stock)
                files = max(1, math.ceil(int(self.group.expectedOutputFiles()) * share))
                split_size = self._split_size(staged, share)
                # Only files that follow each other are read together: a new file then covers a part
                # of the range that they are in the order of.
                in_order = {"split-size": str(split_size), "lookback": "1"}
                frame = reading.frame(reading_name, in_order)
                options = self._options(staged, share)
                rows = self._live(frame, newest, files)
                with disagreement(self._path):
                    self.rewrite.stop.check()
                    # A sort reads the rows twice, so that they cannot be counted on their way into
                    # it. Where Iceberg's reader applies deletes, all of them have been read.
                    is_unseen = self.rewrite.runner is not None and not self.by_reader
                    unsorted = self._fingerprint(rows) if self.rewrite.check and is_unseen else None
                    planned = self._write(rows, projection, name, files, samples, options)
            checked = (
                self._checked(planned, samples, unsorted, stock)
                if self.rewrite.check
                else CheckedRows()
            )
            for tasks, rows_read in self._rows_read():
                self.rewrite.deletes.check_deleted(
                    tasks, rows_read, is_observed=self.seen is not None
                )
            return checked
        except Exception:
            self.rewrite.take_back(self.group)
            raise

    def _stage(self, stack: contextlib.ExitStack, name: str) -> tuple[Any, Staging, str]:
        """Stage the old files until the stack ends: under ``name``, by which the new files are
        written, and as a table that has all fields of the keys; returns the staged tasks, what
        reads them and by which name.
        """
        staged = self.java.plain(self.tasks, self.is_numbered) if self.keys else self.tasks
        self.java.stage(staged, name)
        stack.callback(self.java.clear, name)
        reading = self.rewrite.key_staging
        if not self.keys or reading is self.staging:
            return staged, self.staging, name
        reading_name = str(uuid.uuid4())
        reading.java.stage(reading.java.plain(self.tasks, self.is_numbered), reading_name)
        stack.callback(reading.java.clear, reading_name)
        return staged, reading, reading_name

    def _projection(self, names: Sequence[str]) -> list[Column]:
        """The table's own columns of the rows that are read: without fields of structs that were
        dropped, and are read because deletes have them as keys.
        """
        from pyspark.sql import functions as F

        dropped: dict[str, list[str]] = defaultdict(list)
        # Also those that only other groups need: all are read with the same fields.
        for column, *inside in self.rewrite.restored_fields if self.keys else ():
            if inside:
                dropped[column].append(identifier(*inside))
        return [
            F.col(identifier(name)).dropFields(*dropped[name]).alias(name)
            if name in dropped
            else F.col(identifier(name))
            for name in names
        ]

    def _rows_read(self) -> Iterator[tuple[Any, int | None]]:
        """The old files, those of each partition where several are written together, and their rows
        without those that are deleted by position; None if that is unknown.
        """
        if self.keys:
            seen = _observed(self.seen) if self.seen else {}
            yield self.tasks, int(seen["rows"]) if seen else None
            return
        added = self.group.addedFiles()
        parts = list(elements(self.java.byPartition(self.tasks)))
        for tasks in parts:
            rows = (
                self.java.records(added)
                if len(parts) == 1
                else self.java.recordsBeside(added, tasks.get(0))
            )
            yield tasks, None if self.by_reader else int(rows)

    def _options(self, tasks: Any, share: float) -> dict[str, str]:
        # As Iceberg's own action does for files of the current spec.
        options = {
            "target-file-size-bytes": str(self.group.maxOutputFileSize()),
            "output-spec-id": str(self.group.outputSpecId()),
        }
        if self.rewrite.runner is None:
            # A writer takes the rows that it still holds for as large as they are uncompressed: it
            # would end files far below a small target, and the next rewrite would combine them.
            if (
                self.is_one_file_each
                or self.keys
                or self.rewrite.rewrites.isOneFileEach(self.group, tasks, share)
            ):
                options["target-file-size-bytes"] = str(self._largest_with_memory())
            return {**options, "distribution-mode": "none"}
        by_order = (
            {"output-sort-order-id": str(self.rewrite.order_id)} if self.rewrite.order_id else {}
        )
        return {**options, **by_order, "use-table-distribution-and-ordering": "false"}

    def _largest_with_memory(self) -> int:
        """The size at which a writer ends a file, with what it may hold in memory by then."""
        metadata = self.rewrite.metadata
        leaves = len(columns(metadata, schema_of(metadata)))
        in_memory = max(_LEAST_IN_MEMORY, leaves * _IN_MEMORY_OF_A_COLUMN)
        return int(self.group.maxOutputFileSize()) + in_memory

    def _write(
        self,
        rows: DataFrame,
        projection: Sequence[Column],
        name: str,
        files: int,
        samples: Mapping[Key, Sample],
        options: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """Write rows, sorted into so many files if they are sorted, and add up their hashes as they
        are written, unless nothing is checked.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        added = self.added
        check = self.rewrite.check
        runner = self.rewrite.runner
        of_deletes: list[str] = []
        if added.is_compared in rows.columns and check:
            of_deletes = [identifier(added.is_compared)]
        for key, sample in samples.items():
            identity = self._identity(sample.one_in)
            of_deletes.append(
                f"if({self._sample(key.values, sample.one_in)}, {identity}, NULL) AS "
                f"{identifier(key.sampled)}"
            )
        rows = rows.select(*projection, *map(F.expr, of_deletes))
        column_names = [identifier(name) for name in rows.columns[: len(projection)]]
        if runner is not None:
            rows = self.staging.sorted(rows, runner, self.group, files)
        if not check:
            self.group.setOutputFiles(self.staging.write(rows, name, options))
            return {}
        seen = Observation()
        sums = summed(added.hash, "all")
        if of_deletes:
            sums += summed(added.hash, "chosen", identifier(added.is_compared))
        for key in samples:
            sums += summed(key.sampled, key.sampled, f"{identifier(key.sampled)} IS NOT NULL")
        # After the sort: Spark reads all rows before it, too, to find ranges.
        hashed = rows.selectExpr("*", f"{self.hash} AS {identifier(added.hash)}")
        self.group.setOutputFiles(
            self.staging.write(hashed.observe(seen, *sums).selectExpr(*column_names), name, options)
        )
        return _observed(seen)

    def _checked(
        self,
        written: Mapping[str, Any],
        samples: Mapping[Key, Sample],
        unsorted: Fingerprint | None,
        stock: Fingerprint,
    ) -> CheckedRows:
        """Compare the new files, read back, with what was to be written and with the samples of the
        old files; ``stock`` is what Iceberg's own reader reads from the chosen ones.
        """
        planned = Fingerprint.of_sums(written, "all")
        if unsorted not in {None, planned}:
            raise differ(
                f"{unsorted} were read from the old files, but {planned} came out of the sort"
            )
        after = Fingerprint()
        # No file is written if no row lives.
        if int(self.group.addedFiles().size()):
            with self.staging.reading(self.java.ofNew(self.group.addedFiles())) as rows:
                after = self._fingerprint(rows)
        if after != planned and after.row_count == planned.row_count:
            raise changed_values(self, after.row_count)
        if after != planned or after.row_count != int(self.java.records(self.group.addedFiles())):
            raise differ(f"the new files hold {after}, but {planned} were to be written")
        for key, sample in samples.items():
            if sample.live != (ours := Fingerprint.of_sums(written, key.sampled)):
                raise differ(
                    f"for one key in {sample.one_in}, the old files hold {sample.live}, but this "
                    f"rewrite wrote {ours}"
                )
        files = int(self.chosen.size())
        if files and stock != (ours := Fingerprint.of_sums(written, "chosen")):
            raise differ(
                f"from {count(files, 'old file')}, Iceberg's own reader reads {stock}, but "
                f"this rewrite wrote {ours}"
            )
        sampled_rows = sum(sample.rows for sample in samples.values())
        rows_shown = shown(self.staging, self.misread) if int(self.misread.size()) else None
        live = Fingerprint.of_sums(written, "chosen").row_count if rows_shown else 0
        shown_with_columns, shown_without = rows_shown or (0, 0)
        return CheckedRows(
            rows=after.row_count,
            sampled=sampled_rows,
            files=files,
            of_files=stock.row_count,
            read=after.row_count
            + (unsorted.row_count if unsorted else 0)
            + sampled_rows
            + stock.row_count,
            resolved=self.read_deletes + sum(key.records for key in self.keys),
            one_in=max((sample.one_in for sample in samples.values()), default=0),
            by_reader=after.row_count if self.by_reader else 0,
            unread_live=live,
            shown_with_columns=shown_with_columns,
            shown_without=shown_without,
            misplaced=int(self.java.misplaced(self.group.addedFiles(), self.tasks)),
        )

    def _live_share(self, samples: Iterable[Sample], stock: Fingerprint) -> float:
        """The smallest share of rows that live according to a sample, or to all files if they have
        been read, and to the deletes of single files; at least what splits may grow by.
        """
        if self.by_reader and self.rewrite.check:
            share = stock.row_count / max(1, int(self.java.records(self.tasks)))
        else:
            sampled = [sample.live.row_count / sample.rows for sample in samples if sample.rows]
            share = min(sampled, default=1.0) * float(self.rewrite.rewrites.liveShare(self.tasks))
        return max(share, 1 / _MOST_GROWTH)

    def _sample(self, values: Sequence[str], one_in: int) -> str:
        """SQL for whether a row, or a delete, has one of the sampled keys."""
        return sampled(values, self.rewrite.salt, one_in)

    def _identity(self, one_in: int) -> str:
        """SQL for the hash that identifies a sampled row: its keys and its file, and all columns
        where nothing else compares them well.

        That is so if Iceberg's own reader reads no file with deletes, and if the sample is to stand
        for all rows.
        """
        added = self.added
        fields = dict.fromkeys(
            (identifier(*c.names), value)
            for each in self.keys
            for c, value in zip(each.columns, each.values, strict=True)
        )
        is_compared = int(self.java.applied(self.chosen, 2**62)) > 0 and one_in > 1
        values = [f"isnull({field}), {value}" for field, value in fields]
        more = [] if is_compared else [self.hash]
        place = [identifier(added.order), identifier(added.file)]
        return f"xxhash64({', '.join([*values, *place, *more])})"

    def _sampled(self, rows: DataFrame, key: Key) -> Sample:
        """The rows of one key in :data:`SAMPLED_KEYS`, or of every key if the sample has too few
        keys to show something.
        """
        if key.records >= UNSEEN * SAMPLED_KEYS:
            sample, keys = self._looked_up(rows, key, SAMPLED_KEYS)
            if keys >= UNSEEN:
                return sample
        return self._looked_up(rows, key, 1)[0]

    def _looked_up(self, rows: DataFrame, key: Key, one_in: int) -> tuple[Sample, int]:
        """Look up the rows of some keys in all deletes, by a plain join on the keys themselves;
        also about how many keys the rows have.
        """
        from pyspark.sql import functions as F

        added = self.added
        with contextlib.ExitStack() as stack:
            sums = self._marked(stack, rows, key, one_in).agg(
                F.count("*").alias("rows"),
                F.approx_count_distinct(added.sampled).alias("keys"),
                *summed(added.hash, "live", f"NOT {identifier(added.deleted)}"),
            )
            row = sums.collect()[0].asDict()
        return Sample(one_in, int(row["rows"]), Fingerprint.of_sums(row, "live")), int(row["keys"])

    def _marked(
        self, stack: contextlib.ExitStack, rows: DataFrame, key: Key, one_in: int
    ) -> DataFrame:
        """The rows with some keys, each with its identity and whether a delete of any key deletes
        it.
        """
        from pyspark.sql import functions as F

        added = self.added
        placed = self._placed(
            rows.where(self._sample(key.values, one_in)),
            self.staging.files(self.tasks),
            order_sql("sequence"),
        )
        live = placed.selectExpr(
            "*",
            f"{self._identity(one_in)} AS {identifier(added.hash)}",
            f"{key.hash(key.values)} AS {identifier(added.sampled)}",
        )
        dead = F.lit(False)
        for each in self.keys:
            is_sampled = each.values == key.values
            where = self._sample(each.deleted_values, one_in)
            newest = f"{added.deleted} {each.number}"
            deletes = (
                self._deletes(stack, each, where if is_sampled else "true")
                .groupBy(*each.names)
                .agg(F.max(added.order).alias(newest))
            )
            equal = F.col(newest) > F.col(added.order)
            for value, name in zip(each.values, each.names, strict=True):
                equal = F.expr(value).eqNullSafe(F.col(name)) & equal
            records = each.records // (one_in if is_sampled else 1)
            live = live.join(hinted(deletes, records), equal, "left").drop(*each.names)
            dead = dead | F.col(newest).isNotNull()
        return live.withColumn(added.deleted, dead)


def changed_values(group: Group, row_count: int) -> RowsDiffer:
    """The error for new files with as many rows as were to be written, of which some differ:
    with a column and two values, as Iceberg's own reader reads them from the old files.
    """
    rows = count(row_count, "row")
    staging = group.staging
    added = staging.java.ofNew(group.group.addedFiles())
    difference = None
    if int(staging.java.applied(group.tasks, most_records(group.cluster.executor))) >= 0:
        with staging.reading(group.tasks) as old, staging.reading(added) as new:
            difference = column_difference(old, new, row_count)
    if difference is None:
        return differ(f"the new files hold {rows}, as were written, but not the same ones")
    return RowsDiffer.by_cause(
        "files",
        f"of {rows}, the new files give back {difference}",
        _unkept(str(added.get(0).file().format()).lower()),
        "The old files stay.",
    )


def _observed(observation: Observation) -> Mapping[str, Any]:
    """The sums of an observed query that has ended; none, each taken for 0, if Spark left the
    observed part out because no row could come there. Spark's own call would wait forever if it lost
    them.
    """
    try:
        return within(_OBSERVED_SECONDS, lambda: observation.get)
    except DeadlineExceeded:
        raise RowsDiffer(
            f"Spark did not report within {_OBSERVED_SECONDS} s what it wrote, so these files "
            "were discarded. Run it again."
        ) from None
    except Exception as error:
        if java_classes(error)[:1] == ("java.lang.AssertionError",):
            return Counter()
        raise


def differ(what: str) -> RowsDiffer:
    """The error for new files that are not what they should be."""
    return RowsDiffer.of("files", what, "The old files stay.")


def _unkept(file_format: str) -> str:
    """What is likely if files do not give back a value that was written into them."""
    if file_format == "parquet":
        return (
            "Most likely this Iceberg writes or reads such values wrongly; another version may not "
            "(ICEKIT_ICEBERG)."
        )
    return (
        f"Most likely Iceberg's {file_format.upper()} files cannot hold such values (those of ORC "
        "shift fractions of seconds before 1970). Keep these values in Parquet: set "
        "write.format.default=parquet."
    )
