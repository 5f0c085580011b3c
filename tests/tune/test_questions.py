"""A question that is not there and an option that it does not take are refused with the nearest
ones.
"""

from typing import Any

import pytest

import icekit
from icekit.api import Lake
from icekit.errors import ParameterError
from icekit.options import commands
from icekit.tune import QUESTIONS
from icekit.tune.answer import Answer, Confidence


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


def ask(lake: Lake, question: str, table: str, **options: Any) -> Answer:
    return lake.tune(question, table, progress=lambda _: None, **options)


@pytest.mark.spark
@pytest.mark.lab("healthy_partitioned")
@pytest.mark.parametrize("question", [q for q in QUESTIONS if q != "write-mode"])
def test_a_healthy_table_stays_as_it_is(lake: Lake, question: str) -> None:
    answer = ask(lake, question, "lab.healthy_partitioned")

    assert not answer.is_change
    assert answer.confidence is Confidence.HIGH


@pytest.mark.spark
@pytest.mark.lab("healthy_partitioned")
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_trial_ends_at_its_budget_and_advises_nothing(lake: Lake, question: str) -> None:
    answer = ask(lake, question, "lab.healthy_partitioned", budget_seconds=1e-9)

    assert str(answer.stopped).startswith("the time budget of")
    assert answer.confidence is Confidence.NONE
    assert answer.verdict.startswith("No advice: too little was measured")
    assert not answer.is_change


@pytest.mark.spark
@pytest.mark.lab("empty")
def test_a_table_without_data_has_nothing_to_measure(lake: Lake) -> None:
    for question in QUESTIONS:
        assert ask(lake, question, "lab.empty").confidence is Confidence.NONE
    for name in ("repeats", "commits"):
        with pytest.raises(ParameterError, match=f"{name} is 0"):
            ask(lake, "write-mode", "lab.empty", **{name: 0})
