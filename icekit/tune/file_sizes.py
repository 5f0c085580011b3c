"""Answer why files miss their target size: rows of the table are written again under each
distribution mode and another advisory partition size.

Source: ``SparkWriteConf`` of Iceberg 1.12. ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from icekit.answer.grid import BYTES, COUNT, SECONDS, SHARE, TEXT, Grid
from icekit.diagnose import diagnose
from icekit.diagnose.writes import append_rhythm
from icekit.engine.bridge import session_value
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.facts.files import Kind
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size, split_bytes
from icekit.options.commands import FileSizesOptions
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import set_properties, set_session
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements, overriding, to_set
from icekit.tune.commits import (
    TOLERANCE,
    Written,
    large_commit,
    trial_target,
    typical_commit,
    write,
)
from icekit.tune.distribution import (
    DISTRIBUTION,
    DISTRIBUTION_SESSION,
    HASH,
    NONE,
    RANGE,
    distribution,
    effective,
    possible_modes,
)
from icekit.tune.experiment import Experiment, Figures
from icekit.tune.in_force import in_force
from icekit.units import count, percent, raised, size, span

NOW, SIZED = "now", "another advisory size"
FILES, MEAN, WELL_SIZED = (
    "data files of a typical commit",
    "mean file of a typical commit",
    "well-sized bytes of a typical commit",
)
LARGE_FILES, LARGE_MEAN, LARGE_WELL_SIZED = (
    "data files of a large commit",
    "mean file of a large commit",
    "well-sized bytes of a large commit",
)
SHUFFLED, TASKS, TIME = (
    "bytes shuffled by a large commit",
    "tasks that write a large commit",
    "time of a large commit",
)
_MEASURES = (
    Measure(FILES, COUNT),
    Measure(MEAN, BYTES),
    Measure(WELL_SIZED, SHARE),
    Measure(LARGE_FILES, COUNT),
    Measure(LARGE_MEAN, BYTES),
    Measure(LARGE_WELL_SIZED, SHARE),
    Measure(TASKS, COUNT),
    Measure(SHUFFLED, BYTES, is_cost=True),
    Measure(TIME, SECONDS, is_cost=True),
)
ADVISORY, _ADVISORY_SESSION = (
    "write.spark.advisory-partition-size-bytes",
    "spark.sql.iceberg.advisory-partition-size",
)
_ADAPTIVE, _SPARK_ADVISORY = (
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
)
COMMIT_FREQUENCY = "commit frequency"
#: Choices: a shuffle or another size must save this share of the files, and more than one.
_GAIN = 0.15
#: Adaptive execution packs map outputs up to the advisory size; the writer begins another file at
# about 93 % of the target, because the open row group counts uncompressed
# (``ParquetWriter.length``). Two advisory sizes are tried, the second corrected by the result of
# the first.
_ROOM, _TRIES = 0.9, 2


def tune_file_sizes(trial: Trial, _: FileSizesOptions) -> Answer:
    """Write rows of a typical and of a large commit again to clones, under each distribution mode
    and another advisory size; only reads the table.

    A trial writes rows of at most ``sample_bytes`` at a time.
    """
    commits = CommitTrial(trial)
    variants = dict.fromkeys(commits.settings, commits.scale)
    experiment = Experiment(trial=trial, variants=variants, measures=_MEASURES)
    with experiment.open():
        _measure(experiment, commits)
    return _answer(experiment, commits)


class CommitTrial:
    """The rows of a typical and of a large commit, the session settings under which each variant
    writes them, and what each wrote of the large one.
    """

    def __init__(self, trial: Trial) -> None:
        self.facts, spark = trial.facts, trial.lake.spark
        self.session = {
            name: session_value(spark, name)
            for name in (DISTRIBUTION_SESSION, _ADVISORY_SESSION, _ADAPTIVE, _SPARK_ADVISORY)
        }
        self.mode = distribution(self.facts, self.session)
        self.target_bytes = trial_target(self.facts, trial.sample_bytes)
        files = metadata_table_sql(spark, trial.lake.sql_name(self.facts.table), "data_files")
        sample = trial.sample_bytes
        self.sources = {
            FILES: typical_commit(self.facts, sample_bytes=sample, tasks=cluster_of(spark).tasks),
            LARGE_FILES: large_commit(
                self.facts, files, target_bytes=self.target_bytes, sample_bytes=sample
            ),
        }
        now = effective(self.facts, self.mode)
        others = {m: {DISTRIBUTION_SESSION: m} for m in possible_modes(self.facts) if m != now}
        self.settings: dict[str, dict[str, str]] = {NOW: {}, **others, SIZED: {}}
        self.written: dict[str, Written] = {}

    def scale(self, box: Sandbox) -> None:
        """Give a sandbox the target size of the trial."""
        if self.target_bytes != self.facts.target_bytes:
            group = self.facts.int_setting(ROW_GROUP) * self.target_bytes
            row_group = max(group // self.facts.target_bytes, 1)
            box.set(
                set_properties(
                    box.name, {TARGET: str(self.target_bytes), ROW_GROUP: str(row_group)}
                )
            )

    def write(self, name: str, box: Sandbox) -> Figures:
        """Write both commits under the settings of a variant."""
        figures: Figures = {}
        for files, mean, share in (
            (FILES, MEAN, WELL_SIZED),
            (LARGE_FILES, LARGE_MEAN, LARGE_WELL_SIZED),
        ):
            source = self.sources[files]
            if source is None:
                continue
            result = write(box, source, self.target_bytes, self.settings[name])
            if not result.files:
                continue
            figures |= {
                files: result.files,
                mean: result.size_in_bytes / result.files,
                share: 1 - result.small_bytes / result.size_in_bytes,
            }
            if files == LARGE_FILES:
                figures |= {
                    SHUFFLED: result.shuffle_bytes,
                    TASKS: result.tasks or result.files,
                    TIME: result.seconds,
                }
                self.written[name] = result
        return figures


def _measure(experiment: Experiment, commits: CommitTrial) -> None:
    """Write under each mode, then with another advisory size under the better one."""
    modes = [name for name in commits.settings if name != SIZED]
    experiment.measure("commits under each distribution mode", commits.write, only=modes)
    base = better_mode(experiment.measured) or NOW
    for _ in range(_TRIES):
        tried = commits.settings[SIZED].get(_ADVISORY_SESSION)
        advisory = next_advisory(commits.written, base, commits.target_bytes, tried)
        if advisory is None:
            break
        commits.settings[SIZED] = {**commits.settings[base], _ADVISORY_SESSION: str(advisory)}
        experiment.measured.rounds.pop(SIZED, None)
        experiment.measure(
            f"commits with an advisory size of {size(advisory)}", commits.write, only=[SIZED]
        )


def better_mode(measured: Measurements) -> str | None:
    """Hash where it writes clearly fewer files than the mode in force; None where that mode stays.
    A shuffle is only worth what it saves.
    """
    if NOW not in measured.rounds or HASH not in measured.rounds:
        return None
    now, hashed = (
        sum(measured.value(mode, files) or 0 for files in (FILES, LARGE_FILES))
        for mode in (NOW, HASH)
    )
    return HASH if _are_fewer(now, hashed) else None


def _are_fewer(before: float, after: float) -> bool:
    return before - after > max(1, _GAIN * after)


def next_advisory(
    written: Mapping[str, Written], base: str, target_bytes: int, tried: str | None
) -> int | None:
    """The advisory size with which a full task writes one file of the target size, by the measured
    bytes of shuffle for each byte of file.

    None without a shuffle, or where the last commit has as few files as it can: then no size helps.
    """
    last = written.get(SIZED if tried else base)
    if (
        last is None
        or not last.shuffle_bytes
        or not last.size_in_bytes
        or last.largest_partition_bytes < target_bytes
    ):
        return None
    mean, room = last.size_in_bytes / last.files, _ROOM * target_bytes
    if last.files <= last.fewest * (1 + TOLERANCE) and mean >= (1 - TOLERANCE) * target_bytes:
        return None
    if not tried:
        return round(room * last.shuffle_bytes / last.size_in_bytes)
    # The result of the first size corrects the ratio.
    ratio = min(2.0, max(0.5, room / mean))
    return round(int(tried) * ratio) if abs(ratio - 1) > TOLERANCE / 3 else None


def is_better_size(written: Mapping[str, Written], base: str) -> bool:
    """Tell whether the other advisory size writes clearly fewer files."""
    before, after = written.get(base), written.get(SIZED)
    return before is not None and after is not None and _are_fewer(before.files, after.files)


def _answer(experiment: Experiment, commits: CommitTrial) -> Answer:
    measured = experiment.measured
    best = better_mode(measured)
    is_sized = is_better_size(commits.written, best or NOW)
    advised = SIZED if is_sized else best
    changes = [
        *_target(commits.facts),
        *_mode(commits, best, measured),
        *(_advisory(commits, measured, best or NOW) if is_sized else ()),
        *_adaptive(commits.session),
        *_interval(commits.facts),
    ]
    return experiment.answer(
        "file-sizes",
        _verdict(experiment, changes, advised),
        changes,
        advised=advised,
        notes=_notes(commits, advised or NOW),
        tables={"settings": _settings(commits)},
    )


def _verdict(experiment: Experiment, changes: Sequence[Change], advised: str | None) -> str:
    confidence, because = experiment.confidence()
    first = "".join(
        f"First set {TARGET} to {c.proposed} ({size(int(c.proposed or 0))}). "
        for c in changes
        if c.setting == TARGET
    )
    steps = [
        f"set {c.setting} to {c.proposed or 'its default'}"
        for c in changes
        if c.sql and c.setting != TARGET
    ]
    is_frequent = any(c.setting == COMMIT_FREQUENCY for c in changes)
    if confidence is Confidence.NONE:
        return first or f"No advice: {because}"
    if steps:
        gain = experiment.measured.gain(NOW, advised)
        also = " Also commit less often, or compact." if is_frequent else ""
        return f"{first}{raised(' and '.join(steps))}{gain}.{also}"
    kept = "No other change" if first else "No change"
    advice = "Commit less often, or compact" if is_frequent else kept
    return f"{first}{advice}: no setting that was tried makes fewer or better-sized files."


def _target(facts: TableFacts) -> Iterator[Change]:
    """Raise a target that is far below a read split, before anything that is measured against
    it.
    """
    for finding in diagnose(facts):
        if finding.name == "target_too_small":
            why = (
                f"{raised(finding.evidence)}. The rest was measured with the current target: ask "
                "again after this change."
            )
            target = {TARGET: str(split_bytes(facts))}
            yield to_set(facts, target, why, now=facts.properties.get(TARGET))


def _mode(commits: CommitTrial, best: str | None, measured: Measurements) -> list[Change]:
    facts, mode = commits.facts, commits.mode
    now = effective(facts, mode)
    counts = {
        now if m == NOW else m: measured.value(m, FILES) or measured.value(m, LARGE_FILES)
        for m in (NOW, NONE, HASH, RANGE)
        if m in measured.rounds
    }
    listed = ", ".join(f"{n:,} under {m}" for m, n in counts.items() if n is not None)
    tried = f"Data files of a commit: {listed}" if listed else "Not tried"
    why = f"{tried}; in force because of {mode.origin}."
    if best is None:
        return [Change(DISTRIBUTION, now, now, why)]
    effect = (
        "rows are shuffled once before they are written, which takes time and adds latency to a "
        "stream"
    )
    changes = overriding(mode)
    if facts.properties.get(DISTRIBUTION) != best:
        changes.insert(0, to_set(facts, {DISTRIBUTION: best}, why, now=now, side_effect=effect))
    return changes


def _advisory(commits: CommitTrial, measured: Measurements, base: str) -> list[Change]:
    """Set the advisory size that was tried, scaled from the target of the trial to the table's."""
    facts, tried = commits.facts, int(commits.settings[SIZED][_ADVISORY_SESSION])
    value = str(round(tried * facts.target_bytes / commits.target_bytes))
    before, after = measured.value(base, LARGE_FILES), measured.value(SIZED, LARGE_FILES)
    why = (
        f"A large commit writes {after:,} instead of {before:,} data files with an advisory size "
        f"of {size(int(value))}."
    )
    advisory = in_force(session=(_ADVISORY_SESSION, commits.session[_ADVISORY_SESSION]))
    effect = "a task sorts as much as this in its memory, or spills"
    return [
        to_set(
            facts, {ADVISORY: value}, why, now=facts.properties.get(ADVISORY), side_effect=effect
        ),
        *overriding(advisory, f"Or set it to {value}."),
    ]


def _adaptive(session: Mapping[str, str | None]) -> Iterator[Change]:
    if (session[_ADAPTIVE] or "true").lower() != "true":
        why = (
            "Without adaptive execution the advisory size has no effect: each shuffle has "
            "spark.sql.shuffle.partitions tasks."
        )
        sql, undo = (set_session(_ADAPTIVE, value) for value in ("true", "false"))
        yield Change(_ADAPTIVE, "false", "true", why, sql, undo)


def _interval(facts: TableFacts) -> list[Change]:
    """Commit less often where a commit adds too little to a partition for any setting to make a
    file of the target size.
    """
    rhythm = append_rhythm(
        [c for c in facts.history.commits if c.added_data_files and c.added_bytes]
    )
    least = min_file_size(facts.target_bytes)
    if rhythm is None or not 0 < 2 * rhythm.bytes_per_partition <= least:
        return []
    largest = max((g.size_in_bytes for g in facts.of_kind(Kind.DATA)), default=0)
    now_ms = rhythm.seconds * 1000
    interval = span(now_ms * least / rhythm.bytes_per_partition)
    advice = (
        f". One commit every {interval} instead of every {span(now_ms)} would. Commit less often, "
        "or compact (icekit compact)."
    )
    if largest < facts.target_bytes and not facts.default_spec.is_unpartitioned:
        advice = (
            f", and the largest partition has only {size(largest)}: use a coarser partition "
            "transform (icekit tune layout)."
        )
    why = (
        f"A commit adds {size(rhythm.bytes_per_partition)} to a partition, so no setting makes a "
        f"file of {size(facts.target_bytes)}{advice}"
    )
    return [Change(COMMIT_FREQUENCY, "as it is", "lower", why)]


def _settings(commits: CommitTrial) -> Grid:
    """What decides the size of a file of appends, and where it is set."""
    facts, session, mode = commits.facts, commits.session, commits.mode
    advisory = in_force(
        session=(_ADVISORY_SESSION, session[_ADVISORY_SESSION]),
        table=(ADVISORY, facts.properties.get(ADVISORY)),
        default=(
            "Iceberg's estimate from the codecs, at least Spark's own",
            session[_SPARK_ADVISORY] or "64MB",
        ),
    )
    rows = [
        ("target file size", size(facts.target_bytes), TARGET),
        ("distribution mode", effective(facts, mode), mode.origin),
        ("advisory partition size", advisory.value, advisory.origin),
        ("adaptive execution", session[_ADAPTIVE] or "true", _ADAPTIVE),
        *(
            (f"distribution of {d.operation}", d.mode, d.origin)
            for d in facts.distribution
            if d.operation != "append"
        ),
    ]
    return Grid(
        "Settings that decide the size of files",
        {"what": TEXT("setting"), "value": TEXT, "origin": TEXT},
        rows,
    )


def _notes(commits: CommitTrial, advised: str) -> Iterator[str]:
    facts, target = commits.facts, commits.target_bytes
    yield (
        f"The table has {count(facts.data.file_count, 'data file')} of "
        f"{size(facts.data.mean_bytes or 0)} on average; the target is {size(facts.target_bytes)}."
    )
    for source in filter(None, commits.sources.values()):
        yield f"Written again: {source.described}."
    last = commits.written.get(advised)
    if last is not None:
        if last.tasks:
            yield (
                f"{count(last.tasks, 'task')} wrote {count(last.files, 'file')} in "
                f"{count(last.partitions, 'partition')}: a file never spans partitions."
            )
        if last.spilled_bytes:
            yield (
                f"Sorting spilled {size(last.spilled_bytes)} to disk: give tasks more memory, or "
                "executors fewer cores."
            )
        if last.largest_partition_bytes < target:
            share = percent(last.largest_partition_bytes / target)
            yield (
                "No partition of a large commit gets more than "
                f"{size(last.largest_partition_bytes)}, {share} of the target."
            )
    if target < facts.target_bytes:
        yield (
            f"Tried with a target of {size(target)}, as the sample has too few files of "
            f"{size(facts.target_bytes)}; sizes are scaled."
        )
