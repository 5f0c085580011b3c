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


@pytest.mark.parametrize(
    ("user", "ci", "status", "message", "by"),
    [
        (1000, "", 0, "tests were SKIPPED: no Chromium was found", ""),
        (1000, "true", 1, "tests FAIL: no Chromium was found", "sudo -n apt-get update"),
        (0, "", 1, "tests FAIL: no Chromium was found", "apt-get update"),
        (0, "true", 1, "tests FAIL: no Chromium was found", "apt-get update"),
    ],
)
def test_ci_and_root_fail_when_installing_does_not_help_and_a_developers_machine_is_left_as_it_is(
    tmp_path: Path, user: int, ci: str, status: int, message: str, by: str
) -> None:
    ended, said, called = run(tmp_path, user=user, ci=ci)

    assert (ended, f"the browser {message}" in said) == (status, True), said
    assert called.startswith(by)
    installs = "install -y -qq --no-install-recommends chromium" in called
    assert installs if by else "sudo apt-get install chromium" in said
    assert bool(called) == bool(by)
