"""Look up the rows of some keys in the old files of a group, and whether equality deletes delete
them, by a plain join on the keys themselves: it has nothing in common with the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.rows.deletes.join import sample_sql, with_join_hint, with_newest_delete
from icekit.rows.proof.checked import SAMPLED_KEYS, UNSEEN
from icekit.rows.proof.fingerprint import Fingerprint, hash_sums
from icekit.rows.rewrite.key import Key
from icekit.rows.rewrite.rewrite_session import RewriteSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@frozen
class Sample:
    """The rows with one in ``one_in`` of the keys of a key set: how many there are, and the
    fingerprint of those that live.
    """

    one_in: int
    row_count: int
    live_print: Fingerprint


class KeySamples:
    """Samples of the rows of some scan tasks, by the keys of their equality deletes; ``hash_sql``
    is the hash of a whole row.
    """

    def __init__(
        self, rewrite: RewriteSession, scan_tasks: Any, keys: Sequence[Key], hash_sql: str
    ) -> None:
        self.rewrite = rewrite
        self.tasks = scan_tasks
        self.keys = keys
        self.hash_sql = hash_sql
        self.staging = rewrite.staging
        self.added = rewrite.added

    def samples_by_key(self) -> Mapping[Key, Sample]:
        """The rows of one key in :data:`SAMPLED_KEYS`, or of every key if the sample has too few
        keys to show something.
        """
        with self.staging.staged_rows(self.staging.java.plain(self.tasks)) as rows:
            return {key: self._sample_of(rows, key) for key in self.keys}

    def _sample_of(self, rows: DataFrame, key: Key) -> Sample:
        if key.records >= UNSEEN * SAMPLED_KEYS:
            sample, key_count = self._sample_and_key_count(rows, key, SAMPLED_KEYS)
            if key_count >= UNSEEN:
                return sample
        return self._sample_and_key_count(rows, key, 1)[0]

    def _sample_and_key_count(self, rows: DataFrame, key: Key, one_in: int) -> tuple[Sample, int]:
        """The sample of one key in so many; also about how many keys its rows have."""
        from pyspark.sql import functions as F

        added = self.added
        with contextlib.ExitStack() as stack:
            marked_rows = self._marked_rows(stack, rows, key, one_in)
            sum_row = marked_rows.agg(
                F.count("*").alias("rows"),
                F.approx_count_distinct(added.sampled).alias("keys"),
                *hash_sums(added.hash, "live", f"NOT {identifier(added.deleted)}"),
            )
            row = sum_row.collect()[0].asDict()
        return Sample(one_in, int(row["rows"]), Fingerprint.of_sums(row, "live")), int(row["keys"])

    def _marked_rows(
        self, stack: contextlib.ExitStack, rows: DataFrame, key: Key, one_in: int
    ) -> DataFrame:
        """The rows with some keys, each with its hash and whether a delete of any key applies."""
        from pyspark.sql import functions as F

        row_columns = self.added
        salt = self.rewrite.salt
        placed_rows = self._with_sequence(
            rows.where(sample_sql(key.row_values_sql, salt, one_in)), self.tasks
        )
        marked_rows = placed_rows.selectExpr(
            "*",
            f"{self.hash_sql} AS {identifier(row_columns.hash)}",
            f"xxhash64({', '.join(key.row_values_sql)}) AS {identifier(row_columns.sampled)}",
        )
        is_deleted = F.lit(False)
        for other_key in self.keys:
            has_same_columns = other_key.row_values_sql == key.row_values_sql
            filter_sql = (
                sample_sql(other_key.delete_values_sql, salt, one_in)
                if has_same_columns
                else "true"
            )
            newest_column = f"{row_columns.deleted} {other_key.key_index}"
            deletes_of_key = (
                self._deleted_keys(stack, other_key, filter_sql)
                .groupBy(*other_key.delete_columns)
                .agg(F.max(row_columns.sequence).alias(newest_column))
            )
            record_count = other_key.records // (one_in if has_same_columns else 1)
            marked_rows = with_newest_delete(
                marked_rows,
                with_join_hint(deletes_of_key, record_count),
                other_key.row_values_sql,
                row_columns.sequence,
            )
            is_deleted = is_deleted | F.col(newest_column).isNotNull()
        return marked_rows.withColumn(row_columns.deleted, is_deleted)

    def _deleted_keys(self, stack: contextlib.ExitStack, key: Key, filter_sql: str) -> DataFrame:
        """The deleted keys, each with the sequence number of its delete file."""
        rows = stack.enter_context(
            key.staging.staged_rows(key.staging.java.asData(key.delete_files))
        )
        key_columns_sql = [
            f"{value_sql} AS {identifier(column_name)}"
            for value_sql, column_name in zip(
                key.delete_values_sql, key.delete_columns, strict=True
            )
        ]
        placed_rows = self._with_sequence(rows.where(filter_sql), key.delete_files)
        return placed_rows.selectExpr(*key_columns_sql, identifier(self.added.sequence))

    def _with_sequence(self, rows: DataFrame, listed_files: Any) -> DataFrame:
        """Rows of some files, with the path and the sequence number of their file."""
        from pyspark.sql import functions as F

        added = self.added
        file_sequences = self.staging.file_sequences(listed_files).toDF(
            added.listed_file, added.listed_sequence
        )
        # No delete would apply to a row whose file is not listed.
        sequence_sql = (
            f"coalesce({identifier(added.listed_sequence)}, raise_error(concat("
            f"'icekit: not a file of this rewrite: ', {identifier(added.file)})))"
        )
        joined_rows = rows.select("*", F.input_file_name().alias(added.file)).join(
            file_sequences.hint("broadcast"), F.col(added.file) == F.col(added.listed_file), "left"
        )
        return joined_rows.withColumn(added.sequence, F.expr(sequence_sql)).drop(
            added.listed_file, added.listed_sequence
        )
