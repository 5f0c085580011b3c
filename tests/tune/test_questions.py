"""A question that is not there and an option that it does not take are refused with the nearest
ones; what Spark cannot do in a trial is told in the same way under every question that writes, and
nothing is advised that was not tried.
"""

import inspect
from typing import Any

import pytest

import icekit
from icekit.api import Lake
from icekit.common.commands.tune import QUESTION_OPTIONS
from icekit.common.errors import ParameterError
from icekit.common.sql import identifier
from icekit.tune import QUESTIONS, tune
from icekit.tune.answer import Answer, Confidence


def test_a_wrong_question_and_a_wrong_option_are_named() -> None:
    lake = icekit.connect()

    with pytest.raises(ParameterError, match="file-sizes"):
        lake.tune("file-size", "lab.empty")
    with pytest.raises(ParameterError, match="no planning option 'reads_per_day'"):
        lake.tune("planning", "lab.empty", reads_per_day=1.0)
    with pytest.raises(ParameterError, match="no file-sizes option 'filters'"):
        lake.tune("file-sizes", "lab.empty", filters=["a = 1"])


def test_the_function_and_the_lake_take_the_same_options() -> None:
    option_names = set(inspect.signature(tune).parameters) - {"lake"}

    assert option_names == set(inspect.signature(Lake.tune).parameters) - {"self"}
    assert option_names - {"question", "table", "progress"} == {
        name
        for options in QUESTION_OPTIONS.values()
        for name in options.declarations
        if name not in {"catalog", "table", "output", "statement_file"}
    }


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


@pytest.fixture
def broken(lake: Lake, scratch: str) -> str:
    """A table that can be read, with a compression that no writer knows."""
    name = identifier(lake.name, scratch, "broken")
    lake.spark.sql(f"CREATE TABLE {name} (id bigint, p int) USING iceberg PARTITIONED BY (p)")
    lake.spark.sql(f"INSERT INTO {name} SELECT id, cast(id % 4 AS int) FROM range(0, 1000, 1, 4)")
    lake.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('write.parquet.compression-codec' = "
        "'future', 'write.delete.parquet.compression-codec' = 'future')"
    )
    return f"{scratch}.broken"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("file-sizes", {}),
        ("layout", {"filters": ["id = 7", "id = 70", "id = 700"]}),
        ("write-mode", {"operation": "update", "commits": 1, "repeats": 1}),
    ],
)
def test_the_trial_ends_and_the_answer_says_why(
    lake: Lake, broken: str, question: str, options: dict[str, Any]
) -> None:
    before = lake.observe(broken).snapshot_id

    answer = ask(lake, question, broken, **options)

    assert "Spark failed during the trial" in str(answer.stopped)
    assert answer.confidence is Confidence.NONE
    assert not any(change.is_change for change in answer.changes)
    assert lake.observe(broken).snapshot_id == before
