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
_LEAST_FILES = 128
_MOST_FILES = 500
_ONE_SPLIT = 2**50
# A choice: the bytes of groups that the kernel writes in one go. A request to stop waits for them.
_KERNEL_BYTES = 1 << 30


@dataclass
class Bundle:
    """Groups (objects of Iceberg's API) with the keys of each, their bytes and files, and the
    delete records that Iceberg's reader applies.
    """

    groups: list[Any] = field(default_factory=list)
    keys: list[Sequence[Key]] = field(default_factory=list)
    size_in_bytes: int = 0
    files: int = 0
    applied: int = 0

    def work(self, rewrite: RewriteSession) -> Group | KernelWork:
        """All of them as one work: of the kernel, or of one task, which writes one file for each of
        their partitions.
        """
        if rewrite.writer is not None:
            return KernelWork(rewrite, self.groups, self.keys, rewrite.writer)
        first = self.groups[0]
        if len(self.groups) == 1:
            return Group(rewrite, first, self.keys[0])
        jvm: Any = rewrite.spark._jvm
        tasks = jvm.java.util.ArrayList()
        for group in self.groups:
            tasks.addAll(group.fileScanTasks())
        joined_group = jvm.org.apache.iceberg.actions.RewriteFileGroup(
            first.info(),
            tasks,
            int(first.outputSpecId()),
            int(first.maxOutputFileSize()),
            _ONE_SPLIT,
            len(self.groups),
        )
        keys = [key for each in self.keys for key in each]
        work = Group(rewrite, joined_group, keys)
        work.is_one_file_each = True
        return work

    def apart(self) -> list[Bundle]:
        """Each group by itself."""
        return [Bundle([group], [keys]) for group, keys in zip(self.groups, self.keys, strict=True)]


def bundled(
    rewrite: RewriteSession, groups: Sequence[Any], keys: Sequence[Sequence[Key]], at_once: int
) -> list[Bundle]:
    """Groups of one partition with their keys: small ones that become one file each together, if
    possible in as many bundles as are written at once, and each other one by itself.

    Only those are together whose equality deletes Iceberg's own reader applies: others are resolved
    group by group. Those without equality
    deletes are apart, because they are checked in another way; and rows that are sorted stay with
    their group.
    """
    if rewrite.writer is not None:
        return _for_kernel(groups, keys)
    leaves = len(columns(rewrite.metadata, schema_of(rewrite.metadata)))
    most_groups = max(1, min(BUNDLE_GROUPS, _MOST_WRITERS // max(1, leaves)))
    share = sum(int(group.inputFileNum()) for group in groups) // at_once
    most_files = min(_MOST_FILES, max(_LEAST_FILES, share))
    result: list[Bundle] = []
    last: dict[bool, Bundle] = {}
    for group, group_keys in zip(groups, keys, strict=True):
        size = int(group.inputFilesSizeInBytes())
        files = int(group.inputFileNum())
        becomes_one = size <= SMALL_BYTES and int(group.expectedOutputFiles()) == 1
        applied = (
            rewrite.applied(group, group_keys) if becomes_one and rewrite.runner is None else None
        )
        if applied is None:
            result.append(Bundle([group], [group_keys]))
            continue
        bundle = last.get(bool(group_keys))
        if (
            bundle is None
            or len(bundle.groups) == most_groups
            or bundle.files + files > most_files
            or bundle.size_in_bytes + size > SMALL_BYTES
            or bundle.applied + applied > rewrite.most_applied
        ):
            bundle = last[bool(group_keys)] = Bundle()
            result.append(bundle)
        bundle.groups.append(group)
        bundle.keys.append(group_keys)
        bundle.size_in_bytes += size
        bundle.files += files
        bundle.applied += applied
    return result


def _for_kernel(groups: Sequence[Any], keys: Sequence[Sequence[Key]]) -> list[Bundle]:
    """Groups that are written in one Spark job and checked by the same queries."""
    result: list[Bundle] = []
    for group, group_keys in zip(groups, keys, strict=True):
        size = int(group.inputFilesSizeInBytes())
        last = result[-1] if result else None
        if (
            last is None
            or len(last.groups) == BUNDLE_GROUPS
            or last.size_in_bytes + size > _KERNEL_BYTES
        ):
            last = Bundle()
            result.append(last)
        last.groups.append(group)
        last.keys.append(group_keys)
        last.size_in_bytes += size
        last.files += int(group.inputFileNum())
    return result
