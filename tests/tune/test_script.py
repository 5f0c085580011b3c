"""A script runs as it is pasted, and the way back leaves the table as it was."""

import pytest

from icekit.api import Lake
from icekit.common.sql import identifier, reset_session_sql, set_session_sql
from icekit.engine.bridge import temporary_settings
from icekit.health.facts.model import TableFacts
from icekit.health.facts.sort_order import order_restoration
from icekit.tune import ddl
from icekit.tune.answer import Answer, Change, property_change
from icekit.tune.ddl import SpecField

pytestmark = pytest.mark.spark


def definition(facts: TableFacts) -> tuple[object, ...]:
    """What a script changes."""
    fields = sorted((str(f.source), f.transform) for f in facts.default_spec.active_fields)
    return fields, facts.sort_order, facts.properties


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
    facts = lake.observe(table)
    columns = facts.by_name
    old, new = (
        (SpecField("at", "day"), SpecField("a;'b", "identity")),
        (SpecField("at", "month"), SpecField("id", "bucket[8]")),
    )
    spec = (
        ddl.spec_change_sql(name, columns, old, new),
        ddl.spec_change_sql(name, columns, new, old),
    )
    order_by = (ddl.write_order_sql(name, columns, ["id", "a;'b"], is_by_partition=True),)
    codec = {"write.parquet.compression-codec": "gzip", "write.distribution-mode": "none"}
    changes = [
        Change("spec", "", "", "why", *spec),
        Change("order", "", "", "why", order_by, order_restoration(name, facts)),
        property_change(facts, codec, "why"),
        property_change(facts, {"write.metadata.metrics.column.a;'b": "counts"}, "why"),
    ]
    script = Answer(question="", facts=facts, verdict="", changes=tuple(changes)).script

    for statement in script.sql:
        lake.spark.sql(statement)
    changed = lake.observe(table)
    assert {f.transform for f in changed.default_spec.active_fields} == {"month", "bucket[8]"}
    assert len(changed.sort_order) == 2
    assert changed.properties["write.parquet.compression-codec"] == "gzip"

    for statement in script.undo:
        lake.spark.sql(statement)
    assert definition(lake.observe(table)) == definition(facts)


@pytest.mark.parametrize(
    "name", ["spark.sql.iceberg.advisory-partition-size", "spark.sql.adaptive.enabled"]
)
def test_settings_of_a_session_are_set_and_reset_by_their_statements(lake: Lake, name: str) -> None:
    with temporary_settings(lake.spark, {name: "true"}):
        lake.spark.sql(set_session_sql(name, "false"))
        assert lake.spark.conf.get(name) == "false"
        lake.spark.sql(reset_session_sql(name))
        assert lake.spark.conf.get(name, None) != "false"
