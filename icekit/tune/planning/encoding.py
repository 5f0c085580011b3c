"""Try other compression, row groups and pages on a copied sample: bytes, time to write, time to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.facts.head import head, since
from icekit.facts.model import TableFacts
from icekit.sql import identifier, set_properties, unset_properties
from icekit.tune.budget import Budget
from icekit.tune.place import Place
from icekit.tune.reading import scan
from icekit.tune.write_mode.history import change
from icekit.units import size

if TYPE_CHECKING:
    from icekit.catalog import Lake

#: A session's codec overrides every table's.
SESSION_CODEC = "spark.sql.iceberg.compression-codec"
CODEC, LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
ROW_GROUP, PAGE = "write.parquet.row-group-size-bytes", "write.parquet.page-size-bytes"
_PAGE_BYTES = 1_048_576
_CODECS: tuple[tuple[str, str | None], ...] = (("zstd", "1"), ("zstd", "9"), ("snappy", None), ("gzip", None))


@dataclass(frozen=True, slots=True)
class Encoding:
    """The sample written in one way; seconds on the wall, those of a scan the least of some.

    ``properties`` are those that differ from the table's own; empty for the way it is written now.
    """

    name: str
    properties: tuple[tuple[str, str], ...]
    size_in_bytes: int
    write_seconds: float
    scan_seconds: float


def candidates(facts: TableFacts) -> dict[str, dict[str, str]]:
    """What is tried, by name: the way it is now, other codecs and levels, smaller row groups and pages; empty unless it writes Parquet."""
    if (facts.setting("write.format.default") or "parquet").lower() != "parquet":
        return {}
    codec = (facts.setting(CODEC) or "").lower()
    level = facts.properties.get(LEVEL)
    now = f"{codec}{f' {level}' if level else ''}, as now"
    found: dict[str, dict[str, str]] = {now: {}}
    for other, at in _CODECS:
        # A level goes with its codec; a number is none of gzip's levels (ZlibCompressor.CompressionLevel), and no statement sets and unsets at once.
        if (other, at) != (codec, level) and (at is not None or level is None):
            found[f"{other}{f' {at}' if at else ''}"] = {CODEC: other, **({LEVEL: at} if at else {})}
    found["row groups a quarter"] = {ROW_GROUP: str(facts.int_setting(ROW_GROUP) // 4)}
    found["pages a quarter"] = {PAGE: str(int(facts.properties.get(PAGE) or _PAGE_BYTES) // 4)}
    return found


def try_encodings(
    lake: Lake, facts: TableFacts, place: Place, *, repeats: int, budget: Budget, progress: Callable[[str], None]
) -> tuple[Encoding, ...]:
    """Write the rows of a scratch table anew in each way, and read them; they are a copy of some of the table's rows."""
    name = lake.sql_name(place.table)
    # Read from where they were copied to: the same small source for every way, and not the table.
    source = f"SELECT * FROM {identifier(*name)} VERSION AS OF {head(lake, place.table).snapshot_id}"
    written: list[tuple[str, tuple[tuple[str, str], ...], int, float, int | None]] = []
    reset = {
        CODEC: facts.setting(CODEC) or "",
        ROW_GROUP: str(facts.int_setting(ROW_GROUP)),
        PAGE: facts.properties.get(PAGE) or str(_PAGE_BYTES),
    }
    for number, (title, properties) in enumerate(candidates(facts).items()):
        _set(lake, place, {**reset, **properties}, facts.properties.get(LEVEL))
        # The first write warms up and is not measured.
        for measured in (False, True) if number == 0 else (True,):
            before = head(lake, place.table).snapshot_id
            with budget.watching(lake.spark, place.size_in_bytes):
                started = time.monotonic()
                lake.spark.sql(f"INSERT OVERWRITE {identifier(*name)} {source}")
                seconds = time.monotonic() - started
            now = head(lake, place.table)
            size_in_bytes = sum(change(s).bytes_written for s in since(now, before))
            budget.bytes_written += size_in_bytes
            if measured:
                written.append((title, tuple(properties.items()), size_in_bytes, seconds, now.snapshot_id))
                progress(f"{title}: {size(size_in_bytes)}, written in {seconds:.2f} s")
    # Each is a snapshot of its own, so that they can be read in turns: what disturbs the machine disturbs all alike.
    reads: list[list[float]] = [[] for _ in written]
    for _ in range(repeats + 1):
        for times, (*_, snapshot_id) in zip(reads, written, strict=True):
            with budget.watching(lake.spark):
                times.append(scan(lake.spark, name, snapshot_id=snapshot_id))
    return tuple(
        Encoding(title, properties, size_in_bytes, seconds, min(times[1:]))
        for (title, properties, size_in_bytes, seconds, _), times in zip(written, reads, strict=True)
    )


def _set(lake: Lake, place: Place, properties: Mapping[str, str], level: str | None) -> None:
    wanted = dict(properties)
    if LEVEL not in wanted and level is not None:
        wanted[LEVEL] = level
    name = lake.sql_name(place.table)
    lake.spark.sql(set_properties(name, wanted))
    if LEVEL not in wanted:
        lake.spark.sql(unset_properties(name, [LEVEL]))
