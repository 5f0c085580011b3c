"""Turn facts and findings into maintenance: which procedures, in which order, with which
arguments.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from icekit.catalog import Lake
from icekit.compact.asking import ask_planner
from icekit.compact.model import Action, Plan, Prediction
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.engine.bridge import has_bridge
from icekit.errors import ParameterError, require_known
from icekit.facts.definition import PartitionSpec
from icekit.facts.files import Kind
from icekit.facts.head import head
from icekit.facts.integrity import Contradiction
from icekit.facts.model import TableFacts
from icekit.facts.retention import Expiry, Retention, expiry
from icekit.facts.rollup import expected_files
from icekit.facts.snapshot_statistics import statistics_of
from icekit.maintain.orphans import may_not_remove, orphans
from icekit.maintain.savings import manifest_rewrites
from icekit.units import count, counted, moment, raised, size

Json = Mapping[str, Any]

#: The procedures of maintenance, in the order in which they run.
Procedure = Literal[
    "rewrite_position_delete_files", "rewrite_manifests", "expire_snapshots", "remove_orphan_files"
]
#: Planned unless others are named. Removing orphan files cannot be undone, and only a listing
# identifies them: a person has to ask for it by name.
DEFAULT_PROCEDURES: tuple[Procedure, ...] = (
    "rewrite_position_delete_files",
    "rewrite_manifests",
    "expire_snapshots",
)
PROCEDURES: tuple[Procedure, ...] = (*DEFAULT_PROCEDURES, "remove_orphan_files")

#: Findings about data files: rewriting these comes before all maintenance.
_DATA = frozenset(
    {
        "small_files",
        "oversized_files",
        "equality_deletes",
        "deletion_vectors",
        "dangling_deletes",
        "old_partition_spec",
    }
)
_DATA_FIRST = (
    "Rewrite the data files first ({}): a compaction leaves old deletes, manifests and snapshots "
    "for this plan to clean up."
)
_METADATA_FILES = (
    "Metadata files pile up. The fix is a setting: the finding metadata_files_piling_up has the "
    "ALTER TABLE. Metadata files that the log dropped earlier are orphan files."
)
# rewrite_position_delete_files takes a group with at least this many files (min-input-files).
_MIN_DELETE_FILES = 5


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
    :class:`~icekit.errors.ParameterError` for a retention that keeps less than is needed, for
    orphans listed below three days of age, for facts of a branch or tag, and for an unknown
    procedure.
    """
    check_procedures(procedures)
    if facts.ref:
        raise ParameterError(
            f"These facts describe {facts.ref}, but maintenance applies to the complete table. "
            "Observe the table without ref."
        )
    notes: list[str] = []
    actions: list[Action] = []
    procedures, waits = _allowed(facts, findings, procedures, notes)
    if "rewrite_position_delete_files" in procedures:
        actions += _deletes(facts, findings, lake, notes)
    if "rewrite_manifests" in procedures:
        actions += _manifests(facts, findings)
    if "expire_snapshots" in procedures:
        actions += _expiry(facts, findings, retention or Retention(), metadata, now, notes)
    is_named = "remove_orphan_files" in procedures
    removal = orphans(facts, findings, now, notes, is_named=is_named)
    if facts.other_optimizer and (actions or removal):
        notes.append(facts.other_optimizer.note)
    actions += removal
    is_refused = is_named and not removal and may_not_remove(facts, findings)
    if actions and (first := sorted(_DATA & findings.names)):
        notes.insert(0, _DATA_FIRST.format(", ".join(first)))
    if "metadata_files_piling_up" in findings.names:
        notes.append(_METADATA_FILES)
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
        refused="remove_orphan_files" if is_refused else None,
        statistics=statistics_of(metadata, metadata.get("current-snapshot-id")),
    )


def _allowed(
    facts: TableFacts, findings: Findings, procedures: Sequence[str], notes: list[str]
) -> tuple[Sequence[str], str | None]:
    """The procedures that a damaged table allows, and why it allows none, if files are missing.

    An expiry could remove the snapshot to roll back to, and the manifests that say what is lost; a
    rewrite of delete files drops those that are misfiled.
    """
    if facts.contradictions:
        is_cure = facts.contradictions == (Contradiction.MANIFEST_BOUNDS,)
        procedures = [name for name in procedures if is_cure and name == "rewrite_manifests"]
        notes.append(
            f"The manifests contradict each other ({', '.join(facts.contradictions)}): follow "
            "these findings before all maintenance."
        )
    if facts.missing is None or not facts.missing.fails_scans:
        return procedures, None
    lost = next((f"{f.evidence}. " for f in findings if f.name == "missing_files"), "")
    return (), f"{raised(lost)}Follow the finding missing_files before all maintenance."


def check_procedures(names: Sequence[str]) -> None:
    """Raise :class:`~icekit.errors.ParameterError` for the name of an unknown procedure."""
    for name in names:
        require_known(name, PROCEDURES, "procedure")


def _deletes(
    facts: TableFacts, findings: Findings, lake: Lake | None, notes: list[str]
) -> list[Action]:
    """Combine position delete files; on version 3 convert those of version 2 to deletion
    vectors.
    """
    asked = [name for name in ("position_deletes", "v2_position_deletes") if name in findings.names]
    total = facts.total(Kind.POSITION_DELETES)
    if not asked or not total.file_count:
        return []
    converts = facts.format_version >= 3
    options = {"rewrite-all": "true"} if converts else {}
    per_file = (
        total.file_count / facts.data.file_count
        if facts.data.file_count
        else float(total.file_count)
    )
    what = (
        "version 3 replaces them with one deletion vector per data file"
        if converts
        else "a scan then opens fewer of them"
    )
    action = Action(
        "",
        "rewrite_position_delete_files",
        facts.catalog,
        facts.table,
        f"{', '.join(asked)}: {count(total.file_count, 'position delete file')}, {per_file:,.1f} "
        f"per data file; {what}",
        _combined_deletes(facts, converts),
        options=options,
    )
    ready = action if lake is None else predicted_by_planner(lake, action)
    if not ready.prediction.groups:
        notes.append(
            f"{counted(total.file_count, 'position delete file', 'stays', 'stay')}: "
            f"rewrite_position_delete_files takes {_MIN_DELETE_FILES} or more undersized ones in a "
            "partition. A rewrite of their data files removes them."
        )
        return []
    if ready.prediction.files_out >= ready.prediction.files_in and not converts:
        notes.append(
            "Each position delete file is the only one of its data file, so combining them would "
            "not reduce their number. Rewrite their data files instead."
        )
        return []
    return [ready]


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
        files, total, groups = files + group.file_count, total + group.size_in_bytes, groups + 1
        by_size = expected_files(group.size_in_bytes, target)
        out += (
            by_size
            if by_partition
            else max(by_size, min(group.file_count, data.get(group.partition, group.file_count)))
        )
    return Prediction(
        files,
        total,
        out,
        total,
        groups=groups,
        file_opens_saved=max(files - out, 0),
        unit="delete file",
    )


def _manifests(facts: TableFacts, findings: Findings) -> list[Action]:
    """Rewrite manifests, spec by spec, clustered by the columns that queries filter by."""
    target = facts.int_setting("commit.manifest.target-size-bytes")
    actions = []
    for of_spec, asked in manifest_rewrites(facts, findings):
        spec, total = facts.spec(of_spec.spec_id), of_spec.size_in_bytes
        by = cluster_by(spec, facts.filter_columns)
        files_in, files_out = of_spec.files_in(target), of_spec.files_out(target)
        why = (
            f"{', '.join(asked)} of spec {spec.spec_id}: {count(files_in, 'manifest')} of "
            f"{size(total)} become about {files_out:,}; no data file is touched"
        )
        if by and facts.filter_columns:
            why += (
                f"; clustered by {', '.join(by)}, because queries filter by "
                f"{', '.join(facts.filter_columns)}"
            )
        elif not spec.is_unpartitioned:
            why += "; clustered by partition"
        saved = max(files_in - files_out, 0)
        prediction = Prediction(
            files_in,
            total,
            files_out,
            total,
            groups=1,
            file_opens_saved=saved,
            source="metadata",
            unit="manifest",
        )
        arguments: dict[str, str | int | bool | tuple[str | int, ...]] = {
            "spec_id": spec.spec_id,
            **({"sort_by": by} if by else {}),
        }
        actions.append(
            Action(
                "",
                "rewrite_manifests",
                facts.catalog,
                facts.table,
                why,
                prediction,
                arguments=arguments,
            )
        )
    return actions


def cluster_by(spec: PartitionSpec, filter_columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the partition fields to cluster manifests by: first those that filters use, then the
    others.

    Empty if no filter is known to use any: Iceberg then clusters by all, in their order. Passed
    as ``sort_by`` of ``rewrite_manifests`` (new in 1.12), which accepts any of the spec's fields.
    """
    fields = [f for f in spec.fields if f.transform != "void"]
    wanted = [f.name for column in filter_columns for f in fields if f.source == column]
    # The engine parses a name as a path into a struct; it may not find a name with special
    # characters.
    if not wanted or not all(f.name.replace("_", "a").isalnum() for f in fields):
        return ()
    return tuple(dict.fromkeys([*wanted, *(f.name for f in fields)]))


def _expiry(
    facts: TableFacts,
    findings: Findings,
    retention: Retention,
    metadata: Json,
    now: dt.datetime,
    notes: list[str],
) -> list[Action]:
    """Expire snapshots beyond the retention, if a person states one or snapshots pile up; never the
    current one.
    """
    is_piling = "snapshots_piling_up" in findings.names
    if not is_piling and not retention.is_stated:
        return []
    what = "Snapshots pile up" if is_piling else "You gave a retention"
    if not facts.is_on("gc.enabled"):
        notes.append(
            f"{what}, but gc.enabled=false: nothing may expire, because another table may share "
            "the files."
        )
        return []
    expiring = expiry(metadata, retention, now)
    split = expiring.snapshots
    if not split.expired:
        refs = " or drop refs" if len(split.refs) > 1 else ""
        notes.append(
            f"{what}, but no snapshot would expire: each is younger than "
            f"{moment(int(expiring.older_than.timestamp() * 1000))}, among the last "
            f"{expiring.retain_last:,}, or held by a branch or tag. If you need less history, lower "
            f"--keep or --keep-last{refs}. Snapshots younger than one hour never expire."
        )
        return []
    notes += expiring.cautions
    reason = "snapshots_piling_up" if is_piling else "the retention that you state"
    return [
        Action(
            "",
            "expire_snapshots",
            facts.catalog,
            facts.table,
            f"{reason}: {_lost(expiring)}",
            Prediction(
                len(split.expired) + len(split.kept),
                0,
                len(split.kept),
                0,
                groups=1,
                source="metadata",
                unit="snapshot",
            ),
            arguments={"retain_last": expiring.retain_last, "stream_results": True},
            older_than=expiring.older_than,
        )
    ]


def _lost(found: Expiry) -> str:
    """The time travel that an expiry ends for good, and what it keeps."""
    oldest, newest = found.oldest_expired_ms or 0, found.newest_expired_ms or 0
    text = (
        f"{count(len(found.snapshots.expired), 'snapshot')} from {moment(oldest)} to {moment(newest)} can "
        "never be read again"
    )
    if found.reach_before_ms is not None and found.reach_after_ms is not None:
        text += (
            f"; time travel then reaches back to {moment(found.reach_after_ms)} instead of "
            f"{moment(found.reach_before_ms)}"
        )
    text += f"; keeps {count(len(found.snapshots.kept), 'snapshot')}"
    refs = ", ".join(found.snapshots.refs)
    return f"{text}, protected by {refs}" if refs else text


def predicted_by_planner(lake: Lake, action: Action) -> Action:
    """The rewrite of position delete files with the engine's prediction instead of the estimate;
    unchanged without a bridge.
    """
    if not has_bridge(lake.spark):
        return action
    planned, estimate = ask_planner(lake.spark, action), action.prediction
    # The planner counts by size. Spark's writer leaves a file for each data file.
    share = planned.files_in / estimate.files_in if estimate.files_in else 1.0
    live = estimate.bytes_out / estimate.bytes_in if estimate.bytes_in else 1.0
    out = min(planned.files_in, max(planned.files_out, round(estimate.files_out * share)))
    return replace(
        action,
        prediction=replace(
            estimate,
            files_in=planned.files_in,
            bytes_in=planned.bytes_in,
            files_out=out,
            bytes_out=round(planned.bytes_in * live),
            groups=planned.groups,
            file_opens_saved=max(planned.files_in - out, 0),
            source="planner",
            # Positions of data files that are gone are dropped, and only a read of the delete files
            # tells which those are.
            is_maximum=True,
        ),
    )


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
    Raises the errors of :mod:`icekit.errors`.
    """
    findings = (
        diagnose(facts, thresholds, session_conf=lake.session_conf())
        if findings is None
        else findings
    )
    at = head(lake, facts.table)
    return plan_maintenance(
        facts,
        findings,
        retention,
        metadata=at.metadata,
        now=now or dt.datetime.now(dt.UTC),
        lake=lake,
        procedures=procedures,
    )
