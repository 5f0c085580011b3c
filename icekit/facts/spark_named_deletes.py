"""Find the delete files that name a single data file, and whether they apply to it, in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icekit.facts.files import Kind
from icekit.facts.integrity import DeleteState
from icekit.facts.local_named_deletes import PATH_FIELD_ID
from icekit.facts.spark_entries import REDUCERS, Snapshot, file_hash, grouped, kind_code, last_part, state_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# No data file has this sequence number.
NEVER = f"{2**63 - 1}L"


def named_deletes(snapshot: Snapshot, rows: DataFrame) -> DataFrame | None:
    """The delete files that name a single data file, and whether they apply to it: as ``state``; None without any.

    A delete applies to the live data file that has exactly the path it names, is not newer, and has its spec and partition
    (DeleteFileIndex). Only this needs bounds of delete files, and a join by path.
    """
    scoped = named_paths(snapshot).selectExpr("file", f"{file_hash('named')} AS named", f"{file_hash(last_part('named'))} AS named_name")
    if scoped.isEmpty():
        return None
    deletes = rows.where(f"kind <> {kind_code(Kind.DATA)}").select("file", "place", "sequence").join(scoped, "file")
    data = rows.where(f"kind = {kind_code(Kind.DATA)}")
    oldest = "min_by(place, sequence) AS named_place", "min(sequence) AS named_sequence"
    live = grouped(data.selectExpr("file AS named", "place", "sequence"), ["named"], *oldest)
    beside = grouped(data.selectExpr("place", "name AS named_name", "sequence"), ["place", "named_name"], "min(sequence) AS alike_sequence")
    state = (
        f"CASE WHEN named_sequence IS NULL THEN if(coalesce(alike_sequence, {NEVER}) <= sequence, {state_code(DeleteState.UNMATCHED)}, {state_code(DeleteState.DANGLING)}) "
        f"WHEN named_sequence > sequence THEN {state_code(DeleteState.DANGLING)} WHEN named_place <> place THEN {state_code(DeleteState.MISFILED)} ELSE 0 END AS state"
    )
    joined = deletes.repartition(REDUCERS, "named").join(live, "named", "left")
    return joined.repartition(REDUCERS, "place", "named_name").join(beside, ["place", "named_name"], "left").selectExpr("*", state)


def named_paths(snapshot: Snapshot) -> DataFrame:
    """The data file that each delete file names, if it is only one: directly, or by equal bounds (ContentFileUtil.referencedDataFile)."""
    lower, upper = (f"{end}_bounds[{PATH_FIELD_ID}]" for end in ("lower", "upper"))
    named = f"coalesce(referenced_data_file, if({lower} = {upper}, decode({lower}, 'utf-8'), NULL)) AS named"
    files = snapshot.files("delete_files").where("content + 0 = 1")
    return files.selectExpr(f"{file_hash('file_path', 'content_offset')} AS file", named).where("named IS NOT NULL").distinct()
