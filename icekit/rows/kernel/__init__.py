"""Resolve and write rows by DuckDB over Arrow, in Spark's tasks."""
