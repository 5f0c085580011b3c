"""Hold the result of a proof, and print it in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icekit.common import frozen
from icekit.common.units import count, printable_text
from icekit.rows.proof.fingerprint import Fingerprint

#: The mode of a proof that was made before the commits; see :class:`CheckedRows`.
CHECKED = "checked before the commit"
#: The mode of a proof of commits that only dropped delete files; made after the commits.
SCANNED = "proved by a scan of the table before the commit"

_NAMED = 10
_MARKS = {True: "✔", False: "✖", None: "?"}


@frozen
class Mismatch:
    """A partition whose rows, or their row lineage, differ: its path (``whole table`` if
    unpartitioned), and its fingerprints.
    """

    partition_path: str
    before: Fingerprint
    after: Fingerprint

    def __str__(self) -> str:
        gained_rows = self.after.row_count - self.before.row_count
        partition_name = printable_text(self.partition_path)
        if gained_rows:
            problem = "too many" if gained_rows > 0 else "missing"
            counts_text = f"{self.before.row_count:,} before, {self.after.row_count:,} after"
            return f"{partition_name}: {count(abs(gained_rows), 'row')} {problem} ({counts_text})"
        return (
            f"{partition_name}: the same number of rows ({self.before.row_count:,}), but "
            "different rows (or row lineage)"
        )


@frozen
class CommitProof:
    """One commit compared with its own parent, deletes applied.

    ``partitions`` are those that the commit changed, which were compared. ``before`` and ``after``
    are fingerprints of all rows compared, and ``rows_read`` counts the rows of both sides.
    ``columns_left_out`` are those that only one side has. ``reason`` says why every row of the
    table was compared or, without fingerprints and a ``statement``, why the commit is not provable.
    ``rollback_sql`` undoes a damaged commit. ``statement`` is what was checked in another way,
    ``mode`` in which (:data:`CHECKED` or :data:`SCANNED`). So many random wrong keys as
    ``unseen_keys`` would be found with a chance above 99 %, where not all rows were compared for it
    (0: all were).
    """

    snapshot_id: int
    reason: str = ""
    partitions: int = 0
    before: Fingerprint | None = None
    after: Fingerprint | None = None
    rows_read: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    rollback_sql: str | None = None
    statement: str = ""
    mode: str = "full"
    unseen_keys: int = 0

    @property
    def is_sampled(self) -> bool:
        """Whether not all rows were compared."""
        return self.unseen_keys > 0

    @property
    def ok(self) -> bool | None:
        """Whether the rows that were compared are equal; None if that cannot be determined."""
        is_provable = self.statement or (self.before is not None and self.after is not None)
        return not self.mismatches if is_provable else None

    def lines(self) -> list[str]:
        """Lines for a person, one line unless something is wrong."""
        commit_text = f"{_MARKS[self.ok]} commit {self.snapshot_id}"
        if self.statement:
            return [f"{commit_text}: {self.statement}"]
        if self.after is None:
            return [f"{commit_text}: not provable: {self.reason}"]
        scope_text = f"the whole table ({self.reason})"
        if not self.reason:
            scope_text = count(self.partitions, "changed partition")
        left_out_lines = (
            [f"  not compared, because only one side has them: {', '.join(self.columns_left_out)}"]
            if self.columns_left_out
            else []
        )
        if not self.mismatches:
            return [
                f"{commit_text}: the same {count(self.after.row_count, 'row')} in {scope_text}",
                *left_out_lines,
            ]
        lines = [
            f"{commit_text}: ROWS CHANGED in {count(len(self.mismatches), 'partition')}; compared "
            f"{scope_text}",
            *left_out_lines,
            *(f"  {mismatch}" for mismatch in self.mismatches[:_NAMED]),
        ]
        if len(self.mismatches) > _NAMED:
            lines.append(f"  and {len(self.mismatches) - _NAMED:,} more")
        if self.rollback_sql:
            lines.append(
                f"  to roll back to its parent, which undoes later commits too: {self.rollback_sql}"
            )
        return lines


@frozen
class Check:
    """One check of what maintenance had to keep: whether it passed (None: unknown), and what was
    checked.
    """

    ok: bool | None
    statement: str

    def lines(self) -> list[str]:
        """One line for a person."""
        return [f"{_MARKS[self.ok]} {self.statement}"]


@dataclass(frozen=True, repr=False)
class Proof:
    """The result of comparing a run's commits with their parents.

    ``kept`` holds the checks of maintenance, which reads no rows, and ``removed`` what it removed
    for good, as the plan said.
    """

    table: str
    commits: tuple[CommitProof, ...]
    seconds: float
    maintenance_checks: tuple[Check, ...] = ()
    removals: tuple[str, ...] = ()

    @classmethod
    def of(cls, proofs: Sequence[Proof]) -> Proof:
        """Several proofs of one table combined."""
        return cls(
            proofs[0].table,
            tuple(commit for proof in proofs for commit in proof.commits),
            sum(proof.seconds for proof in proofs),
            tuple(
                maintenance_check
                for proof in proofs
                for maintenance_check in proof.maintenance_checks
            ),
            tuple(removal for proof in proofs for removal in proof.removals),
        )

    @property
    def ok(self) -> bool | None:
        """False if rows changed or anything was lost, None if no change was found but something is
        not provable.
        """
        return verdict((*self.commits, *self.maintenance_checks))

    @property
    def mode(self) -> str:
        """:data:`CHECKED`, :data:`SCANNED` or ``full``, or several of these; ``metadata`` for
        maintenance alone.
        """
        return ", ".join(sorted({commit.mode for commit in self.commits} or {"metadata"}))

    @property
    def rows_read(self) -> int:
        """The rows that were read for the proof, of both sides."""
        return sum(commit.rows_read for commit in self.commits)

    @property
    def is_sampled(self) -> bool:
        """Whether some rows that equality deletes apply to were not compared."""
        return any(commit.is_sampled for commit in self.commits)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The verdict on one line, then the checks and what they leave open, for a person."""
        passed_text = "nothing that was checked was lost"
        failed_text = "SOMETHING WAS LOST"
        if self.removals:
            passed_text = "this run removed nothing that had to stay"
        if self.commits:
            passed_text = "no difference found" if self.is_sampled else "no row changed"
        if verdict(self.commits) is False:
            failed_text = "ROWS CHANGED"
        verdict_text = {
            True: passed_text,
            False: failed_text,
            None: "not everything could be proved",
        }[self.ok]
        headline = f"{self.table}: {verdict_text}"
        time_text = f" in {self.seconds:.1f} s"
        maintenance_lines = [
            line
            for maintenance_check in self.maintenance_checks
            for line in maintenance_check.lines()
        ]
        maintenance_lines += [f"  removed for good: {removal}" for removal in self.removals]
        if not self.commits:
            return [f"{headline},{time_text}", *maintenance_lines]
        if any(commit.mode == CHECKED for commit in self.commits):
            time_text = ""  # checks before a commit are part of the time of the rewrites
        commits_text = count(len(self.commits), "commit")
        comparison_text = self.mode.replace("full", "compared in full")
        unseen_keys = max(commit.unseen_keys for commit in self.commits)
        sample_line = (
            "  Compared a sample of the rows that equality deletes apply to: it finds "
            f"{unseen_keys:,} random wrong keys with a chance above 99 %. `--prove full` compares "
            "every row."
        )
        return [
            f"{headline} in {commits_text}, {comparison_text}; the checks read "
            f"{count(self.rows_read, 'row')}{time_text}",
            *([sample_line] if self.is_sampled else []),
            *(line for commit in self.commits for line in commit.lines()),
            *maintenance_lines,
        ]


def verdict(proofs: Iterable[CommitProof | Check]) -> bool | None:
    """False if anything changed or is lost in one, else None if some are not provable, else
    True.
    """
    outcomes = {proof.ok for proof in proofs}
    return False if False in outcomes else None if None in outcomes else True
