"""Hold what is known of the key of equality deletes: its columns, their heap, how often it repeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from icekit.compact.equality_deletes.heap import fixed_bytes, text_bytes
from icekit.facts.model import Column, TableFacts

Basis = Literal["type", "sample", "assumed"]

#: What a text counts as where no sample tells: a key such as a UUID or a URL's path.
ASSUMED_BYTES = text_bytes(40)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key; ``heap_bytes`` is that of its mean value, known by its ``type``, a ``sample``, or ``assumed``."""

    field_id: int
    name: str
    type: str
    heap_bytes: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class KeySample:
    """What a few equality delete files hold.

    ``columns`` are those of all equality field ids, ``keys`` the field ids that delete files
    have in common. ``distinct_share`` is the number of distinct keys by that of delete
    records, within the files of one partition, of the partition where it is highest; None
    where fewer than two files of any partition could be read. More files of a partition
    share more keys, so it is an overestimate for partitions of many files.
    """

    columns: tuple[KeyColumn, ...] = ()
    distinct_share: float | None = None
    file_count: int = 0
    record_count: int = 0
    partition_count: int = 0
    skipped_file_count: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """The columns of the key that takes the most heap of those that the table is deleted by."""

    columns: tuple[KeyColumn, ...]

    @property
    def value_bytes(self) -> float:
        """Heap of the values of one key."""
        return sum(column.heap_bytes for column in self.columns)

    @property
    def is_known(self) -> bool:
        """Tell whether no size is assumed."""
        return all(column.basis != "assumed" for column in self.columns)


def largest_key(facts: TableFacts, sample: KeySample | None) -> Key:
    """The key with the largest values; a table deleted by several keys counts as if all were this one."""
    by_id = key_columns(facts)
    sampled = {column.field_id: column for column in sample.columns} if sample else {}
    found = [Key(tuple(_column(i, by_id, sampled) for i in key.field_ids)) for key in facts.equality_keys]
    return max((key for key in found if key.columns), key=lambda k: (len(k.columns), k.value_bytes), default=_unknown(sample))


def _unknown(sample: KeySample | None) -> Key:
    """Facts of an earlier version hold no field ids."""
    return Key(sample.columns if sample and sample.columns else (KeyColumn(0, "", "", ASSUMED_BYTES, "assumed"),))


def _column(field_id: int, by_id: dict[int, Column], sampled: dict[int, KeyColumn]) -> KeyColumn:
    if field_id in sampled:
        return sampled[field_id]
    column = by_id.get(field_id)
    size = fixed_bytes(column.type) if column else None
    if column is None or size is None:
        return KeyColumn(field_id, column.name if column else "", column.type if column else "", ASSUMED_BYTES, "assumed")
    return KeyColumn(field_id, column.name, column.type, size, "type")


def key_columns(facts: TableFacts) -> dict[int, Column]:
    """The columns that any of the table's keys names and the schema still has, by field id."""
    wanted = {field_id for key in facts.equality_keys for field_id in key.field_ids}
    return {column.field_id: column for column in facts.columns if column.field_id in wanted}
