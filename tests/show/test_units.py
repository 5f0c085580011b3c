import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from icekit.common import units

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
MIB = 1024**2
#: What is written, by the function and its arguments.
WRITTEN: dict[Callable[..., str], dict[tuple[Any, ...], str]] = {
    # A span, in its largest fitting unit.
    units.span: {
        (0,): "under 1 second",
        (999,): "under 1 second",
        (59_400,): "59 seconds",
        (60_000,): "1 minute",
        (90_000,): "90 seconds",
        (4.1 * 86_400_000,): "4 days",
        (364 * 86_400_000,): "364 days",
        (365 * 86_400_000,): "1 year",
        (4e11,): "13 years",
    },
    # A number, with about so many digits and without an exponent.
    units.plain_number: {
        (0,): "0",
        (0.00001,): "0.00001",
        (3.14159,): "3.14",
        (999.6,): "1,000",
        (99.7, 2): "100",
        (1e6, 6): "1,000,000",
    },
    # A size, in binary units and with at most three digits before the point.
    units.size: {
        (0,): "0 B",
        (1.5,): "2 B",
        (1000,): "1 KiB",
        (-1536,): "-1.5 KiB",
        (100.4 * 1024,): "100 KiB",
        (999.4 * 1024,): "999 KiB",
        (999.5 * 1024,): "1 MiB",
        (-1017 * MIB,): "-1 GiB",
        (MIB**3,): "1,024.0 PiB",
    },
    units.size_range: {
        (65536, 131072): "64 KiB–128 KiB",
        (65536, None): "64 KiB and more",
    },
    # A share, without decimals from a tenth on.
    units.percent: {
        (0,): "0 %",
        (0.00001,): "under 0.1 %",
        (0.0005,): "0.1 %",
        (0.0312,): "3.1 %",
        (0.1,): "10 %",
        (1.0,): "100 %",
    },
    units.count: {
        (0, "file"): "0 files",
        (1, "file"): "1 file",
        (1234, "file"): "1,234 files",
        (1, "branch or tag", "branches and tags"): "1 branch or tag",
        (2, "branch or tag", "branches and tags"): "2 branches and tags",
    },
    units.time_text: {(1_767_323_045_000,): "2026-01-02 03:04 UTC"},
    # A shortened text keeps both ends.
    units.shorten: {
        (ALPHABET, 1): "…",
        (ALPHABET, 10): "abcde…wxyz",
        (ALPHABET, 11): "abcde…vwxyz",
        (ALPHABET, 26): ALPHABET,
    },
    # No line ends between a figure and its unit.
    units.with_no_break_units: {
        ("3 % of 4 Bees in 1 B",): "3\N{NO-BREAK SPACE}% of 4 Bees in 1\N{NO-BREAK SPACE}B",
    },
    # What a terminal would obey is replaced.
    units.printable_text: {
        ("a\x1b[0m b\n",): "a\N{REPLACEMENT CHARACTER}[0m b\N{REPLACEMENT CHARACTER}"
    },
}


@pytest.mark.parametrize("write", WRITTEN)
def test_a_figure_is_written_as_a_person_reads_it(write: Callable[..., str]) -> None:
    cases = WRITTEN[write]

    assert {arguments: write(*arguments) for arguments in cases} == cases


def test_a_time_is_told_in_utc() -> None:
    assert units.utc_time(1_500) == dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
