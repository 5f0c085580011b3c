"""Rewrite data files with Iceberg's own planner and commit, and apply many equality deletes.

Spark's own rewrite builds, for each data file, a set of all equality deletes that apply to it, so
its work grows with the square of an upsert stream's commits, and its heap with the deletes of each
file. Here the deletes of a group are read once: by the kernel, which writes the new files, or,
where it cannot, by the join of a conversion, whose position deletes Iceberg's own reader then
applies.
Each group is checked before it is committed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ConversionRefused, DeletesUnmatched, IcekitError, ReadersDisagree
from icekit.common.units import count
from icekit.engine.bridge import elements, iceberg_version, temporary_settings, with_thread_context
from icekit.engine.cluster import CACHE_KEYS
from icekit.engine.compat import reads_dropped_keys
from icekit.engine.errors import FailureKind, failure_kind, reason
from icekit.engine.interrupting import Stop, Stopped
from icekit.engine.planner import NOTHING_PLANNED, PlannedRewrite
from icekit.iceberg.key_fields import misread_fields
from icekit.iceberg.metadata import schema_of, specs
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import planned_groups
from icekit.rows.deletes.keys import delete_keys
from icekit.rows.proof.checked import CHECKED_TAG, CheckedRows, RowsDiffer, looked_up_partitions
from icekit.rows.proof.fingerprint import reading_settings
from icekit.rows.proof.readers import disagreement_text, most_delete_records, shown_counts
from icekit.rows.rewrite.bundles import Bundle, bundles_of
from icekit.rows.rewrite.group import Group
from icekit.rows.rewrite.kernel_work import KernelGroup, KernelWork
from icekit.rows.rewrite.key import Key
from icekit.rows.rewrite.rewrite_session import NotHere, RewriteSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConvertFirst(IcekitError):
    """A rewrite that no reader has the memory for, or can make, before its equality deletes are
    position deletes.
    """


# Errors that end a rewrite once the groups at work have finished, also where other groups may be
# committed.
_ALWAYS_RAISED = (ReadersDisagree, RowsDiffer, DeletesUnmatched, Stopped)
_ALWAYS_RAISED_KINDS: frozenset[FailureKind] = frozenset(
    {"conflict", "unreachable", "refused", "full"}
)
# Groups without equality deletes of which some whole files are read twice: each group takes a query
# of its own.
_COMPARED_GROUPS = 8
# A choice: a rewrite of so many bytes says why it was not faster.
_LARGE_BYTES = 256 << 20


#: What writes the groups of a bundle.
Work = Group | KernelWork
#: A group (an object of Iceberg's API) whose new files are right, and what was checked of them.
Written = tuple[Any, CheckedRows]


def _is_always_raised(error: Exception) -> bool:
    return isinstance(error, _ALWAYS_RAISED) or failure_kind(error) in _ALWAYS_RAISED_KINDS


@frozen
class RewriteResult:
    """The engine's result of one call; it may misreport, so icekit also checks the table.

    ``planned_rewrite`` is what its planner selected for a rewrite of data files; None for other
    procedures.
    """

    planned_rewrite: PlannedRewrite | None = None
    failed_groups: int = 0
    failure_reason: str = "the engine logs the reason"
    #: Why Spark wrote groups that the kernel would have written faster; empty if that matters
    # little.
    slow_reason: str = ""
    #: Manifest lists that an expiry deleted: one for each snapshot.
    deleted_manifest_lists: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether the planner selected nothing."""
        return self.planned_rewrite is not None and not self.planned_rewrite.groups


class CheckedRewrite:
    """One rewrite of data files, from its plan to its commits; ``table`` is an object of Iceberg's
    API, ``summary_tags`` go into each commit.
    """

    def __init__(
        self,
        spark: SparkSession,
        action: Action,
        table: Any,
        summary_tags: Mapping[str, str],
        *,
        stop: Stop | None = None,
        check: bool = True,
    ) -> None:
        self.session = RewriteSession(
            spark, table, action.sql_name, action.branch, action.order, stop or Stop(), check
        )
        self.action = action
        self.summary_tags = summary_tags
        #: Specs of which a column was dropped.
        self.dropped_specs = {
            spec.spec_id for spec in specs(self.session.metadata) if spec.dropped_column_fields
        }

    def run(self) -> RewriteResult:
        """Rewrite, check and commit every group; the result counts those that failed.

        With partial progress the other groups are committed, as Iceberg's own action does; without
        it, nothing is committed and the first error is raised. A conflict, a commit's error,
        :class:`RowsDiffer` and :class:`~icekit.common.errors.ReadersDisagree` are always raised,
        once the groups at work have finished. Nothing begins and nothing is committed after a
        request to stop. Raises :class:`NotHere` and :class:`ConvertFirst` before anything is
        written.
        """
        action = self.action
        options = self.action.options
        if self.session.snapshot is None:
            return RewriteResult(NOTHING_PLANNED)
        action_groups = planned_groups(
            self.session.spark, action, self.session.table, self.session.snapshot
        )
        planned_rewrite = action_groups.rollup(keeps_order=not action.order.is_sorting)
        file_groups = list(elements(action_groups.groups))
        if not file_groups:
            return RewriteResult(planned_rewrite)
        keys_by_group = self._keys_by_group(file_groups)
        self.session.find_kernel(keys_by_group)
        commits_partially = options.get("partial-progress.enabled") == "true"
        # The first commit after an upgrade gives all rows ids, so that other files that were read
        # without would be a conflict.
        assigns_row_ids = (
            int(self.session.metadata["format-version"]) >= 3
            and self.session.snapshot.firstRowId() is None
        )
        commit_limit = int(options.get("partial-progress.max-commits", "10"))
        with temporary_settings(self.session.spark, self._settings()):
            if action.order.is_sorting:
                # Iceberg's own action sorts in a session of its own: a copy of this one as it is
                # now.
                stock_rewrite = spark_actions(self.session.spark).rewriteDataFiles(
                    self.session.table
                )
                stock_rewrite = with_row_order(
                    self.session.spark, stock_rewrite, self.session.table, action
                )
                self.session.runner = self.session.staging.java.runner(stock_rewrite, options)
                self.session.order_id = int(
                    self.session.staging.java.sortOrderId(self.session.runner)
                )
            concurrent_groups = min(
                int(options.get("max-concurrent-file-group-rewrites", "5")),
                self.session.cluster.cores,
            )
            bundle_works = self._bundle_works(
                bundles_of(self.session, file_groups, keys_by_group, concurrent_groups)
            )
            commit_count = (
                min(commit_limit, len(bundle_works))
                if commits_partially and not assigns_row_ids
                else 1
            )
            group_errors = self._write_and_commit(
                bundle_works, concurrent_groups, commit_count, commits_partially=commits_partially
            )
        return RewriteResult(
            planned_rewrite,
            len(group_errors),
            reason(group_errors[0]) if group_errors else "",
            slow_reason=_slow_reason(self.session.kernel_refusals, planned_rewrite),
        )

    def _bundle_works(self, bundles: Sequence[Bundle]) -> list[tuple[Bundle, Work]]:
        """The work of each bundle; some files of a few of their groups are read twice."""
        bundle_works = [(bundle, bundle.work_of(self.session)) for bundle in bundles]
        if not self.session.check:
            return bundle_works
        group_members: list[tuple[Group, Any]] = []
        for bundle, work in bundle_works:
            if isinstance(work, KernelWork):
                group_members += [
                    (written_group, written_group.group) for written_group in work.groups
                ]
            else:
                group_members += [(work, group) for group in bundle.groups]
        for written_group, group in random.sample(
            group_members, min(_COMPARED_GROUPS, len(group_members))
        ):
            written_group.compare_files(group)
        _choose_looked_up_groups(
            [
                written_group
                for written_group, _ in group_members
                if isinstance(written_group, KernelGroup)
            ]
        )
        return bundle_works

    def _write_and_commit(
        self,
        bundle_works: Sequence[tuple[Bundle, Work]],
        concurrent_groups: int,
        commit_count: int,
        *,
        commits_partially: bool,
    ) -> list[Exception]:
        """Run the groups and commit them, in so many commits; the errors of those that failed."""
        group_errors: list[Exception] = []
        rewrite_errors: list[Exception] = []
        uncommitted_groups: list[Written] = []
        is_disk_full = False
        groups_per_commit = -(-len(bundle_works) // commit_count)

        def commit() -> None:
            checked_groups = list(uncommitted_groups)
            uncommitted_groups[:] = []
            try:
                self._commit(checked_groups)
            except Exception as error:
                rewrite_errors.append(error)

        with ThreadPoolExecutor(concurrent_groups) as thread_pool:
            futures = [
                thread_pool.submit(
                    with_thread_context(self.session.spark, partial(self._written_groups, *work))
                )
                for work in bundle_works
            ]
            for future in as_completed(futures):
                try:
                    written_groups, bundle_errors = future.result()
                except CancelledError:
                    continue
                uncommitted_groups += written_groups
                for error in bundle_errors:
                    (rewrite_errors if _is_always_raised(error) else group_errors).append(error)
                is_disk_full = is_disk_full or any(
                    failure_kind(error) == "full" for error in bundle_errors
                )
                if bundle_errors and (
                    not commits_partially or is_disk_full or self.session.stop.is_set
                ):
                    thread_pool.shutdown(wait=False, cancel_futures=True)
                if (
                    commits_partially
                    and not self.session.stop.is_set
                    and not is_disk_full
                    and len(uncommitted_groups) >= groups_per_commit
                ):
                    commit()
        # On a full disk, the files of finished groups are what can be freed.
        may_commit = not self.session.stop.is_set and not is_disk_full
        if (
            uncommitted_groups
            and may_commit
            and (commits_partially or not (group_errors or rewrite_errors))
        ):
            commit()
        for group, _ in uncommitted_groups:
            self.session.take_back(group)
        if rewrite_errors or (group_errors and not commits_partially):
            # A full disk is what the others fail by, too.
            raise min(
                rewrite_errors or group_errors, key=lambda error: failure_kind(error) != "full"
            )
        return group_errors

    def _written_groups(self, bundle: Bundle, work: Work) -> tuple[list[Written], list[Exception]]:
        """Write a bundle, or where that fails each of its groups by itself; returns what is ready
        to be committed, and the errors.
        """
        try:
            if isinstance(work, KernelWork):
                return work.run(), []
            return [(work.group, work.run())], []
        except Exception as error:
            if len(bundle.groups) == 1 or self.session.stop.is_set or failure_kind(error) == "full":
                return [], [error]
        written_groups: list[Written] = []
        group_errors: list[Exception] = []
        for bundle_work in self._bundle_works(bundle.single_bundles()):
            written, errors = self._written_groups(*bundle_work)
            written_groups += written
            group_errors += errors
        return written_groups, group_errors

    def _settings(self) -> dict[str, str]:
        """Settings of the session while it rewrites."""
        return {
            **reading_settings(schema_of(self.session.metadata)),
            # Iceberg's own action turns it off, too; a cache may hide deletes (apache/iceberg
            # 15039).
            CACHE_KEYS[1]: "false",
            "spark.sql.adaptive.enabled": "true",
            # Its small first map would be full at once.
            "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
        }

    def _commit(self, checked_groups: Sequence[Written]) -> None:
        """Commit some groups as Iceberg's own action does; their files are removed if the commit
        certainly failed.
        """
        checked_rows = sum((rows for _, rows in checked_groups), CheckedRows())
        summary_tags = dict(self.summary_tags)
        if self.session.check:
            summary_tags[CHECKED_TAG] = checked_rows.text()
        keeps_sequence_number = self.action.options.get("use-starting-sequence-number") != "false"
        commit_manager = self.session.commit_manager(
            self.session.snapshot_id, keeps_sequence_number, summary_tags, self.action.branch
        )
        commit_manager.commitOrClean({group for group, _ in checked_groups})

    def _keys_by_group(self, groups: Sequence[Any]) -> list[list[Key]]:
        """The keys of each group; raises if Iceberg's own action must do the rewrite, or if that
        has no memory for the deletes either.
        """
        java_staging = self.session.staging.java
        deletes_by_group = [self._deletes_by_key(group) for group in groups]
        field_ids = [
            field_id
            for deletes_by_key in deletes_by_group
            for key in deletes_by_key
            for field_id in key
        ]
        keys_by_group: list[list[Key]] = []
        group_refusals: list[NotHere] = []
        if self.session.encryption:
            group_refusals.append(
                NotHere(f"the table's files are encrypted ({self.session.encryption})")
            )
        for group, deletes_by_key in (
            () if group_refusals else zip(groups, deletes_by_group, strict=True)
        ):
            try:
                keys_by_group.append(self._group_keys(group, deletes_by_key))
            except NotHere as refusal:
                group_refusals.append(refusal)
        if not group_refusals:
            return keys_by_group
        misread_titles = misread_fields(
            self.session.metadata,
            field_ids,
            reads_dropped_keys=reads_dropped_keys(
                iceberg_version(self.session.spark, self.action.catalog)
            ),
        )
        if misread_titles:
            raise self._misread_error(misread_titles.values(), group_refusals[0])
        if self.session.check and field_ids:
            self._check_reader(groups)
        deletes_in_memory = most_delete_records(self.session.cluster.executor)
        deletes_fit = all(
            int(java_staging.applied(group.fileScanTasks(), deletes_in_memory)) >= 0
            for group in groups
        )
        # A conversion is refused where a column of a spec was dropped.
        if deletes_fit or self.dropped_specs:
            raise group_refusals[0]
        memory_reason = "a data file has more deletes than fit in memory"
        if conversion_refusal := next(
            filter(None, (each.__cause__ for each in group_refusals)), None
        ):
            raise ConvertFirst(
                f"{conversion_refusal} But {memory_reason}: give Spark larger executors for that."
            )
        raise ConvertFirst(_CONVERT_FIRST.format(f"{group_refusals[0]}, and {memory_reason}"))

    def _check_reader(self, groups: Sequence[Any]) -> None:
        """Refuse a rewrite by Iceberg's own reader if that gives different numbers of rows to a
        query of all columns and to one of none.
        """
        tasks_under_deletes: Any = self.session.spark._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        for group in groups:
            tasks_under_deletes.addAll(
                self.session.staging.java.underEqualityDeletes(group.fileScanTasks())
            )
        row_counts = (
            shown_counts(self.session.staging, tasks_under_deletes)
            if int(tasks_under_deletes.size())
            else None
        )
        if row_counts is not None and row_counts[0] != row_counts[1]:
            raise ReadersDisagree(disagreement_text(int(tasks_under_deletes.size()), *row_counts))

    def _misread_error(self, field_titles: Iterable[str], refusal: NotHere) -> IcekitError:
        """The error for deletes that icekit cannot resolve here, where Iceberg's own reader
        misreads those by some fields.
        """
        misreading_reason = (
            f"{str(refusal).rstrip('.')}, and Iceberg's own reader misreads deletes by "
            f"{', '.join(field_titles)}"
        )
        if self.dropped_specs or isinstance(refusal.__cause__, ConversionRefused):
            return ReadersDisagree(
                f"A compaction cannot apply these equality deletes: {misreading_reason}. Nothing "
                "was changed. Compact the table with the engine that wrote the deletes."
            )
        return ConvertFirst(_CONVERT_FIRST.format(misreading_reason))

    def _deletes_by_key(self, group: Any) -> Mapping[tuple[int, ...], Any]:
        """The equality deletes of a group, Java lists, by the field ids of their key."""
        deletes_by_key_json = self.session.staging.java.deletes(group.fileScanTasks())
        return {
            tuple(sorted(json.loads(str(entry.getKey())))): entry.getValue()
            for entry in elements(deletes_by_key_json.entrySet())
        }

    def _group_keys(self, group: Any, deletes_by_key: Mapping[tuple[int, ...], Any]) -> list[Key]:
        """The keys of a group's equality deletes.

        Raises :class:`NotHere` for deletes that only Iceberg's reader can apply.
        """
        java_staging = self.session.staging.java
        tasks = group.fileScanTasks()
        if self.dropped_specs and not self.dropped_specs.isdisjoint(
            int(task.file().specId()) for task in elements(tasks)
        ):
            raise NotHere(
                "a column of their partition spec was dropped, so that they cannot be converted "
                "first either"
            )
        group_keys: list[Key] = []
        for field_ids, delete_files in deletes_by_key.items():
            try:
                key_definition = delete_keys(self.session.metadata, field_ids)
            except ConversionRefused as refused:
                raise NotHere(str(refused)) from refused
            group_keys.append(
                Key(
                    len(group_keys),
                    delete_files,
                    tuple(key_definition.columns[i] for i in field_ids),
                    int(java_staging.records(delete_files)),
                    self.session.delete_staging(key_definition),
                    self.session.added,
                )
            )
        if not java_staging.areOf(tasks, int(group.outputSpecId())):
            raise NotHere("their data files move to another partition spec")
        if group_keys and int(java_staging.paths(tasks)) < int(tasks.size()):
            raise NotHere("a data file is in the table twice")
        if any(
            int(java_staging.paths(key.delete_files)) < int(key.delete_files.size())
            for key in group_keys
        ):
            raise NotHere("an equality delete file is in the table twice")
        return group_keys


_CONVERT_FIRST = (
    "A compaction cannot apply these equality deletes: {}. Run `icekit convert` on the table "
    "first; it turns them into position deletes. Nothing was changed."
)


def _slow_reason(count_by_refusal: Mapping[str, int], planned_rewrite: PlannedRewrite) -> str:
    """A line that says why Spark wrote groups of a large rewrite, and what would be faster."""
    if not count_by_refusal or planned_rewrite.bytes_in < _LARGE_BYTES:
        return ""
    main_refusal, group_count = max(count_by_refusal.items(), key=lambda each: each[1])
    return (
        f"Spark itself wrote {count(group_count, 'group')} of {planned_rewrite.groups:,}, because "
        f"{main_refusal}. docs/limits.md says what the faster kernel writes."
    )


def _choose_looked_up_groups(groups: Sequence[KernelGroup]) -> None:
    """Choose the groups in which keys are looked up before the commit."""
    records_by_group = {
        group: int(group.java.records(group.tasks)) + sum(key.records for key in group.keys)
        for group in groups
        if group.keys
    }
    chosen_groups, one_group_in = looked_up_partitions(records_by_group)
    for group in records_by_group:
        group.is_looked_up = group in chosen_groups
        group.one_group_in = one_group_in


def spark_actions(spark: SparkSession) -> Any:
    """Iceberg's own actions in a session."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)


def with_row_order(spark: SparkSession, java_rewrite: Any, table: Any, action: Action) -> Any:
    """Set the strategy of a rewrite, as the procedure does."""
    order = action.order
    if not order.is_sorting:
        return java_rewrite.binPack()
    if not order.by:
        return java_rewrite.sort()
    jvm: Any = spark._jvm
    column_names = [".".join(path) for path in order.by]
    if order.strategy == "sort":
        order_builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
        for column_name in column_names:
            order_builder = order_builder.asc(
                column_name, jvm.org.apache.iceberg.NullOrder.NULLS_FIRST
            )
        return java_rewrite.sort(order_builder.build())
    gateway: Any = spark.sparkContext._gateway
    column_array = gateway.new_array(gateway.jvm.java.lang.String, len(column_names))
    for i, column_name in enumerate(column_names):
        column_array[i] = column_name
    return (
        java_rewrite.hilbert(column_array)
        if order.strategy == "hilbert"
        else java_rewrite.zOrder(column_array)
    )
