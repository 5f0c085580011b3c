"""A path has one normal form, in Python and in SQL, and what a table may name is never ruled out
wrongly.
"""

from pathlib import Path

import pytest

from icekit.api import Lake
from icekit.health.storage.file_references import Folders, folders_in_frame, folders_of
from icekit.iceberg.paths import (
    LOCAL,
    has_common_folder,
    is_local_sql,
    normal_path_of,
    normal_path_sql,
    symbolic_link_targets,
)

SPELLINGS = {
    "/w/a/x.parquet": "/w/a/x.parquet",
    "file:/w/a/x.parquet": "/w/a/x.parquet",
    "file:///w/a/x.parquet": "/w/a/x.parquet",
    "s3a://bucket/w/a/x.parquet": "/w/a/x.parquet",
    "s3://bucket//w/a//x.parquet": "/w/a/x.parquet",
    "s3://bucket/w/./a/x.parquet": "/w/a/x.parquet",
    "s3://bucket/w/b/../a/x.parquet": "/w/a/x.parquet",
    "hdfs://host:8020/../../w/b/c/../../a/./x.parquet": "/w/a/x.parquet",
    "abfss://c@account.dfs.core.windows.net/w/a/x.parquet": "/w/a/x.parquet",
    "/w/k=a%2Fb/x.parquet": "/w/k=a%2Fb/x.parquet",
    "/w/a b/..x/x..parquet": "/w/a b/..x/x..parquet",
    "/w/k=1:2/x.parquet": "/w/k=1:2/x.parquet",
    "/w/it's $1 \\ é/x.parquet": "/w/it's $1 \\ é/x.parquet",
    "/w/a/": "/w/a",
    "w/a": "/w/a",
    "s3://bucket": "/",
    "/w/..": "/",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_path_has_one_normal_form(spelling: str) -> None:
    assert normal_path_of(spelling).path == SPELLINGS[spelling]


@pytest.mark.spark
def test_sql_has_the_same_normal_form(lake: Lake) -> None:
    frame = lake.spark.createDataFrame([(path,) for path in SPELLINGS], "file_path string")

    found = frame.selectExpr(
        "file_path", normal_path_sql("file_path"), is_local_sql("file_path")
    ).collect()

    assert {row[0]: row[1] for row in found} == SPELLINGS
    assert {row[0] for row in found if row[2]} == {
        path for path in SPELLINGS if normal_path_of(path).storage_kind in LOCAL
    }
    for own in ((), ("s3://bucket/w", "/w")):
        assert folders_in_frame(frame, own) == folders_of(SPELLINGS, own)


def test_folders_of_a_tables_own_location_count_as_one_only_if_they_are_in_it() -> None:
    paths = [
        "s3://b/w/t/data/p=1/x",
        "s3://b/w/t/data/p=2/x",
        "s3://b/w/t/../other/x",
        "s3://b/w/t_old/x",
    ]

    assert folders_of(paths, ["s3a://b/w/t/"]) == Folders(
        frozenset({"/w/t", "/w/other", "/w/t_old"})
    )


def test_more_folders_than_are_told_apart_are_one_around_them() -> None:
    paths = [f"s3://b/w/data/{n:04x}/x" for n in range(2_000)]

    assert folders_of(paths, ["s3://b/w/t"]) == Folders(frozenset({"/w/data"}))


@pytest.mark.parametrize(
    ("one", "other", "do"),
    [
        ("/w/a", "/w/a", True),
        ("/w/a", "/w", True),
        ("/", "/w", True),
        ("/w/a", "/w/ab", False),
        ("/w/a/b", "/w/a/c", False),
    ],
)
def test_folders_meet_if_one_is_in_the_other(one: str, other: str, do: bool) -> None:
    assert has_common_folder([one, "/x"], [other, "/y"]) is do
    assert has_common_folder([other, "/y"], [one, "/x"]) is do


def test_links_of_folders_and_of_files_in_them_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").symlink_to("../link/file")

    assert symbolic_link_targets([f"{tmp_path}/real", "/nowhere/at all"]) == {}
    assert symbolic_link_targets([f"{tmp_path}/link/deep"]) == {
        f"{tmp_path}/link/deep": f"{tmp_path}/real/deep"
    }
    assert symbolic_link_targets([f"{tmp_path}/other"]) == {
        f"{tmp_path}/other/file": f"{tmp_path}/real/file"
    }
    assert Folders(local_folders=frozenset([f"{tmp_path}/other"])).resolved_folders() == {
        f"{tmp_path}/other",
        f"{tmp_path}/real",
    }
