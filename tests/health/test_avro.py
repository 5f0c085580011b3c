"""Manifests are decoded as fastavro decodes them, whatever their schema and codec."""

import io
import random
import re
from typing import Any

import fastavro
import pytest

from icekit.common.errors import MetadataUnreadable
from icekit.iceberg.manifests import DATA_FIELDS, Record, files_of, manifest_list
from icekit.iceberg.partition import Partition
from tests import avro
from tests.avro import array_type, optional, record_type

DECIMAL = {
    "type": "fixed",
    "name": "decimal_9_2",
    "size": 4,
    "logicalType": "decimal",
    "precision": 9,
    "scale": 2,
}


BY_DAY = {"day": optional("int")}


def statistics(name: str, value: str) -> Any:
    pair = record_type(f"pair_{name}", key="int", value=value)
    return optional({**array_type(pair), "logicalType": "map"})


def manifest(
    partition: dict[str, Any], records: list[dict[str, Any]], codec: str = "deflate"
) -> bytes:
    values, bounds = statistics("value_counts", "long"), statistics("lower_bounds", "bytes")
    return avro.manifest(partition, records, codec, value_counts=values, lower_bounds=bounds)


def files(raw: bytes, *more: str) -> list[Record]:
    """The live files of a manifest at ``here``, of spec 0."""
    manifest = {"manifest_path": "here", "partition_spec_id": 0}
    return [file for file, *_ in files_of(manifest, raw, DATA_FIELDS.union(more))]


def record(number: int, **partition: Any) -> dict[str, Any]:
    file = {
        "content": 0,
        "file_path": "s3://bucket/" + "x" * (number * 40),
        "file_format": "PARQUET",
        "partition": partition,
        "record_count": number,
        "file_size_in_bytes": number**5,
        "value_counts": [{"key": i, "value": i**6} for i in range(number * 7)] or None,
        "lower_bounds": [{"key": i, "value": b"\xff" * (i * 5)} for i in range(number * 3)],
    }
    return {"status": number % 3, "sequence_number": number or None, "data_file": file}


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_every_codec_and_length_is_read(codec: str) -> None:
    records = [record(n, day=n) for n in range(60)]

    assert files(manifest(BY_DAY, records, codec)) == [
        {k: v for k, v in each["data_file"].items() if k in DATA_FIELDS | {"partition"}}
        for each in records
        if each["status"] != 2
    ]


@pytest.mark.parametrize("stride", [1, 2, 7, 25, 61])
def test_one_entry_in_a_stride_is_read_whatever_the_blocks(stride: int) -> None:
    # The entries grow, so that the first block has many and the last has one.
    records = [{**record(n, day=n), "status": 1} for n in range(60)]
    raw = manifest(BY_DAY, records)
    listed = {"manifest_path": "here", "partition_spec_id": 0}
    assert sum(1 for _ in fastavro.block_reader(io.BytesIO(raw))) > 5

    sampled = [file for file, *_ in files_of(listed, raw, DATA_FIELDS, stride=stride)]

    assert sampled == files(raw)[stride - 1 :: stride]


def test_sequence_numbers_and_snapshots_are_those_of_the_entry_or_else_of_the_manifest() -> None:
    own = {**record(1, day=1), "snapshot_id": 7}
    listed = {"manifest_path": "m", "partition_spec_id": 3, "sequence_number": 5}
    found = files_of(
        {**listed, "added_snapshot_id": 6}, manifest(BY_DAY, [own, record(0, day=2)]), frozenset()
    )

    assert [each[1:] for each in found] == [
        (Partition(3, (1,)), 1, 7),
        (Partition(3, (2,)), 5, 6),
    ]


def test_a_type_that_is_named_a_second_time_is_known() -> None:
    fields = {"a": optional(DECIMAL), "b": optional("decimal_9_2")}
    (file,) = files(manifest(fields, [record(1, a=None, b=None)]))

    assert file["partition"] == {"a": None, "b": None}


def test_corrupt_bytes_are_named_or_harmless_and_never_hang() -> None:
    whole = manifest(BY_DAY, [record(n, day=n) for n in range(10)], "null")
    chance = random.Random(0)
    refused = []
    for _ in range(500):
        broken = bytearray(whole)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.choice((0, 1, 127, 128, 255))
        try:
            files(bytes(broken))
        except MetadataUnreadable as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(text.startswith("here is corrupt (") for text in refused)


def test_fixed_values_that_iceberg_for_java_wrote_are_not_called_corrupt() -> None:
    kind = {"type": "bytes", "name": "fixed_3", "size": 3}
    with_length = manifest({"f": optional(kind)}, [record(n, f=b"\xff\x00\x7f") for n in range(9)])
    as_iceberg_writes_it = re.sub(
        rb'("type": )"bytes"(, "name": "fixed_3")', rb'\1"fixed"\2', with_length
    )

    assert as_iceberg_writes_it != with_length
    with pytest.raises(MetadataUnreadable, match=r"here has partition values of type fixed"):
        files(as_iceberg_writes_it)


def test_bytes_that_are_cut_short_are_corrupt() -> None:
    whole = manifest(BY_DAY, [record(n, day=n) for n in range(60)], "null")

    for cut in range(len(whole) - 2000, len(whole), 97):
        with pytest.raises(MetadataUnreadable, match="here is corrupt"):
            files(whole[:cut])


@pytest.mark.parametrize(
    "field", [b"status", b"data_file", b"partition", b"record_count", b"value_counts", b"key"]
)
def test_a_field_whose_name_is_damaged_is_missed_by_name(field: bytes) -> None:
    whole = manifest(BY_DAY, [record(1, day=1)])
    damaged = whole.replace(b'"name": "' + field, b'"name": "Q' + field[1:])

    assert damaged != whole
    if field == b"value_counts":
        # Writers may leave it out.
        assert files(damaged, "value_counts")
        return
    with pytest.raises(MetadataUnreadable, match="here is corrupt"):
        files(damaged, "value_counts")


def test_a_list_of_manifests_that_is_none_is_corrupt() -> None:
    with pytest.raises(MetadataUnreadable, match="here is corrupt"):
        manifest_list(manifest(BY_DAY, [record(1, day=1)]), "here")
