"""The key fields of equality deletes, found in a table's schemas by their ids."""

from __future__ import annotations

from typing import Any

from icekit.iceberg.key_fields import field_path, misread_fields
from icekit.iceberg.metadata import schema_of
from icekit.rows.deletes.keys import delete_keys, with_fields


def field(field_id: int, name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "required": False, "type": kind, **more}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def table(*schemas: dict[str, Any]) -> dict[str, Any]:
    """A table whose last schema is the current one."""
    numbered = [{**schema, "schema-id": number} for number, schema in enumerate(schemas)]
    return {"schemas": numbered, "current-schema-id": len(schemas) - 1}


NESTED = struct(field(1, "id"), field(2, "s", struct(field(3, "k", required=True), field(4, "x"))))
WITHOUT_LEAF = struct(field(1, "id"), field(2, "s", struct(field(4, "x"))))
WITHOUT_STRUCT = struct(field(1, "id"), field(5, "S"))


def names_of(metadata: Any, field_id: int) -> list[str]:
    path = field_path(schema_of(metadata)["fields"], field_id)
    assert path is not None
    return [step["name"] for step in path]


def test_nothing_changes_where_the_current_schema_has_every_field() -> None:
    metadata = table(NESTED)

    assert with_fields(metadata, [1, 3]) is metadata


def test_a_dropped_field_comes_back_at_its_place() -> None:
    extended = with_fields(table(NESTED, WITHOUT_LEAF), [3])

    assert names_of(extended, 3) == ["s", "k"]
    assert schema_of(extended)["schema-id"] == 2
    assert not delete_keys(extended, [3]).columns[3].is_required


def test_a_dropped_struct_comes_back_with_that_field_alone_under_a_name_that_is_free() -> None:
    extended = with_fields(table(NESTED, WITHOUT_STRUCT), [3])

    assert names_of(extended, 3) == ["s_", "k"]
    assert field_path(schema_of(extended)["fields"], 4) is None


def test_a_field_that_no_schema_has_stays_missing() -> None:
    metadata = table(NESTED)

    assert with_fields(metadata, [9]) is metadata


def test_readers_misread_what_is_inside_a_struct_and_what_they_cannot_find() -> None:
    assert misread_fields(table(NESTED), [1, 3, 9], reads_dropped_keys=True) == {3: "s.k", 9: "9"}
    dropped = table(struct(field(1, "id"), field(2, "k")), struct(field(1, "id")))

    assert misread_fields(dropped, [2], reads_dropped_keys=True) == {}
    assert misread_fields(dropped, [2], reads_dropped_keys=False) == {2: "k"}
