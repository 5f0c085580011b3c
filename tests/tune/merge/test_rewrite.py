"""A narrower ON leaves the same rows and opens fewer files; where it would not, none is offered."""

import re
from typing import Any

import pytest

from icekit.api import Lake
from icekit.engine.bridge import temporary_settings
from icekit.tune.merge import MergeReview
from tests.tune.merge.targets import CHANGES, COPY_ON_WRITE, KEYS, ROWS, Target, said

pytestmark = pytest.mark.spark

_TIMES = (
    "SELECT id, {zero} + make_interval(0, 0, 0, CAST(id % 30 AS int), CAST(id % 24 AS int)) AS "
    "ts, '{v}' AS v FROM range({n})"
)


def times(zero: str = "timestamp'2024-01-01 00:00:00+00:00'") -> dict[str, Any]:
    kind = "timestamp_ntz" if "ntz" in zero else "timestamp"
    return {
        "columns": f"id bigint, ts {kind}, v string",
        "rows": _TIMES.format(zero=zero, v="old", n=3000),
        "source": f"({_TIMES.format(zero=zero, v='new', n=4000)} WHERE id % 30 IN (3, 29)) s",
        "on": "t.id = s.id AND t.ts = s.ts",
    }


CASES: dict[str, dict[str, Any]] = {
    "days of a date": {},
    "copy-on-write": COPY_ON_WRITE,
    "format version 3": {"version": 3},
    "values of a date": {"by": "d"},
    "no alias": {"alias": "", "on": "mr_case.id = s.id AND mr_case.d = s.d"},
    "only inserts": {"clauses": "WHEN NOT MATCHED THEN INSERT *"},
    "only deletes": {"clauses": "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE"},
    "several clauses, copy-on-write": {
        **COPY_ON_WRITE,
        "clauses": "WHEN MATCHED AND t.id < 50 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v",
    },
    "days of a timestamp": {**times(), "by": "days(ts)"},
    "hours of a timestamp": {**times(), "by": "hours(ts)"},
    "days before 1970": {**times("timestamp'1969-12-15 23:30:00+00:00'"), "by": "days(ts)"},
    "days of a timestamp without zone": {
        **times("timestamp_ntz'2024-01-01 00:00:00'"),
        "by": "days(ts)",
    },
    "months of a timestamp": {
        "columns": "id bigint, ts timestamp, v string",
        "by": "months(ts)",
        "rows": "SELECT id, timestamp'2023-01-01 00:00:00+00:00' + make_interval(0, CAST(id % 12 "
        "AS int)), 'v' FROM range(600)",
        "source": "(SELECT id, timestamp'2023-01-01 00:00:00+00:00' + make_interval(0, CAST(id % "
        "12 AS int)) AS ts, 'n' AS v FROM range(700) WHERE id % 12 IN (0, 11)) s",
        "on": "t.id = s.id AND t.ts = s.ts",
    },
    "texts with quotes, backslashes and variables": {
        "columns": "id bigint, d string, v string",
        "by": "d",
        "rows": r"SELECT id, concat('a''b\\\n', chr(36), '{x}`t`.`d`', id % 20), 'v' FROM range(400)",
        "source": r"(SELECT id, concat('a''b\\\n', chr(36), '{x}`t`.`d`', id % 20) AS d, 'n' AS v FROM "
        r"range(500) WHERE id % 20 < 3) s",
    },
    "decimals": {
        "columns": "id bigint, d decimal(12,2), v string",
        "by": "truncate(100, d)",
        "rows": "SELECT id, CAST(id AS decimal(12,2)) / 4, 'v' FROM range(400)",
        "source": "(SELECT id, CAST(CAST(id AS decimal(12,2)) / 4 AS decimal(12,2)) AS d, 'n' AS "
        "v FROM range(3)) s",
    },
    "an int compared with a bigint out of its range": {
        "columns": "id bigint, d int, v string",
        "by": "d",
        "rows": "SELECT id, CAST(id % 40 AS int), 'v' FROM range(400)",
        "source": "(SELECT 0L AS id, id * 3000000000 AS d, 'n' AS v FROM range(3)) s",
        "clauses": "WHEN MATCHED THEN UPDATE SET v = s.v",
    },
    "nulls that match nothing": {
        "by": "d",
        "rows": f"{ROWS} UNION ALL SELECT 7, NULL, 'null'",
        "source": "(SELECT 7 AS id, CAST(NULL AS date) AS d, 'n' AS v UNION ALL SELECT 33, "
        "date'2024-01-04', 'n' UNION ALL SELECT NULL, date'2024-01-05', 'n') s",
    },
    "nulls that match nulls": {
        "by": "d",
        "rows": f"{ROWS} UNION ALL SELECT 7, NULL, 'null'",
        "source": "(SELECT 7 AS id, CAST(NULL AS date) AS d, 'n' AS v UNION ALL SELECT 33, "
        "date'2024-01-04', 'n') s",
        "on": "t.id <=> s.id AND t.d <=> s.d",
    },
    "names in another case": {"alias": "T", "on": "T.ID = S.ID AND T.D = S.D"},
    "an expression of the source": {"on": "t.id = s.id + 0 AND t.d = date_add(s.d, 0)"},
    "the target itself": {
        "source": "(SELECT id, d, 'n' AS v FROM lake.scratch.mr_case WHERE d < date'2024-01-04') s"
    },
}


def offered(target: Target, case: dict[str, Any]) -> tuple[str, MergeReview]:
    parts = {name: case[name] for name in ("source", "on", "clauses", "alias") if name in case}
    target.filled(**{name: value for name, value in case.items() if name not in parts})
    sql = target.merge(**parts)
    return sql, target.review(sql)


#: The others differ from one of these in one thing, and take seconds each.
IN_EVERY_RUN = {
    "values of a date",
    "several clauses, copy-on-write",
    "format version 3",
    "texts with quotes, backslashes and variables",
    "nulls that match nulls",
}


@pytest.mark.parametrize(
    "name",
    [
        name if name in IN_EVERY_RUN else pytest.param(name, marks=pytest.mark.soak)
        for name in CASES
    ],
)
def test_the_narrower_statement_opens_less_and_leaves_the_same_rows(
    lake: Lake, scratch: str, name: str
) -> None:
    target = Target(lake, scratch, "mr_case")
    with temporary_settings(lake.spark, {"spark.sql.session.timeZone": "Pacific/Chatham"}):
        sql, review = offered(target, CASES[name])

        assert review.narrower_merge is not None, said(review, "narrower ON")
        assert review.narrower_merge.plan.scan.file_count < review.plan.scan.file_count
        assert review.narrower_merge.plan.size_in_bytes < review.plan.size_in_bytes
        assert target.sql(review.narrower_merge.guard_sql)[0][0] == 0
        assert (
            target.after(review.narrower_merge.statement.sql) == target.after(sql) != target.rows()
        )


def test_names_with_dots_quotes_and_backticks_are_quoted(lake: Lake, scratch: str) -> None:
    target = Target(lake, scratch, "mr we.ird `na`me it's")
    target.filled(columns="`a.b` bigint, `d'x` date, `v``z` string", by="`d'x`")
    source = (
        CHANGES.replace("id, date", "id AS `a.b`, date")
        .replace("AS d,", "AS `d'x`,")
        .replace("AS v ", "AS `v``z` ")
    )
    sql = target.merge(
        source,
        "t.`a.b` = s.`a.b` AND t.`d'x` = s.`d'x`",
        "WHEN MATCHED THEN UPDATE SET `v``z` = s.`v``z`",
    )

    review = target.review(sql)

    assert review.narrower_merge is not None
    assert target.after(review.narrower_merge.statement.sql) == target.after(sql)


def test_an_evolved_spec_and_a_renamed_column_are_seen_as_they_are_now(target: Target) -> None:
    target.filled(
        by="v", rows="SELECT id, date'2024-01-01' + CAST(id % 5 AS int), id % 3 FROM range(300)"
    )
    target.sql("ALTER TABLE {t} REPLACE PARTITION FIELD v WITH days(d)")
    target.sql("ALTER TABLE {t} RENAME COLUMN d TO day")
    target.sql(f"INSERT INTO {{t}} {ROWS}")
    sql = target.merge(
        CHANGES.replace("AS d,", "AS day,"),
        "t.id = s.id AND t.day = s.day",
        "WHEN MATCHED THEN UPDATE SET v = s.v",
    )

    review = target.review(sql)

    assert review.narrower_merge is not None
    assert review.narrower_merge.predicates[0].form == "ranges"
    assert target.after(review.narrower_merge.statement.sql) == target.after(sql)


def test_only_predicates_that_rule_something_out_are_added(target: Target) -> None:
    review = target.filled().review()

    assert review.narrower_merge is not None
    assert [
        (a.equality.target_column, a.equality.source_sql, a.form)
        for a in review.narrower_merge.predicates
    ] == [("d", "s.d", "ranges")]
    assert review.narrower_merge.statement.condition_sql == (
        f"({KEYS}) AND ((`t`.`d` >= DATE '2024-01-04' AND `t`.`d` < DATE '2024-01-06') OR "
        "(`t`.`d` >= DATE '2024-01-18' AND `t`.`d` < DATE '2024-01-19'))"
    )


def test_many_values_become_their_bounds(target: Target) -> None:
    target.filled(by="", rows="SELECT id, date'2024-01-01', 'a' FROM range(1000)")
    target.sql("INSERT INTO {t} SELECT id, date'2024-01-01', 'b' FROM range(100000, 101000)")

    review = target.review(
        target.merge(
            "(SELECT id * 2 AS id, date'2024-01-01' AS d, 'n' AS v FROM range(300)) s",
            "t.id = s.id",
        )
    )

    assert review.narrower_merge is not None
    assert review.narrower_merge.statement.condition_sql == (
        "(t.id = s.id) AND (`t`.`id` >= 0L AND `t`.`id` <= 598L)"
    )


@pytest.mark.parametrize(
    "late", ["SELECT 8L, date'2024-01-09', 'late'", "SELECT 7L, CAST(NULL AS date), 'late'"]
)
def test_the_guard_counts_what_came_to_the_source_afterwards(target: Target, late: str) -> None:
    target.filled(rows=f"{ROWS} UNION ALL SELECT 7, NULL, 'null'", by="d")
    first = "SELECT 33L AS id, date'2024-01-04' AS d, 'n' AS v"
    view = "CREATE OR REPLACE TEMP VIEW mr_late AS"
    target.sql(f"{view} {first}")
    try:
        sql = target.merge("mr_late s", KEYS.replace("=", "<=>"))
        review = target.review(sql)
        assert review.narrower_merge is not None
        assert target.sql(review.narrower_merge.guard_sql)[0][0] == 0

        target.sql(f"{view} {first} UNION ALL {late}")

        assert target.sql(review.narrower_merge.guard_sql)[0][0] == 1
        # This is what it guards against: the row is there, and would be inserted once more.
        assert len(target.after(review.narrower_merge.statement.sql)) == len(target.after(sql)) + 1
    finally:
        target.spark.catalog.dropTempView("mr_late")


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (
            {"source": CHANGES.replace("WHERE", "WHERE rand() < 2 AND")},
            r"different rows each time .*rand\(\)",
        ),
        ({"source": CHANGES.replace(") s", " LIMIT 9) s")}, "different rows each time .*Limit"),
        (
            {"source": CHANGES.replace("'new'", "CAST(current_timestamp() AS string)")},
            r"current_timestamp\(\)",
        ),
        (
            {"on": "t.id + 1 = s.id + 1 AND year(t.d) = year(s.d)"},
            r"t.id \+ .* cannot be used; .*year\(t.d\) = year\(s.d\).* cannot be used",
        ),
        ({"on": "t.id = s.id OR t.d = s.d"}, "rules out a file of the target"),
        (
            {"on": "CAST(t.id AS double) = CAST(s.id AS double)"},
            "CAST.t.id AS DOUBLE. = .* cannot be used",
        ),
        ({"on": "t.id = s.id"}, "no value of the source rules out a file of the target"),
        (
            {
                "clauses": "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED BY SOURCE THEN "
                "DELETE"
            },
            "every row of the target",
        ),
        (
            {
                "columns": "id bigint, f double, v string",
                "by": "",
                "rows": "SELECT id, id * 1.5D, 'v' FROM range(10)",
                "source": "(SELECT 1.5D AS f, 1L AS id, 'n' AS v) s",
                "on": "t.f = s.f",
            },
            r"t.f = s.f\) cannot be used",
        ),
    ],
)
def test_no_predicate_is_offered_where_it_could_be_wrong_or_would_rule_out_nothing(
    target: Target, case: dict[str, str], why: str
) -> None:
    _, review = offered(target, case)

    assert review.narrower_merge is None
    assert re.search(why, said(review, "narrower ON")), said(review, "narrower ON")
