"""A pass in a process of its own: killed, or asked to end at any moment, and taken up again."""

import contextlib
import json
import os
import random
import signal
import time
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
        catalog.create_table("db.sick", schema, partition_spec=by_part)
    (tmp_path / "p.yaml").write_text(TEXT)
    add(tmp_path / "p.yaml", 0)
    return tmp_path / "p.yaml"


def add(policy: Path, n: int) -> None:
    """Make the table sick: small files, of rows that it did not have before."""
    with catalog_of(policy.parent / "lake") as catalog:
        table = catalog.load_table("db.sick")
        for k in range(FILES):
            ids = range(1000 * n + k * 100, 1000 * n + k * 100 + 100)
            parts = pa.array([i % PARTS for i in ids], pa.int32())
            table.append(pa.table({"id": pa.array(ids, pa.int64()), "part": parts}))


def state_of(policy: Path) -> tuple[int, int, int]:
    """Data files, rows and the sum of ids of the table, as pyiceberg reads it."""
    lake = policy.parent / "lake"
    with catalog_of(lake) as catalog:
        table = catalog.load_table("db.sick")
        rows = table.scan().to_arrow()
        return len(list(table.scan().plan_files())), rows.num_rows, sum(rows["id"].to_pylist())


def begun(policy: Path, sign: str, times: int = 1) -> Child:
    """A pass that has said this so many times, or has ended before."""
    child = Child("icekit", ["schedule", "run", policy], policy.with_name("pass.log"))
    child.until(lambda: sum(line.startswith(sign) for line in child.lines) >= times)
    return child


def whole(policy: Path) -> CompletedProcess[str]:
    """A pass that has ended well."""
    done = python("-m", "icekit", "schedule", "run", policy)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_pass_that_is_killed_is_taken_up_by_the_next(policy: Path) -> None:
    before = state_of(policy)
    first = begun(policy, "  done:")
    first.kill()
    assert before[0] > state_of(policy)[0] > PARTS, first.lines

    assert "resuming run" in whole(policy).stdout
    assert state_of(policy) == (PARTS, before[1], before[2])
    assert "1 nothing to do" in whole(policy).stdout


# What the pass says, for which time, and for how many seconds after that the signal may come.
MOMENTS = [
    ("1 table of catalog", 1, 6.0),
    ("[1/1] db.sick", 1, 15.0),
    ("[1/4]", 1, 1.0),
    ("[2/4]", 1, 3.0),
    ("db.sick: compact done", 1, 12.0),
    ("[1/1] db.sick", 2, 2.0),
]


def test_a_pass_that_is_asked_to_end_at_any_moment_ends_as_stopped_and_the_next_goes_on(
    policy: Path,
) -> None:
    seed = random.randrange(1_000_000)
    draw = random.Random(seed)
    came: list[tuple[str, int]] = []
    for n, (sign, times, longest) in enumerate(MOMENTS, 1):
        # Spark's JVM is in the group, and is then asked at the same moment.
        whole_group = bool(draw.getrandbits(1))
        add(policy, n)
        before = state_of(policy)
        run = begun(policy, sign, times)
        wait = draw.uniform(0, longest)
        time.sleep(wait)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(run.process.pid, signal.SIGTERM)
        status = run.process.wait(180)
        run.kill()
        told = "\n".join([f"{sign} + {wait:.2f} s, {whole_group=}, {seed=}", *run.lines])
        came.append((sign, status))
        # Stopped; or it was done by then, and Python itself was ending.
        assert status in {0, 130, -signal.SIGTERM}, told
        for word in ("Traceback", "this is a bug", "crashed"):
            assert word not in told, told
        document = json.loads((policy.parent / "out" / "pass.json").read_text())
        assert document["interrupted"] is (status == 130), told
        assert state_of(policy)[1:] == before[1:], told
    assert 130 in {status for _, status in came}, came

    before = state_of(policy)
    last = whole(policy)
    # What was stopped in an earlier pass may leave partitions that are well again, and no file more
    # than it left then.
    after = state_of(policy)
    assert after[1:] == before[1:]
    assert after[0] <= 2 * PARTS, (came, last.stdout)
