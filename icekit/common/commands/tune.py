"""The options of the questions of ``tune``, and of ``review-merge``."""

from collections.abc import Mapping

from icekit.common.commands.shared import (
    FILE,
    NUMBER,
    SIZE,
    SQL,
    CatalogOptions,
    OutputOptions,
    TableOptions,
    TrialBudget,
)
from icekit.common.options import Settings, read_texts, setting


class SampleOptions(Settings):
    """How much is tried."""

    sample_bytes: str = setting("1 GB", "how much of the table to try", SIZE)


class TuneOptions(OutputOptions, TrialBudget, TableOptions):
    """What every question has."""


class FilterOptions(Settings):
    """What queries filter by."""

    filters: tuple[str, ...] = setting(
        (),
        "what queries filter by: a predicate, a query, or 'column = ?' for lookups of values of "
        "the table; may be repeated",
        SQL,
        read=read_texts,
        repeats=True,
    )
    event_log: str = setting("", "read filters from a Spark event log, or a folder of them", "PATH")


class FileSizesOptions(SampleOptions, TuneOptions):
    """``icekit tune file-sizes`` and ``07_tune_file_sizes``."""


class MetricsColumnsOptions(SampleOptions, FilterOptions, TuneOptions):
    """``icekit tune metrics-columns`` and ``08_tune_metrics_columns``."""


class LayoutOptions(SampleOptions, FilterOptions, TuneOptions):
    """``icekit tune layout`` and ``09_tune_layout``."""

    reads_per_day: float = setting(
        0.0,
        "queries with these filters per day: a layout that they do not pay back within a year is "
        "not advised",
        NUMBER,
    )


class PlanningOptions(FilterOptions, TuneOptions):
    """``icekit tune planning`` and ``10_tune_planning``."""

    repeats: int = setting(2, "measurements of each plan", NUMBER)


class WriteModeOptions(TuneOptions):
    """``icekit tune write-mode`` and ``05_choose_write_mode``."""

    statement: str = setting("", "the DELETE, UPDATE or MERGE to try", SQL)
    statement_file: str = setting("", "a file with the statement; - reads standard input", FILE)
    operation: str = setting(
        "",
        "synthetic statements to try: delete, update or merge (default: as in the history)",
        "NAME",
    )
    share: float = setting(
        0.0,
        "share of rows that a synthetic statement changes (default: as in the history, else 0.01)",
    )
    file_share: float = setting(
        0.0,
        "share of files that a synthetic statement touches; 1 for all (default: as in the history)",
    )
    reads_per_day: float = setting(
        0.0, "queries of the table per day; divided by the commits per day of the history", NUMBER
    )
    reads_per_commit: float = setting(
        0.0, "queries of the table per DELETE, UPDATE or MERGE", NUMBER
    )
    event_log: str = setting(
        "", "count the queries in a Spark event log, or a folder of them", "PATH"
    )
    read_filter: str | None = setting(None, "what queries filter by (default: full scans)", SQL)
    compact_every: int = setting(
        0, "commits between compactions (default: as in the history)", NUMBER
    )
    commits: int = setting(2, "synthetic statements to try", NUMBER)
    repeats: int = setting(
        3,
        "scans of each clone, or up to three times as many if they differ; the cheapest counts",
        NUMBER,
    )
    sample_bytes: str = setting("", "try copied samples of this size instead of clones", SIZE)
    budget_seconds: float = setting(1800.0, "end the trial after N seconds", NUMBER)


class ReviewMergeOptions(OutputOptions, TrialBudget, CatalogOptions):
    """``icekit review-merge`` and ``06_review_merge``."""

    sql_file: str = setting(
        "", "a file with one MERGE statement; - for standard input", "FILE.sql", nargs="1"
    )
    sql: str = setting("", "one MERGE statement", only="notebook")
    prove: bool = setting(False, "also run both statements on clones and compare")
    budget_seconds: float = setting(1800.0, "with --prove: end the trial after N seconds", NUMBER)


#: What each question of ``icekit tune`` is asked with.
QUESTION_OPTIONS: Mapping[str, type[TuneOptions]] = {
    "file-sizes": FileSizesOptions,
    "metrics-columns": MetricsColumnsOptions,
    "layout": LayoutOptions,
    "write-mode": WriteModeOptions,
    "planning": PlanningOptions,
}
