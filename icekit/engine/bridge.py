"""Reach Iceberg's own classes and the session's settings in the JVM; the only module that knows whether there is a bridge (Spark Connect has none)."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icekit.engine.compat import classic
from icekit.errors import ClassicSessionRequired
from icekit.sql import Identifier, identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def has_bridge(spark: SparkSession) -> bool:
    """Whether the session gives access to its JVM (Spark Connect does not)."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def require_classic(spark: SparkSession) -> None:
    """Raise :class:`~icekit.errors.ClassicSessionRequired` over Spark Connect: called by all that tries or changes a table, or asks Iceberg's classes."""
    if not has_bridge(spark):
        raise ClassicSessionRequired(
            "This needs a classic Spark session, which has its own driver: over Spark Connect, icekit only reads (look, report, plan). Nothing was written. "
            "Unset SPARK_REMOTE, or run icekit where the driver runs."
        )


def load_table(spark: SparkSession, name: Identifier) -> Any:
    """The table (named with its catalog) as an object of Iceberg's Java API; needs the bridge."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, identifier(*name))


def load_now(spark: SparkSession, name: Identifier) -> Any:
    """The table as from :func:`load_table`, at the latest commit."""
    spark.sql(f"REFRESH TABLE {identifier(*name)}")
    return load_table(spark, name)


def iceberg_version(spark: SparkSession, catalog: str) -> str:
    """The version of Iceberg with which the session reads and writes a catalog."""
    if has_bridge(spark):
        return str(getattr(spark._jvm, "org.apache.iceberg.IcebergBuild").version())
    row = spark.sql(f"SELECT {identifier(catalog)}.system.iceberg_version()").first()
    return str(row[0]) if row is not None else "of an unknown version"


# The classes of Iceberg's Java API that a rewrite needs, each with the number of parameters that one of its constructors must have (None: any).
# All are there from 1.11 on. Before, a rewrite could not say to which branch it commits, and a snapshot alone reads no manifest of a dropped column.
_NEEDED_API = {"org.apache.iceberg.actions.RewriteDataFilesCommitManager": 5, "org.apache.iceberg.SnapshotChanges": None}


def missing_api(spark: SparkSession) -> str | None:
    """The sentence for a session whose Iceberg lacks what a rewrite, a conversion and their proofs need; None if nothing is missing.

    Asked once in each JVM; a session of Spark Connect runs Iceberg's own procedures, and needs nothing.
    """
    if not has_bridge(spark):
        return None
    jvm: Any = spark._jvm
    asked = vars(jvm._gateway_client).setdefault("icekit_missing_api", {})
    if "" not in asked:
        asked[""] = [name.rpartition(".")[2] for name, parameters in _NEEDED_API.items() if not _has_api(spark, name, parameters)]
    if not asked[""]:
        return None
    return (
        f"icekit rewrites data and delete files with Iceberg 1.11 or newer; this session has {iceberg_version(spark, '')}, whose Java API "
        f"lacks {' and '.join(asked[''])}. Nothing was written. Give the session a newer iceberg-spark-runtime; look, plan and report work with this one."
    )


def _has_api(spark: SparkSession, name: str, parameters: int | None) -> bool:
    jvm: Any = spark._jvm
    loader = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession).getClass().getClassLoader()
    try:
        constructors = loader.loadClass(name).getConstructors()
    except Exception:
        return False  # ClassNotFoundException
    return parameters is None or any(int(each.getParameterCount()) == parameters for each in elements(constructors))


def encryption_of(table: Any) -> str:
    """The class that encrypts a table's files (an object of Iceberg's API); empty if they are not encrypted."""
    name = str(table.encryption().getClass().getSimpleName())
    return "" if name == "PlaintextEncryptionManager" else name


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
    """The metadata JSON of a table from :func:`load_table`, as it was loaded or refreshed."""
    parser = getattr(spark._jvm, "org.apache.iceberg.TableMetadataParser")
    loaded: dict[str, Any] = json.loads(parser.toJson(table.operations().current()))
    return loaded


def elements(collection: Any) -> Iterator[Any]:
    """The items of a Java or Scala collection, or of an array.

    Python's own loop ends with an exception of the JVM, and PySpark asks the JVM a dozen times
    which kind of exception that is (37 ms, measured).
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
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(java_list(spark, values))


# --- Read a session's settings, change settings or the current catalog temporarily, and let a thread work in the session


def session_value(spark: SparkSession, name: str) -> str | None:
    """A session's setting as a string; None if it is not set and has no default."""
    value = spark.conf.get(name, None)
    return None if value is None else str(value)


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names in the session are case-sensitive."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


# By session and setting, in the order they came: the value from before (under None), and those of the blocks that have changed it.
_changed: WeakKeyDictionary[Any, dict[str, dict[object, Any]]] = WeakKeyDictionary()
_changing = threading.Lock()


@contextlib.contextmanager
def _changed_to(spark: SparkSession, key: str, value: Any, read: Callable[[], Any], write: Callable[[Any], None]) -> Iterator[None]:
    """Change one thing of a session temporarily.

    Threads may overlap: the value is that of the block which came last and is not over, and after all of them the old one.
    """
    block = object()
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
        values[block] = value
    try:
        yield
    finally:
        with _changing:
            del values[block]
            last = values[next(reversed(values))]
            if len(values) == 1:
                values.clear()
            write(last)


@contextlib.contextmanager
def lent(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change some settings of a session temporarily; the old values are restored, also if other threads change the same settings."""

    def write(key: str, value: str | None) -> None:
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)

    with contextlib.ExitStack() as stack:
        for key, value in settings.items():
            stack.enter_context(_changed_to(spark, key, value, partial(spark.conf.get, key, None), partial(write, key)))
        yield


@contextlib.contextmanager
def in_catalog(spark: SparkSession, name: str) -> Iterator[None]:
    """Make a catalog the current one temporarily, also if other threads do; raises as :func:`require_classic` does."""
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

    with _changed_to(spark, "the current catalog", (name, None), read, write):
        yield


def make_active(spark: SparkSession) -> None:
    """Make the session the active one of this thread, which may be new to the JVM; threads that the engine starts from it take it over."""
    if has_bridge(spark):
        classic(spark).SparkSession.setActiveSession(spark._jsparkSession)


# --- Refuse the commit of a rewrite that would drop deletes newer than the files it rewrites, or change row ids


# The output of a rewrite has an old sequence number (use-starting-sequence-number, Iceberg's default), so that equality
# deletes that a stream commits meanwhile apply to it too, and are no conflict. But each commit drops the delete files
# older than every data file that it leaves in place, and does not count the files that it adds: MergingSnapshotProducer.apply
# (1.12.0, according to its bytecode) takes the lowest sequence number of the existing manifests, without the files that it replaces,
# for ManifestFilterManager.dropDeleteFilesOlderThan, and considers its new manifests only afterwards (apache/iceberg
# pull request 10962 is open). Whether an older file stays is decided on the state that the commit is based on: another
# writer may replace the last one while the rewrite runs, so no check before the commit, and no margin of files, is enough. A file
# of ours that is never replaced would add a commit and a file to a person's table, and others may drop it too.
# With a new number (``false``), every equality delete committed meanwhile for a replaced file is a conflict: safe, but next to
# a stream that reaches all partitions no rewrite ever succeeds. A check after the commit is too late: readers have seen the rows.
# So the commit itself is checked before the catalog receives it: TableOperations.commit gets the complete new snapshot
# with its manifests, and after a conflict the next one. The check is in Java, so that all other exceptions
# reach Iceberg unchanged (the files of a commit that may have succeeded must not be deleted): a class of 30 lines,
# compiled with Janino, the compiler of Spark's own code generation.
#
# Row ids: the first commit after an upgrade to format version 3 gives each row an id. What a rewrite read before it has no
# ids, so its new files would get others. Such a commit is a conflict: the rewrite is tried again with the ids.
_NAME = "icekit.GuardedOperations"
_SOURCE = """
package icekit;

import java.util.*;
import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.LocationProvider;

public class GuardedOperations implements TableOperations {
  private final TableOperations table;
  private final String branch;
  private final Long head;
  /** The branches whose rows had no ids when they were read. */
  private final Set unnumbered = new HashSet();

  /** With a branch, a commit is refused unless this snapshot is its head. */
  public GuardedOperations(TableOperations table, String branch, Long head) {
    this.table = table;
    this.branch = branch;
    this.head = head;
    for (Iterator refs = table.current().refs().entrySet().iterator(); refs.hasNext();) {
      Map.Entry ref = (Map.Entry) refs.next();
      Snapshot read = table.current().snapshot(((SnapshotRef) ref.getValue()).snapshotId());
      if (read != null && read.firstRowId() == null) unnumbered.add(ref.getKey());
    }
  }

  public void commit(TableMetadata base, TableMetadata metadata) {
    if (branch != null && (base.ref(branch) == null || base.ref(branch).snapshotId() != head.longValue())) {
      throw new ValidationException("Cannot commit: %s is no longer at snapshot %s", new Object[] {branch, head});
    }
    for (Iterator changes = metadata.changes().iterator(); changes.hasNext();) {
      Object change = changes.next();
      if (change instanceof MetadataUpdate.AddSnapshot) check(((MetadataUpdate.AddSnapshot) change).snapshot());
      if (change instanceof MetadataUpdate.SetSnapshotRef) {
        MetadataUpdate.SetSnapshotRef ref = (MetadataUpdate.SetSnapshotRef) change;
        if (unnumbered.contains(ref.name())) checkIds(base.ref(ref.name()), base, metadata.snapshot(ref.snapshotId()));
      }
    }
    table.commit(base, metadata);
  }

  /** Rows of files that were read without ids must not have got some since. */
  private void checkIds(SnapshotRef before, TableMetadata base, Snapshot added) {
    Snapshot parent = before == null ? null : base.snapshot(before.snapshotId());
    if (parent == null || parent.firstRowId() == null || !changes(added).removedDataFiles().iterator().hasNext()) return;
    throw new ValidationException("Cannot commit: rows have got row ids since they were read without", new Object[0]);
  }

  /** With the specs of the table: a snapshot alone cannot read manifests of a spec whose column was dropped. */
  private SnapshotChanges changes(Snapshot snapshot) {
    return SnapshotChanges.builderFor(new BaseTable(table, "guarded")).snapshot(snapshot).build();
  }

  private void check(Snapshot snapshot) {
    SnapshotChanges changes = changes(snapshot);
    long oldest = Long.MAX_VALUE;
    for (Iterator files = changes.addedDataFiles().iterator(); files.hasNext();) {
      Long number = ((DataFile) files.next()).dataSequenceNumber();
      if (number != null) oldest = Math.min(oldest, number.longValue());
    }
    for (Iterator files = changes.removedDeleteFiles().iterator(); files.hasNext();) {
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


def guarded(jvm: Any, table: Any, *, base: tuple[str, int] | None = None) -> Any | None:
    """The table (an object of Iceberg's API), changed to refuse commits that drop deletes of the files they add; None if that is impossible.

    With ``base``, a branch and a snapshot, it also refuses a commit once the branch is at another snapshot.
    """
    branch, head = (base[0], jvm.java.lang.Long.valueOf(base[1])) if base else (None, None)
    try:
        operations = compiled(jvm, table, _NAME, _SOURCE, table.operations(), branch, head)
        return jvm.org.apache.iceberg.BaseTable(operations, table.name(), table.reporter())
    except Exception:
        return None  # the JVM allows no compilation, or the table class is not Iceberg's own


_compiling = threading.Lock()


def compiled(jvm: Any, loaded: Any, name: str, source: str, *arguments: Any) -> Any:
    """An object of a small Java class, made with these arguments; compiled once in each JVM, with the class loader of the class of ``loaded``.

    Once, because py4j keeps the methods that it finds by the name of their class, and would call those of an earlier class.
    """
    constructors = vars(jvm._gateway_client).setdefault("icekit_constructors", {})
    with _compiling:
        if name not in constructors:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loaded.getClass().getClassLoader())
            compiler.cook(source)
            constructors[name] = compiler.getClassLoader().loadClass(name).getConstructors()[0]
    given = jvm.java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    return constructors[name].newInstance(given.toArray())
