"""Tables that many tests begin with: each is built once in a process, and put back for the next
test that asks for it.

What is put back is a copy of its files at the paths that they had, so the table is a test's own in
all that it can do to one: expire, purge, remove orphans, break a file. A copy under another name
would need other paths in manifests and in position delete files.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from icekit.api import Lake
from icekit.common.sql import Identifier, identifier
from icekit.learn.lab import lake_folder
from tests.damage import on_disk
from tests.offline import catalog_of


class Shapes:
    """Keeps what was built in one lake, in a folder."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self._lake = lake
        self._folder = folder
        #: By name and how it is built: the metadata file, and the copy of the table's folder.
        self._kept: dict[tuple[Identifier, str], tuple[str, Path]] = {}

    def have(self, table: Identifier, how: str, build: Callable[[], object]) -> None:
        """See that there is a table of this name as ``build`` makes it; ``how`` tells it from
        others of the same name.
        """
        if kept := self._kept.get((table, how)):
            self._put_back(table, *kept)
            return
        build()
        metadata = self._lake.tables.source(table).metadata_location
        copy = self._folder / str(len(self._kept))
        shutil.copytree(on_disk(metadata).parents[1], copy)
        self._kept[table, how] = metadata, copy

    def _put_back(self, table: Identifier, metadata: str, copy: Path) -> None:
        shutil.copytree(copy, on_disk(metadata).parents[1])
        with catalog_of(lake_folder(self._lake)) as catalog:
            catalog.register_table(table, metadata)
        self._lake.spark.sql(f"REFRESH TABLE {identifier(*self._lake.sql_name(table))}")
