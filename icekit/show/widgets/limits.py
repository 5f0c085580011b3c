"""Describe the limits that can be moved: what each counts, where it comes from, how far it reaches; no ipywidgets here."""

from __future__ import annotations

from dataclasses import dataclass

from icekit.diagnose.findings import Thresholds
from icekit.facts.files import Kind
from icekit.facts.model import TableFacts
from icekit.facts.sizes import max_file_size, min_file_size

_CHOICE = "a choice"


@dataclass(frozen=True, slots=True)
class Limit:
    """One threshold as a control: ``name`` is that in :class:`~icekit.diagnose.findings.Thresholds`.

    ``low``, ``high`` and ``step`` are in the threshold's own unit; a share is shown in percent.
    """

    name: str
    label: str
    unit: str
    source: str
    low: float
    high: float
    step: float

    @property
    def is_share(self) -> bool:
        """Tell whether it is a share of something."""
        return self.unit.startswith("%")

    @property
    def is_whole(self) -> bool:
        """Tell whether it is a whole number."""
        return isinstance(getattr(Thresholds(), self.name), int)


#: The limits that decide most, in the order of the findings they belong to.
LIMITS = (
    Limit("min_file_size_ratio", "Undersized under", "% of the target size", "rewrite_data_files: min-file-size-bytes", 0, 1, 0.01),
    Limit("max_file_size_ratio", "Oversized over", "× the target size", "rewrite_data_files: max-file-size-bytes", 1.1, 16, 0.1),
    Limit("min_input_files", "Files to a rewrite", "files of a group", "rewrite_data_files: min-input-files", 1, 50, 1),
    Limit("critical_share", "Small files critical from", "% of all data files", _CHOICE, 0, 1, 0.05),
    Limit("critical_files", "… and from", "files that would go", _CHOICE, 0, 1000, 10),
    Limit("skew_ratio", "Skew from", "× the median partition's bytes", _CHOICE, 1, 100, 1),
    Limit("delete_ratio", "Deletes from", "% of the data records", _CHOICE, 0, 1, 0.01),
    Limit(
        "critical_delete_ratio", "Deletes critical from", "% of the data records", "rewrite_data_files: delete-ratio-threshold", 0, 1, 0.01
    ),
    Limit("fragmented_manifests", "Manifests", "manifests", "commit.manifest.min-count-to-merge", 1, 1000, 1),
    Limit("overlap_share", "Manifests overlap", "% of the other manifests", _CHOICE, 0, 1, 0.05),
    Limit("snapshots", "Snapshots kept", "snapshots", _CHOICE, 1, 1000, 1),
    Limit("files_per_partition_per_commit", "Files a commit writes", "files per partition changed", _CHOICE, 1, 20, 0.5),
)


def moved(thresholds: Thresholds) -> dict[str, float]:
    """The limits that differ from the defaults: what a notebook's ``thresholds`` parameter would hold."""
    default = Thresholds()
    names = Thresholds.__dataclass_fields__
    return {name: getattr(thresholds, name) for name in names if getattr(thresholds, name) != getattr(default, name)}


def size_ratios(facts: TableFacts, *, over: bool, also: float) -> tuple[float, ...]:
    """Limits of file size that the facts can answer exactly, as shares of the target: no bucket of sizes lies across one.

    ``over`` asks for limits over the target, else for those up to it; ``also`` is one that is in force.
    """
    buckets = [b for g in facts.of_kind(Kind.DATA) for b in g.buckets]
    target = facts.target_bytes

    def is_exact(ratio: float) -> bool:
        # The same question as icekit.diagnose.context.under: a file of exactly the limit is left alone on either side.
        limit = max_file_size(target, ratio) + 1 if over else min_file_size(target, ratio)
        return not any(b.min_bytes < limit <= b.max_bytes for b in buckets)

    return tuple(sorted({also, *filter(is_exact, _OVER if over else _UP_TO)}))


_UP_TO = tuple(round(0.05 * i, 2) for i in range(1, 21))
_OVER = (*(round(1 + 0.1 * i, 1) for i in range(1, 11)), 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)
