"""The rows of a group of files: resolved under deletes and written by the kernel in Spark's tasks."""
