"""A table whose filter column is a long text: bounds are kept, and cut off before its values differ."""

from __future__ import annotations

from icekit.lab.workbench import FILTER_COLUMNS, Lab, LabTable

_COLUMNS = "url string, flight_id bigint, time_hour timestamp, tailnum string, dest string, dep_delay int, arr_delay int, distance int"
_URL = "concat('https://tracking.example.org/v1/airports/', origin, '/carriers/', carrier, '/flights/', lpad(flight, 4, '0'), '/', flight_date)"


def _urls(lab: Lab) -> None:
    """Sort a tracker's calls by their URL, as queries ask for it, and leave the metrics as they are by default.

    Bounds are cut to 16 characters (``truncate(16)``), and the first 41 are the same in every URL:
    all files have the same bounds, and the sort order helps no query.
    """
    # A row group holds long texts uncompressed while it is open, and would end the file far below the target.
    lab.create("", {FILTER_COLUMNS: "url", "write.parquet.row-group-size-bytes": str(lab.target_size_bytes // 8)}, columns=_COLUMNS)
    lab.sql("ALTER TABLE {t} WRITE ORDERED BY url")
    rest = ", ".join(part.split()[0] for part in _COLUMNS.split(", ")[1:])
    lab.sql(f"INSERT INTO {{t}} SELECT {_URL}, {rest} FROM {{flights}} WHERE month <= 6")


TABLES = (
    LabTable(
        "urls",
        "It is sorted by URL, and all its URLs begin with the same 41 characters, of which bounds keep 16.",
        frozenset({"unclustered_filter_columns"}),
        _urls,
    ),
)
