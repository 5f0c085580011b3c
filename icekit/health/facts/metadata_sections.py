"""Measure what a metadata file is full of: its sections, and what is largest in them; pure."""

import json
from collections import Counter
from typing import Any

from icekit.common import frozen
from icekit.iceberg.metadata import Json, summary_of

#: The sections that facts have, the largest ones.
MOST = 3
#: Iceberg writes what a commit did to each partition into the summary, under keys that begin so.
PARTITIONS_OF_SUMMARY = "partitions."


@frozen
class MetadataSection:
    """A part of the metadata file: its key, the bytes of its JSON (uncompressed), and how many
    entries it has.

    ``share`` is that of all sections. ``largest`` is what is largest in the properties (a property)
    or in the snapshots (a key of their summaries), with its bytes in all of them; None elsewhere.
    """

    name: str
    size_in_bytes: int
    share: float
    entry_count: int
    largest: str | None = None
    largest_bytes: int = 0


def largest_sections(metadata: Json) -> tuple[MetadataSection, ...]:
    """The largest sections of table metadata, largest first."""
    bytes_by_section = Counter({key: len(key) + _json_bytes(metadata[key]) for key in metadata})
    total_bytes = max(1, bytes_by_section.total())
    sections = []
    for section_name, size_in_bytes in bytes_by_section.most_common(MOST):
        section_value = metadata[section_name]
        largest_key_and_bytes: tuple[str | None, int] = (None, 0)
        if section_name == "properties" and section_value:
            bytes_by_property = Counter(
                {key: len(key) + len(section_value[key]) for key in section_value}
            )
            largest_key_and_bytes = bytes_by_property.most_common(1)[0]
        elif section_name == "snapshots" and section_value:
            bytes_by_key = _bytes_by_summary_key(section_value)
            largest_key_and_bytes = max(
                bytes_by_key.items(), key=lambda key_and_bytes: key_and_bytes[1], default=(None, 0)
            )
        entry_count = len(section_value) if isinstance(section_value, dict | list) else 1
        share = size_in_bytes / total_bytes
        sections.append(
            MetadataSection(section_name, size_in_bytes, share, entry_count, *largest_key_and_bytes)
        )
    return tuple(sections)


def _bytes_by_summary_key(snapshots: Any) -> Counter[str]:
    """The bytes of each key in the summaries of all snapshots; those of partitions count as one."""
    bytes_by_key: Counter[str] = Counter()
    for snapshot in snapshots:
        for key, summary_value in summary_of(snapshot).items():
            is_partition_key = key.startswith(PARTITIONS_OF_SUMMARY)
            counted_key = PARTITIONS_OF_SUMMARY if is_partition_key else key
            bytes_by_key[counted_key] += len(key) + len(summary_value)
    return bytes_by_key


def _json_bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
