"""Tables whose metadata is the illness: manifests, snapshots and metadata files."""

from __future__ import annotations

from icekit.lab.workbench import Lab, LabTable

COMMITS = 110


def _fragmented_manifests(lab: Lab) -> None:
    """Append day after day with a writer that does not merge manifests.

    pyiceberg and Flink append fast by default: each commit adds a manifest of its own, and
    a scan opens them all. Snapshots and metadata files are looked after, as a conscientious
    owner would; neither makes manifests fewer.
    """
    lab.create(
        "flight_date",
        {
            "commit.manifest-merge.enabled": "false",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "10",
        },
    )
    table = lab.pyiceberg_table()
    for day in range(COMMITS):
        table.append(lab.days(day))
    lab.refresh()
    # All but the last: nobody reads the lab meanwhile. In production keep days of history.
    lab.call("expire_snapshots", "older_than => now(), retain_last => 1")


def _overlapping_manifests(lab: Lab) -> None:
    """Load month after month into buckets: every manifest then has files of every bucket.

    Manifests are skipped by the partitions they span, and here no filter skips any.
    """
    lab.create(
        "bucket(24, flight_id)",
        {
            # A month's share of a bucket is a well-sized file, and its manifest a full one.
            "write.target-file-size-bytes": str(lab.target_size_bytes // 8),
            "commit.manifest.target-size-bytes": str(16 * 1024),
        },
    )
    for month in range(1, 13):
        lab.sql(f"INSERT INTO {{t}} SELECT * FROM {{flights}} WHERE month = {month}")


def _snapshot_pile_up(lab: Lab) -> None:
    """Commit every day, compact data and manifests, and never expire anything.

    Compaction replaces files; the snapshots before it still hold on to what it replaced.
    """
    lab.create("month", {"write.metadata.previous-versions-max": "1000"})
    table = lab.pyiceberg_table()
    for day in range(COMMITS):
        table.append(lab.days(day))
    lab.refresh()
    lab.call("rewrite_data_files")
    lab.call("rewrite_manifests")


TABLES = (
    LabTable(
        "fragmented_manifests",
        "Each of many appends left a manifest of its own, and planning a scan opens them all.",
        frozenset({"fragmented_manifests"}),
        _fragmented_manifests,
    ),
    LabTable(
        "overlapping_manifests",
        "Each manifest has files of every bucket, so that no filter lets a scan skip one.",
        frozenset({"overlapping_manifests"}),
        _overlapping_manifests,
    ),
    LabTable(
        "snapshot_pile_up",
        "Nothing is ever expired: snapshots hold on to replaced files, and metadata files pile up beside them.",
        frozenset({"snapshots_piling_up", "metadata_files_piling_up"}),
        _snapshot_pile_up,
    ),
)
