"""Answer why files miss their target size: rows of the table are written again under each
distribution mode and another advisory partition size.

Source: ``SparkWriteConf`` of Iceberg 1.12. ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from icekit.common.commands import FileSizesOptions
from icekit.common.units import capitalized, size, span
from icekit.common.view import BYTES, COUNT, SECONDS
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.writes import append_rhythm, that_wrote_rows
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import min_file_size, split_bytes
from icekit.iceberg.metadata import TARGET, distribution_modes
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import (
    Answer,
    Change,
    InForce,
    Measure,
    Measurements,
    in_force,
    put_in_force,
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
from icekit.tune.experiment import Experiment, Figures, scale_files

NOW = "now"
SIZED = "another advisory size"
HASH = "hash"
DISTRIBUTION = "write.distribution-mode"
_DISTRIBUTION_SESSION = "spark.sql.iceberg.distribution-mode"
FILES = "data files of a typical commit"
MEAN = "mean file of a typical commit"
LARGE_FILES = "data files of a large commit"
LARGE_MEAN = "mean file of a large commit"
SHUFFLED = "bytes shuffled by a large commit"
TIME = "time of a large commit"
_MEASURES = (
    Measure(FILES, COUNT),
    Measure(MEAN, BYTES),
    Measure(LARGE_FILES, COUNT),
    Measure(LARGE_MEAN, BYTES),
    Measure(SHUFFLED, BYTES, is_cost=True),
    Measure(TIME, SECONDS, is_cost=True),
)
ADVISORY = "write.spark.advisory-partition-size-bytes"
_ADVISORY_SESSION = "spark.sql.iceberg.advisory-partition-size"
COMMIT_FREQUENCY = "commit frequency"
#: Choices: a shuffle or another size must save this share of the files, and more than one.
_GAIN = 0.15
#: Adaptive execution packs map outputs up to the advisory size; the writer begins another file at
# about 93 % of the target, because the open row group counts uncompressed
# (``ParquetWriter.length``). Two advisory sizes are tried, the second corrected by the result of
# the first.
_ROOM = 0.9
_TRIES = 2


def tune_file_sizes(trial: Trial, _: FileSizesOptions) -> Answer:
    """Write rows of a typical and of a large commit again to clones: as now, hashed, and with
    another advisory size; only reads the table.

    A trial writes rows of at most ``sample_bytes`` at a time.
    """
    commits = CommitTrial(trial)
    scale = partial(scale_files, facts=trial.facts, target_bytes=commits.target_bytes)
    variants = dict.fromkeys(commits.settings, scale)
    experiment = Experiment(trial=trial, variants=variants, measures=_MEASURES)
    with experiment.open():
        _measure(experiment, commits)
    return _answer(experiment, commits)


class CommitTrial:
    """The rows of a typical and of a large commit, the session settings under which each variant
    writes them, and what each wrote of the large one.
    """

    def __init__(self, trial: Trial) -> None:
        self.facts = trial.facts
        spark = trial.lake.spark
        append = next(d for d in self.facts.distribution if d.operation == "append")
        mode = InForce(DISTRIBUTION, append.mode, append.origin)
        self.mode = in_force(spark, self.facts, _DISTRIBUTION_SESSION, DISTRIBUTION, mode)
        estimate = InForce(ADVISORY, None, "Iceberg's estimate from the codecs")
        self.advisory = in_force(spark, self.facts, _ADVISORY_SESSION, ADVISORY, estimate)
        self.target_bytes = trial_target(self.facts, trial.sample_bytes)
        files = metadata_table_sql(spark, trial.lake.sql_name(self.facts.table), "data_files")
        sample = trial.sample_bytes
        self.sources = {
            FILES: typical_commit(self.facts, sample_bytes=sample, tasks=cluster_of(spark).cores),
            LARGE_FILES: large_commit(
                self.facts, files, target_bytes=self.target_bytes, sample_bytes=sample
            ),
        }
        is_partitioned = not self.facts.default_spec.is_unpartitioned
        self.now = distribution_modes(
            {DISTRIBUTION: self.mode.value or ""},
            partitioned=is_partitioned,
            is_sorted=bool(self.facts.sort_order),
        )[0].mode
        self.settings: dict[str, dict[str, str]] = {NOW: {}, SIZED: {}}
        if self.now != HASH and is_partitioned:
            self.settings[HASH] = {_DISTRIBUTION_SESSION: HASH}
        self.written: dict[str, Written] = {}

    def write(self, name: str, box: Sandbox) -> Figures:
        """Write both commits under the settings of a variant."""
        figures: Figures = {}
        for files, mean in ((FILES, MEAN), (LARGE_FILES, LARGE_MEAN)):
            source = self.sources[files]
            if source is None:
                continue
            result = write(box, source, self.settings[name])
            if not result.files:
                continue
            figures |= {files: result.files, mean: result.size_in_bytes / result.files}
            if files == LARGE_FILES:
                figures |= {SHUFFLED: result.shuffle_bytes, TIME: result.seconds}
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
    now = sum(measured.value(NOW, files) or 0 for files in (FILES, LARGE_FILES))
    hashed = sum(measured.value(HASH, files) or 0 for files in (FILES, LARGE_FILES))
    return HASH if _are_fewer(now, hashed) else None


def _are_fewer(before: float, after: float) -> bool:
    return before - after > max(1, _GAIN * after)


def next_advisory(
    written: Mapping[str, Written], base: str, target_bytes: int, tried: str | None
) -> int | None:
    """The advisory size with which a full task writes one file of the target size, by the measured
    bytes of shuffle for each byte of file.

    None without a shuffle, or where the files of the last commit reach the target: then no size
    helps.
    """
    last = written.get(SIZED if tried else base)
    if last is None or not last.shuffle_bytes or last.largest_partition_bytes < target_bytes:
        return None
    mean = last.size_in_bytes / last.files
    room = _ROOM * target_bytes
    if mean >= (1 - TOLERANCE) * target_bytes:
        return None
    if not tried:
        return round(room * last.shuffle_bytes / last.size_in_bytes)
    # The result of the first size corrects the ratio.
    ratio = min(2.0, max(0.5, room / mean))
    return round(int(tried) * ratio) if abs(ratio - 1) > TOLERANCE / 3 else None


def _answer(experiment: Experiment, commits: CommitTrial) -> Answer:
    measured = experiment.measured
    facts = commits.facts
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
        " ".join([*first, _verdict(changes, measured.gain(NOW, advised))]),
        [*target, *changes],
        advised=advised,
        notes=_notes(commits),
    )


def _verdict(changes: list[Change], gain: str) -> str:
    steps = [
        f"set {c.setting} to {c.proposed or 'its default'}"
        if c.sql
        else "commit less often, or compact"
        for c in changes
        if c.is_change
    ]
    tried = gain or "; no setting that was tried makes fewer or better-sized files"
    return f"{capitalized(' and '.join(steps) or 'no change')}{tried}."


def _target(facts: TableFacts) -> Iterator[Change]:
    """Raise a target that is far below a read split, before anything that is measured against
    it.
    """
    for finding in diagnose(facts):
        if finding.name == "target_too_small":
            why = (
                f"{capitalized(finding.evidence)}. The rest was measured with the current target: ask "
                "again after this change."
            )
            target = {TARGET: str(split_bytes(facts))}
            yield to_set(facts, target, why)


def _mode(commits: CommitTrial, best: str | None, measured: Measurements) -> list[Change]:
    facts = commits.facts
    now = commits.now
    why = f"It is {now} because of {commits.mode.origin}{measured.gain(NOW, best)}."
    if best is None:
        return [Change(DISTRIBUTION, now, now, why)]
    effect = "rows are shuffled once before they are written, which adds latency to a stream"
    properties = {DISTRIBUTION: best}
    return put_in_force(facts, commits.mode, properties, why, now=now, side_effect=effect)


def _advisory(commits: CommitTrial, gain: str) -> list[Change]:
    """Set the advisory size that was tried, scaled from the target of the trial to the table's."""
    facts = commits.facts
    tried = int(commits.settings[SIZED][_ADVISORY_SESSION])
    value = str(round(tried * facts.target_bytes / commits.target_bytes))
    why = f"An advisory size of {size(int(value))} was tried{gain}."
    effect = "a task sorts as much as this in its memory, or spills"
    return put_in_force(facts, commits.advisory, {ADVISORY: value}, why, side_effect=effect)


def _interval(facts: TableFacts) -> Iterator[Change]:
    """Commit less often where a commit adds too little to a partition for any setting to make a
    file of the target size.
    """
    rhythm = append_rhythm(that_wrote_rows(facts.history.commits))
    least = min_file_size(facts.target_bytes)
    if rhythm is None or not 0 < 2 * rhythm.bytes_per_partition <= least:
        return
    now_ms = rhythm.seconds * 1000
    less = ""
    if (interval_ms := rhythm.interval_ms(least)) is not None:
        less = (
            f"; one commit every {span(interval_ms)} instead of every {span(now_ms)} (mean) would. "
            "Commit less often,"
        )
    why = (
        f"A commit adds {size(rhythm.bytes_per_partition)} to a partition (median), so no setting "
        f"makes a file of {size(facts.target_bytes)}{less or '. Therefore'} compact (icekit "
        "compact), or use coarser partitions (icekit tune layout)."
    )
    yield Change(COMMIT_FREQUENCY, "as it is", "lower", why)


def _notes(commits: CommitTrial) -> Iterator[str]:
    facts = commits.facts
    target = commits.target_bytes
    advisory = commits.advisory
    yield f"The advisory partition size is {advisory.value or 'not set'} ({advisory.origin})."
    for source in filter(None, commits.sources.values()):
        yield f"Written again: {source.described}."
    if target < facts.target_bytes:
        yield (
            f"Tried with a target of {size(target)}, as the sample has too few files of "
            f"{size(facts.target_bytes)}; sizes are scaled."
        )
