"""Every setting of a command, its notebook and its section of a policy, with the one default that
they share.
"""

import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from icekit.common.errors import ParameterError, require_number
from icekit.common.options import Settings, listed, number, one_of, setting, whole
from icekit.common.parsing import budget_limits, parse_time, seconds, size_in_bytes

Scope = Literal["minor", "major"]
Strategy = Literal["binpack", "sort", "zorder", "hilbert"]

_TIME = "TIME"
_SIZE = "SIZE"
_SQL = "SQL"
_FILE = "FILE"
_N = "N"


class OfCatalog(Settings):
    """A catalog."""

    catalog: str = setting(
        "", "a profile of the PyIceberg configuration (default: the embedded lake)"
    )


class OfTable(OfCatalog):
    """A table of a catalog."""

    table: str = setting("", "such as db.events", nargs=None)


class Output(Settings):
    """Where to write a document."""

    output: str = setting("", "also write the result as JSON into this folder", "FOLDER", rare=True)


class OfThresholds(Settings):
    """What is healthy."""

    thresholds: Mapping[str, float] = setting(
        {},
        "change a threshold of the findings; may be repeated",
        "NAME=VALUE",
        repeats=True,
        rare=True,
    )


class Judging(OfThresholds):
    """What is healthy, by what queries filter by."""

    filter_columns: tuple[str, ...] = setting(
        (), "columns that queries filter by, separated by commas", rare=True
    )


class OfSnapshot(Settings):
    """What is observed, and how."""

    ref: str = setting(
        "", "branch, tag, snapshot id or date (default: the current snapshot)", rare=True
    )
    collector: str = setting(
        "auto", "what reads the metadata: spark, local (no JVM) or auto", rare=True
    )


class OfStorage(Settings):
    """Whether the storage is listed."""

    storage: bool = setting(
        False,
        "also look for missing and orphan files, and remove none: list the table's location, and "
        "compare it with the files that the metadata names (no Spark up to 200,000 files)",
    )


class Json(Settings):
    """How the answer is printed."""

    json: bool = setting(False, "print the answer as a JSON document", only="command")


class OfExecutor(Settings):
    """Who reads the equality deletes."""

    executor: str = setting(
        "",
        'the executor that reads the equality deletes: "4 cores 8g" (default: this session\'s)',
        _SIZE,
    )


class LeaveAlone(Settings):
    """Who is not disturbed."""

    leave_alone: str = setting(
        "",
        'skip partitions written within this time, such as "2 hours" (default: 60 minutes, only '
        "if a conflict is likely)",
        _TIME,
    )


class StartOptions(Output, OfTable):
    """``00_start_here``."""


class Failing(Settings):
    """What is a failure."""

    fail_on: str = setting(
        "never",
        "fail if a table has a finding of this severity or worse: warning or critical",
        read=one_of("fail_on", "never", "warning", "critical"),
    )


class LookOptions(Json, Failing, OfStorage, Judging, OfSnapshot, OfCatalog):
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


class CompareOptions(Json, OfThresholds, OfCatalog):
    """``icekit compare``."""

    before: str = setting("", "TABLE@REF, TABLE, or a JSON report", "BEFORE", nargs=None)
    after: str = setting("", "the same, later", "AFTER", nargs=None)
    html: str = setting("", "also write the comparison as a page", "FILE", only="command")


class OfHistory(Failing):
    """What is a failure, and where health is recorded."""

    history: str = setting("", "record health over time in a SQLite file", _FILE)


class DiagnoseOptions(Output, OfHistory, OfStorage, Judging, OfSnapshot, OfTable):
    """``01_diagnose``."""

    facts_file: str = setting(
        "", "facts saved by an earlier run (default: observe the table)", only="notebook"
    )


class ReportSection(OfStorage, Judging):
    """The section ``report`` of a policy."""

    timeout: float | None = setting(
        None,
        "time limit for each table, the start of Spark included (default: none)",
        "SECONDS",
        read=number,
    )


class ReportOptions(ReportSection, OfHistory, OfSnapshot, OfCatalog):
    """``icekit report``."""

    tables: tuple[str, ...] = setting(
        (),
        "a table, or a pattern: 'db.*', or 'db.**' with the namespaces inside db",
        "TABLE",
        nargs="+",
    )
    output: str = setting("reports", "folder to write to")
    junit: str = setting("", "also write JUnit XML, a case per table", _FILE)
    jobs: int = setting(4, "tables observed at the same time", _N)


class Running(Output, OfTable):
    """How a plan runs."""

    execute: bool = setting(False, "run the plan (default: only print it)")
    explain: bool = setting(
        False, "also say why each option of Spark has its value", rare=True, only="command"
    )
    resume: bool = setting(False, "continue the last unfinished run on the table")
    clear: str | None = setting(
        None,
        "confirm that a person has looked at the failed or missing proof of this run, and allow "
        "runs on the table again; runs nothing",
        "RUN",
        rare=True,
        only="command",
    )
    ledger: str = setting(
        "",
        "the file to record runs in (default: ~/.local/state/icekit/ledger.db)",
        _FILE,
        rare=True,
    )


class Proving(Settings):
    """What is proved."""

    prove: str = setting(
        "checked",
        "checked: before each commit where possible, or after it; full: compare all changed partitions after it; none: no check",
        "checked|full|none",
        rare=True,
    )


class Policy(LeaveAlone):
    """What a compaction may do: the one class of its options, for the command, its notebook, a
    policy and Python. Every default is safe on a live table.

    ``scope``: ``minor`` takes small files, oversized files and files with deletes, and leaves
    well-sized files untouched; ``major`` rewrites every file of the partitions it selects.
    A ``strategy`` other than binpack sorts, and so implies ``major``; ``columns`` to sort by
    default to the table's sort order, then to its declared filter columns. ``since``, ``until`` (a
    date or time, UTC) and ``skip_last`` select partitions by their time, if the table is
    partitioned by time. ``leave_alone``: partitions written within this time are skipped; by
    default those of the last 60 minutes, where another commit is likely to conflict with the
    rewrite. ``min_files``: undersized files that make a partition worth a rewrite.
    ``delete_ratio``: position deletes or deletion vectors per data record from which a partition is
    worth a rewrite; equality deletes always make it worth one. Both default to the thresholds of
    the findings. ``old_specs``: also move files of older partition specs into the current one.
    ``budget`` limits what the complete plan reads, according to its prediction;
    ``max_action_bytes`` and ``max_action_partitions`` limit one action, and so what one failed
    attempt costs.

    The attributes ``leave_alone_minutes``, ``skip_last_hours``, ``budget_bytes``, ``budget_files``,
    ``budget_rows`` and ``budget_minutes`` are what the texts say. An empty text is not given.
    """

    scope: Scope = setting(
        "minor",
        "minor: files of the wrong size or with deletes; major: all files",
        read=one_of("scope", *get_args(Scope)),
    )
    strategy: Strategy = setting(
        "binpack",
        "binpack, sort, zorder or hilbert",
        read=one_of("strategy", *get_args(Strategy)),
    )
    columns: tuple[str, ...] = setting(
        (), "columns to order rows by, separated by commas", rare=True
    )
    budget: str = setting(
        "", 'how much the plan may read: "200 GB", "500 million rows", "500 files", "30 minutes"'
    )
    since: dt.datetime | None = setting(
        None, "only partitions from this date or time on (UTC)", read=parse_time, rare=True
    )
    until: dt.datetime | None = setting(
        None, "only partitions that end by this date or time (UTC)", read=parse_time, rare=True
    )
    skip_last: str = setting(
        "", 'skip partitions whose time is in the last: "6 hours"', _TIME, rare=True
    )
    min_files: int | None = setting(
        None,
        "undersized files that make a partition worth a rewrite (default: 5)",
        _N,
        read=whole,
        rare=True,
    )
    delete_ratio: float | None = setting(
        None,
        "share of rows deleted by position that makes a partition worth a rewrite (default: 0.05)",
        _N,
        read=number,
        rare=True,
    )
    old_specs: bool = setting(
        False,
        "move files of older partition specs into the current one, partition by partition, even "
        "if more files come out",
        rare=True,
    )
    max_action_bytes: int = setting(
        50 * 10**9,
        "most that one action may read (default: 50 GB)",
        _SIZE,
        read=lambda value: size_in_bytes(str(value)),
        rare=True,
    )
    max_action_partitions: int = setting(100, "most partitions in one action", _N, rare=True)

    def __init__(self, **given: Any) -> None:
        not_given = [name for name in Policy.declared if given.get(name) == ""]
        super().__init__(**{name: value for name, value in given.items() if name not in not_given})
        if self.strategy != "binpack":
            vars(self)["scope"] = "major"
        limits = budget_limits(self.budget) if self.budget else {}
        self.budget_bytes: int | None = limits.get("budget_bytes")
        self.budget_files: int | None = limits.get("budget_files")
        self.budget_rows: int | None = limits.get("budget_rows")
        self.budget_minutes: float | None = limits.get("budget_minutes")
        self.skip_last_hours = seconds(self.skip_last) / 3600 if self.skip_last else 0.0
        self.leave_alone_minutes = seconds(self.leave_alone) / 60 if self.leave_alone else None
        if self.since and self.until and self.since >= self.until:
            raise ParameterError(
                f"since ({self.since:%Y-%m-%d %H:%M}) is not before until "
                f"({self.until:%Y-%m-%d %H:%M})."
            )
        require_number("delete_ratio", self.delete_ratio)
        for name in ("min_files", "max_action_bytes", "max_action_partitions", *limits):
            require_number(name, getattr(self, name), is_positive=True)


class PlanOptions(Json, Policy, OfExecutor, Judging, OfTable):
    """``icekit plan``."""


class CompactSection(Proving, Policy):
    """The section ``compact`` of a policy."""

    trial: bool = setting(
        False, "try the plan on a zero-copy clone first, and predict from the result"
    )


class CompactOptions(OfSnapshot, Judging, CompactSection, Running):
    """``icekit compact`` and ``02_compact``."""

    exact: bool = setting(
        False,
        "ask Iceberg's planner in a dry run even where the metadata is enough",
        rare=True,
        only="command",
    )


class ConvertSection(Proving):
    """The section ``convert`` of a policy; an empty text is no filter and no size."""

    where: str | None = setting(
        None, "only partitions that may hold rows matching this filter", _SQL
    )
    batch_bytes: str | None = setting(
        None, 'disk space that one batch may use: "200 GB" (default: half of the free space)', _SIZE
    )


class ConvertOptions(OfExecutor, ConvertSection, Running):
    """``icekit convert`` and ``04_equality_deletes``."""

    branch: str = setting("", "convert on a branch (default: the table itself)")
    read_now: bool = setting(
        True, "resolve the deletes on a zero-copy clone and count the rows", only="notebook"
    )


class MaintainSection(OfStorage, Proving):
    """The section ``maintain`` of a policy."""

    keep: str = setting(
        "", 'how long to keep snapshots: "7 days" (default: the table\'s, or 5 days)', _TIME
    )
    keep_last: str = setting(
        "", "how many snapshots to keep in any case (default: the table's, at least 10)", _N
    )
    need: str = setting("", 'how far people must be able to look back: "3 days"', _TIME)
    keep_writers: str = setting(
        "",
        "how long to keep the state of a streaming writer that is silent while others write "
        '(default: 30 days): "7 days"; 0 keeps none',
        _TIME,
    )
    keep_staged: str = setting(
        "",
        "how long to keep staged writes (spark.wap.id) that nobody publishes (default: 30 days)",
        _TIME,
    )
    writer_keys: tuple[str, ...] = setting(
        (),
        "summary keys in which other writers keep their state: KEY, 'KEY by JOB_KEY', or the "
        "beginning of a key that ends with a dot",
        "KEY,KEY",
    )
    procedures: tuple[str, ...] = setting(
        (),
        "only these: rewrite_position_delete_files, rewrite_manifests, expire_snapshots, "
        "remove_orphan_files (default: all but remove_orphan_files)",
        "NAME,NAME",
    )


class MaintainOptions(Judging, MaintainSection, Running):
    """``icekit maintain`` and ``03_maintain``."""


class TrialBudget(Settings):
    """What a trial may cost."""

    budget_seconds: float = setting(900.0, "end the trial after N seconds", _N)
    budget_bytes: str = setting("20 GB", "end the trial before it writes more than this", _SIZE)


class OfSample(Settings):
    """How much is tried."""

    sample_bytes: str = setting("1 GB", "how much of the table to try", _SIZE)


class TuneOptions(Output, TrialBudget, OfTable):
    """What every question has."""


class OfFilters(Settings):
    """What queries filter by."""

    filters: tuple[str, ...] = setting(
        (),
        "what queries filter by: a predicate, a query, or 'column = ?' for lookups of values of "
        "the table; may be repeated",
        _SQL,
        read=listed,
        repeats=True,
    )
    event_log: str = setting("", "read filters from a Spark event log, or a folder of them", "PATH")


class FileSizesOptions(OfSample, TuneOptions):
    """``icekit tune file-sizes`` and ``07_tune_file_sizes``."""


class MetricsColumnsOptions(OfSample, OfFilters, TuneOptions):
    """``icekit tune metrics-columns`` and ``08_tune_metrics_columns``."""


class LayoutOptions(OfSample, OfFilters, TuneOptions):
    """``icekit tune layout`` and ``09_tune_layout``."""

    reads_per_day: float = setting(
        0.0,
        "queries with these filters per day: a layout that they do not pay back within a year is "
        "not advised",
        _N,
    )


class PlanningOptions(OfFilters, TuneOptions):
    """``icekit tune planning`` and ``10_tune_planning``."""

    repeats: int = setting(2, "measurements of each plan", _N)


class WriteModeOptions(TuneOptions):
    """``icekit tune write-mode`` and ``05_choose_write_mode``."""

    statement: str = setting("", "the DELETE, UPDATE or MERGE to try", _SQL)
    statement_file: str = setting("", "a file with the statement; - reads standard input", _FILE)
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
        0.0, "queries of the table per day; divided by the commits per day of the history", _N
    )
    reads_per_commit: float = setting(0.0, "queries of the table per DELETE, UPDATE or MERGE", _N)
    event_log: str = setting(
        "", "count the queries in a Spark event log, or a folder of them", "PATH"
    )
    read_filter: str | None = setting(None, "what queries filter by (default: full scans)", _SQL)
    compact_every: int = setting(0, "commits between compactions (default: as in the history)", _N)
    commits: int = setting(2, "synthetic statements to try", _N)
    repeats: int = setting(
        3,
        "scans of each clone, or up to three times as many if they differ; the cheapest counts",
        _N,
    )
    sample_bytes: str = setting("", "try copied samples of this size instead of clones", _SIZE)
    budget_seconds: float = setting(1800.0, "end the trial after N seconds", _N)


class ReviewMergeOptions(Output, TrialBudget, OfCatalog):
    """``icekit review-merge`` and ``06_review_merge``."""

    sql_file: str = setting(
        "", "a file with one MERGE statement; - for standard input", "FILE.sql", nargs=None
    )
    sql: str = setting("", "one MERGE statement", only="notebook")
    prove: bool = setting(False, "also run both statements on clones and compare")
    budget_seconds: float = setting(1800.0, "with --prove: end the trial after N seconds", _N)


class PolicyFile(Settings):
    """``icekit schedule check``."""

    file: str = setting("", "the policy file", "POLICY", nargs=None)


class PassOptions(PolicyFile):
    """``icekit schedule run``."""

    dry_run: bool = setting(False, "print what the pass would do to each table; writes nothing")


class RecipeOptions(Settings):
    """``icekit schedule recipe``."""

    kind: str = setting(
        "",
        "cron, systemd, airflow",
        "KIND",
        nargs=None,
        read=one_of("kind", "cron", "systemd", "airflow"),
    )
    file: str = setting("policy.yaml", "the policy file", "POLICY", nargs="?")
    output: str = setting("", "write the files there instead of printing them", "FOLDER")


class PackOptions(OfTable):
    """``icekit pack``."""

    file: str = setting("", "the file to write, such as events.icekit.zip", "FILE", nargs=None)
    data: bool = setting(False, "with all files of data and deletes")
    redact: bool = setting(
        False, "replace names of columns, texts in bounds and partitions, and file names"
    )


class UnpackOptions(Settings):
    """``icekit unpack``."""

    file: str = setting("", "a file that icekit pack wrote", "FILE", nargs=None)
    name: str = setting("", "another name for its table, such as db.events", "NAME")


class LabOptions(Settings):
    """``icekit lab``."""

    names: tuple[str, ...] = setting(
        (), "tables (default: those that icekit is installed with)", "NAME", nargs="*"
    )
    all: bool = setting(False, "all tables; those beyond the default are in a clone of icekit")
    reset: bool = setting(
        False, "put tables back as they were unpacked; all later changes are lost"
    )
    list: bool = setting(False, "only list the tables and what is wrong with each")


class DemoOptions(Settings):
    """``icekit demo``."""


class NotebookOptions(Settings):
    """``icekit notebook``."""

    folder: str = setting("my-notebooks", "open copies of the notebooks in this folder", "FOLDER")
    flags: tuple[str, ...] = setting((), "flags of JupyterLab, after --", "FLAG", nargs="*")


class ClonesOptions(OfCatalog):
    """``icekit admin clones``."""

    remove: bool = setting(
        False, "drop the clones whose process has ended, and remove their folders"
    )


#: The sections of a rule of a policy, in the order in which a pass runs the commands.
SECTIONS: Mapping[str, type[Settings]] = {
    "report": ReportSection,
    "convert": ConvertSection,
    "compact": CompactSection,
    "maintain": MaintainSection,
}
#: What each question of ``icekit tune`` is asked with.
QUESTIONS: Mapping[str, type[TuneOptions]] = {
    "file-sizes": FileSizesOptions,
    "metrics-columns": MetricsColumnsOptions,
    "layout": LayoutOptions,
    "write-mode": WriteModeOptions,
    "planning": PlanningOptions,
}
#: What each notebook is set with, by its own parameters and by what its line ``more`` names.
NOTEBOOKS: Mapping[str, type[Settings]] = {
    "00_start_here": StartOptions,
    "01_diagnose": DiagnoseOptions,
    "02_compact": CompactOptions,
    "03_maintain": MaintainOptions,
    "04_equality_deletes": ConvertOptions,
    "05_choose_write_mode": WriteModeOptions,
    "06_review_merge": ReviewMergeOptions,
    "07_tune_file_sizes": FileSizesOptions,
    "08_tune_metrics_columns": MetricsColumnsOptions,
    "09_tune_layout": LayoutOptions,
    "10_tune_planning": PlanningOptions,
}


def command_line(verb: str, catalog: str, table: str | Sequence[str], *options: str) -> str:
    """A command line of icekit for a table, or for several."""
    tables = [table] if isinstance(table, str) else table
    of_catalog = [] if catalog in {"", "lake"} else ["--catalog", catalog]
    return shlex.join(["icekit", *verb.split(), *tables, *of_catalog, *options])
