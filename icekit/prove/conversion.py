"""Check the delete files of a conversion before they are committed: their content, their places, and a sample of rows by other means."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from icekit.engine.bridge import java_list, lent
from icekit.engine.cluster import CACHE_KEYS, cluster_of
from icekit.engine.compat import arrow_of
from icekit.engine.staging import Staging
from icekit.facts.metadata import schema_of
from icekit.prove.commits import most_records
from icekit.prove.fingerprint import Fingerprint, exact_case, row_hash, summed_up
from icekit.prove.proof import CHECKED_POSITIONS_TAG, SAMPLED_FILES, SAMPLED_KEYS, UNSEEN, CheckedPositions, RowsDiffer
from icekit.resolve.convert import Pending, by_file
from icekit.resolve.delete_files import Positions
from icekit.resolve.join import looked_up, path_to, words
from icekit.units import count

if TYPE_CHECKING:
    import numpy.typing as npt

# Delete files that are read at the same time.
_AT_ONCE = 4


def check_positions(pending: Pending) -> Mapping[str, str]:
    """Check what a conversion is about to commit; returns the tag that says what was checked, and raises :class:`RowsDiffer` if anything is wrong.

    Returns no tag, so that the commit is compared in full afterwards, where Iceberg cannot plan the table's deletes (a key column was dropped), and where the
    JVM compiles no classes.
    """
    fields = schema_of(pending.found.at.metadata)["fields"]
    if not all(path_to(fields, field_id) for field_id in pending.found.keys.columns):
        return {}
    try:
        staging = Staging(pending.spark, pending.found.at.table)
    except Exception:
        return {}
    return {CHECKED_POSITIONS_TAG: _Check(pending, staging).run().text()}


class _Check:
    """The checks of one commit of a conversion."""

    def __init__(self, pending: Pending, staging: Staging) -> None:
        self.pending, self.staging = pending, staging
        self.spark, self.found, self.java = pending.spark, pending.found, staging.java
        self.salt = random.getrandbits(31)

    def run(self) -> CheckedPositions:
        names = [str(field["name"]) for field in schema_of(self.found.at.metadata)["fields"]]
        # A cache of deletes may hide some (apache/iceberg 15039).
        with lent(self.spark, {**exact_case(names), CACHE_KEYS[1]: "false"}):
            self._check_content()
            added = java_list(self.spark, self.pending.added)
            tasks = self._planned(added)
            sampled, one_in = self._sampled() if self.pending.view else (0, 1)
            files, rows = self._check_files(tasks, added)
        return CheckedPositions(
            positions=sum(positions.count for _, positions in self.pending.written),
            resolved=sum(key_set.records for key_set in self.found.key_sets),
            sampled=sampled,
            one_in=one_in,
            files=files,
            of_files=rows,
        )

    def _check_content(self) -> None:
        """Compare what Iceberg reads from each new delete file with what it was to hold."""
        parts = [range(start, len(self.pending.added), _AT_ONCE) for start in range(_AT_ONCE)]
        some = [java_list(self.spark, [self.pending.added[place] for place in part]) for part in parts]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            lines = [str(text).splitlines() for text in pool.map(self.java.positions, some)]
        for part, read in zip(parts, lines, strict=True):
            for place, line in zip(part, read, strict=True):
                file, positions = self.pending.written[place]
                number, hashes = map(int, line.split())
                if (last := int(positions.all()[-1])) >= file.records:
                    raise _differ(f"row {last:,} of {file.path} would be deleted, which has only {count(file.records, 'row')}")
                if (number, hashes) != (positions.count, _summed(positions.all())):
                    raise _differ(f"Iceberg reads {number:,} deleted positions of {file.path}, but {positions.count:,} were to be written")

    def _planned(self, added: Any) -> Any:
        """The data files to which Iceberg itself applies the deletes, after a check that each was looked at, and that each new delete file finds its own."""
        pending, deletes = self.pending, _joined([file.path for file in self.found.deletes])
        tasks = self.java.withAny(self.found.at.snapshot_id, deletes, *pending.part)
        if path := self.java.unlisted(tasks, _joined([file.path for file in self.found.data])):
            raise _differ(f"the equality deletes apply to {path}, where no deleted row was looked for")
        if path := self.java.misplaced(tasks, added):
            raise _differ(
                f"the delete file of {path} is of another partition, or Iceberg applies none of these equality deletes to that file"
            )
        return tasks

    def _sampled(self) -> tuple[int, int]:
        """Look up one key in :data:`SAMPLED_KEYS` by a plain join, or every key if they are few; returns how many rows that were, and one in how many keys."""
        few = self.found.key_sets[0].records < UNSEEN * SAMPLED_KEYS
        for one_in in (1,) if few else (SAMPLED_KEYS, 1):
            rows = self._look_up(one_in)
            if one_in == 1 or rows >= UNSEEN:
                break
        return rows, one_in

    def _look_up(self, one_in: int) -> int:
        assert self.pending.view is not None
        key_sets = self.found.key_sets
        records = sum(file.records for file in self.found.data) // one_in
        got = arrow_of(words(looked_up(self.spark, self.pending.view, key_sets, self.salt, one_in), records, "dead"))
        dead, live = by_file(got.filter(got.column("dead"))), by_file(got.filter(pc.invert(got.column("dead"))))
        for number in {*dead, *live}:
            deleted = self.pending.dead.get(number, Positions()).all()
            kept = int(np.isin(live.get(number, Positions()).all(), deleted).sum())
            lost = int(np.isin(dead.get(number, Positions()).all(), deleted, invert=True).sum())
            if kept or lost:
                raise _differ(
                    f"for one key in {one_in}, in {self.found.data[number].path} {count(kept, 'row')} without a delete would be deleted, and {count(lost, 'deleted row')} would stay"
                )
        return sum(positions.count for side in (dead, live) for positions in side.values())

    def _check_files(self, tasks: Any, added: Any) -> tuple[int, int]:
        """Let Iceberg read some whole files with their deletes of now, and with those of after the commit; returns how many files and rows."""
        chosen = self.java.some(tasks, SAMPLED_FILES, most_records(cluster_of(self.spark)), self.salt)
        if not int(chosen.size()):
            return 0, 0
        then = self.java.changed(chosen, _joined([file.path for file in self.found.deletes]), added)
        before, after = self._read(chosen), self._read(then)
        if before != after:
            raise _differ(
                f"from {count(int(chosen.size()), 'data file')}, Iceberg reads {before} before the commit, and would read {after} after it"
            )
        return int(chosen.size()), after.row_count

    def _read(self, tasks: Any) -> Fingerprint:
        with self.staging.reading(tasks) as rows:
            return summed_up(rows, row_hash(rows.schema))


def _joined(paths: Sequence[str]) -> str:
    return "\0".join(paths)


def _summed(positions: npt.NDArray[np.int64]) -> int:
    """The sum of the hashes of positions, as Java adds them up: the last steps of SplitMix64, modulo 2**64, as a signed number."""
    mixed = positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64).astype(np.int64))


def _differ(what: str) -> RowsDiffer:
    return RowsDiffer.of("delete files", what)
