"""Find the key fields of equality deletes in the schemas of a table, and name those by which
readers disagree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from icekit.common.sql import display_name
from icekit.iceberg.metadata import Json, schema_of, schemas_of


def field_path(fields: Sequence[Json], field_id: int) -> tuple[Json, ...] | None:
    """The fields from the outermost to the one with the id, through structs only."""
    for field in fields:
        if field["id"] == field_id:
            return (field,)
        field_type = field["type"]
        if (
            isinstance(field_type, Mapping)
            and field_type.get("type") == "struct"
            and (inner_path := field_path(field_type["fields"], field_id))
        ):
            return (field, *inner_path)
    return None


def field_paths(metadata: Json, field_id: int) -> Iterator[tuple[Json, ...]]:
    """The paths to a field in the schemas that have it, the current one first, then the newest."""
    schemas_newest_first = sorted(
        schemas_of(metadata), key=lambda schema: int(schema.get("schema-id", 0)), reverse=True
    )
    for schema in (schema_of(metadata), *schemas_newest_first):
        schema_path = field_path(schema["fields"], field_id)
        if schema_path is not None:
            yield schema_path


def is_read_correctly(depth: int, type_name: object, *, has_column: bool) -> bool:
    """Whether Iceberg's own reader applies deletes by a key field rightly in every query, if it
    finds a column of its id at the top level.

    Of a field inside a struct (of a ``depth`` above 1), the reader finds the value only where the
    query reads the struct with that field (DeleteFilter.fileProjection adds what is missing at the
    top level). Of several ``fixed`` keys in a delete file, it applies only the last.
    """
    return has_column and depth == 1 and not str(type_name).startswith("fixed")


def misread_fields(
    metadata: Json, field_ids: Iterable[int], *, reads_dropped_keys: bool
) -> Mapping[int, str]:
    """The key fields for which :func:`is_read_correctly` is false, each with its dotted name (its
    id, if no schema has it); ``reads_dropped_keys`` says whether Iceberg's own reader finds
    top-level columns that were dropped.
    """
    current_fields = schema_of(metadata)["fields"]
    names_by_id: dict[int, str] = {}
    for field_id in sorted(set(field_ids)):
        key_path = next(field_paths(metadata, field_id), ())
        has_column = field_path(current_fields, field_id) is not None or reads_dropped_keys
        if key_path and is_read_correctly(
            len(key_path), key_path[-1]["type"], has_column=has_column
        ):
            continue
        names_by_id[field_id] = display_name([str(field["name"]) for field in key_path]) or str(
            field_id
        )
    return names_by_id
