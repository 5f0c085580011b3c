"""Guard an action: check before it runs, count before and after, prove afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from icekit.catalog import Lake
from icekit.compact.actual import Actual
from icekit.compact.execute import RewriteResult
from icekit.compact.model import Action
from icekit.engine.interrupting import Stop
from icekit.facts.head import head
from icekit.facts.lineage import snapshots_by_id
from icekit.facts.manifests import manifest_list
from icekit.facts.orphans import Say
from icekit.prove.commits import prove_commits, prove_rewrites
from icekit.prove.maintenance import prove_entries
from icekit.prove.proof import Proof
from icekit.run.limits import Limits

Json = Mapping[str, Any]


class Guard:
    """The default guard: the action runs as planned, its commits say what it did, and their rows
    are compared.

    Once it has run, ``result`` is the engine's own result, and ``commits`` are its commits as the
    table had them right after each.
    """

    result = RewriteResult()
    commits: Mapping[int, Json] = {}

    def __init__(self, lake: Lake, action: Action, say: Say, stop: Stop) -> None:
        self.lake, self.action, self.say, self.stop = lake, action, say, stop

    def ready(self) -> Action | None:
        """The action to run, None if nothing is left to do; raises if it must not run."""
        return self.action

    def check(self) -> None:
        """Raise if the action that was ready must not run any more; called right before each
        attempt.
        """

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        """What the action changed, as the table has it; ``committed`` is from the summaries of its
        commits.
        """
        return committed

    def proof(self, snapshot_ids: Sequence[int], limits: Limits) -> Proof | None:
        """The proof that nothing was lost; None if nothing was changed."""
        if not snapshot_ids:
            return None
        if limits.prove == "checked":
            return prove_rewrites(self.lake, self.action.table, snapshot_ids, self.commits)
        return prove_commits(self.lake, self.action.table, snapshot_ids, sample=limits.sample)

    def close(self) -> None:
        """Release what was created for the run."""

    def metadata(self) -> Json:
        """The table's metadata, read now."""
        return head(self.lake, self.action.table).metadata


class DeletesGuard(Guard):
    """A rewrite of position deletes: rows are compared as for data files."""

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        return replace(
            committed,
            bytes_in=self._sum(snapshot_ids, "removed-files-size"),
            bytes_out=self._sum(snapshot_ids, "added-files-size"),
            items_before=self._sum(snapshot_ids, "removed-delete-files"),
            items_after=self._sum(snapshot_ids, "added-delete-files"),
        )

    def _sum(self, snapshot_ids: Sequence[int], key: str) -> int:
        """A figure of the summaries of the action's commits."""
        summaries = [self.commits[snapshot_id].get("summary") or {} for snapshot_id in snapshot_ids]
        return sum(int(summary.get(key) or 0) for summary in summaries)


class ConversionGuard(DeletesGuard):
    """A conversion of equality deletes: counts what was removed and added, and reads the rows
    without a delete set.
    """

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        changed = super().actual(committed, snapshot_ids)
        gone = self._sum(snapshot_ids, "removed-equality-delete-files")
        # Its own tags say what it read; the sizes in a summary cover only added and removed files.
        return replace(changed, items_before=gone, bytes_in=committed.bytes_in)


class ManifestGuard(Guard):
    """A rewrite of manifests: the same live entries before and after, whichever manifest holds
    them.
    """

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        if not snapshot_ids:
            return committed
        snapshots = snapshots_by_id(self.metadata())
        first = snapshots.get(snapshot_ids[0]) or {}
        before, after = (
            self._count(snapshots.get(s) or {})
            for s in (first.get("parent-snapshot-id"), snapshot_ids[-1])
        )
        return replace(committed, items_before=before, items_after=after)

    def _count(self, snapshot: Mapping[str, Any]) -> int:
        wanted, location = self.action.arguments.get("spec_id"), snapshot.get("manifest-list")
        manifests = (
            manifest_list(self.lake.tables.source(self.action.table).read(location), location)
            if location
            else ()
        )
        return sum(wanted in (None, manifest["partition_spec_id"]) for manifest in manifests)

    def proof(self, snapshot_ids: Sequence[int], limits: Limits) -> Proof | None:  # noqa: ARG002
        return prove_entries(self.lake, self.action.table, snapshot_ids) if snapshot_ids else None
