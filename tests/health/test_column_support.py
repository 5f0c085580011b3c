"""What an engine cannot read or write is known before a plan, without Spark."""

import json
from dataclasses import replace
from typing import Any

import pytest

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.errors import ColumnsUnsupported, ConversionRefused
from icekit.engine.column_types import Ability, Engine, first_reading_engine
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Thresholds
from icekit.health.facts.column_support import (
    engine_limits,
    newer_engine_sentence,
    unsupported_columns,
)
from icekit.health.facts.model import TableFacts, UnsupportedColumn
from icekit.maintain.planning.candidates import candidates
from icekit.maintain.planning.compaction import plan
from icekit.maintain.planning.savings import savings_of, savings_sentences, waiting_sentence
from icekit.rows.deletes.keys import delete_keys
from tests.maintain.delete_counts import of
from tests.maintain.test_plan import small

NEWEST = Engine()
CLOCK = UnsupportedColumn(("at", "clock"), "time", Ability.READ)


def struct(*types: Any) -> dict[str, Any]:
    fields = [
        {"id": 10 + i, "name": f"f{i}", "required": False, "type": kind}
        for i, kind in enumerate(types)
    ]
    return {"type": "struct", "fields": fields}


def metadata(kind: Any, file_format: str = "parquet") -> dict[str, Any]:
    schema = {**struct("long", kind), "schema-id": 0}
    old = {**struct("time"), "schema-id": 1}
    return {
        "schemas": [schema, old],
        "current-schema-id": 0,
        "properties": {"write.format.default": file_format},
    }


LIST = {"type": "list", "element-id": 20, "element": "time", "element-required": False}
MAP = {
    "type": "map",
    "key-id": 21,
    "key": "timestamp_ns",
    "value-id": 22,
    "value": struct("int", "timestamptz_ns"),
    "value-required": False,
}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("int", []),
        ("decimal(38, 3)", []),
        ("fixed[16]", []),
        ("geometry", []),
        ("geometry(EPSG:3857)", []),
        ("geography(OGC:CRS84, spherical)", []),
        ("time", ["f1"]),
        ("geometry(EPSG:4326)", ["f1"]),
        ("geography(OGC:CRS84, karney)", ["f1"]),
        ("a type of tomorrow", ["f1"]),
        (struct("int", LIST), ["f1.f1.element"]),
        (MAP, ["f1.key", "f1.value.f1"]),
    ],
)
def test_a_column_that_cannot_be_read_is_found_wherever_it_stands(
    kind: Any, names: list[str]
) -> None:
    found = unsupported_columns(metadata(kind), NEWEST)

    assert [".".join(column.names) for column in found] == names
    assert {column.ability for column in found} <= {Ability.READ}


@pytest.mark.parametrize(
    ("kind", "engine", "is_read"),
    [
        ("variant", Engine("3.5", "1.12.0"), False),
        ("variant", Engine("4.0", "1.11.0"), True),
        ("unknown", Engine("3.5", "1.10.1"), False),
        ("unknown", Engine("3.5", "1.11.0"), True),
        ("geometry", Engine("4.1", "1.11.0"), False),
        ("geometry", Engine("4.1", "1.12.0"), True),
        ("geometry", Engine("4.0", "1.11.0"), False),
        # Unknown versions are taken for the newest.
        ("geometry", Engine(), True),
        ("time", Engine(), False),
    ],
)
def test_types_are_read_from_a_version_on(kind: str, engine: Engine, is_read: bool) -> None:
    assert (unsupported_columns(metadata(kind), engine) == ()) == is_read


@pytest.mark.parametrize(
    ("kind", "file_format", "is_written"),
    [
        ("variant", "parquet", True),
        ("variant", "ORC", False),
        ("geometry", "orc", False),
        ("geometry", "avro", True),
        ("unknown", "parquet", True),
        ({**LIST, "element": "unknown"}, "parquet", False),
        ({**LIST, "element": "unknown"}, "orc", False),
        ({**LIST, "element": "unknown"}, "avro", True),
        (struct("unknown"), "parquet", False),
        (struct(struct("unknown")), "parquet", False),
        (struct(struct("unknown"), "int"), "parquet", False),
        (struct("unknown", "int"), "parquet", True),
        (struct("unknown"), "orc", True),
    ],
)
def test_a_column_that_new_files_cannot_hold_is_found(
    kind: Any, file_format: str, is_written: bool
) -> None:
    found = unsupported_columns(metadata(kind, file_format), NEWEST)

    assert {column.ability for column in found} == (set() if is_written else {Ability.WRITE})


def test_what_an_engine_lacks_is_named_with_the_engine_that_has_it() -> None:
    old = Engine("4.0", "1.11.0")
    shapes = unsupported_columns(metadata(struct("geometry", "variant", "time")), old)

    assert engine_limits(old, shapes) == (
        "Spark 4.0 with Iceberg 1.11.0 cannot read columns f1.f0 (geometry), f1.f2 (time)"
    )
    assert newer_engine_sentence(shapes) == ""
    assert newer_engine_sentence(shapes[:1]) == "Spark 4.1 with Iceberg 1.12 can read them."
    assert str(first_reading_engine("variant")) == "Spark 4.0 with Iceberg 1.10"
    assert first_reading_engine("geometry(EPSG:4326)") is None
    assert first_reading_engine("a type of tomorrow") is None


def facts_with(*columns: UnsupportedColumn) -> TableFacts:
    return replace(of(small()), unsupported_columns=columns)


@pytest.mark.parametrize("ability", [Ability.READ, Ability.WRITE])
def test_of_what_cannot_be_read_or_written_nothing_is_recommended(ability: Ability) -> None:
    facts = facts_with(replace(CLOCK, ability=ability))
    findings = diagnose(facts)
    by_name = {finding.name: finding for finding in findings}

    evidence = f"{facts.engine} cannot {ability} column at.clock (time)"
    assert by_name["unsupported_columns"].evidence == evidence
    assert by_name["unsupported_columns"].where == ("at.clock",)
    assert (by_name["small_files"].sql, by_name["small_files"].command) == ((), None)
    assert candidates(facts, findings, CompactionPolicy(), Thresholds()) == ()
    assert savings_of(facts, findings).opens_saved == 0
    assert waiting_sentence(facts, findings) == f"Nothing is rewritten: {evidence}."
    assert savings_sentences(facts, findings) == {"": f"Nothing is rewritten: {evidence}."}
    with pytest.raises(
        ColumnsUnsupported, match=r"so nothing of db\.events is rewritten"
    ) as refused:
        plan(facts, findings)
    assert refused.value.columns == facts.unsupported_columns


def test_spark_runs_no_statement_on_a_table_that_it_cannot_read() -> None:
    readable = diagnose(of(small()))
    unreadable = diagnose(facts_with(CLOCK))

    assert any(finding.sql for finding in readable)
    assert readable.names < unreadable.names
    assert not any(finding.sql or finding.command for finding in unreadable)


@pytest.mark.parametrize(
    "kind", ["time", "timestamp_ns", "variant", "unknown", "geometry", "geography", "new"]
)
def test_a_key_that_spark_cannot_read_or_compare_is_refused(kind: str) -> None:
    with pytest.raises(ConversionRefused, match="which Spark cannot read or compare"):
        delete_keys(json.loads(json.dumps(metadata(kind))), [11])
