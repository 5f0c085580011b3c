import pytest

from icekit import units


@pytest.mark.parametrize(
    ("milliseconds", "told"),
    [(0, "under 1 second"), (1000, "1 second"), (90_000, "2 minutes"), (7_200_000, "2 hours"), (86_400_000, "1 day"), (4e11, "13 years")],
)
def test_a_span_is_told_in_its_largest_fitting_unit(milliseconds: float, told: str) -> None:
    assert units.span(milliseconds) == told


def test_limits_have_no_needless_decimals() -> None:
    assert [units.size(65536), units.size(1536), units.size_range(65536, None)] == ["64 KiB", "1.5 KiB", "64 KiB and more"]


@pytest.mark.parametrize("width", [1, 2, 5, 10, 25])
def test_a_shortened_text_has_the_width_and_both_ends(width: int) -> None:
    short = units.shorten("abcdefghijklmnopqrstuvwxyz", width)

    assert len(short) == width
    assert "…" in short


def test_a_short_text_is_left_as_it_is() -> None:
    assert units.shorten("abc", 3) == "abc"


def test_no_line_ends_between_a_figure_and_its_unit() -> None:
    assert units.unbroken("3 % of 4 Bees in 1 B").split(" ") == ["3\N{NO-BREAK SPACE}%", "of", "4", "Bees", "in", "1\N{NO-BREAK SPACE}B"]
