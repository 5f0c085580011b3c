"""Answer why files miss their target size: rows of the table are written again under each
distribution mode and another advisory partition size.

Source: ``SparkWriteConf`` of Iceberg 1.12. ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from icekit.answer.grid import BYTES, COUNT, SECONDS, SHARE
from icekit.diagnose import diagnose
from icekit.diagnose.writes import append_rhythm
from icekit.engine.bridge import session_value
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.facts.metadata import ROW_GROUP, TARGET
from icekit.facts.model import TableFacts
from icekit.facts.rollup import min_file_size, split_bytes
from icekit.options.commands import FileSizesOptions
from icekit.sandbox.trial import Sandbox, Trial
from icekit.sql import set_properties
from icekit.tune.answer import (
    Answer,
    Change,
    Confidence,
    InForce,
    Measure,
    Measurements,
    in_force,
    overriding,
    to_set,
)
from icekit.tune.commits import (
    TOLERANCE,
    Written,
    large_commit,
    trial_target,
    typical_commit,
    write,
)
from icekit.tune.experiment import Experiment, Figures
from icekit.units import count, percent, raised, size, span

NOW, SIZED = "now", "another advisory size"
NONE, HASH, RANGE = "none", "hash", "range"
DISTRIBUTION, _DISTRIBUTION_SESSION = (
    "write.distribution-mode",
    "spark.sql.iceberg.distribution-mode",
)
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
_ADAPTIVE = "spark.sql.adaptive.enabled"
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


def effective(facts: TableFacts, mode: InForce) -> str:
    """The mode that the writer uses: none where a mode has nothing to bring rows together by."""
    value = (mode.value or NONE).lower()
    return value if value in possible_modes(facts) else NONE


def possible_modes(facts: TableFacts) -> tuple[str, ...]:
    """The modes that differ for appends: hash needs a partitioning, range a partitioning or an
    order.
    """
    if not facts.default_spec.is_unpartitioned:
        return NONE, HASH, RANGE
    return (NONE, RANGE) if facts.sort_order else (NONE,)


class CommitTrial:
    """The rows of a typical and of a large commit, the session settings under which each variant
    writes them, and what each wrote of the large one.
    """

    def __init__(self, trial: Trial) -> None:
        self.facts, spark = trial.facts, trial.lake.spark
        is_adaptive = session_value(spark, _ADAPTIVE) or "true"
        self.is_adaptive = is_adaptive.lower() == "true"
        append = next(d for d in self.facts.distribution if d.operation == "append")
        self.mode = in_force(
            (_DISTRIBUTION_SESSION, session_value(spark, _DISTRIBUTION_SESSION)),
            (DISTRIBUTION, self.facts.properties.get(DISTRIBUTION)),
            (append.origin, append.mode),
        )
        self.advisory = in_force(
            (_ADVISORY_SESSION, session_value(spark, _ADVISORY_SESSION)),
            (ADVISORY, self.facts.properties.get(ADVISORY)),
            ("Iceberg's estimate from the codecs", None),
        )
        self.target_bytes = trial_target(self.facts, trial.sample_bytes)
        files = metadata_table_sql(spark, trial.lake.sql_name(self.facts.table), "data_files")
        sample = trial.sample_bytes
        self.sources = {
            FILES: typical_commit(self.facts, sample_bytes=sample, tasks=cluster_of(spark).tasks),
            LARGE_FILES: large_commit(
                self.facts, files, target_bytes=self.target_bytes, sample_bytes=sample
            ),
        }
        self.now = effective(self.facts, self.mode)
        possible = possible_modes(self.facts)
        others = {m: {_DISTRIBUTION_SESSION: m} for m in possible if m != self.now}
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


def _answer(experiment: Experiment, commits: CommitTrial) -> Answer:
    measured, facts = experiment.measured, commits.facts
    best = better_mode(measured)
    files = measured.pair(LARGE_FILES, best or NOW, SIZED)
    is_sized = files is not None and _are_fewer(*files)
    advised = SIZED if is_sized else best
    target = list(_target(facts))
    changes = [
        *_mode(commits, best, measured),
        *(_advisory(commits, measured.gain(best or NOW, SIZED)) if is_sized else ()),
        *_interval(facts),
    ]
    first = [f"First set {TARGET} to {size(split_bytes(facts))}." for _ in target]
    return experiment.answer(
        "file-sizes",
        " ".join([*first, _verdict(experiment, changes, advised)]),
        [*target, *changes],
        advised=advised,
        notes=_notes(commits, advised or NOW),
    )


def _verdict(experiment: Experiment, changes: Sequence[Change], advised: str | None) -> str:
    confidence, because = experiment.confidence()
    if confidence is Confidence.NONE:
        return f"No advice: {because}"
    steps = [
        f"set {c.setting} to {c.proposed or 'its default'}"
        if c.sql
        else "commit less often, or compact"
        for c in changes
        if c.is_change
    ]
    gain = experiment.measured.gain(NOW, advised)
    tried = gain or "; no setting that was tried makes fewer or better-sized files"
    return f"{raised(' and '.join(steps) or 'no change')}{tried}."


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
            yield to_set(facts, target, why)


def _mode(commits: CommitTrial, best: str | None, measured: Measurements) -> list[Change]:
    facts, now = commits.facts, commits.now
    why = f"It is {now} because of {commits.mode.origin}{measured.gain(NOW, best)}."
    if best is None:
        return [Change(DISTRIBUTION, now, now, why)]
    effect = (
        "rows are shuffled once before they are written, which takes time and adds latency to a "
        "stream"
    )
    changes = overriding(commits.mode)
    if facts.properties.get(DISTRIBUTION) != best:
        changes.insert(0, to_set(facts, {DISTRIBUTION: best}, why, now=now, side_effect=effect))
    return changes


def _advisory(commits: CommitTrial, gain: str) -> list[Change]:
    """Set the advisory size that was tried, scaled from the target of the trial to the table's."""
    facts, tried = commits.facts, int(commits.settings[SIZED][_ADVISORY_SESSION])
    value = str(round(tried * facts.target_bytes / commits.target_bytes))
    why = f"An advisory size of {size(int(value))} was tried{gain}."
    effect = "a task sorts as much as this in its memory, or spills"
    return [
        to_set(facts, {ADVISORY: value}, why, side_effect=effect),
        *overriding(commits.advisory, f"Or set it to {value}."),
    ]


def _interval(facts: TableFacts) -> Iterator[Change]:
    """Commit less often where a commit adds too little to a partition for any setting to make a
    file of the target size.
    """
    rhythm = append_rhythm(
        [c for c in facts.history.commits if c.added_data_files and c.added_bytes]
    )
    least = min_file_size(facts.target_bytes)
    if rhythm is None or not 0 < 2 * rhythm.bytes_per_partition <= least:
        return
    now_ms = rhythm.seconds * 1000
    interval = span(now_ms * least / rhythm.bytes_per_partition)
    why = (
        f"A commit adds {size(rhythm.bytes_per_partition)} to a partition, so no setting makes a "
        f"file of {size(facts.target_bytes)}; one commit every {interval} instead of every "
        f"{span(now_ms)} would. Commit less often, compact (icekit compact), or use coarser "
        "partitions (icekit tune layout)."
    )
    yield Change(COMMIT_FREQUENCY, "as it is", "lower", why)


def _notes(commits: CommitTrial, advised: str) -> Iterator[str]:
    facts, target = commits.facts, commits.target_bytes
    yield (
        f"The table has {count(facts.data.file_count, 'data file')} of "
        f"{size(facts.data.mean_bytes or 0)} on average; the target is {size(facts.target_bytes)}."
    )
    advisory = commits.advisory
    yield f"The advisory partition size is {advisory.value or 'not set'} ({advisory.origin})."
    if not commits.is_adaptive:
        yield f"It has no effect: {_ADAPTIVE} is off in this session."
    for source in filter(None, commits.sources.values()):
        yield f"Written again: {source.described}."
    last = commits.written.get(advised)
    if last is not None and last.largest_partition_bytes < target:
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
