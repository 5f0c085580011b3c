"""Hold the result of a proof of erasure, and write the SQL that completes the erasure, in the order it must run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from icekit.facts.orphans import ORPHAN_AGE
from icekit.sql import Identifier, display_name, identifier, literal, rewrite_data_files
from icekit.units import count

UNREFERENCED = "unreferenced"


@dataclass(frozen=True, slots=True)
class RefRows:
    """A branch or tag (type ``BRANCH`` or ``TAG``): matching rows that a reader gets, None if they could not be read.

    ``holds_rows`` is also true if deletes hide the rows in a file that the ref reaches.
    """

    name: str
    type: str
    snapshot_id: int | None
    row_count: int | None
    holds_rows: bool


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """A snapshot that reaches matching rows, and through which files."""

    snapshot_id: int
    committed_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file that contains matching rows: kind ``data``, ``equality deletes``, ``position deletes`` or ``unreferenced``."""

    path: str
    kind: str
    row_count: int
    snapshot_count: int
    example_snapshot_ids: tuple[int, ...]
    modified_at_ms: int | None = None


@dataclass(frozen=True)
class Erasure:
    """Where rows of a predicate can still be read; ``erased`` is None if that could not be determined.

    ``live_rows`` has main and every ref that was read, ``refs`` those that contain matching rows.
    ``actions`` is exact SQL in order, ``notes`` is for a person to read before running it.
    """

    table: str
    predicate: str
    erased: bool | None
    live_rows: tuple[RefRows, ...]
    snapshots: tuple[SnapshotRows, ...]
    refs: tuple[RefRows, ...]
    files: tuple[FileRows, ...]
    not_looked_into: tuple[str, ...]
    actions: tuple[str, ...]
    notes: tuple[str, ...]
    looked_into_count: int
    orphans_removable_from_ms: int | None = None

    def __repr__(self) -> str:
        said = {True: "erased", False: "NOT erased", None: "not proved"}[self.erased]
        lines = [f"{self.table} WHERE {self.predicate}: {said}; {count(self.looked_into_count, 'file')} read"]
        lines += [f"  live in {r.type.lower()} {r.name}: {count(r.row_count, 'row')}" for r in self.live_rows if r.row_count]
        if self.snapshots:
            lines.append(
                f"  reachable from {count(len(self.snapshots), 'snapshot')}; held by " + (", ".join(r.name for r in self.refs) or "no ref")
            )
        lines += [f"  {f.kind}: {count(f.row_count, 'row')} in {f.path}" for f in self.files[:5]]
        lines += [f"  … and {count(len(self.files) - 5, 'more file')}"] * (len(self.files) > 5)
        lines += [f"  not read: {line}" for line in self.not_looked_into[:5]]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {place}. {sql}" for place, sql in enumerate(self.actions, 1)]
        return "\n".join(lines)


# --- Write the SQL that completes the erasure, in the order it must run


# Older than any snapshot: otherwise expire_snapshots also expires all snapshots past the table's age limit.
_NOTHING_ELSE = "older_than => TIMESTAMP '1970-01-01 00:00:00+00:00', retain_last => 1"
_VARIABLE = "icekit_ended_snapshots"


@dataclass(frozen=True, slots=True)
class Situation:
    """What the actions must remove. ``table`` has its catalog; times are milliseconds since 1970.

    ``rows_live`` rows are in the current state, ``rows_held`` in its data files,
    deleted or not. ``where`` says whether rewrite_data_files accepts the predicate. ``orphans_stay``
    is the reason why no orphan file may be removed (:attr:`icekit.facts.model.Sharing.refusal`).
    """

    table: Identifier
    predicate: str
    location: str
    rows_live: int
    rows_held: int
    equality_deletes_held: bool
    position_deletes_held: bool
    merge_on_read: bool
    where: bool
    head_committed_at_ms: int
    refs: Sequence[tuple[str, str]]
    snapshot_ids: Sequence[int]
    newest_orphan_ms: int | None
    gc_enabled: bool
    orphans_stay: str | None = None


def actions(now: Situation) -> tuple[str, ...]:
    """Delete, rewrite, drop refs, expire, remove orphans; unneeded steps are left out."""
    found: list[str] = []
    if now.rows_live:
        found.append(f"DELETE FROM {identifier(*now.table)} WHERE {now.predicate}")
    rewrites = _rewrite(now)
    found += rewrites
    found += [f"ALTER TABLE {identifier(*now.table)} DROP {kind} {identifier(name)}" for name, kind in now.refs]
    if now.gc_enabled:
        # Snapshots between the first and the last of several commits have no known ids yet.
        found += _expire(
            now, several_commits=bool(rewrites) and bool(now.rows_live or now.equality_deletes_held or now.position_deletes_held)
        )
        found += _orphans(now)
    return tuple(found)


def notes(now: Situation) -> tuple[str, ...]:
    """What a person must know before running the actions."""
    found = []
    if now.refs:
        named = ", ".join(f"{kind.lower()} {name}" for name, kind in now.refs)
        found.append(f"{named}: dropping them is the owner's choice, and nothing is erased while they contain matching rows")
    if now.equality_deletes_held:
        found.append(
            "equality delete files contain the key: they are removed only when no older data file is left, so all data files are rewritten"
        )
    if not now.gc_enabled and (now.snapshot_ids or now.newest_orphan_ms):
        found.append("gc.enabled is false: files may also belong to other tables, so nothing may be expired or removed here")
    if now.newest_orphan_ms and now.gc_enabled and now.orphans_stay:
        found.append(now.orphans_stay)
    elif now.newest_orphan_ms and now.gc_enabled:
        moment = _utc(removable_from_ms(now.newest_orphan_ms))
        found.append(
            f"remove_orphan_files: not before {moment:%Y-%m-%d %H:%M} UTC, three days after the newest such file, because a writer may be using it"
        )
    return tuple(found)


def removable_from_ms(newest_orphan_ms: int) -> int:
    """The earliest time at which an orphan is certainly one: Iceberg's own three days."""
    return newest_orphan_ms + int(ORPHAN_AGE.total_seconds() * 1000) + 1


def _rewrite(now: Situation) -> list[str]:
    hidden = now.rows_held > now.rows_live or now.position_deletes_held
    table = display_name(now.table[1:])
    if now.equality_deletes_held:
        options = {"rewrite-all": "true", "remove-dangling-deletes": "true"}
        return [rewrite_data_files(now.table[0], table=table, options=options)]
    if not hidden and not (now.rows_live and now.merge_on_read):
        return []
    options = {"delete-file-threshold": "1", "remove-dangling-deletes": "true"}
    if now.position_deletes_held:
        # No filter: a delete file may contain a row that no data file contains any more.
        return [rewrite_data_files(now.table[0], table=table, options=options)]
    where = {"where": now.predicate} if now.where else {}
    return [rewrite_data_files(now.table[0], table=table, **where, options=options)]


def _expire(now: Situation, *, several_commits: bool) -> list[str]:
    if not now.snapshot_ids:
        return []
    ids = ", ".join(map(str, sorted(now.snapshot_ids)))
    table = literal(display_name(now.table[1:]))
    procedure = f"CALL {identifier(now.table[0])}.system.expire_snapshots(table => {table}, {_NOTHING_ELSE}, snapshot_ids => "
    if not several_commits:
        return [f"{procedure}ARRAY({ids}))"]
    snapshots, refs = identifier(*now.table, "snapshots"), identifier(*now.table, "refs")
    return [
        f"DECLARE OR REPLACE VARIABLE {_VARIABLE} ARRAY<BIGINT>",
        f"SET VAR {_VARIABLE} = (SELECT collect_list(snapshot_id) FROM {snapshots} WHERE (snapshot_id IN ({ids}) "
        f"OR committed_at > timestamp_millis({now.head_committed_at_ms})) AND snapshot_id NOT IN (SELECT snapshot_id FROM {refs}))",
        f"{procedure}{_VARIABLE})",
    ]


def _orphans(now: Situation) -> list[str]:
    if now.newest_orphan_ms is None or now.orphans_stay:
        return []
    # Strictly older, in whole seconds: one second more than the newest.
    moment = _utc((now.newest_orphan_ms // 1000 + 1) * 1000)
    listing = ", prefix_listing => true" if now.location.startswith(("s3", "gs:", "abfs", "wasb")) else ""
    table = literal(display_name(now.table[1:]))
    return [
        f"CALL {identifier(now.table[0])}.system.remove_orphan_files(table => {table}, "
        f"older_than => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}+00:00'{listing})"
    ]


def _utc(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
