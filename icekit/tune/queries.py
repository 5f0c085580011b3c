"""Find the filters of queries on a table, from statements and Spark event logs, and values for
them in sampled rows.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from icekit.common import frozen
from icekit.common.errors import ParameterError
from icekit.common.sql import display_name, identifier
from icekit.common.units import count
from icekit.engine.compat import arrow_of
from icekit.engine.lake import session_in_catalog
from icekit.engine.planner import is_command, is_scan_of, query_execution, walk_plan
from icekit.engine.predicate import read_predicate
from icekit.health.facts.column_support import order_refusal
from icekit.health.facts.model import TableFacts
from icekit.health.facts.spark_entries import scalar_sql
from icekit.iceberg.where import NO_BOUNDS, lookup_of
from icekit.sandbox.trial import sampled_files_sql
from icekit.tune.event_log import logged_queries
from icekit.tune.filters import (
    ANYTHING,
    NULLS,
    ColumnCondition,
    Columns,
    Filter,
    FilterTree,
    SqlFilters,
    column_conditions,
    filter_sql,
    filters_of,
    parse_filters,
)

if TYPE_CHECKING:
    from icekit.engine.lake import Lake

#: The most filters of one kind, which differ only in their values.
MOST_VALUES = 16


@frozen
class QueryFilters:
    """The filters, most frequent first; ``notes`` are sentences on what was left out and why."""

    filters: tuple[Filter, ...]
    notes: tuple[str, ...] = ()

    def sql_filters(self, lake: Lake, facts: TableFacts, max_filter_count: int = 48) -> SqlFilters:
        """The filters with the greatest weight, with values (of lookups without one, from a sample)
        and their SQL; without those whose value has no literal or is not known.
        """
        lookup_columns = {c for f in self.filters if f.is_without_value for c in f.columns}
        sample_values = draw_sample(lake, facts, sorted(lookup_columns))
        filters_by_weight = sorted(
            filters_with_values(self.filters, sample_values), key=lambda f: -f.weight
        )
        sql_filters = []
        for f in filters_by_weight[:max_filter_count]:
            with contextlib.suppress(ValueError, OverflowError):
                sql_filters.append((f, filter_sql(f.tree, facts.by_name)))
        return sql_filters


def columns_to_sort_by(facts: TableFacts, filters: Sequence[Filter]) -> list[str]:
    """The columns in filters that rows can be sorted by, and whose values matter, the most used
    first.
    """
    weights_by_column: dict[str, float] = defaultdict(float)
    for f in filters:
        for column in {
            condition.column for condition in column_conditions(f.tree) if condition.op != NULLS
        }:
            has_bounds = not facts.by_name[column].type.startswith(NO_BOUNDS)
            if has_bounds and order_refusal(facts, "sort", [column]) is None:
                weights_by_column[column] += f.weight
    return sorted(weights_by_column, key=lambda column: -weights_by_column[column])


def read_filters(
    lake: Lake, facts: TableFacts, filter_texts: Sequence[str] = (), event_log: str = ""
) -> QueryFilters:
    """The filters of queries on a table, from ``filter_texts`` (predicates or complete queries) and
    a Spark event log.

    ``column = ?`` is a point lookup on a column without a value. Without any of these, a point
    lookup on each column that the table declares (``icekit.filter-columns``). Filters of declared
    columns have no values, see :func:`filters_with_values`. Raises
    :class:`~icekit.common.errors.ParameterError` for an invalid predicate on this table, and for a
    log that cannot be read.
    """
    unknown_columns: set[str] = set()
    filter_trees: list[FilterTree] = []
    notes: list[str] = []
    if not (filter_texts or event_log):
        for declared_column in (c for c in facts.columns if c.name in facts.filter_columns):
            if lookup_of(declared_column):
                filter_trees.append(ColumnCondition(declared_column.name, "="))
            else:
                unknown_columns.add(declared_column.name)
    for filter_text in filter_texts:
        lookup_condition = _parse_lookup(facts, filter_text)
        trees_of_text = (
            [lookup_condition]
            if lookup_condition
            else _pushed_trees(lake, facts, filter_text, unknown_columns)
        )
        filter_trees += trees_of_text
        pushed_columns = {
            condition.column for tree in trees_of_text for condition in column_conditions(tree)
        }
        notes += _function_notes(facts, filter_text, pushed_columns)
    for _, scan_descriptions in logged_queries(event_log, facts.table) if event_log else ():
        filter_trees += [
            _filter_tree(scan_description, facts.by_name, unknown_columns)
            for scan_description in scan_descriptions
        ]
    notes += (
        f"Filters on {unknown_column} are left out: it was dropped or renamed, or has no bounds "
        "by which Iceberg skips files."
        for unknown_column in sorted(unknown_columns)
    )
    if unfiltered_query_count := filter_trees.count(ANYTHING):
        notes.append(
            f"{count(unfiltered_query_count, 'query', 'queries')} had no filter by which bounds of "
            "columns can skip files: none at all, one on a function of a column, or one on buckets "
            "or with <> or NOT IN, which may still skip files by partition."
        )
    return QueryFilters(filters_by_frequency(filter_trees), tuple(notes))


def _parse_lookup(facts: TableFacts, lookup_text: str) -> ColumnCondition | None:
    """The condition of a text such as ``id = ?``; None for other texts."""
    column_text, _, value_text = lookup_text.rpartition("=")
    named_columns = (
        c for c in facts.columns if column_text.strip() in {c.name, identifier(*c.names)}
    )
    column = next(named_columns, None) if value_text.strip() == "?" else None
    return ColumnCondition(column.name, "=") if column and lookup_of(column) else None


def _pushed_trees(
    lake: Lake, facts: TableFacts, filter_text: str, unknown_columns: set[str]
) -> list[FilterTree]:
    """A predicate or a query as Spark pushes it to Iceberg; one tree for each scan of the table."""
    table_name = lake.sql_name(facts.table)
    is_query = re.match(r"\s*(SELECT|WITH)\b", filter_text, re.I) is not None
    with session_in_catalog(lake) as spark:
        query_sql = filter_text
        if not is_query:
            condition_sql = read_predicate(spark, spark.table(identifier(*table_name)), filter_text)
            query_sql = f"SELECT * FROM {identifier(*table_name)} WHERE {condition_sql}"
        execution = query_execution(spark, query_sql)
        # A WITH may precede a DELETE.
        if is_command(spark, execution):
            raise ParameterError(
                f"{filter_text!r} is not a query but a statement that changes data; give a "
                "SELECT, or a predicate."
            )
        scan_descriptions = [
            str(n.scan().description())
            for n in walk_plan(execution.executedPlan())
            if is_scan_of(n, table_name)
        ]
    if is_query and not scan_descriptions:
        raise ParameterError(
            f"{filter_text!r} does not read {display_name(facts.table)}; give a query of this "
            "table, or a predicate."
        )
    return [
        _filter_tree(scan_description, facts.by_name, unknown_columns)
        for scan_description in scan_descriptions or [""]
    ]


# Functions of times for which Iceberg has a transform. (Spark's month, day and hour are those
# within a year, a month and a day.)
_TIME_FUNCTION = re.compile(r"(?<![.\w`])(year|date|to_date)\s*\(\s*([\w.`]+)\s*\)", re.I)


def _function_notes(facts: TableFacts, filter_text: str, pushed_columns: Set[str]) -> Iterator[str]:
    """What to write in place of a function of a time column, which does not reach Iceberg; of
    ``pushed_columns`` some condition does: Spark makes a range of most dates, but of no
    year.
    """
    for function_name, column_sql in dict.fromkeys(_TIME_FUNCTION.findall(filter_text)):
        time_column = facts.by_name.get(column_sql.replace("`", ""))
        is_year = function_name.lower() == "year"
        if time_column is None or (time_column.name in pushed_columns and not is_year):
            continue
        if time_column.type.startswith(("date", "timestamp")):
            transform_call = (
                f"years({column_sql}), which counts from 1970" if is_year else f"days({column_sql})"
            )
            yield (
                f"{function_name}({column_sql}) does not reach Iceberg, so it skips nothing. A "
                f"range of {column_sql} does, and so does "
                f"{identifier(facts.catalog)}.system.{transform_call}."
            )


def _filter_tree(scan_description: str, columns: Columns, unknown_columns: set[str]) -> FilterTree:
    """The filters of a scan as a tree, from Iceberg's description of it."""
    try:
        return parse_filters(filters_of(scan_description), columns, unknown_columns)
    except ValueError:
        # Another version of Iceberg may describe a filter differently; then nothing is known about
        # it.
        return ANYTHING


def filters_by_frequency(trees: Iterable[FilterTree]) -> tuple[Filter, ...]:
    """Filters, most frequent first: equal ones become one, and of those that differ only in their
    values :data:`MOST_VALUES` are kept, with the weight of all of their kind.
    """
    counts_by_shape: Counter[object] = Counter()
    tree_counts_by_shape: dict[object, Counter[FilterTree]] = {}
    for tree in trees:
        if tree != ANYTHING:
            condition_shape = tuple(
                (condition.column, condition.op) for condition in column_conditions(tree)
            )
            counts_by_tree = tree_counts_by_shape.setdefault(condition_shape, Counter())
            counts_by_shape[condition_shape] += 1
            if tree in counts_by_tree or len(counts_by_tree) < MOST_VALUES:
                counts_by_tree[tree] += 1
    weighted_filters = (
        Filter(tree, tree_count * counts_by_shape[condition_shape] / counts_by_tree.total())
        for condition_shape, counts_by_tree in tree_counts_by_shape.items()
        for tree, tree_count in counts_by_tree.items()
    )
    return tuple(sorted(weighted_filters, key=lambda f: -f.weight))


#: The number of lookups that replace a filter without values.
DRAWS = 8
#: For each column the values of some rows, except nulls, with the types that facts use.
ValuesByColumn = Mapping[str, list[Any]]
#: How finely rows are drawn.
_HASHES = 1 << 30
_SEED = 7
_SPARK_TYPES = {"timestamptz": "timestamp", "timestamp": "timestamp_ntz", "fixed": "binary"}


def draw_sample(
    lake: Lake,
    facts: TableFacts,
    columns: Sequence[str],
    *,
    sampled_row_count: int = 20_000,
    sample_bytes: int = 1 << 30,
) -> ValuesByColumn:
    """About ``sampled_row_count`` rows in the order of the files, drawn evenly from all files, or
    from files across the table if all have more than ``sample_bytes``.

    ``columns`` are names of leaves outside lists and maps. Spark reads only these columns; the
    driver holds the rows, file by file. Rows are drawn by a hash of their file and position, so
    that each run on a snapshot draws the same ones, however Spark reads them.
    """
    if facts.snapshot_id is None or not columns:
        return {column_name: [] for column_name in columns}
    scanned_row_count = facts.data.record_count * min(
        1.0, sample_bytes / max(facts.data.size_in_bytes, 1)
    )
    row_share = min(1.0, sampled_row_count / max(scanned_row_count, 1))
    column_sqls = []
    for column_number, column_name in enumerate(columns):
        column = facts.by_name[column_name]
        type_name = column.type.partition("[")[0]
        value_sql = scalar_sql(identifier(*column.names), _SPARK_TYPES.get(type_name, type_name))
        column_sqls.append(f"{value_sql} AS c{column_number}")
    sample_table = arrow_of(
        lake.spark.sql(
            f"SELECT {', '.join(column_sqls)}, _file AS f, _pos AS p FROM "
            f"{identifier(*lake.sql_name(facts.table))} WHERE "
            f"{sampled_files_sql(lake, facts, sample_bytes)} AND pmod(xxhash64(_file, _pos, "
            f"{_SEED}), {_HASHES}) < {round(row_share * _HASHES)}"
        )
    ).sort_by([("f", "ascending"), ("p", "ascending")])
    return {
        column_name: sample_table.column(column_number).drop_null().to_pylist()
        for column_number, column_name in enumerate(columns)
    }


def filters_with_values(
    filters: Iterable[Filter], sample_values: ValuesByColumn
) -> Iterator[Filter]:
    """The filters with values: a lookup without one becomes :data:`DRAWS` lookups of values drawn
    from a sample, which share its weight.

    A lookup on a column without values in the sample keeps none.
    """
    random_source = random.Random(_SEED)
    for f in filters:
        lookup_column = f.columns[0]
        column_values = sample_values.get(lookup_column) if f.is_without_value else None
        if column_values:
            for _ in range(DRAWS):
                yield Filter(
                    ColumnCondition(lookup_column, "=", (random_source.choice(column_values),)),
                    f.weight / DRAWS,
                )
        else:
            yield f
