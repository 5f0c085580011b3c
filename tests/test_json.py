"""docs/json.md names the fields of every JSON document, and the statuses with their exit
statuses.
"""

import datetime as dt
import json
import re
import runpy
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from icekit import compare, diagnose
from icekit.common.errors import Status
from icekit.common.saving import as_data
from icekit.health.diagnose import document
from icekit.health.diagnose.findings import Thresholds
from icekit.maintain.plan import Plan
from icekit.maintain.planning.proposals import Proposals
from icekit.maintain.run import outcome
from icekit.maintain.run.outcome import Outcome
from icekit.report.overview import Overview, TableSummary
from icekit.report.schedule.result import PassResult
from icekit.tune.answer import Answer, Confidence
from tests.factories import table_facts

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "json.md").read_text()
FACTS = table_facts()
DOCUMENTS: dict[str, Any] = {
    "Report": document.document(FACTS, diagnose(FACTS), Thresholds()),
    "Plan": outcome.document(Outcome(Plan("lake", ("db", "t"), None, None, None, ()), None, ())),
    "Answer": Answer(
        question="layout", facts=FACTS, verdict="", confidence=Confidence.NONE, because=""
    ).document(),
    "Comparison": compare(FACTS, FACTS).document(),
    "Proposals": Proposals(
        catalog="lake",
        table="db.t",
        verdict="",
        file_opens=0,
        delete_rows=0,
        manifests=0,
        proposals=(),
        by_hand=(),
    ),
    "Pass": PassResult("nightly", "lake", dt.datetime.now(dt.UTC)),
    "Overview": Overview(
        catalog="lake", storage=False, tables=[TableSummary(table="db.t", status="healthy")]
    ),
}


def named(title: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    part = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (`.*?) \|", part, re.M))))


@pytest.mark.parametrize("title", DOCUMENTS)
def test_every_field_of_a_document_is_on_the_page(title: str) -> None:
    made = as_data(DOCUMENTS[title])

    assert named(title) == made.keys() - {"schema_version"}
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {title.lower()} |"))
    assert row.endswith(f"| {made['schema_version']} |")


@pytest.mark.parametrize("title", DOCUMENTS)
def test_the_published_schema_of_a_document_is_current_and_describes_it(title: str) -> None:
    kind = title.lower()
    written = runpy.run_path(str(ROOT / "scripts" / "json-schemas.py"))
    schema = (ROOT / "docs" / "schemas" / f"{kind}.json").read_text()

    assert written["schema"](kind) == schema, "run scripts/json-schemas.py"
    assert type(DOCUMENTS[title]) is written["KINDS"][kind]
    jsonschema.validate(as_data(DOCUMENTS[title]), json.loads(schema))


def test_every_status_is_on_the_page_with_its_exit_status() -> None:
    assert named("Statuses") == set(Status)
    for line in PAGE.split("## Statuses\n")[1].splitlines():
        for name in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else ():
            said = line.rstrip("| ").rpartition("| ")[2]
            assert said in {"–", "130 for `stopped`", str(Status(name).exit_status)}
