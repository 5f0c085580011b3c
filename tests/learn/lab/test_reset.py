"""Lab tables are put back as they were built, whatever was done to them."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.common.errors import ParameterError
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lab import KEPT, build, is_kept, keep, reset
from tests.learn.lab.bench import ROWS, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.catalog.close()


def append(bench: Bench) -> None:
    bench.catalog.load_table(("lab", "small_files")).append(ROWS)


def drop(bench: Bench) -> None:
    bench.catalog.drop_table(("lab", "small_files"))


def drop_with_its_files(bench: Bench) -> None:
    drop(bench)
    shutil.rmtree(bench.folder())


def expire(bench: Bench) -> None:
    append(bench)
    for path in bench.folder().rglob("snap-*"):
        path.unlink()


def replace_by_another_table(bench: Bench) -> None:
    drop_with_its_files(bench)
    bench.catalog.create_table(
        ("lab", "small_files"), pa.schema([("other", pa.string())]), location=str(bench.folder())
    )


@pytest.mark.parametrize(
    "what", [append, drop, drop_with_its_files, expire, replace_by_another_table]
)
def test_a_table_comes_back_with_its_rows_and_exactly_its_files(bench: Bench, what: Any) -> None:
    before = bench.files()
    what(bench)

    assert bench.reset("small_files") == ["small_files"]
    assert bench.rows() == 3
    assert bench.files() == before


def test_only_the_tables_named_are_restored_or_all_and_as_often_as_one_wants(
    bench: Bench,
) -> None:
    for _ in range(2):
        append(bench)
        bench.reset("evolved")
        assert bench.rows() == 6
        assert bench.reset() == ["small_files", "evolved"]
        assert bench.rows() == 3
    # No file stays beside the tables.
    for folder in (bench.folder().parent, bench.path / KEPT):
        assert {path.name for path in folder.iterdir()} == {"small_files", "evolved"}


def test_a_copy_takes_no_space_of_its_own(bench: Bench) -> None:
    kept = bench.path / KEPT / "small_files" / "small_files"

    assert all(path.samefile(kept / path.relative_to(bench.folder())) for path, _ in bench.files())


def test_where_there_are_no_links_files_are_copied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    keep(bench.lake, "small_files")
    append(bench)
    bench.reset("small_files")

    assert bench.rows() == 3


def test_a_table_that_has_no_copy_is_refused(bench: Bench) -> None:
    with pytest.raises(
        ParameterError, match=r"no copy of lab\.empty; build it with `icekit lab --rebuild empty`"
    ):
        bench.reset("small_files", "empty")
    assert not is_kept(bench.lake, "empty")


def test_a_lake_without_copies_says_so(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="There are no copies of lab tables"):
        reset(Lake("lake", None, EmbeddedTables(tmp_path)))


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"row": {"metadata_location": "/elsewhere/lab/small_files/metadata/1.json"}}],
)
def test_a_copy_of_an_older_lab_or_of_a_lake_that_has_moved_is_none(
    bench: Bench, change: dict[str, Any]
) -> None:
    document = bench.path / KEPT / "small_files" / "kept.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | change))

    assert not is_kept(bench.lake, "small_files")


def test_a_copy_that_is_not_whole_is_refused_and_the_table_stays_as_it_is(bench: Bench) -> None:
    append(bench)
    next((bench.path / KEPT / "small_files" / "small_files").rglob("*.parquet")).unlink()

    with pytest.raises(ParameterError, match="incomplete"):
        bench.reset("small_files")
    assert bench.rows() == 6
    assert {p.name for p in bench.folder().parent.iterdir()} == {"small_files", "evolved"}


def test_the_command_resets_without_a_jvm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ICEKIT_LAKE", str(bench.path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    append(bench)

    assert main(["lab", "--reset", "small_files"]) == 0
    assert "restored" in capsys.readouterr().out
    assert bench.rows() == 3


@pytest.mark.spark
def test_a_build_keeps_its_table_and_a_running_session_sees_the_reset(lake: Lake) -> None:
    # Its own table, built into this process's own lake: the others are shared.
    build(lake, ["empty"], rebuild=True, progress=lambda _: None)
    lake.spark.sql("INSERT INTO lake.lab.empty (flight_id) VALUES (1)")
    assert lake.spark.table("lake.lab.empty").count() == 1

    reset(lake, ["empty"], progress=lambda _: None)

    assert lake.spark.table("lake.lab.empty").count() == 0
    assert build(lake, ["empty"], progress=lambda _: None) == []
