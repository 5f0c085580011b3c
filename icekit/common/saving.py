"""Save results: complete or not at all, without secrets, under names that are safe for files."""

import contextlib
import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from icekit.common.secrets import mask, mask_data

_PACKAGES = ("icekit", "pyiceberg", "fastavro", "pandas", "papermill")
_LONGEST_NAME = 120


class Result(Protocol):
    """The result of a notebook or a command: a plan's outcome, an answer, a review."""

    @property
    def failure(self) -> str | None:
        """Why the run failed, or None."""

    def write_into(self, folder: Path) -> Path:
        """Write its JSON document into a folder."""


def slug(name: str) -> str:
    """A file name for a table: its own where that is safe, distinct otherwise."""
    safe_name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    if safe_name == name and len(safe_name) < _LONGEST_NAME:
        return safe_name
    return f"{safe_name[:100]}-{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that figures may depend on; imports none of them."""
    import platform

    package_versions = {name: _package_version(name) for name in _PACKAGES}
    package_versions["pyspark"] = spark_version()
    installed_versions = {name: version for name, version in package_versions.items() if version}
    return {"python": platform.python_version()} | installed_versions


def _package_version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def spark_version() -> str:
    """PySpark's version, empty without PySpark, which is not imported. A platform's own is in no
    list of installed packages: its file is read.
    """
    module_spec = find_spec("pyspark")
    loader: Any = module_spec and module_spec.loader
    if module_spec is None or not module_spec.origin:
        return ""
    version_file_text: str = loader.get_data(
        str(Path(module_spec.origin).with_name("version.py"))
    ).decode()
    version_match = re.search(r"""^__version__.*["'](.+)["']""", version_file_text, re.M)
    return version_match[1] if version_match else ""


def write_json(path: Path, document: Any) -> Path:
    """Write a document as :func:`as_json` does."""
    return write_text(path, as_json(document), is_clean=True)


def as_data(record: Any) -> dict[str, Any]:
    """A record and what is in it as JSON has them: dataclasses as objects, enums by value."""
    from pydantic_core import to_jsonable_python

    json_data: dict[str, Any] = to_jsonable_python(record, fallback=str)
    return json_data


def as_json(document: Any) -> str:
    """A document as JSON without secrets; types unknown to JSON become strings, and NaN raises
    ValueError.
    """
    return json.dumps(mask_data(as_data(document)), indent=1, allow_nan=False)


def write_text(path: Path, text: str, *, is_clean: bool = False) -> Path:
    """Write text without secrets (unless it is ``is_clean``); a reader never sees a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_file = path.with_name(path.name + ".partial")
    try:
        partial_file.write_text(text if is_clean else mask(text), encoding="utf-8")
        partial_file.replace(path)
    except OSError as error:
        # On a full disk, not even half a file may stay.
        with contextlib.suppress(OSError):
            partial_file.unlink(missing_ok=True)
        # An error from an open file does not name it.
        error.filename = error.filename or str(path)
        raise
    return path
