"""Where tables come from: the embedded lake, a profile, or an existing Spark session."""

from icekit.catalog.lake import EMBEDDED, Lake

__all__ = ["EMBEDDED", "Lake"]
