"""Start Spark in about half the time: the jars that its packages resolved to go on its class path, and its classes come from an archive.

Most of a start is Ivy, which resolves the packages again each time, and the JVM, which parses and verifies 15,000 classes. Java's own class
data sharing (``-XX:ArchiveClassesAtExit``, JEP 350) keeps those of one run in a file for the next. The JVM checks that Java and all jars are the
same, and otherwise ignores the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_JAVA_OPTIONS, _CLASS_PATH, _PACKAGES = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath", "spark.jars.packages"
# Settings that change which classes Spark finds.
_OWN_JARS = ("spark.jars", _CLASS_PATH, "spark.driver.userClassPathFirst", "spark.executor.extraClassPath", "spark.submit.pyFiles")
_RESOLVING = (_PACKAGES, "spark.jars.repositories", "spark.jars.excludes", "spark.jars.ivy", "spark.jars.ivySettings")
# A process that began to write an archive this long ago has failed.
_FAILED_SECONDS = 3600
# The JVM names, on standard output, each class that it does not archive, and each archive that it cannot use.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def cache_folder() -> Path:
    """Where the archives are kept: ``icekit`` under ``XDG_CACHE_HOME``, or under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icekit"


class QuickStart:
    """The quickest start of a session with some settings by a certain Java; ``settings`` are what to start it with.

    Only for Spark in one process: executors elsewhere need their packages. It changes nothing if the settings have jars or archives of their
    own, and fails silently, because all it saves is time.
    """

    def __init__(self, settings: Mapping[str, str], java: Path, spark_version: str) -> None:
        self.settings = dict(settings)
        master, options = settings.get("spark.master", ""), settings.get(_JAVA_OPTIONS, "")
        self.is_possible = (
            (master == "local" or master.startswith("local["))
            and _PACKAGES in settings
            and not any(settings.get(name) for name in _OWN_JARS)
            and not any(word in options for word in ("SharedArchiveFile", "ArchiveClasses", "-Xshare"))
        )
        if not self.is_possible:
            return
        known = [spark_version, _identity(java), *(settings.get(name, "") for name in _RESOLVING)]
        base = cache_folder() / f"spark-{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]}"
        self.jars_file, self.archive = base.with_suffix(".json"), base.with_suffix(".jsa")
        with contextlib.suppress(OSError, ValueError, TypeError):
            jars = json.loads(self.jars_file.read_text())
            if all(Path(jar).stat().st_size == size for jar, size in jars.items()):
                del self.settings[_PACKAGES]
                self.settings[_CLASS_PATH] = os.pathsep.join(jars)
                self.settings[_JAVA_OPTIONS] = " ".join(filter(None, (options, *self._sharing())))

    def _sharing(self) -> Sequence[str]:
        """The JVM's options to use the archive, or to write it when Spark ends."""
        path = shlex.quote(str(self.archive))
        try:
            with self.archive.open("rb") as file:
                # The JVM writes the header last.
                if any(file.read(4)):
                    return (f"-XX:SharedArchiveFile={path}", _SILENT)
            if time.time() - self.archive.stat().st_mtime < _FAILED_SECONDS:
                return ()
            self.archive.touch()
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                # Of processes that start together, one writes it.
                self.archive.open("x").close()
                return (f"-XX:ArchiveClassesAtExit={path}", _SILENT)
            return ()
        return (f"-XX:ArchiveClassesAtExit={path}", _SILENT)

    def remember(self, context: Any) -> None:
        """Note which jars the packages of a session resolved to, for the next start."""
        if not self.is_possible or _PACKAGES not in self.settings:
            return
        with contextlib.suppress(OSError):
            paths = [unquote(urlsplit(jar).path) for jar in context.getConf().get("spark.jars", "").split(",") if jar]
            jars = {path: Path(path).stat().st_size for path in paths}
            if not jars or any(os.pathsep in path for path in paths):
                return
            self.jars_file.parent.mkdir(parents=True, exist_ok=True)
            written = self.jars_file.with_suffix(f".{os.getpid()}")
            written.write_text(json.dumps(jars))
            written.replace(self.jars_file)


def _identity(java: Path) -> str:
    """What tells one Java from another: its path, and the release file next to it."""
    home = java.resolve().parents[1]
    with contextlib.suppress(OSError):
        return f"{home} {(home / 'release').read_text()}"
    return str(home)
