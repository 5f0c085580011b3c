"""Try a change on a zero-copy clone; the table itself is never written to.

A clone is a second table in the catalog, whose metadata names the files of the first table. It
reads them in place, and writes everything to a scratch folder next to the table; only
that folder is removed with the clone. A :class:`Trial` provides such tables within a budget, or
copied samples if a catalog does not accept clones.
"""

from icekit.sandbox.clones import Clone, clone
from icekit.sandbox.scratch import (
    NAMESPACE,
    owned,
    owner_properties,
    remove_folders,
    scratch_folder,
    scratch_name,
)
from icekit.sandbox.stale import StaleClone, remove_stale, stale_clones
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
