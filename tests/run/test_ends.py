"""How each kind of error ends an action, and what is said of it."""

import pytest

from icekit.engine.interrupting import Stopped
from icekit.errors import CloneRefused
from icekit.run.attempt import Conflict, TooLarge, ended_by
from icekit.status import Status

AGAIN = "Run it again when fewer writers are active, or with a narrower time window."
ALONE = (
    "No other commit to this table came in between: run it again once the catalog answers. The "
    "engine logs the reason."
)


@pytest.mark.parametrize(
    ("problem", "status", "said"),
    [
        (TooLarge("1 group of 3 failed"), Status.SPLIT, "1 group of 3 failed"),
        (Stopped(), Status.STOPPED, None),
        (KeyboardInterrupt(), Status.STOPPED, None),
        (Conflict("a file is gone"), Status.FAILED, f"a file is gone; 5 attempts made. {AGAIN}"),
        (
            Conflict("no answer", is_alone=True),
            Status.FAILED,
            f"no answer; 5 attempts made. {ALONE}",
        ),
        (CloneRefused("The catalog takes no clone."), Status.FAILED, "The catalog takes no clone."),
        (ValueError("of Python"), Status.FAILED, "ValueError: of Python"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_ends_an_action_by_its_kind(
    problem: BaseException, status: Status, said: str | None
) -> None:
    assert ended_by(problem, 5) == (status, said)
