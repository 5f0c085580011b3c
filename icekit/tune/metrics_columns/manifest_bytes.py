"""Measure what the statistics of each column take in manifests; on the bytes of a few, as both collectors do."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence

import fastavro

from icekit.facts.avro import Record, entries
from icekit.facts.manifests import SAMPLED_FILES, SAMPLED_MANIFESTS, is_delete_manifest, may_have_live
from icekit.facts.parts import Column
from icekit.tune.metrics_columns.model import ColumnBytes, EntryBytes

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


def measure(manifests: Sequence[Record], columns: Sequence[Column], read: Callable[[str], bytes]) -> EntryBytes:
    """The bytes of each column in up to 300 entries of up to three data manifests: the newest, the oldest and a middle one.

    ``manifests`` are those of the manifest list, ``read`` gives the bytes at a location. The driver holds the sampled entries alone.
    """
    data = [m for m in manifests if not is_delete_manifest(m) and may_have_live(m)]
    places = sorted({0, len(data) // 2, len(data) - 1}) if len(data) > SAMPLED_MANIFESTS else list(range(len(data)))
    counted: Counter[int] = Counter()
    bounded: Counter[int] = Counter()
    count_bytes: Counter[int] = Counter()
    bound_bytes: Counter[int] = Counter()
    files = records = headers = stored = decoded = 0
    for place in places:
        location = data[place]["manifest_path"]
        raw = read(location)
        room = SAMPLED_FILES // len(places)
        header, blocks = layout(raw, room)
        headers += header
        records, stored, decoded = (a + b for a, b in zip((records, stored, decoded), blocks, strict=True))
        for entry in entries(raw, location, frozenset((*_COUNTS, *_BOUNDS))):
            file = entry["data_file"]
            files += 1
            counted.update(pair["key"] for pair in file.get("value_counts") or ())
            bounded.update(pair["key"] for pair in file.get("lower_bounds") or ())
            for name in _COUNTS:
                for pair in file.get(name) or ():
                    count_bytes[pair["key"]] += _number(pair["key"]) + _number(pair["value"])
            for name in _BOUNDS:
                for pair in file.get(name) or ():
                    size = len(pair["value"])
                    bound_bytes[pair["key"]] += _number(pair["key"]) + _number(size) + size
            room -= 1
            if not room:
                break
    each = max(files, 1)
    ids = {c.field_id for c in columns}
    found = [
        ColumnBytes(
            c.name, c.field_id, count_bytes[c.field_id] / each, bound_bytes[c.field_id] / each, counted[c.field_id], bounded[c.field_id]
        )
        for c in columns
    ]
    gone = sum(size for sizes in (count_bytes, bound_bytes) for key, size in sizes.items() if key not in ids)
    return EntryBytes(
        files,
        len(places),
        headers / max(len(places), 1),
        decoded / max(records, 1),
        stored / decoded if decoded else 1.0,
        tuple(sorted(found, key=lambda c: -c.size_in_bytes)),
        gone / each,
    )


def layout(raw: bytes, records: int = SAMPLED_FILES) -> tuple[int, tuple[int, int, int]]:
    """The length of a manifest's header, and of its first blocks that hold so many records: records, bytes as stored, and decoded."""
    header = held = stored = decoded = 0
    # An empty manifest is all header.
    for number, block in enumerate(fastavro.block_reader(io.BytesIO(raw))):
        if not number:
            header = int(block.offset)
        held += int(block.num_records)
        stored += int(block.size)
        decoded += len(block.bytes_.getvalue())  # type: ignore[attr-defined]
        if held >= records:
            break
    return header or len(raw), (held, stored, decoded)


def _number(value: int) -> int:
    """Bytes of a number in Avro: zigzag, seven bits a byte (Avro specification, "Binary encoding")."""
    return max(1, -(-((value << 1) ^ (value >> 63)).bit_length() // 7))
