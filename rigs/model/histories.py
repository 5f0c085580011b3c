"""Run random histories of one seed: the same each time."""

from __future__ import annotations

import os
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from icekit.rows.rewrite import rewrite_session
from rigs.model.machine import Machine


def run(number: int, histories: int, steps: int) -> None:
    """Run so many histories of so many steps; a failure prints the steps as calls that replay
    it.
    """
    chosen = settings(
        max_examples=histories,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=False,
        # A step takes a second: making a failing history smaller takes longer than reading it.
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity[os.environ.get("ICEKIT_VERBOSE", "normal")],
    )
    machine = type(f"Seed{number}", (Machine,), {})
    # Of every other seed, a join applies all equality deletes.
    with patch.object(rewrite_session, "_FEW_APPLIED", rewrite_session._FEW_APPLIED * (number % 2)):
        run_state_machine_as_test(seed(number)(machine), settings=chosen)
