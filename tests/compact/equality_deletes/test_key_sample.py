"""A plan looks up a sample of the keys of equality deletes, so that its bytes are those that are
left.
"""

from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.compact import rewrite as rewriting
from icekit.compact import service, trial
from tests.compact.tables import Table
from tests.resolve.writing import Files

pytestmark = pytest.mark.spark

ROWS = 40_000
# Their bounds tell nothing: each file has keys from the whole range.
_KEYED = "md5(cast(id AS string)) AS key, sha2(cast(id AS string), 256) AS name"


def made(lake: Lake, scratch: str, name: str, folder: Path) -> tuple[Table, Files]:
    table = (
        Table(lake, scratch, name, folder)
        .create("key string, name string", by="")
        .fill(4, ROWS, _KEYED)
    )
    return table, Files(lake.spark, lake.sql_name(table.name))


def test_the_bytes_of_a_plan_are_those_that_upserts_leave(
    lake: Lake, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, files = made(lake, scratch, "upserted", tmp_path)
    half = f"range(0, {ROWS}, 2)"
    files.commit().data(f"SELECT {_KEYED} FROM {half}").deletes(
        "key", f"SELECT md5(cast(id AS string)) FROM {half}"
    ).done()
    before = table.snapshot_id()
    monkeypatch.setattr(rewriting, "_DRAWN_KEYS", ROWS)

    complete = table.plan()
    monkeypatch.setattr(rewriting, "_DRAWN_KEYS", 500)
    of_few_keys = table.plan()
    monkeypatch.setattr(trial, "SAMPLE_BYTES", 2**21)
    of_few_files = table.plan()
    monkeypatch.setattr(trial, "SAMPLE_BYTES", 1)
    too_large = table.plan()

    assert table.snapshot_id() == before
    every, keys, some = (plan.key_sample for plan in (complete, of_few_keys, of_few_files))
    assert every
    assert keys
    assert some
    assert every.keys == ROWS // 2
    assert every.deleted_rows == ROWS // 2
    assert every.rows == ROWS * 3 // 2
    assert keys.keys == some.keys == 500
    assert 0 < some.rows < keys.rows < every.rows // 20
    assert every.text in repr(complete)
    assert all(plan.prediction.is_sampled for plan in (complete, of_few_keys, of_few_files))
    assert too_large.key_sample is None
    assert not too_large.prediction.is_sampled
    assert too_large.prediction.bytes_out == too_large.prediction.bytes_in
    actual = table.run(complete).actual
    assert complete.prediction.bytes_out == pytest.approx(actual.bytes_out, rel=0.2)
    assert of_few_keys.prediction.bytes_out == pytest.approx(actual.bytes_out, rel=0.2)


def test_keys_that_are_all_new_are_found_in_no_older_row(
    lake: Lake, scratch: str, tmp_path: Path
) -> None:
    table, files = made(lake, scratch, "appended", tmp_path)
    new = f"range({ROWS}, {ROWS + 5_000})"
    files.commit().data(f"SELECT {_KEYED} FROM {new}").deletes(
        "key", f"SELECT md5(cast(id AS string)) FROM {new}"
    ).done()

    plan = table.plan()

    assert plan.key_sample is not None
    assert plan.key_sample.keys == 5_000
    assert plan.key_sample.deleted_rows == 0
    assert plan.key_sample.rows == ROWS + 5_000
    assert plan.prediction.bytes_out == plan.prediction.bytes_in
    assert "None of about 5,000 sampled keys" in repr(plan)


def test_nothing_is_looked_up_without_equality_deletes(
    sick: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sick
    asked: list[object] = []
    monkeypatch.setattr(service, "sample_keys", lambda *given: asked.append(given))

    plan = table.plan()

    assert plan.actions
    assert asked == []
    assert plan.key_sample is None
    assert not plan.prediction.is_sampled
    assert plan.prediction.bytes_out == plan.prediction.bytes_in
