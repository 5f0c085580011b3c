"""Tune how a table is written and read: questions by name; settings are measured before they are
advised.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from icekit.errors import require_known
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


def answering(question: str) -> Callable[..., Any]:
    """The function that answers a question; raises :class:`~icekit.errors.ParameterError` for an
    unknown question.
    """
    from icekit.tune import file_sizes, layout, metrics_columns, planning, write_mode

    answers: dict[str, Callable[..., Any]] = {
        "file-sizes": file_sizes.tune_file_sizes,
        "metrics-columns": metrics_columns.tune_metrics_columns,
        "layout": layout.tune_layout,
        "write-mode": write_mode.tune_write_mode,
        "planning": planning.tune_planning,
    }
    require_known(question, QUESTIONS, "question")
    return answers[question]


def tune(lake: Lake, question: str, table: str | Identifier, **options: Any) -> Any:
    """Answer one of :data:`QUESTIONS` about a table; only reads the table.

    The options are those of the function that answers; raises
    :class:`~icekit.errors.ParameterError` for an unknown option.
    """
    answer = answering(question)
    known = [
        name for name, p in inspect.signature(answer).parameters.items() if p.kind is p.KEYWORD_ONLY
    ]
    for name in options:
        require_known(name, known, f"{question} option")
    return answer(lake, table, **options)
