"""A listing is compared with what metadata names as remove_orphan_files compares them, and what the
two could take for different files is not decided.
"""

import pytest

from icekit.engine.file_systems import ListedFile
from icekit.health.storage.listing import Comparison, NamedFiles
from icekit.iceberg.definition import PartitionField, PartitionSpec

OLD, YOUNG, MOMENT = 99, 100, 100


def compared(
    folder: str, named: list[str], listed: list[str], fields: tuple[str, ...] = ()
) -> Comparison:
    """The comparison of files that are named, and of old files that are listed, each of 7 bytes."""
    files = NamedFiles()
    for location in named:
        files.expect(location, 7)
    spec = PartitionSpec(
        0,
        tuple(
            PartitionField(1000 + number, name, "identity", number, name, "string")
            for number, name in enumerate(fields)
        ),
    )
    comparison = Comparison(files, folder, MOMENT, [spec])
    for path in listed:
        comparison.compare(ListedFile(path, 7, OLD))
    return comparison


ONE_FILE = [
    ("s3://b/t", "s3://b/t/x"),
    ("s3://b/t/", "s3://b/t/x"),
    ("s3://b/t", "s3a://b/t/x"),
    ("s3n://b/t", "s3a://b/t/x"),
    ("s3://b/t", "S3://B/t/x"),
    ("s3://b/t", "s3://b/t//x"),
    ("s3://b/t", "s3://b/t/./y/../x"),
    # What the metadata leaves out may be anything.
    ("s3://b/t", "/t/x"),
    ("/t", "file:/t/x"),
    ("/t", "file:///t/x"),
    ("file:///t", "/t/x"),
    ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t/x"),
    ("hdfs://one:8020/t", "hdfs:///t/x"),
]
UNDECIDED = [
    ("s3://b/t", "gs://b/t/x"),
    ("s3://b/t", "s3://other/t/x"),
    ("/t", "file://localhost/t/x"),
    ("/t", "hdfs://one:8020/t/x"),
    ("hdfs://one:8020/t", "hdfs://two:8020/t/x"),
    ("abfss://c@a.dfs.core.windows.net/t", "wasbs://c@a.blob.core.windows.net/t/x"),
    # Iceberg takes these names as they are.
    ("s3://b/t", "S3A://b/t/x"),
]
ANOTHER_FILE = [
    ("s3://b/t", "s3://b/t/y"),
    ("s3://b/t", "s3://b/T/x"),
    ("/t", "/t/%78"),
    ("/t", "/t/x%20"),
]


@pytest.mark.parametrize(("folder", "named"), ONE_FILE)
def test_a_file_is_found_however_its_place_is_spelled(folder: str, named: str) -> None:
    comparison = compared(folder, [named], ["x"])

    assert (comparison.orphan_count, comparison.orphan_doubts) == (0, [])
    assert comparison.named_files.expected_by_path == {}


@pytest.mark.parametrize(("folder", "named"), UNDECIDED)
def test_a_file_that_only_its_scheme_or_bucket_tells_from_a_named_one_is_not_decided(
    folder: str, named: str
) -> None:
    comparison = compared(folder, [named], ["x"])

    assert comparison.orphan_count == 0
    assert "only a person can say whether they are one file" in comparison.orphan_doubts[0]
    # It may not be where the metadata says.
    assert [each.location for each in comparison.named_files.expected_by_path.values()] == [named]


def test_a_file_that_is_named_twice_and_once_elsewhere_is_not_decided_but_found() -> None:
    comparison = compared("s3://b/t", ["s3://b/t/x", "s3://other/t/x"], ["x"])

    assert comparison.orphan_doubts
    assert comparison.named_files.doubtful_locations == {"s3://other/t/x"}
    assert comparison.named_files.expected_by_path == {}


@pytest.mark.parametrize(("folder", "named"), ANOTHER_FILE)
def test_nothing_is_decoded_and_no_letter_is_changed(folder: str, named: str) -> None:
    comparison = compared(folder, [named], ["x"])

    assert comparison.orphan_count == 1
    assert comparison.storage_facts.orphan_bytes == 7
    assert [each.location for each in comparison.named_files.expected_by_path.values()] == [named]


@pytest.mark.parametrize("name", ["a b", "100%", "k=a%2Fb", "it's", 'say "é"', "q?#", "\\"])
def test_odd_names_are_names_like_others(name: str) -> None:
    comparison = compared("/t", [f"file:/t/{name}/x"], [f"{name}/x", f"{name}/y"])

    assert comparison.storage_facts.examples == (f"file:/t/{name}/y",)
    assert comparison.named_files.expected_by_path == {}


def test_hidden_names_are_left_out_but_those_of_partition_fields() -> None:
    orphans = ["_part=1/x", "data/.p=2/x", "a._b/x", "x"]
    hidden = ["_partial=1/x", "_SUCCESS", ".x.crc", "_temporary/0/x", "data/_p/x", "%5Fpart=1/_x"]

    comparison = compared("/t", [], [*orphans, *hidden], fields=("_part", ".p"))

    assert comparison.orphan_count == len(orphans)
    assert comparison.orphan_examples == sorted(f"file:/t/{each}" for each in orphans)


def test_a_hidden_file_that_is_named_is_found() -> None:
    assert compared("/t", ["/t/_x/y"], ["_x/y"]).named_files.expected_by_path == {}


def test_young_files_are_not_orphans_and_a_file_of_another_size_is_looked_up() -> None:
    comparison = compared("/t", ["/t/x"], [])
    comparison.compare(ListedFile("young", 7, YOUNG))
    comparison.compare(ListedFile("x", 8, YOUNG))

    assert comparison.orphan_count == 0
    assert comparison.named_files.doubtful_locations == {"/t/x"}
    assert comparison.named_files.expected_by_path == {}


def test_orphans_are_not_decided_where_a_file_exists_that_the_listing_does_not_have() -> None:
    named = ["s3://b/t/caf\u00e9", "s3://b/t/gone", "s3://b/t/_hidden", "s3://b/u/x"]
    comparison = compared("s3://b/t", named, ["cafe\u0301"])
    comparison.doubt_listing(dict.fromkeys(named, 7) | {"s3://b/t/gone": None})

    assert comparison.orphan_doubts == [
        "the listing does not have s3://b/t/caf\u00e9, which exists"
    ]
    elsewhere = compared("s3://b/t", named[1:], [])
    elsewhere.doubt_listing(dict.fromkeys(named, 7) | {"s3://b/t/gone": None})
    assert elsewhere.orphan_doubts == []


def test_the_examples_are_the_first_by_name_and_all_are_weighed() -> None:
    comparison = compared("s3a://b/t/", [], [f"{n:03}" for n in range(30, 0, -1)])

    assert comparison.storage_facts.examples == tuple(f"s3a://b/t/{n:03}" for n in range(1, 6))
    assert comparison.storage_facts.orphan_bytes == 210
    assert not comparison.storage_facts.is_estimated


def test_orphans_below_a_link_are_not_decided() -> None:
    comparison = compared("/t", [], [])
    comparison.compare(ListedFile("data/link/x", 7, OLD, linked_folder="data/link"))

    assert comparison.orphan_doubts == [
        "file:/t/data/link is a link to another folder, whose files may belong to something else"
    ]
