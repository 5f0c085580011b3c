"""One table, written for a terminal, a page, pandas and JSON."""

import datetime as dt

import pytest

from icekit.common.view import BYTES, COUNT, FLAG, NAME, SECONDS, SHARE, TEXT, TIME, Grid

COLUMNS = {
    "partition": NAME,
    "file_count": COUNT("files"),
    "size_in_bytes": BYTES("size"),
    "share_read": SHARE,
    "fits": FLAG,
}
ROWS = [("day=1", 1200, 3 * 2**20, 0.5, True), ("day=2", None, 10, None, False)]
GRID = Grid("Partitions", COLUMNS, ROWS)


def test_a_terminal_shows_units_in_columns_of_one_width_and_a_dash_for_what_is_absent() -> None:
    assert GRID.lines() == [
        "partition  files   size  share read  fits",
        "day=1      1,200  3 MiB        50 %  yes",
        "day=2          –   10 B           –  no",
    ]
    assert repr(GRID).splitlines() == GRID.lines()


def test_a_page_shows_the_same_and_escapes_it() -> None:
    page = Grid("A <b>", {"name": TEXT, "files": COUNT}, [("<i>", 3)]).html()

    assert "<p>A &lt;b&gt;:</p>" in page
    assert "<td>&lt;i&gt;</td>" in page
    assert '<td class="n">3</td>' in page


def test_without_rows_a_part_of_a_card_is_empty_and_a_cell_shows_a_sentence() -> None:
    empty = Grid("Partitions", COLUMNS, [])

    assert (empty.lines(), empty.html(), repr(empty)) == ([], "", "No rows.")
    assert "<p>No rows.</p>" in empty._repr_html_()


def test_pandas_and_json_have_every_value_as_it_was_measured() -> None:
    when = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    grid = Grid("", {"at": TIME, "files": COUNT, "took": SECONDS}, [(when, None, 0.0123456)] * 60)

    assert grid.records()[59] == {
        "at": "2026-01-02T00:00:00+00:00",
        "files": None,
        "took": 0.0123456,
    }
    frame = grid.frame()
    assert len(frame) == 60
    assert frame["files"].dtype == "Int64"
    assert frame["took"].tolist()[59] == 0.0123456
    assert grid.lines()[1].split() == ["2026-01-02", "00:00:00", "–", "12", "ms"]


def test_a_long_table_shows_its_first_rows_and_says_so() -> None:
    grid = Grid("", {"files": COUNT}, [(n,) for n in range(60)], row_limit=2)

    assert grid.lines() == ["files", "    0", "    1", "The first 2 of 60 rows."]
    assert "<p>The first 2 of 60 rows.</p>" in grid.html()


def test_columns_are_chosen_by_name() -> None:
    assert GRID["file_count"] == [1200, None]
    assert GRID.only("fits", "partition").lines()[1] == "yes   day=1"
    with pytest.raises(ValueError, match="no_such"):
        GRID["no_such"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0004, "0 ms"),
        (0.085, "85 ms"),
        (0.424, "0.42 s"),
        (1.239, "1.2 s"),
        (9.96, "10 s"),
        (83.4, "83 s"),
        (7200, "7,200 s"),
    ],
)
def test_times_are_written_in_the_unit_that_they_need(seconds: float, said: str) -> None:
    assert SECONDS.write(seconds) == said
