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
from icekit.rows.proof.fingerprint import LINEAGE, Fingerprint, fingerprint_of, hash_sums, row_hash
from icekit.rows.proof.readers import most_delete_records, read_by_iceberg
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

    def __init__(self, rewrite: RewriteSession, file_group: Any, keys: Sequence[Key]) -> None:
        self.rewrite = rewrite
        self.group = file_group
        self.spark = rewrite.spark
        self.staging = rewrite.staging
        self.cluster = rewrite.cluster
        self.java = self.staging.java
        self.tasks = file_group.fileScanTasks()
        self.added = rewrite.added
        self.hash = ""
        # Whether one task writes the rows of several partitions, each of which gets a file.
        self.is_one_file_each = False
        # Whether Iceberg's own reader applies the equality deletes.
        self.by_reader = bool(keys) and rewrite.applied_records(file_group, keys) is not None
        self.keys: Sequence[Key] = () if self.by_reader else keys
        self.read_deletes = sum(key.records for key in keys) if self.by_reader else 0
        # Whole files that are read twice; all of a group to which Iceberg's reader applies equality
        # deletes.
        self.chosen = self.tasks if self.by_reader and rewrite.check else self._sampled_tasks(0)

    def compare_files(self, file_group: Any) -> None:
        """Read some whole files of a group twice, also without equality deletes."""
        if not (self.keys or self.by_reader):
            self.chosen.addAll(self._sampled_tasks(SAMPLED_FILES, file_group.fileScanTasks()))

    def run(self) -> CheckedRows:
        """Write the group's new files and check them; raises if they are not right, after removing
        them.
        """
        staged_name = str(uuid.uuid4())
        self.rewrite.stop.check()
        self.rewrite.deletes.check_listed(self.tasks)
        try:
            with contextlib.ExitStack() as stack:
                scan_tasks = self.tasks
                checked_positions = CheckedPositions()
                if self.keys:
                    resolved_context = resolved_tasks(self.rewrite, self.tasks)
                    scan_tasks, checked_positions = stack.enter_context(resolved_context)
                    if self.rewrite.check:
                        self.chosen = self._sampled_tasks(SAMPLED_FILES, scan_tasks)
                self.java.stage(scan_tasks, staged_name)
                stack.callback(self.java.clear, staged_name)
                self.hash = self._hash_sql(self.staging.frame(staged_name, {}))
                print_of_chosen = self._print_of_chosen()
                live_share = self._live_share(scan_tasks, print_of_chosen)
                output_files = max(1, math.ceil(int(self.group.expectedOutputFiles()) * live_share))
                split_size = self._split_size(scan_tasks, live_share)
                # Only files that follow each other are read together: a new file then covers a part
                # of the range that they are in the order of.
                read_options = {"split-size": str(split_size), "lookback": "1"}
                staged_rows = self._rows(self.staging.frame(staged_name, read_options))
                self.rewrite.stop.check()
                # A sort reads the rows twice, so that they cannot be counted on their way into
                # it. Where Iceberg's reader applies deletes, all of them have been read.
                is_unseen = self.rewrite.runner is not None and not self.by_reader
                unsorted_print = (
                    self._fingerprint(staged_rows) if self.rewrite.check and is_unseen else None
                )
                sums_written = self._write(
                    staged_rows,
                    staged_name,
                    output_files,
                    self._write_options(scan_tasks, live_share),
                )
                checked = CheckedRows()
                if self.rewrite.check:
                    checked = self._checked(
                        sums_written, checked_positions, unsorted_print, print_of_chosen
                    )
                self._check_deleted_positions(scan_tasks)
            return checked
        except Exception:
            self.rewrite.take_back(self.group)
            raise

    def _sampled_tasks(self, file_count: int, scan_tasks: Any = None) -> Any:
        scan_tasks = self.tasks if scan_tasks is None else scan_tasks
        return self.java.some(
            scan_tasks, file_count, most_delete_records(self.cluster.executor), self.rewrite.salt
        )

    def _hash_sql(self, rows: DataFrame) -> str:
        """SQL for the hash of a row, with its lineage if every row has one."""
        from pyspark.sql.types import StructType

        has_row_ids = self.java.haveRowIds(self.tasks)
        return row_hash(
            StructType(
                [field for field in rows.schema.fields if has_row_ids or field.name not in LINEAGE]
            )
        )

    def _fingerprint(self, rows: DataFrame) -> Fingerprint:
        return fingerprint_of(rows, self.hash)

    def _print_of_chosen(self) -> Fingerprint:
        """The rows of the chosen files, as Iceberg's own reader reads them."""
        if not int(self.chosen.size()):
            return Fingerprint()
        return read_by_iceberg(self.staging, self.chosen, self.hash, asks_twice=self.by_reader)

    def _live_share(self, scan_tasks: Any, print_of_chosen: Fingerprint) -> float:
        """The smallest share of rows that live according to all files if they have been read, and
        to the deletes of single files; at least what splits may grow by.
        """
        if self.by_reader and self.rewrite.check:
            live_share = print_of_chosen.row_count / max(1, int(self.java.records(self.tasks)))
        else:
            live_share = float(self.rewrite.rewrites.liveShare(scan_tasks))
        return max(live_share, 1 / _MOST_GROWTH)

    def _split_size(self, scan_tasks: Any, live_share: float) -> int:
        """About the bytes of a split of some tasks whose rows become one file, if such a share of
        them lives.
        """
        # Rows that are sorted are not written split by split.
        if self.rewrite.runner is not None:
            return int(self.group.inputSplitSize())
        return int(self.rewrite.rewrites.splitSize(self.group, scan_tasks, live_share))

    def _rows(self, rows: DataFrame) -> DataFrame:
        """The rows; those of the chosen files are marked."""
        from pyspark.sql import functions as F

        chosen_paths = [str(task.file().location()) for task in elements(self.chosen)]
        if not chosen_paths:
            return rows
        return rows.withColumn(self.added.is_compared, F.input_file_name().isin(chosen_paths))

    def _check_deleted_positions(self, scan_tasks: Any) -> None:
        """Check that the rows that are left out are those that are deleted by position: of each
        partition, where several are written together.
        """
        added_files = self.group.addedFiles()
        partition_tasks = list(elements(self.java.byPartition(scan_tasks)))
        for tasks_of_partition in partition_tasks:
            written_count = None
            if not self.by_reader:
                is_one_partition = len(partition_tasks) == 1
                written_count = int(
                    self.java.records(added_files)
                    if is_one_partition
                    else self.java.recordsBeside(added_files, tasks_of_partition.get(0))
                )
            self.rewrite.deletes.check_deleted(tasks_of_partition, written_count)

    def _write_options(self, scan_tasks: Any, live_share: float) -> dict[str, str]:
        # As Iceberg's own action does for files of the current spec.
        options = {
            "target-file-size-bytes": str(self.group.maxOutputFileSize()),
            "output-spec-id": str(self.group.outputSpecId()),
        }
        if self.rewrite.runner is None:
            # A writer takes the rows that it still holds for as large as they are uncompressed: it
            # would end files far below a small target, and the next rewrite would combine them.
            if self.is_one_file_each or self.rewrite.rewrites.isOneFileEach(
                self.group, scan_tasks, live_share
            ):
                options["target-file-size-bytes"] = str(self._target_with_memory())
            return {**options, "distribution-mode": "none"}
        order_option = (
            {"output-sort-order-id": str(self.rewrite.order_id)} if self.rewrite.order_id else {}
        )
        return {**options, **order_option, "use-table-distribution-and-ordering": "false"}

    def _target_with_memory(self) -> int:
        """The size at which a writer ends a file, with what it may hold in memory by then."""
        metadata = self.rewrite.metadata
        leaf_columns = len(columns(metadata, schema_of(metadata)))
        memory_bytes = max(_LEAST_IN_MEMORY, leaf_columns * _IN_MEMORY_OF_A_COLUMN)
        return int(self.group.maxOutputFileSize()) + memory_bytes

    def _write(
        self, rows: DataFrame, staged_name: str, output_files: int, options: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Write rows, sorted into so many files if they are sorted, and add up their hashes as they
        are written, unless nothing is checked.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        row_columns = self.added
        column_names = [name for name in rows.columns if name != row_columns.is_compared]
        if self.rewrite.runner is not None:
            rows = self.staging.in_group_order(rows, self.rewrite.runner, self.group, output_files)
        columns_sql = [identifier(name) for name in column_names]
        if not self.rewrite.check:
            self.group.setOutputFiles(
                self.staging.write(rows.selectExpr(*columns_sql), staged_name, options)
            )
            return {}
        observation = Observation()
        hash_aggregates = hash_sums(row_columns.hash, "all")
        if row_columns.is_compared in rows.columns:
            hash_aggregates += hash_sums(
                row_columns.hash, "chosen", identifier(row_columns.is_compared)
            )
        # After the sort: Spark reads all rows before it, too, to find ranges.
        rows_with_hash = rows.withColumn(row_columns.hash, F.expr(self.hash))
        observed_rows = rows_with_hash.observe(observation, *hash_aggregates).selectExpr(
            *columns_sql
        )
        self.group.setOutputFiles(self.staging.write(observed_rows, staged_name, options))
        return _observed_sums(observation)

    def _checked(
        self,
        sums_written: Mapping[str, Any],
        checked_positions: CheckedPositions,
        unsorted_print: Fingerprint | None,
        print_of_chosen: Fingerprint,
    ) -> CheckedRows:
        """Compare the new files, read back, with what was to be written; ``print_of_chosen`` is
        what Iceberg's own reader reads from the chosen old files, ``checked_positions`` what was
        checked of the deletes.
        """
        written_print = Fingerprint.of_sums(sums_written, "all")
        if unsorted_print not in {None, written_print}:
            raise difference_error(
                f"{unsorted_print} were read from the old files, but {written_print} came out of "
                "the sort"
            )
        print_of_new = Fingerprint()
        # No file is written if no row lives.
        if int(self.group.addedFiles().size()):
            with self.staging.staged_rows(self.java.ofNew(self.group.addedFiles())) as new_rows:
                print_of_new = self._fingerprint(new_rows)
        if print_of_new != written_print and print_of_new.row_count == written_print.row_count:
            raise changed_values_error(self, print_of_new.row_count)
        if print_of_new != written_print or print_of_new.row_count != int(
            self.java.records(self.group.addedFiles())
        ):
            raise difference_error(
                f"the new files hold {print_of_new}, but {written_print} were to be written"
            )
        chosen_files = int(self.chosen.size())
        if chosen_files and print_of_chosen != (
            print_of_written := Fingerprint.of_sums(sums_written, "chosen")
        ):
            raise difference_error(
                f"from {count(chosen_files, 'old file')}, Iceberg's own reader reads "
                f"{print_of_chosen}, but this rewrite wrote {print_of_written}"
            )
        sorted_count = unsorted_print.row_count if unsorted_print else 0
        return CheckedRows(
            rows=print_of_new.row_count,
            sampled=checked_positions.sampled,
            files=chosen_files,
            of_files=print_of_chosen.row_count,
            read=print_of_new.row_count
            + sorted_count
            + checked_positions.sampled
            + print_of_chosen.row_count,
            resolved=self.read_deletes + checked_positions.resolved,
            one_in=checked_positions.one_in,
            one_partition_in=checked_positions.one_partition_in,
            by_reader=print_of_new.row_count if self.by_reader else 0,
            unread_live=checked_positions.unread_live,
            shown_with_columns=checked_positions.shown_with_columns,
            shown_without=checked_positions.shown_without,
            misplaced=int(self.java.misplaced(self.group.addedFiles(), self.tasks)),
        )


def changed_values_error(group: Group, row_count: int) -> RowsDiffer:
    """The error for new files with as many rows as were to be written, of which some differ:
    with a column and two values, as Iceberg's own reader reads them from the old files.
    """
    rows_text = count(row_count, "row")
    group_staging = group.staging
    new_tasks = group_staging.java.ofNew(group.group.addedFiles())
    difference = None
    most_deletes = most_delete_records(group.cluster.executor)
    if int(group_staging.java.applied(group.tasks, most_deletes)) >= 0:
        with (
            group_staging.staged_rows(group.tasks) as old_rows,
            group_staging.staged_rows(new_tasks) as new_rows,
        ):
            difference = column_difference(old_rows, new_rows, row_count)
    if difference is None:
        return difference_error(
            f"the new files hold {rows_text}, as were written, but not the same ones"
        )
    return RowsDiffer.by_cause(
        "files",
        f"of {rows_text}, the new files give back {difference}",
        _lossy_format_text(str(new_tasks.get(0).file().format()).lower()),
        "The old files stay.",
    )


def _observed_sums(observation: Observation) -> Mapping[str, Any]:
    """The sums of an observed query that has ended; none, each taken for 0, if Spark left the
    observed part out because no row could come there. Spark's own call would wait forever if it
    lost them.
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


def difference_error(difference: str) -> RowsDiffer:
    """The error for new files that are not what they should be."""
    return RowsDiffer.of("files", difference, "The old files stay.")


def _lossy_format_text(file_format: str) -> str:
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
