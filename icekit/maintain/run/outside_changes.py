"""What other jobs changed in a table while an attempt ran: its definition, its commits, its
history; when, and by whom if the metadata says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from icekit.common import frozen
from icekit.common.units import count, first_names, utc_time
from icekit.health.facts.head import Head, commits_since
from icekit.iceberg.metadata import (
    Json,
    leaves,
    properties_of,
    schema_of,
    snapshots_by_id,
    summary_of,
    writer_of,
)

# Most changes, and writers, that a sentence names.
_NAMED = 3


@frozen
class OutsideChanges:
    """The changes between two states of a table, without an action's own commits.

    ``definition_changes`` are sentence parts on schema, specs, sort order, properties, location and
    format version. ``commits`` are other jobs' snapshots of the branch. ``is_start_gone``: the
    snapshot of the first state is no longer in the branch's history (rolled back, or expired).
    ``has_other_changes``: other branches, tags, old snapshots or statistics. ``first_ms`` and
    ``last_ms`` are when it happened.
    """

    definition_changes: tuple[str, ...] = ()
    commits: tuple[Json, ...] = ()
    is_start_gone: bool = False
    has_other_changes: bool = False
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def any(self) -> bool:
        """Whether another job changed anything at all."""
        return bool(self.definition_changes) or self.has_moved or self.has_other_changes

    @property
    def has_moved(self) -> bool:
        """Whether another job moved the head of the branch."""
        return bool(self.commits) or self.is_start_gone

    @property
    def text(self) -> str:
        """The changes as a sentence without a full stop; empty without any."""
        change_texts = [*self.definition_changes[:_NAMED]]
        if unnamed_count := len(self.definition_changes) - len(change_texts):
            change_texts.append(f"{count(unnamed_count, 'more change')} of the definition")
        if self.commits:
            change_texts.append(f"{count(len(self.commits), 'commit')}{self._writers}")
        if self.is_start_gone:
            change_texts.append("a rollback or expiry took the snapshot that it began from")
        if self.has_other_changes and not change_texts:
            change_texts.append("another branch, tag, old snapshot or statistics file changed")
        if not change_texts:
            return ""
        return f"the table changed meanwhile: {'; '.join(change_texts)}{self._when}"

    @property
    def _writers(self) -> str:
        writers = sorted({writer for c in self.commits if (writer := writer_of(summary_of(c)))})
        return f" by {first_names(writers, _NAMED)}" if writers else ""

    @property
    def _when(self) -> str:
        if self.first_ms is None or self.last_ms is None:
            return ""
        first_text = f"{utc_time(self.first_ms):%Y-%m-%d %H:%M:%S} UTC"
        last_text = f"{utc_time(self.last_ms):%H:%M:%S} UTC"
        if first_text.endswith(last_text):
            return f" (at {first_text})"
        return f" (between {first_text} and {last_text})"


def outside_changes(
    head_before: Head, head_now: Head, own_commit_ids: Collection[int]
) -> OutsideChanges:
    """Compare two states of a table; ``own_commit_ids`` are those of the action's commits."""
    if head_now.metadata == head_before.metadata:
        return OutsideChanges()
    is_start_gone = head_before.snapshot_id is not None and all(
        commit["snapshot-id"] != head_before.snapshot_id for commit in head_now.lineage()
    )
    commits_between = () if is_start_gone else commits_since(head_now, head_before.snapshot_id)
    definition_changes = tuple(_definition_changes(head_before.metadata, head_now.metadata))
    other_commits = tuple(
        commit for commit in commits_between if int(commit["snapshot-id"]) not in own_commit_ids
    )
    removed_ids = (
        snapshots_by_id(head_before.metadata).keys() - snapshots_by_id(head_now.metadata).keys()
    )
    has_other_changes = bool(removed_ids) or _other_state(
        head_before, own_commit_ids
    ) != _other_state(head_now, own_commit_ids)
    if not (definition_changes or other_commits or is_start_gone or has_other_changes):
        return OutsideChanges()
    own_commit_times = {
        c.get("timestamp-ms") for c in commits_between if int(c["snapshot-id"]) in own_commit_ids
    }
    change_times = [
        each
        for each in _change_times(head_before.metadata, head_now.metadata)
        if each not in own_commit_times
    ]
    return OutsideChanges(
        definition_changes,
        other_commits,
        is_start_gone,
        has_other_changes,
        min(change_times, default=None),
        max(change_times, default=None),
    )


def _change_times(metadata_before: Json, metadata_now: Json) -> list[int]:
    """When the metadata files after a state were written, as the newest one lists them."""
    state_ms = int(metadata_before.get("last-updated-ms") or 0)
    logged_times = [int(entry["timestamp-ms"]) for entry in metadata_now.get("metadata-log") or ()]
    newest_times = (
        [int(metadata_now["last-updated-ms"])] if "last-updated-ms" in metadata_now else []
    )
    return [each for each in [*logged_times, *newest_times] if each > state_ms]


def _other_state(state: Head, own_commit_ids: Collection[int]) -> tuple[Any, ...]:
    """What a state has besides its definition and the history of its branch: snapshots, refs and
    statistics of others.
    """
    metadata = state.metadata
    branch_snapshot_ids = {int(commit["snapshot-id"]) for commit in state.lineage()} | set(
        own_commit_ids
    )
    refs: Mapping[str, Json] = metadata.get("refs") or {}
    return (
        sorted(
            each for each in snapshots_by_id(metadata) if each and each not in branch_snapshot_ids
        ),
        sorted(
            (name, str(sorted(ref.items())))
            for name, ref in refs.items()
            if ref.get("snapshot-id") not in branch_snapshot_ids
        ),
        str(metadata.get("statistics") or ()),
        str(metadata.get("partition-statistics") or ()),
    )


def _definition_changes(metadata_before: Json, metadata_now: Json) -> Iterator[str]:
    """What changed of a table's definition, as sentence parts."""
    if metadata_before.get("format-version") != metadata_now.get("format-version"):
        yield (
            f"an upgrade from format version {metadata_before.get('format-version')} to "
            f"{metadata_now.get('format-version')}"
        )
    yield from _column_changes(metadata_before, metadata_now)
    if metadata_before.get("default-spec-id") != metadata_now.get("default-spec-id"):
        yield "a new partition spec"
    if metadata_before.get("default-sort-order-id") != metadata_now.get("default-sort-order-id"):
        yield "a new sort order"
    if metadata_before.get("location") != metadata_now.get("location"):
        yield "a new location"
    properties_before = properties_of(metadata_before)
    properties_now = properties_of(metadata_now)
    for property_name in sorted(properties_before.keys() | properties_now.keys()):
        if property_name not in properties_now:
            yield f"property {property_name} was removed"
        elif properties_before.get(property_name) != properties_now[property_name]:
            yield f"property {property_name} was set"


def _column_changes(metadata_before: Json, metadata_now: Json) -> Iterator[str]:
    """What changed of the columns, by their field ids."""
    columns_before = {leaf.field_id: leaf for leaf in leaves(schema_of(metadata_before))}
    columns_now = {leaf.field_id: leaf for leaf in leaves(schema_of(metadata_now))}
    for field_id in columns_before.keys() - columns_now.keys():
        yield f"column {columns_before[field_id].name} was dropped"
    for field_id in columns_now.keys() - columns_before.keys():
        yield f"column {columns_now[field_id].name} was added"
    for field_id in columns_before.keys() & columns_now.keys():
        if columns_before[field_id].name != columns_now[field_id].name:
            yield f"column {columns_before[field_id].name} was renamed to {columns_now[field_id].name}"
        if columns_before[field_id].type != columns_now[field_id].type:
            yield (
                f"the type of column {columns_now[field_id].name} changed from "
                f"{columns_before[field_id].type} to "
                f"{columns_now[field_id].type}"
            )
