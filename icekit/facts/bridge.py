"""Reach a table through Spark: by the JVM bridge where there is one, by SQL elsewhere.

The one place that knows whether there is a bridge. Under Spark Connect there is none, and
the metadata file and manifests are read with Spark's own ``binaryFile`` source.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from icekit.catalog.source import Source, not_found
from icekit.errors import CatalogUnreachable, IcekitError, MetadataUnreadable, NotATable, PermissionDenied, SparkUnavailable
from icekit.facts.metadata_tables import metadata_table
from icekit.secrets import scrub
from icekit.sql import Identifier, display_name, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_bridge(spark: SparkSession) -> bool:
    """Tell whether the session gives access to its JVM (Spark Connect does not)."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def load_table(spark: SparkSession, name: Identifier) -> Any:
    """The table (named with its catalog) as Iceberg's Java API knows it; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, identifier(*name))


def iceberg_version(spark: SparkSession, catalog: str) -> str:
    """The version of Iceberg that the session reads and writes a catalog with."""
    if has_bridge(spark):
        return str(getattr(spark._jvm, "org.apache.iceberg.IcebergBuild").version())
    row = spark.sql(f"SELECT {identifier(catalog)}.system.iceberg_version()").first()
    return str(row[0]) if row is not None else "of an unknown version"


def read_bytes(io: Any, location: str) -> bytes:
    """A whole file, through a table's own FileIO."""
    stream = io.newInputFile(location).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def metadata_of(spark: SparkSession, table: Any) -> dict[str, Any]:
    """The metadata JSON of a table that :func:`load_table` gave, as it was loaded or refreshed."""
    parser = getattr(spark._jvm, "org.apache.iceberg.TableMetadataParser")
    loaded: dict[str, Any] = json.loads(parser.toJson(table.operations().current()))
    return loaded


def elements(collection: Any) -> Iterator[Any]:
    """What a Java or Scala collection, or an array, holds.

    Python's own loop ends by an exception of the JVM, and PySpark asks the JVM a dozen times
    what kind of exception that is (37 ms, measured).
    """
    if type(collection).__name__ == "JavaArray":
        yield from (collection[place] for place in range(len(collection)))
        return
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def spark_source(spark: SparkSession, table: Identifier, names: Callable[[], list[Identifier]]) -> Source:
    """Find a table (named with its catalog) through the session; needs no pyiceberg profile."""
    try:
        spark.sql(f"REFRESH TABLE {identifier(*table)}")
        return _by_bridge(spark, table) if has_bridge(spark) else _by_sql(spark, table)
    except IcekitError:
        raise
    except Exception as error:
        raise explain(error, table, names) from None


def _by_bridge(spark: SparkSession, table: Identifier) -> Source:
    loaded = load_table(spark, table)
    io = loaded.io()

    def read(location: str) -> bytes:
        try:
            return read_bytes(io, location)
        except Exception as error:
            raise explain(error, table) from None

    return Source(str(loaded.operations().current().metadataFileLocation()), read)


def _by_sql(spark: SparkSession, table: Identifier) -> Source:
    def read(location: str) -> bytes:
        path = re.sub(r"([\[\]{}*?\\])", r"\\\1", location)
        try:
            return bytes(spark.read.format("binaryFile").load(path).select("content").collect()[0][0])
        except Exception as error:
            raise explain(error, table) from None

    newest = metadata_table(spark, table, "metadata_log_entries").orderBy("timestamp", ascending=False).select("file").limit(1).collect()
    return Source(str(newest[0][0]), read)


# What Iceberg's and Spark's exceptions mean to a person; matched against class names, and
# against messages only where no class tells.
_MISSING_TABLE = re.compile(r"NoSuchTableException|NoSuchNamespaceException|TABLE_OR_VIEW_NOT_FOUND|SCHEMA_NOT_FOUND")
_MISSING_FILE = re.compile(r"iceberg\.exceptions\.NotFoundException|FileNotFoundException|NoSuchKeyException|PATH_NOT_FOUND")
_FORBIDDEN = re.compile(
    r"ForbiddenException|NotAuthorizedException|AccessDenied|AccessControlException|status code: 403|\(Service: S3, Status Code: 403"
)
_CORRUPT = re.compile(
    r"AvroRuntimeException|ChecksumException|InvalidAvroMagicException|RuntimeIOException|UncheckedIOException|ZipException|EOFException|AvroTypeException"
    r"|JsonParseException|JsonEOFException|JsonMappingException|Cannot read unsupported version|Cannot parse (?:missing|metadata|[\w-]+ from non-)"
)
_UNREACHABLE = re.compile(
    r"ConnectException|UnknownHostException|SocketTimeoutException|RESTException|ServiceUnavailableException|UncheckedSQLException"
)
# Spark cannot even plan REFRESH TABLE of an Iceberg view.
_NOT_ICEBERG = re.compile(
    r"is not an Iceberg table|No plan for RefreshTable|EXPECT_TABLE_NOT_VIEW|cannot be cast to class org\.apache\.iceberg"
)


_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme|UnsupportedFileSystemException|Class \S+FileSystem not found")


def explain(error: Exception, table: Identifier, names: Callable[[], list[Identifier]] | None = None) -> Exception:
    """Turn what Spark or the JVM raised into one sentence; unknown errors come back as they are."""
    text = scrub(str(error))
    name = display_name(table[1:])
    first = reason(error)
    if isinstance(error, IcekitError):
        return error
    if _NO_FILE_SYSTEM.search(text):
        return SparkUnavailable(
            f"Spark has no Hadoop file system for the location of {name} ({first}); "
            "configure a pyiceberg profile of the catalog under another name, or add hadoop-aws (or its like) to the session.",
            detail=text,
        )
    if "Unable to load region" in text:
        return CatalogUnreachable(f"Spark knows no AWS region for {name}; set s3.region in the profile, or AWS_REGION.", detail=text)
    if _NOT_ICEBERG.search(text):
        return NotATable(f"{name} is a view or not an Iceberg table; give an Iceberg table.", detail=text)
    if _MISSING_TABLE.search(text):
        known: list[Identifier] = []
        with contextlib.suppress(Exception):
            known = names() if names else []
        return not_found(table[1:], known)
    if _FORBIDDEN.search(text):
        return PermissionDenied(f"Reading {name} is not permitted; ask for read access to its catalog and location.", detail=text)
    if _MISSING_FILE.search(text):
        gone = re.search(r"(?:File does not exist|No such file|Failed to open|location does not exist)[^:]*: *(\S+)", text)
        what = gone[1] if gone else "a file of its metadata"
        return MetadataUnreadable(
            f"{what} is gone, and {name} cannot be read without it; restore it, or roll back to a snapshot before it.", detail=text
        )
    if _UNREACHABLE.search(text):
        return CatalogUnreachable(f"The catalog of {name} cannot be reached by Spark; check its uri and the network.", detail=text)
    if _CORRUPT.search(text):
        return MetadataUnreadable(
            f"A metadata file of {name} is corrupt ({first}); restore it, or roll back to a snapshot before it.", detail=text
        )
    return error


def engine_errors() -> tuple[type[Exception], ...]:
    """What Spark and the JVM raise, for an ``except`` that goes on with :func:`reason`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def reason(error: BaseException) -> str:
    """What Spark says went wrong, in a line; the innermost of Java's exceptions, as py4j's own first line says nothing."""
    text = scrub(str(error))
    causes = re.findall(r"^(?:Caused by: |: )(\S.*)$", text, re.M)
    said = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return said.strip()[:300].rstrip(".;")
