"""Reach Iceberg's own classes and the session's settings in the JVM; the only module that knows
whether there is a bridge (Spark Connect has none).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from icekit.common.errors import ClassicSessionRequired, EngineFailed
from icekit.common.sql import Identifier, identifier
from icekit.engine.compat import is_at_least, sql_package, with_local_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


def has_bridge(spark: SparkSession) -> bool:
    """Whether the session gives access to its JVM (Spark Connect does not)."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic(spark: SparkSession) -> None:
    """Raise :class:`~icekit.common.errors.ClassicSessionRequired` over Spark Connect: called by all
    that tries or changes a table, or asks Iceberg's classes.
    """
    if not has_bridge(spark):
        raise ClassicSessionRequired(
            "This needs a classic Spark session, which has its own driver: over Spark Connect, "
            "icekit only reads (look, report, plan). Nothing was written. Unset SPARK_REMOTE, or "
            "run icekit where the driver runs."
        )


def load_table(spark: SparkSession, name: Identifier) -> Any:
    """The table (named with its catalog) as an object of Iceberg's Java API; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, identifier(*name)
    )


def load_latest_table(spark: SparkSession, name: Identifier) -> Any:
    """The table as from :func:`load_table`, at the latest commit."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return load_table(spark, name)


def iceberg_version(spark: SparkSession, catalog: str) -> str:
    """The version of Iceberg with which the session reads and writes a catalog."""
    if has_bridge(spark):
        return str(getattr(spark._jvm, "org.apache.iceberg.IcebergBuild").version())
    row = spark.sql(f"SELECT {identifier(catalog)}.system.iceberg_version()").first()
    return str(row[0]) if row is not None else "of an unknown version"


def old_iceberg_message(spark: SparkSession) -> str | None:
    """The sentence for a session whose Iceberg is older than 1.11, without what a rewrite, a
    conversion and their proofs need; None if nothing is missing.

    Before, a rewrite could not say to which branch it commits, and a snapshot alone reads no
    manifest of a dropped column. A session of Spark Connect runs Iceberg's own procedures, and
    needs nothing.
    """
    if not has_bridge(spark):
        return None
    version = iceberg_version(spark, "")
    if is_at_least(version, 11):
        return None
    return (
        "icekit rewrites data and delete files with Iceberg 1.11 or newer; this session has "
        f"{version}. Nothing was written. Give the session a newer iceberg-spark-runtime; look, "
        "plan and report work with this one."
    )


def head_snapshot(table: Any, branch: str | None) -> Any:
    """The newest snapshot of a branch, or of a table; None without one."""
    return table.snapshot(branch) if branch else table.currentSnapshot()


def encryption_class(table: Any) -> str:
    """The class that encrypts a table's files (an object of Iceberg's API); empty if they are not
    encrypted.
    """
    name = str(table.encryption().getClass().getSimpleName())
    return "" if name == "PlaintextEncryptionManager" else name


def read_bytes(io: Any, location: str) -> bytes:
    """A whole file, through a table's own FileIO."""
    stream = io.newInputFile(location).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def metadata_of(spark: SparkSession, table: Any) -> dict[str, Any]:
    """The metadata JSON of a table from :func:`load_table`, as it was loaded or refreshed."""
    parser = getattr(spark._jvm, "org.apache.iceberg.TableMetadataParser")
    document: dict[str, Any] = json.loads(parser.toJson(table.operations().current()))
    return document


def elements(collection: Any) -> Iterator[Any]:
    """The items of a Java or Scala collection, or of an array.

    Python's own loop ends with an exception of the JVM, and PySpark asks the JVM a dozen times
    which kind of exception that is (37 ms, measured).
    """
    if type(collection).__name__ == "JavaArray":
        yield from (collection[i] for i in range(len(collection)))
        return
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def frame_of_rows(spark: SparkSession, rows: Any, schema: str) -> DataFrame:
    """A frame of a Java list of rows; ``schema`` is DDL."""
    from pyspark.sql import DataFrame

    row_type = getattr(spark._jvm, "org.apache.spark.sql.types.StructType").fromDDL(schema)
    return DataFrame(spark._jsparkSession.createDataFrame(rows, row_type), spark)


def scala_seq(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala sequence of some values."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(values))


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names in the session are case-sensitive."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


# By session and setting, in the order they came: the value from before (under None), and those of
# the blocks that have changed it.
_changed: WeakKeyDictionary[Any, dict[str, dict[object, Any]]] = WeakKeyDictionary()
_changing = threading.Lock()


@contextlib.contextmanager
def _temporary_value(
    spark: SparkSession, key: str, value: Any, read: Callable[[], Any], write: Callable[[Any], None]
) -> Iterator[None]:
    """Change one thing of a session temporarily.

    Threads may overlap: the value is that of the block which came last and is not over, and after
    all of them the old one.
    """
    block_key = object()
    with _changing:
        values = _changed.setdefault(spark, {}).setdefault(key, {})
        if not values:
            values[None] = read()
        try:
            write(value)
        except BaseException:
            if len(values) == 1:
                values.clear()  # no block is there: the next one reads the old value for itself
            raise
        values[block_key] = value
    try:
        yield
    finally:
        with _changing:
            del values[block_key]
            latest_value = values[next(reversed(values))]
            if len(values) == 1:
                values.clear()
            write(latest_value)


@contextlib.contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change some settings of a session temporarily; the old values are restored, also if other
    threads change the same settings.
    """

    def write(key: str, value: str | None) -> None:
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)

    with contextlib.ExitStack() as stack:
        for key, value in settings.items():
            stack.enter_context(
                _temporary_value(
                    spark, key, value, partial(spark.conf.get, key, None), partial(write, key)
                )
            )
        yield


@contextlib.contextmanager
def in_catalog(spark: SparkSession, name: str) -> Iterator[None]:
    """Make a catalog the current one temporarily, also if other threads do; raises as
    :func:`require_classic` does.
    """
    require_classic(spark)
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()

    def read() -> tuple[str, Any]:
        return str(manager.currentCatalog().name()), manager.currentNamespace()

    def write(value: tuple[str, Any]) -> None:
        catalog, namespace = value
        # Does nothing to the current catalog, whose current namespace stays.
        spark.catalog.setCurrentCatalog(catalog)
        if namespace is not None:
            manager.setCurrentNamespace(namespace)

    with _temporary_value(spark, "the current catalog", (name, None), read, write):
        yield


def make_active(spark: SparkSession) -> None:
    """Make the session the active one of this thread, which may be new to the JVM; threads that the
    engine starts from it take it over.
    """
    if has_bridge(spark):
        sql_package(spark).SparkSession.setActiveSession(spark._jsparkSession)


def with_thread_context(spark: SparkSession, work: Callable[[], T]) -> Callable[[], T]:
    """The work, for another thread: with this thread's local properties, and the session active."""

    def active() -> T:
        make_active(spark)
        return work()

    return with_local_properties(spark, active)


def guarded_table(
    spark: SparkSession,
    table: Any,
    *,
    base: tuple[str, int] | None = None,
    positions: Any = None,
) -> Any:
    """The table (an object of Iceberg's API) as it was loaded, also after other jobs have changed
    it; its commits go to the table as it is then, say truly whether they were made, and are
    refused if they drop deletes of the files they add. Raises
    :class:`~icekit.common.errors.EngineFailed` if that is impossible.

    With ``base``, a branch and a snapshot, a commit is also refused once the branch is at another
    snapshot. With ``positions``, an object of the Java class PositionDeletes, it refuses a commit
    after which position deletes delete other rows than before. ``live()`` gives the table that
    changes with its commits.
    """
    jvm: Any = spark._jvm
    branch_name, branch_head_id = (
        (base[0], jvm.java.lang.Long.valueOf(base[1])) if base else (None, None)
    )
    try:
        return java_object(
            spark, table, "GuardedTable", table, branch_name, branch_head_id, positions
        )
    except Exception as error:
        raise EngineFailed(
            "icekit cannot check the commits of this table, so it makes none: the JVM compiles no "
            "class for it, or the table's catalog replaces Iceberg's own table class. Use a Java "
            "and a Spark that icekit is tested with (docs/limits.md), or call Iceberg's own "
            "procedure, without these checks."
        ) from error


_compiling = threading.Lock()


def java_object(spark: SparkSession, class_loader_of: Any, name: str, *arguments: Any) -> Any:
    """An object of a class in the folder ``java``, made with these arguments; compiled once in each
    JVM, with the class loader of the class of ``class_loader_of``.

    In Java is what visits each file or each deleted position: over the bridge a visit costs a
    millisecond. The compiler is Janino, that of Spark's own code generation. Once, because py4j
    keeps the methods that it finds by the name of their class, and would call those of an earlier
    class.
    """
    jvm: Any = spark._jvm
    loaders, constructors = vars(jvm._gateway_client).setdefault("icekit_classes", ([], {}))
    with _compiling:
        if name not in constructors:
            parent_loader = class_loader_of.getClass().getClassLoader()
            # The classes know each other only from one loader.
            loader = next(
                (each for each in loaders if each.getParent() == parent_loader),
                None,
            )
            if loader is None:
                loaders.append(loader := _class_loader(jvm, parent_loader))
            constructors[name] = loader.loadClass(f"icekit.{name}").getConstructors()[0]
    return constructors[name].newInstance(jvm.java.util.ArrayList(arguments).toArray())


def _class_loader(jvm: Any, parent_loader: Any) -> Any:
    """A class loader that has all sources, and compiles what it is asked for."""
    sources = jvm.java.util.HashMap()
    for file in Path(__file__).with_name("java").iterdir():
        sources.put(f"icekit/{file.name}", file.read_bytes())
    finder = jvm.org.codehaus.commons.compiler.util.resource.MapResourceFinder(sources)
    return jvm.org.codehaus.janino.JavaSourceClassLoader(parent_loader, finder, "UTF-8")
