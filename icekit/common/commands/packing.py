"""The options of ``pack`` and ``unpack``."""

from icekit.common.commands.shared import TableOptions
from icekit.common.options import Settings, setting


class PackOptions(TableOptions):
    """``icekit pack``."""

    file: str = setting("", "the file to write, such as events.icekit.zip", "FILE", nargs="1")
    data: bool = setting(False, "with all files of data and deletes")
    redact: bool = setting(
        False, "replace names of columns, texts in bounds and partitions, and file names"
    )


class UnpackOptions(Settings):
    """``icekit unpack``."""

    file: str = setting("", "a file that icekit pack wrote", "FILE", nargs="1")
    name: str = setting("", "another name for its table, such as db.events", "NAME")
