"""Put small groups of files together: each group takes queries of its own, and a query takes longer
than reading a little data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from icekit.iceberg.metadata import columns, schema_of
from icekit.rows.rewrite.group import Group
from icekit.rows.rewrite.kernel_work import KernelWork
from icekit.rows.rewrite.key import Key
from icekit.rows.rewrite.rewrite_session import SMALL_BYTES, RewriteSession

#: A choice: the most groups that one query writes together. It keeps a writer open for each column
# of each partition, and opens one file after another: fewer are spread over the tasks that run at
# once.
BUNDLE_GROUPS = 100
_MOST_WRITERS = 5_000
_LEAST_BUNDLE_FILES = 128
_MOST_BUNDLE_FILES = 500
_ONE_SPLIT = 2**50
# A choice: the bytes of groups that the kernel writes in one go. A request to stop waits for them.
_KERNEL_BYTES = 1 << 30


@dataclass
class Bundle:
    """Groups (objects of Iceberg's API) with the keys of each, their bytes and files, and the
    delete records that Iceberg's reader applies.
    """

    groups: list[Any] = field(default_factory=list)
    keys_by_group: list[Sequence[Key]] = field(default_factory=list)
    size_bytes: int = 0
    file_count: int = 0
    applied_records: int = 0

    def work_of(self, rewrite: RewriteSession) -> Group | KernelWork:
        """All of them as one work: of the kernel, or of one task, which writes one file for each of
        their partitions.
        """
        if rewrite.writer is not None:
            return KernelWork(rewrite, self.groups, self.keys_by_group, rewrite.writer)
        first_group = self.groups[0]
        if len(self.groups) == 1:
            return Group(rewrite, first_group, self.keys_by_group[0])
        jvm: Any = rewrite.spark._jvm
        scan_tasks = jvm.java.util.ArrayList()
        for group in self.groups:
            scan_tasks.addAll(group.fileScanTasks())
        combined_group = jvm.org.apache.iceberg.actions.RewriteFileGroup(
            first_group.info(),
            scan_tasks,
            int(first_group.outputSpecId()),
            int(first_group.maxOutputFileSize()),
            _ONE_SPLIT,
            len(self.groups),
        )
        all_keys = [key for group_keys in self.keys_by_group for key in group_keys]
        combined_work = Group(rewrite, combined_group, all_keys)
        combined_work.is_one_file_each = True
        return combined_work

    def single_bundles(self) -> list[Bundle]:
        """Each group by itself."""
        return [
            Bundle([group], [group_keys])
            for group, group_keys in zip(self.groups, self.keys_by_group, strict=True)
        ]


def bundles_of(
    rewrite: RewriteSession,
    groups: Sequence[Any],
    keys_by_group: Sequence[Sequence[Key]],
    parallel_writes: int,
) -> list[Bundle]:
    """Groups of one partition with their keys: small ones that become one file each together, if
    possible in as many bundles as are written at once, and each other one by itself.

    Only those are together whose equality deletes Iceberg's own reader applies: others are resolved
    group by group. Those without equality
    deletes are apart, because they are checked in another way; and rows that are sorted stay with
    their group.
    """
    if rewrite.writer is not None:
        return _kernel_bundles(groups, keys_by_group)
    leaf_columns = len(columns(rewrite.metadata, schema_of(rewrite.metadata)))
    most_groups = max(1, min(BUNDLE_GROUPS, _MOST_WRITERS // max(1, leaf_columns)))
    files_per_writer = sum(int(group.inputFileNum()) for group in groups) // parallel_writes
    most_files = min(_MOST_BUNDLE_FILES, max(_LEAST_BUNDLE_FILES, files_per_writer))
    bundles: list[Bundle] = []
    last_by_has_keys: dict[bool, Bundle] = {}
    for group, group_keys in zip(groups, keys_by_group, strict=True):
        size_bytes = int(group.inputFilesSizeInBytes())
        file_count = int(group.inputFileNum())
        is_one_file = size_bytes <= SMALL_BYTES and int(group.expectedOutputFiles()) == 1
        applied_records = (
            rewrite.applied_records(group, group_keys)
            if is_one_file and rewrite.runner is None
            else None
        )
        if applied_records is None:
            bundles.append(Bundle([group], [group_keys]))
            continue
        bundle = last_by_has_keys.get(bool(group_keys))
        if (
            bundle is None
            or len(bundle.groups) == most_groups
            or bundle.file_count + file_count > most_files
            or bundle.size_bytes + size_bytes > SMALL_BYTES
            or bundle.applied_records + applied_records > rewrite.most_applied
        ):
            bundle = last_by_has_keys[bool(group_keys)] = Bundle()
            bundles.append(bundle)
        bundle.groups.append(group)
        bundle.keys_by_group.append(group_keys)
        bundle.size_bytes += size_bytes
        bundle.file_count += file_count
        bundle.applied_records += applied_records
    return bundles


def _kernel_bundles(groups: Sequence[Any], keys_by_group: Sequence[Sequence[Key]]) -> list[Bundle]:
    """Groups that are written in one Spark job and checked by the same queries."""
    bundles: list[Bundle] = []
    for group, group_keys in zip(groups, keys_by_group, strict=True):
        size_bytes = int(group.inputFilesSizeInBytes())
        last_bundle = bundles[-1] if bundles else None
        if (
            last_bundle is None
            or len(last_bundle.groups) == BUNDLE_GROUPS
            or last_bundle.size_bytes + size_bytes > _KERNEL_BYTES
        ):
            last_bundle = Bundle()
            bundles.append(last_bundle)
        last_bundle.groups.append(group)
        last_bundle.keys_by_group.append(group_keys)
        last_bundle.size_bytes += size_bytes
        last_bundle.file_count += int(group.inputFileNum())
    return bundles
