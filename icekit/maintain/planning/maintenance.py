"""Turn facts and findings into maintenance: which procedures, in which order, with which
arguments.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from icekit.common import frozen
from icekit.common.errors import EngineFailed, ParameterError, require_known
from icekit.common.sql import display_name, orphan_arguments
from icekit.common.units import (
    capitalized,
    count_with_verb,
    first_names,
    span,
    time_text,
    utc_time,
)
from icekit.engine.bridge import has_bridge
from icekit.engine.errors import engine_errors, reason
from icekit.engine.lake import Lake
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import COMPACTED, EXPIRED, MAINTAINED, Findings, Thresholds
from icekit.health.facts.column_support import engine_limits
from icekit.health.facts.head import head
from icekit.health.facts.integrity import Contradiction, DeleteState
from icekit.health.facts.model import TableFacts
from icekit.health.facts.retention import Retention, expiry
from icekit.health.facts.rollup import expected_files
from icekit.health.facts.storage import StorageFacts
from icekit.health.storage.orphans import ORPHAN_AGE
from icekit.iceberg.definition import PartitionSpec, dropped_field_warning
from icekit.iceberg.file_kind import Kind
from icekit.maintain.action import Action
from icekit.maintain.engine_prediction import ask_planner, planner_prediction
from icekit.maintain.plan import Plan, statistics_notes
from icekit.maintain.planning.refusals import manifest_refusal, positions_refusal
from icekit.maintain.planning.savings import manifest_rewrites
from icekit.maintain.prediction import Certainty, Prediction

Json = Mapping[str, Any]

#: Planned unless others are named. Removing orphan files cannot be undone, and only a listing
#: identifies them: a person has to ask for it by name.
DEFAULT_PROCEDURES = (
    "rewrite_position_delete_files",
    "rewrite_manifests",
    "expire_snapshots",
)
#: The procedures of maintenance, in the order in which they run.
PROCEDURES = (*DEFAULT_PROCEDURES, "remove_orphan_files")

# rewrite_position_delete_files takes a group with at least this many files (min-input-files).
_MIN_DELETE_FILES = 5


@frozen
class _Case:
    """What each procedure is planned from; ``notes`` and ``refused_procedures`` are collected."""

    facts: TableFacts
    findings: Findings
    retention: Retention
    metadata: Json
    now: dt.datetime
    lake: Lake | None
    #: Whether the user named the procedures.
    has_named_procedures: bool
    notes: list[str] = field(default_factory=list)
    refused_procedures: list[str] = field(default_factory=list)

    def action(
        self, procedure: str, why: str, prediction: Prediction, **more_fields: Any
    ) -> list[Action]:
        """An action on the table; its id comes from its place in the plan."""
        facts = self.facts
        return [Action("", procedure, facts.catalog, facts.table, why, prediction, **more_fields)]

    def leave_out(self, procedure: str, note: str) -> None:
        """Say why a procedure is not planned; it is refused if the user named it."""
        if self.has_named_procedures:
            self.refused_procedures.append(procedure)
        self.notes.append(note)


def plan_maintenance(
    facts: TableFacts,
    findings: Findings,
    retention: Retention | None = None,
    *,
    metadata: Json,
    now: dt.datetime,
    lake: Lake | None = None,
    procedures: Sequence[str] = DEFAULT_PROCEDURES,
) -> Plan:
    """Plan the maintenance of a table outside its data files; runs nothing. Pure without a
    ``lake``, whose Spark session predicts the rewrite of position deletes.

    Position deletes, manifests, snapshots, orphan files: in this order, each only if a finding asks
    for it (snapshots also if ``retention`` states how many to keep) and it is among ``procedures``
    (by default all but orphan files). ``metadata`` is the table's metadata JSON. Raises
    :class:`~icekit.common.errors.ParameterError` for a retention that keeps less than is needed,
    for facts of a branch or tag, and for an unknown procedure.
    """
    check_procedures(procedures)
    if facts.ref:
        raise ParameterError(
            f"These facts describe {facts.ref}, but maintenance applies to the complete table. "
            "Observe the table without ref."
        )
    has_named_procedures = tuple(procedures) != DEFAULT_PROCEDURES
    case = _Case(
        facts, findings, retention or Retention(), metadata, now, lake, has_named_procedures
    )
    notes = case.notes
    allowed_procedures, waiting_reason = _allowed_procedures(case, procedures)
    actions = [
        action
        for procedure in _ACTIONS_OF
        if procedure in allowed_procedures
        for action in _planned_actions(case, procedure)
    ]
    # Those that are planned so far but an expiry commit a snapshot.
    if any(action.procedure != "expire_snapshots" for action in actions):
        current_snapshot_id = metadata.get("current-snapshot-id")
        notes += statistics_notes(facts.catalog, facts.table, metadata, current_snapshot_id)
    actions += _orphan_actions(case, is_named="remove_orphan_files" in allowed_procedures)
    if facts.other_optimizer and actions:
        notes.append(facts.other_optimizer.note)
    if actions and (compaction_findings := sorted(COMPACTED & findings.names - MAINTAINED.keys())):
        notes.insert(
            0,
            f"Rewrite the data files first ({', '.join(compaction_findings)}): a compaction leaves "
            "old deletes, manifests and snapshots for this plan to clean up.",
        )
    return Plan(
        facts.catalog,
        facts.table,
        facts.table_uuid,
        facts.snapshot_id,
        None,
        tuple(replace(action, action_id=f"m{index + 1}") for index, action in enumerate(actions)),
        notes=tuple(notes),
        waits=waiting_reason,
        made_at_ms=int(now.timestamp() * 1000),
        refused=tuple(case.refused_procedures),
    )


def _allowed_procedures(case: _Case, procedures: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The procedures that an unreadable or damaged table allows, and why it allows none, if files
    are missing.

    An expiry could remove the snapshot to roll back to, and the manifests that say what is lost; a
    rewrite of delete files drops those that are misfiled.
    """
    facts = case.facts
    allowed_procedures = procedures
    if facts.has_unreadable_columns:
        # The one that reads no metadata table.
        allowed_procedures = [
            procedure for procedure in allowed_procedures if procedure == "remove_orphan_files"
        ]
        case.notes.append(f"{engine_limits(facts.engine, facts.unsupported_columns)}.")
    nested_variants = [
        column.name
        for column in facts.columns
        if column.type == "variant" and not column.is_in_structs
    ]
    if nested_variants:
        # Iceberg's metadata table position_deletes cannot project them.
        allowed_procedures = [
            procedure
            for procedure in allowed_procedures
            if procedure != "rewrite_position_delete_files"
        ]
        case.notes.append(
            "Iceberg cannot rewrite position delete files of a table with variants in a list or a "
            f"map ({first_names(nested_variants, 5)})."
        )
    if facts.dropped_fields_under_deletes:
        endangering_procedures = {"rewrite_position_delete_files", "rewrite_manifests"}
        if case.has_named_procedures:
            case.refused_procedures.extend(
                sorted(endangering_procedures.intersection(allowed_procedures))
            )
        allowed_procedures = [
            procedure for procedure in allowed_procedures if procedure not in endangering_procedures
        ]
        case.notes.append(
            f"{dropped_field_warning(facts.dropped_fields_under_deletes)} Run icekit compact, "
            "which plans that rewrite, before manifests or position deletes are rewritten."
        )
    if facts.contradictions:
        is_cured_by_rewrite = facts.contradictions == (Contradiction.MANIFEST_BOUNDS,)
        allowed_procedures = [
            procedure
            for procedure in allowed_procedures
            if is_cured_by_rewrite and procedure == "rewrite_manifests"
        ]
        case.notes.append(
            f"The metadata must be fixed first ({', '.join(facts.contradictions)}): follow these "
            "findings before all maintenance."
        )
    if facts.missing is None or not facts.missing.fails_scans:
        return allowed_procedures, None
    missing_files_text = next(
        (f"{finding.evidence}. " for finding in case.findings if finding.name == "missing_files"),
        "",
    )
    waiting_reason = (
        f"{capitalized(missing_files_text)}Follow the finding missing_files before all maintenance."
    )
    return (), waiting_reason


def _planned_actions(case: _Case, procedure: str) -> list[Action]:
    """The actions of a procedure; none, and a note, if the engine cannot plan it for this table:
    the others do not depend on it.
    """
    try:
        return _ACTIONS_OF[procedure](case)
    except (EngineFailed, *engine_errors()) as error:  # type: ignore[misc]
        case.refused_procedures.append(procedure)
        case.notes.append(f"{procedure} cannot run on this table: {reason(error)}.")
        return []


def check_procedures(procedures: Sequence[str]) -> None:
    """Raise :class:`~icekit.common.errors.ParameterError` for the name of an unknown procedure."""
    for procedure in procedures:
        require_known(procedure, PROCEDURES, "procedure")


def _position_delete_actions(case: _Case) -> list[Action]:
    """Combine position delete files; on version 3 convert those of version 2 to deletion
    vectors.
    """
    facts = case.facts
    finding_names = sorted({"position_deletes", "v2_position_deletes"} & case.findings.names)
    delete_totals = facts.total(Kind.POSITION_DELETES)
    if not finding_names or not delete_totals.file_count:
        return []
    files_stay_text = count_with_verb(
        delete_totals.file_count, "position delete file", "stays", "stay"
    )
    if facts.unapplied_in(DeleteState.REPLACED):
        case.leave_out(
            "rewrite_position_delete_files",
            f"{files_stay_text}: beside them are some that a deletion vector replaces, and "
            "rewrite_position_delete_files would merge these too. icekit compact drops those first "
            "(finding replaced_deletes).",
        )
        return []
    if clashing_fields := facts.fields_named_as_columns_of_position_deletes:
        case.leave_out(
            "rewrite_position_delete_files",
            f"{files_stay_text}: Iceberg cannot run rewrite_position_delete_files where a partition "
            "field has the name of a column of its table position_deletes "
            f"({', '.join(clashing_fields)}). icekit compact removes these deletes with the rows "
            "that they delete.",
        )
        return []
    if refusal := positions_refusal(facts.specs):
        case.leave_out("rewrite_position_delete_files", f"{files_stay_text}: {refusal}")
        return []
    writes_vectors = facts.format_version >= 3
    benefit_text = (
        "version 3 replaces these delete files with one deletion vector per data file"
        if writes_vectors
        else "a scan then opens fewer delete files"
    )
    (action,) = case.action(
        "rewrite_position_delete_files",
        f"{', '.join(finding_names)}: {benefit_text}",
        _combined_prediction(facts, writes_vectors),
        options={"rewrite-all": "true"} if writes_vectors else {},
    )
    if case.lake is not None:
        action = with_planner_prediction(case.lake, action)
    prediction = action.prediction
    if prediction.groups and (writes_vectors or prediction.files_out < prediction.files_in):
        return [action]
    case.notes.append(
        f"{files_stay_text}: rewrite_position_delete_files combines {_MIN_DELETE_FILES} or more "
        "undersized ones of a partition, and leaves at least one for each data file. A rewrite of "
        "their data files removes them."
    )
    return []


def _combined_prediction(facts: TableFacts, writes_vectors: bool) -> Prediction:
    """The result of combining, from the rollup: the writer leaves a delete file for each data file,
    unless set to ``partition``.
    """
    target_bytes = facts.int_setting("write.delete.target-file-size-bytes")
    is_by_partition = (
        facts.properties.get("write.delete.granularity", "file").lower() == "partition"
        and not writes_vectors
    )
    data_files_by_partition = {
        data_group.partition: data_group.file_count for data_group in facts.of_kind(Kind.DATA)
    }
    files_in = bytes_in = files_out = group_count = 0
    for delete_group in facts.of_kind(Kind.POSITION_DELETES):
        if not writes_vectors and delete_group.file_count < _MIN_DELETE_FILES:
            continue
        files_in += delete_group.file_count
        bytes_in += delete_group.size_in_bytes
        group_count += 1
        min_files_out = min(
            delete_group.file_count,
            data_files_by_partition.get(delete_group.partition, delete_group.file_count),
        )
        files_out += max(
            expected_files(delete_group.size_in_bytes, target_bytes),
            0 if is_by_partition else min_files_out,
        )
    return Prediction(
        files_in,
        bytes_in,
        files_out,
        bytes_in,
        groups=group_count,
        file_opens_saved=max(files_in - files_out, 0),
        unit="delete file",
    )


def _manifest_actions(case: _Case) -> list[Action]:
    """Rewrite manifests, spec by spec, clustered by the columns that queries filter by."""
    facts = case.facts
    actions = []
    refusals = []
    for manifest_rewrite in manifest_rewrites(facts, case.findings):
        spec_id = manifest_rewrite.spec_manifests.spec_id
        if refusal := manifest_refusal(facts.specs, facts.columns, spec_id):
            refusals.append(refusal)
            continue
        why = f"{', '.join(manifest_rewrite.finding_names)} of spec {spec_id}: no data file is touched"
        arguments: dict[str, int | tuple[str, ...]] = {"spec_id": spec_id}
        cluster_fields = cluster_by(facts.spec(spec_id), facts.filter_columns)
        if cluster_fields:
            why += (
                f", clustered by {', '.join(cluster_fields)}, because queries filter by "
                f"{', '.join(facts.filter_columns)}"
            )
            arguments["sort_by"] = cluster_fields
        actions += case.action(
            "rewrite_manifests",
            why,
            Prediction(
                files_in=manifest_rewrite.count_before,
                bytes_in=manifest_rewrite.spec_manifests.size_in_bytes,
                files_out=manifest_rewrite.count_after,
                bytes_out=manifest_rewrite.spec_manifests.size_in_bytes,
                groups=1,
                file_opens_saved=manifest_rewrite.opens_saved,
                source="metadata",
                unit="manifest",
            ),
            arguments=arguments,
        )
    if refusals and not actions and case.has_named_procedures:
        case.refused_procedures.append("rewrite_manifests")
    case.notes.extend(dict.fromkeys(refusals))
    return actions


def cluster_by(spec: PartitionSpec, filter_columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the partition fields to cluster manifests by: first those that filters use, then the
    others.

    Empty if no filter is known to use any: Iceberg then clusters by all, in their order. Passed
    as ``sort_by`` of ``rewrite_manifests`` (new in 1.12), which accepts any of the spec's fields.
    """
    clusterable_fields = [field for field in spec.fields if field.transform != "void"]
    filtered_names = [
        field.name
        for column in filter_columns
        for field in clusterable_fields
        if field.source == column
    ]
    # The engine parses a name as a path into a struct; it may not find a name with special
    # characters.
    if not filtered_names or not all(
        field.name.replace("_", "a").isalnum() for field in clusterable_fields
    ):
        return ()
    return tuple(dict.fromkeys([*filtered_names, *(field.name for field in clusterable_fields)]))


def _expiry_actions(case: _Case) -> list[Action]:
    """Expire snapshots beyond the retention, if a person states one, or snapshots pile up or hold
    much of the storage; never the current one.
    """
    finding_names = [name for name in EXPIRED if name in case.findings.names]
    if not finding_names and not case.retention.is_stated:
        return []
    occasion_text = "Old snapshots hold storage" if finding_names else "You gave a retention"
    if "snapshots_piling_up" in finding_names:
        occasion_text = "Snapshots pile up"
    if not case.facts.is_setting_true("gc.enabled"):
        case.notes.append(
            f"{occasion_text}, but gc.enabled=false: nothing may expire, because another table may "
            "share the files."
        )
        return []
    computed_expiry = expiry(case.metadata, case.retention, case.now)
    if computed_expiry.conflict is not None:
        case.notes.append(f"{occasion_text}, but nothing may expire. {computed_expiry.conflict}")
        case.refused_procedures.append("expire_snapshots")
        return []
    remaining_ids = computed_expiry.snapshots.remaining_ids
    expired_ids = computed_expiry.snapshots.expired_ids
    expiry_summary = computed_expiry.summary
    # What nobody may miss is said first.
    staying_text = "".join(
        f" {capitalized(sentence)}." for sentence in expiry_summary.staying_sentences
    )
    if not expired_ids:
        case.notes.append(
            f"{occasion_text}, but no snapshot would expire: each is younger than "
            f"{time_text(int(computed_expiry.older_than.timestamp() * 1000))}, among the last "
            f"{computed_expiry.retain_last:,}, held by a branch or tag, or needed by a writer or a "
            f"staged write.{staying_text} If you need less history, lower --keep or --keep-last, or "
            "drop refs. Snapshots younger than one hour never expire."
        )
        return []
    expiry_reason = ", ".join(finding_names) or "the retention that you state"
    return case.action(
        "expire_snapshots",
        f"{expiry_reason}. Removed for good: {'; '.join(expiry_summary.removal_sentences)}. The "
        f"others are young, among the last {computed_expiry.retain_last:,}, or protected by "
        f"{', '.join(computed_expiry.snapshots.remaining_refs)}.{staying_text}",
        Prediction(
            len(expired_ids) + len(remaining_ids),
            files_out=len(remaining_ids),
            groups=1,
            source="metadata",
            unit="snapshot",
        ),
        arguments={"retain_last": computed_expiry.retain_last, "stream_results": True},
        older_than=computed_expiry.older_than,
        retention=case.retention,
        expiry=expiry_summary,
    )


def _orphan_actions(case: _Case, *, is_named: bool) -> list[Action]:
    """Remove listed orphan files if a new listing agrees, only if requested by name, and if no
    other table shares the location.
    """
    facts = case.facts
    storage = case.facts.storage
    note = ""
    is_refused = is_named
    if facts.unlisted is not None:
        note = f"It is not decided which files are orphans: {facts.unlisted}."
    elif storage is None:
        note = (
            "remove_orphan_files needs a listing of the table's location. Observe the table with "
            "storage=True."
        )
        note = note if is_named else ""
    elif storage.sharing.refusal is not None:
        note = storage.sharing.refusal
    elif "orphan_files" not in case.findings.names or not storage.orphan_count:
        is_refused = False
    elif not is_named:
        note = (
            f"Orphan files were listed ({storage.summary.rstrip(',')}) but not removed. icekit "
            "removes them only if remove_orphan_files is named among the procedures."
        )
    elif not facts.is_setting_true("gc.enabled"):
        note = "Orphan files were listed, but gc.enabled=false: another table may use them."
    else:
        return _orphan_removal(case, storage)
    if note:
        case.notes.append(note)
    if is_refused:
        case.refused_procedures.append("remove_orphan_files")
    return []


def _orphan_removal(case: _Case, storage: StorageFacts) -> list[Action]:
    """The action that removes the listed orphan files."""
    facts = case.facts
    older_than = utc_time(storage.older_than_ms)
    if case.now - older_than < ORPHAN_AGE:
        raise ParameterError(
            f"Orphan files older than {span((case.now - older_than).total_seconds() * 1000)} were "
            "listed, but icekit removes only those older than "
            f"{span(ORPHAN_AGE.total_seconds() * 1000)}: a writer may be about to commit younger "
            "ones. Observe the table again with storage=True."
        )
    arguments = {
        key: argument_value
        for key, argument_value in orphan_arguments(
            display_name(facts.table), facts.location
        ).items()
        if key not in {"table", "dry_run"}
    }
    examples_text = f", such as {', '.join(storage.examples[:3])}" if storage.examples else ""
    return case.action(
        "remove_orphan_files",
        f"orphan_files: {storage.summary} that no snapshot names, older than "
        f"{time_text(storage.older_than_ms)}{examples_text}; before it removes any, icekit lists "
        "them again and looks them up among the files that this table and every other table of the "
        "catalog name. No other table of this catalog is at the location; make sure that no table "
        "of another catalog has files there",
        Prediction(storage.orphan_count, groups=1, source="metadata", unit="orphan"),
        arguments=arguments,
        older_than=older_than,
    )


_ACTIONS_OF: Mapping[str, Callable[[_Case], list[Action]]] = {
    "rewrite_position_delete_files": _position_delete_actions,
    "rewrite_manifests": _manifest_actions,
    "expire_snapshots": _expiry_actions,
}


def with_planner_prediction(lake: Lake, action: Action) -> Action:
    """The rewrite of position delete files with the engine's prediction instead of the estimate;
    unchanged without a bridge.
    """
    if not has_bridge(lake.spark):
        return action
    planned_rewrite = ask_planner(lake.spark, action)
    estimate = action.prediction
    # The planner counts by size. Spark's writer leaves a file for each data file.
    planned_share = planned_rewrite.files_in / max(1, estimate.files_in)
    files_out = min(
        planned_rewrite.files_in,
        max(planned_rewrite.files_out, round(estimate.files_out * planned_share)),
    )
    prediction = planner_prediction(
        estimate,
        planned_rewrite,
        files_out,
        file_opens_saved=max(planned_rewrite.files_in - files_out, 0),
        # Positions of data files that are gone are dropped, and only a read of the delete files
        # tells which those are.
        certainty=Certainty.AT_MOST,
    )
    return replace(action, prediction=prediction)


def plan_maintenance_table(
    lake: Lake,
    facts: TableFacts,
    findings: Findings | None = None,
    retention: Retention | None = None,
    *,
    thresholds: Thresholds | None = None,
    now: dt.datetime | None = None,
    procedures: Sequence[str] = DEFAULT_PROCEDURES,
) -> Plan:
    """Plan the maintenance that findings ask for on the current table.

    Reads the table's metadata, and asks the engine's planner for position
    deletes. ``procedures`` are those that may be planned: by default all but
    ``remove_orphan_files``, which must be named and needs ``facts`` observed with ``storage=True``.
    Raises the errors of :mod:`icekit.common.errors`.
    """
    if findings is None:
        findings = diagnose(facts, thresholds, session_conf=lake.session_conf())
    return plan_maintenance(
        facts,
        findings,
        retention,
        metadata=head(lake, facts.table).metadata,
        now=now or dt.datetime.now(dt.UTC),
        lake=lake,
        procedures=procedures,
    )
