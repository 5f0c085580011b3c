"""Avro schemas of a test's own."""

from typing import Any


def record_type(name: str, **fields: Any) -> dict[str, Any]:
    """A record of these fields."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def array_type(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


PAIR = record_type("pair", key="int", value="bytes")
