"""What Spark has against a person's own SQL is one sentence at every door, with the nearest column,
and ends with 2.
"""

from pathlib import Path

import pytest

from icekit.cli.main import main
from tests.compact.tables import Named, Table

#: A wrong condition, and what the sentence says of it.
CONDITIONS = {
    "nosuchthing = 1": "there is no column nosuchthing; the columns are",
    "nam = 'a'": "did you mean name",
    "name = = 'a'": "Syntax error at or near '='",
    "name > array(1)": "data type mismatch",
    "nosuch(name) = 1": "there is no function nosuch",
}
#: Where a condition is given by itself, a subquery and an empty text are refused too.
ALONE = CONDITIONS | {
    "name IN (SELECT name FROM elsewhere)": "it has a subquery",
    "": "it is empty",
}


@pytest.fixture
def table(named: Named) -> Table:
    return named("own").create().fill(files=2)


def refused(capfd: pytest.CaptureFixture[str], *command: str) -> str:
    """The one sentence that a command ends with."""
    assert main(list(command)) == 2, command
    _, error = capfd.readouterr()
    assert error.startswith("icekit: ")
    assert len(error.splitlines()) == 1, error
    assert "bug in icekit" not in error
    return error


@pytest.mark.spark
@pytest.mark.parametrize(
    "door",
    [
        "convert {t} --where",
        "tune layout {t} --filter",
        "tune metrics-columns {t} --filter",
        "tune planning {t} --filter",
        "tune write-mode {t} --read-filter",
    ],
)
def test_a_condition_that_cannot_be_used(
    table: Table, capfd: pytest.CaptureFixture[str], door: str
) -> None:
    command = door.format(t=".".join(table.name)).split()
    for condition, said in ALONE.items():
        assert said in refused(capfd, *command, condition)


@pytest.mark.spark
def test_a_query_to_filter_by_that_cannot_be_used(
    table: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    name = ".".join(table.name)
    queries = {
        f"SELECT * FROM {name} WHERE {condition}": said for condition, said in CONDITIONS.items()
    }
    for query, said in (
        queries | {"SELECT * FROM nosuch": "there is no table or view nosuch"}
    ).items():
        assert said in refused(capfd, "tune", "layout", name, "--filter", query)


@pytest.mark.spark
def test_a_statement_to_try_that_cannot_be_used(
    table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, file = ".".join(table.name), tmp_path / "s.sql"
    statements = {
        f"DELETE FROM {name} WHERE {condition}": said for condition, said in CONDITIONS.items()
    }
    statements |= {
        f"UPDATE {name} SET nam = 'a'": "did you mean name",
        f"DELETE FROM {name} WHERE id IN (SELECT id FROM nosuch)": "there is no table or view nosuch",
        "": "The text has no statement",
    }
    for statement, said in statements.items():
        file.write_text(statement)
        assert said in refused(capfd, "tune", "write-mode", name, "--statement-file", str(file))


@pytest.mark.spark
def test_a_merge_to_review_that_cannot_be_used(
    table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name, file = ".".join(table.name), tmp_path / "s.sql"
    merge = f"MERGE INTO {name} t USING (SELECT 1 AS key) s ON {{}} WHEN MATCHED THEN DELETE"
    merges = {
        merge.format(f"t.id = s.key AND {condition}"): said.replace("mean name", "mean t.name")
        for condition, said in CONDITIONS.items()
    }
    merges |= {
        merge.format(
            f"t.id = s.key AND t.name IN (SELECT name FROM {name})"
        ): "Spark does not allow a subquery in a condition of a MERGE",
        "": "The text has no statement",
    }
    for statement, said in merges.items():
        file.write_text(statement)
        assert said in refused(capfd, "review-merge", str(file))
