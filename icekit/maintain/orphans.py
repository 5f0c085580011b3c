"""Plan the removal of orphan files, or say why they stay."""

from __future__ import annotations

import datetime as dt

from icekit.compact.model import Action, Prediction
from icekit.diagnose.findings import Findings
from icekit.errors import ParameterError
from icekit.facts.model import TableFacts
from icekit.facts.orphans import ORPHAN_AGE
from icekit.sql import display_name, orphan_arguments
from icekit.units import at, moment, span


def may_not_remove(facts: TableFacts, findings: Findings) -> bool:
    """Whether possible orphan files stay because they must not be removed, rather than because
    there are none.
    """
    if facts.storage is None:
        return True
    is_found = "orphan_files" in findings.names and facts.storage.orphan_count > 0
    return facts.storage.sharing.refusal is not None or (is_found and not facts.is_on("gc.enabled"))


def _why_orphans_stay(facts: TableFacts, findings: Findings, *, is_named: bool) -> str | None:
    """Why no orphan file is removed, as a note; empty if there is nothing to say of it, None if
    listed files may be removed.
    """
    storage = facts.storage
    is_collected = facts.is_on("gc.enabled")
    if facts.unlisted is not None:
        return f"Orphan files were not looked for: {facts.unlisted}."
    if storage is None:
        return (
            "remove_orphan_files needs a listing of the table's location. Observe the table with "
            "storage=True."
            if is_named and is_collected
            else ""
        )
    if storage.sharing.shared:
        return storage.sharing.refusal or ""
    if "orphan_files" not in findings.names or not storage.orphan_count:
        return ""
    if not is_named:
        return (
            f"Orphan files were listed ({storage.told.rstrip(',')}) but not removed. icekit "
            "removes them only if remove_orphan_files is named among the procedures."
        )
    if not is_collected:
        return "Orphan files were listed, but gc.enabled=false: another table may use them."
    return storage.sharing.refusal


def orphans(
    facts: TableFacts, findings: Findings, now: dt.datetime, notes: list[str], *, is_named: bool
) -> list[Action]:
    """Remove listed files if a new listing agrees; only if requested by name, and no other table
    shares the location.
    """
    storage = facts.storage
    kept = _why_orphans_stay(facts, findings, is_named=is_named)
    if storage is None or kept is not None:
        notes += [kept] if kept else []
        return []
    older_than = at(storage.older_than_ms)
    if now - older_than < ORPHAN_AGE:
        raise ParameterError(
            f"Orphan files older than {span((now - older_than).total_seconds() * 1000)} were "
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
    return [
        Action(
            "",
            "remove_orphan_files",
            facts.catalog,
            facts.table,
            f"orphan_files: {storage.told} that no snapshot names, older than "
            f"{moment(storage.older_than_ms)}{examples}; before it removes any, icekit lists them "
            "again and looks them up among the files that this table and every other table of the "
            "catalog name. No other table of this catalog is at the location; make sure that no table "
            "of another catalog has files there",
            Prediction(storage.orphan_count, 0, 0, 0, groups=1, source="metadata", unit="orphan"),
            arguments=arguments,
            older_than=older_than,
        )
    ]
