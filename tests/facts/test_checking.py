"""Metadata that is damaged is refused with the field and the value, and what is right is read in every format version."""

from __future__ import annotations

import copy
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.catalog.tables import TableSource
from icekit.engine.bridge import lent
from icekit.engine.errors import engine_errors
from icekit.errors import MetadataUnreadable
from icekit.facts.lineage import Damaged, lineage, snapshots_by_id
from icekit.facts.metadata_file import load_metadata
from icekit.facts.validation import check
from icekit.show.card import lines

Json = dict[str, Any]


def snapshot(number: int, parent: int | None = None, **more: Any) -> Json:
    """A snapshot of that id and sequence number."""
    found: Json = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": 1_700_000_000_000 + number,
        "schema-id": 0,
        "manifest-list": f"/t/metadata/snap-{number}.avro",
        "summary": {"operation": "append", "total-data-files": "1"},
    }
    return {**found, **({} if parent is None else {"parent-snapshot-id": parent}), **more}


def table(**more: Any) -> Json:
    """A table of two snapshots, as any engine writes it."""
    return {
        "format-version": 2,
        "table-uuid": "b2ed0c5f-3f5f-4b2c-8c67-8d2e8a9a1a11",
        "location": "/t",
        "last-sequence-number": 2,
        "last-updated-ms": 1_700_000_000_002,
        "last-column-id": 2,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [
                    {"id": 1, "name": "id", "type": "long", "required": True},
                    {
                        "id": 2,
                        "name": "tags",
                        "type": {"type": "list", "element-id": 3, "element": "string", "element-required": False},
                        "required": False,
                    },
                ],
            }
        ],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [{"name": "id", "transform": "identity", "source-id": 1, "field-id": 1000}]}],
        "default-spec-id": 0,
        "last-partition-id": 1000,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"write.format.default": "parquet"},
        "current-snapshot-id": 2,
        "snapshots": [snapshot(1), snapshot(2, 1)],
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}, "old": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 1000}},
        "metadata-log": [{"metadata-file": "/t/metadata/v1.metadata.json", "timestamp-ms": 1}],
        **more,
    }


def empty(**more: Any) -> Json:
    """A table that nothing was written to."""
    found = table(**{"last-sequence-number": 0, "current-snapshot-id": -1, "snapshots": [], "refs": {}})
    return {**found, **more}


def without(*keys: str, of: Callable[..., Json] = table) -> Json:
    return {key: value for key, value in of().items() if key not in keys}


def put(*path: str | int, value: Any) -> Json:
    """The table with one value, however deep, put in the place of another."""
    found = copy.deepcopy(table())
    at: Any = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return found


V1: Json = {
    "format-version": 1,
    "location": "/t",
    "last-updated-ms": 1,
    "last-column-id": 1,
    "schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]},
    "partition-spec": [],
    "current-snapshot-id": 7,
    "snapshots": [{"snapshot-id": 7, "timestamp-ms": 1_700_000_000_000, "manifests": ["/t/metadata/m0.avro"]}],
}

LOG = [{"snapshot-id": n, "timestamp-ms": snapshot(n)["timestamp-ms"]} for n in (1, 2)]
SPECS = [{"spec-id": 0, "fields": [{"name": "gone", "transform": "identity", "source-id": 77, "field-id": 1000}]}]


def order_by(column: int) -> Json:
    """A sort order by one column."""
    return {
        "order-id": 1,
        "fields": [{"transform": "identity", "source-id": column, "direction": "asc", "null-order": "nulls-first"}],
    }


RIGHT: dict[str, Json] = {
    "version 2": table(),
    "version 3": table(**{"format-version": 3, "next-row-id": 10}),
    "version 1 of its first writers": V1,
    "version 1, nothing written": {**V1, "current-snapshot-id": -1, "snapshots": []},
    "nothing written": empty(),
    "nothing written, and all of it left out": without("current-snapshot-id", "snapshots", "refs", of=empty),
    "nothing written, and no current snapshot": empty(**{"current-snapshot-id": None}),
    "only a branch was written to": empty(
        **{"last-sequence-number": 1, "snapshots": [snapshot(1)], "refs": {"b": {"snapshot-id": 1, "type": "branch"}}}
    ),
    "a parent that has expired": table(snapshots=[snapshot(1), snapshot(2, 99)]),
    "a snapshot of a schema that was cleaned up": table(snapshots=[snapshot(1, **{"schema-id": 5}), snapshot(2, 1)]),
    "a type of tomorrow": put("schemas", 0, "fields", 0, "type", value="vector(3)"),
    "a partition column that was dropped": table(**{"partition-specs": [*SPECS, {"spec-id": 1, "fields": []}], "default-spec-id": 1}),
    "a partition column that was dropped, version 1": {
        **V1,
        "partition-spec": [{"name": "gone", "transform": "void", "source-id": 77, "field-id": 1000}],
    },
    "an order by a nested column": table(**{"sort-orders": [order_by(3)], "default-sort-order-id": 1}),
    "all snapshots expired after CREATE OR REPLACE": empty(**{"last-sequence-number": 3, "snapshot-log": []}),
    "nothing written since CREATE OR REPLACE": table(
        **{"current-snapshot-id": -1, "refs": {}, "snapshot-log": LOG, "last-updated-ms": LOG[-1]["timestamp-ms"] + 5}
    ),
    "a log that names an expired snapshot": table(**{"snapshot-log": [{"snapshot-id": 9, "timestamp-ms": 1}, *LOG]}),
    "no refs": without("refs"),
    "unknown fields": table(**{"row-lineage": True, "encryption-keys": []}),
}

# What is left where the current snapshot was lost.
_LOST: Json = {"current-snapshot-id": None, "refs": {}, "snapshot-log": LOG}
WRONG: dict[str, tuple[Any, str]] = {
    "a list": ([], "the document is a list"),
    "a text": ("x", "the document is 'x'"),
    "null": (None, "the document is missing or null"),
    "nothing in it": ({}, "format-version is missing"),
    "version 99": (table(**{"format-version": 99}), "format-version is 99.*newer icekit"),
    "version 0": (table(**{"format-version": 0}), "format-version is 0.*versions 1 to 3"),
    "version two": (table(**{"format-version": "two"}), "format-version is 'two'"),
    "version null": (table(**{"format-version": None}), "format-version is null"),
    "version true": (table(**{"format-version": True}), "format-version is true"),
    "version 2.0": (table(**{"format-version": 2.0}), r"format-version is 2\.0"),
    "a dangling current snapshot": (
        table(**{"current-snapshot-id": 99, "refs": {}}),
        "current-snapshot-id is 99, which is not in snapshots",
    ),
    "no snapshots for the current one": (without("snapshots", "refs"), "current-snapshot-id is 2, which is not in snapshots"),
    "null snapshots for the current one": (table(snapshots=None, refs={}), "snapshots is missing or null"),
    "empty snapshots for the current one": (table(snapshots=[], refs={}), "current-snapshot-id is 2.*nothing is"),
    "a current snapshot of text": (table(**{"current-snapshot-id": "2"}), "current-snapshot-id is '2', but must be a 64-bit whole number"),
    "no current snapshot for main": (without("current-snapshot-id"), "current-snapshot-id is missing.*refs.main.snapshot-id is 2"),
    "main at another snapshot": (put("refs", "main", "snapshot-id", value=1), "current-snapshot-id is 2.*refs.main.snapshot-id is 1"),
    "a dangling tag": (put("refs", "old", "snapshot-id", value=5), "refs.old.snapshot-id is 5, which is not in snapshots"),
    "a ref without a snapshot": (put("refs", "old", value={"type": "tag"}), "refs.old.snapshot-id is missing"),
    "a ref of no type": (put("refs", "old", "type", value="twig"), "refs.old.type is 'twig'"),
    "a ref of text": (put("refs", "old", value="x"), "refs.old is 'x'"),
    "refs as a list": (table(refs=[]), "refs is a list"),
    "a ref kept for a text": (put("refs", "old", "max-ref-age-ms", value="long"), "refs.old.max-ref-age-ms is 'long'"),
    "snapshots as an object": (table(snapshots={}), "snapshots is an object"),
    "a snapshot of text": (table(snapshots=["x"]), r"snapshots\[0\] is 'x'"),
    "a snapshot without an id": (put("snapshots", 0, "snapshot-id", value=None), r"snapshots\[0\].snapshot-id is missing"),
    "two snapshots of one id": (table(snapshots=[snapshot(2), snapshot(2)], refs={}), r"snapshots\[1\].snapshot-id is 2, but another"),
    "a snapshot without a time": (put("snapshots", 0, "timestamp-ms", value="now"), r"snapshots\[0\].timestamp-ms is 'now'"),
    "a snapshot of a far future": (put("snapshots", 0, "timestamp-ms", value=10**18), r"snapshots\[0\].timestamp-ms is 1000"),
    "an id of too many bits": (put("snapshots", 0, "snapshot-id", value=2**64), r"snapshots\[0\].snapshot-id is 18446744073709551616"),
    "a snapshot without manifests": (put("snapshots", 1, "manifest-list", value=None), r"snapshots\[1\].manifest-list is missing"),
    "a manifest list of a number": (put("snapshots", 1, "manifest-list", value=7), r"snapshots\[1\].manifest-list is 7"),
    "a summary of text": (put("snapshots", 1, "summary", value="x"), r"snapshots\[1\].summary is 'x'"),
    "a summary of numbers": (
        put("snapshots", 1, "summary", "total-data-files", value=1),
        r"summary.total-data-files is 1, but must be a string",
    ),
    "a figure that is none": (put("snapshots", 1, "summary", "total-data-files", value="many"), "summary.total-data-files is 'many'"),
    "a parent of text": (put("snapshots", 1, "parent-snapshot-id", value="1"), r"snapshots\[1\].parent-snapshot-id is '1'"),
    "its own parent": (table(snapshots=[snapshot(1), snapshot(2, 2)]), r"parent-snapshot-id forms a circle \(2 → 2\)"),
    "a circle of two": (table(snapshots=[snapshot(1, 2), snapshot(2, 1)]), r"circle \(1 → 2 → 1\)"),
    "a circle that the table is not in": (
        table(snapshots=[snapshot(1), snapshot(2, 1), snapshot(3, 4), snapshot(4, 3)], **{"last-sequence-number": 4}),
        r"circle \(3 → 4 → 3\)",
    ),
    "a commit after the last": (
        table(**{"last-sequence-number": 1}),
        r"snapshots\[1\].sequence-number is 2, but last-sequence-number is 1",
    ),
    "no last sequence number": (without("last-sequence-number"), "last-sequence-number is missing"),
    "a last sequence number of text": (table(**{"last-sequence-number": "2"}), "last-sequence-number is '2'"),
    "no location": (without("location"), "location is missing"),
    "a location of a number": (table(location=1), "location is 1"),
    "an id of the table that is a number": (table(**{"table-uuid": 5}), "table-uuid is 5"),
    "properties as a list": (table(properties=[]), "properties is a list"),
    "a property of a number": (table(properties={"a": 1}), "properties.a is 1"),
    "no schemas": (without("schemas"), "schemas is empty or missing"),
    "null schemas": (table(schemas=None), "schemas is missing or null"),
    "schemas as an object": (table(schemas={}), "schemas is an object"),
    "a schema of null": (table(schemas=[None]), r"schemas\[0\] is missing or null"),
    "a schema without fields": (put("schemas", 0, "fields", value=None), r"schemas\[0\].fields is missing"),
    "a column without an id": (put("schemas", 0, "fields", 0, "id", value="one"), r"schemas\[0\].fields\[0\].id is 'one'"),
    "a column without a name": (put("schemas", 0, "fields", 0, "name", value=None), r"fields\[0\].name is missing"),
    "a column without a type": (put("schemas", 0, "fields", 0, "type", value=None), r"fields\[0\].type is missing"),
    "a list of nothing": (put("schemas", 0, "fields", 1, "type", "element", value=None), r"fields\[1\].type.element is missing"),
    "a nested type that is none": (put("schemas", 0, "fields", 1, "type", "type", value="heap"), r"fields\[1\].type.type is 'heap'"),
    "two schemas of one id": (table(schemas=table()["schemas"] * 2), r"schemas\[1\].schema-id is 0, but another"),
    "a dangling schema": (table(**{"current-schema-id": 3}), "current-schema-id is 3, which is not in schemas"),
    "no current schema": (without("current-schema-id"), "current-schema-id is missing"),
    "no row id for the next row": (table(**{"format-version": 3}), "next-row-id is missing"),
    "no last partition id": (without("last-partition-id"), "last-partition-id is missing"),
    "no sort orders": (without("sort-orders"), "sort-orders is missing"),
    "no default order": (without("default-sort-order-id"), "default-sort-order-id is missing"),
    "no uuid": (without("table-uuid"), "table-uuid is missing"),
    "no last column id": (without("last-column-id"), "last-column-id is missing"),
    "no time of the last change": (without("last-updated-ms"), "last-updated-ms is missing"),
    "rows without a number of rows": (
        table(snapshots=[snapshot(1), snapshot(2, 1, **{"first-row-id": 0})], **{"format-version": 3, "next-row-id": 1}),
        r"snapshots\[1\].added-rows is missing",
    ),
    "statistics without a path": (table(statistics=[{"snapshot-id": 2}]), r"statistics\[0\].statistics-path is missing"),
    "null properties": (table(properties=None), "properties is missing or null"),
    "no specs": (without("partition-specs"), "partition-specs is empty or missing"),
    "a dangling spec": (table(**{"default-spec-id": 4}), "default-spec-id is 4, which is not in partition-specs"),
    "a spec without an id": (put("partition-specs", 0, "spec-id", value=None), r"partition-specs\[0\].spec-id is missing"),
    "a spec without fields": (put("partition-specs", 0, "fields", value=None), r"partition-specs\[0\].fields is missing"),
    "a partition field of nothing": (put("partition-specs", 0, "fields", 0, "source-id", value=None), r"fields\[0\].source-id is missing"),
    "a partition field by no transform": (put("partition-specs", 0, "fields", 0, "transform", value=1), r"fields\[0\].transform is 1"),
    "a dangling order": (table(**{"default-sort-order-id": 2}), "default-sort-order-id is 2, which is not in sort-orders"),
    "an order without fields": (table(**{"sort-orders": [{"order-id": 0}]}), r"sort-orders\[0\].fields is missing"),
    "an order by no direction": (
        table(**{"sort-orders": [{"order-id": 0, "fields": [{"transform": "identity", "source-id": 1}]}]}),
        r"sort-orders\[0\].fields\[0\].direction is missing",
    ),
    "an order by a list": (
        table(
            **{
                "sort-orders": [
                    {"order-id": 0, "fields": [{"transform": "identity", "source-id": [], "direction": "asc", "null-order": "nulls-first"}]}
                ]
            }
        ),
        r"sort-orders\[0\].fields\[0\].source-id is a list",
    ),
    "snapshots that only the log has": (table(snapshots=[], **_LOST), r"no snapshot is current, but snapshot-log\[0\].snapshot-id is 1"),
    "snapshots of which none is current, and no change since": (
        table(**_LOST),
        r"according to snapshot-log\[1\] the last change .* made 2 the current",
    ),
    "a log of snapshots that are texts": (table(**{"snapshot-log": ["x"]}), r"snapshot-log\[0\] is 'x'"),
    "a partition by no column": (
        put("partition-specs", 0, "fields", 0, "source-id", value=77),
        r"partition-specs\[0\].fields\[0\].source-id is 77, but no column",
    ),
    "a partition by no column, version 1": (
        {**V1, "partition-spec": [{"name": "x", "transform": "identity", "source-id": 77, "field-id": 1000}]},
        r"partition-spec\[0\].source-id is 77",
    ),
    "an order by no column": (
        table(**{"sort-orders": [order_by(77)], "default-sort-order-id": 1}),
        r"sort-orders\[0\].fields\[0\].source-id is 77",
    ),
    "a log of texts": (table(**{"metadata-log": ["x"]}), r"metadata-log\[0\] is 'x'"),
    "version 1 without a schema": ({**V1, "schema": None}, "schemas is empty or missing"),
    "version 1 with a dangling snapshot": ({**V1, "current-snapshot-id": 8}, "current-snapshot-id is 8"),
}

STATISTICS: Json = {
    "statistics": [
        {
            "snapshot-id": 2,
            "statistics-path": "/t/metadata/2.stats",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [
                {
                    "type": "apache-datasketches-theta-v1",
                    "snapshot-id": 2,
                    "sequence-number": 2,
                    "fields": [1],
                    "properties": {"ndv": "3"},
                }
            ],
        }
    ],
    "partition-statistics": [{"snapshot-id": 2, "statistics-path": "/t/metadata/p.parquet", "file-size-in-bytes": 10}],
}
#: Tables that have everything which a required field may be missing from.
#: What each format version has of its own.
_OF_VERSION: dict[int, Json] = {
    1: {
        "schema": table()["schemas"][0],
        "partition-spec": table()["partition-specs"][0]["fields"],
        "snapshots": [{key: value for key, value in each.items() if key != "sequence-number"} for each in (snapshot(1), snapshot(2, 1))],
    },
    2: {},
    3: {"next-row-id": 10, "snapshots": [snapshot(1), snapshot(2, 1, **{"first-row-id": 0, "added-rows": 10})]},
}
_ORDERED: Json = {"sort-orders": [order_by(1)], "default-sort-order-id": 1, "snapshot-log": LOG}
COMPLETE: dict[str, Json] = {
    "version 1 of its first writers": V1,
    **{f"version {number}": table(**{**STATISTICS, **_ORDERED, **own, "format-version": number}) for number, own in _OF_VERSION.items()},
}
# What the parser takes, and icekit cannot do without.
STRICTER = {
    "schemas.schema-id": "several schemas would have no id",
    "snapshots.manifest-list": "no file of the snapshot is known",
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each key in a document, however deep."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from [(*path, key)] if isinstance(value, dict) else []
        yield from places(inner, (*path, key))


def spoiled(document: Json) -> Iterator[tuple[str, Json]]:
    """The document without each of its keys, with null there, and with a value of another kind."""
    for path in places(document):
        name = ".".join(key for key in path if isinstance(key, str))
        if name.startswith(("properties.", "refs.", "snapshots.summary.")):
            continue  # names that a person gives
        for how in ("without", "null for", "another kind for"):
            damaged = copy.deepcopy(document)
            at: Any = damaged
            for step in path[:-1]:
                at = at[step]
            if how == "without":
                del at[path[-1]]
            else:
                at[path[-1]] = None if how.startswith("null") else 77 if isinstance(at[path[-1]], dict | str) else {"a": 1}
            yield f"{how} {name}", damaged


RAW: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "cut short": (json.dumps(table()).encode()[:400], "is not table metadata"),
    "binary": (bytes(range(256)), "is not table metadata"),
    "another encoding": ("ä".encode("latin-1"), "is not table metadata"),
    "gzip of nothing": (b"\x1f\x8b", "is not table metadata"),
    "gzip cut short": (gzip.compress(json.dumps(table()).encode())[:-20], "is not table metadata"),
    "gzip with a byte changed": (gzip.compress(b"x")[:10] + b"\xff\xff" + zlib.compress(b"y"), "is not table metadata"),
    "nested without end": (b"[" * 100_000, "is not table metadata"),
    "a type nested without end": (
        json.dumps(put("schemas", 0, "fields", 1, "type", value="TYPE")).encode().replace(
            b'"TYPE"',
            b'{"type":"list","element-id":3,"element-required":false,"element":' * 900 + b'"string"' + b"}" * 900,
        ),
        "nested more than",
    ),
    "a number without end": (b'{"format-version": ' + b"9" * 10_000 + b"}", "is not table metadata"),
    "a table that is none": (b"{}", "damaged: format-version is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_metadata_that_is_right_is_read(name: str) -> None:
    raw = gzip.compress(json.dumps(RIGHT[name]).encode())

    assert load_metadata(TableSource("/t/v2.metadata.json", lambda _: raw)) == RIGHT[name]


@pytest.mark.parametrize("name", WRONG)
def test_metadata_that_is_wrong_is_refused_with_the_field_and_the_value(name: str) -> None:
    metadata, said = WRONG[name]

    with pytest.raises(Damaged, match=said):
        check(metadata)


@pytest.mark.parametrize("name", RAW)
def test_a_file_that_is_no_metadata_is_refused_by_name_with_the_way_out(name: str) -> None:
    raw, said = RAW[name]

    with pytest.raises(MetadataUnreadable, match=rf"/t/v2.metadata.json.*{said}.*register_table"):
        load_metadata(TableSource("/t/v2.metadata.json", lambda _: raw))


@pytest.mark.spark
@pytest.mark.parametrize("name", COMPLETE)
def test_what_iceberg_refuses_is_refused_and_nothing_else(lake: Lake, name: str) -> None:
    parser = getattr(lake.spark._jvm, "org.apache.iceberg.TableMetadataParser")

    def is_read(by: Callable[[Any], object], document: object, *refusals: type[Exception]) -> bool:
        try:
            by(document)
        except refusals:
            return False
        return True

    differ = [
        f"{what}: Iceberg {'reads' if theirs else 'refuses'} it"
        for what, document in [("complete", COMPLETE[name]), *spoiled(COMPLETE[name])]
        if (theirs := is_read(parser.fromJson, json.dumps(document), *engine_errors())) != is_read(check, document, Damaged)
        and not (theirs and what.endswith(tuple(STRICTER)))
    ]

    assert not differ


@pytest.mark.spark
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_without_a_current_snapshot_is_right_where_iceberg_left_it_so(lake: Lake, scratch: str, version: int) -> None:
    spark, name = lake.spark, f"{lake.name}.{scratch}.current"

    def made(**properties: str) -> Json:
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in {"format-version": str(version), **properties}.items())
        spark.sql(f"CREATE OR REPLACE TABLE {name} (id bigint) USING iceberg TBLPROPERTIES ({pairs})")
        return found()

    def found() -> Json:
        metadata = load_metadata(lake.tables.source((scratch, "current")))
        assert metadata.get("current-snapshot-id") in (None, -1)
        return metadata

    made(**{"write.wap.enabled": "true"})
    with lent(spark, {"spark.wap.id": "staged"}):
        spark.sql(f"INSERT INTO {name} VALUES (1)")
    assert len(found()["snapshots"]) == 1
    spark.sql(f"DROP TABLE {name} PURGE")
    made()
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH b")
    spark.sql(f"INSERT INTO {name}.branch_b VALUES (1)")
    assert set(found()["refs"]) == {"b"}
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    spark.sql(f"INSERT INTO {name} VALUES (2)")
    assert len(made()["snapshot-log"]) == 2
    spark.sql(f"ALTER TABLE {name} DROP BRANCH b")
    spark.sql(f"CALL {lake.name}.system.expire_snapshots(table => '{scratch}.current', older_than => TIMESTAMP '2999-01-01 00:00:00')")
    assert not found()["snapshots"]
    assert "none: the table is empty" in dict(lines(lake.observe((scratch, "current"))))["snapshot"]


@pytest.mark.spark
def test_a_table_that_lost_its_current_snapshot_is_not_healthy(lake: Lake, scratch: str) -> None:
    spark, name = lake.spark, f"{lake.name}.{scratch}.lost"
    spark.sql(f"CREATE TABLE {name} (id bigint) USING iceberg")
    for value in range(3):
        spark.sql(f"INSERT INTO {name} VALUES ({value})")
    written = load_metadata(lake.tables.source((scratch, "lost")))
    lost = {key: value for key, value in written.items() if key not in {"current-snapshot-id", "refs"}}

    for damaged in ({**lost, "snapshots": []}, lost, {**lost, "current-snapshot-id": -1}):
        with pytest.raises(Damaged, match="no snapshot is current"):
            check(damaged)


def test_a_lineage_that_goes_round_ends_with_the_name_of_the_circle() -> None:
    metadata = {"snapshots": [snapshot(n, n - 1 if n > 1 else 9) for n in range(1, 10)]}

    with pytest.raises(Damaged, match=r"9 → 8 → 7 → 6 → 5 → … → 9"):
        list(lineage(snapshots_by_id(metadata), metadata["snapshots"][-1]))


def test_parents_are_walked_in_one_place() -> None:
    package = Path(__file__).parents[2] / "icekit"
    walks = re.compile(r"parentId\(|\.get\([\w.]*get\(\"parent-snapshot-id\"\)\)|ancestorsOf|isAncestorOf")

    assert {path.name for path in package.rglob("*.py") if "while" in (text := path.read_text()) and walks.search(text)} == {"lineage.py"}
