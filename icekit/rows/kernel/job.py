"""Run the kernel in Spark's tasks: one for each part."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.engine.bridge import with_thread_context
from icekit.engine.cluster import cluster_of, is_local
from icekit.rows.kernel import duckdb_io, hashes, kernel, row_order
from icekit.rows.kernel.table_writer import KernelUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.rows.kernel.kernel import TableWriter

# A choice: jobs that the parts are spread over, so that cores are busy to the end.
_JOBS_PER_CORE = 8
# A choice: what takes less time than the start of a worker, which imports pyarrow and DuckDB.
_SMALL_BYTES = 32 << 20


class KernelFailed(Exception):
    """A task of the kernel that failed; its cause says why."""


@frozen
class Written:
    """What the kernel has written of a part: its new files as JSON, the rows that no delete by
    position deletes, and the number and the sum of the hashes of those that live; by the number of a
    chosen file, of its rows.
    """

    files: str
    paths: Sequence[str]
    rows_read: int
    rows: int
    value: int
    chosen: Sequence[tuple[int, int, int]]


def write_parts(
    spark: SparkSession,
    parts: Sequence[str],
    table: TableWriter,
    meanwhile: Callable[[], None],
    size_in_bytes: int,
) -> Sequence[Written | str]:
    """Write parts, which are JSON (:class:`~icekit.rows.kernel.kernel.Part`), some in each task; for a part
    that the kernel refuses, the reason. ``meanwhile`` is other work that has a core of its own until
    it ends. The old files of all parts have ``size_in_bytes``.

    Raises :class:`~icekit.rows.kernel.kernel.RuledOut`, and :class:`KernelFailed`.
    """
    results: list[Written | str] = []
    for answer in _answers(spark, parts, _task(kernel.resolve, table), meanwhile, size_in_bytes):
        if reason := answer.get("refused"):
            results.append(reason)
            continue
        results.append(
            Written(
                files=json.dumps(answer["files"]),
                paths=[each["path"] for each in answer["files"]],
                rows_read=answer["read"],
                rows=answer["rows"],
                value=int(answer["sum"]),
                chosen=[(number, rows, int(value)) for number, rows, value in answer["chosen"]],
            )
        )
    return results


def deleted_positions(
    spark: SparkSession,
    parts: Sequence[str],
    table: TableWriter,
    meanwhile: Callable[[], None],
    size_in_bytes: int,
) -> Sequence[Mapping[int, bytes]]:
    """The positions that equality deletes delete in each part: bitmaps by the number of a data
    file. ``meanwhile`` is other work that has a core of its own until it ends.

    Raises :class:`~icekit.rows.kernel.table_writer.KernelUnavailable` for files that the kernel refuses,
    :class:`~icekit.rows.kernel.kernel.RuledOut`, and :class:`KernelFailed`.
    """
    results = []
    task = _task(kernel.deleted_rows, table)
    for answer in _answers(spark, parts, task, meanwhile, size_in_bytes):
        if reason := answer.get("refused"):
            raise KernelUnavailable(reason)
        bitmaps = answer["bitmaps"].items()
        results.append({int(number): base64.b64decode(text) for number, text in bitmaps})
    return results


def _answers(
    spark: SparkSession,
    parts: Sequence[str],
    task: Callable[[str], str],
    meanwhile: Callable[[], None],
    size_in_bytes: int,
) -> Iterator[Mapping[str, Any]]:
    """What tasks answer for each part, or this process for small ones, if it could be a task."""
    is_small = size_in_bytes <= _SMALL_BYTES and is_local(spark)
    context: Any = spark.sparkContext
    cores = cluster_of(spark).cores
    size = max(1, len(parts) // (_JOBS_PER_CORE * cores))

    def answered(start: int) -> list[str]:
        job_parts = parts[start : start + size]
        try:
            if is_small:
                return list(map(task, job_parts))
            answers: list[str] = context.parallelize(job_parts, 1).map(task).collect()
        except Exception as error:
            raise KernelFailed from error
        return answers

    # Not one job: those of the other work would wait for all of its tasks.
    with ThreadPoolExecutor(cores) as pool:
        other = pool.submit(with_thread_context(spark, meanwhile))
        jobs = [
            pool.submit(with_thread_context(spark, partial(answered, start)))
            for start in range(0, len(parts), size)
        ]
        answers = [answer for job in jobs for answer in job.result()]
        other.result()
    for answer in map(json.loads, answers):
        if path := answer.get("ruled_out"):
            raise kernel.RuledOut(path)
        yield answer


def _task(work: Callable[..., str], table: TableWriter) -> Callable[[str], str]:
    """What a task does with a part: a function of the kernel."""
    from pyspark import cloudpickle

    # Executors need not have icekit.
    for module in (duckdb_io, hashes, row_order, kernel):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    # By themselves: a module would be looked for on the executor.
    refused = kernel.KernelRefused
    ruled_out = kernel.RuledOut

    def answer(part: str) -> str:
        import json
        import os
        import tempfile

        from pyspark import TaskContext

        task = TaskContext.get()
        # A task that runs twice writes under two names.
        attempt = "0" if task is None else str(task.taskAttemptId())
        folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
        folder = folders[0 if task is None else task.partitionId() % len(folders)]
        try:
            return work(part, table, folder, attempt)
        except refused as refusal:
            return json.dumps({"refused": str(refusal)})
        except ruled_out as found:
            return json.dumps({"ruled_out": str(found)})
        except Exception as error:
            # Other parts of its group of parts are fine.
            return json.dumps({"refused": f"it failed: {type(error).__name__}: {error}"})

    return answer
