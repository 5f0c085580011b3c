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
    values_by_field = zip(*(partition.values for partition in partitions), strict=True)
    ranges_of_fields = []
    for field, field_values in zip(fields, values_by_field, strict=False):
        non_null_values = [
            comparable_value(field.result_type, value)
            for value in field_values
            if value is not None
        ]
        non_nan_values = [
            value for value in non_null_values if value == value
        ]  # NaN is not equal to itself
        min_value = min(non_nan_values, default=None)
        max_value = max(non_nan_values, default=None)
        has_null = len(non_null_values) < len(field_values)
        has_nan = len(non_nan_values) < len(non_null_values)
        ranges_of_fields.append(FieldRange(min_value, max_value, has_null, has_nan))
    return ranges_of_fields


def comparable_value(result_type: str, value: Any) -> Any:
    """A partition value as :func:`icekit.iceberg.values.from_bytes` gives bounds."""
    if value is not None and result_type.startswith(("float", "double", "decimal")):
        return Decimal(value) if result_type.startswith("decimal") else float(value)
    return value


def narrow_summaries(
    manifest: Record, fields: Sequence[PartitionField], ranges: Sequence[FieldRange]
) -> Iterator[NarrowManifest]:
    """The partition fields whose summary does not cover the entries of a manifest.

    A filter skips the manifest by its summary (ManifestEvaluator), which may be wider than the
    entries, and may be left out. UUIDs are not compared: writers order them differently.
    """
    field_summaries = manifest.get("partitions") or []
    for field_summary, field, entry_range in zip(field_summaries, fields, ranges, strict=False):
        uncovered_value = None
        if entry_range.has_null and field_summary.get("contains_null") is False:
            uncovered_value = "null"
        elif entry_range.has_nan and field_summary.get("contains_nan") is False:
            uncovered_value = "NaN"
        summary_bounds: tuple[Any, Any] = (None, None)
        is_narrow = False
        if entry_range.low is not None and field.result_type != "uuid":
            raw_bounds = map(field_summary.get, BOUNDS)
            try:
                summary_bounds = tuple(
                    None if bound is None else from_bytes(field.result_type, bound)
                    for bound in raw_bounds
                )  # type: ignore[assignment]
                is_narrow = (
                    None in summary_bounds
                    or entry_range.low < summary_bounds[0]
                    or entry_range.high > summary_bounds[1]
                )
            except (ValueError, TypeError):
                summary_bounds = (None, None)
        if uncovered_value or is_narrow:
            lower_bound, upper_bound = (to_scalar(bound) for bound in summary_bounds)
            yield NarrowManifest(
                manifest["manifest_path"],
                manifest["partition_spec_id"],
                is_delete_manifest(manifest),
                field.name,
                (lower_bound, upper_bound),
                (to_scalar(entry_range.low), to_scalar(entry_range.high)),
                uncovered_value,
            )


def manifest_integrity(
    manifests: Sequence[Record],
    narrow_manifests: Iterable[NarrowManifest],
    live_counts_by_path: Mapping[str, int],
) -> Integrity:
    """What a manifest list, the narrow manifests of it, and the live files that were counted in
    its manifests (by path) show.
    """
    listing_counts = Counter(manifest["manifest_path"] for manifest in manifests)
    # Spark reads one that is listed twice as often.
    miscounted_manifests = sorted(
        (
            MiscountedManifest(
                manifest_path, live_count(manifest), live_counts_by_path[manifest_path]
            )
            for manifest in manifests
            if has_live_count(manifest)
            and listing_counts[manifest_path := manifest["manifest_path"]] == 1
            and live_counts_by_path.get(manifest_path, live_count(manifest)) != live_count(manifest)
        ),
        key=lambda each: each.path,
    )
    counts_by_spec_and_content = Counter(
        (manifest["partition_spec_id"], is_delete_manifest(manifest)) for manifest in manifests
    )
    sorted_narrow_manifests = sorted(
        (
            replace(m, is_alone=counts_by_spec_and_content[m.spec_id, m.is_deletes] == 1)
            for m in set(narrow_manifests)
        ),
        key=lambda m: (m.path, m.field),
    )
    return Integrity(
        duplicate_manifests=tuple(
            sorted(
                manifest_path
                for manifest_path, listing_count in listing_counts.items()
                if listing_count > 1
            )
        ),
        narrow_manifest_count=len({m.path for m in sorted_narrow_manifests}),
        narrow_manifests=tuple(sorted_narrow_manifests[:EXAMPLES]),
        miscounted_count=len(miscounted_manifests),
        miscounted=tuple(miscounted_manifests[:EXAMPLES]),
    )
