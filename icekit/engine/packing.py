"""Pack a table of a catalog, say what is in the pack, and unpack it into the embedded lake."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.common.sql import Identifier, display_name, identifier, parse_identifier
from icekit.common.units import count, size
from icekit.engine.tables import EmbeddedTables
from icekit.iceberg.pack import Contents, Pack, PackedTable, PackWriter
from icekit.iceberg.redaction import REMAINS

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

_PRIVATE = (
    "names of columns, partitions and branches, table properties, the smallest and largest values "
    "of columns, file names, commit times, engines and the ids of their jobs"
)


@frozen
class Packed:
    """A table that was packed into a file."""

    table: Identifier
    file: Path
    contents: Contents
    has_data: bool
    is_redacted: bool
    size_in_bytes: int

    def __str__(self) -> str:
        files_by_kind = self.contents.file_counts
        kinds_text = ", ".join(
            f"{file_count:,} {kind}" for kind, file_count in files_by_kind.most_common()
        )
        data_note = "with its data" if self.has_data else "metadata only, no row of data"
        text_lines = [
            f"{display_name(self.table)} → {self.file}: {size(self.size_in_bytes)}, {data_note}",
            f"  {count(files_by_kind.total(), 'file')}: {kinds_text}",
        ]
        if missing_paths := self.contents.missing_paths:
            text_lines.append(
                f"  {count(len(missing_paths), 'file')} of the table do not exist: "
                f"{missing_paths[0]}"
            )
        if self.is_redacted:
            text_lines.append(f"  still readable: {REMAINS}")
        else:
            rows_note = "all rows; " if self.has_data else ""
            redact_hint = "" if self.has_data else "; --redact replaces names and texts"
            text_lines.append(f"  it may be private: {rows_note}{_PRIVATE}{redact_hint}")
        text_lines.append(f"Next:  icekit unpack {shlex.quote(str(self.file))}")
        return "\n".join(text_lines)


@frozen
class Unpacked:
    """A table that was unpacked into the embedded lake."""

    table: Identifier
    has_data: bool

    @property
    def command(self) -> str:
        """What to do with it first."""
        return f"icekit look {shlex.quote(display_name(self.table))}"

    def __str__(self) -> str:
        table_name = display_name(self.table)
        missing_note = (
            ""
            if self.has_data
            else " without its data files: look and plan work, a scan or a compaction fails"
        )
        return f"{table_name} is in the embedded lake{missing_note}."


def pack(
    lake: Lake,
    table: str | Identifier,
    file: Path,
    *,
    data: bool = False,
    redact: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Packed:
    """Pack a table into a new file; reads one manifest at a time. ``progress`` gets the number of
    files so far.

    Without ``data``, the pack has what findings and plans are made from. ``redact`` replaces names
    and texts. Raises :class:`~icekit.common.errors.ParameterError` for a file that exists, and
    :class:`~icekit.iceberg.relocation.RelocationRefused` for a table that cannot be packed.
    """
    table_name = lake.identifier(table)
    table_source = lake.tables.source(table_name)
    with PackWriter(file) as writer:
        contents = writer.add(
            table_name,
            table_source.metadata_location,
            table_source.read,
            with_data=data,
            redact=redact,
            report_progress=progress,
        )
    return Packed(table_name, file, contents, data, redact, file.stat().st_size)


def unpack(lake: Lake, file: Path, name: str | Identifier = "") -> tuple[Unpacked, ...]:
    """Unpack all tables of a pack into the embedded lake, a single one under another ``name``.

    Raises :class:`~icekit.common.errors.ParameterError` for a table that is there already, and
    :class:`~icekit.iceberg.pack.PackUnusable` for another file.
    """
    with Pack(file) as archive:
        if name and len(archive.tables) != 1:
            raise ParameterError(
                f"{file} has {count(len(archive.tables), 'table')}, and a name is for one."
            )
        tables_by_name = {table.name: table for table in archive.tables}
        if name:
            new_name = parse_identifier(name) if isinstance(name, str) else name
            tables_by_name = {new_name: archive.tables[0]}
        unpack_into(lake, archive, tables_by_name)
    return tuple(
        Unpacked(table, packed_table.has_data) for table, packed_table in tables_by_name.items()
    )


def unpack_into(
    lake: Lake,
    archive: Pack,
    tables_by_name: dict[Identifier, PackedTable],
    *,
    replace: bool = False,
    progress: Callable[[Identifier], None] | None = None,
) -> None:
    """Unpack tables under their names into the embedded lake: all files first, then the catalog's
    rows. A table of that name is replaced with ``replace``, and refused without.
    """
    embedded_tables = lake.tables
    if not isinstance(embedded_tables, EmbeddedTables):
        raise ParameterError(
            f"Tables are unpacked into the embedded lake, not into catalog {lake.name!r}. Leave "
            "out --catalog."
        )
    existing_names = embedded_tables.existing_names()
    for table_name in tables_by_name:
        if len(table_name) < 2:
            raise ParameterError(f"{display_name(table_name)} has no namespace; write db.table.")
        if table_name in existing_names and not replace:
            raise ParameterError(
                f"{display_name(table_name)} exists in the lake {embedded_tables.path}. Give "
                "another name with --name."
            )
    archive.check_space(tables_by_name.values(), embedded_tables.path)
    for table_name, packed_table in tables_by_name.items():
        metadata_location = archive.unpack(
            packed_table, table_folder(embedded_tables.path, table_name), replace=replace
        )
        embedded_tables.register(lake.name, {table_name: metadata_location}, replace=replace)
        if lake.spark_is_running:
            lake.spark.sql(f"REFRESH TABLE {identifier(lake.name, *table_name)}")
        if progress:
            progress(table_name)


def table_folder(lake_path: Path, table_name: Identifier) -> Path:
    """The folder of a table in the embedded lake; no part of a name leads out of it."""
    folder_names = [re.sub(r"[^\w.-]|^\.+", "_", name_part) for name_part in table_name]
    return lake_path.joinpath("warehouse", *folder_names)
