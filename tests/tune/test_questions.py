"""A question that is not there and an option that it does not take are refused with the nearest
ones.
"""

import pytest

import icekit
from icekit.errors import ParameterError
from icekit.options import commands
from icekit.tune import QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered_within_a_budget(question: str) -> None:
    assert {"budget_seconds", "budget_bytes"} <= commands.QUESTIONS[question].declared.keys()


def test_a_wrong_question_and_a_wrong_option_are_named() -> None:
    lake = icekit.connect()

    with pytest.raises(ParameterError, match="file-sizes"):
        lake.tune("file-size", "lab.empty")
    with pytest.raises(ParameterError, match="no planning option 'filter'; did you mean filters"):
        lake.tune("planning", "lab.empty", filter=["a = 1"])
    for name in ("output", "statement_file"):
        with pytest.raises(ParameterError, match=f"no write-mode option '{name}'"):
            lake.tune("write-mode", "lab.empty", **{name: "x"})
