"""Fit the model of costs to what a trial measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from icekit.tune.write_mode.history import WriteHistory
from icekit.tune.write_mode.model import Comparison, Costs
from icekit.tune.write_mode.trial import Measured, Trial


def compare(trial: Trial, history: WriteHistory, compact_every: int | None) -> tuple[Comparison | None, str]:
    """Fit the model to a trial; None where copy-on-write or all of merge-on-read is missing, and where the cycle comes from.

    Scans of the copy-on-write clone are what the others are held against: it has the same rows and no deletes.
    """
    whole = [m for m in trial.measured if m.write is not None and _read(trial, m) is not None]
    reference = next((m for m in whole if m.variant.is_copy_on_write), None)
    merging = [m for m in whole if not m.variant.is_copy_on_write and m.compaction_seconds is not None]
    if reference is None or not merging:
        return None, ""
    costs = tuple(_costs(trial, m, reference, opening_seconds(trial, m, reference, merging)) for m in (reference, *merging))
    seconds = (_read(trial, reference) or 0.0) * trial.scale
    if compact_every is not None:
        return Comparison(costs, seconds, compact_every), "as stated"
    if history.commits_between_compactions:
        return Comparison(costs, seconds, max(1, round(history.commits_between_compactions))), "as in the history"
    return Comparison(costs, seconds, None), "as often as costs least"


def _read(trial: Trial, measured: Measured) -> float | None:
    return measured.filtered if trial.filter else measured.scan


def opening_seconds(trial: Trial, measured: Measured, reference: Measured, merging: Sequence[Measured]) -> float:
    """What a delete file that is opened adds to a scan.

    Of one kind of delete files all variants tell, those with many the most: least squares through the origin.
    """
    version = measured.variant.format_version
    alike = [m for m in merging if m.variant.format_version == version and m.planned is not None]
    opens = [m.planned.delete_opens for m in alike if m.planned is not None]
    weight = sum(n * n for n in opens)
    slower = sum(n * ((_read(trial, m) or 0.0) - (_read(trial, reference) or 0.0)) for n, m in zip(opens, alike, strict=True))
    return max(0.0, slower / weight) if weight else 0.0


def is_lost_in_noise(trial: Trial) -> bool:
    """Tell whether reads of the clones with deletes differ from one without less than two reads of that one do."""
    reference = next((m for m in trial.measured if m.variant.is_copy_on_write), None)
    times = (reference.filtered_seconds if trial.filter else reference.scan_seconds) if reference else []
    if not times or reference is None:
        return False
    spread = statistics.median(times) - min(times)
    others = [_read(trial, m) for m in trial.measured if not m.variant.is_copy_on_write]
    return max((seconds - min(times) for seconds in others if seconds is not None), default=0.0) <= spread


def _costs(trial: Trial, measured: Measured, reference: Measured, open_seconds: float) -> Costs:
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
