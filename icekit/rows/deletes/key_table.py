"""Read files of a table as those of another one that no catalog has."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import java_object
from icekit.engine.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.iceberg.metadata import Json

# What the metadata of a table says that only its fields are read from.
_ONLY_FIELDS: Json = {
    "current-snapshot-id": -1,
    "snapshots": [],
    "refs": {},
    "snapshot-log": [],
    "metadata-log": [],
    "statistics": [],
    "partition-statistics": [],
    "current-schema-id": 0,
    "default-spec-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
}


class KeyTable:
    """A table that exists only in this session's JVM, and whose metadata says how files of another
    one (an object of Iceberg's API) are read.
    """

    def __init__(self, spark: SparkSession, source_table: Any, metadata: Mapping[str, Any]) -> None:
        renamed_metadata = {**metadata, "table-uuid": str(uuid.uuid4())}
        #: An object of the Java class.
        self.java = java_object(
            spark, source_table, "KeyTable", source_table, json.dumps(renamed_metadata)
        )
        self.staging = Staging(spark, self.java.table())

    @classmethod
    def of_fields(
        cls, spark: SparkSession, source_table: Any, metadata: Json, fields: Sequence[Json]
    ) -> KeyTable:
        """A table of only these fields, by which delete files are read: they need not hold the
        others, required ones either. The metadata is that of the table whose files they are.
        """
        schema_entry = {"schemas": [{"type": "struct", "schema-id": 0, "fields": fields}]}
        return cls(spark, source_table, {**metadata, **_ONLY_FIELDS, **schema_entry})
