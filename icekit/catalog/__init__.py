"""Where tables come from: the embedded lake, a profile, or the Spark session that is there."""

from icekit.catalog.lake import EMBEDDED, Lake, connect

__all__ = ["EMBEDDED", "Lake", "connect"]
