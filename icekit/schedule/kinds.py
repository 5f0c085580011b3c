"""Turn the texts of a policy into values: budgets, times, hours, globs; each says what it would take instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, StrictBool
from pydantic_core import PydanticCustomError

from icekit.compact.policy import Policy as CompactPolicy
from icekit.errors import LONGEST_WAIT, IcekitError, ParameterError, require_seconds
from icekit.parsing import seconds
from icekit.schedule.windows import Hours


def told(error: IcekitError | str) -> PydanticCustomError:
    """An error as pydantic collects them; the text is kept as it is."""
    return PydanticCustomError("icekit", "{said}", {"said": str(error)})


def by(read: Callable[[Any], Any]) -> BeforeValidator:
    """A validator of a function that raises icekit's own errors."""

    def validated(value: Any) -> Any:
        try:
            return read(value)
        except IcekitError as error:
            raise told(error) from None

    return BeforeValidator(validated)


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be read, and how long work may go on; None where it has no limit."""

    bytes: int | None = None
    files: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, value: Any) -> Budget:
        """Read ``200 GB``, ``500 files``, ``30 minutes``, or a list of one of each."""
        if isinstance(value, Budget):
            return value
        found: dict[str, Any] = {}
        for text in texts(value):
            read = CompactPolicy.of({"budget": text})
            for name, given in (
                ("bytes", read.budget_bytes),
                ("files", read.budget_files),
                ("seconds", None if read.budget_minutes is None else read.budget_minutes * 60),
            ):
                if given is not None:
                    if name in found:
                        raise ParameterError(f"The budget has two limits of {name}; keep one.")
                    found[name] = given
        return cls(**found)


def texts(value: Any) -> tuple[str, ...]:
    """One text or a list of them."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in found):
        raise ParameterError(f"{value!r} is not a text or a list of texts.")
    return tuple(one.strip() for one in found)


def _zone(value: Any) -> ZoneInfo:
    if isinstance(value, ZoneInfo):
        return value
    try:
        return ZoneInfo(str(value))
    except (ValueError, OSError, KeyError):
        from zoneinfo import available_timezones

        from icekit.errors import nearest

        raise ParameterError(
            f"There is no time zone {value!r}{nearest(str(value), available_timezones(), count=1) or '; use Europe/Berlin, or UTC.'}"
        ) from None


def _hours(value: Any) -> tuple[Hours, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(one, Hours) for one in value):
        return tuple(value)
    return tuple(Hours.of(text) for text in texts(value))


def _span(value: Any) -> float:
    if isinstance(value, float) and not 0 <= value <= LONGEST_WAIT:
        raise ParameterError(f"{value!r} is no length of time; write it as 30 minutes, 2 hours or 7 days.")
    return value if isinstance(value, float) else seconds(str(value))


def _patience(value: Any) -> float:
    found = _span(value)
    require_seconds("It", found)
    return found


Flag = StrictBool
Texts = Annotated[tuple[str, ...], by(texts)]
Limits = Annotated[Budget, by(Budget.of)]
Times = Annotated[tuple[Hours, ...], by(_hours)]
Zone = Annotated[ZoneInfo, by(_zone)]
#: Seconds.
Span = Annotated[float, by(_span)]
#: Seconds that something may take: more than none.
Patience = Annotated[float, by(_patience)]
