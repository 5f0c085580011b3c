"""Hold the result of a proof, and print it in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icekit.prove.checked import UNSEEN
from icekit.prove.fingerprint import Fingerprint
from icekit.units import count, printable

#: The mode of a proof that was made before the commits; see :class:`CheckedRows`.
CHECKED = "checked before the commit"
#: The mode of a proof of commits that only dropped delete files; made after the commits.
SCANNED = "proved by a scan of the table before the commit"

_NAMED = 10


@dataclass(frozen=True)
class Mismatch:
    """A partition whose rows differ: its path (``whole table`` if unpartitioned), and its
    fingerprints.

    With ``of_lineage`` the rows are equal, and only their ids or sequence numbers differ.
    """

    partition: str
    before: Fingerprint
    after: Fingerprint
    of_lineage: bool = False

    def __str__(self) -> str:
        gained = self.after.row_count - self.before.row_count
        name = printable(self.partition)
        if self.of_lineage:
            return (
                f"{name}: the same {count(self.after.row_count, 'row')}, but not the same row ids "
                "or sequence numbers (row lineage)"
            )
        if gained:
            what = "too many" if gained > 0 else "missing"
            counts = f"{self.before.row_count:,} before, {self.after.row_count:,} after"
            return f"{name}: {count(abs(gained), 'row')} {what} ({counts})"
        return f"{name}: the same number of rows ({self.before.row_count:,}), but different rows"


@dataclass(frozen=True)
class CommitProof:
    """One commit compared with its own parent, deletes applied.

    ``partitions_compared`` of ``partitions_changed``; with ``whole_table`` every row was compared,
    and ``reason`` says why. ``before`` and ``after`` are fingerprints of all rows compared.
    ``columns_left_out`` are those that only one side has. A commit that is not ``provable`` has a
    ``reason`` and no fingerprints. ``rollback_sql`` undoes a damaged commit, and the
    ``later_commits`` after it too. ``said`` is what was checked in another way: before the commit,
    or from metadata alone; ``is_sampled`` if not all rows were compared.
    """

    snapshot_id: int
    parent_id: int | None
    provable: bool
    reason: str = ""
    partitions_compared: int = 0
    partitions_changed: int = 0
    whole_table: bool = False
    before: Fingerprint | None = None
    after: Fingerprint | None = None
    mismatches: tuple[Mismatch, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    rollback_sql: str | None = None
    later_commits: int = 0
    statement: str = ""
    is_sampled: bool = False

    @property
    def ok(self) -> bool | None:
        """Whether the rows that were compared are equal; None if that cannot be determined."""
        return not self.mismatches if self.provable else None

    @property
    def is_partial(self) -> bool:
        """Whether some of the partitions that the commit changed were not compared."""
        return self.partitions_compared < self.partitions_changed

    @property
    def rows_before(self) -> int | None:
        """Rows compared at the parent."""
        return self.before.row_count if self.before else None

    @property
    def rows_after(self) -> int | None:
        """Rows compared at the commit."""
        return self.after.row_count if self.after else None

    def lines(self) -> list[str]:
        """Lines for a person, one line unless something is wrong."""
        name = f"commit {self.snapshot_id}"
        if self.statement:
            return [f"✔ {name}: {self.statement}"]
        if self.before is None or self.after is None:
            return [f"? {name}: not provable: {self.reason}"]
        what = (
            "the whole table"
            if self.whole_table
            else f"{self.partitions_compared:,} of {self.partitions_changed:,} changed partitions"
        )
        why = f" ({self.reason})" if self.reason else ""
        left_out = (
            [f"  not compared, because only one side has them: {', '.join(self.columns_left_out)}"]
            if self.columns_left_out
            else []
        )
        if not self.mismatches:
            return [
                f"✔ {name}: the same {count(self.after.row_count, 'row')} in {what}{why}",
                *left_out,
            ]
        lines = [
            f"✖ {name}: ROWS CHANGED in {count(len(self.mismatches), 'partition')}; compared "
            f"{what}{why}",
            *left_out,
        ]
        lines += [f"  {mismatch}" for mismatch in self.mismatches[:_NAMED]]
        if len(self.mismatches) > _NAMED:
            lines.append(f"  and {len(self.mismatches) - _NAMED:,} more")
        if self.rollback_sql:
            also = (
                f" (also undoes {count(self.later_commits, 'later commit')}"
                if self.later_commits
                else ""
            )
            lines.append(f"  to roll back to its parent{also}: {self.rollback_sql}")
        return lines


@dataclass(frozen=True)
class Check:
    """One check: whether it passed (None: unknown), and what was checked."""

    ok: bool | None
    statement: str


@dataclass(frozen=True, repr=False)
class InvariantProof:
    """What maintenance had to keep, checked one by one; ``what`` names the procedure.

    ``gone`` counts what had to stay and is no longer there, because another job removed it or may
    have.
    """

    what: str
    checks: tuple[Check, ...]
    seconds: float = 0.0
    gone: int = 0

    @property
    def ok(self) -> bool | None:
        """False if anything is lost, None if that is partly unknown."""
        return verdict(self.checks)

    def lines(self) -> list[str]:
        """Lines for a person, one per check."""
        return [
            f"{ {True: '✔', False: '✖', None: '?'}[check.ok] } {self.what}: {check.statement}"
            for check in self.checks
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, repr=False)
class Proof:
    """The result of comparing a run's commits with their parents.

    ``ok`` is False if rows changed anywhere, None if no change was found but some
    commit is not provable. ``mode`` is :data:`CHECKED`, :data:`SCANNED`, ``full`` or ``sampled``
    (some of the changed partitions), or several of these. ``rows_read`` counts both sides.
    ``caution`` says why the reads themselves may be wrong. ``kept`` holds the checks of
    maintenance.
    """

    table: str
    commits: tuple[CommitProof, ...]
    ok: bool | None
    mode: str
    seconds: float
    rows_read: int
    caution: str | None = None
    kept: tuple[InvariantProof, ...] = ()

    @classmethod
    def of_kept(cls, table: str, *kept: InvariantProof) -> Proof:
        """A proof of maintenance alone, which reads no rows."""
        return cls(table, (), verdict(kept), "metadata", sum(k.seconds for k in kept), 0, kept=kept)

    @classmethod
    def of(cls, proofs: Sequence[Proof]) -> Proof:
        """Several proofs of one table combined; raises ValueError if there are none."""
        if not proofs:
            raise ValueError("no proofs to put together")
        commits = tuple(commit for proof in proofs for commit in proof.commits)
        kept = tuple(check for proof in proofs for check in proof.kept)
        modes = {
            mode
            for proof in proofs
            if proof.commits or not proof.kept
            for mode in proof.mode.split(", ")
        } or {"metadata"}
        return cls(
            table=proofs[0].table,
            commits=commits,
            # Taken from the proofs, not from their commits: a proof that could not be made has no
            # commits.
            ok=verdict(proofs),
            mode=", ".join(sorted(modes)),
            seconds=sum(proof.seconds for proof in proofs),
            rows_read=sum(proof.rows_read for proof in proofs),
            caution=next((proof.caution for proof in proofs if proof.caution), None),
            kept=kept,
        )

    @property
    def partitions(self) -> tuple[int, int]:
        """How many changed partitions were compared, and of how many."""
        compared = sum(commit.partitions_compared for commit in self.commits)
        return compared, sum(commit.partitions_changed for commit in self.commits)

    @property
    def is_sampled(self) -> bool:
        """Whether some rows of a commit were not compared: of its partitions, or of those that
        equality deletes apply to.
        """
        return any(commit.is_sampled or commit.is_partial for commit in self.commits)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The verdict on one line, then the checks and what they leave open, for a person."""
        if not self.commits and self.kept:
            fine = (
                "this run lost nothing"
                if any(check.gone for check in self.kept)
                else "nothing was lost"
            )
            text = {
                True: fine,
                False: "SOMETHING WAS LOST",
                None: "not everything could be proved",
            }[self.ok]
            return [
                f"{self.table}: {text}, in {self.seconds:.1f} s",
                *(line for check in self.kept for line in check.lines()),
            ]
        fine = "no difference found" if self.is_sampled else "no row changed"
        text = {True: fine, False: "ROWS CHANGED", None: "not everything could be proved"}[self.ok]
        if self.ok is False and verdict(self.commits) is not False:
            text = "SOMETHING WAS LOST"
        modes = self.mode.split(", ")
        # Where one commit is sampled, the figures say how much was compared.
        how = ", ".join(
            {"full": "compared in full"}.get(mode, mode)
            for mode in modes
            if mode != "full" or "sampled" not in modes
        )
        # What was checked before a commit is part of the time of its rewrite.
        time_taken = "" if self.mode == CHECKED else f" in {self.seconds:.1f} s"
        where = count(len(self.commits), "commit")
        if any(commit.is_partial for commit in self.commits):
            compared, changed = self.partitions
            where = f"{compared:,} of {count(changed, 'changed partition')} ({where})"
        head = (
            f"{self.table}: {text} in {where}, {how}; {count(self.rows_read, 'row')} "
            f"read{time_taken}"
        )
        caution = [f"! {self.caution}"] if self.caution else []
        if any(commit.is_sampled for commit in self.commits):
            caution.append(
                "  Compared a sample of the rows that equality deletes apply to: it finds "
                f"{UNSEEN} random wrong keys with a chance above 99 %. `--prove full` compares "
                "every row."
            )
        return [
            head,
            *caution,
            *(line for commit in self.commits for line in commit.lines()),
            *(line for each in self.kept for line in each.lines()),
        ]


def verdict(proven: Iterable[CommitProof | Check | InvariantProof | Proof]) -> bool | None:
    """False if anything changed or is lost in one, else None if some are not provable, else
    True.
    """
    results = {result.ok for result in proven}
    return False if False in results else None if None in results else True
