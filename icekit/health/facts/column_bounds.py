"""Which columns filters may skip files by."""

from icekit.health.facts.model import TableFacts
from icekit.iceberg.definition import Column
from icekit.iceberg.where import NO_BOUNDS

#: A choice: filters on a column hardly skip a file if a value is within the bounds of more than
# this share of the files.
MOST_OVERLAP = 0.5
#: A choice: the most columns whose filters are predicted.
_MOST_COLUMNS = 8


def declared_columns(facts: TableFacts) -> list[str]:
    """The declared filter columns, and the columns of the sort order."""
    sort_columns = [sort_field.source for sort_field in facts.sort_order]
    return list(dict.fromkeys([*facts.filter_columns, *sort_columns]))


def bounded_columns(facts: TableFacts) -> list[Column]:
    """The columns with bounds in all sampled files, for which filters are predicted: the declared
    ones, then those whose filters open the fewest files. A column whose values are those of the
    partition is not among them.
    """
    identity_columns = {
        f.source for f in facts.default_spec.active_fields if f.transform == "identity"
    }
    declared_column_names = declared_columns(facts)
    overlap_share_by_column = {
        column_sample.column: column_sample.stab_share
        for column_sample in facts.metrics_sample.columns
        if column_sample.stab_share is not None
        and column_sample.column in facts.by_name
        and column_sample.column not in identity_columns
        and not facts.by_name[column_sample.column].type.startswith(NO_BOUNDS)
    }
    ranked_column_names = sorted(
        overlap_share_by_column,
        key=lambda column_name: (
            column_name not in declared_column_names,
            overlap_share_by_column[column_name],
        ),
    )
    return [facts.by_name[column_name] for column_name in ranked_column_names[:_MOST_COLUMNS]]
