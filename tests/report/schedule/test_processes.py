"""A pass in a process of its own: killed, and taken up again."""

from pathlib import Path
from subprocess import CompletedProcess

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from tests.child import Child, python
from tests.offline import catalog_of

pytestmark = pytest.mark.soak

PARTS, FILES = 4, 6
TEXT = """name: nightly
output: out
ledger: ledger.db
rules:
  - name: all
    match: db.*
    execute: true
    compact: {leave_alone: 0 minutes, max_action_partitions: 1}
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy for a lake of its own, with one table of small files, made without Spark."""
    monkeypatch.setenv("ICEKIT_LAKE", str(tmp_path / "lake"))
    with catalog_of(tmp_path / "lake") as catalog:
        catalog.create_namespace("db")
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "part", IntegerType(), required=False),
        )
        by_part = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
        table = catalog.create_table("db.sick", schema, partition_spec=by_part)
        for first in range(0, 100 * FILES, 100):
            ids = range(first, first + 100)
            parts = pa.array([i % PARTS for i in ids], pa.int32())
            table.append(pa.table({"id": pa.array(ids, pa.int64()), "part": parts}))
    (tmp_path / "p.yaml").write_text(TEXT)
    return tmp_path / "p.yaml"


def state_of(policy: Path) -> tuple[int, int, int]:
    """Data files, rows and the sum of ids of the table, as pyiceberg reads it."""
    lake = policy.parent / "lake"
    with catalog_of(lake) as catalog:
        table = catalog.load_table("db.sick")
        rows = table.scan().to_arrow()
        return len(list(table.scan().plan_files())), rows.num_rows, sum(rows["id"].to_pylist())


def whole(policy: Path) -> CompletedProcess[str]:
    """A pass that has ended well."""
    done = python("-m", "icekit", "schedule", "run", policy)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_pass_that_is_killed_is_taken_up_by_the_next(policy: Path) -> None:
    before = state_of(policy)
    first = Child("icekit", ["schedule", "run", policy], policy.with_name("pass.log"))
    first.until(lambda: any(line.startswith("  done:") for line in first.lines))
    first.kill()
    assert before[0] > state_of(policy)[0] > PARTS, first.lines

    assert "resuming run" in whole(policy).stdout
    assert state_of(policy) == (PARTS, before[1], before[2])
    assert "1 nothing to do" in whole(policy).stdout
