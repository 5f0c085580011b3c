"""Try a change on a zero-copy clone; the table itself is never written to.

A clone is a second table in the catalog, whose metadata names the files of the first table. It
reads them in place, and writes everything to a scratch folder next to the table; only
that folder is removed with the clone. A :class:`Trial` provides such tables within a budget, or
copied samples if a catalog does not accept clones.
"""
