"""Every page that the lab leaves speaks of what is on it, and of nothing else."""

import html
import re
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.common.commands.observe import ReportOptions
from icekit.learn.lab import lab_tables
from icekit.report.service import report

#: What only a notebook with controls has, and what a page of a run with a history must not say.
NOT_ON_A_PAGE = (
    r"JupyterLab|papermill|slider|controls? (?:is|are)|drag|click|press (?:the|Run)|move "
    r"(?:a|the) limit|the cell|next cell"
)
#: Values that escaped their formatting: Python's own, or figures with more digits than were
# measured.
RAW = (
    r"\bNone\b(?! is)|\bnan\b|\bNaN\b|\bTrue\b|\bFalse\b|<\w+ "
    r"object|Timestamp\(|dtype|\b\d{6,}\.\d\b"
)
#: Snapshot ids are long numbers; code and statements have words of their own.
CODE = re.compile(r"<(script|style|pre|code|title)\b.*?</\1>", re.S)


def words(page: Path) -> str:
    """What a person reads of a page, statements and code left out."""
    text = CODE.sub(" ", page.read_text(encoding="utf-8"))
    alone = re.sub(r"<[^>]+>", " ", text)
    return re.sub(r"\s+", " ", html.unescape(alone))


@pytest.mark.spark
@pytest.mark.lab(*lab_tables())
def test_no_page_of_the_lab_speaks_of_what_is_not_on_it(lake: Lake, tmp_path: Path) -> None:
    made = report(
        ReportOptions.of(
            {"tables": ("lab.*",), "output": str(tmp_path), "history": str(tmp_path / "history.db")}
        ),
        progress=lambda _: None,
    )
    pages = sorted(tmp_path.glob("*.html"))

    assert len(pages) == len(made.rows) + 1 == len(lab_tables()) + 1
    said = {
        page.name: re.findall(rf".{{0,40}}(?:{NOT_ON_A_PAGE}|{RAW}).{{0,40}}", words(page))
        for page in pages
    }
    assert {name: found for name, found in said.items() if found} == {}
    assert {
        page.name: page.read_text(encoding="utf-8").count("<h1") for page in pages
    } == dict.fromkeys((p.name for p in pages), 1)
