"""The format and its rules: Iceberg's own files, read and written without an engine."""

#: Reserved field id of file_path in a position delete file (table spec, "Reserved Field IDs").
PATH_FIELD_ID = 2147483546
#: A property of a table that was unpacked without its data files.
WITHOUT_DATA = "icekit.without-data"
