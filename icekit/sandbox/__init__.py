"""Try a change on a zero-copy clone; the table itself is never written to.

A clone is a second table in the catalog, whose metadata names the files of the first. It reads
them where they are, and everything it writes goes to a scratch folder beside the table, which
is all that is removed with it. A :class:`Trial` lends such tables within a budget, or copied
samples where a catalog takes no clones.
"""

from icekit.sandbox.clones import (
    NAMESPACE,
    Clone,
    StaleClone,
    clone,
    owned,
    owner_properties,
    remove_folders,
    remove_stale,
    scratch_folder,
    scratch_name,
    stale_clones,
)
from icekit.sandbox.trial import Budget, Sandbox, Trial

__all__ = [
    "NAMESPACE",
    "Budget",
    "Clone",
    "Sandbox",
    "StaleClone",
    "Trial",
    "clone",
    "owned",
    "owner_properties",
    "remove_folders",
    "remove_stale",
    "scratch_folder",
    "scratch_name",
    "stale_clones",
]
