"""Metadata that is damaged is refused with the field and the value, and what is right is read in
every format version.
"""

import copy
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import icekit
from icekit.api import Lake
from icekit.common.errors import MetadataUnreadable
from icekit.engine.bridge import temporary_settings
from icekit.engine.errors import engine_errors
from icekit.engine.tables import TableSource
from icekit.health.facts.metadata_file import check, load_metadata
from icekit.iceberg.metadata import Damaged
from icekit.show.card import named_fact_sentences

Json = dict[str, Any]


KNOWN: dict[str, Json] = yaml.safe_load(Path(__file__).with_name("metadata.yaml").read_text())


def case(
    document: Any = KNOWN, of: str = "table", put: Json | None = None, without: Sequence[str] = ()
) -> Any:
    """A document, or one of those that are known with values put in and left out by their path."""
    if document is not KNOWN:
        return document
    made = copy.deepcopy(KNOWN["documents"][of])
    for path in [*(put or {}), *without]:
        at, steps = made, [int(step) if step.isdigit() else step for step in path.split("/")]
        for step in steps[:-1]:
            at = at[step]
        if put and path in put:
            at[steps[-1]] = put[path]
        else:
            del at[steps[-1]]
    return made


TABLE, V1 = case(), case(of="v1")
RIGHT = {name: case(**how) for name, how in KNOWN["right"].items()}
WRONG = {name: (how.pop("said"), case(**how)) for name, how in KNOWN["wrong"].items()}


FIRST, SECOND = TABLE["snapshots"]
#: What each format version has of its own.
_OF_VERSION: dict[int, Json] = {
    1: {
        "schema": case()["schemas"][0],
        "partition-spec": case()["partition-specs"][0]["fields"],
        "snapshots": [
            {k: v for k, v in each.items() if k != "sequence-number"} for each in (FIRST, SECOND)
        ],
    },
    2: {},
    3: {"next-row-id": 10, "snapshots": [FIRST, {**SECOND, "first-row-id": 0, "added-rows": 10}]},
}
COMPLETE: dict[str, Json] = {
    "version 1 of its first writers": V1,
    **{
        f"version {n}": {**TABLE, **KNOWN["more"], **own, "format-version": n}
        for n, own in _OF_VERSION.items()
    },
}
# What the parser takes, and icekit cannot do without.
STRICTER = {
    "schemas.schema-id": "several schemas would have no id",
    "snapshots.manifest-list": "no file of the snapshot is known",
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each key in a document, however deep."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
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
                at[path[-1]] = (
                    None
                    if how.startswith("null")
                    else 77
                    if isinstance(at[path[-1]], dict | str)
                    else {"a": 1}
                )
            yield f"{how} {name}", damaged


RAW: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "cut short": (json.dumps(TABLE).encode()[:400], "is not table metadata"),
    "binary": (bytes(range(256)), "is not table metadata"),

    "gzip of nothing": (b"\x1f\x8b", "is not table metadata"),
    "gzip cut short": (gzip.compress(json.dumps(TABLE).encode())[:-20], "is not table metadata"),
    "gzip with a byte changed": (gzip.compress(b"x")[:10] + b"\xff\xff" + zlib.compress(b"y"), "is not table metadata"),
    "nested without end": (b"[" * 100_000, "is not table metadata"),
    "a type nested without end": (
        json.dumps(case(put={"schemas/0/fields/1/type": "TYPE"})).encode().replace(
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
    said, metadata = WRONG[name]

    with pytest.raises(Damaged, match=said):
        check(metadata)


@pytest.mark.parametrize("name", RAW)
def test_a_file_that_is_no_metadata_is_refused_by_name_with_the_way_out(name: str) -> None:
    raw, said = RAW[name]

    with pytest.raises(MetadataUnreadable, match=rf"/t/v2.metadata.json.*{said}.*register_table"):
        load_metadata(TableSource("/t/v2.metadata.json", lambda _: raw))


@pytest.mark.parametrize("number", [4, 99])
def test_a_later_format_version_is_named_and_nothing_is_said_that_would_lose_commits(
    number: int,
) -> None:
    raw = json.dumps(case(put={"format-version": number})).encode()

    with pytest.raises(MetadataUnreadable) as raised:
        load_metadata(TableSource("/t/v2.metadata.json", lambda _: raw))

    assert str(raised.value) == (
        f"/t/v2.metadata.json has format version {number}, which icekit {icekit.__version__} does "
        "not read. Use a newer icekit."
    )


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
        if (theirs := is_read(parser.fromJson, json.dumps(document), *engine_errors()))
        != is_read(check, document, Damaged)
        and not (theirs and what.endswith(tuple(STRICTER)))
    ]

    assert not differ


@pytest.mark.spark
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_without_a_current_snapshot_is_right_where_iceberg_left_it_so(
    lake: Lake, scratch: str, version: int
) -> None:
    spark, name = lake.spark, f"{lake.name}.{scratch}.current"

    def made(**properties: str) -> Json:
        pairs = ", ".join(
            f"'{key}' = '{value}'"
            for key, value in {"format-version": str(version), **properties}.items()
        )
        spark.sql(
            f"CREATE OR REPLACE TABLE {name} (id bigint) USING iceberg TBLPROPERTIES ({pairs})"
        )
        return found()

    def found() -> Json:
        metadata = load_metadata(lake.tables.source((scratch, "current")))
        assert metadata.get("current-snapshot-id") in (None, -1)
        return metadata

    made(**{"write.wap.enabled": "true"})
    with temporary_settings(spark, {"spark.wap.id": "staged"}):
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
    spark.sql(
        f"CALL {lake.name}.system.expire_snapshots(table => '{scratch}.current', older_than => "
        "TIMESTAMP '2999-01-01 00:00:00')"
    )
    assert not found()["snapshots"]
    assert (
        "none: the table is empty"
        in dict(named_fact_sentences(lake.observe((scratch, "current"))))["snapshot"]
    )


def test_parents_are_walked_in_one_place() -> None:
    package = Path(__file__).parents[2] / "icekit"
    walks = re.compile(
        r"parentId\(|\.get\([\w.]*get\(\"parent-snapshot-id\"\)\)|ancestorsOf|isAncestorOf"
    )

    assert {
        path.name
        for path in package.rglob("*.py")
        if "while" in (text := path.read_text()) and walks.search(text)
    } == {"metadata.py"}
