"""What spark-submit runs: one pass of a policy in the session that it has made."""

from __future__ import annotations

import contextlib
import sys


def main(arguments: list[str]) -> int:
    """Run ``icekit schedule run`` in a session that is there; returns the exit status."""
    from pyspark.sql import SparkSession

    from icekit.cli.main import main as icekit

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        return icekit(["schedule", "run", *arguments])
    finally:
        # Asked to end, it may be gone already; the status is the pass's own.
        with contextlib.suppress(Exception):
            spark.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
