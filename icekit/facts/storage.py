"""List files under a table's location that no snapshot references; delete nothing."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from icekit.facts.bridge import explain
from icekit.facts.model import StorageFacts
from icekit.sql import Identifier, call, display_name, orphan_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# remove_orphan_files leaves younger files alone: a writer may be about to commit them.
ORPHAN_AGE = dt.timedelta(days=3)
EXAMPLES = 5


def list_orphans(spark: SparkSession, table: Identifier, location: str, now: dt.datetime | None = None) -> StorageFacts:
    """Count orphan files by the dry run of ``remove_orphan_files``; ``table`` has its catalog.

    Three days old or older, the procedure's own default. Reads the whole location's
    listing and every snapshot's manifests, in Spark.
    """
    older_than = ((now or dt.datetime.now(dt.UTC)) - ORPHAN_AGE).replace(microsecond=0)
    statement = call(table[0], "remove_orphan_files", **orphan_arguments(display_name(table[1:]), location), older_than=older_than)
    try:
        found = spark.sql(statement)
        count = found.count()
        examples = tuple(sorted(row[0] for row in found.limit(EXAMPLES).collect()))
    except Exception as error:
        raise explain(error, table) from error
    return StorageFacts(int(older_than.timestamp() * 1000), count, examples)
