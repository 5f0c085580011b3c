"""A pair of tables for a MERGE: nothing is wrong with either, but the statement opens all of one for a little of the other."""

from __future__ import annotations

from icekit.lab.flights import ROWS
from icekit.lab.workbench import Lab, LabTable

_COLUMNS = "carrier string, flight int, origin string, time_hour timestamp, dest string, tailnum string, dep_delay int, arr_delay int, distance int"
_NAMES = ", ".join(column.split()[0] for column in _COLUMNS.split(", "))
# A MERGE that touches existing rows writes position deletes, not whole files.
_MERGE_ON_READ = {"format-version": "2", "write.merge.mode": "merge-on-read"}


def _delays(lab: Lab) -> None:
    """Load a winter of flights, a file a day; a flight is known by carrier, number, airport and scheduled hour."""
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    lab.sql(f"INSERT INTO {{t}} SELECT {_NAMES} FROM {{flights}} WHERE month <= 3")


def _delay_corrections(lab: Lab) -> None:
    """Bring what an airline sends afterwards: a third of three days' flights with other delays, and some that were missing."""
    lab.create("days(time_hour)", _MERGE_ON_READ, columns=_COLUMNS)
    # At a larger scale the same flight is there several times; a MERGE takes one row of the source for each.
    some = f"month = 2 AND day BETWEEN 10 AND 12 AND flight_id < {ROWS}"
    names = _NAMES.replace("arr_delay", "coalesce(arr_delay, 0) + 5 AS arr_delay")
    added = _NAMES.replace("flight,", "flight + 10000 AS flight,", 1)
    lab.sql(
        f"INSERT INTO {{t}} SELECT {names} FROM {{flights}} WHERE {some} AND flight % 3 = 0 "
        f"UNION ALL SELECT {added} FROM {{flights}} WHERE {some} AND flight % 40 = 1"
    )


TABLES = (
    LabTable(
        "delays",
        "Nothing by itself: it has a file a day, and a MERGE by its natural key opens every one of them.",
        frozenset(),
        _delays,
    ),
    LabTable(
        "delay_corrections",
        "Nothing by itself: it holds corrections for three days, to be merged into delays.",
        frozenset(),
        _delay_corrections,
    ),
)
