"""Look up the rows of some keys in all deletes, by a plain join that has nothing in common with the
rewrite's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.compact.group_rows import GroupRows
from icekit.compact.key import DELETED, FILE, HASH, ORDER, SAMPLED, Key
from icekit.prove.checked import SAMPLED_KEYS, UNSEEN
from icekit.prove.fingerprint import Fingerprint, summed
from icekit.resolve.applies import order_sql
from icekit.resolve.join import BROADCAST_KEYS, sampled
from icekit.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The most files of a group that are read for a plan.
DRAWN_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows with one in ``one_in`` of the keys of a key set: how many there are, and the
    fingerprint of those that live.
    """

    one_in: int
    rows: int
    live: Fingerprint


class SampledRows(GroupRows):
    """The rows of one group with some keys."""

    def _sample(self, key: Key, one_in: int) -> str:
        """SQL for whether a row, or a delete, has one of the sampled keys."""
        return sampled(key.values, self.rewrite.salt, one_in)

    def _identity(self, one_in: int) -> str:
        """SQL for the hash that identifies a sampled row: its keys and its file, and all columns
        where nothing else compares them well.

        That is so if Iceberg's own reader reads no file with deletes, and if the sample is to stand
        for all rows.
        """
        fields = dict.fromkeys(
            (identifier(*c.names), value)
            for each in self.keys
            for c, value in zip(each.columns, each.values, strict=True)
        )
        is_compared = int(self.java.applied(self.chosen, 2**62)) > 0 and one_in > 1
        values = [f"isnull({field}), {value}" for field, value in fields]
        more = [] if is_compared else [self.hash]
        return f"xxhash64({', '.join([*values, identifier(ORDER), identifier(FILE), *more])})"

    def _sampled(self, rows: DataFrame, key: Key) -> Sample:
        """The rows of one key in :data:`SAMPLED_KEYS`, or of every key if the sample has too few
        keys to show something.
        """
        if key.records >= UNSEEN * SAMPLED_KEYS:
            sample, keys = self._looked_up(rows, key, SAMPLED_KEYS)
            if keys >= UNSEEN:
                return sample
        return self._looked_up(rows, key, 1)[0]

    def drawn(self, keys: Sequence[Key], one_in: int, most_bytes: int) -> tuple[int, int]:
        """The rows with one in ``one_in`` keys, and how many of them are deleted; of some files, or
        none, if all have too many bytes.
        """
        most = min(
            DRAWN_FILES,
            int(self.tasks.size()) * most_bytes // max(1, int(self.group.inputFilesSizeInBytes())),
        )
        if not most:
            return 0, 0
        if most < int(self.tasks.size()):
            util: Any = self.spark._jvm.java.util  # type: ignore[union-attr]
            shuffled = util.ArrayList(self.tasks)
            util.Collections.shuffle(shuffled, util.Random(self.rewrite.salt))
            self.tasks = shuffled.subList(0, most)
        self.keys, key = tuple(keys), max(keys, key=lambda one: one.records)
        with (
            self.staging.reading(self.java.plain(self.tasks, self.is_numbered)) as rows,
            contextlib.ExitStack() as stack,
        ):
            self.hash = self._hash(rows)
            row = (
                self._marked(stack, rows, key, one_in)
                .selectExpr("count(*)", f"count_if({identifier(DELETED)})")
                .collect()[0]
            )
        return int(row[0]), int(row[1])

    def _looked_up(self, rows: DataFrame, key: Key, one_in: int) -> tuple[Sample, int]:
        """Look up the rows of some keys in all deletes, by a plain join on the keys themselves;
        also about how many keys the rows have.
        """
        from pyspark.sql import functions as F

        with contextlib.ExitStack() as stack:
            sums = self._marked(stack, rows, key, one_in).agg(
                F.count("*").alias("rows"),
                F.approx_count_distinct(SAMPLED).alias("keys"),
                *summed(HASH, "live", f"NOT {identifier(DELETED)}"),
            )
            row = sums.collect()[0].asDict()
        return Sample(one_in, int(row["rows"]), Fingerprint.of_sums(row, "live")), int(row["keys"])

    def _marked(
        self, stack: contextlib.ExitStack, rows: DataFrame, key: Key, one_in: int
    ) -> DataFrame:
        """The rows with some keys, each with its identity and whether a delete of any key deletes
        it.
        """
        from pyspark.sql import functions as F

        where = self._sample(key, one_in)
        placed = self._placed(
            self._numbered(rows.where(where)), self.staging.files(self.tasks), order_sql("sequence")
        )
        live = placed.selectExpr(
            "*",
            f"{self._identity(one_in)} AS {identifier(HASH)}",
            f"{key.hash(key.values)} AS {identifier(SAMPLED)}",
        )
        dead = F.lit(False)
        for each in self.keys:
            is_sampled = each.values == key.values
            newest = f"{DELETED} {each.number}"
            deletes = (
                self._deletes(stack, each, where if is_sampled else "true")
                .groupBy(*each.names)
                .agg(F.max(ORDER).alias(newest))
            )
            equal = F.col(newest) > F.col(ORDER)
            for value, name in zip(each.values, each.names, strict=True):
                equal = F.expr(value).eqNullSafe(F.col(name)) & equal
            few = each.records // (one_in if is_sampled else 1) <= BROADCAST_KEYS
            live = live.join(deletes.hint("broadcast" if few else "merge"), equal, "left").drop(
                *each.names
            )
            dead = dead | F.col(newest).isNotNull()
        return live.withColumn(DELETED, dead)
