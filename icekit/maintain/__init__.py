"""Plan the maintenance of a table outside its data files: deletes, manifests, snapshots, orphan
files.
"""

from icekit.facts.retention import Expiry, Retention, expiry
from icekit.maintain.plan import (
    DEFAULT_PROCEDURES,
    PROCEDURES,
    plan_maintenance,
    plan_maintenance_table,
)
from icekit.maintain.proposals import Proposal, Proposals, propose

__all__ = [
    "DEFAULT_PROCEDURES",
    "PROCEDURES",
    "Expiry",
    "Proposal",
    "Proposals",
    "Retention",
    "expiry",
    "plan_maintenance",
    "plan_maintenance_table",
    "propose",
]
