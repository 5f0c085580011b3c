"""Prove that no row changed, or that a person's rows are gone."""

from icekit.prove.commits import prove_commits
from icekit.prove.erasure import prove_erased
from icekit.prove.erasure_result import Erasure
from icekit.prove.fingerprint import Fingerprint, fingerprint, row_hash
from icekit.prove.proof import CommitProof, Mismatch, Proof

__all__ = ["CommitProof", "Erasure", "Fingerprint", "Mismatch", "Proof", "fingerprint", "prove_commits", "prove_erased", "row_hash"]
