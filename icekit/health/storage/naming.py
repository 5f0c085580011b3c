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
from icekit.health.storage.orphans import declared_paths, files_in, manifests_of, referenced_files
from icekit.iceberg.dropped_fields import fields_hiding_files_of
from icekit.iceberg.metadata import Json, named_files
from icekit.iceberg.paths import LOCAL, folder_of, links, local_sql, meet, normal, path_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.lake import Lake
    from icekit.engine.tables import TableSource

#: Choices: the most snapshots, and bytes of manifests, that are read without Spark.
_FEW_SNAPSHOTS = 64
_FEW_BYTES = 1 << 24
#: Choices: the most folders outside a table's own that are told apart, and the most local folders.
_FOLDERS = 100
_LOCAL_FOLDERS = 100_000


@frozen
class Folders:
    """Folders, in normal form, of which one holds each of some files; ``local`` are those that
    links may lead out of, which are all told apart.
    """

    elsewhere: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()

    def resolved(self) -> frozenset[str]:
        """All folders, and those that links lead to, as they are now."""
        leads = links(self.local)
        real = {
            target if path in self.local else folder_of(target) for path, target in leads.items()
        }
        return self.elsewhere | self.local | real


#: All files: there are too many folders.
_ANYWHERE = Folders(frozenset({"/"}))


def folders_of(paths: Iterable[str], own_paths: Sequence[str]) -> Folders:
    """The folders of some paths; those in a table's ``own`` (:func:`declared_paths`) count as
    these, except local ones.
    """
    tops = _tops(own_paths)
    local = set[str]()
    elsewhere = set[str]()
    for location in paths:
        family, _, path = normal(location)
        folder = folder_of(path)
        if family in LOCAL:
            local.add(folder)
        else:
            elsewhere.add(next((top for top in tops if f"{folder}/".startswith(f"{top}/")), folder))
    return _bounded(elsewhere, local)


def folders_in(files: DataFrame, own_paths: Sequence[str]) -> Folders:
    """The same for the ``file_path`` of a data frame."""
    folder = "regexp_extract(path, '^(.*)/', 1) AS folder"
    folders = files.selectExpr(
        f"{local_sql('file_path')} AS is_local", f"{path_sql('file_path')} AS path"
    ).selectExpr("is_local", folder)
    tops = ((literal(f"{top}/"), literal(top)) for top in _tops(own_paths))
    cases = " ".join(
        f"WHEN startswith(concat(folder, '/'), {inner}) THEN {top}" for inner, top in tops
    )
    top = f"CASE WHEN is_local THEN folder {cases} ELSE folder END AS folder"
    rows = folders.selectExpr("is_local", top).distinct().limit(_LOCAL_FOLDERS + 1).collect()
    if len(rows) > _LOCAL_FOLDERS:
        return _ANYWHERE
    named_folders = {
        is_local: {str(row[1]) or "/" for row in rows if row[0] == is_local}
        for is_local in (True, False)
    }
    return _bounded(named_folders[False], named_folders[True])


def _tops(own_paths: Sequence[str]) -> list[str]:
    return sorted(
        {path for family, _, path in map(normal, own_paths) if family not in LOCAL and path != "/"}
    )


def _bounded(elsewhere: set[str], local: set[str]) -> Folders:
    if len(local) > _LOCAL_FOLDERS:
        return _ANYWHERE
    if len(elsewhere) > _FOLDERS:
        elsewhere = {posixpath.commonpath(elsewhere)}
    return Folders(frozenset(elsewhere), frozenset(local))


# The folders of a catalog's tables, each with the metadata file that they were read from.
_memories: WeakKeyDictionary[Any, dict[Identifier, tuple[str, Folders]]] = WeakKeyDictionary()
# A metadata file of such a name is never written again with another content.
_UNIQUE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]*$", re.IGNORECASE)


def may_name(lake: Lake, table: Identifier, folders: Iterable[str]) -> bool:
    """Tell whether a table may name a file in some folders (:meth:`Folders.resolved`); a negative
    answer is certain.

    Buckets are not compared. Reads the table's manifests without a JVM; many are read by a query.
    What a metadata file names is remembered, because a pass asks for each table in turn.
    """
    source = lake.tables.source(table)
    memory = _memories.setdefault(lake.tables, {})
    location, known_folders = memory.get(table, ("", Folders()))
    if location != source.metadata_location or not _UNIQUE.search(location):
        try:
            known_folders = _folders_named(lake, table, source, load_metadata(source))
        except MetadataUnreadable:
            return True  # the query reports the error, if it cannot read the table either
        memory[table] = source.metadata_location, known_folders
    return meet(known_folders.resolved(), folders)


def _folders_named(lake: Lake, table: Identifier, source: TableSource, metadata: Json) -> Folders:
    own_paths = declared_paths(metadata)
    snapshots = metadata.get("snapshots") or ()
    if len(snapshots) <= _FEW_SNAPSHOTS and all(s.get("manifest-list") for s in snapshots):
        manifests = manifests_of(source, metadata).values()
        if sum(manifest["manifest_length"] for manifest in manifests) <= _FEW_BYTES:
            return folders_of(referenced_files(source, metadata), own_paths)
    named_folders = folders_of(named_files(metadata, source.metadata_location), own_paths)
    listed_folders = folders_in(_listed(lake, table), own_paths)
    return _bounded(
        {*named_folders.elsewhere, *listed_folders.elsewhere},
        {*named_folders.local, *listed_folders.local},
    )


@frozen
class Wanted:
    """Files to look for: each with its normal forms (``file_path``, ``path``), and the folders that
    they are in.
    """

    files: DataFrame
    folders: frozenset[str]
    is_local: bool


def wanted(spark: SparkSession, files: DataFrame, own_paths: Sequence[str] = ()) -> Wanted:
    """Files to look for, by ``file_path``; ``own`` as in :func:`folders_of`."""
    folders = folders_in(files, own_paths)
    is_local = bool(folders.local) or folders is _ANYWHERE
    return Wanted(_spelled(spark, files, follow=is_local), folders.resolved(), is_local)


def referenced(lake: Lake, table: Identifier, files: Wanted, most_names: int = 10) -> list[str]:
    """The files that the table's metadata names, in any spelling and bucket: at most ``most``.

    Looked up among the data and delete files, manifests and manifest lists of every snapshot, the
    metadata files of the log, and statistics files. Raises the errors of
    :mod:`icekit.common.errors`.
    """
    source = lake.tables.source(table)
    named_paths = named_files(load_metadata(source), source.metadata_location)
    known_files = _listed(lake, table).unionAll(frame_of_paths(lake.spark, named_paths))
    known_files = _spelled(lake.spark, known_files, follow=files.is_local)
    hits = (
        files.files.join(known_files.select("path"), "path", "left_semi")
        .select("file_path")
        .distinct()
        .limit(most_names)
    )
    return sorted(str(row[0]) for row in hits.collect())


def _listed(lake: Lake, table: Identifier) -> DataFrame:
    """The data and delete files and the manifests of every snapshot, by ``file_path``."""
    manifests = metadata_table(lake.spark, lake.sql_name(table), "all_manifests")
    return live_files(lake, table).unionAll(manifests.selectExpr("path AS file_path"))


def live_files(lake: Lake, table: Identifier) -> DataFrame:
    """The data and delete files that any snapshot has, by ``file_path``; some several times.

    Where Iceberg cannot read its metadata table of them, they are read without Spark.
    """
    source = lake.tables.source(table)
    metadata = load_metadata(source)
    if fields_hiding_files_of(metadata):
        manifests = manifests_of(source, metadata).values()
        return frame_of_paths(lake.spark, files_in(source, manifests))
    return metadata_table(lake.spark, lake.sql_name(table), "all_files").select("file_path")


def _spelled(spark: SparkSession, files: DataFrame, *, follow: bool) -> DataFrame:
    """Files with their normal forms: ``file_path``, ``path``. With ``follow``, a local file that a
    link leads to has another row.
    """
    plain = files.selectExpr("file_path", f"{path_sql('file_path')} AS path")
    if not follow:
        return plain
    folder = "regexp_extract(path, '^(.*)/', 1)"
    local = plain.where(local_sql("file_path"))
    folders = [
        str(row[0]) or "/"
        for row in local.selectExpr(folder).distinct().limit(_LOCAL_FOLDERS + 1).collect()
    ]
    if len(folders) > _LOCAL_FOLDERS:
        raise MetadataUnreadable(
            f"The files are in more than {_LOCAL_FOLDERS:,} local folders, which are too many to "
            "follow symbolic links."
        )
    leads = links(folders)
    if not leads:
        return plain
    led = spark.createDataFrame(list(leads.items()), "link string, real string")
    # A link leads to the folder of a file, or to the file itself.
    real = local.selectExpr("*", f"explode(array(path, {folder})) AS link").join(led, "link")
    return plain.unionAll(
        real.selectExpr("file_path", "concat(real, substring(path, length(link) + 1)) AS path")
    )
