"""Small targets and sources, and a MERGE run on a clone."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from icekit.common.sql import identifier
from icekit.engine.lake import session_in_catalog
from icekit.sandbox.clones import clone
from icekit.tune.answer import Answer
from icekit.tune.merge import MergeReview, review_merge
from icekit.tune.statement import parse_statement
from tests import tables

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
#: As create takes it.
COPY_ON_WRITE: dict[str, Any] = {"write_merge_mode": "copy-on-write"}


class Target(tables.Table):
    """A table of a test's own, and the MERGE statements that the test reviews."""

    COLUMNS = "id bigint, d date, v string"
    BY = "days(d)"
    PROPERTIES: ClassVar = {"write_merge_mode": "merge-on-read"}

    def filled(self, *, rows: str = ROWS, **given: Any) -> Self:
        """Create it with rows; the others are those of create."""
        self.create(**given).sql(f"INSERT INTO {{t}} {rows}")
        return self

    def merge(
        self, source: str = CHANGES, on: str = KEYS, clauses: str = UPSERT, alias: str = "t"
    ) -> str:
        return f"MERGE INTO {self.sql_name} {alias} USING {source} ON {on} {clauses}"

    def review(self, sql: str = "") -> MergeReview:
        with session_in_catalog(self.lake) as spark:
            statement = parse_statement(spark, sql or self.merge())
            return MergeReview.from_statement(spark, statement, self.lake.observe(self.name))

    def prove(self, sql: str = "") -> Answer:
        return review_merge(self.lake, sql or self.merge(), prove=True, progress=lambda _: None)

    def rows(self, table: str = "{t}") -> list[tuple[Any, ...]]:
        """The rows of the target, or of another table."""
        return sorted((tuple(row) for row in self.sql(f"SELECT * FROM {table}")), key=repr)

    def after(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a clone on which a statement was run."""
        with session_in_catalog(self.lake) as spark, clone(self.lake, self.name) as copy:
            on = self.lake.sql_name(copy.table)
            spark.sql(parse_statement(spark, sql).sql_for(on))
            return self.rows(identifier(*on))


def said(review: MergeReview, about: str) -> str:
    """What a review says about one thing."""
    return " ".join(change.why for change in review.changes() if change.setting == about)
