"""What Spark cannot do in a trial is told in the same way under every question that writes, and
nothing is advised that was not tried.
"""

from typing import Any

import pytest

from icekit.api import Lake
from icekit.errors import StatementRefused
from icekit.sql import identifier
from icekit.tune.answer import Confidence

pytestmark = pytest.mark.spark


@pytest.fixture
def broken(lake: Lake, scratch: str) -> str:
    """A table that can be read, and in a format that no writer knows."""
    name = identifier(lake.name, scratch, "broken")
    lake.spark.sql(f"CREATE TABLE {name} (id bigint, p int) USING iceberg PARTITIONED BY (p)")
    lake.spark.sql(f"INSERT INTO {name} SELECT id, cast(id % 4 AS int) FROM range(0, 1000, 1, 4)")
    lake.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'future', "
        "'write.delete.format.default' = 'future')"
    )
    return f"{scratch}.broken"


@pytest.mark.parametrize(
    ("question", "options"),
    [
        pytest.param("file-sizes", {}, id="file-sizes"),
        pytest.param("layout", {"filters": ["id = 7", "id = 70", "id = 700"]}, id="layout"),
        pytest.param(
            "write-mode", {"operation": "update", "commits": 1, "repeats": 1}, id="write-mode"
        ),
    ],
)
def test_the_trial_ends_and_the_answer_says_why(
    lake: Lake, broken: str, question: str, options: dict[str, Any]
) -> None:
    before = lake.observe(broken).snapshot_id

    answer = lake.tune(question, broken, progress=lambda _: None, **options)

    assert "Spark failed during the trial" in str(answer.stopped)
    assert answer.confidence is Confidence.NONE
    assert not any(change.is_change for change in answer.changes)
    assert lake.observe(broken).snapshot_id == before


def test_a_statement_of_a_persons_own_is_refused(lake: Lake, broken: str) -> None:
    statement = f"UPDATE {identifier(lake.name, *broken.split('.'))} SET p = p WHERE id = 7"

    with pytest.raises(StatementRefused, match="could not run the statement on a clone"):
        lake.tune(
            "write-mode", broken, statement=statement, commits=1, repeats=1, progress=lambda _: None
        )
