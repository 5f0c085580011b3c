"""The kinds of a table's files."""

from enum import StrEnum


class Kind(StrEnum):
    """The kind of a file in a manifest."""

    DATA = "data"
    POSITION_DELETES = "position_deletes"
    EQUALITY_DELETES = "equality_deletes"
    DELETION_VECTORS = "deletion_vectors"


DELETE_KINDS = (Kind.POSITION_DELETES, Kind.EQUALITY_DELETES, Kind.DELETION_VECTORS)
