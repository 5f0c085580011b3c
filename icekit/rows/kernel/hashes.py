"""Hash rows in Arrow as :func:`icekit.rows.proof.fingerprint.row_hash` has Spark hash them.

What the kernel has written and what Spark reads back can then be compared row by row. The hash is
XXH64, of whole columns at a time. Executors get the source of this module from the driver, so it
imports nothing of icekit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]

_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
#: Spark's seed of a hash (org.apache.spark.sql.catalyst.expressions.XxHash64).
_SEED = 42
# Rows that are hashed together: enough for numpy, and few enough for a processor's cache.
_HASHED_ROWS = 16_384
# Decimals of more digits are hashed as bytes.
_LONG_DIGITS = 18


class RowSums:
    """The number of rows, and the sum of their hashes, which are taken of many rows at a time."""

    def __init__(self) -> None:
        self.rows = 0
        self._value = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    @property
    def value(self) -> int:
        """The sum of the hashes."""
        self._hash_waiting()
        return self._value

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= _HASHED_ROWS:
            self._hash_waiting()

    def _hash_waiting(self) -> None:
        import numpy as np

        if not self._waiting_rows:
            return
        together = pa.Table.from_batches(self._waiting).combine_chunks()
        for batch in together.to_batches(max_chunksize=2 * _HASHED_ROWS):
            hashes = row_hashes(batch)
            low = int((hashes & np.uint64(0xFFFFFFFF)).sum())
            high = int((hashes >> np.uint64(32)).sum())
            self._value += low + (high << 32)
        self._waiting = []
        self._waiting_rows = 0


def row_hashes(batch: pa.RecordBatch) -> Words:
    """The hash of each row."""
    import numpy as np

    hashes = np.full(batch.num_rows, _SEED, np.uint64)
    for column in batch.columns:
        hashes = _with_value(column, hashes)
    return hashes


def _with_value(column: pa.Array, seeds: Words) -> Words:
    """The hashes after whether a column is null, and after its value."""
    import numpy as np

    is_null = np.zeros(1, np.uint64)
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False).astype(np.uint64)
    hashes = _of_ints(is_null, seeds)
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _valid(column, _of_uuids(column.storage, hashes), hashes)
    if pa.types.is_struct(kind):
        for child in column.flatten():
            hashes = _with_value(child, hashes)
        return hashes
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _valid(column, _of_items(column, hashes), hashes)
    return _valid(column, _of_values(column, hashes), hashes)


def _valid(column: pa.Array, hashes: Words, seeds: Words) -> Words:
    """The hashes of values; the hash skips a null."""
    import numpy as np

    if not column.null_count:
        return hashes
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, seeds)


def _of_values(column: pa.Array, seeds: Words) -> Words:
    import numpy as np
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_boolean(kind):
        return _of_ints(column.cast(pa.int8()).fill_null(0).to_numpy().astype(np.uint64), seeds)
    if pa.types.is_date32(kind):
        return _of_ints(_unsigned(column.view(pa.int32()).fill_null(0)), seeds)
    if pa.types.is_int32(kind):
        return _of_ints(_unsigned(column.fill_null(0)), seeds)
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        return _of_longs(_unsigned(column.view(pa.int64()).fill_null(0)), seeds)
    if pa.types.is_floating(kind):
        # As Java has them: one NaN, one zero.
        values = pc.add(pc.if_else(pc.is_nan(column), float("nan"), column), 0.0).cast(kind)
        if pa.types.is_float32(kind):
            return _of_ints(_unsigned(values.view(pa.int32()).fill_null(0)), seeds)
        return _of_longs(_unsigned(values.view(pa.int64()).fill_null(0)), seeds)
    if pa.types.is_decimal(kind):
        return _of_decimals(column, seeds)
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    data = column.buffers()[2]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return _of_bytes(content, offsets[:-1], np.diff(offsets), seeds)


def _unsigned(column: pa.Array) -> Words:
    """Numbers as Java's bits: a negative int fills 32 of them."""
    import numpy as np

    values = column.to_numpy(zero_copy_only=False)
    bits: Words = values.view(f"u{values.itemsize}").astype(np.uint64)
    return bits


def _of_decimals(column: pa.Array, seeds: Words) -> Words:
    import numpy as np

    halves = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
    halves = halves[column.offset : column.offset + len(column)]
    if column.type.precision <= _LONG_DIGITS:
        return _of_longs(halves[:, 0], seeds)
    # The fewest bytes that hold the number with its sign, the highest first.
    content = np.ascontiguousarray(halves).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign = np.where(content[:, 0] & 0x80, 0xFF, 0).astype(np.uint8)
    is_sign = content == sign[:, None]
    leading = np.where(is_sign.all(axis=1), 16, np.argmin(is_sign, axis=1))
    first = content[np.arange(len(content)), np.minimum(leading, 15)]
    # The first byte must show the sign.
    leading -= (leading == 16) | ((first ^ sign) & 0x80 != 0)
    starts = np.arange(len(content)) * 16 + leading
    return _of_bytes(np.ascontiguousarray(content).reshape(-1), starts, 16 - leading, seeds)


def _of_uuids(storage: pa.Array, seeds: Words) -> Words:
    """UUIDs, which Spark reads as texts."""
    import numpy as np

    content = np.frombuffer(storage.buffers()[1], np.uint8).reshape(-1, 16)
    content = content[storage.offset : storage.offset + len(storage)]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    texts = np.full((len(content), 36), ord("-"), np.uint8)
    places = [i for i in range(36) if i not in {8, 13, 18, 23}]
    texts[:, places[::2]] = digits[content >> 4]
    texts[:, places[1::2]] = digits[content & 15]
    lengths = np.full(len(content), 36)
    return _of_bytes(texts.reshape(-1), np.arange(len(content)) * 36, lengths, seeds)


def _of_items(column: pa.Array, seeds: Words) -> Words:
    """Lists, by their size and the hash of each element; maps, by the sorted hashes of entries."""
    import numpy as np

    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    first = int(offsets[0])
    last = int(offsets[-1])
    items = np.full(last - first, _SEED, np.uint64)
    if pa.types.is_map(column.type):
        items = _with_value(column.keys.slice(first, last - first), items)
        items = _with_value(column.items.slice(first, last - first), items)
        rows = np.repeat(np.arange(len(sizes)), sizes)
        items = items[np.lexsort((items.view(np.int64), rows))]
    else:
        items = _with_value(column.values.slice(first, last - first), items)
    starts = offsets[:-1] - first
    hashes = _of_ints(sizes.astype(np.uint64), seeds)
    for index in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > index)
        hashes[rows] = _of_longs(items[starts[rows] + index], hashes[rows])
    return hashes


def _constants() -> Sequence[np.uint64]:
    import numpy as np

    return [np.uint64(prime) for prime in _PRIMES]


def _of_ints(values: Words, seeds: Words) -> Words:
    """XXH64 of four bytes, for each value with a seed of its own."""
    import numpy as np

    first, second, third, _, fifth = _constants()
    hashes = (seeds + (fifth + np.uint64(4))) ^ (values * first)
    return _mixed(_rotated(hashes, 23) * second + third)


def _of_longs(values: Words, seeds: Words) -> Words:
    """XXH64 of eight bytes, for each value with a seed of its own."""
    import numpy as np

    fifth = _constants()[4]
    return _mixed(_with_word(values, seeds + (fifth + np.uint64(8))))


def _with_word(words: Words, hashes: Words) -> Words:
    first, second, _, fourth, _ = _constants()
    mixed = _rotated(words * second, 31)
    mixed *= first
    mixed ^= hashes
    mixed = _rotated(mixed, 27)
    mixed *= first
    mixed += fourth
    return mixed


def _of_bytes(content: Any, starts: Any, lengths: Any, seeds: Words) -> Words:
    """XXH64 of some bytes of the content, for each with a seed of its own."""
    import numpy as np

    first, second, third, _, fifth = _constants()
    eights, fours = _views(content)
    hashes = seeds + fifth
    is_long = lengths >= 32
    if is_long.any():
        rows = _numbers(is_long)
        hashes[rows] = _of_stripes(eights, starts[rows], lengths[rows], seeds[rows])
    hashes += lengths.astype(np.uint64)
    # What is left after the stripes: words of eight bytes, of four, and single bytes.
    places = starts + lengths // 32 * 32
    remaining = lengths % 32
    while (has_word := remaining >= 8).any():
        rows = _numbers(has_word)
        hashes[rows] = _with_word(eights[places[rows]], hashes[rows])
        places[rows] += 8
        remaining[rows] -= 8
    has_word = remaining >= 4
    if has_word.any():
        rows = _numbers(has_word)
        words = fours[places[rows]].astype(np.uint64)
        hashes[rows] = _rotated(hashes[rows] ^ (words * first), 23) * second + third
        places[rows] += 4
        remaining[rows] -= 4
    while (has_byte := remaining > 0).any():
        rows = _numbers(has_byte)
        words = content[places[rows]].astype(np.uint64)
        hashes[rows] = _rotated(hashes[rows] ^ (words * fifth), 11) * first
        places[rows] += 1
        remaining[rows] -= 1
    return _mixed(hashes)


def _numbers(is_chosen: Any) -> Any:
    """The numbers of the chosen rows; a slice if all are, with which numpy copies nothing."""
    import numpy as np

    return slice(None) if is_chosen.all() else np.flatnonzero(is_chosen)


def _views(content: Any) -> tuple[Any, Any]:
    """The words of eight and of four bytes that begin at each byte."""
    import numpy as np

    size = len(content)
    eights = np.ndarray((max(0, size - 7),), "<u8", content, strides=(1,)) if size > 7 else content
    fours = np.ndarray((max(0, size - 3),), "<u4", content, strides=(1,)) if size > 3 else content
    return eights, fours


def _of_stripes(eights: Any, starts: Any, lengths: Any, seeds: Words) -> Words:
    """The state after all stripes of 32 bytes."""
    first, second, _, fourth, _ = _constants()
    lanes = [seeds + first + second, seeds + second, seeds.copy(), seeds - first]
    stripes = lengths // 32
    for stripe in range(int(stripes.max())):
        rows = _numbers(stripes > stripe)
        places = starts[rows] + 32 * stripe
        for index, lane in enumerate(lanes):
            words = eights[places + 8 * index]
            lane[rows] = _rotated(lane[rows] + words * second, 31) * first
    hashes = (
        _rotated(lanes[0], 1)
        + _rotated(lanes[1], 7)
        + _rotated(lanes[2], 12)
        + _rotated(lanes[3], 18)
    )
    for lane in lanes:
        hashes = (hashes ^ (_rotated(lane * second, 31) * first)) * first + fourth
    return hashes


def _mixed(hashes: Words) -> Words:
    import numpy as np

    _, second, third, _, _ = _constants()
    mixed = hashes >> np.uint64(33)
    mixed ^= hashes
    mixed *= second
    mixed ^= mixed >> np.uint64(29)
    mixed *= third
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(values: Words, bits: int) -> Words:
    import numpy as np

    rotated = values << np.uint64(bits)
    rotated |= values >> np.uint64(64 - bits)
    return rotated
