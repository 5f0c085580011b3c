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


def load_table(spark: SparkSession, table_name: Identifier) -> Any:
    """The table (named with its catalog) as an object of Iceberg's Java API; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, identifier(*table_name)
    )


def load_latest_table(spark: SparkSession, table_name: Identifier) -> Any:
    """The table as from :func:`load_table`, at the latest commit."""
    spark.sql(f"REFRESH TABLE {identifier(*table_name)}")
    return load_table(spark, table_name)


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
    session_version = iceberg_version(spark, "")
    if is_at_least(session_version, 11):
        return None
    return (
        "icekit rewrites data and delete files with Iceberg 1.11 or newer; this session has "
        f"{session_version}. Nothing was written. Give the session a newer iceberg-spark-runtime; "
        "look, plan and report work with this one."
    )


def head_snapshot(table: Any, branch: str | None) -> Any:
    """The newest snapshot of a branch, or of a table; None without one."""
    return table.snapshot(branch) if branch else table.currentSnapshot()


def encryption_class(table: Any) -> str:
    """The class that encrypts a table's files (an object of Iceberg's API); empty if they are not
    encrypted.
    """
    manager_class = str(table.encryption().getClass().getSimpleName())
    return "" if manager_class == "PlaintextEncryptionManager" else manager_class


def read_bytes(io: Any, location: str) -> bytes:
    """A whole file, through a table's own FileIO."""
    stream = io.newInputFile(location).newStream()
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def metadata_of(spark: SparkSession, table: Any) -> dict[str, Any]:
    """The metadata JSON of a table from :func:`load_table`, as it was loaded or refreshed."""
    metadata_parser = getattr(spark._jvm, "org.apache.iceberg.TableMetadataParser")
    metadata_document: dict[str, Any] = json.loads(
        metadata_parser.toJson(table.operations().current())
    )
    return metadata_document


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
_values_by_session: WeakKeyDictionary[Any, dict[str, dict[object, Any]]] = WeakKeyDictionary()
_values_lock = threading.Lock()


@contextlib.contextmanager
def _temporary_value(
    spark: SparkSession,
    key: str,
    value: Any,
    read_value: Callable[[], Any],
    write_value: Callable[[Any], None],
) -> Iterator[None]:
    """Change one thing of a session temporarily.

    Threads may overlap: the value is that of the block which came last and is not over, and after
    all of them the old one.
    """
    block_key = object()
    with _values_lock:
        values_by_block = _values_by_session.setdefault(spark, {}).setdefault(key, {})
        if not values_by_block:
            values_by_block[None] = read_value()
        try:
            write_value(value)
        except BaseException:
            if len(values_by_block) == 1:
                # No block is there: the next one reads the old value for itself.
                values_by_block.clear()
            raise
        values_by_block[block_key] = value
    try:
        yield
    finally:
        with _values_lock:
            del values_by_block[block_key]
            latest_value = values_by_block[next(reversed(values_by_block))]
            if len(values_by_block) == 1:
                values_by_block.clear()
            write_value(latest_value)


@contextlib.contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change some settings of a session temporarily; the old values are restored, also if other
    threads change the same settings.
    """

    def write_setting(key: str, value: str | None) -> None:
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)

    with contextlib.ExitStack() as exit_stack:
        for key, value in settings.items():
            exit_stack.enter_context(
                _temporary_value(
                    spark,
                    key,
                    value,
                    partial(spark.conf.get, key, None),
                    partial(write_setting, key),
                )
            )
        yield


@contextlib.contextmanager
def temporary_catalog(spark: SparkSession, catalog_name: str) -> Iterator[None]:
    """Make a catalog the current one temporarily, also if other threads do; raises as
    :func:`require_classic` does.
    """
    require_classic(spark)
    java_session: Any = spark._jsparkSession
    catalog_manager = java_session.sessionState().catalogManager()

    def read_current() -> tuple[str, Any]:
        return str(catalog_manager.currentCatalog().name()), catalog_manager.currentNamespace()

    def write_current(catalog_and_namespace: tuple[str, Any]) -> None:
        target_catalog, target_namespace = catalog_and_namespace
        # Does nothing to the current catalog, whose current namespace stays.
        spark.catalog.setCurrentCatalog(target_catalog)
        if target_namespace is not None:
            catalog_manager.setCurrentNamespace(target_namespace)

    with _temporary_value(
        spark, "the current catalog", (catalog_name, None), read_current, write_current
    ):
        yield


def activate_session(spark: SparkSession) -> None:
    """Make the session the active one of this thread, which may be new to the JVM; threads that the
    engine starts from it take it over.
    """
    if has_bridge(spark):
        sql_package(spark).SparkSession.setActiveSession(spark._jsparkSession)


def with_thread_context(spark: SparkSession, work: Callable[[], T]) -> Callable[[], T]:
    """The work, for another thread: with this thread's local properties, and the session active."""

    def active_work() -> T:
        activate_session(spark)
        return work()

    return with_local_properties(spark, active_work)


def guarded_table(
    spark: SparkSession,
    table: Any,
    *,
    expected_head: tuple[str, int] | None = None,
    position_deletes: Any = None,
) -> Any:
    """The table (an object of Iceberg's API) as it was loaded, also after other jobs have changed
    it; its commits go to the table as it is then, and say truly whether they were made. A
    commit is refused if it drops equality deletes that apply to a file that it adds, drops the
    deletion vector of a data file that stays, or would give rows other row ids; not for position
    delete files that it drops. Raises :class:`~icekit.common.errors.EngineFailed` if that is impossible.

    With ``expected_head``, a branch and a snapshot, a commit is also refused once the branch is at
    another snapshot. With ``position_deletes``, an object of the Java class PositionDeletes, it
    refuses a commit after which position deletes delete other rows than before. ``live()`` gives
    the table that changes with its commits.
    """
    jvm: Any = spark._jvm
    branch_name, branch_head_id = (
        (expected_head[0], jvm.java.lang.Long.valueOf(expected_head[1]))
        if expected_head
        else (None, None)
    )
    try:
        return java_object(
            spark, table, "GuardedTable", table, branch_name, branch_head_id, position_deletes
        )
    except Exception as error:
        raise EngineFailed(
            "icekit cannot check the commits of this table, so it makes none: the JVM compiles no "
            "class for it, or the table's catalog replaces Iceberg's own table class. Use a Java "
            "and a Spark that icekit is tested with (docs/limits.md), or call Iceberg's own "
            "procedure, without these checks."
        ) from error


_compile_lock = threading.Lock()


def java_object(spark: SparkSession, loader_object: Any, class_name: str, *arguments: Any) -> Any:
    """An object of a class in the folder ``java``, made with these arguments; compiled once in each
    JVM, with the class loader of the class of ``loader_object``.

    In Java is what visits each file or each deleted position: over the bridge a visit costs a
    millisecond. The compiler is Janino, that of Spark's own code generation. Once, because py4j
    keeps the methods that it finds by the name of their class, and would call those of an earlier
    class.
    """
    jvm: Any = spark._jvm
    class_loaders, constructors_by_name = vars(jvm._gateway_client).setdefault(
        "icekit_classes", ([], {})
    )
    with _compile_lock:
        if class_name not in constructors_by_name:
            parent_loader = loader_object.getClass().getClassLoader()
            # The classes know each other only from one loader.
            child_loader = next(
                (
                    class_loader
                    for class_loader in class_loaders
                    if class_loader.getParent() == parent_loader
                ),
                None,
            )
            if child_loader is None:
                class_loaders.append(child_loader := _class_loader(jvm, parent_loader))
            constructors_by_name[class_name] = child_loader.loadClass(
                f"icekit.{class_name}"
            ).getConstructors()[0]
    return constructors_by_name[class_name].newInstance(
        jvm.java.util.ArrayList(arguments).toArray()
    )


def _class_loader(jvm: Any, parent_loader: Any) -> Any:
    """A class loader that has all sources, and compiles what it is asked for."""
    sources_by_path = jvm.java.util.HashMap()
    for java_file in Path(__file__).with_name("java").iterdir():
        sources_by_path.put(f"icekit/{java_file.name}", java_file.read_bytes())
    source_finder = jvm.org.codehaus.commons.compiler.util.resource.MapResourceFinder(
        sources_by_path
    )
    return jvm.org.codehaus.janino.JavaSourceClassLoader(parent_loader, source_finder, "UTF-8")
