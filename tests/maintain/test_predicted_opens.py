"""What filters open, from the ranges that the engine's planner gives."""

import pytest

from icekit.maintain.planning.file_order import _BoundedFile, _joint_ranges, predicted_filter_opens
from tests.factories import COLUMNS


def test_an_empty_text_is_a_bound_and_a_file_of_nulls_has_none() -> None:
    (text, *_) = (column for column in COLUMNS if column.type == "string")
    ranges = {
        "before": [[10, " 61"], [10, "62 63"], [10, ""]],
        "after": [[20, " 63"], [10, ""]],
        "files_before": 3,
        "files_after": 2,
    }
    (opens,) = predicted_filter_opens([text], ranges)

    assert (opens.files_before, opens.files_after) == (3, 2)
    assert opens.opens_before == 1


@pytest.mark.parametrize(
    ("cells", "hull"),
    [
        ((" 61", "62 63"), " 63"),
        ((" ", "62 63"), " 63"),
        (("62 63", ""), "62 63"),
        (("", ""), ""),
        (("62 63", None), None),
        (("ff ff", "62 63"), None),
    ],
)
def test_files_together_have_the_range_of_all_unless_one_has_none_that_can_be_read(
    cells: tuple[str | None, ...], hull: str | None
) -> None:
    (text, *_) = (column for column in COLUMNS if column.type == "string")
    files = [_BoundedFile(1, 1, (cell,), (0,)) for cell in cells]

    assert list(_joint_ranges([text], files)) == [hull]
