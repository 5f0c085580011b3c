"""The small picture of file sizes on a page."""

import xml.etree.ElementTree as ET

from icekit.diagnose import diagnose
from icekit.diagnose.findings import Thresholds, findings_html
from icekit.show.sizes_picture import sizes_picture
from tests.factories import MIB, file_group, table_facts

SMALL = table_facts(groups=(file_group(*[MIB] * 9, 500 * MIB),))


def texts(drawn: str) -> list[str]:
    return [
        (each.text or "").replace("\N{NO-BREAK SPACE}", " ")
        for each in ET.fromstring(drawn).iter("text")
    ]


def test_it_has_the_number_of_files_of_each_range_and_the_target() -> None:
    said = texts(sizes_picture(SMALL))

    assert said[0] == "Data files by size, and their share of the bytes"
    assert "9 (1.8 %)" in said
    assert "1 (98 %)" in said
    assert said.count("target 512 MiB") == 1


def test_only_the_sizes_that_a_rewrite_leaves_alone_are_shaded() -> None:
    def drawn(color: str) -> list[tuple[float, float]]:
        every = [
            r.attrib
            for r in ET.fromstring(sizes_picture(SMALL)).iter("rect")
            if r.get("fill") == color
        ]
        return [(float(r["x"]), float(r["width"])) for r in every if float(r["height"]) > 0]

    ((left, wide),), bars = drawn("#e3f1ea"), drawn("#0072b2")
    assert len(bars) == 2
    assert [left < x < left + wide for x, _ in bars].count(True) == 1


def test_it_says_in_words_what_it_shows() -> None:
    drawn = ET.fromstring(sizes_picture(SMALL))

    assert drawn.get("role") == "img"
    assert drawn.get("aria-label", "").startswith("Sizes of 10 data files: 9 under 32 MiB, 1 ")
    assert drawn.get("aria-label", "").endswith("; the target is 512 MiB.")


def test_the_limits_in_force_set_its_ranges() -> None:
    limits = Thresholds(min_file_size_ratio=0.5)
    facts = table_facts(groups=(file_group(300 * MIB, ratios=limits.size_ratios),))

    assert any(text.startswith("256 MiB–") for text in texts(sizes_picture(facts, limits)))


def test_without_data_files_there_is_no_picture() -> None:
    assert sizes_picture(table_facts(groups=())) == ""


def test_it_stands_between_the_verdict_and_the_findings() -> None:
    shown = findings_html(diagnose(SMALL), context=["Snapshot 7."], picture=sizes_picture(SMALL))

    assert shown.index("Snapshot 7.") < shown.index("<svg") < shown.index('<div class="finding')
