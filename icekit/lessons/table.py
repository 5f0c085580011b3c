"""Two measurements beside each other: what changed, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icekit.answer import html
from icekit.lessons.measure import Measured, Storage, seconds
from icekit.units import count, size

_HEAD = ("", "before", "after", "")
_Figure = tuple[str, float, Callable[[float], str]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Before and after of one query or one folder; displays as a small table. ``is_same_answer`` is None for a folder."""

    rows: tuple[tuple[str, str, str, str], ...]
    is_same_answer: bool | None
    note: str

    def __repr__(self) -> str:
        widths = [max(len(row[place]) for row in (_HEAD, *self.rows)) for place in range(4)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
            for row in (_HEAD, *self.rows)
        ]
        return "\n".join([*lines, self.note])

    def _repr_html_(self) -> str:
        return html.framed(html.table(_HEAD, self.rows, (False, True, True, True)), f"<p>{html.prose(self.note)}</p>")


def compare(before: Measured | Storage, after: Measured | Storage) -> Comparison:
    """Set two measurements of the same query, or of the same table's folder, beside each other."""
    pairs = zip(_figures(before), _figures(after), strict=True)
    rows = tuple((name, told(old), told(new), _factor(old, new)) for (name, old, told), (_, new, _) in pairs)
    if isinstance(before, Measured) and isinstance(after, Measured):
        same = before.rows == after.rows
        runs = f"{seconds(min(before.runs))} to {seconds(max(before.runs))} before, {seconds(min(after.runs))} to {seconds(max(after.runs))} after"
        answer = "The answer is the same." if same else "The answer is not the same: rows have changed in between."
        return Comparison(rows, same, f"{answer} Times are medians of {_warm(before)} before and {_warm(after)} after ({runs}).")
    return Comparison(rows, None, "All files in the table's folder, referenced or not.")


def _warm(found: Measured) -> str:
    return count(len(found.runs), "warm run")


def _figures(found: Measured | Storage) -> Sequence[_Figure]:
    if isinstance(found, Storage):
        return (
            ("data and delete files", found.data_files, _count),
            ("bytes of data", found.data_bytes, size),
            ("metadata files", found.metadata_files, _count),
            ("bytes of metadata", found.metadata_bytes, size),
        )
    return (
        ("the query", found.seconds, seconds),
        ("planning it", found.planning_seconds, seconds),
        ("data files opened", found.data_files, _count),
        ("delete files opened beside them", found.delete_files, _count),
        ("manifests read", found.manifests, _count),
        ("size of the data files opened", found.bytes, size),
    )


def _factor(old: float, new: float) -> str:
    """How many times less or more; nothing where that says nothing."""
    if old == new or not old or not new:
        return ""
    factor, word = (old / new, "less") if old > new else (new / old, "more")
    return f"{factor:.0f} × {word}" if factor >= 10 else f"{factor:.1f} × {word}"


def _count(number: float) -> str:
    return f"{number:,.0f}"
