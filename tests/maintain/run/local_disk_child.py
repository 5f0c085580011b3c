"""A sort along a curve, which Spark shuffles, in a session whose local directory has a mebibyte
left: arguments are its disk and the table. Its last line is how the run ended.
"""

import json
import shutil
import sys
from pathlib import Path

import icekit
from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.maintain.planning.table_plan import plan_table
from icekit.maintain.run.options import Limits, Retry

MEBIBYTE = 1 << 20


def main(disk: str, *table: str) -> None:
    """Fill the disk and run."""
    lake = icekit.connect()
    # What a session needs to start is on its disk by now.
    lake.spark.range(1).count()
    Path(disk, "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - MEBIBYTE))
    policy = CompactionPolicy(strategy="zorder", columns=("id",), leave_alone="0 minutes")
    plan = plan_table(lake, lake.observe(table), None, policy)
    limits = Limits(Retry(attempts=3, first_wait=0.01, longest_wait=0.02))
    outcome = lake.run(plan, execute=True, limits=limits, progress=lambda _: None)
    (action,) = outcome.actions
    print(json.dumps([outcome.exit_status, action.attempts, action.error_class, action.error]))


if __name__ == "__main__":
    main(*sys.argv[1:])
