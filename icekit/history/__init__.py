"""The health of tables over time: stored in an Iceberg table or in SQLite, read back in bounded amounts, and checked for trends."""

from icekit.history.store import Health, health

__all__ = ["Health", "health"]
