"""Count the heap that a reader's set of equality deletes takes, object by object.

For every data file Spark reads all delete records that apply into lists, one a delete file,
and then puts them into one hash set (``BaseDeleteLoader.loadEqualityDeletes``). At the peak
there are both: list, record and key of each delete record, and the set's entry of each
distinct key. Sizes are those of a 64-bit JVM of Java 17 to 22.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Java leaves 32-bit references ("compressed oops") for 64-bit ones at this heap.
WIDE_HEAP_BYTES = 32 * 2**30
_HEADER, _ARRAY_HEADER = 12, 16
# What the objects of a value grow by with 64-bit references, at most.
_WIDE_VALUES = 4 / 3
# java.util.HashMap: the table doubles when it is three quarters full.
_LOAD_FACTOR = 0.75

#: Bytes of a value as Iceberg's generic reader makes it, of types that have one size.
#: LocalDate and LocalTime are 24, LocalDateTime holds both, OffsetDateTime one more.
_FIXED = {
    "boolean": 16,
    "int": 16,
    "float": 16,
    "long": 24,
    "double": 24,
    "date": 24,
    "time": 24,
    "uuid": 32,
    "timestamp": 72,
    "timestamp_ns": 72,
    "timestamptz": 96,
    "timestamptz_ns": 96,
}
#: Digits that a BigDecimal keeps in a long; a BigInteger and its array hold more.
_COMPACT_DIGITS, _DECIMAL, _LARGE_DECIMAL = 18, 40, 104
#: An object around the bytes: String; ByteBuffer, which binary is read into.
_STRING, _BYTE_BUFFER = 24, 56


@dataclass(frozen=True, slots=True)
class RecordHeap:
    """Bytes of one delete record with a key of so many columns and so many bytes of values."""

    columns: int
    values: float
    wide: bool = False

    @property
    def _reference(self) -> int:
        return 8 if self.wide else 4

    @property
    def list_bytes(self) -> float:
        """In the list: its slot, ``InternalRecordWrapper``, ``GenericRecord``, array and values."""
        r = self._reference
        objects = _aligned(_HEADER + 2 * r) + _aligned(_HEADER + 4 + 3 * r) + _aligned(_ARRAY_HEADER + self.columns * r)
        return r + objects + self.values * (_WIDE_VALUES if self.wide else 1)

    @property
    def set_bytes(self) -> float:
        """In the set, but for the table: ``StructLikeWrapper``, its hash code, ``HashMap.Node``."""
        r = self._reference
        return _aligned(_HEADER + 4 * r) + 16 + _aligned(_HEADER + 4 + 3 * r)

    def retained(self, distinct: int) -> int:
        """Bytes of the set alone, as it is held while the data file is read."""
        return round(distinct * (self.list_bytes - self._reference + self.set_bytes)) + self._table(distinct)

    def peak(self, records: int, distinct: int) -> int:
        """Bytes while the set is made of the lists, which is when they are most."""
        return round(records * self.list_bytes + distinct * self.set_bytes) + self._table(distinct)

    def _table(self, distinct: int) -> int:
        if not distinct:
            return 0
        return int(2 ** max(4, (int(distinct / _LOAD_FACTOR)).bit_length())) * self._reference


def fixed_bytes(type_name: str) -> int | None:
    """Bytes of a value of an Iceberg type; None for types whose values differ in length."""
    if found := re.fullmatch(r"decimal\((\d+), ?\d+\)", type_name):
        return _DECIMAL if int(found[1]) <= _COMPACT_DIGITS else _LARGE_DECIMAL
    if found := re.fullmatch(r"fixed\[(\d+)\]", type_name):
        return array_bytes(int(found[1]))
    return _FIXED.get(type_name)


def text_bytes(length: int) -> int:
    """Bytes of a ``String`` of so many bytes (two for each character if one is beyond Latin-1)."""
    return _STRING + array_bytes(length)


def binary_bytes(length: int) -> int:
    """Bytes of a ``ByteBuffer`` of so many bytes."""
    return _BYTE_BUFFER + array_bytes(length)


def array_bytes(length: int) -> int:
    """Bytes of a ``byte[]``."""
    return _aligned(_ARRAY_HEADER + length)


def _aligned(size: int) -> int:
    return -(-size // 8) * 8
