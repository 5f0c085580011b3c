"""A setting has one default: of the function behind it, of its command, its notebook and its
section of a policy.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import icekit
from icekit.api import Lake
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.commands.notebooks import NOTEBOOKS
from icekit.common.commands.schedule import SECTIONS
from icekit.common.commands.tune import QUESTION_OPTIONS, ReviewMergeOptions
from icekit.health.diagnose.findings import Thresholds
from icekit.tune.merge import review_merge
from tests.commands import parsed

#: The command of each notebook and of each section of a policy; a report is a notebook for many
# tables.
COMMANDS = {
    "00_start_here": ["look", "db.t"],
    "01_diagnose": ["report", "db.t"],
    "02_compact": ["compact", "db.t"],
    "03_maintain": ["maintain", "db.t"],
    "04_equality_deletes": ["convert", "db.t"],
    "05_choose_write_mode": ["tune", "write-mode", "db.t"],
    "06_review_merge": ["review-merge", "m.sql"],
    "07_tune_file_sizes": ["tune", "file-sizes", "db.t"],
    "08_tune_metrics_columns": ["tune", "metrics-columns", "db.t"],
    "09_tune_layout": ["tune", "layout", "db.t"],
    "10_tune_planning": ["tune", "planning", "db.t"],
    **{name: [name, "db.t"] for name in SECTIONS},
}
#: A command's, which a notebook has no use for: one table, and its output is the page.
ALONE = {"tables", "junit", "jobs", "timeout"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_its_notebook_and_its_section_have_the_same_names_and_the_same_defaults(
    name: str,
) -> None:
    command = type(parsed(COMMANDS[name]))
    other = {**NOTEBOOKS, **SECTIONS}[name]
    theirs, ours = command().only(*command.declarations), other().only(*other.declarations)
    shared = (theirs.keys() & ours.keys()) - ({"output"} if name == "01_diagnose" else set())

    assert {key: theirs[key] for key in shared} == {key: ours[key] for key in shared}
    assert {
        key for key in ours.keys() - theirs.keys() if other.declarations[key].only_for != "notebook"
    } <= {"table", "output"}
    if name in NOTEBOOKS and name not in ("00_start_here", "01_diagnose"):
        assert command is other
    if name == "01_diagnose":
        assert theirs.keys() - ours.keys() == ALONE


@pytest.mark.parametrize("function", [review_merge, Lake.review_merge])
def test_a_review_has_the_defaults_of_its_function(function: Callable[..., object]) -> None:
    parameters = inspect.signature(function).parameters
    options = ReviewMergeOptions.of({}).only("prove", "budget_seconds", "budget_bytes")

    assert {name: parameters[name].default for name in options} == options


def test_the_methods_name_every_option_of_theirs() -> None:
    methods = [value for value in vars(Lake).values() if inspect.isfunction(value)]
    functions: list[Callable[..., Any]] = [*methods, icekit.compare, icekit.connect]

    for function in functions:
        parameters = inspect.signature(function).parameters.values()
        assert not [each for each in parameters if each.kind is each.VAR_KEYWORD], function
    of_questions = {name for kind in QUESTION_OPTIONS.values() for name in kind.declarations}
    tune_parameters = inspect.signature(Lake.tune).parameters
    assert of_questions - tune_parameters.keys() == {"catalog", "output", "statement_file"}
    assert tune_parameters.keys() - of_questions == {"self", "question", "progress"}


def test_a_compaction_has_the_defaults_of_its_function() -> None:
    parameters = inspect.signature(Lake.plan).parameters
    of_method = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in {"self", "facts", "findings", "trial", "ledger"}
    }
    assert of_method.keys() == CompactionPolicy.declarations.keys()
    assert CompactionPolicy.of(of_method).changed() == {}


def test_help_says_the_defaults_that_others_decide() -> None:
    settings = CompactionPolicy.declarations

    assert f"(default: {Thresholds().min_input_files})" in settings["min_files"].help_text
    assert f"(default: {Thresholds().delete_ratio})" in settings["delete_ratio"].help_text


def test_no_option_that_is_not_given_changes_what_is_asked() -> None:
    for options in (*QUESTION_OPTIONS.values(), *NOTEBOOKS.values(), *SECTIONS.values()):
        assert options.of(dict.fromkeys(options.declarations)).changed() == {}
