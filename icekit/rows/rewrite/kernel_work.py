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
from icekit.rows.kernel.job import KernelFailed, Written, write_parts
from icekit.rows.kernel.kernel import RuledOut, TableWriter
from icekit.rows.kernel.table_writer import KernelUnavailable
from icekit.rows.proof.checked import SAMPLED_FILES, CheckedRows
from icekit.rows.proof.fingerprint import MODULUS, Fingerprint, added_up, summed
from icekit.rows.proof.readers import read_by_iceberg, shown
from icekit.rows.rewrite.group import Group, changed_values, differ
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

    def __init__(self, rewrite: RewriteSession, group: Any, keys: Sequence[Key]) -> None:
        super().__init__(rewrite, group, keys)
        #: Whether some keys are looked up, or whole files read, by other means.
        self.is_looked_up = True
        #: About one group in so many is, by their rows.
        self.one_group_in = 1
        # Files of which the outcome says what Iceberg's own reader shows of them: its answer depends
        # on the query, so that nothing is compared with it.
        self.misread = self._sampled_tasks(0)
        if self.keys and rewrite.check:
            sampled_tasks = self._sampled_tasks(SAMPLED_FILES)
            if all(key.is_read_correctly for key in keys):
                self.chosen = sampled_tasks
            else:
                self.misread = sampled_tasks
        self.parts: list[Any] = []
        self.written: list[Written] = []
        self.samples: Mapping[Key, Sample] = {}
        #: Why Spark writes the group instead.
        self.refusal = ""

    @property
    def written_rows(self) -> Fingerprint:
        """The rows that the kernel wrote."""
        sums = [Fingerprint(answer.rows, answer.value % MODULUS) for answer in self.written]
        return sum(sums, Fingerprint())

    @property
    def written_rows_of_chosen(self) -> Fingerprint:
        """Those of the chosen files."""
        sums = [
            Fingerprint(rows, value % MODULUS)
            for answer in self.written
            for _, rows, value in answer.chosen
        ]
        return sum(sums, Fingerprint())

    @property
    def is_whole(self) -> bool:
        """Whether one task writes the group: equality deletes apply to it, or its rows are sorted."""
        return bool(self.keys) or self.by_reader or self.rewrite.order.is_sorting

    def compared_tasks(self) -> list[Any]:
        """The whole files that Iceberg's own reader reads once more, though not all of the group."""
        is_compared = not self.by_reader and (self.is_looked_up or not self.keys)
        return list(elements(self.chosen)) if is_compared else []

    def orders(self, kernel: Any) -> list[str]:
        """What the kernel is told of each part; ``kernel`` is an object of the Java class."""
        chosen_paths: Any = self.spark._jvm.java.util.HashSet()  # type: ignore[union-attr]
        for task in (*self.compared_tasks(), *elements(self.misread)):
            chosen_paths.add(task.file().location())
        # Otherwise each part becomes one file.
        files = int(self.group.expectedOutputFiles()) if self.is_whole else 1
        most_bytes = int(self.group.maxOutputFileSize())
        operation = uuid.uuid4().hex
        return [
            str(kernel.part(part, chosen_paths, files, most_bytes, number, operation))
            for number, part in enumerate(self.parts)
        ]

    def look_up(self) -> None:
        """Find the rows of some keys of each key set that live, by a plain join."""
        self.samples = KeySamples(self.rewrite, self.tasks, self.keys, self.hash).by_key()

    def sample_sql(self, key: Key) -> str:
        """SQL for whether a row has one of the sampled keys."""
        return sample_sql(key.values, self.rewrite.salt, self.samples[key].one_in)


class KernelWork:
    """Some groups of files that the kernel writes in one Spark job, with a task for each part of a
    group; Spark itself writes those that the kernel refuses.
    """

    def __init__(
        self,
        rewrite: RewriteSession,
        groups: Sequence[Any],
        keys: Sequence[Sequence[Key]],
        writer: TableWriter,
    ) -> None:
        self.rewrite = rewrite
        self.writer = writer
        self.java = java_object(rewrite.spark, rewrite.table, "Kernel", rewrite.table)
        self.groups = [
            KernelGroup(rewrite, group, of_group)
            for group, of_group in zip(groups, keys, strict=True)
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
            checked = CheckedRows()
            if rewrite.check:
                checked = self._write_checked()
            else:
                self._write()
            for group in self._of_kernel():
                for part, answer in zip(group.parts, group.written, strict=True):
                    rewrite.deletes.check_deleted(part, answer.rows_read)
            results = [(group.group, CheckedRows()) for group in self._of_kernel()]
            if results:
                results[0] = (results[0][0], checked)
            refused = [group for group in self.groups if group.refusal]
            rewrite.kernel_refusals.update(group.refusal for group in refused)
            return [*results, *((group.group, group.run()) for group in refused)]
        except Exception:
            for group in self.groups:
                rewrite.take_back(group.group)
            raise

    def _of_kernel(self) -> list[KernelGroup]:
        return [group for group in self.groups if not group.refusal]

    def _write(self) -> None:
        """Let the kernel write all groups that it does not refuse."""
        orders: list[str] = []
        for group in self.groups:
            try:
                group.parts = self._parts(group)
                orders += group.orders(self.java)
            except KernelUnavailable as refusal:
                group.refusal = str(refusal)
        try:
            size = sum(int(group.group.inputFilesSizeInBytes()) for group in self._of_kernel())
            answers = iter(
                write_parts(self.rewrite.spark, orders, self.writer, self._look_up, size)
            )
        except RuledOut as found:
            raise ruled_out_error(str(found)) from None
        except KernelFailed as error:
            self.rewrite.stop.check()
            for group in self._of_kernel():
                group.refusal = f"it failed: {reason(error.__cause__ or error)}"
            return
        for group in self._of_kernel():
            of_group = [next(answers) for _ in group.parts]
            group.written = [answer for answer in of_group if isinstance(answer, Written)]
            refusals = [answer for answer in of_group if isinstance(answer, str)]
            if refusals:
                self._refuse(group, refusals[0])
                continue
            added: Any = self.rewrite.spark._jvm.java.util.HashSet()  # type: ignore[union-attr]
            for part, answer in zip(group.parts, group.written, strict=True):
                added.addAll(self.java.added(part.get(0), answer.files, self.rewrite.order_id))
            group.group.setOutputFiles(added)

    def _parts(self, group: KernelGroup) -> list[Any]:
        """The parts of a group; raises :class:`KernelUnavailable`."""
        for each in self._partition_fields(group).values():
            self._source(each)
        if group.is_whole and int(group.group.inputFilesSizeInBytes()) > _MOST_BYTES:
            raise KernelUnavailable(
                "a group under deletes, or to be sorted, is too large for one task"
            )
        has_ids = int(self.rewrite.metadata["format-version"]) >= 3
        refusal = self.java.refusal(group.tasks, int(group.group.outputSpecId()), has_ids)
        if refusal is not None:
            raise KernelUnavailable(str(refusal))
        parts = self.java.parts(group.group, group.tasks, group.is_whole)
        if parts is None:
            raise KernelUnavailable("a data file is larger than what one task reads")
        return list(elements(parts))

    def _refuse(self, group: KernelGroup, refusal: str) -> None:
        """Leave a group to Spark, and remove what the kernel has written of it."""
        group.refusal = refusal
        for answer in group.written:
            for path in answer.paths:
                with contextlib.suppress(Exception):
                    self.rewrite.table.io().deleteFile(path)
        group.group.setOutputFiles(self.rewrite.spark._jvm.java.util.HashSet())  # type: ignore[union-attr]

    def _write_checked(self) -> CheckedRows:
        """Let the kernel write the groups, and compare the rows of the new files, as Spark reads
        them, with those that the kernel wrote, and with what Spark reads from the old files.
        """
        spark = self.rewrite.spark
        staging = self.rewrite.staging
        with staging.staged_rows(self.groups[0].tasks) as rows:
            hash_sql = self.groups[0]._hash(rows)
        for group in self.groups:
            group.hash = hash_sql
        self._write()
        groups = self._of_kernel()
        if not groups:
            return CheckedRows()
        if any(group.refusal and group.is_looked_up and group.keys for group in self.groups):
            # They stood for groups that the kernel has written.
            for group in groups:
                if group.keys and not group.samples:
                    group.look_up()
        names = self._sample_names(groups)
        with ThreadPoolExecutor(1) as pool:
            comparing = pool.submit(
                with_thread_context(spark, partial(self._compare_old, groups, hash_sql))
            )
            checked = CheckedRows()
            for group, sums in self._sums_of_new(groups, hash_sql, names).items():
                # One with rows of other partitions is left to Spark now.
                if not group.refusal:
                    checked += self._compare(group, sums, names)
            return checked + comparing.result()

    def _look_up(self) -> None:
        """Look some keys up, while workers of Python write."""
        for group in self._of_kernel() if self.rewrite.check else ():
            if group.keys and group.is_looked_up:
                group.look_up()

    def _compare_old(self, groups: Sequence[KernelGroup], hash_sql: str) -> CheckedRows:
        """Compare whole old files: all of groups to which Iceberg's reader applies the deletes, and
        some of others.
        """
        in_full = [task for group in groups if group.by_reader for task in elements(group.tasks)]
        rows_of_readers = sum(
            (group.written_rows for group in groups if group.by_reader), Fingerprint()
        )
        checked = self._compare_files(in_full, hash_sql, rows_of_readers)
        compared = [group for group in groups if group.compared_tasks()]
        chosen_tasks = [task for group in compared for task in group.compared_tasks()]
        ours = sum((group.written_rows_of_chosen for group in compared), Fingerprint())
        return checked + self._compare_files(chosen_tasks, hash_sql, ours)

    def _compare(
        self, group: KernelGroup, sums: Mapping[str, int], names: Mapping[str, str]
    ) -> CheckedRows:
        """Compare the new files of a group, by the sums of what Spark reads there."""
        after = Fingerprint.of_sums(sums, "all")
        written_rows = group.written_rows
        added = group.group.addedFiles()
        if after != written_rows and after.row_count == written_rows.row_count:
            raise changed_values(group, after.row_count)
        if after != written_rows or after.row_count != int(group.java.records(added)):
            raise differ(f"the new files hold {after}, but {written_rows} were to be written")
        for key, sample in group.samples.items():
            ours = Fingerprint.of_sums(sums, names[group.sample_sql(key)])
            if sample.live != ours:
                raise differ(
                    f"for one key in {sample.one_in}, the old files hold {sample.live}, but this "
                    f"rewrite wrote {ours}"
                )
        sampled_rows = sum(sample.rows for sample in group.samples.values())
        rows_shown = None
        if int(group.misread.size()):
            rows_shown = shown(group.staging, group.misread)
        shown_with_columns, shown_without = rows_shown or (0, 0)
        return CheckedRows(
            rows=after.row_count,
            sampled=sampled_rows,
            read=after.row_count + sampled_rows,
            resolved=group.read_deletes + sum(key.records for key in group.keys),
            one_in=max((sample.one_in for sample in group.samples.values()), default=0),
            one_partition_in=group.one_group_in,
            by_reader=after.row_count if group.by_reader else 0,
            unread_live=group.written_rows_of_chosen.row_count if rows_shown else 0,
            shown_with_columns=shown_with_columns,
            shown_without=shown_without,
        )

    def _compare_files(self, tasks: Sequence[Any], hash_sql: str, ours: Fingerprint) -> CheckedRows:
        """Compare what Iceberg's own reader reads from whole old files with what was written."""
        if not tasks:
            return CheckedRows()
        task_list: Any = self.rewrite.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for task in tasks:
            task_list.add(task)
        stock = read_by_iceberg(self.rewrite.staging, task_list, hash_sql, asks_twice=False)
        if stock != ours:
            raise differ(
                f"from {count(len(tasks), 'old file')}, Iceberg's own reader reads {stock}, but "
                f"this rewrite wrote {ours}"
            )
        return CheckedRows(files=len(tasks), of_files=stock.row_count, read=stock.row_count)

    def _sums_of_new(
        self, groups: Sequence[KernelGroup], hash_sql: str, names: Mapping[str, str]
    ) -> Mapping[KernelGroup, Mapping[str, int]]:
        """The sums of the hashes of the rows in the new files of each group: of all of them, and of
        those with the sampled keys, by ``names``. A group with rows of another partition than their
        file's is left to Spark.
        """
        from pyspark.sql import functions as F

        added = self.rewrite.added
        columns = [f"{hash_sql} AS {identifier(added.hash)}"]
        columns.append(f"input_file_name() AS {identifier(added.file)}")
        aggregates = summed(added.hash, "all")
        for is_sampled, name in names.items():
            columns.append(f"if({is_sampled}, {hash_sql}, NULL) AS {identifier(name)}")
            aggregates += summed(name, name, f"{identifier(name)} IS NOT NULL")
        for field_index, transform in self._transforms(groups).items():
            name = f"{added.prefix} partition {field_index}"
            columns.append(f"{transform} AS {identifier(name)}")
            aggregates += [
                F.expr(f"CAST(min({identifier(name)}) AS STRING)").alias(f"least {field_index}"),
                F.expr(f"CAST(max({identifier(name)}) AS STRING)").alias(f"most {field_index}"),
                F.expr(f"count_if(isnull({identifier(name)}))").alias(f"nulls {field_index}"),
            ]
        groups_by_path: dict[str, tuple[KernelGroup, Mapping[str, Any]]] = {}
        files: Any = self.rewrite.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for group in groups:
            files.addAll(group.group.addedFiles())
            for part, answer in zip(group.parts, group.written, strict=True):
                partition = json.loads(str(self.java.transformed(part.get(0))))
                groups_by_path.update(dict.fromkeys(answer.paths, (group, partition)))
        sums: dict[KernelGroup, Counter[str]] = {group: Counter() for group in groups}
        if not groups_by_path:
            return sums
        with self.rewrite.staging.staged_rows(self.rewrite.staging.java.ofNew(files)) as rows:
            of_files = rows.selectExpr(*columns)
            for row in added_up(of_files, [identifier(added.file)], *aggregates).collect():
                values = row.asDict()
                group, partition = groups_by_path[values[added.file]]
                if not _is_of_partition(values, partition):
                    self._refuse(group, "some rows are in files of another partition than theirs")
                sums[group].update({k: n for k, n in values.items() if isinstance(n, int)})
        return sums

    def _sample_names(self, groups: Sequence[KernelGroup]) -> dict[str, str]:
        """A column for each sample, by what chooses it: groups with the same key may share one."""
        samples = dict.fromkeys(group.sample_sql(key) for group in groups for key in group.samples)
        return {
            is_sampled: f"{self.rewrite.added.sampled} {number}"
            for number, is_sampled in enumerate(samples)
        }

    def _partition_fields(self, group: KernelGroup) -> Mapping[int, PartitionField]:
        """The fields of the group's partition that are no identity, by their place in the spec."""
        spec_id = int(group.group.outputSpecId())
        (spec,) = (each for each in specs(self.rewrite.metadata) if each.spec_id == spec_id)
        return {
            index: each
            for index, each in enumerate(spec.fields)
            if each.transform not in {"identity", "void"}
        }

    def _transforms(self, groups: Sequence[KernelGroup]) -> Mapping[int, str]:
        """SQL for each such field; all groups are written into one spec."""
        functions = f"{identifier(self.rewrite.sql_name[0])}.system."
        return {
            index: functions + transform_sql(self._source(each), each.transform)
            for index, each in self._partition_fields(groups[0]).items()
        }

    def _source(self, partition_field: PartitionField) -> str:
        """The quoted column of a partition field; raises :class:`KernelUnavailable` for one that
        Spark does not transform as Iceberg does.
        """
        fields = schema_of(self.rewrite.metadata)["fields"]
        path = field_path(fields, partition_field.source_id)
        if path is None or path[-1]["type"] not in _TRANSFORMED_TYPES:
            raise KernelUnavailable(f"Spark cannot check partition field {partition_field.name}")
        return identifier(*(str(each["name"]) for each in path))


def _is_of_partition(sums: Mapping[str, Any], partition: Mapping[str, Any]) -> bool:
    """Whether all rows of a file are of its partition."""
    for field_index, value in partition.items():
        values = {sums[f"least {field_index}"], sums[f"most {field_index}"]}
        if sums[f"nulls {field_index}"]:
            values.add(None)
        if values != {None if value is None else str(value)}:
            return False
    return True
