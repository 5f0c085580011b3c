"""Look at where files lie: under how many prefixes, by what FileIO, and whether requests could be throttled there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icekit.engine.metadata_tables import metadata_table_sql
from icekit.facts.model import TableFacts
from icekit.sql import Identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Schemes of stores that limit requests by prefix.
_OBJECT_STORES = {
    "s3": "Amazon S3",
    "s3a": "Amazon S3",
    "s3n": "Amazon S3",
    "gs": "Google Cloud Storage",
    "abfs": "Azure",
    "abfss": "Azure",
    "wasb": "Azure",
    "wasbs": "Azure",
    "oss": "OSS",
}
#: Requests a second that S3 takes for one prefix before it splits it ("Best practices design patterns: optimizing Amazon S3 performance").
GETS_PER_SECOND, PUTS_PER_SECOND = 5_500, 3_500
#: A choice: how long one small request takes, so that a task slot makes fifty a second at most.
REQUEST_SECONDS = 0.02
#: What LocationProviders puts into a path with write.object-storage.enabled (since 1.7; before: eight hexadecimal digits).
_HASHED = "/[01]{4}/[01]{4}/[01]{4}/[01]{8}/"


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the live files lie.

    ``prefix_count`` counts the first folders below the data folder, ``largest_prefix_share`` is the share
    of the files in the fullest; ``hashed_share`` of the files have a hash in their path, ``elsewhere_count`` lie
    outside the table's location. ``gets_per_second`` is the most that this session's task slots ask for,
    ``puts_per_commit`` the most files a recent commit added, one commit every ``seconds_between_commits`` (the median; None with one commit).
    """

    scheme: str
    file_io: str
    is_enabled: bool
    file_count: int
    folder_count: int
    prefix_count: int
    largest_prefix_share: float
    hashed_share: float
    elsewhere_count: int
    gets_per_second: float
    puts_per_commit: int
    seconds_between_commits: float | None

    @property
    def store(self) -> str | None:
        """The object store, None for a file system."""
        return _OBJECT_STORES.get(self.scheme)

    @property
    def is_at_risk(self) -> bool:
        """Tell whether one prefix could be asked more often than S3 takes, for its share of the files: in reads, or in a commit's writes."""
        if self.store is None:
            return False
        share = (1 - self.hashed_share) * self.largest_prefix_share
        # A commit's files are written no faster than its task slots can.
        puts_per_second = min(float(self.puts_per_commit), self.gets_per_second)
        return self.gets_per_second * share > GETS_PER_SECOND or puts_per_second * share > PUTS_PER_SECOND


def look(spark: SparkSession, table: Identifier, facts: TableFacts, *, slots: int, file_io: str) -> Storage:
    """Count files by where they lie, in Spark; ``table`` is named with its catalog."""
    data = facts.properties.get("write.data.path") or f"{facts.location.rstrip('/')}/data"
    folder = "regexp_extract(file_path, '^(.*)/[^/]+$', 1)"
    # The part after the data folder, up to the next slash; files elsewhere count by their own folder.
    inside = f"startswith(file_path, {literal(data + '/')})"
    rest = f"substring(file_path, {len(data) + 2})"
    # Files of an unpartitioned table lie in the data folder itself: one prefix.
    prefix = f"CASE WHEN NOT {inside} THEN {folder} WHEN instr({rest}, '/') > 0 THEN split_part({rest}, '/', 1) ELSE '' END"
    row = spark.sql(
        f"WITH f AS (SELECT {folder} AS folder, {prefix} AS prefix, file_path RLIKE {literal(_HASHED)} AS hashed, "
        f"NOT startswith(file_path, {literal(facts.location.rstrip('/') + '/')}) AS elsewhere FROM {metadata_table_sql(spark, table, 'files')}), "
        "g AS (SELECT prefix, count(*) AS n, count(DISTINCT folder) AS folders, count_if(hashed) AS hashed, count_if(elsewhere) AS elsewhere "
        "FROM f GROUP BY prefix) "
        "SELECT coalesce(sum(n), 0) AS n, coalesce(sum(folders), 0) AS folders, count(*) AS prefixes, coalesce(max(n), 0) AS largest, "
        "coalesce(sum(hashed), 0) AS hashed, coalesce(sum(elsewhere), 0) AS elsewhere FROM g"
    ).collect()[0]
    files = int(row.n)
    added = [(c.added_data_files or 0) + (c.added_delete_files or 0) for c in facts.history.commits]
    return Storage(
        scheme=_scheme(facts.location),
        file_io=file_io,
        is_enabled=(facts.properties.get("write.object-storage.enabled") or "false").lower() == "true",
        file_count=files,
        folder_count=int(row.folders),
        prefix_count=int(row.prefixes),
        largest_prefix_share=int(row.largest) / files if files else 0.0,
        hashed_share=int(row.hashed) / files if files else 0.0,
        elsewhere_count=int(row.elsewhere),
        gets_per_second=slots / REQUEST_SECONDS,
        puts_per_commit=max(added, default=0),
        seconds_between_commits=facts.history.median_seconds_between_commits,
    )


def _scheme(location: str) -> str:
    found = re.match(r"([a-z][a-z0-9+.-]*):", location, re.I)
    return found[1].lower() if found else "file"
