"""The command that a finding names is one of icekit, with options that it has."""

import shlex

import pytest

from icekit.health.diagnose.findings import COMPACTED, MAINTAINED, command_for
from tests.commands import parsed
from tests.factories import table_facts


@pytest.mark.parametrize("name", sorted(COMPACTED | MAINTAINED.keys() | {"old_partition_spec"}))
def test_the_command_of_a_finding_can_be_pasted(name: str) -> None:
    command = command_for(table_facts(table=("db", "it's odd")), name)

    assert command is not None
    options = parsed(shlex.split(command)[1:])
    assert (options.table, options.catalog) == ("db.`it's odd`", "prod")


def test_facts_of_a_branch_name_the_plan_of_the_table_and_other_findings_nothing() -> None:
    of_branch = table_facts(ref="audit")
    assert command_for(of_branch, "small_files") == "icekit plan db.events --catalog prod"
    assert command_for(of_branch, "distribution_mode") is None
    assert command_for(table_facts(), "metrics_missing") is None
