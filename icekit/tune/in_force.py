"""Find which of several places decides a setting: the place nearest to the write wins.

Source: Iceberg's ``ConfParser`` for Spark: write or read option (which only the job knows), then
session, then table property, then default.
"""

from __future__ import annotations

from dataclasses import dataclass

SESSION, PROPERTY, DEFAULT = "session", "table property", "default"


@dataclass(frozen=True, slots=True)
class Link:
    """One place where a setting may be set; ``value`` is None if it is not set there."""

    where: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class InForce:
    """All the places a setting may come from, highest precedence first."""

    links: tuple[Link, ...]

    @property
    def decides(self) -> Link | None:
        """The place that decides; None if nothing is set."""
        return next((link for link in self.links if link.value is not None), None)

    @property
    def value(self) -> str | None:
        """The value in force."""
        return self.decides.value if self.decides else None

    @property
    def origin(self) -> str:
        """The origin in words: ``table property write.distribution-mode``."""
        link = self.decides
        if link is None:
            return "not set"
        return (
            link.name
            if link.where == DEFAULT and link.name
            else f"{link.where} {link.name}".strip()
        )


def in_force(
    *,
    session: tuple[str, str | None] = ("", None),
    table: tuple[str, str | None] = ("", None),
    default: tuple[str, str | None] = ("default", None),
) -> InForce:
    """Order the places; each is a name and its value there (None: not set)."""
    return InForce((Link(SESSION, *session), Link(PROPERTY, *table), Link(DEFAULT, *default)))
