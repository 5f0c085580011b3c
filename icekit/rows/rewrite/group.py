"""Let Spark write the rows of one group to new files, and check the files before their commit."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common.sql import identifier
from icekit.common.units import count
from icekit.common.waiting import DeadlineExceeded, run_within
from icekit.engine.bridge import elements
from icekit.engine.causes import java_classes
from icekit.iceberg.metadata import columns, schema_of
from icekit.rows.proof.checked import SAMPLED_FILES, CheckedPositions, CheckedRows, RowsDiffer
from icekit.rows.proof.fingerprint import LINEAGE, Fingerprint, row_hash, summed, summed_up
from icekit.rows.proof.readers import most_records, read_by_iceberg
from icekit.rows.rewrite.difference import column_difference
from icekit.rows.rewrite.key import Key
from icekit.rows.rewrite.resolved_tasks import resolved_tasks
from icekit.rows.rewrite.rewrite_session import RewriteSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_OBSERVED_SECONDS = 120
# A split may grow to this multiple of its size, where most of its rows are deleted.
_MOST_GROWTH = 32
# What a writer holds uncompressed: of each column a page and a dictionary of Parquet
# (write.parquet.page-size-bytes, dict-size-bytes), or a stripe of ORC.
_IN_MEMORY_OF_A_COLUMN = 4 * 2**20
_LEAST_IN_MEMORY = 64 * 2**20


class Group:
    """One group of files: its rows without those that equality deletes delete, written by Spark to
    new files and checked.

    Iceberg's own reader reads them: where it does not apply the equality deletes, it is given
    position deletes in their place.
    """

    def __init__(self, rewrite: RewriteSession, group: Any, keys: Sequence[Key]) -> None:
        self.rewrite = rewrite
        self.group = group
        self.spark = rewrite.spark
        self.staging = rewrite.staging
        self.cluster = rewrite.cluster
        self.java = self.staging.java
        self.tasks = group.fileScanTasks()
        self.added = rewrite.added
        self.hash = ""
        # Whether one task writes the rows of several partitions, each of which gets a file.
        self.is_one_file_each = False
        # Whether Iceberg's own reader applies the equality deletes.
        self.by_reader = bool(keys) and rewrite.applied(group, keys) is not None
        self.keys: Sequence[Key] = () if self.by_reader else keys
        self.read_deletes = sum(key.records for key in keys) if self.by_reader else 0
        # Whole files that are read twice; all of a group to which Iceberg's reader applies equality
        # deletes.
        self.chosen = self.tasks if self.by_reader and rewrite.check else self._sampled_tasks(0)

    def compare_files(self, group: Any) -> None:
        """Read some whole files of a group twice, also without equality deletes."""
        if not (self.keys or self.by_reader):
            self.chosen.addAll(self._sampled_tasks(SAMPLED_FILES, group.fileScanTasks()))

    def run(self) -> CheckedRows:
        """Write the group's new files and check them; raises if they are not right, after removing
        them.
        """
        name = str(uuid.uuid4())
        self.rewrite.stop.check()
        self.rewrite.deletes.check_listed(self.tasks)
        try:
            with contextlib.ExitStack() as stack:
                tasks = self.tasks
                positions = CheckedPositions()
                if self.keys:
                    resolving = resolved_tasks(self.rewrite, self.tasks)
                    tasks, positions = stack.enter_context(resolving)
                    if self.rewrite.check:
                        self.chosen = self._sampled_tasks(SAMPLED_FILES, tasks)
                self.java.stage(tasks, name)
                stack.callback(self.java.clear, name)
                self.hash = self._hash(self.staging.frame(name, {}))
                stock = self._stock()
                share = self._live_share(tasks, stock)
                files = max(1, math.ceil(int(self.group.expectedOutputFiles()) * share))
                split_size = self._split_size(tasks, share)
                # Only files that follow each other are read together: a new file then covers a part
                # of the range that they are in the order of.
                in_order = {"split-size": str(split_size), "lookback": "1"}
                rows = self._rows(self.staging.frame(name, in_order))
                self.rewrite.stop.check()
                # A sort reads the rows twice, so that they cannot be counted on their way into
                # it. Where Iceberg's reader applies deletes, all of them have been read.
                is_unseen = self.rewrite.runner is not None and not self.by_reader
                unsorted = self._fingerprint(rows) if self.rewrite.check and is_unseen else None
                sums_written = self._write(rows, name, files, self._options(tasks, share))
                checked = CheckedRows()
                if self.rewrite.check:
                    checked = self._checked(sums_written, positions, unsorted, stock)
                self._check_deleted(tasks)
            return checked
        except Exception:
            self.rewrite.take_back(self.group)
            raise

    def _sampled_tasks(self, files: int, tasks: Any = None) -> Any:
        tasks = self.tasks if tasks is None else tasks
        return self.java.some(tasks, files, most_records(self.cluster.executor), self.rewrite.salt)

    def _hash(self, rows: DataFrame) -> str:
        """SQL for the hash of a row, with its lineage if every row has one."""
        from pyspark.sql.types import StructType

        have_ids = self.java.haveRowIds(self.tasks)
        return row_hash(
            StructType(
                [field for field in rows.schema.fields if have_ids or field.name not in LINEAGE]
            )
        )

    def _fingerprint(self, rows: DataFrame) -> Fingerprint:
        return summed_up(rows, self.hash)

    def _stock(self) -> Fingerprint:
        """The rows of the chosen files, as Iceberg's own reader reads them."""
        if not int(self.chosen.size()):
            return Fingerprint()
        return read_by_iceberg(self.staging, self.chosen, self.hash, asks_twice=self.by_reader)

    def _live_share(self, tasks: Any, stock: Fingerprint) -> float:
        """The smallest share of rows that live according to all files if they have been read, and
        to the deletes of single files; at least what splits may grow by.
        """
        if self.by_reader and self.rewrite.check:
            share = stock.row_count / max(1, int(self.java.records(self.tasks)))
        else:
            share = float(self.rewrite.rewrites.liveShare(tasks))
        return max(share, 1 / _MOST_GROWTH)

    def _split_size(self, tasks: Any, share: float) -> int:
        """About the bytes of a split of some tasks whose rows become one file, if such a share of
        them lives.
        """
        # Rows that are sorted are not written split by split.
        if self.rewrite.runner is not None:
            return int(self.group.inputSplitSize())
        return int(self.rewrite.rewrites.splitSize(self.group, tasks, share))

    def _rows(self, rows: DataFrame) -> DataFrame:
        """The rows; those of the chosen files are marked."""
        from pyspark.sql import functions as F

        chosen_paths = [str(task.file().location()) for task in elements(self.chosen)]
        if not chosen_paths:
            return rows
        return rows.withColumn(self.added.is_compared, F.input_file_name().isin(chosen_paths))

    def _check_deleted(self, tasks: Any) -> None:
        """Check that the rows that are left out are those that are deleted by position: of each
        partition, where several are written together.
        """
        added = self.group.addedFiles()
        parts = list(elements(self.java.byPartition(tasks)))
        for part in parts:
            rows = None
            if not self.by_reader:
                is_all = len(parts) == 1
                rows = int(
                    self.java.records(added)
                    if is_all
                    else self.java.recordsBeside(added, part.get(0))
                )
            self.rewrite.deletes.check_deleted(part, rows)

    def _options(self, tasks: Any, share: float) -> dict[str, str]:
        # As Iceberg's own action does for files of the current spec.
        options = {
            "target-file-size-bytes": str(self.group.maxOutputFileSize()),
            "output-spec-id": str(self.group.outputSpecId()),
        }
        if self.rewrite.runner is None:
            # A writer takes the rows that it still holds for as large as they are uncompressed: it
            # would end files far below a small target, and the next rewrite would combine them.
            if self.is_one_file_each or self.rewrite.rewrites.isOneFileEach(
                self.group, tasks, share
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
        self, rows: DataFrame, name: str, files: int, options: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Write rows, sorted into so many files if they are sorted, and add up their hashes as they
        are written, unless nothing is checked.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        added = self.added
        names = [name for name in rows.columns if name != added.is_compared]
        if self.rewrite.runner is not None:
            rows = self.staging.in_group_order(rows, self.rewrite.runner, self.group, files)
        columns = [identifier(name) for name in names]
        if not self.rewrite.check:
            self.group.setOutputFiles(self.staging.write(rows.selectExpr(*columns), name, options))
            return {}
        seen = Observation()
        sums = summed(added.hash, "all")
        if added.is_compared in rows.columns:
            sums += summed(added.hash, "chosen", identifier(added.is_compared))
        # After the sort: Spark reads all rows before it, too, to find ranges.
        hashed = rows.withColumn(added.hash, F.expr(self.hash))
        hashed_rows = hashed.observe(seen, *sums).selectExpr(*columns)
        self.group.setOutputFiles(self.staging.write(hashed_rows, name, options))
        return _observed(seen)

    def _checked(
        self,
        sums_written: Mapping[str, Any],
        positions: CheckedPositions,
        unsorted: Fingerprint | None,
        stock: Fingerprint,
    ) -> CheckedRows:
        """Compare the new files, read back, with what was to be written; ``stock`` is what Iceberg's
        own reader reads from the chosen old files, ``positions`` what was checked of the deletes.
        """
        written_rows = Fingerprint.of_sums(sums_written, "all")
        if unsorted not in {None, written_rows}:
            raise differ(
                f"{unsorted} were read from the old files, but {written_rows} came out of the sort"
            )
        after = Fingerprint()
        # No file is written if no row lives.
        if int(self.group.addedFiles().size()):
            with self.staging.staged_rows(self.java.ofNew(self.group.addedFiles())) as rows:
                after = self._fingerprint(rows)
        if after != written_rows and after.row_count == written_rows.row_count:
            raise changed_values(self, after.row_count)
        if after != written_rows or after.row_count != int(
            self.java.records(self.group.addedFiles())
        ):
            raise differ(f"the new files hold {after}, but {written_rows} were to be written")
        files = int(self.chosen.size())
        if files and stock != (ours := Fingerprint.of_sums(sums_written, "chosen")):
            raise differ(
                f"from {count(files, 'old file')}, Iceberg's own reader reads {stock}, but "
                f"this rewrite wrote {ours}"
            )
        rows_sorted = unsorted.row_count if unsorted else 0
        return CheckedRows(
            rows=after.row_count,
            sampled=positions.sampled,
            files=files,
            of_files=stock.row_count,
            read=after.row_count + rows_sorted + positions.sampled + stock.row_count,
            resolved=self.read_deletes + positions.resolved,
            one_in=positions.one_in,
            one_partition_in=positions.one_partition_in,
            by_reader=after.row_count if self.by_reader else 0,
            unread_live=positions.unread_live,
            shown_with_columns=positions.shown_with_columns,
            shown_without=positions.shown_without,
            misplaced=int(self.java.misplaced(self.group.addedFiles(), self.tasks)),
        )


def changed_values(group: Group, row_count: int) -> RowsDiffer:
    """The error for new files with as many rows as were to be written, of which some differ:
    with a column and two values, as Iceberg's own reader reads them from the old files.
    """
    rows = count(row_count, "row")
    staging = group.staging
    added = staging.java.ofNew(group.group.addedFiles())
    difference = None
    if int(staging.java.applied(group.tasks, most_records(group.cluster.executor))) >= 0:
        with staging.staged_rows(group.tasks) as old, staging.staged_rows(added) as new:
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
        return run_within(_OBSERVED_SECONDS, lambda: observation.get)
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
