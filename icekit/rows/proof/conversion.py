"""Check the delete files of a conversion before they are committed: their content, their places,
and a sample of rows by other means.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from icekit.common import frozen
from icekit.common.units import count
from icekit.engine.bridge import temporary_settings, with_thread_context
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.compat import arrow_of
from icekit.engine.staging import Staging
from icekit.iceberg.metadata import schema_of
from icekit.rows.deletes.conversion_inputs import ConversionInputs
from icekit.rows.deletes.convert import WrittenDeletes, conversion_of, positions_by_file
from icekit.rows.deletes.delete_files import PATH_ID, POSITION_ID, sorted_array
from icekit.rows.deletes.join import (
    newest_deletes,
    position_words,
    rows_of_keys,
    sample_sql,
    task_count,
    with_join_hint,
)
from icekit.rows.deletes.key_table import KeyTable
from icekit.rows.deletes.key_view import KeyView
from icekit.rows.deletes.keys import KeySet
from icekit.rows.deletes.listing import files_text
from icekit.rows.kernel.hashes import RowSums, row_hashes
from icekit.rows.proof.checked import (
    CHECKED_POSITIONS_TAG,
    SAMPLED_FILES,
    SAMPLED_KEYS,
    UNSEEN,
    CheckedPositions,
    RowsDiffer,
    looked_up_partitions,
)
from icekit.rows.proof.fingerprint import (
    Fingerprint,
    fingerprint_of,
    fingerprints_by_key,
    reading_settings,
    row_hash,
)
from icekit.rows.proof.readers import most_delete_records, shown_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Positions of rows by the number of their data file.
Positions = Mapping[int, BitMap64]

# Delete files that are read at the same time.
_AT_ONCE = 4
# Hashes are words of 64 bits.
_WORDS = 1 << 64
# Positions that are hashed together.
_HASHED = 1 << 20
# A choice: a query of Spark takes a second to start.
_MANY_POSITIONS = 1_000_000
# The fields of a position delete file (Iceberg's specification, "Position Delete Files").
_POSITION_FIELDS = [
    {"id": PATH_ID, "name": "file_path", "type": "string", "required": True},
    {"id": POSITION_ID, "name": "pos", "type": "long", "required": True},
]
# With fewer delete records, every key is looked up: a sample would show little, and might be empty.
_FEW = UNSEEN * SAMPLED_KEYS
# With fewer rows and delete records together, too: that is one query, where a sample is four.
_SMALL = 1_000_000


@frozen
class _LookedUp:
    """The rows that plain joins found, as positions by the number of their data file: for each
    sampled key set the dead and the live ones; the dead ones of the others, of which every key was
    looked up.
    """

    sampled_rows: Sequence[tuple[Positions, Positions]] = ()
    dead_in_full: Positions | None = None


class PositionCheck:
    """The checks of one commit of a conversion; ``view`` is the key view of ``inputs``, None if its
    deletes apply to no file.
    """

    written_deletes: WrittenDeletes
    java: Any

    def __init__(self, spark: SparkSession, inputs: ConversionInputs, view: KeyView | None) -> None:
        self.spark = spark
        self.inputs = inputs
        self._view = view
        self.staging = Staging(spark, inputs.snapshot_deletes.table)
        self.salt = random.getrandbits(31)
        #: About one partition in so many is looked up, by their records.
        self.one_partition_in = 1
        self._looked_up: _LookedUp | None = None

    def _spark_settings(self) -> Mapping[str, str]:
        record_count = max(
            self.inputs.data_records, sum(key_set.records for key_set in self.inputs.key_sets)
        )
        partition_count = max(task_count(record_count), self.spark.sparkContext.defaultParallelism)
        return {
            **reading_settings(schema_of(self.inputs.snapshot_deletes.metadata)),
            # A cache of deletes may hide some (apache/iceberg 15039).
            CACHE_KEYS[1]: "false",
            "spark.sql.shuffle.partitions": str(partition_count),
        }

    def look_up(self) -> None:
        """Look rows up by plain joins; this can be done before the positions are known."""
        with temporary_settings(self.spark, self._spark_settings()):
            self._looked_up = self._looked_up_rows()

    def run(self, written_deletes: WrittenDeletes) -> Mapping[str, str]:
        """Check what is about to be committed; returns the tag that says what was checked, and
        raises :class:`RowsDiffer` if anything is wrong.
        """
        self.written_deletes = written_deletes
        self.java = conversion_of(self.spark, self.staging, written_deletes)
        with temporary_settings(self.spark, self._spark_settings()):
            return {CHECKED_POSITIONS_TAG: self._checked().text()}

    @property
    def view(self) -> KeyView:
        """The key view; only for deletes that apply to some file."""
        assert self._view is not None
        return self._view

    @cached_property
    def sample_view(self) -> KeyView:
        """The key view of the partitions in which a sample of keys is looked up."""
        partition_numbers = {listed_file.partition_number for listed_file in self.inputs.data_files}
        records_by_partition: Counter[int] = Counter()
        for listed_file in (*self.inputs.data_files, *self.inputs.delete_files):
            # Deletes of all partitions come to each.
            if listed_file.partition_number in partition_numbers:
                records_by_partition[listed_file.partition_number] += listed_file.records
        sampled_partitions, self.one_partition_in = looked_up_partitions(records_by_partition)
        return (
            self.view
            if sampled_partitions == partition_numbers
            else self.view.of_partitions(sampled_partitions)
        )

    def _checked(self) -> CheckedPositions:
        """Make every check; raises if one fails."""
        resolved_count = sum(key_set.records for key_set in self.inputs.key_sets)
        with ThreadPoolExecutor(2) as pool:
            look_up_future = None
            if self._looked_up is None:
                look_up_future = pool.submit(with_thread_context(self.spark, self.look_up))
                # Spark has found the rows itself. Small work is mostly the driver's, so the other
                # checks go on beside it; of large work, each check needs the memory for itself.
                if self.inputs.data_records + resolved_count >= _SMALL:
                    look_up_future.result()
            self._check_content()
            if wrong_path := self.java.wrong(self.inputs.is_last):
                raise _differ(
                    "the commit would not remove the right delete files, of which one is "
                    f"{wrong_path}"
                )
            check_files = partial(self._check_files, self._check_plan())
            files_future = pool.submit(with_thread_context(self.spark, check_files))
            if look_up_future is not None:
                look_up_future.result()
            sampled_rows, one_in = self._check_looked_up()
            checked_files = files_future.result()
        return replace(
            checked_files,
            positions=sum(map(len, self.written_deletes.written_positions.values())),
            resolved=resolved_count,
            sampled=sampled_rows,
            one_in=one_in,
            one_partition_in=self.one_partition_in if one_in > 1 else 1,
        )

    def _check_content(self) -> None:
        """Compare what Iceberg reads from each new delete file with what it is to hold: the
        positions found, and those deleted before.
        """
        written_deletes = self.written_deletes
        # Iceberg's reader of deletes visits the rows of Parquet files one by one.
        is_many = sum(map(len, written_deletes.written_positions.values())) > _MANY_POSITIONS
        is_read_by_spark = is_many and self.inputs.snapshot_deletes.format_version < 3
        contents_by_index = self._read_by_spark() if is_read_by_spark else self._read_by_iceberg()
        if len(written_deletes.written_delete_files) != len(written_deletes.written_positions):
            raise _differ(
                f"{count(len(written_deletes.written_delete_files), 'delete file')} were written for "
                f"{count(len(written_deletes.written_positions), 'data file')}"
            )
        for file_index, (file_number, written_positions) in enumerate(
            written_deletes.written_positions.items()
        ):
            data_file = self.inputs.data_files[file_number]
            new_positions = written_deletes.found_positions.get(file_number, BitMap64())
            earlier_positions = written_deletes.earlier_positions.get(file_number, BitMap64())
            if written_positions != new_positions | earlier_positions:
                raise _differ(
                    f"the positions for {data_file.path} are not those found and those deleted "
                    "before"
                )
            # What a rewrite reads is counted again: the metadata may name fewer rows than there
            # are.
            is_counted_again = self.inputs.snapshot_deletes.listing.tasks is not None
            if (
                last_position := written_positions.max()
            ) >= data_file.records and not is_counted_again:
                raise _differ(
                    f"row {last_position:,} of {data_file.path} would be deleted, which has only "
                    f"{count(data_file.records, 'row')}"
                )
            content_text = contents_by_index.get(file_index, "no")
            if content_text != f"{_positions_sum_text(written_positions)} {data_file.path}":
                raise _differ(
                    f"Iceberg reads {content_text.split()[0]} deleted positions of "
                    f"{data_file.path}, but not the {len(written_positions):,} that were found"
                )

    def _read_by_iceberg(self) -> Mapping[int, str]:
        """What Iceberg reads from each new delete file, by its place: the positions, as
        :func:`_positions_sum_text`, and the data file.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts_of_threads = pool.map(
                lambda first_index: str(self.java.positions(first_index, _AT_ONCE)), range(_AT_ONCE)
            )
            return {
                first_index + _AT_ONCE * thread_row: content_text
                for first_index, thread_texts in enumerate(texts_of_threads)
                for thread_row, content_text in enumerate(thread_texts.split("\0"))
            }

    def _read_by_spark(self) -> Mapping[int, str]:
        """The same in one query, which reads many rows at a time."""
        from pyspark.sql import types as T

        position_hash_sql = row_hash(T.StructType([T.StructField("pos", T.LongType())]))
        path_hash_sql = row_hash(T.StructType([T.StructField("file_path", T.StringType())]))
        snapshot_deletes = self.inputs.snapshot_deletes
        staging = KeyTable.of_fields(
            self.spark, snapshot_deletes.table, snapshot_deletes.metadata, _POSITION_FIELDS
        ).staging
        data_paths = str(self.java.referenced()).split("\0")
        path_hashes = row_hashes(pa.record_batch([pa.array(data_paths)], ["path"])).tolist()
        contents_by_index: dict[int, str] = {}
        with staging.staged_rows(
            staging.java.asData(list(self.written_deletes.written_delete_files))
        ) as rows:
            # The tasks number the files as if these were specs.
            hashed_positions = rows.selectExpr(
                "_spec_id AS k0", f"{path_hash_sql} AS k1", f"{position_hash_sql} AS h"
            )
            for key, position_sums in fingerprints_by_key(hashed_positions).items():
                file_index, path_hash = cast("tuple[int, int]", key)
                # One of several paths in a file is another than that of its data file.
                is_only_path = (
                    file_index not in contents_by_index
                    and path_hash % _WORDS == path_hashes[file_index]
                )
                data_path_text = (
                    data_paths[file_index] if is_only_path else "another data file than it is for"
                )
                contents_by_index[file_index] = (
                    f"{_sum_text(position_sums.row_count, position_sums.hash_sum)} {data_path_text}"
                )
        return contents_by_index

    def _check_plan(self) -> Any:
        """Compare the listing with how Iceberg plans a scan; returns some of its tasks, with the
        deletes that it applies to each.
        """
        written_deletes = self.written_deletes
        inputs = self.inputs
        most_deletes = most_delete_records(cluster_of(self.spark).executor)
        plan = self.java.planned(
            inputs.snapshot_deletes.snapshot_id,
            inputs.snapshot_deletes.listing.tasks,
            files_text(inputs.data_files),
            *inputs.data_slice,
            SAMPLED_FILES,
            most_deletes,
            self.salt,
        )
        for problem, message in _WRONG.items():
            if data_path := plan.get(problem):
                raise _differ(message.format(data_path))
        for file_number, earlier_text in zip(
            written_deletes.written_positions, str(plan.get("earlier")).splitlines(), strict=True
        ):
            if earlier_text not in {
                "?",
                _positions_sum_text(written_deletes.earlier_positions.get(file_number, BitMap64())),
            }:
                raise _differ(
                    "the positions read as deleted before in "
                    f"{inputs.data_files[file_number].path} are not those that Iceberg applies"
                )
        return plan.get("chosen")

    def _looked_up_rows(self) -> _LookedUp:
        """Look up keys of each set by a plain join: one in :data:`SAMPLED_KEYS`, or every key if a
        sample shows too little.
        """
        if not self._view:
            return _LookedUp()
        key_sets = self.inputs.key_sets
        samples = []
        sets_in_full: list[KeySet] = []
        for key_set in key_sets:
            with self._sampled_deletes(key_set) as sampled_deletes:
                if sampled_deletes is None:
                    sets_in_full.append(key_set)
                else:
                    other_sets = [other_set for other_set in key_sets if other_set is not key_set]
                    samples.append(self._sampled_positions([key_set, *other_sets], sampled_deletes))
        return _LookedUp(
            samples, self._positions_deleted_by_join(sets_in_full) if sets_in_full else None
        )

    def _check_looked_up(self) -> tuple[int, int]:
        """Compare the rows that were looked up with those that would be deleted; returns how many
        rows, and one in how many keys.
        """
        assert self._looked_up is not None
        samples = self._looked_up.sampled_rows
        dead_in_full = self._looked_up.dead_in_full
        if not self._view:
            return 0, 1
        sampled_rows = sum(
            self._check_sample(dead_positions, live_positions)
            for dead_positions, live_positions in samples
        )
        if dead_in_full is not None:
            self._check_no_fewer(dead_in_full)
            if not samples:
                self._check_no_more(dead_in_full)
                return self.inputs.data_records, 1
        return sampled_rows, SAMPLED_KEYS

    @contextlib.contextmanager
    def _sampled_deletes(self, key_set: KeySet) -> Iterator[DataFrame | None]:
        """The newest delete of each sampled key of a set; None if the deletes in a sample, or the
        rows, have too few different keys to show something.
        """
        if key_set.records < _FEW or self.inputs.data_records + key_set.records < _SMALL:
            yield None
            return
        newest_sample = newest_deletes(
            self.sample_view, key_set, self._sample_sql(key_set)
        ).persist()
        try:
            # In how many partitions of the table a key is does not matter.
            key_names = ", ".join(f"k{i}" for i in range(len(key_set.columns)))
            key_columns_sql = ", ".join(column.sql for column in key_set.columns)
            distinct_keys_sql = f"approx_count_distinct(xxhash64({key_names}))"
            ((delete_count, delete_key_count),) = newest_sample.selectExpr(
                "count(1)", distinct_keys_sql
            ).collect()
            sampled_rows = self.sample_view.data.where(self._sample_sql(key_set))
            ((row_key_count,),) = sampled_rows.selectExpr(
                f"approx_count_distinct(xxhash64({key_columns_sql}))"
            ).collect()
            yield (
                with_join_hint(newest_sample, delete_count)
                if min(row_key_count, delete_key_count) >= UNSEEN
                else None
            )
        finally:
            newest_sample.unpersist()

    def _sample_sql(self, key_set: KeySet) -> str:
        return sample_sql([column.sql for column in key_set.columns], self.salt, SAMPLED_KEYS)

    def _positions_deleted_by_join(self, key_sets: Sequence[KeySet]) -> Positions:
        """The rows that a plain join finds deleted."""
        deleted_by_set = [
            rows_of_keys(self.view, [key_set]).where("dead").select("f", "pos")
            for key_set in key_sets
        ]
        deleted_rows = reduce(lambda one, other: one.unionAll(other), deleted_by_set)
        delete_count = sum(key_set.records for key_set in key_sets)
        return positions_by_file(arrow_of(position_words(deleted_rows, delete_count)))

    def _check_no_fewer(self, joined_positions: Positions) -> None:
        """Check that all rows that a plain join finds would be deleted."""
        for file_number, file_positions in joined_positions.items():
            if missing_count := len(
                file_positions - self.written_deletes.found_positions.get(file_number, BitMap64())
            ):
                raise _differ(
                    f"in {self.inputs.data_files[file_number].path} "
                    f"{count(missing_count, 'deleted row')} would stay"
                )

    def _check_no_more(self, joined_positions: Positions) -> None:
        """Check that no row would be deleted but those that a plain join finds."""
        for file_number, found_positions in self.written_deletes.found_positions.items():
            if len(joined_positions.get(file_number, ())) < len(found_positions):
                raise _differ(
                    f"in {self.inputs.data_files[file_number].path} rows without a delete would "
                    "be deleted"
                )

    def _sampled_positions(
        self, key_sets: Sequence[KeySet], first_deletes: DataFrame
    ) -> tuple[Positions, Positions]:
        """All rows with one key in some: the dead ones, and the live ones."""
        record_count = self.inputs.data_records // SAMPLED_KEYS
        rows_with_keys = rows_of_keys(
            self.sample_view, key_sets, self._sample_sql(key_sets[0]), first_deletes
        )
        word_table = arrow_of(position_words(rows_with_keys, record_count, "dead"))
        is_dead = word_table.column("dead")
        return positions_by_file(word_table.filter(is_dead)), positions_by_file(
            word_table.filter(pc.invert(is_dead))
        )

    def _check_sample(self, dead_positions: Positions, live_positions: Positions) -> int:
        """Compare the rows with sampled keys, deleted or not; returns how many."""
        for file_number in {*dead_positions, *live_positions}:
            found_positions = self.written_deletes.found_positions.get(file_number, BitMap64())
            missing_count = len(dead_positions.get(file_number, BitMap64()) - found_positions)
            undeleted_count = len(live_positions.get(file_number, BitMap64()) & found_positions)
            if missing_count or undeleted_count:
                raise _differ(
                    f"for one key in {SAMPLED_KEYS}, in {self.inputs.data_files[file_number].path} "
                    f"{count(missing_count, 'deleted row')} would stay, and "
                    f"{count(undeleted_count, 'row')} without a delete would be deleted"
                )
        return sum(
            len(file_positions)
            for side in (dead_positions, live_positions)
            for file_positions in side.values()
        )

    def _check_files(self, sampled_tasks: Any) -> CheckedPositions:
        """Let Iceberg read some whole files with their deletes of now, and with those of after the
        commit; returns how many files and rows.

        Where it misreads the deletes of now, that proves nothing, and is only reported.
        """
        if not sampled_tasks:
            return CheckedPositions()
        if not all(column.is_read_correctly for column in self.inputs.keys.columns.values()):
            return self._disagreement(sampled_tasks)
        print_before = self._fingerprint(sampled_tasks)
        print_after = self._fingerprint(self.java.changed(sampled_tasks))
        if print_before != print_after:
            raise _differ(
                f"from {count(len(sampled_tasks), 'data file')}, Iceberg reads {print_before} "
                f"before the commit, and would read {print_after} after it"
            )
        return CheckedPositions(files=len(sampled_tasks), of_files=print_after.row_count)

    def _disagreement(self, sampled_tasks: Any) -> CheckedPositions:
        """What Iceberg's own reader shows now of some files, whose live rows it will show after the
        commit.
        """
        row_counts = shown_counts(self.staging, sampled_tasks)
        if row_counts is None:
            return CheckedPositions()
        live_count = self._fingerprint(self.java.changed(sampled_tasks)).row_count
        return CheckedPositions(
            unread_live=live_count, shown_with_columns=row_counts[0], shown_without=row_counts[1]
        )

    def _fingerprint(self, scan_tasks: Any) -> Fingerprint:
        with self.staging.staged_rows(scan_tasks) as rows:
            return fingerprint_of(rows, row_hash(rows.schema))


# What Iceberg's plan may show of a data file.
_WRONG = {
    "unlisted": "the equality deletes apply to {}, where no deleted row was looked for",
    "unplanned": "{} is not in the scan of the table",
    "mismatched": "Iceberg applies other equality deletes to {} than the conversion did",
    "misplaced": "the delete file of {} is of another partition",
    "kept": "a new deletion vector has to replace {}, but the commit would not remove it",
}


def _positions_sum_text(positions: BitMap64) -> str:
    """How many positions, and the sum of their hashes (:func:`row_hash`), as :func:`_sum_text`."""
    row_sums = RowSums()
    position_column = pa.array(sorted_array(positions))
    for start in range(0, len(position_column), _HASHED):
        row_sums.add(pa.record_batch([position_column.slice(start, _HASHED)], ["pos"]))
    return _sum_text(row_sums.rows, row_sums.hash_sum)


def _sum_text(position_count: int, hash_sum: int) -> str:
    """A number of positions, and the sum of their hashes modulo 2**64, as Java says it: signed."""
    hash_sum %= _WORDS
    return f"{position_count} {hash_sum - _WORDS if hash_sum >= _WORDS // 2 else hash_sum}"


def _differ(difference: str) -> RowsDiffer:
    return RowsDiffer.of("delete files", difference, "The equality deletes stay.")
