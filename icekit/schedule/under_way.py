"""Hold what a pass knows of a table that it has not done with yet."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from icekit.errors import first_line, trace
from icekit.saving import slug, write_text
from icekit.schedule.model import Rule
from icekit.schedule.permitted import Permit
from icekit.schedule.result import Health, Status, Step
from icekit.schedule.study import Studied
from icekit.schedule.triggers import Seen
from icekit.schedule.trouble import Trouble, how_to_clear
from icekit.sql import Identifier, display_name


@dataclass
class Table:
    """A table on its way through a pass."""

    name: Identifier
    rule: Rule
    status: Status = "reported"
    why: str = ""
    steps: list[Step] = field(default_factory=list)
    studied: Studied = field(default_factory=lambda: Studied({}))
    health: Health | None = None
    before: Health | None = None
    start: Seen | None = None
    seconds: float = 0.0
    is_over: bool = False
    trouble: Trouble | None = None
    #: The leave that the pass's budget was shared out by; a refusal then stays one.
    leave: Permit | None = None
    #: Nothing more is run on it in this pass: what was resumed has not ended well, or nobody has looked at what was not proved.
    is_at_rest: bool = False
    is_held: bool = False
    #: What it has become was not reported on.
    is_unseen: bool = False
    is_worked: bool = False

    @property
    def written(self) -> str:
        """``namespace.table``."""
        return display_name(self.name)

    def end(self, status: Status, why: str) -> None:
        """Give it its status, which no step changes any more; it is done with."""
        self.status, self.why, self.is_over = status, why, True

    def crash(self, problem: BaseException, output: Path | None) -> None:
        """End it by an error that nobody foresaw; its trace goes into a file of ``output``, where one is given."""
        said = f"{type(problem).__name__}: {first_line(problem)}"
        if output is not None:
            # A full disk must not end the pass.
            with contextlib.suppress(OSError):
                kept_in = write_text(output / f"{slug(self.written)}.error.txt", trace(problem))
                said += f"; for details see {kept_in}"
        self.end("crashed", said)

    def keep_back(self, trouble: Trouble | None, now: dt.datetime, zone: ZoneInfo) -> bool:
        """Whether what failed on it ends its pass; what was not proved lets it be reported on, and nothing be run."""
        self.trouble = trouble
        if trouble is None:
            return False
        again = trouble.rests_until(self.rule)
        if not trouble.is_unproved and (again is None or now >= again):
            return False
        self.steps.append(Step(trouble.action, "failed", trouble.said, is_unproved=trouble.is_unproved))
        clear = how_to_clear(self.written)
        if again is not None:
            self.end("failed", f"{trouble.often()}; it is tried again from {again.astimezone(zone):%a %H:%M %Z} on, or after {clear}")
            return True
        self.is_held = self.is_at_rest = True
        self.why = f"nothing is run on it until a person has looked at it, and says so by {clear}"
        return False
