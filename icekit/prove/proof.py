"""Hold the result of a proof, and prove that maintenance lost nothing: manifest entries, refs and snapshots, live files; reads no rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_table
from icekit.engine.errors import explain
from icekit.engine.metadata_tables import metadata_table, spread
from icekit.errors import IcekitError
from icekit.facts.metadata_file import load_metadata
from icekit.facts.naming import referenced, wanted
from icekit.prove.fingerprint import Fingerprint, row_hash, summed_up
from icekit.sql import Identifier
from icekit.units import count, printable

if TYPE_CHECKING:
    from icekit.catalog import Lake


# --- Hold what was proven, and print it in a few lines


#: The mode of a proof that was made before the commits; see :class:`CheckedRows`.
CHECKED = "checked before the commit"
#: The mode of a proof of commits that only dropped delete files; made after the commits.
SCANNED = "proved by a scan of the table before the commit"

_NAMED = 10


@dataclass(frozen=True)
class Mismatch:
    """A partition whose rows differ: its path (``whole table`` if unpartitioned), and its fingerprints.

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
            return f"{name}: the same {count(self.after.row_count, 'row')}, but not the same row ids or sequence numbers (row lineage)"
        if gained:
            what = f"{count(abs(gained), 'row')} {'too many' if gained > 0 else 'missing'}"
            return f"{name}: {what} ({self.before.row_count:,} before, {self.after.row_count:,} after)"
        return f"{name}: the same number of rows ({self.before.row_count:,}), but different rows"


#: The key, in a commit's summary, of what was checked before the commit; see :class:`CheckedRows`.
CHECKED_TAG = "icekit.checked"
#: The same for the delete files of a conversion; see :class:`CheckedPositions`.
CHECKED_POSITIONS_TAG = "icekit.checked-positions"
#: One key in this many is looked up by a plain join that says which of its rows are left.
SAMPLED_KEYS = 64
#: Data files, chosen at random, that Iceberg reads with its own application of deletes; and the newest file, whose rows are likely to be left.
SAMPLED_FILES = 2


class RowsDiffer(IcekitError):
    """What was written is not right, so nothing was committed."""

    @classmethod
    def of(cls, files: str, what: str, instead: str) -> RowsDiffer:
        """The error for a kind of new files, what is wrong with them, and what can be done instead."""
        return cls(
            f"The check before the commit failed, so these {files} were not committed: {what}. This is a bug in icekit; please report it. {instead}"
        )


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """What was compared before a commit: each row as written with the row read back, and, where a join applied equality deletes, two samples with the old files.

    ``sampled`` are the rows that a plain join looked up, of one key in ``one_in`` of each key set (:data:`SAMPLED_KEYS`, or 1 where keys are few), ``files`` the data files that Iceberg's own
    reader read for the check, ``of_files`` the live rows in these; all 0 where no join applied deletes. ``by_reader`` are the rows to whose files Iceberg's
    own reader applied the equality deletes. ``read`` counts the rows read for the check, ``resolved`` the equality deletes, ``hashed`` the deleted keys that
    were too large to be compared with those of rows, and were matched by 128 bits of hash instead.
    """

    rows: Fingerprint = field(default_factory=Fingerprint)
    sampled: int = 0
    files: int = 0
    of_files: int = 0
    read: int = 0
    resolved: int = 0
    one_in: int = 0
    by_reader: int = 0
    hashed: int = 0

    def __add__(self, other: CheckedRows) -> CheckedRows:
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return CheckedRows(self.rows + other.rows, **{**sums, "one_in": max(self.one_in, other.one_in)})

    @property
    def is_sampled(self) -> bool:
        """Whether a join applied deletes, and only a sample of its result was compared with another."""
        return self.one_in > 1

    def text(self) -> str:
        """For a commit's summary."""
        rows = {"rows": self.rows.row_count, "fingerprint": f"{self.rows.value:x}"}
        return json.dumps({**rows, **{name: getattr(self, name) for name in _COUNTS if getattr(self, name)}})

    @classmethod
    def of(cls, text: str) -> CheckedRows:
        """From a commit's summary."""
        kept = json.loads(text)
        rows = Fingerprint(int(kept["rows"]), int(kept["fingerprint"], 16))
        return cls(rows, **{name: int(kept.get(name, 0)) for name in _COUNTS})

    def __str__(self) -> str:
        read_back = f"{count(self.rows.row_count, 'row')} read back from the new files before the commit"
        twice = f"{count(self.of_files, 'row')} of {count(self.files, 'file')}"
        if not self.one_in:
            by_reader = ", where Iceberg's own reader applied the equality deletes" if self.resolved else ""
            again = f"; {twice} read from the old files a second time: all equal" if self.files else ""
            return f"{read_back}: the same rows that were read from the old ones{by_reader}{again}"
        parts = [read_back]
        keys = f"one key in {self.one_in}" if self.is_sampled else "every key"
        files = f", and {twice} by Iceberg's own reader" if self.files else ""
        if self.sampled:
            parts.append(f"equality deletes checked on {count(self.sampled, 'row')} ({keys}) by a plain join{files}: all equal")
        else:
            parts.append("there was no row to check equality deletes on")
        if self.by_reader:
            parts.append(f"Iceberg's own reader applied those of {count(self.by_reader, 'other row')}")
        if self.hashed:
            chance = "two different keys share a hash with a chance of 1 in 2^128"
            parts.append(f"{count(self.hashed, 'deleted key')} matched by hash ({chance})")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class CheckedPositions:
    """What was compared before a commit of a conversion: the new delete files with what they were to hold, and two samples by other means.

    ``positions`` are the deleted positions in the new delete files, ``resolved`` the records of the equality deletes. ``sampled`` are the rows that a plain
    join looked up, of one key in ``one_in``; ``files`` the data files that Iceberg's own reader read with the old and with the new deletes (none if
    all have too many deletes for its memory), ``of_files`` the live rows in these.
    """

    positions: int
    resolved: int
    sampled: int
    one_in: int
    files: int
    of_files: int

    @property
    def is_sampled(self) -> bool:
        """Whether not every key was looked up."""
        return self.one_in > 1

    def text(self) -> str:
        """For a commit's summary."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> CheckedPositions:
        """From a commit's summary."""
        kept = json.loads(text)
        return cls(**{each.name: int(kept.get(each.name, 0)) for each in fields(cls)})

    def __str__(self) -> str:
        keys = f"one key in {self.one_in}" if self.is_sampled else "every key"
        files = (
            f", and on {count(self.of_files, 'row')} of {count(self.files, 'file')} by Iceberg's own reader"
            if self.files
            else ", and on no whole file by Iceberg's own reader"
        )
        looked_up = f"; checked on {count(self.sampled, 'row')} ({keys}) by a plain join{files}" if self.sampled else ""
        equal = ": all equal" if self.positions or self.sampled else ""
        return f"{count(self.positions, 'deleted position')} read back from the new delete files before the commit{looked_up}{equal}"


_COUNTS = ("sampled", "files", "of_files", "read", "resolved", "one_in", "by_reader", "hashed")
#: So many wrong keys, if they are random, are all outside the sample with a chance of less than 1 %: (1 - 1 / SAMPLED_KEYS) ** 300 is 0.9 %.
UNSEEN = 300


@dataclass(frozen=True)
class CommitProof:
    """One commit compared with its own parent, deletes applied.

    ``partitions_compared`` of ``partitions_changed``; with ``whole_table`` every row was
    compared, and ``reason`` says why. ``before`` and ``after`` are fingerprints of all rows compared.
    ``columns_left_out`` are those that only one side has. A commit that is not ``provable`` has a
    ``reason`` and no fingerprints. ``rollback_sql`` undoes a damaged commit, and the
    ``later_commits`` after it too. ``said`` is what was checked in another way: before the commit, or from
    metadata alone; ``is_sampled`` if not all rows were compared.
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
    said: str = ""
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
        if self.said:
            return [f"✔ {name}: {self.said}"]
        if self.before is None or self.after is None:
            return [f"? {name}: not provable: {self.reason}"]
        what = "the whole table" if self.whole_table else f"{self.partitions_compared:,} of {self.partitions_changed:,} changed partitions"
        why = f" ({self.reason})" if self.reason else ""
        left_out = [f"  not compared, because only one side has them: {', '.join(self.columns_left_out)}"] if self.columns_left_out else []
        if not self.mismatches:
            return [f"✔ {name}: the same {count(self.after.row_count, 'row')} in {what}{why}", *left_out]
        lines = [f"✖ {name}: ROWS CHANGED in {count(len(self.mismatches), 'partition')}; compared {what}{why}", *left_out]
        lines += [f"  {mismatch}" for mismatch in self.mismatches[:_NAMED]]
        if len(self.mismatches) > _NAMED:
            lines.append(f"  and {len(self.mismatches) - _NAMED:,} more")
        if self.rollback_sql:
            also = f" (also undoes {count(self.later_commits, 'later commit')}" if self.later_commits else ""
            lines.append(f"  to roll back to its parent{also}: {self.rollback_sql}")
        return lines


@dataclass(frozen=True)
class Check:
    """One check: whether it passed (None: unknown), and what was checked."""

    ok: bool | None
    said: str


@dataclass(frozen=True, repr=False)
class InvariantProof:
    """What maintenance had to keep, checked one by one; ``what`` names the procedure.

    ``gone`` counts what had to stay and is no longer there, because another job removed it or may have.
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
        return [f"{ {True: '✔', False: '✖', None: '?'}[check.ok] } {self.what}: {check.said}" for check in self.checks]

    def __repr__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, repr=False)
class Proof:
    """The result of comparing a run's commits with their parents.

    ``ok`` is False if rows changed anywhere, None if no change was found but some
    commit is not provable. ``mode`` is :data:`CHECKED`, :data:`SCANNED`, ``full`` or ``sampled`` (some of the changed partitions), or several of these.
    ``rows_read`` counts both sides. ``caution`` says why the reads themselves may be wrong.
    ``kept`` holds the checks of maintenance.
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
        kept = tuple(one for proof in proofs for one in proof.kept)
        modes = {mode for proof in proofs if proof.commits or not proof.kept for mode in proof.mode.split(", ")} or {"metadata"}
        return cls(
            table=proofs[0].table,
            commits=commits,
            # Taken from the proofs, not from their commits: a proof that could not be made has no commits.
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
        """Whether some rows of a commit were not compared: of its partitions, or of those that equality deletes apply to."""
        return any(commit.is_sampled or commit.is_partial for commit in self.commits)

    def __repr__(self) -> str:
        if not self.commits and self.kept:
            fine = "this run lost nothing" if any(one.gone for one in self.kept) else "nothing was lost"
            said = {True: fine, False: "SOMETHING WAS LOST", None: "not everything could be proved"}[self.ok]
            return "\n".join([f"{self.table}: {said}, in {self.seconds:.1f} s", *(line for one in self.kept for line in one.lines())])
        fine = "no difference found" if self.is_sampled else "no row changed"
        said = {True: fine, False: "ROWS CHANGED", None: "not everything could be proved"}[self.ok]
        if self.ok is False and verdict(self.commits) is not False:
            said = "SOMETHING WAS LOST"
        modes = self.mode.split(", ")
        # Where one commit is sampled, the figures say how much was compared.
        how = ", ".join({"full": "compared in full"}.get(mode, mode) for mode in modes if mode != "full" or "sampled" not in modes)
        # What was checked before a commit is part of the time of its rewrite.
        time_taken = "" if self.mode == CHECKED else f" in {self.seconds:.1f} s"
        where = count(len(self.commits), "commit")
        if any(commit.is_partial for commit in self.commits):
            compared, changed = self.partitions
            where = f"{compared:,} of {count(changed, 'changed partition')} ({where})"
        head = f"{self.table}: {said} in {where}, {how}; {count(self.rows_read, 'row')} read{time_taken}"
        caution = [f"! {self.caution}"] if self.caution else []
        if any(commit.is_sampled for commit in self.commits):
            caution.append(
                f"  Of the rows that equality deletes apply to, a sample was compared. If {UNSEEN} different random keys are wrong, the sample misses them all with a chance below 1 %. "
                "`--prove full` compares every row."
            )
        return "\n".join(
            [
                head,
                *caution,
                *(line for commit in self.commits for line in commit.lines()),
                *(line for one in self.kept for line in one.lines()),
            ]
        )


def verdict(proven: Iterable[CommitProof | Check | InvariantProof | Proof]) -> bool | None:
    """False if anything changed or is lost in one, else None if some are not provable, else True."""
    found = {one.ok for one in proven}
    return False if False in found else None if None in found else True


# --- Prove that maintenance has lost nothing: manifest entries, refs and snapshots, live files; reads no rows


Json = Mapping[str, Any]

#: Number of live files to look up in storage: enough to notice that a share of them is gone.
SAMPLE = 200
#: A choice: how often the table is looked at again because other commits came in between.
_LOOKS = 5


def prove_entries(lake: Lake, table: Identifier, snapshot_ids: Sequence[int]) -> InvariantProof:
    """Compare the live manifest entries of each commit with its parent's, in any order.

    ``rewrite_manifests`` must keep these unchanged: each file with its partition, sequence
    numbers, sizes and statistics. Reads every manifest of both sides, and no data file. A commit is not
    provable if it or its parent has expired. ``table`` is without its catalog.
    """
    started = time.monotonic()
    snapshots = _snapshots(lake, table)
    checks = []
    for snapshot_id in snapshot_ids:
        parent_id = (snapshots.get(snapshot_id) or {}).get("parent-snapshot-id")
        if parent_id is None or parent_id not in snapshots:
            checks.append(Check(None, f"commit {snapshot_id} or its parent has expired"))
            continue
        before, after = (_entries(lake, table, each) for each in (parent_id, snapshot_id))
        same = before == after
        said = f"the same {count(after.row_count, 'live entry', 'live entries')} as before, with their statistics"
        checks.append(
            Check(
                same,
                f"commit {snapshot_id}: "
                + (said if same else f"{before.row_count:,} live entries before, {after.row_count:,} after, NOT THE SAME"),
            )
        )
    return InvariantProof("rewrite_manifests", tuple(checks), time.monotonic() - started)


def _entries(lake: Lake, table: Identifier, snapshot_id: int) -> Fingerprint:
    entries = metadata_table(lake.spark, lake.sql_name(table), "entries", snapshot_id).where("status < 2")
    # The readable metrics are derived from the statistics.
    frame = entries.select("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
    return summed_up(frame, row_hash(frame.schema))


def prove_history(
    lake: Lake, table: Identifier, kept: Sequence[int], refs: Sequence[str], *, removed_more: bool = False, sample: int = SAMPLE
) -> InvariantProof:
    """Check what an expiry had to keep: refs, snapshots, their manifests, a sample of their files.

    ``kept`` are the snapshots and ``refs`` the branches and tags that had to stay. Another job may
    remove them at any time, which is no loss. ``removed_more`` says that the engine counted more
    snapshots than the expiry named, or that its count is not known.
    """
    started = time.monotonic()
    metadata = load_metadata(lake.tables.source(table))
    there = {int(s["snapshot-id"]) for s in metadata.get("snapshots") or ()}
    gone = sum(snapshot_id not in there for snapshot_id in kept)
    checks = [Check(True, f"all {len(kept):,} snapshots that should stay exist")]
    if gone:
        missing = f"{gone:,} of {count(len(kept), 'snapshot')} that should stay are no longer in the table"
        why = "it is not known whether this expiry or another removed them" if removed_more else "this expiry did not name them"
        checks = [Check(None if removed_more else True, f"{missing}; {why}")]
    now_refs = metadata.get("refs") or {}
    broken = [name for name, ref in now_refs.items() if ref["snapshot-id"] not in there]
    present = ", ".join(name for name in refs if name in now_refs) or "no ref"
    dropped = [name for name in refs if name not in now_refs and name != "main"]
    also = f"; no longer in the table: {', '.join(dropped)}" if dropped else ""
    said = f"the snapshots of {', '.join(broken)} are GONE" if broken else f"{present} protected and present{also}"
    checks.append(Check(not broken, said))
    checks += _readable(lake, table, sample)
    return InvariantProof("expire_snapshots", tuple(checks), time.monotonic() - started, gone + len(dropped))


def prove_live(lake: Lake, table: Identifier, what: str, checks: Sequence[Check] = (), *, sample: int = SAMPLE) -> InvariantProof:
    """Check that every manifest of the table can be read and that a sample of the files they name is in storage."""
    started = time.monotonic()
    return InvariantProof(what, (*checks, *_readable(lake, table, sample)), time.monotonic() - started)


def _readable(lake: Lake, table: Identifier, sample: int) -> Sequence[Check]:
    """Every kept snapshot's manifest list and manifests, and some of the files that they name.

    What another job has removed from the table meanwhile is not missed: after a failure, the metadata is read again.
    """
    name, problem = lake.sql_name(table), ""
    for _ in range(_LOOKS):
        at = lake.tables.source(table).metadata_location
        try:
            return _look(lake, table, sample)
        except Exception as error:
            known = explain(error, name)
            if not isinstance(known, IcekitError):
                raise known from error
            problem = str(known)
        if lake.tables.source(table).metadata_location == at:
            return [Check(False, f"a manifest of a kept snapshot cannot be read: {problem}")]
    return [Check(None, f"other commits came during each of {_LOOKS} looks at the manifests ({problem})")]


def _look(lake: Lake, table: Identifier, sample: int) -> Sequence[Check]:
    spark, name = lake.spark, lake.sql_name(table)
    files = metadata_table(spark, name, "all_files").select("file_path").distinct()
    chosen, total = spread(files, sample), files.count()
    readable = Check(True, f"all manifests of all snapshots are readable; they name {count(total, 'file')}")
    io = load_table(spark, name).io()
    gone = [path for path in chosen if not io.newInputFile(path).exists()]
    if not gone:
        return [readable, Check(True, f"{len(chosen):,} of them were checked in storage and exist")]
    # Named in metadata that is read after the look: another job's expiry stops naming a file before it removes it.
    missed = referenced(lake, table, wanted(spark, spark.createDataFrame([(path,) for path in gone], "file_path string")), len(gone))
    if missed:
        return [
            readable,
            Check(False, f"{count(len(missed), 'file')} of {len(chosen):,} checked in storage are GONE, for example {missed[0]}"),
        ]
    left = len(chosen) - len(gone)
    return [
        readable,
        Check(True, f"{left:,} of them were checked in storage and exist; another job removed {len(gone):,} from the table meanwhile"),
    ]


def _snapshots(lake: Lake, table: Identifier) -> dict[int, Json]:
    return {int(s["snapshot-id"]): s for s in load_metadata(lake.tables.source(table)).get("snapshots") or ()}
