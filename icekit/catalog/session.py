"""Start, or borrow, the Spark session; nothing else in icekit makes one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icekit.catalog.profile import SparkCatalogConf
from icekit.engine.bridge import has_bridge
from icekit.engine.errors import is_of_engine, reason
from icekit.engine.interrupting import handler_kept
from icekit.errors import CatalogUnreachable, ProfileError, SparkUnavailable
from icekit.secrets import SECRET_KEY, is_masked, remember, scrub
from icekit.terminal import stderr_to_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Marks a catalog of the session as one that icekit has configured.
ADDED = "icekit.added"
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

# What icekit's own session differs in from Spark's defaults, and why.
_OWN_SESSION = {
    "spark.app.name": "icekit",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.extensions": _EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    # What Spark itself masks, in the event log and on its pages, of the settings that it starts with.
    "spark.redaction.regex": SECRET_KEY,
    # The cache of delete files can hang, and can ignore equality deletes (apache/iceberg
    # issues 10987 and 15039); figures that others rely on are not made with it.
    "spark.sql.iceberg.executor-cache.enabled": "false",
    # Queries of one shape, asked of many tables and snapshots, keep their compiled code; by default that of 100 is kept.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.driver.extraJavaOptions": "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:+UseParallelGC",
}

_started: SparkSession | None = None
_starting = threading.Lock()


def running_session() -> SparkSession | None:
    """The session that is there (notebook, EMR, Databricks, Connect), or None; starts nothing."""
    import sys

    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def own_session(conf: SparkCatalogConf) -> SparkSession:
    """Start icekit's session with a catalog in it, or add the catalog to the one started.

    ``ICEKIT_SPARK_CONF`` (``key=value`` separated by spaces, quoted as in a shell) overrides any setting, for a
    master other than ``local[*]`` or a larger driver. Raises
    :class:`~icekit.errors.SparkUnavailable`.
    """
    # Threads that observe several tables may ask at the same moment.
    with _starting:
        return _own_session(conf)


def _own_session(conf: SparkCatalogConf) -> SparkSession:
    global _started
    if _started is not None and _is_alive(_started):
        add_catalog(_started, conf)
        return _started
    settings = {"spark.master": "local[*]", "spark.jars.packages": ",".join(conf.packages), **_OWN_SESSION}
    settings |= own_settings(os.environ.get("ICEKIT_SPARK_CONF", ""))
    remember(settings)
    require_java()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    shown = [(key, value) for key, value in settings.items() if not is_masked(key, value)]
    # Java's notes on the vector module and native Hadoop, Ivy's listing.
    with stderr_to_file() as log, handler_kept():
        try:
            # The JVM's command line is for all to read; what is secret follows by the bridge's socket.
            SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))
            context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
            try:
                check_settings(context._jvm, {key: str(value) for key, value in context.getConf().getAll()})
            except SparkUnavailable:
                context.stop()
                raise
            builder: SparkSession.Builder = SparkSession.Builder()
            for key, value in settings.items():
                builder = builder.config(key, value)
            _started = builder.getOrCreate()
        except SparkUnavailable:
            raise
        except Exception as error:
            said = scrub(log.read_text(errors="replace"))
            raise SparkUnavailable(
                f"Spark did not start: {_reason(said) or type(error).__name__}. "
                "Check Java (17 to 22), that Maven packages can be fetched, and ICEKIT_SPARK_CONF, then try again.",
                detail=scrub(f"{said}\n{error}"),
            ) from None
    add_catalog(_started, conf)
    return _started


def own_settings(text: str) -> dict[str, str]:
    """What ``ICEKIT_SPARK_CONF`` says."""
    form = "ICEKIT_SPARK_CONF is key=value, separated by spaces and quoted as in a shell"
    try:
        pairs = [pair.partition("=") for pair in shlex.split(text)]
    except ValueError as error:
        raise SparkUnavailable(f"{form}; what it holds cannot be read: {error}.") from None
    for key, equals, value in pairs:
        if not key or not equals:
            raise SparkUnavailable(f"{form}; {key + equals + value!r} has no = after a key.")
    return {key: value for key, _, value in pairs}


def check_settings(jvm: Any, settings: Mapping[str, str]) -> None:
    """Raise SparkUnavailable for a setting of Spark SQL that it refuses, by name, before there is a session.

    PySpark asks the session's settings how to show an error; where those are the error, it asks for many minutes.
    """
    scratch = jvm.org.apache.spark.sql.internal.SQLConf()
    for key, value in settings.items():
        if key.startswith("spark.sql."):
            try:
                scratch.setConfString(key, value)
            except Exception as error:
                if not is_of_engine(error):
                    raise
                said = scrub(str(error)).strip()
                cause = re.findall(r"^: \S+?: (.+)$", said, re.M)
                raise SparkUnavailable(
                    f"Spark refuses the setting {key}: {(cause or said.splitlines())[0][:300].rstrip('.')}. Correct it (ICEKIT_SPARK_CONF).",
                    detail=said,
                ) from None


def is_own(spark: SparkSession) -> bool:
    """Tell whether icekit started this session, and so may stop it."""
    return spark is _started


def stop_own() -> None:
    """Stop the session that icekit started, if it did; never another's."""
    global _started
    if _started is not None:
        _started.stop()
        _started = None


def add_catalog(spark: SparkSession, conf: SparkCatalogConf) -> None:
    """Configure a catalog in a running session, unless the session has one of that name.

    What is secret never becomes a setting of the session, as Spark writes those in plain text into its event log (the
    properties of each job and stage, whatever ``spark.redaction.regex`` is) and onto its pages. The catalog is opened with it
    instead, and Spark keeps the open catalog. Raises :class:`~icekit.errors.ProfileError` where that cannot be and the
    session has an event log, and :class:`~icekit.errors.CatalogUnreachable` if the catalog cannot be opened.
    """
    base = min(conf.settings, key=len)
    if spark.conf.get(base, None) is not None:
        return
    secret = {k: v for k, v in conf.settings.items() if is_masked(k.removeprefix(f"{base}."), v) and spark.conf.get(k, None) != v}
    if secret:
        if has_bridge(spark):
            _open(spark, base, conf.settings)
        elif spark.conf.get("spark.eventLog.enabled", "false") == "true":
            name, keys = base.rpartition(".")[2], ", ".join(sorted(key.removeprefix(f"{base}.") for key in secret))
            raise ProfileError(
                f"Profile {name!r} cannot be used in this session: it is a remote one with an event log, and Spark would write {keys} there in plain text. "
                f"Put {base} and the settings under it into the cluster's own configuration, or turn spark.eventLog.enabled off."
            )
        else:
            secret = {}
    spark.conf.set(f"{base}.{ADDED}", "true")
    for key, value in conf.settings.items():
        if key not in secret and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def _open(spark: SparkSession, base: str, settings: Mapping[str, str]) -> None:
    """Let a session open a catalog with settings that it does not get: this thread lends it those of another session."""
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    own: Any = spark._jsparkSession
    lender = own.newSession()
    for key, value in settings.items():
        lender.conf().set(key, value)
    before = sessions.getActiveSession()
    # A catalog that is opened asks the session that is active in its thread for its settings.
    sessions.setActiveSession(lender)
    try:
        own.sessionState().catalogManager().catalog(base.rpartition(".")[2])
    except Exception as error:
        raise CatalogUnreachable(
            f"Spark cannot open catalog {base.rpartition('.')[2]!r}: {reason(error)}. Check its profile and the network.", detail=str(error)
        ) from None
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def require_java() -> None:
    """Raise SparkUnavailable unless a Java that Spark runs on is found (``JAVA_HOME``, then ``PATH``).

    17 or newer, and older than 23: from there on Hadoop's use of the security manager fails.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        raise SparkUnavailable(
            "Spark needs Java 17 to 22 and none was found; install one (apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', answer)
    if version and not 17 <= int(version[1]) <= 22:
        raise SparkUnavailable(f"Spark 4 needs Java 17 to 22 and {java} is Java {version[1]}; set JAVA_HOME to one of those.")


def _is_alive(spark: SparkSession) -> bool:
    context = getattr(spark, "_sc", None)
    return context is None or context._jsc is not None


def _reason(said: str) -> str | None:
    """The line of a failed start that names the cause."""
    if wrong := re.findall(r"^(?:Invalid|Unrecognized) .*$", said, re.M):  # the JVM's own options
        return str(wrong[0]).strip()[:300].rstrip(".")
    lines: Sequence[str] = re.findall(r"^.*(?:unresolved dependency|not found|Exception|Error).*$", said, re.M)
    return lines[-1].strip()[:300].rstrip(".") if lines else None
