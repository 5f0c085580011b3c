"""After a kill: go on with the run, and check that it is as if nobody had killed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from icekit.api import Lake
from icekit.common.commands.compaction_policy import Scope
from icekit.common.sql import display_name, identifier
from icekit.health.facts.head import head
from icekit.iceberg.partition import Scalar
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.record.results import RUN_TAG
from icekit.maintain.run.outcome import Outcome
from icekit.maintain.run.smaller_actions import remaining_partitions
from icekit.maintain.run.verbs import UNFINISHED
from icekit.rows.proof.fingerprint import Fingerprint, fingerprint
from rigs.soak.table import folder
from rigs.soak.victim import policy

Prints = Mapping[tuple[Scalar, ...], Fingerprint]


@dataclass(frozen=True)
class After:
    """What a kill left, and what became of it."""

    where: str
    outcome: Outcome | None


def where_killed(lake: Lake, table: str, ledger: Ledger, lines: list[str]) -> str:
    """How far the victim had come, by the ledger, the table and its own last words."""
    full = display_name(lake.sql_name(lake.identifier(table)))
    record = ledger.last_run(full)
    claimed = any(claim.table == full for claim in ledger.claims())
    if record is None:
        return "claimed, not recorded" if claimed else "planning"
    if record.status == "done":
        return "done, claim held" if claimed else "done"
    actions = ledger.actions(record.run_id)
    if not actions:
        return "recorded, before action 1"
    last = actions[-1]
    commits = sum(
        _summary(s).get("icekit.action-id") == last.action_id
        for s in own(lake, table, record.run_id)
    )
    if last.status != "running":
        return f"after action {last.ordinal + 1}"
    if lines and lines[-1].startswith("  done"):
        return f"action {last.ordinal + 1}, in its proof"
    return (
        f"action {last.ordinal + 1}, {commits} "
        f"commits{', files not committed' if unnamed(lake, table) else ''}"
    )


def own(lake: Lake, table: str, run_id: str) -> list[Mapping[str, object]]:
    """The run's commits as the table has them, newest first."""
    return [
        dict(s)
        for s in head(lake, lake.identifier(table)).lineage()
        if (s.get("summary") or {}).get(RUN_TAG) == run_id
    ]


def files_on_disk(lake: Lake, table: str) -> set[str]:
    """Data files in the table's own folder."""
    namespace, name = lake.identifier(table)
    return {str(path) for path in (folder(lake, name, namespace) / "data").rglob("*.parquet")}


def unnamed(lake: Lake, table: str) -> set[str]:
    """Files of the table's own folder that no snapshot names."""
    name = lake.sql_name(lake.identifier(table))
    lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
    known = {
        str(row[0]).removeprefix("file:")
        for row in lake.spark.sql(
            f"SELECT file_path FROM {identifier(*name, 'all_files')}"
        ).collect()
    }
    return files_on_disk(lake, table) - known


def go_on(
    lake: Lake, table: str, scope: Scope, ledger: Ledger, progress: Callable[[str], None]
) -> Outcome:
    """Resume what the ledger knows of; plan and run where the kill came before there was
    anything.
    """
    full = display_name(lake.sql_name(lake.identifier(table)))
    last = ledger.last_run(full)
    if last is not None and last.status in UNFINISHED:
        return lake.resume(table, ledger=ledger, progress=progress)
    plan = plan_table(lake, lake.observe(table), policy=policy(scope), ledger=ledger)
    return lake.run(plan, execute=True, ledger=ledger, progress=progress)


def check(
    lake: Lake,
    table: str,
    scope: Scope,
    ledger: Ledger,
    before: Prints,
    outcome: Outcome,
    there: set[str],
    proved: set[str],
) -> list[str]:
    """Everything that is wrong; nothing is.

    ``before`` are the prints of the rows, ``there`` the data files on disk when the victim was
    dead, and ``proved`` the actions that it had proved.
    """
    name = lake.sql_name(lake.identifier(table))
    full = display_name(name)
    wrong = []
    lake.spark.sql(f"REFRESH TABLE {identifier(*name)}")
    if (after := fingerprint(lake.spark, name)) != before:
        wrong.append(f"rows changed: {before} before, {after} after")
    if outcome.exit_status != 0:
        wrong.append(f"the run ended as {outcome.status}")
    record = ledger.last_run(full)
    if record is not None:
        wrong += _of_run(lake, table, ledger, record.run_id, outcome, proved)
        if record.status != "done":
            wrong.append(f"the run is recorded as {record.status}: {record.error}")
    if held := [claim for claim in ledger.claims() if claim.table == full]:
        wrong.append(f"a claim is left: {held}")
    begun = next(
        (
            s
            for s in head(lake, lake.identifier(table)).metadata["snapshots"]
            if s["snapshot-id"] == outcome.plan.snapshot_id
        ),
        None,
    )
    for action in outcome.plan.actions if begun else ():
        # Deletes as new as the snapshot that it began from still apply to what it wrote, so the
        # planner may select that.
        if left := remaining_partitions(
            lake.spark, action, begun["sequence-number"] if begun else 0
        ):
            wrong.append(f"action {action.action_id} has not rewritten {left}")
    if lost := there - files_on_disk(lake, table):
        wrong.append(f"files were deleted: {sorted(lost)[:3]}")
    return wrong


def _of_run(
    lake: Lake, table: str, ledger: Ledger, run_id: str, outcome: Outcome, proved: set[str]
) -> list[str]:
    """What is wrong with the run's commits and its records."""
    wrong = []
    commits = own(lake, table, run_id)
    ids = ", ".join(str(c["snapshot-id"]) for c in commits) or "-1"
    entries = identifier(*lake.sql_name(lake.identifier(table)), "all_entries")
    rows = lake.spark.sql(
        f"SELECT DISTINCT status, snapshot_id, data_file.file_path FROM {entries} "
        f"WHERE status > 0 AND data_file.content = 0 AND snapshot_id IN ({ids})"
    ).collect()
    added = {row[2] for row in rows if row[0] == 1}
    removed = Counter(row[2] for row in rows if row[0] == 2)
    if twice := added & set(removed):
        wrong.append(f"{len(twice)} files that the run wrote were rewritten by it again")
    if again := [path for path, n in removed.items() if n > 1]:
        wrong.append(f"{len(again)} files were removed twice")
    summed = sum(int(str(_summary(c).get("deleted-data-files", 0))) for c in commits)
    if summed != len(removed):
        wrong.append(
            f"the snapshots say {summed} files were replaced, their manifests {len(removed)}"
        )
    if outcome.run_id == run_id and outcome.actual.files_in != summed:
        wrong.append(
            f"the outcome says {outcome.actual.files_in} files were replaced, the snapshots "
            f"{summed}"
        )
    shown = {commit.snapshot_id for commit in outcome.proof.commits} if outcome.proof else set()
    unproved = [
        c["snapshot-id"]
        for c in commits
        if c["snapshot-id"] not in shown and str(_summary(c)["icekit.action-id"]) not in proved
    ]
    if outcome.run_id == run_id and unproved:
        wrong.append(f"{len(unproved)} commits were never proved")
    unfinished = [a for a in ledger.actions(run_id) if a.status not in {"done", "skipped", "split"}]
    return [
        *wrong,
        *(f"action {a.action_id} is recorded as {a.status}: {a.error}" for a in unfinished),
    ]


def _summary(commit: Mapping[str, object]) -> Mapping[str, object]:
    found = commit["summary"]
    assert isinstance(found, dict)
    return found
