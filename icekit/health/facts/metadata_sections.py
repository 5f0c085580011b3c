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
    sizes = Counter({name: len(name) + _json_bytes(value) for name, value in metadata.items()})
    total_bytes = max(1, sizes.total())
    measured_sections = []
    for name, size_in_bytes in sizes.most_common(MOST):
        value = metadata[name]
        largest: tuple[str | None, int] = (None, 0)
        if name == "properties" and value:
            property_sizes = Counter({key: len(key) + len(text) for key, text in value.items()})
            largest = property_sizes.most_common(1)[0]
        elif name == "snapshots" and value:
            largest = max(
                _summary_key_sizes(value).items(), key=lambda each: each[1], default=largest
            )
        entry_count = len(value) if isinstance(value, dict | list) else 1
        measured_sections.append(
            MetadataSection(name, size_in_bytes, size_in_bytes / total_bytes, entry_count, *largest)
        )
    return tuple(measured_sections)


def _summary_key_sizes(snapshots: Any) -> Counter[str]:
    """The bytes of each key in the summaries of all snapshots; those of partitions count as one."""
    sizes: Counter[str] = Counter()
    for snapshot in snapshots:
        for key, text in summary_of(snapshot).items():
            is_partition = key.startswith(PARTITIONS_OF_SUMMARY)
            sizes[PARTITIONS_OF_SUMMARY if is_partition else key] += len(key) + len(text)
    return sizes


def _json_bytes(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
