"""The rows of a trial are those of a usual commit, as its writer got them, or enough for several files."""

from __future__ import annotations

from icekit.tune.file_sizes.written import aim, large, usual
from tests.factories import GIB, KIB, MIB, TARGET, commit, file_group, history, partition, table_facts

TABLE = ("prod", "db", "events")


def test_a_commit_that_was_scattered_is_read_by_one_task_for_each_file_it_left() -> None:
    commits = [commit(n, added_data_files=8, added_bytes=80 * KIB, added_records=100 + n) for n in (4, 3, 2, 1, 0)]

    found = usual(table_facts(history=history(*commits)), sample_bytes=GIB, tasks=7)

    assert found is not None
    assert found.as_written
    assert found.records == 101
    assert "file-open-cost" in found.options
    assert found.tasks == 0


def test_files_that_the_bytes_explain_are_not_scattered() -> None:
    commits = [commit(n, added_data_files=8, added_bytes=8 * TARGET) for n in (1, 0)]

    found = usual(table_facts(history=history(*commits)), sample_bytes=100 * GIB, tasks=7)

    assert found is not None
    assert not found.as_written
    assert found.tasks == 7


def test_a_table_of_one_commit_and_one_of_huge_commits_have_no_usual_commit_to_try() -> None:
    assert usual(table_facts(history=history(commit())), sample_bytes=GIB, tasks=2) is None
    assert usual(table_facts(), sample_bytes=MIB, tasks=2) is None


def test_a_sample_that_is_too_small_for_the_target_is_tried_at_a_smaller_one() -> None:
    facts = table_facts(groups=(file_group(*[TARGET] * 40),))

    assert aim(facts, 100 * GIB) == TARGET
    assert aim(facts, GIB) == int(GIB / 12 / 1.25)
    assert aim(table_facts(), GIB) == TARGET


def test_the_large_commit_takes_the_largest_partitions_that_fit_and_thins_what_does_not() -> None:
    groups = tuple(file_group(*[TARGET] * n, of=partition(20_454 + n)) for n in (1, 2, 3))

    found = large(table_facts(groups=groups), "files", target_bytes=TARGET, sample_bytes=4 * TARGET)

    assert found is not None
    assert found.size_in_bytes == 4 * TARGET
    assert found.partitions == 2
    assert "rand" not in found.where
    thin = large(table_facts(groups=groups), "files", target_bytes=TARGET, sample_bytes=TARGET // 2)
    assert thin is not None
    assert "rand(7)" in thin.where
