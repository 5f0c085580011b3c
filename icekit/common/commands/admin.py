"""The options of ``lab``, ``demo``, ``notebook`` and ``admin``."""

from icekit.common.commands.shared import CatalogOptions
from icekit.common.options import Settings, setting


class LabOptions(Settings):
    """``icekit lab``."""

    names: tuple[str, ...] = setting(
        (), "tables (default: those that icekit is installed with)", "NAME", nargs="*"
    )
    all: bool = setting(False, "all tables; those beyond the default are in a clone of icekit")
    reset: bool = setting(
        False, "put tables back as they were unpacked; all later changes are lost"
    )
    list: bool = setting(False, "only list the tables and what is wrong with each")


class DemoOptions(Settings):
    """``icekit demo``."""


class NotebookOptions(Settings):
    """``icekit notebook``."""

    folder: str = setting("my-notebooks", "open copies of the notebooks in this folder", "FOLDER")
    flags: tuple[str, ...] = setting((), "flags of JupyterLab, after --", "FLAG", nargs="*")


class ClonesOptions(CatalogOptions):
    """``icekit admin clones``."""

    remove: bool = setting(
        False, "drop the clones whose process has ended, and remove their folders"
    )
