"""Whole pages that open offline, on a phone too; their templates lie in ``templates``, and escape what they are given."""

from __future__ import annotations

from functools import cache
from typing import Any

from icekit.units import count, size, span, unbroken


def render(template: str, **values: Any) -> str:
    """A page of a template; what is HTML already comes as :class:`markupsafe.Markup`."""
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("icekit.answer"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"count": count, "size": size, "span": span, "unbroken": unbroken}
    return made
