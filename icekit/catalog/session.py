"""Translate a PyIceberg catalog profile into Spark settings, and start, or borrow, the Spark
session; nothing else in icekit creates one.

PyIceberg's own configuration is the only profile; nothing is configured twice. Keys that
mean the same are translated, keys that mean nothing to Spark are ignored, and every other key is
rejected by name: a setting without effect would be worse.
"""

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from icekit.catalog.quick_start import QuickStart
from icekit.engine.bridge import has_bridge
from icekit.engine.compat import classic, streams
from icekit.engine.errors import is_of_engine, reason
from icekit.engine.interrupting import handler_kept
from icekit.errors import (
    CatalogUnreachable,
    ProfileError,
    SparkUnavailable,
    first_line,
    nearest,
    require,
)
from icekit.saving import spark_version
from icekit.secrets import SECRET_KEY, is_masked, remember, scrub
from icekit.terminal import never_silent, stderr_to_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark's version, for example ``4.1``; empty without PySpark.
SPARK = ".".join(spark_version().split(".")[:2])
# : The versions of Spark that icekit runs on: Scala's version there, and the newest Iceberg that
# has a runtime for it.
RUNTIMES = {"3.5": ("2.12", "1.12.0"), "4.0": ("2.13", "1.11.0"), "4.1": ("2.13", "1.12.0")}
_SCALA, _NEWEST_ICEBERG = RUNTIMES.get(SPARK, RUNTIMES["4.1"])
# : The Iceberg of icekit's own session: the newest, or what ``ICEKIT_ICEBERG`` names, for a lake
# whose engines have an older one.
ICEBERG = os.environ.get("ICEKIT_ICEBERG") or _NEWEST_ICEBERG
SPARK_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK}_{_SCALA}:{ICEBERG}"
SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.50.3.0"
AWS_BUNDLE = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}"
GCP_BUNDLE = f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG}"
AZURE_BUNDLE = f"org.apache.iceberg:iceberg-azure-bundle:{ICEBERG}"
JDBC_DRIVERS = {
    "sqlite": SQLITE_JDBC,
    "postgresql": "org.postgresql:postgresql:42.7.8",
    "mysql": "com.mysql:mysql-connector-j:9.4.0",
}

# Keys that Iceberg's Java side spells as pyiceberg does.
_SAME = frozenset(
    "warehouse uri credential token oauth2-server-uri scope audience resource prefix "
    "rest.sigv4-enabled rest.signing-name rest.signing-region rest-metrics-reporting-enabled "
    "snapshot-loading-mode s3.endpoint s3.access-key-id s3.secret-access-key s3.session-token "
    "client.region glue.id glue.endpoint glue.skip-archive glue.skip-name-validation "
    "gcs.project-id gcs.oauth2.token gcs.oauth2.token-expires-at gcs.service.host "
    "adls.connection-string".split()
)
_RENAMED = {
    "s3.region": "client.region",
    "glue.region": "client.region",
    "s3.role-arn": "client.assume-role.arn",
    "client.role-arn": "client.assume-role.arn",
    "s3.role-session-name": "client.assume-role.session-name",
    "client.session-name": "client.assume-role.session-name",
    "s3.proxy-uri": "http-client.proxy-endpoint",
    "adls.account-name": "adls.auth.shared-key.account.name",
    "adls.account-key": "adls.auth.shared-key.account.key",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
}
# These configure pyiceberg itself and mean nothing to Spark.
_PYTHON_ONLY = frozenset(
    "py-io-impl type init_catalog_tables echo pool_pre_ping s3.resolve-region".split()
)
_SCALED_TO_MS = {
    "s3.connect-timeout": "http-client.apache.connection-timeout-ms",
    "s3.request-timeout": "http-client.apache.socket-timeout-ms",
}
_KNOWN = _SAME | set(_RENAMED) | _PYTHON_ONLY | set(_SCALED_TO_MS) | {"s3.force-virtual-addressing"}


@dataclass(frozen=True, slots=True)
class SparkCatalogConf:
    """What Spark needs for one catalog.

    ``settings`` are ``spark.sql.catalog.<name>`` and what is under it; ``packages`` the
    Maven coordinates for ``spark.jars.packages``.
    """

    settings: Mapping[str, str] = field(repr=False)
    packages: tuple[str, ...]


def spark_conf(name: str, properties: Mapping[str, str]) -> SparkCatalogConf:
    """Derive Spark's settings for the profile ``name``.

    Keys starting with ``spark.`` are passed to Spark without that prefix:
    use them for settings without an equivalent in PyIceberg. Raises
    :class:`~icekit.errors.ProfileError` naming each key that cannot be translated.
    """
    kind = catalog_type(name, properties)
    settings, packages = _catalog_settings(name, kind, properties)
    refused = []
    for key, value in properties.items():
        if key in {"type", "uri"} or key in _PYTHON_ONLY:
            continue
        try:
            translated = _translate(key, value)
        except (ValueError, OverflowError):
            raise ProfileError(
                f"Profile {name!r} sets {key} to {value!r}, but it must be a number of seconds, "
                "such as 10. Correct it."
            ) from None
        if translated is None:
            refused.append(key)
        else:
            settings[translated[0]] = translated[1]
    if refused:
        hints = "".join(nearest(key, _KNOWN, count=1) for key in refused)
        raise ProfileError(
            f"Profile {name!r} has keys with no Spark equivalent: "
            f"{', '.join(sorted(refused))}{hints or '.'} Remove them, or give the Spark setting "
            "as spark.<key>."
        )
    if "client.assume-role.arn" in settings:
        settings["client.factory"] = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
        settings.setdefault("client.assume-role.region", settings.get("client.region", "us-east-1"))
    packages += _file_io(settings)
    base = f"spark.sql.catalog.{name}"
    conf = {base: "org.apache.iceberg.spark.SparkCatalog"}
    conf.update({f"{base}.{key}": value for key, value in settings.items()})
    return SparkCatalogConf(conf, tuple(dict.fromkeys(packages)))


def catalog_type(name: str, properties: Mapping[str, str]) -> str:
    """The profile's catalog type: as stated, or from its URI as pyiceberg infers it."""
    uri = properties.get("uri", "")
    inferred = {"http": "rest", "https": "rest", "thrift": "hive"}.get(uri.partition(":")[0])
    if inferred is None and uri.partition(":")[0].partition("+")[0] in JDBC_DRIVERS:
        inferred = "sql"
    kind = properties.get("type", inferred)
    if kind not in {"rest", "sql", "hive", "glue"}:
        stated = f"type {kind!r}" if kind else "neither a type nor a uri that implies it"
        raise ProfileError(f"Profile {name!r} has {stated}; set type to rest, sql, hive or glue.")
    if kind != "glue" and not uri:
        raise ProfileError(f"Profile {name!r} is of type {kind} and has no uri. Add one.")
    return kind


def _catalog_settings(
    name: str, kind: str, properties: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    packages = [SPARK_RUNTIME]
    if kind == "glue":
        return {"type": "glue"}, [*packages, AWS_BUNDLE]
    uri = properties["uri"]
    if kind != "sql":
        return {"type": kind, "uri": uri}, packages
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in JDBC_DRIVERS:
        raise ProfileError(
            f"Profile {name!r} uses {scheme!r}, but icekit supports Spark's JDBC catalog only "
            f"with {', '.join(JDBC_DRIVERS)}."
        )
    settings = {"type": "jdbc", "jdbc.schema-version": "V1"}
    if scheme == "sqlite":
        settings["uri"] = (
            f"jdbc:sqlite:file:{uri.partition('://')[2].removeprefix('/')}?busy_timeout=30000"
        )
    else:
        parts = urlsplit(uri)
        settings["uri"] = f"jdbc:{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + (
            f"?{parts.query}" if parts.query else ""
        )
        if parts.username:
            settings["jdbc.user"] = unquote(parts.username)
        if parts.password:
            settings["jdbc.password"] = unquote(parts.password)
    return settings, [*packages, JDBC_DRIVERS[scheme]]


def _translate(key: str, value: str) -> tuple[str, str] | None:
    if key.startswith("spark."):
        return key.removeprefix("spark."), value
    if key in _SAME or key.startswith("header."):
        return key, value
    if key in _RENAMED:
        return _RENAMED[key], value
    if key in _SCALED_TO_MS:
        return _SCALED_TO_MS[key], str(int(float(value) * 1000))
    if key == "s3.force-virtual-addressing":
        return "s3.path-style-access", "false" if value.lower() in {
            "true",
            "1",
            "yes",
            "y",
        } else "true"
    return None


def _file_io(settings: dict[str, str]) -> list[str]:
    """Choose the FileIO for the storage that the profile names; returns its packages."""
    warehouse = settings.get("warehouse", "")
    for prefix, schemes, io_impl, package in (
        ("s3.", ("s3:", "s3a:", "s3n:"), "org.apache.iceberg.aws.s3.S3FileIO", AWS_BUNDLE),
        ("gcs.", ("gs:",), "org.apache.iceberg.gcp.gcs.GCSFileIO", GCP_BUNDLE),
        (
            "adls.",
            ("abfs:", "abfss:", "wasb:", "wasbs:"),
            "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
            AZURE_BUNDLE,
        ),
    ):
        if warehouse.startswith(schemes) or any(key.startswith(prefix) for key in settings):
            settings.setdefault("io-impl", io_impl)
            # pyiceberg addresses a custom S3 endpoint by path by default.
            if prefix == "s3." and "s3.endpoint" in settings:
                settings.setdefault("s3.path-style-access", "true")
                # Java's client does not start without a region; a custom endpoint rarely has one.
                if "AWS_REGION" not in os.environ:
                    settings.setdefault(
                        "client.region", os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
                    )
            return [package]
    return []


# --- Start, or borrow, the Spark session; nothing else in icekit creates one


#: Marks a catalog of the session as one that icekit has configured.
ADDED = "icekit.added"
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

# How icekit's own session differs from Spark's defaults, and why.
_OWN_SESSION = {
    "spark.app.name": "icekit",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.extensions": _EXTENSIONS,
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

# Only with executors in the driver's own process or machine; those elsewhere have to reach the
# driver.
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

_started: SparkSession | None = None
_is_kept = False
_starting = threading.Lock()


def running_session() -> SparkSession | None:
    """The existing session (notebook, EMR, Databricks), the one of the Connect server in
    ``SPARK_REMOTE``, or None; starts no Spark.

    Raises :class:`~icekit.errors.SparkUnavailable` if that server does not answer.
    """
    import sys

    if remote := os.environ.get("SPARK_REMOTE"):
        return _remote_session(remote)
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _remote_session(remote: str) -> SparkSession:
    """The session of a Connect server, as PySpark itself takes it from ``SPARK_REMOTE``."""
    instead = "or unset SPARK_REMOTE, and icekit starts Spark itself"
    address, *parameters = remote.split(";")
    remember(dict(pair.partition("=")[::2] for pair in parameters))
    server = urlsplit(address)
    with contextlib.suppress(ValueError):
        # PySpark's client tries for minutes.
        if server.scheme == "sc" and not _answers(server.hostname or "", server.port or 15002):
            raise SparkUnavailable(
                f"No Spark Connect server answers at {server.hostname}:{server.port or 15002} "
                f"(SPARK_REMOTE). Start it, {instead}."
            )
    try:
        from pyspark.sql import SparkSession

        session: SparkSession = SparkSession.builder.remote(remote).getOrCreate()
        version = session.version
    except ImportError as error:
        raise SparkUnavailable(
            f"SPARK_REMOTE is set, and Spark Connect lacks packages ({first_line(error)}): run "
            f"`pip install 'icekit[connect]'`, {instead}."
        ) from None
    except Exception as error:
        raise SparkUnavailable(
            f"Spark Connect gives no session (SPARK_REMOTE): {reason(error)}. Check the address "
            f"and its token, {instead}.",
            detail=scrub(str(error)),
        ) from None
    if version.rpartition(".")[0] not in RUNTIMES:
        raise SparkUnavailable(
            f"icekit runs on Spark {', '.join(RUNTIMES)}, and the Connect server (SPARK_REMOTE) "
            f"has Spark {version}."
        )
    return session


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError:
        return False
    return True


def own_session(conf: SparkCatalogConf) -> SparkSession:
    """Start icekit's session with a catalog in it, or add the catalog to the one started.

    ``ICEKIT_SPARK_CONF`` (``key=value`` separated by spaces, quoted as in a shell) overrides any
    setting, for a master other than ``local[*]`` or a larger driver. A local session listens on
    127.0.0.1 only; on a cluster, the driver's host and address are Spark's own defaults, unless
    they are set. Raises
    :class:`~icekit.errors.SparkUnavailable`, and :class:`~icekit.errors.ExtraMissing` without
    PySpark.
    """
    # Threads that observe several tables may get here at the same time.
    with _starting:
        return _own_session(conf)


def _own_session(conf: SparkCatalogConf) -> SparkSession:
    global _started
    if _started is not None and _is_alive(_started):
        add_catalog(_started, conf)
        return _started
    require("pyspark", "This")
    settings = own_settings(os.environ.get("ICEKIT_SPARK_CONF", ""), conf.packages)
    remember(settings)
    _check_runtime(settings["spark.jars.packages"], settings.get("spark.jars", ""))
    java = require_java()
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    quick = QuickStart(settings, conf.packages, java, Path(pyspark.__file__).parent)
    settings = quick.settings
    shown = [(key, value) for key, value in settings.items() if not is_masked(key, value)]
    # Java's notes on the vector module and native Hadoop, Ivy's listing.
    with never_silent("starting Spark", at_once=True), stderr_to_file() as log, handler_kept():
        try:
            # Everybody can read the JVM's command line, so secrets follow through the bridge's
            # socket.
            if SparkContext._gateway is None:
                gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(shown), streams())  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
            context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
            try:
                check_settings(
                    context._jvm, {key: str(value) for key, value in context.getConf().getAll()}
                )
            except SparkUnavailable:
                context.stop()
                raise
            builder: SparkSession.Builder = SparkSession.Builder()
            for key, value in settings.items():
                builder = builder.config(key, value)
            _started = builder.getOrCreate()
            quick.remember(context)
        except SparkUnavailable:
            raise
        except Exception as error:
            said = scrub(log.read_text(errors="replace"))
            raise SparkUnavailable(
                f"Spark did not start: {_reason(said) or type(error).__name__}. Check Java (17 to "
                "22), that Maven packages can be fetched, and ICEKIT_SPARK_CONF, then try again.",
                detail=scrub(f"{said}\n{error}"),
            ) from None
    add_catalog(_started, conf)
    return _started


def _check_runtime(*jars: str) -> None:
    """Raise SparkUnavailable for a Spark that icekit does not run on, and for an Iceberg runtime of
    another Spark.
    """
    if SPARK not in RUNTIMES:
        raise SparkUnavailable(
            f"icekit runs on Spark {', '.join(RUNTIMES)}, and this is Spark {SPARK}. Install "
            f"another: pip install 'pyspark=={max(RUNTIMES)}.*'"
        )
    for built_for in re.findall(r"iceberg-spark-runtime-(\d+\.\d+_\d+\.\d+)", " ".join(jars)):
        if built_for != f"{SPARK}_{_SCALA}":
            raise SparkUnavailable(
                f"Spark {SPARK} needs {SPARK_RUNTIME}, but the session names the runtime for "
                f"{built_for.replace('_', ' and Scala ')}. Correct spark.jars.packages or "
                "spark.jars (ICEKIT_SPARK_CONF)."
            )


def own_settings(text: str, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings of icekit's own session with these packages; ``text`` is
    ``ICEKIT_SPARK_CONF``.
    """
    form = "ICEKIT_SPARK_CONF must be key=value pairs, separated by spaces and quoted as in a shell"
    try:
        pairs = [pair.partition("=") for pair in shlex.split(text)]
    except ValueError as error:
        raise SparkUnavailable(f"{form}; its value cannot be parsed: {error}.") from None
    for place, (key, equals, _) in enumerate(pairs, 1):
        if not key or not equals:
            # The word may be a secret, for example after a space that should be the =.
            raise SparkUnavailable(f"{form}; word {place} has no = after a key.")
    settings = {
        "spark.master": "local[*]",
        "spark.jars.packages": ",".join(packages),
        **_OWN_SESSION,
    }
    settings |= {key: value for key, _, value in pairs}
    return (_LOOPBACK if settings["spark.master"].startswith("local") else {}) | settings


def check_settings(jvm: Any, settings: Mapping[str, str]) -> None:
    """Raise SparkUnavailable, with its name, for a setting that Spark SQL rejects, before there is
    a session.

    PySpark reads the session's settings to show an error; if a setting is the error, it retries for
    many minutes.
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
                    f"Spark rejects the setting {key}: "
                    f"{(cause or said.splitlines())[0][:300].rstrip('.')}. Correct it "
                    "(ICEKIT_SPARK_CONF).",
                    detail=said,
                ) from None


def is_own(spark: SparkSession) -> bool:
    """Tell whether icekit started this session, and so may stop it."""
    return spark is _started


def stop_own() -> None:
    """Stop the session if icekit started it and it is not kept; never another's."""
    global _started
    if _started is not None and not _is_kept:
        _started.stop()
        _started = None


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep icekit's session for the next command when one that has ended closes its lake."""
    global _is_kept
    before, _is_kept = _is_kept, True
    try:
        yield
    finally:
        _is_kept = before


def add_catalog(spark: SparkSession, conf: SparkCatalogConf) -> None:
    """Configure a catalog in a running session, unless the session has one of that name.

    Secrets never become settings of the session, because Spark writes those in plain text into its
    event log (the properties of each job and stage, whatever ``spark.redaction.regex`` is) and onto
    its pages. The catalog is opened with them instead, and Spark keeps the open catalog. Raises
    :class:`~icekit.errors.ProfileError` if that is impossible and the session has an event log, and
    :class:`~icekit.errors.CatalogUnreachable` if the catalog cannot be opened.
    """
    base = min(conf.settings, key=len)
    if spark.conf.get(base, None) is not None:
        return
    secret = {
        k: v
        for k, v in conf.settings.items()
        if is_masked(k.removeprefix(f"{base}."), v) and spark.conf.get(k, None) != v
    }
    if secret:
        if has_bridge(spark):
            _open(spark, base, conf)
        elif spark.conf.get("spark.eventLog.enabled", "false") == "true":
            name, keys = (
                base.rpartition(".")[2],
                ", ".join(sorted(key.removeprefix(f"{base}.") for key in secret)),
            )
            raise ProfileError(
                f"Profile {name!r} cannot be used in this session: it is a remote one with an "
                f"event log, and Spark would write {keys} there in plain text. Put {base} and the "
                "settings under it into the cluster's own configuration, or turn "
                "spark.eventLog.enabled off."
            )
        else:
            secret = {}
    spark.conf.set(f"{base}.{ADDED}", "true")
    for key, value in conf.settings.items():
        if key not in secret and spark.conf.get(key, None) != value:
            spark.conf.set(key, value)


def _open(spark: SparkSession, base: str, conf: SparkCatalogConf) -> None:
    """Let a session open a catalog with settings that it does not keep: this thread temporarily
    uses those of another session.
    """
    sessions = classic(spark).SparkSession
    own: Any = spark._jsparkSession
    lender = own.newSession()
    for key, value in conf.settings.items():
        lender.conf().set(key, value)
    before = sessions.getActiveSession()
    # A catalog that is opened reads the settings of the active session of its thread.
    sessions.setActiveSession(lender)
    try:
        own.sessionState().catalogManager().catalog(base.rpartition(".")[2])
    except Exception as error:
        raise CatalogUnreachable(
            f"Spark cannot open catalog {base.rpartition('.')[2]!r}: {reason(error)}. "
            f"{remedy(str(error), conf.packages)}",
            detail=str(error),
        ) from None
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def remedy(said: str, packages: Sequence[str]) -> str:
    """What to do about a catalog that Spark cannot open: a session has the packages that it was
    started with.
    """
    if re.search(
        "No suitable driver|ClassNotFoundException|NoClassDefFoundError|Cannot find constructor",
        said,
    ):
        return (
            "This Spark session was started without the packages of that catalog "
            f"({', '.join(packages)}): start a new process, or restart the kernel."
        )
    return "Check the profile and the network."


def require_java() -> Path:
    """The Java that Spark will run on (``JAVA_HOME``, then ``PATH``); raises SparkUnavailable
    unless Spark supports it.

    17 to 22: with 23 and newer, Hadoop's use of the security manager fails.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        raise SparkUnavailable(
            "Spark needs Java 17 to 22 but none was found. Install one (apt-get install "
            "openjdk-17-jre-headless) or set JAVA_HOME."
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', answer)
    if version and not 17 <= int(version[1]) <= 22:
        raise SparkUnavailable(
            f"Spark needs Java 17 to 22, but {java} is Java {version[1]}. Set JAVA_HOME to a "
            "supported version."
        )
    return Path(java)


def _is_alive(spark: SparkSession) -> bool:
    context = getattr(spark, "_sc", None)
    return context is None or context._jsc is not None


def _reason(said: str) -> str | None:
    """The line of a failed start that names the cause."""
    if wrong := re.findall(r"^(?:Invalid|Unrecognized) .*$", said, re.M):  # the JVM's own options
        return str(wrong[0]).strip()[:300].rstrip(".")
    lines: Sequence[str] = re.findall(
        r"^.*(?:unresolved dependency|not found|Exception|Error).*$", said, re.M
    )
    return lines[-1].strip()[:300].rstrip(".") if lines else None
