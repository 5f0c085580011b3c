"""Groups of options that several commands have."""

from collections.abc import Mapping

from icekit.common.options import Settings, one_of, setting

#: What the help shows in place of a value.
TIME = "TIME"
SIZE = "SIZE"
SQL = "SQL"
FILE = "FILE"
NUMBER = "N"


class CatalogOptions(Settings):
    """A catalog."""

    catalog: str = setting(
        "", "a profile of the PyIceberg configuration (default: the embedded lake)"
    )


class TableOptions(CatalogOptions):
    """A table of a catalog."""

    table: str = setting("", "such as db.events", nargs="1")


class OutputOptions(Settings):
    """Where to write a document."""

    output: str = setting("", "also write the result as JSON into this folder", "FOLDER", rare=True)


class ThresholdOptions(Settings):
    """What is healthy."""

    thresholds: Mapping[str, float] = setting(
        {},
        "change a threshold of the findings; may be repeated",
        "NAME=VALUE",
        repeats=True,
        rare=True,
    )


class HealthOptions(ThresholdOptions):
    """What is healthy, by what queries filter by."""

    filter_columns: tuple[str, ...] = setting(
        (), "columns that queries filter by, separated by commas", rare=True
    )


class ObserveOptions(Settings):
    """What is observed, and how."""

    ref: str = setting(
        "", "branch, tag, snapshot id or date (default: the current snapshot)", rare=True
    )
    collector: str = setting(
        "auto", "what reads the metadata: spark, local (no JVM) or auto", rare=True
    )


class StorageOptions(Settings):
    """Whether the storage is listed."""

    storage: bool = setting(
        False,
        "also look for missing and orphan files, and remove none: list the table's location, and "
        "compare it with the files that the metadata names (no Spark up to 200,000 files)",
    )


class JsonOptions(Settings):
    """How the answer is printed."""

    json: bool = setting(False, "print the answer as a JSON document", only="command")


class ExecutorOptions(Settings):
    """Who reads the equality deletes."""

    executor: str = setting(
        "",
        'the executor that reads the equality deletes: "4 cores 8g" (default: this session\'s)',
        SIZE,
    )


class LeaveAloneOptions(Settings):
    """Who is not disturbed."""

    leave_alone: str = setting(
        "",
        'skip partitions written within this time, such as "2 hours" (default: 60 minutes, only '
        "if a conflict is likely)",
        TIME,
    )


class FailOptions(Settings):
    """What is a failure."""

    fail_on: str = setting(
        "never",
        "fail if a table has a finding of this severity or worse: warning or critical",
        read=one_of("fail_on", "never", "warning", "critical"),
    )


class HistoryOptions(FailOptions):
    """What is a failure, and where health is recorded."""

    history: str = setting("", "record health over time in a SQLite file", FILE)


class ProofOptions(Settings):
    """What is proved."""

    prove: str = setting(
        "checked",
        "checked: before each commit where possible, or after it; full: compare all changed "
        "partitions after it; none: no check",
        "checked|full|none",
        rare=True,
    )


class TrialBudget(Settings):
    """What a trial may cost."""

    budget_seconds: float = setting(900.0, "end the trial after N seconds", NUMBER)
    budget_bytes: str = setting("20 GB", "end the trial before it writes more than this", SIZE)
