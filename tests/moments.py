"""What happens beside a step of a run."""

from collections.abc import Callable
from typing import Any

import pytest


class Around:
    """Has something happen once, before or after the real step of a name; gives the arguments of
    each call of the step.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(
        self, owner: Any, name: str, between: Callable[[], object], *, after: bool = False
    ) -> list[Any]:
        real, pending, calls = getattr(owner, name), [between], list[Any]()

        def wrapped(*given: Any, **options: Any) -> Any:
            calls.append(given)
            if pending and not after:
                pending.pop()()
            result = real(*given, **options)
            if pending:
                pending.pop()()
            return result

        self._patch.setattr(owner, name, wrapped)
        return calls
