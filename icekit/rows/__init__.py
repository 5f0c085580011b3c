"""The rows of a group of files: read under deletes, resolved and written, checked before the commit
and compared after it.
"""
