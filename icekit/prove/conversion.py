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
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyroaring import BitMap64

from icekit.common.units import count
from icekit.deletes.convert import Pending, by_file
from icekit.deletes.delete_files import listed
from icekit.deletes.join import deduplicated, hinted, looked_up, sampled, tasks, words
from icekit.deletes.key_view import KeyView
from icekit.deletes.keys import KeySet
from icekit.deletes.listing import placed
from icekit.engine.bridge import compiled, for_thread, lent
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.compat import arrow_of
from icekit.engine.staging import Staging
from icekit.health.metadata import schema_of
from icekit.prove.checked import (
    CHECKED_POSITIONS_TAG,
    SAMPLED_FILES,
    SAMPLED_KEYS,
    UNSEEN,
    CheckedPositions,
    RowsDiffer,
    looked_up_partitions,
)
from icekit.prove.fingerprint import Fingerprint, reading_settings, row_hash, summed_up
from icekit.prove.readers import most_records, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Delete files that are read at the same time.
_AT_ONCE = 4
# With fewer delete records, every key is looked up: a sample would show little, and might be empty.
_FEW = UNSEEN * SAMPLED_KEYS
# With fewer rows and delete records together, too: that is one query, where a sample is four.
_SMALL = 1_000_000


def check_positions(pending: Pending) -> Mapping[str, str]:
    """Check what a conversion is about to commit; returns the tag that says what was checked, and
    raises :class:`RowsDiffer` if anything is wrong.
    """
    spark = pending.spark
    found = pending.found
    check = _Check(pending, Staging(spark, found.at.table))
    records = max(found.data_records, sum(key_set.records for key_set in found.key_sets))
    partitions = max(tasks(records), spark.sparkContext.defaultParallelism)
    settings = {
        **reading_settings(schema_of(pending.found.at.metadata)),
        # A cache of deletes may hide some (apache/iceberg 15039).
        CACHE_KEYS[1]: "false",
        "spark.sql.shuffle.partitions": str(partitions),
    }
    with lent(spark, settings):
        return {CHECKED_POSITIONS_TAG: check.run().text()}


class _Check:
    """The checks of one commit of a conversion."""

    def __init__(self, pending: Pending, staging: Staging) -> None:
        self.pending, self.staging = pending, staging
        self.spark, self.found = pending.spark, pending.found
        self.salt = random.getrandbits(31)
        #: About one partition in so many is looked up, by their records.
        self.one_partition_in = 1
        self.java = compiled(
            self.spark,
            staging.table,
            "Conversion",
            staging.java,
            list(pending.added),
            list(pending.removed),
            placed(self.found.deletes),
        )

    @property
    def view(self) -> KeyView:
        """The key view; only for deletes that apply to some file."""
        assert self.pending.view is not None
        return self.pending.view

    @cached_property
    def sample_view(self) -> KeyView:
        """The key view of the partitions in which a sample of keys is looked up."""
        parts = {file.part for file in self.found.data}
        records_by_part: Counter[int] = Counter()
        for file in (*self.found.data, *self.found.deletes):
            # Deletes of all partitions come to each.
            if file.part in parts:
                records_by_part[file.part] += file.records
        chosen, self.one_partition_in = looked_up_partitions(records_by_part)
        return self.view if chosen == parts else self.view.of_parts(chosen)

    def run(self) -> CheckedPositions:
        """Make every check; raises if one fails."""
        resolved = sum(key_set.records for key_set in self.found.key_sets)
        with ThreadPoolExecutor(2) as pool:
            looking = pool.submit(for_thread(self.spark, self._look_up))
            # Small work is mostly the driver's, so the other checks go on beside it; of large work,
            # each check needs the memory for itself.
            if self.found.data_records + resolved >= _SMALL:
                looking.result()
            self._check_content()
            if path := self.java.wrong(self.found.is_last):
                raise _differ(
                    f"the commit would not remove the right delete files, of which one is {path}"
                )
            check_files = partial(self._check_files, self._planned())
            reading = pool.submit(for_thread(self.spark, check_files))
            sampled, one_in = looking.result()
            of_files = reading.result()
        return replace(
            of_files,
            positions=sum(map(len, self.pending.written.values())),
            resolved=resolved,
            sampled=sampled,
            one_in=one_in,
            one_partition_in=self.one_partition_in if one_in > 1 else 1,
        )

    def _check_content(self) -> None:
        """Compare what Iceberg reads from each new delete file with what it is to hold: the
        positions found, and those deleted before.
        """
        pending = self.pending
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            texts = list(
                pool.map(lambda first: str(self.java.positions(first, _AT_ONCE)), range(_AT_ONCE))
            )
        lines = [text.split("\0") for text in texts]
        if len(pending.added) != len(pending.written):
            raise _differ(
                f"{count(len(pending.added), 'delete file')} were written for "
                f"{count(len(pending.written), 'data file')}"
            )
        for index, (number, positions) in enumerate(pending.written.items()):
            file = self.found.data[number]
            found, earlier = (
                which.get(number, BitMap64()) for which in (pending.dead, pending.earlier)
            )
            if positions != found | earlier:
                raise _differ(
                    f"the positions for {file.path} are not those found and those deleted before"
                )
            if (last := positions.max()) >= file.records:
                raise _differ(
                    f"row {last:,} of {file.path} would be deleted, which has only "
                    f"{count(file.records, 'row')}"
                )
            read = lines[index % _AT_ONCE][index // _AT_ONCE]
            if read != f"{_summed(positions)} {file.path}":
                raise _differ(
                    f"Iceberg reads {read.split()[0]} deleted positions of {file.path}, but not "
                    f"the {len(positions):,} that were found"
                )

    def _planned(self) -> Any:
        """Compare the listing with how Iceberg plans a scan; returns some of its tasks, with the
        deletes that it applies to each.
        """
        pending, found = self.pending, self.found
        most = most_records(cluster_of(self.spark).executor)
        result = self.java.planned(
            found.at.snapshot_id,
            placed(found.data),
            *found.slices,
            SAMPLED_FILES,
            most,
            self.salt,
        )
        for key, text in _WRONG.items():
            if path := result.get(key):
                raise _differ(text.format(path))
        for number, line in zip(
            pending.written, str(result.get("earlier")).splitlines(), strict=True
        ):
            if line not in {"?", _summed(pending.earlier.get(number, BitMap64()))}:
                raise _differ(
                    f"the positions read as deleted before in {found.data[number].path} are not "
                    "those that Iceberg applies"
                )
        return result.get("chosen")

    def _look_up(self) -> tuple[int, int]:
        """Look up keys of each set by a plain join: one in :data:`SAMPLED_KEYS`, or every key if a
        sample shows too little; returns of how many rows, and one in how many keys.
        """
        if not self.pending.view:
            return 0, 1
        key_sets = self.found.key_sets
        rows, in_full = 0, list[KeySet]()
        for key_set in key_sets:
            with self._sampled_deletes(key_set) as deletes:
                if deletes is None:
                    in_full.append(key_set)
                else:
                    others = [other for other in key_sets if other is not key_set]
                    rows += self._sampled([key_set, *others], deletes)
        if in_full:
            by_number = self._found(in_full)
            if len(in_full) == len(key_sets):
                self._check_no_more(by_number)
                return self.found.data_records, 1
        return rows, SAMPLED_KEYS

    @contextlib.contextmanager
    def _sampled_deletes(self, key_set: KeySet) -> Iterator[DataFrame | None]:
        """The newest delete of each sampled key of a set; None if the deletes in a sample, or the
        rows, have too few different keys to show something.
        """
        if key_set.records < _FEW or self.found.data_records + key_set.records < _SMALL:
            yield None
            return
        deletes = deduplicated(self.sample_view, key_set, self._sample(key_set)).persist()
        try:
            records = deletes.count()
            # In how many partitions of the table a key is does not matter.
            names = [f"k{i}" for i in range(len(key_set.columns))]
            columns = ", ".join(column.sql for column in key_set.columns)
            rows = self.sample_view.data.where(self._sample(key_set))
            (of_rows,) = rows.selectExpr(f"approx_count_distinct(xxhash64({columns}))").collect()
            keys = min(int(of_rows[0]), deletes.select(*names).distinct().count())
            yield hinted(deletes, records) if keys >= UNSEEN else None
        finally:
            deletes.unpersist()

    def _sample(self, key_set: KeySet) -> str:
        return sampled([column.sql for column in key_set.columns], self.salt, SAMPLED_KEYS)

    def _found(self, key_sets: Sequence[KeySet]) -> dict[int, BitMap64]:
        """The rows that a plain join finds deleted, after a check that all of them would be."""
        frames = [
            looked_up(self.view, [key_set]).where("dead").select("f", "pos") for key_set in key_sets
        ]
        every = reduce(lambda one, other: one.unionAll(other), frames)
        records = sum(key_set.records for key_set in key_sets)
        by_number = by_file(arrow_of(words(every, records)))
        for number, deleted in by_number.items():
            if lost := len(deleted - self.pending.dead.get(number, BitMap64())):
                raise _differ(
                    f"in {self.found.data[number].path} {count(lost, 'deleted row')} would stay"
                )
        return by_number

    def _check_no_more(self, by_number: Mapping[int, BitMap64]) -> None:
        """Check that no row would be deleted but those that a plain join finds."""
        for number, positions in self.pending.dead.items():
            if len(by_number.get(number, ())) < len(positions):
                raise _differ(
                    f"in {self.found.data[number].path} rows without a delete would be deleted"
                )

    def _sampled(self, key_sets: Sequence[KeySet], deletes: DataFrame) -> int:
        """Compare all rows with one key in some, deleted or not; returns how many."""
        records = self.found.data_records // SAMPLED_KEYS
        rows = looked_up(self.sample_view, key_sets, self._sample(key_sets[0]), deletes)
        got = arrow_of(words(rows, records, "dead"))
        dead, live = (
            by_file(got.filter(got.column("dead"))),
            by_file(got.filter(pc.invert(got.column("dead")))),
        )
        for number in {*dead, *live}:
            deleted = self.pending.dead.get(number, BitMap64())
            lost = len(dead.get(number, BitMap64()) - deleted)
            taken = len(live.get(number, BitMap64()) & deleted)
            if lost or taken:
                raise _differ(
                    f"for one key in {SAMPLED_KEYS}, in {self.found.data[number].path} "
                    f"{count(lost, 'deleted row')} would stay, and {count(taken, 'row')} without "
                    "a delete would be deleted"
                )
        return sum(len(positions) for side in (dead, live) for positions in side.values())

    def _check_files(self, chosen: Any) -> CheckedPositions:
        """Let Iceberg read some whole files with their deletes of now, and with those of after the
        commit; returns how many files and rows.

        Where it misreads the deletes of now, that proves nothing, and is only reported.
        """
        if not chosen:
            return CheckedPositions()
        if not all(column.is_read_right for column in self.found.keys.columns.values()):
            return self._disagreement(chosen)
        before = self._read(chosen)
        after = self._read(self.java.changed(chosen))
        if before != after:
            raise _differ(
                f"from {count(len(chosen), 'data file')}, Iceberg reads {before} before "
                f"the commit, and would read {after} after it"
            )
        return CheckedPositions(files=len(chosen), of_files=after.row_count)

    def _disagreement(self, chosen: Any) -> CheckedPositions:
        """What Iceberg's own reader shows now of some files, whose live rows it will show after the
        commit.
        """
        rows_shown = shown(self.staging, chosen)
        if rows_shown is None:
            return CheckedPositions()
        live = self._read(self.java.changed(chosen)).row_count
        return CheckedPositions(
            unread_live=live, shown_with_columns=rows_shown[0], shown_without=rows_shown[1]
        )

    def _read(self, tasks: Any) -> Fingerprint:
        with self.staging.reading(tasks) as rows:
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
    """How many positions, and the sum of their hashes, as Java says it: the last steps of
    SplitMix64, modulo 2**64, as a signed number.
    """
    import numpy as np

    mixed = listed(positions).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return f"{len(positions)} {int(mixed.sum(dtype=np.uint64).astype(np.int64))}"


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer.of(
        "delete files", what, "`icekit compact` removes these deletes in another way."
    )
