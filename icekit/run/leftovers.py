"""List files that failed attempts wrote and no snapshot names; delete nothing."""

from __future__ import annotations

import datetime as dt
import shlex

from icekit.catalog import Lake
from icekit.engine.metadata_tables import metadata_table
from icekit.facts.head import head
from icekit.facts.storage import ORPHAN_AGE
from icekit.sql import Identifier, display_name, literal

EXAMPLES = 20
# A scheme and authority that the listing and the metadata may write differently.
_PATH = "regexp_replace({}, '^[a-zA-Z][a-zA-Z0-9+.-]*:(//[^/]*)?', '')"


def find_leftovers(lake: Lake, table: Identifier, since_ms: int) -> tuple[tuple[str, ...], str | None]:
    """Data files under the table's location, written since a moment, that no snapshot names.

    Returns at most twenty paths, and the command that removes all of them once they are three days
    old (a writer may be about to commit younger ones), unless another table keeps files there. Lists the
    location with Spark's file source: raises what that raises where it cannot.
    """
    spark, name = lake.spark, lake.sql_name(table)
    metadata = head(lake, table).metadata
    folder = (metadata.get("properties") or {}).get("write.data.path") or f"{metadata['location'].rstrip('/')}/data"
    # Only the listing's columns are selected, so no file is opened.
    listed = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("ignoreMissingFiles", "true")
        .load(folder)
        .select("path", "modificationTime")
    )
    since = dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC)
    written = listed.where(f"modificationTime >= TIMESTAMP {literal(since.isoformat(sep=' '))}")
    known = metadata_table(spark, name, "all_files")
    lost = (
        written.selectExpr("path", f"{_PATH.format('path')} AS plain")
        .join(known.selectExpr(f"{_PATH.format('file_path')} AS plain"), "plain", "left_anti")
        .select("path")
    )
    paths = tuple(sorted(str(row[0]) for row in lost.limit(EXAMPLES).collect()))
    if not paths:
        return (), None
    when = dt.datetime.now(dt.UTC) + ORPHAN_AGE
    command = f"icekit maintain {shlex.quote(display_name(table))} --catalog {shlex.quote(lake.name)} --procedures remove_orphan_files"
    return paths, f"{command}, from {when:%Y-%m-%d %H:%M} UTC on (it lists them; with --execute it removes them)"
