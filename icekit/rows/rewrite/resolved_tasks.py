"""Give Iceberg's own reader position deletes in place of equality deletes, for as long as a rewrite
reads the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from icekit.iceberg.metadata import choose_snapshot, specs
from icekit.rows.deletes.conversion_inputs import SnapshotDeletes, find_inputs
from icekit.rows.deletes.convert import conversion_of, write_deletes
from icekit.rows.deletes.delete_files import DeleteFileWriter
from icekit.rows.deletes.listing import DeleteListing
from icekit.rows.proof.checked import CHECKED_POSITIONS_TAG, CheckedPositions
from icekit.rows.proof.conversion import PositionCheck
from icekit.rows.rewrite.rewrite_session import RewriteSession


@contextlib.contextmanager
def resolved_tasks(
    rewrite: RewriteSession, scan_tasks: Any
) -> Iterator[tuple[Any, CheckedPositions]]:
    """The scan tasks of some data files with what a conversion of their equality deletes would
    write: position delete files or deletion vectors, which no commit names and which are removed
    at the end; and what was checked of them.

    Raises what a conversion and its check raise.
    """
    spark = rewrite.spark
    table = rewrite.table
    specs_by_id = {spec.spec_id: spec for spec in specs(rewrite.metadata)}
    snapshot, _ = choose_snapshot(rewrite.metadata, rewrite.branch)
    delete_listing = DeleteListing(
        spark, table, rewrite.snapshot_id, specs_by_id, scan_tasks=scan_tasks
    )
    snapshot_deletes = SnapshotDeletes(
        rewrite.metadata, snapshot, table, specs_by_id, delete_listing, delete_listing.scopes
    )
    inputs = find_inputs(spark, snapshot_deletes)
    assert inputs is not None
    delete_writer = DeleteFileWriter(spark, snapshot_deletes)
    make_check = PositionCheck if rewrite.check else None
    try:
        written_deletes, check_summary_tags = write_deletes(
            spark, rewrite.sql_name, inputs, delete_writer, make_check
        )
        checked_positions = CheckedPositions()
        if check_summary_tags:
            checked_positions = CheckedPositions.of(check_summary_tags[CHECKED_POSITIONS_TAG])
        yield (
            conversion_of(spark, rewrite.staging, written_deletes).changed(scan_tasks),
            checked_positions,
        )
    finally:
        delete_writer.take_back()
