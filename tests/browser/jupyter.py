"""Start a real JupyterLab on a lake of its own, and say what a browser does in it."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from tests.child import python
from tests.learn.lessons.books import book
from tests.serving import free_port

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
#: Beside the tests' own lake, whose tables nobody may change.
LAKE = ROOT / "build" / "browser-lake"
TABLES = ("small_files", "skewed_small_files", "equality_deletes")
_START_SECONDS = 90


def environment() -> dict[str, str]:
    """What a process of these tests runs with: all tests' own Spark, on another lake."""
    return {**os.environ, "ICEKIT_LAKE": str(LAKE), "PYTHONPATH": str(ROOT)}


def fresh_lake() -> Path:
    """The lab's tables as they were built, whatever an earlier run did to them.

    A compaction adds files and commits, and deletes none: the catalog as it was finds the tables as
    they were.
    """
    pristine = LAKE / "pristine.db"
    if pristine.exists():
        shutil.copy(pristine, LAKE / "catalog.db")
    built = python("-m", "icekit", "lab", *TABLES, env=environment(), check=True).stdout
    if not pristine.exists() or built.count(" exists") < len(TABLES):
        shutil.copy(LAKE / "catalog.db", pristine)
    return LAKE


def copied(name: str, folder: Path, parameters: Mapping[str, Any]) -> None:
    """A notebook with other parameters, without outputs: what is seen was made here."""
    notebook = book(NOTEBOOKS / name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if "parameters" in cell.metadata.get("tags", ()):
            rare = {
                key: value
                for key, value in parameters.items()
                if f"\n{key}:" not in f"\n{cell.source}"
            }
            for key, value in {**parameters, "more": rare}.items():
                lines = [
                    f"{key} = {value!r}" if line.startswith(f"{key}:") else line
                    for line in cell.source.split("\n")
                ]
                cell.source = "\n".join(lines)
    nbformat.write(notebook, folder / name)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Server:
    """A running JupyterLab."""

    url: str
    token: str


@contextlib.contextmanager
def jupyterlab(folder: Path, scratch: Path) -> Iterator[Server]:
    """JupyterLab on a folder of notebooks, on a free port, with settings of its own; gone
    afterwards with its kernels.
    """
    settings = scratch / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Cells out of sight are then in the page too, so that tests and pictures see them.
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    apputils = scratch / "settings" / "@jupyterlab" / "apputils-extension"
    apputils.mkdir(parents=True)
    (apputils / "notification.jupyterlab-settings").write_text(
        json.dumps({"fetchNews": "false", "checkForUpdates": False})
    )
    token = secrets.token_hex(16)
    homes = {
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        # No notebook is trusted yet, as in a fresh home.
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
        "IPYTHONDIR": str(scratch / "ipython"),
    }
    command = [
        *(
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--ip=127.0.0.1",
            # Where it is taken by then, JupyterLab looks for another near it.
            f"--port={free_port()}",
        ),
        *(
            f"--IdentityProvider.token={token}",
            f"--ServerApp.root_dir={folder}",
            "--expose-app-in-browser",
            "--allow-root",
        ),
        "--LabApp.extension_manager=readonly",
    ]
    log = (scratch / "jupyterlab.log").open("w")
    process = subprocess.Popen(command, env={**environment(), **homes}, stdout=log, stderr=log)
    try:
        yield Server(_started(process, scratch, token), token)
    finally:
        # It ends its kernels before it ends.
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def _started(process: subprocess.Popen[bytes], scratch: Path, token: str) -> str:
    """Wait until JupyterLab answers; its address, by what it has written down itself."""
    log, info = scratch / "jupyterlab.log", scratch / "runtime" / f"jpserver-{process.pid}.json"
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{log.read_text()[-2000:]}")
        # Not there yet, half written, or not listening yet.
        with contextlib.suppress(
            FileNotFoundError, ValueError, urllib.error.URLError, ConnectionError, TimeoutError
        ):
            url = f"http://127.0.0.1:{json.loads(info.read_text())['port']}"
            with urllib.request.urlopen(f"{url}/api?token={token}", timeout=2):
                return url
        time.sleep(0.3)
    raise RuntimeError(
        f"JupyterLab did not answer within {_START_SECONDS} s:\n{log.read_text()[-2000:]}"
    )
