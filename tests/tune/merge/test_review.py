"""A review explains a MERGE without running it; what it cannot review it refuses in a sentence, and
leaves nothing behind.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from icekit.api import Lake
from icekit.cli.main import main
from icekit.common.errors import IcekitError
from icekit.engine import session
from icekit.engine.bridge import temporary_settings
from icekit.sandbox.scratch import NAMESPACE
from icekit.tune.answer import Confidence
from icekit.tune.merge import AS_IS, NARROWER, OPENED, SHUFFLED
from tests.elsewhere import settings_of
from tests.tune.merge.targets import (
    CHANGES,
    COPY_ON_WRITE,
    KEYS,
    ROWS,
    UPSERT,
    Target,
    said,
)

pytestmark = pytest.mark.spark

LAB = (
    "MERGE INTO lab.delays t USING lab.delay_corrections s ON t.carrier = s.carrier AND t.flight "
    "= s.flight AND t.origin = s.origin AND t.time_hour = s.time_hour WHEN MATCHED THEN UPDATE "
    "SET arr_delay = s.arr_delay WHEN NOT MATCHED THEN INSERT *"
)


def state(lake: Lake) -> tuple[Any, ...]:
    """What a review must leave as it was."""
    manager = lake.spark._jsparkSession.sessionState().catalogManager()
    current = (str(manager.currentCatalog().name()), tuple(map(str, manager.currentNamespace())))
    return current, lake.tables.names_in((NAMESPACE,)), settings_of(lake.spark), lake.tables.names()


@pytest.mark.lab("delays", "delay_corrections")
def test_a_merge_of_too_many_literals_is_refused_by_their_number(lake: Lake) -> None:
    values = ", ".join(map(str, range(20_000)))

    with pytest.raises(IcekitError, match=r"has 20,000 literals.* write the values to a table"):
        lake.review_merge(LAB.replace(" WHEN MATCHED", f" AND t.flight IN ({values}) WHEN MATCHED"))
    with pytest.raises(IcekitError, match="budget_seconds must be more than 0"):
        lake.review_merge(LAB, budget_seconds=float("nan"))


@pytest.mark.lab("delays", "delay_corrections")
def test_the_labs_merge_opens_three_days_instead_of_all_and_is_shown_to_leave_the_same_rows(
    lake: Lake,
) -> None:
    before = state(lake), lake.tables.source(("lab", "delays")).metadata_location

    answer = lake.review_merge(LAB, prove=True, progress=lambda _: None)
    review = Target(lake, "lab", "delays").review(LAB)

    assert review.plan.scan.file_count == 91
    assert review.full_scan.file_count == 91
    assert review.plan.is_target_shuffled
    assert review.narrower_merge is not None
    assert review.narrower_merge.plan.scan.file_count == 4
    assert [a.equality.target_column for a in review.narrower_merge.predicates] == ["time_hour"]
    measured = answer.measured
    assert measured.value(NARROWER, OPENED) == review.narrower_merge.plan.size_in_bytes
    assert measured.value(AS_IS, OPENED) == review.plan.size_in_bytes
    assert (measured.value(NARROWER, SHUFFLED) or 0) < (measured.value(AS_IS, SHUFFLED) or 0)
    assert (state(lake), lake.tables.source(("lab", "delays")).metadata_location) == before

    assert answer.confidence == Confidence.HIGH
    assert answer.failure is None
    assert answer.advised == NARROWER
    assert answer.script.sql == (review.narrower_merge.statement.sql,)
    shown, _ = answer._repr_html_().split("<details>", 1)
    assert shown.index("this must return 0") < shown.index("<strong>SQL</strong>")
    assert "4 of 91 data files instead of 91" in answer.verdict


UNSHUFFLED = {**COPY_ON_WRITE, "write_merge_distribution__mode": "none"}


@pytest.mark.parametrize(
    ("clauses", "properties", "join", "written"),
    [
        (UPSERT, {}, "RightOuter", "with"),
        (UPSERT, COPY_ON_WRITE, "FullOuter", "with"),
        ("WHEN MATCHED THEN DELETE", {}, "Inner", "with"),
        ("WHEN MATCHED THEN DELETE", UNSHUFFLED, "LeftOuter", "without"),
    ],
)
def test_what_is_shuffled_is_told_with_the_join(
    lake: Lake, target: Target, clauses: str, properties: dict[str, Any], join: str, written: str
) -> None:
    target.filled(**properties)

    with temporary_settings(lake.spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        review = target.review(target.merge(clauses=clauses))

    assert review.plan.join_description == f"{join} SortMergeJoin"
    assert review.plan.is_target_shuffled
    assert said(review, "shuffle") == (
        f"Spark plans {join} SortMergeJoin, with a shuffle of the target before it and {written} a "
        "shuffle of the rows that are written."
    )


def test_copy_on_write_opens_the_files_twice_to_search_for_matches(target: Target) -> None:
    target.filled(**COPY_ON_WRITE)

    review = target.review()

    assert review.plan.group_filter_scan is not None
    assert review.plan.group_filter_scan.file_count == review.plan.scan.file_count == 30
    assert review.plan.size_in_bytes == 2 * review.plan.scan.size_in_bytes


def test_filters_that_are_in_on_already_reach_the_scan(target: Target) -> None:
    target.filled()

    review = target.review(target.merge(on=f"{KEYS} AND t.d < DATE '2024-01-08'"))

    assert review.plan.scan.file_count == 7
    assert review.full_scan.file_count == 30
    assert "d < " in said(review, "pruning")


def test_an_empty_target_and_a_branch_can_be_reviewed(target: Target) -> None:
    target.create()
    assert target.review().plan.scan.file_count == 0
    target.sql(f"INSERT INTO {{t}} {ROWS}")
    target.sql("ALTER TABLE {t} CREATE BRANCH audit")
    target.sql("DELETE FROM {t}")

    sql = target.merge().replace(target.sql_name, f"{target.sql_name}.branch_audit")
    review, answer = target.review(sql), target.prove(sql)

    assert review.full_scan.file_count == 30
    assert review.statement.branch == "audit"
    assert answer.confidence == Confidence.HIGH
    assert answer.advised == NARROWER


def test_a_statement_that_writes_the_time_is_not_taken_for_proved(target: Target) -> None:
    target.filled()
    sql = target.merge(
        clauses="WHEN MATCHED THEN UPDATE SET v = CAST(current_timestamp() AS string)"
    )

    answer = target.prove(sql)

    assert answer.confidence is Confidence.LOW
    assert "such as the current time" in answer.because
    assert answer.failure is not None
    assert answer.advised is None
    assert not answer.script.sql


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM scratch.rv_bad WHERE id = 1", "is DELETE; review-merge reads MERGE"),
        (
            f"MERGE INTO scratch.rv_nothing t USING {CHANGES} ON {KEYS} {UPSERT}",
            "no table scratch.rv_nothing",
        ),
        (
            f"MERGE INTO scratch.rv_bad t USING {CHANGES} ON t.idd = s.id {UPSERT}",
            "cannot plan the statement: .*idd",
        ),
        (
            f"MERGE INTO scratch.rv_bad t USING scratch.rv_broken s ON {KEYS} {UPSERT}",
            "source of the MERGE cannot be read",
        ),
        (
            f"MERGE INTO scratch.rv_bad t USING {CHANGES} ON t.id = s.id AND t.d = date_add(s.d, "
            f"CAST(1 DIV (s.id - 3) AS int)) {UPSERT}",
            "cannot be read .*DIVIDE_BY_ZERO",
        ),
        (
            "MERGE INTO scratch.rv_bad t USING (SELECT * FROM scratch.rv_bad WHERE false) s ON "
            f"{KEYS} {UPSERT}",
            "nothing to review",
        ),
    ],
)
def test_what_cannot_be_reviewed_is_refused_in_one_sentence_and_leaves_nothing(
    lake: Lake, scratch: str, sql: str, said: str
) -> None:
    Target(lake, scratch, "rv_bad").filled()
    broken = Target(lake, scratch, "rv_broken").filled(rows=ROWS.replace("3000", "3"))
    for (file,) in broken.sql("SELECT file_path FROM {t}.data_files"):
        Path(str(file).removeprefix("file:")).unlink()
    before = state(lake)

    with pytest.raises(IcekitError, match=said) as refused:
        lake.review_merge(sql, prove=True, progress=lambda _: None)

    assert "\n" not in str(refused.value)
    assert state(lake) == before


def test_a_statement_that_fails_on_its_clone_is_told_and_the_clone_is_gone(
    lake: Lake, target: Target
) -> None:
    target.filled()
    twice = f"(SELECT * FROM {CHANGES} UNION ALL SELECT 33, DATE '2024-01-04', 'twice') s"

    answer = target.prove(target.merge(twice))

    assert "MERGE_CARDINALITY_VIOLATION" in str(answer.stopped)
    assert answer.confidence is Confidence.LOW
    assert answer.failure is not None
    assert not lake.tables.names_in((NAMESPACE,))


@pytest.mark.lab("delays", "delay_corrections")
def test_the_command_reviews_a_file_and_writes_json(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a notebook: the session is somebody else's, and is left running.
    monkeypatch.setattr(session, "_own_spark", None)
    file = tmp_path / "merge.sql"
    file.write_text(f"-- ours\n{LAB};\n")

    assert main(["review-merge", str(file), "--output", str(tmp_path)]) == 0
    assert "narrower ON" in capsys.readouterr().out
    document = json.loads((tmp_path / "lab.delays.review-merge.json").read_text())
    assert document["script"]["sql"][0].startswith("-- ours")
    assert main(["review-merge", str(tmp_path / "nothing.sql")]) == 2
    assert "give a file with one statement" in capsys.readouterr().err
    file.write_text("SELECT 1")
    assert main(["review-merge", str(file)]) == 2


@pytest.mark.lab("delays", "delay_corrections")
def test_a_trial_whose_budget_is_spent_is_not_called_proved(lake: Lake) -> None:
    before = state(lake)

    answer = lake.review_merge(LAB, prove=True, budget_bytes="1 kB", progress=lambda _: None)

    assert state(lake) == before
    assert "the next step would write" in str(answer.stopped)
    assert answer.confidence is Confidence.LOW
    assert answer.failure is not None
