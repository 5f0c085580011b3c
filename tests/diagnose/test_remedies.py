"""What a finding tells a person to run does what it says, on real tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from icekit import diagnose
from icekit.api import Lake
from tests.compact.tables import MERGE_ON_READ, Table

pytestmark = pytest.mark.spark


def test_a_target_that_is_too_small_is_found_and_its_statements_leave_fewer_files(lake: Lake, scratch: str, tmp_path: Path) -> None:
    few = {"write_target__file__size__bytes": "4096", "read_split_target__size": "32768"}
    table = Table(lake, scratch, "tiny_target", tmp_path).create("id bigint, part int, name string", "", **few)
    table.fill(40, 20_000)
    rows = table.rows()
    before = lake.observe(table.name)
    plan = table.plan()

    finding = next(f for f in diagnose(before) if f.name == "target_too_small")
    for statement in finding.sql:
        table.sql(statement)

    after = lake.observe(table.name)
    assert not plan.actions
    assert plan.waits is not None
    assert plan.waits.startswith("No rewrite helps before the target file size changes")
    assert after.target_bytes == 32_768
    assert after.data.file_count < before.data.file_count / 2
    assert "target_too_small" not in diagnose(after).names
    assert table.rows() == rows


def test_merge_on_read_fails_on_a_table_of_version_1_until_its_setting_is_removed(lake: Lake, scratch: str, tmp_path: Path) -> None:
    table = Table(lake, scratch, "v1_mor", tmp_path).create(**{**MERGE_ON_READ, "format__version": "1"}).fill()

    with pytest.raises(Exception, match="Deletes are supported in V2 and above"):
        table.sql("DELETE FROM {t} WHERE id = 3")
    finding = next(f for f in diagnose(lake.observe(table.name)) if f.name == "merge_on_read_on_v1")
    for statement in finding.sql:
        table.sql(statement)
    table.sql("DELETE FROM {t} WHERE id = 3")

    assert 3 not in {row[0] for row in table.rows()}
    assert "merge_on_read_on_v1" not in diagnose(lake.observe(table.name)).names
