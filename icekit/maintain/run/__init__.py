"""Run a plan under a checkpoint: claims, attempts, conflicts, proofs, resume; and the full
conversion of equality deletes.
"""
