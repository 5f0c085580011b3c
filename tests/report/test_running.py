"""A run of many tables: kept when it is interrupted, gone on with, within its time, and remembered
once.
"""

import asyncio
import datetime as dt
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pyarrow as pa
import pytest

import icekit
from icekit.diagnose.document import save_facts
from icekit.errors import ParameterError
from icekit.facts import observe
from icekit.history.store import SqliteStore
from icekit.options.commands import ReportOptions
from icekit.report import Workers, report
from icekit.report.observing import TimedOut, observed
from icekit.report.rendering import ENGINE, Kernel, limited, notebook_path
from icekit.report.result import Row
from tests.history.test_stores import record
from tests.lessons.books import code as code_of
from tests.offline import lake_in

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
    kept = SqliteStore(tmp_path / "h.db")
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

    on = report(options, progress=ignored)

    assert on.exit_status == 0
    index = (tmp_path / "index.html").read_text()
    assert "so far" not in index
    assert "2 tables compared" in index
    # A notebook is given what is kept of its table.
    (other,) = set(names) - {done}
    assert "2 runs of " + other in (tmp_path / f"{other}.html").read_text()
    runs = [[h.run_id for h in runs] for _, runs in sorted(kept.last(names).items())]
    assert [each[0] for each in runs] == ["run001"] * 2
    assert [each[-1] for each in runs] == [on.run_id] * 2


@pytest.mark.soak
def test_a_process_that_is_ended_says_so_and_keeps_the_reports_that_are_done(
    many: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "icekit", "report", "db.*", "--output", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("[1/5]"):
                run.send_signal(signal.SIGTERM)
                break
        rest = run.stdout.read()

    assert run.returncode == 130, rest
    assert "Commits and reports made so far stay" in rest
    listed = re.search(r"(\d) of 5 tables so far", (tmp_path / "index.html").read_text())
    assert listed
    assert 1 <= int(listed[1]) <= len(list(tmp_path.glob("db.*.html")))


@pytest.mark.soak
def test_a_kernel_that_is_kept_gives_the_outputs_of_a_fresh_one(many: Path, tmp_path: Path) -> None:
    made = {}
    with Kernel() as kernel, Kernel() as fresh:
        # The second meets what the first has left.
        for name, used, path in (
            ("db.t01", kernel, "first"),
            ("db.t00", kernel, "second"),
            ("db.t00", fresh, "alone"),
        ):
            facts = save_facts(icekit.connect().observe(name), tmp_path / f"{path}.facts.json")
            made[path] = executed(
                notebook_path(),
                tmp_path / f"{path}.ipynb",
                used,
                {"table": name, "facts_file": str(facts)},
            )
    second, alone = code_of(made["second"]), code_of(made["alone"])

    assert (
        [cell["execution_count"] for cell in second]
        == [cell["execution_count"] for cell in alone]
        == list(range(1, len(alone) + 1))
    )
    assert _pictures(made["second"]) == _pictures(made["alone"]) != []


def executed(notebook: Path, path: Path, kernel: Kernel, parameters: dict[str, Any]) -> Path:
    import papermill

    papermill.execute_notebook(
        str(notebook),
        str(path),
        parameters,
        engine_name=ENGINE,
        kernel=kernel,
        kernel_name="python3",
        progress_bar=False,
    )
    return path


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
    assert row.page is None
    assert run.exit_status == 3
    assert "within 0 s. Raise --timeout" in (row.error or "")
    assert "timed out" in run.index.read_text()


def test_a_notebook_that_runs_too_long_is_killed_with_its_kernel(tmp_path: Path) -> None:
    path, told = tmp_path / "slow.ipynb", tmp_path / "pid"
    code = (
        f"import os, pathlib, time; pathlib.Path({str(told)!r}).write_text(f'{{os.getpid()}}.'); "
        "time.sleep(600)"
    )
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)]), path)  # type: ignore[no-untyped-call]
    failed: list[str] = []

    def work() -> None:
        with Kernel() as kernel:
            used.append(kernel)
            # Again where it died at its start: a port that was free when it was chosen may be taken
            # by then.
            while not told.exists() and len(failed) < 2:
                try:
                    executed(path, tmp_path / "out.ipynb", kernel, {})
                except Exception as error:
                    failed.append(str(error))

    used: list[Kernel] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # However long it takes to begin, its time is over once it is at work.
    waited_for(lambda: told.exists() and told.read_text().endswith("."))
    with limited(used[0], 0.0) as over:
        thread.join(120)

    assert over.is_set()
    assert "died" in failed[-1]
    assert used[0].manager is None
    waited_for(lambda: not is_there(int(told.read_text()[:-1])))


def waited_for(what: Callable[[], bool]) -> None:
    """Wait until something is so; how long that takes is not judged."""
    for _ in range(1200):
        if what():
            return
        threading.Event().wait(0.1)
    raise AssertionError("it never came")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_whatever_goes_wrong_for_a_table_it_gets_its_row(many: Path, tmp_path: Path) -> None:
    # A folder of that name: nothing can be removed or written there, as on a disk that is full.
    (tmp_path / "db.t00.error.txt").mkdir()
    (tmp_path / "db.t01.error.txt.partial").mkdir()
    made: dict[str, Row] = {}

    def cancelled(*_: object) -> str:
        raise asyncio.CancelledError("the loop is closed")

    def work() -> None:
        with Workers(
            icekit.connect(),
            [("db", f"t0{n}") for n in range(3)],
            ReportOptions.of({"output": str(tmp_path)}),
            "run",
            history_of=cancelled,
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


def test_observing_that_does_not_end_is_left_behind(many: Path) -> None:
    stuck = threading.Event()

    def collect(*_: object, **__: object) -> Any:
        stuck.wait(600)

    with pytest.raises(TimedOut, match=r"db\.t00 was not finished within 0 s"):
        observed(
            icekit.connect(), ("db", "t00"), ReportOptions.of({"timeout": 0.1}), collect=collect
        )
    stuck.set()
    patient = ReportOptions.of({"timeout": 600})
    facts, _ = observed(icekit.connect(), ("db", "t00"), patient, collect=observe)
    assert facts.data.file_count == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"timeout": n}, "timeout") for n in (0, -1.0, math.nan, math.inf, 1e300)),
        ({"jobs": 0}, "jobs must be more than 0"),
    ],
)
def test_limits_that_allow_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        report(ReportOptions.of({"tables": ("db.t",), **options}))
