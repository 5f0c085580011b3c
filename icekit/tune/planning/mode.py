"""Decide as Iceberg does where a scan is planned: in the driver, or by Spark's executors. Pure.

Source: ``SparkReadConf`` and ``BaseDistributedDataScan`` of Iceberg 1.12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from icekit.tune.in_force import InForce
from icekit.units import count, size

LOCAL, DISTRIBUTED, AUTO = "local", "distributed", "auto"
#: Below it Iceberg plans in the driver whatever is set, as executors would send more back.
LEAST_RESULT_BYTES = 256 * 1024 * 1024
#: Manifest bytes that a thread of the driver is trusted with.
BYTES_PER_THREAD = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Layer:
    """The manifests of data or of deletes that a scan reads: their number and bytes."""

    count: int
    size_in_bytes: int


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the decision rests on.

    ``threads`` plan in the driver (``iceberg.worker.num-threads``), ``parallelism`` is the larger of the
    session's default parallelism and its shuffle partitions, which Iceberg takes for what the executors
    do at once. ``max_result_bytes`` is ``spark.driver.maxResultSize``, 0 for no limit. ``data`` and
    ``deletes`` are the manifests, ``slots`` the task slots there really are.
    """

    data: Layer
    deletes: Layer
    may_have_equality_deletes: bool
    threads: int
    parallelism: int
    slots: int
    max_result_bytes: int
    data_mode: InForce
    delete_mode: InForce
    driver_cores: int = 0
    driver_heap_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the engine plans one kind of manifests, and each reason, the deciding one first."""

    kind: str
    place: str
    reasons: tuple[str, ...]


def decide(c: Circumstances) -> tuple[Decision, Decision]:
    """Where data and delete manifests are planned."""
    return _decide("data", c, c.data, c.data_mode), _decide("deletes", c, c.deletes, c.delete_mode)


def is_too_small_a_result(c: Circumstances) -> bool:
    """Tell whether ``spark.driver.maxResultSize`` alone keeps planning in the driver; 0 bytes counts as small to Iceberg too."""
    return c.max_result_bytes < LEAST_RESULT_BYTES


def _decide(kind: str, c: Circumstances, layer: Layer, mode: InForce) -> Decision:
    if is_too_small_a_result(c):
        said = "0, which stands for no limit and counts as 0 here" if c.max_result_bytes == 0 else size(c.max_result_bytes)
        return Decision(
            kind, LOCAL, (f"spark.driver.maxResultSize is {said}, and under {size(LEAST_RESULT_BYTES)} nothing is distributed",)
        )
    stated = (mode.value or AUTO).lower()
    if stated == LOCAL:
        return Decision(kind, LOCAL, (f"{mode.origin} says local",))
    if stated == DISTRIBUTED:
        if layer.count:
            return Decision(kind, DISTRIBUTED, (f"{mode.origin} says distributed",))
        return Decision(kind, LOCAL, ("there are no manifests",))
    reasons = tuple(_for_local(c, layer))
    if reasons:
        return Decision(kind, LOCAL, reasons)
    many = f"{count(layer.count, 'manifest')} of {size(layer.size_in_bytes)} are more than {count(c.threads, 'thread')} of the driver should read"
    return Decision(kind, DISTRIBUTED, (many,))


def _for_local(c: Circumstances, layer: Layer) -> Iterator[str]:
    """What speaks for the driver when the mode is auto: any one is enough."""
    if c.may_have_equality_deletes:
        yield "equality deletes may apply, which need column statistics of every data file in the driver"
    if not layer.count:
        yield "there are no manifests"
        return
    if c.parallelism <= c.threads:
        yield f"the session's parallelism of {c.parallelism} is no more than the driver's {count(c.threads, 'planning thread')}"
    if layer.count <= 2 * c.threads:
        yield f"{count(layer.count, 'manifest')} are no more than two for each of {count(c.threads, 'thread')}"
    if layer.size_in_bytes <= BYTES_PER_THREAD * c.threads:
        yield f"{size(layer.size_in_bytes)} of manifests are no more than {size(BYTES_PER_THREAD)} for each thread"
