"""Tables to try changes of, and what a trial must leave as it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from icekit.api import Lake
from icekit.sandbox.scratch import NAMESPACE
from icekit.sql import identifier, literal


def create(
    lake: Lake, namespace: str, name: str, *statements: str, properties: Mapping[str, str]
) -> tuple[str, str]:
    """A table partitioned by ``part``, after some statements on ``{t}``."""
    full = identifier(*lake.sql_name((namespace, name)))
    pairs = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
    lake.spark.sql(
        f"CREATE TABLE {full} (id bigint, part int, name string) USING iceberg PARTITIONED BY "
        f"(part) TBLPROPERTIES ({pairs})"
    )
    for statement in statements:
        lake.spark.sql(statement.format(t=full))
    return namespace, name


def state(lake: Lake, table: tuple[str, str]) -> tuple[Any, ...]:
    """The table's metadata and files, and what is left of its clones."""
    home = Path(lake.observe(table).location.removeprefix("file:"))
    names = [n for n in lake.tables.names() if n[0] == NAMESPACE]
    return (
        lake.tables.source(table).metadata_location,
        sorted(home.rglob("*")),
        (home.parent / NAMESPACE).exists(),
        names,
    )
