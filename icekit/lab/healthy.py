"""Tables with nothing wrong: what a diagnosis must be silent about."""

from __future__ import annotations

from icekit.lab.workbench import FILTER_COLUMNS, Lab, LabTable


def _partitioned(lab: Lab) -> None:
    """Partition by month, bring each month to one task, and sort it by time there."""
    lab.create("months(time_hour)", {FILTER_COLUMNS: "time_hour"})
    lab.sql("ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY time_hour")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month > 6")


def _unpartitioned(lab: Lab) -> None:
    """Sort by what queries ask for, so that files can be skipped without any partition."""
    lab.create("", {FILTER_COLUMNS: "dest"})
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY dest, time_hour")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 6")


def _empty(lab: Lab) -> None:
    """Create a table that nobody has written to yet: no snapshot, no manifest list."""
    lab.create("days(time_hour)")


TABLES = (
    LabTable("healthy_partitioned", "Nothing: partitioned by month, sorted, written in well-sized files.", frozenset(), _partitioned),
    LabTable("healthy_unpartitioned", "Nothing: one unpartitioned, sorted table of well-sized files.", frozenset(), _unpartitioned),
    LabTable("empty", "Nothing: it was created and never written to, so it has no snapshot at all.", frozenset(), _empty),
)
