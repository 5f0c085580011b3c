"""A disk without space: the run says which, stops at once, and leaves nothing behind. With a real
file system of a few megabytes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from icekit.maintain.run.options import Limits, Retry
from tests.maintain.tables import Named

pytestmark = pytest.mark.spark

MEBIBYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a file system of 14 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=14m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_of_the_table_ends_the_action_at_once_and_leaves_no_file(
    named: Named, small_disk: Path
) -> None:
    table = named("sick")
    table.sql(
        f"CREATE TABLE {{t}} (id bigint, x binary) USING iceberg LOCATION 'file:{small_disk}/t' "
        "TBLPROPERTIES ('write.parquet.compression-codec' = 'uncompressed')"
    )
    for n in range(6):
        table.insert(
            f"(SELECT id, unhex(sha2(cast(id * 7 + {n} AS string), 512)) FROM range(20000))"
        )
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
