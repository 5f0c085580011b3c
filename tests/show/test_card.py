import re
from pathlib import Path

import pytest

from icekit.health.diagnose import diagnose
from icekit.health.diagnose.document import load_facts
from icekit.health.diagnose.findings import Findings, Severity, Thresholds
from icekit.iceberg.file_kind import Kind
from icekit.iceberg.manifest_counts import RangeOverlap
from icekit.show.card import Look, card, card_html
from icekit.show.tables import file_sizes
from tests.factories import (
    GIB,
    MIB,
    empty_facts,
    file_group,
    finding,
    manifest_facts,
    partition,
    table_facts,
)
from tests.golden import Golden

SMALL = table_facts(groups=(file_group(*[MIB] * 150),))


@pytest.mark.parametrize(
    ("changes", "left_alone", "undersized"),
    [({}, 1, 5), ({"min_file_size_ratio": 0.2}, 3, 3), ({"max_file_size_ratio": 4.0}, 2, 5)],
)
def test_sizes_and_undersized_files_are_those_of_the_limits_in_force(
    changes: dict[str, float], left_alone: int, undersized: int
) -> None:
    limits = Thresholds().with_changes(**changes)
    sizes = (MIB, 32 * MIB, 90 * MIB, 200 * MIB, 300 * MIB, 400 * MIB, GIB, 3 * GIB)
    facts = table_facts(groups=(file_group(*sizes),))
    ranges = file_sizes(facts, thresholds=limits, coarse=True)
    band = ranges["left_alone"].index(True)

    assert ranges["file_count"][band] == left_alone
    assert sum(ranges["file_count"]) == len(sizes)
    assert f"; {undersized} undersized (" in card(facts, Findings(), limits, width=None)
    for shown in (card(facts, Findings(), limits), card_html(facts, Findings(), limits)):
        assert ranges["size"][band] in shown


def test_the_next_step_is_the_statement_that_fixes_the_most() -> None:
    small = finding("small_files", Severity.CRITICAL, sql=("SELECT 1",))
    deletes = finding("equality_deletes", sql=("SELECT 2",))
    shown = card(table_facts(), Findings((small, deletes)), width=None)

    assert "small files (same fix as equality deletes): " in shown
    assert "\nnext        equality deletes: " in shown
    assert "SELECT 2" in shown
    assert "SELECT 1" not in shown


def test_a_statement_and_a_remedy_are_never_cut_however_long() -> None:
    properties = ", ".join(f"'property-{n}' = 'it\\'s  a value'" for n in range(100))
    statement = f"ALTER TABLE t SET TBLPROPERTIES ({properties})"
    remedy = " ".join(f"step {n}" for n in range(100))
    told = card(table_facts(), Findings([finding(sql=(statement,), remedy=remedy)])).splitlines()

    assert told[-1] == f"  {statement}"
    assert remedy in " ".join(text.strip() for text in told)


def test_a_wider_terminal_has_longer_lines_and_a_pipe_whole_sentences() -> None:
    narrow, wide, pipe = (
        card(SMALL, diagnose(SMALL), width=width).splitlines() for width in (60, 120, None)
    )

    usual = card(SMALL, diagnose(SMALL)).splitlines()
    assert len(usual) <= 24
    assert max(map(len, usual)) <= 80
    # A word of a statement is never cut.
    assert max(len(text) for text in narrow if not text.startswith("  ")) <= 60
    assert 80 < max(map(len, wide)) <= 120
    assert len(narrow) > len(wide) > len(pipe)
    assert not any("…" in text for text in pipe)


def test_long_names_fit_too() -> None:
    facts = table_facts(
        table=("d" * 60, "t" * 100),
        manifests=manifest_facts(overlaps=(RangeOverlap(0, "x" * 200, 5, 1.0),)),
    )
    found = Findings(
        finding("n" * 90, Severity(n % 3 + 1), evidence="city " * 100, remedy="long" * 100)
        for n in range(9)
    )

    shown = card(facts, found)

    # A statement is one line, to be pasted.
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    assert "    and 4 more" in shown


def test_colour_changes_no_letter() -> None:
    painted = card(SMALL, diagnose(SMALL), color=True)

    assert "\x1b[1;31m✖ critical\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == card(SMALL, diagnose(SMALL))


def test_a_name_cannot_command_the_terminal_and_is_escaped_in_a_notebook() -> None:
    evil = "\x1b[2J\x07<script>alert(1)</script>"
    facts = table_facts(table=("db", evil))
    findings = Findings([finding(evil, evidence=evil, remedy=evil, sql=(evil,))])

    assert "\x1b" not in card(facts, findings)
    assert "&lt;script" in card_html(facts, findings)
    assert "<script" not in card_html(facts, findings)


SHOWN = {
    "healthy": table_facts(),
    "empty": empty_facts(),
    "small-files": SMALL,
    "deletes": table_facts(
        groups=(
            file_group(records_per_file=1000),
            file_group(1, kind=Kind.POSITION_DELETES, records_per_file=60),
            file_group(1, 2, kind=Kind.EQUALITY_DELETES, records_per_file=20),
        )
    ),
    "one-large-file": table_facts(
        groups=(file_group(*[MIB] * 999), file_group(GIB, of=partition(7)))
    ),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_card_looks_like_its_golden_file_in_a_terminal_and_a_notebook(
    case: str, golden: Golden
) -> None:
    facts = SHOWN[case]

    golden(f"card/{case}.txt", card(facts, diagnose(facts)))
    golden(f"card/{case}.html", card_html(facts, diagnose(facts)))


def test_a_look_is_its_card_and_is_written_as_a_page_and_as_json(tmp_path: Path) -> None:
    look = Look(SMALL, diagnose(SMALL), Thresholds())

    assert repr(look) == card(SMALL, look.findings)
    assert look._repr_html_() == card_html(SMALL, look.findings) + look.findings._repr_html_()
    page = look.to_html(tmp_path / "look.html").read_text()
    assert "small files" in page
    assert "rewrite_data_files" in page
    assert load_facts(look.to_json(tmp_path / "look.json")) == SMALL
    assert repr(SMALL) == "<TableFacts of db.events: 150 data files, 150 MiB>"
    assert repr(look.findings[0]).startswith("critical small_files: ")
