"""The disks that a session writes to, and the space that they have left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from icekit.common import frozen
from icekit.engine.bridge import elements, has_bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@frozen
class Disk:
    """A folder, and the bytes that can still be written to its disk."""

    folder: str
    free_bytes: int


def disk_of(spark: SparkSession, location: str) -> Disk | None:
    """The disk of a location on this machine; None for a location elsewhere."""
    location_parts = urlsplit(location)
    if location_parts.scheme not in {"", "file"} or not has_bridge(spark):
        return None
    jvm: Any = spark._jvm
    return Disk(location_parts.path, int(jvm.java.io.File(location_parts.path).getUsableSpace()))


def fullest_local_disk(spark: SparkSession) -> Disk | None:
    """Of the folders that Spark's tasks on this machine shuffle and spill to, that on the fullest
    disk; None if the tasks run elsewhere.
    """
    if not has_bridge(spark) or not str(spark.sparkContext.master).startswith("local"):
        return None
    jvm: Any = spark._jvm
    local_folders = (
        jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    )
    disks = [
        Disk(str(local_folder.getPath()), int(local_folder.getUsableSpace()))
        for local_folder in elements(local_folders)
    ]
    return min(disks, key=lambda disk: disk.free_bytes, default=None)


def collect_garbage(spark: SparkSession) -> None:
    """Collect the garbage of the driver, with the handles of files that nobody has any more."""
    if has_bridge(spark):
        jvm: Any = spark._jvm
        jvm.java.lang.System.gc()
