"""Functions for the cells of the lessons: measure the cost of a query, compare two measurements;
``check`` starts lessons and checks exercises.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.answer import html
from icekit.answer.grid import FIGURE, TEXT, Grid
from icekit.answer.view import Block, Sentence, Shown
from icekit.engine.planner import kind, nodes, query_of_frame
from icekit.errors import ParameterError
from icekit.lab.workbench import embedded
from icekit.lessons.check import begin
from icekit.sql import Identifier
from icekit.units import count, elapsed, size

if TYPE_CHECKING:
    from icekit.catalog import Lake


#: The number of runs that count, after one warm-up run.
RUNS = 3


@dataclass(frozen=True, slots=True, repr=False)
class QueryCost:
    """The cost of a query: ``seconds`` and ``planning_seconds`` are medians of ``runs``, the rest
    is from its last run.

    ``delete_files`` counts a delete file once per data file that it is opened with. ``bytes`` is
    the size of the data files opened; the query reads only its own columns in them. ``manifests``
    counts data manifests. ``rows`` is the result, as sorted strings.
    """

    query: str
    seconds: float
    runs: tuple[float, ...]
    planning_seconds: float
    data_files: int
    delete_files: int
    manifests: int
    bytes: int
    rows: tuple[str, ...]

    def __repr__(self) -> str:
        runs = (
            f"median of {count(len(self.runs), 'warm run')}, {elapsed(min(self.runs))} to "
            f"{elapsed(max(self.runs))}"
        )
        deletes = (
            f"and delete files {count(self.delete_files, 'time')}"
            if self.delete_files
            else "and no delete files"
        )
        opened = f"{count(self.data_files, 'data file')} of {size(self.bytes)}, {deletes}"
        return (
            f"The query takes {elapsed(self.seconds)} ({runs}), including "
            f"{elapsed(self.planning_seconds)} to plan. It reads "
            f"{count(self.manifests, 'manifest')} and opens {opened}."
        )

    def _repr_html_(self) -> str:
        return html.framed(f"<p>{html.prose(repr(self))}</p>")


@dataclass(frozen=True, slots=True, repr=False)
class FolderSize:
    """The content of a table's folder: files and bytes of data (with deletes) and of metadata,
    referenced or not.
    """

    data_files: int
    data_bytes: int
    metadata_files: int
    metadata_bytes: int

    def __repr__(self) -> str:
        data, metadata = (
            count(self.data_files, "data or delete file"),
            count(self.metadata_files, "metadata file"),
        )
        return (
            f"The folder has {data} of {size(self.data_bytes)} in total and {metadata} of "
            f"{size(self.metadata_bytes)} in total."
        )

    def _repr_html_(self) -> str:
        return html.framed(f"<p>{html.prose(repr(self))}</p>")


def measure(lake: Lake, query: str, *, runs: int = RUNS) -> QueryCost:
    """Run a query ``runs`` times, after a warm-up run, and measure its cost.

    The result of ``query`` comes to the driver and must have few rows. Files, manifests and
    planning time are Iceberg's own figures (ScanMetrics, as Spark shows them for a scan). Raises
    :class:`~icekit.errors.ParameterError` for a query that opens no files of an Iceberg table, such
    as one that Iceberg answers from metadata; an error in the query raises Spark's own exception.
    """
    took, planning = [], []
    for run in range(runs + 1):
        frame = lake.spark.sql(query)
        started = time.monotonic()
        rows = frame.collect()
        if run:
            took.append(time.monotonic() - started)
        scans = [
            metrics
            for node in nodes(query_of_frame(frame).executedPlan())
            if (metrics := _metrics(node))
        ]
        if not scans:
            raise ParameterError(
                "The query opens no files of an Iceberg table, so there is nothing to measure; "
                "select a column."
            )
        if run:
            planning.append(sum(scan["totalPlanningDuration"] for scan in scans) / 1000)
    opened = {name: sum(scan[name] for scan in scans) for name in _METRICS}
    return QueryCost(
        query=query,
        seconds=statistics.median(took),
        runs=tuple(took),
        planning_seconds=statistics.median(planning),
        data_files=opened["resultDataFiles"],
        delete_files=opened["resultDeleteFiles"],
        manifests=opened["scannedDataManifests"],
        bytes=opened["totalDataFileSize"],
        rows=tuple(sorted(str(tuple(row)) for row in rows)),
    )


_METRICS = (
    "totalPlanningDuration",
    "resultDataFiles",
    "resultDeleteFiles",
    "scannedDataManifests",
    "totalDataFileSize",
)


def _metrics(node: Any) -> dict[str, int]:
    """Iceberg's metrics of a scan; empty for any other node."""
    if kind(node) != "BatchScanExec":
        return {}
    metrics = node.metrics()
    return {name: int(metrics.apply(name).value()) for name in _METRICS if metrics.contains(name)}


def storage(lake: Lake, table: str | Identifier) -> FolderSize:
    """Count the files in the folder of a table of the embedded lake, including files that no
    snapshot references.
    """
    name = lake.identifier(table) if isinstance(table, str) else table
    home = embedded(lake).joinpath("warehouse", *name)
    data, metadata = (
        [p.stat().st_size for p in _files(home / part)] for part in ("data", "metadata")
    )
    return FolderSize(len(data), sum(data), len(metadata), sum(metadata))


def _files(folder: Path) -> list[Path]:
    # Hadoop writes a hidden checksum for each file on a local disk; an object store has none.
    return [
        Path(home, name)
        for home, _, names in os.walk(folder)
        for name in names
        if not name.startswith(".")
    ]


_COLUMNS = {"what": TEXT(""), "before": FIGURE, "after": FIGURE, "factor": FIGURE("")}
_Figure = tuple[str, float, Callable[[float], str]]


@dataclass(frozen=True, repr=False)
class BeforeAfter(Shown):
    """One query or one folder before and after; displays as a small table."""

    rows: tuple[tuple[str, str, str, str], ...]
    note: str

    def blocks(self) -> Sequence[Block]:
        """The table, and what it rests on."""
        return [Grid("", _COLUMNS, self.rows), Sentence(self.note)]


def compare(before: QueryCost | FolderSize, after: QueryCost | FolderSize) -> BeforeAfter:
    """Compare two measurements of the same query, or of the same table's folder."""
    pairs = zip(_figures(before), _figures(after), strict=True)
    rows = tuple(
        (name, unit(old), unit(new), _factor(old, new, *_WORDS.get(unit, ("fewer", "more"))))
        for (name, old, unit), (_, new, _) in pairs
    )
    if isinstance(before, QueryCost) and isinstance(after, QueryCost):
        same = before.rows == after.rows
        runs = (
            f"{elapsed(min(before.runs))} to {elapsed(max(before.runs))} before, "
            f"{elapsed(min(after.runs))} to {elapsed(max(after.runs))} after"
        )
        answer = (
            "The result is the same."
            if same
            else "The result is not the same: rows changed in between."
        )
        return BeforeAfter(
            rows,
            f"{answer} Times are medians of {_warm(before)} before and {_warm(after)} after "
            f"({runs}).",
        )
    return BeforeAfter(rows, "All files in the table's folder, referenced or not.")


def _warm(cost: QueryCost) -> str:
    return count(len(cost.runs), "warm run")


def _figures(measured: QueryCost | FolderSize) -> Sequence[_Figure]:
    if isinstance(measured, FolderSize):
        return (
            ("data and delete files", measured.data_files, _count),
            ("bytes of data", measured.data_bytes, size),
            ("metadata files", measured.metadata_files, _count),
            ("bytes of metadata", measured.metadata_bytes, size),
        )
    return (
        ("the query", measured.seconds, elapsed),
        ("planning", measured.planning_seconds, elapsed),
        ("data files opened", measured.data_files, _count),
        ("delete files opened with them", measured.delete_files, _count),
        ("manifests read", measured.manifests, _count),
        ("size of the data files opened", measured.bytes, size),
    )


_WORDS = {elapsed: ("faster", "slower"), size: ("less", "more")}


def _factor(old: float, new: float, less: str, more: str) -> str:
    """The factor, with what it means; empty if it means nothing."""
    if old == new or not old or not new:
        return ""
    factor, word = (old / new, less) if old > new else (new / old, more)
    return f"{factor:.0f}× {word}" if factor >= 10 else f"{factor:.1f}× {word}"


def _count(number: float) -> str:
    return f"{number:,.0f}"


__all__ = ["BeforeAfter", "FolderSize", "QueryCost", "begin", "compare", "measure", "storage"]
