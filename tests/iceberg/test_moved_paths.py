"""Where paths lead after a move, and how they are spelled."""

import pytest

from icekit.iceberg.moved_paths import MovedPaths, PathOutside

NEW = "/new/t"


@pytest.mark.parametrize(
    ("location", "path", "after"),
    [
        ("/wh/t", "/wh/t/data/a", "/new/t/data/a"),
        ("/wh/t", "file:/wh/t/data/a", "file:/new/t/data/a"),
        ("/wh/t", "file:///wh/t/data/a", "file:///new/t/data/a"),
        ("/wh/t/", "/wh/t/data/a", "/new/t/data/a"),
        ("file:/wh/t", "file:/wh/t/a b%20#?=ü", "file:/new/t/a b%20#?=ü"),
        ("s3://bucket/t", "s3://bucket/t/data/a", "/new/t/data/a"),
        ("s3://bucket/t", "s3a://bucket/t/data/a", "file:/new/t/data/a"),
        ("s3://bucket", "s3://bucket/data/a", "/new/t/data/a"),
        ("s3a://bucket/t", "s3a://bucket/t//data//a", "/new/t//data//a"),
        ("/wh/t", "/wh/t/data/../a", "/new/t/data/../a"),
        ("/wh/t", "/wh//t/data/a", "file:/new/t/data/a"),
    ],
)
def test_a_path_in_a_moved_folder_leads_to_the_new_one(
    location: str, path: str, after: str
) -> None:
    assert MovedPaths({location: NEW})(path) == after


def test_ways_to_spell_one_path_stay_as_many() -> None:
    spellings = [
        f"{folder}/data/a"
        for folder in (
            *("/wh/t", "file:/wh/t", "file:///wh/t", "file:////wh/t", "//wh/t", "/wh//t"),
            *("/wh/./t", "/wh/t/../t", "FILE:/wh/t", "file://host/wh/t"),
        )
    ]
    paths = MovedPaths({"/wh/t": NEW})
    after = [paths(path) for path in spellings]

    assert len(set(after)) == len(spellings)
    assert after == [paths(path) for path in spellings]
    assert all(path.endswith("/new/t/data/a") for path in after)


def test_each_folder_outside_gets_a_number_and_no_name() -> None:
    paths = MovedPaths({"s3://bucket/t": NEW}, "/new/elsewhere")

    assert [
        paths(path)
        for path in (
            "s3://other/secret/day=1/a",
            "s3://other/secret/day=2/a",
            "s3a://other/secret/day=1/b",
            "s3://bucket/t/../secret/a",
            "s3://bucket/table/a",
        )
    ] == [
        "/new/elsewhere/1/a",
        "/new/elsewhere/2/a",
        "file:/new/elsewhere/1/b",
        "/new/elsewhere/3/a",
        "/new/elsewhere/4/a",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/wh/other/a",
        "/wh/t2/a",
        "/wh/t/../other/a",
        "/wh/t/data/../../other/a",
        "s3://wh/t/a",
        "a",
        "",
        "/",
    ],
)
def test_a_path_outside_is_refused_where_nothing_else_moves(path: str) -> None:
    with pytest.raises(PathOutside, match="outside"):
        MovedPaths({"/wh/t": NEW})(path)


def test_a_path_that_leaves_the_folder_and_comes_back_does_not_leave_the_new_one() -> None:
    assert MovedPaths({"/wh/t": NEW})("/wh/t/../../wh/t/a") == "file:/new/t/a"


@pytest.mark.parametrize(
    ("low", "high", "together"),
    [
        ("/wh/t/data/a", "/wh/t/data/b", True),
        ("/wh/t/data/a", "/wh/t/meta", True),
        ("/wh/t", "/wh/u", False),
        ("/wh/t/a", "file:/wh/t/b", False),
        ("/wh/t/a", "/wh/u/a", False),
        ("/elsewhere/a", "/elsewhere/b", False),
        ("/elsewhere/a", "/elsewhere/a", True),
    ],
)
def test_bounds_stay_bounds_only_in_one_folder(low: str, high: str, together: bool) -> None:
    paths = MovedPaths({"/wh/t": NEW}, "/new/elsewhere")

    assert paths.moves_together(low, high) is together
    if together:
        assert paths(low) <= paths(high)
