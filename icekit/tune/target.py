"""Find the table that a statement writes to, by the session's own rules for names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from icekit.engine.bridge import load_table
from icekit.engine.errors import explain, reason
from icekit.errors import IcekitError, StatementRefused
from icekit.sql import Identifier, display_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Iceberg's catalog puts before the name of a branch, as the last part of a table's name.
BRANCH = "branch_"


def resolved(spark: SparkSession, parts: tuple[str, ...]) -> tuple[Identifier, str | None]:
    """The table that a name stands for, with its catalog, and the branch it names."""
    from py4j.java_gateway import is_instance_of

    jvm: Any = spark._jvm
    state = spark._jsparkSession.sessionState()
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    listed = _java_list(jvm, parts)
    if state.catalog().isTempView(converters.asScala(listed).toSeq()):
        raise StatementRefused(f"{display_name(parts)} is a temporary view, which cannot be written to; give the Iceberg table behind it.")
    try:
        found = jvm.org.apache.iceberg.spark.Spark3Util.catalogAndIdentifier(spark._jsparkSession, listed)
        name: Identifier = (str(found.catalog().name()), *map(str, found.identifier().namespace()), str(found.identifier().name()))
    except Exception as error:
        raise explain(error, ("", *parts)) from None
    for table, branch in _candidates(name):
        try:
            loaded = load_table(spark, table)
        except Exception as error:
            problem = explain(error, table)
            if branch is None and not name[-1].startswith(BRANCH):
                raise (problem if isinstance(problem, IcekitError) else _unknown(table, problem)) from None
            continue
        if is_instance_of(spark._sc._gateway, loaded, "org.apache.iceberg.BaseMetadataTable"):
            raise StatementRefused(f"{display_name(parts)} is a metadata table, which cannot be written to; give the table itself.")
        return table, branch
    raise StatementRefused(f"{display_name(parts)} names no table and no branch of one; check its name.")


def _candidates(name: Identifier) -> Iterator[tuple[Identifier, str | None]]:
    """A name as a branch of a table where it looks like one, and as a table."""
    if name[-1].startswith(BRANCH) and len(name) > 2:
        yield name[:-1], name[-1].removeprefix(BRANCH)
    yield name, None


def _unknown(table: Identifier, problem: Exception) -> StatementRefused:
    return StatementRefused(
        f"{display_name(table)} cannot be loaded as an Iceberg table ({reason(problem)}); check its name and catalog.", detail=str(problem)
    )


def _java_list(jvm: Any, parts: tuple[str, ...]) -> Any:
    made = jvm.java.util.ArrayList()
    for part in parts:
        made.add(part)
    return made
