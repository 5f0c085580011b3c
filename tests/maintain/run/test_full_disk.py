"""A disk without space: the run says which, stops at once, and leaves nothing behind. With a real
file system of a few megabytes.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from icekit.maintain.run.options import Limits, Retry
from tests.child import python
from tests.maintain.tables import Named, Table

pytestmark = [pytest.mark.spark, pytest.mark.core]

MEBIBYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder of a file system of 14 MiB, or of as many as a test says."""
    mebibytes = getattr(request, "param", 14)
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def filled(table: Table, location: str = "") -> Table:
    """A table of 8.7 MiB in files that hardly compress."""
    table.sql(
        f"CREATE TABLE {{t}} (id bigint, x binary) USING iceberg {location} "
        "TBLPROPERTIES ('write.parquet.compression-codec' = 'uncompressed')"
    )
    for n in range(6):
        table.insert(
            f"(SELECT id, unhex(sha2(cast(id * 7 + {n} AS string), 512)) FROM range(20000))"
        )
    return table


def test_a_full_disk_of_the_table_ends_the_action_at_once_and_leaves_no_file(
    named: Named, small_disk: Path
) -> None:
    table = filled(named("sick"), f"LOCATION 'file:{small_disk}/t'")
    files, before = set(small_disk.rglob("*.parquet")), table.snapshots()
    lines: list[str] = []
    limits = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))

    outcome = table.run(table.plan(), limits=limits, progress=lines.append)

    (action,) = outcome.actions
    assert (outcome.exit_status, action.status, action.attempts) == (1, "failed", 1)
    assert action.error_class == "DiskFull"
    assert f"The disk of the table ({small_disk}/t) is full" in str(action.error)
    assert "This action needs about 8.7 MiB there" in str(action.error)
    assert not any("split" in line for line in lines)
    assert set(small_disk.rglob("*.parquet")) == files
    assert table.snapshots() == before
    usage = os.statvfs(small_disk)
    assert usage.f_bavail * usage.f_frsize > 4 * MEBIBYTE
    table.sql("DROP TABLE {t} PURGE")


@pytest.mark.slow
@pytest.mark.parametrize("small_disk", [400], indirect=True)
def test_a_full_local_directory_of_spark_is_named_and_nothing_is_left(
    named: Named, small_disk: Path
) -> None:
    table = filled(named("sick"))
    files = set(table.location.rglob("*.parquet"))
    before = table.snapshots()
    conf = f"{os.environ['ICEKIT_SPARK_CONF']} spark.local.dir={small_disk}"

    done = python(
        "-m",
        "tests.maintain.run.local_disk_child",
        small_disk,
        *table.name,
        env={**os.environ, "ICEKIT_SPARK_CONF": conf},
    )

    assert done.returncode == 0, done.stderr
    exit_status, attempts, error_class, error = json.loads(done.stdout.splitlines()[-1])
    assert (exit_status, attempts, error_class) == (1, 1, "DiskFull")
    assert f"The disk of Spark's local directory ({small_disk}/blockmgr-" in error
    assert "This action needs about 8.7 MiB there" in error
    assert set(table.location.rglob("*.parquet")) == files
    assert table.snapshots() == before
