"""Answer why files miss their target size: rows of the table are written again under each
distribution mode and another advisory partition size.

Source: ``SparkWriteConf`` of Iceberg 1.12. ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icekit.answer.grid import BYTES, COUNT, SECONDS, SHARE, TEXT, Grid
from icekit.catalog.lake import session_of
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
from icekit.sandbox.trial import Budget, Sandbox, Trial
from icekit.sql import Identifier, set_properties, set_session
from icekit.tune.answer import Answer, Change, Confidence, Measure, Measurements, overriding, to_set
from icekit.tune.commits import (
    TOLERANCE,
    TrialRows,
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
    other_modes,
)
from icekit.tune.experiment import Experiment
from icekit.tune.in_force import InForce, in_force
from icekit.units import count, percent, raised, size, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.catalog import Lake

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
# about 93 % of the target, because the open row : group counts uncompressed
# (``ParquetWriter.length``). Two advisory sizes are tried, the second corrected by the result of
# the first.
_ROOM, _TRIES = 0.9, 2


def tune_file_sizes(
    lake: Lake,
    table: str | Identifier,
    options: FileSizesOptions,
    progress: Callable[[str], None],
) -> Answer:
    """Write rows of a typical and of a large commit again to clones, under each distribution mode
    and another advisory size; only reads the table.

    A trial writes rows of at most ``sample_bytes`` at a time. Raises
    :class:`~icekit.errors.ParameterError` for a table without data files.
    """
    trial = Trial.of(
        lake,
        table,
        Budget(options.budget_seconds, options.budget_bytes),
        options.sample_bytes,
        progress,
        if_empty="there is nothing to measure",
    )
    with session_of(lake) as spark:
        commits = Commits.of(spark, trial)
        experiment = Experiment(
            trial=trial,
            variants=dict.fromkeys(commits.settings, commits.scale),
            measures=_MEASURES,
        )
        with experiment.open():
            _measure(experiment, commits)
    return _answer(experiment, commits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The rows of a typical and of a large commit, the session settings under which each variant
    writes them, and what each wrote of the large one.
    """

    facts: TableFacts
    session: Mapping[str, str | None]
    mode: InForce
    target_bytes: int
    sources: Mapping[str, TrialRows | None]
    settings: dict[str, dict[str, str]]
    written: dict[str, Written] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: SparkSession, trial: Trial) -> Commits:
        """What to write of a table, and the modes to try."""
        facts = trial.facts
        session = {
            name: session_value(spark, name)
            for name in (DISTRIBUTION_SESSION, _ADVISORY_SESSION, _ADAPTIVE, _SPARK_ADVISORY)
        }
        mode, target = distribution(facts, session), trial_target(facts, trial.sample_bytes)
        files = metadata_table_sql(spark, trial.lake.sql_name(facts.table), "data_files")
        return cls(
            facts=facts,
            session=session,
            mode=mode,
            target_bytes=target,
            sources={
                FILES: typical_commit(
                    facts, sample_bytes=trial.sample_bytes, tasks=cluster_of(spark).tasks
                ),
                LARGE_FILES: large_commit(
                    facts, files, target_bytes=target, sample_bytes=trial.sample_bytes
                ),
            },
            settings={
                NOW: {},
                **{
                    m: {DISTRIBUTION_SESSION: m} for m in other_modes(facts, effective(facts, mode))
                },
                SIZED: {},
            },
        )

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

    def write(self, name: str, box: Sandbox) -> dict[str, float]:
        """Write both commits under the settings of a variant."""
        figures: dict[str, float] = {}
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


def _measure(experiment: Experiment, commits: Commits) -> None:
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
    counts = {
        m: sum(measured.value(m, measure) or 0 for measure in (FILES, LARGE_FILES))
        for m in (NOW, HASH, RANGE)
        if m in measured.rounds
    }
    if HASH not in counts or NOW not in counts:
        return None
    return HASH if counts[NOW] - counts[HASH] > max(1, _GAIN * counts[HASH]) else None


def next_advisory(
    written: Mapping[str, Written], base: str, target_bytes: int, tried: str | None
) -> int | None:
    """The advisory size with which a full task writes one file of the target size, by the measured
    bytes of shuffle for each byte of file.

    None without a shuffle, or where the last commit has as few files as it can: then no size helps.
    """
    last = written.get(SIZED) if tried else written.get(base)
    if (
        last is None
        or not last.shuffle_bytes
        or not last.size_in_bytes
        or last.largest_partition_bytes < target_bytes
    ):
        return None
    if (
        last.files <= last.fewest * (1 + TOLERANCE)
        and last.size_in_bytes / last.files >= (1 - TOLERANCE) * target_bytes
    ):
        return None
    advisory = round(_ROOM * target_bytes * last.shuffle_bytes / last.size_in_bytes)
    if tried:
        # The result of the first size corrects the ratio.
        advisory = round(
            int(tried)
            * min(2.0, max(0.5, _ROOM * target_bytes / (last.size_in_bytes / last.files)))
        )
    return advisory if not tried or abs(advisory / int(tried) - 1) > TOLERANCE / 3 else None


def is_better_size(written: Mapping[str, Written], base: str) -> bool:
    """Tell whether the other advisory size writes clearly fewer files."""
    before, after = written.get(base), written.get(SIZED)
    return (
        before is not None
        and after is not None
        and before.files - after.files > max(1, _GAIN * after.files)
    )


def _answer(experiment: Experiment, commits: Commits) -> Answer:
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
    advice = "Commit less often, or compact" if is_frequent else "No change"
    if first and not is_frequent:
        advice = "No other change"
    return f"{first}{advice}: no setting that was tried makes fewer or better-sized files."


def _target(facts: TableFacts) -> list[Change]:
    """Raise a target that is far below a read split, before anything that is measured against
    it.
    """
    finding = next((f for f in diagnose(facts) if f.name == "target_too_small"), None)
    if finding is None:
        return []
    why = (
        f"{raised(finding.evidence)}. The rest was measured with the current target: ask again "
        "after this change."
    )
    return [to_set(facts, {TARGET: str(split_bytes(facts))}, why, now=facts.properties.get(TARGET))]


def _mode(commits: Commits, best: str | None, measured: Measurements) -> list[Change]:
    facts, mode = commits.facts, commits.mode
    now = effective(facts, mode)
    files = {
        m: measured.value(m, FILES) or measured.value(m, LARGE_FILES)
        for m in (NOW, NONE, HASH, RANGE)
        if m in measured.rounds
    }
    tried = ", ".join(
        f"{number:,} under {now if m == NOW else m}"
        for m, number in files.items()
        if number is not None
    )
    why = (
        f"Data files of a commit: {tried}; in force because of {mode.origin}."
        if tried
        else f"Not tried; in force because of {mode.origin}."
    )
    if best is None:
        return [Change(DISTRIBUTION, now, now, why)]
    effect = (
        "rows are shuffled once before they are written, which takes time and adds latency to a "
        "stream"
    )
    changes = (
        [to_set(facts, {DISTRIBUTION: best}, why, now=now, side_effect=effect)]
        if facts.properties.get(DISTRIBUTION) != best
        else []
    )
    return [*changes, *overriding(mode)]


def _advisory(commits: Commits, measured: Measurements, base: str) -> list[Change]:
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


def _adaptive(session: Mapping[str, str | None]) -> list[Change]:
    if (session[_ADAPTIVE] or "true").lower() == "true":
        return []
    why = (
        "Without adaptive execution the advisory size has no effect: each shuffle has "
        "spark.sql.shuffle.partitions tasks."
    )
    return [
        Change(
            _ADAPTIVE,
            "false",
            "true",
            why,
            set_session(_ADAPTIVE, "true"),
            set_session(_ADAPTIVE, "false"),
        )
    ]


def _interval(facts: TableFacts) -> list[Change]:
    """Commit less often where a commit adds too little to a partition for any setting to make a
    file of the target size.
    """
    rhythm = append_rhythm(
        [c for c in facts.history.commits if c.added_data_files and c.added_bytes]
    )
    if rhythm is None or not 0 < 2 * rhythm.bytes_per_partition <= min_file_size(
        facts.target_bytes
    ):
        return []
    largest = max((g.size_in_bytes for g in facts.of_kind(Kind.DATA)), default=0)
    each = (
        f"A commit adds {size(rhythm.bytes_per_partition)} to a partition, so no setting makes a "
        f"file of {size(facts.target_bytes)}"
    )
    if largest < facts.target_bytes and not facts.default_spec.is_unpartitioned:
        why = (
            f"{each}, and the largest partition has only {size(largest)}: use a coarser partition "
            "transform (icekit tune layout)."
        )
    else:
        interval = span(
            rhythm.seconds * 1000 * min_file_size(facts.target_bytes) / rhythm.bytes_per_partition
        )
        why = (
            f"{each}. One commit every {interval} instead of every {span(rhythm.seconds * 1000)} "
            "would. Commit less often, or compact (icekit compact)."
        )
    return [Change(COMMIT_FREQUENCY, "as it is", "lower", why)]


def _settings(commits: Commits) -> Grid:
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


def _notes(commits: Commits, advised: str) -> Iterator[str]:
    facts, target = commits.facts, commits.target_bytes
    yield (
        f"The table has {count(facts.data.file_count, 'data file')} of "
        f"{size(facts.data.mean_bytes or 0)} on average; the target is {size(facts.target_bytes)}."
    )
    for source in filter(None, commits.sources.values()):
        yield f"Written again: {source.described}."
    last = commits.written.get(advised)
    if last is not None and last.tasks:
        yield (
            f"{count(last.tasks, 'task')} wrote {count(last.files, 'file')} in "
            f"{count(last.partitions, 'partition')}: a file never spans partitions."
        )
    if last is not None and last.spilled_bytes:
        yield (
            f"Sorting spilled {size(last.spilled_bytes)} to disk: give tasks more memory, or "
            "executors fewer cores."
        )
    if last is not None and last.largest_partition_bytes < target:
        share = percent(last.largest_partition_bytes / target)
        yield (
            f"No partition of a large commit gets more than {size(last.largest_partition_bytes)}, "
            f"{share} of the target."
        )
    if target < facts.target_bytes:
        yield (
            f"Tried with a target of {size(target)}, as the sample has too few files of "
            f"{size(facts.target_bytes)}; sizes are scaled."
        )


__all__ = ["tune_file_sizes"]
