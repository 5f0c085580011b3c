"""Plan the maintenance of a table outside its data files: deletes, manifests, snapshots, orphan
files.
"""
