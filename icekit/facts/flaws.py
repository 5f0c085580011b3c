"""Name what Iceberg refuses in metadata only where it needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Flaw(StrEnum):
    """What Iceberg's Java refuses in metadata, not always but where it needs it."""

    #: Manifests in the manifest list of the snapshot without their numbers of files.
    UNCOUNTED_MANIFESTS = "uncounted manifests"
    #: The schema of the observed snapshot, or of others, is not in the metadata.
    SCHEMA_GONE = "schema gone"
    OLD_SCHEMA_GONE = "schema of another snapshot gone"
    #: An order that is no longer the default sorts by a column that was dropped.
    ORDER_BY_DROPPED = "order by a dropped column"


@dataclass(frozen=True, slots=True)
class MetadataFlaw:
    """A flaw, how many there are, and the ids (or paths, of manifests) of a few."""

    flaw: Flaw
    count: int
    examples: tuple[str, ...]
