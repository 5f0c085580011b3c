"""Let the kernel write the rows of some groups of files, and check them before the commit by Spark,
which reads the new files, and what they are compared with from the old ones, by itself.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from icekit.common.sql import identifier, transform_sql
from icekit.common.units import count
from icekit.engine.bridge import elements, java_object, with_thread_context
from icekit.engine.errors import reason
from icekit.iceberg.definition import PartitionField
from icekit.iceberg.key_fields import field_path
from icekit.iceberg.metadata import schema_of, specs
from icekit.rows.deletes.join import sample_sql
from icekit.rows.deletes.ruled_out import ruled_out_error
from icekit.rows.kernel.job import KernelFailed, WrittenPart, write_parts
from icekit.rows.kernel.kernel_settings import KernelSettings
from icekit.rows.kernel.refusals import RuledOut
from icekit.rows.kernel.table_settings import KernelUnavailable
from icekit.rows.proof.checked import SAMPLED_FILES, CheckedRows
from icekit.rows.proof.fingerprint import MODULUS, Fingerprint, grouped_sums, hash_sums
from icekit.rows.proof.readers import read_by_iceberg, shown_counts
from icekit.rows.rewrite.group import Group, changed_values_error, difference_error
from icekit.rows.rewrite.key import Key
from icekit.rows.rewrite.key_sample import KeySamples, Sample
from icekit.rows.rewrite.rewrite_session import RewriteSession

# What Spark computes a partition's value from as Iceberg does; it reads a UUID as a text.
_TRANSFORMED_TYPES = ("int", "long", "date", "timestamp", "timestamptz", "string")
# A choice: the bytes of a group under equality deletes, or to be sorted, that one task writes in a
# minute or two. The operators of Spark spread a larger one over all cores.
_MOST_BYTES = 4 << 30


class KernelGroup(Group):
    """One group of files that the kernel writes: the parts that tasks write, lists of scan tasks,
    and what was written of each.
    """

    def __init__(self, rewrite: RewriteSession, file_group: Any, keys: Sequence[Key]) -> None:
        super().__init__(rewrite, file_group, keys)
        #: Whether some keys are looked up, or whole files read, by other means.
        self.is_looked_up = True
        #: About one group in so many is, by their rows.
        self.one_group_in = 1
        # Files of which the outcome says what Iceberg's own reader shows of them: its answer
        # depends on the query, so that nothing is compared with it.
        self.misread = self._sampled_tasks(0)
        if self.keys and rewrite.check:
            sampled_tasks = self._sampled_tasks(SAMPLED_FILES)
            if all(key.is_read_correctly for key in keys):
                self.chosen = sampled_tasks
            else:
                self.misread = sampled_tasks
        self.parts: list[Any] = []
        self.written: list[WrittenPart] = []
        self.samples: Mapping[Key, Sample] = {}
        #: Why Spark writes the group instead.
        self.refusal = ""

    @property
    def written_print(self) -> Fingerprint:
        """The rows that the kernel wrote."""
        prints_of_parts = [
            Fingerprint(written_part.live_rows, written_part.hash_sum % MODULUS)
            for written_part in self.written
        ]
        return sum(prints_of_parts, Fingerprint())

    @property
    def written_print_of_chosen(self) -> Fingerprint:
        """Those of the chosen files."""
        prints_of_files = [
            Fingerprint(row_count, hash_sum % MODULUS)
            for written_part in self.written
            for _, row_count, hash_sum in written_part.sums_of_files
        ]
        return sum(prints_of_files, Fingerprint())

    @property
    def is_whole(self) -> bool:
        """Whether one task writes the group: it has equality deletes, or its rows are sorted."""
        return bool(self.keys) or self.by_reader or self.rewrite.order.is_sorting

    def compared_tasks(self) -> list[Any]:
        """The whole files that Iceberg's own reader reads once more; not all of the group."""
        has_compared = not self.by_reader and (self.is_looked_up or not self.keys)
        return list(elements(self.chosen)) if has_compared else []

    def parts_json(self, java_kernel: Any) -> list[str]:
        """What the kernel is told of each part; ``java_kernel`` is an object of the Java class."""
        chosen_paths: Any = self.spark._jvm.java.util.HashSet()  # type: ignore[union-attr]
        for task in (*self.compared_tasks(), *elements(self.misread)):
            chosen_paths.add(task.file().location())
        # Otherwise each part becomes one file.
        output_files = int(self.group.expectedOutputFiles()) if self.is_whole else 1
        most_bytes = int(self.group.maxOutputFileSize())
        operation_id = uuid.uuid4().hex
        return [
            str(
                java_kernel.part(
                    part_tasks, chosen_paths, output_files, most_bytes, part_index, operation_id
                )
            )
            for part_index, part_tasks in enumerate(self.parts)
        ]

    def look_up(self) -> None:
        """Find the rows of some keys of each key set that live, by a plain join."""
        self.samples = KeySamples(self.rewrite, self.tasks, self.keys, self.hash).samples_by_key()

    def sample_sql(self, key: Key) -> str:
        """SQL for whether a row has one of the sampled keys."""
        return sample_sql(key.row_values_sql, self.rewrite.salt, self.samples[key].one_in)


class KernelWork:
    """Some groups of files that the kernel writes in one Spark job, with a task for each part of a
    group; Spark itself writes those that the kernel refuses.
    """

    def __init__(
        self,
        rewrite: RewriteSession,
        groups: Sequence[Any],
        keys_by_group: Sequence[Sequence[Key]],
        writer: KernelSettings,
    ) -> None:
        self.rewrite = rewrite
        self.writer = writer
        self.java = java_object(rewrite.spark, rewrite.table, "Kernel", rewrite.table)
        self.groups = [
            KernelGroup(rewrite, group, group_keys)
            for group, group_keys in zip(groups, keys_by_group, strict=True)
        ]

    def run(self) -> list[tuple[Any, CheckedRows]]:
        """Write the new files of all groups and check them; returns each group with what was
        checked. Raises if they are not right, after removing them.
        """
        rewrite = self.rewrite
        rewrite.stop.check()
        for group in self.groups:
            rewrite.deletes.check_listed(group.tasks)
        try:
            kernel_checked_rows = CheckedRows()
            if rewrite.check:
                kernel_checked_rows = self._write_checked()
            else:
                self._write()
            for group in self._accepted_groups():
                for part_tasks, written_part in zip(group.parts, group.written, strict=True):
                    rewrite.deletes.check_deleted(part_tasks, written_part.rows_read)
            results = [(group.group, CheckedRows()) for group in self._accepted_groups()]
            if results:
                results[0] = (results[0][0], kernel_checked_rows)
            refused_groups = [group for group in self.groups if group.refusal]
            rewrite.kernel_refusals.update(group.refusal for group in refused_groups)
            return [*results, *((group.group, group.run()) for group in refused_groups)]
        except Exception:
            for group in self.groups:
                rewrite.take_back(group.group)
            raise

    def _accepted_groups(self) -> list[KernelGroup]:
        return [group for group in self.groups if not group.refusal]

    def _write(self) -> None:
        """Let the kernel write all groups that it does not refuse."""
        parts_json: list[str] = []
        for group in self.groups:
            try:
                group.parts = self._parts(group)
                parts_json += group.parts_json(self.java)
            except KernelUnavailable as refusal:
                group.refusal = str(refusal)
        try:
            size_bytes = sum(
                int(group.group.inputFilesSizeInBytes()) for group in self._accepted_groups()
            )
            results = iter(
                write_parts(
                    self.rewrite.spark, parts_json, self.writer, self._look_up_keys, size_bytes
                )
            )
        except RuledOut as found:
            raise ruled_out_error(str(found)) from None
        except KernelFailed as error:
            self.rewrite.stop.check()
            for group in self._accepted_groups():
                group.refusal = f"it failed: {reason(error.__cause__ or error)}"
            return
        for group in self._accepted_groups():
            results_of_group = [next(results) for _ in group.parts]
            group.written = [
                result for result in results_of_group if isinstance(result, WrittenPart)
            ]
            refusals = [result for result in results_of_group if isinstance(result, str)]
            if refusals:
                self._refuse(group, refusals[0])
                continue
            java_new_files: Any = self.rewrite.spark._jvm.java.util.HashSet()  # type: ignore[union-attr]
            for part_tasks, result in zip(group.parts, group.written, strict=True):
                java_new_files.addAll(
                    self.java.added(part_tasks.get(0), result.new_files_json, self.rewrite.order_id)
                )
            group.group.setOutputFiles(java_new_files)

    def _parts(self, group: KernelGroup) -> list[Any]:
        """The parts of a group; raises :class:`KernelUnavailable`."""
        for partition_field in self._partition_fields(group).values():
            self._source_column(partition_field)
        if group.is_whole and int(group.group.inputFilesSizeInBytes()) > _MOST_BYTES:
            raise KernelUnavailable(
                "a group under deletes, or to be sorted, is too large for one task"
            )
        has_row_ids = int(self.rewrite.metadata["format-version"]) >= 3
        refusal = self.java.refusal(group.tasks, int(group.group.outputSpecId()), has_row_ids)
        if refusal is not None:
            raise KernelUnavailable(str(refusal))
        parts_of_group = self.java.parts(group.group, group.tasks, group.is_whole)
        if parts_of_group is None:
            raise KernelUnavailable("a data file is larger than what one task reads")
        return list(elements(parts_of_group))

    def _refuse(self, group: KernelGroup, refusal: str) -> None:
        """Leave a group to Spark, and remove what the kernel has written of it."""
        group.refusal = refusal
        for written_part in group.written:
            for new_path in written_part.new_paths:
                with contextlib.suppress(Exception):
                    self.rewrite.table.io().deleteFile(new_path)
        group.group.setOutputFiles(self.rewrite.spark._jvm.java.util.HashSet())  # type: ignore[union-attr]

    def _write_checked(self) -> CheckedRows:
        """Let the kernel write the groups, and compare the rows of the new files, as Spark reads
        them, with those that the kernel wrote, and with what Spark reads from the old files.
        """
        spark = self.rewrite.spark
        staging = self.rewrite.staging
        with staging.staged_rows(self.groups[0].tasks) as group_rows:
            hash_sql = self.groups[0]._hash_sql(group_rows)
        for group in self.groups:
            group.hash = hash_sql
        self._write()
        groups = self._accepted_groups()
        if not groups:
            return CheckedRows()
        if any(group.refusal and group.is_looked_up and group.keys for group in self.groups):
            # They stood for groups that the kernel has written.
            for group in groups:
                if group.keys and not group.samples:
                    group.look_up()
        names_by_sample_sql = self._names_by_sample_sql(groups)
        with ThreadPoolExecutor(1) as pool:
            comparison = pool.submit(
                with_thread_context(spark, partial(self._compare_old_files, groups, hash_sql))
            )
            checked = CheckedRows()
            for group, sums_of_group in self._sums_of_new_files(
                groups, hash_sql, names_by_sample_sql
            ).items():
                # One with rows of other partitions is left to Spark now.
                if not group.refusal:
                    checked += self._compare_new_files(group, sums_of_group, names_by_sample_sql)
            return checked + comparison.result()

    def _look_up_keys(self) -> None:
        """Look some keys up, while workers of Python write."""
        for group in self._accepted_groups() if self.rewrite.check else ():
            if group.keys and group.is_looked_up:
                group.look_up()

    def _compare_old_files(self, groups: Sequence[KernelGroup], hash_sql: str) -> CheckedRows:
        """Compare whole old files: all of groups to which Iceberg's reader applies the deletes, and
        some of others.
        """
        tasks_in_full = [
            task for group in groups if group.by_reader for task in elements(group.tasks)
        ]
        print_of_readers = sum(
            (group.written_print for group in groups if group.by_reader), Fingerprint()
        )
        checked = self._compare_files(tasks_in_full, hash_sql, print_of_readers)
        compared_groups = [group for group in groups if group.compared_tasks()]
        chosen_tasks = [task for group in compared_groups for task in group.compared_tasks()]
        written_print = sum(
            (group.written_print_of_chosen for group in compared_groups), Fingerprint()
        )
        return checked + self._compare_files(chosen_tasks, hash_sql, written_print)

    def _compare_new_files(
        self,
        group: KernelGroup,
        sums_of_group: Mapping[str, int],
        names_by_sample_sql: Mapping[str, str],
    ) -> CheckedRows:
        """Compare the new files of a group, by the sums of what Spark reads there."""
        print_of_new = Fingerprint.of_sums(sums_of_group, "all")
        written_print = group.written_print
        added_files = group.group.addedFiles()
        if print_of_new != written_print and print_of_new.row_count == written_print.row_count:
            raise changed_values_error(group, print_of_new.row_count)
        if print_of_new != written_print or print_of_new.row_count != int(
            group.java.records(added_files)
        ):
            raise difference_error(
                f"the new files hold {print_of_new}, but {written_print} were to be written"
            )
        for key, sample in group.samples.items():
            print_of_sample = Fingerprint.of_sums(
                sums_of_group, names_by_sample_sql[group.sample_sql(key)]
            )
            if sample.live_print != print_of_sample:
                raise difference_error(
                    f"for one key in {sample.one_in}, the old files hold {sample.live_print}, but "
                    f"this rewrite wrote {print_of_sample}"
                )
        sampled_count = sum(sample.row_count for sample in group.samples.values())
        shown_rows = None
        if int(group.misread.size()):
            shown_rows = shown_counts(group.staging, group.misread)
        shown_with_columns, shown_without = shown_rows or (0, 0)
        return CheckedRows(
            rows=print_of_new.row_count,
            sampled=sampled_count,
            read=print_of_new.row_count + sampled_count,
            resolved=group.read_deletes + sum(key.records for key in group.keys),
            one_in=max((sample.one_in for sample in group.samples.values()), default=0),
            one_partition_in=group.one_group_in,
            by_reader=print_of_new.row_count if group.by_reader else 0,
            unread_live=group.written_print_of_chosen.row_count if shown_rows else 0,
            shown_with_columns=shown_with_columns,
            shown_without=shown_without,
        )

    def _compare_files(
        self, scan_tasks: Sequence[Any], hash_sql: str, written_print: Fingerprint
    ) -> CheckedRows:
        """Compare what Iceberg's own reader reads from whole old files with what was written."""
        if not scan_tasks:
            return CheckedRows()
        java_tasks: Any = self.rewrite.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for task in scan_tasks:
            java_tasks.add(task)
        read_print = read_by_iceberg(self.rewrite.staging, java_tasks, hash_sql, asks_twice=False)
        if read_print != written_print:
            raise difference_error(
                f"from {count(len(scan_tasks), 'old file')}, Iceberg's own reader reads "
                f"{read_print}, but this rewrite wrote {written_print}"
            )
        return CheckedRows(
            files=len(scan_tasks), of_files=read_print.row_count, read=read_print.row_count
        )

    def _sums_of_new_files(
        self, groups: Sequence[KernelGroup], hash_sql: str, names_by_sample_sql: Mapping[str, str]
    ) -> Mapping[KernelGroup, Mapping[str, int]]:
        """The sums of the hashes of the rows in the new files of each group: of all of them, and of
        those with the sampled keys, by ``names_by_sample_sql``. A group with rows of another
        partition than their file's is left to Spark.
        """
        from pyspark.sql import functions as F

        row_columns = self.rewrite.added
        columns_sql = [f"{hash_sql} AS {identifier(row_columns.hash)}"]
        columns_sql.append(f"input_file_name() AS {identifier(row_columns.file)}")
        aggregates = hash_sums(row_columns.hash, "all")
        for sampled_sql, column_name in names_by_sample_sql.items():
            columns_sql.append(f"if({sampled_sql}, {hash_sql}, NULL) AS {identifier(column_name)}")
            aggregates += hash_sums(
                column_name, column_name, f"{identifier(column_name)} IS NOT NULL"
            )
        for field_index, transform_sql_text in self._transforms_sql(groups).items():
            column_name = f"{row_columns.prefix} partition {field_index}"
            columns_sql.append(f"{transform_sql_text} AS {identifier(column_name)}")
            aggregates += [
                F.expr(f"CAST(min({identifier(column_name)}) AS STRING)").alias(
                    f"least {field_index}"
                ),
                F.expr(f"CAST(max({identifier(column_name)}) AS STRING)").alias(
                    f"most {field_index}"
                ),
                F.expr(f"count_if(isnull({identifier(column_name)}))").alias(
                    f"nulls {field_index}"
                ),
            ]
        groups_by_path: dict[str, tuple[KernelGroup, Mapping[str, Any]]] = {}
        new_files: Any = self.rewrite.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for group in groups:
            new_files.addAll(group.group.addedFiles())
            for part_tasks, written_part in zip(group.parts, group.written, strict=True):
                partition_values = json.loads(str(self.java.transformed(part_tasks.get(0))))
                groups_by_path.update(
                    dict.fromkeys(written_part.new_paths, (group, partition_values))
                )
        sums_by_group: dict[KernelGroup, Counter[str]] = {group: Counter() for group in groups}
        if not groups_by_path:
            return sums_by_group
        with self.rewrite.staging.staged_rows(
            self.rewrite.staging.java.ofNew(new_files)
        ) as new_rows:
            hashed_rows = new_rows.selectExpr(*columns_sql)
            for row in grouped_sums(
                hashed_rows, [identifier(row_columns.file)], *aggregates
            ).collect():
                sums_of_file = row.asDict()
                group, partition_values = groups_by_path[sums_of_file[row_columns.file]]
                if not _is_of_partition(sums_of_file, partition_values):
                    self._refuse(group, "some rows are in files of another partition than theirs")
                sums_by_group[group].update(
                    {k: n for k, n in sums_of_file.items() if isinstance(n, int)}
                )
        return sums_by_group

    def _names_by_sample_sql(self, groups: Sequence[KernelGroup]) -> dict[str, str]:
        """A column for each sample, by what chooses it: groups with the same key may share one."""
        sample_filters = dict.fromkeys(
            group.sample_sql(key) for group in groups for key in group.samples
        )
        return {
            filter_sql: f"{self.rewrite.added.sampled} {sample_index}"
            for sample_index, filter_sql in enumerate(sample_filters)
        }

    def _partition_fields(self, group: KernelGroup) -> Mapping[int, PartitionField]:
        """The fields of the group's partition that are no identity, by their place in the spec."""
        output_spec_id = int(group.group.outputSpecId())
        (spec,) = (
            candidate
            for candidate in specs(self.rewrite.metadata)
            if candidate.spec_id == output_spec_id
        )
        return {
            field_index: candidate
            for field_index, candidate in enumerate(spec.fields)
            if candidate.transform not in {"identity", "void"}
        }

    def _transforms_sql(self, groups: Sequence[KernelGroup]) -> Mapping[int, str]:
        """SQL for each such field; all groups are written into one spec."""
        function_prefix = f"{identifier(self.rewrite.sql_name[0])}.system."
        return {
            field_index: function_prefix
            + transform_sql(self._source_column(partition_field), partition_field.transform)
            for field_index, partition_field in self._partition_fields(groups[0]).items()
        }

    def _source_column(self, partition_field: PartitionField) -> str:
        """The quoted column of a partition field; raises :class:`KernelUnavailable` for one that
        Spark does not transform as Iceberg does.
        """
        fields = schema_of(self.rewrite.metadata)["fields"]
        source_path = field_path(fields, partition_field.source_id)
        if source_path is None or source_path[-1]["type"] not in _TRANSFORMED_TYPES:
            raise KernelUnavailable(f"Spark cannot check partition field {partition_field.name}")
        return identifier(*(str(nested_field["name"]) for nested_field in source_path))


def _is_of_partition(sums_of_file: Mapping[str, Any], partition_values: Mapping[str, Any]) -> bool:
    """Whether all rows of a file are of its partition."""
    for field_index, partition_value in partition_values.items():
        values_in_file = {sums_of_file[f"least {field_index}"], sums_of_file[f"most {field_index}"]}
        if sums_of_file[f"nulls {field_index}"]:
            values_in_file.add(None)
        if values_in_file != {None if partition_value is None else str(partition_value)}:
            return False
    return True
