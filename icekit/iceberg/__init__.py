"""Iceberg's own files, read and written without an engine: where they lie, and how a table moves."""
