"""Look up the rows of some keys in the old files of a group, and whether equality deletes delete
them, by a plain join on the keys themselves: it has nothing in common with the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.sql import identifier
from icekit.rows.deletes.join import sample_sql, with_join_hint
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
    rows: int
    live: Fingerprint


class KeySamples:
    """Samples of the rows of some scan tasks, by the keys of their equality deletes; ``hash_sql``
    is the hash of a whole row.
    """

    def __init__(
        self, rewrite: RewriteSession, tasks: Any, keys: Sequence[Key], hash_sql: str
    ) -> None:
        self.rewrite = rewrite
        self.tasks = tasks
        self.keys = keys
        self.hash_sql = hash_sql
        self.staging = rewrite.staging
        self.added = rewrite.added

    def by_key(self) -> Mapping[Key, Sample]:
        """The rows of one key in :data:`SAMPLED_KEYS`, or of every key if the sample has too few
        keys to show something.
        """
        with self.staging.staged_rows(self.staging.java.plain(self.tasks)) as rows:
            return {key: self._sample(rows, key) for key in self.keys}

    def _sample(self, rows: DataFrame, key: Key) -> Sample:
        if key.records >= UNSEEN * SAMPLED_KEYS:
            sample, keys = self._looked_up(rows, key, SAMPLED_KEYS)
            if keys >= UNSEEN:
                return sample
        return self._looked_up(rows, key, 1)[0]

    def _looked_up(self, rows: DataFrame, key: Key, one_in: int) -> tuple[Sample, int]:
        """The sample of one key in so many; also about how many keys its rows have."""
        from pyspark.sql import functions as F

        added = self.added
        with contextlib.ExitStack() as stack:
            marked = self._marked(stack, rows, key, one_in)
            sums = marked.agg(
                F.count("*").alias("rows"),
                F.approx_count_distinct(added.sampled).alias("keys"),
                *hash_sums(added.hash, "live", f"NOT {identifier(added.deleted)}"),
            )
            row = sums.collect()[0].asDict()
        return Sample(one_in, int(row["rows"]), Fingerprint.of_sums(row, "live")), int(row["keys"])

    def _marked(
        self, stack: contextlib.ExitStack, rows: DataFrame, key: Key, one_in: int
    ) -> DataFrame:
        """The rows with some keys, each with its hash and whether a delete of any key applies."""
        from pyspark.sql import functions as F

        added = self.added
        salt = self.rewrite.salt
        placed_rows = self._placed(
            rows.where(sample_sql(key.row_values_sql, salt, one_in)), self.tasks
        )
        marked = placed_rows.selectExpr(
            "*",
            f"{self.hash_sql} AS {identifier(added.hash)}",
            f"xxhash64({', '.join(key.row_values_sql)}) AS {identifier(added.sampled)}",
        )
        is_deleted = F.lit(False)
        for each in self.keys:
            has_same_columns = each.row_values_sql == key.row_values_sql
            where = sample_sql(each.delete_values_sql, salt, one_in) if has_same_columns else "true"
            newest = f"{added.deleted} {each.key_index}"
            deletes = (
                self._deletes(stack, each, where)
                .groupBy(*each.delete_columns)
                .agg(F.max(added.sequence).alias(newest))
            )
            equal = F.col(newest) > F.col(added.sequence)
            for value, name in zip(each.row_values_sql, each.delete_columns, strict=True):
                equal = F.expr(value).eqNullSafe(F.col(name)) & equal
            records = each.records // (one_in if has_same_columns else 1)
            marked = marked.join(with_join_hint(deletes, records), equal, "left").drop(
                *each.delete_columns
            )
            is_deleted = is_deleted | F.col(newest).isNotNull()
        return marked.withColumn(added.deleted, is_deleted)

    def _deletes(self, stack: contextlib.ExitStack, key: Key, where: str) -> DataFrame:
        """The deleted keys, each with the sequence number of its delete file."""
        rows = stack.enter_context(
            key.staging.staged_rows(key.staging.java.asData(key.delete_files))
        )
        keys = [
            f"{value} AS {identifier(name)}"
            for value, name in zip(key.delete_values_sql, key.delete_columns, strict=True)
        ]
        placed_rows = self._placed(rows.where(where), key.delete_files)
        return placed_rows.selectExpr(*keys, identifier(self.added.sequence))

    def _placed(self, rows: DataFrame, files: Any) -> DataFrame:
        """Rows of some files, with the path and the sequence number of their file."""
        from pyspark.sql import functions as F

        added = self.added
        file_sequences = self.staging.file_sequences(files).toDF(
            added.listed_file, added.listed_sequence
        )
        # No delete would apply to a row whose file is not listed.
        sequence = (
            f"coalesce({identifier(added.listed_sequence)}, raise_error(concat("
            f"'icekit: not a file of this rewrite: ', {identifier(added.file)})))"
        )
        joined = rows.select("*", F.input_file_name().alias(added.file)).join(
            file_sequences.hint("broadcast"), F.col(added.file) == F.col(added.listed_file), "left"
        )
        return joined.withColumn(added.sequence, F.expr(sequence)).drop(
            added.listed_file, added.listed_sequence
        )
