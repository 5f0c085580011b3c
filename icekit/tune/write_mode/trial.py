"""Run a workload in each write mode on clones of a table, measure it, and fit the model of costs to it.

The table itself is only read. All clones live side by side and take turns, so that what
disturbs the machine disturbs them alike; of repeated reads the shortest counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icekit.engine.errors import reason
from icekit.engine.planner import PlannedScan, plan_scan
from icekit.errors import ParameterError, StatementRefused
from icekit.facts.head import head, since
from icekit.resolve.convert import convert
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, set_properties
from icekit.tune.place import Budget, BudgetSpent, Place
from icekit.tune.statement import scan
from icekit.tune.write_mode.history import MERGE_ON_READ, OPERATIONS, Change, Workload, WriteHistory, change
from icekit.tune.write_mode.model import CostComparison, Costs, Variant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake


#: Only files with deletes are compacted: the rest costs the same in every mode.
_REWRITE = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "min-input-files": "1000000"}
#: A table that is read faster than this is read and written once before, so that no variant pays for warming up.
_WARM_UP_SECONDS = 20.0


@dataclass
class VariantMeasures:
    """What one variant came to; lists have an element per commit or per repetition, seconds on the wall."""

    variant: Variant
    write_seconds: list[float] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    scan_seconds: list[float] = field(default_factory=list)
    filtered_seconds: list[float] = field(default_factory=list)
    planned: PlannedScan | None = None
    compaction_seconds: float | None = None
    compacted_bytes: int = 0

    @property
    def write(self) -> float | None:
        """Seconds of a commit: the median."""
        return statistics.median(self.write_seconds) if self.write_seconds else None

    @property
    def bytes_written(self) -> float | None:
        """Bytes that a commit writes: the mean."""
        return statistics.fmean(c.bytes_written for c in self.changes) if self.changes else None

    @property
    def files_written(self) -> float | None:
        """Data and delete files that a commit writes: the mean."""
        return statistics.fmean(c.files_written for c in self.changes) if self.changes else None

    @property
    def scan(self) -> float | None:
        """Seconds of a full scan after the commits: the shortest."""
        return min(self.scan_seconds, default=None)

    @property
    def filtered(self) -> float | None:
        """Seconds of the filtered scan: the shortest."""
        return min(self.filtered_seconds, default=None)


@dataclass(frozen=True, slots=True)
class EqualityCost:
    """What the equality deletes that are there add to a full scan: as they are, and resolved into positions; seconds."""

    scan: float
    resolved_scan: float
    resolving: float


@dataclass(frozen=True)
class WriteModeTrial:
    """What was measured; ``stopped`` says why it is not whole, ``scale`` by how much the table is larger than a sample.

    ``equality`` is None for a table without equality deletes.
    """

    workload: Workload
    measured: tuple[VariantMeasures, ...]
    filter: str | None
    seconds: float
    scale: float
    stopped: str | None
    equality: EqualityCost | None = None


def run_trial(
    lake: Lake,
    places: Mapping[Variant, Place],
    workload: Workload,
    *,
    read_filter: str | None,
    repeats: int,
    budget: Budget,
    progress: Callable[[str], None],
    cold: Sequence[Place] = (),
    upserted: Place | None = None,
) -> WriteModeTrial:
    """Measure each variant at its place after a run that is not measured at the ``cold`` ones, and equality deletes at ``upserted``. Raises :class:`~icekit.errors.ParameterError` for statements that change nothing."""
    started = time.monotonic()
    measured = {variant: VariantMeasures(variant) for variant in places}
    stopped: str | None = None
    equality: EqualityCost | None = None
    try:
        _warm_up(lake, cold, workload, budget)
        for number, statement in enumerate(workload.statements, 1):
            for variant, place in places.items():
                write(lake, place.table, statement, measured[variant], budget, place.size_in_bytes)
                progress(f"{variant.name}: commit {number} of {len(workload.statements)} took {measured[variant].write_seconds[-1]:.2f} s")
        if not any(c.files_written or c.files_touched for m in measured.values() for c in m.changes):
            raise ParameterError("The statement changes no row of this table, so there is nothing to compare; give one that does.")
        for variant, place in places.items():
            measured[variant].planned = plan_scan(lake.spark, lake.sql_name(place.table))
        for turn in range(repeats):
            for variant, place in places.items():
                _read(lake, place.table, read_filter, measured[variant], budget)
            progress(f"scans, turn {turn + 1} of {repeats}: {', '.join(f'{m.scan_seconds[-1]:.2f}' for m in measured.values())} s")
        for variant, place in places.items():
            if not variant.is_copy_on_write:
                compact(lake, place.table, measured[variant], budget)
                progress(f"{variant.name}: compacting took {measured[variant].compaction_seconds:.2f} s")
        if upserted is not None:
            equality = _equality(lake, upserted.table, repeats, budget)
            progress(f"equality deletes: a scan takes {equality.scan:.2f} s, resolved {equality.resolved_scan:.2f} s")
    except BudgetSpent as error:
        stopped = str(error)
        progress(f"stopped: {stopped}; what follows rests on the part that was measured")
    scale = max((place.scale for place in places.values()), default=1.0)
    return WriteModeTrial(workload, tuple(measured.values()), read_filter, time.monotonic() - started, scale, stopped, equality)


def prepare(lake: Lake, table: Identifier, variant: Variant) -> None:
    """Set a clone to write as a variant says."""
    modes = {f"write.{operation}.mode": variant.mode for operation in OPERATIONS}
    granularity = {"write.delete.granularity": variant.granularity} if variant.granularity else {}
    version = {"format-version": str(variant.format_version)}
    lake.spark.sql(set_properties(lake.sql_name(table), {**version, **modes, **granularity}))


def write(
    lake: Lake, table: Identifier, statement: Callable[[Identifier], str], measured: VariantMeasures, budget: Budget, size_in_bytes: int
) -> None:
    """Run one statement and measure it. It may write the whole table; what the last commit wrote is the better guess."""
    before = head(lake, table).snapshot_id
    expected = measured.changes[-1].bytes_written if measured.changes else size_in_bytes
    sql = statement(lake.sql_name(table))
    with budget.watching(lake.spark, expected):
        started = time.monotonic()
        run_statement(lake.spark, sql)
        measured.write_seconds.append(time.monotonic() - started)
    made = [change(snapshot) for snapshot in since(head(lake, table), before)]
    budget.bytes_written += sum(c.bytes_written for c in made)
    measured.changes += made


def run_statement(spark: SparkSession, sql: str) -> None:
    """Run a statement on a clone; raises :class:`~icekit.errors.StatementRefused` with the engine's reason if it fails."""
    try:
        spark.sql(sql).collect()
    except Exception as error:
        raise StatementRefused(
            f"Spark could not run the statement on a clone ({reason(error)}); the table was not touched. Mend the statement and try again.",
            detail=scrub(str(error)),
        ) from error


def _read(lake: Lake, table: Identifier, read_filter: str | None, measured: VariantMeasures, budget: Budget) -> None:
    name = lake.sql_name(table)
    with budget.watching(lake.spark):
        measured.scan_seconds.append(scan(lake.spark, name))
    if read_filter is not None:
        with budget.watching(lake.spark):
            measured.filtered_seconds.append(scan(lake.spark, name, read_filter))


def compact(lake: Lake, table: Identifier, measured: VariantMeasures, budget: Budget, most_bytes: int = 0) -> None:
    """Rewrite the data files that have deletes, and measure it."""
    before = head(lake, table).snapshot_id
    # Compacting writes what has deletes: at most all.
    expected = measured.planned.data_bytes if measured.planned else most_bytes
    with budget.watching(lake.spark, expected):
        started = time.monotonic()
        lake.spark.sql(call(lake.name, "rewrite_data_files", table=display_name(table), options=_REWRITE)).collect()
        seconds = time.monotonic() - started
    commits = since(head(lake, table), before)
    budget.bytes_written += sum(change(c).bytes_written for c in commits)
    measured.compacted_bytes = sum(int((c.get("summary") or {}).get("removed-files-size") or 0) for c in commits)
    measured.compaction_seconds = seconds


def _equality(lake: Lake, table: Identifier, repeats: int, budget: Budget) -> EqualityCost:
    """Scan a clone as it is, resolve its equality deletes into positions, scan it again."""
    name = lake.sql_name(table)
    with budget.watching(lake.spark):
        before = min(scan(lake.spark, name) for _ in range(repeats))
        started = time.monotonic()
        convert(lake.spark, name)
        seconds = time.monotonic() - started
        return EqualityCost(before, min(scan(lake.spark, name) for _ in range(repeats)), seconds)


def _warm_up(lake: Lake, places: Sequence[Place], workload: Workload, budget: Budget) -> None:
    """Read each throwaway clone, and write and read it again; nothing for a table that takes long to read."""
    for place in places:
        with budget.watching(lake.spark):
            if scan(lake.spark, lake.sql_name(place.table)) > _WARM_UP_SECONDS:
                return
        write(lake, place.table, workload.statements[0], VariantMeasures(Variant(MERGE_ON_READ, 2)), budget, place.size_in_bytes)
        with budget.watching(lake.spark):
            scan(lake.spark, lake.sql_name(place.table))


def clean(lake: Lake, place: Place, budget: Budget, progress: Callable[[str], None]) -> None:
    """Take the deletes out of a clone that came with the table: what is measured then is the trial's own."""
    progress("compacting the deletes away that are there, on a clone")
    with budget.watching(lake.spark):
        convert(lake.spark, lake.sql_name(place.table))
    compact(lake, place.table, VariantMeasures(Variant(MERGE_ON_READ, 2)), budget, place.size_in_bytes)


# --- Fit the model of costs to what a trial measured. Pure


def compare(trial: WriteModeTrial, history: WriteHistory, compact_every: int | None) -> tuple[CostComparison | None, str]:
    """Fit the model to a trial; None where copy-on-write or all of merge-on-read is missing, and where the cycle comes from.

    Scans of the copy-on-write clone are what the others are held against: it has the same rows and no deletes.
    """
    whole = [m for m in trial.measured if m.write is not None and _fit_read(trial, m) is not None]
    reference = next((m for m in whole if m.variant.is_copy_on_write), None)
    merging = [m for m in whole if not m.variant.is_copy_on_write and m.compaction_seconds is not None]
    if reference is None or not merging:
        return None, ""
    costs = tuple(_costs(trial, m, reference, opening_seconds(trial, m, reference, merging)) for m in (reference, *merging))
    seconds = (_fit_read(trial, reference) or 0.0) * trial.scale
    if compact_every is not None:
        return CostComparison(costs, seconds, compact_every), "as stated"
    if history.commits_between_compactions:
        return CostComparison(costs, seconds, max(1, round(history.commits_between_compactions))), "as in the history"
    return CostComparison(costs, seconds, None), "as often as costs least"


def _fit_read(trial: WriteModeTrial, measured: VariantMeasures) -> float | None:
    return measured.filtered if trial.filter else measured.scan


def opening_seconds(
    trial: WriteModeTrial, measured: VariantMeasures, reference: VariantMeasures, merging: Sequence[VariantMeasures]
) -> float:
    """What a delete file that is opened adds to a scan.

    Of one kind of delete files all variants tell, those with many the most: least squares through the origin.
    """
    version = measured.variant.format_version
    alike = [m for m in merging if m.variant.format_version == version and m.planned is not None]
    opens = [m.planned.delete_opens for m in alike if m.planned is not None]
    weight = sum(n * n for n in opens)
    slower = sum(n * ((_fit_read(trial, m) or 0.0) - (_fit_read(trial, reference) or 0.0)) for n, m in zip(opens, alike, strict=True))
    return max(0.0, slower / weight) if weight else 0.0


def is_lost_in_noise(trial: WriteModeTrial) -> bool:
    """Tell whether reads of the clones with deletes differ from one without less than two reads of that one do."""
    reference = next((m for m in trial.measured if m.variant.is_copy_on_write), None)
    times = (reference.filtered_seconds if trial.filter else reference.scan_seconds) if reference else []
    if not times or reference is None:
        return False
    spread = statistics.median(times) - min(times)
    others = [_fit_read(trial, m) for m in trial.measured if not m.variant.is_copy_on_write]
    return max((seconds - min(times) for seconds in others if seconds is not None), default=0.0) <= spread


def _costs(trial: WriteModeTrial, measured: VariantMeasures, reference: VariantMeasures, open_seconds: float) -> Costs:
    """What was measured of one variant, as the model takes it."""
    scale, made = trial.scale, len(measured.write_seconds)
    write = (measured.write or 0.0) * scale
    files = reference.planned.data_files if reference.planned else 1
    touched = [c.file_share for c in reference.changes if c.file_share is not None]
    share = sum(touched) / len(touched) if touched else 1.0
    if measured.variant.is_copy_on_write:
        return Costs(measured.variant, write, 0.0, 1.0, touched_share=share)
    opens = measured.planned.delete_opens if measured.planned else 0
    limit = float(measured.planned.data_files if measured.planned else files) if measured.variant.format_version >= 3 else None
    per_commit = opens / made
    if limit:
        # What so many commits reached together; each reaches as much of the rest.
        per_commit = limit * (1 - (1 - min(opens / limit, 1.0)) ** (1 / made))
    total = measured.planned.data_bytes if measured.planned else 0
    rewritten = measured.compacted_bytes
    whole = (measured.compaction_seconds or 0.0) * total / rewritten if rewritten else 0.0
    # A share of the bytes rewritten, so that N commits of the trial's kind come to what was measured.
    reached = min(1.0, rewritten / total) if total else 1.0
    each = 1 - (1 - reached) ** (1 / made) if reached < 1 else max(share, 1 / max(files, 1))
    return Costs(
        measured.variant,
        write,
        open_seconds,
        per_commit * scale,
        limit * scale if limit else None,
        each,
        whole * scale,
    )
