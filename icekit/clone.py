"""Try a change on a zero-copy clone; the table itself is never written to.

A clone is a second entry in the catalog for the table's current metadata file. It reads the
table's files where they are, and everything it writes goes to a scratch folder beside the
table, which is all that is removed with it.
"""

from __future__ import annotations

import contextlib
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from icekit.catalog import Lake
from icekit.errors import CloneRefused
from icekit.facts.bridge import explain, has_bridge, load_table
from icekit.secrets import scrub
from icekit.sql import Identifier, call, display_name, identifier, set_properties

#: Where clones are registered; one that a killed process left is dropped with DROP TABLE, without PURGE.
NAMESPACE = "icekit_scratch"


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of ``of``: its own name in the same catalog, and the folder of all that it writes."""

    of: Identifier
    table: Identifier
    scratch: str


@contextlib.contextmanager
def clone(lake: Lake, table: Identifier) -> Iterator[Clone]:
    """A zero-copy clone of a table's current state; it and what it wrote are gone afterwards.

    The clone has ``gc.enabled=false``, so that no procedure run on it deletes a file, and its
    own data and metadata paths. Raises :class:`~icekit.errors.CloneRefused` where the catalog
    takes no second table at one location, or there is no JVM bridge to clean up with.
    """
    spark = lake.spark
    if not has_bridge(spark):
        raise CloneRefused("A clone needs the JVM bridge, which Spark Connect has not; plan without a trial.")
    source = lake.tables.source(table)
    name = f"{table[-1][:40]}_{time.strftime('%Y%m%d%H%M%S')}_{uuid.uuid4().hex[:6]}"
    made: Identifier = (NAMESPACE, name)
    full = lake.sql_name(made)
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        spark.sql(call(lake.name, "register_table", table=display_name(made), metadata_file=source.metadata_location))
    except Exception as error:
        explained = explain(error, lake.sql_name(table))
        raise CloneRefused(
            f"Catalog {lake.name!r} does not take a second table for the files of {display_name(table)} ({scrub(str(explained)).splitlines()[0][:200]}); plan without a trial.",
            detail=str(error),
        ) from None
    scratch, loaded = "", None
    try:
        loaded = load_table(spark, full)
        home = str(loaded.location()).rstrip("/").rpartition("/")[0]
        scratch = f"{home}/{NAMESPACE}/{name}"
        own = {"gc.enabled": "false", "write.data.path": f"{scratch}/data", "write.metadata.path": f"{scratch}/metadata"}
        spark.sql(set_properties(full, {**own, "write.metadata.delete-after-commit.enabled": "false"}))
        yield Clone(table, made, scratch)
    finally:
        # Not PURGE: that would delete the files of the table.
        spark.sql(f"DROP TABLE IF EXISTS {identifier(*full)}")
        if scratch and loaded is not None:
            _remove(spark, loaded.io(), scratch)


def _remove(spark: Any, io: Any, folder: str) -> None:
    """Remove a clone's scratch folder, and nothing else: by the table's own FileIO, as Spark may have no file system for it."""
    jvm: Any = spark._jvm
    try:
        io.deletePrefix(f"{folder}/")
    except Exception as error:
        warnings.warn(f"What the clone wrote could not be removed ({type(error).__name__}): remove the folder {folder}.", stacklevel=2)
    path = jvm.org.apache.hadoop.fs.Path(folder)
    # An object store has no folders; elsewhere the empty ones are left.
    with contextlib.suppress(Exception):
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        files.delete(path, True)
        # The folder of all clones too, once it is empty.
        if not files.listStatus(path.getParent()):
            files.delete(path.getParent(), False)
