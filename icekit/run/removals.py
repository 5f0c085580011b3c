"""Guard an action that removes files: an expiry of snapshots, or a removal of orphan files."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from icekit import sql
from icekit.compact.actual import Actual
from icekit.compact.model import Action
from icekit.engine.errors import explain
from icekit.engine.interrupting import cancel, cancelled_when, new_tag, tagged
from icekit.engine.metadata_tables import metadata_table
from icekit.errors import MetadataUnreadable, NotATable, ParameterError, RemovalRefused
from icekit.facts.head import head
from icekit.facts.lineage import lineage, snapshots_by_id
from icekit.facts.metadata_file import load_metadata
from icekit.facts.naming import Folders, Wanted, may_name, referenced, wanted
from icekit.facts.orphans import (
    ORPHAN_AGE,
    TableQuery,
    declared_paths,
    location_of_another_format,
    of_others,
    sharing,
)
from icekit.facts.paths import meet, normal, path_sql
from icekit.facts.retention import HOUR_MS, LEAST_HOURS, Retained, retained
from icekit.prove.maintenance import prove_history, prove_live
from icekit.prove.proof import Check, Proof
from icekit.run.guard import Guard, Json
from icekit.run.limits import Limits
from icekit.sandbox.scratch import NAMESPACE, is_clone_of
from icekit.sql import Identifier, display_name, identifier
from icekit.units import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A choice: how many times the planned number of orphans a new listing may have.
LISTING_SLACK = 1.1


#: A choice: the most seconds for looking up listed orphans among the files that other tables name.
LOOKING_SECONDS = 4 * 3600.0


# Most tables that a refusal names.
_NAMED = 5


# A choice: most refs whose files are read to know which stay.
_REFS = 20


# A choice: how long before their time the files of snapshots that expire by the age limit of their
# own branch are looked up.
_AHEAD_MS = HOUR_MS


# A choice: how often files are looked up, if more snapshots pass their age meanwhile.
_LOOKS = 3


class _Removal(Guard):
    """An action that removes files: first looks them up in the other tables of the catalog."""

    def _users(
        self, files: Wanted, what: str, *, of_clones: bool
    ) -> tuple[dict[Identifier, str], str | None]:
        """The other tables of the catalog that name some files, each with one such file, and what
        could not be checked.

        Without ``of_clones``, clones of the table itself do not count. A table of another format
        names every file in its location. Raises :class:`~icekit.engine.interrupting.Stopped` after
        a request to stop.
        """
        spark, tag = self.lake.spark, new_tag()
        uuid = head(self.lake, self.action.table).metadata.get("table-uuid")

        def named(table: Identifier) -> str | None:
            try:
                if not of_clones and self._is_clone(table, uuid):
                    return None
                with tagged(spark, tag):
                    # A search that begins after the request would no longer be cancelled.
                    if not may_name(self.lake, table, files.folders) or self._is_asked():
                        return None
                    return next(iter(referenced(self.lake, table, files)), None)
            except NotATable:
                return self._around(table, files)
            except Exception as error:
                raise explain(error, self.lake.sql_name(table)) from error

        with cancelled_when(self._is_asked, spark, tag):
            users, unchecked = of_others(
                self.lake,
                self.action.table,
                named,
                what,
                TableQuery(seconds=LOOKING_SECONDS, say=self.say, stopped=self._is_asked),
            )
        if self._is_asked():
            cancel(spark, tag)
        self.stop.check()
        return {name: path for name, path in sorted(users.items()) if path is not None}, unchecked

    def _is_clone(self, table: Identifier, uuid: str | None) -> bool:
        if table[:-1] != (NAMESPACE,):
            return False
        properties = load_metadata(self.lake.tables.source(table)).get("properties") or {}
        return is_clone_of(table, properties, self.action.table, uuid)

    def _around(self, table: Identifier, files: Wanted) -> str | None:
        """The location of a table of another format, if it may hold some files."""
        locations = location_of_another_format(self.lake, table)
        return next(
            (
                path
                for path in locations
                if meet(Folders(local=frozenset([normal(path).path])).resolved(), files.folders)
            ),
            None,
        )

    def _wanted(self, files: DataFrame) -> Wanted:
        """Files of the table to look for in others."""
        own = declared_paths(head(self.lake, self.action.table).metadata)
        try:
            return wanted(self.lake.spark, files, own)
        except Exception as error:
            raise explain(error, self.lake.sql_name(self.action.table)) from error

    def _is_asked(self) -> bool:
        """Whether a stop was requested."""
        return self.stop.is_set


class ExpiryGuard(_Removal):
    """An expiry: first computes what Iceberg's own rule lets go, removes only that, and then checks
    what it kept.
    """

    def ready(self) -> Action | None:
        now, older_than = dt.datetime.now(dt.UTC), self.action.older_than
        last = int(str(self.action.arguments.get("retain_last", 1)))
        if older_than is None or now - older_than < dt.timedelta(hours=LEAST_HOURS) or last < 1:
            raise ParameterError(
                f"Snapshots younger than {LEAST_HOURS:g} hour never expire. Plan with keep_hours "
                f"of {LEAST_HOURS:g} or more."
            )
        self.before: Json = head(self.lake, self.action.table).metadata
        split = retained(
            self.before, int(older_than.timestamp() * 1000), last, int(now.timestamp() * 1000)
        )
        self.named = split.expired
        for _ in range(_LOOKS):
            self._look_ahead()
            if not (split.expired or split.refs_dropped):
                return None
            self._check_unshared(self.checked)
            if not self._unchecked(0):
                break
        # By name, and none by age: other commits may come until then, and what they push out was
        # not checked.
        arguments = {
            key: value for key, value in self.action.arguments.items() if key != "retain_last"
        }
        if split.expired:
            arguments["snapshot_ids"] = split.expired
        return replace(
            self.action,
            arguments={**arguments, "retain_last": 1},
            older_than=dt.datetime.fromtimestamp(0, dt.UTC),
        )

    def check(self) -> None:
        if more := self._unchecked(_AHEAD_MS // 2):
            raise RemovalRefused(
                f"Snapshots were not expired: {more} would now expire too, by the age limit of "
                "their own branch, and their files were not looked up in the other tables of the "
                "catalog. Try again."
            )

    def _look_ahead(self) -> None:
        """Find what may expire with the named snapshots until the call: what passes the age limit
        of its own branch or ref soon.
        """
        self.before = head(self.lake, self.action.table).metadata
        split = self._by_own_age(self.before, _AHEAD_MS)
        self.checked = tuple(dict.fromkeys((*self.named, *split.expired)))
        self.must_stay = tuple(
            snapshot_id for snapshot_id in split.kept if snapshot_id not in self.checked
        )
        self.refs, self.dropped = split.refs, split.refs_dropped

    def _by_own_age(self, metadata: Json, ahead_ms: int) -> Retained:
        """What the call keeps some milliseconds from now, apart from the named snapshots: it names
        no age, but a branch may have an age limit of its own.
        """
        return retained(metadata, 0, 1, int(dt.datetime.now(dt.UTC).timestamp() * 1000) + ahead_ms)

    def _unchecked(self, ahead_ms: int) -> str:
        """The snapshots and refs that the call would remove and whose files were not looked up, in
        words; empty if there are none.
        """
        split = self._by_own_age(head(self.lake, self.action.table).metadata, ahead_ms)
        snapshots, refs = (
            set(now).difference(seen)
            for now, seen in ((split.expired, self.checked), (split.refs_dropped, self.dropped))
        )
        counts = ((len(snapshots), "snapshot"), (len(refs), "ref"))
        return " and ".join(count(number, what) for number, what in counts if number)

    def _check_unshared(self, expired: Sequence[int]) -> None:
        """Raise if another table of the catalog uses files that would be removed, or if that cannot
        be checked; clones do not count.
        """
        files = self._ending(frozenset(expired)).persist()
        try:
            self.say(
                "  looking up the files that may be removed in every other table of the catalog"
            )
            users, unchecked = self._users(self._wanted(files), "looking files up", of_clones=False)
        finally:
            files.unpersist()
        if users:
            raise RemovalRefused(
                "Snapshots were not expired: files that would be removed with them are used by "
                f"{_named(users)}. First give each table its own files (CREATE TABLE … AS "
                "SELECT), or drop the table that is not needed (without PURGE)."
            )
        if unchecked:
            raise RemovalRefused(
                "Snapshots were not expired: icekit could not check whether another table needs "
                f"their files ({unchecked}). Fix that and try again."
            )

    def _ending(self, expired: Collection[int]) -> DataFrame:
        """The files that are removed with some snapshots, by ``file_path``; may include some that
        stay.
        """
        spark, name = self.lake.spark, self.lake.sql_name(self.action.table)
        kept = f"IN ({', '.join(map(str, self.must_stay))})"
        every = (
            metadata_table(spark, name, "all_entries")
            .where("status < 2")
            .selectExpr("data_file.file_path", "snapshot_id")
        )
        # A file that is live in a kept snapshot was added by a kept snapshot, or existed before the
        # oldest.
        stays = every.where(f"snapshot_id {kept}").select("file_path")
        for snapshot_id in self._oldest_kept():
            stays = stays.unionAll(
                metadata_table(spark, name, "files", snapshot_id).select("file_path")
            )
        manifests = metadata_table(spark, name, "all_manifests").selectExpr(
            "path AS file_path", "reference_snapshot_id"
        )
        of_kept = manifests.where(f"reference_snapshot_id {kept}").select("file_path")
        data = every.select("file_path").distinct().join(stays, "file_path", "left_anti")
        ending = data.unionAll(
            manifests.select("file_path").distinct().join(of_kept, "file_path", "left_anti")
        )
        named = {
            s["manifest-list"]
            for s in self.before.get("snapshots") or ()
            if s["snapshot-id"] in expired and s.get("manifest-list")
        }
        for key in ("statistics", "partition-statistics"):
            named |= {
                s["statistics-path"]
                for s in self.before.get(key) or ()
                if s["snapshot-id"] in expired
            }
        return ending.unionAll(
            spark.createDataFrame([(path,) for path in sorted(named)], "file_path string")
        )

    def _oldest_kept(self) -> list[int]:
        """The oldest kept snapshot of each branch and tag; only some if there are many refs,
        because each is read separately.
        """
        by_id = snapshots_by_id(self.before)
        oldest_kept: dict[int, None] = {}
        heads = [
            int(ref["snapshot-id"]) for _, ref in sorted((self.before.get("refs") or {}).items())
        ]
        for head_id in [int(self.before.get("current-snapshot-id") or -1), *heads]:
            kept = takewhile(
                lambda s: s["snapshot-id"] in self.must_stay, lineage(by_id, by_id.get(head_id))
            )
            if oldest := deque(kept, maxlen=1):
                oldest_kept[int(oldest[0]["snapshot-id"])] = None
        return list(oldest_kept)[:_REFS]

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        left = {
            s["snapshot-id"]
            for s in head(self.lake, self.action.table).metadata.get("snapshots") or ()
        }
        before = {s["snapshot-id"] for s in self.before.get("snapshots") or ()}
        return replace(committed, items_before=len(before), items_after=len(before & left))

    def proof(self, snapshot_ids: Sequence[int], limits: Limits) -> Proof | None:  # noqa: ARG002
        lists = self.result.manifest_lists
        more = lists is None or lists > len(self.named)
        return self._kept(
            prove_history(
                self.lake, self.action.table, self.must_stay, self.refs, removed_more=more
            )
        )


class OrphanGuard(_Removal):
    """A removal of orphans: removes only files that were listed and looked up in all metadata, and
    nothing if another table keeps files there.

    The procedure gets the checked list to remove from (``file_list_view``), so it cannot
    remove files that appeared after the check.
    """

    view = ""
    listed = left = 0

    def ready(self) -> Action | None:
        older_than = self.action.older_than
        if older_than is None or dt.datetime.now(dt.UTC) - older_than < ORPHAN_AGE:
            raise ParameterError(
                f"Orphan files younger than {ORPHAN_AGE.days} days are not removed: a writer may "
                "be about to commit them. Plan again."
            )
        self.found = found = self._list()
        self.listed = found.count()
        if not self.listed:
            return None
        orphans = self._wanted(found)
        named = referenced(self.lake, self.action.table, orphans)
        # Checked again although the plan checked it: a table may have been created since, and the
        # steps above take time.
        if refusal := sharing(
            self.lake,
            self.action.table,
            load_metadata,
            TableQuery(say=self.say, stopped=self._is_asked),
        ).refusal:
            raise RemovalRefused(refusal)
        planned = self.action.prediction.files_in
        if self.listed > LISTING_SLACK * planned:
            raise ParameterError(
                f"The listing changed: {count(self.listed, 'orphan')}, but the plan showed "
                f"{planned:,}. Observe the table again and plan again."
            )
        if named:
            raise MetadataUnreadable(
                f"The table's own metadata names {count(len(named), 'listed orphan')} or more, "
                f"for example {named[0]}. Nothing was removed. The location is written in "
                "different ways. Set equal_schemes and equal_authorities, and remove orphan files "
                "by hand."
            )
        self._check_unnamed(orphans)
        # The name needs no backticks, and the procedure reads it as a table name.
        self.view = f"icekit_orphans_{id(self):x}"
        past = sql.literal(older_than - dt.timedelta(days=1))
        found.selectExpr(
            f"{self._as_located()} AS file_path", f"{past} AS last_modified"
        ).createOrReplaceTempView(self.view)
        arguments = {k: v for k, v in self.action.arguments.items() if k != "prefix_listing"}
        return replace(self.action, arguments={**arguments, "file_list_view": self.view})

    def _check_unnamed(self, orphans: Wanted) -> None:
        """Raise if another table of the catalog names a listed orphan, wherever that table is, or
        if that cannot be checked.
        """
        self.say(
            f"  looking up {count(self.listed, 'orphan')} among the files of every other table of "
            "the catalog"
        )
        users, unchecked = self._users(orphans, "looking orphans up", of_clones=True)
        if users:
            raise RemovalRefused(
                "Orphan files were not removed: this table does not name them, but "
                f"{_named(users)} does. First give that table its own files (CREATE TABLE … AS "
                "SELECT), or drop it (without PURGE)."
            )
        if unchecked:
            raise RemovalRefused(
                "Orphan files were not removed: icekit could not check whether another table "
                f"needs them ({unchecked}). Fix that and try again."
            )

    def actual(self, committed: Actual, snapshot_ids: Sequence[int]) -> Actual:  # noqa: ARG002
        # Another job's expiry may list more meanwhile.
        self.left = self._list().join(self.found, "file_path", "left_semi").count()
        return replace(committed, items_before=self.listed, items_after=self.left)

    def proof(self, snapshot_ids: Sequence[int], limits: Limits) -> Proof | None:  # noqa: ARG002
        if not self.listed:
            return None
        text = (
            f"none of the {count(self.listed, 'file')} was named by any snapshot or metadata "
            "file; icekit looked up all of them before it removed any"
        )
        return self._kept(
            prove_live(
                self.lake,
                self.action.table,
                "remove_orphan_files",
                [Check(True, text), self._gone()],
            )
        )

    def _gone(self) -> Check:
        if self.left:
            return Check(
                None,
                f"{count(self.left, 'orphan')} of {self.listed:,} still exist in a new listing",
            )
        return Check(True, "none is left in a new listing")

    def _as_located(self) -> str:
        """SQL for a listed path in the form of the table's location: the procedure accepts only
        paths that begin with it.
        """
        location = head(self.lake, self.action.table).metadata["location"].rstrip("/")
        plain, path = normal(location).path, path_sql("file_path")
        return (
            f"CASE WHEN startswith({path}, {sql.literal(plain + '/')}) AND NOT "
            f"startswith(file_path, {sql.literal(location + '/')}) THEN "
            f"concat({sql.literal(location)}, substring({path}, {len(plain) + 1})) ELSE file_path "
            "END"
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
    names = [f"{display_name(name)} ({path})" for name, path in list(tables.items())[:_NAMED]]
    more = len(tables) - len(names)
    return ", ".join(names) + (f" and {count(more, 'more table')}" if more else "")
