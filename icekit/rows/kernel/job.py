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
from icekit.rows.kernel import (
    current_schema,
    duckdb_io,
    hashes,
    kernel,
    kernel_settings,
    live_rows,
    new_files,
    old_files,
    part,
    refusals,
    row_order,
)
from icekit.rows.kernel.refusals import KernelRefused, RuledOut
from icekit.rows.kernel.table_settings import KernelUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icekit.rows.kernel.kernel_settings import KernelSettings

# All modules of the kernel, which executors get from the driver.
_KERNEL_MODULES = (
    current_schema,
    duckdb_io,
    hashes,
    kernel,
    kernel_settings,
    live_rows,
    new_files,
    old_files,
    part,
    refusals,
    row_order,
)
# A choice: jobs that the parts are spread over, so that cores are busy to the end.
_JOBS_PER_CORE = 8
# A choice: what takes less time than the start of a worker, which imports pyarrow and DuckDB.
_SMALL_BYTES = 32 << 20


class KernelFailed(Exception):
    """A task of the kernel that failed; its cause says why."""


@frozen
class WrittenPart:
    """What the kernel has written of a part: its new files as JSON, the rows that no delete by
    position deletes, and the number and the sum of the hashes of those that live; by the number of
    a chosen file, of its rows.
    """

    new_files_json: str
    new_paths: Sequence[str]
    rows_read: int
    live_rows: int
    hash_sum: int
    sums_of_files: Sequence[tuple[int, int, int]]


def write_parts(
    spark: SparkSession,
    parts_json: Sequence[str],
    settings: KernelSettings,
    meanwhile: Callable[[], None],
    size_bytes: int,
) -> Sequence[WrittenPart | str]:
    """Write parts, which are JSON (:class:`~icekit.rows.kernel.part.Part`), some in each task; for
    a part that the kernel refuses, the reason. ``meanwhile`` is other work that has a core of its
    own until it ends. The old files of all parts have ``size_bytes``.

    Raises :class:`~icekit.rows.kernel.refusals.RuledOut`, and :class:`KernelFailed`.
    """
    results: list[WrittenPart | str] = []
    for task_answer in _task_answers(
        spark, parts_json, _part_task(kernel.resolve, settings), meanwhile, size_bytes
    ):
        if reason := task_answer.get("refused"):
            results.append(reason)
            continue
        results.append(
            WrittenPart(
                new_files_json=json.dumps(task_answer["files"]),
                new_paths=[new_file["path"] for new_file in task_answer["files"]],
                rows_read=task_answer["read"],
                live_rows=task_answer["rows"],
                hash_sum=int(task_answer["sum"]),
                sums_of_files=[
                    (file_number, rows, int(hash_sum_text))
                    for file_number, rows, hash_sum_text in task_answer["chosen"]
                ],
            )
        )
    return results


def deleted_positions(
    spark: SparkSession,
    parts_json: Sequence[str],
    settings: KernelSettings,
    meanwhile: Callable[[], None],
    size_bytes: int,
) -> Sequence[Mapping[int, bytes]]:
    """The positions that equality deletes delete in each part: bitmaps by the number of a data
    file. ``meanwhile`` is other work that has a core of its own until it ends.

    Raises :class:`~icekit.rows.kernel.table_settings.KernelUnavailable` for files that the kernel
    refuses, :class:`~icekit.rows.kernel.refusals.RuledOut`, and :class:`KernelFailed`.
    """
    bitmaps_of_parts = []
    part_task = _part_task(kernel.deleted_rows, settings)
    for task_answer in _task_answers(spark, parts_json, part_task, meanwhile, size_bytes):
        if reason := task_answer.get("refused"):
            raise KernelUnavailable(reason)
        bitmap_items = task_answer["bitmaps"].items()
        bitmaps_of_parts.append(
            {
                int(file_number): base64.b64decode(bitmap_text)
                for file_number, bitmap_text in bitmap_items
            }
        )
    return bitmaps_of_parts


def _task_answers(
    spark: SparkSession,
    parts_json: Sequence[str],
    part_task: Callable[[str], str],
    meanwhile: Callable[[], None],
    size_bytes: int,
) -> Iterator[Mapping[str, Any]]:
    """What tasks answer for each part, or this process for small ones, if it could be a task."""
    is_small = size_bytes <= _SMALL_BYTES and is_local(spark)
    context: Any = spark.sparkContext
    cores = cluster_of(spark).cores
    parts_per_job = max(1, len(parts_json) // (_JOBS_PER_CORE * cores))

    def answered(first_index: int) -> list[str]:
        parts_of_job = parts_json[first_index : first_index + parts_per_job]
        try:
            if is_small:
                return list(map(part_task, parts_of_job))
            answers_json: list[str] = context.parallelize(parts_of_job, 1).map(part_task).collect()
        except Exception as error:
            raise KernelFailed from error
        return answers_json

    # Not one job: those of the other work would wait for all of its tasks.
    with ThreadPoolExecutor(cores) as pool:
        other_work = pool.submit(with_thread_context(spark, meanwhile))
        part_jobs = [
            pool.submit(with_thread_context(spark, partial(answered, first_index)))
            for first_index in range(0, len(parts_json), parts_per_job)
        ]
        answers_json = [answer_json for job in part_jobs for answer_json in job.result()]
        other_work.result()
    for answer_json in map(json.loads, answers_json):
        if ruled_out_path := answer_json.get("ruled_out"):
            raise RuledOut(ruled_out_path)
        yield answer_json


def _part_task(
    kernel_function: Callable[..., str], settings: KernelSettings
) -> Callable[[str], str]:
    """What a task does with a part: a function of the kernel."""
    from pyspark import cloudpickle

    # Executors need not have icekit.
    for kernel_module in _KERNEL_MODULES:
        cloudpickle.register_pickle_by_value(kernel_module)  # type: ignore[no-untyped-call]
    # By themselves: a module would be looked for on the executor.
    refused_class = KernelRefused
    ruled_out_class = RuledOut

    def answer(part_json: str) -> str:
        import json
        import os
        import tempfile

        from pyspark import TaskContext

        task_context = TaskContext.get()
        # A task that runs twice writes under two names.
        attempt_id = "0" if task_context is None else str(task_context.taskAttemptId())
        local_folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
        spill_folder = local_folders[
            0 if task_context is None else task_context.partitionId() % len(local_folders)
        ]
        try:
            return kernel_function(part_json, settings, spill_folder, attempt_id)
        except refused_class as refusal:
            return json.dumps({"refused": str(refusal)})
        except ruled_out_class as found:
            return json.dumps({"ruled_out": str(found)})
        except Exception as error:
            # Other parts of its group of parts are fine.
            return json.dumps({"refused": f"it failed: {type(error).__name__}: {error}"})

    return answer
