"""Show what fills a table's storage: bytes by reason, each with its share and a bar."""

import math
from collections.abc import Iterator

from icekit.common import frozen
from icekit.common.units import about, count, percent, size
from icekit.health.facts.storage_use import CountedBy, Reason, StorageUse

_BAR_LENGTH = 18
_LABELS = {
    Reason.LIVE_ROWS: "live rows",
    Reason.DELETED_ROWS: "deleted rows",
    Reason.DELETE_FILES: "delete files",
    Reason.OLD_SNAPSHOTS: "old snapshots",
    Reason.ORPHAN_FILES: "orphan files",
    Reason.METADATA: "metadata",
}


@frozen
class UseRow:
    """One reason: its label, its bytes and share of the storage as text, a bar, and what is in it."""

    label: str
    size: str
    share: str
    bar: str
    note: str


def use_rows(use: StorageUse) -> Iterator[UseRow]:
    """The reasons that hold any bytes, in their order."""
    for reason, size_in_bytes in use.bytes_by_reason.items():
        note = _NOTES[reason](use)
        if not (size_in_bytes or note):
            continue
        share = size_in_bytes / use.total if use.total else 0.0
        bar = "█" * math.ceil(_BAR_LENGTH * share)
        yield UseRow(_LABELS[reason], size(size_in_bytes), percent(share), bar, note)


def use_sentence(use: StorageUse) -> str:
    """What the storage holds, how much of it maintenance can free, and what was not looked for:
    ``1.5 MiB, of which 113 KiB can go; orphan files not looked for (--storage)``.
    """
    parts = [size(use.total)]
    if use.reducible:
        parts[0] += f", of which {size(use.reducible)} can go"
    if use.unreferenced is None:
        parts.append("orphan files not looked for (--storage)")
    return "; ".join(parts)


def _deleted_rows_note(use: StorageUse) -> str:
    if use.has_uncounted_rows:
        return "rows deleted by equality deletes count as live"
    return "inside live files" if use.deleted_rows else ""


def _delete_files_note(use: StorageUse) -> str:
    sizes = {
        "position deletes": use.delete_files.positions,
        "deletion vectors": use.delete_files.vectors,
        "equality deletes": use.delete_files.equality,
        "apply to nothing": use.delete_files.dangling,
    }
    kinds = [f"{name} {size(number)}" for name, number in sizes.items() if number]
    return ", ".join(kinds) if len(kinds) > 1 else "".join(name for name in sizes if sizes[name])


def _old_snapshots_note(use: StorageUse) -> str:
    old = use.old_snapshots
    if old.counted_by is CountedBy.NOTHING and old.uncounted_snapshots > 0:
        return f"{count(old.uncounted_snapshots, 'snapshot')} not counted"
    if not old.refs:
        return ""
    largest = old.refs[0]
    others = f" and {len(old.refs) - 1:,} more" if len(old.refs) > 1 else ""
    return f"{size(largest.held)} also by {largest.kind} {largest.name}{others}"


def _orphans_note(use: StorageUse) -> str:
    if use.unreferenced is None:
        return ""
    if use.unreferenced.unjudged:
        return f"{size(use.unreferenced.unjudged)} too young or hidden to judge"
    if use.unreferenced.is_estimated and use.unreferenced.orphans:
        return f"{about(use.unreferenced.orphans, is_estimate=True)}, from the sizes of some"
    return ""


def _metadata_note(use: StorageUse) -> str:
    uncounted = use.metadata.uncounted_files
    return f"{count(uncounted, 'file')} not counted" if uncounted else ""


_NOTES = {
    Reason.LIVE_ROWS: lambda _: "",
    Reason.DELETED_ROWS: _deleted_rows_note,
    Reason.DELETE_FILES: _delete_files_note,
    Reason.OLD_SNAPSHOTS: _old_snapshots_note,
    Reason.ORPHAN_FILES: _orphans_note,
    Reason.METADATA: _metadata_note,
}
