"""Answer whether a table should be written copy-on-write or merge-on-read: its own statements,
tried on clones in every mode.

Over a cycle of N commits between two compactions, with R reads after each, a mode costs for each
commit

    write  +  R · scan  +  R · (mean cost of the deletes that have piled up)  +  compaction / N

seconds of the unit that was measured (:mod:`icekit.engine.effort`). The deletes cost a scan as much
as the delete files that it opens: position delete files pile up, and a data file has at most one
deletion vector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from icekit.common.commands.tune import WriteModeOptions
from icekit.common.errors import ParameterError, StatementRefused
from icekit.common.sql import call_sql, display_name, identifier, set_properties_sql
from icekit.common.units import capitalized, elapsed, percent, plain_number
from icekit.common.view import BYTES, NUMBER, SECONDS
from icekit.engine.effort import CPU
from icekit.engine.errors import engine_errors, reason
from icekit.engine.planner import query_execution
from icekit.engine.predicate import read_predicate
from icekit.health.facts.head import head
from icekit.health.facts.model import TableFacts
from icekit.rows.deletes.convert import convert
from icekit.sandbox.trial import Sandbox, Trial
from icekit.tune.answer import Answer, Change, Measure, Measurements, median, property_change
from icekit.tune.event_log import reads_per_day as read_from_log
from icekit.tune.experiment import Experiment, Figures, set_up_nothing
from icekit.tune.statement import Statement, parse_statement
from icekit.tune.write_cost import (
    TOTAL,
    ModeCosts,
    WriteMode,
    break_even_of_modes,
    commit_and_read_seconds,
)
from icekit.tune.write_history import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    OPERATIONS,
    PastCommit,
    SqlForTable,
    commits_between_compactions,
    past_commits,
    shape_of_history,
    synthetic_statements,
    writes_per_day,
)

COMMIT = "cost of a commit"
SCAN = "cost of a scan"
COMPACTION = "cost of a compaction"
OPENS = "delete files that a scan opens"
WRITTEN = "bytes that a commit writes"
FILES = "files that a commit writes"
_MEASURES = (
    Measure(TOTAL, SECONDS),
    Measure(COMMIT, SECONDS, combine_repeats=median),
    Measure(SCAN, SECONDS),
    Measure(COMPACTION, SECONDS),
    Measure(OPENS, NUMBER),
    Measure(WRITTEN, BYTES, combine_repeats=median),
    Measure(FILES, NUMBER, combine_repeats=median),
)
#: Compact only files with deletes: the rest costs the same in every mode.
_REWRITE = {"delete-file-threshold": "1", "min-file-size-bytes": "0", "min-input-files": "1000000"}
#: Choices: the share of the cost that a change must save; what a scan of the deletes must stand
# out by from what repeats differ by.
_MARGIN = 0.1
_STANDS_OUT = 4.0
#: A clone that is not measured: the first statements and scans of a session take longer.
_WARM_UP = "warm-up"
#: What an upgrade to a format version means.
_UPGRADES = {
    2: "merge-on-read needs format version 2: the upgrade cannot be undone, and all readers must "
    "support deletes",
    3: "the upgrade cannot be undone, and every reader and writer of the table must support "
    "version 3 (Spark with Iceberg 1.8 or newer for deletion vectors; check Flink, Trino, Athena, "
    "Snowflake and pyiceberg)",
}


def costs_of_write_modes(
    measurements: Measurements, modes: Sequence[WriteMode], commit_count: int, data_file_count: int
) -> Iterator[ModeCosts]:
    """The costs of the modes that were measured completely; reads of copy-on-write, which leaves no
    deletes, are what the others are held against.
    """
    reference_scan_seconds = measurements.value(COPY_ON_WRITE, SCAN)
    for write_mode in modes:
        variant = write_mode.name
        write_seconds = measurements.value(variant, COMMIT)
        scan_seconds = measurements.value(variant, SCAN)
        compaction_seconds = measurements.value(variant, COMPACTION)
        if write_mode.is_copy_on_write:
            compaction_seconds = 0.0
        if (
            write_seconds is None
            or scan_seconds is None
            or reference_scan_seconds is None
            or compaction_seconds is None
        ):
            continue
        opened_delete_file_count = measurements.value(variant, OPENS) or 0.0
        delete_files_per_data_file = opened_delete_file_count / max(data_file_count, 1)
        scan_error_seconds = measurements.spread(variant, SCAN) + measurements.spread(
            COPY_ON_WRITE, SCAN
        )
        yield ModeCosts(
            mode=write_mode,
            write_seconds=write_seconds,
            scan_seconds=reference_scan_seconds,
            data_file_count=data_file_count,
            seconds_per_delete_file=max(0.0, scan_seconds - reference_scan_seconds)
            / opened_delete_file_count
            if opened_delete_file_count
            else 0.0,
            # A data file has at most one vector, so those of several commits overlap.
            touched_share_per_commit=delete_files_per_data_file / commit_count
            if write_mode.delete_granularity
            else 1 - (1 - min(delete_files_per_data_file, 1.0)) ** (1 / commit_count),
            compaction_seconds=compaction_seconds,
            trial_commit_count=commit_count,
            write_error_seconds=measurements.spread(variant, COMMIT),
            error_seconds_per_delete_file=scan_error_seconds / opened_delete_file_count
            if opened_delete_file_count
            else 0.0,
        )


def do_deletes_stand_out(measurements: Measurements) -> bool:
    """Tell whether what deletes add to a scan stands out from what repeats of it differ by."""
    reference_scan_seconds = measurements.value(COPY_ON_WRITE, SCAN)
    reference_error_seconds = measurements.spread(COPY_ON_WRITE, SCAN)
    return all(
        (measurements.value(variant, SCAN) or 0.0) - (reference_scan_seconds or 0.0)
        > _STANDS_OUT * (measurements.spread(variant, SCAN) + reference_error_seconds)
        for variant in measurements.values_by_variant
        if variant != COPY_ON_WRITE
    )


def current_write_mode(facts: TableFacts, operation: str) -> WriteMode:
    """The current write mode of an operation."""
    mode_name = facts.setting(f"write.{operation}.mode") or COPY_ON_WRITE
    format_version = max(facts.format_version, 2)
    if mode_name == COPY_ON_WRITE or format_version >= 3:
        return WriteMode(mode_name, format_version)
    # The property's default says partition, but Spark writes per file unless it is set
    # (SparkWriteConf).
    return WriteMode(
        mode_name, format_version, facts.properties.get("write.delete.granularity") or "file"
    )


#: The changes, the verdict, and the variant that is advised.
Advice = tuple[tuple[Change, ...], str, str | None]


def write_mode_advice(
    facts: TableFacts,
    costs_of_modes: Sequence[ModeCosts],
    operation: str,
    reads_per_commit: float | None,
    commits_per_compaction: int | None,
) -> Advice:
    """What to do at these reads per commit (None: not known) and commits between compactions (None:
    the cheapest number).
    """
    mode_property = f"write.{operation}.mode"
    write_mode_now = current_write_mode(facts, operation)

    def keep_mode(verdict: str) -> Advice:
        return (Change(mode_property, write_mode_now.mode, write_mode_now.mode, ""),), verdict, None

    same_version_costs = [
        c for c in costs_of_modes if c.mode.format_version == write_mode_now.format_version
    ]
    break_even_point = break_even_of_modes(same_version_costs, commits_per_compaction)
    costs_now = next((c for c in same_version_costs if c.mode == write_mode_now), None)
    if break_even_point is None or costs_now is None:
        return keep_mode("No advice: too little was measured to compare the modes.")
    if reads_per_commit is None:
        return keep_mode(
            "No advice: the number of reads of the table is not known. "
            f"{capitalized(str(break_even_point))}. Give reads_per_day."
        )
    seconds_by_costs = {
        c: commit_and_read_seconds(c, reads_per_commit, commits_per_compaction)
        for c in costs_of_modes
    }
    best_costs = min(same_version_costs, key=seconds_by_costs.__getitem__)
    saved_cost_share = (
        1 - seconds_by_costs[best_costs] / seconds_by_costs[costs_now]
        if seconds_by_costs[costs_now]
        else 0.0
    )
    at_reads_text = f"at {plain_number(reads_per_commit)} reads per commit"
    if best_costs.mode.mode != write_mode_now.mode and break_even_point.is_too_close_to_call(
        reads_per_commit
    ):
        changes, verdict, advised_variant = keep_mode(
            f"Too close to call {at_reads_text}: {break_even_point}."
        )
    elif best_costs is costs_now or saved_cost_share < _MARGIN:
        changes, verdict, advised_variant = keep_mode(
            f"No change: no other mode costs clearly less than {write_mode_now.name} "
            f"{at_reads_text}; {break_even_point}."
        )
    else:
        costs_clause = (
            f"a commit costs {elapsed(seconds_by_costs[costs_now])} now and "
            f"{elapsed(seconds_by_costs[best_costs])} with {best_costs.mode.name}, {at_reads_text}"
        )
        why = f"It saves {percent(saved_cost_share)}: {costs_clause}; {break_even_point}."
        changes = (_mode_change(facts, operation, best_costs.mode, why, write_mode_now.mode),)
        verdict = f"Set {mode_property} to {best_costs.mode.mode}: {costs_clause}."
        advised_variant = best_costs.mode.name
    newer_version_costs = [
        c for c in costs_of_modes if c.mode.format_version > write_mode_now.format_version
    ]
    upgrade_costs = min(newer_version_costs, key=seconds_by_costs.__getitem__, default=best_costs)
    min_saved_seconds = max(
        best_costs.write_error_seconds + upgrade_costs.write_error_seconds,
        _MARGIN * seconds_by_costs[best_costs],
    )
    if seconds_by_costs[best_costs] - seconds_by_costs[upgrade_costs] <= min_saved_seconds:
        return changes, verdict, advised_variant
    # Only where it saves more than the error, because it cannot be undone.
    upgrade_version = upgrade_costs.mode.format_version
    why = (
        f"A commit costs {elapsed(seconds_by_costs[upgrade_costs])} with "
        f"{upgrade_costs.mode.name}; {_UPGRADES[upgrade_version]}."
    )
    upgrade_change = _mode_change(facts, operation, upgrade_costs.mode, why, write_mode_now.mode)
    verdict += (
        f" Format version {upgrade_version} would cost less, but the upgrade cannot be undone."
    )
    return (*changes, replace(upgrade_change, is_alternative=True)), verdict, advised_variant


def _mode_change(
    facts: TableFacts, operation: str, proposed_mode: WriteMode, why: str, mode_name_now: str
) -> Change:
    """Set the mode, and the format version that it needs."""
    version_property = {}
    side_effect = None
    if proposed_mode.format_version > facts.format_version and not proposed_mode.is_copy_on_write:
        version_property = {"format-version": str(proposed_mode.format_version)}
        side_effect = _UPGRADES[proposed_mode.format_version]
    properties = {**version_property, **proposed_mode.properties(operation)}
    return property_change(facts, properties, why, now=mode_name_now, side_effect=side_effect)


def tune_write_mode(trial: Trial, options: WriteModeOptions) -> Answer:
    """Measure the cost of merge-on-read and copy-on-write for a table, and advise one; zero and
    empty text stand for what the history says.

    ``statement`` is the DELETE, UPDATE or MERGE to try. Without one, icekit tries ``commits``
    synthetic statements of ``operation``, which change a ``share`` of the rows in a ``file_share``
    of the files. Reads per commit are ``reads_per_commit``, or ``reads_per_day`` (stated, or
    counted in a Spark ``event_log``) divided by the commits per day of the history. With
    ``read_filter`` the reads are scans with that condition.
    ``compact_every`` is the number of commits between compactions. With ``sample_bytes`` the trial
    uses copied samples of that size instead of clones.

    Raises :class:`~icekit.common.errors.ParameterError` and
    :class:`~icekit.common.errors.StatementRefused`.
    """
    lake = trial.lake
    facts = trial.facts
    own_statement = _read_own_statement(trial, options) if options.statement else None
    if options.read_filter is not None:
        # Before anything is written for it.
        table_frame = lake.spark.table(identifier(*lake.sql_name(facts.table)))
        read_predicate(lake.spark, table_frame, options.read_filter)
    commit_history = past_commits(head(lake, facts.table).lineage())
    commit_shape = shape_of_history(facts, commit_history, options)
    operation = commit_shape.operation
    tried_statements_text = str(commit_shape)
    commit_count = options.commits
    if own_statement is not None:
        operation = own_statement.kind.lower()
        tried_statements_text = f"your {own_statement.kind}"
        commit_count = 1
    reads_per_commit, reads_source = _reads_per_commit(facts, commit_history, options)
    modes = _modes_to_try(max(facts.format_version, 2))
    experiment = Experiment(
        trial=trial,
        variants={
            _WARM_UP: set_up_nothing,
            **{write_mode.name: partial(set_up_mode, facts, write_mode) for write_mode in modes},
        },
        measures=_MEASURES,
        always_sample=bool(options.sample_bytes),
    )
    with experiment.open():
        # A sample does not have all partitions of the table.
        copy_on_write_sandbox = experiment.sandboxes_by_variant.get(COPY_ON_WRITE)
        sample_facts = (
            copy_on_write_sandbox.observe()
            if copy_on_write_sandbox is not None and copy_on_write_sandbox.is_sample
            else None
        )
        statements_for_tables = (
            [own_statement.sql_for]
            if own_statement
            else synthetic_statements(lake, sample_facts or facts, commit_shape, commit_count)
        )
        _measure_modes(experiment, statements_for_tables, options)
    commits_per_compaction = (
        options.compact_every or round(commits_between_compactions(commit_history) or 0) or None
    )
    costs_of_modes = tuple(
        costs_of_write_modes(experiment.measurements, modes, commit_count, facts.data.file_count)
    )
    if reads_per_commit is not None:
        for mode_costs in costs_of_modes:
            experiment.measurements.add(
                mode_costs.mode.name,
                {
                    TOTAL: commit_and_read_seconds(
                        mode_costs, reads_per_commit, commits_per_compaction
                    )
                },
            )
    changes, verdict, advised_variant = write_mode_advice(
        facts, costs_of_modes, operation, reads_per_commit, commits_per_compaction
    )
    answer_notes = _write_mode_notes(
        experiment, costs_of_modes, reads_per_commit, commits_per_compaction, reads_source
    )
    return experiment.answer(
        "write-mode",
        verdict,
        changes,
        (f"Tried {tried_statements_text}.", *answer_notes),
        now=current_write_mode(facts, operation).name,
        advised=advised_variant,
        has_enough_measurements=bool(costs_of_modes),
    )


def _read_own_statement(trial: Trial, options: WriteModeOptions) -> Statement:
    """Read a person's statement, and refuse one that Spark cannot analyse, or that is for another
    table or branch, before the trial.
    """
    if any(options.only("operation", "share", "file_share").values()):
        raise ParameterError(
            "Your own statement determines the operation and the rows; leave out operation, "
            "share and file_share."
        )
    lake = trial.lake
    statement = parse_statement(lake.spark, options.statement)
    table_name = lake.sql_name(trial.facts.table)
    if tuple(p.casefold() for p in statement.target) != tuple(p.casefold() for p in table_name):
        raise ParameterError(
            f"The statement writes to {display_name(statement.target)}, not to "
            f"{display_name(table_name)}; give that table."
        )
    if statement.branch is not None:
        raise ParameterError(
            f"The statement writes to branch {statement.branch!r}; a trial uses the main branch, "
            "so leave out the branch."
        )
    query_execution(lake.spark, statement.sql, is_planned=False)
    return statement


def _modes_to_try(format_version: int) -> tuple[WriteMode, ...]:
    delete_granularities = ("file", "partition") if format_version < 3 else ()
    merge_on_read_modes = (
        WriteMode(MERGE_ON_READ, 2, delete_granularity)
        for delete_granularity in delete_granularities
    )
    return (
        WriteMode(COPY_ON_WRITE, format_version),
        *merge_on_read_modes,
        WriteMode(MERGE_ON_READ, 3),
    )


def set_up_mode(facts: TableFacts, write_mode: WriteMode, box: Sandbox) -> None:
    """Compact existing deletes away, so that only those of the trial are measured, and write like
    the mode.
    """
    if facts.has_deletes and not box.is_sample:
        with box.budget.cancel_jobs_when_spent(box.lake.spark):
            convert(box.lake.spark, box.name)
        compact(box)
    properties = {
        "format-version": str(write_mode.format_version),
        **write_mode.properties(*OPERATIONS),
    }
    box.set(set_properties_sql(box.name, properties))


def _measure_modes(
    experiment: Experiment, statements_for_tables: Sequence[SqlForTable], options: WriteModeOptions
) -> None:
    """Commit, scan until the deletes stand out, and compact, in every mode in turn; after a warm-up
    on a clone of its own.
    """
    sandboxes_by_variant = experiment.sandboxes_by_variant
    is_own_statement = bool(options.statement)
    warm_up_sandbox = sandboxes_by_variant.pop(_WARM_UP, None)
    if warm_up_sandbox is not None:
        run_commit(warm_up_sandbox, statements_for_tables[0], is_own_statement=is_own_statement)
        warm_up_sandbox.scan(options.read_filter)
    for commit_number, statement_for_table in enumerate(statements_for_tables, 1):

        def commit(
            _: str, box: Sandbox, statement_for_table: SqlForTable = statement_for_table
        ) -> Figures:
            return run_commit(box, statement_for_table, is_own_statement=is_own_statement)

        experiment.measure(f"commit {commit_number} of {len(statements_for_tables)}", commit)
    if sandboxes_by_variant and not any(
        experiment.measurements.value(variant, FILES) for variant in sandboxes_by_variant
    ):
        raise ParameterError(
            "The statement changes no row of what is tried, so there is nothing to compare; give "
            "a statement that changes rows, or file_share=1."
        )
    experiment.measure("the delete files", lambda _, box: {OPENS: box.plan().delete_opens})
    experiment.measure(
        "the scans",
        lambda _, box: {SCAN: box.scan(options.read_filter).cost},
        min_rounds=options.repeats,
        is_settled=do_deletes_stand_out,
    )
    experiment.measure(
        "the compaction",
        lambda variant, box: {} if variant == COPY_ON_WRITE else {COMPACTION: compact(box)},
    )


def run_commit(
    box: Sandbox, statement_for_table: SqlForTable, *, is_own_statement: bool
) -> Figures:
    """Run one statement, which may write the entire table; raises StatementRefused with the
    engine's reason if a person's own one fails.
    """
    try:
        execution = box.run(statement_for_table(box.name), expected_bytes=box.size_in_bytes)
    except engine_errors() as error:
        if not is_own_statement:
            raise
        raise StatementRefused(
            f"Spark could not run the statement on a clone ({reason(error)}); the table was not "
            "changed. Fix the statement and try again; columns that are qualified by the "
            "table's full name need an alias of the table instead."
        ) from error
    written_file_count = execution.summary_total("added-data-files") + execution.summary_total(
        "added-delete-files"
    )
    return {
        COMMIT: execution.cost,
        WRITTEN: execution.summary_total("added-files-size"),
        FILES: written_file_count,
    }


def compact(box: Sandbox) -> float:
    """Rewrite the data files with deletes; returns the cost."""
    sql = call_sql(
        box.lake.name, "rewrite_data_files", table=display_name(box.table), options=_REWRITE
    )
    return box.run(sql, expected_bytes=box.size_in_bytes).cost


def _reads_per_commit(
    facts: TableFacts, commit_history: Sequence[PastCommit], options: WriteModeOptions
) -> tuple[float | None, str]:
    """Reads per row-level commit and their source; None if they are not known."""
    if options.reads_per_commit:
        return options.reads_per_commit, "as stated"
    reads_per_day = options.reads_per_day
    reads_source = "as stated"
    if not reads_per_day and options.event_log:
        reads_per_day = read_from_log(options.event_log, facts.table)
        reads_source = "from the event log"
    if not reads_per_day:
        return None, "not known"
    commits_per_day = writes_per_day(commit_history)
    if not commits_per_day:
        raise ParameterError(
            "The table's history has no row-level commits, so reads per day cannot be converted "
            "to reads per commit; give reads_per_commit instead."
        )
    return (
        reads_per_day / commits_per_day,
        f"{plain_number(reads_per_day)} a day ({reads_source}), for "
        f"{plain_number(commits_per_day)} row-level commits a day",
    )


def _write_mode_notes(
    experiment: Experiment,
    costs_of_modes: Sequence[ModeCosts],
    reads_per_commit: float | None,
    commits_per_compaction: int | None,
    reads_source: str,
) -> Iterator[str]:
    cost_unit = next((box.cost_unit for box in experiment.sandboxes_by_variant.values()), CPU)
    yield f"Costs are in {cost_unit}, without the driver's planning and commits."
    if reads_per_commit is not None:
        yield f"Reads per commit: {plain_number(reads_per_commit)}, {reads_source}."
    compaction_text = commits_per_compaction or "the cheapest number for each mode"
    yield f"Commits between compactions: {compaction_text}."
    for format_version in sorted({c.mode.format_version for c in costs_of_modes}):
        costs_of_version = (
            c
            for c in costs_of_modes
            if c.mode.is_copy_on_write or c.mode.format_version == format_version
        )
        break_even_point = break_even_of_modes(list(costs_of_version), commits_per_compaction)
        if break_even_point is not None:
            yield f"In format version {format_version}, {break_even_point}."
