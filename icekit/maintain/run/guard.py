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

    def __init__(self, lake: Lake, settings: RunSettings, action_progress: ActionProgress) -> None:
        self.lake = lake
        self.action = action_progress.action
        self.action_progress = action_progress
        self.say = settings.say
        self.stop = settings.stop
        self.prove = settings.limits.prove

    def action_to_run(self) -> Action | None:
        """The action to run, None if nothing is left to do; raises if it must not run."""
        return self.action

    def check_again(self) -> None:
        """Raise if the action that was ready must not run any more; called right before each
        attempt.
        """

    def actual(self) -> Actual:
        """What the action changed, as the table has it."""
        return self.action_progress.actual

    def proof(self) -> Proof | None:
        """The proof that nothing was lost; None if nothing was changed. A commit is proved only if
        what it added is there.
        """
        commits = self.action_progress.commits
        if not commits:
            return None
        table = self.action.table
        branch = self.action.branch
        commits_with_lost_files = lost_files(
            self.lake,
            table,
            head(self.lake, table, branch),
            branch,
            commits,
            data_commit_ids=self.action_progress.doubtful_ids,
        )
        if failed_checks := tuple(Check(False, each.text) for each in commits_with_lost_files):
            return Proof(display_name(table), (), 0.0, maintenance_checks=failed_checks)
        if self.action.procedure == "rewrite_manifests":
            return prove_entries(self.lake, self.action.table, list(commits))
        if self.prove == "checked":
            return prove_rewrites(self.lake, self.action.table, commits)
        return prove_commits(self.lake, self.action.table, list(commits))

    def close(self) -> None:
        """Release what was created for the run."""

    def current_metadata(self) -> Json:
        """The table's metadata, read now."""
        return head(self.lake, self.action.table).metadata


class _Removal(Guard):
    """An action that removes files: first looks them up in the other tables of the catalog.

    ``refusal_start`` says what is not done if another table uses a file; without
    ``includes_clones``, clones of the table itself do not count.
    """

    refusal_start: str
    includes_clones: bool

    def _check_unused_by_others(self, files: LookupFiles, file_noun: str) -> None:
        """Raise if another table of the catalog names some files, wherever that table is, or if
        that cannot be checked.
        """
        self.say(f"  looking up {file_noun} among the files of every other table of the catalog")
        used_path_by_table, unchecked_reason = self._paths_used_by_others(files)
        if used_path_by_table:
            table_texts = [
                f"{display_name(name)} ({path})" for name, path in used_path_by_table.items()
            ]
            raise RemovalRefused(
                f"{self.refusal_start}: files that would be removed are used by "
                f"{first_names(table_texts, _NAMED)}. First give each table its own files (CREATE "
                "TABLE … AS SELECT), or drop the table that is not needed (without PURGE)."
            )
        if unchecked_reason:
            raise RemovalRefused(
                f"{self.refusal_start}: icekit could not check whether another table needs them "
                f"({unchecked_reason}). Fix that and try again."
            )

    def _paths_used_by_others(self, files: LookupFiles) -> tuple[dict[Identifier, str], str | None]:
        """The other tables of the catalog that name some files, each with one such file, and what
        could not be checked.

        A table of another format names every file in its location. Raises
        :class:`~icekit.engine.interrupting.Stopped` after a request to stop.
        """
        spark = self.lake.spark
        tag = new_job_tag()
        table_uuid = self.current_metadata().get("table-uuid")

        def named(table: Identifier) -> str | None:
            try:
                if not self.includes_clones and self._is_clone(table, table_uuid):
                    return None
                with tag_jobs(spark, tag):
                    # A search that begins after the request would no longer be cancelled.
                    if (
                        not may_name_files(self.lake, table, files.folders)
                        or self._is_stop_requested()
                    ):
                        return None
                    return next(iter(referenced_paths(self.lake, table, files)), None)
            except NotATable:
                return self._location_around(table, files)
            except Exception as error:
                raise explain(error, self.lake.sql_name(table)) from error

        with act_on_request(self._is_stop_requested, lambda: cancel_jobs(spark, tag)):
            used_path_by_table, unchecked_reason = read_other_tables(
                self.lake,
                self.action.table,
                named,
                "looking files up",
                ReadLimits(
                    max_seconds=LOOKING_SECONDS, say=self.say, is_stopped=self._is_stop_requested
                ),
            )
        if self._is_stop_requested():
            cancel_jobs(spark, tag)
        self.stop.check()
        return {
            name: path for name, path in sorted(used_path_by_table.items()) if path is not None
        }, unchecked_reason

    def _is_clone(self, table: Identifier, table_uuid: str | None) -> bool:
        if table[:-1] != (NAMESPACE,):
            return False
        properties = properties_of(head(self.lake, table).metadata)
        return is_clone_of(table, properties, self.action.table, table_uuid)

    def _location_around(self, table: Identifier, files: LookupFiles) -> str | None:
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

    def _files_to_look_up(self, files: DataFrame) -> LookupFiles:
        """Files of the table to look for in others."""
        with explain_errors(self.action.sql_name):
            return lookup_files(self.lake.spark, files, declared_paths(self.current_metadata()))

    def _is_stop_requested(self) -> bool:
        """Whether a stop was requested."""
        return self.stop.is_set


class ExpiryGuard(_Removal):
    """An expiry: first computes what Iceberg's own rule lets go, removes only that, and then checks
    what it kept.
    """

    refusal_start = "Snapshots were not expired"
    includes_clones = False

    def action_to_run(self) -> Action | None:
        now = dt.datetime.now(dt.UTC)
        older_than = self.action.older_than
        retain_last = int(str(self.action.arguments.get("retain_last", 1)))
        if (
            older_than is None
            or now - older_than < dt.timedelta(hours=LEAST_HOURS)
            or retain_last < 1
        ):
            raise ParameterError(
                f"Snapshots younger than {LEAST_HOURS:g} hour never expire. Plan with keep_hours "
                f"of {LEAST_HOURS:g} or more."
            )
        self.metadata_before = self.current_metadata()
        older_than_ms = int(older_than.timestamp() * 1000)
        now_ms = int(now.timestamp() * 1000)
        self.retention = self.action.retention or Retention()
        planned_expiry = expiry_older_than(
            self.metadata_before, older_than_ms, retain_last, self.retention, now_ms
        )
        self.summary = planned_expiry.summary
        retained_now = planned_expiry.snapshots
        self.expired_ids = retained_now.expired_ids
        # What passes the age limit of its own branch or ref soon may expire with the named ones.
        retained_soon = self._retained_by_own_age(self.metadata_before, _AHEAD_MS)
        if limit_conflict := conflict_with_limits(
            self.metadata_before, planned_expiry.needs, now_ms + _AHEAD_MS
        ):
            raise RemovalRefused(f"{self.refusal_start}. {limit_conflict}")
        self.checked_ids = tuple(dict.fromkeys((*self.expired_ids, *retained_soon.expired_ids)))
        self.remaining_ids = tuple(
            each for each in retained_soon.remaining_ids if each not in self.checked_ids
        )
        self.remaining_refs = retained_soon.remaining_refs
        self.expired_refs = retained_soon.expired_refs
        if not (retained_now.expired_ids or retained_now.expired_refs):
            return None
        ending_files = self._ending_files(frozenset(self.checked_ids)).persist()
        try:
            self._check_unused_by_others(
                self._files_to_look_up(ending_files), "the files that may be removed"
            )
        finally:
            ending_files.unpersist()
        # By name, and none by age: other commits may come until then, and what they push out was
        # not checked.
        expiry_arguments = {**self.action.arguments, "retain_last": 1}
        if retained_now.expired_ids:
            expiry_arguments["snapshot_ids"] = retained_now.expired_ids
        epoch = dt.datetime.fromtimestamp(0, dt.UTC)
        return replace(self.action, arguments=expiry_arguments, older_than=epoch, expiry=None)

    def check_again(self) -> None:
        metadata = self.current_metadata()
        # A rollback or a new branch may need what went by when the named ones were chosen.
        now_ms = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        current_needs = retention_needs(metadata, self.retention, now_ms)
        needed_ids = current_needs.snapshot_ids.intersection(self.checked_ids)
        if needed_ids:
            raise RemovalRefused(
                f"{self.refusal_start}: a writer or a staged write now needs "
                f"{count(len(needed_ids), 'snapshot')} of those that were to expire, because "
                "another job changed a branch meanwhile. Try again."
            )
        retained_soon = self._retained_by_own_age(metadata, _AHEAD_MS // 2)
        unchecked_expiries = {*retained_soon.expired_ids, *retained_soon.expired_refs}.difference(
            self.checked_ids, self.expired_refs
        )
        if unchecked_expiries:
            raise RemovalRefused(
                f"{self.refusal_start}: "
                f"{count(len(unchecked_expiries), 'snapshot or ref', 'snapshots or refs')} would "
                "now expire too, by the age limit of their own branch, and their files were not "
                "looked up in the other tables of the catalog. Try again."
            )

    def _retained_by_own_age(self, metadata: Json, ahead_ms: int) -> Retained:
        """What the call keeps some milliseconds from now, apart from the named snapshots: it names
        no age, but a branch may have an age limit of its own.
        """
        return retained_snapshots(
            metadata, 0, 1, int(dt.datetime.now(dt.UTC).timestamp() * 1000) + ahead_ms
        )

    def _ending_files(self, expired_ids: Collection[int]) -> DataFrame:
        """The files that are removed with some snapshots, by ``file_path``; may include some that
        stay.
        """
        snapshots_and_statistics = [
            *(self.metadata_before.get("snapshots") or ()),
            *statistics_files(self.metadata_before),
        ]
        list_and_statistics_paths = {
            each.get("manifest-list") or each.get("statistics-path")
            for each in snapshots_and_statistics
            if each["snapshot-id"] in expired_ids
        } - {None}
        if fields_blocking_files_table_of(self.metadata_before):
            ending_paths = frame_of_paths(self.lake.spark, self._ending_paths_without_spark())
        else:
            ending_paths = self._ending_files_in_spark()
        return ending_paths.unionAll(
            frame_of_paths(self.lake.spark, sorted(list_and_statistics_paths))
        )

    def _ending_files_in_spark(self) -> DataFrame:
        """The data and delete files, and the manifests, that no kept snapshot has."""
        spark = self.lake.spark
        table_name = self.action.sql_name
        remaining_ids_sql = f"IN ({', '.join(map(str, self.remaining_ids))})"
        live_file_paths = (
            metadata_table(spark, table_name, "all_entries")
            .where("status < 2")
            .selectExpr("data_file.file_path", "snapshot_id")
        )
        # A file that is live in a kept snapshot was added by a kept snapshot, or existed before the
        # oldest.
        remaining_file_paths = live_file_paths.where(f"snapshot_id {remaining_ids_sql}").select(
            "file_path"
        )
        for snapshot_id in self._oldest_remaining_ids():
            remaining_file_paths = remaining_file_paths.unionAll(
                metadata_table(spark, table_name, "files", snapshot_id).select("file_path")
            )
        manifest_paths = metadata_table(spark, table_name, "all_manifests").selectExpr(
            "path AS file_path", "reference_snapshot_id"
        )
        remaining_manifest_paths = manifest_paths.where(
            f"reference_snapshot_id {remaining_ids_sql}"
        ).select("file_path")
        ending_file_paths = (
            live_file_paths.select("file_path")
            .distinct()
            .join(remaining_file_paths, "file_path", "left_anti")
        )
        return ending_file_paths.unionAll(
            manifest_paths.select("file_path")
            .distinct()
            .join(remaining_manifest_paths, "file_path", "left_anti")
        )

    def _ending_paths_without_spark(self) -> list[str]:
        """The same, where Iceberg cannot read its metadata tables of files."""
        source = self.lake.tables.source(self.action.table)
        snapshots = self.metadata_before.get("snapshots") or ()
        remaining_snapshots = [
            each for each in snapshots if each["snapshot-id"] in self.remaining_ids
        ]
        remaining_manifests = manifests_of(source, {"snapshots": remaining_snapshots})
        manifests_by_path = manifests_of(source, {"snapshots": snapshots})
        ending_manifests = {
            path: manifest
            for path, manifest in manifests_by_path.items()
            if path not in remaining_manifests
        }
        ending_files = set(paths_in_manifests(source, ending_manifests.values()))
        ending_files.difference_update(paths_in_manifests(source, remaining_manifests.values()))
        return [*ending_manifests, *sorted(ending_files)]

    def _oldest_remaining_ids(self) -> list[int]:
        """The kept snapshots whose parent is not kept; only some if they are many, because each is
        read separately.
        """
        remaining_ids = set(self.remaining_ids)
        oldest_ids = [
            int(snapshot["snapshot-id"])
            for snapshot in self.metadata_before.get("snapshots") or ()
            if snapshot["snapshot-id"] in remaining_ids
            and snapshot.get("parent-snapshot-id") not in remaining_ids
        ]
        return oldest_ids[:_OLDEST]

    def actual(self) -> Actual:
        snapshots_before = snapshots_by_id(self.metadata_before)
        current_snapshots = snapshots_by_id(self.current_metadata())
        remaining_ids = snapshots_before.keys() & current_snapshots.keys()
        return Actual(items_before=len(snapshots_before), items_after=len(remaining_ids))

    def proof(self) -> Proof | None:
        action_progress = self.action_progress
        has_removed_more = (
            not action_progress.is_result_complete
            or action_progress.result.deleted_manifest_lists > len(self.expired_ids)
        )
        return prove_history(
            self.lake,
            self.action.table,
            self.remaining_ids,
            self.remaining_refs,
            self.summary,
            self.retention.writer_keys,
            has_removed_more=has_removed_more,
        )


class OrphanGuard(_Removal):
    """A removal of orphans: removes only files that were listed and looked up in all metadata, and
    nothing if another table keeps files there.

    The procedure gets the checked list to remove from (``file_list_view``), so it cannot
    remove files that appeared after the check.
    """

    refusal_start = "Orphan files were not removed"
    includes_clones = True
    view_name = ""
    listed_count = 0
    remaining_count = 0

    def action_to_run(self) -> Action | None:
        older_than = self.action.older_than
        if older_than is None or dt.datetime.now(dt.UTC) - older_than < ORPHAN_AGE:
            raise ParameterError(
                f"Orphan files younger than {ORPHAN_AGE.days} days are not removed: a writer may "
                "be about to commit them. Plan again."
            )
        self.orphans = listed_orphans = self._orphan_listing()
        self.listed_count = listed_orphans.count()
        if not self.listed_count:
            return None
        orphan_lookup = self._files_to_look_up(listed_orphans)
        paths_in_metadata = referenced_paths(self.lake, self.action.table, orphan_lookup)
        # Checked again although the plan checked it: a table may have been created since, and the
        # steps above take time.
        if sharing_refusal := sharing(
            self.lake,
            self.action.table,
            ReadLimits(say=self.say, is_stopped=self._is_stop_requested),
        ).refusal:
            raise RemovalRefused(sharing_refusal)
        planned_count = self.action.prediction.files_in
        if self.listed_count > LISTING_SLACK * planned_count:
            raise ParameterError(
                f"The listing changed: {count(self.listed_count, 'orphan')}, but the plan showed "
                f"{planned_count:,}. Observe the table again and plan again."
            )
        if paths_in_metadata:
            raise MetadataUnreadable(
                "The table's own metadata names "
                f"{count(len(paths_in_metadata), 'listed orphan')} or more, for example "
                f"{paths_in_metadata[0]}. Nothing was removed. The location is written in different "
                "ways. Set equal_schemes and equal_authorities, and remove orphan files by hand."
            )
        self._check_unused_by_others(orphan_lookup, count(self.listed_count, "orphan"))
        # The name needs no backticks, and the procedure reads it as a table name.
        self.view_name = f"icekit_orphans_{id(self):x}"
        old_time_sql = sql.literal(older_than - dt.timedelta(days=1))
        listed_orphans.selectExpr(
            f"{self._located_path_sql()} AS file_path", f"{old_time_sql} AS last_modified"
        ).createOrReplaceTempView(self.view_name)
        removal_arguments = {
            k: v for k, v in self.action.arguments.items() if k != "prefix_listing"
        }
        return replace(
            self.action, arguments={**removal_arguments, "file_list_view": self.view_name}
        )

    def actual(self) -> Actual:
        # Another job's expiry may list more meanwhile.
        self.remaining_count = (
            self._orphan_listing().join(self.orphans, "file_path", "left_semi").count()
        )
        return Actual(items_before=self.listed_count, items_after=self.remaining_count)

    def proof(self) -> Proof | None:
        if not self.listed_count:
            return None
        lookup_sentence = (
            f"none of the {count(self.listed_count, 'file')} was named by any snapshot or metadata "
            "file; icekit looked up all of them before it removed any"
        )
        absence_check = Check(True, "none is left in a new listing")
        if self.remaining_count:
            remaining_sentence = (
                f"{count(self.remaining_count, 'orphan')} of {self.listed_count:,} still exist in "
                "a new listing"
            )
            absence_check = Check(None, remaining_sentence)
        removed_text = count(self.listed_count - self.remaining_count, "orphan file")
        return prove_live(
            self.lake,
            self.action.table,
            [Check(True, lookup_sentence), absence_check],
            [removed_text],
        )

    def _located_path_sql(self) -> str:
        """SQL for a listed path in the form of the table's location: the procedure accepts only
        paths that begin with it.
        """
        table_location = self.current_metadata()["location"].rstrip("/")
        normal_location = normal_path_of(table_location).path
        normal_path_expression = normal_path_sql("file_path")
        return (
            f"CASE WHEN startswith({normal_path_expression}, {sql.literal(normal_location + '/')}) AND "
            f"NOT startswith(file_path, {sql.literal(table_location + '/')}) THEN "
            f"concat({sql.literal(table_location)}, substring({normal_path_expression}, "
            f"{len(normal_location) + 1})) ELSE file_path END"
        )

    def close(self) -> None:
        if self.view_name:
            self.lake.spark.catalog.dropTempView(self.view_name)

    def _orphan_listing(self) -> DataFrame:
        action = self.action
        call_sql = sql.call_sql(
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
            return self.lake.spark.sql(call_sql).selectExpr("orphan_file_location AS file_path")


_GUARDS: Mapping[str, type[Guard]] = {
    "expire_snapshots": ExpiryGuard,
    "remove_orphan_files": OrphanGuard,
}


def guard_of(lake: Lake, settings: RunSettings, action_progress: ActionProgress) -> Guard:
    """The guard of an action, by its procedure."""
    return _GUARDS.get(action_progress.action.procedure, Guard)(lake, settings, action_progress)


def proof_of(executed_outcome: ActionOutcome, guard: Guard) -> Proof | None:
    """Compare the commits of an action with their parents, or check what it must keep; None if
    there is nothing to compare.
    """
    if guard.prove == "none" or (
        not executed_outcome.snapshot_ids and executed_outcome.status != Status.DONE
    ):
        return None
    try:
        return guard.proof()
    except Exception as problem:
        # The action is done, and the other actions are not at fault; but it is not proved.
        action = executed_outcome.action
        why = f"Action {action.action_id} could not be proved: {reason(problem)}"
        return Proof(display_name(action.table), (), 0.0, maintenance_checks=(Check(None, why),))
