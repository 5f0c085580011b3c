"""List files under a table's location that no snapshot references, and weigh them; delete nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from icekit.facts.bridge import explain, has_bridge, load_table
from icekit.facts.model import StorageFacts
from icekit.sql import Identifier, call, display_name, orphan_arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# remove_orphan_files leaves younger files alone: a writer may be about to commit them.
ORPHAN_AGE = dt.timedelta(days=3)
EXAMPLES = 5
#: Orphans whose size is asked for, each a request to the storage; of more, these stand for all.
WEIGHED = 2_000
_AT_ONCE = 16


def list_orphans(spark: SparkSession, table: Identifier, location: str, now: dt.datetime | None = None) -> StorageFacts:
    """Count and weigh orphan files by the dry run of ``remove_orphan_files``; ``table`` has its catalog.

    Three days old or older, the procedure's own default. Reads the whole location's
    listing and every snapshot's manifests, in Spark. At most :data:`WEIGHED` files are weighed,
    chosen by a hash of their paths; without the JVM bridge none is.
    """
    from pyspark.sql import functions as F

    older_than = ((now or dt.datetime.now(dt.UTC)) - ORPHAN_AGE).replace(microsecond=0)
    statement = call(table[0], "remove_orphan_files", **orphan_arguments(display_name(table[1:]), location), older_than=older_than)
    try:
        found = spark.sql(statement)
        count = found.count()
        path = F.col(found.columns[0])
        chosen = [str(row[0]) for row in found.orderBy(F.xxhash64(path), path).limit(WEIGHED).collect()]
        sizes = _sizes(spark, table, chosen)
    except Exception as error:
        raise explain(error, table) from error
    return StorageFacts(int(older_than.timestamp() * 1000), count, tuple(sorted(chosen)[:EXAMPLES]), weighed(count, sizes), len(sizes))


def weighed(count: int, sizes: Sequence[int]) -> int | None:
    """The bytes of ``count`` files by the sizes of some: their mean for the others; None where there are files and no sizes."""
    if not count or len(sizes) >= count:
        return sum(sizes)
    return round(count * sum(sizes) / len(sizes)) if sizes else None


def _sizes(spark: SparkSession, table: Identifier, paths: Sequence[str]) -> list[int]:
    """Bytes of each file, told by the table's own FileIO, which listed them; what it cannot tell is left out."""
    if not paths or not has_bridge(spark):
        return []
    from py4j.protocol import Py4JError

    io: Any = load_table(spark, table).io()

    def size(path: str) -> int | None:
        try:
            return int(io.newInputFile(path).getLength())
        except Py4JError:
            return None  # it is gone since, or may not be looked at

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [told for told in pool.map(size, paths) if told is not None]
