"""Hold what was checked of rows and positions before a commit, as its summary says it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Self, TypeVar

from icekit.common import frozen
from icekit.common.errors import IcekitError
from icekit.common.units import count, count_with_verb

P = TypeVar("P")
#: The key, in a commit's summary, of what was checked before the commit; see :class:`CheckedRows`.
CHECKED_TAG = "icekit.checked"
#: The same for the delete files of a conversion; see :class:`CheckedPositions`.
CHECKED_POSITIONS_TAG = "icekit.checked-positions"
#: The key that says of a commit that the rows deleted by position were compared before it was made:
# in each data file that its delete files are of, the same before and after it.
COMPARED_POSITIONS_TAG = "icekit.compared-positions"
#: One key in this many is looked up by a plain join that says which of its rows are left.
SAMPLED_KEYS = 64
#: Data files, chosen at random, that Iceberg reads with its own application of deletes; and the
# newest file, whose rows are likely to be left.
SAMPLED_FILES = 2


#: A choice: rows and delete records of the partitions in which keys are looked up; to look up more
# takes longer than to find the deleted rows.
LOOKED_UP_RECORDS = 4_000_000


def looked_up_partitions(records_by_partition: Mapping[P, int]) -> tuple[set[P], int]:
    """The partitions in which keys are looked up: all of a table of moderate size, else so many at
    random, one at least; and in how many partitions about one is, by their records.
    """
    chosen_partitions: set[P] = set()
    looked_up_records = 0
    for partition in random.sample(list(records_by_partition), len(records_by_partition)):
        if looked_up_records < LOOKED_UP_RECORDS:
            chosen_partitions.add(partition)
            looked_up_records += records_by_partition[partition]
    return chosen_partitions, -(-sum(records_by_partition.values()) // max(1, looked_up_records))


class RowsDiffer(IcekitError):
    """What was written is not right, so nothing was committed."""

    @classmethod
    def of(cls, file_kind: str, difference: str, outcome: str) -> RowsDiffer:
        """The error for a kind of new files, what is wrong with them, and what can be done
        instead, where nothing but icekit can be at fault.
        """
        return cls.by_cause(
            file_kind, difference, "This is a bug in icekit; please report it.", outcome
        )

    @classmethod
    def by_cause(
        cls, file_kind: str, difference: str, cause_sentence: str, outcome: str
    ) -> RowsDiffer:
        """As :meth:`of`, with the likely cause, as a sentence."""
        return cls(
            f"The check before the commit failed, so these {file_kind} were not committed: "
            f"{difference}. {cause_sentence} {outcome}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was compared before a commit, as its summary keeps it.

    ``resolved`` counts the equality deletes. ``sampled`` are the rows that a plain join looked up,
    of one key in ``one_in`` of each key set (:data:`SAMPLED_KEYS`, or 1 where keys are few), in
    about one partition of ``one_partition_in``, by their rows (1: in all). ``files`` are the data
    files that Iceberg's own reader read for the check, ``of_files`` the live rows in these.

    Where that reader misreads the deletes (keys inside structs, fixed ones), ``unread_live`` are
    the rows of a few files that live, and ``shown_with_columns`` and ``shown_without`` are those
    that it gave before the commit to a query of all columns, and of none.
    """

    resolved: int = 0
    sampled: int = 0
    one_in: int = 0
    one_partition_in: int = 1
    files: int = 0
    of_files: int = 0
    unread_live: int = 0
    shown_with_columns: int = 0
    shown_without: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether not every key was looked up."""
        return self.one_in > 1 or self.one_partition_in > 1

    @property
    def looked_up_keys_text(self) -> str:
        """Which keys were looked up."""
        keys_text = f"one key in {self.one_in}" if self.one_in > 1 else "every key"
        if self.one_partition_in > 1:
            return f"{keys_text} of about one partition in {self.one_partition_in}"
        return keys_text

    @property
    def unseen_keys(self) -> int:
        """So many wrong keys, if they are random, are all outside the sample with a chance of less
        than 1 %.
        """
        return UNSEEN * self.one_partition_in

    def text(self) -> str:
        """For a commit's summary."""
        return json.dumps(asdict(self))

    @property
    def disagreement_text(self) -> str:
        """What Iceberg's own reader gave instead of the rows that live; empty if it gave these."""
        if self.unread_live == self.shown_with_columns == self.shown_without:
            return ""
        return (
            f"; of some old files {count(self.unread_live, 'row')} live by the specification, but "
            f"Iceberg's own reader showed {self.shown_with_columns:,} to a query of all columns "
            f"and {self.shown_without:,} to one of none, because it misreads the key"
        )

    @classmethod
    def of(cls, checked_json: str) -> Self:
        """From a commit's summary."""
        values_by_name = json.loads(checked_json)
        return cls(
            **{
                checked_field.name: int(
                    values_by_name.get(checked_field.name, checked_field.default)
                )
                for checked_field in fields(cls)
            }
        )


@frozen
class CheckedRows(Checked):
    """What was compared before a commit: each row as written with the row read back, and, where a
    join applied equality deletes, two samples with the old files.

    ``by_reader`` are the rows to whose files Iceberg's own reader applied the equality deletes.
    ``read`` counts the rows read for the check. ``misplaced`` are rows that were in files of
    another partition than theirs, at least.
    """

    rows: int = 0
    read: int = 0
    by_reader: int = 0
    misplaced: int = 0

    def __add__(self, other: CheckedRows) -> CheckedRows:
        field_names = [checked_field.name for checked_field in fields(self)]
        sums = {
            field_name: getattr(self, field_name) + getattr(other, field_name)
            for field_name in field_names
        }
        largest_by_name = {
            "one_in": max(self.one_in, other.one_in),
            "one_partition_in": max(self.one_partition_in, other.one_partition_in),
        }
        return CheckedRows(**{**sums, **largest_by_name})

    def __str__(self) -> str:
        if not self.misplaced:
            return self._comparison_text
        misplaced_text = count_with_verb(self.misplaced, "row", "was", "were")
        return (
            f"{self._comparison_text}; {misplaced_text} in files of another partition than the "
            "transform gives: the writer computed it differently (another hash of a bucket, for "
            "example), and queries with a filter on the partition's columns missed such rows "
            "until this rewrite"
        )

    @property
    def _comparison_text(self) -> str:
        read_back_text = f"{count(self.rows, 'row')} of the new files read back before the commit"
        read_twice_text = f"{count(self.of_files, 'row')} of {count(self.files, 'file')}"
        if not self.one_in:
            reader_text = ""
            if self.by_reader:
                reader_text = ", where Iceberg's own reader applied the equality deletes"
            elif self.resolved:
                reader_text = "; the keys that were looked up are of other partitions"
            sample_text = (
                f"; as a sample of the old files, {read_twice_text} read again: all equal"
                if self.files
                else ""
            )
            return (
                f"{read_back_text}: the same as were read from the old files"
                f"{reader_text}{sample_text}"
            )
        clauses = [read_back_text]
        keys_text = self.looked_up_keys_text
        files_text = f", and {read_twice_text} by Iceberg's own reader" if self.files else ""
        if self.sampled:
            clauses.append(
                f"equality deletes checked on {count(self.sampled, 'row')} ({keys_text}) by a "
                f"plain join{files_text}: all equal"
            )
        else:
            clauses.append("there was no row to check equality deletes on")
        if self.by_reader:
            clauses.append(
                f"Iceberg's own reader applied those of {count(self.by_reader, 'other row')}"
            )
        return "; ".join(clauses) + self.disagreement_text


@frozen
class CheckedPositions(Checked):
    """What was compared before a commit of a conversion: the new delete files with what they were
    to hold, and two samples by other means (no whole files if all have too many deletes for the
    memory of Iceberg's own reader).

    ``positions`` are the deleted positions in the new delete files.
    """

    positions: int = 0

    def __str__(self) -> str:
        keys_text = self.looked_up_keys_text
        files_text = (
            f", and on {count(self.of_files, 'row')} of {count(self.files, 'file')} by Iceberg's "
            "own reader"
            if self.files
            else ", and on no whole file by Iceberg's own reader"
        )
        sample_text = (
            f"; checked on {count(self.sampled, 'row')} ({keys_text}) by a plain join{files_text}"
            if self.sampled
            else ""
        )
        equality_text = ": all equal" if self.positions or self.sampled else ""
        return (
            f"{count(self.positions, 'deleted position')} read back from the new delete files "
            f"before the commit{sample_text}{equality_text}{self.disagreement_text}"
        )


#: So many wrong keys, if they are random, are all outside the sample with a chance of less than 1
# %: (1 - 1 / SAMPLED_KEYS) ** 300 is 0.9 %.
UNSEEN = 300
