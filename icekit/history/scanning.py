"""Read ``icekit.health`` by pyiceberg: a month at a time, of the columns asked for, and the newest rows only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from icekit.history.records import Health


def from_row(row: Mapping[str, Any]) -> Health:
    """A record from a row of the table."""
    observed: dt.datetime = row["observed_at"]
    return Health.of_plain({**row, "observed_at_ms": round(observed.replace(tzinfo=observed.tzinfo or dt.UTC).timestamp() * 1000)})


def files_by_month(table: Any) -> dict[str, int]:
    """Data files by month, newest first."""
    rows = table.inspect.partitions().select(["partition", "file_count"]).to_pylist()
    found = {row["partition"]["observed_month"]: row["file_count"] for row in rows}
    return dict(sorted(found.items(), reverse=True))


def months(table: Any) -> list[str]:
    """The months that there are rows of, newest first."""
    return list(files_by_month(table))


def in_month(month: str) -> Any:
    """A filter by one month."""
    return among("observed_month", (month,))


def among(column: str, values: Collection[str]) -> Any:
    """A filter by values, however they are quoted."""
    from pyiceberg import expressions

    made: Any = expressions.In
    return made(column, set(values))


def _both(left: Any, right: Any) -> Any:
    from pyiceberg.expressions import And

    return And(left, right)


def scan(table: Any, rows: Any, tables: Sequence[str], columns: Sequence[str]) -> Any:
    """A scan of rows: of the tables, where they are few enough for a filter; of the columns that are there."""
    known = tuple(name for name in columns if name in table.schema().column_names)
    return table.scan(row_filter=_both(rows, among("table_name", tables)) if len(tables) <= 100 else rows, selected_fields=known)


def newest_of(rows: Any, tables: Collection[str], count: int, other_than: str) -> Any:
    """The newest rows of each table, so many at most, newest first; still Arrow's."""
    import pyarrow as pa

    ordered = rows.sort_by([("table_name", "ascending"), ("observed_at", "descending")])
    wanted, taken, places = set(tables), 0, []
    before: str | None = None
    for place, (name, run) in enumerate(zip(ordered["table_name"].to_pylist(), ordered["run_id"].to_pylist(), strict=True)):
        taken = taken if name == before else 0
        before = name
        if name in wanted and run != other_than and taken < count:
            taken += 1
            places.append(place)
    return ordered.take(pa.array(places, pa.int64()))


def newest_streamed(scanned: Any, tables: Collection[str], count: int, other_than: str) -> Sequence[Mapping[str, Any]]:
    """The same of a scan that is too much to hold: batch by batch, only the newest rows are kept."""
    import pyarrow as pa

    kept: Any = None
    for batch in scanned.to_arrow_batch_reader():
        rows = pa.Table.from_batches([batch])
        kept = newest_of(rows if kept is None else pa.concat_tables([kept, rows]), tables, count, other_than)
    return kept.to_pylist() if kept is not None else []


def newest(rows: Any, tables: Sequence[str], count: int, other_than: str) -> list[Health]:
    """The newest rows of each table as records."""
    return [from_row(row) for row in newest_of(rows, tables, count, other_than).to_pylist()]
