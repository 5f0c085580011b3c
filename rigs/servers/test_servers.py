"""What works on the embedded lake works on real catalogs and object stores."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import papermill
import pytest

from icekit.api import Lake
from icekit.cli.main import main
from rigs.servers.conftest import SECRET, as_process
from tests.child import Child
from tests.deletes.tables import Table

pytestmark = [pytest.mark.spark, pytest.mark.servers]

POLICY = """
name: nightly
output: pass
catalog: prod
rules:
  - match: db.small
"""
COMMANDS = (
    "admin tables --catalog prod",
    "look db.small --catalog prod",
    "look db.small --catalog prod --collector spark",
    "plan db.small --catalog prod",
    "report db.small --catalog prod --output pages --storage",
    "compact db.small --catalog prod --trial",
    "convert db.upserts --catalog prod",
    "maintain db.small --catalog prod",
    "tune file-sizes db.small --catalog prod --budget-seconds 60",
    "tune metrics-columns db.small --catalog prod --filter id=1",
    "tune layout db.small --catalog prod --filter id=1",
    "tune write-mode db.small --catalog prod --operation delete --commits 1 --repeats 1 "
    "--budget-seconds 60",
    "tune planning db.small --catalog prod --filter id=1",
    "review-merge merge.sql --catalog prod --prove",
    "schedule run policy.yaml",
    "admin clones --catalog prod",
)


@pytest.fixture(scope="module")
def folder(prod: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where commands run; the catalog has a table of small files and one under equality deletes."""
    small(prod, "small")
    upserts(prod, "upserts")
    found = tmp_path_factory.mktemp("work")
    (found / "policy.yaml").write_text(POLICY)
    (found / "merge.sql").write_text(
        "MERGE INTO db.upserts t USING db.small s ON t.id = s.id WHEN MATCHED THEN DELETE"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        yield found


def small(lake: Lake, name: str) -> Table:
    """Twelve files of two days, and a DELETE that left a delete file."""
    table = Table(lake, "db", name).create("id bigint, name string, day date", by="day")
    for n in range(6):
        table.sql(
            f"INSERT INTO {{t}} SELECT id, 'n', date_add(DATE '2026-01-01', CAST(id % 2 AS INT)) "
            f"FROM range({n * 10}, {n * 10 + 10})"
        )
    table.sql("DELETE FROM {t} WHERE id = 3")
    return table


def upserts(lake: Lake, name: str) -> Table:
    """Twenty rows in four files, half of which equality deletes hide."""
    table = Table(lake, "db", name).create()
    for n in range(4):
        table.insert(f"(SELECT id, 'a' FROM range({n * 5}, {n * 5 + 5}))")
    return table.delete("id", "SELECT id FROM range(0, 20, 2)")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_there_what_it_does_on_the_lab(
    folder: Path, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = main(command.split())
    out, err = capfd.readouterr()

    assert status in {0, 1}, err
    assert "Traceback" not in err
    assert SECRET not in out + err
    assert all(
        SECRET.encode() not in file.read_bytes() for file in folder.rglob("*") if file.is_file()
    )


@pytest.mark.parametrize(
    ("command", "make"), [("compact", small), ("compact", upserts), ("convert", upserts)]
)
def test_a_run_keeps_each_row_and_is_proved(
    prod: Lake, folder: Path, command: str, make: type, capfd: pytest.CaptureFixture[str]
) -> None:
    table = make(prod, f"{command}_{make.__name__}")
    before = table.rows()
    policy = ["--leave-alone", "0 minutes", "--min-files", "2"] if command == "compact" else []

    status = main([command, ".".join(table.name), "--catalog", "prod", "--execute", *policy])

    assert status == 0, capfd.readouterr()
    table.files.refresh()
    assert table.rows() == before
    assert table.equality_deletes() == 0
    if command == "compact":
        assert len(table.sql("SELECT file_path FROM {t}.data_files")) <= 2


def test_maintenance_leaves_the_rows_and_removes_what_is_old(
    prod: Lake, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = small(prod, "kept")
    before = table.rows()

    assert main(
        [
            "maintain",
            "db.kept",
            "--catalog",
            "prod",
            "--execute",
            "--keep",
            "1 hour",
            "--keep-last",
            "1",
        ]
    ) in {0, 1}, capfd.readouterr()
    assert table.rows() == before


@pytest.mark.parametrize("name", ["00_start_here", "01_diagnose", "02_compact", "03_maintain"])
def test_a_notebook_runs_on_a_table_there(folder: Path, name: str) -> None:
    notebook = Path(__file__).parents[2] / "notebooks" / f"{name}.ipynb"
    known = papermill.inspect_notebook(notebook)
    given = {
        key: value
        for key, value in {"catalog": "prod", "table": "db.small"}.items()
        if key in known
    }

    papermill.execute_notebook(
        notebook, folder / f"{name}.ipynb", parameters=given, progress_bar=False
    )

    assert SECRET not in (folder / f"{name}.ipynb").read_text()


def test_a_killed_run_is_resumed(prod: Lake, folder: Path) -> None:
    table = Table(prod, "db", "killed").create("id bigint, name string, day date", by="day")
    for n in range(6):
        table.sql(
            f"INSERT INTO {{t}} SELECT id, 'n', date_add(DATE '2026-01-01', CAST(id % 6 AS INT)) "
            f"FROM range({n * 60}, {n * 60 + 60})"
        )
    before = table.rows()
    policy = ["--leave-alone", "0 minutes", "--min-files", "2", "--max-action-partitions", "1"]
    run = Child(
        "icekit",
        ["compact", "db.killed", "--catalog", "prod", "--execute", *policy],
        folder / "killed.log",
    )
    run.until(lambda: any(line.startswith("[1/6]") for line in run.lines))
    run.kill()
    assert run.process.returncode == -signal.SIGKILL, run.lines
    table.files.refresh()
    assert table.rows() == before

    done = as_process(folder, "compact", "db.killed", "--catalog", "prod", "--resume")

    assert done.returncode == 0, done.stdout + done.stderr
    table.files.refresh()
    assert table.rows() == before
    assert len(table.sql("SELECT file_path FROM {t}.data_files")) == 6


def test_of_two_passes_at_once_one_does_the_work(prod: Lake, folder: Path) -> None:
    table = small(prod, "raced")
    before = table.rows()
    (folder / "race.yaml").write_text(
        POLICY.replace("nightly", "race")
        .replace("db.small", "db.raced")
        .replace("output: pass", "output: race")
        + "    execute: true\n    compact: {leave_alone: 0 minutes, min_files: 2}\n"
    )
    command = [sys.executable, "-m", "icekit", "schedule", "run", "race.yaml"]
    both = [
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(2)
    ]
    said = [one.communicate()[0] for one in both]

    assert {one.returncode for one in both} <= {0, 1}, said
    table.files.refresh()
    assert table.rows() == before
    assert len(table.sql("SELECT file_path FROM {t}.data_files")) == 2
