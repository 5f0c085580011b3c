"""What filters open, from the ranges that the engine's planner gives."""

from icekit.maintain.file_order import predicted_opens
from tests.factories import COLUMNS


def test_an_empty_text_is_a_bound_and_a_file_of_nulls_has_none() -> None:
    (text, *_) = (column for column in COLUMNS if column.type == "string")
    ranges = {
        "before": [[10, " 61"], [10, "62 63"], [10, ""]],
        "after": [[20, " 63"], [10, ""]],
        "files_before": 3,
        "files_after": 2,
    }
    (opens,) = predicted_opens([text], ranges)

    assert (opens.files_before, opens.files_after) == (3, 2)
    assert opens.opens_before == 1
