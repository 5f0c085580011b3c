"""The options of ``look``, ``compare``, ``report`` and ``plan``, which only observe tables."""

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.commands.shared import (
    FILE,
    NUMBER,
    CatalogOptions,
    ExecutorOptions,
    FailOptions,
    HealthOptions,
    HistoryOptions,
    JsonOptions,
    ObserveOptions,
    OutputOptions,
    StorageOptions,
    TableOptions,
    ThresholdOptions,
)
from icekit.common.options import read_number, setting


class StartOptions(OutputOptions, TableOptions):
    """``00_start_here``."""


class LookOptions(
    JsonOptions, FailOptions, StorageOptions, HealthOptions, ObserveOptions, CatalogOptions
):
    """``icekit look``."""

    table: str = setting(
        "",
        "such as db.events, or a pattern: 'db.*', or 'db.**' with the namespaces inside db "
        "(default: every table of the catalog)",
        nargs="?",
    )
    verbose: bool = setting(
        False, "of several tables: also say why a table cannot be read", short="v", only="command"
    )
    jobs: int = setting(4, "of several tables: how many are read at the same time", "N", rare=True)


class CompareOptions(JsonOptions, ThresholdOptions, CatalogOptions):
    """``icekit compare``."""

    before: str = setting("", "TABLE@REF, TABLE, or a JSON report", "BEFORE", nargs="1")
    after: str = setting("", "the same, later", "AFTER", nargs="1")
    html: str = setting("", "also write the comparison as a page", "FILE", only="command")


class DiagnoseOptions(
    OutputOptions, HistoryOptions, StorageOptions, HealthOptions, ObserveOptions, TableOptions
):
    """``01_diagnose``."""

    facts_file: str = setting(
        "", "facts saved by an earlier run (default: observe the table)", only="notebook"
    )


class ReportSection(StorageOptions, HealthOptions):
    """The section ``report`` of a policy."""

    timeout: float | None = setting(
        None,
        "time limit for each table, the start of Spark included (default: none)",
        "SECONDS",
        read=read_number,
    )


class ReportOptions(ReportSection, HistoryOptions, ObserveOptions, CatalogOptions):
    """``icekit report``."""

    tables: tuple[str, ...] = setting(
        (),
        "a table, or a pattern: 'db.*', or 'db.**' with the namespaces inside db",
        "TABLE",
        nargs="+",
    )
    output: str = setting("reports", "folder to write to")
    junit: str = setting("", "also write JUnit XML, a case per table", FILE)
    jobs: int = setting(4, "tables observed at the same time", NUMBER)


class PlanOptions(JsonOptions, CompactionPolicy, ExecutorOptions, HealthOptions, TableOptions):
    """``icekit plan``."""
