"""Tune how a table is written and read: questions by name; settings are measured before they are
advised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from icekit.common.commands.shared import OutputOptions, TableOptions
from icekit.common.commands.tune import QUESTIONS as QUESTION_OPTIONS
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
    "write-mode": "whether merge-on-read or copy-on-write is cheaper, tried on clones with your own statement",
    "planning": "why planning a scan takes long: manifests, where it is planned, object store paths",
}
_NOT_OPTIONS = {*TableOptions.declared, *OutputOptions.declared, "statement_file"}


def tune(
    lake: Lake,
    question: str,
    table: str | Identifier,
    *,
    progress: Callable[[str], None] = print,
    **options: Any,
) -> Answer:
    """Answer one of :data:`QUESTIONS` about a table; only reads the table.

    The options are those of the question in :mod:`icekit.common.commands.tune`; raises
    :class:`~icekit.common.errors.ParameterError` for an unknown question or option.
    """
    from icekit.engine.lake import session_in_catalog
    from icekit.sandbox.trial import Budget, Trial
    from icekit.tune import file_sizes, layout, metrics_columns, planning, write_mode
    from icekit.tune.answer import Answer

    answer_functions: Mapping[str, Callable[..., Answer]] = {
        "file-sizes": file_sizes.tune_file_sizes,
        "metrics-columns": metrics_columns.tune_metrics_columns,
        "layout": layout.tune_layout,
        "write-mode": write_mode.tune_write_mode,
        "planning": planning.tune_planning,
    }
    require_known(question, QUESTIONS, "question")
    options_class = QUESTION_OPTIONS[question]
    option_names = [name for name in options_class.declared if name not in _NOT_OPTIONS]
    for name in options:
        require_known(name, option_names, f"{question} option")
    question_options = options_class.of(options)
    option_values = vars(question_options)
    for name in ("commits", "repeats"):
        if option_values.get(name, 1) < 1:
            raise ParameterError(f"{name} is {option_values[name]}, but must be 1 or more.")
    for name in ("reads_per_day", "reads_per_commit", "compact_every"):
        require_number(name, option_values.get(name))
    trial = Trial.start(
        lake,
        table,
        Budget(question_options.budget_seconds, question_options.budget_bytes),
        option_values.get("sample_bytes") or "1 GB",
        progress,
    )
    if not trial.facts.data.file_count:
        return Answer(
            question=question,
            facts=trial.facts,
            verdict="No change: the table has no data files yet. Ask again when it has some.",
        )
    with session_in_catalog(lake):
        return answer_functions[question](trial, question_options)
