"""Conversions that meet other commits, fail or are killed: no row changes, nothing is left behind,
and trying again helps.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from icekit.engine.bridge import elements
from icekit.engine.errors import CommitConflict
from icekit.maintain.run.options import Limits, Retry
from icekit.maintain.run.outcome import Outcome
from icekit.rows.deletes import convert as converting
from icekit.rows.deletes.conversion_inputs import remaining_deletes
from icekit.rows.deletes.convert import commit as really_commit
from icekit.rows.deletes.convert import convert
from icekit.sandbox.scratch import NAMESPACE
from tests.child import Child
from tests.deletes.tables import Table, unchanged
from tests.moments import Around

pytestmark = [pytest.mark.spark, pytest.mark.core]

both_versions = pytest.mark.parametrize("version", [2, 3])
Meets = Callable[..., list[Any]]


@pytest.fixture
def meets(table: Table, around: Around) -> Meets:
    """Lets something happen once, before the first commit of a conversion (when its files are
    written) or after it (before a second slice is listed); gives the rows of that moment and of
    every snapshot.
    """

    def patch(happens: Callable[[], object], *, is_after: bool = False) -> list[Any]:
        seen: list[Any] = []

        def and_look() -> None:
            happens()
            seen[:] = table.rows(), table.history()

        around(converting, "commit", and_look, after=is_after)
        return seen

    return patch


def sick(table: Table, version: int) -> Table:
    """Two data files, and deletes that reach both."""
    table.create(version=version)
    table.commit().data("SELECT id, 'a' FROM range(5)").data(
        "SELECT id + 5, 'b' FROM range(5)"
    ).done()
    table.commit().data("SELECT 1, 'c'").deletes("id", "SELECT id * 3 FROM range(3)").done()
    return table


def run(table: Table, folder: Path, **options: Any) -> Outcome:
    limits = Limits(Retry(first_wait=0.01, longest_wait=0.02))
    return table.converts(folder, limits=limits, **options)


def files_in(folder: Path) -> set[Path]:
    """The data and delete files under a folder (checksum files aside)."""
    return {
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix in {".parquet", ".puffin", ".avro", ".orc"}
        and path.parent.name != "metadata"
    }


def live_files(table: Table) -> set[str]:
    return {
        str(row[0]).removeprefix("file:")
        for row in table.sql("SELECT file_path FROM {t}.all_files")
    }


def is_done(table: Table, outcome: Outcome, *, left: int = 0) -> None:
    """The run ended well, and no file lies about that no snapshot names."""
    assert outcome.status == "done", outcome
    assert table.equality_deletes() == left
    assert {str(path) for path in files_in(table.location)} <= live_files(table)


def upsert(table: Table) -> None:
    table.commit().data("SELECT 2, 'new'").deletes("id", "SELECT 2 UNION ALL SELECT 3").done()


def delete_by_position(table: Table) -> None:
    table.sql("DELETE FROM {t} WHERE id IN (2, 7)")


def compact(table: Table) -> None:
    table.call("rewrite_data_files", "options => map('rewrite-all', 'true')")


@pytest.mark.core("upsert-1-<lambda>-2", "delete_by_position-0-<lambda>-3")
@both_versions
@pytest.mark.parametrize(
    ("writes", "left", "is_conflict"),
    [
        (upsert, 1, lambda _: False),
        (delete_by_position, 0, lambda version: version == 3),
        (compact, 0, lambda _: True),
        pytest.param(
            lambda table: convert(table.spark, table.full),
            0,
            lambda _: False,
            id="another conversion",
        ),
    ],
)
def test_deletes_of_the_same_moment_apply(
    table: Table,
    tmp_path: Path,
    meets: Meets,
    version: int,
    writes: Any,
    left: int,
    is_conflict: Callable[[int], bool],
) -> None:
    """Those of an upsert are newer than the plan and stay; vectors of the files for which the
    conversion writes its own are a conflict, as is a compaction. Another conversion leaves nothing
    to do.
    """
    sick(table, version)
    seen = meets(lambda: writes(table))

    outcome = run(table, tmp_path)

    table.hold(*seen)
    is_done(table, outcome, left=left)
    assert outcome.actions[0].attempts == 1 + is_conflict(version)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["expired", "rolled back"])
def test_the_snapshot_it_began_from_is_gone_at_the_same_moment(
    table: Table, tmp_path: Path, meets: Meets, how: str
) -> None:
    sick(table, 2)
    start = table.snapshots()[-1]
    table.commit().data("SELECT 1, 'd'").deletes("id", "SELECT 1").done()

    def happens() -> None:
        if how == "expired":
            table.data("SELECT 11, 'e'")
            table.call(
                "expire_snapshots", "older_than => TIMESTAMP '2999-01-01'", "retain_last => 1"
            )
        else:
            table.call("rollback_to_snapshot", f"snapshot_id => {start}")

    seen = meets(happens)

    outcome = run(table, tmp_path)

    table.hold(*seen)
    is_done(table, outcome)


@both_versions
def test_what_happens_between_two_slices_counts(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Deletes by position between two commits of one conversion, in the files of both: vectors
    conflict, files do not.
    """
    ids = table.create(version=version).fill_slices(2)
    table.delete("id", f"SELECT id * 5 FROM range({ids})")
    touched: list[list[str]] = []

    def commit(*args: Any, **options: Any) -> None:
        touched.append(args[0].data_paths)
        if len(touched) == 2:
            table.sql("DELETE FROM {t} WHERE id % 5 = 4")
            seen[:] = table.rows(), table.history()
        really_commit(*args, **options)

    seen: list[Any] = []
    monkeypatch.setattr(converting, "commit", commit)

    with pytest.raises(Exception, match="ValidationException") if version == 3 else nullcontext():
        convert(table.spark, table.full, slices=2)

    assert all(touched)

    table.files.refresh()
    table.hold(*seen)
    convert(table.spark, table.full, slices=2)
    table.hold(*seen)
    assert table.equality_deletes() == 0


def live_data_files(table: Any) -> list[Any]:
    return [task.file() for task in elements(table.newScan().planFiles())]


def slice_of(file: Any, slices: int = 2) -> int:
    return crc32(str(file.location()).encode()) % slices


@pytest.mark.slow
@both_versions
def test_a_compaction_that_moves_rows_into_a_slice_that_is_over_is_a_conflict(
    table: Table, meets: Meets, version: int
) -> None:
    """It keeps the sequence number it was planned at, so the deletes still apply to what it
    wrote.
    """
    ids = table.create(version=version).fill_slices(2)
    planned = table.files.table().currentSnapshot()
    later = next(f for f in live_data_files(table.files.table()) if slice_of(f) == 1)
    rows = f"SELECT * FROM {table.sql_name} WHERE _file = '{later.location()}'"
    moved = next(f for f in (table.files.data(rows) for _ in range(100)) if slice_of(f) == 0)
    table.delete("id", f"SELECT id * 5 FROM range({ids})")
    before, history = table.rows(), table.history()

    def compact() -> None:
        jvm: Any = table.spark._jvm
        sets = [jvm.java.util.HashSet() for _ in range(2)]
        sets[0].add(later)
        sets[1].add(moved)
        rewrite = table.files.table().newRewrite().validateFromSnapshot(planned.snapshotId())
        rewrite.rewriteFiles(*sets, planned.sequenceNumber()).commit()

    meets(compact, is_after=True)

    with pytest.raises(
        CommitConflict, match="another commit added 1 data file to which the equality deletes apply"
    ):
        convert(table.spark, table.full, slices=2)

    table.files.refresh()
    table.hold(before, history)
    assert table.equality_deletes() == 1
    table.converted(slices=2)


@pytest.mark.slow
def test_a_roll_back_that_brings_back_a_file_of_a_slice_without_commit_is_a_conflict(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slice was listed while a rewrite had moved the file's rows elsewhere."""
    table.create().fill_slices(3)
    planned, slices = table.files.table().currentSnapshot(), []
    file = next(f for f in live_data_files(table.files.table()) if slice_of(f, 3) == 1)
    where = f"{table.sql_name} WHERE _file = '{file.location()}'"
    table.delete("id", f"SELECT min(id) FROM {where}")
    before, start = table.rows(), table.snapshots()[-1]

    def listed(*given: Any, **options: Any) -> Any:
        slices.append(given)
        if len(slices) == 2:
            files = table.files.table()
            rewrite = files.newRewrite().deleteFile(file)
            rewrite.addFile(table.files.data(f"SELECT * FROM {where} OR id < 0"))
            rewrite.dataSequenceNumber(planned.sequenceNumber()).commit()
        if len(slices) == 3:
            table.call("rollback_to_snapshot", f"snapshot_id => {start}")
        return remaining_deletes(*given, **options)

    monkeypatch.setattr(converting, "remaining_deletes", listed)

    with pytest.raises(CommitConflict, match="was rolled back"):
        convert(table.spark, table.full, slices=3)

    table.files.refresh()
    assert table.rows() == before


@both_versions
def test_an_upsert_between_two_slices_keeps_its_deletes(
    table: Table, meets: Meets, version: int
) -> None:
    """The slice that is over has not seen them."""
    ids = table.create(version=version).fill_slices(2)
    table.delete("id", f"SELECT id * 5 FROM range({ids})")

    def upserts() -> None:
        table.commit().data("SELECT 1, 'new'").deletes(
            "id", f"SELECT id * 5 + 1 FROM range({ids})"
        ).done()

    seen = meets(upserts, is_after=True)

    convert(table.spark, table.full, slices=2)

    table.files.refresh()
    table.hold(*seen)
    assert table.equality_deletes() == 1
    table.converted()


@both_versions
def test_a_failure_before_the_commit_leaves_no_file_and_no_snapshot(
    table: Table, meets: Meets, version: int
) -> None:
    sick(table, version)
    home = table.location
    data_files = files_in(home)
    around = {p for p in home.parent.parent.rglob("*") if p.is_file()}

    def fail() -> None:
        assert files_in(home) > data_files
        raise RuntimeError("the power went")

    meets(fail)

    with unchanged(table), pytest.raises(RuntimeError, match="the power went"):
        convert(table.spark, table.full)

    assert {p for p in home.parent.parent.rglob("*") if p.is_file()} == around
    assert not (home.parent / NAMESPACE).exists()


@pytest.mark.soak
def test_a_process_that_is_killed_before_the_commit_is_resumed(
    table: Table, tmp_path: Path
) -> None:
    sick(table, 3)
    before, history = table.rows(), table.history()
    ledger = tmp_path / "ledger.db"
    child = Child("tests.deletes.killed", [".".join(table.name), ledger], tmp_path / "killed.log")
    try:
        child.until(lambda: child.ended)
    finally:
        child.kill()
    assert "killed" in child.lines, "\n".join(child.lines)
    table.files.refresh()
    table.hold(before, history)
    assert table.equality_deletes() == 1

    outcome = table.lake.resume(
        table.name, command="convert", ledger=str(ledger), progress=lambda _: None
    )

    table.hold(before, history)
    assert outcome.status == "done", outcome
    assert table.equality_deletes() == 0
