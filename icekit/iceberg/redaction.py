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


class _Typed(Changes):
    """Knows which bounds and partition values are texts."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._types: dict[int, str] = {}
        self._partition_types: dict[int, list[str]] = {}
        self._binary_fields: frozenset[str] = frozenset()

    def begin(self, metadata: Json) -> None:
        for schema in _schemas(metadata):
            self._types |= dict(_types(schema))
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
            field["name"] for field in _partition_fields(_avro_schema(header)) if _is_binary(field)
        )

    def change_bounds(self, file: Json, change: Callable[[bytes, str], bytes]) -> None:
        for name in _BOUNDS:
            for bound in file.get(name) or ():
                kind = self._types.get(bound["key"], "")
                if _is_text(kind):
                    bound["value"] = change(bound["value"], kind)

    def change_partition(self, file: Json, change: Callable[[bytes, str], bytes]) -> None:
        values = file["partition"]
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = change(value.encode(), "string").decode()
            elif isinstance(value, bytes) and name in self._binary_fields:
                values[name] = change(value, "fixed")

    def change_summaries(self, manifest: Json, change: Callable[[bytes, str], bytes]) -> None:
        kinds = self._partition_types.get(manifest["partition_spec_id"], [])
        for summary, kind in zip(manifest.get("partitions") or (), kinds, strict=False):
            for name in ("lower_bound", "upper_bound"):
                if _is_text(kind) and summary.get(name) is not None:
                    summary[name] = change(summary[name], kind)

    def change_paths(self, file: Json, change: Callable[[str], str]) -> None:
        for name in ("file_path", "referenced_data_file"):
            if file.get(name) is not None:
                file[name] = change(file[name])
        for name in _BOUNDS:
            for bound in file.get(name) or ():
                if bound["key"] == PATH_FIELD_ID:
                    bound["value"] = change(bound["value"].decode()).encode()


class Survey(_Typed):
    """Collects every text and file name of a table, for their ranks."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.texts: set[bytes] = set()
        self.folders: set[bytes] = set()
        self.names: set[bytes] = set()

    def change_manifest(self, manifest: avro.Record) -> None:
        self.change_summaries(manifest, self._note)

    def change_entry(self, entry: avro.Record) -> None:
        file = entry["data_file"]
        self.change_bounds(file, self._note)
        self.change_partition(file, self._note)
        self.change_paths(file, self._note_path)

    def _note(self, value: bytes, _: str) -> bytes:
        self.texts.add(value)
        return value

    def _note_path(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        self.folders.add(folder.partition(self.root)[2].encode() + b"/")
        self.names.add(name.encode())
        return path


class Redaction(_Typed):
    """Replaces texts and names in the metadata of the table of a survey."""

    def __init__(self, survey: Survey) -> None:
        super().__init__(survey.root)
        self._texts = _Ranks(survey.texts)
        self._folders = _Ranks(survey.folders)
        self._names = _Ranks(survey.names)
        # They tell which files one task has written.
        self._keeps_names = all(map(_NUMBERED_NAME.fullmatch, survey.names))
        # Without it, nobody can try whether a token is that of a certain name.
        self._salt = secrets.token_bytes(16)
        self._column_names: dict[str, str] = {}

    def begin(self, metadata: Json) -> None:
        super().begin(metadata)
        for schema in _schemas(metadata):
            self._column_names |= dict(_new_names(schema))

    def change_header(self, header: avro.Header) -> avro.Header:
        changed = {key: value for key, value in header.items() if key in _HEADER}
        schema = _avro_schema(header)
        for field in _partition_fields(schema):
            field["name"] = _partition_name(field["name"], field["field-id"])
        changed[avro.SCHEMA] = json.dumps(schema).encode()
        if "schema" in changed:
            table_schema = json.loads(changed["schema"])
            _rename(table_schema)
            changed["schema"] = json.dumps(table_schema).encode()
        if "partition-spec" in changed:
            spec = json.loads(changed["partition-spec"])
            _rename_partitions(spec["fields"] if isinstance(spec, dict) else spec)
            changed["partition-spec"] = json.dumps(spec).encode()
        return changed

    def change_manifest(self, manifest: avro.Record) -> None:
        self.change_summaries(manifest, self._texts.replaced)

    def change_entry(self, entry: avro.Record) -> None:
        file = entry["data_file"]
        self.change_bounds(file, self._texts.replaced)
        self.change_partition(file, self._texts.replaced)
        self.change_paths(file, self._new_path)

    def change_metadata(self, metadata: Json) -> None:
        for schema in _schemas(metadata):
            _rename(schema)
        for spec in metadata.get("partition-specs") or ():
            _rename_partitions(spec["fields"])
        _rename_partitions(metadata.get("partition-spec") or ())
        metadata["properties"] = dict(self._new_properties(metadata.get("properties") or {}))
        for snapshot in metadata.get("snapshots") or ():
            if snapshot.get("summary"):
                snapshot["summary"] = dict(self._new_summary(snapshot["summary"]))
        if refs := metadata.get("refs"):
            metadata["refs"] = {
                name if name == "main" else f"{ref['type']}-{number}": ref
                for number, (name, ref) in enumerate(sorted(refs.items()))
            }

    def _new_path(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        spelling, _, inside = folder.partition(self.root)
        new_name = name
        if not self._keeps_names:
            suffix = _SUFFIX.search(name)
            new_name = self._names.text(name.encode()) + (suffix[0] if suffix else "")
        new_folder = inside if inside.startswith("/elsewhere/") else "/table/data"
        if new_folder == "/table/data":
            new_folder += f"/{self._folders.text(inside.encode() + b'/')}"
        return f"{spelling}{self.root}{new_folder}/{new_name}"

    def _new_properties(self, properties: Json) -> Iterator[tuple[str, str]]:
        for number, (key, value) in enumerate(properties.items()):
            text = str(value)
            of_column = _COLUMN_PROPERTY.fullmatch(key)
            if key == _FILTER_COLUMNS:
                names = [name.strip() for name in text.split(",")]
                yield key, ",".join(self._column_names[n] for n in names if n in self._column_names)
            elif key == _NAME_MAPPING:
                yield key, json.dumps(_new_mapping(json.loads(text)))
            elif key.startswith(_PROPERTIES) and not (
                of_column and of_column[2] not in self._column_names
            ):
                new_key = of_column[1] + self._column_names[of_column[2]] if of_column else key
                yield new_key, text if _PLAIN_VALUE.fullmatch(text) else self._token(text)
            elif len(text) >= _LONG_VALUE:
                # Not of one letter: it would shrink further than a pack may.
                lines = (secrets.token_hex(16).ljust(1024, "x") for _ in range(0, len(text), 1024))
                yield f"redacted.{number}", "".join(lines)[: len(text)]

    def _new_summary(self, summary: Json) -> Iterator[tuple[str, str]]:
        for key, value in summary.items():
            text = str(value)
            if key in _SUMMARY_TEXTS:
                yield key, text
            elif key in _SUMMARY_IDS:
                yield key, self._token(text)
            elif _SUMMARY_FIGURES.fullmatch(key) and _FIGURE.fullmatch(text):
                yield key, text
            elif beginning := next((each for each in _NAMED_KEYS if key.startswith(each)), None):
                yield beginning + self._token(key), text

    def _token(self, text: str) -> str:
        return hashlib.sha256(self._salt + text.encode()).hexdigest()[:16]


class _Ranks:
    """Replaces each of some values by its rank, in a text at least as long."""

    def __init__(self, values: Iterable[bytes]) -> None:
        ordered = sorted(values)
        self._ranks = {value: rank for rank, value in enumerate(ordered, 1)}
        self._digits = len(str(len(ordered)))

    def text(self, value: bytes) -> str:
        """The rank alone."""
        return f"{self._ranks[value]:0{self._digits}}"

    def replaced(self, value: bytes, kind: str) -> bytes:
        """A value of a type that compares with others as this one does; an empty one stays."""
        if not value:
            return value
        if kind.startswith(_BYTES):
            return self._ranks[value].to_bytes(max(len(value), 4), "big")[-len(value) :]
        return self.text(value).ljust(len(value), "x").encode()


def _is_text(kind: str) -> bool:
    return kind.startswith((*_TEXTS, *_BYTES))


def _is_binary(field: Json) -> bool:
    """Tell whether a partition field of an Avro schema has bytes that are no decimal."""
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    for branch in branches:
        kind = branch.get("type") if isinstance(branch, dict) else branch
        is_decimal = isinstance(branch, dict) and branch.get("logicalType") == "decimal"
        if kind in ("bytes", "fixed") and not is_decimal:
            return True
    return False


def _avro_schema(header: avro.Header) -> Any:
    return json.loads(header[avro.SCHEMA])


def _partition_fields(schema: Any) -> list[Json]:
    file = next(field["type"] for field in schema["fields"] if field["name"] == "data_file")
    partition = next(field["type"] for field in file["fields"] if field["name"] == "partition")
    return list(partition["fields"])


def _schemas(metadata: Json) -> list[Json]:
    single = metadata.get("schema")
    return [*(metadata.get("schemas") or ()), *([single] if single else ())]


def _children(kind: Any) -> list[tuple[int, Any]]:
    """The ids and types directly inside a type."""
    if not isinstance(kind, dict):
        return []
    if "fields" in kind:
        return [(field["id"], field["type"]) for field in kind["fields"]]
    parts = [("element-id", "element"), ("key-id", "key"), ("value-id", "value")]
    return [(kind[number], kind[name]) for number, name in parts if number in kind]


def _types(kind: Any) -> Iterator[tuple[int, str]]:
    for number, child in _children(kind):
        if isinstance(child, str):
            yield number, child
        yield from _types(child)


def _new_names(kind: Any, old: str = "", new: str = "") -> Iterator[tuple[str, str]]:
    """The dotted name of each column, and its new one."""
    if not isinstance(kind, dict):
        return
    if "fields" in kind:
        for field in kind["fields"]:
            name = f"{old}{field['name']}"
            new_name = f"{new}{_column_name(field['id'])}"
            yield name, new_name
            yield from _new_names(field["type"], f"{name}.", f"{new_name}.")
    for part in ("element", "key", "value"):
        if part in kind:
            yield f"{old}{part}", f"{new}{part}"
            yield from _new_names(kind[part], f"{old}{part}.", f"{new}{part}.")


def _column_name(number: int) -> str:
    return f"c{number}"


def _rename(kind: Any) -> None:
    """Rename the fields of a schema by their ids, in place, without what a person wrote about
    them.
    """
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        field["name"] = _column_name(field["id"])
        field.pop("doc", None)
        for default in ("initial-default", "write-default"):
            if isinstance(field.get(default), str):
                del field[default]
        _rename(field["type"])
    for part in ("element", "key", "value"):
        _rename(kind.get(part))


def _partition_name(name: str, number: int) -> str:
    return name if name in _PARTITION_NAMES_THAT_STAY else f"p{number}"


def _rename_partitions(fields: Iterable[Json]) -> None:
    for number, field in enumerate(fields, 1000):
        field["name"] = _partition_name(field["name"], field.get("field-id", number))


def _new_mapping(mapping: Any) -> Any:
    return [
        {
            **field,
            "names": [_column_name(field["field-id"])] if "field-id" in field else [],
            **({"fields": _new_mapping(field["fields"])} if field.get("fields") else {}),
        }
        for field in mapping
    ]
