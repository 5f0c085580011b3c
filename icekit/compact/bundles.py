"""Put small groups of files together: each group takes queries of its own, and a query takes longer
than reading a little data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from icekit.compact.group_rows import RewriteSession
from icekit.compact.key import Key

#: Choices: the most bytes, and groups, that one query writes for small groups together.
BUNDLE_BYTES, BUNDLE_GROUPS = 64 << 20, 100
_ONE_SPLIT = 2**50


@dataclass
class Bundle:
    """Groups (objects of Iceberg's API) with their keys, their bytes, and the delete records that
    Iceberg's reader applies.
    """

    groups: list[Any] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    size_in_bytes: int = 0
    applied: int = 0

    def group(self, rewrite: RewriteSession) -> Any:
        """All of them as one group, which one task writes: each of their partitions gets one
        file.
        """
        first = self.groups[0]
        if len(self.groups) == 1:
            return first
        jvm: Any = rewrite.spark._jvm
        tasks = jvm.java.util.ArrayList()
        for group in self.groups:
            tasks.addAll(group.fileScanTasks())
        return jvm.org.apache.iceberg.actions.RewriteFileGroup(
            first.info(),
            tasks,
            int(first.outputSpecId()),
            int(first.maxOutputFileSize()),
            _ONE_SPLIT,
            len(self.groups),
        )


def bundled(
    rewrite: RewriteSession, groups: Sequence[Any], keys: Sequence[Sequence[Key]]
) -> list[Bundle]:
    """Groups with their keys: small ones that become one file each together, and each other one by
    itself.

    Only those are together whose equality deletes Iceberg's own reader applies, file by file: a
    join with the deletes of one partition must not see the rows of another. Rows that are sorted
    stay with their group.
    """
    alone: list[Bundle] = []
    bundles: list[Bundle] = []
    for group, own in zip(groups, keys, strict=True):
        size, applied = int(group.inputFilesSizeInBytes()), rewrite.applied(group)
        is_small = size <= BUNDLE_BYTES and int(group.expectedOutputFiles()) == 1
        if (
            rewrite.runner is not None
            or applied is None
            or not is_small
            or not rewrite.staging.java.areOf(group.fileScanTasks(), int(group.outputSpecId()))
        ):
            alone.append(Bundle([group], list(own)))
            continue
        last = bundles[-1] if bundles else Bundle()
        if (
            not last.groups
            or len(last.groups) == BUNDLE_GROUPS
            or last.size_in_bytes + size > BUNDLE_BYTES
            or last.applied + applied > rewrite.few_applied
        ):
            bundles.append(last := Bundle())
        last.groups.append(group)
        last.keys += own
        last.size_in_bytes += size
        last.applied += applied
    return alone + bundles
