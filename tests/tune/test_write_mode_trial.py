"""A write mode is chosen by trying it on clones; the table is only read, and nothing is left
behind.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.errors import CloneRefused, ParameterError, StatementRefused
from icekit.sandbox import trial as trying
from icekit.sandbox.scratch import NAMESPACE
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.answer import Answer, Confidence
from icekit.tune.write_cost import TOTAL
from icekit.tune.write_mode import COMPACTION, OPENS, WRITTEN

pytestmark = pytest.mark.spark
MERGING = ("position deletes per file", "position deletes per partition", "deletion vectors (v3)")


class Table:
    """A partitioned table of four files, with ids in order."""

    def __init__(self, lake: Lake, namespace: str, name: str, **properties: str) -> None:
        self.lake, self.name = lake, (namespace, name)
        self.full: Identifier = lake.sql_name(self.name)
        self.sql_name = identifier(*self.full)
        given = "".join(f", '{k.replace('_', '.')}' = '{v}'" for k, v in properties.items())
        lake.spark.sql(
            f"CREATE TABLE {self.sql_name} (id bigint, part int, name string) USING iceberg "
            f"PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '2'{given})"
        )
        lake.spark.sql(
            f"INSERT INTO {self.sql_name} SELECT id, CAST(id % 4 AS int), concat('n', id) FROM "
            "range(0, 400, 1, 1)"
        )

    def choose(self, **options: Any) -> Answer:
        return self.lake.tune(
            "write-mode",
            self.name,
            **{"commits": 1, "repeats": 1, "progress": lambda _: None, **options},
        )

    @property
    def state(self) -> tuple[Any, ...]:
        home = Path(self.lake.observe(self.name).location.removeprefix("file:"))
        names = [n for n in self.lake.tables.names() if n[0] == NAMESPACE]
        return (
            self.lake.tables.source(self.name).metadata_location,
            sorted(home.rglob("*")),
            (home.parent / NAMESPACE).exists(),
            names,
        )


def test_each_mode_is_measured_by_what_it_writes_and_the_table_stays(
    lake: Lake, scratch: str
) -> None:
    table = Table(lake, scratch, "modes")
    before = table.state

    answer = table.choose(operation="update", share=0.1, spread="scattered", reads_per_commit=2)

    assert table.state == before
    measured = answer.measured
    assert measured.value("copy-on-write", OPENS) == 0
    assert {measured.value(name, OPENS) for name in MERGING} == {4}
    written = [measured.value(name, WRITTEN) or 0 for name in ("copy-on-write", *MERGING)]
    assert min(written) > 0
    assert all((measured.value(name, COMPACTION) or 0) > 0 for name in MERGING)
    assert (measured.value("copy-on-write", TOTAL) or 0) > 0
    assert answer.confidence is Confidence.HIGH
    assert answer.changes[0].setting == "write.update.mode"


def test_a_persons_own_statement_is_tried_by_its_own_name_and_alias(
    lake: Lake, scratch: str
) -> None:
    table = Table(lake, scratch, "odd `name` 4")
    sql = (
        f"MERGE INTO {table.sql_name} USING (SELECT id + 395 AS id FROM range(10)) s ON "
        "`odd ``name`` 4`.id = s.id\nWHEN MATCHED THEN UPDATE SET name = 'new' WHEN NOT MATCHED "
        "THEN INSERT (id, part, name) VALUES (s.id, 1, 'more')"
    )
    in_full = sql.replace("`odd ``name`` 4`.id", f"{table.sql_name}.id")

    answer = table.choose(statement=sql)

    assert answer.changes[0].setting == "write.merge.mode"
    assert answer.script.sql == ()
    assert "Give reads_per_day" in answer.verdict
    assert lake.spark.table(table.sql_name).count() == 400
    with pytest.raises(StatementRefused, match="need an alias of the table"):
        table.choose(statement=in_full)


def test_existing_deletes_are_not_charged_to_the_trial(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "backlog", write_delete_mode="merge-on-read")
    lake.spark.sql(f"DELETE FROM {table.sql_name} WHERE id % 7 = 0")
    before = table.state

    # Without a catalog: names are found in the lake's.
    answer = table.choose(
        statement=f"DELETE FROM {display_name(table.name)} WHERE id = 5", read_filter="part = 1"
    )

    assert table.state == before
    assert [answer.measured.value(name, OPENS) for name in ("copy-on-write", *MERGING)] == [
        0,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(
    "budget", [{"budget_seconds": 0.01}, {"budget_bytes": "1"}], ids=["time", "bytes"]
)
def test_a_spent_budget_ends_the_trial_and_is_said(
    lake: Lake, scratch: str, budget: dict[str, Any]
) -> None:
    table = Table(lake, scratch, f"budget_{next(iter(budget))}")
    before = table.state

    answer = table.choose(operation="update", **budget)

    assert table.state == before
    assert answer.stopped is not None
    assert answer.confidence is Confidence.NONE
    assert not answer.is_change


def test_a_statement_that_runs_too_long_is_cancelled(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "endless")
    slow = (
        f"DELETE FROM {table.sql_name} WHERE id IN (SELECT a.id * b.id * c.id FROM range(1000000) "
        "a, range(100000) b, range(1000) c WHERE a.id + b.id = c.id)"
    )

    # That it came to an end says that it was cancelled; on a busy machine the time may be over
    # before the statement begins.
    assert str(table.choose(statement=slow, budget_seconds=8).stopped).startswith(
        "the time budget of 8 s ran out"
    )


@pytest.mark.soak
def test_a_catalog_that_refuses_clones_gets_a_sample(
    lake: Lake, scratch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(lake, scratch, "unclonable")
    before = table.state

    def refuse(*_: object) -> None:
        raise CloneRefused("The catalog takes no second table at one location.")

    monkeypatch.setattr(trying, "clone", refuse)

    answer = table.choose(operation="update", share=0.5, spread="scattered", reads_per_commit=1)

    assert table.state == before
    assert answer.confidence is Confidence.MEDIUM
    assert lake.spark.table(table.sql_name).count() == 400


def test_what_cannot_be_tried_is_said_in_a_sentence(lake: Lake, scratch: str) -> None:
    table, other = Table(lake, scratch, "mine"), Table(lake, scratch, "other")
    lake.spark.sql(
        f"CREATE TABLE {identifier(*lake.sql_name((scratch, 'hollow')))} (id bigint) USING iceberg"
    )

    for error, match, options in (
        (ParameterError, "not to", {"statement": f"DELETE FROM {other.sql_name} WHERE id = 1"}),
        (
            ParameterError,
            "changes no row",
            {"statement": f"DELETE FROM {table.sql_name} WHERE id = -1"},
        ),
        (
            StatementRefused,
            "there is no column nope; the columns are",
            {"statement": f"DELETE FROM {table.sql_name} WHERE nope = 1"},
        ),
        (
            StatementRefused,
            "not a MERGE",
            {"statement": f"INSERT INTO {table.sql_name} VALUES (1, 1, '')"},
        ),
        (
            ParameterError,
            "leave out operation",
            {"statement": "DELETE FROM x", "operation": "delete"},
        ),
        (ParameterError, "no operation 'upsert'", {"operation": "upsert"}),
        (ParameterError, "commits is 0", {"commits": 0}),
        (ParameterError, "must be 0 or more", {"reads_per_day": -1.0}),
        (ParameterError, "cannot be used: there is no column nope", {"read_filter": "nope = 1"}),
        (ParameterError, "give reads_per_commit", {"reads_per_day": 10.0}),
    ):
        with pytest.raises(error, match=match):
            table.choose(**options)
    with pytest.raises(ParameterError, match="no data files"):
        lake.tune("write-mode", (scratch, "hollow"), progress=lambda _: None)
    assert not [n for n in lake.tables.names() if n[0] == NAMESPACE]


def test_the_command_prints_the_answer_and_writes_it_as_json(
    lake: Lake, scratch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(lake, scratch, "commanded")
    file = tmp_path / "night.sql"
    file.write_text(f"DELETE FROM {table.sql_name} WHERE id % 10 = 3;\n")
    options = [
        "--statement-file",
        str(file),
        "--reads-per-commit",
        "3",
        "--repeats",
        "1",
        "--output",
        str(tmp_path),
    ]

    status = main(["tune", "write-mode", display_name(table.name), *options])

    written = json.loads((tmp_path / f"{scratch}.commanded.write-mode.json").read_text())
    assert status == 0
    assert "write.delete.mode" in capsys.readouterr().out
    assert written["question"] == "write-mode"
    assert len(written["measured"]) == 4
