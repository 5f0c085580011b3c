"""What was checked before a commit, as the commit's summary keeps it and a proof says it."""

from typing import Any

from icekit.rows.proof.checked import CheckedPositions, CheckedRows
from icekit.rows.proof.fingerprint import Fingerprint
from icekit.rows.proof.proof import CHECKED, SCANNED, Check, CommitProof, Mismatch, Proof

PLAIN = CheckedRows(rows=10, read=10)
SAMPLED = CheckedRows(
    rows=1000, sampled=15, files=2, of_files=40, read=1055, resolved=300, one_in=64
)
EVERY = CheckedRows(rows=5, sampled=4, read=9, resolved=2, one_in=1)
POSITIONS = CheckedPositions(
    positions=1_000, resolved=300, sampled=15, one_in=64, files=2, of_files=40
)
READ = CheckedRows(rows=5, by_reader=5, read=5, resolved=2)


def test_a_summary_keeps_all_of_it() -> None:
    for checked in (PLAIN, SAMPLED, EVERY, READ):
        assert CheckedRows.of(checked.text()) == checked
    assert CheckedPositions.of(POSITIONS.text()) == POSITIONS


def test_groups_of_one_commit_add_up_and_stay_a_sample_if_one_of_them_is() -> None:
    both = SAMPLED + EVERY

    assert (both.rows, both.sampled, both.resolved, both.one_in) == (1005, 19, 302, 64)
    assert both.is_sampled
    assert not (PLAIN + EVERY).is_sampled


def test_words_say_how_much_was_compared() -> None:
    assert "the same as were read from the old files" in str(PLAIN)
    assert "15 rows (one key in 64)" in str(SAMPLED)
    assert str(READ).endswith("where Iceberg's own reader applied the equality deletes")
    assert str(READ + EVERY).endswith(
        "4 rows (every key) by a plain join: all equal; Iceberg's own reader applied those of 5 "
        "other rows"
    )
    assert "40 rows of 2 files by Iceberg's own reader: all equal" in str(READ + SAMPLED)


def test_words_on_positions_say_how_much_was_compared() -> None:
    assert str(POSITIONS) == (
        "1,000 deleted positions read back from the new delete files before the commit; checked "
        "on 15 rows (one key in 64) by a plain join, and on 40 rows of 2 files by Iceberg's own "
        "reader: all equal"
    )
    assert (
        str(CheckedPositions(resolved=1, one_in=1))
        == "0 deleted positions read back from the new delete files before the commit"
    )


def proof(*commits: CommitProof) -> Proof:
    return Proof("db.t", commits, 1.0)


def commit(**more: Any) -> CommitProof:
    rows = Fingerprint(10, 7)
    return CommitProof(1, "", 3, before=rows, after=rows, **more)


def test_the_verdict_says_what_was_found() -> None:
    assert repr(proof(commit())).startswith("db.t: no row changed in 1 commit, compared in full;")
    wrong = commit(mismatches=(Mismatch("p=1", Fingerprint(1, 1), Fingerprint()),))
    assert repr(proof(wrong)).startswith("db.t: ROWS CHANGED in 1 commit, compared in full;")


def test_a_proof_gives_its_seconds_only_if_they_are_those_of_all_checks() -> None:
    for each in (commit(), commit(mode=SCANNED)):
        assert repr(proof(each)).splitlines()[0].endswith("in 1.0 s")
    assert "1.0 s" not in repr(proof(commit(mode=CHECKED), commit(mode=SCANNED)))


def test_what_could_not_be_compared_is_not_proved() -> None:
    assert CommitProof(1, "it has expired").ok is None
    not_made = Proof(
        "db.t", (), 0.0, maintenance_checks=(Check(None, "Action a1 could not be proved"),)
    )
    both = Proof.of([proof(commit()), not_made])

    assert both.ok is None
    assert repr(both).startswith("db.t: not everything could be proved in 1 commit")
    assert "? Action a1 could not be proved" in repr(both)
    lost = Proof("db.t", (), 0.0, maintenance_checks=(Check(False, "gone"), Check(None, "unknown")))
    assert lost.ok is False
    assert repr(lost).startswith("db.t: SOMETHING WAS LOST")
