"""Compare the rows before and after a commit, and say how many were compared."""

from icekit.prove.commits import prove_commits
from icekit.prove.fingerprint import Fingerprint, fingerprint, row_hash
from icekit.prove.proof import CommitProof, Mismatch, Proof

__all__ = [
    "CommitProof",
    "Fingerprint",
    "Mismatch",
    "Proof",
    "fingerprint",
    "prove_commits",
    "row_hash",
]
