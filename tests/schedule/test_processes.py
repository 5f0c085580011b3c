"""A pass in a process of its own: killed, or asked to end at any moment, and taken up again."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from tests.offline import catalog_of

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
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
def policy(tmp_path: Path) -> Path:
    """A policy for a lake of its own, with one table of small files, made without Spark."""
    with catalog_of(tmp_path / "lake") as catalog:
        catalog.create_namespace("db")
        schema = Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "part", IntegerType(), required=False),
        )
        table = catalog.create_table(
            "db.sick",
            schema,
            partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")),
        )
        for n in range(FILES):
            ids = range(n * 100, n * 100 + 100)
            table.append(
                pa.table(
                    {
                        "id": pa.array(ids, pa.int64()),
                        "part": pa.array([i % PARTS for i in ids], pa.int32()),
                    }
                )
            )
    (tmp_path / "p.yaml").write_text(TEXT)
    return tmp_path / "p.yaml"


def state_of(policy: Path) -> tuple[int, int, int]:
    """Data files, rows and the sum of ids of the table, as pyiceberg reads it."""
    lake = policy.parent / "lake"
    with catalog_of(lake) as catalog:
        table = catalog.load_table("db.sick")
        rows = table.scan().to_arrow()
        return len(list(table.scan().plan_files())), rows.num_rows, sum(rows["id"].to_pylist())


def environment(policy: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        "ICEKIT_LAKE": str(policy.parent / "lake"),
        "PYTHONPATH": str(ROOT),
        **more,
    }


def test_a_pass_that_is_killed_is_taken_up_by_the_next(policy: Path) -> None:
    before = state_of(policy)
    command = [sys.executable, "-m", "icekit", "schedule", "run", str(policy)]
    first = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(policy),
        start_new_session=True,
    )
    assert first.stdout is not None
    said = []
    for line in first.stdout:
        said.append(line)
        if line.startswith("  done:"):
            break
    os.killpg(first.pid, 9)
    first.stdout.close()
    first.wait()
    between = state_of(policy)
    assert before[0] > between[0] > PARTS, "".join(said)

    second = subprocess.run(
        command, capture_output=True, text=True, env=environment(policy), check=False
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert "resuming run" in second.stdout
    assert state_of(policy) == (PARTS, before[1], before[2])

    third = subprocess.run(
        command, capture_output=True, text=True, env=environment(policy), check=False
    )
    assert (third.returncode, "1 nothing to do" in third.stdout) == (0, True), (
        third.stdout + third.stderr
    )


def add(policy: Path, n: int) -> None:
    """Make the table sick again: as many small files as it had at first, of other rows."""
    lake = policy.parent / "lake"
    with catalog_of(lake) as catalog:
        table = catalog.load_table("db.sick")
        for k in range(FILES):
            ids = range(1000 * n + k * 100, 1000 * n + k * 100 + 100)
            table.append(
                pa.table(
                    {
                        "id": pa.array(ids, pa.int64()),
                        "part": pa.array([i % PARTS for i in ids], pa.int32()),
                    }
                )
            )


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
    command = [sys.executable, "-m", "icekit", "schedule", "run", str(policy)]
    came: list[tuple[str, int]] = []
    for n, (sign, times, longest) in enumerate(MOMENTS, 1):
        # Spark's JVM is in the group, and is then asked at the same moment.
        whole_group = bool(draw.getrandbits(1))
        add(policy, n)
        before = state_of(policy)
        run = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(policy),
            start_new_session=True,
        )
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            said.append(line)
            if line.startswith(sign) and sum(one.startswith(sign) for one in said) == times:
                break
        wait = draw.uniform(0, longest)
        time.sleep(wait)
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if whole_group else os.kill)(run.pid, signal.SIGTERM)
        rest, _ = run.communicate(timeout=180)
        told = f"{sign} + {wait:.2f} s, {whole_group=}, {seed=}\n{''.join(said)}{rest}"
        came.append((sign, run.returncode))
        # Stopped; or it was done by then, and Python itself was ending.
        assert run.returncode in {0, 130, -signal.SIGTERM}, told
        for word in ("Traceback", "this is a bug", "crashed"):
            assert word not in told, told
        document = json.loads((policy.parent / "out" / "pass.json").read_text())
        assert document["interrupted"] is (run.returncode == 130), told
        assert state_of(policy)[1:] == before[1:], told
    assert 130 in {status for _, status in came}, came

    before = state_of(policy)
    last = subprocess.run(
        command, capture_output=True, text=True, env=environment(policy), check=False
    )
    assert last.returncode == 0, last.stdout + last.stderr
    # What was stopped in an earlier pass may leave partitions that are well again, and no file more
    # than it left then.
    after = state_of(policy)
    assert after[1:] == before[1:]
    assert after[0] <= 2 * PARTS, (came, last.stdout)
