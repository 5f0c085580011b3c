"""Hold what was proven, and say it in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from icekit.prove.fingerprint import Print
from icekit.units import count, printable

_NAMED = 10


@dataclass(frozen=True)
class Mismatch:
    """A partition whose rows differ: its path (``whole table`` if unpartitioned), and its prints.

    With ``of_lineage`` the rows are the same, and only their ids or the commits they are from differ.
    """

    partition: str
    before: Print
    after: Print
    of_lineage: bool = False

    def __str__(self) -> str:
        gained = self.after.row_count - self.before.row_count
        name = printable(self.partition)
        if self.of_lineage:
            return f"{name}: the same {count(self.after.row_count, 'row')}, but not the same row ids or sequence numbers (row lineage)"
        if gained:
            what = f"{count(abs(gained), 'row')} {'too many' if gained > 0 else 'missing'}"
            return f"{name}: {what} ({self.before.row_count:,} before, {self.after.row_count:,} after)"
        return f"{name}: as many rows ({self.before.row_count:,}), but not the same"


@dataclass(frozen=True)
class CommitProof:
    """One commit compared with its own parent, deletes applied.

    ``partitions_compared`` of ``partitions_changed``; with ``whole_table`` every row was
    compared, and ``reason`` says why. ``before`` and ``after`` are prints of all rows compared.
    ``columns_left_out`` are those that only one side has. What is not ``provable`` has a
    ``reason`` and no prints. ``rollback_sql`` undoes a commit that is damaged, and the
    ``later_commits`` on top of it too.
    """

    snapshot_id: int
    parent_id: int | None
    provable: bool
    reason: str = ""
    partitions_compared: int = 0
    partitions_changed: int = 0
    whole_table: bool = False
    before: Print | None = None
    after: Print | None = None
    mismatches: tuple[Mismatch, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    rollback_sql: str | None = None
    later_commits: int = 0

    @property
    def ok(self) -> bool | None:
        """Whether the same rows were found; None if that cannot be told."""
        return not self.mismatches if self.provable else None

    @property
    def rows_before(self) -> int | None:
        """Rows compared at the parent."""
        return self.before.row_count if self.before else None

    @property
    def rows_after(self) -> int | None:
        """Rows compared at the commit."""
        return self.after.row_count if self.after else None

    def lines(self) -> list[str]:
        """What a person reads, one line unless something is wrong."""
        name = f"commit {self.snapshot_id}"
        if self.before is None or self.after is None:
            return [f"? {name}: not provable: {self.reason}"]
        what = "the whole table" if self.whole_table else f"{self.partitions_compared:,} of {self.partitions_changed:,} changed partitions"
        why = f" ({self.reason})" if self.reason else ""
        left_out = [f"  not compared, as only one side has them: {', '.join(self.columns_left_out)}"] if self.columns_left_out else []
        if not self.mismatches:
            return [f"✔ {name}: the same {count(self.after.row_count, 'row')} in {what}{why}", *left_out]
        lines = [f"✖ {name}: ROWS CHANGED in {count(len(self.mismatches), 'partition')}; compared {what}{why}", *left_out]
        lines += [f"  {mismatch}" for mismatch in self.mismatches[:_NAMED]]
        if len(self.mismatches) > _NAMED:
            lines.append(f"  and {len(self.mismatches) - _NAMED:,} more")
        if self.rollback_sql:
            also = f", and also undoes {count(self.later_commits, 'later commit')}" if self.later_commits else ""
            lines.append(f"  back to its parent{also}: {self.rollback_sql}")
        return lines


@dataclass(frozen=True)
class Check:
    """One thing that had to hold: whether it does (None: it cannot be told), and what was looked at."""

    ok: bool | None
    said: str


@dataclass(frozen=True, repr=False)
class Kept:
    """What maintenance had to leave as it was, checked one by one; ``what`` names the procedure."""

    what: str
    checks: tuple[Check, ...]
    seconds: float = 0.0

    @property
    def ok(self) -> bool | None:
        """False if anything is lost, None if some of it cannot be told."""
        found = {check.ok for check in self.checks}
        return False if False in found else None if None in found else True

    def lines(self) -> list[str]:
        """What a person reads, a line a check."""
        return [f"{ {True: '✔', False: '✖', None: '?'}[check.ok] } {self.what}: {check.said}" for check in self.checks]

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, repr=False)
class Proof:
    """What comparing a run's commits with their parents has shown.

    ``ok`` is False if rows changed anywhere, None if they did not where it can be told but some
    commit is not provable. ``mode`` is ``full`` or ``sampled N of M`` (changed partitions).
    ``rows_read`` counts both sides. ``caution`` says why the reads themselves may be wrong.
    ``kept`` is what maintenance has left as it was.
    """

    table: str
    commits: tuple[CommitProof, ...]
    ok: bool | None
    mode: str
    seconds: float
    rows_read: int
    caution: str | None = None
    kept: tuple[Kept, ...] = ()

    @classmethod
    def of_kept(cls, table: str, *kept: Kept) -> Proof:
        """A proof of maintenance alone, which reads no rows."""
        return cls(table, (), verdict(kept), "metadata", sum(k.seconds for k in kept), 0, kept=kept)

    @classmethod
    def of(cls, proofs: Sequence[Proof]) -> Proof:
        """Several proofs of one table as one; raises ValueError without any."""
        if not proofs:
            raise ValueError("no proofs to put together")
        commits = tuple(commit for proof in proofs for commit in proof.commits)
        kept = tuple(one for proof in proofs for one in proof.kept)
        modes = {proof.mode for proof in proofs if proof.commits or not proof.kept} or {"metadata"}
        return cls(
            proofs[0].table,
            commits,
            # Of the proofs, not of their commits: one that could not be made has none.
            False if any(p.ok is False for p in proofs) else None if any(p.ok is None for p in proofs) else True,
            modes.pop() if len(modes) == 1 else "partly sampled",
            sum(proof.seconds for proof in proofs),
            sum(proof.rows_read for proof in proofs),
            next((proof.caution for proof in proofs if proof.caution), None),
            kept,
        )

    def __repr__(self) -> str:
        if not self.commits and self.kept:
            said = {True: "everything kept", False: "SOMETHING IS LOST", None: "not all of it can be proven"}[self.ok]
            return "\n".join([f"{self.table}: {said}, in {self.seconds:.1f} s", *(line for one in self.kept for line in one.lines())])
        said = {True: "no row changed", False: "ROWS CHANGED", None: "not all of it can be proven"}[self.ok]
        if self.ok is False and verdict(self.commits) is not False:
            said = "SOMETHING IS LOST"
        head = f"{self.table}: {said} in {count(len(self.commits), 'commit')}, {self.mode}; {count(self.rows_read, 'row')} read in {self.seconds:.1f} s"
        caution = [f"! {self.caution}"] if self.caution else []
        return "\n".join(
            [
                head,
                *caution,
                *(line for commit in self.commits for line in commit.lines()),
                *(line for one in self.kept for line in one.lines()),
            ]
        )


def verdict(proven: Iterable[CommitProof | Kept]) -> bool | None:
    """False if anything changed or is lost in one, else None if some are not provable, else True."""
    found = {one.ok for one in proven}
    return False if False in found else None if None in found else True
