"""A run and an action as a ledger keeps them, and a clock for its claims."""

from icekit.compact.claims import ActionRecord, RunRecord
from icekit.status import Status

TABLE = "lake.db.t"
RUN = RunRecord(
    "r1",
    TABLE,
    "uuid",
    Status.RUNNING,
    1000,
    None,
    7,
    {"actions": [1, 2.5, None]},
    "host",
    12,
    None,
)
ACTION = ActionRecord(
    "r1",
    "a1",
    0,
    TABLE,
    7,
    Status.PENDING,
    1,
    "CALL x('ü')",
    {"seconds": 1.5},
    None,
    (),
    None,
    None,
    None,
)


class Clock:
    """Milliseconds that stand still until told to pass, or pass by ``step`` whenever it is
    asked.
    """

    def __init__(self, step: int = 0) -> None:
        self.now = 1_000_000
        self.step = step

    def __call__(self) -> int:
        self.now += self.step
        return self.now
