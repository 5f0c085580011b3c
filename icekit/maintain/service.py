"""Plan the maintenance of a table of a catalog: what the pure plan needs is read here, and nothing is run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import partial

from icekit.catalog import Lake
from icekit.compact.model import Plan
from icekit.diagnose import diagnose
from icekit.diagnose.findings import Findings, Thresholds
from icekit.facts.avro import manifest_list
from icekit.facts.head import head
from icekit.facts.model import TableFacts
from icekit.maintain.manifests import Layer, layers
from icekit.maintain.plan import DEFAULT_PROCEDURES, plan_maintenance
from icekit.maintain.predict import predict_deletes
from icekit.maintain.retention import Retention


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
    """Plan the maintenance that findings ask for on a table as it is now.

    Reads the table's metadata and manifest list, and asks the engine's planner for position
    deletes. ``procedures`` are those that may be planned: by default all but ``remove_orphan_files``, which has to be
    named and needs ``facts`` observed with ``storage=True``. Raises the errors of :mod:`icekit.errors`.
    """
    findings = diagnose(facts, thresholds, session_conf=lake.session_conf()) if findings is None else findings
    at = head(lake, facts.table)
    return plan_maintenance(
        facts,
        findings,
        retention,
        metadata=at.metadata,
        now=now or dt.datetime.now(dt.UTC),
        predict=partial(predict_deletes, lake.spark),
        manifests=manifest_layers(lake, facts.table),
        procedures=procedures,
    )


def manifest_layers(lake: Lake, table: tuple[str, ...], snapshot_id: int | None = None) -> tuple[Layer, ...]:
    """The manifests of a snapshot per spec, from its manifest list; of the current one without an id."""
    at = head(lake, table)
    wanted = at.snapshot_id if snapshot_id is None else snapshot_id
    snapshot = next((s for s in at.metadata.get("snapshots") or () if s["snapshot-id"] == wanted), None)
    location = (snapshot or {}).get("manifest-list")
    return layers(manifest_list(lake.tables.source(table).read(location), location)) if location else ()
