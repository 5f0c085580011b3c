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
from icekit.rows.deletes.convert import NewDeletes, conversion_of, positions_by_file
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
from icekit.rows.proof.fingerprint import Fingerprint, prints, reading_settings, row_hash, summed_up
from icekit.rows.proof.readers import most_records, shown

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

    samples: Sequence[tuple[Positions, Positions]] = ()
    in_full: Positions | None = None


class PositionCheck:
    """The checks of one commit of a conversion; ``view`` is the key view of ``inputs``, None if its
    deletes apply to no file.
    """

    new_deletes: NewDeletes
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

    def _settings(self) -> Mapping[str, str]:
        records = max(
            self.inputs.data_records, sum(key_set.records for key_set in self.inputs.key_sets)
        )
        partitions = max(task_count(records), self.spark.sparkContext.defaultParallelism)
        return {
            **reading_settings(schema_of(self.inputs.snapshot_deletes.metadata)),
            # A cache of deletes may hide some (apache/iceberg 15039).
            CACHE_KEYS[1]: "false",
            "spark.sql.shuffle.partitions": str(partitions),
        }

    def look_up(self) -> None:
        """Look rows up by plain joins; this can be done before the positions are known."""
        with temporary_settings(self.spark, self._settings()):
            self._looked_up = self._look_up()

    def run(self, new_deletes: NewDeletes) -> Mapping[str, str]:
        """Check what is about to be committed; returns the tag that says what was checked, and
        raises :class:`RowsDiffer` if anything is wrong.
        """
        self.new_deletes = new_deletes
        self.java = conversion_of(self.spark, self.staging, new_deletes)
        with temporary_settings(self.spark, self._settings()):
            return {CHECKED_POSITIONS_TAG: self._run().text()}

    @property
    def view(self) -> KeyView:
        """The key view; only for deletes that apply to some file."""
        assert self._view is not None
        return self._view

    @cached_property
    def sample_view(self) -> KeyView:
        """The key view of the partitions in which a sample of keys is looked up."""
        parts = {file.partition_number for file in self.inputs.data_files}
        records_by_part: Counter[int] = Counter()
        for file in (*self.inputs.data_files, *self.inputs.delete_files):
            # Deletes of all partitions come to each.
            if file.partition_number in parts:
                records_by_part[file.partition_number] += file.records
        chosen_parts, self.one_partition_in = looked_up_partitions(records_by_part)
        return self.view if chosen_parts == parts else self.view.of_partitions(chosen_parts)

    def _run(self) -> CheckedPositions:
        """Make every check; raises if one fails."""
        resolved = sum(key_set.records for key_set in self.inputs.key_sets)
        with ThreadPoolExecutor(2) as pool:
            looking = None
            if self._looked_up is None:
                looking = pool.submit(with_thread_context(self.spark, self.look_up))
                # Spark has found the rows itself. Small work is mostly the driver's, so the other
                # checks go on beside it; of large work, each check needs the memory for itself.
                if self.inputs.data_records + resolved >= _SMALL:
                    looking.result()
            self._check_content()
            if path := self.java.wrong(self.inputs.is_last):
                raise _differ(
                    f"the commit would not remove the right delete files, of which one is {path}"
                )
            check_files = partial(self._check_files, self._planned())
            reading = pool.submit(with_thread_context(self.spark, check_files))
            if looking is not None:
                looking.result()
            sampled, one_in = self._check_looked_up()
            of_files = reading.result()
        return replace(
            of_files,
            positions=sum(map(len, self.new_deletes.written_positions.values())),
            resolved=resolved,
            sampled=sampled,
            one_in=one_in,
            one_partition_in=self.one_partition_in if one_in > 1 else 1,
        )

    def _check_content(self) -> None:
        """Compare what Iceberg reads from each new delete file with what it is to hold: the
        positions found, and those deleted before.
        """
        new_deletes = self.new_deletes
        # Iceberg's reader of deletes visits the rows of Parquet files one by one.
        is_many = sum(map(len, new_deletes.written_positions.values())) > _MANY_POSITIONS
        by_spark = is_many and self.inputs.snapshot_deletes.format_version < 3
        contents = self._read_by_spark() if by_spark else self._read_by_iceberg()
        if len(new_deletes.added_files) != len(new_deletes.written_positions):
            raise _differ(
                f"{count(len(new_deletes.added_files), 'delete file')} were written for "
                f"{count(len(new_deletes.written_positions), 'data file')}"
            )
        for index, (number, positions) in enumerate(new_deletes.written_positions.items()):
            file = self.inputs.data_files[number]
            new_positions = new_deletes.found_positions.get(number, BitMap64())
            earlier = new_deletes.earlier_positions.get(number, BitMap64())
            if positions != new_positions | earlier:
                raise _differ(
                    f"the positions for {file.path} are not those found and those deleted before"
                )
            # What a rewrite reads is counted again: the metadata may name fewer rows than there are.
            is_counted_again = self.inputs.snapshot_deletes.listing.tasks is not None
            if (last := positions.max()) >= file.records and not is_counted_again:
                raise _differ(
                    f"row {last:,} of {file.path} would be deleted, which has only "
                    f"{count(file.records, 'row')}"
                )
            read = contents.get(index, "no")
            if read != f"{_summed(positions)} {file.path}":
                raise _differ(
                    f"Iceberg reads {read.split()[0]} deleted positions of {file.path}, but not "
                    f"the {len(positions):,} that were found"
                )

    def _read_by_iceberg(self) -> Mapping[int, str]:
        """What Iceberg reads from each new delete file, by its place: the positions, as
        :func:`_summed`, and the data file.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts = pool.map(
                lambda first: str(self.java.positions(first, _AT_ONCE)), range(_AT_ONCE)
            )
            return {
                first + _AT_ONCE * row: text
                for first, texts_of in enumerate(texts)
                for row, text in enumerate(texts_of.split("\0"))
            }

    def _read_by_spark(self) -> Mapping[int, str]:
        """The same in one query, which reads many rows at a time."""
        from pyspark.sql import types as T

        of_position = row_hash(T.StructType([T.StructField("pos", T.LongType())]))
        of_path = row_hash(T.StructType([T.StructField("file_path", T.StringType())]))
        snapshot_deletes = self.inputs.snapshot_deletes
        staging = KeyTable.of_fields(
            self.spark, snapshot_deletes.table, snapshot_deletes.metadata, _POSITION_FIELDS
        ).staging
        paths = str(self.java.referenced()).split("\0")
        path_hashes = row_hashes(pa.record_batch([pa.array(paths)], ["path"])).tolist()
        contents: dict[int, str] = {}
        with staging.staged_rows(staging.java.asData(list(self.new_deletes.added_files))) as rows:
            # The tasks number the files as if these were specs.
            hashed = rows.selectExpr("_spec_id AS k0", f"{of_path} AS k1", f"{of_position} AS h")
            for key, sums in prints(hashed).items():
                file, path_hash = cast("tuple[int, int]", key)
                # One of several paths in a file is another than that of its data file.
                is_only_path = file not in contents and path_hash % _WORDS == path_hashes[file]
                path = paths[file] if is_only_path else "another data file than it is for"
                contents[file] = f"{_sums_text(sums.row_count, sums.value)} {path}"
        return contents

    def _planned(self) -> Any:
        """Compare the listing with how Iceberg plans a scan; returns some of its tasks, with the
        deletes that it applies to each.
        """
        new_deletes = self.new_deletes
        inputs = self.inputs
        most_deletes = most_records(cluster_of(self.spark).executor)
        result = self.java.planned(
            inputs.snapshot_deletes.snapshot_id,
            inputs.snapshot_deletes.listing.tasks,
            files_text(inputs.data_files),
            *inputs.data_slice,
            SAMPLED_FILES,
            most_deletes,
            self.salt,
        )
        for key, text in _WRONG.items():
            if path := result.get(key):
                raise _differ(text.format(path))
        for number, line in zip(
            new_deletes.written_positions, str(result.get("earlier")).splitlines(), strict=True
        ):
            if line not in {"?", _summed(new_deletes.earlier_positions.get(number, BitMap64()))}:
                raise _differ(
                    f"the positions read as deleted before in {inputs.data_files[number].path} are not "
                    "those that Iceberg applies"
                )
        return result.get("chosen")

    def _look_up(self) -> _LookedUp:
        """Look up keys of each set by a plain join: one in :data:`SAMPLED_KEYS`, or every key if a
        sample shows too little.
        """
        if not self._view:
            return _LookedUp()
        key_sets = self.inputs.key_sets
        samples = []
        few_keys: list[KeySet] = []
        for key_set in key_sets:
            with self._sampled_deletes(key_set) as deletes:
                if deletes is None:
                    few_keys.append(key_set)
                else:
                    others = [other for other in key_sets if other is not key_set]
                    samples.append(self._sampled([key_set, *others], deletes))
        return _LookedUp(samples, self._rows_deleted_by_join(few_keys) if few_keys else None)

    def _check_looked_up(self) -> tuple[int, int]:
        """Compare the rows that were looked up with those that would be deleted; returns how many
        rows, and one in how many keys.
        """
        assert self._looked_up is not None
        samples = self._looked_up.samples
        in_full = self._looked_up.in_full
        if not self._view:
            return 0, 1
        rows = sum(self._check_sample(dead, live) for dead, live in samples)
        if in_full is not None:
            self._check_no_fewer(in_full)
            if not samples:
                self._check_no_more(in_full)
                return self.inputs.data_records, 1
        return rows, SAMPLED_KEYS

    @contextlib.contextmanager
    def _sampled_deletes(self, key_set: KeySet) -> Iterator[DataFrame | None]:
        """The newest delete of each sampled key of a set; None if the deletes in a sample, or the
        rows, have too few different keys to show something.
        """
        if key_set.records < _FEW or self.inputs.data_records + key_set.records < _SMALL:
            yield None
            return
        deletes = newest_deletes(self.sample_view, key_set, self._sample(key_set)).persist()
        try:
            # In how many partitions of the table a key is does not matter.
            names = ", ".join(f"k{i}" for i in range(len(key_set.columns)))
            columns = ", ".join(column.sql for column in key_set.columns)
            deleted_keys = f"approx_count_distinct(xxhash64({names}))"
            ((records, of_deletes),) = deletes.selectExpr("count(1)", deleted_keys).collect()
            rows = self.sample_view.data.where(self._sample(key_set))
            ((of_rows,),) = rows.selectExpr(f"approx_count_distinct(xxhash64({columns}))").collect()
            yield with_join_hint(deletes, records) if min(of_rows, of_deletes) >= UNSEEN else None
        finally:
            deletes.unpersist()

    def _sample(self, key_set: KeySet) -> str:
        return sample_sql([column.sql for column in key_set.columns], self.salt, SAMPLED_KEYS)

    def _rows_deleted_by_join(self, key_sets: Sequence[KeySet]) -> Positions:
        """The rows that a plain join finds deleted."""
        frames = [
            rows_of_keys(self.view, [key_set]).where("dead").select("f", "pos")
            for key_set in key_sets
        ]
        deleted_rows = reduce(lambda one, other: one.unionAll(other), frames)
        records = sum(key_set.records for key_set in key_sets)
        return positions_by_file(arrow_of(position_words(deleted_rows, records)))

    def _check_no_fewer(self, by_number: Positions) -> None:
        """Check that all rows that a plain join finds would be deleted."""
        for number, deleted in by_number.items():
            if lost := len(deleted - self.new_deletes.found_positions.get(number, BitMap64())):
                raise _differ(
                    f"in {self.inputs.data_files[number].path} {count(lost, 'deleted row')} would stay"
                )

    def _check_no_more(self, by_number: Positions) -> None:
        """Check that no row would be deleted but those that a plain join finds."""
        for number, positions in self.new_deletes.found_positions.items():
            if len(by_number.get(number, ())) < len(positions):
                raise _differ(
                    f"in {self.inputs.data_files[number].path} rows without a delete would be deleted"
                )

    def _sampled(
        self, key_sets: Sequence[KeySet], deletes: DataFrame
    ) -> tuple[Positions, Positions]:
        """All rows with one key in some: the dead ones, and the live ones."""
        records = self.inputs.data_records // SAMPLED_KEYS
        keyed_rows = rows_of_keys(self.sample_view, key_sets, self._sample(key_sets[0]), deletes)
        rows_by_position = arrow_of(position_words(keyed_rows, records, "dead"))
        is_dead = rows_by_position.column("dead")
        return positions_by_file(rows_by_position.filter(is_dead)), positions_by_file(
            rows_by_position.filter(pc.invert(is_dead))
        )

    def _check_sample(self, dead: Positions, live: Positions) -> int:
        """Compare the rows with sampled keys, deleted or not; returns how many."""
        for number in {*dead, *live}:
            deleted = self.new_deletes.found_positions.get(number, BitMap64())
            missing_count = len(dead.get(number, BitMap64()) - deleted)
            undeleted_count = len(live.get(number, BitMap64()) & deleted)
            if missing_count or undeleted_count:
                raise _differ(
                    f"for one key in {SAMPLED_KEYS}, in {self.inputs.data_files[number].path} "
                    f"{count(missing_count, 'deleted row')} would stay, and {count(undeleted_count, 'row')} without "
                    "a delete would be deleted"
                )
        return sum(len(positions) for side in (dead, live) for positions in side.values())

    def _check_files(self, sampled_tasks: Any) -> CheckedPositions:
        """Let Iceberg read some whole files with their deletes of now, and with those of after the
        commit; returns how many files and rows.

        Where it misreads the deletes of now, that proves nothing, and is only reported.
        """
        if not sampled_tasks:
            return CheckedPositions()
        if not all(column.is_read_correctly for column in self.inputs.keys.columns.values()):
            return self._disagreement(sampled_tasks)
        before = self._read(sampled_tasks)
        after = self._read(self.java.changed(sampled_tasks))
        if before != after:
            raise _differ(
                f"from {count(len(sampled_tasks), 'data file')}, Iceberg reads {before} before "
                f"the commit, and would read {after} after it"
            )
        return CheckedPositions(files=len(sampled_tasks), of_files=after.row_count)

    def _disagreement(self, sampled_tasks: Any) -> CheckedPositions:
        """What Iceberg's own reader shows now of some files, whose live rows it will show after the
        commit.
        """
        rows_shown = shown(self.staging, sampled_tasks)
        if rows_shown is None:
            return CheckedPositions()
        live_count = self._read(self.java.changed(sampled_tasks)).row_count
        return CheckedPositions(
            unread_live=live_count, shown_with_columns=rows_shown[0], shown_without=rows_shown[1]
        )

    def _read(self, tasks: Any) -> Fingerprint:
        with self.staging.staged_rows(tasks) as rows:
            return summed_up(rows, row_hash(rows.schema))


# What Iceberg's plan may show of a data file.
_WRONG = {
    "unlisted": "the equality deletes apply to {}, where no deleted row was looked for",
    "unplanned": "{} is not in the scan of the table",
    "mismatched": "Iceberg applies other equality deletes to {} than the conversion did",
    "misplaced": "the delete file of {} is of another partition",
    "kept": "a new deletion vector has to replace {}, but the commit would not remove it",
}


def _summed(positions: BitMap64) -> str:
    """How many positions, and the sum of their hashes (:func:`row_hash`), as :func:`_sums_text`."""
    sums = RowSums()
    column = pa.array(sorted_array(positions))
    for start in range(0, len(column), _HASHED):
        sums.add(pa.record_batch([column.slice(start, _HASHED)], ["pos"]))
    return _sums_text(sums.rows, sums.value)


def _sums_text(rows: int, value: int) -> str:
    """A number of positions, and the sum of their hashes modulo 2**64, as Java says it: signed."""
    value %= _WORDS
    return f"{rows} {value - _WORDS if value >= _WORDS // 2 else value}"


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer.of("delete files", what, "The equality deletes stay.")
