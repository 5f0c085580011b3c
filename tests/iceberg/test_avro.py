"""Records of Avro files are changed, and nothing else of the files."""

import io
import json
from typing import Any

import fastavro
import pytest

from icekit.iceberg import avro, puffin
from tests.avro import array_type, optional, record_type


def _written(schema: Any, records: list[dict[str, Any]], codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, metadata={"written-by": "ü"})
    return out.getvalue()


def _logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


DECIMAL = {
    "type": "fixed",
    "name": "decimal_38_3",
    "size": 16,
    "logicalType": "decimal",
    "precision": 38,
    "scale": 3,
}
ODD = record_type(
    "odd",
    path="string",
    day=optional(_logical("int", "date")),
    at=optional(_logical("long", "timestamp-micros", **{"adjust-to-utc": True})),
    local=optional(_logical("long", "local-timestamp-micros")),
    amount=optional(DECIMAL),
    same_type=optional("decimal_38_3"),
    short=_logical("bytes", "decimal", precision=9, scale=2),
    id={"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"},
    ratio="double",
    counts={**array_type(record_type("pair", key="int", value="long")), "logicalType": "map"},
)
ODD_RECORD: dict[str, Any] = {
    "day": -800_000,  # before year 1
    "at": -(2**62),
    "local": 2**62,
    "amount": b"\x80" + bytes(15),
    "same_type": None,
    "short": b"\xff\x7f",
    "id": bytes(range(16)),
    "ratio": float("-inf"),
    "counts": [{"key": 2147483546, "value": 7}],
}


def _raw_records(raw: bytes) -> list[dict[str, Any]]:
    return list(avro.records_of(raw))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_values_without_a_type_in_python_stay_as_they_are(codec: str) -> None:
    plain = avro._without_logical_types(ODD)
    records = [{"path": f"old {number}", **ODD_RECORD} for number in range(5000)]
    blocks = _written(plain, records, codec)
    header = {**avro.header_of(blocks), "avro.schema": json.dumps(ODD).encode()}
    raw = (
        avro._encoded_header(header, blocks[-16:])
        + blocks[avro._header_and_block_offset(blocks)[1] :]
    )

    def change(record: dict[str, Any]) -> None:
        record["path"] = record["path"].replace("old", "new folder")

    changed = avro.rewrite(raw, change)

    assert list(avro.header_of(changed).items()) == list(header.items())
    expected = [{**record, "path": f"new folder {n}"} for n, record in enumerate(records)]
    assert _raw_records(changed) == expected
    reader = fastavro.block_reader(io.BytesIO(changed))
    assert reader.metadata["avro.codec"] == codec
    assert sum(block.num_records for block in reader) == len(records)


def test_what_is_no_avro_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not an Avro file"):
        avro.rewrite(b"PAR1", lambda _: None)


def _puffin(flags: int = 0) -> bytes:
    footer = {"blobs": [{"offset": 4, "length": 9, "properties": {"referenced-data-file": "a"}}]}
    payload = json.dumps(footer).encode()
    ends = len(payload).to_bytes(4, "little") + flags.to_bytes(4, "little") + puffin.MAGIC
    return puffin.MAGIC + b"the blobs" + puffin.MAGIC + payload + ends


def test_a_footer_is_changed_and_blobs_stay_where_they_are() -> None:
    def change(footer: dict[str, Any]) -> None:
        footer["blobs"][0]["properties"]["referenced-data-file"] = "a longer path"

    changed = puffin.rewrite_footer(_puffin(), change)

    assert changed[4:13] == b"the blobs"
    assert b"a longer path" in changed
    assert puffin.rewrite_footer(changed, lambda _: None) == changed


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (_puffin(flags=1), "compressed"),
        (_puffin()[:-1], "cut off"),
        (b"PFA1", "not a Puffin file"),
        (b"PAR1" * 10, "not a Puffin file"),
    ],
)
def test_a_footer_that_cannot_be_read_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        puffin.rewrite_footer(raw, lambda _: None)
