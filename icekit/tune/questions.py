"""The questions that are asked of a table in one way, by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from icekit.errors import ParameterError, nearest
from icekit.sql import Identifier
from icekit.tune.answer import Answer

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: By name: the function that answers, and what is asked.
QUESTIONS = {
    "file-sizes": ("icekit.tune.file_sizes:tune_file_sizes", "why files miss their target size: advisory partition size and distribution"),
    "metrics-columns": ("icekit.tune.metrics_columns:tune_metrics_columns", "which column statistics earn their keep"),
    "layout": ("icekit.tune.layout:tune_layout", "partitioning, sort order and bloom filters, by what queries filter by"),
    "planning": ("icekit.tune.planning:tune_planning", "where scans are planned, manifests, object store paths, compression"),
}


def answering(question: str) -> Callable[..., Answer]:
    """The function that answers a question; raises :class:`~icekit.errors.ParameterError` for one that is not there."""
    if question not in QUESTIONS:
        raise ParameterError(
            f"There is no question {question!r}{nearest(question, QUESTIONS) or '; there are ' + ', '.join(QUESTIONS) + '.'}"
        )
    module, _, name = QUESTIONS[question][0].partition(":")
    found: Callable[..., Answer] = getattr(importlib.import_module(module), name)
    return found


def tune(lake: Lake, question: str, table: str | Identifier, **options: Any) -> Answer:
    """Answer one of :data:`QUESTIONS` about a table, which is only read.

    The options are those of the function that answers; raises :class:`~icekit.errors.ParameterError` for another.
    """
    answer = answering(question)
    known = [name for name, p in inspect.signature(answer).parameters.items() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ParameterError(f"{question} takes no {name}{nearest(name, known) or '; it takes ' + ', '.join(known) + '.'}")
    return answer(lake, table, **options)
