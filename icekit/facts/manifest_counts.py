"""Hold the number and the sizes of a snapshot's manifests, and predict what rewriting them leaves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RangeOverlap:
    """How much manifests overlap on one partition field.

    ``mean_share`` is the mean over manifests of the share of the other manifests of the
    spec whose range of this field intersects theirs: 0 is perfectly clustered, 1 is not at all.
    """

    spec_id: int
    field: str
    manifest_count: int
    mean_share: float


@dataclass(frozen=True, slots=True)
class SpecManifests:
    """The manifests of one partition spec: data and delete manifests, which are never combined."""

    spec_id: int
    data_count: int = 0
    data_bytes: int = 0
    delete_count: int = 0
    delete_bytes: int = 0

    @property
    def size_in_bytes(self) -> int:
        """The bytes of both kinds."""
        return self.data_bytes + self.delete_bytes

    def files_in(self, target_bytes: int) -> int:
        """How many ``rewrite_manifests`` rewrites: a single manifest that fits the target stays as it is."""
        return sum(n for n, total in self._kinds if not _stays(n, total, target_bytes))

    def files_out(self, target_bytes: int) -> int:
        """How many replace them."""
        return sum(expected_manifests(total, target_bytes) for n, total in self._kinds if not _stays(n, total, target_bytes))

    def is_fragmented(self, target_bytes: int) -> bool:
        """Whether there are more than twice as many as needed, of either kind."""
        return any(n > 2 * expected_manifests(total, target_bytes) for n, total in self._kinds)

    @property
    def _kinds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.data_count, self.data_bytes), (self.delete_count, self.delete_bytes)


def expected_manifests(size_in_bytes: int, target_bytes: int) -> int:
    """The number of manifests for ``size_in_bytes``: the bytes divided by the target, rounded up (RewriteManifestsSparkAction)."""
    return max(1, -(-size_in_bytes // target_bytes))


def _stays(number: int, total: int, target_bytes: int) -> bool:
    return number == 0 or (number == 1 and total <= target_bytes)


@dataclass(frozen=True, slots=True)
class ManifestFacts:
    """The manifests of the snapshot, from its manifest list.

    ``*_entry_count`` are live (added and existing) entries; ``deleted_entry_count`` are
    tombstones that readers of data manifests skip over. ``undersized_data_manifest_count`` are data manifests smaller than half
    of ``commit.manifest.target-size-bytes``. ``by_spec`` counts the manifests by partition spec, as they are rewritten.
    """

    data_count: int = 0
    data_bytes: int = 0
    data_entry_count: int = 0
    delete_count: int = 0
    delete_bytes: int = 0
    delete_entry_count: int = 0
    deleted_entry_count: int = 0
    min_bytes: int | None = None
    max_bytes: int | None = None
    undersized_data_manifest_count: int = 0
    overlaps: tuple[RangeOverlap, ...] = ()
    by_spec: tuple[SpecManifests, ...] = ()

    @property
    def bytes_per_data_entry(self) -> float | None:
        """Compressed manifest bytes per data file."""
        return self.data_bytes / self.data_entry_count if self.data_entry_count else None
