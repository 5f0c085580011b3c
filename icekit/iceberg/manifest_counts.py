"""Hold the number and the sizes of a snapshot's manifests, what rewriting them leaves, and the
column statistics of a few files.
"""

from icekit.common import frozen


@frozen
class RangeOverlap:
    """How much manifests overlap on one partition field.

    ``mean_share`` is the mean over manifests of the share of the other manifests of the
    spec whose range of this field intersects theirs: 0 is perfectly clustered, 1 is not at all.
    """

    spec_id: int
    field: str
    manifest_count: int
    mean_share: float


@frozen
class ManifestCounts:
    """Data and delete manifests, which are never combined."""

    data_count: int = 0
    data_bytes: int = 0
    delete_count: int = 0
    delete_bytes: int = 0

    @property
    def count(self) -> int:
        """The number of both kinds."""
        return self.data_count + self.delete_count

    @property
    def size_in_bytes(self) -> int:
        """The bytes of both kinds."""
        return self.data_bytes + self.delete_bytes


@frozen
class SpecManifests(ManifestCounts):
    """The manifests of one partition spec, those without live entries too: no scan reads these
    ``unread_count``, but a rewrite takes them.
    """

    spec_id: int = 0
    unread_count: int = 0

    def rewritten_count(self, target_bytes: int) -> int:
        """How many ``rewrite_manifests`` rewrites: a single manifest that fits the target stays as
        it is.
        """
        return sum(n for n, _ in self._rewritten_counts_and_bytes(target_bytes))

    def replacement_count(self, target_bytes: int) -> int:
        """How many replace them."""
        rewritten_kinds = self._rewritten_counts_and_bytes(target_bytes)
        return sum(
            expected_manifest_count(kind_bytes, target_bytes) for _, kind_bytes in rewritten_kinds
        )

    def saved_count(self, target_bytes: int) -> int:
        """How many fewer a scan opens after the rewrite."""
        net_reduction = self.rewritten_count(target_bytes) - self.replacement_count(target_bytes)
        return max(net_reduction - self.unread_count, 0)

    def is_fragmented(self, target_bytes: int) -> bool:
        """Whether there are more than twice as many as needed, of either kind."""
        return any(
            n > 2 * expected_manifest_count(kind_bytes, target_bytes)
            for n, kind_bytes in self._counts_and_bytes
        )

    @property
    def _counts_and_bytes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.data_count, self.data_bytes), (self.delete_count, self.delete_bytes)

    def _rewritten_counts_and_bytes(self, target_bytes: int) -> list[tuple[int, int]]:
        return [
            (n, kind_bytes)
            for n, kind_bytes in self._counts_and_bytes
            if n > 1 or kind_bytes > target_bytes
        ]


def expected_manifest_count(size_in_bytes: int, target_bytes: int) -> int:
    """The number of manifests for ``size_in_bytes``: the bytes divided by the target, rounded up
    (RewriteManifestsSparkAction).
    """
    return max(1, -(-size_in_bytes // target_bytes))


@frozen
class ManifestFacts(ManifestCounts):
    """The manifests of the snapshot, from its manifest list.

    ``*_entry_count`` are live (added and existing) entries. ``undersized_count`` are manifests
    smaller than half of ``commit.manifest.target-size-bytes``. ``by_spec`` counts the manifests by
    partition spec, as they are rewritten.
    """

    data_entry_count: int = 0
    delete_entry_count: int = 0
    undersized_count: int = 0
    overlaps: tuple[RangeOverlap, ...] = ()
    by_spec: tuple[SpecManifests, ...] = ()


@frozen
class ColumnSample:
    """One column's statistics in the sampled data files.

    ``stab_share`` is the mean share of sampled files that a point lookup on the column
    must read by its bounds (1.0: bounds never skip); None with fewer than two files.
    ``partition_overlap`` is the mean share of the other sampled files of its partition that a
    lookup of a file's value must read; None if no partition has two. In ``null_file_count`` files
    every value is null.
    """

    column: str
    bounds_file_count: int
    counts_file_count: int
    stab_share: float | None
    null_file_count: int = 0
    partition_overlap: float | None = None


@frozen
class SampledWrite:
    """What one commit added, as far as the sample has it: data files, their bytes and partitions,
    and the tasks that wrote them, by the files' names.
    """

    file_count: int
    task_count: int
    size_in_bytes: int
    partition_count: int = 1


@frozen
class RepeatedIdentifiers:
    """A commit that added more records than its files can have identifiers: by the bounds of the
    identifier fields, at most ``most``.
    """

    snapshot_id: int
    record_count: int
    most: int


@frozen
class MetricsSample:
    """The actual statistics of a few data files.

    ``column_bytes`` and ``file_bytes`` are sums over the ``sized_files`` whose entries have the
    sizes of their columns; for Parquet those of column chunks, without bloom filters, indexes and
    footers. ``writes`` are commits that a sampled manifest has in full, oldest first; ``repeated``
    those of them that are certain to have an identifier in more than one record, by
    ``identifiers``, the identifier fields.
    """

    file_count: int = 0
    columns: tuple[ColumnSample, ...] = ()
    sized_files: int = 0
    file_bytes: int = 0
    column_bytes: int = 0
    writes: tuple[SampledWrite, ...] = ()
    identifiers: tuple[str, ...] = ()
    repeated: tuple[RepeatedIdentifiers, ...] = ()

    def column(self, name: str) -> ColumnSample | None:
        """The sample of one column, None if it is unknown."""
        return next((c for c in self.columns if c.column == name), None)
