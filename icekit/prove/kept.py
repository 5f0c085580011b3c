"""Prove that maintenance has lost nothing: manifest entries, refs and snapshots, live files; reads no rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.errors import IcekitError
from icekit.facts.collect import load_metadata
from icekit.facts.metadata import named_files
from icekit.prove.fingerprint import Print, prints, row_hash
from icekit.prove.proof import Check, Kept
from icekit.sql import Identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icekit.catalog.lake import Lake

Json = Mapping[str, Any]

#: Live files that are looked for in storage: enough to notice that a share of them is gone.
SAMPLE = 200
#: SQL for a path without its scheme and authority, which a listing and the metadata may write differently.
PLAIN = "regexp_replace({}, '^[a-zA-Z][a-zA-Z0-9+.-]*:(//[^/]*)?', '')"


def prove_entries(lake: Lake, table: Identifier, snapshot_ids: Sequence[int]) -> Kept:
    """Compare the live manifest entries of each commit with its parent's, whatever their order.

    What ``rewrite_manifests`` must leave as it was: each file with its partition, sequence
    numbers, sizes and statistics. Reads every manifest of both sides, and no data file. A commit
    or parent that has expired is not provable. ``table`` is without its catalog.
    """
    started = time.monotonic()
    snapshots = _snapshots(lake, table)
    checks = []
    for snapshot_id in snapshot_ids:
        parent_id = (snapshots.get(snapshot_id) or {}).get("parent-snapshot-id")
        if parent_id is None or parent_id not in snapshots:
            checks.append(Check(None, f"commit {snapshot_id} or its parent has expired"))
            continue
        before, after = (_entries(lake, table, each) for each in (parent_id, snapshot_id))
        same = before == after
        said = f"the same {count(after.row_count, 'live entry', 'live entries')} as before, with their statistics"
        checks.append(
            Check(
                same,
                f"commit {snapshot_id}: "
                + (said if same else f"{before.row_count:,} live entries before, {after.row_count:,} after, NOT THE SAME"),
            )
        )
    return Kept("rewrite_manifests", tuple(checks), time.monotonic() - started)


def _entries(lake: Lake, table: Identifier, snapshot_id: int) -> Print:
    entries = metadata_table(lake.spark, lake.sql_name(table), "entries", snapshot_id).where("status < 2")
    # The readable metrics are made of the statistics beside them.
    frame = entries.select("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
    return prints(frame.selectExpr(f"{row_hash(frame.schema)} AS h")).get((), Print())


def prove_history(lake: Lake, table: Identifier, before: Json, kept: Sequence[int], refs: Sequence[str], *, sample: int = SAMPLE) -> Kept:
    """Check what an expiry had to leave: refs, snapshots, their manifests, a sample of their files.

    ``before`` is the metadata JSON of before; ``kept`` are the snapshots and ``refs`` the
    branches and tags that had to stay.
    """
    started = time.monotonic()
    metadata = load_metadata(lake.tables.source(table))
    there = {int(s["snapshot-id"]) for s in metadata.get("snapshots") or ()}
    lost = [s for s in kept if s not in there]
    checks = [
        Check(
            not lost,
            f"{count(len(lost), 'snapshot')} GONE that had to stay: {lost[:5]}"
            if lost
            else f"all {len(kept):,} snapshots that had to stay are there",
        )
    ]
    now_refs, old_refs = metadata.get("refs") or {}, before.get("refs") or {}
    gone = [name for name in refs if name in old_refs and (name not in now_refs or old_refs[name]["snapshot-id"] not in there)]
    checks.append(Check(not gone, f"GONE: {', '.join(gone)}" if gone else f"{', '.join(refs) or 'no ref'} protected and there"))
    checks += _readable(lake, table, sample)
    return Kept("expire_snapshots", tuple(checks), time.monotonic() - started)


def prove_live(lake: Lake, table: Identifier, what: str, checks: Sequence[Check] = (), *, sample: int = SAMPLE) -> Kept:
    """Check that every manifest of the table can be read and a sample of the files they name is in storage."""
    started = time.monotonic()
    return Kept(what, (*checks, *_readable(lake, table, sample)), time.monotonic() - started)


def _readable(lake: Lake, table: Identifier, sample: int) -> Iterator[Check]:
    """Every kept snapshot's manifest list and manifests, and some of the files that they name."""
    name = lake.sql_name(table)
    try:
        files = metadata_table(lake.spark, name, "all_files").select("file_path").distinct()
        chosen = spread(files, sample)
        total = files.count()
    except Exception as error:
        known = explain(error, name)
        if not isinstance(known, IcekitError):
            raise known from error
        yield Check(False, f"a manifest of a kept snapshot cannot be read: {known}")
        return
    yield Check(True, f"all manifests of all snapshots can be read; they name {count(total, 'file')}")
    if not has_bridge(lake.spark):
        yield Check(None, "without the JVM bridge (Spark Connect) no file can be looked for in storage")
        return
    io = load_table(lake.spark, name).io()
    missing = [path for path in chosen if not io.newInputFile(path).exists()]
    if missing:
        yield Check(False, f"{count(len(missing), 'file')} of {len(chosen):,} looked for are GONE, for example {missing[0]}")
    else:
        yield Check(True, f"{len(chosen):,} of them were looked for in storage and are there")


def referenced(lake: Lake, table: Identifier, paths: DataFrame) -> list[str]:
    """Which of some paths the table's metadata names: at most ten; ``paths`` has a column ``file_path``.

    Looked up among the data and delete files, manifests and manifest lists of every snapshot,
    the metadata files of the log, and statistics files. Raises the errors of :mod:`icekit.errors`.
    """
    name = lake.sql_name(table)
    source = lake.tables.source(table)
    metadata = load_metadata(source)
    named = named_files(metadata, source.metadata_location)
    spark = lake.spark
    known = metadata_table(spark, name, "all_files").selectExpr("file_path AS path")
    known = known.unionAll(metadata_table(spark, name, "all_manifests").select("path"))
    known = known.unionAll(spark.createDataFrame([(path,) for path in named], "path string"))
    wanted = paths.selectExpr("file_path", f"{PLAIN.format('file_path')} AS plain")
    hits = wanted.join(known.selectExpr(f"{PLAIN.format('path')} AS plain"), "plain", "left_semi").select("file_path").limit(10)
    return sorted(str(row[0]) for row in hits.collect())


def _snapshots(lake: Lake, table: Identifier) -> dict[int, Json]:
    return {int(s["snapshot-id"]): s for s in load_metadata(lake.tables.source(table)).get("snapshots") or ()}
