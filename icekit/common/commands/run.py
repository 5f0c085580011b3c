"""The options of the commands that change a table: ``compact``, ``convert`` and ``maintain``."""

from icekit.common.commands.compaction_policy import CompactionPolicy
from icekit.common.commands.shared import (
    FILE,
    NUMBER,
    SIZE,
    SQL,
    TIME,
    ExecutorOptions,
    HealthOptions,
    ObserveOptions,
    OutputOptions,
    ProofOptions,
    StorageOptions,
    TableOptions,
)
from icekit.common.options import setting


class RunOptions(OutputOptions, TableOptions):
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
        FILE,
        rare=True,
    )


class CompactSection(ProofOptions, CompactionPolicy):
    """The section ``compact`` of a policy."""

    trial: bool = setting(
        False, "try the plan on a zero-copy clone first, and predict from the result"
    )


class CompactOptions(ObserveOptions, HealthOptions, CompactSection, RunOptions):
    """``icekit compact`` and ``02_compact``."""

    exact: bool = setting(
        False,
        "ask Iceberg's planner in a dry run even where the metadata is enough",
        rare=True,
        only="command",
    )


class ConvertSection(ProofOptions):
    """The section ``convert`` of a policy; an empty text is no filter and no size."""

    where: str | None = setting(
        None, "only partitions that may hold rows matching this filter", SQL
    )
    batch_bytes: str | None = setting(
        None, 'disk space that one batch may use: "200 GB" (default: half of the free space)', SIZE
    )


class ConvertOptions(ExecutorOptions, ConvertSection, RunOptions):
    """``icekit convert`` and ``04_equality_deletes``."""

    branch: str = setting("", "convert on a branch (default: the table itself)")
    read_now: bool = setting(
        True, "resolve the deletes on a zero-copy clone and count the rows", only="notebook"
    )


class MaintainSection(StorageOptions, ProofOptions):
    """The section ``maintain`` of a policy."""

    keep: str = setting(
        "", 'how long to keep snapshots: "7 days" (default: the table\'s, or 5 days)', TIME
    )
    keep_last: str = setting(
        "", "how many snapshots to keep in any case (default: the table's, at least 10)", NUMBER
    )
    need: str = setting("", 'how far people must be able to look back: "3 days"', TIME)
    keep_writers: str = setting(
        "",
        "how long to keep the state of a streaming writer that is silent while others write "
        '(default: 30 days): "7 days"; 0 keeps none',
        TIME,
    )
    keep_staged: str = setting(
        "",
        "how long to keep staged writes (spark.wap.id) that nobody publishes (default: 30 days)",
        TIME,
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


class MaintainOptions(HealthOptions, MaintainSection, RunOptions):
    """``icekit maintain`` and ``03_maintain``."""
