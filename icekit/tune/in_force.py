"""Find which of several places decides a setting: the place nearest to the write wins.

Source: Iceberg's ``ConfParser`` for Spark: write or read option (which only the job knows), then
session, then table property, then default.
"""

from __future__ import annotations

from dataclasses import dataclass

SESSION, PROPERTY, DEFAULT = "session", "table property", "default"


@dataclass(frozen=True, slots=True)
class InForce:
    """The setting that decides: where it is set (session, table property or default), under which
    name, and its value; None if nothing is set.
    """

    where: str
    name: str
    value: str | None

    @property
    def origin(self) -> str:
        """The origin in words: ``table property write.distribution-mode``."""
        if self.value is None:
            return "not set"
        return self.name if self.where == DEFAULT else f"{self.where} {self.name}"


def in_force(
    *,
    session: tuple[str, str | None] = ("", None),
    table: tuple[str, str | None] = ("", None),
    default: tuple[str, str | None] = ("default", None),
) -> InForce:
    """Which of several settings decides; each is a name and its value there (None: not set)."""
    places = (InForce(SESSION, *session), InForce(PROPERTY, *table))
    return next((p for p in places if p.value is not None), InForce(DEFAULT, *default))
