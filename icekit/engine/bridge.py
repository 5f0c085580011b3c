"""Reach Iceberg's own classes and the session's settings in the JVM; the one place that knows whether there is a bridge (Spark Connect has none)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_bridge(spark: SparkSession) -> bool:
    """Tell whether the session gives access to its JVM (Spark Connect does not)."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def load_table(spark: SparkSession, name: Identifier) -> Any:
    """The table (named with its catalog) as Iceberg's Java API knows it; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, identifier(*name))


def load_now(spark: SparkSession, name: Identifier) -> Any:
    """The table as :func:`load_table` gives it, at what others have committed up to now."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return load_table(spark, name)


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


def write_bytes(io: Any, location: str, content: bytes) -> None:
    """Write a small file through a table's own FileIO."""
    stream = io.newOutputFile(location).createOrOverwrite()
    try:
        stream.write(content)
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


def java_list(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Java list of some values."""
    jvm: Any = spark._jvm
    made = jvm.java.util.ArrayList()
    for value in values:
        made.add(value)
    return made


def scala_seq(spark: SparkSession, values: Iterable[Any]) -> Any:
    """A Scala sequence of some values."""
    jvm: Any = spark._jvm
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list(spark, values)).toSeq()


# --- Read what a session has set, lend it settings or a current catalog for a while, and let a thread work in it


def session_value(spark: SparkSession, name: str) -> str | None:
    """A session's setting as a text; None where it is not set and has no default."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Tell whether the session tells names apart by their case."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


@contextlib.contextmanager
def lent(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Lend a session some settings for a while; what it had before comes back."""
    before = {key: spark.conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextlib.contextmanager
def in_catalog(spark: SparkSession, name: str) -> Iterator[None]:
    """Make a catalog the current one for a while; without the bridge nothing is changed."""
    if not has_bridge(spark):
        yield
        return
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    catalog, namespace = str(manager.currentCatalog().name()), manager.currentNamespace()
    if catalog == name:
        yield
        return
    spark.catalog.setCurrentCatalog(name)
    try:
        yield
    finally:
        spark.catalog.setCurrentCatalog(catalog)
        manager.setCurrentNamespace(namespace)


def make_active(spark: SparkSession) -> None:
    """Make the session the active one of this thread, which may be new to the JVM; threads that the engine starts from it take it over."""
    if has_bridge(spark):
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def pinned(spark: SparkSession, work: Callable[[], None]) -> Callable[[], None]:
    """Let a thread have a JVM thread of its own, with this session's local properties."""
    if not has_bridge(spark):
        return work
    from pyspark import inheritable_thread_target

    return inheritable_thread_target(spark)(work)  # type: ignore[no-any-return]


# --- Refuse the commit of a rewrite that would drop deletes newer than what it rewrites


# What a rewrite writes has an old sequence number (use-starting-sequence-number, Iceberg's default), so that equality
# deletes that a stream commits meanwhile apply to it too, and are no conflict. But each commit drops the delete files
# older than every data file that it leaves in place, and what it adds itself is not counted: MergingSnapshotProducer.apply
# (1.12.0, by its bytecode) takes the least sequence number of the manifests that were there, files that it replaces
# left out, for ManifestFilterManager.dropDeleteFilesOlderThan, and looks at its new manifests after that (apache/iceberg
# pull request 10962 is open). Whether an older file stays is settled on the state that is committed on: another
# writer may replace the last one while the rewrite runs, so that no look before it, and no margin of files, tells. A file
# of ours that is never replaced would be one more commit and one more file in a person's table, and others may drop it too.
# With a new number (``false``) every equality delete of the meantime over a replaced file is a conflict: safe, but next to
# a stream that reaches all partitions no rewrite ends. A look after the commit comes late: readers have seen the rows.
# So the commit itself is looked at, before the catalog takes it: TableOperations.commit is given the new snapshot whole,
# with its manifests, and on a conflict is given the next one that was made. Java refuses, so that all other exceptions
# reach Iceberg as they are (one that is not known to have failed must not have its files deleted), by a class of 30 lines
# that Janino compiles, the compiler that Spark's own code generation runs on.
_NAME = "icekit.GuardedOperations"
_SOURCE = """
package icekit;

import java.util.Iterator;
import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

public class GuardedOperations implements TableOperations {
  private final TableOperations table;

  public GuardedOperations(TableOperations table) { this.table = table; }

  public void commit(TableMetadata base, TableMetadata metadata) {
    for (Iterator changes = metadata.changes().iterator(); changes.hasNext();) {
      Object change = changes.next();
      if (change instanceof MetadataUpdate.AddSnapshot) check(((MetadataUpdate.AddSnapshot) change).snapshot());
    }
    table.commit(base, metadata);
  }

  private void check(Snapshot snapshot) {
    long oldest = Long.MAX_VALUE;
    for (Iterator files = snapshot.addedDataFiles(io()).iterator(); files.hasNext();) {
      Long number = ((DataFile) files.next()).dataSequenceNumber();
      if (number != null) oldest = Math.min(oldest, number.longValue());
    }
    for (Iterator files = snapshot.removedDeleteFiles(io()).iterator(); files.hasNext();) {
      DeleteFile file = (DeleteFile) files.next();
      Long number = file.dataSequenceNumber();
      if (file.content() == FileContent.EQUALITY_DELETES && (number == null || number.longValue() > oldest)) {
        throw new ValidationException(
            "Cannot commit: equality deletes that apply to a rewritten file would be dropped with the last older data file: %s",
            new Object[] {file.location()});
      }
    }
  }

  public TableMetadata current() { return table.current(); }
  public TableMetadata refresh() { return table.refresh(); }
  public FileIO io() { return table.io(); }
  public EncryptionManager encryption() { return table.encryption(); }
  public String metadataFileLocation(String name) { return table.metadataFileLocation(name); }
  public LocationProvider locationProvider() { return table.locationProvider(); }
  public TableOperations temp(TableMetadata metadata) { return table.temp(metadata); }
  public long newSnapshotId() { return table.newSnapshotId(); }
  public boolean requireStrictCleanup() { return table.requireStrictCleanup(); }
}
"""


def guarded(jvm: Any, table: Any) -> Any | None:
    """The table (as Iceberg's API knows it), which refuses commits that drop deletes of what they add; None where none can be made."""
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(table.getClass().getClassLoader())
        compiler.cook(_SOURCE)
        constructor = compiler.getClassLoader().loadClass(_NAME).getConstructors()[0]
        given = jvm.java.util.ArrayList()
        given.add(table.operations())
        return jvm.org.apache.iceberg.BaseTable(constructor.newInstance(given.toArray()), table.name(), table.reporter())
    except Exception:
        return None  # a JVM that lets nothing be compiled, or a table that is not Iceberg's own
