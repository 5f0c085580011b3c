"""A script runs as it is pasted, and the way back leaves the table as it was."""

import json
from typing import Any

import pytest

from icekit.api import Lake
from icekit.facts.sort_order import undo_order
from icekit.sql import display_name, identifier, reset_session, set_session
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, to_set
from icekit.tune.ddl import Field

pytestmark = pytest.mark.spark


def definition(lake: Lake, table: tuple[str, ...]) -> dict[str, Any]:
    source = lake.tables.source(table)
    metadata = json.loads(source.read(source.metadata_location))
    specs = {
        s["spec-id"]: [(f["source-id"], f["transform"]) for f in s["fields"]]
        for s in metadata["partition-specs"]
    }
    orders = {o["order-id"]: o["fields"] for o in metadata["sort-orders"]}
    return {
        "properties": metadata["properties"],
        "spec": specs[metadata["default-spec-id"]],
        "order": orders[metadata["default-sort-order-id"]],
    }


@pytest.mark.parametrize(
    "order", ["WRITE ORDERED BY bucket(4, id) DESC NULLS LAST, `a;'b`", "WRITE UNORDERED", None]
)
def test_a_script_and_its_undo(lake: Lake, scratch: str, order: str | None) -> None:
    table = (scratch, f"script;'{'' if order is None else len(order)}")
    name = lake.sql_name(table)
    lake.spark.sql(
        f"CREATE TABLE {identifier(*name)} (id bigint, `a;'b` string, at timestamp) USING iceberg "
        "PARTITIONED BY (days(at), `a;'b`) TBLPROPERTIES ('write.parquet.compression-codec' = "
        "'zstd')"
    )
    if order:
        lake.spark.sql(f"ALTER TABLE {identifier(*name)} {order}")
    facts = lake.observe(display_name(table))
    columns = facts.by_name
    before = definition(lake, table)
    old, new = (
        (Field("at", "day"), Field("a;'b", "identity")),
        (Field("at", "month"), Field("id", "bucket[8]")),
    )
    spec = ddl.change_spec(name, columns, old, new), ddl.change_spec(name, columns, new, old)
    order_by = (ddl.write_order(name, columns, ["id", "a;'b"], by_partition=True),)
    codec = {"write.parquet.compression-codec": "gzip", "write.distribution-mode": "none"}
    changes = [
        Change("spec", "", "", "why", *spec),
        Change("order", "", "", "why", order_by, undo_order(name, facts)),
        to_set(facts, codec, "why"),
        to_set(facts, {"write.metadata.metrics.column.a;'b": "counts"}, "why"),
    ]
    found = Answer(question="", facts=facts, verdict="", changes=tuple(changes)).script

    for statement in found.sql:
        lake.spark.sql(statement)
    changed = definition(lake, table)
    assert [transform for _, transform in changed["spec"]] == ["month", "bucket[8]"]
    assert len(changed["order"]) == 2
    assert changed["properties"]["write.parquet.compression-codec"] == "gzip"

    for statement in found.undo:
        lake.spark.sql(statement)
    after = definition(lake, table)
    assert sorted(after.pop("spec")) == sorted(before.pop("spec"))
    assert after == before


@pytest.mark.parametrize(
    "name", ["spark.sql.iceberg.advisory-partition-size", "spark.sql.adaptive.enabled"]
)
def test_settings_of_a_session_are_set_and_reset_by_their_statements(lake: Lake, name: str) -> None:
    before = lake.spark.conf.get(name, None)

    lake.spark.sql(set_session(name, "false"))
    assert lake.spark.conf.get(name) == "false"
    lake.spark.sql(reset_session(name))
    assert lake.spark.conf.get(name, None) in {before, None}
    if before is not None:
        lake.spark.conf.set(name, before)
