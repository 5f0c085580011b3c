"""Start Spark in about half the time: the jars that its packages resolved to go on its class path,
and its classes come from an archive.

Most of a start is Ivy, which resolves the packages again each time, and the JVM, which parses and
verifies 15,000 classes. Java's own class data sharing (``-XX:ArchiveClassesAtExit``, JEP 350) keeps
those of one run in a file for the next. The JVM checks that Java and all jars are the same, and
otherwise ignores the file.
"""

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

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
_PACKAGES = "spark.jars.packages"
# Settings that change which classes Spark finds.
_OWN_JARS = (
    "spark.jars",
    _CLASS_PATH,
    "spark.driver.userClassPathFirst",
    "spark.executor.extraClassPath",
    "spark.submit.pyFiles",
)
_RESOLVING = (
    _PACKAGES,
    "spark.jars.repositories",
    "spark.jars.excludes",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
)
# A process that began to write an archive this long ago has failed; an archive that nobody used for
# this long is removed.
_FAILED_SECONDS = 3600
_UNUSED_SECONDS = 30 * 86_400
# The JVM names, on standard output, each class that it does not archive, and each archive that it
# cannot use.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def cache_folder() -> Path:
    """Where the archives are kept: ``icekit`` under ``XDG_CACHE_HOME``, or under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icekit"


class QuickStart:
    """The quickest start of a session with some settings by a certain Java; ``settings`` are what
    to start it with.

    Only for Spark in one process with icekit's own ``packages``: executors elsewhere need theirs,
    and other packages may bring classes that Spark has too. It changes nothing if the settings have
    jars or archives of their own, and fails silently, because all it saves is time.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        packages: Sequence[str],
        java_binary: Path,
        spark_home: Path,
    ) -> None:
        self.settings = dict(settings)
        spark_master = settings.get("spark.master", "")
        java_options = settings.get(_JAVA_OPTIONS, "")
        self.is_possible = (
            (spark_master == "local" or spark_master.startswith("local["))
            and settings.get(_PACKAGES) == ",".join(packages)
            and not any(settings.get(setting_name) for setting_name in _OWN_JARS)
            and not any(
                option_word in java_options
                for option_word in ("SharedArchiveFile", "ArchiveClasses", "-Xshare")
            )
        )
        if not self.is_possible:
            return
        try:
            resolution_settings = [settings.get(setting_name, "") for setting_name in _RESOLVING]
            self._prepare(
                java_options,
                [
                    str(spark_home.resolve()),
                    _jar_stamps([str(java_binary.resolve())]),
                    resolution_settings,
                ],
            )
        # A process may have no home, or none that it may read.
        except (OSError, RuntimeError, ValueError, TypeError, LookupError):
            self.is_possible = False

    def _prepare(self, java_options: str, start_inputs: object) -> None:
        archive_folder = cache_folder()
        if os.pathsep in str(archive_folder):
            raise ValueError("the JVM takes a colon for the end of the archive's name")
        self.jars_file = archive_folder / f"spark-{_digest(start_inputs)}.json"
        if not self.jars_file.exists():
            return
        stamps_by_jar = json.loads(self.jars_file.read_text())
        if stamps_by_jar != _jar_stamps(list(stamps_by_jar)):
            return
        sharing_options = self._sharing_options(
            self.jars_file.with_name(f"{self.jars_file.stem}-{_digest(stamps_by_jar)}.jsa")
        )
        del self.settings[_PACKAGES]
        self.settings |= {
            _CLASS_PATH: os.pathsep.join(stamps_by_jar),
            _JAVA_OPTIONS: " ".join(filter(None, (java_options, *sharing_options))),
        }

    def _sharing_options(self, archive_file: Path) -> Sequence[str]:
        """The JVM's options to use the archive, or to write it when Spark ends."""
        quoted_path = shlex.quote(str(archive_file))
        write_options = (f"-XX:ArchiveClassesAtExit={quoted_path}", _SILENT)
        try:
            with archive_file.open("rb") as archive_stream:
                # The JVM writes the header last.
                if any(archive_stream.read(4)):
                    os.utime(archive_file)
                    return (f"-XX:SharedArchiveFile={quoted_path}", _SILENT)
            if time.time() - archive_file.stat().st_mtime < _FAILED_SECONDS:
                return ()
            archive_file.touch()
        except FileNotFoundError:
            try:
                # Of processes that start together, one writes it.
                archive_file.open("x").close()
            except FileExistsError:
                return ()
        return write_options

    def record_jars(self, spark_context: Any) -> None:
        """Note which jars the packages of a session resolved to, for the next start; remove
        archives that are of no more use.
        """
        spark_conf = spark_context.getConf()
        # Spark's own configuration files may name other jars.
        if (
            not self.is_possible
            or spark_conf.get(_CLASS_PATH, "")
            or spark_conf.get(_PACKAGES, "") != self.settings.get(_PACKAGES)
        ):
            return
        with contextlib.suppress(OSError):
            jar_paths = [
                unquote(urlsplit(jar).path)
                for jar in spark_conf.get("spark.jars", "").split(",")
                if jar
            ]
            if not jar_paths or any(os.pathsep in jar_path for jar_path in jar_paths):
                return
            self.jars_file.parent.mkdir(parents=True, exist_ok=True)
            temporary_file = self.jars_file.with_suffix(f".{os.getpid()}")
            temporary_file.write_text(json.dumps(_jar_stamps(jar_paths)))
            temporary_file.replace(self.jars_file)
            for archive_file in self.jars_file.parent.glob("spark-*.jsa"):
                if time.time() - archive_file.stat().st_mtime > _UNUSED_SECONDS:
                    archive_file.unlink()


def _jar_stamps(jar_paths: Sequence[str]) -> dict[str, list[int]]:
    """The size of each jar, and when it was written: what the JVM compares as well."""
    stat_by_jar = {jar_path: Path(jar_path).stat() for jar_path in jar_paths}
    return {
        jar_path: [jar_stat.st_size, jar_stat.st_mtime_ns]
        for jar_path, jar_stat in stat_by_jar.items()
    }


def _digest(json_value: object) -> str:
    return hashlib.sha256(json.dumps(json_value).encode()).hexdigest()[:16]
