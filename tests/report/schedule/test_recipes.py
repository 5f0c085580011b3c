"""What a recipe prints is what the scheduler takes, as it is written."""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from icekit.common.commands.notebooks import NOTEBOOKS
from icekit.report.schedule.recipes import recipe
from tests.commands import command, parsed
from tests.offline import catalog_of

ROOT = Path(__file__).parents[3]
ODD = "100% of it's $HOME"
POLICY = (
    "name: nightly\noutput: out\nledger: ledger.db\nrules:\n  - match: [db.events, 'logs.*']\n    "
    "compact: {}\n"
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy in a folder whose name each scheduler would read as something else."""
    catalog_of(tmp_path / "lake").close()
    folder = tmp_path / ODD
    folder.mkdir()
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    monkeypatch.delenv("ICEKIT_SPARK_CONF", raising=False)
    (folder / "policy.yaml").write_text(POLICY)
    # An editable install may be of another checkout than this one.
    (folder / "policy.env").write_text(f"PYTHONPATH={shlex.quote(str(ROOT))}\n")
    return folder / "policy.yaml"


def is_a_run_of(command: list[str], file: Path) -> bool:
    """Tell whether words are an icekit command that the command line takes, for that policy."""
    assert command[1:3] == ["-m", "icekit"]
    assert command[3:5] == ["schedule", "run"]
    return (command[0], parsed(command[3:]).file) == (sys.executable, str(file))


def of_cron(file: Path) -> tuple[list[str], str]:
    """The lines of a crontab, and the command as cron gives it to a shell."""
    [(name, text)] = recipe("cron", file).items()
    assert name == "icekit-nightly.cron"
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    command = lines[-1].split(" ", 5)[5]
    # As crontab(5) has it: an unescaped % ends the command, and \% is a %.
    assert not re.search(r"(?<!\\)%", command)
    return lines, command.replace(r"\%", "%")


def test_cron_gets_an_hourly_line_that_a_shell_reads_as_the_command(file: Path) -> None:
    lines, command = of_cron(file)
    assert re.fullmatch(r"[0-5]?\d \* \* \* \* .*", lines[-1])
    words = shlex.split(command.rpartition("exec ")[2])
    assert is_a_run_of(words[: words.index(">>")], file)


@pytest.mark.soak  # a whole pass in a process of its own
def test_cron_runs_the_line_as_it_is_written(file: Path, tmp_path: Path) -> None:
    lines, command = of_cron(file)
    variables = dict(line.split("=", 1) for line in lines[:-1])

    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **variables},
        check=False,
    )

    # The lake has no table: the policy's pattern matches none, and the named table is missing; all
    # the rest has run.
    log = file.with_suffix(".log").read_text()
    assert done.returncode == 2, log
    assert "misconfigured           db.events" in log
    assert "matches 'logs.*'" in log
    assert json.loads((file.parent / "out" / "pass.json").read_text())["exit_status"] == 2


def test_systemd_takes_both_units(file: Path, tmp_path: Path) -> None:
    units = recipe("systemd", file)
    assert list(units) == ["icekit-nightly.service", "icekit-nightly.timer"]
    service = units["icekit-nightly.service"]
    [line] = re.findall(r"^ExecStart=(.*)$", service, re.M)
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]
    assert is_a_run_of(words, file)
    assert "EnvironmentFile=-" in service
    assert "OnCalendar=hourly" in units["icekit-nightly.timer"]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / name for name in units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0
    assert checked.stderr == ""


def test_the_dag_is_python_that_names_this_installation(file: Path) -> None:
    [(name, text)] = recipe("airflow", file).items()
    assert name == "icekit_nightly_dag.py"
    compile(text, name, "exec")
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert values["TABLES"] == ["db.events"]
    assert Path(values["NOTEBOOK"]).name == "01_diagnose.ipynb"
    assert Path(values["NOTEBOOK"]).exists()
    command = values["RUN"]
    assert subprocess.run(["/bin/sh", "-n", "-c", command], check=False).returncode == 0
    words = shlex.split(command.rpartition("exec ")[2])
    assert is_a_run_of(words, file)
    # Jinja reads the command first.
    assert "{{" not in command
    assert "{%" not in command
    asked = {
        key.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert {"catalog", "table", "output"} <= asked & {
        *NOTEBOOKS[Path(values["NOTEBOOK"]).stem].declarations
    }


def test_tables_whose_names_differ_by_a_sign_only_are_two_tasks(file: Path) -> None:
    file.write_text(POLICY.replace("[db.events, 'logs.*']", "[db.a_b, db.a.b, db.c]"))
    [text] = recipe("airflow", file).values()
    # Without Airflow: only the names of the tasks.
    dag: dict[str, Any] = {"zlib": zlib}
    exec(text[text.index("TABLES = ") : text.index("with DAG(")], dag)
    names = [dag["name_of"](table) for table in dag["TABLES"]]
    assert len(set(names)) == 3
    assert names[2] == "db_c"
    assert all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names)


@pytest.mark.parametrize("kind", ["cron", "systemd", "airflow"])
def test_no_recipe_holds_the_settings_of_spark_which_may_be_secret(
    file: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICEKIT_SPARK_CONF", "spark.hadoop.fs.azure.account.key.x=hunter2")
    status, printed = command("schedule", "recipe", kind, str(file))
    assert status == 0
    assert "hunter2" not in printed
    assert "ICEKIT_SPARK_CONF" in printed
    assert str(file.with_suffix(".env")) in printed.replace("%%", "%")
    # Of several files each has its name above it.
    named = [f"icekit-nightly.{end}" for end in ("service", "timer")] if kind == "systemd" else []
    assert re.findall("^# --- (.*)$", printed, re.M) == named


def test_recipes_are_written_into_a_folder(file: Path, tmp_path: Path) -> None:
    command("schedule", "recipe", "cron", str(file), "--output", str(tmp_path / "out"))
    assert (tmp_path / "out" / "icekit-nightly.cron").exists()


def test_a_recipe_of_a_policy_that_is_wrong_is_refused(file: Path) -> None:
    file.write_text("ruels: []\n")
    status, printed = command("schedule", "recipe", "cron", str(file))
    assert (status, "did you mean rules?" in printed) == (2, True)
