"""Snapshots expire by time and by count, as people need them, and never now."""

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import icekit
from icekit.common.errors import ParameterError
from icekit.health.facts import writer_states
from icekit.health.facts.retention import (
    HOUR_MS,
    Retention,
    expiry,
    removed_by_ref_limits,
    retained_snapshots,
)
from icekit.health.facts.writer_states import WRITERS, WriterLog
from tests.offline import IDS, lake_in

NOW = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
#: The ages of rare commits.
OLD = [day * 24 * HOUR_MS for day in (40, 30, 20, 10)]


def metadata(
    ages_ms: Sequence[int], refs: Mapping[str, Any] | None = None, **properties: str
) -> dict[str, Any]:
    """A line of commits, oldest first and numbered from 1, each so many milliseconds old."""
    snapshots = [
        {
            "snapshot-id": n + 1,
            "timestamp-ms": NOW_MS - age,
            **({"parent-snapshot-id": n} if n else {}),
        }
        for n, age in enumerate(ages_ms)
    ]
    last = len(snapshots)
    return {
        "current-snapshot-id": last,
        "snapshots": snapshots,
        "refs": {"main": {"snapshot-id": last, "type": "branch"}, **(refs or {})},
        "properties": {key.replace("__", "-"): value for key, value in properties.items()},
    }


def hourly(hours: int) -> list[int]:
    return [hour * HOUR_MS for hour in reversed(range(hours))]


def test_a_ref_older_than_its_own_limit_goes_and_main_never_does() -> None:
    refs = {"old": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": HOUR_MS}}
    found = retained_snapshots(
        metadata([50 * HOUR_MS, 40 * HOUR_MS], refs), NOW_MS - HOUR_MS, 1, NOW_MS
    )

    assert found.remaining_refs == ("main",)
    assert found.expired_refs == ("old",)
    assert found.expired_ids == (1,)


def test_every_expiry_removes_what_is_past_limits_of_branches_and_tags_themselves() -> None:
    refs = {
        "old": {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": HOUR_MS},
        "main": {"snapshot-id": 4, "type": "branch", "max-snapshot-age-ms": 25 * HOUR_MS},
    }
    removed = removed_by_ref_limits(metadata(OLD, refs), NOW_MS)

    assert removed.expired_refs == ("old",)
    assert removed.expired_ids == (1, 2, 3)
    assert removed_by_ref_limits(metadata(OLD), NOW_MS).expired_ids == ()


@pytest.mark.parametrize("name", ["audit", "zaudit"])
def test_a_tag_does_not_keep_what_its_branch_no_longer_does(name: str) -> None:
    main = {"snapshot-id": 4, "type": "branch", "max-snapshot-age-ms": 25 * HOUR_MS}
    refs = {"main": main, name: {"snapshot-id": 2, "type": "tag"}}
    ages = [50 * HOUR_MS, 40 * HOUR_MS, 30 * HOUR_MS, 0]

    assert retained_snapshots(metadata(ages, refs), 0, 1, NOW_MS).expired_ids == (1, 3)


def test_a_shorter_time_than_is_needed_is_refused_with_what_to_change() -> None:
    with pytest.raises(ParameterError, match=r'Set keep_hours .--keep. to "72 hours" or more'):
        expiry(metadata(OLD), Retention(keep_hours=24, keep_last=100, need_hours=72), NOW)


@pytest.mark.parametrize(
    ("keep_hours", "keep_last"), [(72, 1), (48, 1), (72, 2)], ids=["rounded", "equal", "by count"]
)
def test_the_state_that_is_needed_stays_whatever_is_committed_before_the_expiry_runs(
    keep_hours: float, keep_last: int
) -> None:
    """It may be an older commit."""
    planned = expiry(
        metadata([*OLD, HOUR_MS]),
        Retention(keep_hours=keep_hours, keep_last=keep_last, need_hours=48),
        NOW,
    )
    then = metadata([*OLD, HOUR_MS, 60_000, 0])

    split = retained_snapshots(
        then, int(planned.older_than.timestamp() * 1000), planned.retain_last, NOW_MS
    )

    assert planned.snapshots.expired_ids == (1, 2, 3)
    assert NOW - planned.older_than == dt.timedelta(days=10)
    assert 4 in split.remaining_ids


def test_a_branch_that_keeps_less_than_is_needed_by_a_limit_of_its_own_is_refused() -> None:
    own = {
        "main": {
            "snapshot-id": 5,
            "type": "branch",
            "min-snapshots-to-keep": 1,
            "max-snapshot-age-ms": HOUR_MS,
        }
    }

    with pytest.raises(ParameterError, match="a limit of the branch itself overrides"):
        expiry(metadata([*OLD, 0], own), Retention(keep_hours=72, need_hours=48), NOW)


def test_the_limits_of_the_table_are_the_default() -> None:
    properties = {
        "history.expire.max-snapshot-age-ms": str(2 * HOUR_MS),
        "history.expire.min-snapshots-to-keep": "20",
    }

    assert Retention().time_and_count(properties) == (2 * HOUR_MS, 20)
    assert Retention().time_and_count({}) == (120 * HOUR_MS, 10)


@pytest.mark.parametrize(
    "given",
    [
        {"keep": "10 minutes"},
        {"keep": 0},
        {"keep": 0.5},
        {"keep": "30 s"},
        {"keep_last": 0},
        {"need": 0},
        {"kep": 3},
        {"keep": "a while"},
        {"keep_last": 1.5},
        {"keep_last": "inf"},
    ],
)
def test_what_is_no_retention_is_refused_and_nothing_expires_now(given: Mapping[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Retention.of(given)


def test_a_table_that_asks_for_expiry_now_is_refused() -> None:
    with pytest.raises(ParameterError, match="Raise it, or set keep_hours"):
        Retention().time_and_count({"history.expire.max-snapshot-age-ms": "1"})


def test_plain_values_are_read() -> None:
    assert Retention.of({"keep": "7 days", "keep_last": "20", "need": 24}) == Retention(
        keep_hours=168, keep_last=20, need_hours=24
    )
    assert Retention.of({"keep": "", "need": None}) == Retention()
    keys = ("my.offset by my.job", "their.offsets.")
    assert Retention.of({"writer_keys": ", ".join(keys)}) == Retention(writer_keys=keys)
    assert Retention.of({"writer_keys": list(keys)}) == Retention(writer_keys=keys)


def test_a_table_without_snapshots_has_nothing_to_expire() -> None:
    found = expiry({"snapshots": [], "current-snapshot-id": -1}, Retention(need_hours=1), NOW)

    assert found.snapshots.expired_ids == ()
    assert found.summary.reach_before_ms is None


def test_every_branch_keeps_its_own_last_snapshots_and_a_tag_its_one_however_old_they_are() -> None:
    ages = [60 * 24 * HOUR_MS - place for place in range(120)]
    branches = {f"b{n}": {"snapshot-id": n, "type": "branch"} for n in range(2, 120, 2)}
    tags = {name: {**ref, "type": "tag"} for name, ref in branches.items()}

    expired = [
        len(expiry(metadata(ages, refs), Retention(), NOW).snapshots.expired_ids)
        for refs in (None, branches, tags)
    ]
    assert expired == [110, 0, 55]


DAY_MS = 24 * HOUR_MS
CHECKPOINT = "flink.max-committed-checkpoint-id"
FLINK = {
    "flink.job-id": "7f1c",
    "flink.operator-id": "op1",
    "flink.max-committed-checkpoint-id": "41",
}
#: What one commit of each writer leaves in its summary, and the words for it.
COMMITS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "flink.max-committed-checkpoint-id": (FLINK, "Flink job 7f1c, checkpoint 41"),
    "equality-convert-staging-snapshot": (
        {"equality-convert-staging-snapshot": "77"},
        "Flink conversion of equality deletes, staging snapshot 77",
    ),
    "kafka.connect.offsets.": (
        {"kafka.connect.offsets.control.group": '{"0":1700}', "kafka.connect.commit-id": "5d2e"},
        'Kafka Connect control.group, offsets {"0":1700}',
    ),
    "spark.sql.streaming.epochId": (
        {"spark.sql.streaming.queryId": "q1", "spark.sql.streaming.epochId": "8"},
        "Spark query q1, epoch 8",
    ),
    "beam.cdc.committed-through-ms.": (
        {"beam.cdc.committed-through-ms.s1": "99", "beam.cdc.sink-id": "s1"},
        "Beam sink s1, committed through 99",
    ),
    "redpanda.commit-metadata": (
        {"redpanda.commit-metadata": '{"offset":7,"cluster":"c1"}'},
        'Redpanda cluster c1, commit {"offset":7,"cluster":"c1"}',
    ),
    "mz-frontier": (
        {"mz-frontier": "[5]", "mz-sink-id": "u1", "mz-sink-version": "1"},
        "Materialize sink u1, frontier [5]",
    ),
    "fluss-offsets": (
        {"fluss-offsets": "/o.json", "commit-user": "__fluss_lake_tiering"},
        "Fluss tiering __fluss_lake_tiering, offsets /o.json",
    ),
}
KEEP_THREE = Retention(keep_hours=1, keep_last=3)


def daily(
    days: int, summaries: Mapping[int, Mapping[str, str]], refs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A commit a day, the newest two days old; ``summaries`` by the number of the commit."""
    made = metadata([(days + 1 - n) * DAY_MS for n in range(days)], refs)
    for snapshot in made["snapshots"]:
        snapshot["summary"] = {"operation": "append", **summaries.get(snapshot["snapshot-id"], {})}
    return made


def after(meta: Mapping[str, Any], retention: Retention = KEEP_THREE) -> dict[str, Any]:
    """The metadata after an expiry."""
    split = expiry(meta, retention, NOW).snapshots
    snapshots = [each for each in meta["snapshots"] if each["snapshot-id"] in split.remaining_ids]
    refs = {name: ref for name, ref in meta["refs"].items() if name in split.remaining_refs}
    return {**meta, "snapshots": snapshots, "refs": refs}


def walk(meta: Mapping[str, Any], key: str, branch: str = "main") -> str | None:
    """The value of a key, as a writer looks for it when it is restarted: from the head of its
    branch back through the parents, until a snapshot has it or is gone.
    """
    by_id = {each["snapshot-id"]: each for each in meta["snapshots"]}
    snapshot = by_id.get(meta["refs"][branch]["snapshot-id"])
    while snapshot is not None:
        if key in snapshot["summary"]:
            return str(snapshot["summary"][key])
        snapshot = by_id.get(snapshot.get("parent-snapshot-id"))
    return None


def test_every_writer_has_a_case() -> None:
    assert [keys.state_key for keys in WRITERS] == list(COMMITS)


@pytest.mark.parametrize("state_key", COMMITS)
def test_a_writer_finds_its_state_after_an_expiry_and_the_plan_says_what_stays_for_it(
    state_key: str,
) -> None:
    summary, text = COMMITS[state_key]
    meta = daily(20, {2: summary, 9: summary})

    found = expiry(meta, KEEP_THREE, NOW).summary

    key = next(key for key in summary if key.startswith(state_key))
    assert walk(after(meta), key) == summary[key]
    # The newest state, and the chain to it: 9 to 20, of which three would stay anyway.
    assert found.staying_sentences == (f"9 more snapshots stay: {text}",)
    assert found.snapshots_removed == 8
    assert not found.is_stock


def test_the_chain_of_each_job_and_of_each_branch_stays() -> None:
    other = {**FLINK, "flink.job-id": "aaaa", "flink.max-committed-checkpoint-id": "5"}
    connect = {"kafka.connect.offsets.control.group": "{}"}
    meta = daily(20, {12: FLINK, 9: other})
    line = [
        {
            "snapshot-id": 100 + n,
            "parent-snapshot-id": 99 + n if n else 2,
            "timestamp-ms": NOW_MS - (40 - n) * DAY_MS,
            "summary": connect if n == 1 else {},
        }
        for n in range(8)
    ]
    meta["snapshots"] += line
    meta["refs"]["audit"] = {"snapshot-id": 107, "type": "branch"}

    left = after(meta)

    assert {each["snapshot-id"] for each in left["snapshots"]} == {
        *range(9, 21),
        *range(101, 108),
    }
    assert walk(left, "flink.max-committed-checkpoint-id") == "41"
    assert walk(left, "kafka.connect.offsets.control.group", "audit") == "{}"
    assert expiry(meta, KEEP_THREE, NOW).summary.staying_sentences == (
        "13 more snapshots stay: Flink job 7f1c, checkpoint 41; Flink job aaaa, checkpoint 5; "
        "Kafka Connect control.group on branch audit, offsets {}",
    )


def test_a_writer_that_is_silent_while_others_write_is_named_and_not_kept_for_ever() -> None:
    meta = daily(45, {2: FLINK})

    found = expiry(meta, KEEP_THREE, NOW).summary
    longer = Retention(keep_hours=1, keep_last=3, keep_writers_hours=60 * 24)

    assert found.staying_sentences == ()
    assert (
        "the state of 1 writer: Flink job 7f1c, checkpoint 41 (silent for 43 days)"
        in found.removal_sentences
    )
    assert walk(after(meta, longer), "flink.max-committed-checkpoint-id") == "41"
    none = Retention(keep_hours=1, keep_last=3, keep_writers_hours=0)
    assert "the state of 1 writer" in str(
        expiry(daily(9, {2: FLINK}), none, NOW).summary.removal_sentences
    )


def test_a_branch_at_rest_keeps_the_state_of_a_silent_writer_for_itself_and_not_on_main() -> None:
    meta = daily(45, {2: FLINK}, {"rest": {"snapshot-id": 4, "type": "branch"}})

    left = after(meta)

    assert {each["snapshot-id"] for each in left["snapshots"]} == {2, 3, 4, 43, 44, 45}
    assert walk(left, CHECKPOINT, "rest") == "41"
    found = expiry(meta, KEEP_THREE, NOW).summary
    # By age and number, the branch keeps its last three.
    assert [kept.state.branches for kept in found.states_kept] == [("rest",)]
    assert (
        "the state of 1 writer: Flink job 7f1c, checkpoint 41 (silent for 43 days)"
        in found.removal_sentences
    )


@pytest.mark.parametrize("branch", [None, 4])
def test_what_snapshots_carry_is_read_once_for_the_states_and_for_an_expiry(
    branch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = {"rest": {"snapshot-id": branch, "type": "branch"}} if branch else {}
    meta = daily(45, {2: FLINK}, refs)
    read_again = expiry(meta, KEEP_THREE, NOW)
    log = WriterLog(meta)
    monkeypatch.setattr(writer_states, "_job_states", None)
    expiring = expiry(meta, KEEP_THREE, NOW, log)

    assert expiring.snapshots == read_again.snapshots
    assert expiring.summary == read_again.summary
    # Whatever the retention, all branches on which a state is the newest are one.
    assert [len(state.branches) for state in log.states()] == [2 if branch else 1]


def test_an_observation_reads_what_snapshots_carry_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    carried = writer_states._job_states

    def counted(metadata: Any, *rest: Any) -> Any:
        reads.append(len(metadata["snapshots"]))
        return carried(metadata, *rest)

    with lake_in(tmp_path) as catalog:
        table = catalog.create_table("db.t", IDS)
        for n in range(3):
            table.append(IDS.empty_table(), {"flink.job-id": "7f1c", CHECKPOINT: str(n)})
        monkeypatch.setattr(writer_states, "_job_states", counted)
        facts = icekit.connect().observe("db.t")

    assert reads == [3]
    assert [state.state for state in facts.history.writers] == ["checkpoint 2"]


def test_a_table_without_states_is_observed_although_its_snapshots_form_a_circle() -> None:
    meta = daily(3, {})
    meta["snapshots"][0]["parent-snapshot-id"] = 3

    assert WriterLog(meta).states() == ()


@pytest.mark.parametrize(
    "stated", ["spark.sql.streaming.epochId", "spark.sql.streaming.epochId by app-id"]
)
def test_a_key_that_is_stated_again_takes_no_state_from_the_jobs_of_its_writer(stated: str) -> None:
    queries = [
        {"spark.sql.streaming.queryId": query, "spark.sql.streaming.epochId": "8"}
        for query in ("q1", "q2")
    ]
    meta = daily(20, dict(enumerate(queries, 9)))

    left = after(meta, Retention(keep_hours=1, keep_last=3, writer_keys=(stated,)))

    assert {each["snapshot-id"] for each in left["snapshots"]} == set(range(9, 21))


def test_maintenance_does_not_make_a_writer_silent_and_a_table_at_rest_keeps_its_state() -> None:
    replaces = {n: {"operation": "replace"} for n in range(4, 46)}
    meta = daily(45, {2: FLINK, **replaces})

    assert walk(after(meta), "flink.max-committed-checkpoint-id") == "41"
    at_rest = daily(5, {2: FLINK})
    for snapshot in at_rest["snapshots"]:
        snapshot["timestamp-ms"] -= 300 * DAY_MS
    assert walk(after(at_rest), "flink.max-committed-checkpoint-id") == "41"


def converting(**staging: Any) -> dict[str, Any]:
    """A branch ``staging`` that a conversion reads into main, which has converted its first two
    commits.
    """
    meta = daily(6, {5: {"equality-convert-staging-snapshot": "101"}})
    meta["snapshots"] += [
        {
            "snapshot-id": 100 + n,
            "parent-snapshot-id": 99 + n if n else 1,
            "timestamp-ms": NOW_MS - (30 - n) * DAY_MS,
            "summary": {"operation": "append"},
        }
        for n in range(12)
    ]
    meta["refs"]["staging"] = {"snapshot-id": 111, "type": "branch", **staging}
    return meta


def test_what_a_conversion_has_yet_to_read_of_another_branch_stays() -> None:
    """It walks back from the head of that branch to the snapshot that its state names, and takes
    the oldest on the way.
    """
    left = after(converting())

    assert {each["snapshot-id"] for each in left["snapshots"]} == {4, 5, 6, *range(101, 112)}
    found = expiry(converting(), KEEP_THREE, NOW).summary
    stays = "8 more snapshots stay: Flink conversion of equality deletes, staging snapshot 101"
    assert found.staying_sentences == (stays,)


def test_what_a_conversion_has_yet_to_read_of_its_own_branch_stays() -> None:
    """Commits came between the one that it read and its own."""
    meta = daily(20, {12: {"equality-convert-staging-snapshot": "9"}})

    assert {each["snapshot-id"] for each in after(meta)["snapshots"]} == set(range(9, 21))


def test_a_conflict_names_the_branch_with_the_limit() -> None:
    conflict = expiry(converting(**{"max-snapshot-age-ms": DAY_MS}), KEEP_THREE, NOW).conflict

    assert conflict is not None
    assert conflict.startswith("The branch staging has an age limit of its own")


def test_a_branch_with_an_age_limit_of_its_own_cannot_keep_a_state_so_nothing_expires() -> None:
    main = {"snapshot-id": 20, "type": "branch", "max-snapshot-age-ms": 5 * DAY_MS}
    meta = daily(20, {2: FLINK}, {"main": main})

    conflict = expiry(meta, KEEP_THREE, NOW).conflict

    assert conflict is not None
    assert "The branch main has an age limit of its own" in conflict
    assert "Flink job 7f1c, checkpoint 41" in conflict
    assert expiry(meta, Retention(keep_last=3, keep_writers_hours=0), NOW).conflict is None


def test_the_state_of_a_branch_that_expires_itself_is_named() -> None:
    refs = {"old": {"snapshot-id": 100, "type": "branch", "max-ref-age-ms": DAY_MS}}
    meta = daily(20, {2: FLINK}, refs)
    meta["snapshots"].append(
        {
            "snapshot-id": 100,
            "parent-snapshot-id": 4,
            "timestamp-ms": NOW_MS - 9 * DAY_MS,
            "summary": {**FLINK, CHECKPOINT: "77"},
        }
    )
    found = expiry(meta, KEEP_THREE, NOW)

    assert found.snapshots.expired_refs == ("old",)
    assert 100 in found.snapshots.expired_ids
    assert [state.branches for state in found.summary.states_lost] == [("old",)]
    assert [kept.state.branches for kept in found.summary.states_kept] == [("main",)]


def test_a_state_that_branches_share_stays_on_each_whichever_comes_first() -> None:
    """A job wrote to ``b``; ``a`` was made from it since."""
    meta = metadata([])
    meta["snapshots"] = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": parent,
            "timestamp-ms": NOW_MS - (30 - number) * DAY_MS,
            "summary": FLINK if number == 2 else {"operation": "append"},
        }
        for number, parent in (
            (1, None), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 4), (8, 7), (9, 8)
        )
    ]  # fmt: skip
    meta["refs"] = {
        name: {"snapshot-id": head, "type": "branch"}
        for name, head in (("main", 1), ("a", 6), ("b", 9))
    }
    meta["current-snapshot-id"] = 1

    left = after(meta, Retention(keep_hours=1, keep_last=1))

    assert walk(left, CHECKPOINT, "a") == walk(left, CHECKPOINT, "b") == "41"
    found = expiry(meta, Retention(keep_hours=1, keep_last=1), NOW).summary
    assert found.staying_sentences == (
        "6 more snapshots stay: Flink job 7f1c on branch a, checkpoint 41",
    )


def test_icebergs_own_statement_is_right_only_if_time_keeps_every_state() -> None:
    by_count = Retention(keep_hours=1, keep_last=10)
    by_time = Retention(keep_hours=24 * 30, keep_last=1)

    # Ten more commits before it runs would push the state out of the last ten.
    assert not expiry(daily(20, {15: FLINK}), by_count, NOW).summary.is_stock
    assert expiry(daily(20, {15: FLINK}), by_time, NOW).summary.is_stock
    assert expiry(daily(20, {}), by_count, NOW).summary.is_stock


@pytest.mark.parametrize(
    ("stated", "summary"),
    [
        ("my.offset", {"my.offset": "7"}),
        ("my.offset by my.job", {"my.offset": "7", "my.job": "b"}),
        ("my.", {"my.offset": "7"}),
    ],
)
def test_the_keys_of_other_writers_can_be_stated(stated: str, summary: Mapping[str, str]) -> None:
    meta = daily(20, {9: summary, 2: {**summary, "my.job": "a"}})
    keys = Retention.of({"keep": 1, "keep_last": 3, "writer_keys": (stated,)})

    assert walk(after(meta), "my.offset") is None
    assert walk(after(meta, keys), "my.offset") == "7"
    # Jobs that are told apart keep their own.
    oldest = min(each["snapshot-id"] for each in after(meta, keys)["snapshots"])
    assert oldest == (9 if stated == "my.offset" else 2)


@pytest.mark.parametrize("stated", ["", "a b", "a by b by c", "a. by b"])
def test_what_names_no_key_is_refused(stated: str) -> None:
    with pytest.raises(ParameterError, match="names no key of a writer"):
        Retention(writer_keys=(stated,))


def staged(meta: dict[str, Any], age_days: float, **summary: str) -> dict[str, Any]:
    """The metadata with a staged write on top of its second commit."""
    snapshot = {
        "snapshot-id": 500,
        "parent-snapshot-id": 2,
        "timestamp-ms": round(NOW_MS - age_days * DAY_MS),
        "summary": {
            "operation": "append",
            "wap.id": "audit-1",
            "added-records": "50",
            **{key.replace("_", "-"): value for key, value in summary.items()},
        },
    }
    return {**meta, "snapshots": [*meta["snapshots"], snapshot]}


def test_a_staged_write_stays_until_an_age_of_its_own_and_is_named() -> None:
    young = expiry(staged(daily(20, {}), 29), KEEP_THREE, NOW)
    old = expiry(staged(daily(20, {}), 31), KEEP_THREE, NOW)

    assert 500 in young.snapshots.remaining_ids
    assert young.summary.staying_sentences == (
        "1 unpublished staged write stays: wap.id audit-1, 50 rows, staged 2026-01-02 12:00 UTC",
    )
    assert not young.summary.is_stock
    assert 500 in old.snapshots.expired_ids
    assert (
        "1 unpublished staged write: wap.id audit-1, 50 rows, staged 2025-12-31 12:00 UTC"
        in old.summary.removal_sentences
    )
    longer = Retention(keep_hours=1, keep_last=3, keep_staged_hours=32 * 24)
    assert 500 in expiry(staged(daily(20, {}), 31), longer, NOW).snapshots.remaining_ids


@pytest.mark.parametrize(
    "publication", [{"published-wap-id": "audit-1"}, {"source-snapshot-id": "500"}]
)
def test_a_staged_write_that_was_published_is_none_unless_that_was_rolled_back(
    publication: Mapping[str, str],
) -> None:
    published = staged(daily(20, {19: publication}), 20)
    rolled_back = {**published, "refs": {"main": {"snapshot-id": 18, "type": "branch"}}}

    assert expiry(published, KEEP_THREE, NOW).summary.staged_kept == ()
    assert len(expiry(rolled_back, KEEP_THREE, NOW).summary.staged_kept) == 1


def test_a_staged_overwrite_of_partitions_keeps_what_it_is_compared_with() -> None:
    meta = staged(daily(20, {}), 20, operation="overwrite", replace_partitions="true")

    assert set(expiry(meta, KEEP_THREE, NOW).snapshots.remaining_ids) == {*range(2, 21), 500}


def test_a_retention_is_stated_again_as_options() -> None:
    stated = Retention.of(
        {
            "keep": "7 days",
            "keep_last": 5,
            "keep_writers": "60 days",
            "keep_staged": 0,
            "writer_keys": ["a", "b by c"],
        }
    )

    assert " ".join(stated.command_options) == (
        "--keep 168 hours --keep-writers 1440 hours --keep-staged 0 hours --keep-last 5 "
        "--writer-keys a,b by c"
    )
    assert Retention().command_options == ()
    with pytest.raises(ParameterError, match="0 or more"):
        Retention(keep_staged_hours=-1)
