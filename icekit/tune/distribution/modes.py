"""Which distribution mode each operation has, and why. Pure.

Source: ``SparkWriteConf`` of Iceberg 1.12. An option or a session's ``spark.sql.iceberg.distribution-mode``
overrides the properties of every operation; ``hash`` without a partitioning and ``range`` without a
partitioning or an order come to ``none`` for appends and copy-on-write merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from icekit.facts.model import TableFacts
from icekit.tune.advisory_size.chain import DISTRIBUTION_SESSION
from icekit.tune.in_force import InForce, in_force

NONE, HASH, RANGE = "none", "hash", "range"
MODES = (NONE, HASH, RANGE)
OPERATIONS = ("append", "delete", "update", "merge")


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of an operation: ``value`` is what the engine does, ``why`` one clause.

    ``brings_together`` says by what rows are brought together. ``fanout`` tells whether a task keeps a
    file open for each partition, so that its rows need no sorting.
    """

    operation: str
    value: str
    in_force: InForce
    why: str
    brings_together: str
    fanout: bool


def modes(facts: TableFacts, session: Mapping[str, str | None] | None = None, options: Mapping[str, str] | None = None) -> tuple[Mode, ...]:
    """The modes of all operations, appends first; ``session`` are its settings, ``options`` those of the write."""
    return tuple(_mode(facts, operation, session or {}, options or {}) for operation in OPERATIONS)


def _mode(facts: TableFacts, operation: str, session: Mapping[str, str | None], options: Mapping[str, str]) -> Mode:
    told = next(d for d in facts.distribution if d.operation == operation)
    name = "write.distribution-mode" if operation == "append" else f"write.{operation}.distribution-mode"
    found = in_force(
        "distribution mode",
        option=("distribution-mode", options),
        session=[(DISTRIBUTION_SESSION, session.get(DISTRIBUTION_SESSION))],
        properties=[(name, facts.properties.get(name))],
        default=(told.origin if name not in facts.properties else "default", told.mode if name not in facts.properties else None),
    )
    partitioned, ordered = not facts.default_spec.is_unpartitioned, bool(facts.sort_order)
    stated = (found.value or told.mode).lower()
    adjusts = operation == "append" or (operation == "merge" and _write_mode(facts, operation) == "copy-on-write")
    void = adjusts and ((stated == HASH and not partitioned) or (stated == RANGE and not partitioned and not ordered))
    value = NONE if void else stated
    why = f"{found.origin} says {stated}, which needs a partitioning{' or an order' if stated == RANGE else ''}" if void else found.origin
    fanout = (facts.setting("write.spark.fanout.enabled") or "false").lower() == "true"
    return Mode(operation, value, found, why, _by(facts, operation, value, partitioned), fanout)


def _by(facts: TableFacts, operation: str, mode: str, partitioned: bool) -> str:
    """By what rows are brought together (SparkWriteUtil)."""
    if mode == NONE:
        return "nothing: a task writes what it has"
    if mode == RANGE:
        fields = [f.source for f in facts.sort_order]
        return (
            "ranges of " + ", ".join([*(["the partition"] if partitioned else []), *fields])
            if fields or partitioned
            else "ranges of the data file"
        )
    if operation in {"delete", "update"} and _write_mode(facts, operation) == "copy-on-write":
        return "the partition" if partitioned else "the data file that rows come from"
    if operation != "append" and _write_mode(facts, operation) == "merge-on-read" and not partitioned:
        return "the data file that rows come from"
    return "the partition"


def _write_mode(facts: TableFacts, operation: str) -> str:
    return (facts.setting(f"write.{operation}.mode") or "copy-on-write").lower()
