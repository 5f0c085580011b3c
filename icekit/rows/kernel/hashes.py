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
    def hash_sum(self) -> int:
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
        waiting_table = pa.Table.from_batches(self._waiting).combine_chunks()
        for batch in waiting_table.to_batches(max_chunksize=2 * _HASHED_ROWS):
            hashes = row_hashes(batch)
            low_sum = int((hashes & np.uint64(0xFFFFFFFF)).sum())
            high_sum = int((hashes >> np.uint64(32)).sum())
            self._value += low_sum + (high_sum << 32)
        self._waiting = []
        self._waiting_rows = 0


def row_hashes(batch: pa.RecordBatch) -> Words:
    """The hash of each row."""
    import numpy as np

    hashes = np.full(batch.num_rows, _SEED, np.uint64)
    for column in batch.columns:
        hashes = _hashes_with_value(column, hashes)
    return hashes


def _hashes_with_value(column: pa.Array, seeds: Words) -> Words:
    """The hashes after whether a column is null, and after its value."""
    import numpy as np

    null_flags = np.zeros(1, np.uint64)
    if column.null_count:
        null_flags = column.is_null().to_numpy(zero_copy_only=False).astype(np.uint64)
    hashes = _int_hashes(null_flags, seeds)
    arrow_type = column.type
    if isinstance(column, pa.ExtensionArray):
        return _unless_null(column, _uuid_hashes(column.storage, hashes), hashes)
    if pa.types.is_struct(arrow_type):
        for child_column in column.flatten():
            hashes = _hashes_with_value(child_column, hashes)
        return hashes
    if pa.types.is_list(arrow_type) or pa.types.is_map(arrow_type):
        return _unless_null(column, _collection_hashes(column, hashes), hashes)
    return _unless_null(column, _value_hashes(column, hashes), hashes)


def _unless_null(column: pa.Array, hashes: Words, seeds: Words) -> Words:
    """The hashes of values; the hash skips a null."""
    import numpy as np

    if not column.null_count:
        return hashes
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, seeds)


def _value_hashes(column: pa.Array, seeds: Words) -> Words:
    import numpy as np
    import pyarrow.compute as pc

    arrow_type = column.type
    if pa.types.is_boolean(arrow_type):
        return _int_hashes(column.cast(pa.int8()).fill_null(0).to_numpy().astype(np.uint64), seeds)
    if pa.types.is_date32(arrow_type):
        return _int_hashes(_unsigned_bits(column.view(pa.int32()).fill_null(0)), seeds)
    if pa.types.is_int32(arrow_type):
        return _int_hashes(_unsigned_bits(column.fill_null(0)), seeds)
    if pa.types.is_int64(arrow_type) or pa.types.is_timestamp(arrow_type):
        return _long_hashes(_unsigned_bits(column.view(pa.int64()).fill_null(0)), seeds)
    if pa.types.is_floating(arrow_type):
        # As Java has them: one NaN, one zero.
        java_values = pc.add(pc.if_else(pc.is_nan(column), float("nan"), column), 0.0).cast(
            arrow_type
        )
        if pa.types.is_float32(arrow_type):
            return _int_hashes(_unsigned_bits(java_values.view(pa.int32()).fill_null(0)), seeds)
        return _long_hashes(_unsigned_bits(java_values.view(pa.int64()).fill_null(0)), seeds)
    if pa.types.is_decimal(arrow_type):
        return _decimal_hashes(column, seeds)
    if pa.types.is_fixed_size_binary(arrow_type):
        column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + len(column) + 1
    ].astype(np.int64)
    data_buffer = column.buffers()[2]
    content = (
        np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    )
    return _byte_hashes(content, offsets[:-1], np.diff(offsets), seeds)


def _unsigned_bits(column: pa.Array) -> Words:
    """Numbers as Java's bits: a negative int fills 32 of them."""
    import numpy as np

    numpy_values = column.to_numpy(zero_copy_only=False)
    unsigned_words: Words = numpy_values.view(f"u{numpy_values.itemsize}").astype(np.uint64)
    return unsigned_words


def _decimal_hashes(column: pa.Array, seeds: Words) -> Words:
    import numpy as np

    word_pairs = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
    word_pairs = word_pairs[column.offset : column.offset + len(column)]
    if column.type.precision <= _LONG_DIGITS:
        return _long_hashes(word_pairs[:, 0], seeds)
    # The fewest bytes that hold the number with its sign, the highest first.
    big_endian_bytes = np.ascontiguousarray(word_pairs).view(np.uint8).reshape(-1, 16)[:, ::-1]
    sign_bytes = np.where(big_endian_bytes[:, 0] & 0x80, 0xFF, 0).astype(np.uint8)
    is_sign_byte = big_endian_bytes == sign_bytes[:, None]
    leading_bytes = np.where(is_sign_byte.all(axis=1), 16, np.argmin(is_sign_byte, axis=1))
    first_bytes = big_endian_bytes[np.arange(len(big_endian_bytes)), np.minimum(leading_bytes, 15)]
    # The first byte must show the sign.
    leading_bytes -= (leading_bytes == 16) | ((first_bytes ^ sign_bytes) & 0x80 != 0)
    starts = np.arange(len(big_endian_bytes)) * 16 + leading_bytes
    return _byte_hashes(
        np.ascontiguousarray(big_endian_bytes).reshape(-1), starts, 16 - leading_bytes, seeds
    )


def _uuid_hashes(storage: pa.Array, seeds: Words) -> Words:
    """UUIDs, which Spark reads as texts."""
    import numpy as np

    uuid_bytes = np.frombuffer(storage.buffers()[1], np.uint8).reshape(-1, 16)
    uuid_bytes = uuid_bytes[storage.offset : storage.offset + len(storage)]
    hex_digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text_bytes = np.full((len(uuid_bytes), 36), ord("-"), np.uint8)
    digit_positions = [i for i in range(36) if i not in {8, 13, 18, 23}]
    text_bytes[:, digit_positions[::2]] = hex_digits[uuid_bytes >> 4]
    text_bytes[:, digit_positions[1::2]] = hex_digits[uuid_bytes & 15]
    text_lengths = np.full(len(uuid_bytes), 36)
    return _byte_hashes(
        text_bytes.reshape(-1), np.arange(len(uuid_bytes)) * 36, text_lengths, seeds
    )


def _collection_hashes(column: pa.Array, seeds: Words) -> Words:
    """Lists, by their size and the hash of each element; maps, by the sorted hashes of entries."""
    import numpy as np

    offsets = column.offsets.to_numpy().astype(np.int64)
    item_counts = np.diff(offsets)
    first_item = int(offsets[0])
    last_item = int(offsets[-1])
    item_hashes = np.full(last_item - first_item, _SEED, np.uint64)
    if pa.types.is_map(column.type):
        item_hashes = _hashes_with_value(
            column.keys.slice(first_item, last_item - first_item), item_hashes
        )
        item_hashes = _hashes_with_value(
            column.items.slice(first_item, last_item - first_item), item_hashes
        )
        rows = np.repeat(np.arange(len(item_counts)), item_counts)
        item_hashes = item_hashes[np.lexsort((item_hashes.view(np.int64), rows))]
    else:
        item_hashes = _hashes_with_value(
            column.values.slice(first_item, last_item - first_item), item_hashes
        )
    starts = offsets[:-1] - first_item
    hashes = _int_hashes(item_counts.astype(np.uint64), seeds)
    for item_index in range(int(item_counts.max(initial=0))):
        rows = np.flatnonzero(item_counts > item_index)
        hashes[rows] = _long_hashes(item_hashes[starts[rows] + item_index], hashes[rows])
    return hashes


def _primes() -> Sequence[np.uint64]:
    import numpy as np

    return [np.uint64(prime) for prime in _PRIMES]


def _int_hashes(int_words: Words, seeds: Words) -> Words:
    """XXH64 of four bytes, for each value with a seed of its own."""
    import numpy as np

    first_prime, second_prime, third_prime, _, fifth_prime = _primes()
    hashes = (seeds + (fifth_prime + np.uint64(4))) ^ (int_words * first_prime)
    return _avalanche(_rotated_left(hashes, 23) * second_prime + third_prime)


def _long_hashes(long_words: Words, seeds: Words) -> Words:
    """XXH64 of eight bytes, for each value with a seed of its own."""
    import numpy as np

    fifth_prime = _primes()[4]
    return _avalanche(_hashes_with_word(long_words, seeds + (fifth_prime + np.uint64(8))))


def _hashes_with_word(words: Words, hashes: Words) -> Words:
    first_prime, second_prime, _, fourth_prime, _ = _primes()
    mixed_words = _rotated_left(words * second_prime, 31)
    mixed_words *= first_prime
    mixed_words ^= hashes
    mixed_words = _rotated_left(mixed_words, 27)
    mixed_words *= first_prime
    mixed_words += fourth_prime
    return mixed_words


def _byte_hashes(content_bytes: Any, starts: Any, lengths: Any, seeds: Words) -> Words:
    """XXH64 of some bytes of the content, for each with a seed of its own."""
    import numpy as np

    first_prime, second_prime, third_prime, _, fifth_prime = _primes()
    long_words, int_words = _word_views(content_bytes)
    hashes = seeds + fifth_prime
    is_long = lengths >= 32
    if is_long.any():
        rows = _row_selection(is_long)
        hashes[rows] = _stripe_hashes(long_words, starts[rows], lengths[rows], seeds[rows])
    hashes += lengths.astype(np.uint64)
    # What is left after the stripes: words of eight bytes, of four, and single bytes.
    byte_offsets = starts + lengths // 32 * 32
    remaining_bytes = lengths % 32
    while (has_word := remaining_bytes >= 8).any():
        rows = _row_selection(has_word)
        hashes[rows] = _hashes_with_word(long_words[byte_offsets[rows]], hashes[rows])
        byte_offsets[rows] += 8
        remaining_bytes[rows] -= 8
    has_word = remaining_bytes >= 4
    if has_word.any():
        rows = _row_selection(has_word)
        words = int_words[byte_offsets[rows]].astype(np.uint64)
        hashes[rows] = (
            _rotated_left(hashes[rows] ^ (words * first_prime), 23) * second_prime + third_prime
        )
        byte_offsets[rows] += 4
        remaining_bytes[rows] -= 4
    while (has_byte := remaining_bytes > 0).any():
        rows = _row_selection(has_byte)
        words = content_bytes[byte_offsets[rows]].astype(np.uint64)
        hashes[rows] = _rotated_left(hashes[rows] ^ (words * fifth_prime), 11) * first_prime
        byte_offsets[rows] += 1
        remaining_bytes[rows] -= 1
    return _avalanche(hashes)


def _row_selection(is_selected: Any) -> Any:
    """The numbers of the chosen rows; a slice if all are, with which numpy copies nothing."""
    import numpy as np

    return slice(None) if is_selected.all() else np.flatnonzero(is_selected)


def _word_views(content_bytes: Any) -> tuple[Any, Any]:
    """The words of eight and of four bytes that begin at each byte."""
    import numpy as np

    byte_count = len(content_bytes)
    long_words = (
        np.ndarray((max(0, byte_count - 7),), "<u8", content_bytes, strides=(1,))
        if byte_count > 7
        else content_bytes
    )
    int_words = (
        np.ndarray((max(0, byte_count - 3),), "<u4", content_bytes, strides=(1,))
        if byte_count > 3
        else content_bytes
    )
    return long_words, int_words


def _stripe_hashes(long_words: Any, starts: Any, lengths: Any, seeds: Words) -> Words:
    """The state after all stripes of 32 bytes."""
    first_prime, second_prime, _, fourth_prime, _ = _primes()
    lanes = [
        seeds + first_prime + second_prime,
        seeds + second_prime,
        seeds.copy(),
        seeds - first_prime,
    ]
    stripe_counts = lengths // 32
    for stripe_index in range(int(stripe_counts.max())):
        rows = _row_selection(stripe_counts > stripe_index)
        byte_offsets = starts[rows] + 32 * stripe_index
        for lane_index, lane in enumerate(lanes):
            words = long_words[byte_offsets + 8 * lane_index]
            lane[rows] = _rotated_left(lane[rows] + words * second_prime, 31) * first_prime
    hashes = (
        _rotated_left(lanes[0], 1)
        + _rotated_left(lanes[1], 7)
        + _rotated_left(lanes[2], 12)
        + _rotated_left(lanes[3], 18)
    )
    for lane in lanes:
        hashes = (
            hashes ^ (_rotated_left(lane * second_prime, 31) * first_prime)
        ) * first_prime + fourth_prime
    return hashes


def _avalanche(hashes: Words) -> Words:
    import numpy as np

    _, second_prime, third_prime, _, _ = _primes()
    mixed_hashes = hashes >> np.uint64(33)
    mixed_hashes ^= hashes
    mixed_hashes *= second_prime
    mixed_hashes ^= mixed_hashes >> np.uint64(29)
    mixed_hashes *= third_prime
    mixed_hashes ^= mixed_hashes >> np.uint64(32)
    return mixed_hashes


def _rotated_left(words: Words, bits: int) -> Words:
    import numpy as np

    rotated_words = words << np.uint64(bits)
    rotated_words |= words >> np.uint64(64 - bits)
    return rotated_words
