"""Find manifests whose partition summaries do not cover their entries, and those that are listed
more than once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from icekit.health.facts.integrity import EXAMPLES, Integrity, MiscountedManifest, NarrowManifest
from icekit.iceberg.definition import PartitionField
from icekit.iceberg.manifests import BOUNDS, Record, has_live_count, is_delete_manifest, live_count
from icekit.iceberg.partition import Partition
from icekit.iceberg.values import from_bytes, to_scalar


class FieldRange(NamedTuple):
    """The values of one partition field in a manifest's entries, as values that compare; ``low``
    and ``high`` are None without any.
    """

    low: Any = None
    high: Any = None
    has_null: bool = False
    has_nan: bool = False


def field_ranges(
    fields: Sequence[PartitionField], partitions: Iterable[Partition]
) -> list[FieldRange]:
    """The range of each partition field over the partitions of a manifest."""
    value_columns = zip(*(partition.values for partition in partitions), strict=True)
    ranges = []
    for field, values in zip(fields, value_columns, strict=False):
        non_null_values = [
            comparable(field.result_type, value) for value in values if value is not None
        ]
        comparable_values = [
            value for value in non_null_values if value == value
        ]  # NaN is not equal to itself
        low = min(comparable_values, default=None)
        high = max(comparable_values, default=None)
        has_null = len(non_null_values) < len(values)
        has_nan = len(comparable_values) < len(non_null_values)
        ranges.append(FieldRange(low, high, has_null, has_nan))
    return ranges


def comparable(result_type: str, value: Any) -> Any:
    """A partition value as :func:`icekit.iceberg.values.from_bytes` gives bounds."""
    if value is not None and result_type.startswith(("float", "double", "decimal")):
        return Decimal(value) if result_type.startswith("decimal") else float(value)
    return value


def narrow_fields(
    manifest: Record, fields: Sequence[PartitionField], ranges: Sequence[FieldRange]
) -> Iterator[NarrowManifest]:
    """The partition fields whose summary does not cover the entries of a manifest.

    A filter skips the manifest by its summary (ManifestEvaluator), which may be wider than the
    entries, and may be left out. UUIDs are not compared: writers order them differently.
    """
    summaries = manifest.get("partitions") or []
    for summary, field, entry_range in zip(summaries, fields, ranges, strict=False):
        missing_kind = None
        if entry_range.has_null and summary.get("contains_null") is False:
            missing_kind = "null"
        elif entry_range.has_nan and summary.get("contains_nan") is False:
            missing_kind = "NaN"
        listed_bounds: tuple[Any, Any] = (None, None)
        is_narrow = False
        if entry_range.low is not None and field.result_type != "uuid":
            raw = map(summary.get, BOUNDS)
            try:
                listed_bounds = tuple(
                    None if bound is None else from_bytes(field.result_type, bound) for bound in raw
                )  # type: ignore[assignment]
                is_narrow = (
                    None in listed_bounds
                    or entry_range.low < listed_bounds[0]
                    or entry_range.high > listed_bounds[1]
                )
            except (ValueError, TypeError):
                listed_bounds = (None, None)
        if missing_kind or is_narrow:
            low, high = (to_scalar(bound) for bound in listed_bounds)
            yield NarrowManifest(
                manifest["manifest_path"],
                manifest["partition_spec_id"],
                is_delete_manifest(manifest),
                field.name,
                (low, high),
                (to_scalar(entry_range.low), to_scalar(entry_range.high)),
                missing_kind,
            )


def manifest_integrity(
    manifests: Sequence[Record],
    narrow: Iterable[NarrowManifest],
    live_counts: Mapping[str, int],
) -> Integrity:
    """What a manifest list, the narrow manifests of it, and the live files that were counted in
    its manifests (by path) show.
    """
    listed_counts = Counter(manifest["manifest_path"] for manifest in manifests)
    # Spark reads one that is listed twice as often.
    miscounted = sorted(
        (
            MiscountedManifest(path, live_count(manifest), live_counts[path])
            for manifest in manifests
            if has_live_count(manifest)
            and listed_counts[path := manifest["manifest_path"]] == 1
            and live_counts.get(path, live_count(manifest)) != live_count(manifest)
        ),
        key=lambda each: each.path,
    )
    manifest_counts = Counter(
        (manifest["partition_spec_id"], is_delete_manifest(manifest)) for manifest in manifests
    )
    narrow_manifests = sorted(
        (replace(m, is_alone=manifest_counts[m.spec_id, m.is_deletes] == 1) for m in set(narrow)),
        key=lambda m: (m.path, m.field),
    )
    return Integrity(
        duplicate_manifests=tuple(
            sorted(path for path, entry_count in listed_counts.items() if entry_count > 1)
        ),
        narrow_manifest_count=len({m.path for m in narrow_manifests}),
        narrow_manifests=tuple(narrow_manifests[:EXAMPLES]),
        miscounted_count=len(miscounted),
        miscounted=tuple(miscounted[:EXAMPLES]),
    )
