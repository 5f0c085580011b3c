"""Read the options of the commands that may change a table: one reader for the command line and for policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from icekit.compact.model import SETTINGS, Policy
from icekit.engine.predicate import check_text
from icekit.errors import ParameterError
from icekit.facts.retention import Retention
from icekit.maintain.plan import DEFAULT_PROCEDURES, check_procedures
from icekit.parsing import size_in_bytes
from icekit.run.attempt import Limits, sampled

#: The options of each command, in the order in which a pass of a policy runs the commands.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "convert": ("where", "batch_bytes", "prove"),
    "compact": (*SETTINGS, "trial", "prove"),
    "maintain": ("keep", "keep_last", "need", "procedures", "storage", "prove"),
}


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of one command.

    ``settings`` are a :class:`icekit.compact.Policy` for a compaction; ``where`` and ``batch_bytes`` for a conversion; ``retention``,
    ``procedures`` and ``storage`` for maintenance. ``given`` is what was given, as JSON, without what changes no plan (``prove``, ``trial``).
    """

    settings: Any
    limits: Limits
    trial: bool
    given: str


def read_options(command: str, given: Mapping[str, Any]) -> CommandOptions:
    """Read the options of ``convert``, ``compact`` or ``maintain``, as text or as plain values; None is not given.

    What an empty text means is up to the reader of each option: a filter of a variable without a value must not select the whole table.
    Raises :class:`~icekit.errors.ParameterError`.
    """
    own = {name: value for name, value in given.items() if value is not None}
    prove, trial = sampled(str(own.pop("prove", "checked"))), flag(own.pop("trial", False))
    text, settings = json.dumps(own, default=str), own
    if command == "compact":
        return CommandOptions(Policy.of(own), Limits(prove=prove), trial, text)
    if command == "convert":
        check_text(own.get("where", "true"))
        size_in_bytes(str(own.get("batch_bytes", 0)))
    else:
        procedures = names(own.pop("procedures", ())) or DEFAULT_PROCEDURES
        check_procedures(procedures)
        storage = flag(own.pop("storage", False)) or "remove_orphan_files" in procedures
        settings = {"retention": Retention.of(own), "procedures": procedures, "storage": storage}
    return CommandOptions(settings, Limits(prove=prove), trial, text)


def flag(value: object) -> bool:
    """A switch: true or false, also as text."""
    if str(value).lower() not in {"true", "false"}:
        raise ParameterError(f"{value!r} is not true or false.")
    return str(value).lower() == "true"


def names(value: Any) -> tuple[str, ...]:
    """Names separated by commas, or a list of them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ParameterError(f"{value!r} is not a name or a list of names.")
    return tuple(part.strip() for part in parts if part.strip())
