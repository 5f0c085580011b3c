"""A write mode is chosen by trying it on clones; the table is only read, and nothing is left
behind.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.common.errors import CloneRefused, ParameterError, StatementRefused
from icekit.common.sql import display_name
from icekit.sandbox import trial as trying
from icekit.sandbox.scratch import NAMESPACE
from icekit.tune.answer import Answer, Confidence
from icekit.tune.write_cost import TOTAL
from icekit.tune.write_mode import COMPACTION, OPENS, WRITTEN
from tests.tune.trials import Table

pytestmark = pytest.mark.spark
MERGING = ("position deletes per file", "position deletes per partition", "deletion vectors (v3)")


def made(lake: Lake, namespace: str, name: str, **properties: Any) -> Table:
    """A table of four files, with ids in order."""
    table = Table(lake, namespace, name).create(**properties)
    return table.insert("(SELECT id, CAST(id % 4 AS int), concat('n', id) FROM range(400))")


@pytest.fixture
def table(lake: Lake, scratch: str, request: pytest.FixtureRequest) -> Table:
    return made(lake, scratch, request.node.name)


def choose(table: Table, statement: str = "", **options: Any) -> Answer:
    given = {"statement": statement.replace("{t}", table.sql_name), **options}
    defaults = {"commits": 1, "repeats": 1, "progress": lambda _: None}
    return table.lake.tune("write-mode", table.name, **{**defaults, **given})


def test_each_mode_is_measured_by_what_it_writes_and_the_table_stays(table: Table) -> None:
    before = table.state()

    answer = choose(table, operation="update", share=0.1, file_share=1.0, reads_per_commit=2)

    assert table.state() == before
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
    table = made(lake, scratch, "odd `name` 4")
    sql = (
        "MERGE INTO {t} USING (SELECT id + 395 AS id FROM range(10)) s ON "
        "`odd ``name`` 4`.id = s.id\nWHEN MATCHED THEN UPDATE SET name = 'new' WHEN NOT MATCHED "
        "THEN INSERT (id, part, name) VALUES (s.id, 1, 'more')"
    )
    answer = choose(table, sql)

    assert answer.changes[0].setting == "write.merge.mode"
    assert answer.script.sql == ()
    assert "Give reads_per_day" in answer.verdict
    assert lake.spark.table(table.sql_name).count() == 400
    with pytest.raises(
        StatementRefused,
        match=r"could not run the statement on a clone .*need an alias of the table",
    ):
        choose(table, sql.replace("`odd ``name`` 4`.id", "{t}.id"))


def test_existing_deletes_are_not_charged_to_the_trial(lake: Lake, scratch: str) -> None:
    table = made(lake, scratch, "backlog", write_delete_mode="merge-on-read")
    table.sql("DELETE FROM {t} WHERE id % 7 = 0")
    before = table.state()

    # Without a catalog: names are found in the lake's.
    sql = f"DELETE FROM {display_name(table.name)} WHERE id = 5"
    answer = choose(table, sql, read_filter="part = 1")

    assert table.state() == before
    assert answer.measured.value("copy-on-write", OPENS) == 0
    assert {answer.measured.value(name, OPENS) for name in MERGING} == {1}


def test_a_trial_ends_before_it_writes_more_than_its_budget(table: Table) -> None:
    before = table.state()

    answer = choose(table, operation="update", budget_bytes="1")

    assert table.state() == before
    assert "would write" in str(answer.stopped)
    assert answer.confidence is Confidence.NONE
    assert not answer.is_change


def test_a_statement_that_runs_too_long_is_cancelled(table: Table) -> None:
    slow = (
        "DELETE FROM {t} WHERE id IN (SELECT a.id * b.id * c.id FROM range(1000000) a, "
        "range(100000) b, range(1000) c WHERE a.id + b.id = c.id)"
    )

    # That it came to an end says that it was cancelled; on a busy machine the time may be over
    # before the statement begins.
    assert str(choose(table, slow, budget_seconds=8).stopped).startswith(
        "the time budget of 8 s ran out"
    )


@pytest.mark.soak
def test_a_catalog_that_refuses_clones_gets_a_sample(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = table.state()

    def refuse(*_: object) -> None:
        raise CloneRefused("The catalog takes no second table at one location.")

    monkeypatch.setattr(trying, "clone", refuse)

    answer = choose(table, operation="update", share=0.5, file_share=1.0, reads_per_commit=1)

    assert table.state() == before
    assert answer.confidence is Confidence.MEDIUM


def test_what_cannot_be_tried_is_said_in_a_sentence(lake: Lake, scratch: str) -> None:
    table, other = made(lake, scratch, "mine"), made(lake, scratch, "other")
    for error, match, options in (
        (ParameterError, "not to", {"statement": f"DELETE FROM {other.sql_name}"}),
        (ParameterError, "changes no row", {"statement": "DELETE FROM {t} WHERE id = -1"}),
        (
            StatementRefused,
            "`nope` cannot be resolved",
            {"statement": "DELETE FROM {t} WHERE nope = 1"},
        ),
        (ParameterError, "leave out op", {"statement": "DELETE FROM {t}", "operation": "delete"}),
        (ParameterError, "must be 0 or more", {"reads_per_day": -1.0}),
        (ParameterError, "`nope` cannot be resolved. Did you mean", {"read_filter": "nope = 1"}),
        (ParameterError, "give reads_per_commit", {"reads_per_day": 10.0}),
    ):
        with pytest.raises(error, match=match):
            choose(table, **options)
    assert not [n for n in lake.tables.names() if n[0] == NAMESPACE]


def test_the_command_prints_the_answer_and_writes_it_as_json(
    lake: Lake, scratch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = made(lake, scratch, "commanded")
    file = tmp_path / "night.sql"
    file.write_text(f"DELETE FROM {table.sql_name} WHERE id % 10 = 3;\n")
    options = f"--statement-file {file} --reads-per-commit 3 --repeats 1 --output {tmp_path}"

    status = main(["tune", "write-mode", display_name(table.name), *options.split()])

    document = json.loads((tmp_path / f"{scratch}.commanded.write-mode.json").read_text())
    assert status == 0
    # Which mode wins depends on measured times.
    assert document["verdict"] in capsys.readouterr().out
    assert len(document["measured"]) == 4
