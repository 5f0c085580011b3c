"""Which of Iceberg's types an engine can read, write and order rows by: one table, which the canary
tests/engine/test_column_types.py compares with the running engine.

The sources are Iceberg's ``TypeToSparkType``, its writers, ``SparkZOrderUDF`` and the checks of its
rewrite runners.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from icekit.common import frozen
from icekit.engine.compat import is_at_least
from icekit.engine.spark_conf import RUNTIMES
from icekit.iceberg.values import base_type


class Ability(StrEnum):
    """What an engine can do with the values of a type.

    ``read``: without it, Spark does not open the table. ``write``: into new data files.
    ``sort``: order rows by them. ``curve``: order rows along a z-order or Hilbert curve. ``match``:
    compare them with the keys of equality deletes.
    """

    READ = "read"
    WRITE = "write"
    SORT = "sort"
    CURVE = "curve"
    MATCH = "match"


@frozen
class _TypeSupport:
    """A type of Iceberg. ``first_minor_by_spark`` has, by version of Spark, the first Iceberg 1.x
    that reads it; ``first_curve_minor`` is the first that has it on curves, also where it is null.
    Only files of these ``file_formats`` can hold it.
    """

    first_minor_by_spark: Mapping[str, int]
    is_sortable: bool = True
    first_curve_minor: int | None = 0
    is_key: bool = True
    file_formats: tuple[str, ...] = ("parquet", "orc", "avro")


_EVERY = dict.fromkeys(RUNTIMES, 0)
_PLAIN = _TypeSupport(_EVERY)
_UNREAD = _TypeSupport({})
_NOT_ORC = ("parquet", "avro")
_GEOSPATIAL = _TypeSupport(
    {"4.1": 12}, is_sortable=False, first_curve_minor=None, is_key=False, file_formats=_NOT_ORC
)
_VARIANT = replace(_GEOSPATIAL, first_minor_by_spark={"4.0": 10, "4.1": 11})
_TYPES: Mapping[str, _TypeSupport] = {
    **dict.fromkeys(("int", "long", "date", "timestamptz"), _PLAIN),
    "timestamp": _TypeSupport(_EVERY, first_curve_minor=11),
    "boolean": _TypeSupport(_EVERY, first_curve_minor=12),
    **dict.fromkeys(("string", "uuid", "fixed", "binary"), _PLAIN),
    **dict.fromkeys(("float", "double"), _TypeSupport(_EVERY, is_key=False)),
    "decimal": _TypeSupport(_EVERY, first_curve_minor=None),
    **dict.fromkeys(("time", "timestamp_ns", "timestamptz_ns"), _UNREAD),
    "unknown": _TypeSupport(
        {"3.5": 11, "4.0": 10, "4.1": 11}, first_curve_minor=None, is_key=False
    ),
    "variant": _VARIANT,
    "geometry": _GEOSPATIAL,
    "geography": _GEOSPATIAL,
}
# The reference systems that Spark knows, the default first; of geographies, also the only algorithm
# for edges.
_SYSTEMS = {"geometry": ("OGC:CRS84", "EPSG:3857", "SRID:0"), "geography": ("OGC:CRS84",)}
_EDGES = "spherical"


@frozen
class Engine:
    """The versions of Spark and Iceberg that work on a table; empty is unknown, and taken for the
    newest.
    """

    spark: str = ""
    iceberg: str = ""

    def __str__(self) -> str:
        return f"Spark {self._spark_version} with Iceberg {self._iceberg_version}"

    @property
    def _spark_version(self) -> str:
        return self.spark if self.spark in RUNTIMES else max(RUNTIMES)

    @property
    def _iceberg_version(self) -> str:
        return self.iceberg or RUNTIMES[self._spark_version][1]

    @property
    def has_hilbert(self) -> bool:
        """Whether this Iceberg has a Hilbert curve."""
        return self._spark_version != "3.5" and is_at_least(self._iceberg_version, 12)

    def can(self, ability: Ability, type_name: str, file_format: str = "parquet") -> bool:
        """Whether it has an ability for a primitive type, as a schema of Iceberg names it; no type
        that is not in the table has any.
        """
        type_support = _TYPES.get(base_type(type_name).strip())
        first_minor = (
            None
            if type_support is None
            else type_support.first_minor_by_spark.get(self._spark_version)
        )
        if (
            type_support is None
            or first_minor is None
            or not is_at_least(self._iceberg_version, first_minor)
        ):
            return False
        if not _has_supported_crs(type_name):
            return False
        return {
            Ability.READ: True,
            Ability.WRITE: file_format in type_support.file_formats,
            Ability.SORT: type_support.is_sortable,
            Ability.CURVE: type_support.first_curve_minor is not None
            and is_at_least(self._iceberg_version, type_support.first_curve_minor),
            Ability.MATCH: type_support.is_key,
        }[ability]


def first_reading_engine(type_name: str) -> Engine | None:
    """The first engine that reads a type; None if none does."""
    type_support = _TYPES.get(base_type(type_name).strip(), _UNREAD)
    if not type_support.first_minor_by_spark or not _has_supported_crs(type_name):
        return None
    spark_version = min(type_support.first_minor_by_spark)
    return Engine(spark_version, f"1.{type_support.first_minor_by_spark[spark_version]}")


def _has_supported_crs(type_name: str) -> bool:
    base_type_name, _, type_arguments = type_name.partition("(")
    supported_systems = _SYSTEMS.get(base_type_name.strip())
    if supported_systems is None:
        return True
    reference_system, _, edge_algorithm = type_arguments.rstrip(") ").partition(",")
    return (
        reference_system.strip() or supported_systems[0]
    ) in supported_systems and edge_algorithm.strip() in (
        "",
        _EDGES,
    )
