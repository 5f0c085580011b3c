"""What a trial says of advice: it stands with what was shown, or it is taken back where a filter would lose. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from icekit.tune.advice import Advice
from icekit.tune.metrics_columns.advise import without
from icekit.tune.metrics_columns.model import Trial
from icekit.units import count, percent, size


def confirmed(advice: Sequence[Advice], trial: Trial) -> tuple[Advice, ...]:
    """The advice, each change with what the trial showed; nothing to change where any filter read more files than before."""
    if trial.losses:
        worst = max(trial.losses, key=lambda f: f.after - f.before)
        return without(advice, f"on a clone {worst.text} read {worst.after:,} data files instead of {worst.before:,}")
    shown = showed(trial)
    if shown is None:
        return tuple(advice)
    found: list[Advice] = []
    first = True
    for one in advice:
        if not one.is_change:
            found.append(one)
        elif not one.properties:
            found.append(replace(one, verified="the files on the clone had the metrics that this rewrite gives them."))
        else:
            found.append(replace(one, verified=f"{shown}." if first else "set on the clone with the above."))
            first = False
    return tuple(found)


def showed(trial: Trial) -> str | None:
    """What a trial showed, as the end of a sentence; None where it came to nothing."""
    if trial.before is None or trial.after is None or trial.shrinks is None:
        return None
    change = f"{percent(abs(trial.shrinks))} {'less' if trial.shrinks >= 0 else 'more'}"
    parts = [
        f"entries of {count(trial.files, 'data file')} of {trial.total_files:,} on a {'copied sample' if trial.is_sample else 'clone'}: "
        f"manifests {size(trial.before.size_in_bytes)} → {size(trial.after.size_in_bytes)} ({change})"
    ]
    if trial.before.planning_seconds is not None and trial.after.planning_seconds is not None:
        parts.append(f"a full scan planned in {trial.before.planning_seconds * 1000:,.0f} → {trial.after.planning_seconds * 1000:,.0f} ms")
    if trial.reads is not None:
        before, after = trial.reads
        parts.append(f"a filter reads {before:,.3g} → {after:,.3g} data files on average, none more than before")
    return "; ".join(parts)
