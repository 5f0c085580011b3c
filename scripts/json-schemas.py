"""Write the JSON Schema of every kind of document into docs/schemas."""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from icekit.health.diagnose.document import ReportDocument
from icekit.maintain.planning.proposals import Proposals
from icekit.maintain.run.outcome import PlanDocument
from icekit.report.overview import Overview
from icekit.report.schedule.result import PassResult
from icekit.show.compare import ComparisonDocument
from icekit.tune.answer import AnswerDocument

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
KINDS: dict[str, type[Any]] = {
    "report": ReportDocument,
    "plan": PlanDocument,
    "answer": AnswerDocument,
    "comparison": ComparisonDocument,
    "proposals": Proposals,
    "pass": PassResult,
    "overview": Overview,
}


def schema(kind: str) -> str:
    """The JSON Schema of a kind of document."""
    made = TypeAdapter(KINDS[kind]).json_schema(mode="serialization")
    return json.dumps(made, indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for kind in KINDS:
        (FOLDER / f"{kind}.json").write_text(schema(kind))
