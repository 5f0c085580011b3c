"""Let Spark say what a predicate reads, and say in one sentence what Spark objects to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icekit.errors import ParameterError, nearest
from icekit.facts.bridge import has_bridge
from icekit.secrets import scrub

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition over the table's columns, as Spark analysed it.

    ``columns`` are the top-level columns it reads, None where Spark does not say (Connect).
    """

    sql: str
    columns: frozenset[str] | None


def analyse(spark: SparkSession, schema: StructType, predicate: str) -> Predicate:
    """Let Spark analyse the predicate against an empty frame of the table's schema.

    Raises ParameterError with Spark's first sentence and the nearest columns.
    """
    from pyspark.errors import PySparkException

    try:
        frame = spark.createDataFrame([], schema).where(predicate)
        frame.schema  # noqa: B018  under Connect nothing is analysed before
    except PySparkException as error:
        raise ParameterError(f"The predicate cannot be used: {_why(error, schema.names)}", detail=scrub(str(error))) from None
    if not has_bridge(spark):
        return Predicate(predicate, None)
    condition: Any = frame._jdf.queryExecution().analyzed().condition()
    if not condition.deterministic():
        raise ParameterError("The predicate gives another answer each time it is asked; state it without rand(), uuid() and their like.")
    references = condition.references().toSeq()
    return Predicate(predicate, frozenset(references.apply(i).name() for i in range(references.size())))


def _why(error: Any, columns: Sequence[str]) -> str:
    first = first_sentence(error)
    name = str((error.getMessageParameters() or {}).get("objectName", "")) if hasattr(error, "getMessageParameters") else ""
    there = ", ".join(columns[:10]) + (", …" if len(columns) > 10 else "")
    return first + (nearest(name.replace("`", ""), columns) or f"; the columns are {there}.")


def first_sentence(error: BaseException) -> str:
    """What went wrong, without Spark's codes, plan and trace; secrets are masked."""
    text = scrub(str(error)).strip()
    causes = re.findall(r"^Caused by: \S*?(\w+(?:Exception|Error)): (\S.*)$", text, re.M)
    line = f"{causes[-1][0]}: {causes[-1][1]}" if causes else text.split("\n", 1)[0]
    line = re.sub(r"^\[[A-Z_.0-9]+\] ", "", line).split(" SQLSTATE")[0].split(". ")[0]
    return line[:300].rstrip(". ") or type(error).__name__
