"""What Spark has against a person's own SQL is one sentence at every door, with the nearest column,
and ends with 2.
"""

from pathlib import Path

import pytest

from icekit.cli.main import main
from tests.maintain.tables import Named, Table

#: A wrong condition, and what the sentence says of it.
CONDITIONS = {
    "nam = 'a'": "`nam` cannot be resolved. Did you mean one of the following? [`",
    "name = = 'a'": "Syntax error at or near '=' in line 1, column ",
    "nosuch(name) = 1": "Cannot resolve routine `nosuch`",
}
#: Where a condition is given by itself, one that would close its place, a subquery and an empty text
#: are refused too.
ALONE = CONDITIONS | {
    "id = 1) OR (1=1": "Syntax error at or near",
    "id = 1 UNION ALL SELECT 1": "Syntax error at or near",
    "id IN (SELECT 1)": "it has a subquery",
    "": "it is empty",
}
MISSING = "`nosuch` cannot be found"


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
    for condition, sentence in ALONE.items():
        assert sentence in refused(capfd, *command, condition)


MERGE = "MERGE INTO {t} t USING (SELECT 1 AS key) s ON t.id = s.key AND {} WHEN MATCHED THEN DELETE"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("door", "statement", "more"),
    [
        (
            "tune layout {t} --filter",
            "SELECT * FROM {t} WHERE {}",
            {"SELECT * FROM nosuch": MISSING},
        ),
        (
            "tune write-mode {t} --statement-file",
            "DELETE FROM {t} WHERE {}",
            {"DELETE FROM {t} WHERE id IN (SELECT id FROM nosuch)": MISSING},
        ),
        (
            "review-merge",
            MERGE,
            {MERGE.format("t.id IN (SELECT 1)", t="{t}"): "Subqueries are not allowed"},
        ),
    ],
    ids=["query", "statement", "merge"],
)
def test_a_statement_that_cannot_be_used(
    table: Table,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    door: str,
    statement: str,
    more: dict[str, str],
) -> None:
    name, file = ".".join(table.name), tmp_path / "s.sql"
    statements = {statement.format(each, t="{t}"): why for each, why in CONDITIONS.items()} | more
    if door != "tune layout {t} --filter":
        statements[""] = "The text has no statement"
    for text, sentence in statements.items():
        text = text.replace("{t}", name)
        file.write_text(text)
        given = text if door.endswith("--filter") else str(file)
        assert sentence in refused(capfd, *door.format(t=name).split(), given)
