"""The health of tables over time: kept in an Iceberg table or in SQLite, read back bounded, and judged for trends."""

from icekit.history.store import Health, health

__all__ = ["Health", "health"]
