"""Small tables with equality deletes, and the rule that holds for every conversion of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from icekit.engine.bridge import guarded_table, load_latest_table
from icekit.engine.interrupting import Stop
from icekit.maintain.action import Action
from icekit.maintain.prediction import Prediction
from icekit.maintain.run.execute import execute
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.rewrite import CheckedRewrite
from icekit.rows.deletes import convert as converting
from icekit.rows.deletes.convert import convert
from icekit.rows.kernel.table_settings import KernelUnavailable
from icekit.rows.proof.conversion import PositionCheck
from icekit.rows.rewrite import rewrite_session
from icekit.rows.rewrite.rewrite_order import RewriteOrder
from tests import tables
from tests.deletes.writing import rows_of

if TYPE_CHECKING:
    import pytest

Rows = Counter[tuple[Any, ...]]


IN_ORDER = RewriteOrder()


def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark write the files of rewrites, and find deleted rows, as where the kernel cannot."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise KernelUnavailable("a test asks for it")

    monkeypatch.setattr(rewrite_session, "writer_settings", refuse)
    monkeypatch.setattr(converting, "positions_by_kernel", refuse)


# Of each type that a key can have: a value, and another.
TYPES = {
    "c_boolean": ("boolean", "false", "true"),
    "c_int": ("int", "-7", "8"),
    "c_long": ("bigint", "-70000000000", "1"),
    "c_decimal": ("decimal(9,2)", "-1.50", "2.50"),
    "c_large": ("decimal(38,3)", "-12345678901234567890.125", "1"),
    "c_date": ("date", "DATE '1969-12-31'", "DATE '2024-02-29'"),
    "c_ntz": (
        "timestamp_ntz",
        "TIMESTAMP_NTZ '1969-01-01 00:00:00.000001'",
        "TIMESTAMP_NTZ '2024-01-01 00:00:00.000002'",
    ),
    "c_tz": (
        "timestamp",
        "TIMESTAMP '1960-01-01 00:00:00.000001 UTC'",
        "TIMESTAMP '2024-01-01 00:00:00.000002 UTC'",
    ),
    "c_string": ("string", "'ß'", "'ss'"),
    "c_binary": ("binary", "X'00FF'", "X'7F'"),
    # What SQL has no name for comes through Iceberg's API.
    "c_uuid": (
        "string",
        "'f79c3e09-677c-4bbd-a479-3f349cb785e7'",
        "'f79c3e09-677c-4bbd-a479-3f349cb785e8'",
    ),
    "c_fixed": ("binary", "X'01020304'", "X'FF020305'"),
}


class Table(tables.Table):
    """A table whose deletes are merged on read, and the rule that holds for it."""

    PROPERTIES: ClassVar = {
        "write_delete_mode": "merge-on-read",
        "write_update_mode": "merge-on-read",
    }

    def fill_slices(self, slices: int) -> int:
        """Append files of five ids in order until each of so many slices has one, as a file's slice
        is drawn from its path; returns the ids.
        """
        for n in range(100):
            self.commit().data(f"SELECT id + {5 * n}, 'a' FROM range(5)").done()
            files = self.sql("SELECT file_path FROM {t}.data_files")
            if len({crc32(path.encode()) % slices for (path,) in files}) == slices:
                return 5 * (n + 1)
        raise AssertionError("no file fell into one of the slices")

    def rows(self, at: str = "", columns: str = "*") -> Rows:
        """The rows that Spark reads, each as often as it is there."""
        return Counter(_plain(tuple(row)) for row in self.sql(f"SELECT {columns} FROM {{t}} {at}"))

    def ids(self, at: str = "") -> list[Any]:
        return sorted(row[0] for row in self.sql(f"SELECT id FROM {{t}} {at}"))

    def history(self) -> dict[int, Rows]:
        """The rows of every snapshot."""
        return {snapshot: self.rows(f"VERSION AS OF {snapshot}") for snapshot in self.snapshots()}

    def converts(self, folder: Path, where: str | None = None, **options: Any) -> Outcome:
        """Convert as a person does, in a run with a ledger in this folder."""
        given = {
            "execute": True,
            "ledger": str(folder / "l.db"),
            "progress": lambda _: None,
            **options,
        }
        outcome = self.lake.convert(self.name, where, **given)
        self.files.refresh()
        return outcome

    def equality_deletes(self, branch: str | None = None) -> int:
        at = f"VERSION AS OF '{branch}'" if branch else ""
        return self.delete_files(f"{at} WHERE content = 2")

    @property
    def version(self) -> int:
        return int(self.files.table().operations().current().formatVersion())

    def lineage(self, at: str = "") -> Rows:
        return (
            self.rows(at, "*, _row_id, _last_updated_sequence_number")
            if self.version >= 3
            else Counter()
        )

    def vectors_per_file(self) -> int:
        """The largest number of deletion vectors that one data file has."""
        counted = self.sql(
            "SELECT coalesce(max(n), 0) FROM (SELECT count(*) n FROM {t}.delete_files "
            "WHERE file_format = 'PUFFIN' GROUP BY referenced_data_file)"
        )
        return int(counted[0][0])

    def converted(
        self,
        action: Callable[[], object] | None = None,
        *,
        branch: str | None = None,
        left: int | None = 0,
        every: bool = False,
        **options: Any,
    ) -> Rows:
        """Convert the table, see that the rule holds, and give its rows.

        No row changes, in the current state or (if asked, as it takes long) in ``every`` snapshot,
        so many equality deletes (if it is said how many) are left, and a data file has one deletion
        vector at most.
        """
        at = f"VERSION AS OF '{branch}'" if branch else ""
        before, history, lineage = self.rows(at), self.history() if every else {}, self.lineage(at)
        if action is None:
            convert(self.spark, self.full, branch=branch, check=PositionCheck, **options)
        else:
            action()
        self.files.refresh()
        self.hold(before, history, at)
        # An upgraded table's rows get their ids with its next commit, whichever that is.
        if all(row[-2] is not None for row in lineage):
            assert self.lineage(at) == lineage
        assert left is None or self.equality_deletes(branch) == left
        return before

    def rewritten(self, **options: Any) -> Rows:
        """Rewrite every data file in icekit's own way, see that no row changed, and give the
        rows.
        """
        return self.converted(lambda: rewrite(self, **options), left=None)

    def hold(self, rows: Rows, history: dict[int, Rows], at: str = "") -> None:
        """See that these rows are there, now and in each of these snapshots that is left."""
        now = self.rows(at)
        assert now == rows, f"lost {rows - now}, too many {now - rows}"
        there = set(self.snapshots())
        for snapshot, then in history.items():
            if snapshot in there:
                assert self.rows(f"VERSION AS OF {snapshot}") == then
        assert self.vectors_per_file() <= 1


@contextlib.contextmanager
def unchanged(table: Table) -> Iterator[None]:
    """See that a block changes no row, makes no commit and leaves no data file behind."""
    folder = table.location / "data"
    before = table.rows(), table.snapshots(), {*folder.rglob("*.*")}
    yield
    assert (table.rows(), table.snapshots(), {*folder.rglob("*.*")}) == before


def of_every_file(
    table: tables.Table,
    procedure: str = "rewrite_data_files",
    *,
    branch: str | None = None,
    order: RewriteOrder = IN_ORDER,
    **options: str,
) -> Action:
    """An action that rewrites every file, or some of them according to options (with ``_`` for
    ``-``).
    """
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return Action(
        "a1",
        procedure,
        table.full[0],
        table.name,
        "a test",
        Prediction(),
        options={"rewrite-all": "true", **given},
        branch=branch,
        order=order,
    )


TAGS = {"icekit.run-id": "test"}


def run(table: Table, *procedure: str, **options: Any) -> None:
    """Run an action that rewrites every file, as a run does."""
    action = of_every_file(table, *procedure, **options)
    execute(table.spark, action, TAGS, stop=Stop())
    table.files.refresh()


def rewrite(table: Table, *, check: bool = True, **options: Any) -> None:
    """Rewrite every data file in icekit's own way."""
    made = guarded_table(table.spark, load_latest_table(table.spark, table.full))
    spark: Any = table.spark
    if spark.conf.get("spark.sql.catalog.default_rewrite_catalog", None) is None:
        spark.conf.set(
            "spark.sql.catalog.default_rewrite_catalog",
            "org.apache.iceberg.spark.SparkRewriteTableCatalog",
        )
    CheckedRewrite(spark, of_every_file(table, **options), made, TAGS, check=check).run()


def _plain(value: Any) -> Any:
    """A value that can be counted."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(each) for each in value)
    if isinstance(value, dict):
        return tuple(sorted((key, _plain(each)) for key, each in value.items()))
    return bytes(value) if isinstance(value, bytearray) else value


def add_column(table: Table, name: str, kind: Any, *default: Any) -> None:
    table.files.table().updateSchema().addColumn(name, kind, *default).commit()
    table.files.refresh()


def types(table: Table) -> Any:
    return table.java.types.Types


def with_ruled_out_key(table: Table, version: int = 2) -> str:
    """Create the table with two UUIDs in one file, whose bounds rule out deletes by the larger;
    returns that.
    """
    table.create("id bigint", version=version)
    add_column(table, "k", types(table).UUIDType.get())
    low, high = (f"{digit}0000000-0000-0000-0000-000000000001" for digit in "0f")
    table.data(f"SELECT 1, '{low}' UNION ALL SELECT 2, '{high}'")
    return high


def with_values_of_another_partition(table: Table) -> None:
    """Create the table with rows that lie in another partition than their files say, and deletes
    that say it of themselves.
    """
    table.create("id bigint, p int", "p").data("SELECT id, CAST(id AS int) FROM range(3)", {"p": 7})
    table.commit().deletes(["id", "p"], "SELECT 1, 7 UNION ALL SELECT 2, 2", {"p": 7}).done()


def with_keys_of_every_type(table: Table, version: int, file_format: str) -> int:
    """Create the table with a row for each type of key, which a delete by a column of that type
    deletes, and one more row; returns its id.
    """
    columns = ", ".join(
        f"{name} {kind}"
        for name, (kind, _, _) in TYPES.items()
        if name not in {"c_uuid", "c_fixed"}
    )
    table.create(f"id bigint, {columns}", version=version)
    add_column(table, "c_uuid", types(table).UUIDType.get())
    add_column(table, "c_fixed", types(table).FixedType.ofLength(4))
    hit = [
        [
            str(i),
            *(hit if place == i else other for place, (_, hit, other) in enumerate(TYPES.values())),
        ]
        for i in range(len(TYPES))
    ]
    nulls = [str(len(TYPES)), *("NULL" for _ in TYPES)]
    table.commit().data(rows_of([*hit, nulls]), format=file_format).done()
    commit = table.commit()
    for name, (kind, value, _) in TYPES.items():
        commit.deletes(name, f"SELECT cast({value} AS {kind})", format=file_format)
    commit.done()
    return len(TYPES)
