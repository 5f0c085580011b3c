"""Small targets and sources, and a MERGE run on a clone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from icekit.api import Lake
from icekit.catalog.lake import session_of
from icekit.sandbox.clones import clone
from icekit.sql import identifier
from icekit.tune.answer import Answer
from icekit.tune.merge import MergeReview, review_merge
from icekit.tune.statement import Statement, parse

COLUMNS = "id bigint, d date, v string"
#: A hundred rows a day, for thirty days.
ROWS = (
    "SELECT id, date'2024-01-01' + CAST(id % 30 AS int) AS d, CAST(id AS string) AS v FROM "
    "range(3000)"
)
#: Three of those days; a quarter of the rows is new.
CHANGES = (
    "(SELECT id, date'2024-01-01' + CAST(id % 30 AS int) AS d, 'new' AS v FROM range(4000) WHERE "
    "id % 30 IN (3, 4, 17)) s"
)
KEYS = "t.id = s.id AND t.d = s.d"
UPSERT = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
MERGE_ON_READ = "'format-version'='2', 'write.merge.mode'='merge-on-read'"
COPY_ON_WRITE = "'format-version'='2', 'write.merge.mode'='copy-on-write'"


@dataclass(frozen=True)
class Target:
    """A table of a test's own, and the MERGE statements that the test reviews."""

    lake: Lake
    name: tuple[str, ...]

    @property
    def quoted(self) -> str:
        return identifier(*self.name)

    def sql(self, statement: str) -> list[Any]:
        return self.lake.spark.sql(
            statement.replace("{t}", identifier(self.lake.name, *self.name))
        ).collect()

    def create(
        self,
        columns: str = COLUMNS,
        by: str = "days(d)",
        rows: str = ROWS,
        properties: str = MERGE_ON_READ,
    ) -> Target:
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg "
            f"{f'PARTITIONED BY ({by})' if by else ''} TBLPROPERTIES ({properties})"
        )
        if rows:
            self.sql(f"INSERT INTO {{t}} {rows}")
        return self

    def merge(
        self, source: str = CHANGES, on: str = KEYS, clauses: str = UPSERT, alias: str = "t"
    ) -> str:
        return f"MERGE INTO {self.quoted} {alias} USING {source} ON {on} {clauses}"

    def review(self, sql: str = "") -> MergeReview:
        with session_of(self.lake) as spark:
            statement = parse(spark, sql or self.merge())
            return MergeReview.of(spark, statement, self.lake.observe(self.name))

    def prove(self, sql: str = "") -> Answer:
        return review_merge(self.lake, sql or self.merge(), prove=True, progress=lambda _: None)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the target itself."""
        return sorted((tuple(row) for row in self.sql("SELECT * FROM {t}")), key=repr)

    def after(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a clone on which a MERGE was run."""
        with session_of(self.lake) as spark:
            statement: Statement = parse(spark, sql)
            with clone(self.lake, self.name) as copy:
                on = self.lake.sql_name(copy.table)
                spark.sql(statement.on(on))
                return sorted(
                    (tuple(row) for row in spark.table(identifier(*on)).collect()), key=repr
                )


def said(review: MergeReview, about: str) -> str:
    """What a review says about one thing."""
    return " ".join(change.why for change in review.changes() if change.setting == about)
