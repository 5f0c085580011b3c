"""Tables whose metadata is the illness: manifests, snapshots and metadata files."""

from __future__ import annotations

import pyarrow as pa

from icekit.lab.workbench import Lab, LabTable

DAYS = 15 * 7


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
        rolls=False,
    )
    table = lab.pyiceberg_table()
    for day in range(DAYS):
        table.append(lab.days(day))
    lab.refresh()
    # All but the last: nobody reads the lab meanwhile. In production keep days of history.
    lab.call("expire_snapshots", "older_than => now(), retain_last => 1")


def _overlapping_manifests(lab: Lab) -> None:
    """Load week after week, each load bringing corrections for a day of every week before.

    A scan skips a manifest by the range of partitions in it. Here each has its own week
    and something of the first one, so that a query for an early day opens them all.
    """
    # A target for manifests as small as the one for files: these count as full.
    lab.create("flight_date", {"commit.manifest.target-size-bytes": str(8 * 1024)}, rolls=False)
    table = lab.pyiceberg_table()
    for week in range(12):
        corrections = [lab.days(7 * earlier + week % 7).slice(length=20 * lab.scale) for earlier in range(week)]
        table.append(pa.concat_tables([lab.days(7 * week, 7), *corrections]))


def _snapshot_pile_up(lab: Lab) -> None:
    """Commit every day, compact data and manifests, and never expire anything.

    Compaction replaces files; the snapshots before it still hold on to what it replaced.
    """
    lab.create("month", {"write.metadata.previous-versions-max": "1000"}, target_size_bytes=16 * lab.target_size_bytes, rolls=False)
    table = lab.pyiceberg_table()
    for day in range(DAYS):
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
        "Every load corrects days long past, so each manifest spans nearly all days and scans cannot skip it.",
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
