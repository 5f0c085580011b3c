"""Tables that merge on read: position deletes, deletion vectors, and deletes left dangling."""

from __future__ import annotations

from icekit.lab.workbench import Lab, LabTable

MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read", "write.merge.mode": "merge-on-read"}


def _position_deletes(lab: Lab) -> None:
    """Correct and delete rows merge-on-read, month after month, without compacting.

    Each statement leaves position delete files beside every data file it touches, which
    every later scan has to read and merge.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql("UPDATE {t} SET arr_delay = 0 WHERE carrier = 'VX'")
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


def _deletion_vectors(lab: Lab) -> None:
    """Do the same in format v3, where a data file has at most one deletion vector."""
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql(
        "MERGE INTO {t} USING (SELECT * FROM {flights} WHERE month <= 4 AND carrier = 'VX') s ON {t}.flight_id = s.flight_id "
        "WHEN MATCHED THEN UPDATE SET arr_delay = s.arr_delay + 1"
    )
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


def _dangling_deletes(lab: Lab) -> None:
    """Compact the months that are hot, and leave their position deletes behind.

    A compaction rewrites data without the deleted rows; the delete files stay, pointing at
    nothing, for as long as some other partition has data older than they are.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month <= 4")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND carrier IN ('F9', 'YV', 'HA', 'OO')")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND dep_time IS NULL AND dest = 'ORD'")
    lab.sql("INSERT INTO {t} SELECT * FROM {flights} WHERE month = 5")
    lab.call("rewrite_data_files", "where => 'month >= 3', options => map('rewrite-all', 'true')")


TABLES = (
    LabTable(
        "position_deletes",
        "Rows are deleted and updated merge-on-read in format v2, and readers merge many position deletes.",
        frozenset({"position_deletes", "v2_position_deletes"}),
        _position_deletes,
    ),
    LabTable(
        "deletion_vectors",
        "Rows are deleted and updated merge-on-read in format v3, and most files have a deletion vector.",
        frozenset({"deletion_vectors"}),
        _deletion_vectors,
    ),
    LabTable(
        "dangling_deletes",
        "Its data was compacted, and the delete files that applied to the old files are still there.",
        frozenset({"dangling_deletes"}),
        _dangling_deletes,
    ),
)
