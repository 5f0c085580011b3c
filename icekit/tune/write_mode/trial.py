"""Run a workload in each write mode on clones of a table, measure it, and fit the model of costs to it.

Only reads the table itself. Cost is CPU time where it can be (:mod:`icekit.engine.effort`), which load on the machine
hardly changes. All clones take turns; the cheapest of repeated reads and compactions counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from icekit.engine.effort import CLOCK, Effort, metered
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import PlannedScan
from icekit.errors import ParameterError, StatementRefused
from icekit.facts.head import head
from icekit.resolve.convert import convert
from icekit.sandbox.trial import Sandbox, Trial
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, set_properties
from icekit.tune.write_mode.history import MERGE_ON_READ, OPERATIONS, Change, Workload, WriteHistory, change
from icekit.tune.write_mode.model import CostComparison, Costs, Variant

#: Compact only files with deletes: the rest costs the same in every mode.
_REWRITE = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "min-input-files": "1000000"}
#: A table with faster reads than this is read and written once before, so that no variant pays for the warm-up.
_WARM_UP_SECONDS = 20.0


#: Scans are repeated up to this many times as often as asked for, until what deletes add to them stands out from what repeats differ by:
#: this many times as much.
_MOST_ROUNDS, _STANDS_OUT = 3, 4.0
#: Compactions of each clone: what two of them differ by is the error of their cost.
_COMPACTIONS = 2


@dataclass
class VariantMeasures:
    """The measurements of one variant; lists have an element per commit or per repetition. Costs are in the unit of the trial."""

    variant: Variant
    writes: list[Effort] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    scans: list[Effort] = field(default_factory=list)
    filtered_scans: list[Effort] = field(default_factory=list)
    planned: PlannedScan | None = None
    compactions: list[Effort] = field(default_factory=list)
    compacted_bytes: int = 0

    @property
    def write(self) -> float | None:
        """The cost of a commit: the median."""
        return statistics.median(e.cost for e in self.writes) if self.writes else None

    @property
    def write_seconds(self) -> float | None:
        """Wall-clock seconds of a commit: the median."""
        return statistics.median(e.seconds for e in self.writes) if self.writes else None

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
        """The cost of a full scan after the commits: the least."""
        return min((e.cost for e in self.scans), default=None)

    @property
    def scan_seconds(self) -> float | None:
        """Wall-clock seconds of a full scan after the commits: the shortest."""
        return min((e.seconds for e in self.scans), default=None)

    @property
    def filtered(self) -> float | None:
        """The cost of the filtered scan: the least."""
        return min((e.cost for e in self.filtered_scans), default=None)

    @property
    def compaction(self) -> float | None:
        """The cost of the compaction: the least."""
        return min((e.cost for e in self.compactions), default=None)


@dataclass(frozen=True, slots=True)
class EqualityCost:
    """The cost of the existing equality deletes for a full scan: unchanged, and converted to position deletes; in the unit of the trial."""

    scan: float
    resolved_scan: float
    resolving: float


@dataclass(frozen=True)
class WriteModeTrial:
    """The measurements; ``stopped`` says why they are incomplete, ``scale`` is the size of the table divided by the size of the sample.

    ``unit`` is what costs are measured in. ``equality`` is None for a table without equality deletes.
    """

    workload: Workload
    measured: tuple[VariantMeasures, ...]
    filter: str | None
    seconds: float
    scale: float
    stopped: str | None
    equality: EqualityCost | None = None
    unit: str = CLOCK


@dataclass(frozen=True, kw_only=True)
class TrialSandboxes:
    """The sandboxes of a trial: one for each variant, ``cold`` ones to warm up on, and one to measure equality deletes on."""

    variants: Mapping[Variant, Sandbox]
    cold: Sequence[Sandbox] = ()
    upserted: Sandbox | None = None


def run_trial(trial: Trial, boxes: TrialSandboxes, workload: Workload, *, read_filter: str | None, repeats: int) -> WriteModeTrial:
    """Measure each variant in its sandbox, after an unmeasured run on the cold ones.

    Raises :class:`~icekit.errors.ParameterError` for statements that change nothing, and
    :class:`~icekit.errors.StatementRefused` for one of a person's own that fails.
    """
    started, progress = time.monotonic(), trial.progress
    measured = {variant: VariantMeasures(variant) for variant in boxes.variants}
    pairs = [(measured[variant], box) for variant, box in boxes.variants.items()]
    equality: EqualityCost | None = None
    with trial.attempt():
        _warm_up(boxes.cold, workload)
        for number, statement in enumerate(workload.statements, 1):
            for one, box in pairs:
                write(box, statement, one, is_own=not workload.is_synthetic)
                progress(f"{one.variant.name}: commit {number} of {len(workload.statements)} took {one.writes[-1].seconds:.2f} s")
        if not any(c.files_written or c.files_touched for one, _ in pairs for c in one.changes):
            raise ParameterError(
                "The statement changes no row of this table, so there is nothing to compare; give a statement that changes rows."
            )
        for one, box in pairs:
            one.planned = box.plan()
        for turn in range(repeats * _MOST_ROUNDS):
            if turn >= repeats and is_settled([one for one, _ in pairs], filtered=read_filter is not None):
                break
            for one, box in pairs:
                one.scans.append(box.scan())
                if read_filter is not None:
                    one.filtered_scans.append(box.scan(read_filter))
            progress(f"scans, round {turn + 1}: {'; '.join(f'{one.variant.name} {one.scans[-1].seconds:.2f} s' for one, _ in pairs)}")
        for turn in range(_COMPACTIONS):
            for one, box in pairs:
                if not one.variant.is_copy_on_write:
                    compact(box, one, undo=turn + 1 < _COMPACTIONS)
                    progress(f"{one.variant.name}: compaction {turn + 1} of {_COMPACTIONS} took {one.compactions[-1].seconds:.2f} s")
        if boxes.upserted is not None:
            equality = _equality(boxes.upserted, repeats)
            progress(f"equality deletes: a scan costs {equality.scan:.2f} s, and {equality.resolved_scan:.2f} s after a conversion")
    return WriteModeTrial(
        workload=workload,
        measured=tuple(measured.values()),
        filter=read_filter,
        seconds=time.monotonic() - started,
        scale=max((box.scale for _, box in pairs), default=1.0),
        stopped=trial.stopped,
        equality=equality,
        unit=next((box.unit for _, box in pairs), CLOCK),
    )


def prepare(box: Sandbox, variant: Variant) -> None:
    """Set up a sandbox to write like a variant."""
    modes = {f"write.{operation}.mode": variant.mode for operation in OPERATIONS}
    granularity = {"write.delete.granularity": variant.granularity} if variant.granularity else {}
    version = {"format-version": str(variant.format_version)}
    box.set(set_properties(box.name, {**version, **modes, **granularity}))


def write(box: Sandbox, statement: Callable[[Identifier], str], measured: VariantMeasures, *, is_own: bool = False) -> None:
    """Run one statement and measure it. It may write the entire table; the bytes of the last commit are the better estimate.

    Raises :class:`~icekit.errors.StatementRefused` with the engine's reason if a person's own statement (``is_own``) fails.
    """
    expected = measured.changes[-1].bytes_written if measured.changes else box.size_in_bytes
    try:
        done = box.run(statement(box.name), expected_bytes=expected)
    except engine_errors() as error:
        if not is_own:
            raise
        raise StatementRefused(
            f"Spark could not run the statement on a clone ({reason(error)}); the table was not changed. Fix the statement and try again.",
            detail=scrub(str(error)),
        ) from error
    measured.writes.append(Effort(done.seconds, done.cost))
    measured.changes += [change(snapshot) for snapshot in done.snapshots]


def compact(box: Sandbox, measured: VariantMeasures, *, undo: bool = False) -> None:
    """Rewrite the data files with deletes, and measure it; ``undo`` then makes the snapshot before it the current one again."""
    before = head(box.lake, box.table).snapshot_id
    # A compaction writes the data files with deletes: at most all of them.
    expected = measured.planned.data_bytes if measured.planned else box.size_in_bytes
    sql = call(box.lake.name, "rewrite_data_files", table=display_name(box.table), options=_REWRITE)
    done = box.run(sql, expected_bytes=expected)
    measured.compacted_bytes = done.summed("removed-files-size")
    measured.compactions.append(Effort(done.seconds, done.cost))
    if undo and done.snapshots and before is not None:
        box.set(call(box.lake.name, "rollback_to_snapshot", table=display_name(box.table), snapshot_id=before))


def _equality(box: Sandbox, repeats: int) -> EqualityCost:
    """Scan a clone, convert its equality deletes to position deletes, scan it again."""
    before = min(box.scan().cost for _ in range(repeats))
    resolving = _resolve(box)
    return EqualityCost(before, min(box.scan().cost for _ in range(repeats)), resolving)


def _resolve(box: Sandbox) -> float:
    """Convert a clone's equality deletes; returns the cost."""
    with box.budget.watching(box.lake.spark), metered(box.lake.spark, box.unit) as effort:
        convert(box.lake.spark, box.name)
    return effort.cost


def _warm_up(cold: Sequence[Sandbox], workload: Workload) -> None:
    """Read each throwaway clone, and write and read it again; nothing for a table that takes long to read."""
    for box in cold:
        if box.scan().seconds > _WARM_UP_SECONDS:
            return
        write(box, workload.statements[0], VariantMeasures(Variant(MERGE_ON_READ, 2)), is_own=not workload.is_synthetic)
        box.scan()


def clean(box: Sandbox, progress: Callable[[str], None]) -> None:
    """Compact away the table's existing deletes on a clone, so that only deletes of the trial are measured."""
    progress("compacting existing deletes away on a clone")
    _resolve(box)
    compact(box, VariantMeasures(Variant(MERGE_ON_READ, 2)))


# --- Fit the cost model to the measurements of a trial. Pure


def compare(trial: WriteModeTrial, history: WriteHistory, compact_every: int | None) -> tuple[CostComparison | None, str]:
    """Fit the model to a trial; None where copy-on-write or all of merge-on-read is missing, and where the cycle comes from.

    Scans of the copy-on-write clone are what the others are held against: it has the same rows and no deletes.
    """
    whole = [m for m in trial.measured if m.write is not None and _fit_read(trial, m) is not None]
    reference = next((m for m in whole if m.variant.is_copy_on_write), None)
    merging = [m for m in whole if not m.variant.is_copy_on_write and m.compaction is not None]
    if reference is None or not merging:
        return None, ""
    costs = tuple(_costs(trial, m, reference, opening(trial, m, reference)) for m in (reference, *merging))
    seconds = (_fit_read(trial, reference) or 0.0) * trial.scale
    every, where = None, "at the cheapest interval"
    if compact_every is not None:
        every, where = compact_every, "as stated"
    elif history.commits_between_compactions:
        every, where = max(1, round(history.commits_between_compactions)), "as in the history"
    return CostComparison(costs, seconds, every, _read_spread(trial, reference) * trial.scale, trial.unit), where


def _fit_read(trial: WriteModeTrial, measured: VariantMeasures) -> float | None:
    return measured.filtered if trial.filter else measured.scan


def opening(trial: WriteModeTrial, measured: VariantMeasures, reference: VariantMeasures) -> tuple[float, float]:
    """What a delete file that is opened adds to the cost of a scan, and by how much that may be wrong, as repeated scans differ.

    Each variant has a cost of its own: an executor reads a delete file that applies to several data files once (SparkExecutorCache),
    so those per partition cost less for each data file than those per file.
    """
    opens = measured.planned.delete_opens if measured.planned else 0
    if not opens:
        return 0.0, 0.0
    slower = (_fit_read(trial, measured) or 0.0) - (_fit_read(trial, reference) or 0.0)
    error = _read_spread(trial, measured) + _read_spread(trial, reference)
    return max(0.0, slower / opens), error / opens


def is_lost_in_noise(trial: WriteModeTrial) -> bool:
    """Tell whether reads of the clones with deletes differ from one without less than two reads of that one do."""
    reference = next((m for m in trial.measured if m.variant.is_copy_on_write), None)
    if reference is None or (fastest := _fit_read(trial, reference)) is None:
        return False
    others = [_fit_read(trial, m) for m in trial.measured if not m.variant.is_copy_on_write]
    return max((seconds - fastest for seconds in others if seconds is not None), default=0.0) <= _read_spread(trial, reference)


def _read_spread(trial: WriteModeTrial, measured: VariantMeasures) -> float:
    return _spread(measured.filtered_scans if trial.filter else measured.scans)


def _spread(efforts: Sequence[Effort]) -> float:
    """How far the least cost of repeats may be off: what the two cheapest differ by."""
    costs = sorted(e.cost for e in efforts)
    return costs[1] - costs[0] if len(costs) > 1 else 0.0


def is_settled(measured: Sequence[VariantMeasures], *, filtered: bool = False) -> bool:
    """Tell whether scans were repeated often enough for what the deletes of each variant add to stand out."""
    scans = [(one.variant.is_copy_on_write, one.filtered_scans if filtered else one.scans) for one in measured]
    reference = next((efforts for is_copy_on_write, efforts in scans if is_copy_on_write), [])
    for is_copy_on_write, efforts in scans:
        if not is_copy_on_write and reference and efforts:
            added = min(e.cost for e in efforts) - min(e.cost for e in reference)
            if added < _STANDS_OUT * (_spread(efforts) + _spread(reference)):
                return False
    return True


def _costs(trial: WriteModeTrial, measured: VariantMeasures, reference: VariantMeasures, opened: tuple[float, float]) -> Costs:
    """What was measured of one variant, as the model takes it."""
    scale, made = trial.scale, len(measured.writes)
    write = (measured.write or 0.0) * scale
    files = reference.planned.data_files if reference.planned else 1
    touched = [c.file_share for c in reference.changes if c.file_share is not None]
    share = sum(touched) / len(touched) if touched else 1.0
    error = _half_range(measured.writes) * scale
    if measured.variant.is_copy_on_write:
        return Costs(measured.variant, write, 0.0, 1.0, touched_share=share, error_seconds=error)
    opens = measured.planned.delete_opens if measured.planned else 0
    limit = float(measured.planned.data_files if measured.planned else files) if measured.variant.format_version >= 3 else None
    per_commit = opens / made
    if limit:
        # What so many commits reached together; each reaches as much of the rest.
        per_commit = limit * (1 - (1 - min(opens / limit, 1.0)) ** (1 / made))
    total = measured.planned.data_bytes if measured.planned else 0
    rewritten = measured.compacted_bytes
    whole_by_measured = total / rewritten if rewritten else 0.0
    # A share of the bytes rewritten, so that N commits of the trial's kind come to what was measured.
    reached = min(1.0, rewritten / total) if total else 1.0
    each = 1 - (1 - reached) ** (1 / made) if reached < 1 else max(share, 1 / max(files, 1))
    return Costs(
        variant=measured.variant,
        write_seconds=write,
        open_seconds=opened[0],
        opens_per_commit=per_commit * scale,
        opens_limit=limit * scale if limit else None,
        touched_share=each,
        rewrite_seconds=(measured.compaction or 0.0) * whole_by_measured * scale,
        error_seconds=error,
        open_error=opened[1],
        rewrite_error=_half_range(measured.compactions) * whole_by_measured * scale,
    )


def _half_range(efforts: Sequence[Effort]) -> float:
    """How far repeated efforts are from the middle between them."""
    costs = [e.cost for e in efforts]
    return (max(costs) - min(costs)) / 2 if costs else 0.0
