"""Build the lab's tables with position deletes and deletion vectors."""

from __future__ import annotations

from icekit.lab.workbench import Lab, lab_table

MERGE_ON_READ = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


@lab_table(
    "Rows were deleted and updated with merge-on-read in format v2, so readers merge many "
    "position deletes.",
    "position_deletes",
    "v2_position_deletes",
)
def position_deletes(lab: Lab) -> None:
    """Update and delete rows with merge-on-read, month after month, without compaction.

    Each statement adds position delete files for the data files it touches, and
    every later scan has to read and merge them.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.insert("month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql("UPDATE {t} SET arr_delay = 0 WHERE carrier = 'VX'")
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


@lab_table(
    "Rows were deleted and updated with merge-on-read in format v3, so most data files have a "
    "deletion vector.",
    "deletion_vectors",
)
def deletion_vectors(lab: Lab) -> None:
    """The same in format v3, in which a data file has at most one deletion vector."""
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.insert("month <= 4")
    lab.sql("DELETE FROM {t} WHERE dep_time IS NULL")
    lab.sql(
        "MERGE INTO {t} USING (SELECT * FROM {flights} WHERE month <= 4 AND carrier = 'VX') s ON "
        "{t}.flight_id = s.flight_id WHEN MATCHED THEN UPDATE SET arr_delay = s.arr_delay + 1"
    )
    lab.sql("DELETE FROM {t} WHERE carrier = 'US'")


@lab_table(
    "Its data was compacted, but the delete files that applied to the old data files still exist.",
    "dangling_deletes",
)
def dangling_deletes(lab: Lab) -> None:
    """Compact only the recent months, and leave their position deletes behind.

    A compaction rewrites data without the deleted rows; the delete files stay, without any data
    to apply to, as long as another partition has older data.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "2"})
    lab.insert("month <= 4")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND carrier IN ('F9', 'YV', 'HA', 'OO')")
    lab.sql("DELETE FROM {t} WHERE month >= 3 AND dep_time IS NULL AND dest = 'ORD'")
    lab.insert("month = 5")
    lab.call("rewrite_data_files", "where => 'month >= 3'", "options => map('rewrite-all', 'true')")


@lab_table(
    "Each of many small DELETE statements hits nearly every file, and writes the deletion "
    "vectors of all earlier ones again.",
    "vectors_rewritten",
)
def vectors_rewritten(lab: Lab) -> None:
    """Delete one airline after another from files that have rows of all of them: each statement
    replaces the vector of each file.
    """
    lab.create("months(time_hour)", {**MERGE_ON_READ, "format-version": "3"})
    lab.insert("month <= 2")
    for carrier in ("AS", "F9", "FL", "HA", "VX", "YV"):
        lab.sql(f"DELETE FROM {{t}} WHERE carrier = '{carrier}'")
