"""Two sides are compared figure by figure, and findings come, go or stay."""

from __future__ import annotations

from icekit.diagnose import diagnose
from icekit.diagnose.document import Comparison, compare
from icekit.facts.model import Kind
from tests.factories import KIB, file_group, healthy_groups, table_facts

HEALTHY = table_facts(groups=healthy_groups())
SICK = table_facts(groups=(*healthy_groups(), file_group(*[64 * KIB] * 50), file_group(KIB, kind=Kind.POSITION_DELETES)))


def compared() -> Comparison:
    return compare(HEALTHY, SICK, diagnose(HEALTHY), diagnose(SICK))


def figure(name: str) -> tuple[float | None, float | None, float | None]:
    found = next(f for f in compared().figures if f.name == name)
    return found.before, found.after, found.difference


def test_a_figure_has_both_sides_and_their_difference() -> None:
    assert figure("data files") == (40, 90, 50)
    assert figure("position delete files") == (0, 1, 1)


def test_kinds_of_deletes_that_neither_side_has_are_left_out() -> None:
    assert "deletion vectors" not in {f.name for f in compared().figures}


def test_a_mean_of_nothing_is_absent_and_so_is_its_difference() -> None:
    empty = table_facts(groups=())
    found = next(f for f in compare(empty, HEALTHY, diagnose(empty), diagnose(HEALTHY)).figures if f.name == "mean data file")

    assert (found.before, found.difference, found.ratio) == (None, None, None)


def test_findings_come_and_go() -> None:
    there = compared()
    back = compare(SICK, HEALTHY, diagnose(SICK), diagnose(HEALTHY))

    assert "small_files" in there.came.names
    assert there.came.names == back.went.names
    assert not there.went


def test_it_shows_as_lines_and_as_a_table_with_signs() -> None:
    assert "+50" in repr(compared())
    assert "findings, new: small files" in repr(compared())
    assert "× 2.25" in compared()._repr_html_()
