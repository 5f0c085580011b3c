"""Resolve equality deletes: find the rows they delete by a join that Spark can spill, and delete those by position."""
