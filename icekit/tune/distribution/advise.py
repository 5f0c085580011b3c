"""Try each distribution mode with the same rows, and say what to set."""

from __future__ import annotations

from dataclasses import dataclass, replace

from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size
from icekit.facts.where import transformed
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune import ddl
from icekit.tune.advisory_size.trial import DISTRIBUTION_SESSION, Chain, said
from icekit.tune.advisory_size.written import TrialRows, Written, measured, write
from icekit.tune.answer import OPTION, SESSION, Advice, overriding, to_set
from icekit.tune.distribution.modes import HASH, MODES, NONE, RANGE, ROLLS_AT, CommitSpread, Mode, Predicted, predict
from icekit.tune.write_mode.history import MERGE_ON_READ, Workload
from icekit.units import count, percent, size

# --- Try each distribution mode with the same rows, with what was predicted beside what was made


@dataclass(frozen=True, slots=True)
class TriedMode:
    """A mode with what it was predicted to make (None: not predicted) and what it made."""

    mode: str
    predicted: Predicted | None
    written: Written


@dataclass(frozen=True, slots=True)
class ModeTrial:
    """The modes tried with the rows of one commit; ``in_force`` is the one that the operation has now."""

    operation: str
    described: str
    in_force: str
    spread: CommitSpread | None
    tried: tuple[TriedMode, ...]

    def of(self, mode: str) -> TriedMode | None:
        """What a mode came to; None if it was not tried."""
        return next((t for t in self.tried if t.mode == mode), None)


def spread_of(trial: Trial, source: TrialRows) -> CommitSpread:
    """Count the pairs of task and partition that have rows, as the writer would meet them; one row comes back."""
    facts = trial.facts
    terms = [transformed(facts.catalog, field, facts.columns) for field in facts.default_spec.fields]
    parts = ", ".join(t for t in terms if t is not None)
    place = f"xxhash64({parts})" if parts else "0L"
    width = row_bytes(facts)
    cut = max(1.0, ROLLS_AT * facts.target_bytes)
    with trial.budget.watching(trial.lake.spark):
        row = trial.lake.spark.sql(
            f"""SELECT coalesce(max(t), -1) + 1 AS tasks, count(*) AS partitions, coalesce(sum(n), 0) AS rows, coalesce(sum(pairs), 0) AS pairs,
                  coalesce(sum(f), 0) AS none_files, coalesce(sum(ceil(n * {width} / {cut})), 0) AS hash_files, max(n) AS most
                FROM (SELECT p, max(t) AS t, count(*) AS pairs, sum(n) AS n, sum(ceil(n * {width} / {cut})) AS f
                      FROM (SELECT spark_partition_id() AS t, {place} AS p, count(*) AS n FROM ({source.sql}) GROUP BY 1, 2) GROUP BY p)"""
        ).collect()[0]
    rows = int(row.rows)
    return CommitSpread(
        tasks=int(row.tasks),
        partitions=int(row.partitions),
        rows=rows,
        pairs=int(row.pairs),
        none_files=int(row.none_files),
        hash_files=int(row.hash_files),
        largest_share=int(row.most or 0) / rows if rows else 0.0,
        row_bytes=width,
    )


def row_bytes(facts: TableFacts) -> float:
    """What a row takes in a file of a good size: small files are footers for the most part. All files tell where there are no others."""
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]
    good = [b for b in buckets if b.min_bytes >= min_file_size(facts.target_bytes) and b.record_count] or buckets
    return max(1.0, sum(b.size_in_bytes for b in good) / max(sum(b.record_count for b in good), 1))


def try_modes(trial: Trial, box: Sandbox, source: TrialRows, chain: Chain) -> ModeTrial:
    """Write the same rows under each mode that the table can have; the session's mode is lent, so that it wins over the table's."""
    facts = trial.facts
    spread = spread_of(trial, source)
    made: dict[str, Written] = {}
    for mode in possible(facts):
        made[mode] = write(box, source, facts.target_bytes, {DISTRIBUTION_SESSION: mode})
        trial.progress(f"{mode}: {said(made[mode])}")
    # The ratio of a shuffle that was seen; Iceberg's guess until one was.
    ratio = next((w.ratio for w in made.values() if w.ratio), None) or chain.ratio
    predicted = {p.mode: p for p in predict(spread, chain, ratio)}
    tried = tuple(TriedMode(mode, predicted[mode], written) for mode, written in made.items())
    return ModeTrial("append", source.described, chain.mode, spread, tried)


def try_statement(trial: Trial, workload: Workload, now: str) -> ModeTrial:
    """Run a row-level statement under none, hash and range, each in a sandbox of its own, as each changes the rows; ``now`` is in force."""
    facts, operation = trial.facts, workload.operation
    is_delete_only = operation == "delete" and (facts.setting("write.delete.mode") or "") == MERGE_ON_READ
    target = facts.int_setting("write.delete.target-file-size-bytes") if is_delete_only else facts.target_bytes
    found = []
    for mode in MODES:
        with trial.sandbox() as box:
            done = box.run(workload.statements[0](box.name), settings={DISTRIBUTION_SESSION: mode})
            written = measured(box, done, target)
        trial.progress(f"{operation} under {mode}: {said(written)}, {written.delete_files:,} delete files")
        # A shuffle in the search for what changes is none of the writer's.
        found.append(TriedMode(mode, None, replace(written, shuffle=None) if mode == NONE else written))
    return ModeTrial(operation, workload.described, now, None, tuple(found))


def possible(facts: TableFacts) -> tuple[str, ...]:
    """The modes that differ for appends: hash needs a partitioning, range a partitioning or an order."""
    partitioned, ordered = not facts.default_spec.is_unpartitioned, bool(facts.sort_order)
    return (NONE, *((HASH,) if partitioned else ()), *((RANGE,) if partitioned or ordered else ()))


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


def advise(facts: TableFacts, mode: Mode, trial: ModeTrial | None) -> tuple[Advice, ...]:
    """Advice on the distribution of appends."""
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
                facts,
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


def advise_order(facts: TableFacts, columns: tuple[str, ...]) -> tuple[Advice, ...]:
    """The order that filters on ``columns`` want, for a table whose bounds skip nothing on them; nothing without such columns."""
    if not columns:
        return ()
    partitioned = not facts.default_spec.is_unpartitioned
    how = "each task then sorts what it has of a partition" if partitioned else "rows are then shuffled by range, and files hardly overlap"
    now = ", ".join(f.source for f in facts.sort_order) or None
    return (
        Advice(
            "sort order",
            now,
            ", ".join(columns),
            f"Files cannot be skipped by {', '.join(columns)}, which filters ask for; {how}, and each write sorts its rows. Not tried here: ask for the layout, "
            f"which tries {ddl.write_order(facts.sql_name, facts.by_name, columns, by_partition=partitioned)}.",
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


def _files(tried: TriedMode) -> str:
    mean = tried.written.mean_bytes
    return f"{count(tried.written.files, 'file')}{f' of {size(mean)}' if mean is not None else ''}"


def _predicted(tried: TriedMode) -> str:
    return "an unknown number of" if tried.predicted is None else f"{tried.predicted.files:,}"
