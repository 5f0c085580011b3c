"""List files under a table's location that no snapshot references, and weigh them; delete nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import has_bridge, load_table
from icekit.engine.errors import explain
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
_WEIGHING_SECONDS = 60.0


def list_orphans(spark: SparkSession, table: Identifier, location: str, now: dt.datetime | None = None) -> StorageFacts:
    """Count and weigh orphan files by the dry run of ``remove_orphan_files``; ``table`` has its catalog.

    Three days old or older, the procedure's own default. Reads the whole location's
    listing and every snapshot's manifests, in Spark. At most :data:`WEIGHED` files are weighed,
    chosen by a hash of their paths; without the JVM bridge none is.
    """
    from pyspark.sql import functions as F

    older_than = orphans_before(now)
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


def orphans_before(now: dt.datetime | None = None) -> dt.datetime:
    """The moment before which a file must have been written to be taken for an orphan now."""
    return ((now or dt.datetime.now(dt.UTC)) - ORPHAN_AGE).replace(microsecond=0)


def weighed(count: int, sizes: Sequence[int]) -> int | None:
    """The bytes of ``count`` files by the sizes of some: their mean for the others; None where there are files and no sizes."""
    if not count or len(sizes) >= count:
        return sum(sizes)
    return round(count * sum(sizes) / len(sizes)) if sizes else None


def _sizes(spark: SparkSession, table: Identifier, paths: Sequence[str]) -> list[int]:
    """Bytes of each file by the table's own FileIO; what it cannot tell, or not in time, is left out."""
    if not paths or not has_bridge(spark):
        return []
    from py4j.protocol import Py4JError

    io: Any = load_table(spark, table).io()

    todo, found, ended = iter(paths), list[int](), threading.Event()
    one_at_a_time = threading.Lock()

    def work() -> None:
        while not ended.is_set():
            with one_at_a_time:
                path = next(todo, None)
            if path is None:
                return
            with contextlib.suppress(Py4JError):  # it is gone since, or may not be looked at
                found.append(int(io.newInputFile(path).getLength()))

    # Not an executor's, which would keep the process until a storage that does not answer has been asked for every file.
    threads = [threading.Thread(target=work, name="icekit-weighing", daemon=True) for _ in range(min(_AT_ONCE, len(paths)))]
    until = time.monotonic() + _WEIGHING_SECONDS
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    finally:
        ended.set()
    return list(found)
