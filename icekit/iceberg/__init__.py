"""Iceberg's own files, read and written without an engine: where they lie, and how a table moves."""

#: A property of a table that was unpacked without its data files.
WITHOUT_DATA = "icekit.without-data"
