"""Hold what a proof of erasure found, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

from icekit.units import count

UNREFERENCED = "unreferenced"


@dataclass(frozen=True, slots=True)
class RefRows:
    """A branch or tag (type ``BRANCH`` or ``TAG``): rows a reader gets, None if it could not be asked.

    ``holds_rows`` is also true where deletes hide the rows in a file that the ref reaches.
    """

    name: str
    type: str
    snapshot_id: int | None
    row_count: int | None
    holds_rows: bool


@dataclass(frozen=True, slots=True)
class SnapshotRows:
    """A snapshot that reaches such rows, and by what."""

    snapshot_id: int
    committed_at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file that holds such rows: kind ``data``, ``equality deletes``, ``position deletes`` or ``unreferenced``."""

    path: str
    kind: str
    row_count: int
    snapshot_count: int
    example_snapshot_ids: tuple[int, ...]
    modified_at_ms: int | None = None


@dataclass(frozen=True)
class Erasure:
    """Where rows of a predicate can still be read; ``erased`` is None if that could not be told.

    ``live_rows`` has main and every ref that was asked, ``refs`` those that hold such rows.
    ``actions`` is exact SQL in order, ``notes`` what to know before running it.
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
        said = {True: "erased", False: "NOT erased", None: "not proven"}[self.erased]
        lines = [f"{self.table} WHERE {self.predicate}: {said}; {count(self.looked_into_count, 'file')} looked into"]
        lines += [f"  live in {r.type.lower()} {r.name}: {count(r.row_count, 'row')}" for r in self.live_rows if r.row_count]
        if self.snapshots:
            lines.append(
                f"  reachable from {count(len(self.snapshots), 'snapshot')}; held by " + (", ".join(r.name for r in self.refs) or "no ref")
            )
        lines += [f"  {f.kind}: {count(f.row_count, 'row')} in {f.path}" for f in self.files[:5]]
        lines += [f"  … and {count(len(self.files) - 5, 'more file')}"] * (len(self.files) > 5)
        lines += [f"  not looked into: {line}" for line in self.not_looked_into[:5]]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {place}. {sql}" for place, sql in enumerate(self.actions, 1)]
        return "\n".join(lines)
