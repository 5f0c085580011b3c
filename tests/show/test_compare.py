"""Two states of a table next to each other: what got better, what got worse, and by how much."""

from pathlib import Path

from icekit import Thresholds, compare, diagnose
from icekit.common.saving import as_data
from icekit.health.diagnose import document
from tests.factories import file_group, healthy_groups, table_facts
from tests.golden import Golden

MIB = 2**20
SICK = table_facts(groups=(file_group(*[MIB] * 500),))
HEALTHY = table_facts(groups=healthy_groups())


def test_a_compacted_table_is_better_and_its_figures_stand_next_to_each_other(
    golden: Golden,
) -> None:
    found = compare(SICK, HEALTHY)

    assert not found.changes.worse
    assert len(compare(HEALTHY, SICK).changes.worse) == len(found.changes.better) > 0
    golden("compare.txt", found.text())


def test_a_page_has_the_same_and_opens_offline(tmp_path: Path) -> None:
    page = compare(HEALTHY, SICK).to_html(tmp_path / "compare.html").read_text()

    assert all(text in page for text in ("small files is new", "--trial", "under 32 MiB"))
    assert "https:" not in page


def test_a_table_that_did_not_change_says_so() -> None:
    found = compare(SICK, SICK)

    assert found.verdict == "no change"
    assert "No finding came or went." in found.text()


def test_two_reports_are_compared_as_their_tables_would_be(tmp_path: Path) -> None:
    files = [
        document.write(facts, diagnose(facts), Thresholds(), tmp_path / f"{name}.json")
        for name, facts in (("before", SICK), ("after", HEALTHY))
    ]

    assert compare(*files).document() == compare(SICK, HEALTHY).document()
    counts = as_data(compare(*files).document())["figures"][0]
    assert [type(counts[when]) for when in ("before", "after")] == [int, int]
