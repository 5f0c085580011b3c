"""The script that spark-submit runs: one pass of a policy in the session that spark-submit made."""

from __future__ import annotations

import contextlib
import sys


def main(arguments: list[str]) -> int:
    """Run ``icekit schedule run`` in the existing session; returns the exit status."""
    from pyspark.sql import SparkSession

    from icekit.cli.main import main as icekit

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        return icekit(["schedule", "run", *arguments])
    finally:
        # After a request to end, the session may already be closed; the status is the pass's own.
        with contextlib.suppress(Exception):
            spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
