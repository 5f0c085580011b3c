"""A partition of a table."""

from icekit.common import frozen

#: A partition value as Iceberg stores it: dates as days, timestamps as microseconds since
#: 1970, decimals and UUIDs as strings, binary as hex.
Scalar = int | float | str | bool | None


@frozen
class Partition:
    """A partition as (spec, values); values are in the order of the spec's fields."""

    spec_id: int
    values: tuple[Scalar, ...]
