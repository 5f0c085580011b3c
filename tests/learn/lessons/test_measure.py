"""Measurements, and how two of them are set beside each other."""

from dataclasses import replace
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.common.errors import ParameterError
from icekit.engine.tables import EmbeddedTables
from icekit.learn.lessons import FolderSize, QueryCost, compare, measure, storage
from tests.golden import Golden

SLOW = QueryCost(1.5, (1.4, 1.5, 9.0), 0.2, 112, 0, 24, 800 * 1024, ("(1,)",))
FOLDER = FolderSize(1, 10, 2, 7)
QUICK = replace(
    SLOW,
    seconds=0.25,
    run_seconds=(0.2, 0.25, 0.3),
    planning_seconds=0.02,
    data_files=5,
    manifests=30,
)


def test_measurements_and_comparisons_look_like_their_golden_file(golden: Golden) -> None:
    shown = (
        SLOW,
        compare(SLOW, QUICK),
        compare(SLOW, replace(QUICK, rows=("(2,)",))),
        FOLDER,
        compare(FolderSize(4, 40, 2, 7), FOLDER),
    )

    golden("lessons/measure.txt", "\n\n".join(map(repr, shown)))


def test_a_folder_is_counted_without_the_checksums_of_a_local_disk(tmp_path: Path) -> None:
    lake = Lake("lake", None, EmbeddedTables(tmp_path))
    for name, size in {
        "data/p=1/a.parquet": 10,
        "data/p=1/.a.parquet.crc": 99,
        "metadata/1.json": 3,
        "metadata/2.avro": 4,
    }.items():
        path = tmp_path / "warehouse" / "lab" / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)

    assert storage(lake, "lab.t") == FOLDER


@pytest.mark.lab("position_deletes")
@pytest.mark.spark
def test_what_a_query_opens_is_counted_by_iceberg(lake: Lake) -> None:
    found = measure(
        lake,
        "SELECT carrier, avg(arr_delay) FROM lake.lab.position_deletes GROUP BY carrier",
        runs=1,
    )
    facts = lake.observe("lab.position_deletes")

    assert found.data_files == facts.data.file_count
    assert found.bytes == facts.data.size_in_bytes
    assert found.delete_files >= 15
    assert found.manifests == facts.manifests.data_count
    assert 0 < found.planning_seconds < found.seconds
    assert len(found.rows) == 15


@pytest.mark.lab("healthy_partitioned")
@pytest.mark.spark
def test_a_query_that_iceberg_answers_from_metadata_is_refused(lake: Lake) -> None:
    with pytest.raises(ParameterError, match="opens no files"):
        measure(lake, "SELECT count(*) FROM lake.lab.healthy_partitioned")
