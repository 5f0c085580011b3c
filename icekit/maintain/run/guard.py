"""Guard an action: check before it runs, count before and after, prove afterwards; above all one
that removes files: an expiry of snapshots, or a removal of orphan files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from icekit.common import sql
from icekit.common.errors import (
    MetadataUnreadable,
    NotATable,
    ParameterError,
    RemovalRefused,
    Status,
)
from icekit.common.sql import Identifier, display_name, identifier
from icekit.common.units import count, first_names
from icekit.engine.errors import explain, explain_errors, reason
from icekit.engine.interrupting import act_on_request, cancel_jobs, new_job_tag, tag_jobs
from icekit.engine.metadata_tables import frame_of_paths, metadata_table
from icekit.health.facts.head import head
from icekit.health.facts.retention import (
    HOUR_MS,
    LEAST_HOURS,
    Retained,
    Retention,
    conflict_with_limits,
    expiry_older_than,
    retained_snapshots,
    retention_needs,
)
from icekit.health.storage.file_references import (
    Folders,
    LookupFiles,
    lookup_files,
    may_name_files,
    referenced_paths,
)
from icekit.health.storage.orphans import (
    ORPHAN_AGE,
    ReadLimits,
    declared_paths,
    location_of_another_format,
    manifests_of,
    paths_in_manifests,
    read_other_tables,
    sharing,
)
from icekit.iceberg.dropped_fields import fields_blocking_files_table_of
from icekit.iceberg.metadata import Json, properties_of, snapshots_by_id, statistics_files
from icekit.iceberg.paths import has_common_folder, normal_path_of, normal_path_sql
from icekit.maintain.action import Action
from icekit.maintain.record.results import Actual
from icekit.maintain.run.action_progress import ActionProgress
from icekit.maintain.run.lost_files import lost_files
from icekit.maintain.run.maintenance_proof import prove_entries, prove_history, prove_live
from icekit.maintain.run.options import RunSettings
from icekit.maintain.run.outcome import ActionOutcome
from icekit.rows.proof.commits import prove_commits, prove_rewrites
from icekit.rows.proof.proof import Check, Proof
from icekit.sandbox.scratch import NAMESPACE, is_clone_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icekit.engine.lake import Lake

#: A choice: how many times the planned number of orphans a new listing may have.
LISTING_SLACK = 1.1


#: A choice: the most seconds for looking up listed orphans among the files that other tables name.
LOOKING_SECONDS = 4 * 3600.0


# Most tables that a refusal names.
_NAMED = 5


# A choice: most of the oldest kept snapshots whose files are read to know which stay.
_OLDEST = 20


# A choice: how long before their time the files of snapshots that expire by the age limit of their
# own branch are looked up.
_AHEAD_MS = HOUR_MS


class Guard:
    """The default guard: the action runs as planned, its commits say what it did, and their rows
    (or, after a rewrite of manifests, their manifest entries) are compared.
    """

    def __init__(self, lake: Lake, settings: RunSettings, progress: ActionProgress) -> None:
        self.lake = lake
        self.action = progress.action
        self.progress = progress
        self.say = settings.say
        self.stop = settings.stop
        self.prove = settings.limits.prove

    def ready(self) -> Action | None:
        """The action to run, None if nothing is left to do; raises if it must not run."""
        return self.action

    def check(self) -> None:
        """Raise if the action that was ready must not run any more; called right before each
        attempt.
        """

    def actual(self) -> Actual:
        """What the action changed, as the table has it."""
        return self.progress.actual

    def proof(self) -> Proof | None:
        """The proof that nothing was lost; None if nothing was changed. A commit is proved only if
        what it added is there.
        """
        commits = self.progress.commits
        if not commits:
            return None
        table = self.action.table
        branch = self.action.branch
        lost = lost_files(
            self.lake,
            table,
            head(self.lake, table, branch),
            branch,
            commits,
            with_data=self.progress.doubtful,
        )
        if checks := tuple(Check(False, each.text) for each in lost):
            return Proof(display_name(table), (), 0.0, maintenance_checks=checks)
        if self.action.procedure == "rewrite_manifests":
            return prove_entries(self.lake, self.action.table, list(commits))
        if self.prove == "checked":
            return prove_rewrites(self.lake, self.action.table, commits)
        return prove_commits(self.lake, self.action.table, list(commits))

    def close(self) -> None:
        """Release what was created for the run."""

    def metadata(self) -> Json:
        """The table's metadata, read now."""
        return head(self.lake, self.action.table).metadata


class _Removal(Guard):
    """An action that removes files: first looks them up in the other tables of the catalog.

    ``refusal`` says what is not done if another table uses a file; without ``of_clones``, clones of
    the table itself do not count.
    """

    refusal: str
    of_clones: bool

    def _check_unused(self, files: LookupFiles, file_noun: str) -> None:
        """Raise if another table of the catalog names some files, wherever that table is, or if
        that cannot be checked.
        """
        self.say(f"  looking up {file_noun} among the files of every other table of the catalog")
        users, unchecked = self._users(files)
        if users:
            names = [f"{display_name(name)} ({path})" for name, path in users.items()]
            raise RemovalRefused(
                f"{self.refusal}: files that would be removed are used by "
                f"{first_names(names, _NAMED)}. First give each table its own files (CREATE TABLE "
                "… AS SELECT), or drop the table that is not needed (without PURGE)."
            )
        if unchecked:
            raise RemovalRefused(
                f"{self.refusal}: icekit could not check whether another table needs them "
                f"({unchecked}). Fix that and try again."
            )

    def _users(self, files: LookupFiles) -> tuple[dict[Identifier, str], str | None]:
        """The other tables of the catalog that name some files, each with one such file, and what
        could not be checked.

        A table of another format names every file in its location. Raises
        :class:`~icekit.engine.interrupting.Stopped` after a request to stop.
        """
        spark = self.lake.spark
        tag = new_job_tag()
        uuid = self.metadata().get("table-uuid")

        def named(table: Identifier) -> str | None:
            try:
                if not self.of_clones and self._is_clone(table, uuid):
                    return None
                with tag_jobs(spark, tag):
                    # A search that begins after the request would no longer be cancelled.
                    if not may_name_files(self.lake, table, files.folders) or self._is_asked():
                        return None
                    return next(iter(referenced_paths(self.lake, table, files)), None)
            except NotATable:
                return self._around(table, files)
            except Exception as error:
                raise explain(error, self.lake.sql_name(table)) from error

        with act_on_request(self._is_asked, lambda: cancel_jobs(spark, tag)):
            users, unchecked = read_other_tables(
                self.lake,
                self.action.table,
                named,
                "looking files up",
                ReadLimits(max_seconds=LOOKING_SECONDS, say=self.say, is_stopped=self._is_asked),
            )
        if self._is_asked():
            cancel_jobs(spark, tag)
        self.stop.check()
        return {name: path for name, path in sorted(users.items()) if path is not None}, unchecked

    def _is_clone(self, table: Identifier, uuid: str | None) -> bool:
        if table[:-1] != (NAMESPACE,):
            return False
        properties = properties_of(head(self.lake, table).metadata)
        return is_clone_of(table, properties, self.action.table, uuid)

    def _around(self, table: Identifier, files: LookupFiles) -> str | None:
        """The location of a table of another format, if it may hold some files."""
        locations = location_of_another_format(self.lake, table)
        return next(
            (
                path
                for path in locations
                if has_common_folder(
                    Folders(
                        local_folders=frozenset([normal_path_of(path).path])
                    ).resolved_folders(),
                    files.folders,
                )
            ),
            None,
        )

    def _wanted(self, files: DataFrame) -> LookupFiles:
        """Files of the table to look for in others."""
        with explain_errors(self.action.sql_name):
            return lookup_files(self.lake.spark, files, declared_paths(self.metadata()))

    def _is_asked(self) -> bool:
        """Whether a stop was requested."""
        return self.stop.is_set


class ExpiryGuard(_Removal):
    """An expiry: first computes what Iceberg's own rule lets go, removes only that, and then checks
    what it kept.
    """

    refusal = "Snapshots were not expired"
    of_clones = False

    def ready(self) -> Action | None:
        now = dt.datetime.now(dt.UTC)
        older_than = self.action.older_than
        last = int(str(self.action.arguments.get("retain_last", 1)))
        if older_than is None or now - older_than < dt.timedelta(hours=LEAST_HOURS) or last < 1:
            raise ParameterError(
                f"Snapshots younger than {LEAST_HOURS:g} hour never expire. Plan with keep_hours "
                f"of {LEAST_HOURS:g} or more."
            )
        self.before = self.metadata()
        older_than_ms = int(older_than.timestamp() * 1000)
        now_ms = int(now.timestamp() * 1000)
        self.retention = self.action.retention or Retention()
        expiring = expiry_older_than(self.before, older_than_ms, last, self.retention, now_ms)
        self.summary = expiring.summary
        split = expiring.snapshots
        self.named = split.expired_ids
        # What passes the age limit of its own branch or ref soon may expire with the named ones.
        soon = self._by_own_age(self.before, _AHEAD_MS)
        if conflict := conflict_with_limits(self.before, expiring.needs, now_ms + _AHEAD_MS):
            raise RemovalRefused(f"{self.refusal}. {conflict}")
        self.checked = tuple(dict.fromkeys((*self.named, *soon.expired_ids)))
        self.must_stay = tuple(each for each in soon.remaining_ids if each not in self.checked)
        self.refs = soon.remaining_refs
        self.dropped = soon.expired_refs
        if not (split.expired_ids or split.expired_refs):
            return None
        files = self._ending(frozenset(self.checked)).persist()
        try:
            self._check_unused(self._wanted(files), "the files that may be removed")
        finally:
            files.unpersist()
        # By name, and none by age: other commits may come until then, and what they push out was
        # not checked.
        arguments = {**self.action.arguments, "retain_last": 1}
        if split.expired_ids:
            arguments["snapshot_ids"] = split.expired_ids
        long_ago = dt.datetime.fromtimestamp(0, dt.UTC)
        return replace(self.action, arguments=arguments, older_than=long_ago, expiry=None)

    def check(self) -> None:
        metadata = self.metadata()
        # A rollback or a new branch may need what went by when the named ones were chosen.
        now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        needs = retention_needs(metadata, self.retention, now_ms)
        if needs.snapshot_ids.intersection(self.checked):
            raise RemovalRefused(
                f"{self.refusal}: a writer or a staged write now needs "
                f"{count(len(needs.snapshot_ids.intersection(self.checked)), 'snapshot')} of those "
                "that were to expire, because another job changed a branch meanwhile. Try again."
            )
        soon = self._by_own_age(metadata, _AHEAD_MS // 2)
        more = {*soon.expired_ids, *soon.expired_refs}.difference(self.checked, self.dropped)
        if more:
            raise RemovalRefused(
                f"{self.refusal}: {count(len(more), 'snapshot or ref', 'snapshots or refs')} would "
                "now expire too, by the age limit of their own branch, and their files were not "
                "looked up in the other tables of the catalog. Try again."
            )

    def _by_own_age(self, metadata: Json, ahead_ms: int) -> Retained:
        """What the call keeps some milliseconds from now, apart from the named snapshots: it names
        no age, but a branch may have an age limit of its own.
        """
        return retained_snapshots(
            metadata, 0, 1, int(dt.datetime.now(dt.UTC).timestamp() * 1000) + ahead_ms
        )

    def _ending(self, expired: Collection[int]) -> DataFrame:
        """The files that are removed with some snapshots, by ``file_path``; may include some that
        stay.
        """
        listed_files = [*(self.before.get("snapshots") or ()), *statistics_files(self.before)]
        named_locations = {
            each.get("manifest-list") or each.get("statistics-path")
            for each in listed_files
            if each["snapshot-id"] in expired
        } - {None}
        if fields_blocking_files_table_of(self.before):
            ending = frame_of_paths(self.lake.spark, self._ending_without_spark())
        else:
            ending = self._ending_in_spark()
        return ending.unionAll(frame_of_paths(self.lake.spark, sorted(named_locations)))

    def _ending_in_spark(self) -> DataFrame:
        """The data and delete files, and the manifests, that no kept snapshot has."""
        spark = self.lake.spark
        name = self.action.sql_name
        kept_filter = f"IN ({', '.join(map(str, self.must_stay))})"
        all_files = (
            metadata_table(spark, name, "all_entries")
            .where("status < 2")
            .selectExpr("data_file.file_path", "snapshot_id")
        )
        # A file that is live in a kept snapshot was added by a kept snapshot, or existed before the
        # oldest.
        stays = all_files.where(f"snapshot_id {kept_filter}").select("file_path")
        for snapshot_id in self._oldest_kept():
            stays = stays.unionAll(
                metadata_table(spark, name, "files", snapshot_id).select("file_path")
            )
        manifests = metadata_table(spark, name, "all_manifests").selectExpr(
            "path AS file_path", "reference_snapshot_id"
        )
        of_kept = manifests.where(f"reference_snapshot_id {kept_filter}").select("file_path")
        data = all_files.select("file_path").distinct().join(stays, "file_path", "left_anti")
        return data.unionAll(
            manifests.select("file_path").distinct().join(of_kept, "file_path", "left_anti")
        )

    def _ending_without_spark(self) -> list[str]:
        """The same, where Iceberg cannot read its metadata tables of files."""
        source = self.lake.tables.source(self.action.table)
        snapshots = self.before.get("snapshots") or ()
        kept_snapshots = [each for each in snapshots if each["snapshot-id"] in self.must_stay]
        kept_manifests = manifests_of(source, {"snapshots": kept_snapshots})
        manifests = manifests_of(source, {"snapshots": snapshots})
        ending_manifests = {
            path: manifest for path, manifest in manifests.items() if path not in kept_manifests
        }
        ending_files = set(paths_in_manifests(source, ending_manifests.values()))
        ending_files.difference_update(paths_in_manifests(source, kept_manifests.values()))
        return [*ending_manifests, *sorted(ending_files)]

    def _oldest_kept(self) -> list[int]:
        """The kept snapshots whose parent is not kept; only some if they are many, because each is
        read separately.
        """
        must_stay = set(self.must_stay)
        oldest = [
            int(snapshot["snapshot-id"])
            for snapshot in self.before.get("snapshots") or ()
            if snapshot["snapshot-id"] in must_stay
            and snapshot.get("parent-snapshot-id") not in must_stay
        ]
        return oldest[:_OLDEST]

    def actual(self) -> Actual:
        before, left = map(snapshots_by_id, (self.before, self.metadata()))
        return Actual(items_before=len(before), items_after=len(before.keys() & left.keys()))

    def proof(self) -> Proof | None:
        progress = self.progress
        more = not progress.is_counted or progress.result.manifest_lists > len(self.named)
        return prove_history(
            self.lake,
            self.action.table,
            self.must_stay,
            self.refs,
            self.summary,
            self.retention.writer_keys,
            removed_more=more,
        )


class OrphanGuard(_Removal):
    """A removal of orphans: removes only files that were listed and looked up in all metadata, and
    nothing if another table keeps files there.

    The procedure gets the checked list to remove from (``file_list_view``), so it cannot
    remove files that appeared after the check.
    """

    refusal = "Orphan files were not removed"
    of_clones = True
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
        named = referenced_paths(self.lake, self.action.table, orphans)
        # Checked again although the plan checked it: a table may have been created since, and the
        # steps above take time.
        if refusal := sharing(
            self.lake,
            self.action.table,
            ReadLimits(say=self.say, is_stopped=self._is_asked),
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
        self._check_unused(orphans, count(self.listed, "orphan"))
        # The name needs no backticks, and the procedure reads it as a table name.
        self.view = f"icekit_orphans_{id(self):x}"
        past = sql.literal(older_than - dt.timedelta(days=1))
        found.selectExpr(
            f"{self._as_located()} AS file_path", f"{past} AS last_modified"
        ).createOrReplaceTempView(self.view)
        arguments = {k: v for k, v in self.action.arguments.items() if k != "prefix_listing"}
        return replace(self.action, arguments={**arguments, "file_list_view": self.view})

    def actual(self) -> Actual:
        # Another job's expiry may list more meanwhile.
        self.left = self._list().join(self.found, "file_path", "left_semi").count()
        return Actual(items_before=self.listed, items_after=self.left)

    def proof(self) -> Proof | None:
        if not self.listed:
            return None
        text = (
            f"none of the {count(self.listed, 'file')} was named by any snapshot or metadata "
            "file; icekit looked up all of them before it removed any"
        )
        gone = Check(True, "none is left in a new listing")
        if self.left:
            still = f"{count(self.left, 'orphan')} of {self.listed:,} still exist in a new listing"
            gone = Check(None, still)
        removed = count(self.listed - self.left, "orphan file")
        return prove_live(self.lake, self.action.table, [Check(True, text), gone], [removed])

    def _as_located(self) -> str:
        """SQL for a listed path in the form of the table's location: the procedure accepts only
        paths that begin with it.
        """
        location = self.metadata()["location"].rstrip("/")
        plain = normal_path_of(location).path
        path = normal_path_sql("file_path")
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
        statement = sql.call_sql(
            action.catalog,
            "remove_orphan_files",
            table=display_name(action.table),
            dry_run=True,
            older_than=action.older_than or dt.datetime.now(dt.UTC) - ORPHAN_AGE,
            options=action.options,
            **action.arguments,
        )
        with explain_errors(action.sql_name):
            self.lake.spark.sql(f"REFRESH TABLE {identifier(*action.sql_name)}")
            return self.lake.spark.sql(statement).selectExpr("orphan_file_location AS file_path")


_GUARDS: Mapping[str, type[Guard]] = {
    "expire_snapshots": ExpiryGuard,
    "remove_orphan_files": OrphanGuard,
}


def guard_of(lake: Lake, settings: RunSettings, progress: ActionProgress) -> Guard:
    """The guard of an action, by its procedure."""
    return _GUARDS.get(progress.action.procedure, Guard)(lake, settings, progress)


def proof_of(executed: ActionOutcome, guard: Guard) -> Proof | None:
    """Compare the commits of an action with their parents, or check what it must keep; None if
    there is nothing to compare.
    """
    if guard.prove == "none" or (not executed.snapshot_ids and executed.status != Status.DONE):
        return None
    try:
        return guard.proof()
    except Exception as problem:
        # The action is done, and the other actions are not at fault; but it is not proved.
        action = executed.action
        why = f"Action {action.action_id} could not be proved: {reason(problem)}"
        return Proof(display_name(action.table), (), 0.0, kept=(Check(None, why),))
