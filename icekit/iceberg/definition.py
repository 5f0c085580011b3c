"""Hold how a table is defined: its columns, partition specs, sort order and settings, and who else
maintains it.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from icekit.common import frozen
from icekit.common.sql import identifier


@frozen
class Column:
    """A leaf column of the schema; ``name`` is dotted for nested ones.

    ``position`` is the position of its top-level column, from 0; ``metrics_mode`` is the mode in
    force for new files (``none``, ``counts``, ``truncate(16)``, ``full``). ``path`` has the
    names from the top down, because a name may contain dots; empty means ``(name,)``. One inside
    a list or a map is not ``is_in_structs``.
    """

    field_id: int
    name: str
    type: str
    required: bool
    position: int
    metrics_mode: str
    path: tuple[str, ...] = ()
    is_in_structs: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The names from the top-level column down."""
        return self.path or (self.name,)


@frozen
class PartitionField:
    """One field of a partition spec; ``source`` is the dotted column name, or None if dropped."""

    field_id: int
    name: str
    transform: str
    source_id: int
    source: str | None
    result_type: str

    @property
    def bucket_count(self) -> int:
        """The number of buckets; 0 for another transform."""
        return int(self.transform[7:-1]) if self.transform.startswith("bucket[") else 0


@frozen
class PartitionSpec:
    """A partition spec, current or old."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def active_fields(self) -> tuple[PartitionField, ...]:
        """The fields that are left; version 1 tables keep dropped fields as ``void``."""
        return tuple(field for field in self.fields if field.transform != "void")

    @property
    def is_unpartitioned(self) -> bool:
        """Tell whether no field is left."""
        return not self.active_fields

    @property
    def dropped_column_fields(self) -> tuple[str, ...]:
        """The fields whose column was dropped from the table."""
        return tuple(f.name for f in self.active_fields if f.source is None)


def dropped_field_warning(field_names: Iterable[str]) -> str:
    """Why deletes of partitions by a dropped column are at risk, as a sentence.

    Iceberg (1.12) writes a null for such a field when it writes a manifest again, as most commits
    do with some manifests, and applies deletes only to data files with equal values: with the next
    append, deleted rows may come back.
    """
    names_sql = ", ".join(map(identifier, field_names))
    return (
        f"The column of partition field {names_sql} was dropped while deletes apply to files of "
        "these partitions. Any commit of any writer may change which rows they delete, because "
        "Iceberg writes nulls for such partitions; only a rewrite of all data files in one commit "
        "ends this."
    )


# The columns of the metadata table ``position_deletes``, and those that it has from version 3 on
# (org.apache.iceberg.PositionDeletesTable).
_POSITION_DELETES = frozenset(
    {"file_path", "pos", "row", "partition", "spec_id", "delete_file_path"}
)
_VECTORS = frozenset({"content_offset", "content_size_in_bytes"})


def position_deletes_name_clashes(
    specs: Iterable[PartitionSpec], format_version: int
) -> tuple[str, ...]:
    """Partition fields, of any spec, whose name is that of a column of Iceberg's metadata table
    ``position_deletes``, which the engine then cannot read or rewrite.
    """
    column_names = _POSITION_DELETES | (_VECTORS if format_version >= 3 else frozenset())
    field_names = (field.name for spec in specs for field in spec.fields)
    return tuple(
        dict.fromkeys(field_name for field_name in field_names if field_name in column_names)
    )


@frozen
class SortField:
    """One field of the default sort order."""

    source: str
    transform: str
    direction: str
    null_order: str


@frozen
class Setting:
    """A table property in force and its origin: ``table property`` or ``default``."""

    name: str
    value: str | None
    origin: str


@frozen
class DistributionMode:
    """How one operation distributes rows before it writes, and why."""

    operation: str
    mode: str
    origin: str


@frozen
class OtherOptimizer:
    """A service that compacts and expires tables by itself, and the property or the location that
    shows it.
    """

    name: str
    evidence: str

    @property
    def note(self) -> str:
        """What to know before a plan of icekit runs."""
        return (
            f"Another optimizer may manage this table: {self.evidence}. Turn its maintenance off "
            "for this table, or leave the work to it, before this plan runs: each makes the "
            "other's commits fail."
        )


# Properties that only one service sets, by their beginnings, and the buckets of S3 Tables.
_MANAGED = (
    ("self-optimizing.", "Apache Amoro"),
    ("delta.", "Databricks"),
    ("databricks.", "Databricks"),
    ("snowflake.", "Snowflake"),
)
_S3_TABLES = re.compile(r"^s3[an]?://[^/]*--table-s3(?:/|$)")


def other_optimizer(properties: Mapping[str, str], location: str) -> OtherOptimizer | None:
    """The service that maintains a table of these properties at this location by itself; None if
    nothing shows one.
    """
    if _S3_TABLES.match(location):
        return OtherOptimizer(
            "Amazon S3 Tables",
            f"the table is in a table bucket of Amazon S3 Tables ({location}), which compacts and "
            "expires it",
        )
    if properties.get("self-optimizing.enabled", "").lower() == "false":
        return None
    for property_prefix, service_name in _MANAGED:
        if property_names := sorted(key for key in properties if key.startswith(property_prefix)):
            return OtherOptimizer(
                service_name,
                f"the table property {property_names[0]} is of {service_name}, which may compact "
                "and expire the table",
            )
    return None


class Flaw(StrEnum):
    """What Iceberg's Java refuses in metadata, not always but where it needs it."""

    #: Manifests in the manifest list of the snapshot without their numbers of files.
    UNCOUNTED_MANIFESTS = "uncounted manifests"
    #: The schema of the observed snapshot, or of others, is not in the metadata.
    SCHEMA_GONE = "schema gone"
    OLD_SCHEMA_GONE = "schema of another snapshot gone"
    #: An order that is no longer the default sorts by a column that was dropped.
    ORDER_BY_DROPPED = "order by a dropped column"
    #: The manifest list gives other numbers of live files than the manifests have.
    MISCOUNTED_MANIFESTS = "miscounted manifests"
    #: The table's own times are later than this machine's clock.
    FUTURE_TIMES = "future times"


#: The flaws on which no rewrite may build.
STOPPING_FLAWS = frozenset({Flaw.MISCOUNTED_MANIFESTS, Flaw.FUTURE_TIMES})


@frozen
class MetadataFlaw:
    """A flaw, how many there are, and the ids (or paths, of manifests) of a few."""

    flaw: Flaw
    count: int
    examples: tuple[str, ...]
