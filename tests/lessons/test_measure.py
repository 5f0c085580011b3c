"""Measurements, and how two of them are set beside each other."""

from dataclasses import replace
from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.catalog.tables import EmbeddedTables
from icekit.errors import ParameterError
from icekit.lessons import FolderSize, QueryCost, compare, measure, storage

SLOW = QueryCost("SELECT 1", 1.5, (1.4, 1.5, 9.0), 0.2, 112, 0, 24, 800 * 1024, ("(1,)",))
QUICK = replace(
    SLOW, seconds=0.25, runs=(0.2, 0.25, 0.3), planning_seconds=0.02, data_files=5, manifests=30
)


def test_each_figure_has_before_after_and_a_factor() -> None:
    said = {name: rest for name, *rest in compare(SLOW, QUICK).rows}

    assert said["the query"] == ["1.5 s", "0.25 s", "6.0× faster"]
    assert said["planning"] == ["0.20 s", "20 ms", "10× faster"]
    assert said["data files opened"] == ["112", "5", "22× fewer"]
    assert said["manifests read"] == ["24", "30", "1.2× more"]
    assert said["delete files opened with them"] == ["0", "0", ""]


def test_a_comparison_says_whether_the_answer_is_the_same_and_how_times_spread() -> None:
    same, other = compare(SLOW, QUICK), compare(SLOW, replace(QUICK, rows=("(2,)",)))

    assert "The result is the same. Times are medians of 3 warm runs" in same.note
    assert "1.4 s to 9.0 s before" in same.note
    assert "rows changed" in other.note


def test_a_measurement_reads_as_a_sentence() -> None:
    assert repr(SLOW) == (
        "The query takes 1.5 s (median of 3 warm runs, 1.4 s to 9.0 s), including 0.20 s to plan. "
        "It reads 24 manifests and opens 112 data files of 800 KiB, and no delete files."
    )
    assert "112\N{NO-BREAK SPACE}" not in SLOW._repr_html_()
    assert "800\N{NO-BREAK SPACE}KiB" in SLOW._repr_html_()


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

    assert storage(lake, "lab.t") == FolderSize(1, 10, 2, 7)
    assert (
        repr(storage(lake, "lab.t"))
        == "The folder has 1 data or delete file of 10 B in total and 2 metadata files of 7 B in "
        "total."
    )
    assert [row[:3] for row in compare(FolderSize(4, 40, 2, 7), storage(lake, "lab.t")).rows] == [
        ("data and delete files", "4", "1"),
        ("bytes of data", "40 B", "10 B"),
        ("metadata files", "2", "2"),
        ("bytes of metadata", "7 B", "7 B"),
    ]


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
