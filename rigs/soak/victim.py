"""The process that is killed: plan and run a table's compaction, and say on the way where it is."""

from __future__ import annotations

import sys

import icekit
from icekit.common.commands.compaction_policy import CompactionPolicy, Scope
from icekit.maintain.planning.table_plan import plan_table

#: A few actions a run, each with several groups and commits.
PARTITIONS_AN_ACTION = 3


def policy(scope: Scope, partitions: int = PARTITIONS_AN_ACTION) -> CompactionPolicy:
    """How the rounds compact: nothing is left alone for being new."""
    return CompactionPolicy(
        scope=scope, leave_alone="0 minutes", min_files=2, max_action_partitions=partitions
    )


def main(table: str, scope: Scope, ledger: str) -> None:
    """Start Spark, wait for a line to say go, then plan and run."""

    def say(line: str) -> None:
        print(line, flush=True)

    lake = icekit.connect()
    lake.spark.sql("SELECT 1").collect()
    say("ready")
    sys.stdin.readline()
    plan = plan_table(lake, lake.observe(table), policy=policy(scope), ledger=ledger)
    say(f"planned {len(plan.actions)} actions")
    lake.run(plan, execute=True, ledger=ledger, progress=say)
    say("ended")


if __name__ == "__main__":
    scope: Scope = "major" if sys.argv[2] == "major" else "minor"
    main(sys.argv[1], scope, sys.argv[3])
