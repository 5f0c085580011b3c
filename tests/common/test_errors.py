"""What an error says is short enough to be read, and numbers that are none are refused with what is
allowed.
"""

import math

import pytest

from icekit.common.errors import (
    InvalidName,
    ParameterError,
    TableNotFound,
    name_suggestion,
    require_number,
    trace,
)
from icekit.common.sql import parse_identifier
from icekit.sandbox.trial import Budget


def test_a_name_of_thousands_of_letters_is_shown_by_its_ends() -> None:
    said = str(TableNotFound(f"There is no table db.{'a' * 5_000}z; list them."))

    assert len(said) < 300
    assert said.startswith("There is no table db.aaa")
    assert said.endswith("z; list them.")
    with pytest.raises(InvalidName) as refused:
        parse_identifier("a b" * 5_000)
    assert len(str(refused.value)) < 400


def test_paths_sentences_and_lists_stay_whole() -> None:
    path = f"s3://bucket/{'folder/' * 100}00000-0-data.parquet"
    words = "The table's files were read, and the writer's too. " * 20

    assert str(ParameterError(f"{path} is gone.")) == f"{path} is gone."
    assert str(ParameterError(words)) == words


def test_a_long_text_is_like_no_known_name() -> None:
    assert name_suggestion("carrier" * 100, ["carrier"]) == ""
    assert name_suggestion("carier", ["carrier"]) == "; did you mean carrier?"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 1e300, True, "10"])
def test_what_is_no_time_to_wait_is_refused_with_what_is_allowed(value: float) -> None:
    with pytest.raises(
        ParameterError,
        match=r"budget_seconds must be more than 0, and at most 1,000,000,000, not .*\.",
    ):
        Budget(value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ParameterError, match="margin must be 0 or more, and finite"):
        require_number("margin", value)


def test_the_trace_of_an_error_that_is_its_own_cause_ends() -> None:
    error = ParameterError("x")
    error.__cause__ = error

    assert trace(error) == "icekit.common.errors.ParameterError: x\n"
