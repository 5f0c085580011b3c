"""Say how a run is done, and read the options of the commands that may change a table: one reader
for the command line and for policies.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.commands.run import CompactSection, ConvertSection, MaintainSection
from icekit.common.commands.shared import ProofOptions
from icekit.common.errors import ParameterError
from icekit.common.parsing import size_in_bytes
from icekit.engine.interrupting import Stop
from icekit.engine.predicate import check_text
from icekit.health.facts.retention import SETTINGS, Retention
from icekit.maintain.planning.maintenance import DEFAULT_PROCEDURES, check_procedures

if TYPE_CHECKING:
    from icekit.maintain.record.ledger import Ledger

#: What is proved of a run: each rewrite before it is committed, and commits that were not checked
# are compared in full; all changed partitions of every commit compared after it; or nothing.
PROVING = ("checked", "full", "none")


@frozen
class Retry:
    """How often and with which waits a conflict is retried, and how small an action may become.

    Waits are random, up to a limit that doubles from ``first_wait`` to ``longest_wait`` seconds.
    ``floor_files`` is the smallest group size, in target files; below it icekit gives up on an
    action that is too large.
    """

    attempts: int = 5
    first_wait: float = 2.0
    longest_wait: float = 60.0
    floor_files: int = 2

    def wait_seconds(self, attempt: int) -> float:
        """How long to wait after an attempt, counted from 1."""
        limit_seconds = min(self.first_wait * 2.0 ** min(attempt - 1, 30), self.longest_wait)
        return random.uniform(0, limit_seconds)


@frozen
class Limits:
    """The settings of a run: retries, and what is proved (one of :data:`PROVING`)."""

    retry: Retry = field(default_factory=Retry)
    prove: str = "checked"

    def __post_init__(self) -> None:
        if self.prove not in PROVING:
            raise ParameterError(f"prove cannot be {self.prove!r}; use {', '.join(PROVING)}.")


@frozen
class RunSettings:
    """How a run is done.

    ``ledger`` is a :class:`~icekit.maintain.record.ledger.Ledger`, a path, or None for the default
    file; ``stop`` ends the run, ``say`` gets its progress lines. ``run_id`` (from
    :func:`~icekit.maintain.run.verbs.new_run_id`) is known before the run begins; None makes a new
    one.
    """

    ledger: Ledger | str | None = None
    limits: Limits = field(default_factory=Limits)
    stop: Stop = field(default_factory=Stop)
    say: Callable[[str], None] = print
    run_id: str | None = None


@frozen
class CommandOptions:
    """The options of one command.

    ``settings`` are a
    :class:`~icekit.common.commands.compaction_policy.CompactionPolicy` for a compaction;
    ``where`` and ``batch_bytes`` for a conversion; ``retention``, ``procedures`` and ``storage``
    for maintenance.
    ``given`` is what was given, as JSON, without what changes no plan (``prove``, ``trial``).
    """

    settings: Any
    limits: Limits
    trial: bool
    given: str


def read_options(options: ProofOptions) -> CommandOptions:
    """Read the options of ``convert``, ``compact`` or ``maintain``; raises
    :class:`~icekit.common.errors.ParameterError`.

    What an empty text means is up to the reader of each option: a filter of a variable without a
    value must not select the whole table.
    """
    section_class = next(
        section_class
        for section_class in (CompactSection, ConvertSection, MaintainSection)
        if isinstance(options, section_class)
    )
    stated_options = options.changed(section_class)
    limits = Limits(prove=options.prove)
    trial = stated_options.pop("trial", False)
    stated_options.pop("prove", None)
    command_settings: Any = stated_options
    if isinstance(options, CompactSection):
        command_settings = options
    elif isinstance(options, ConvertSection):
        check_text("true" if options.where is None else options.where)
        size_in_bytes("0" if options.batch_bytes is None else options.batch_bytes)
    elif isinstance(options, MaintainSection):
        procedures = options.procedures or DEFAULT_PROCEDURES
        check_procedures(procedures)
        is_storage_listed = options.storage or "remove_orphan_files" in procedures
        command_settings = {
            "retention": Retention.of(options.only(*SETTINGS)),
            "procedures": procedures,
            "storage": is_storage_listed,
        }
    return CommandOptions(command_settings, limits, trial, json.dumps(stated_options, default=str))
