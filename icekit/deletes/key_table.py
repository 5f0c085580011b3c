"""Read files of a table as those of another one that no catalog has."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import compiled
from icekit.engine.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KeyTable:
    """A table that exists only in this session's JVM, and whose metadata says how files of another
    one (an object of Iceberg's API) are read.
    """

    def __init__(self, spark: SparkSession, files_of: Any, metadata: Mapping[str, Any]) -> None:
        unnamed = {**metadata, "table-uuid": str(uuid.uuid4())}
        #: An object of the Java class.
        self.java = compiled(spark, files_of, "KeyTable", files_of, json.dumps(unnamed))
        self.staging = Staging(spark, self.java.table())
