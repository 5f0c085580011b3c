import datetime as dt

import pytest

from icekit import units

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "under 1 second"),
        (0.999, "under 1 second"),
        (1, "1 second"),
        (59.4, "59 seconds"),
        (60, "1 minute"),
        (90, "2 minutes"),
        (3600, "1 hour"),
        (7200, "2 hours"),
        (86_400, "1 day"),
        (364 * 86_400, "364 days"),
        (365 * 86_400, "1 year"),
        (4e8, "13 years"),
    ],
)
def test_a_span_is_told_in_its_largest_fitting_unit(seconds: float, told: str) -> None:
    assert units.span(seconds * 1000) == told


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "0"),
        (0.25, "0.25"),
        (0.00001, "0.00001"),
        (3.14159, "3.14"),
        (2.0, "2"),
        (999.6, "1,000"),
        (12_200, "12,200"),
    ],
)
def test_a_number_has_three_digits_and_no_exponent(number: float, told: str) -> None:
    assert units.plain(number) == told


def test_a_number_of_two_digits_has_no_exponent_just_below_a_hundred() -> None:
    assert [units.plain(99.7, 2), units.plain(4.12, 2), units.plain(1e6, 6)] == [
        "100",
        "4.1",
        "1,000,000",
    ]


@pytest.mark.parametrize(
    ("width", "short"),
    [(1, "…"), (2, "a…"), (10, "abcde…wxyz"), (11, "abcde…vwxyz"), (26, ALPHABET)],
)
def test_a_shortened_text_has_the_width_and_both_ends_alike(width: int, short: str) -> None:
    assert units.shorten(ALPHABET, width) == short
    assert len(short) == width


def test_no_line_ends_between_a_figure_and_its_unit() -> None:
    assert units.unbroken("3 % of 4 Bees in 1 B").split(" ") == [
        "3\N{NO-BREAK SPACE}%",
        "of",
        "4",
        "Bees",
        "in",
        "1\N{NO-BREAK SPACE}B",
    ]


@pytest.mark.parametrize(
    ("size_in_bytes", "told"),
    [
        (0, "0 B"),
        (1.5, "2 B"),
        (999, "999 B"),
        (1000, "1 KiB"),
        (1023, "1 KiB"),
        (1024, "1 KiB"),
        (-1536, "-1.5 KiB"),
        (99.5 * 1024, "99.5 KiB"),
        (100 * 1024, "100 KiB"),
        (100.4 * 1024, "100 KiB"),
        (5.5 * 1024**2, "5.5 MiB"),
        (999.4 * 1024, "999 KiB"),
        (999.5 * 1024, "1 MiB"),
        (1017 * 1024**2, "1 GiB"),
        (-1017 * 1024**2, "-1 GiB"),
        (1024**2 - 1, "1 MiB"),
        (3 * 1024**3, "3 GiB"),
        (2.5 * 1024**4, "2.5 TiB"),
        (1024**5, "1.0 PiB"),
        (1024**6, "1,024.0 PiB"),
    ],
)
def test_a_size_is_told_in_binary_units(size_in_bytes: float, told: str) -> None:
    assert units.size(size_in_bytes) == told


def test_a_range_of_sizes_names_both_ends_and_has_no_needless_decimals() -> None:
    assert units.size_range(65536, 131072) == "64 KiB–128 KiB"
    assert units.size_range(65536, None) == "64 KiB and more"


def test_shares_from_a_tenth_on_have_no_decimals() -> None:
    assert [units.percent(share) for share in (0, 0.00001, 0.0005)] == [
        "0 %",
        "under 0.1 %",
        "0.1 %",
    ]
    assert [units.percent(share) for share in (0.0312, 0.094, 0.1, 0.874, 1.0)] == [
        "3.1 %",
        "9.4 %",
        "10 %",
        "87 %",
        "100 %",
    ]


def test_one_thing_is_singular_and_several_take_their_own_plural() -> None:
    assert [units.count(n, "file") for n in (0, 1, 2, 1234)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,234 files",
    ]
    assert [units.count(n, "branch or tag", "branches and tags") for n in (1, 2)] == [
        "1 branch or tag",
        "2 branches and tags",
    ]


def test_a_time_is_told_in_utc() -> None:
    assert units.at(1_500) == dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
    assert units.moment(1_767_323_045_000) == "2026-01-02 03:04 UTC"


def test_what_a_terminal_would_obey_is_shown_as_replaced() -> None:
    assert (
        units.printable("a\x1b[0m b\n")
        == "a\N{REPLACEMENT CHARACTER}[0m b\N{REPLACEMENT CHARACTER}"
    )
