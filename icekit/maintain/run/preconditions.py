"""Refuse what must not begin: a run with an Iceberg that is too old, or on another table of the
same name; an action that a dropped column, or a metadata table that cannot be read, is in the way
of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from icekit.common.errors import EngineFailed, ParameterError
from icekit.common.sql import display_name
from icekit.engine.bridge import old_iceberg_message
from icekit.engine.lake import Lake
from icekit.health.facts.head import Head, head
from icekit.iceberg.definition import dropped_field_warning
from icekit.iceberg.manifests import is_delete_manifest, manifest_list, may_have_live_files
from icekit.iceberg.metadata import Json, check_clock, columns, schema_of, specs
from icekit.maintain.action import CONVERT, Action
from icekit.maintain.plan import Plan
from icekit.maintain.planning.refusals import manifest_refusal, positions_refusal
from icekit.maintain.record.claims import now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The procedures that Iceberg's own action may run alone with any version.
_OF_ANY_VERSION = frozenset({"rewrite_manifests", "expire_snapshots", "remove_orphan_files"})
# The procedures that commit a snapshot.
_COMMITTING = frozenset(
    {"rewrite_data_files", "rewrite_position_delete_files", "rewrite_manifests", CONVERT}
)


def require_api(spark: SparkSession, actions: Iterable[Action]) -> None:
    """Raise :class:`~icekit.common.errors.EngineFailed`, before anything is written, if the
    session's Iceberg is too old for one of the actions.
    """
    if any(action.procedure not in _OF_ANY_VERSION for action in actions) and (
        old_iceberg_text := old_iceberg_message(spark)
    ):
        raise EngineFailed(old_iceberg_text)


def require_same_table(lake: Lake, plan: Plan) -> None:
    """Raise :class:`~icekit.common.errors.ParameterError` if the plan was made for another table
    that had the name.
    """
    if head(lake, plan.table).metadata.get("table-uuid") != plan.table_uuid:
        raise ParameterError(
            f"{display_name(lake.sql_name(plan.table))} was dropped and created again since it was "
            "planned. Plan again."
        )


def check_action(lake: Lake, action: Action, head_before: Head) -> None:
    """Raise if an action must not run on the table as it is now."""
    check_clock(head_before.metadata, display_name(action.table), now_ms())
    _check_dropped_fields(lake, action, head_before)
    _check_metadata_tables(action, head_before.metadata)


def _check_dropped_fields(lake: Lake, action: Action, head_before: Head) -> None:
    """Refuse a commit that may change which rows are deleted: the column of a partition field
    was dropped, see :func:`~icekit.iceberg.definition.dropped_field_warning`.
    """
    dropped_fields = {
        spec.spec_id: spec.dropped_column_fields
        for spec in specs(head_before.metadata)
        if spec.dropped_column_fields
    }
    rewrites_every_file = action.where is None and action.options.get("rewrite-all") == "true"
    rewrites_every_file = (
        rewrites_every_file and action.options.get("partial-progress.enabled") != "true"
    )
    if (
        not dropped_fields
        or rewrites_every_file
        or head_before.snapshot is None
        or action.procedure not in _COMMITTING
    ):
        return
    manifest_kinds = _manifest_kinds(lake, action, head_before.snapshot)
    affected_fields = [
        field_name
        for spec_id, field_names in dropped_fields.items()
        if {(spec_id, True), (spec_id, False)} <= manifest_kinds
        for field_name in field_names
    ]
    if affected_fields:
        raise ParameterError(
            f"{dropped_field_warning(affected_fields)} Run icekit compact, which plans that rewrite."
        )


def _manifest_kinds(lake: Lake, action: Action, snapshot: Json) -> set[tuple[int, bool]]:
    """The specs that a snapshot's manifests have files of, each with whether these are delete
    files.
    """
    location = snapshot.get("manifest-list")
    if location is None:  # of format version 1, which has no deletes
        return set()
    source = lake.tables.source(action.table)
    return {
        (manifest["partition_spec_id"], is_delete_manifest(manifest))
        for manifest in manifest_list(source.read(location), location)
        if may_have_live_files(manifest)
    }


def _check_metadata_tables(action: Action, metadata: Json) -> None:
    """Refuse an action of Iceberg's that reads a metadata table which it cannot read."""
    table_specs = specs(metadata)
    refusal = ""
    if action.procedure == "rewrite_manifests":
        default_id = int(metadata.get("default-spec-id", 0))
        spec_id = int(str(action.arguments.get("spec_id", default_id)))
        refusal = manifest_refusal(table_specs, columns(metadata, schema_of(metadata)), spec_id)
    elif action.rewrites_position_deletes:
        refusal = positions_refusal(table_specs)
    if refusal:
        raise EngineFailed(f"Nothing was done. {refusal}")
