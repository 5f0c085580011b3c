"""Resolve equality deletes: find the rows they delete with a join that Spark can spill, and delete
those rows by position.
"""
