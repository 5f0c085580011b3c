"""A write mode is chosen by trying it on clones; the table is only read, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.errors import CloneRefused, ParameterError, StatementRefused
from icekit.sandbox import NAMESPACE
from icekit.sandbox import trial as trying
from icekit.sql import Identifier, display_name, identifier
from icekit.tune.write_mode import WriteModeChoice, choose_write_mode
from tests.resolve.tables import Table as Upserted

pytestmark = pytest.mark.spark


class Table:
    """A partitioned table of four files, with ids in order."""

    def __init__(self, lake: Lake, namespace: str, name: str, **properties: str) -> None:
        self.lake, self.name = lake, (namespace, name)
        self.full: Identifier = lake.sql_name(self.name)
        self.sql_name = identifier(*self.full)
        given = "".join(f", '{k.replace('_', '.')}' = '{v}'" for k, v in properties.items())
        lake.spark.sql(
            f"CREATE TABLE {self.sql_name} (id bigint, part int, name string) USING iceberg PARTITIONED BY (part) "
            f"TBLPROPERTIES ('format-version' = '2'{given})"
        )
        lake.spark.sql(f"INSERT INTO {self.sql_name} SELECT id, CAST(id % 4 AS int), concat('n', id) FROM range(0, 400, 1, 1)")

    def choose(self, **options: Any) -> WriteModeChoice:
        given = {"commits": 1, "repeats": 1, "warm": False, "progress": lambda _: None, **options}
        return choose_write_mode(self.lake, self.name, **given)

    @property
    def state(self) -> tuple[Any, ...]:
        home = Path(self.lake.observe(self.name).location.removeprefix("file:"))
        scratch = home.parent / NAMESPACE
        names = [n for n in self.lake.tables.names() if n[0] == NAMESPACE]
        return self.lake.tables.source(self.name).metadata_location, sorted(home.rglob("*")), scratch.exists(), names


def by_name(choice: WriteModeChoice) -> dict[str, Any]:
    return {m.variant.name: m for m in choice.trial.measured}


def test_each_mode_is_measured_by_what_it_writes_and_the_table_stays(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "modes")
    before = table.state

    choice = table.choose(operation="update", share=0.1, spread="scattered", reads_per_commit=2)

    assert table.state == before
    measured = by_name(choice)
    copied = measured["copy-on-write"]
    merged = [m for name, m in measured.items() if name.startswith("merge-on-read")]
    assert len(merged) == 3
    assert copied.planned.delete_opens == 0
    assert copied.changes[0].file_share == 1.0
    assert {m.planned.delete_opens for m in merged} == {4}
    # Each mode changed the same rows; copy-on-write wrote the others too.
    assert len({m.changes[0].rows_changed for m in merged}) == 1
    assert copied.changes[0].rows_written == 400
    assert 20 <= merged[0].changes[0].rows_changed <= 60
    assert all(len(m.compactions) == 2 and m.compaction > 0 and m.compacted_bytes > 0 for m in merged)
    assert choice.comparison is not None
    assert choice.reads == 2
    assert choice.advice[0].setting == "write.update.mode"


def test_a_statement_of_ones_own_is_tried_by_its_own_name_and_alias(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "odd `name` 4")
    sql = (
        f"MERGE INTO {table.sql_name} USING (SELECT id + 395 AS id FROM range(10)) s ON {table.sql_name}.id = s.id\n"
        "WHEN MATCHED THEN UPDATE SET name = 'new' WHEN NOT MATCHED THEN INSERT (id, part, name) VALUES (s.id, 1, 'more')"
    )

    choice = table.choose(statement=sql)

    assert choice.operation == "merge"
    assert choice.reads is None
    assert {m.changes[0].rows_changed for m in choice.trial.measured} == {10}
    assert choice.script.sql == ()
    assert "give reads_per_day" in choice.advice[0].evidence
    assert lake.spark.table(table.sql_name).count() == 400


def test_deletes_that_are_there_already_are_not_charged_to_the_trial(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "backlog", write_delete_mode="merge-on-read")
    lake.spark.sql(f"DELETE FROM {table.sql_name} WHERE id % 7 = 0")
    before = table.state

    # Without a catalog: names are found in the lake's.
    choice = table.choose(statement=f"DELETE FROM {display_name(table.name)} WHERE id = 5", read_filter="part = 1")

    assert table.state == before
    opens = {m.variant.name: m.planned.delete_opens for m in choice.trial.measured if m.planned}
    assert set(opens.values()) == {0, 1}
    assert all(m.filtered is not None for m in choice.trial.measured)
    assert "first compacted away on the clones" in repr(choice)


def test_a_clustered_commit_touches_its_share_of_the_partitions(lake: Lake, scratch: str) -> None:
    choice = Table(lake, scratch, "clustered").choose(operation="delete", share=0.05, spread="clustered", file_share=0.25)

    assert by_name(choice)["copy-on-write"].changes[0].file_share == 0.25


def test_the_shape_of_the_history_is_the_default(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "with_history", write_delete_mode="merge-on-read")
    lake.spark.sql(f"DELETE FROM {table.sql_name} WHERE part = 1 AND id < 80")

    choice = table.choose()

    assert choice.operation == "delete"
    assert choice.history.of_kind("delete") is not None
    assert "25 % of the files" in choice.trial.workload.described
    assert by_name(choice)["copy-on-write"].changes[0].file_share == 0.25


@pytest.mark.parametrize("budget", [{"budget_seconds": 0.01}, {"budget_bytes": "1"}], ids=["time", "bytes"])
def test_a_spent_budget_ends_the_trial_and_is_said(lake: Lake, scratch: str, budget: dict[str, Any]) -> None:
    table = Table(lake, scratch, f"budget_{next(iter(budget))}")
    before = table.state

    choice = table.choose(operation="update", **budget)

    assert table.state == before
    assert choice.trial.stopped is not None
    assert choice.comparison is None
    assert choice.advice == ()
    assert "too little was measured" in repr(choice)
    assert "not measured" in choice._repr_html_()


def test_a_statement_that_runs_too_long_is_cancelled(lake: Lake, scratch: str) -> None:
    table = Table(lake, scratch, "endless")
    slow = f"DELETE FROM {table.sql_name} WHERE id IN (SELECT a.id * b.id * c.id FROM range(1000000) a, range(100000) b, range(1000) c WHERE a.id + b.id = c.id)"

    choice = table.choose(statement=slow, budget_seconds=8)

    # That it came to an end says that it was cancelled; on a busy machine the time may be over before the statement begins.
    assert str(choice.trial.stopped).startswith("the time budget of 8 s ran out")


@pytest.mark.soak
def test_a_catalog_that_takes_no_clones_gets_a_sample_that_is_scaled(lake: Lake, scratch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(lake, scratch, "unclonable")
    before = table.state
    said: list[str] = []

    def refuse(*_: object) -> None:
        raise CloneRefused("The catalog takes no second table at one location.")

    monkeypatch.setattr(trying, "clone", refuse)

    choice = table.choose(operation="update", share=0.5, spread="scattered", sample_bytes="2500", progress=said.append, reads_per_commit=1)

    assert table.state == before
    assert choice.trial.scale > 1.5
    assert any("copied sample" in line for line in said)
    assert "copied sample" in repr(choice)
    assert lake.spark.table(table.sql_name).count() == 400


@pytest.mark.soak
def test_equality_deletes_are_measured_as_they_are_and_resolved(lake: Lake, scratch: str) -> None:
    upserted = Upserted(lake, scratch, "upserted").create().insert("VALUES (1L, 'a'), (2L, 'b'), (3L, 'c')").delete("id", "SELECT 2L")
    before = lake.tables.source(upserted.name).metadata_location

    choice = choose_write_mode(
        lake, upserted.name, operation="delete", share=0.9, commits=1, repeats=1, warm=False, reads_per_commit=1, progress=lambda _: None
    )

    assert lake.tables.source(upserted.name).metadata_location == before
    assert choice.trial.equality is not None
    assert "belong to neither mode" in repr(choice)
    upserts = choice.history.of_kind("upsert")
    assert upserts is not None
    assert upserts.mode == "equality deletes"


def test_what_cannot_be_tried_is_said_in_a_sentence(lake: Lake, scratch: str) -> None:
    table, other = Table(lake, scratch, "mine"), Table(lake, scratch, "other")
    lake.spark.sql(f"CREATE TABLE {identifier(*lake.sql_name((scratch, 'hollow')))} (id bigint) USING iceberg")

    for error, match, options in (
        (ParameterError, "not to", {"statement": f"DELETE FROM {other.sql_name} WHERE id = 1"}),
        (ParameterError, "changes no row", {"statement": f"DELETE FROM {table.sql_name} WHERE id = -1"}),
        (StatementRefused, "there is no column nope; the columns are", {"statement": f"DELETE FROM {table.sql_name} WHERE nope = 1"}),
        (StatementRefused, "not a MERGE", {"statement": f"INSERT INTO {table.sql_name} VALUES (1, 1, '')"}),
        (ParameterError, "leave out operation", {"statement": "DELETE FROM x", "operation": "delete"}),
        (ParameterError, "The operation is", {"operation": "upsert"}),
        (ParameterError, "share of rows", {"share": 2.0}),
        (ParameterError, "commits is 0", {"commits": 0}),
        (ParameterError, "margin must be 0 or more", {"margin": -1.0}),
        (ParameterError, "cannot be used: there is no column nope", {"read_filter": "nope = 1"}),
        (ParameterError, "give reads_per_commit", {"reads_per_day": 10.0}),
    ):
        with pytest.raises(error, match=match):
            table.choose(**options)
    with pytest.raises(ParameterError, match="no data files"):
        choose_write_mode(lake, (scratch, "hollow"), progress=lambda _: None)
    assert not [n for n in lake.tables.names() if n[0] == NAMESPACE]


def test_the_command_prints_the_answer_and_writes_it_as_json(
    lake: Lake, scratch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(lake, scratch, "commanded")
    file = tmp_path / "night.sql"
    file.write_text(f"DELETE FROM {table.sql_name} WHERE id % 10 = 3;\n")

    status = main(
        [
            "tune",
            "write-mode",
            display_name(table.name),
            "--statement-file",
            str(file),
            "--reads-per-commit",
            "3",
            "--repeats",
            "1",
            "--output",
            str(tmp_path),
        ]
    )

    said = capsys.readouterr().out
    written = json.loads((tmp_path / "scratch.commanded.write-mode.json").read_text())
    assert status == 0
    assert "write.delete.mode" in said
    measured, tables = written["measured"], written["tables"]
    assert written["question"] == "write-mode"
    assert measured["operation"] == "delete"
    assert measured["reads"] == 3
    assert len(tables["costs"]) == 4
    assert measured["trial"]["measured"][0]["changes"][0]["rows_changed"] == 40
