"""What maintenance would win: each term by hand, and the order of an index by them."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from icekit import Thresholds, diagnose
from icekit.diagnose.document import ReportedHealth
from icekit.diagnose.findings import Findings
from icekit.facts.files import FileGroup, Kind
from icekit.facts.model import TableFacts
from icekit.facts.orphans import weighed
from icekit.facts.rollup import OPEN_FILE_COST
from icekit.facts.snapshots import Ref
from icekit.facts.storage import SharedPlace, Sharing, StorageFacts
from icekit.history.store import health
from icekit.maintain.savings import Savings, expirable_bytes, savings_told, total, wins
from icekit.report.index import Index, closing, rank, write_index
from icekit.report.result import ReportRun, Row
from tests.factories import (
    GIB,
    MIB,
    NOW_MS,
    commit,
    file_group,
    finding,
    findings,
    history,
    manifest_facts,
    partition,
    sequence,
    table_facts,
)
from tests.golden import Golden
from tests.history.test_stores import record

DAY = 86_400_000


def won(facts: TableFacts) -> Savings:
    return wins(facts, diagnose(facts))


def test_small_files_save_an_open_each_and_their_entries_in_manifests() -> None:
    group = file_group(*[MIB] * 100)
    made = won(table_facts(groups=(group,), manifests=manifest_facts((group,), data_bytes=50_000)))

    assert made.files_gone == 99
    assert made.opens_saved == 99
    assert made.rewrite_bytes == 100 * MIB
    assert made.manifest_bytes_saved == 49_500
    assert made.saved == 99 * OPEN_FILE_COST + 49_500
    # A full scan opens 100 files and one manifest, and reads both.
    assert made.scan_cost == 101 * OPEN_FILE_COST + 100 * MIB + 50_000
    assert made.share == pytest.approx(made.saved / made.scan_cost)


def test_the_cost_of_an_open_is_the_tables_own() -> None:
    groups = (file_group(*[MIB] * 100),)

    facts = table_facts(groups=groups, properties={"read.split.open-file-cost": "1048576"})

    assert won(facts).open_file_cost == MIB


def test_what_is_won_is_what_a_plan_by_the_same_limits_would_take() -> None:
    groups = (
        file_group(*[MIB] * 8, records_per_file=1000),
        file_group(*[500 * MIB] * 4, of=partition(7), records_per_file=1000),
    )
    facts = table_facts(groups=groups)
    found = diagnose(facts)

    assert wins(facts, found).files_gone == 7
    assert wins(facts, found, Thresholds(min_input_files=9)).files_gone == 0


def test_a_healthy_table_and_an_empty_one_win_nothing() -> None:
    healthy = won(table_facts())

    assert healthy.saved == 0
    assert healthy.share == 0.0
    assert healthy.files_gone == 0
    assert healthy.rewrite_bytes == 0
    assert Savings().share is None


def test_deletes_save_their_opens_their_rows_and_the_bytes_of_deleted_rows() -> None:
    data = file_group(*[500 * MIB] * 4, records_per_file=1000)
    deletes = file_group(
        *[MIB] * 4, kind=Kind.POSITION_DELETES, records_per_file=250, file_scoped_count=4
    )
    rows = (
        sequence(
            2,
            data_file_count=4,
            data_record_count=4000,
            position_delete_file_count=4,
            position_delete_record_count=1000,
        ),
    )
    made = won(table_facts(groups=(data, deletes), sequences=rows))

    assert made.delete_rows_gone == 1000
    # Three files of what four held, and the four delete files that were opened beside them.
    assert made.opens_saved == made.files_gone + 4
    assert made.bytes_saved == 2000 * MIB // 4 + 4 * MIB


def test_manifests_go_only_where_a_finding_asks_for_it() -> None:
    groups = (file_group(*[500 * MIB] * 4),)
    many = manifest_facts(
        groups,
        data_count=200,
        data_bytes=200 * 4096,
        data_entry_count=200,
        undersized_data_manifest_count=200,
    )

    assert won(table_facts(groups=groups, manifests=many)).manifests_gone == 199
    few = dataclasses.replace(many, data_count=20, undersized_data_manifest_count=20)
    assert won(table_facts(groups=groups, manifests=few)).manifests_gone == 0


def at(day: int, **told: object) -> object:
    return commit(day, committed_at_ms=NOW_MS - day * DAY, **told)


#: A commit that a later one replaced, both of them old.
REPLACED = (at(9), at(8, operation="overwrite", removed_data_files=1, removed_bytes=GIB))
#: The ten newest snapshots, which every expiry keeps.
NEWEST = tuple(commit(-n, committed_at_ms=NOW_MS) for n in range(1, 11))


def kept(*commits: object, **changes: object) -> TableFacts:
    return table_facts(history=history(*commits, *NEWEST, **changes))  # type: ignore[arg-type]


def test_expiry_frees_what_commits_removed_up_to_the_oldest_snapshot_that_stays() -> None:
    commits = [
        *REPLACED,
        at(4, operation="replace", removed_data_files=2, removed_bytes=MIB),
        at(1, operation="replace", removed_data_files=2, removed_bytes=7),
    ]

    # Five days by default: those of 9 and 8 days go, and what the commit of 4 days ago removed is
    # in no other.
    assert expirable_bytes(kept(*commits)) == GIB + MIB


def test_a_tag_holds_its_files_and_what_came_after_it() -> None:
    tagged = Ref("v1", "tag", commit(9).snapshot_id)

    assert expirable_bytes(kept(*REPLACED, at(1), refs=(tagged,))) == 0


def test_a_snapshot_outside_the_lineage_may_keep_any_file_so_nothing_is_promised() -> None:
    audit = Ref("audit", "branch", 424_242)

    assert (
        expirable_bytes(
            kept(*REPLACED, at(1), refs=(Ref("main", "branch", NEWEST[-1].snapshot_id),))
        )
        == GIB
    )
    # A branch keeps its own last snapshots.
    assert (
        expirable_bytes(kept(*REPLACED, at(1), refs=(Ref("old", "branch", commit(8).snapshot_id),)))
        == 0
    )
    assert expirable_bytes(kept(*REPLACED, at(1), refs=(audit,), snapshot_count=14)) is None
    # A staged write, or what a rollback left: no ref names it, and expiry keeps it while it is
    # young.
    assert expirable_bytes(kept(*REPLACED, at(1), snapshot_count=14)) is None


def test_what_summaries_do_not_say_is_not_known() -> None:
    silent = [at(9), at(8, operation="delete", removed_data_files=1), at(1)]

    assert expirable_bytes(kept(*silent)) is None
    assert expirable_bytes(table_facts(properties={"gc.enabled": "false"})) is None
    assert expirable_bytes(kept(*silent[:1], snapshot_count=5000)) is None
    assert expirable_bytes(kept(at(9), at(1))) == 0


def test_what_a_remedy_saves_is_said_of_each_finding_that_makes_a_scan_cheaper() -> None:
    facts = table_facts(groups=(file_group(*[10 * MIB] * 9),))
    found = diagnose(facts)

    assert found.names == {"small_files"}
    assert savings_told(facts, found) == {
        "small_files": "Saves each full scan 8 of 9 file opens (25 % cheaper) by rewriting 90 MiB."
    }
    both = savings_told(facts, Findings((*found, finding("distribution_mode"))))
    assert (
        both[""] == "Fixing all of these saves each full scan 8 of 9 file opens (25 % cheaper) by "
        "rewriting 90 MiB."
    )
    many = table_facts(
        manifests=manifest_facts(
            data_count=150,
            data_bytes=150 * 10_000,
            data_entry_count=300,
            undersized_data_manifest_count=150,
        )
    )
    assert "of 150 manifests" in savings_told(many, diagnose(many))["fragmented_manifests"]
    assert savings_told(table_facts(), findings("distribution_mode")) == {}


def test_a_larger_target_saves_the_files_that_the_target_of_now_keeps_apart() -> None:
    target = {"write.target-file-size-bytes": str(MIB)}
    facts = table_facts(groups=(file_group(*[MIB] * 256),), properties=target)
    mixed = table_facts(groups=(file_group(*[MIB] * 248, *[MIB // 8] * 64),), properties=target)

    alone = wins(facts, diagnose(facts))
    both = wins(mixed, diagnose(mixed))

    assert alone.files_gone == 254
    assert alone.opens_saved == 254
    assert alone.rewrite_bytes == 256 * MIB
    assert savings_told(facts, diagnose(facts))["target_too_small"].startswith(
        "Saves each full scan up to 254 of 256 file opens"
    )
    # The same files and bytes do not count twice.
    assert {"small_files", "target_too_small"} <= diagnose(mixed).names
    assert both.files_gone == 310
    assert both.rewrite_bytes == 256 * MIB
    assert savings_told(mixed, diagnose(mixed))[""].startswith(
        "Fixing all of these saves each full scan up to 310 of 312 file opens"
    )


def stream(*sizes: int) -> TableFacts:
    """Data files that a later equality delete file applies to, some of them well-sized."""
    data = file_group(*sizes, records_per_file=1000)
    deletes = file_group(MIB, kind=Kind.EQUALITY_DELETES, records_per_file=100)
    rows = (
        sequence(
            1,
            data_file_count=len(sizes),
            data_record_count=1000 * len(sizes),
            well_sized_file_count=sum(s > 400 * MIB for s in sizes),
            well_sized_bytes=sum(s for s in sizes if s > 400 * MIB),
        ),
        sequence(2, equality_delete_file_count=1, equality_delete_record_count=100),
    )
    return table_facts(groups=(data, deletes), sequences=rows)


def test_what_one_action_saves_is_said_once_and_the_other_findings_say_whose_action_it_is() -> None:
    facts = stream(*[MIB] * 20, *[500 * MIB] * 4)
    found = diagnose(facts)
    assert {"equality_deletes", "deletes_default_rewrite_ignores", "small_files"} <= found.names

    said = savings_told(facts, found)

    assert said["equality_deletes"].removeprefix("Saves") == said[""].removeprefix(
        "Fixing all of these saves"
    )
    for name in ("deletes_default_rewrite_ignores", "small_files"):
        assert said[name] == "The same action as for equality deletes fixes this."
    assert str(won(facts).opens_saved) in said["equality_deletes"]


def days(count: int, files: int) -> tuple[FileGroup, ...]:
    """So many small files of each of so many days."""
    return tuple(file_group(*[MIB] * files, of=partition(day)) for day in range(count))


def test_partitions_that_are_too_small_save_the_files_that_coarser_ones_would_combine() -> None:
    facts = table_facts(groups=days(100, 1))
    made = won(facts)

    assert diagnose(facts).names == {"over_partitioned"}
    assert made.opens_saved == 99
    assert made.table_change_opens_saved == 99
    assert made.files_gone == 99
    assert made.rewrite_bytes == 100 * MIB
    assert made.share is not None
    assert made.share > 0.75
    assert savings_told(facts, diagnose(facts))["over_partitioned"].startswith(
        "Saves each full scan up to 99 of 100 file opens"
    )


def test_files_that_compaction_and_coarser_partitions_both_combine_count_once() -> None:
    facts = table_facts(groups=(*days(20, 10), file_group(*[64 * MIB] * 10, of=partition(999))))
    found = diagnose(facts)
    assert {"over_partitioned", "small_files"} <= found.names
    made = won(facts)
    each = [
        wins(facts, Findings(f for f in found if f.name == name))
        for name in ("over_partitioned", "small_files")
    ]

    # 200 files of a day each become one file; ten of the large partition become two.
    assert made.files_gone == 199 + 8
    assert made.opens_saved == 199 + 8
    assert made.rewrite_bytes == 840 * MIB
    assert sum(one.opens_saved for one in each) > made.opens_saved
    said = savings_told(facts, found)
    opens = {
        name: int(re.findall(r"(\d+) of 210 file opens", sentence)[0])
        for name, sentence in said.items()
    }
    assert opens.pop("") == sum(opens.values()) == made.opens_saved


def test_the_history_of_compaction_leaves_out_what_coarser_partitions_save() -> None:
    facts = table_facts(groups=days(100, 1))
    made = health(facts, diagnose(facts), won(facts), "run")

    assert won(facts).opens_saved == 99
    assert made.opens_saved == 0


def test_totals_leave_out_what_is_not_known() -> None:
    summed = total(
        [
            Savings(saved=5, scan_cost=10, expirable_bytes=None),
            Savings(saved=2, scan_cost=10, expirable_bytes=3),
        ]
    )

    assert summed.saved == 7
    assert summed.scan_cost == 20
    assert summed.expirable_bytes == 3
    assert summed.orphan_files is None
    assert total([]).saved == 0
    assert summed.open_file_cost == 0


def row(
    table: str, status: str = "warning", saved: int = 0, frees: int | None = None, **more: object
) -> Row:
    outcome = ReportedHealth(
        "lake", table, status, None, (), {"data": {"file_count": 9, "size_in_bytes": 10}}, 0.1
    )
    won = Savings(saved=saved, scan_cost=100, expirable_bytes=frees)
    return Row(table, status, 1.0, outcome, f"{table}.html", savings=won, **more)  # type: ignore[arg-type]


def written(folder: Path, *rows: Row, **more: Any) -> str:
    return write_index(
        Index(rows=rows, made_at="now", catalog="lake", **more), folder / "index.html"
    ).read_text()


def test_the_index_is_ranked_by_what_is_saved_and_not_by_severity() -> None:
    rows = [
        row("a", "critical", 1),
        row("b", "warning", 9),
        Row("c", "timed out", 60.0, error="too slow"),
        row("d", "healthy", 1),
        Row("e", "crashed", 1.0),
    ]

    assert [r.table for r in sorted(rows, key=rank)] == ["e", "c", "b", "a", "d"]


def test_orphan_files_are_counted_and_weighed_where_storage_was_listed() -> None:
    listed = won(table_facts(storage=StorageFacts(0, 7, ("a",), 700, 7)))
    unlisted = won(table_facts())

    assert listed.orphan_files == 7
    assert listed.orphan_bytes == 700
    assert not listed.are_orphans_estimated
    assert unlisted.orphan_files is unlisted.orphan_bytes is None
    assert listed.storage_bytes == 700
    assert unlisted.storage_bytes == 0
    # A figure that nothing fills in would be a dash forever.
    assert None not in dataclasses.astuple(listed)
    # What nobody reads is saved by no scan.
    assert listed.saved == unlisted.saved


def test_no_orphan_is_counted_where_another_table_shares_the_location() -> None:
    shared = StorageFacts(0, 0, sharing=Sharing((SharedPlace("db.other", "s3://bucket/db"),)))

    assert won(table_facts(storage=shared)).orphan_files is None


def test_sizes_of_some_stand_for_all_and_no_sizes_for_none() -> None:
    assert weighed(0, []) == 0
    assert weighed(1_000_000, [10, 20]) == 15_000_000
    assert weighed(3, []) is None
    assert StorageFacts(0, 3, (), 6, 2).is_estimated
    assert not StorageFacts(0, 3, (), 6, 3).is_estimated


def test_what_got_worse_is_told_by_the_thresholds_of_the_run(tmp_path: Path) -> None:
    was, now = record(1, snapshots=4), record(2, snapshots=6)
    told = {"db.events": [was]}
    pages = [
        written(tmp_path, row("db.events", health=now), remembered=told, thresholds=limits)
        for limits in (Thresholds(), Thresholds(snapshots=5))
    ]

    assert ["snapshots: 4 → 6" in page for page in pages] == [False, True]
    assert ["none got worse" in page for page in pages] == [True, False]
    # In the list, and in the table's row.
    assert pages[1].count("snapshots: 4 → 6") == 2


def test_an_index_looks_like_its_golden_file(tmp_path: Path, golden: Golden) -> None:
    """Better and worse tables, days until a threshold, fixes that are one, names that are long or
    odd, and tables without figures.
    """

    def of(table: str, *findings: str, **more: object) -> Row:
        made = row(table, **more)  # type: ignore[arg-type]
        assert made.outcome is not None
        return dataclasses.replace(
            made,
            outcome=dataclasses.replace(
                made.outcome, findings=tuple({"name": name} for name in findings)
            ),
        )

    before = [
        record(day, snapshots=50 + day, findings=(("executor_cache", "info"),)) for day in range(9)
    ]
    now = record(9, snapshots=59, findings=(("small_files", "critical"),))
    rows = [
        of("db.events", "small_files", status="critical", saved=50, health=now),
        of(
            "db.stream",
            "small_files",
            "executor_cache",
            "equality_deletes",
            "skewed_partitions",
            saved=9,
            frees=GIB,
        ),
        of("db.skewed", "skewed_partitions"),
        row("db.<i>.a_name_that_is_long", "healthy"),
        Row("db.<b>.another_name_that_is_long", "crashed", 1.0),
        Row("db.slow", "timed out", 2.0, error="slow <b>"),
    ]
    page = written(tmp_path, *rows, pending=3, remembered={"db.events": before})

    golden("index/several.html", page)
    golden("index/empty.html", written(tmp_path))
    assert "src=" not in page
    assert "http" not in page
    assert page.count("<th scope") * len(rows) == page.split("<tbody>")[1].count("<td")


def test_what_a_run_closes_with_looks_like_its_golden_file(golden: Golden) -> None:
    """The verdict, the three worst tables, those that could not be read first, and what to run
    next.
    """
    sick = [row(f"db.{name}", "critical", saved=n) for n, name in enumerate("abcd")]
    assert sick[3].outcome
    found = dataclasses.replace(
        sick[3].outcome,
        findings=tuple({"name": f"small_{n}", "severity": "warning"} for n in range(6)),
    )
    well, gone = (
        row("db.well", "healthy"),
        Row("db.gone", "misconfigured", 1.0, error="no metadata"),
    )
    runs = [(well, *sick[:3], dataclasses.replace(sick[3], outcome=found)), (well,), (gone,)]

    golden(
        "index/closing.txt",
        "\n\n".join(closing(ReportRun(rows, Path("index.html"), 0), "a prod") for rows in runs),
    )
