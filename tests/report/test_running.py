"""A run of many tables: kept when it is interrupted, gone on with, within its time, and remembered
once.
"""

import asyncio
import datetime as dt
import math
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pyarrow as pa
import pytest

import icekit
from icekit.common.commands.observe import ReportOptions
from icekit.common.errors import ParameterError
from icekit.health.diagnose.document import save_facts
from icekit.report import rendering
from icekit.report.facts_cache import FactsCache, TimedOut
from icekit.report.history.store import HistoryFile
from icekit.report.rendering import Kernel, kill_after
from icekit.report.result import ReportRow
from icekit.report.service import Workers, report
from tests.child import Child
from tests.learn.lessons.books import code as code_of
from tests.offline import lake_in
from tests.report.history.test_store import record

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake without Spark of five tables of three files."""
    path = tmp_path_factory.mktemp("many")
    rows = pa.table({"id": [1, 2, 3]})
    with lake_in(path) as catalog:
        table = catalog.create_table("db.t00", rows.schema)
        for _ in range(3):
            table.append(rows)
        for n in range(1, 5):
            catalog.register_table(f"db.t{n:02d}", table.metadata_location)
        yield path


def ignored(_: str) -> None:
    pass


@pytest.mark.slow
def test_an_interrupted_run_keeps_the_reports_that_are_done(many: Path, tmp_path: Path) -> None:
    names = ["db.t00", "db.t01"]
    kept = HistoryFile(tmp_path / "h.db")
    uuid = icekit.connect().observe(names[0]).table_uuid
    kept.append([record(1, name, table_uuid=uuid) for name in names])
    options = ReportOptions.of(
        {"tables": names, "output": str(tmp_path), "history": str(tmp_path / "h.db")}
    )

    done = ""

    def interrupts(line: str) -> None:
        nonlocal done
        if line.startswith("[1/2]"):
            done = line.split()[1].rstrip(":")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report(options, progress=interrupts)
    assert (tmp_path / f"{done}.html").exists()
    assert "1 of 2 tables so far" in (tmp_path / "index.html").read_text()
    assert not list(tmp_path.glob("*.error.txt"))

    on = report(options, progress=ignored)

    assert on.exit_status == 0
    index = (tmp_path / "index.html").read_text()
    assert "so far" not in index
    assert "2 tables compared" in index
    # A notebook is given what is kept of its table.
    (other,) = set(names) - {done}
    assert "2 runs of " + other in (tmp_path / f"{other}.html").read_text()
    runs = [[h.run_id for h in runs] for _, runs in sorted(kept.newest_runs(names).items())]
    assert [each[0] for each in runs] == ["run001"] * 2
    assert [each[-1] for each in runs] == [on.run_id] * 2


def test_what_a_request_to_stop_ends_is_no_failure_of_its_table(tmp_path: Path) -> None:
    def fail() -> ReportRow:
        raise ValueError("odd")

    lake: Any = None
    with Workers(lake, [], ReportOptions.of({"output": str(tmp_path)}), "", {}) as workers:
        assert workers._run_step("db.t", fail).status == "crashed"
        (trace,) = tmp_path.iterdir()
        trace.unlink()
        workers._stopped.set()

        assert workers._run_step("db.t", fail).status == "stopped"
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_a_process_that_is_ended_says_so_and_keeps_the_reports_that_are_done(
    many: Path, tmp_path: Path
) -> None:
    run = Child("icekit", ["report", "db.*", "--output", tmp_path], tmp_path / "run.log")
    assert run.until(lambda: any(line.startswith("[1/5]") for line in run.lines))
    run.process.terminate()

    assert run.process.wait() == 130
    run.kill()
    assert "Commits and reports made so far stay" in run.log.read_text()
    assert not list(tmp_path.glob("*.error.txt"))
    listed = re.search(r"(\d) of 5 tables so far", (tmp_path / "index.html").read_text())
    assert listed
    assert 1 <= int(listed[1]) <= len(list(tmp_path.glob("db.*.html")))


@pytest.mark.soak
def test_a_kernel_that_is_kept_gives_the_outputs_of_a_fresh_one(many: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.ipynb" for name in ("first", "second", "alone")]
    with Kernel() as kernel, Kernel() as fresh:
        # The second meets what the first has left.
        for table, used, path in zip(
            ("db.t01", "db.t00", "db.t00"), (kernel, kernel, fresh), paths, strict=True
        ):
            facts = save_facts(icekit.connect().observe(table), path.with_suffix(".json"))
            rendering._execute_notebook(used, {"table": table, "facts_file": str(facts)}, path)
    second, alone = map(code_of, paths[1:])

    assert (
        [cell["execution_count"] for cell in second]
        == [cell["execution_count"] for cell in alone]
        == list(range(1, len(alone) + 1))
    )
    assert _pictures(paths[1]) == _pictures(paths[2]) != []


def _pictures(path: Path) -> list[str]:
    shown = [
        o["data"].get("text/html", "")
        for cell in code_of(path)
        for o in cell["outputs"]
        if "data" in o
    ]
    return [text.partition("base64,")[2].partition('"')[0] for text in shown if "base64," in text]


def test_a_table_that_takes_too_long_gets_a_row_that_says_what_to_do(
    many: Path, tmp_path: Path
) -> None:
    options = ReportOptions.of({"tables": ("db.t00",), "output": str(tmp_path), "timeout": 1e-6})
    run = report(options, progress=ignored)

    (row,) = run.rows
    assert row.status == "timed out"
    assert row.page_name is None
    assert run.exit_status == 3
    assert "within 0 s. Raise --timeout" in (row.error or "")
    assert "timed out" in run.index_path.read_text()


def test_a_notebook_that_runs_too_long_is_killed_with_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = tmp_path / "slow.ipynb", tmp_path / "pid"
    code = (
        f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(f'{{os.getpid()}}.'); "
        "time.sleep(600)"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)  # type: ignore[no-untyped-call]
    monkeypatch.setattr(rendering, "notebook_path", lambda: path)
    failed: list[str] = []

    def work() -> None:
        with Kernel() as kernel:
            used.append(kernel)
            # Again where it died at its start: a port that was free when it was chosen may be taken
            # by then.
            while not told.exists() and len(failed) < 2:
                try:
                    rendering._execute_notebook(kernel, {}, tmp_path / "out.ipynb")
                except Exception as error:
                    failed.append(str(error))

    used: list[Kernel] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # However long it takes to begin, its time is over once it is at work.
    waited_for(lambda: told.exists() and told.read_text().endswith("."))
    with kill_after(used[0], 0.0) as time_limit:
        thread.join(120)

    assert time_limit.is_set
    assert "died" in failed[-1]
    assert used[0].manager is None
    waited_for(lambda: not is_running(int(told.read_text()[:-1])))


def waited_for(what: Callable[[], bool]) -> None:
    """Wait until something is so; how long that takes is not judged."""
    for _ in range(1200):
        if what():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it never came")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_whatever_goes_wrong_for_a_table_it_gets_its_row(many: Path, tmp_path: Path) -> None:
    # A folder of that name: nothing can be removed or written there, as on a disk that is full.
    (tmp_path / "db.t00.error.txt").mkdir()
    (tmp_path / "db.t01.error.txt.partial").mkdir()
    made: dict[str, ReportRow] = {}

    class Cancelled(dict[str, Any]):
        def get(self, *_: object) -> Any:
            raise asyncio.CancelledError("the loop is closed")

    names, options = [("db", f"t0{n}") for n in range(3)], {"output": str(tmp_path)}

    def work() -> None:
        with Workers(
            icekit.connect(), names, ReportOptions.of(options), "run", Cancelled()
        ) as crew:
            made.update({row.table: row for row in crew.rows()})

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(600)

    assert {name: row.status for name, row in made.items()} == {
        "db.t00": "misconfigured",
        "db.t01": "crashed",
        "db.t02": "crashed",
    }
    assert f"{tmp_path}/db.t00.error.txt cannot be written or read: Is a directory" in (
        made["db.t00"].error or ""
    )
    assert "its trace could not be kept" in (made["db.t01"].error or "")
    assert (
        made["db.t02"].error
        == "CancelledError: the loop is closed; for details see db.t02.error.txt"
    )
    assert made["db.t02"].savings is not None


def test_observing_that_does_not_end_is_left_behind(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, lake, name = threading.Event(), icekit.connect(), ("db", "t00")
    patient = ReportOptions.of({"timeout": 600})
    assert FactsCache().facts_and_findings(lake, name, patient)[0].data.file_count == 3

    monkeypatch.setattr("icekit.report.facts_cache.observe", lambda *_, **__: stuck.wait(600))
    with pytest.raises(TimedOut, match=r"db\.t00 was not finished within 0 s"):
        FactsCache().facts_and_findings(lake, name, patient.with_values(timeout=0.1))
    stuck.set()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"timeout": math.inf}, "timeout"), ({"jobs": 0}, "jobs must be more than 0")],
)
def test_limits_that_allow_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        report(ReportOptions.of({"tables": ("db.t",), **options}))
