"""Observe and judge a table as a command's options say: what look, report, compact and maintain share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from icekit.errors import ParameterError

if TYPE_CHECKING:
    from icekit.api import Lake
    from icekit.diagnose.findings import Findings, Thresholds
    from icekit.facts import TableFacts


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is healthy."""
    parser.add_argument("--filter-columns", default="", help="columns that queries filter by, separated by commas")
    parser.add_argument("--threshold", action="append", default=[], metavar="NAME=VALUE", help="change a limit; may be repeated")


def filter_columns(arguments: argparse.Namespace) -> list[str]:
    """The columns that queries filter by; none if none are given."""
    return [column.strip() for column in arguments.filter_columns.split(",") if column.strip()]


def changes(arguments: argparse.Namespace) -> dict[str, float]:
    """The limits that are changed; raises :class:`~icekit.errors.ParameterError` for what is not NAME=VALUE."""
    found: dict[str, float] = {}
    for pair in arguments.threshold:
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ParameterError(f"--threshold {pair!r} is not NAME=VALUE with a number; for example min_file_size_ratio=0.5.") from None
    return found


def limits_of(arguments: argparse.Namespace) -> Thresholds:
    """The default thresholds with those changed that are given."""
    from icekit.diagnose.findings import Thresholds

    return Thresholds().with_changes(**changes(arguments))


def diagnosed(lake: Lake, arguments: argparse.Namespace, limits: Thresholds, **options: Any) -> tuple[TableFacts, Findings]:
    """The facts of the command's table and what is wrong with it; further options are those of :meth:`icekit.api.Lake.observe`."""
    from icekit.diagnose import diagnose

    facts = lake.observe(arguments.table, size_ratios=limits.size_ratios, filter_columns=filter_columns(arguments) or None, **options)
    return facts, diagnose(facts, limits, session_conf=lake.session_conf())
