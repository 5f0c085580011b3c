"""Run a plan under a claim: attempts, conflicts, checks, proofs, resume; ``run_plan.py`` tells it
from top to bottom.
"""
