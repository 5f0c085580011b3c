"""Tune how a table is written and read: questions by name; settings are measured before they are
advised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from icekit.errors import require_known
from icekit.options import commands
from icekit.sql import Identifier

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: The questions by name.
QUESTIONS = {
    "file-sizes": "why files miss their target size: advisory partition size and distribution",
    "metrics-columns": "which column statistics are worth their cost",
    "layout": "partitioning, sort order and bloom filters for the filters of your queries",
    "write-mode": "merge-on-read or copy-on-write, tried on clones with your own statement",
    "planning": "where scans are planned, manifests, object store paths",
}
_NOT_OPTIONS = {*commands.OfTable.settings(), *commands.Output.settings(), "statement_file"}


def tune(
    lake: Lake,
    question: str,
    table: str | Identifier,
    *,
    progress: Callable[[str], None] = print,
    **options: Any,
) -> Any:
    """Answer one of :data:`QUESTIONS` about a table; only reads the table.

    The options are those of the question in :mod:`icekit.options.commands`; raises
    :class:`~icekit.errors.ParameterError` for an unknown question or option.
    """
    from icekit.tune import file_sizes, layout, metrics_columns, planning, write_mode

    answers: Mapping[str, Callable[..., Any]] = {
        "file-sizes": file_sizes.tune_file_sizes,
        "metrics-columns": metrics_columns.tune_metrics_columns,
        "layout": layout.tune_layout,
        "write-mode": write_mode.tune_write_mode,
        "planning": planning.tune_planning,
    }
    require_known(question, QUESTIONS, "question")
    kind = commands.QUESTIONS[question]
    known = [name for name in kind.settings() if name not in _NOT_OPTIONS]
    for name in options:
        require_known(name, known, f"{question} option")
    return answers[question](lake, table, kind.of(options), progress)
