"""A job that somebody submits, on a session of their own settings, which calls icekit: prints what
came of it as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import icekit
from tests.deletes.tables import Table


def main(session: dict[str, str]) -> None:
    """Compact a table and convert another."""
    spark = SparkSession.builder.getOrCreate()
    lake = icekit.connect("theirs", spark=spark)
    spark.sql("CREATE NAMESPACE theirs.db")
    small = Table(lake, "db", "small").create("id bigint, Name string")
    for n in range(6):
        small.insert(f"(SELECT id, 'x' FROM range({n * 10}, {n * 10 + 10}))")
    upserts = Table(lake, "db", "upserts").create("id bigint, Name string")
    for n in range(3):
        upserts.commit().data(f"SELECT id, 'version {n}' FROM range(100)").deletes(
            "id", "SELECT id FROM range(100)"
        ).done()
    before = small.rows(), upserts.rows()
    plan = lake.plan(lake.observe(small.name), leave_alone="0 minutes", min_files=2)
    compacted = lake.run(plan, execute=True, progress=_quiet)
    converted = lake.convert(upserts.name, execute=True, progress=_quiet)
    for table in (small, upserts):
        table.files.refresh()
    found = {
        "compacted": compacted.status,
        "converted": converted.status,
        "same rows": (small.rows(), upserts.rows()) == before,
        "equality deletes": upserts.equality_deletes(),
        "settings": {key: spark.conf.get(key) for key in session},
    }
    print(json.dumps(found))


def _quiet(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
