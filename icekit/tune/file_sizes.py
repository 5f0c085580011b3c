"""Answer why files miss their target size: rows of the table are written again under each
distribution mode and another advisory partition size.

Source: ``SparkWriteConf`` of Iceberg 1.12. ``hash`` without a partitioning and ``range`` without a
partitioning or an order become ``none`` for appends.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from icekit.common.commands.tune import FileSizesOptions
from icekit.common.units import capitalized, size, span
from icekit.common.view import BYTES, COUNT, SECONDS
from icekit.engine.cluster import cluster_of
from icekit.engine.metadata_tables import metadata_table_sql
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.writes import append_rhythm, row_writing_commits
from icekit.health.facts.model import TableFacts
from icekit.health.facts.rollup import min_file_size, split_bytes
from icekit.iceberg.metadata import TARGET, distribution_modes
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import (
    Answer,
    Change,
    Measure,
    Measurements,
    SettingInForce,
    property_and_session_changes,
    property_change,
    setting_in_force,
)
from icekit.tune.commits import (
    TOLERANCE,
    CommittedFiles,
    large_commit_rows,
    trial_target_bytes,
    typical_commit_rows,
    write_trial_rows,
)
from icekit.tune.experiment import Experiment, Figures, set_target_size

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
    commit_trial = CommitTrial(trial)
    set_up_variant = partial(
        set_target_size, facts=trial.facts, target_bytes=commit_trial.target_bytes
    )
    variants = dict.fromkeys(commit_trial.settings_by_variant, set_up_variant)
    experiment = Experiment(trial=trial, variants=variants, measures=_MEASURES)
    with experiment.open():
        _measure_variants(experiment, commit_trial)
    return _file_sizes_answer(experiment, commit_trial)


class CommitTrial:
    """The rows of a typical and of a large commit, the session settings under which each variant
    writes them, and what each wrote of the large one.
    """

    def __init__(self, trial: Trial) -> None:
        self.facts = trial.facts
        spark = trial.lake.spark
        append_distribution = next(d for d in self.facts.distribution if d.operation == "append")
        default_mode_setting = SettingInForce(
            DISTRIBUTION, append_distribution.mode, append_distribution.origin
        )
        self.mode_setting = setting_in_force(
            spark, self.facts, _DISTRIBUTION_SESSION, DISTRIBUTION, default_mode_setting
        )
        default_advisory_setting = SettingInForce(
            ADVISORY, None, "Iceberg's estimate from the codecs"
        )
        self.advisory_setting = setting_in_force(
            spark, self.facts, _ADVISORY_SESSION, ADVISORY, default_advisory_setting
        )
        self.target_bytes = trial_target_bytes(self.facts, trial.sample_bytes)
        data_files_sql = metadata_table_sql(
            spark, trial.lake.sql_name(self.facts.table), "data_files"
        )
        sample_bytes = trial.sample_bytes
        self.rows_by_measure = {
            FILES: typical_commit_rows(
                self.facts, sample_bytes=sample_bytes, task_count=cluster_of(spark).cores
            ),
            LARGE_FILES: large_commit_rows(
                self.facts,
                data_files_sql,
                target_bytes=self.target_bytes,
                sample_bytes=sample_bytes,
            ),
        }
        is_partitioned = not self.facts.default_spec.is_unpartitioned
        self.mode_now = distribution_modes(
            {DISTRIBUTION: self.mode_setting.value or ""},
            is_partitioned=is_partitioned,
            is_sorted=bool(self.facts.sort_order),
        )[0].mode
        self.settings_by_variant: dict[str, dict[str, str]] = {NOW: {}, SIZED: {}}
        if self.mode_now != HASH and is_partitioned:
            self.settings_by_variant[HASH] = {_DISTRIBUTION_SESSION: HASH}
        self.large_commits_by_variant: dict[str, CommittedFiles] = {}

    def write_commits(self, variant: str, box: Sandbox) -> Figures:
        """Write both commits under the settings of a variant."""
        figures: Figures = {}
        for files_measure, mean_measure in ((FILES, MEAN), (LARGE_FILES, LARGE_MEAN)):
            trial_rows = self.rows_by_measure[files_measure]
            if trial_rows is None:
                continue
            committed_files = write_trial_rows(box, trial_rows, self.settings_by_variant[variant])
            if not committed_files.file_count:
                continue
            figures |= {
                files_measure: committed_files.file_count,
                mean_measure: committed_files.size_in_bytes / committed_files.file_count,
            }
            if files_measure == LARGE_FILES:
                figures |= {
                    SHUFFLED: committed_files.shuffle_bytes,
                    TIME: committed_files.write_seconds,
                }
                self.large_commits_by_variant[variant] = committed_files
        return figures


def _measure_variants(experiment: Experiment, commit_trial: CommitTrial) -> None:
    """Write under each mode, then with another advisory size under the better one."""
    mode_variants = [variant for variant in commit_trial.settings_by_variant if variant != SIZED]
    experiment.measure(
        "commits under each distribution mode",
        commit_trial.write_commits,
        only_variants=mode_variants,
    )
    base_variant = better_mode(experiment.measurements) or NOW
    for _ in range(_TRIES):
        tried_advisory_size = commit_trial.settings_by_variant[SIZED].get(_ADVISORY_SESSION)
        advisory_bytes = next_advisory_bytes(
            commit_trial.large_commits_by_variant,
            base_variant,
            commit_trial.target_bytes,
            tried_advisory_size,
        )
        if advisory_bytes is None:
            break
        commit_trial.settings_by_variant[SIZED] = {
            **commit_trial.settings_by_variant[base_variant],
            _ADVISORY_SESSION: str(advisory_bytes),
        }
        experiment.measurements.values_by_variant.pop(SIZED, None)
        experiment.measure(
            f"commits with an advisory size of {size(advisory_bytes)}",
            commit_trial.write_commits,
            only_variants=[SIZED],
        )


def better_mode(measurements: Measurements) -> str | None:
    """Hash where it writes clearly fewer files than the mode in force; None where that mode stays.
    A shuffle is only worth what it saves.
    """
    if NOW not in measurements.values_by_variant or HASH not in measurements.values_by_variant:
        return None
    file_count_now = sum(
        measurements.value(NOW, files_measure) or 0 for files_measure in (FILES, LARGE_FILES)
    )
    hash_file_count = sum(
        measurements.value(HASH, files_measure) or 0 for files_measure in (FILES, LARGE_FILES)
    )
    return HASH if _are_clearly_fewer(file_count_now, hash_file_count) else None


def _are_clearly_fewer(file_count_before: float, file_count_after: float) -> bool:
    return file_count_before - file_count_after > max(1, _GAIN * file_count_after)


def next_advisory_bytes(
    large_commits_by_variant: Mapping[str, CommittedFiles],
    base_variant: str,
    target_bytes: int,
    tried_advisory_size: str | None,
) -> int | None:
    """The advisory size with which a full task writes one file of the target size, by the measured
    bytes of shuffle for each byte of file.

    None without a shuffle, or where the files of the last commit reach the target: then no size
    helps.
    """
    last_committed_files = large_commits_by_variant.get(
        SIZED if tried_advisory_size else base_variant
    )
    if (
        last_committed_files is None
        or not last_committed_files.shuffle_bytes
        or last_committed_files.largest_partition_bytes < target_bytes
    ):
        return None
    mean_file_bytes = last_committed_files.size_in_bytes / last_committed_files.file_count
    aimed_file_bytes = _ROOM * target_bytes
    if mean_file_bytes >= (1 - TOLERANCE) * target_bytes:
        return None
    if not tried_advisory_size:
        return round(
            aimed_file_bytes
            * last_committed_files.shuffle_bytes
            / last_committed_files.size_in_bytes
        )
    # The result of the first size corrects the ratio.
    correction_factor = min(2.0, max(0.5, aimed_file_bytes / mean_file_bytes))
    return (
        round(int(tried_advisory_size) * correction_factor)
        if abs(correction_factor - 1) > TOLERANCE / 3
        else None
    )


def _file_sizes_answer(experiment: Experiment, commit_trial: CommitTrial) -> Answer:
    measurements = experiment.measurements
    facts = commit_trial.facts
    best_mode = better_mode(measurements)
    large_file_counts = measurements.figure_pair(LARGE_FILES, best_mode or NOW, SIZED)
    is_advisory_size_better = large_file_counts is not None and _are_clearly_fewer(
        *large_file_counts
    )
    advised_variant = SIZED if is_advisory_size_better else best_mode
    target_changes = list(_target_changes(facts))
    changes = [
        *_mode_changes(commit_trial, best_mode, measurements),
        *(
            _advisory_changes(commit_trial, measurements.gain_text(best_mode or NOW, SIZED))
            if is_advisory_size_better
            else ()
        ),
        *_commit_frequency_changes(facts),
    ]
    target_sentences = [
        f"First set {TARGET} to {size(split_bytes(facts))}." for _ in target_changes
    ]
    return experiment.answer(
        "file-sizes",
        " ".join(
            [
                *target_sentences,
                _file_sizes_verdict(changes, measurements.gain_text(NOW, advised_variant)),
            ]
        ),
        [*target_changes, *changes],
        advised=advised_variant,
        notes=_file_sizes_notes(commit_trial),
    )


def _file_sizes_verdict(changes: list[Change], gain_text: str) -> str:
    step_texts = [
        f"set {c.setting} to {c.proposed or 'its default'}"
        if c.sql
        else "commit less often, or compact"
        for c in changes
        if c.is_change
    ]
    outcome_clause = gain_text or "; no setting that was tried makes fewer or better-sized files"
    return f"{capitalized(' and '.join(step_texts) or 'no change')}{outcome_clause}."


def _target_changes(facts: TableFacts) -> Iterator[Change]:
    """Raise a target that is far below a read split, before anything that is measured against
    it.
    """
    for finding in diagnose(facts):
        if finding.name == "target_too_small":
            why = (
                f"{capitalized(finding.evidence)}. The rest was measured with the current target: "
                "ask again after this change."
            )
            target_properties = {TARGET: str(split_bytes(facts))}
            yield property_change(facts, target_properties, why)


def _mode_changes(
    commit_trial: CommitTrial, best_mode: str | None, measurements: Measurements
) -> list[Change]:
    facts = commit_trial.facts
    mode_now = commit_trial.mode_now
    why = (
        f"It is {mode_now} because of "
        f"{commit_trial.mode_setting.origin}{measurements.gain_text(NOW, best_mode)}."
    )
    if best_mode is None:
        return [Change(DISTRIBUTION, mode_now, mode_now, why)]
    side_effect = "rows are shuffled once before they are written, which adds latency to a stream"
    properties = {DISTRIBUTION: best_mode}
    return property_and_session_changes(
        facts, commit_trial.mode_setting, properties, why, now=mode_now, side_effect=side_effect
    )


def _advisory_changes(commit_trial: CommitTrial, gain_text: str) -> list[Change]:
    """Set the advisory size that was tried, scaled from the target of the trial to the table's."""
    facts = commit_trial.facts
    tried_advisory_bytes = int(commit_trial.settings_by_variant[SIZED][_ADVISORY_SESSION])
    advisory_value = str(
        round(tried_advisory_bytes * facts.target_bytes / commit_trial.target_bytes)
    )
    why = f"An advisory size of {size(int(advisory_value))} was tried{gain_text}."
    side_effect = "a task sorts as much as this in its memory, or spills"
    return property_and_session_changes(
        facts,
        commit_trial.advisory_setting,
        {ADVISORY: advisory_value},
        why,
        side_effect=side_effect,
    )


def _commit_frequency_changes(facts: TableFacts) -> Iterator[Change]:
    """Commit less often where a commit adds too little to a partition for any setting to make a
    file of the target size.
    """
    commit_rhythm = append_rhythm(row_writing_commits(facts.history.commits))
    min_file_bytes = min_file_size(facts.target_bytes)
    if commit_rhythm is None or not 0 < 2 * commit_rhythm.median_partition_bytes <= min_file_bytes:
        return
    mean_interval_ms = commit_rhythm.interval_seconds * 1000
    less_often_clause = ""
    if (needed_interval_ms := commit_rhythm.interval_ms_for_file_size(min_file_bytes)) is not None:
        less_often_clause = (
            f"; one commit every {span(needed_interval_ms)} instead of every "
            f"{span(mean_interval_ms)} (mean) would. Commit less often,"
        )
    why = (
        f"A commit adds {size(commit_rhythm.median_partition_bytes)} to a partition (median), so no "
        f"setting makes a file of {size(facts.target_bytes)}{less_often_clause or '. Therefore'} "
        "compact (icekit compact), or use coarser partitions (icekit tune layout)."
    )
    yield Change(COMMIT_FREQUENCY, "as it is", "lower", why)


def _file_sizes_notes(commit_trial: CommitTrial) -> Iterator[str]:
    facts = commit_trial.facts
    trial_target_bytes = commit_trial.target_bytes
    advisory_setting = commit_trial.advisory_setting
    yield (
        f"The advisory partition size is {advisory_setting.value or 'not set'} "
        f"({advisory_setting.origin})."
    )
    for trial_rows in filter(None, commit_trial.rows_by_measure.values()):
        yield f"Written again: {trial_rows.description}."
    if trial_target_bytes < facts.target_bytes:
        yield (
            f"Tried with a target of {size(trial_target_bytes)}, as the sample has too few files "
            f"of {size(facts.target_bytes)}; sizes are scaled."
        )
