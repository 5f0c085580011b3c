"""Read the options of the commands that may change a table: one reader for the command line and for
policies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from icekit.compact.policy import Policy
from icekit.engine.predicate import check_text
from icekit.facts.retention import Retention
from icekit.maintain.plan import DEFAULT_PROCEDURES, check_procedures
from icekit.options.commands import (
    CompactSection,
    ConvertSection,
    MaintainSection,
    PolicyOptions,
    Proving,
)
from icekit.parsing import size_in_bytes
from icekit.run.limits import Limits


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """The options of one command.

    ``settings`` are a :class:`icekit.compact.policy.Policy` for a compaction; ``where`` and
    ``batch_bytes`` for a conversion; ``retention``, ``procedures`` and ``storage`` for maintenance.
    ``given`` is what was given, as JSON, without what changes no plan (``prove``, ``trial``).
    """

    settings: Any
    limits: Limits
    trial: bool
    given: str


def read_options(options: Proving) -> CommandOptions:
    """Read the options of ``convert``, ``compact`` or ``maintain``; raises
    :class:`~icekit.errors.ParameterError`.

    What an empty text means is up to the reader of each option: a filter of a variable without a
    value must not select the whole table.
    """
    kind = next(
        kind
        for kind in (CompactSection, ConvertSection, MaintainSection)
        if isinstance(options, kind)
    )
    own = options.changed(kind)
    limits, trial = Limits(prove=options.prove), own.pop("trial", False)
    own.pop("prove", None)
    settings: Any = own
    if isinstance(options, CompactSection):
        settings = Policy.of(options.only(*PolicyOptions.declared))
    elif isinstance(options, ConvertSection):
        check_text("true" if options.where is None else options.where)
        size_in_bytes("0" if options.batch_bytes is None else options.batch_bytes)
    elif isinstance(options, MaintainSection):
        procedures = options.procedures or DEFAULT_PROCEDURES
        check_procedures(procedures)
        storage = options.storage or "remove_orphan_files" in procedures
        settings = {
            "retention": Retention.of(options.only("keep", "keep_last", "need")),
            "procedures": procedures,
            "storage": storage,
        }
    return CommandOptions(settings, limits, trial, json.dumps(own))
