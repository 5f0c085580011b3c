"""Print files that run a policy on a schedule: templates with this installation's paths filled in."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

from icekit.catalog import EMBEDDED
from icekit.schedule.policy import SchedulePolicy
from icekit.schedule.reading import read_policy
from icekit.sql import is_pattern

_HERE = Path(__file__).parent
# Variables that a scheduler's environment lacks; no secrets are among them.
_CARRIED = ("JAVA_HOME", "ICEKIT_ICEBERG", "ICEKIT_LEDGER", "PYICEBERG_HOME", "XDG_STATE_HOME")
# It may contain any Spark setting, including storage keys: the person who installs the recipe puts it where secrets are kept.
_SECRET = "ICEKIT_SPARK_CONF"


def example() -> str:
    """A policy with a comment for every key."""
    return (_HERE / "policy.yaml").read_text(encoding="utf-8")


def recipe(kind: str, file: Path) -> dict[str, str]:
    """The files of a recipe (cron, systemd, airflow, spark-submit) by name, for an existing, valid policy file.

    Raises the errors of :func:`icekit.schedule.reading.read_policy`.
    """
    file = file.expanduser().absolute()
    policy = read_policy(file)
    name = re.sub(r"[^A-Za-z0-9_-]", "-", policy.name)
    env_file = file.with_suffix(".env")
    python = Path(sys.executable).absolute()
    carried = environment(policy)
    fill = {"POLICY": str(file), "NAME": policy.name, "ENV_FILE": str(env_file), "MINUTE": str(minute_of(file)), "FOLDER": str(file.parent)}
    if kind == "cron":
        command = f"{_sourced(env_file)} {_run(python, file)} >> {shlex.quote(str(file.with_suffix('.log')))} 2>&1"
        # A % ends a command in cron.
        return {
            f"icekit-{name}.cron": _filled(
                "cron.in",
                fill | {"ENVIRONMENT": "\n".join(f"{k}={v}" for k, v in carried.items()), "COMMAND": command.replace("%", r"\%")},
            )
        }
    if kind == "systemd":
        units = {"SERVICE": f"icekit-{name}.service", "TIMER": f"icekit-{name}.timer"}
        fill |= units | {
            "USER": getpass.getuser(),
            "FOLDER": str(file.parent).replace("%", "%%"),
            "ENV_FILE": str(env_file).replace("%", "%%"),
            "ENVIRONMENT": "\n".join(f"Environment={_unit(f'{k}={v}')}" for k, v in carried.items()),
            "COMMAND": " ".join(_unit(word, command=True) for word in (str(python), "-m", "icekit", "schedule", "run", str(file))),
        }
        return {units["SERVICE"]: _filled("icekit.service.in", fill), units["TIMER"]: _filled("icekit.timer.in", fill)}
    if kind == "airflow":
        from icekit.report import notebook_path

        tables = [p for rule in policy.tables for p in rule.match if not is_pattern(p)]
        python_literals = {
            "COMMAND_PY": f"{_sourced(env_file)} {_run(python, file)}",
            "FOLDER_PY": f"mkdir -p {shlex.quote(str(policy.output / 'notebooks'))}",
            "ENVIRONMENT_PY": carried,
            "NOTEBOOK_PY": str(notebook_path()),
            "OUTPUT_PY": str(policy.output / "notebooks"),
            "TABLES_PY": tables,
            "CATALOG_PY": policy.catalog,
            "DAG_ID_PY": f"icekit_{name}",
            "DESCRIPTION_PY": f"icekit: the policy {policy.name}",
        }
        fill |= {key: repr(value) for key, value in python_literals.items()}
        return {f"icekit_{name.replace('-', '_')}_dag.py": _filled("icekit_dag.py.in", fill | {"PYTHON_SHELL": shlex.quote(str(python))})}
    return {
        f"icekit-{name}-submit.sh": _submit(
            policy, name, {"ENV_FILE": env_file, "POLICY": file, "FOLDER": file.parent, "PYTHON": python}, fill, carried
        )
    }


def minute_of(file: Path) -> int:
    """The minute of the hour at which a policy starts: derived from its path, so that several policies start in different minutes."""
    return zlib.crc32(str(file).encode()) % 60


def left_out(kind: str, file: Path) -> str | None:
    """What a person has to add to a recipe by hand, because it may be secret; None if nothing."""
    if kind == "spark-submit" or not os.environ.get(_SECRET):
        return None
    return f"{_SECRET} is set here but not included in the recipe, because it may contain secrets. Put it into {file.expanduser().absolute().with_suffix('.env')}."


def environment(policy: SchedulePolicy) -> dict[str, str]:
    """The environment variables that a pass needs to find what this process finds."""
    found = {key: os.environ[key] for key in _CARRIED if os.environ.get(key)}
    if "JAVA_HOME" not in found and (java := shutil.which("java")):
        found["JAVA_HOME"] = str(Path(java).resolve().parents[1])
    if policy.catalog in {"", EMBEDDED}:
        from icekit.catalog.lake import embedded_path

        found["ICEKIT_LAKE"] = str(embedded_path())
    return found


def _submit(policy: SchedulePolicy, name: str, paths: Mapping[str, Path], fill: Mapping[str, str], carried: Mapping[str, str]) -> str:
    import pyspark

    from icekit.catalog import connect
    from icekit.catalog.session import SPARK_RUNTIME

    conf = connect(policy.catalog or None)._conf
    quoted = {
        **paths,
        "MAIN": _HERE.parents[1] / "cli" / "submitted.py",
        "APP": f"icekit-{name}",
        "PACKAGES": ",".join(conf.packages) if conf else SPARK_RUNTIME,
    }
    return _filled(
        "icekit-submit.sh.in",
        {
            **fill,
            **{key: shlex.quote(str(value)) for key, value in quoted.items()},
            "SCRIPT": f"icekit-{name}-submit.sh",
            "EXPORTS": "\n".join(f"export {k}={shlex.quote(v)}" for k, v in carried.items()),
            "SPARK_VERSION": pyspark.__version__,
            # Inside double quotes.
            "SPARK_HOME": re.sub(r'([\\"$`}])', r"\\\1", str(Path(pyspark.__file__).parent)),
        },
    )


def _sourced(env_file: Path) -> str:
    """Shell that reads an environment file, if there is one."""
    quoted = shlex.quote(str(env_file))
    return f"set -a; if [ -r {quoted} ]; then . {quoted}; fi; set +a;"


def _run(python: Path, file: Path) -> str:
    """Shell that runs a pass; with this Python's own path, because a scheduler has another PATH or none, without ``icekit`` in it."""
    return f"cd {shlex.quote(str(file.parent))} && exec {shlex.quote(str(python))} -m icekit schedule run {shlex.quote(str(file))}"


def _unit(word: str, *, command: bool = False) -> str:
    """A word as systemd reads it; ``$`` is special only in commands."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped.replace("$", "$$") if command else escaped}"'


def _filled(template: str, values: Mapping[str, str]) -> str:
    text = (_HERE / template).read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda found: values[found[1]], text)
