"""Count a snapshot's manifests per partition spec, as rewrite_manifests takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icekit.facts.avro import Record
from icekit.facts.manifests import is_delete_manifest
from icekit.facts.model import TableFacts


@dataclass(frozen=True, slots=True)
class Layer:
    """The manifests of one spec: of data and of delete files, which are never put together."""

    spec_id: int
    data_count: int = 0
    data_bytes: int = 0
    delete_count: int = 0
    delete_bytes: int = 0

    def files_in(self, target_bytes: int) -> int:
        """How many are rewritten: one alone that fits the target stays as it is."""
        return sum(n for n, total in self._parts if not _stays(n, total, target_bytes))

    def files_out(self, target_bytes: int) -> int:
        """How many take their place: the bytes over the target, rounded up (RewriteManifestsSparkAction)."""
        return sum(-(-total // target_bytes) for n, total in self._parts if not _stays(n, total, target_bytes))

    def is_fragmented(self, target_bytes: int) -> bool:
        """Tell whether there are more than twice as many as would do, of either kind."""
        return any(n > 2 * max(1, -(-total // target_bytes)) for n, total in self._parts)

    @property
    def _parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.data_count, self.data_bytes), (self.delete_count, self.delete_bytes)


def _stays(number: int, total: int, target_bytes: int) -> bool:
    return number == 0 or (number == 1 and total <= target_bytes)


def layers(manifests: Sequence[Record]) -> tuple[Layer, ...]:
    """The records of a manifest list as layers, by spec."""
    found = {}
    for spec_id in sorted({m["partition_spec_id"] for m in manifests}):
        of_spec = [m for m in manifests if m["partition_spec_id"] == spec_id]
        sizes = {deletes: [m["manifest_length"] for m in of_spec if is_delete_manifest(m) is deletes] for deletes in (False, True)}
        found[spec_id] = Layer(spec_id, len(sizes[False]), sum(sizes[False]), len(sizes[True]), sum(sizes[True]))
    return tuple(found.values())


def layers_of_facts(facts: TableFacts) -> tuple[Layer, ...]:
    """All manifests as those of the current spec, where no list tells."""
    m = facts.manifests
    return (Layer(facts.default_spec_id, m.data_count, m.data_bytes, m.delete_count, m.delete_bytes),)
