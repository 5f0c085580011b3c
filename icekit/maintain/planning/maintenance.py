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
from icekit.health.diagnose.findings import COMPACTED, MAINTAINED, Findings, Thresholds
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
    """What each procedure is planned from; ``notes``, and procedures that are ``refused``, are
    collected.
    """

    facts: TableFacts
    findings: Findings
    retention: Retention
    metadata: Json
    now: dt.datetime
    lake: Lake | None
    #: Whether the user named the procedures.
    are_named: bool
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def action(
        self, procedure: str, why: str, prediction: Prediction, **more_fields: Any
    ) -> list[Action]:
        """An action on the table, whose id is its place in the plan."""
        facts = self.facts
        return [Action("", procedure, facts.catalog, facts.table, why, prediction, **more_fields)]


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
    are_named = tuple(procedures) != DEFAULT_PROCEDURES
    case = _Case(facts, findings, retention or Retention(), metadata, now, lake, are_named)
    notes = case.notes
    procedures, waits = _allowed(case, procedures)
    actions = [
        action
        for procedure in _PLANNED
        if procedure in procedures
        for action in _planned(case, procedure)
    ]
    # Those that are planned so far but an expiry commit a snapshot.
    if any(action.procedure != "expire_snapshots" for action in actions):
        current = metadata.get("current-snapshot-id")
        notes += statistics_notes(facts.catalog, facts.table, metadata, current)
    actions += _orphans(case, is_named="remove_orphan_files" in procedures)
    if facts.other_optimizer and actions:
        notes.append(facts.other_optimizer.note)
    if actions and (first := sorted(COMPACTED & findings.names - MAINTAINED.keys())):
        notes.insert(
            0,
            f"Rewrite the data files first ({', '.join(first)}): a compaction leaves old deletes, "
            "manifests and snapshots for this plan to clean up.",
        )
    return Plan(
        facts.catalog,
        facts.table,
        facts.table_uuid,
        facts.snapshot_id,
        None,
        tuple(replace(action, action_id=f"m{index + 1}") for index, action in enumerate(actions)),
        notes=tuple(notes),
        waits=waits,
        made_at_ms=int(now.timestamp() * 1000),
        refused=tuple(case.refused),
    )


def _allowed(case: _Case, procedures: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The procedures that an unreadable or damaged table allows, and why it allows none, if files
    are missing.

    An expiry could remove the snapshot to roll back to, and the manifests that say what is lost; a
    rewrite of delete files drops those that are misfiled.
    """
    facts = case.facts
    if facts.is_unreadable:
        # The one that reads no metadata table.
        procedures = [name for name in procedures if name == "remove_orphan_files"]
        case.notes.append(f"{engine_limits(facts.engine, facts.unsupported_columns)}.")
    nested = [c.name for c in facts.columns if c.type == "variant" and not c.is_in_structs]
    if nested:
        # Iceberg's metadata table position_deletes cannot project them.
        procedures = [name for name in procedures if name != "rewrite_position_delete_files"]
        case.notes.append(
            "Iceberg cannot rewrite position delete files of a table with variants in a list or a "
            f"map ({first_names(nested, 5)})."
        )
    if facts.dropped_fields_under_deletes:
        left_out = {"rewrite_position_delete_files", "rewrite_manifests"}.intersection(procedures)
        case.refused.extend(sorted(left_out) if case.are_named else [])
        procedures = [name for name in procedures if name not in left_out]
        case.notes.append(
            f"{dropped_field_warning(facts.dropped_fields_under_deletes)} Run icekit compact, "
            "which plans that rewrite, before "
            "manifests or position deletes are rewritten."
        )
    if facts.contradictions:
        is_cure = facts.contradictions == (Contradiction.MANIFEST_BOUNDS,)
        procedures = [name for name in procedures if is_cure and name == "rewrite_manifests"]
        case.notes.append(
            f"The metadata must be fixed first ({', '.join(facts.contradictions)}): follow these "
            "findings before all maintenance."
        )
    if facts.missing is None or not facts.missing.fails_scans:
        return procedures, None
    lost = next((f"{f.evidence}. " for f in case.findings if f.name == "missing_files"), "")
    return (), f"{capitalized(lost)}Follow the finding missing_files before all maintenance."


def _planned(case: _Case, procedure: str) -> list[Action]:
    """The actions of a procedure; none, and a note, if the engine cannot plan it for this table:
    the others do not depend on it.
    """
    try:
        return _PLANNED[procedure](case)
    except (EngineFailed, *engine_errors()) as error:  # type: ignore[misc]
        case.refused.append(procedure)
        case.notes.append(f"{procedure} cannot run on this table: {reason(error)}.")
        return []


def check_procedures(names: Sequence[str]) -> None:
    """Raise :class:`~icekit.common.errors.ParameterError` for the name of an unknown procedure."""
    for name in names:
        require_known(name, PROCEDURES, "procedure")


def _deletes(case: _Case) -> list[Action]:
    """Combine position delete files; on version 3 convert those of version 2 to deletion
    vectors.
    """
    facts = case.facts
    finding_names = sorted({"position_deletes", "v2_position_deletes"} & case.findings.names)
    total = facts.total(Kind.POSITION_DELETES)
    if not finding_names or not total.file_count:
        return []
    if facts.unapplied_in(DeleteState.REPLACED):
        case.refused.extend(["rewrite_position_delete_files"] if case.are_named else [])
        case.notes.append(
            f"{count_with_verb(total.file_count, 'position delete file', 'stays', 'stay')}: beside them are "
            "some that a deletion vector replaces, and rewrite_position_delete_files would merge "
            "these too. icekit compact drops those first (finding replaced_deletes)."
        )
        return []
    if names := facts.fields_named_as_columns_of_position_deletes:
        case.refused.extend(["rewrite_position_delete_files"] if case.are_named else [])
        case.notes.append(
            f"{count_with_verb(total.file_count, 'position delete file', 'stays', 'stay')}: Iceberg cannot "
            "run rewrite_position_delete_files where a partition field has the name of a column of "
            f"its table position_deletes ({', '.join(names)}). icekit compact removes these deletes "
            "with the rows that they delete."
        )
        return []
    if refusal := positions_refusal(facts.specs):
        case.refused.extend(["rewrite_position_delete_files"] if case.are_named else [])
        case.notes.append(
            f"{count_with_verb(total.file_count, 'position delete file', 'stays', 'stay')}: {refusal}"
        )
        return []
    converts = facts.format_version >= 3
    delete_noun = (
        "version 3 replaces these delete files with one deletion vector per data file"
        if converts
        else "a scan then opens fewer delete files"
    )
    (action,) = case.action(
        "rewrite_position_delete_files",
        f"{', '.join(finding_names)}: {delete_noun}",
        _combined_deletes(facts, converts),
        options={"rewrite-all": "true"} if converts else {},
    )
    if case.lake is not None:
        action = predicted_by_planner(case.lake, action)
    p = action.prediction
    if p.groups and (converts or p.files_out < p.files_in):
        return [action]
    case.notes.append(
        f"{count_with_verb(total.file_count, 'position delete file', 'stays', 'stay')}: "
        f"rewrite_position_delete_files combines {_MIN_DELETE_FILES} or more undersized ones of a "
        "partition, and leaves at least one for each data file. A rewrite of their data files "
        "removes them."
    )
    return []


def _combined_deletes(facts: TableFacts, converts: bool) -> Prediction:
    """The result of combining, from the rollup: the writer leaves a delete file for each data file,
    unless set to ``partition``.
    """
    target = facts.int_setting("write.delete.target-file-size-bytes")
    by_partition = (
        facts.properties.get("write.delete.granularity", "file").lower() == "partition"
        and not converts
    )
    data = {g.partition: g.file_count for g in facts.of_kind(Kind.DATA)}
    files = total = out = groups = 0
    for group in facts.of_kind(Kind.POSITION_DELETES):
        if not converts and group.file_count < _MIN_DELETE_FILES:
            continue
        files = files + group.file_count
        total = total + group.size_in_bytes
        groups = groups + 1
        least = min(group.file_count, data.get(group.partition, group.file_count))
        out += max(expected_files(group.size_in_bytes, target), 0 if by_partition else least)
    return Prediction(
        files,
        total,
        out,
        total,
        groups=groups,
        file_opens_saved=max(files - out, 0),
        unit="delete file",
    )


def _manifests(case: _Case) -> list[Action]:
    """Rewrite manifests, spec by spec, clustered by the columns that queries filter by."""
    facts = case.facts
    actions = []
    refusals = []
    for of_spec, files_in, files_out, saved, asked in manifest_rewrites(facts, case.findings):
        if refusal := manifest_refusal(facts.specs, facts.columns, of_spec.spec_id):
            refusals.append(refusal)
            continue
        total = of_spec.size_in_bytes
        cluster_fields = cluster_by(facts.spec(of_spec.spec_id), facts.filter_columns)
        order = (
            f", clustered by {', '.join(cluster_fields)}, because queries filter by "
            f"{', '.join(facts.filter_columns)}"
        )
        actions += case.action(
            "rewrite_manifests",
            f"{', '.join(asked)} of spec {of_spec.spec_id}: no data file is touched"
            + (order if cluster_fields else ""),
            Prediction(
                files_in,
                total,
                files_out,
                total,
                groups=1,
                file_opens_saved=saved,
                source="metadata",
                unit="manifest",
            ),
            arguments={"spec_id": of_spec.spec_id}
            | ({"sort_by": cluster_fields} if cluster_fields else {}),
        )
    if refusals and not actions:
        case.refused.extend(["rewrite_manifests"] if case.are_named else [])
    case.notes.extend(dict.fromkeys(refusals))
    return actions


def cluster_by(spec: PartitionSpec, filter_columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the partition fields to cluster manifests by: first those that filters use, then the
    others.

    Empty if no filter is known to use any: Iceberg then clusters by all, in their order. Passed
    as ``sort_by`` of ``rewrite_manifests`` (new in 1.12), which accepts any of the spec's fields.
    """
    fields = [f for f in spec.fields if f.transform != "void"]
    field_names = [f.name for column in filter_columns for f in fields if f.source == column]
    # The engine parses a name as a path into a struct; it may not find a name with special
    # characters.
    if not field_names or not all(f.name.replace("_", "a").isalnum() for f in fields):
        return ()
    return tuple(dict.fromkeys([*field_names, *(f.name for f in fields)]))


def _expiry(case: _Case) -> list[Action]:
    """Expire snapshots beyond the retention, if a person states one or snapshots pile up; never the
    current one.
    """
    is_piling = "snapshots_piling_up" in case.findings.names
    if not is_piling and not case.retention.is_stated:
        return []
    what = "Snapshots pile up" if is_piling else "You gave a retention"
    if not case.facts.is_setting_true("gc.enabled"):
        case.notes.append(
            f"{what}, but gc.enabled=false: nothing may expire, because another table may share "
            "the files."
        )
        return []
    expiring = expiry(case.metadata, case.retention, case.now)
    if expiring.conflict is not None:
        case.notes.append(f"{what}, but nothing may expire. {expiring.conflict}")
        case.refused.append("expire_snapshots")
        return []
    kept_count = expiring.snapshots.remaining_ids
    expired = expiring.snapshots.expired_ids
    summary = expiring.summary
    # What nobody may miss is said first.
    stays = "".join(f" {capitalized(sentence)}." for sentence in summary.staying_sentences)
    if not expired:
        case.notes.append(
            f"{what}, but no snapshot would expire: each is younger than "
            f"{time_text(int(expiring.older_than.timestamp() * 1000))}, among the last "
            f"{expiring.retain_last:,}, held by a branch or tag, or needed by a writer or a staged "
            f"write.{stays} If you need less history, lower --keep or --keep-last, or drop refs. "
            "Snapshots younger than one hour never expire."
        )
        return []
    reason = "snapshots_piling_up" if is_piling else "the retention that you state"
    return case.action(
        "expire_snapshots",
        f"{reason}. Removed for good: {'; '.join(summary.removal_sentences)}. The others are "
        "young, among the last "
        f"{expiring.retain_last:,}, or protected by "
        f"{', '.join(expiring.snapshots.remaining_refs)}.{stays}",
        Prediction(
            len(expired) + len(kept_count),
            files_out=len(kept_count),
            groups=1,
            source="metadata",
            unit="snapshot",
        ),
        arguments={"retain_last": expiring.retain_last, "stream_results": True},
        older_than=expiring.older_than,
        retention=case.retention,
        expiry=summary,
    )


def _orphans(case: _Case, *, is_named: bool) -> list[Action]:
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
        return _removal(case, storage)
    if note:
        case.notes.append(note)
    if is_refused:
        case.refused.append("remove_orphan_files")
    return []


def _removal(case: _Case, storage: StorageFacts) -> list[Action]:
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
        key: value
        for key, value in orphan_arguments(display_name(facts.table), facts.location).items()
        if key not in {"table", "dry_run"}
    }
    examples = f", such as {', '.join(storage.examples[:3])}" if storage.examples else ""
    return case.action(
        "remove_orphan_files",
        f"orphan_files: {storage.summary} that no snapshot names, older than "
        f"{time_text(storage.older_than_ms)}{examples}; before it removes any, icekit lists them "
        "again and looks them up among the files that this table and every other table of the "
        "catalog name. No other table of this catalog is at the location; make sure that no table "
        "of another catalog has files there",
        Prediction(storage.orphan_count, groups=1, source="metadata", unit="orphan"),
        arguments=arguments,
        older_than=older_than,
    )


_PLANNED: Mapping[str, Callable[[_Case], list[Action]]] = {
    "rewrite_position_delete_files": _deletes,
    "rewrite_manifests": _manifests,
    "expire_snapshots": _expiry,
}


def predicted_by_planner(lake: Lake, action: Action) -> Action:
    """The rewrite of position delete files with the engine's prediction instead of the estimate;
    unchanged without a bridge.
    """
    if not has_bridge(lake.spark):
        return action
    planned_rewrite = ask_planner(lake.spark, action)
    estimate = action.prediction
    # The planner counts by size. Spark's writer leaves a file for each data file.
    share = planned_rewrite.files_in / max(1, estimate.files_in)
    out = min(
        planned_rewrite.files_in, max(planned_rewrite.files_out, round(estimate.files_out * share))
    )
    prediction = planner_prediction(
        estimate,
        planned_rewrite,
        out,
        file_opens_saved=max(planned_rewrite.files_in - out, 0),
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
