"""Check whether the manifests of a snapshot contradict each other: one function per finding."""

from __future__ import annotations

from icekit.diagnose.findings import Context, Finding, Severity, agree
from icekit.facts.files import Scalar
from icekit.facts.integrity import DeleteState, NarrowManifest
from icekit.facts.model import TableFacts
from icekit.facts.where import WITHOUT_FUNCTIONS
from icekit.sql import identifier
from icekit.units import count, counted

_WHILE_ALONE = (
    "Stop all writers first: a file that one of them commits meanwhile may be replaced, too."
)


def duplicate_files(context: Context) -> Finding | None:
    """Files with more than one live entry: a scan reads each entry."""
    facts = context.facts
    integrity = facts.integrity
    files = integrity.duplicate_data_file_count + integrity.duplicate_delete_file_count
    if not files:
        return None
    kinds = (
        (integrity.duplicate_data_file_count, "data file"),
        (integrity.duplicate_delete_file_count, "delete file"),
    )
    listed = " and ".join(count(n, noun) for n, noun in kinds if n)
    listed_again = counted(len(integrity.duplicate_manifests), "manifest", "is", "are")
    manifests = f"; {listed_again} in the manifest list more than once"
    ids = {snapshot_id for each in integrity.duplicates for snapshot_id in each.snapshot_ids}
    snapshots = ", ".join(f"snapshot {snapshot_id}" for snapshot_id in sorted(ids))
    first = integrity.duplicates[0]
    return context.finding(
        Severity.CRITICAL,
        (*integrity.duplicate_manifests, *(each.path for each in integrity.duplicates)),
        evidence=f"{listed} {agree(files, 'has', 'have')} more than one live entry, so scans "
        f"count {count(integrity.duplicate_record_count, 'row')} again; {first.path} has "
        f"{first.entry_count:,}; added by {snapshots}"
        + (manifests if integrity.duplicate_manifests else ""),
        threshold="one file with more than one live entry",
        source="table spec, Manifests: each live file has one entry; nothing checks it when a "
        "file is added",
        effect="Every query counts the rows of these data files as often as they are listed, and "
        "shows rows again that were deleted before the last entry was added. A rewrite would keep "
        "the copies for good, or fail.",
        remedy="If nothing after it has to stay, roll back to the snapshot before the one that "
        "added the second entry. Otherwise write the rows again, each row of a file once, with "
        f"the statement. {_WHILE_ALONE}",
        sql=(_once(context),),
        files_at_stake=files,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def _once(context: Context) -> str:
    """A statement that writes the rows of the affected partitions again, each position of a file
    once, in one commit.
    """
    facts = context.facts
    columns = dict.fromkeys(
        identifier(column.names[0]) for column in sorted(facts.columns, key=lambda c: c.position)
    )
    condition = _condition(facts)
    table, names = context.table, ", ".join(columns)
    numbered = (
        "SELECT *, row_number() OVER (PARTITION BY _file, _pos ORDER BY _pos) AS icekit_copy FROM "
        f"{table} WHERE {condition}"
    )
    return (
        f"INSERT INTO {table} REPLACE WHERE {condition} SELECT {names} FROM ({numbered}) WHERE "
        "icekit_copy = 1"
    )


def _condition(facts: TableFacts) -> str:
    """A condition for the partitions that have files listed twice; ``true`` where no simple one
    selects them.
    """
    partitions = facts.integrity.duplicate_partitions
    # An overwrite may have no function in its condition.
    specs = [facts.spec(p.spec_id) for p in partitions]
    if not partitions or any(
        f.transform not in WITHOUT_FUNCTIONS or f.source is None
        for spec in specs
        for f in spec.fields
    ):
        return "true"
    return facts.where(partitions, of_rows=True) or "true"


def _example(facts: TableFacts, state: DeleteState) -> str:
    """A misplaced delete file, and the data file that it names; empty without one."""
    for each in facts.integrity.misplaced:
        if each.state is state:
            delete, data = (
                f"{facts.partition_name(p)} of spec {p.spec_id}"
                for p in (each.partition, each.data_partition)
            )
            return (
                f"; {each.path}, added by snapshot {each.snapshot_id}, is in {delete} and names "
                f"{each.named_path}; the table has {each.data_path} in {data}"
            )
    return ""


def misfiled_deletes(context: Context) -> Finding | None:
    """Delete files under another partition or spec than the data file that they name."""
    facts = context.facts
    deletes, where = context.unapplied(DeleteState.MISFILED)
    files = deletes.file_count
    if not files:
        return None
    return context.finding(
        Severity.CRITICAL,
        where,
        evidence=f"{count(files, 'delete file')} with {count(deletes.record_count, 'record')} "
        "filed under another partition or spec than the data file named"
        f"{_example(facts, DeleteState.MISFILED)}",
        threshold="one such delete file",
        source="table spec, Scan Planning; DeleteFileIndex of Iceberg 1.12",
        effect="Iceberg 1.12 cannot read these data files (Mismatched partition), earlier "
        "versions apply the deletes, and other engines may ignore them. "
        "rewrite_position_delete_files drops them: then the deleted rows are back.",
        remedy="With Iceberg 1.11, rewrite the data files that deletes apply to, which applies "
        "the deletes; icekit compact then drops the leftover delete files. Without 1.11, roll back "
        "to the snapshot before the one that added them, and delete the rows again. Run no other "
        "maintenance before.",
        sql=(context.rewrite({"delete-file-threshold": "1"}),),
        files_at_stake=files,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def unmatched_deletes(context: Context) -> Finding | None:
    """Delete files that name a live data file by another path, so that a scan applies them to
    nothing.
    """
    facts = context.facts
    deletes, where = context.unapplied(DeleteState.UNMATCHED)
    files = deletes.file_count
    if not files:
        return None
    return context.finding(
        Severity.CRITICAL,
        where,
        evidence=f"{count(files, 'delete file')} with {count(deletes.record_count, 'record')} "
        f"{agree(files, 'names', 'name')} a data file by a path that the table does not have, "
        "but a live data file of the same partition has the same name"
        f"{_example(facts, DeleteState.UNMATCHED)}",
        threshold="one such delete file",
        source="table spec, Position Delete Files: paths are compared as they are written",
        effect="Spark ignores these deletes, so the rows that they delete are visible; engines "
        "that compare paths in another way may hide them.",
        remedy="If the rows should go, delete them again with Spark (write.delete.mode = "
        "copy-on-write); if they should stay, rewrite their data files with Iceberg's own "
        "rewrite_data_files. Then icekit compact drops these delete files, which apply to nothing "
        "any more.",
        files_at_stake=files,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def manifest_bounds(context: Context) -> Finding | None:
    """Manifests whose partition summary in the manifest list does not cover their entries."""
    facts = context.facts
    integrity = facts.integrity
    if not integrity.narrow_manifest_count:
        return None
    alone = any(each.is_alone for each in integrity.narrow_manifests)
    specs = sorted({each.spec_id for each in integrity.narrow_manifests if not each.is_alone})
    calls = [
        context.call(
            "rewrite_manifests", **({} if spec == facts.default_spec_id else {"spec_id": spec})
        )
        for spec in specs
    ]
    remedy = "Rewrite the manifests; this does not touch data files." if calls else ""
    if alone:
        # With all data files rewritten, the entries of a narrow delete manifest apply to nothing.
        has_deletes = (
            {"remove-dangling-deletes": "true"}
            if any(each.is_deletes for each in integrity.narrow_manifests)
            else {}
        )
        calls.append(context.rewrite({"rewrite-all": "true", **has_deletes}))
        remedy = (
            f"{remedy} rewrite_manifests leaves the only manifest of a spec alone, so rewrite all "
            "data files, without a filter."
        ).strip()
    return context.finding(
        Severity.CRITICAL,
        [each.path for each in integrity.narrow_manifests],
        evidence=f"{counted(integrity.narrow_manifest_count, 'manifest', 'has', 'have')} a "
        "partition summary that is narrower than the entries; "
        f"{_narrow(integrity.narrow_manifests[0])}",
        threshold="one partition value outside the summary of its manifest",
        source="table spec, Manifest Lists: field_summary; Iceberg up to 1.10 writes such "
        "summaries for binary partitions",
        effect="A filter on the partition skips the manifest: queries lose its rows or its "
        "deletes, and a rewrite with a filter misses them.",
        remedy=remedy,
        sql=tuple(calls),
        files_at_stake=integrity.narrow_manifest_count,
        bytes_at_stake=facts.data.size_in_bytes,
    )


def _narrow(each: NarrowManifest) -> str:
    held = (
        f"{each.path}: the summary of {each.field} says {_range(each.listed)}, its entries hold "
        f"{_range(each.held)}"
    )
    return f"{held} and {each.missing}" if each.missing else held


def _range(bounds: tuple[Scalar, Scalar]) -> str:
    low, high = bounds
    if low is None:
        return "no value"
    return f"{low}" if low == high else f"{low} to {high}"
