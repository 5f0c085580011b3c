"""A writer that commits appends, upserts and deletes all the while: nothing of it is lost, and the
run ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from icekit.api import Lake
from rigs.soak.writing import compact_while_written

# Minutes of writing: make soak runs them, and its own rounds of the same kind.
pytestmark = [pytest.mark.spark, pytest.mark.soak]


def test_no_update_of_a_live_writer_is_lost_and_every_run_ends(lake: Lake, tmp_path: Path) -> None:
    found = compact_while_written(lake, "written", "t", commits=9, seed=7, logs=tmp_path)

    assert found.wrong == ()
    assert found.commits >= 9
    # Every action that was run took at least one attempt, and a conflict one more.
    assert sum(a.attempts for o in found.outcomes for a in o.actions) >= found.conflicts + 1


def test_no_row_is_lost_or_revived_while_equality_deletes_are_converted(
    lake: Lake, tmp_path: Path
) -> None:
    found = compact_while_written(
        lake, "written", "c", commits=6, seed=11, logs=tmp_path, conversions=3
    )

    assert found.wrong == ()
    assert sum(len(a.snapshot_ids) for o in found.outcomes for a in o.actions) >= 3
