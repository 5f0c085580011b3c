"""A table's page: its findings first, the other sections folded under what they say."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from icekit.report.page import link_neighbours, write_page
from icekit.show.explorer import WIDGET_VIEW

NEW: Any = nbformat.v4


def heading(text: str) -> Any:
    return NEW.new_markdown_cell(f"## {text}")


def teaches(text: str) -> Any:
    return NEW.new_markdown_cell(text, metadata={"tags": ["teach"]})


def shows(html: str, text: str, *tags: str) -> Any:
    """An output, as an explorer leaves it whose controls are shown."""
    data = {"text/html": html, "text/plain": text, WIDGET_VIEW: {"model_id": "1"}}
    return NEW.new_code_cell(
        "x", outputs=[NEW.new_output("display_data", data=data)], metadata={"tags": list(tags)}
    )


def fails() -> Any:
    return NEW.new_code_cell(
        "x",
        outputs=[
            NEW.new_output(
                "error", ename="ValueError", evalue="no such file", traceback=["no such file"]
            )
        ],
    )


CARD = '<div class="finding critical">small files</div>'
CELLS = [
    teaches("# What's wrong with this table?"),
    heading("Overview"),
    teaches("Read the card from the top."),
    shows('<div class="card">112 files</div>', "112, 781 KiB"),
    heading("Findings"),
    shows(CARD, "<ThresholdsExplorer>"),
    heading("Compared with a snapshot"),
    shows("<p>Nothing was compared.</p>", "<Comparer>"),
    heading("Sizes of files"),
    shows("<img src='data:'>", "112 data files, 7 KiB on average < the target."),
    shows("<p>2 findings</p>", "2 findings", "teach"),
]


def page(tmp_path: Path, *cells: Any, **more: Any) -> str:
    return write_page(
        NEW.new_notebook(cells=list(cells)), "db.t: critical", tmp_path / "db.t.html", **more
    ).read_text()


def test_findings_come_first_the_rest_is_folded_under_its_sentence_and_controls_are_left_out(
    tmp_path: Path,
) -> None:
    made = page(tmp_path, *CELLS)

    assert made.count("<h1>") == 1
    assert "model_id" not in made
    assert (
        made.index(CARD)
        < made.index("<details class=section id='overview'><summary><h2>Overview</h2>")
        < made.index("112 files")
    )
    assert (
        "<h2>Sizes of files</h2> <span class=muted>112 data files, 7 KiB on average &lt; the "
        "target.</span>" in made
    )
    assert "<h2>Overview</h2> <span class=muted>112, 781 KiB</span>" in made
    # What teaches, and sections that show nothing, are left out.
    assert not re.findall("What's wrong|Read the card|Nothing was|2 findings|Compared with", made)


@pytest.mark.parametrize("tags", [[], ["teach"]])
def test_of_a_run_that_failed_everything_is_shown_with_the_error(
    tmp_path: Path, tags: list[str]
) -> None:
    failed = fails()
    failed.metadata["tags"] = tags
    made = page(tmp_path, *CELLS[:6], heading("Trend"), failed, has_failed=True)

    assert "no such file" in made
    assert not re.findall("<details class=section id='[a-z-]+'>", made)
    assert "open><summary>" in made


def test_each_page_leads_to_the_one_before_and_the_one_after_however_often_it_is_linked(
    tmp_path: Path,
) -> None:
    names = ["db.worst", "db.<odd>", "db.healthy"]
    empty = NEW.new_notebook()
    pages = [write_page(empty, name, tmp_path / f"{n}.html") for n, name in enumerate(names)]

    for _ in range(2):
        link_neighbours(list(zip(names, pages, strict=True)))

    links = r"(previous|next): <a href='(.*?)'>(.*?)</a>"
    assert [re.findall(links, made.read_text()) for made in pages] == [
        [("next", "1.html", "db.&lt;odd&gt;")],
        [("previous", "0.html", "db.worst"), ("next", "2.html", "db.healthy")],
        [("previous", "1.html", "db.&lt;odd&gt;")],
    ]
