"""A table whose times are in the future takes no commit: that is said before anything is rewritten."""

from collections.abc import Callable
from typing import Any

import pytest

from icekit.common.errors import TableContradicted
from icekit.health.diagnose import diagnose
from icekit.health.facts.retention import Retention
from icekit.maintain.planning.conversion import plan_conversion
from icekit.sandbox.clones import clone
from tests.maintain.tables import Named, is_proved

pytestmark = pytest.mark.spark


def test_no_command_starts_on_a_table_whose_times_are_in_the_future(
    named: Named, aged: Callable[..., Any]
) -> None:
    table = named("early").create().fill().fill()
    planned_before = table.plan()
    assert planned_before.actions
    aged(table, -1)
    location = table.lake.tables.source(table.name).metadata_location

    with pytest.raises(Exception, match="Expected sorted snapshot log entries"):
        table.sql("INSERT INTO {t} VALUES (1, 1, 'a')")
    (finding, *_) = diagnose(table.lake.observe(table.name))
    assert finding.name == "unreadable_metadata"
    assert "in the future; every commit fails until" in finding.evidence
    with pytest.raises(TableContradicted):
        table.plan()
    with pytest.raises(TableContradicted):
        plan_conversion(table.lake, table.name)
    with pytest.raises(TableContradicted), clone(table.lake, table.name):
        pass
    maintenance = table.maintenance("expire_snapshots", retention=Retention(keep_last=1))
    assert maintenance.actions == ()
    assert "unreadable_metadata" in " ".join(maintenance.notes)
    outcome = table.run(planned_before)
    assert {action.status for action in outcome.actions} == {"failed"}
    assert all("in the future" in str(action.error) for action in outcome.actions)
    assert table.lake.tables.source(table.name).metadata_location == location

    aged(table, 2)
    is_proved(table.compact())
