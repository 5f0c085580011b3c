"""Check the table's location, if its files were listed: one function per finding."""

from __future__ import annotations

from icekit.diagnose.findings import Context, Finding, Severity


def shared_location(context: Context) -> Finding | None:
    """Another table keeps files in this table's location; only if storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.sharing.shared:
        return None
    return context.finding(
        Severity.WARNING,
        [other.path for other in storage.sharing.shared],
        evidence=f"{storage.sharing.told}; this table's is {context.facts.location}",
        threshold="one table of the catalog with a path that equals, contains or lies inside a "
        "path of this table",
        source="remove_orphan_files: removes every file in the location that this table does not "
        "reference",
        effect="Files of the other table look like orphans of this table: removing them destroys "
        "the other table. CREATE, RENAME, then CREATE with the old name puts two tables into one "
        "location.",
        remedy="Do not remove orphan files here. Copy one of the tables to its own location "
        "(CREATE TABLE … AS SELECT).",
    )


def orphan_files(context: Context) -> Finding | None:
    """Files in the table's location that no snapshot references; only if storage was listed."""
    storage = context.facts.storage
    if storage is None or not storage.orphan_count:
        return None
    unknown = (
        f"; they may belong to another table ({storage.sharing.unchecked})"
        if storage.sharing.unchecked
        else ""
    )
    return context.finding(
        Severity.WARNING,
        storage.examples,
        evidence=f"{storage.told} under {context.facts.location} in no snapshot, and older than 3 "
        f"days{unknown}",
        threshold="one file older than 3 days",
        source="remove_orphan_files: older_than",
        effect="Orphan files cost storage and nothing reads them; failed and killed writers leave "
        "them behind.",
        remedy="List the orphan files again, check the list, then run the call without dry_run. "
        "Make sure that no other table references files in the location.",
        sql=(context.list_orphans(),),
        files_at_stake=storage.orphan_count,
        bytes_at_stake=storage.orphan_bytes or 0,
    )
