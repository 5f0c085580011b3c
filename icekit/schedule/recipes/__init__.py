"""Print files, ready to install, that run a policy on a schedule: templates with this installation's paths filled in."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def example() -> str:
    """A policy with a comment for every key."""
    return (_HERE / "policy.yaml").read_text(encoding="utf-8")


def recipe(kind: str, policy: Path) -> dict[str, str]:
    """The files of a recipe by name."""
    raise NotImplementedError
