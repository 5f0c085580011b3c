"""Stand beside an action while it runs: look before, count before and after, prove afterwards."""

from __future__ import annotations

import datetime as dt
import posixpath
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from icekit import sql
from icekit.catalog import Lake
from icekit.compact.model import CONVERT, Action
from icekit.compact.outcome import Actual
from icekit.engine.bridge import has_bridge
from icekit.engine.errors import explain
from icekit.engine.interrupting import Stop, cancel, cancelled_when, new_tag, tagged
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import ConversionRefused, MetadataUnreadable, NotATable, ParameterError, RemovalRefused, TableNotFound
from icekit.facts.collect import load_metadata
from icekit.facts.head import head
from icekit.facts.metadata import lineage, snapshots_by_id
from icekit.facts.orphans import ORPHAN_AGE, Say, TableQuery, declared_paths, may_name, naming, of_others, sharing
from icekit.maintain.plan import manifest_layers
from icekit.maintain.retention import LEAST_HOURS, retained
from icekit.prove import Proof, prove_commits
from icekit.prove.commits import prove_conversion
from icekit.prove.proof import PLAIN, Check, prove_entries, prove_history, prove_live, referenced
from icekit.sandbox.clones import ownership
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Json = Mapping[str, Any]

#: A choice: how much longer than what was planned a listing of orphans may be.
LISTING_SLACK = 1.1
#: A choice: how long listed orphans are looked up among the files that other tables name, in seconds.
LOOKING_SECONDS = 4 * 3600.0
# Tables that a refusal names.
_NAMED = 5
# Choices: folders outside a table's own that are looked for one by one, and refs whose files are read to know which stay.
_FOLDERS, _REFS = 100, 20


class Guard:
    """What every action gets: it runs as it is, its commits say what it did, and their rows are compared."""

    def __init__(self, lake: Lake, action: Action, say: Say, stop: Stop) -> None:
        self.lake, self.action, self.say, self.stop = lake, action, say, stop

    def ready(self) -> Action | None:
        """The action to run, None if nothing is left to do; raises where it must not run."""
        return self.action

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        """What it came to, as the table has it; ``committed`` is by its commits' summaries."""
        return committed

    def proof(self, snapshot_ids: Sequence[int], sample: int | None) -> Proof | None:
        """The proof that nothing was lost; None where nothing was changed."""
        return prove_commits(self.lake, self.action.table, snapshot_ids, sample=sample) if snapshot_ids else None

    def close(self) -> None:
        """Let go of what was made for the run."""

    def _kept(self, *kept: Any) -> Proof:
        return Proof.of_kept(display_name(self.action.table), *kept)

    def _users(
        self, files: DataFrame, roots: Sequence[str], what: str, among: Collection[Identifier] | None = None
    ) -> tuple[dict[Identifier, str], str | None]:
        """The other tables of the catalog that name some files in these folders, each with one, and what is not known of them.

        ``among`` looks only at those tables. Raises :class:`~icekit.engine.interrupting.Stopped` where somebody asks meanwhile.
        """
        spark, tag = self.lake.spark, new_tag()

        def named(table: Identifier) -> str | None:
            if among is not None and table not in among:
                return None
            try:
                # A search that begins after somebody asked is no longer cancelled.
                if not may_name(self.lake, table, load_metadata, roots) or self._is_asked():
                    return None
                with tagged(spark, tag):
                    return next(iter(referenced(self.lake, table, files)), None)
            except NotATable:
                return None
            except Exception as error:
                raise explain(error, self.lake.sql_name(table)) from error

        with cancelled_when(self._is_asked, spark, tag):
            found, unchecked = of_others(
                self.lake, self.action.table, named, what, TableQuery(seconds=LOOKING_SECONDS, say=self.say, stopped=self._is_asked)
            )
        if self._is_asked():
            cancel(spark, tag)
        self.stop.check()
        return {name: path for name, path in sorted(found.items()) if path is not None}, unchecked

    def _is_asked(self) -> bool:
        """Tell whether somebody asked to stop."""
        return self.stop.is_set


class _Deletes(Guard):
    """A rewrite of position deletes: the rows are compared as for data files."""

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        mine = [
            s.get("summary") or {}
            for s in head(self.lake, self.action.table).metadata.get("snapshots") or ()
            if s["snapshot-id"] in snapshot_ids
        ]
        before, after, bytes_in, bytes_out = (
            sum(int(summary.get(key) or 0) for summary in mine)
            for key in ("removed-delete-files", "added-delete-files", "removed-files-size", "added-files-size")
        )
        return replace(committed, bytes_in=bytes_in, bytes_out=bytes_out, items_before=before, items_after=after)


class _Conversion(_Deletes):
    """A conversion of equality deletes: what was removed and added is counted, and the rows are read without a delete set."""

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        found = super().actual(committed, snapshot_ids)
        mine = [s for s in head(self.lake, self.action.table).metadata.get("snapshots") or () if s["snapshot-id"] in snapshot_ids]
        gone = sum(int((s.get("summary") or {}).get("removed-equality-delete-files") or 0) for s in mine)
        # Its own tags say what it read; the sizes in a summary are only of what came and went.
        return replace(found, items_before=gone, bytes_in=committed.bytes_in)

    def ready(self) -> Action | None:
        if not has_bridge(self.lake.spark):
            raise ConversionRefused(
                "A conversion needs the JVM bridge, which Spark Connect has not; run it in a session with a driver of its own."
            )
        return self.action

    def proof(self, snapshot_ids: Sequence[int], sample: int | None) -> Proof | None:
        return prove_conversion(self.lake, self.action.table, snapshot_ids, sample=sample) if snapshot_ids else None


class _Manifests(Guard):
    """A rewrite of manifests: the same live entries before and after, whichever manifest holds them."""

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:
        if not snapshot_ids:
            return committed
        snapshots = {s["snapshot-id"]: s for s in head(self.lake, self.action.table).metadata.get("snapshots") or ()}
        first = snapshots.get(snapshot_ids[0]) or {}
        before, after = (self._count(s) for s in (first.get("parent-snapshot-id"), snapshot_ids[-1]))
        return replace(committed, items_before=before, items_after=after)

    def _count(self, snapshot_id: int | None) -> int:
        wanted = self.action.arguments.get("spec_id")
        found = manifest_layers(self.lake, self.action.table, snapshot_id) if snapshot_id is not None else ()
        return sum(layer.data_count + layer.delete_count for layer in found if wanted is None or layer.spec_id == wanted)

    def proof(self, snapshot_ids: Sequence[int], sample: int | None) -> Proof | None:  # noqa: ARG002
        return self._kept(prove_entries(self.lake, self.action.table, snapshot_ids)) if snapshot_ids else None


class _Expiry(Guard):
    """An expiry: what Iceberg's own rule keeps is worked out before, and looked for afterwards."""

    def ready(self) -> Action | None:
        now, older_than = dt.datetime.now(dt.UTC), self.action.older_than
        last = int(str(self.action.arguments.get("retain_last", 1)))
        if older_than is None or now - older_than < dt.timedelta(hours=LEAST_HOURS) or last < 1:
            raise ParameterError(
                f"Snapshots younger than {LEAST_HOURS:g} hour never expire here; plan with keep_hours of {LEAST_HOURS:g} or more."
            )
        self.before: Json = head(self.lake, self.action.table).metadata
        found = retained(self.before, int(older_than.timestamp() * 1000), last, int(now.timestamp() * 1000))
        self.must_stay, self.refs = tuple(found.kept), found.refs
        if not (found.expired or found.refs_dropped):
            return None
        self._check_unshared(found.expired)
        return self.action

    def _check_unshared(self, expired: Sequence[int]) -> None:
        """Raise where another table has snapshots or files that end, or where that cannot be told of one that may; no clone counts.

        Of a table that gives no reason to think so, and whose metadata cannot be read, that is only said.
        """
        ends = {snapshot["snapshot-id"]: snapshot for snapshot in self.before.get("snapshots") or () if snapshot["snapshot-id"] in expired}
        named = {snapshot["manifest-list"] for snapshot in ends.values() if snapshot.get("manifest-list")}
        for key in ("statistics", "partition-statistics"):
            named |= {s["statistics-path"] for s in self.before.get(key) or () if s["snapshot-id"] in ends}
        files = self._ending().persist()
        try:
            try:
                roots = self._roots(files)
            except Exception as error:
                raise explain(error, self.lake.sql_name(self.action.table)) from error
            others = naming(
                self.lake, self.action.table, frozenset(named), roots, load_metadata, TableQuery(say=self.say, stopped=self._is_asked)
            )
            self.stop.check()
            sharers = {name: path for name, path in others.files.items() if not self._is_clone(name)}
            if not sharers and (among := [name for name in others.doubtful if not self._is_clone(name)]):
                self.say(f"  looking for the files that may go in {count(len(among), 'other table')}")
                sharers, unread = self._users(files, roots, "looking files up", among)
                if unread and not sharers:
                    raise RemovalRefused(
                        f"Snapshots do not expire: whether another table needs their files is not known ({unread}). Put that right and try again."
                    )
        finally:
            files.unpersist()
        if sharers:
            raise RemovalRefused(
                f"Snapshots do not expire: files that would go with them are used by {_named(sharers)}. Give each table files of its own "
                "(CREATE TABLE … AS SELECT), or drop the one that is not needed (without PURGE), first."
            )
        if others.unchecked:
            self.say(f"  not every table could be checked for the same snapshots or files: {others.unchecked}")

    def _ending(self) -> DataFrame:
        """The data files, delete files and manifests that go with the snapshots, by ``file_path``; perhaps some that stay."""
        spark, name = self.lake.spark, self.lake.sql_name(self.action.table)
        kept = f"IN ({', '.join(map(str, self.must_stay))})"
        every = metadata_table(spark, name, "all_entries").where("status < 2").selectExpr("data_file.file_path", "snapshot_id")
        # What is live in a kept snapshot was added by a kept one, or was there before the oldest.
        stays = every.where(f"snapshot_id {kept}").select("file_path")
        for snapshot_id in self._oldest_kept():
            stays = stays.unionAll(metadata_table(spark, name, "files", snapshot_id).select("file_path"))
        manifests = metadata_table(spark, name, "all_manifests").selectExpr("path AS file_path", "reference_snapshot_id")
        of_kept = manifests.where(f"reference_snapshot_id {kept}").select("file_path")
        data = every.select("file_path").distinct().join(stays, "file_path", "left_anti")
        return data.unionAll(manifests.select("file_path").distinct().join(of_kept, "file_path", "left_anti"))

    def _oldest_kept(self) -> list[int]:
        """The oldest kept snapshot of each branch and tag; of many refs only some, as each is read for itself."""
        by_id = snapshots_by_id(self.before)
        found: dict[int, None] = {}
        heads = [int(ref["snapshot-id"]) for _, ref in sorted((self.before.get("refs") or {}).items())]
        for head_id in [int(self.before.get("current-snapshot-id") or -1), *heads]:
            kept = takewhile(lambda s: s["snapshot-id"] in self.must_stay, lineage(by_id, by_id.get(head_id)))
            if oldest := deque(kept, maxlen=1):
                found[int(oldest[0]["snapshot-id"])] = None
        return list(found)[:_REFS]

    def _roots(self, files: DataFrame) -> list[str]:
        """The folders that all of some files are in: the table's own as it declares them, and those of files elsewhere."""
        own = [path.rstrip("/") for path in declared_paths(self.before)]
        is_in = {path: f"startswith(file_path, {sql.literal(path + '/')})" for path in own}
        elsewhere = files.where(f"NOT ({' OR '.join(is_in.values())})").selectExpr("regexp_extract(file_path, '^(.*)/', 1) AS folder")
        folders = [str(row[0]) for row in elsewhere.distinct().limit(_FOLDERS + 1).collect()]
        if len(folders) > _FOLDERS:
            first, last = elsewhere.selectExpr("min(folder)", "max(folder)").collect()[0]
            folders = [posixpath.commonprefix([first, last]).rpartition("/")[0]]
        counted = files.selectExpr(*(f"count_if({condition})" for condition in is_in.values())).collect()[0]
        return [*(path for path, there in zip(own, counted, strict=True) if there), *folders]

    def _is_clone(self, table: Identifier) -> bool:
        try:
            return ownership(load_metadata(self.lake.tables.source(table)).get("properties") or {}) is not None
        except NotATable:
            return False
        except TableNotFound:
            return True  # it was one, or has gone since in another way

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        there = {s["snapshot-id"] for s in head(self.lake, self.action.table).metadata.get("snapshots") or ()}
        before = {s["snapshot-id"] for s in self.before.get("snapshots") or ()}
        return replace(committed, items_before=len(before), items_after=len(before & there))

    def proof(self, snapshot_ids: Sequence[int], sample: int | None) -> Proof | None:  # noqa: ARG002
        return self._kept(prove_history(self.lake, self.action.table, self.before, self.must_stay, self.refs))


class _Orphans(Guard):
    """A removal of orphans: only what was listed and looked up in all metadata goes, and nothing where another table keeps files.

    The procedure is given the checked list to remove from (``file_list_view``), so it cannot
    take what appeared after it was made.
    """

    view = ""
    listed = left = 0

    def ready(self) -> Action | None:
        older_than = self.action.older_than
        if older_than is None or dt.datetime.now(dt.UTC) - older_than < ORPHAN_AGE:
            raise ParameterError(
                f"Orphans under {ORPHAN_AGE.days} days of age are not removed: a writer may be about to commit them. Plan again."
            )
        found = self._list()
        self.listed = found.count()
        if not self.listed:
            return None
        named = referenced(self.lake, self.action.table, found)
        # Again though the plan was made by it: a table may have come since, and what is above takes its time.
        if refusal := sharing(self.lake, self.action.table, load_metadata, TableQuery(say=self.say, stopped=self._is_asked)).refusal:
            raise RemovalRefused(refusal)
        planned = self.action.prediction.files_in
        if self.listed > LISTING_SLACK * planned:
            raise ParameterError(
                f"The listing changed: {count(self.listed, 'orphan')} where the plan showed {planned:,}; look at the table again and plan again."
            )
        if named:
            raise MetadataUnreadable(
                f"{count(len(named), 'listed orphan')} or more are named by the table's own metadata, for example {named[0]}: nothing was removed. "
                "The location is written in several ways; set equal_schemes and equal_authorities and remove orphans by hand."
            )
        self._check_unnamed(found)
        # Backticks would be needed for nothing in it, and the procedure reads it as a table's name.
        self.view = f"icekit_orphans_{id(self):x}"
        past = sql.literal(older_than - dt.timedelta(days=1))
        found.selectExpr(f"{self._as_located()} AS file_path", f"{past} AS last_modified").createOrReplaceTempView(self.view)
        arguments = {k: v for k, v in self.action.arguments.items() if k != "prefix_listing"}
        return replace(self.action, arguments={**arguments, "file_list_view": self.view})

    def _check_unnamed(self, orphans: DataFrame) -> None:
        """Raise where another table of the catalog names a listed orphan, wherever that table is, or where it cannot be told."""
        self.say(f"  looking {count(self.listed, 'orphan')} up among the files of every other table of the catalog")
        location = str(head(self.lake, self.action.table).metadata["location"])
        users, unchecked = self._users(orphans, [location], "looking orphans up")
        if users:
            raise RemovalRefused(
                f"Orphan files are not removed: this table does not name them, but {_named(users)} does. "
                "Give that table files of its own (CREATE TABLE … AS SELECT), or drop it (without PURGE), first."
            )
        if unchecked:
            raise RemovalRefused(
                f"Orphan files are not removed: whether another table needs them is not known ({unchecked}). Put that right and try again."
            )

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        self.left = self._list().count()
        return replace(committed, items_before=self.listed, items_after=self.left)

    def proof(self, snapshot_ids: Sequence[int], sample: int | None) -> Proof | None:  # noqa: ARG002
        if not self.listed:
            return None
        said = f"none of the {count(self.listed, 'file')} was named by any snapshot or metadata file; each was looked up before any went"
        return self._kept(prove_live(self.lake, self.action.table, "remove_orphan_files", [Check(True, said), self._gone()]))

    def _gone(self) -> Check:
        if self.left:
            return Check(None, f"{count(self.left, 'orphan')} of {self.listed:,} still there when listed again")
        return Check(True, "none is left when listed again")

    def _as_located(self) -> str:
        """SQL for a listed path as the table's location is written: the procedure takes only those that begin with it."""
        location = head(self.lake, self.action.table).metadata["location"].rstrip("/")
        plain_location, plain = PLAIN.format(sql.literal(location)), PLAIN.format("file_path")
        return (
            f"CASE WHEN startswith({plain}, concat({plain_location}, '/')) "
            f"THEN concat({sql.literal(location)}, substring({plain}, length({plain_location}) + 1)) ELSE file_path END"
        )

    def close(self) -> None:
        if self.view:
            self.lake.spark.catalog.dropTempView(self.view)

    def _list(self) -> DataFrame:
        action = self.action
        statement = sql.call(
            action.catalog,
            "remove_orphan_files",
            table=display_name(action.table),
            dry_run=True,
            older_than=action.older_than or dt.datetime.now(dt.UTC) - ORPHAN_AGE,
            **action.arguments,
        )
        try:
            self.lake.spark.sql(f"REFRESH TABLE {identifier(*self.lake.sql_name(action.table))}")
            return self.lake.spark.sql(statement).selectExpr("orphan_file_location AS file_path")
        except Exception as error:
            raise explain(error, self.lake.sql_name(action.table)) from error


def _named(tables: Mapping[Identifier, str]) -> str:
    """Tables, each with one of the files that it names."""
    said = [f"{display_name(name)} ({path})" for name, path in list(tables.items())[:_NAMED]]
    more = len(tables) - len(said)
    return ", ".join(said) + (f" and {count(more, 'more table')}" if more else "")


_GUARDS: Mapping[str, type[Guard]] = {
    CONVERT: _Conversion,
    "rewrite_position_delete_files": _Deletes,
    "rewrite_manifests": _Manifests,
    "expire_snapshots": _Expiry,
    "remove_orphan_files": _Orphans,
}


def guard_of(lake: Lake, action: Action, say: Say, stop: Stop) -> Guard:
    """The guard of an action, by its procedure; ``say`` is told how far it is with what takes long, and ``stop`` ends that."""
    return _GUARDS.get(action.procedure, Guard)(lake, action, say, stop)
