"""The seconds of an action from those of earlier ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from icekit.common.errors import Status
from icekit.maintain.engine_prediction import Speed, speed_of
from icekit.maintain.planning.table_plan import past_speed
from icekit.maintain.prediction import EQUALITY_DELETE, Prediction
from icekit.maintain.record.ledger import Ledger
from icekit.maintain.record.results import Actual
from tests.factories import GIB, KIB, MIB
from tests.maintain.records import ACTION, TABLE


def test_what_was_not_measured_gives_no_speed() -> None:
    assert speed_of([]) is None
    assert speed_of([(None, 1.0), (5.0, None), (0.0, 1.0), (5.0, 0.0)]) is None


@pytest.mark.parametrize(
    ("size", "seconds"), [(4 * MIB, 12.0), (16 * MIB, 48.0), (17 * MIB, None), (MIB - 1, None)]
)
def test_an_action_takes_as_long_per_byte_as_those_of_about_its_size(
    size: int, seconds: float | None
) -> None:
    assert Speed(((4 * MIB, 12.0),)).seconds(size) == seconds


def test_an_action_that_waited_for_the_cluster_changes_little() -> None:
    measured = Speed(((KIB, 9.0), (GIB, 53.0), (GIB, 55.0), (GIB, 4000.0)))

    assert measured.seconds(GIB) == pytest.approx(55)
    assert measured.bytes_within(55) == GIB
    assert measured.max_known_bytes == 4 * GIB


def test_past_speed_is_of_the_tables_own_measured_runs_of_the_same_kind(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.db")

    def save(table: str, seconds: float, unit: str = "file", size: int = 100) -> None:
        book.save_action(
            replace(
                ACTION,
                action_id=f"{table} {unit} {size}",
                table=table,
                predicted=Prediction(unit=unit),
                status=Status.FAILED if size == 1 else Status.DONE,
                actual=Actual(bytes_in=size) if size else None,
                seconds=seconds,
            )
        )

    assert past_speed(book, TABLE) is None
    save(TABLE, 1, size=1)
    save(TABLE, 1, size=0)
    save(TABLE, 50, EQUALITY_DELETE)
    assert past_speed(book, TABLE) is None
    save("lake.db.other", 7)
    assert past_speed(book, TABLE) == Speed(((100, 7),))
    save(TABLE, 2)
    assert past_speed(book, TABLE) == Speed(((100, 2),))
    assert past_speed(book, TABLE, EQUALITY_DELETE) == Speed(((100, 50),))
