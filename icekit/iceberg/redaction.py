"""Replace what metadata says in words: names of columns, text in bounds and partitions, file names.

Texts become their rank among all texts of the table, so that they compare as before: findings and
plans stay the same. Numbers, dates, times, types and sizes stay.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from icekit.iceberg import PATH_FIELD_ID, avro
from icekit.iceberg.metadata import leaves
from icekit.iceberg.relocation import Changes, Json

#: What stays readable in a redacted pack.
REMAINS = (
    "types of columns, numbers, dates and times in bounds and partitions, counts, sizes, commit "
    "times, engines and their versions"
)

_TEXTS = ("string", "binary")
_BYTES = ("uuid", "fixed")
_BOUNDS = ("lower_bounds", "upper_bounds")
# Names of partition fields that matter by themselves: columns of Iceberg's metadata table
# position_deletes, which fails on them.
_PARTITION_NAMES_THAT_STAY = frozenset(
    "file_path pos row partition spec_id delete_file_path content_offset content_size_in_bytes".split()
)
# A name of a file as engines give it: numbers and random ids.
_NUMBERED_NAME = re.compile(
    rb"(?:(?:[0-9a-f]+|data|deletes)(?:[-_]|$|(?=\.)))*(?:\.(?:parquet|avro|orc|puffin))?"
)
_SUFFIX = re.compile(r"\.(?:parquet|avro|orc|puffin)$")
_HEADER = frozenset(
    "avro.schema avro.codec schema schema-id partition-spec partition-spec-id format-version "
    "content".split()
)
_PROPERTIES = (
    *("write.", "read.", "commit.", "history.", "gc.", "compatibility.", "engine."),
    # Of other services that maintain tables.
    *("self-optimizing.", "delta.", "databricks.", "snowflake."),
)
_PLAIN_VALUE = re.compile(r"true|false|-?[0-9.]+|[a-z-]+(?:\([0-9]+\))?|/icekit-pack/.*")
_COLUMN_PROPERTY = re.compile(r"(.*\.column\.)(.+)")
_NAME_MAPPING = "schema.name-mapping.default"
_FILTER_COLUMNS = "icekit.filter-columns"
# A long value makes metadata heavy, whatever it says.
_LONG_VALUE = 1024
_FIGURE = re.compile(r"-?[0-9]+|true|false")
_SUMMARY_TEXTS = frozenset("operation engine-name engine-version iceberg-version".split())
_SUMMARY_IDS = frozenset(
    "spark.app.id app-id flink.job-id flink.operator-id wap.id published-wap-id".split()
)
# Keys with numbers, and with a name behind their beginnings.
_SUMMARY_FIGURES = re.compile(r"[a-z]+(?:-[a-z]+)*|flink\.max-committed-checkpoint-id")
_NAMED_KEYS = ("partitions.", "kafka.connect.offsets.")


class _TypedChanges(Changes):
    """Knows which bounds and partition values are texts."""

    def __init__(self, root_folder: str) -> None:
        self.root_folder = root_folder
        self._types: dict[int, str] = {}
        self._partition_types: dict[int, list[str]] = {}
        self._binary_fields: frozenset[str] = frozenset()

    def begin_table(self, metadata: Json) -> None:
        for schema in _schemas(metadata):
            self._types |= {leaf.field_id: leaf.type for leaf in leaves(schema)}
        specs = metadata.get("partition-specs") or [
            {"spec-id": 0, "fields": metadata.get("partition-spec") or []}
        ]
        self._partition_types = {
            spec["spec-id"]: [self._partition_type(field) for field in spec["fields"]]
            for spec in specs
        }

    def _partition_type(self, field: Json) -> str:
        is_source_type = field["transform"].partition("[")[0] in ("identity", "truncate")
        return self._types.get(field.get("source-id", -1), "") if is_source_type else "int"

    def begin_manifest(self, header: avro.Header) -> None:
        self._binary_fields = frozenset(
            field["name"]
            for field in _partition_fields(_avro_schema(header))
            if _is_binary_field(field)
        )

    def change_bounds(self, file_entry: Json, change_value: Callable[[bytes, str], bytes]) -> None:
        for bounds_field in _BOUNDS:
            for bound in file_entry.get(bounds_field) or ():
                type_name = self._types.get(bound["key"], "")
                if _is_text_type(type_name):
                    bound["value"] = change_value(bound["value"], type_name)

    def change_partition(
        self, file_entry: Json, change_value: Callable[[bytes, str], bytes]
    ) -> None:
        partition_values = file_entry["partition"]
        for field_name, value in partition_values.items():
            if isinstance(value, str):
                partition_values[field_name] = change_value(value.encode(), "string").decode()
            elif isinstance(value, bytes) and field_name in self._binary_fields:
                partition_values[field_name] = change_value(value, "fixed")

    def change_summaries(self, manifest: Json, change_value: Callable[[bytes, str], bytes]) -> None:
        type_names = self._partition_types.get(manifest["partition_spec_id"], [])
        for field_summary, type_name in zip(
            manifest.get("partitions") or (), type_names, strict=False
        ):
            for bound_field in ("lower_bound", "upper_bound"):
                if _is_text_type(type_name) and field_summary.get(bound_field) is not None:
                    field_summary[bound_field] = change_value(field_summary[bound_field], type_name)

    def change_paths(self, file_entry: Json, change_path: Callable[[str], str]) -> None:
        for field_name in ("file_path", "referenced_data_file"):
            if file_entry.get(field_name) is not None:
                file_entry[field_name] = change_path(file_entry[field_name])
        for field_name in _BOUNDS:
            for bound in file_entry.get(field_name) or ():
                if bound["key"] == PATH_FIELD_ID:
                    bound["value"] = change_path(bound["value"].decode()).encode()


class Survey(_TypedChanges):
    """Collects every text and file name of a table, for their ranks."""

    def __init__(self, root_folder: str) -> None:
        super().__init__(root_folder)
        self.texts: set[bytes] = set()
        self.folders: set[bytes] = set()
        self.file_names: set[bytes] = set()

    def change_manifest(self, manifest: avro.Record) -> None:
        self.change_summaries(manifest, self._note_text)

    def change_entry(self, entry: avro.Record) -> None:
        file_entry = entry["data_file"]
        self.change_bounds(file_entry, self._note_text)
        self.change_partition(file_entry, self._note_text)
        self.change_paths(file_entry, self._note_path)

    def _note_text(self, text_bytes: bytes, _: str) -> bytes:
        self.texts.add(text_bytes)
        return text_bytes

    def _note_path(self, path: str) -> str:
        folder, _, file_name = path.rpartition("/")
        self.folders.add(folder.partition(self.root_folder)[2].encode() + b"/")
        self.file_names.add(file_name.encode())
        return path


class Redaction(_TypedChanges):
    """Replaces texts and names in the metadata of the table of a survey."""

    def __init__(self, survey: Survey) -> None:
        super().__init__(survey.root_folder)
        self._text_ranks = _Ranks(survey.texts)
        self._folder_ranks = _Ranks(survey.folders)
        self._name_ranks = _Ranks(survey.file_names)
        # They tell which files one task has written.
        self._keeps_names = all(map(_NUMBERED_NAME.fullmatch, survey.file_names))
        # Without it, nobody can try whether a token is that of a certain name.
        self._salt = secrets.token_bytes(16)
        self._column_names: dict[str, str] = {}

    def begin_table(self, metadata: Json) -> None:
        super().begin_table(metadata)
        for schema in _schemas(metadata):
            self._column_names |= dict(_new_column_names(schema))

    def change_header(self, header: avro.Header) -> avro.Header:
        new_header = {key: value for key, value in header.items() if key in _HEADER}
        avro_schema = _avro_schema(header)
        for partition_field in _partition_fields(avro_schema):
            partition_field["name"] = _redacted_partition_name(
                partition_field["name"], partition_field["field-id"]
            )
        new_header[avro.SCHEMA] = json.dumps(avro_schema).encode()
        if "schema" in new_header:
            table_schema = json.loads(new_header["schema"])
            _rename_columns(table_schema)
            new_header["schema"] = json.dumps(table_schema).encode()
        if "partition-spec" in new_header:
            partition_spec = json.loads(new_header["partition-spec"])
            _rename_partition_fields(
                partition_spec["fields"] if isinstance(partition_spec, dict) else partition_spec
            )
            new_header["partition-spec"] = json.dumps(partition_spec).encode()
        return new_header

    def change_manifest(self, manifest: avro.Record) -> None:
        self.change_summaries(manifest, self._text_ranks.replacement)

    def change_entry(self, entry: avro.Record) -> None:
        file_entry = entry["data_file"]
        self.change_bounds(file_entry, self._text_ranks.replacement)
        self.change_partition(file_entry, self._text_ranks.replacement)
        self.change_paths(file_entry, self._new_path)

    def change_metadata(self, metadata: Json) -> None:
        for schema in _schemas(metadata):
            _rename_columns(schema)
        for spec in metadata.get("partition-specs") or ():
            _rename_partition_fields(spec["fields"])
        _rename_partition_fields(metadata.get("partition-spec") or ())
        metadata["properties"] = dict(self._new_properties(metadata.get("properties") or {}))
        for snapshot in metadata.get("snapshots") or ():
            if snapshot.get("summary"):
                snapshot["summary"] = dict(self._new_summary(snapshot["summary"]))
        if refs := metadata.get("refs"):
            metadata["refs"] = {
                ref_name if ref_name == "main" else f"{ref['type']}-{ref_number}": ref
                for ref_number, (ref_name, ref) in enumerate(sorted(refs.items()))
            }

    def _new_path(self, path: str) -> str:
        folder, _, file_name = path.rpartition("/")
        path_prefix, _, inner_folder = folder.partition(self.root_folder)
        new_file_name = file_name
        if not self._keeps_names:
            suffix_match = _SUFFIX.search(file_name)
            new_file_name = self._name_ranks.rank_text(file_name.encode()) + (
                suffix_match[0] if suffix_match else ""
            )
        new_folder = inner_folder if inner_folder.startswith("/elsewhere/") else "/table/data"
        if new_folder == "/table/data":
            new_folder += f"/{self._folder_ranks.rank_text(inner_folder.encode() + b'/')}"
        return f"{path_prefix}{self.root_folder}{new_folder}/{new_file_name}"

    def _new_properties(self, properties: Json) -> Iterator[tuple[str, str]]:
        for property_number, (key, value) in enumerate(properties.items()):
            value_text = str(value)
            column_match = _COLUMN_PROPERTY.fullmatch(key)
            if key == _FILTER_COLUMNS:
                column_names = [column_name.strip() for column_name in value_text.split(",")]
                yield (
                    key,
                    ",".join(
                        self._column_names[n] for n in column_names if n in self._column_names
                    ),
                )
            elif key == _NAME_MAPPING:
                yield key, json.dumps(_new_name_mapping(json.loads(value_text)))
            elif key.startswith(_PROPERTIES) and not (
                column_match and column_match[2] not in self._column_names
            ):
                new_key = (
                    column_match[1] + self._column_names[column_match[2]] if column_match else key
                )
                yield (
                    new_key,
                    value_text
                    if _PLAIN_VALUE.fullmatch(value_text)
                    else self._hashed_text(value_text),
                )
            elif len(value_text) >= _LONG_VALUE:
                # Not of one letter: it would shrink further than a pack may.
                filler_blocks = (
                    secrets.token_hex(16).ljust(1024, "x") for _ in range(0, len(value_text), 1024)
                )
                yield f"redacted.{property_number}", "".join(filler_blocks)[: len(value_text)]

    def _new_summary(self, summary: Json) -> Iterator[tuple[str, str]]:
        for key, value in summary.items():
            value_text = str(value)
            if key in _SUMMARY_TEXTS:
                yield key, value_text
            elif key in _SUMMARY_IDS:
                yield key, self._hashed_text(value_text)
            elif _SUMMARY_FIGURES.fullmatch(key) and _FIGURE.fullmatch(value_text):
                yield key, value_text
            elif key_prefix := next(
                (
                    candidate_prefix
                    for candidate_prefix in _NAMED_KEYS
                    if key.startswith(candidate_prefix)
                ),
                None,
            ):
                yield key_prefix + self._hashed_text(key), value_text

    def _hashed_text(self, text: str) -> str:
        return hashlib.sha256(self._salt + text.encode()).hexdigest()[:16]


class _Ranks:
    """Replaces each of some values by its rank, in a text at least as long."""

    def __init__(self, values: Iterable[bytes]) -> None:
        sorted_values = sorted(values)
        self._ranks = {value: rank for rank, value in enumerate(sorted_values, 1)}
        self._digits = len(str(len(sorted_values)))

    def rank_text(self, value: bytes) -> str:
        """The rank alone."""
        return f"{self._ranks[value]:0{self._digits}}"

    def replacement(self, value: bytes, type_name: str) -> bytes:
        """A value of a type that compares with others as this one does; an empty one stays."""
        if not value:
            return value
        if type_name.startswith(_BYTES):
            return self._ranks[value].to_bytes(max(len(value), 4), "big")[-len(value) :]
        return self.rank_text(value).ljust(len(value), "x").encode()


def _is_text_type(type_name: str) -> bool:
    return type_name.startswith((*_TEXTS, *_BYTES))


def _is_binary_field(partition_field: Json) -> bool:
    """Tell whether a partition field of an Avro schema has bytes that are no decimal."""
    union_branches = (
        partition_field["type"]
        if isinstance(partition_field["type"], list)
        else [partition_field["type"]]
    )
    for union_branch in union_branches:
        branch_type = union_branch.get("type") if isinstance(union_branch, dict) else union_branch
        is_decimal = isinstance(union_branch, dict) and union_branch.get("logicalType") == "decimal"
        if branch_type in ("bytes", "fixed") and not is_decimal:
            return True
    return False


def _avro_schema(header: avro.Header) -> Any:
    return json.loads(header[avro.SCHEMA])


def _partition_fields(entry_schema: Any) -> list[Json]:
    file_schema = next(
        field["type"] for field in entry_schema["fields"] if field["name"] == "data_file"
    )
    partition_schema = next(
        field["type"] for field in file_schema["fields"] if field["name"] == "partition"
    )
    return list(partition_schema["fields"])


def _schemas(metadata: Json) -> list[Json]:
    single_schema = metadata.get("schema")
    return [*(metadata.get("schemas") or ()), *([single_schema] if single_schema else ())]


def _new_column_names(
    nested_type: Any, old_prefix: str = "", new_prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """The dotted name of each column, and its new one."""
    if not isinstance(nested_type, dict):
        return
    if "fields" in nested_type:
        for field in nested_type["fields"]:
            old_name = f"{old_prefix}{field['name']}"
            new_name = f"{new_prefix}{_redacted_column_name(field['id'])}"
            yield old_name, new_name
            yield from _new_column_names(field["type"], f"{old_name}.", f"{new_name}.")
    for part_name in ("element", "key", "value"):
        if part_name in nested_type:
            yield f"{old_prefix}{part_name}", f"{new_prefix}{part_name}"
            yield from _new_column_names(
                nested_type[part_name], f"{old_prefix}{part_name}.", f"{new_prefix}{part_name}."
            )


def _redacted_column_name(field_id: int) -> str:
    return f"c{field_id}"


def _rename_columns(nested_type: Any) -> None:
    """Rename the fields of a schema by their ids, in place, without what a person wrote about
    them.
    """
    if not isinstance(nested_type, dict):
        return
    for field in nested_type.get("fields") or ():
        field["name"] = _redacted_column_name(field["id"])
        field.pop("doc", None)
        for default_key in ("initial-default", "write-default"):
            if isinstance(field.get(default_key), str):
                del field[default_key]
        _rename_columns(field["type"])
    for part_name in ("element", "key", "value"):
        _rename_columns(nested_type.get(part_name))


def _redacted_partition_name(field_name: str, field_id: int) -> str:
    return field_name if field_name in _PARTITION_NAMES_THAT_STAY else f"p{field_id}"


def _rename_partition_fields(partition_fields: Iterable[Json]) -> None:
    for default_id, partition_field in enumerate(partition_fields, 1000):
        partition_field["name"] = _redacted_partition_name(
            partition_field["name"], partition_field.get("field-id", default_id)
        )


def _new_name_mapping(name_mapping: Any) -> Any:
    return [
        {
            **mapped_field,
            "names": [_redacted_column_name(mapped_field["field-id"])]
            if "field-id" in mapped_field
            else [],
            **(
                {"fields": _new_name_mapping(mapped_field["fields"])}
                if mapped_field.get("fields")
                else {}
            ),
        }
        for mapped_field in name_mapping
    ]
