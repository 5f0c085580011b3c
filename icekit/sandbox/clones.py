"""Make a clone of a table, provide it, and remove it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from icekit.catalog import Lake
from icekit.engine.bridge import load_table, require_classic
from icekit.engine.errors import explain, explaining, reason
from icekit.errors import CloneRefused
from icekit.facts.metadata_file import load_metadata
from icekit.sandbox.clone_metadata import LOST_WITHOUT_CLONES, check_drop, clone_metadata, register
from icekit.sandbox.scratch import (
    NAMESPACE,
    discard,
    drop_sql,
    owned,
    scratch_folder,
    scratch_name,
)
from icekit.sandbox.stale import stale_clones
from icekit.sql import Identifier, display_name, identifier
from icekit.units import counted


@dataclass(frozen=True, slots=True)
class Clone:
    """A clone of ``of``: its name in the same catalog, and the folder that it writes to."""

    of: Identifier
    table: Identifier
    scratch: str


@contextlib.contextmanager
def clone(
    lake: Lake, table: str | Identifier, snapshot: str | int | None = None
) -> Iterator[Clone]:
    """A zero-copy clone of a table; the clone and everything it wrote are removed afterwards.

    The clone is at the table's current snapshot, or at ``snapshot`` (an id, a branch or a tag); it
    has all of the table's snapshots, branches and tags.

    Nothing that Iceberg's procedures, Spark's SQL and writers do to the clone deletes or
    overwrites a file of the table: the clone has its own metadata file, location, data and
    metadata paths and UUID, no log of the table's metadata files, and
    ``gc.enabled=false``, under which Iceberg refuses ``expire_snapshots``,
    ``remove_orphan_files`` and ``DROP TABLE … PURGE``. No catalog can prevent the following, so
    do not do this to a clone:

    - setting ``gc.enabled=true`` and then expiring, purging or removing orphan files;
    - purging with a tool that ignores ``gc.enabled``: ``dropTable(…, purge=true)`` of the Java
      catalog (deletes manifests and manifest lists), PyIceberg's ``purge_table`` (data files too),
      an engine that deletes a table's files whenever it is dropped, or a catalog that does so later
      (one that does so at once is refused);
    - giving a procedure a path inside the table's location to write to, such as
      ``staging_location`` of ``rewrite_table_path``;
    - unsetting ``write.data.path`` after ``SET LOCATION`` to the table's location: that overwrites
      nothing, but leaves files there.

    Work on the table itself can continue: files that its own expiry deletes are then missing for
    the clone too. A process that is killed leaves the clone behind;
    :func:`~icekit.sandbox.stale.stale_clones` finds it. Files of the clone that the table has adopted
    meanwhile are kept, with a warning; files adopted by another table are not looked for.

    Raises :class:`~icekit.errors.CloneRefused` if the catalog cannot register such a table or gives
    it no access to the table's files; :class:`~icekit.errors.ClassicSessionRequired` over Spark
    Connect; :class:`~icekit.errors.SnapshotNotFound`; and the errors of finding a table.
    """
    name = lake.identifier(table)
    require_classic(lake.spark)
    source = lake.tables.source(name)
    metadata, copied = load_metadata(source), scratch_name(name)
    scratch = scratch_folder(str(metadata["location"]), copied)
    properties = owned(name, scratch, metadata.get("table-uuid"))
    wanted = clone_metadata(metadata, scratch, properties, snapshot)
    _tell_of_stale(lake, name)
    copy = Clone(name, copied, scratch)
    io = _io(lake, name)
    try:
        io = _register(lake, copy, wanted, io)
        yield copy
    finally:
        _take_away(lake, copy, io, source.metadata_location)


def _io(lake: Lake, table: Identifier) -> Any:
    """The table's own FileIO."""
    with explaining(lake.sql_name(table)):
        return load_table(lake.spark, lake.sql_name(table)).io()


def _register(lake: Lake, copy: Clone, metadata: dict[str, Any], io: Any) -> Any:
    """Write the clone's metadata file and register it; returns the clone's own FileIO, which has
    read from the table.
    """
    spark = lake.spark
    try:
        check_drop(spark, lake.sql_name(copy.of), copy.scratch)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {identifier(lake.name, NAMESPACE)}")
        register(spark, lake.sql_name(copy.table), metadata, io)
        loaded = load_table(spark, lake.sql_name(copy.table))
        # A catalog may grant access only to a table's own location.
        if loaded.currentSnapshot() is not None:
            loaded.currentSnapshot().allManifests(loaded.io())
        return loaded.io()
    except CloneRefused:
        raise
    except Exception as error:
        why = reason(explain(error, lake.sql_name(copy.table)))
        raise CloneRefused(
            f"Catalog {lake.name!r} does not accept a clone of {display_name(copy.of)} ({why}): "
            f"{LOST_WITHOUT_CLONES}."
        ) from None


def _take_away(lake: Lake, copy: Clone, io: Any, began: str) -> None:
    """Drop the clone and remove its folder; warn about what is left, because the error from inside
    says more.
    """
    try:
        is_unchanged = lake.tables.source(copy.of).metadata_location == began
    except Exception:
        is_unchanged = False
    try:
        discard(lake, copy.table, copy.of, copy.scratch, io, none_adopted=is_unchanged)
    except Exception as error:
        warnings.warn(
            f"The clone of {display_name(copy.of)} could not be dropped ({type(error).__name__}). "
            f"Run {drop_sql(lake.sql_name(copy.table))} and remove the folder {copy.scratch}.",
            stacklevel=2,
        )


def _tell_of_stale(lake: Lake, table: Identifier) -> None:
    """Warn about clones of the same table that killed processes left behind; reads no metadata if
    no name matches.
    """
    with contextlib.suppress(Exception):
        if dead := sum(stale.is_dead for stale in stale_clones(lake, table)):
            warnings.warn(
                f"{counted(dead, 'clone', 'was', 'were')} left behind by processes that have ended "
                f"({display_name(table)}). List and remove stale clones with `icekit admin "
                "clones`.",
                stacklevel=4,
            )
