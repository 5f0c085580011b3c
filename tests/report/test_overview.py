"""``icekit look`` at many tables: a line each, the worst first."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from icekit.common.commands.observe import LookOptions
from icekit.report import overview as reading
from icekit.report.overview import Overview, TableSummary, overview
from icekit.show.overview import text
from tests.commands import command
from tests.factories import table_facts
from tests.offline import lake_in
from tests.test_json import ROOT

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """A healthy table, one of small files, and one that has lost its metadata file."""
    path = tmp_path / "lake"
    with lake_in(path) as catalog:
        for name, commits in (("a_healthy", 1), ("sick", 6), ("unreadable", 1)):
            table = catalog.create_table(("db", name), ROWS.schema)
            for _ in range(commits):
                table.append(ROWS)
        Path(table.metadata_location.removeprefix("file://")).unlink()
        yield path


LIST = """\
3 tables of catalog lake: 1 unreadable, 1 warning, 1 healthy.

              table          what matters most             files     data
✖ unreadable  db.unreadable  file gone
▲ warning     db.sick        small files: 5 of 6 would go      6  DATA
✔ healthy     db.a_healthy                                     1  DATA

Not looked for: missing and orphan files (--storage).
Why tables are unreadable: add -v.
Next:  icekit plan db.sick
"""


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("name", [(), ("db.*",), ("**",)])
def test_a_catalog_is_a_line_for_each_table_the_worst_first_and_the_next_command(
    name: tuple[str, ...],
) -> None:
    status, printed = command("look", *name)
    lines = printed.splitlines()

    # As for this table alone.
    assert (status, command("look", "db.unreadable")[0]) == (2, 2)
    assert lines[0] == LIST.splitlines()[0]
    starts = [line.partition("  DATA")[0] for line in LIST.splitlines()]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert "/" not in printed


def test_why_a_table_is_unreadable_is_told_with_v(lake: Path) -> None:
    printed = " ".join(command("look", "-v")[1].split())

    assert f"db.unreadable: {lake}/warehouse/db/unreadable/metadata/" in printed
    assert "metadata.json is missing." in printed
    assert "add -v" not in printed


@pytest.mark.usefixtures("lake")
def test_the_exit_status_is_that_of_the_worst_table() -> None:
    assert command("look", "db.[as]*")[0] == 0
    assert command("look", "db.[as]*", "--fail-on", "warning")[0] == 1
    assert command("look", "db.[as]*", "--fail-on", "critical")[0] == 0
    assert command("look", "db.a*", "--fail-on", "warning")[0] == 0
    assert command("look", "--fail-on", "warning")[0] == 2


@pytest.mark.usefixtures("lake")
def test_the_list_as_json_has_what_its_schema_says() -> None:
    status, printed = command("look", "--json")
    read = json.loads(printed)
    schema = json.loads((ROOT / "docs" / "schemas" / "overview.json").read_text())

    jsonschema.validate(read, schema)
    assert status == 2
    assert [(t["table"], t["status"], t["finding"]) for t in read["tables"]] == [
        ("db.unreadable", "unreadable", None),
        ("db.sick", "warning", "small_files"),
        ("db.a_healthy", "healthy", None),
    ]
    assert "is missing" in read["tables"][0]["error"]


def test_a_ref_takes_one_table(lake: Path) -> None:
    assert command("look", "--ref", "main") == (
        2,
        "icekit: --ref takes one table; without it, each is read as it is now.\n",
    )


def test_an_empty_catalog_says_so(tmp_path: Path) -> None:
    with lake_in(tmp_path / "lake"):
        assert command("look") == (0, "Catalog lake has no tables.\n")


def reads(many: int, observe: Any, jobs: int, monkeypatch: pytest.MonkeyPatch) -> Overview:
    """An overview of tables whose facts ``observe`` gives by their names."""
    monkeypatch.setattr(reading, "observe", observe)
    lake: Any = SimpleNamespace(name="lake", session_conf=dict)
    names = [("db", f"t{number}") for number in range(many)]
    return overview(lake, names, LookOptions.of({"jobs": jobs}))


def test_a_thousand_tables_are_read_once_each_and_as_many_at_once_as_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def observe(_: object, name: tuple[str, str], **__: object) -> Any:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.001)
        with lock:
            now -= 1
        return table_facts(table=name)

    seen = reads(1000, observe, 3, monkeypatch)

    assert len({table.table for table in seen.tables}) == len(seen.tables) == 1000
    assert most == 3


def test_a_bug_in_one_table_is_a_line_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def observe(_: object, name: tuple[str, str], **__: object) -> Any:
        if name[1] == "t1":
            raise KeyError("width")
        return table_facts(table=name)

    seen = reads(3, observe, 2, monkeypatch)

    assert seen.exit_status == 3
    assert (seen.tables[0].table, seen.tables[0].problem) == ("db.t1", "a bug in icekit")
    assert "KeyError" in (seen.tables[0].error or "")
    assert len(seen.tables) == 3


def summary(table: str, status: str = "warning", **fields: Any) -> TableSummary:
    made: dict[str, Any] = {
        "finding": "small_files",
        "figure": "96 of 100 would go",
        "finding_count": 3,
    }
    made |= {"file_count": 1234, "size_in_bytes": 5 << 30}
    return TableSummary(table=table, status=status, **made | fields)


def of(tables: Sequence[TableSummary]) -> Overview:
    return Overview(
        catalog="lake", storage=True, tables=sorted(tables, key=lambda table: table.rank)
    )


def test_tables_that_give_wrong_rows_come_before_those_that_save_more() -> None:
    tables = [
        summary("db.healthy", "healthy", finding=None),
        summary("db.warning", saved=1 << 40),
        summary("db.saves", "critical", saved=7),
        summary("db.saves_more", "critical", saved=8),
        summary("db.wrong", "critical", changes_results=True),
        summary("db.gone", "unreadable", finding=None),
    ]

    assert [table.table for table in of(tables).tables] == [
        "db.gone",
        "db.wrong",
        "db.saves_more",
        "db.saves",
        "db.warning",
        "db.healthy",
    ]


LONG = "marketing_campaigns.`a name with blanks, which is wider than any column of a list`.events"


@pytest.mark.parametrize("width", [40, 60, 79, 80, 100, 132, 240])
def test_no_line_is_wider_than_the_terminal_and_both_ends_of_a_name_stay(width: int) -> None:
    tables = [
        summary(LONG, finding="unclustered_filter_columns", figure="customer_id, " * 3),
        summary("db.t"),
    ]
    lines = text(of(tables), width).splitlines()
    rows = lines[2:-2]

    assert max(map(len, rows)) <= width
    assert any("marketing" in row and "events" in row for row in rows) or width < 60
    assert all(row.endswith("1,234  5 GiB") for row in rows[1:])
    assert len(rows) == 3


def test_where_there_is_no_terminal_a_line_has_at_most_100_columns() -> None:
    lines = text(of([summary(LONG), summary("db.t")])).splitlines()

    assert max(map(len, lines[2:-2])) == 100


def test_a_figure_is_never_cut_to_another_one() -> None:
    for width in range(80, 140):
        row = text(of([summary(LONG)]), width).splitlines()[3]
        assert "96 of 1" not in row or "96 of 100" in row, row


def test_names_and_figures_cannot_send_a_terminal_anything() -> None:
    shown = text(of([summary("db.`\x1b[2J`", figure="\x1b]0;x\x07")]), 100, color=True)

    assert shown.replace("\x1b[33m", "").replace("\x1b[0m", "").count("\x1b") == 0


def test_the_next_command_names_the_catalog_and_a_catalog_in_health_needs_none() -> None:
    prod = Overview(catalog="prod", storage=True, tables=[summary("db.t")])
    gone = Overview(
        catalog="prod", storage=True, tables=[summary("db.t", "unreadable", finding=None)]
    )
    fine = Overview(catalog="prod", storage=True, tables=[summary("db.t", "healthy", finding=None)])

    assert text(prod).endswith("\n\nNext:  icekit plan db.t --catalog prod")
    assert text(gone).endswith("Next:  icekit look db.t --catalog prod")
    assert "Next" not in text(fine)
