"""Print files that run a policy on a schedule: templates with this installation's paths filled
in.
"""

import getpass
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from icekit.common.sql import is_pattern
from icekit.engine.lake import EMBEDDED, embedded_path
from icekit.report.notebook_file import notebook_path
from icekit.report.schedule.policy import SchedulePolicy
from icekit.report.schedule.reading import read_policy

_HERE = Path(__file__).parent
#: The templates of each kind of recipe, and the names of the files that are made from them.
KINDS: Mapping[str, Mapping[str, str]] = {
    "cron": {"icekit-@SLUG@.cron": "cron.in"},
    "systemd": {
        "icekit-@SLUG@.service": "icekit.service.in",
        "icekit-@SLUG@.timer": "icekit.timer.in",
    },
    "airflow": {"icekit_@SLUG@_dag.py": "icekit_dag.py.in"},
}
# Variables that a scheduler's environment lacks; no secrets are among them. ICEKIT_SPARK_CONF may
# contain some: the person who installs the recipe puts it where secrets are kept.
_CARRIED = ("JAVA_HOME", "ICEKIT_ICEBERG", "ICEKIT_LEDGER", "PYICEBERG_HOME", "XDG_STATE_HOME")


def example() -> str:
    """A policy to start from, with comments."""
    return (_HERE / "policy.yaml").read_text(encoding="utf-8")


def recipe(kind: str, file: Path) -> dict[str, str]:
    """The files of a recipe (one of :data:`KINDS`) by name, for an existing, valid policy file.

    Raises the errors of :func:`icekit.report.schedule.reading.read_policy`.
    """
    file = file.expanduser().absolute()
    policy = read_policy(file)
    python = str(Path(sys.executable).absolute())
    env_file = file.with_suffix(".env")
    words = [python, "-m", "icekit", "schedule", "run", str(file)]
    carried = environment(policy)
    pairs = [f"{key}={value}" for key, value in carried.items()]
    # With this Python's own path, because a scheduler has another PATH or none, without `icekit` in
    # it.
    env = shlex.quote(str(env_file))
    shell = (
        f"set -a; if [ -r {env} ]; then . {env}; fi; set +a; cd {shlex.quote(str(file.parent))} "
        f"&& exec {shlex.join(words)}"
    )
    log = shlex.quote(str(file.with_suffix(".log")))
    notebooks = str(policy.output / "notebooks")
    fill = {
        "NAME": policy.name,
        "SLUG": re.sub(r"[^A-Za-z0-9_-]", "-", policy.name),
        "POLICY": str(file),
        "ENV_FILE": str(env_file),
        "CRON_ENVIRONMENT": "\n".join(pairs),
        # A % ends a command in cron.
        "CRON_COMMAND": f"{shell} >> {log} 2>&1".replace("%", r"\%"),
        "USER": getpass.getuser(),
        "UNIT_FOLDER": str(file.parent).replace("%", "%%"),
        "UNIT_ENV_FILE": str(env_file).replace("%", "%%"),
        "UNIT_ENVIRONMENT": "\n".join(f"Environment={_unit(pair)}" for pair in pairs),
        # A $ is special only in commands.
        "UNIT_COMMAND": " ".join(_unit(word).replace("$", "$$") for word in words),
        "PYTHON_SHELL": shlex.quote(python),
        "COMMAND_PY": repr(shell),
        "FOLDER_PY": repr(f"mkdir -p {shlex.quote(notebooks)}"),
        "ENVIRONMENT_PY": repr(carried),
        "NOTEBOOK_PY": repr(str(notebook_path())),
        "OUTPUT_PY": repr(notebooks),
        "TABLES_PY": repr([p for rule in policy.rules for p in rule.match if not is_pattern(p)]),
        "CATALOG_PY": repr(policy.catalog),
    }

    def filled(text: str) -> str:
        return re.sub(r"@([A-Z_]+)@", lambda name: fill[name[1]], text)

    return {
        filled(name): filled((_HERE / template).read_text(encoding="utf-8"))
        for name, template in KINDS[kind].items()
    }


def environment(policy: SchedulePolicy) -> dict[str, str]:
    """The environment variables that a pass needs to find what this process finds."""
    carried = {name: value for name in _CARRIED if (value := os.environ.get(name))}
    if "JAVA_HOME" not in carried and (java := shutil.which("java")):
        carried["JAVA_HOME"] = str(Path(java).resolve().parents[1])
    if policy.catalog in {"", EMBEDDED}:
        carried["ICEKIT_LAKE"] = str(embedded_path())
    return carried


def _unit(word: str) -> str:
    """A word as systemd reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
