"""A catalog that answers a commit wrongly, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icekit.engine import bridge
from icekit.maintain.run import execute
from icekit.rows.deletes import conversion_inputs, dangling

if TYPE_CHECKING:
    import pytest

#: What is answered, by whether the commit was made: the last word is how Iceberg takes it.
MADE = ("503", "409", "timeout", "unknown", "forbidden")
NOT_MADE = ("503", "409", "timeout", "unknown")

_SOURCE = """
import org.apache.iceberg.*;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.exceptions.*;
import org.apache.iceberg.io.*;

public class Answers implements TableOperations {
  private final TableOperations table;
  private final String answer;
  private final boolean isMade;
  private final java.util.Deque left;

  public Answers(TableOperations table, String answer, Boolean isMade, java.util.Deque left) {
    this.table = table;
    this.answer = answer;
    this.isMade = isMade.booleanValue();
    this.left = left;
  }

  public void commit(TableMetadata base, TableMetadata metadata) {
    if (left.pollFirst() == null) {
      table.commit(base, metadata);
      return;
    }
    if (isMade) table.commit(base, metadata);
    if (answer.equals("503")) throw new ServiceUnavailableException("503", new Object[0]);
    if (answer.equals("409")) throw new CommitFailedException("409", new Object[0]);
    if (answer.equals("forbidden")) throw new ForbiddenException("403", new Object[0]);
    if (answer.equals("unknown")) throw new CommitStateUnknownException(new RuntimeException("500"));
    throw new java.io.UncheckedIOException(new java.net.SocketTimeoutException("Read timed out"));
  }

  public TableMetadata current() { return table.current(); }
  public TableMetadata refresh() { return table.refresh(); }
  public FileIO io() { return table.io(); }
  public EncryptionManager encryption() { return table.encryption(); }
  public String metadataFileLocation(String name) { return table.metadataFileLocation(name); }
  public LocationProvider locationProvider() { return table.locationProvider(); }
  public TableOperations temp(TableMetadata metadata) { return table.temp(metadata); }
  public long newSnapshotId() { return table.newSnapshotId(); }
  // As some catalogs do: every error that Iceberg does not know better is "not made".
  public boolean requireStrictCleanup() { return false; }
}
"""
_constructors: dict[int, Any] = {}


def answer_commits(
    patch: pytest.MonkeyPatch, answer: str, *, is_made: bool, commits: int = 1
) -> None:
    """Have the next commits of icekit answered in this way, after they were made or instead."""
    left: list[Any] = []

    def answering_table(spark: Any, table: Any, **options: Any) -> Any:
        jvm = spark._jvm
        if not left:
            left.append(jvm.java.util.concurrent.ConcurrentLinkedDeque([answer] * commits))
        arguments = [table.operations(), answer, is_made, left[0]]
        operations = _constructor(jvm, table).newInstance(
            jvm.java.util.ArrayList(arguments).toArray()
        )
        answering = jvm.org.apache.iceberg.BaseTable(operations, table.name(), table.reporter())
        return bridge.guarded_table(spark, answering, **options)

    for module in (execute, conversion_inputs, dangling):
        patch.setattr(module, "guarded_table", answering_table)


def _constructor(jvm: Any, table: Any) -> Any:
    key = id(jvm._gateway_client)
    if key not in _constructors:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(table.getClass().getClassLoader())
        compiler.cook(_SOURCE)
        made = compiler.getClassLoader().loadClass("Answers")
        _constructors[key] = made.getConstructors()[0]
    return _constructors[key]
