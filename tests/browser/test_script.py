"""Where no Chromium is: CI and root install one or fail, anybody else is told, and nothing is
installed.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test-browser.sh"

pytestmark = pytest.mark.skipif(
    Path("/Applications/Google Chrome.app").exists(),
    reason="this machine has a browser outside PATH",
)


def run(tmp_path: Path, *, user: int, ci: str) -> tuple[int, str, str]:
    """Exit status, what was said, and which installers were called, on a machine without
    Chromium.
    """
    called = tmp_path / "called"
    called.touch()
    stand_ins = {
        "id": f"echo {user}",
        "sudo": f'echo "sudo $*" >>{called}',
        "apt-get": f'echo "apt-get $*" >>{called}',
    }
    for name, does in stand_ins.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    (tmp_path / "env").symlink_to(str(shutil.which("env")))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("CI", "ICEKIT_CHROMIUM")
    }
    environment |= {"PATH": str(tmp_path)} | ({"CI": ci} if ci else {})
    ended = subprocess.run(
        ["/bin/sh", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stderr, called.read_text()


def test_a_developers_machine_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    status, said, called = run(tmp_path, user=1000, ci="")

    assert status == 0
    assert called == ""
    assert "the browser tests were SKIPPED: no Chromium was found" in said
    assert "sudo apt-get install chromium" in said


@pytest.mark.parametrize(
    ("user", "ci", "by"),
    [
        (1000, "true", "sudo -n apt-get update"),
        (0, "", "apt-get update"),
        (0, "true", "apt-get update"),
    ],
)
def test_ci_and_root_fail_when_installing_does_not_help(
    tmp_path: Path, user: int, ci: str, by: str
) -> None:
    status, said, called = run(tmp_path, user=user, ci=ci)

    assert status == 1
    assert "the browser tests FAIL: no Chromium was found" in said
    assert called.startswith(by)
    assert "install -y -qq --no-install-recommends chromium" in called
