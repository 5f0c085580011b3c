"""Plan the rewrites that are worth it: candidates, budget, prediction, and the outcome of a
plan.
"""
