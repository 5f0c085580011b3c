"""The order of the rows that a rewrite writes."""

from icekit.common import frozen, sql


@frozen
class RewriteOrder:
    """The row order of a rewrite: an ascending ``sort`` by columns, or a curve through them.

    ``by`` holds column paths. ``sort`` without columns means the table's own sort order.
    ``files_by`` is the column in whose order a rewrite that sorts no rows takes the files of a
    partition, so that each new file holds neighbours; None without bounds to go by.
    """

    strategy: str = "binpack"
    by: tuple[tuple[str, ...], ...] = ()
    files_by: str | None = None

    @property
    def is_sorting(self) -> bool:
        """Whether rows are shuffled."""
        return self.strategy != "binpack"

    @property
    def sql(self) -> str | None:
        """The procedure's ``sort_order``; None where it is not needed."""
        if not self.by:
            return None
        columns_sql = [sql.identifier(*column_path) for column_path in self.by]
        if self.strategy == "sort":
            return ", ".join(f"{column_sql} ASC NULLS FIRST" for column_sql in columns_sql)
        return f"{self.strategy}({', '.join(columns_sql)})"
