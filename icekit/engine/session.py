"""Start, or borrow, the Spark session; nothing else in icekit creates one."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from icekit.common.errors import CatalogUnreachable, ProfileError, SparkUnavailable, require_library
from icekit.common.saving import spark_version
from icekit.common.secrets import SECRET_KEY, is_sensitive, remember_secrets, scrub
from icekit.common.terminal import report_waiting, stderr_to_file
from icekit.engine.bridge import has_bridge
from icekit.engine.causes import is_engine_error
from icekit.engine.compat import jvm_streams, sql_package
from icekit.engine.errors import complaint, reason
from icekit.engine.interrupting import keep_interrupt_handler
from icekit.engine.quick_start import QuickStart
from icekit.engine.spark_conf import ADDED, NEWEST_SPARK, SparkCatalogConf, require_runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How icekit's own session differs from Spark's defaults, and why.
_OWN_SESSION = {
    "spark.app.name": "icekit",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # The initial settings that Spark itself masks, in the event log and on its pages.
    "spark.redaction.regex": SECRET_KEY,
    # The cache of delete files can hang, and can ignore equality deletes (apache/iceberg
    # issues 10987 and 15039); figures that others rely on are measured without it.
    "spark.sql.iceberg.executor-cache.enabled": "false",
    # Queries of one shape on many tables and snapshots reuse their compiled code; by default, the
    # code of 100 is kept.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.driver.extraJavaOptions": "-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:+UseParallelGC",
}

# Compiled lightly, code is ready sooner; the cache for it would be small by default.
_LIGHT_COMPILATION = {
    "spark.driver.extraJavaOptions": f"{_OWN_SESSION['spark.driver.extraJavaOptions']} "
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}
_SMALL_WORK = {"spark.sql.shuffle.partitions": "4", **_LIGHT_COMPILATION}

# What PySpark and icekit ask the JVM for by its short name; each time, Py4J would look for it in
# several packages, and so in all of Spark's 300 jars.
_NAMES = ("PythonUtils", "functions", "java", "org")

# Only with executors in the driver's own process or machine; those elsewhere have to reach the
# driver.
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_own_spark: SparkSession | None = None
_is_session_kept = False
_starting = threading.Lock()


def running_session() -> SparkSession | None:
    """The existing session (notebook, EMR, Databricks), the one of the Connect server in
    ``SPARK_REMOTE``, or None; starts no Spark.

    Raises :class:`~icekit.common.errors.SparkUnavailable` if that server does not answer.
    """
    if remote_url := os.environ.get("SPARK_REMOTE"):
        return _remote_session(remote_url)
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _remote_session(remote_url: str) -> SparkSession:
    """The session of a Connect server, as PySpark itself takes it from ``SPARK_REMOTE``."""
    alternative_advice = "or unset SPARK_REMOTE, and icekit starts Spark itself"
    server_address, *url_parameters = remote_url.split(";")
    for url_parameter in url_parameters:
        key, _, parameter_value = url_parameter.partition("=")
        # PySpark repeats a parameter that is no pair, which may be a token without its name.
        remember_secrets({key: parameter_value} if parameter_value else {"token": url_parameter})
    server_url = urlsplit(server_address)
    with contextlib.suppress(ValueError):  # of a wrong port, which PySpark's client refuses
        host = server_url.hostname or ""
        port = server_url.port or 15002
        try:
            # PySpark's client tries for minutes.
            if server_url.scheme == "sc":
                socket.create_connection((host, port), timeout=10).close()
        except OSError:
            raise SparkUnavailable(
                f"No Spark Connect server answers at {host}:{port} (SPARK_REMOTE). Start it, "
                f"{alternative_advice}."
            ) from None
    try:
        from pyspark.sql import SparkSession

        session: SparkSession = SparkSession.builder.remote(remote_url).getOrCreate()
        server_version = session.version
    except Exception as error:
        raise SparkUnavailable(
            f"Spark Connect gives no session (SPARK_REMOTE): {reason(error)}. Check the address, "
            f"its token and the packages (`pip install 'icekit[connect]'`), {alternative_advice}."
        ) from None
    require_runtime(
        server_version, "Connect server (SPARK_REMOTE)", f"Use another one, {alternative_advice}."
    )
    return session


def own_session(
    catalog_conf: SparkCatalogConf, *, small_work: bool = False, light_work: bool = False
) -> SparkSession:
    """Start icekit's session with a catalog in it, or add the catalog to the one started;
    ``small_work`` is for one command on little data, and ``light_work`` for one whose heavy work is
    done outside the JVM.

    ``ICEKIT_SPARK_CONF`` (``key=value`` separated by spaces, quoted as in a shell) overrides any
    setting, for a master other than ``local[*]`` or a larger driver. A local session listens on
    127.0.0.1 only; on a cluster, the driver's host and address are Spark's own defaults, unless
    they are set. Raises :class:`~icekit.common.errors.SparkUnavailable`, and
    :class:`~icekit.common.errors.ExtraMissing` without PySpark.
    """
    # Threads that observe several tables may get here at the same time.
    with _starting:
        # A session that is kept may get larger work later.
        if _is_session_kept or not (small_work or light_work):
            return _own_session(catalog_conf, {})
        return _own_session(catalog_conf, _SMALL_WORK if small_work else _LIGHT_COMPILATION)


def _own_session(catalog_conf: SparkCatalogConf, extra_settings: Mapping[str, str]) -> SparkSession:
    global _own_spark
    if _own_spark is not None and _is_alive(_own_spark):
        add_catalog(_own_spark, catalog_conf)
        return _own_spark
    require_library("pyspark", "This")
    spark_settings = own_settings(
        os.environ.get("ICEKIT_SPARK_CONF", ""), catalog_conf.packages, extra_settings
    )
    remember_secrets({**_file_settings(), **spark_settings})
    remedy = f"Run `pip install 'pyspark=={NEWEST_SPARK}.*'`."
    require_runtime(spark_version(), "installation", remedy)
    java_path = require_java()
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    quick_start = QuickStart(
        spark_settings, catalog_conf.packages, java_path, Path(pyspark.__file__).parent
    )
    spark_settings = quick_start.settings
    public_settings = [
        (key, setting_value)
        for key, setting_value in spark_settings.items()
        if not is_sensitive(key, setting_value)
    ]
    # Java's notes on the vector module and native Hadoop, Ivy's listing.
    with (
        report_waiting("starting Spark", at_once=True),
        stderr_to_file() as log,
        keep_interrupt_handler(),
    ):
        try:
            # Everybody can read the JVM's command line, so secrets follow through the bridge's
            # socket.
            if SparkContext._gateway is None:
                threading.Thread(target=_import_modules_early, daemon=True).start()
                jvm_gateway = launch_gateway(
                    SparkConf(loadDefaults=False).setAll(public_settings), jvm_streams()
                )  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=jvm_gateway)
            spark_context = SparkContext.getOrCreate(
                SparkConf().setAll(list(spark_settings.items()))
            )
            jvm: Any = spark_context._jvm
            vars(jvm).update({jvm_name: getattr(jvm, jvm_name) for jvm_name in _NAMES})
            try:
                check_settings(
                    jvm,
                    {
                        key: str(setting_value)
                        for key, setting_value in spark_context.getConf().getAll()
                    },
                )
            except SparkUnavailable:
                spark_context.stop()
                raise
            session_builder: SparkSession.Builder = SparkSession.Builder()
            for key, setting_value in spark_settings.items():
                session_builder = session_builder.config(key, setting_value)
            _own_spark = session_builder.getOrCreate()
            quick_start.record_jars(spark_context)
        except SparkUnavailable:
            raise
        except Exception as error:
            start_output = scrub(log.read_text(errors="replace"))
            error.add_note(start_output)  # in the trace of --debug
            raise SparkUnavailable(
                f"Spark did not start: {_start_failure(start_output) or type(error).__name__}. "
                "Check Java (17 to 22), that Maven packages can be fetched, and ICEKIT_SPARK_CONF, "
                "then try again."
            ) from None
    add_catalog(_own_spark, catalog_conf)
    return _own_spark


def _import_modules_early() -> None:
    """Import, while the JVM starts, what PySpark imports when it first passes a value to Java (and
    pandas with it).
    """
    with contextlib.suppress(Exception):
        import pyspark.testing.utils  # noqa: F401


def _file_settings() -> dict[str, str]:
    """The settings of Spark's own file, ``spark-defaults.conf``, as far as it can be read: the JVM
    reads it itself.
    """
    spark_home = (
        os.environ.get("SPARK_HOME") or Path(require_library("pyspark", "This").origin or "").parent
    )
    conf_folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(spark_home, "conf"))
    try:
        conf_text = Path(conf_folder, "spark-defaults.conf").read_text(
            encoding="utf-8", errors="replace"
        )
    except OSError:
        return {}
    return dict(
        re.findall(r"^[ \t]*([^\s=:#!][^\s=:]*)[ \t]*[=: \t][ \t]*(\S.*?)\s*$", conf_text, re.M)
    )


def own_settings(
    conf_text: str,
    packages: Sequence[str] = (),
    extra_settings: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The settings of icekit's own session with these packages and ``extra_settings``;
    ``conf_text`` is
    ``ICEKIT_SPARK_CONF``.
    """
    usage_sentence = (
        "ICEKIT_SPARK_CONF must be key=value pairs, separated by spaces and quoted as in a shell"
    )
    try:
        setting_pairs = [setting_pair.partition("=") for setting_pair in shlex.split(conf_text)]
    except ValueError as error:
        raise SparkUnavailable(f"{usage_sentence}; its value cannot be parsed: {error}.") from None
    for word_number, (key, equals_sign, _) in enumerate(setting_pairs, 1):
        if not key or not equals_sign:
            # The word may be a secret, for example after a space that should be the =.
            raise SparkUnavailable(f"{usage_sentence}; word {word_number} has no = after a key.")
    session_settings = {
        "spark.master": "local[*]",
        "spark.jars.packages": ",".join(packages),
        **_OWN_SESSION,
        **extra_settings,
    }
    session_settings |= {key: setting_value for key, _, setting_value in setting_pairs}
    return (
        _LOOPBACK if session_settings["spark.master"].startswith("local") else {}
    ) | session_settings


def check_settings(jvm: Any, spark_settings: Mapping[str, str]) -> None:
    """Raise SparkUnavailable, with its name, for a setting that Spark SQL rejects, before there is
    a session.

    PySpark reads the session's settings to show an error; if a setting is the error, it retries for
    many minutes.
    """
    probe_conf = jvm.org.apache.spark.sql.internal.SQLConf()
    for key, setting_value in spark_settings.items():
        if key.startswith("spark.sql."):
            try:
                probe_conf.setConfString(key, setting_value)
            except Exception as error:
                if not is_engine_error(error):
                    raise
                raise SparkUnavailable(
                    f"Spark rejects the setting {key}: {complaint(error)}. Correct it "
                    "(ICEKIT_SPARK_CONF)."
                ) from None


def is_own_session(spark: SparkSession) -> bool:
    """Tell whether icekit started this session, and so may stop it."""
    return spark is _own_spark


def stop_own_session() -> None:
    """Stop the session if icekit started it and it is not kept; never another's."""
    global _own_spark
    if _own_spark is not None and not _is_session_kept:
        _own_spark.stop()
        _own_spark = None


@contextlib.contextmanager
def keep_session() -> Iterator[None]:
    """Keep icekit's session for the next command when one that has ended closes its lake."""
    global _is_session_kept
    was_session_kept = _is_session_kept
    _is_session_kept = True
    try:
        yield
    finally:
        _is_session_kept = was_session_kept


def add_catalog(spark: SparkSession, catalog_conf: SparkCatalogConf) -> None:
    """Configure a catalog in a running session, unless the session has one of that name.

    Secrets never become settings of the session, because Spark writes those in plain text into its
    event log (the properties of each job and stage, whatever ``spark.redaction.regex`` is) and onto
    its pages. The catalog is opened with them instead, and Spark keeps the open catalog. Raises
    :class:`~icekit.common.errors.ProfileError` if that is impossible and the session has an event
    log, and :class:`~icekit.common.errors.CatalogUnreachable` if the catalog cannot be opened.
    """
    setting_prefix = min(catalog_conf.settings, key=len)
    if spark.conf.get(setting_prefix, None) is not None:
        return
    secret_settings = {
        k: v
        for k, v in catalog_conf.settings.items()
        if is_sensitive(k.removeprefix(f"{setting_prefix}."), v) and spark.conf.get(k, None) != v
    }
    if secret_settings:
        if has_bridge(spark):
            _open_catalog(spark, setting_prefix, catalog_conf)
        elif spark.conf.get("spark.eventLog.enabled", "false") == "true":
            secret_keys_text = ", ".join(
                sorted(key.removeprefix(f"{setting_prefix}.") for key in secret_settings)
            )
            raise ProfileError(
                f"Profile {setting_prefix.rpartition('.')[2]!r} cannot be used in this session: it "
                f"is a remote one with an event log, and Spark would write {secret_keys_text} "
                f"there in plain text. Put {setting_prefix} and the settings under it into the "
                "cluster's own configuration, or turn spark.eventLog.enabled off."
            )
        else:
            secret_settings = {}
    spark.conf.set(f"{setting_prefix}.{ADDED}", "true")
    for key, setting_value in catalog_conf.settings.items():
        if key not in secret_settings and spark.conf.get(key, None) != setting_value:
            spark.conf.set(key, setting_value)


def _open_catalog(spark: SparkSession, setting_prefix: str, catalog_conf: SparkCatalogConf) -> None:
    """Let a session open a catalog with settings that it does not keep: this thread temporarily
    uses those of another session.
    """
    session_class = sql_package(spark).SparkSession
    java_session: Any = spark._jsparkSession
    settings_session = java_session.newSession()
    for key, setting_value in catalog_conf.settings.items():
        settings_session.conf().set(key, setting_value)
    previous_session = session_class.getActiveSession()
    # A catalog that is opened reads the settings of the active session of its thread.
    session_class.setActiveSession(settings_session)
    try:
        java_session.sessionState().catalogManager().catalog(setting_prefix.rpartition(".")[2])
    except Exception as error:
        raise CatalogUnreachable(
            f"Spark cannot open catalog {setting_prefix.rpartition('.')[2]!r}: {reason(error)}. "
            "Check the profile and the network; if the session was started without the catalog's "
            f"packages ({', '.join(catalog_conf.packages)}), start a new process, or restart the "
            "kernel."
        ) from None
    finally:
        if previous_session.isDefined():
            session_class.setActiveSession(previous_session.get())
        else:
            session_class.clearActiveSession()


def require_java() -> Path:
    """The Java that Spark will run on (``JAVA_HOME``, then ``PATH``); raises SparkUnavailable
    unless Spark supports it.

    17 to 22: with 23 and newer, Hadoop's use of the security manager fails.
    """
    java_home = os.environ.get("JAVA_HOME")
    java_path = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if not java_path or not os.access(java_path, os.X_OK):
        raise SparkUnavailable(
            "Spark needs Java 17 to 22 but none was found. Install one (apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME."
        )
    version_output = subprocess.run(
        [java_path, "-version"], capture_output=True, text=True, check=False
    ).stderr
    version_match = re.search(r'version "(\d+)', version_output)
    if version_match and not 17 <= int(version_match[1]) <= 22:
        raise SparkUnavailable(
            f"Spark needs Java 17 to 22, but {java_path} is Java {version_match[1]}. Set JAVA_HOME "
            "to a supported version."
        )
    return Path(java_path)


def _is_alive(spark: SparkSession) -> bool:
    spark_context = getattr(spark, "_sc", None)
    return spark_context is None or spark_context._jsc is not None


def _start_failure(start_output: str) -> str | None:
    """The line of a failed start that names the cause."""
    # The JVM's own options first.
    option_errors = re.findall(r"^(?:Invalid|Unrecognized) .*$", start_output, re.M)[:1]
    error_lines = option_errors or re.findall(
        r"^(?!\s+at ).*(?:unresolved dependency|not found|Exception|Error).*$", start_output, re.M
    )
    return str(error_lines[-1]).strip()[:300].rstrip(".") if error_lines else None
