"""Try a change on a zero-copy clone; the table itself is never written to.

A clone is a second table in the catalog, whose metadata names the files of the first. It reads
them where they are, and everything it writes goes to a scratch folder beside the table, which
is all that is removed with it.
"""

from icekit.clone.clones import Clone, StaleClone, clone, remove_folders, remove_stale, stale_clones
from icekit.clone.scratch import NAMESPACE, owned, owner_properties, scratch_folder, scratch_name

__all__ = [
    "NAMESPACE",
    "Clone",
    "StaleClone",
    "clone",
    "owned",
    "owner_properties",
    "remove_folders",
    "remove_stale",
    "scratch_folder",
    "scratch_name",
    "stale_clones",
]
