"""Plan what keeps a table well beside its data files: deletes, manifests, snapshots, orphans."""

import icekit.compact  # noqa: F401  # first: its runner holds maintenance to the guard of this room, so each needs the other
from icekit.maintain.plan import DEFAULT_PROCEDURES, PROCEDURES, plan_maintenance
from icekit.maintain.retention import Expiry, Retention, expiry
from icekit.maintain.service import plan_maintenance_table

__all__ = ["DEFAULT_PROCEDURES", "PROCEDURES", "Expiry", "Retention", "expiry", "plan_maintenance", "plan_maintenance_table"]
