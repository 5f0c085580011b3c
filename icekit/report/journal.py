"""Save the progress of a run, so that an interrupted run can resume.

``run.jsonl`` in the report's folder: one line for the run, then one for each table that is done,
appended when it is. A line that was cut short by a kill counts as not written.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets as random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from icekit.diagnose.document import read
from icekit.errors import ParameterError
from icekit.history.store import Health
from icekit.maintain.savings import Savings
from icekit.report.result import JUDGED, Options, Row
from icekit.saving import naming, write_text
from icekit.secrets import mask_data

NAME = "run.jsonl"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class StartedReport:
    """A run: its id, when it began, and the rows of tables that are already done."""

    run_id: str
    started_ms: int
    done: tuple[Row, ...] = ()


class Journal:
    """The file that a run writes to; use it in a ``with`` block, by one thread."""

    def __init__(
        self, begun: StartedReport, tables: Sequence[str], options: Options, path: Path
    ) -> None:
        """Write the run's line and those of its rows that are done."""
        head = {
            "version": _VERSION,
            "run_id": begun.run_id,
            "started_ms": begun.started_ms,
            "tables": list(tables),
        }
        lines = [
            _line(head | {"options": _asked(options)}),
            *(_line(_plain(row)) for row in begun.done),
        ]
        write_text(path, "".join(lines), clean=True)
        self._path, self._file = path, path.open("a", encoding="utf-8")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Write a table's row."""
        self._put(_plain(row))

    def end(self) -> None:
        """Say that the run is complete."""
        self._put({"ended": True})

    def _put(self, data: dict[str, Any]) -> None:
        with naming(self._path):
            self._file.write(_line(data))
            self._file.flush()


def begin(tables: Sequence[str], options: Options, path: Path, now: dt.datetime) -> StartedReport:
    """A new run; with ``options.resume`` the interrupted one, if there is one.

    Tables with a complete report are not done again; failed ones are. A finished
    run is not resumed: a new one begins. Raises :class:`~icekit.errors.ParameterError` if the
    interrupted run had other options.
    """
    new = StartedReport(f"{now:%Y%m%dT%H%M%SZ}-{random.token_hex(3)}", int(now.timestamp() * 1000))
    lines = _lines(path) if options.resume else []
    if not lines or lines[0].get("version") != _VERSION or any("ended" in line for line in lines):
        return new
    if lines[0]["options"] != _asked(options):
        changed = sorted(
            key for key, value in _asked(options).items() if lines[0]["options"].get(key) != value
        )
        raise ParameterError(
            f"The interrupted run in {path.parent} had other options ({', '.join(changed)}). Use "
            "the same options, or leave out --resume."
        )
    newest = {line["table"]: line for line in lines[1:] if "table" in line}
    rows = (
        _row(line, path.parent)
        for table, line in newest.items()
        if table in set(tables) and line["status"] in JUDGED
    )
    return StartedReport(
        lines[0]["run_id"], lines[0]["started_ms"], tuple(row for row in rows if row is not None)
    )


def _asked(options: Options) -> dict[str, Any]:
    """The options that affect a table's report; where and how fast it is made does not matter."""
    names = ("catalog", "ref", "collector", "storage", "history")
    asked: dict[str, Any] = {name: getattr(options, name) for name in names}
    return asked | {
        "thresholds": dict(options.thresholds),
        "filter_columns": list(options.filter_columns),
    }


def _plain(row: Row) -> dict[str, Any]:
    return {
        "table": row.table,
        "status": row.status,
        "seconds": round(row.seconds, 3),
        "page": row.page,
        "error": row.error,
        "stages": dict(row.stages),
        "wins": asdict(row.wins) if row.wins else None,
        "health": row.health.plain() if row.health else None,
    }


def _row(line: dict[str, Any], output: Path) -> Row | None:
    """The row as it was saved; None if some of its files are missing."""
    page = output / (line["page"] or "")
    document = page.with_suffix(".json")
    if not line["page"] or not page.exists() or not document.exists():
        return None
    wins, health = line["wins"], line["health"]
    return Row(
        table=line["table"],
        status=line["status"],
        seconds=line["seconds"],
        outcome=read(document),
        page=line["page"],
        error=None,
        # Written by another icekit, it may say more than this one knows.
        wins=Savings(**{f.name: wins[f.name] for f in fields(Savings) if f.name in wins})
        if wins
        else None,
        health=Health.of_plain(health) if health else None,
        stages=line["stages"],
    )


def _line(data: dict[str, Any]) -> str:
    # Errors may quote a profile; numbers stay as they are.
    return json.dumps(mask_data(data)) + "\n"


def _lines(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found
