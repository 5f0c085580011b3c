"""Build the lab tables whose metadata and files disagree, as retries, lost files, moved tables and
other writers leave them.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rigs.lab.workbench import TRIMMED, Lab, lab_table, on_disk

# Reserved field ids of a position delete file (table spec, "Reserved Field IDs").
_POSITION_DELETES = pa.schema(
    [
        pa.field(
            "file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


@lab_table(
    "A writer retried an append that had succeeded, so every file is in the table twice, and "
    "every row is counted twice.",
    "duplicate_files",
)
def duplicate_files(lab: Lab) -> None:
    """Append files, and append the same files again.

    A writer that gives up waiting for the catalog, and retries a commit that had gone through, does
    this.
    """
    lab.create("months(time_hour)")
    lab.insert("month <= 3")
    table = lab.java_table()
    append = table.newFastAppend()
    for file in table.currentSnapshot().addedDataFiles(table.io()):
        append.appendFile(file)
    append.commit()


@lab_table(
    "A data file was deleted from storage, so every scan that needs it fails.", "missing_files"
)
def missing_files(lab: Lab) -> None:
    """Lose a data file: a lifecycle rule of the bucket, or an orphan removal of another tool,
    deleted it.
    """
    lab.create("months(time_hour)")
    lab.insert("month <= 3")
    path = _a_data_file(lab, "month = 1")
    on_disk(path).unlink()


@lab_table(
    "A delete file is in another partition spec than its data file, and whether it applies "
    "depends on the version of Iceberg.",
    "misfiled_deletes",
    "old_partition_spec",
)
def misfiled_deletes(lab: Lab) -> None:
    """Change the partitioning, and file a delete for an old data file under the new partition spec.

    A writer that takes the current spec for every delete does this. Iceberg looks for the deletes
    of a data file in its own partition.
    """
    lab.create("months(time_hour)", {"format-version": "2"})
    lab.insert("month <= 2")
    path = _a_data_file(lab, "month = 1")
    lab.sql("ALTER TABLE {t} REPLACE PARTITION FIELD months(time_hour) WITH origin")
    lab.insert("month = 3")
    _delete_positions(lab, path, partition="origin=JFK")


@lab_table(
    "A delete file spells the path of its data file differently, so that no reader applies "
    "it, and deleted rows are back.",
    "unmatched_deletes",
)
def unmatched_deletes(lab: Lab) -> None:
    """Delete rows of a file by another spelling of its path.

    The path in a delete file has to equal the data file's, letter by letter. Two engines that spell
    the scheme differently, or a table that was copied to another bucket, have deletes that match
    nothing.
    """
    lab.create("origin", {"format-version": "2"})
    lab.insert("month <= 2")
    path = _a_data_file(lab, "origin = 'JFK'")
    _delete_positions(
        lab, f"file:///{path.removeprefix('file:').lstrip('/')}", partition="origin=JFK"
    )


@lab_table(
    "The manifest list gives a manifest a narrower range of partitions than it has, so "
    "filters lose rows.",
    "manifest_bounds",
)
def narrow_manifest(lab: Lab) -> None:
    """Write a manifest list that gives a manifest a narrower range of partitions than its entries
    have.

    Iceberg before 1.11 did this for binary partitions. A filter then skips the manifest, and does
    not see rows that a scan of the entire table returns.
    """
    from pyiceberg.manifest import read_manifest_list, write_manifest_list

    lab.create("origin", {"format-version": "2"}, rolls=False)
    lab.append_days(2)
    table = lab.pyiceberg_table()
    snapshot = table.current_snapshot()
    manifests = list(read_manifest_list(table.io.new_input(snapshot.manifest_list)))
    (summary, *_) = manifests[0].partitions or []
    summary[3] = summary[2]  # the upper bound, and the lower one
    on_disk(snapshot.manifest_list).unlink()
    output = table.io.new_output(snapshot.manifest_list)
    with write_manifest_list(
        2,
        output,
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        "deflate",
    ) as writer:
        writer.add_manifests(manifests)
    lab.refresh()


@lab_table(
    "Its statistics were computed when it had a tenth of its rows, and a query planner may "
    "use them.",
    "stale_statistics",
)
def stale_statistics(lab: Lab) -> None:
    """Compute table statistics once, and load most of the table after that."""
    lab.create("months(time_hour)")
    lab.insert("month = 1 AND day <= 3")
    lab.call("compute_table_stats")
    lab.insert("month = 1 AND day > 3")


@lab_table(
    "The schema of its first snapshot was removed, so time travel to that snapshot fails.",
    "unreadable_metadata",
)
def unreadable_metadata(lab: Lab) -> None:
    """Forget the schema of an earlier snapshot, as a clean-up of unused schemas that overlooks
    snapshots does.
    """
    lab.create()
    lab.insert("month = 1 AND day = 1")
    lab.sql("ALTER TABLE {t} ADD COLUMN on_time boolean")
    lab.sql("INSERT INTO {t} SELECT *, arr_delay <= 0 FROM {flights} WHERE month = 1 AND day = 2")
    with _edited_metadata(lab) as metadata:
        metadata["schemas"] = [
            schema
            for schema in metadata["schemas"]
            if schema["schema-id"] == metadata["current-schema-id"]
        ]


@lab_table(
    "A stream commits every ten seconds, so each file holds what came in within ten seconds.",
    "frequent_commits",
    "small_files",
    "snapshots_piling_up",
)
def frequent_commits(lab: Lab) -> None:
    """Append what comes in every ten seconds, for a quarter of an hour. Only the times of the
    commits are made up.
    """
    merged = {
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "10",
    }
    lab.create("month", merged | TRIMMED, rolls=False)
    table, rows = lab.pyiceberg_table(), lab.days(0, 7)
    batch = rows.num_rows // 100
    for start in range(0, 100 * batch, batch):
        table.append(rows.slice(start, batch))
    with _edited_metadata(lab) as metadata:
        for entries in (metadata["snapshots"], metadata["snapshot-log"]):
            for age, entry in enumerate(reversed(entries)):
                entry["timestamp-ms"] -= 10_000 * age


@lab_table(
    "Merge-on-read is set, but the table has format version 1, so every DELETE fails at its "
    "commit.",
    "merge_on_read_on_v1",
)
def merge_on_read_on_v1(lab: Lab) -> None:
    """Set merge-on-read for DELETE on a table of format version 1, which has no delete files."""
    lab.create("origin", {"format-version": "1", "write.delete.mode": "merge-on-read"})
    lab.insert("month = 1")


@lab_table(
    "A writer committed one day twice, so that several rows share an identifier and every "
    "reader counts them twice.",
    "identifiers_not_unique",
)
def repeated_identifiers(lab: Lab) -> None:
    """Load a month of flights with one day twice in the same commit, although the flight's number
    is the identifier.

    No equality delete or upsert removes these copies: a delete applies only to the rows of earlier
    commits.
    """
    lab.create(
        columns="flight_id bigint NOT NULL, carrier string, origin string, dest string, time_hour "
        "timestamp, arr_delay int"
    )
    lab.sql("ALTER TABLE {t} SET IDENTIFIER FIELDS flight_id")
    names = "coalesce(flight_id, 0), carrier, origin, dest, time_hour, arr_delay"
    again = f"SELECT {names} FROM {{flights}} WHERE month = 1 AND day = 2"
    lab.insert(f"month = 1 AND day <= 31 UNION ALL {again}", names)


@lab_table(
    "Its properties say that another service compacts it, and two optimizers make each "
    "other's commits fail.",
    "managed_elsewhere",
)
def managed_elsewhere(lab: Lab) -> None:
    """Hand the table to a service that compacts and expires it by itself."""
    lab.create("origin", {"self-optimizing.enabled": "true", "self-optimizing.group": "default"})
    lab.insert("month = 1")


@contextlib.contextmanager
def _edited_metadata(lab: Lab) -> Iterator[dict[str, Any]]:
    """Change the metadata file of the table by hand."""
    path = on_disk(lab.lake.tables.source((lab.namespace, lab.name)).metadata_location)
    metadata = json.loads(path.read_bytes())
    yield metadata
    path.write_text(json.dumps(metadata), encoding="utf-8")
    # The checksum that Hadoop keeps of a file.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    lab.refresh()


def _a_data_file(lab: Lab, rows: str) -> str:
    """The path of a data file that has some of the rows that a condition selects."""
    file = lab.sql(f"SELECT _file FROM {{t}} WHERE {rows} ORDER BY _file LIMIT 1").first()
    return str(file[0])


def _delete_positions(lab: Lab, path: str, *, partition: str) -> None:
    """Commit a delete file of the first ten rows of the data file with this path."""
    table, java = lab.java_table(), lab.java
    file = lab.location / "data" / "deletes.parquet"
    records = {"file_path": [path] * 10, "pos": pa.array(range(10), pa.int64())}
    pq.write_table(pa.table(records, schema=_POSITION_DELETES), file)
    builder = java.FileMetadata.deleteFileBuilder(table.spec()).ofPositionDeletes()
    metrics = java.MetricsConfig.forPositionDelete()
    deletes = lab.java_file(builder, table.io(), file, partition, metrics)
    table.newRowDelta().addDeletes(deletes).commit()
    lab.refresh()
