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

    ``definition`` are sentence parts on schema, specs, sort order, properties, location and format
    version. ``commits`` are other jobs' snapshots of the branch. ``is_gone``: the snapshot of the
    first state is no longer in the branch's history (rolled back, or expired). ``is_elsewhere``:
    other branches, tags, old snapshots or statistics. ``first_ms`` and ``last_ms`` are when it
    happened.
    """

    definition: tuple[str, ...] = ()
    commits: tuple[Json, ...] = ()
    is_gone: bool = False
    is_elsewhere: bool = False
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def any(self) -> bool:
        """Whether another job changed anything at all."""
        return bool(self.definition) or self.has_moved or self.is_elsewhere

    @property
    def has_moved(self) -> bool:
        """Whether another job moved the head of the branch."""
        return bool(self.commits) or self.is_gone

    @property
    def text(self) -> str:
        """The changes as a sentence without a full stop; empty without any."""
        parts = [*self.definition[:_NAMED]]
        if unnamed_count := len(self.definition) - len(parts):
            parts.append(f"{count(unnamed_count, 'more change')} of the definition")
        if self.commits:
            parts.append(f"{count(len(self.commits), 'commit')}{self._writers}")
        if self.is_gone:
            parts.append("a rollback or expiry took the snapshot that it began from")
        if self.is_elsewhere and not parts:
            parts.append("another branch, tag, old snapshot or statistics file changed")
        if not parts:
            return ""
        return f"the table changed meanwhile: {'; '.join(parts)}{self._when}"

    @property
    def _writers(self) -> str:
        writers = sorted({writer for c in self.commits if (writer := writer_of(summary_of(c)))})
        return f" by {first_names(writers, _NAMED)}" if writers else ""

    @property
    def _when(self) -> str:
        if self.first_ms is None or self.last_ms is None:
            return ""
        first = f"{utc_time(self.first_ms):%Y-%m-%d %H:%M:%S} UTC"
        last = f"{utc_time(self.last_ms):%H:%M:%S} UTC"
        if first.endswith(last):
            return f" (at {first})"
        return f" (between {first} and {last})"


def outside_changes(before: Head, now: Head, own_ids: Collection[int]) -> OutsideChanges:
    """Compare two states of a table; ``own`` are the ids of the action's commits."""
    if now.metadata == before.metadata:
        return OutsideChanges()
    is_gone = before.snapshot_id is not None and all(
        commit["snapshot-id"] != before.snapshot_id for commit in now.lineage()
    )
    commits = () if is_gone else commits_since(now, before.snapshot_id)
    definition = tuple(_definition(before.metadata, now.metadata))
    other_commits = tuple(commit for commit in commits if int(commit["snapshot-id"]) not in own_ids)
    removed = snapshots_by_id(before.metadata).keys() - snapshots_by_id(now.metadata).keys()
    is_elsewhere = bool(removed) or _rest(before, own_ids) != _rest(now, own_ids)
    if not (definition or other_commits or is_gone or is_elsewhere):
        return OutsideChanges()
    own_times = {c.get("timestamp-ms") for c in commits if int(c["snapshot-id"]) in own_ids}
    times = [each for each in _times(before.metadata, now.metadata) if each not in own_times]
    return OutsideChanges(
        definition,
        other_commits,
        is_gone,
        is_elsewhere,
        min(times, default=None),
        max(times, default=None),
    )


def _times(before: Json, now: Json) -> list[int]:
    """When the metadata files after a state were written, as the newest one lists them."""
    earlier = int(before.get("last-updated-ms") or 0)
    logged = [int(entry["timestamp-ms"]) for entry in now.get("metadata-log") or ()]
    newest = [int(now["last-updated-ms"])] if "last-updated-ms" in now else []
    return [each for each in [*logged, *newest] if each > earlier]


def _rest(state: Head, own_ids: Collection[int]) -> tuple[Any, ...]:
    """What a state has besides its definition and the history of its branch: snapshots, refs and
    statistics of others.
    """
    metadata = state.metadata
    of_branch = {int(commit["snapshot-id"]) for commit in state.lineage()} | set(own_ids)
    refs: Mapping[str, Json] = metadata.get("refs") or {}
    return (
        sorted(each for each in snapshots_by_id(metadata) if each and each not in of_branch),
        sorted(
            (name, str(sorted(ref.items())))
            for name, ref in refs.items()
            if ref.get("snapshot-id") not in of_branch
        ),
        str(metadata.get("statistics") or ()),
        str(metadata.get("partition-statistics") or ()),
    )


def _definition(before: Json, now: Json) -> Iterator[str]:
    """What changed of a table's definition, as sentence parts."""
    if before.get("format-version") != now.get("format-version"):
        yield (
            f"an upgrade from format version {before.get('format-version')} to "
            f"{now.get('format-version')}"
        )
    yield from _columns(before, now)
    if before.get("default-spec-id") != now.get("default-spec-id"):
        yield "a new partition spec"
    if before.get("default-sort-order-id") != now.get("default-sort-order-id"):
        yield "a new sort order"
    if before.get("location") != now.get("location"):
        yield "a new location"
    old = properties_of(before)
    new = properties_of(now)
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"property {name} was removed"
        elif old.get(name) != new[name]:
            yield f"property {name} was set"


def _columns(before: Json, now: Json) -> Iterator[str]:
    """What changed of the columns, by their field ids."""
    old = {leaf.field_id: leaf for leaf in leaves(schema_of(before))}
    new = {leaf.field_id: leaf for leaf in leaves(schema_of(now))}
    for field_id in old.keys() - new.keys():
        yield f"column {old[field_id].name} was dropped"
    for field_id in new.keys() - old.keys():
        yield f"column {new[field_id].name} was added"
    for field_id in old.keys() & new.keys():
        if old[field_id].name != new[field_id].name:
            yield f"column {old[field_id].name} was renamed to {new[field_id].name}"
        if old[field_id].type != new[field_id].type:
            yield (
                f"the type of column {new[field_id].name} changed from {old[field_id].type} to "
                f"{new[field_id].type}"
            )
