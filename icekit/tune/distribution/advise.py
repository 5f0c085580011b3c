"""From a trial of the modes to what to set: the distribution of appends, and the order that filters want. Pure."""

from __future__ import annotations

from icekit.facts.model import TableFacts
from icekit.sql import Identifier
from icekit.tune import ddl
from icekit.tune.advice import Advice, overriding, to_set
from icekit.tune.distribution.modes import HASH, NONE, RANGE, Mode
from icekit.tune.distribution.trial import ModeTrial, Tried
from icekit.tune.in_force import OPTION, SESSION
from icekit.units import count, percent, size

_SETTING = "write.distribution-mode"
#: A shuffle that saves no more than this share of the files is not worth its while.
MARGIN = 0.15
#: Nor one that saves no more files of a commit than this.
FILES_SPARED = 1
#: A partition with more than this share of a commit's rows makes its task the last one to end.
SKEWED = 0.5


def advised_mode(facts: TableFacts, mode: Mode, trial: ModeTrial | None) -> str:
    """The mode that a table's appends should have; the one in force where nothing speaks for another."""
    there, hashed = (trial.of(mode.value), trial.of(HASH)) if trial else (None, None)
    if there is None or hashed is None or mode.value == HASH:
        return mode.value
    # A sorted table has its order for its readers.
    if mode.value == RANGE and facts.sort_order:
        return RANGE
    saved = there.written.files - hashed.written.files
    return HASH if saved > max(FILES_SPARED, MARGIN * hashed.written.files) else mode.value


def advise(table: Identifier, facts: TableFacts, mode: Mode, trial: ModeTrial | None) -> tuple[Advice, ...]:
    """Advice on the distribution of appends; ``table`` is named with its catalog."""
    if facts.default_spec.is_unpartitioned and not facts.sort_order:
        said = "Leave it as it is: without a partitioning or an order there is nothing to bring rows together by. Each task of the writer leaves its own files: repartition in the job, or commit less often."
        return (Advice(_SETTING, mode.value, mode.value, said),)
    if trial is None:
        return (Advice(_SETTING, mode.value, mode.value, f"Not tried; in force by {mode.why}."),)
    value = advised_mode(facts, mode, trial)
    there, better = trial.of(mode.value), trial.of(value)
    if there is None or better is None or value == mode.value:
        return (Advice(_SETTING, mode.value, mode.value, _leave(mode, trial)),)
    evidence = f"{_files(there)} under {mode.value}, {_files(better)} under {value}, of {trial.described}"
    verified = f"predicted {_predicted(there)} and {_predicted(better)} files, made {there.written.files:,} and {better.written.files:,}"
    decides = mode.in_force.decides
    found: list[Advice] = []
    if facts.properties.get(_SETTING, "").lower() != value:
        breaks = "rows are shuffled once before they are written, which takes time and, on a stream, latency"
        found.append(
            to_set(
                table,
                facts.properties,
                {_SETTING: value},
                current=mode.value,
                evidence=f"{evidence}.",
                verified=f"{verified}.",
                breaks=breaks,
            )
        )
    if decides is not None and decides.where in {SESSION, OPTION}:
        found.append(overriding(decides, f"{evidence}.", verified=f"{verified}."))
    return tuple(found)


def advise_order(table: Identifier, facts: TableFacts, columns: tuple[str, ...]) -> tuple[Advice, ...]:
    """The order that filters on ``columns`` want, for a table whose bounds skip nothing on them; nothing without such columns."""
    if not columns:
        return ()
    known = {c.name: c for c in facts.columns}
    partitioned = not facts.default_spec.is_unpartitioned
    how = "each task then sorts what it has of a partition" if partitioned else "rows are then shuffled by range, and files hardly overlap"
    now = ", ".join(f.source for f in facts.sort_order) or None
    return (
        Advice(
            "sort order",
            now,
            ", ".join(columns),
            f"Files cannot be skipped by {', '.join(columns)}, which filters ask for; {how}, and each write sorts its rows. Not tried here: ask for the layout, "
            f"which tries {ddl.write_order(table, known, columns, by_partition=partitioned)}.",
        ),
    )


def skew(trial: ModeTrial | None) -> str | None:
    """A sentence on a partition that has most of a commit's rows; None without one."""
    if trial is None or trial.spread is None or trial.spread.partitions < 2 or trial.spread.largest_share < SKEWED:
        return None
    hashed = trial.of(HASH)
    shuffle = hashed.written.shuffle if hashed else None
    split = f"; adaptive execution split it into {count(shuffle.split_count, 'task')}" if shuffle and shuffle.split_count else ""
    return f"One partition has {percent(trial.spread.largest_share)} of the rows: under hash one task would write it{split}. Range would cut it evenly."


def _leave(mode: Mode, trial: ModeTrial) -> str:
    there, hashed = trial.of(mode.value), trial.of(HASH)
    made = f"{_files(there)} under {mode.value}" if there else f"{mode.value} was not tried"
    if mode.value == NONE and hashed is not None:
        return f"Leave it as it is: {made}, {_files(hashed)} under hash, so a shuffle would save nothing{' (the rows come clustered already)' if trial.spread and trial.spread.is_clustered else ''}."
    others = ", ".join(f"{_files(t)} under {t.mode}" for t in trial.tried if t.mode != mode.value)
    return f"Leave it as it is: {made}{f', {others}' if others else ''}, of {trial.described}."


def _files(tried: Tried) -> str:
    mean = tried.written.mean_bytes
    return f"{count(tried.written.files, 'file')}{f' of {size(mean)}' if mean is not None else ''}"


def _predicted(tried: Tried) -> str:
    return "an unknown number of" if tried.predicted is None else f"{tried.predicted.files:,}"
