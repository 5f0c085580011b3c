"""Write the support matrix of docs/limits.md and README.md from the runs of scripts/test-matrix.sh: `python scripts/support-matrix.py`.

A run is `build/matrix/NAME.xml`, what pytest writes of it, and `build/matrix/NAME.commands`, the commands that succeeded after the tests, one a
line. The table after `<!-- support matrix -->` gets a row for each run and keeps its rows of other versions; that after
`<!-- support matrix: short -->` has the first columns of the same rows. A test checks that both agree and name every version that icekit accepts.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "build" / "matrix"
FULL, SHORT = "<!-- support matrix -->", "<!-- support matrix: short -->"
_COLUMNS = [
    "Spark",
    "Iceberg",
    "Python",
    "core tests passed",
    "failed",
    "skipped",
    "also run",
    "Java",
    "pyarrow, pandas, numpy",
]
_SHORT_COLUMNS = 6


def rows_of(page: str, marker: str = FULL) -> list[list[str]]:
    """The cells of each row of the table after a marker."""
    table = re.search(rf"{re.escape(marker)}\n((?:\|.*\n)*)", page)
    lines = table[1].splitlines()[2:] if table else []
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def updated(page: str, marker: str, rows: list[list[str]]) -> str:
    """A page with these rows in the table after a marker."""
    columns = _COLUMNS[: len(rows[0])]
    lines = [columns, ["---"] * len(columns), *rows]
    table = "".join(
        f"| {' | '.join(line)} |\n".replace("| --- ", "|---").replace("|--- |", "|---|")
        for line in lines
    )
    return re.sub(rf"({re.escape(marker)}\n)(?:\|.*\n)*", lambda found: found[1] + table, page)


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """The rows of README's table, without the names of what failed and the reasons for what was skipped."""
    return [[cell.partition(":")[0] for cell in row[:_SHORT_COLUMNS]] for row in rows]


def row_of(run: Path) -> list[str]:
    """The row of a run."""
    cases = list(ElementTree.parse(run).iter("testcase"))
    versions = {
        each.attrib["name"]: each.attrib["value"]
        for case in cases
        for each in case.iter("property")
    }
    failed = [
        case.attrib["name"]
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    reasons = Counter(
        skipped.attrib["message"] for case in cases for skipped in case.iter("skipped")
    )
    passed = len(cases) - len(failed) - reasons.total()
    commands = run.with_suffix(".commands")
    skipped = (
        f"{reasons.total()}: "
        + "; ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
        if reasons
        else "0"
    )
    return [
        versions["spark"],
        versions["iceberg"],
        versions["python"],
        str(passed),
        f"{len(failed)}: {', '.join(f'`{name}`' for name in failed)}" if failed else "0",
        skipped,
        ", ".join(f"`{line}`" for line in commands.read_text(encoding="utf-8").splitlines())
        if commands.exists()
        else "",
        versions["java"],
        f"{versions['pyarrow']}, {versions['pandas']}, {versions['numpy']}",
    ]


def _key(row: list[str]) -> list[list[int]]:
    """Rows of one Spark and one Python, whatever their last digits are, and one Iceberg are of one kind; the oldest is first."""
    spark, iceberg, python = ([int(part) for part in re.findall(r"\d+", cell)] for cell in row[:3])
    return [spark[:2], iceberg, python[:2]]


if __name__ == "__main__":
    page = ROOT / "docs" / "limits.md"
    text = page.read_text(encoding="utf-8")
    by_key = {
        str(_key(row)): row for row in [*rows_of(text), *map(row_of, sorted(RUNS.glob("*.xml")))]
    }
    rows = sorted(by_key.values(), key=_key)
    page.write_text(updated(text, FULL, rows), encoding="utf-8")
    readme = ROOT / "README.md"
    readme.write_text(
        updated(readme.read_text(encoding="utf-8"), SHORT, shortened(rows)), encoding="utf-8"
    )
