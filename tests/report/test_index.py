"""A run of many tables in an index, in closing words, and as JUnit XML."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from icekit import Thresholds
from icekit.maintain.planning.savings import Savings
from icekit.report import index
from icekit.report.history.store import HealthRecord
from icekit.report.index import Index, closing_text, rank, write_index, write_junit
from icekit.report.result import ReportRow, ReportRun, worst_exit_status
from tests.golden import Golden
from tests.report.history.test_store import record


def row(
    table: str,
    status: str = "warning",
    saved: int = 0,
    findings: Sequence[str] = (),
    health: HealthRecord | None = None,
) -> ReportRow:
    found = tuple((name, "warning") for name in findings)
    known = health or dataclasses.replace(record(table=table, findings=found), data_files=9)
    savings = Savings(saved_bytes=saved, scan_cost_bytes=100)
    return ReportRow(table, status, 1.0, f"{table}.html", savings=savings, health=known)


GONE = ReportRow("db.gone", "misconfigured", 0.1, error="There is no table \x00 <db.gone>.")


def written(folder: Path, *rows: ReportRow, **more: Any) -> str:
    index = Index(
        rows=rows, made_at="now", catalog="lake", **{"expected_table_count": len(rows)} | more
    )
    return write_index(index, folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("statuses", "fail_on", "status"),
    [
        (["healthy", "critical"], "never", 0),
        (["healthy", "warning", "info"], "critical", 0),
        (["healthy", "info"], "warning", 0),
        (["healthy", "warning"], "warning", 1),
        (["critical", "misconfigured"], "warning", 2),
        (["misconfigured", "crashed"], "never", 3),
        ([], "warning", 0),
    ],
)
def test_the_exit_status_is_the_most_serious_that_happened(
    statuses: list[str], fail_on: str, status: int
) -> None:
    verdicts = [ReportRow("t", each).verdict(fail_on) for each in statuses]

    assert worst_exit_status(verdicts, ()) == status
    assert worst_exit_status(verdicts, ["No table matches."]) == max(status, 2)


def test_the_index_is_ranked_by_what_is_saved_and_not_by_severity() -> None:
    rows = [
        row("a", "critical", 1),
        row("b", "warning", 9),
        ReportRow("c", "timed out"),
        row("d", "healthy", 1),
        ReportRow("e", "crashed"),
    ]

    assert [r.table for r in sorted(rows, key=rank)] == ["e", "c", "b", "a", "d"]


def test_what_got_worse_is_told_by_the_thresholds_of_the_run(tmp_path: Path) -> None:
    was, now = record(1, snapshots=4), record(2, snapshots=6)
    pages = [
        written(
            tmp_path,
            row("db.events", health=now),
            earlier_runs={"db.events": [was]},
            thresholds=limits,
        )
        for limits in (Thresholds(), Thresholds(snapshots=5))
    ]

    # In the list, and in the table's row.
    assert [page.count("snapshots: 4 → 6") for page in pages] == [0, 2]
    assert ["none got worse" in page for page in pages] == [True, False]


def test_a_cell_of_no_column_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_COLUMNS", {"File opens": ("n", False)})

    with pytest.raises(KeyError, match="Seconds"):
        written(tmp_path, row("db.events"))


def test_an_index_looks_like_its_golden_file(tmp_path: Path, golden: Golden) -> None:
    """Better and worse tables, days until a threshold, fixes that are one, names that are long or
    odd, and tables without figures.
    """
    before = [
        record(day, snapshots=50 + day, findings=(("executor_cache", "info"),)) for day in range(9)
    ]
    now = record(9, snapshots=59, findings=(("small_files", "critical"),))
    several = ["small_files", "executor_cache", "equality_deletes", "skewed_partitions"]
    rows = [
        row("db.events", "critical", 50, health=now),
        row("db.stream", saved=9, findings=several),
        row("db.skewed", findings=["skewed_partitions"]),
        row("db.<i>.a_name_that_is_long", "healthy"),
        ReportRow("db.<b>.another_name_that_is_long", "crashed", 1.0),
        ReportRow("db.slow", "timed out", 2.0, error="slow <b>"),
    ]
    page = written(tmp_path, *rows, expected_table_count=9, earlier_runs={"db.events": before})

    golden("index/several.html", page)
    golden("index/empty.html", written(tmp_path))
    assert "src=" not in page
    assert "http" not in page
    assert page.count("<th scope") * len(rows) == page.split("<tbody>")[1].count("<td")


def test_what_a_run_closes_with_looks_like_its_golden_file(golden: Golden) -> None:
    """The verdict, the three worst tables, those that could not be read first, and what to run
    next.
    """
    sick = [row(f"db.{name}", "critical", saved=n) for n, name in enumerate("abc")]
    sick.append(row("db.d", "critical", 3, [f"small_{n}" for n in range(6)]))
    well = row("db.well", "healthy")
    runs = [(well, *sick), (well,), (GONE,)]

    golden(
        "index/closing.txt",
        "\n\n".join(
            closing_text(ReportRun(rows, Path("index.html"), 0), "a prod") for rows in runs
        ),
    )


def test_in_junit_each_table_is_a_case_and_what_belongs_to_none_is_an_error(
    tmp_path: Path, golden: Golden
) -> None:
    rows = (row("db.ill", "critical", findings=["small_files"]), GONE)
    run = ReportRun(rows, tmp_path / "index.html", 2, problems=("No table matches 'x.*'.",))

    # A table is a failure only by the gate.
    for fail_on in ("critical", "never"):
        path = write_junit(run, fail_on, tmp_path / "new" / "j.xml")
        assert ElementTree.parse(path).getroot()[0].attrib["tests"] == "3"
        golden(f"index/{fail_on}.xml", path.read_text())
