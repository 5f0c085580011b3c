"""Find the tables that name given files, however they spell them: exactly by a query, and first,
without one, by folders.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icekit.common import frozen
from icekit.common.errors import MetadataUnreadable
from icekit.common.sql import Identifier, literal
from icekit.engine.metadata_tables import frame_of_paths, metadata_table
from icekit.health.facts.metadata_file import load_metadata
from icekit.health.storage.orphans import (
    declared_paths,
    manifests_of,
    paths_in_manifests,
    referenced_files,
)
from icekit.iceberg.dropped_fields import fields_blocking_files_table_of
from icekit.iceberg.metadata import Json, directly_named_files
from icekit.iceberg.paths import (
    LOCAL,
    folder_of,
    has_common_folder,
    is_local_sql,
    normal_path_of,
    normal_path_sql,
    symbolic_link_targets,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.lake import Lake
    from icekit.engine.tables import TableSource

#: Choices: the most snapshots, and bytes of manifests, that are read without Spark.
_MOST_SNAPSHOTS = 64
_MOST_MANIFEST_BYTES = 1 << 24
#: Choices: the most folders outside a table's own that are told apart, and the most local folders.
_MOST_FOLDERS = 100
_MOST_LOCAL_FOLDERS = 100_000


@frozen
class Folders:
    """Folders, in normal form, of which one holds each of some files; ``local_folders`` are those
    that links may lead out of, which are all told apart.
    """

    other_folders: frozenset[str] = frozenset()
    local_folders: frozenset[str] = frozenset()

    def resolved_folders(self) -> frozenset[str]:
        """All folders, and those that links lead to, as they are now."""
        targets_by_link = symbolic_link_targets(self.local_folders)
        target_folders = {
            link_target if link_path in self.local_folders else folder_of(link_target)
            for link_path, link_target in targets_by_link.items()
        }
        return self.other_folders | self.local_folders | target_folders


#: All files: there are too many folders.
_ANYWHERE = Folders(frozenset({"/"}))


def folders_of(paths: Iterable[str], table_paths: Sequence[str]) -> Folders:
    """The folders of some paths; those below ``table_paths`` (:func:`declared_paths`) count as
    these, except local ones.
    """
    table_roots = _table_roots(table_paths)
    local_folders = set[str]()
    other_folders = set[str]()
    for location in paths:
        storage_kind, _, path = normal_path_of(location)
        folder = folder_of(path)
        if storage_kind in LOCAL:
            local_folders.add(folder)
        else:
            other_folders.add(
                next((root for root in table_roots if f"{folder}/".startswith(f"{root}/")), folder)
            )
    return _bounded_folders(other_folders, local_folders)


def folders_in_frame(files: DataFrame, table_paths: Sequence[str]) -> Folders:
    """The same for the ``file_path`` of a data frame."""
    folder_sql = "regexp_extract(path, '^(.*)/', 1) AS folder"
    folder_rows = files.selectExpr(
        f"{is_local_sql('file_path')} AS is_local", f"{normal_path_sql('file_path')} AS path"
    ).selectExpr("is_local", folder_sql)
    root_pairs = ((literal(f"{root}/"), literal(root)) for root in _table_roots(table_paths))
    cases_sql = " ".join(
        f"WHEN startswith(concat(folder, '/'), {prefix_sql}) THEN {root_sql}"
        for prefix_sql, root_sql in root_pairs
    )
    case_sql = f"CASE WHEN is_local THEN folder {cases_sql} ELSE folder END AS folder"
    distinct_rows = (
        folder_rows.selectExpr("is_local", case_sql)
        .distinct()
        .limit(_MOST_LOCAL_FOLDERS + 1)
        .collect()
    )
    if len(distinct_rows) > _MOST_LOCAL_FOLDERS:
        return _ANYWHERE
    folders_by_locality = {
        is_local: {str(row[1]) or "/" for row in distinct_rows if row[0] == is_local}
        for is_local in (True, False)
    }
    return _bounded_folders(folders_by_locality[False], folders_by_locality[True])


def _table_roots(table_paths: Sequence[str]) -> list[str]:
    return sorted(
        {
            path
            for storage_kind, _, path in map(normal_path_of, table_paths)
            if storage_kind not in LOCAL and path != "/"
        }
    )


def _bounded_folders(other_folders: set[str], local_folders: set[str]) -> Folders:
    if len(local_folders) > _MOST_LOCAL_FOLDERS:
        return _ANYWHERE
    if len(other_folders) > _MOST_FOLDERS:
        other_folders = {posixpath.commonpath(other_folders)}
    return Folders(frozenset(other_folders), frozenset(local_folders))


# The folders of a catalog's tables, each with the metadata file that they were read from.
_memories: WeakKeyDictionary[Any, dict[Identifier, tuple[str, Folders]]] = WeakKeyDictionary()
# A metadata file of such a name is never written again with another content.
_UNIQUE_FILE_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*$", re.IGNORECASE)


def may_name_files(lake: Lake, table: Identifier, folders: Iterable[str]) -> bool:
    """Tell whether a table may name a file in some folders (:meth:`Folders.resolved_folders`); a
    negative answer is certain.

    Buckets are not compared. Reads the table's manifests without a JVM; many are read by a query.
    What a metadata file names is remembered, because a pass asks for each table in turn.
    """
    table_source = lake.tables.source(table)
    memories_by_table = _memories.setdefault(lake.tables, {})
    metadata_location, table_folders = memories_by_table.get(table, ("", Folders()))
    if metadata_location != table_source.metadata_location or not _UNIQUE_FILE_NAME.search(
        metadata_location
    ):
        try:
            table_folders = _table_folders(lake, table, table_source, load_metadata(table_source))
        except MetadataUnreadable:
            return True  # the query reports the error, if it cannot read the table either
        memories_by_table[table] = table_source.metadata_location, table_folders
    return has_common_folder(table_folders.resolved_folders(), folders)


def _table_folders(lake: Lake, table: Identifier, source: TableSource, metadata: Json) -> Folders:
    table_paths = declared_paths(metadata)
    snapshots = metadata.get("snapshots") or ()
    if len(snapshots) <= _MOST_SNAPSHOTS and all(s.get("manifest-list") for s in snapshots):
        manifests = manifests_of(source, metadata).values()
        if sum(manifest["manifest_length"] for manifest in manifests) <= _MOST_MANIFEST_BYTES:
            return folders_of(referenced_files(source, metadata), table_paths)
    metadata_folders = folders_of(
        directly_named_files(metadata, source.metadata_location), table_paths
    )
    frame_folders = folders_in_frame(_table_files(lake, table), table_paths)
    return _bounded_folders(
        {*metadata_folders.other_folders, *frame_folders.other_folders},
        {*metadata_folders.local_folders, *frame_folders.local_folders},
    )


@frozen
class LookupFiles:
    """Files to look for: each with its normal forms (``file_path``, ``path``), and the folders that
    they are in.
    """

    files: DataFrame
    folders: frozenset[str]
    has_local_files: bool


def lookup_files(
    spark: SparkSession, files: DataFrame, table_paths: Sequence[str] = ()
) -> LookupFiles:
    """Files to look for, by ``file_path``; ``table_paths`` as in :func:`folders_of`."""
    folders = folders_in_frame(files, table_paths)
    has_local_files = bool(folders.local_folders) or folders is _ANYWHERE
    return LookupFiles(
        _with_normal_paths(spark, files, follow_links=has_local_files),
        folders.resolved_folders(),
        has_local_files,
    )


def referenced_paths(
    lake: Lake, table: Identifier, lookup: LookupFiles, max_count: int = 10
) -> list[str]:
    """The files that the table's metadata names, in any spelling and bucket: at most ``max_count``.

    Looked up among the data and delete files, manifests and manifest lists of every snapshot, the
    metadata files of the log, and statistics files. Raises the errors of
    :mod:`icekit.common.errors`.
    """
    table_source = lake.tables.source(table)
    named_paths = directly_named_files(load_metadata(table_source), table_source.metadata_location)
    table_files = _table_files(lake, table).unionAll(frame_of_paths(lake.spark, named_paths))
    table_files = _with_normal_paths(lake.spark, table_files, follow_links=lookup.has_local_files)
    matching_files = (
        lookup.files.join(table_files.select("path"), "path", "left_semi")
        .select("file_path")
        .distinct()
        .limit(max_count)
    )
    return sorted(str(row[0]) for row in matching_files.collect())


def _table_files(lake: Lake, table: Identifier) -> DataFrame:
    """The data and delete files and the manifests of every snapshot, by ``file_path``."""
    manifest_rows = metadata_table(lake.spark, lake.sql_name(table), "all_manifests")
    return live_files(lake, table).unionAll(manifest_rows.selectExpr("path AS file_path"))


def live_files(lake: Lake, table: Identifier) -> DataFrame:
    """The data and delete files that any snapshot has, by ``file_path``; some several times.

    Where Iceberg cannot read its metadata table of them, they are read without Spark.
    """
    table_source = lake.tables.source(table)
    metadata = load_metadata(table_source)
    if fields_blocking_files_table_of(metadata):
        manifests = manifests_of(table_source, metadata).values()
        return frame_of_paths(lake.spark, paths_in_manifests(table_source, manifests))
    return metadata_table(lake.spark, lake.sql_name(table), "all_files").select("file_path")


def _with_normal_paths(spark: SparkSession, files: DataFrame, *, follow_links: bool) -> DataFrame:
    """Files with their normal forms: ``file_path``, ``path``. With ``follow_links``, a local file
    that a link leads to has another row.
    """
    normal_files = files.selectExpr("file_path", f"{normal_path_sql('file_path')} AS path")
    if not follow_links:
        return normal_files
    folder_sql = "regexp_extract(path, '^(.*)/', 1)"
    local_files = normal_files.where(is_local_sql("file_path"))
    local_folders = [
        str(row[0]) or "/"
        for row in local_files.selectExpr(folder_sql)
        .distinct()
        .limit(_MOST_LOCAL_FOLDERS + 1)
        .collect()
    ]
    if len(local_folders) > _MOST_LOCAL_FOLDERS:
        raise MetadataUnreadable(
            f"The files are in more than {_MOST_LOCAL_FOLDERS:,} local folders, which are too many "
            "to follow symbolic links."
        )
    targets_by_link = symbolic_link_targets(local_folders)
    if not targets_by_link:
        return normal_files
    link_rows = spark.createDataFrame(list(targets_by_link.items()), "link string, real string")
    # A link leads to the folder of a file, or to the file itself.
    linked_files = local_files.selectExpr("*", f"explode(array(path, {folder_sql})) AS link").join(
        link_rows, "link"
    )
    return normal_files.unionAll(
        linked_files.selectExpr(
            "file_path", "concat(real, substring(path, length(link) + 1)) AS path"
        )
    )
