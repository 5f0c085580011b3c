"""Tune how a table is written and read: questions by name; settings are measured before they are
advised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common.commands.shared import OutputOptions, TableOptions
from icekit.common.commands.tune import QUESTION_OPTIONS, TuneOptions
from icekit.common.errors import ParameterError, require_known, require_number
from icekit.common.sql import Identifier

if TYPE_CHECKING:
    from icekit.engine.lake import Lake
    from icekit.tune.answer import Answer

#: The questions by name.
QUESTIONS = {
    "file-sizes": "why files miss their target size, and which setting fixes it",
    "metrics-columns": "which column statistics are worth their cost",
    "layout": "which partitioning, sort order or bloom filters your queries need",
    "write-mode": (
        "whether merge-on-read or copy-on-write is cheaper, tried on clones with your own statement"
    ),
    "planning": (
        "why planning a scan takes long: manifests, where it is planned, object store paths"
    ),
}
#: What a question declares for its command, but takes as an argument of its own or not at all.
_NOT_OPTIONS = {*TableOptions.declarations, *OutputOptions.declarations, "statement_file"}


def tune(
    lake: Lake,
    question: str,
    table: str | Identifier,
    *,
    filters: Sequence[str] | None = None,
    event_log: str | None = None,
    reads_per_day: float | None = None,
    sample_bytes: str | None = None,
    repeats: int | None = None,
    statement: str | None = None,
    operation: str | None = None,
    share: float | None = None,
    file_share: float | None = None,
    reads_per_commit: float | None = None,
    read_filter: str | None = None,
    compact_every: int | None = None,
    commits: int | None = None,
    budget_seconds: float | None = None,
    budget_bytes: str | None = None,
    progress: Callable[[str], None] = print,
) -> Answer:
    """Answer one of :data:`QUESTIONS` about a table; only reads the table.

    Each question takes those options that its class in :mod:`icekit.common.commands.tune` declares,
    and None is the default there. Raises :class:`~icekit.common.errors.ParameterError` for an
    unknown question, and for an option of another question.
    """
    require_known(question, QUESTIONS, "question")
    question_options = _read_options(
        question,
        {
            "filters": filters,
            "event_log": event_log,
            "reads_per_day": reads_per_day,
            "sample_bytes": sample_bytes,
            "repeats": repeats,
            "statement": statement,
            "operation": operation,
            "share": share,
            "file_share": file_share,
            "reads_per_commit": reads_per_commit,
            "read_filter": read_filter,
            "compact_every": compact_every,
            "commits": commits,
            "budget_seconds": budget_seconds,
            "budget_bytes": budget_bytes,
        },
    )
    return _run_trial(lake, question, table, question_options, progress)


def _read_options(question: str, arguments: Mapping[str, Any]) -> TuneOptions:
    """The options of a question; arguments that are None take their defaults."""
    options_class = QUESTION_OPTIONS[question]
    option_names = [
        argument_name
        for argument_name in options_class.declarations
        if argument_name not in _NOT_OPTIONS
    ]
    stated_options = {
        argument_name: argument
        for argument_name, argument in arguments.items()
        if argument is not None
    }
    for option_name in stated_options:
        require_known(option_name, option_names, f"{question} option")
    question_options = options_class.of(stated_options)
    option_values = vars(question_options)
    for option_name in ("commits", "repeats"):
        if option_values.get(option_name, 1) < 1:
            raise ParameterError(
                f"{option_name} is {option_values[option_name]}, but must be 1 or more."
            )
    for option_name in ("reads_per_day", "reads_per_commit", "compact_every"):
        require_number(option_name, option_values.get(option_name))
    return question_options


def _run_trial(
    lake: Lake,
    question: str,
    table: str | Identifier,
    question_options: TuneOptions,
    progress: Callable[[str], None],
) -> Answer:
    from icekit.engine.lake import session_in_catalog
    from icekit.sandbox.trial import Budget, Trial
    from icekit.tune import file_sizes, layout, metrics_columns, planning, write_mode
    from icekit.tune.answer import Answer

    answers_by_question: Mapping[str, Callable[..., Answer]] = {
        "file-sizes": file_sizes.tune_file_sizes,
        "metrics-columns": metrics_columns.tune_metrics_columns,
        "layout": layout.tune_layout,
        "write-mode": write_mode.tune_write_mode,
        "planning": planning.tune_planning,
    }
    trial = Trial.start(
        lake,
        table,
        Budget(question_options.budget_seconds, question_options.budget_bytes),
        vars(question_options).get("sample_bytes") or "1 GB",
        progress,
    )
    if not trial.facts.data.file_count:
        return Answer(
            question=question,
            facts=trial.facts,
            verdict="No change: the table has no data files yet. Ask again when it has some.",
        )
    with session_in_catalog(lake):
        return answers_by_question[question](trial, question_options)
