"""The public interface: a connected catalog whose methods each call one function of the package."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from icekit.common.commands.compaction_policy import CompactionPolicy, Scope, Strategy
from icekit.common.commands.shared import HealthOptions
from icekit.common.sql import Identifier
from icekit.engine import lake as catalog
from icekit.health import TableFacts, observe
from icekit.health.diagnose import diagnose
from icekit.health.diagnose.findings import Findings, Thresholds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icekit.engine.interrupting import Stop
    from icekit.engine.packing import Packed, Unpacked
    from icekit.health.collect import Collector
    from icekit.maintain.plan import Plan
    from icekit.maintain.planning.proposals import Proposals
    from icekit.maintain.record.ledger import Ledger
    from icekit.maintain.run.options import Limits, RunSettings
    from icekit.maintain.run.outcome import Outcome
    from icekit.show.card import Look
    from icekit.show.compare import ComparedStates
    from icekit.tune.answer import Answer


class Lake(catalog.Lake):
    """A catalog (:class:`icekit.engine.lake.Lake`), with methods to observe, plan, change and tune
    its tables.

    Sizes are bytes or texts such as ``200 GB``, times are texts such as ``2 hours``. Every method
    raises the errors of :mod:`icekit.common.errors`:
    :class:`~icekit.common.errors.ParameterError` for a wrong value, and
    :class:`~icekit.common.errors.TableNotFound`.
    """

    def observe(
        self,
        table: str | Identifier,
        *,
        ref: str | int | None = None,
        collector: Collector = "auto",
        size_ratios: Iterable[float] = (),
        filter_columns: Sequence[str] | None = None,
        storage: bool = False,
        progress: Callable[[int, int], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> TableFacts:
        """Collect a table's facts, at a branch, a tag, a snapshot id or a date; see
        :func:`icekit.health.observe`.
        """
        return observe(
            self,
            table,
            ref=ref,
            collector=collector,
            size_ratios=size_ratios,
            filter_columns=filter_columns,
            storage=storage,
            progress=progress,
            say=say,
        )

    def look(
        self,
        table: str | Identifier,
        *,
        thresholds: Mapping[str, float] | None = None,
        ref: str | int | None = None,
        collector: Collector = "auto",
        filter_columns: Sequence[str] | None = None,
        storage: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> Look:
        """A table's health as its card, which can be written as HTML or JSON; the options are those
        of :meth:`observe`.
        """
        from icekit.show.card import Look

        changed_thresholds = Thresholds().with_changes(**thresholds or {})
        facts = self.observe(
            table,
            ref=ref,
            collector=collector,
            size_ratios=changed_thresholds.size_ratios,
            filter_columns=filter_columns,
            storage=storage,
            say=say,
        )
        findings = diagnose(facts, changed_thresholds, session_conf=self.session_conf())
        return Look(facts, findings, changed_thresholds)

    def plan(
        self,
        facts: TableFacts,
        findings: Findings | None = None,
        *,
        scope: Scope = "minor",
        strategy: Strategy = "binpack",
        columns: Sequence[str] = (),
        budget: str = "",
        since: str | dt.date | None = None,
        until: str | dt.date | None = None,
        skip_last: str = "",
        leave_alone: str = "",
        min_files: int | None = None,
        delete_ratio: float | None = None,
        old_specs: bool = False,
        max_action_bytes: int | str = 50_000_000_000,
        max_action_partitions: int = 100,
        trial: bool = False,
        ledger: Ledger | str | None = None,
    ) -> Plan:
        """Plan only the rewrites that are worth it; runs nothing. The options are explained in
        :class:`icekit.common.commands.compaction_policy.CompactionPolicy`.

        ``trial`` tries the plan on a zero-copy clone first. The ``ledger`` (default:
        ``~/.local/state/icekit/ledger.db``) has the speed of past runs.
        """
        from icekit.maintain.planning.table_plan import plan_table

        policy = CompactionPolicy(
            scope=scope,
            strategy=strategy,
            columns=columns,
            budget=budget,
            since=since,
            until=until,
            skip_last=skip_last,
            leave_alone=leave_alone,
            min_files=min_files,
            delete_ratio=delete_ratio,
            old_specs=old_specs,
            max_action_bytes=max_action_bytes,
            max_action_partitions=max_action_partitions,
        )
        planned = plan_table(self, facts, findings, policy, ledger=ledger)
        if not trial:
            return planned
        from icekit.maintain.run.trial import try_plan

        return try_plan(self, facts, planned)

    def propose(
        self,
        table: str | Identifier,
        *,
        thresholds: Mapping[str, float] | None = None,
        filter_columns: Sequence[str] | None = None,
        executor: str = "",
        scope: Scope = "minor",
        strategy: Strategy = "binpack",
        columns: Sequence[str] = (),
        budget: str = "",
        since: str | dt.date | None = None,
        until: str | dt.date | None = None,
        skip_last: str = "",
        leave_alone: str = "",
        min_files: int | None = None,
        delete_ratio: float | None = None,
        old_specs: bool = False,
        max_action_bytes: int | str = 50_000_000_000,
        max_action_partitions: int = 100,
        ledger: Ledger | str | None = None,
    ) -> Proposals:
        """List everything worth doing on a table, with the commands; only reads metadata.

        ``thresholds`` and ``filter_columns`` are those of :meth:`look`, and the commands repeat
        them. ``executor`` is the one that reads equality deletes: ``4 cores 8g`` (default: this
        session's). The others are the options of the compaction, as in :meth:`plan`. See
        :func:`icekit.maintain.planning.proposals.propose`.
        """
        from icekit.maintain.planning.proposals import propose

        policy = CompactionPolicy(
            scope=scope,
            strategy=strategy,
            columns=columns,
            budget=budget,
            since=since,
            until=until,
            skip_last=skip_last,
            leave_alone=leave_alone,
            min_files=min_files,
            delete_ratio=delete_ratio,
            old_specs=old_specs,
            max_action_bytes=max_action_bytes,
            max_action_partitions=max_action_partitions,
        )
        health_options = HealthOptions.of(
            {"thresholds": thresholds, "filter_columns": filter_columns}
        )
        changed_thresholds = Thresholds().with_changes(**health_options.thresholds)
        facts = self.observe(
            table, size_ratios=changed_thresholds.size_ratios, filter_columns=filter_columns
        )
        return propose(
            self,
            facts,
            thresholds=changed_thresholds,
            executor=executor,
            policy=policy,
            command_options=shlex.join(health_options.option_words(HealthOptions)),
            ledger=ledger,
        )

    def run(
        self,
        plan: Plan,
        *,
        execute: bool = False,
        ledger: Ledger | str | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
        progress: Callable[[str], None] = print,
        run_id: str | None = None,
    ) -> Outcome:
        """Run a plan, safe to interrupt, and check that no row changed; a dry run unless
        ``execute``. See :func:`icekit.maintain.run.verbs.run`.

        The ``ledger`` is a path, or None for the default file; ``limits`` say how often a conflict
        is retried and what is proved; ``stop`` ends the run, and ``progress`` gets its lines. Pass
        ``run_id`` (from :func:`icekit.maintain.run.verbs.new_run_id`) to know it before the run
        begins.
        """
        from icekit.maintain.run.verbs import run

        settings = _settings(ledger, limits, stop, progress, run_id)
        return run(self, plan, settings, execute=execute)

    def convert(
        self,
        table: str | Identifier,
        where: str | None = None,
        *,
        branch: str | None = None,
        batch_bytes: int | str | None = None,
        execute: bool = False,
        ledger: Ledger | str | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
        progress: Callable[[str], None] = print,
        run_id: str | None = None,
    ) -> Outcome:
        """Turn equality deletes into position deletes and check that no row changed; a dry run
        unless ``execute``.

        ``where`` is SQL: only partitions that may hold such rows. ``batch_bytes`` is the disk space
        that one batch may use (default: half of the free space). The other options are those of
        :meth:`run`. See :func:`icekit.maintain.run.verbs.convert_equality_deletes`.
        """
        from icekit.maintain.run.verbs import convert_equality_deletes

        settings = _settings(ledger, limits, stop, progress, run_id)
        return convert_equality_deletes(
            self,
            table,
            where,
            settings,
            branch=branch,
            batch_bytes=batch_bytes,
            execute=execute,
        )

    def review_merge(
        self,
        sql: str,
        *,
        prove: bool = False,
        budget_seconds: float = 1800.0,
        budget_bytes: str = "20 GB",
        progress: Callable[[str], None] = print,
    ) -> Answer:
        """Explain a MERGE without running it, and propose a narrower ON; ``prove`` runs both on
        clones, within the budgets. See :func:`icekit.tune.merge.review_merge`.
        """
        from icekit.tune.merge import review_merge

        return review_merge(
            self,
            sql,
            prove=prove,
            budget_seconds=budget_seconds,
            budget_bytes=budget_bytes,
            progress=progress,
        )

    def tune(
        self,
        question: str,
        table: str | Identifier,
        *,
        filters: Sequence[str] | None = None,
        event_log: str | None = None,
        reads_per_day: float | None = None,
        sample_bytes: str | None = None,
        repeats: int | None = None,
        statement: str | None = None,
        operation: str | None = None,
        share: float | None = None,
        file_share: float | None = None,
        reads_per_commit: float | None = None,
        read_filter: str | None = None,
        compact_every: int | None = None,
        commits: int | None = None,
        budget_seconds: float | None = None,
        budget_bytes: str | None = None,
        progress: Callable[[str], None] = print,
    ) -> Answer:
        """Measure how a table should be written or laid out; only reads the table.

        ``question`` is one of the following; its options and their defaults are those of
        ``icekit tune QUESTION --help``, and None is the default. All have ``budget_seconds`` (900;
        for write-mode 1800) and ``budget_bytes`` (20 GB), which end the trial.

        - ``file-sizes``: ``sample_bytes`` (1 GB), how much of the table to try
        - ``metrics-columns``: ``sample_bytes``, ``filters`` (predicates or queries), ``event_log``
        - ``layout``: the same, and ``reads_per_day`` with these filters
        - ``planning``: ``filters``, ``event_log``, ``repeats`` (2)
        - ``write-mode``: ``statement`` (a DELETE, UPDATE or MERGE), or synthetic ones by
          ``operation``, ``share`` of rows, ``file_share`` and ``commits`` (2); ``reads_per_day``,
          ``reads_per_commit`` or ``event_log``; ``read_filter``, ``compact_every`` (commits),
          ``repeats`` (3), ``sample_bytes`` (whole clones)

        See :func:`icekit.tune.tune`; raises :class:`~icekit.common.errors.ParameterError` for an
        option of another question.
        """
        from icekit.tune import tune

        return tune(
            self,
            question,
            table,
            filters=filters,
            event_log=event_log,
            reads_per_day=reads_per_day,
            sample_bytes=sample_bytes,
            repeats=repeats,
            statement=statement,
            operation=operation,
            share=share,
            file_share=file_share,
            reads_per_commit=reads_per_commit,
            read_filter=read_filter,
            compact_every=compact_every,
            commits=commits,
            budget_seconds=budget_seconds,
            budget_bytes=budget_bytes,
            progress=progress,
        )

    def read_resolved(self, table: str | Identifier) -> DataFrame:
        """The current rows of a table with too many equality deletes for Spark; the table does not
        change.

        icekit resolves the deletes once, on a zero-copy clone; each query of the frame is then a
        plain scan. :meth:`close` (or the end of the process) removes the clone and its files.
        Raises :class:`~icekit.common.errors.CloneRefused` and
        :class:`~icekit.common.errors.ConversionRefused`.
        """
        from icekit.rows.deletes.resolved import resolved

        return self.until_closed.enter_context(resolved(self, self.identifier(table)))

    def resume(
        self,
        table: str | Identifier,
        *,
        command: str = "compact",
        ledger: Ledger | str | None = None,
        limits: Limits | None = None,
        stop: Stop | None = None,
        progress: Callable[[str], None] = print,
        run_id: str | None = None,
    ) -> Outcome:
        """Continue the last unfinished run of a command (compact, convert or maintain) on a table;
        the other options are those of :meth:`run`. See :func:`icekit.maintain.run.verbs.resume`.
        """
        from icekit.maintain.run.verbs import resume

        settings = _settings(ledger, limits, stop, progress, run_id)
        return resume(self, table, settings, command=command)

    def pack(
        self,
        table: str | Identifier,
        file: str | Path,
        *,
        data: bool = False,
        redact: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Packed:
        """Write a table into a file that :meth:`unpack` reads: without its data, unless ``data``;
        ``redact`` replaces names and texts. See :func:`icekit.engine.packing.pack`.
        """
        from icekit.engine.packing import pack

        return pack(self, table, Path(file), data=data, redact=redact, progress=progress)

    def unpack(self, file: str | Path, name: str | Identifier = "") -> tuple[Unpacked, ...]:
        """Put the tables of such a file into the embedded lake, a single one under a name. See
        :func:`icekit.engine.packing.unpack`.
        """
        from icekit.engine.packing import unpack

        return unpack(self, Path(file), name)


def _settings(
    ledger: Ledger | str | None,
    limits: Limits | None,
    stop: Stop | None,
    progress: Callable[[str], None],
    run_id: str | None,
) -> RunSettings:
    """The settings of a run; None is the default."""
    from icekit.engine.interrupting import Stop
    from icekit.maintain.run.options import Limits, RunSettings

    return RunSettings(ledger, limits or Limits(), stop or Stop(), progress, run_id)


def compare(
    before: TableFacts | str | Path,
    after: TableFacts | str | Path,
    *,
    lake: Lake | None = None,
    thresholds: Thresholds | None = None,
) -> ComparedStates:
    """Say what got better and worse between two states of a table, or two JSON reports. See
    :func:`icekit.show.compare.compare`.
    """
    from icekit.show.compare import compare

    return compare(before, after, lake=lake, thresholds=thresholds)


def connect(catalog: str | None = None, *, spark: SparkSession | None = None) -> Lake:
    """Connect to a catalog by name; contacts nothing and starts no JVM yet.

    Without a name, with an empty one, or with the name ``lake``, it is the embedded lake: a JDBC
    catalog on SQLite under ``ICEKIT_LAKE`` or ``./lake``. Any other name is a catalog of the given
    (or running) Spark session if it has one with that name, or else a profile in pyiceberg's
    configuration (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__<NAME>__<KEY>``). Raises
    :class:`~icekit.common.errors.ProfileError` for a name that is neither.
    """
    return Lake.connect(catalog, spark=spark)
