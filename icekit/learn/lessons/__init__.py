"""Functions for the cells of the lessons: start one with freshly restored tables, measure the cost
of a query, compare two measurements; ``check`` checks exercises.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from icekit import notebook
from icekit.api import Lake, connect
from icekit.common.errors import ParameterError
from icekit.common.sql import Identifier
from icekit.common.terminal import ATTENDED, say
from icekit.common.units import count, elapsed, size
from icekit.common.view import FIGURE, TEXT, Block, Grid, Sentence, Shown
from icekit.engine.planner import frame_execution, metric, node_class, walk_plan
from icekit.learn.lab import NAMESPACE, lake_folder, unpack_lab

#: The number of runs that count, after one warm-up run.
RUNS = 3


@dataclass(frozen=True, slots=True, repr=False)
class QueryCost(Shown):
    """The cost of a query: ``seconds`` and ``planning_seconds`` are medians of ``run_seconds``, the
    rest is from its last run.

    ``delete_files`` counts a delete file once per data file that it is opened with. ``bytes`` is
    the size of the data files opened; the query reads only its own columns in them. ``manifests``
    counts data manifests. ``rows`` is the result, as sorted strings.
    """

    seconds: float
    run_seconds: tuple[float, ...]
    planning_seconds: float
    data_files: int
    delete_files: int
    manifests: int
    bytes: int
    rows: tuple[str, ...]

    @property
    def spread(self) -> str:
        """The fastest and the slowest run."""
        return f"{elapsed(min(self.run_seconds))} to {elapsed(max(self.run_seconds))}"

    def blocks(self) -> Sequence[Block]:
        """The figures in two sentences."""
        deletes_text = (
            f"and delete files {count(self.delete_files, 'time')}"
            if self.delete_files
            else "and no delete files"
        )
        opened_text = f"{count(self.data_files, 'data file')} of {size(self.bytes)}, {deletes_text}"
        sentence = (
            f"The query takes {elapsed(self.seconds)} (median of {_warm_run_count(self)}, "
            f"{self.spread}), including {elapsed(self.planning_seconds)} to plan. It reads "
            f"{count(self.manifests, 'manifest')} and opens {opened_text}."
        )
        return [Sentence(sentence)]


@dataclass(frozen=True, slots=True, repr=False)
class FolderSize(Shown):
    """The content of a table's folder: files and bytes of data (with deletes) and of metadata,
    referenced or not.
    """

    data_files: int
    data_bytes: int
    metadata_files: int
    metadata_bytes: int

    def blocks(self) -> Sequence[Block]:
        """The figures in one sentence."""
        data_text = f"{count(self.data_files, 'data or delete file')} of {size(self.data_bytes)}"
        metadata_text = (
            f"{count(self.metadata_files, 'metadata file')} of {size(self.metadata_bytes)}"
        )
        return [Sentence(f"The folder has {data_text} in total and {metadata_text} in total.")]


def begin(*tables: str) -> Lake:
    """Connect to the embedded lake and put the lab tables of a lesson back as they were unpacked.

    ``tables`` are names without the namespace. Runs go into a new ledger of the lab, so that
    exercises neither affect the predictions of real runs nor are resumed by one; ``ICEKIT_LEDGER``
    names another ledger. Raises the errors of :func:`icekit.learn.lab.unpack_lab`.
    """
    # A lesson is for a person, also where a program runs it: plans are complete.
    os.environ.setdefault(ATTENDED, "yes")
    notebook.begin({})
    lake = connect()
    # What is wrong with a table is for the learner to find.
    unpack_lab(lake, tables, reset=True, progress=lambda _: None)
    say(f"Put back as unpacked: {', '.join(f'{NAMESPACE}.{name}' for name in tables)}.")
    ledger_path = lake_folder(lake) / "lessons" / f"{tables[0]}.db"
    ledger_path.parent.mkdir(exist_ok=True)
    if os.environ.setdefault("ICEKIT_LEDGER", str(ledger_path)) == str(ledger_path):
        ledger_path.unlink(missing_ok=True)
    return lake


def measure(lake: Lake, query: str, *, runs: int = RUNS) -> QueryCost:
    """Run a query ``runs`` times, after a warm-up run, and measure its cost.

    The result of ``query`` comes to the driver and must have few rows. Files, manifests and
    planning time are Iceberg's own figures (ScanMetrics, as Spark shows them for a scan). Raises
    :class:`~icekit.common.errors.ParameterError` for a query that opens no files of an Iceberg
    table, such as one that Iceberg answers from metadata; an error in the query raises Spark's own
    exception.
    """
    run_seconds = []
    planning_seconds = []
    for _ in range(runs + 1):
        query_frame = lake.spark.sql(query)
        start_seconds = time.monotonic()
        result_rows = query_frame.collect()
        run_seconds.append(time.monotonic() - start_seconds)
        executed_plan = frame_execution(query_frame).executedPlan()
        scan_nodes = [
            node for node in walk_plan(executed_plan) if node_class(node) == "BatchScanExec"
        ]
        if not scan_nodes:
            raise ParameterError(
                "The query opens no files of an Iceberg table, so there is nothing to measure; "
                "select a column."
            )
        planning_seconds.append(
            sum(metric(scan, "totalPlanningDuration") for scan in scan_nodes) / 1000
        )

    def scan_total(name: str) -> int:
        return sum(metric(scan, name) for scan in scan_nodes)

    return QueryCost(
        seconds=statistics.median(run_seconds[1:]),
        run_seconds=tuple(run_seconds[1:]),
        planning_seconds=statistics.median(planning_seconds[1:]),
        data_files=scan_total("resultDataFiles"),
        delete_files=scan_total("resultDeleteFiles"),
        manifests=scan_total("scannedDataManifests"),
        bytes=scan_total("totalDataFileSize"),
        rows=tuple(sorted(str(tuple(row)) for row in result_rows)),
    )


def storage(lake: Lake, table: str | Identifier) -> FolderSize:
    """Count the files in the folder of a table of the embedded lake, including files that no
    snapshot references.
    """
    table_folder = lake_folder(lake).joinpath("warehouse", *lake.identifier(table))
    # Hadoop writes a hidden checksum for each file on a local disk; an object store has none.
    data_sizes = [
        path.stat().st_size for path in table_folder.glob("data/**/[!.]*") if path.is_file()
    ]
    metadata_sizes = [
        path.stat().st_size for path in table_folder.glob("metadata/**/[!.]*") if path.is_file()
    ]
    return FolderSize(len(data_sizes), sum(data_sizes), len(metadata_sizes), sum(metadata_sizes))


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
    figure_pairs = zip(_figures(before), _figures(after), strict=True)
    table_rows = tuple(
        (
            figure_name,
            format_figure(old),
            format_figure(new),
            _factor_text(old, new, *_WORDS.get(format_figure, ("fewer", "more"))),
        )
        for (figure_name, old, format_figure), (_, new, _) in figure_pairs
    )
    if isinstance(before, QueryCost) and isinstance(after, QueryCost):
        sameness_text = (
            "the same" if before.rows == after.rows else "not the same: rows changed in between"
        )
        note = (
            f"The result is {sameness_text}. Times are medians of {_warm_run_count(before)} before "
            f"and {_warm_run_count(after)} after ({before.spread} before, {after.spread} after)."
        )
        return BeforeAfter(table_rows, note)
    return BeforeAfter(table_rows, "All files in the table's folder, referenced or not.")


def _warm_run_count(cost: QueryCost) -> str:
    return count(len(cost.run_seconds), "warm run")


def _figures(measurement: QueryCost | FolderSize) -> Sequence[_Figure]:
    if isinstance(measurement, FolderSize):
        return (
            ("data and delete files", measurement.data_files, _count_text),
            ("bytes of data", measurement.data_bytes, size),
            ("metadata files", measurement.metadata_files, _count_text),
            ("bytes of metadata", measurement.metadata_bytes, size),
        )
    return (
        ("the query", measurement.seconds, elapsed),
        ("planning", measurement.planning_seconds, elapsed),
        ("data files opened", measurement.data_files, _count_text),
        ("delete files opened with them", measurement.delete_files, _count_text),
        ("manifests read", measurement.manifests, _count_text),
        ("size of the data files opened", measurement.bytes, size),
    )


_WORDS = {elapsed: ("faster", "slower"), size: ("less", "more")}


def _factor_text(old: float, new: float, word_for_less: str, word_for_more: str) -> str:
    """The factor, with what it means; empty if it means nothing."""
    if old == new or not old or not new:
        return ""
    factor, word = (old / new, word_for_less) if old > new else (new / old, word_for_more)
    return f"{factor:.0f}× {word}" if factor >= 10 else f"{factor:.1f}× {word}"


def _count_text(number: float) -> str:
    return f"{number:,.0f}"
